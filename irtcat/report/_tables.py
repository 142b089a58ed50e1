"""Sections of saved tables: rankings, predictions, leaderboards, simulations."""

from typing import Any

import numpy as np
import pandas as pd

from irtcat import agreement
from irtcat.leaderboard.metrics import METRICS, compare_scores
from irtcat.plot.boards import METRICS as METRIC_NAMES
from irtcat.plot.boards import TITLES
from irtcat.report._blocks import (
    Block,
    Section,
    bar,
    choice,
    column,
    line,
    lines,
    points,
    row,
    table,
    table_of,
    words,
)

__all__ = ["board", "gaps", "plain", "predictions", "scores", "simulation", "subset"]

TOP = 10
Z = 1.959964


def flag_warnings(table: pd.DataFrame, unit: str) -> tuple[str, ...]:
    """One warning per flag in a table, with the number of its rows."""
    if "flags" not in table:
        return ()
    flags = table["flags"].fillna("").astype(str)
    counted = flags[flags != ""].value_counts()
    return tuple(f"{n:,} of {len(table):,} {unit}: {text}." for text, n in counted.items())


def scores(name: str, table_: pd.DataFrame) -> Section:
    """The section of ranked abilities; multidimensional abilities are listed, not ranked."""
    if "theta" not in table_:
        intro = "Abilities by dimension; sort by the one of interest."
        return plain(name, "Abilities", table_, intro, "Subjects")
    frame = table_.sort_values("theta", ascending=False, kind="stable").reset_index(drop=True)
    half = Z * frame["se"]
    for key, end in (("lower", frame["theta"] - half), ("upper", frame["theta"] + half)):
        if key not in frame:
            frame[key] = end
    frame.insert(0, "place", frame["theta"].rank(ascending=False, method="min"))
    first, last = frame["theta"].max(), frame["theta"].min()
    description = f"{len(frame):,} subjects from {last:.2f} to {first:.2f}, each with its interval."
    figure = _caterpillar("Abilities, ranked", "Ability θ", frame, "theta", description)
    keys = [k for k in ("percentile", "n_items", "flags") if k in frame and _has_values(frame[k])]
    columns = [column("subject", frame["subject"]), column("place", frame["place"], "Rank"),
               column("theta", frame["theta"]),
               bar("lower", "theta", "upper", "Ability with interval"),
               column("se", frame["se"], minor=True),
               column("lower", frame["lower"]), column("upper", frame["upper"]),
               *(column(k, frame[k], minor=k != "flags") for k in keys)]  # fmt: skip
    shown = table("Subjects by ability", columns, sort=("place", 1), name="subjects")
    facts = {"Subjects": f"{len(frame):,}", "Mean ability": f"{frame['theta'].mean():.3f}",
             "SD": f"{frame['theta'].std():.3f}",
             "Median SE": f"{frame['se'].replace(np.inf, np.nan).median():.3f}"}  # fmt: skip
    intro = "If the intervals of two subjects overlap, their true order may be reversed."
    return Section(f"Ranking by ability: {name}", (intro,), facts, [figure, shown],
                   flag_warnings(frame, "subjects"))  # fmt: skip


def _has_values(values: pd.Series) -> bool:
    """Whether a column has any values."""
    return bool(values.notna().any() and (values.astype(str) != "").any())


def _caterpillar(
    title: str, label: str, frame: pd.DataFrame, key: str, description: str, **more: Any
) -> Block:
    """A figure of all subjects in order, with the finite ends of their intervals."""
    ends = {name: frame[name].replace([np.inf, -np.inf], np.nan) for name in ("lower", "upper")}
    return points(title, "Rank", label, (np.arange(1, len(frame) + 1), frame[key]),
                  frame["subject"], description, low=ends["lower"], high=ends["upper"],
                  opens="subjects", whole=1, **more)  # fmt: skip


def predictions(name: str, table_: pd.DataFrame, truth: pd.Series | None = None) -> Section:
    """The section of predicted full scores and ranks, compared with true scores if known."""
    frame = table_.sort_values("score", ascending=False, kind="stable").reset_index(drop=True)
    columns = [column("subject", frame["subject"]), column("rank", frame["rank"])]
    if {"rank_lower", "rank_upper"} <= set(frame):
        best, worst = frame["rank_lower"], frame["rank_upper"]
        columns.append(column("rank_lower", best, "Best rank", minor=True))
        columns.append(column("rank_upper", worst, "Worst rank", minor=True))
    columns += [column("score", frame["score"], "Predicted score", percent=True),
                column("lower", frame["lower"], percent=True),
                column("upper", frame["upper"], percent=True)]  # fmt: skip
    facts = {"Subjects": f"{len(frame):,}"}
    blocks: list[Block] = []
    warnings: list[str] = []
    mark = None
    if truth is not None:
        true = truth.reindex(frame["subject"].astype(str)).to_numpy(float)
        if np.isfinite(true).any():
            mark = "truth"
            columns.append(column("truth", true, "True score", percent=True))
            columns.append(column("error", frame["score"] - true, "Error", percent=True))
            figure, accuracy, warnings = _against_truth(frame, true)
            facts |= accuracy
            blocks.append(figure)
        else:
            warnings = ["None of the predicted subjects has a true score in the responses."]
    facts["Mean width of the intervals"] = (
        f"{100 * (frame['upper'] - frame['lower']).mean():.1f} points"
    )
    columns.insert(2, bar("lower", "score", "upper", "Score with interval", mark))
    for key in ("estimator", "flags"):
        if key in frame and _has_values(frame[key]):
            columns.append(column(key, frame[key], minor=key == "estimator"))
    description = "Predicted full scores in order, each with its interval."
    ranked = _caterpillar("Predicted scores, ranked", "Predicted score", frame, "score",
                          description, percent="y")  # fmt: skip
    shown = table("Subjects by predicted score", columns, sort=("rank", 1), name="subjects")
    intro = (
        "A score is the share of points on the full benchmark, predicted from the items run; its "
        "rank is among the calibration subjects. Predictions of subjects in the calibration data "
        "are more accurate than those of new subjects."
    )
    return Section(f"Predicted scores and ranks: {name}", (intro,), facts, [*blocks, ranked, shown],
                   (*warnings, *flag_warnings(frame, "subjects")))  # fmt: skip


def _against_truth(
    frame: pd.DataFrame, true: np.ndarray
) -> tuple[Block, dict[str, str], list[str]]:
    """The figure of predicted against true scores, accuracy facts, and warnings."""
    score, low, high = (frame[name].to_numpy(float) for name in ("score", "lower", "upper"))
    metrics, flags = compare_scores(score, low, high, true, TOP)
    facts = {"Mean absolute error": f"{metrics['mae']:.2f} points",
             "Kendall's tau-b with the true ranking": f"{metrics['kendall']:.3f}",
             "True scores within their interval": f"{metrics['coverage']:.1%}"}  # fmt: skip
    within = facts["True scores within their interval"]
    n = int(np.isfinite(true).sum())
    description = (
        f"{n:,} subjects. {within} of the true scores lie within their interval; the mean absolute "
        f"error is {metrics['mae']:.2f} percentage points."
    )
    figure = points("Predicted against true scores", "True score", "Predicted score", (true, score),
                    frame["subject"], description, low=low, high=high, diagonal=1, percent="xy",
                    opens="subjects")  # fmt: skip
    return figure, facts, [f"Predicted against true: {flag}." for flag in flags]


def board(name: str, table_: pd.DataFrame, warnings: tuple[str, ...] = ()) -> Section:
    """The section of a leaderboard: how well k items reproduce the ranking, by each metric."""
    keys = ["strategy", "estimator", "n_items"]
    metrics = [m for m in METRICS if m in table_ and table_[m].notna().any()]
    groups = table_.groupby(keys, sort=False)
    mean = groups[metrics].mean()
    spread = mean * np.nan
    if all(f"{m}_sd" in table_ for m in metrics):  # a summary
        spread = groups[[f"{m}_sd" for m in metrics]].mean().set_axis(metrics, axis=1)
    elif "seed" in table_:
        spread = groups[metrics].std()
    options: dict[str, list[Block]] = {}
    for metric in metrics:
        flat = mean[metric].rename("mean").to_frame().assign(spread=spread[metric]).reset_index()
        panels = [_panel(metric, estimator, rows) for estimator, rows in
                  flat.groupby("estimator", sort=False)]  # fmt: skip
        options[METRIC_NAMES.get(metric, metric)] = [row(*panels)]
    n = int(table_["seed"].nunique()) if "seed" in table_ else 1
    band = f" Lines are means over {n} seeds, bands one standard deviation." if n > 1 else ""
    intro = (
        "How well a few items reproduce the results of the full benchmark for held-out subjects."
        + band
    )
    facts = {"Strategies": str(table_["strategy"].nunique()),
             "Estimators": str(table_["estimator"].nunique()),
             "Items run": ", ".join(f"{k:g}" for k in sorted(table_["n_items"].unique())),
             "Seeds": str(n)}  # fmt: skip
    shown = table_of(mean.reset_index(), "Means over seeds", sort=("kendall", -1),
                     filters=[f for f in ("strategy", "estimator") if len(set(table_[f])) > 1],
                     minor=("pearson", "rmse", "pairwise_under_2", "pairwise_over_5"))  # fmt: skip
    blocks = [choice("Measure", options), shown] if options else [shown]
    return Section(f"Leaderboard of subsets: {name}", (intro,), facts, blocks,
                   (*warnings, *flag_warnings(table_, "rows")))  # fmt: skip


def _panel(metric: str, estimator: Any, table_: pd.DataFrame) -> Block:
    """The lines of one estimator: a metric against k, by strategy."""
    series, ends = [], []
    for strategy, group in table_.groupby("strategy", sort=False):
        rows = group.sort_values("n_items")
        spread = rows["spread"].fillna(0)
        low, high = rows["mean"] - spread, rows["mean"] + spread
        band = (low, high) if (spread > 0).any() else (None, None)
        series.append(line(str(strategy), rows["n_items"], rows["mean"], *band))
        ends.append(f"{strategy} {rows['mean'].iloc[-1]:.3g}")
    most = table_["n_items"].max()
    description = f"At {most:g} items: {', '.join(ends)}."
    return lines(TITLES.get(str(estimator), f"Estimator: {estimator}"), "Items run, k",
                 METRIC_NAMES.get(metric, metric), series, description, marks=1,
                 logx=int(most / max(table_["n_items"].min(), 1) > 8))  # fmt: skip


def gaps(name: str, table_: pd.DataFrame) -> Section:
    """The section of the smallest gap that k items rank right."""
    panels = []
    for estimator, group in table_.groupby("estimator", sort=False):
        finite = group[np.isfinite(group["gap"])].sort_values("n_items")
        series = [line(str(strategy), rows["n_items"], rows["gap"], rows["lower"], rows["upper"])
                  for strategy, rows in finite.groupby("strategy", sort=False)]  # fmt: skip
        panels.append(lines(TITLES.get(str(estimator), f"Estimator: {estimator}"),
                            "Items run, k", "Smallest gap ranked right (points)", series,
                            "Bands are bootstrap intervals.", marks=1, logx=1, logy=1))  # fmt: skip
    listed = table_of(table_, "Smallest gaps ranked right", sort=("n_items", 1))
    return Section(f"Smallest gaps ranked right: {name}", (), {},
                   [row(*panels), listed], flag_warnings(table_, "rows"))  # fmt: skip


def subset(name: str, table_: pd.DataFrame) -> Section:
    """The section of selected items without a bank in which to mark them."""
    facts = {"Items selected": f"{len(table_):,}"}
    if "strategy" in table_:
        facts["Strategy"] = ", ".join(table_["strategy"].astype(str).unique())
    shown = table_.drop(columns=[c for c in ("strategy", "seed") if c in table_])
    return Section(f"Selected items: {name}", (), facts, [table_of(shown, "Selected items")])


def plain(name: str, title: str, table_: pd.DataFrame, intro: str, caption: str) -> Section:
    """The section of a table without figures."""
    unnamed = [c for c in table_.columns if str(c).startswith("Unnamed")]
    frame = table_.rename(columns={c: "name" for c in unnamed[:1]}).drop(columns=unnamed[1:])
    return Section(f"{title}: {name}", (intro,), {}, [table_of(frame, caption, long=("reasons",))],
                   flag_warnings(table_, "rows"))  # fmt: skip


def simulation(name: str, result: Any) -> Section:
    """The section of adaptive tests of simulated or replayed subjects."""
    tables = result if isinstance(result, dict) else {"sessions": result}
    sessions = tables["sessions"]
    blocks: list[Block] = []
    facts = {"Sessions": f"{len(sessions):,}", "Mean items": f"{sessions['n_items'].mean():.1f}"}
    if {"truth", "theta", "se"} <= set(sessions):
        error = sessions["theta"] - sessions["truth"]
        facts["RMSE of ability"] = f"{np.sqrt((error**2).mean()):.3f}"
        facts["Bias"] = f"{error.mean():+.3f}"
        facts["Truth within ±1.96 SE"] = f"{(error.abs() <= Z * sessions['se']).mean():.1%}"
        facts["Mean SE"] = f"{sessions['se'].replace(np.inf, np.nan).mean():.3f}"
        description = (
            f"{len(sessions):,} sessions; root mean squared error {facts['RMSE of ability']}."
        )
        half = Z * sessions["se"].replace(np.inf, np.nan)
        blocks.append(points(
            "Estimated against true ability", "True ability", "Estimated ability",
            (sessions["truth"], sessions["theta"]), sessions["subject"], description, diagonal=1,
            low=sessions["theta"] - half, high=sessions["theta"] + half, opens="subjects",
        ))  # fmt: skip
    if {"score", "full_score"} <= set(sessions):
        tau = agreement.kendall_tau_b(sessions["score"], sessions["full_score"])
        mae = 100 * agreement.mean_absolute_error(sessions["score"], sessions["full_score"])
        facts["Error of the full score"] = f"{mae:.2f} points"
        half = Z * sessions["score_sd"]
        blocks.append(points(
            "Predicted against actual full score", "Actual score", "Predicted score",
            (sessions["full_score"], sessions["score"]), sessions["subject"],
            f"Kendall's tau-b {tau:.3f}; mean absolute error {mae:.2f} points.",
            low=sessions["score"] - half, high=sessions["score"] + half, diagonal=1,
            percent="xy", opens="subjects",
        ))  # fmt: skip
    blocks = [row(*blocks)] if len(blocks) == 2 else blocks
    curves = [f for f in (_by_length(tables), _by_theta(tables)) if f]
    blocks += [row(*curves)] if curves else []
    ended = [c for c in ("stop",) if c in sessions and len(set(sessions[c])) > 1]
    blocks.append(table_of(sessions, "Sessions", filters=ended, name="subjects",
                           percent=("score", "full_score", "score_sd")))  # fmt: skip
    if "exposure" in tables:
        exposure = tables["exposure"].sort_values("rate", ascending=False)
        facts["Items never administered"] = f"{(exposure['rate'] == 0).mean():.1%}"
        facts["Most exposed item"] = f"{exposure['rate'].max():.1%} of sessions"
        blocks.append(table_of(exposure, "Exposure of each item", sort=("rate", -1),
                               percent=("rate",)))  # fmt: skip
    intro = "The length and accuracy that an adaptive test would have."
    return Section(f"Adaptive tests, simulated: {name}", (intro,), facts, blocks)


def _by_length(tables: dict[str, pd.DataFrame]) -> Block | None:
    """The figure of error against the number of items."""
    table_ = tables.get("by_length")
    if table_ is None or not {"items", "rmse", "se"} <= set(table_) or not len(table_):
        return None
    series = [line("root mean squared error", table_["items"], table_["rmse"])]
    series.append(line("mean standard error", table_["items"], table_["se"]))
    description = (
        f"From {table_['rmse'].iloc[0]:.3g} after one item to {table_['rmse'].iloc[-1]:.3g} after "
    )
    description += (
        f"{table_['items'].iloc[-1]:g}; sessions that ended earlier are not in the later points."
    )
    return lines("Error as items are answered", "Items answered", "Error of ability", series,
                 description, ylim=[0, None], whole=1)  # fmt: skip


def _by_theta(tables: dict[str, pd.DataFrame]) -> Block | None:
    """The figure of error against the true ability."""
    table_ = tables.get("by_theta")
    if (
        table_ is None
        or not {"theta", "rmse"} <= set(table_)
        or "ability" in table_
        or not len(table_)
    ):
        return None
    names = {"rmse": "root mean squared error", "se": "mean standard error", "bias": "bias"}
    series = [
        line(text, table_["theta"], table_[key]) for key, text in names.items() if key in table_
    ]
    return lines("Error by true ability", "True ability θ", "Error of ability", series,
                 "Sessions in groups of equal size by their true ability.", marks=1)  # fmt: skip


def facts_of(document: dict[str, Any]) -> dict[str, str]:
    """The scalar values and intervals of a JSON document, by label."""
    out = {}
    for key, value in document.items():
        if isinstance(value, bool) or value is None:
            out[words(key)] = {True: "yes", False: "no", None: "—"}[value]
        elif isinstance(value, (int, float)):
            out[words(key)] = f"{value:,.4g}"
        elif isinstance(value, str) and len(value) <= 200:
            out[words(key)] = value
        elif (
            isinstance(value, (list, tuple))
            and len(value) == 2
            and all(isinstance(end, (int, float)) for end in value)
        ):
            out[words(key)] = f"{value[0]:.4g} to {value[1]:.4g}"
        elif isinstance(value, dict):
            out |= {f"{words(key)}: {k.lower()}": v for k, v in facts_of(value).items()}
    return out
