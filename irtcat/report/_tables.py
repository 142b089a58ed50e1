"""Sections of tables that commands wrote: rankings, predictions, leaderboards, simulations."""

from typing import Any

import numpy as np
import pandas as pd

from irtcat import agreement
from irtcat.leaderboard import METRICS
from irtcat.leaderboard.metrics import compare_scores
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


def flag_warnings(table: pd.DataFrame, what: str) -> tuple[str, ...]:
    """One sentence for each flag of a table's rows."""
    if "flags" not in table:
        return ()
    flags = table["flags"].fillna("").astype(str)
    counted = flags[flags != ""].value_counts()
    return tuple(f"{n:,} of {len(table):,} {what}: {text}." for text, n in counted.items())


def scores(name: str, table_: pd.DataFrame) -> Section:
    """Abilities, ranked; several abilities have no one order and are listed."""
    if "theta" not in table_:
        said = "Several abilities, numbered; sort by the one you ask for."
        return plain(name, "Abilities", table_, said, "Subjects")
    frame = table_.sort_values("theta", ascending=False, kind="stable").reset_index(drop=True)
    half = Z * frame["se"]
    for key, end in (("lower", frame["theta"] - half), ("upper", frame["theta"] + half)):
        if key not in frame:
            frame[key] = end
    frame.insert(0, "place", frame["theta"].rank(ascending=False, method="min"))
    first, last = frame["theta"].max(), frame["theta"].min()
    said = f"{len(frame):,} subjects from {last:.2f} to {first:.2f}, each with its interval."
    figure = _caterpillar("Abilities, ranked", "Ability θ", frame, "theta", said)
    keys = [k for k in ("percentile", "n_items", "flags") if k in frame and _told(frame[k])]
    columns = [column("subject", frame["subject"]), column("place", frame["place"]),
               column("theta", frame["theta"]),
               bar("lower", "theta", "upper", "Ability with interval"),
               column("se", frame["se"], minor=True),
               column("lower", frame["lower"]), column("upper", frame["upper"]),
               *(column(k, frame[k], minor=k != "flags") for k in keys)]  # fmt: skip
    shown = table("Subjects by ability", columns, sort=("place", 1), name="subjects")
    facts = {"Subjects": f"{len(frame):,}", "Mean ability": f"{frame['theta'].mean():.3f}",
             "SD": f"{frame['theta'].std():.3f}",
             "Median SE": f"{frame['se'].replace(np.inf, np.nan).median():.3f}"}  # fmt: skip
    intro = "Subjects whose intervals overlap may well stand in the other order."
    return Section(f"Ranking by ability: {name}", (intro,), facts, [figure, shown],
                   flag_warnings(frame, "subjects"))  # fmt: skip


def _told(values: pd.Series) -> bool:
    """Whether a column holds anything."""
    return bool(values.notna().any() and (values.astype(str) != "").any())


def _caterpillar(
    title: str, label: str, frame: pd.DataFrame, key: str, said: str, **more: Any
) -> Block:
    """All subjects in order, with intervals; finite ends only."""
    ends = {name: frame[name].replace([np.inf, -np.inf], np.nan) for name in ("lower", "upper")}
    return points(title, "Place", label, (np.arange(1, len(frame) + 1), frame[key]),
                  frame["subject"], said, low=ends["lower"], high=ends["upper"], opens="subjects",
                  whole=1, **more)  # fmt: skip


def predictions(name: str, given: pd.DataFrame, truth: pd.Series | None = None) -> Section:
    """Predicted full scores and ranks, beside the true ones where they are known."""
    frame = given.sort_values("score", ascending=False, kind="stable").reset_index(drop=True)
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
            figure, told, warnings = _against_truth(frame, true)
            facts |= told
            blocks.append(figure)
        else:
            warnings = ["None of the predicted subjects has a true score in the responses given."]
    facts["Mean width of the intervals"] = (
        f"{100 * (frame['upper'] - frame['lower']).mean():.1f} points"
    )
    columns.insert(2, bar("lower", "score", "upper", "Score with interval", mark))
    for key in ("estimator", "flags"):
        if key in frame and _told(frame[key]):
            columns.append(column(key, frame[key], minor=key == "estimator"))
    said = "Predicted full scores in order, each with its interval."
    ranked = _caterpillar("Predicted scores, ranked", "Predicted score", frame, "score", said,
                          percent="y")  # fmt: skip
    shown = table("Subjects by predicted score", columns, sort=("rank", 1), name="subjects")
    intro = ("A score is the share of points on the whole benchmark, told from the items run; its "
             "rank is the place among the calibrated subjects. Subjects who were calibrated on "
             "themselves are told better than new ones would be.")  # fmt: skip
    return Section(f"Predicted scores and ranks: {name}", (intro,), facts, [*blocks, ranked, shown],
                   (*warnings, *flag_warnings(frame, "subjects")))  # fmt: skip


def _against_truth(
    frame: pd.DataFrame, true: np.ndarray
) -> tuple[Block, dict[str, str], list[str]]:
    """Predicted against true scores, and what the difference comes to."""
    score, low, high = (frame[name].to_numpy(float) for name in ("score", "lower", "upper"))
    metrics, flags = compare_scores(score, low, high, true, TOP)
    facts = {"Mean absolute error": f"{metrics['mae']:.2f} points",
             "Kendall's tau-b with the true ranking": f"{metrics['kendall']:.3f}",
             "True scores within their interval": f"{metrics['coverage']:.1%}"}  # fmt: skip
    within = facts["True scores within their interval"]
    n = int(np.isfinite(true).sum())
    said = (
        f"{n:,} subjects. {within} of the true scores lie within their interval; the mean absolute "
        f"error is {metrics['mae']:.2f} percentage points."
    )
    figure = points("Predicted against true scores", "True score", "Predicted score", (true, score),
                    frame["subject"], said, low=low, high=high, diagonal=1, percent="xy",
                    opens="subjects")  # fmt: skip
    return figure, facts, [f"Predicted against true: {flag}." for flag in flags]


def board(name: str, given: pd.DataFrame, told: tuple[str, ...] = ()) -> Section:
    """How well k items keep the ranking, for each metric."""
    keys = ["strategy", "estimator", "n_items"]
    metrics = [m for m in METRICS if m in given and given[m].notna().any()]
    groups = given.groupby(keys, sort=False)
    mean = groups[metrics].mean()
    spread = mean * np.nan
    if all(f"{m}_sd" in given for m in metrics):  # a summary
        spread = groups[[f"{m}_sd" for m in metrics]].mean().set_axis(metrics, axis=1)
    elif "seed" in given:
        spread = groups[metrics].std()
    options: dict[str, list[Block]] = {}
    for metric in metrics:
        flat = mean[metric].rename("mean").to_frame().assign(spread=spread[metric]).reset_index()
        panels = [_panel(metric, estimator, part) for estimator, part in
                  flat.groupby("estimator", sort=False)]  # fmt: skip
        options[METRIC_NAMES.get(metric, metric)] = [row(*panels)]
    n = int(given["seed"].nunique()) if "seed" in given else 1
    band = f" Lines are means over {n} seeds, bands one standard deviation." if n > 1 else ""
    intro = ("How well a few items keep what the whole benchmark says of subjects that were held "
             "out." + band)  # fmt: skip
    facts = {"Strategies": str(given["strategy"].nunique()),
             "Estimators": str(given["estimator"].nunique()),
             "Items run": ", ".join(f"{k:g}" for k in sorted(given["n_items"].unique())),
             "Seeds": str(n)}  # fmt: skip
    shown = table_of(mean.reset_index(), "Means over seeds", sort=("kendall", -1),
                     filters=[f for f in ("strategy", "estimator") if len(set(given[f])) > 1],
                     minor=("pearson", "rmse", "pairwise_under_2", "pairwise_over_5"))  # fmt: skip
    blocks = [choice("Measure", options), shown] if options else [shown]
    return Section(f"Keeping the ranking: {name}", (intro,), facts, blocks,
                   (*told, *flag_warnings(given, "rows")))  # fmt: skip


def _panel(metric: str, estimator: Any, part: pd.DataFrame) -> Block:
    """One estimator's lines of a metric against k."""
    series, ends = [], []
    for strategy, rows in part.groupby("strategy", sort=False):
        own = rows.sort_values("n_items")
        wide = own["spread"].fillna(0)
        band = (own["mean"] - wide, own["mean"] + wide) if (wide > 0).any() else (None, None)
        series.append(line(str(strategy), own["n_items"], own["mean"], *band))
        ends.append(f"{strategy} {own['mean'].iloc[-1]:.3g}")
    most = part["n_items"].max()
    said = f"At {most:g} items: {', '.join(ends)}."
    return lines(TITLES.get(str(estimator), f"Estimator: {estimator}"), "Items run, k",
                 METRIC_NAMES.get(metric, metric), series, said, marks=1,
                 logx=int(most / max(part["n_items"].min(), 1) > 8))  # fmt: skip


def gaps(name: str, given: pd.DataFrame) -> Section:
    """The smallest gap that k items rank right."""
    panels = []
    for estimator, part in given.groupby("estimator", sort=False):
        own = part[np.isfinite(part["gap"])].sort_values("n_items")
        series = [line(str(strategy), rows["n_items"], rows["gap"], rows["lower"], rows["upper"])
                  for strategy, rows in own.groupby("strategy", sort=False)]  # fmt: skip
        panels.append(lines(TITLES.get(str(estimator), f"Estimator: {estimator}"),
                            "Items run, k", "Smallest gap ranked right (points)", series,
                            "Bands are bootstrap intervals.", marks=1, logx=1, logy=1))  # fmt: skip
    listed = table_of(given, "Smallest gaps ranked right", sort=("n_items", 1))
    return Section(f"Smallest gaps ranked right: {name}", (), {},
                   [row(*panels), listed], flag_warnings(given, "rows"))  # fmt: skip


def subset(name: str, given: pd.DataFrame) -> Section:
    """The items chosen, where there is no bank to mark them in."""
    facts = {"Items chosen": f"{len(given):,}"}
    if "strategy" in given:
        facts["Strategy"] = ", ".join(given["strategy"].astype(str).unique())
    shown = given.drop(columns=[c for c in ("strategy", "seed") if c in given])
    return Section(f"Items chosen: {name}", (), facts, [table_of(shown, "Items chosen")])


def plain(name: str, title: str, given: pd.DataFrame, intro: str, caption: str) -> Section:
    """A table as it is."""
    drop = [c for c in given.columns if str(c).startswith("Unnamed")]
    named = given.rename(columns={c: "name" for c in drop[:1]}).drop(columns=drop[1:])
    return Section(f"{title}: {name}", (intro,), {}, [table_of(named, caption, long=("reasons",))],
                   flag_warnings(given, "rows"))  # fmt: skip


def simulation(name: str, tables: Any) -> Section:
    """Adaptive tests of simulated or replayed subjects."""
    given = tables if isinstance(tables, dict) else {"sessions": tables}
    own = given["sessions"]
    blocks: list[Block] = []
    facts = {"Sessions": f"{len(own):,}", "Mean items": f"{own['n_items'].mean():.1f}"}
    if {"truth", "theta", "se"} <= set(own):
        error = own["theta"] - own["truth"]
        facts["RMSE of ability"] = f"{np.sqrt((error**2).mean()):.3f}"
        facts["Bias"] = f"{error.mean():+.3f}"
        facts["Truth within ±1.96 SE"] = f"{(error.abs() <= Z * own['se']).mean():.1%}"
        facts["Mean SE"] = f"{own['se'].replace(np.inf, np.nan).mean():.3f}"
        said = f"{len(own):,} sessions; root mean squared error {facts['RMSE of ability']}."
        half = Z * own["se"].replace(np.inf, np.nan)
        blocks.append(points("Estimated against true ability", "True ability", "Estimated ability",
                             (own["truth"], own["theta"]), own["subject"], said, diagonal=1,
                             low=own["theta"] - half, high=own["theta"] + half,
                             opens="subjects"))  # fmt: skip
    if {"score", "full_score"} <= set(own):
        tau = agreement.kendall_tau_b(own["score"], own["full_score"])
        mae = 100 * agreement.mean_absolute_error(own["score"], own["full_score"])
        facts["Error of the full score"] = f"{mae:.2f} points"
        half = Z * own["score_sd"]
        blocks.append(points("Predicted against actual full score", "Actual score",
                             "Predicted score", (own["full_score"], own["score"]), own["subject"],
                             f"Kendall's tau-b {tau:.3f}; mean absolute error {mae:.2f} points.",
                             low=own["score"] - half, high=own["score"] + half, diagonal=1,
                             percent="xy", opens="subjects"))  # fmt: skip
    blocks = [row(*blocks)] if len(blocks) == 2 else blocks
    curves = [f for f in (_by_length(given), _by_theta(given)) if f]
    blocks += [row(*curves)] if curves else []
    ended = [c for c in ("stop",) if c in own and len(set(own[c])) > 1]
    blocks.append(table_of(own, "Sessions", filters=ended, name="subjects",
                           percent=("score", "full_score", "score_sd")))  # fmt: skip
    if "exposure" in given:
        used = given["exposure"].sort_values("rate", ascending=False)
        facts["Items never given"] = f"{(used['rate'] == 0).mean():.1%}"
        facts["Most exposed item"] = f"{used['rate'].max():.1%} of sessions"
        blocks.append(table_of(used, "How often each item was given", sort=("rate", -1),
                               percent=("rate",)))  # fmt: skip
    intro = "What an adaptive test would cost and how exact it would be, before it is run."
    return Section(f"Adaptive tests, simulated: {name}", (intro,), facts, blocks)


def _by_length(given: dict[str, pd.DataFrame]) -> Block | None:
    """Error against the number of items."""
    part = given.get("by_length")
    if part is None or not {"items", "rmse", "se"} <= set(part) or not len(part):
        return None
    series = [line("root mean squared error", part["items"], part["rmse"])]
    series.append(line("mean standard error", part["items"], part["se"]))
    said = f"From {part['rmse'].iloc[0]:.3g} after one item to {part['rmse'].iloc[-1]:.3g} after "
    said += f"{part['items'].iloc[-1]:g}; sessions that ended earlier are not in the later points."
    return lines("Error as items are answered", "Items answered", "Error of ability", series, said,
                 ylim=[0, None], whole=1)  # fmt: skip


def _by_theta(given: dict[str, pd.DataFrame]) -> Block | None:
    """Error against the true ability."""
    part = given.get("by_theta")
    if part is None or not {"theta", "rmse"} <= set(part) or "ability" in part or not len(part):
        return None
    names = {"rmse": "root mean squared error", "se": "mean standard error", "bias": "bias"}
    series = [line(text, part["theta"], part[key]) for key, text in names.items() if key in part]
    return lines("Error by true ability", "True ability θ", "Error of ability", series,
                 "Sessions in groups of equal size by their true ability.", marks=1)  # fmt: skip


def facts_of(document: dict[str, Any]) -> dict[str, str]:
    """The plain values of a JSON document, by their names in words."""
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
