"""Sections of saved tables: rankings, predictions, leaderboards, simulations."""

from collections import Counter
from typing import Any

import numpy as np
import pandas as pd

from irtcat import agreement
from irtcat.leaderboard.metrics import GAPS, METRICS, compare_scores
from irtcat.plot.boards import METRICS as METRIC_NAMES
from irtcat.report.blocks import (
    Block,
    Note,
    Section,
    bar,
    choice,
    column,
    distinct_texts,
    is_blank,
    line,
    lines,
    points,
    row,
    split_flags,
    table,
    table_of,
    words,
)

TOP = 10
MOST_NAMED = 7
"""Lines of a chart that are named and coloured; there are as many colours."""
MOST_BANDS = 4
"""With more lines bands would cover each other."""
BEST_VALUE = {metric: 1.0 for metric in METRICS} | {"mae": 0.0, "rmse": 0.0, "width": 0.0}
"""The best value of each metric. Coverage should be the level, which is at most 1."""
Z = 1.959964


def table_flag_notes(table: pd.DataFrame, unit: str) -> tuple[Note, ...]:
    """One note per flag in a table, with the number of its rows."""
    if "flag" not in table:
        return ()
    counts = Counter(flag for flags in split_flags(table["flag"]) for flag in set(flags))
    return tuple(
        Note(f"{n:,} of {len(table):,} {unit}: {flag}.", "Models" if unit == "subjects" else "Runs")
        for flag, n in counts.most_common()
    )


def distinct_flags(table: pd.DataFrame) -> pd.DataFrame:
    """The table without the flags of most rows, which are said once."""
    if "flag" not in table:
        return table
    texts = distinct_texts(split_flags(table["flag"]))
    return table.assign(flag=pd.Series(texts, table.index, dtype=object))


def scores(name: str, table_: pd.DataFrame, ranked: bool = False) -> Section:
    """The section of ranked abilities; multidimensional abilities are listed, not ranked.

    Args:
        name: for the heading.
        table_: the abilities.
        ranked: whether the ranking of the page is by ability, and has the notes on flags.
    """
    if "theta" not in table_:
        intro = "Abilities by dimension; sort by the one of interest."
        return plain(name, "Abilities", table_, intro, "Subjects")
    frame = table_.sort_values("theta", ascending=False, kind="stable").reset_index(drop=True)
    notes = () if ranked else table_flag_notes(frame, "subjects")
    frame = distinct_flags(frame)
    half = Z * frame["se"]
    for key, end in (("lower", frame["theta"] - half), ("upper", frame["theta"] + half)):
        if key not in frame:
            frame[key] = end
    frame.insert(0, "place", frame["theta"].rank(ascending=False, method="min"))
    first, last = frame["theta"].max(), frame["theta"].min()
    description = f"{len(frame):,} subjects from {last:.2f} to {first:.2f}, each with its interval."
    figure = _caterpillar("Abilities, ranked", "Ability θ", frame, "theta", description)
    keys = [k for k in ("percentile", "n_items", "flag") if k in frame and not is_blank(frame[k])]
    columns = [
        column("subject", frame["subject"]),
        column("place", frame["place"], "Rank"),
        column("theta", frame["theta"], main=True),
        bar("lower", "theta", "upper", "Ability with interval"),
        column("se", frame["se"], main=True),
        column("lower", frame["lower"]),
        column("upper", frame["upper"]),
        *(column(k, frame[k], minor=k != "flag") for k in keys),
    ]
    shown = table("Subjects by ability", columns, sort=("place", 1), name="subjects")
    facts = {
        "Subjects": f"{len(frame):,}",
        "Mean ability": f"{frame['theta'].mean():.3f}",
        "SD": f"{frame['theta'].std():.3f}",
        "Median SE": f"{frame['se'].replace(np.inf, np.nan).median():.3f}",
    }
    intro = "If the intervals of two subjects overlap, their true order may be reversed."
    return Section(f"Ranking by ability: {name}", (intro,), facts, [figure, shown], notes)


def _caterpillar(
    title: str, label: str, frame: pd.DataFrame, key: str, description: str, **more: Any
) -> Block:
    """A figure of all subjects in order, with the finite ends of their intervals."""
    return points(
        title,
        "Rank",
        label,
        (np.arange(1, len(frame) + 1), frame[key]),
        frame["subject"],
        description,
        low=frame["lower"],
        high=frame["upper"],
        opens="subjects",
        whole=1,
        **more,
    )


def predictions(name: str, table_: pd.DataFrame, truth: pd.Series | None = None) -> Section:
    """The section of predicted full scores and ranks, compared with true scores if known."""
    frame = table_.sort_values("score", ascending=False, kind="stable").reset_index(drop=True)
    frame = distinct_flags(frame)
    columns = [column("subject", frame["subject"]), column("rank", frame["rank"], main=True)]
    if {"rank_lower", "rank_upper"} <= set(frame):
        best, worst = frame["rank_lower"], frame["rank_upper"]
        columns.append(column("rank_lower", best, "Best rank", minor=True))
        columns.append(column("rank_upper", worst, "Worst rank", minor=True))
    columns += [
        column("score", frame["score"], "Predicted score", percent=True, main=True),
        column("lower", frame["lower"], percent=True),
        column("upper", frame["upper"], percent=True),
    ]
    facts = {"Subjects": f"{len(frame):,}"}
    blocks: list[Block] = []
    notes: list[Note] = []
    mark = None
    if truth is not None:
        true = truth.reindex(frame["subject"].astype(str)).to_numpy(float)
        if np.isfinite(true).any():
            mark = "truth"
            columns.append(column("truth", true, "True score", percent=True))
            columns.append(column("error", frame["score"] - true, "Error", percent=True))
            figure, accuracy, notes = _against_truth(frame, true)
            facts |= accuracy
            blocks.append(figure)
        else:
            text = "None of the predicted subjects has a true score in the responses."
            notes = [Note(text, "Scores")]
    facts["Mean width of the intervals"] = (
        f"{100 * (frame['upper'] - frame['lower']).mean():.1f} points"
    )
    columns.insert(2, bar("lower", "score", "upper", "Score with interval", mark))
    for key in ("estimator", "flag"):
        if key in frame and not is_blank(frame[key]):
            columns.append(column(key, frame[key], minor=key == "estimator"))
    description = "Predicted full scores in order, each with its interval."
    ranked = _caterpillar(
        "Predicted scores, ranked", "Predicted score", frame, "score", description, percent="y"
    )
    shown = table("Subjects by predicted score", columns, sort=("rank", 1), name="subjects")
    intro = (
        "A score is the share of points on the full benchmark, predicted from the items run; its "
        "rank is among the calibration subjects. Predictions of subjects in the calibration data "
        "are more accurate than those of new subjects."
    )
    return Section(
        f"Predicted scores and ranks: {name}",
        (intro,),
        facts,
        [*blocks, ranked, shown],
        tuple(notes),
    )


def _against_truth(
    frame: pd.DataFrame, true: np.ndarray
) -> tuple[Block, dict[str, str], list[Note]]:
    """The figure of predicted against true scores, accuracy facts, and what to check."""
    score, low, high = (frame[name].to_numpy(float) for name in ("score", "lower", "upper"))
    metrics, flags = compare_scores(score, low, high, true, TOP)
    facts = {
        "Mean absolute error": f"{metrics['mae']:.2f} points",
        "Kendall's tau-b with the true ranking": f"{metrics['kendall']:.3f}",
        "True scores within their interval": f"{metrics['coverage']:.1%}",
    }
    within = facts["True scores within their interval"]
    n = int(np.isfinite(true).sum())
    description = (
        f"{n:,} subjects. {within} of the true scores lie within their interval; the mean absolute "
        f"error is {metrics['mae']:.2f} percentage points."
    )
    figure = points(
        "Predicted against true scores",
        "True score",
        "Predicted score",
        (true, score),
        frame["subject"],
        description,
        low=low,
        high=high,
        diagonal=1,
        percent="xy",
        opens="subjects",
    )
    notes = [Note(f"Predicted against true: {flag}.", "Scores", serious=True) for flag in flags]
    return figure, facts, notes


def board(name: str, table_: pd.DataFrame, flags: tuple[str, ...] = ()) -> Section:
    """The section of a leaderboard: how well k items reproduce the ranking, by each metric.

    Args:
        name: for the heading.
        table_: the rows of the leaderboard, or its summary.
        flags: flags of the whole leaderboard.
    """
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
        options[METRIC_NAMES[metric]] = [_chart(metric, flat)]
    n = int(table_["seed"].nunique()) if "seed" in table_ else 1
    band = f" Lines are means over {n} seeds, bands one standard deviation." if n > 1 else ""
    intro = (
        "How well a few items reproduce the results of the full benchmark for held-out subjects. "
        + best_of_board(table_)
        + band
    )
    facts = {
        "Strategies": str(table_["strategy"].nunique()),
        "Estimators": str(table_["estimator"].nunique()),
        "Items run": ", ".join(f"{k:g}" for k in sorted(table_["n_items"].unique())),
        "Seeds": str(n),
    }
    shown = table_of(
        mean.reset_index(),
        "Means over seeds",
        sort=("kendall", -1),
        filters=[f for f in ("strategy", "estimator") if len(set(table_[f])) > 1],
        main=("n_items", metrics[0] if metrics else ""),
        minor=("pearson", "rmse", "spearman", *GAPS),
    )
    blocks = [choice("Measure", options), shown] if options else [shown]
    notes = (*(Note(flag, "Runs") for flag in flags), *table_flag_notes(table_, "rows"))
    return Section(f"Leaderboard of subsets: {name}", (intro,), facts, blocks, notes)


def best_of_board(table_: pd.DataFrame) -> str:
    """The strategy and estimator nearest to the full ranking at the most items, in a sentence.

    Example:
        >>> rows = [("random", "mean", 30, 0.7), ("balanced", "auto", 30, 0.9)]
        >>> names = ["strategy", "estimator", "n_items", "kendall"]
        >>> best_of_board(pd.DataFrame(rows, columns=names))
        "With 30 items, balanced + auto is nearest to the full ranking (Kendall's tau-b 0.900)."
    """
    most = table_["n_items"].max()
    at_most = table_[table_["n_items"] == most]
    mean = at_most.groupby(["strategy", "estimator"], sort=False)["kendall"].mean()
    if not mean.notna().any():
        return ""
    strategy, estimator = mean.idxmax()
    return (
        f"With {most:g} items, {strategy} + {estimator} is nearest to the full ranking "
        f"(Kendall's tau-b {mean.max():.3f})."
    )


def _chart(metric: str, table_: pd.DataFrame) -> Block:
    """One chart of all strategies and estimators: the best lines are named, the others grey."""
    groups = list(table_.groupby(["estimator", "strategy"], sort=False))
    one_estimator, one_strategy = (len(set(table_[key])) == 1 for key in ("estimator", "strategy"))
    lines_: list[tuple[float, Block]] = []
    for (estimator, strategy), group in groups:
        rows = group.sort_values("n_items")
        name = f"{strategy} + {estimator}"
        name = str(strategy) if one_estimator else str(estimator) if one_strategy else name
        spread = rows["spread"].fillna(0)
        low, high = rows["mean"] - spread, rows["mean"] + spread
        band = (low, high) if (spread > 0).any() else (None, None)
        last = float(rows["mean"].iloc[-1])
        error = abs(last - BEST_VALUE[metric])
        drawn = line(name, rows["n_items"], rows["mean"], *band)
        lines_.append((error if np.isfinite(error) else np.inf, drawn))
    ordered = [one for _, one in sorted(lines_, key=lambda entry: entry[0])]
    most = table_["n_items"].max()
    ends = [f"{one['name']} {one['y'][-1]:.3g}" for one in ordered[:3] if one["y"][-1] is not None]
    description = f"Best at {most:g} items: {', '.join(ends)}."
    others = len(ordered) - MOST_NAMED
    if others > 0:
        description += f" The best {MOST_NAMED} lines are named; the other {others} are grey."
    label = METRIC_NAMES[metric]
    return lines(
        label,
        "Items run, k",
        label,
        _with_few_named(ordered),
        description,
        marks=1,
        logx=int(most / max(table_["n_items"].min(), 1) > 8),
        height=340,
    )


def _with_few_named(series: list[Block]) -> list[Block]:
    """Lines of which the first are named, the others grey; many without their bands."""
    if len(series) > MOST_BANDS:
        series = [{key: one[key] for key in ("name", "x", "y")} for one in series]
    return [one if i < MOST_NAMED else {**one, "dim": 1} for i, one in enumerate(series)]


def gaps(name: str, table_: pd.DataFrame) -> Section:
    """The section of the smallest gap that k items rank right."""
    finite = table_[np.isfinite(table_["gap"])]
    groups = finite.sort_values("n_items").groupby(["strategy", "estimator"], sort=False)
    series = [
        line(" + ".join(map(str, key)), rows["n_items"], rows["gap"], rows["lower"], rows["upper"])
        for key, rows in groups
    ]
    series.sort(key=lambda one: one["y"][-1])
    bands = "Bands are bootstrap intervals." if len(series) <= MOST_BANDS else ""
    chart = lines(
        "Smallest gap ranked right",
        "Items run, k",
        "Smallest gap ranked right (points)",
        _with_few_named(series),
        bands,
        marks=1,
        logx=1,
        logy=1,
        height=340,
    )
    listed = table_of(table_, "Smallest gaps ranked right", sort=("n_items", 1))
    return Section(
        f"Smallest gaps ranked right: {name}",
        (),
        {},
        [chart, listed],
        table_flag_notes(table_, "rows"),
    )


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
    return Section(
        f"{title}: {name}",
        (intro,),
        {},
        [table_of(frame, caption, long=("reasons",))],
        table_flag_notes(table_, "rows"),
    )


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
        within = (error.abs() <= Z * sessions["se"])[error.notna()]
        facts["Truth within ±1.96 SE"] = f"{within.mean():.1%}"
        facts["Mean SE"] = f"{sessions['se'].replace(np.inf, np.nan).mean():.3f}"
        rmse = facts["RMSE of ability"]
        half = Z * sessions["se"]
        blocks.append(
            points(
                "Estimated against true ability",
                "True ability",
                "Estimated ability",
                (sessions["truth"], sessions["theta"]),
                sessions["subject"],
                f"{len(sessions):,} sessions; root mean squared error {rmse}.",
                diagonal=1,
                low=sessions["theta"] - half,
                high=sessions["theta"] + half,
                opens="subjects",
            )
        )
    # Without answers there is no score, and without two of them no order.
    pairs = sessions.reindex(columns=["score", "full_score"]).dropna()
    if len(pairs) > 1:
        tau = agreement.kendall_tau_b(pairs["score"], pairs["full_score"])
        mae = 100 * agreement.mean_absolute_error(pairs["score"], pairs["full_score"])
        facts["Error of the full score"] = f"{mae:.2f} points"
        half = Z * sessions["score_sd"]
        blocks.append(
            points(
                "Predicted against actual full score",
                "Actual score",
                "Predicted score",
                (sessions["full_score"], sessions["score"]),
                sessions["subject"],
                f"Kendall's tau-b {tau:.3f}; mean absolute error {mae:.2f} points.",
                low=sessions["score"] - half,
                high=sessions["score"] + half,
                diagonal=1,
                percent="xy",
                opens="subjects",
            )
        )
    blocks = [row(*blocks)] if len(blocks) == 2 else blocks
    curves = [f for f in (_by_length(tables), _by_theta(tables)) if f]
    blocks += [row(*curves)] if curves else []
    ended = [c for c in ("stop",) if c in sessions and len(set(sessions[c])) > 1]
    blocks.append(
        table_of(
            sessions,
            "Sessions",
            filters=ended,
            name="subjects",
            main=("theta", "n_items"),
            percent=("score", "full_score", "score_sd"),
        )
    )
    if "exposure" in tables:
        exposure = tables["exposure"].sort_values("rate", ascending=False)
        facts["Items never administered"] = f"{(exposure['rate'] == 0).mean():.1%}"
        facts["Most exposed item"] = f"{exposure['rate'].max():.1%} of sessions"
        blocks.append(
            table_of(exposure, "Exposure of each item", sort=("rate", -1), percent=("rate",))
        )
    intro = "The length and accuracy that an adaptive test would have."
    return Section(f"Adaptive tests, simulated: {name}", (intro,), facts, blocks)


def _by_length(tables: dict[str, pd.DataFrame]) -> Block | None:
    """The figure of error against the number of items."""
    table_ = tables.get("by_length")
    if table_ is None or not {"items", "rmse", "se"} <= set(table_) or not len(table_):
        return None
    series = [line("root mean squared error", table_["items"], table_["rmse"])]
    series.append(line("mean standard error", table_["items"], table_["se"]))
    first, last = table_.iloc[0], table_.iloc[-1]
    description = (
        f"From {first['rmse']:.3g} after one item to {last['rmse']:.3g} after {last['items']:g}; "
        "sessions that ended earlier are not in the later points."
    )
    return lines(
        "Error as items are answered",
        "Items answered",
        "Error of ability",
        series,
        description,
        ylim=[0, None],
        whole=1,
    )


def _by_theta(tables: dict[str, pd.DataFrame]) -> Block | None:
    """The figure of error against the true ability."""
    table_ = tables.get("by_theta")
    if table_ is None or not {"theta", "rmse"} <= set(table_):
        return None
    if "ability" in table_ or not len(table_):
        return None
    names = {"rmse": "root mean squared error", "se": "mean standard error", "bias": "bias"}
    series = [
        line(text, table_["theta"], table_[key]) for key, text in names.items() if key in table_
    ]
    return lines(
        "Error by true ability",
        "True ability θ",
        "Error of ability",
        series,
        "Sessions in groups of equal size by their true ability.",
        marks=1,
    )


MOST = 1e300
"""Whole numbers above this, as only a damaged file has, have no float."""


def _figure(value: float) -> str:
    """A number with four significant digits."""
    return f"{value:,.4g}" if not abs(value) > MOST else f"beyond {MOST:g}"


def facts_of(document: dict[str, Any]) -> dict[str, str]:
    """The scalar values and intervals of a JSON document, by label."""
    out = {}
    for key, value in document.items():
        if isinstance(value, bool) or value is None:
            out[words(key)] = {True: "yes", False: "no", None: "—"}[value]
        elif isinstance(value, (int, float)):
            out[words(key)] = _figure(value)
        elif isinstance(value, str) and len(value) <= 200:
            out[words(key)] = value
        elif (
            isinstance(value, (list, tuple))
            and len(value) == 2
            and all(isinstance(end, (int, float)) for end in value)
        ):
            out[words(key)] = " to ".join(map(_figure, value))
        elif isinstance(value, dict):
            out |= {f"{words(key)}: {k.lower()}": v for k, v in facts_of(value).items()}
    return out
