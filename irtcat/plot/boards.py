"""Figures of leaderboards: subjects in order, rank correlation against k, smallest gaps."""

from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from irtcat._common.checks import argument_error, check_choice
from irtcat._common.types import FloatArray
from irtcat.plot.style import (
    COLOURS,
    COLUMNS,
    GREY,
    Z,
    check_rows,
    finished,
    line_style,
    one_panel,
    panels,
    plain,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

METRICS = {
    "kendall": "Kendall's tau-b",
    "spearman": "Spearman's rho",
    "pearson": "Pearson's r",
    "mae": "Mean absolute error (percentage points)",
    "rmse": "Root mean squared error (percentage points)",
    "pairwise_under_2": "Pairs ranked right, true gap under 2 points (share)",
    "pairwise_2_to_5": "Pairs ranked right, true gap of 2 to 5 points (share)",
    "pairwise_over_5": "Pairs ranked right, true gap over 5 points (share)",
    "top_overlap": "Best subjects predicted to be the best (share)",
    "coverage": "Full scores within their interval (share)",
    "width": "Width of the intervals (percentage points)",
}
MAX_LABELS = 40
"""Up to so many subjects are named on the axis."""
STEPS = (10, 20, 50, *(digit * 10**power for power in range(2, 12) for digit in (1, 2, 5)))
"""Steps of the numbered ranks: the least that gives at most ten."""
MARGIN = 0.03
"""Margin of the axis of many ranks, in which the first and last name have room."""

WHOSE = " with the full ranking"
"""The end of a correlation's label."""
TITLES = {
    "mean": "Mean of the selected items",
    "weighted": "Weighted mean of the selected items",
    "irt": "IRT prediction of the full score",
}


def rank_correlation(
    table: pd.DataFrame, metric: str = "kendall", estimator: str | None = None
) -> "Figure":
    """How well k items reproduce the full ranking: a line per strategy, a panel per estimator.

    Args:
        table: `Leaderboard.summary()`, or `Leaderboard.to_frame()`, which is averaged here.
        metric: one of `irtcat.leaderboard.METRICS`.
        estimator: plot only this estimator; by default one panel each.

    Returns:
        The figure; lines are means over seeds, bands one standard deviation either side.

    Raises:
        InputError: the table lacks a column or the estimator, contains several splits, or
            matplotlib is not installed.

    Example:
        >>> table = pd.DataFrame({
        ...     "strategy": "random", "estimator": "mean", "n_items": [10, 10, 30, 30],
        ...     "seed": [0, 1, 0, 1], "kendall": [0.7, 0.8, 0.8, 0.9],
        ... })
        >>> rank_correlation(table).axes[0].lines[0].get_xydata().round(2).tolist()
        [[10.0, 0.75], [30.0, 0.85]]
    """
    check_choice("metric", metric, METRICS)
    table = _summarised(table, metric)
    low, high = (table["mean"] + side * table["spread"] for side in (-1, 1))
    lines = table.assign(middle=table["mean"], low=low, high=high)
    n = int(table["n_seeds"].max()) if "n_seeds" in table else 1
    return _strategy_figure(
        lines,
        lines,
        estimator,
        title="How well k items reproduce the full benchmark",
        y_label=METRICS[metric] + (WHOSE if metric in ("kendall", "spearman", "pearson") else ""),
        legend="Strategy" + (f"\n(mean ± SD, {n} seeds)" if n > 1 else ""),
    )


def _summarised(table: pd.DataFrame, metric: str) -> pd.DataFrame:
    """Mean and SD over seeds, for each strategy, estimator and k."""
    keys = ["strategy", "estimator", "n_items"]
    flat = table.reset_index() if set(keys) & set(table.index.names) else table
    check_rows(flat, {*keys, metric}, "a result of Leaderboard.summary()")
    if flat[metric].isna().all():
        raise argument_error("table", f"one with a value of {metric}", "only NaN")
    if f"{metric}_sd" in flat:
        return flat.assign(mean=flat[metric], spread=flat[f"{metric}_sd"])
    splits = flat["split"].unique().tolist() if "split" in flat else []
    if len(splits) > 1:
        raise argument_error("table", "of one split", splits, "Select its rows first.")
    groups = flat.groupby(keys, sort=False)[metric]
    statistics = {"mean": groups.mean(), "spread": groups.std(), "n_seeds": groups.size()}
    return pd.DataFrame(statistics).reset_index()


def _strategy_figure(
    table: pd.DataFrame,
    lines: pd.DataFrame,
    estimator: str | None,
    *,
    title: str,
    y_label: str,
    legend: str,
    by_logarithms: bool = False,
) -> "Figure":
    """A panel for each estimator, or of one, with a line for each strategy against k, and its band.

    Args:
        table: strategy, estimator and n_items of all lines.
        lines: the rows to draw, also with middle, low and high.
        estimator: the only one that is drawn.
        title: title of the figure.
        y_label: label of its y axes.
        legend: title of its legend.
        by_logarithms: whether both axes are logarithmic; else that of k is where k varies much.
    """
    present = table["estimator"].unique().tolist()
    if estimator is not None:
        check_choice("estimator", estimator, present)
    shown = present if estimator is None else [estimator]
    if by_logarithms and not lines["estimator"].isin(shown).any():
        raise argument_error("table", "one with a finite gap", "none")
    figure, row = panels(len(shown))
    for axes, name in zip(row, shown, strict=True):
        of_estimator = lines[lines["estimator"] == name]
        for number, strategy in enumerate(table["strategy"].unique()):
            rows = of_estimator[of_estimator["strategy"] == strategy].sort_values("n_items")
            at, middle, low, high = rows[["n_items", "middle", "low", "high"]].to_numpy(float).T
            style = line_style(number)
            axes.plot(at, middle, label=strategy, markersize=5, **style)
            if (high > low).any():
                axes.fill_between(at, low, high, color=style["color"], alpha=0.12, linewidth=0)
        ticks = np.unique(table.loc[table["estimator"] == name, "n_items"].to_numpy(float))
        if by_logarithms or ticks[-1] / ticks[0] > 30:
            axes.set_xscale("log")
        if by_logarithms:
            axes.set_yscale("log")
        axes.set_xticks(ticks, [f"{k:g}" for k in ticks], minor=False)
        axes.minorticks_off()
        axes.set_title(TITLES.get(name, name), fontsize="medium", loc="left")
        axes.set_xlabel("Items run, k")
    for axes in row[::COLUMNS]:
        axes.set_ylabel(y_label)
    if by_logarithms:
        _decade_ticks(row[0])  # the panels share the axis
    handles, labels = row[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside right upper", title=legend, frameon=False)
    return finished(figure, title, *row)


def reliable_gaps(table: pd.DataFrame, estimator: str | None = None) -> "Figure":
    """The smallest gap that k items rank right: one line per strategy, a panel per estimator.

    Args:
        table: the result of `irtcat.leaderboard.reliable_gaps`.
        estimator: plot only this estimator; by default one panel each.

    Returns:
        The figure, both axes logarithmic; bands are bootstrap intervals. Gaps that are not
        finite are omitted.

    Raises:
        InputError: the table lacks a column, the estimator or a finite gap, or matplotlib is not
            installed.

    Example:
        >>> index = pd.MultiIndex.from_product([["random"], ["mean"], [25, 100]],
        ...     names=["strategy", "estimator", "n_items"])
        >>> table = pd.DataFrame({"gap": [8.0, 4.0], "lower": [7.0, 3.0], "upper": 9.0}, index)
        >>> reliable_gaps(table).axes[0].lines[0].get_xydata().tolist()
        [[25.0, 8.0], [100.0, 4.0]]
    """
    flat = table.reset_index()
    required = ("strategy", "estimator", "n_items", "gap", "lower", "upper")
    check_rows(flat, required, "a result of leaderboard.reliable_gaps")
    high = flat["upper"].where(np.isfinite(flat["upper"]), flat["gap"])
    lines = flat.assign(middle=flat["gap"], low=flat["lower"], high=high)
    return _strategy_figure(
        flat,
        lines[np.isfinite(flat["gap"])],
        estimator,
        title="The smallest gap that k items rank right",
        y_label="Smallest gap ranked right (points)",
        legend="Strategy",
        by_logarithms=True,
    )


def _decade_ticks(axes: "Axes") -> None:
    """Ticks at 1, 2 and 5 of every decade within the range of the data."""
    low, high = axes.get_ylim()
    decades = 10.0 ** np.arange(np.floor(np.log10(low)), np.ceil(np.log10(high)) + 1)
    ticks = np.outer(decades, (1, 2, 5)).ravel()
    ticks = ticks[(ticks >= low) & (ticks <= high)]
    axes.set_yticks(ticks, [f"{tick:g}" for tick in ticks])
    axes.minorticks_off()
    axes.set_ylim(low, high)


def ranked(table: pd.DataFrame) -> "Figure":
    """Subjects in order of their ability or predicted score, each with its interval.

    Args:
        table: `Ability.to_frame()`, `Prediction.to_frame()` or `Groups.to_frame()`, or the output
            of the commands score, predict and groups: theta and se, or score, lower and upper.
            Without lower and upper the interval is 1.96 standard errors either side.

    Returns:
        The figure, the best on top; up to 40 subjects are named, with the letters of their groups
        on the left and the ranks that they may have on the right, where the table has them. More
        are a line with a band, with numbered ranks and five names.
        Subjects without an estimate (NaN) and intervals with an infinite end are not drawn.

    Raises:
        InputError: the table lacks a column or has no estimate, or matplotlib is not installed.

    Example:
        >>> table = pd.DataFrame({"subject": ["x", "y"], "theta": [0.1, 0.9], "se": [0.3, 0.4]})
        >>> [text.get_text() for text in ranked(table).axes[0].get_yticklabels()]
        ['y', 'x']
    """
    flat = table.reset_index() if "subject" in table.index.names else table
    key = "score" if "score" in flat else "theta"
    required = {"subject", key} | (
        {"lower", "upper"} if key == "score" or "lower" in flat else {"se"}
    )
    missing = sorted(required - set(flat.columns))
    if missing or not flat[key].notna().any():
        got = f"a table without {', '.join(missing) or 'an estimate'}"
        raise argument_error("table", "a unidimensional result of score or predict", got)
    rows = flat[flat[key].notna()].sort_values(key, ascending=False, kind="stable")
    middle = rows[key].to_numpy(float)
    low, high = _ends(rows, middle, "lower" in required)
    n = len(rows)
    has_labels = n <= MAX_LABELS
    figure, axes = one_panel(6.8, 1.6 + 0.22 * n if has_labels else 6.4)
    rank = np.arange(1, n + 1)
    finite = np.isfinite(low) & np.isfinite(high)
    names = [plain(name) for name in rows["subject"]]
    is_grouped = "letters" in rows
    if is_grouped and has_labels:
        names = [f"{name}  {letters}" for name, letters in zip(names, rows["letters"], strict=True)]
    if has_labels:
        axes.hlines(
            rank[finite], low[finite], high[finite], color=COLOURS[0], linewidth=1.5, alpha=0.5
        )
        axes.plot(middle, rank, "o", color=COLOURS[0], markersize=5)
        axes.set_yticks(rank, names)
        axes.set_ylim(n + 0.5, 0.5)
        _show_ranks(axes, rank, rows)
    else:
        axes.fill_betweenx(
            rank[finite], low[finite], high[finite], color=COLOURS[0], alpha=0.25, linewidth=0
        )
        axes.plot(middle, rank, color=COLOURS[0], linewidth=2)
        _name_some(axes, rank, low, high, names)
    measure = "predicted score" if key == "score" else "ability"
    if is_grouped:
        measure = "score"
    axes.set_xlabel("Ability θ" if key == "theta" else measure.capitalize())
    if key == "score":
        axes.xaxis.set_major_formatter(lambda value, _: f"{100 * value:g} %")
        if np.nanmax(high[finite], initial=0) <= 1:
            axes.set_xlim(right=min(axes.get_xlim()[1], 1.01))  # the dot of 100 % is not cut
    subjects = f"{n:,} subjects" if n > 1 else "1 subject"
    return finished(figure, f"{subjects} by {measure}, with intervals", axes)


def _show_ranks(axes: "Axes", rank: np.ndarray, rows: pd.DataFrame) -> None:
    """The possible ranks of each subject, on the right."""
    if not {"rank_lower", "rank_upper"} <= set(rows) or rows["rank_lower"].isna().all():
        return
    right = axes.secondary_yaxis("right")
    ends = zip(rows["rank_lower"], rows["rank_upper"], strict=True)
    right.set_yticks(rank, [_ranks_text(*pair) for pair in ends])
    right.set_ylabel("Possible ranks")
    right.spines["right"].set_visible(False)
    right.tick_params(length=0)


def _ranks_text(lower: float, upper: float) -> str:
    """The ranks that a subject may have; empty if they are not known."""
    if not np.isfinite([lower, upper]).all():
        return ""
    return f"{lower:,.0f}" if lower == upper else f"{lower:,.0f} to {upper:,.0f}"


def _name_some(
    axes: "Axes", rank: np.ndarray, low: np.ndarray, high: np.ndarray, names: list[str]
) -> None:
    """Number the ranks, and name the best, the middle and the worst of many subjects."""
    n = len(rank)
    step = next(step for step in STEPS if n / step <= 10)
    axes.set_yticks([1, *range(step, n + 1, step)])
    axes.set_ylabel("Rank")
    axes.set_ylim(n + 0.5 + MARGIN * n, 0.5 - MARGIN * n)
    lowest, highest = axes.get_xlim()
    for row in (0, n // 4, n // 2, 3 * n // 4, n - 1):
        if not (np.isfinite(low[row]) and np.isfinite(high[row])):
            continue
        room_left, room_right = low[row] - lowest, highest - high[row]
        side = -1 if room_left > room_right else 1
        at = low[row] if side < 0 else high[row]
        axes.annotate(
            names[row],
            (at, rank[row]),
            xytext=(6 * side, 0),
            textcoords="offset points",
            ha="right" if side < 0 else "left",
            va="center",
            fontsize="small",
            color=GREY,
        )


def _ends(rows: pd.DataFrame, middle: FloatArray, has_ends: bool) -> tuple[FloatArray, FloatArray]:
    """Ends of the intervals: as they are in the table, or from the standard errors."""
    if has_ends:
        return rows["lower"].to_numpy(float), rows["upper"].to_numpy(float)
    half = Z * rows["se"].to_numpy(float)
    return middle - half, middle + half
