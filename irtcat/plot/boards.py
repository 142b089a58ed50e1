"""Figures of leaderboards: rank correlation against k, smallest gaps ranked right."""

from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from irtcat._common.checks import argument_error, check_choice
from irtcat.plot.style import COLUMNS, add_title, line_style, panels, tidy

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
    present = table["estimator"].unique().tolist()
    if estimator is not None:
        check_choice("estimator", estimator, present)
    shown = present if estimator is None else [estimator]
    strategies = table["strategy"].unique().tolist()
    figure, row = panels(len(shown))
    for axes, name in zip(row, shown, strict=True):
        _draw_strategies(axes, table[table["estimator"] == name], strategies)
        axes.set_title(TITLES.get(name, name), fontsize="medium", loc="left")
        axes.set_xlabel("Items run, k")
    for axes in row[::COLUMNS]:
        axes.set_ylabel(METRICS[metric] + _reference(metric))
    handles, labels = row[0].get_legend_handles_labels()
    add_title(figure, "How well k items reproduce the full benchmark")
    title = "Strategy" + _band_text(table)
    figure.legend(handles, labels, loc="outside right upper", title=title, frameon=False)
    return figure


def _summarised(table: pd.DataFrame, metric: str) -> pd.DataFrame:
    """Mean and SD over seeds, for each strategy, estimator and k."""
    keys = ["strategy", "estimator", "n_items"]
    flat = table.reset_index() if set(keys) & set(table.index.names) else table
    missing = {*keys, metric} - set(flat.columns)
    if missing or not len(flat):
        got = f"a table without {', '.join(sorted(missing)) or 'rows'}"
        raise argument_error("table", "a result of Leaderboard.summary()", got)
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


def _band_text(table: pd.DataFrame) -> str:
    """The meaning of line and band, if there is more than one seed."""
    n = int(table["n_seeds"].max()) if "n_seeds" in table else 1
    return f"\n(mean ± SD, {n} seeds)" if n > 1 else ""


def _reference(metric: str) -> str:
    """The end of a correlation's axis label; other labels are complete."""
    return " with the full ranking" if metric in ("kendall", "spearman", "pearson") else ""


def _draw_strategies(axes: "Axes", table: pd.DataFrame, strategies: list[str]) -> None:
    """Plot the mean over seeds of each strategy against k, with a band."""
    for number, strategy in enumerate(strategies):
        rows = table[table["strategy"] == strategy].sort_values("n_items")
        at, mean, spread = (rows[name].to_numpy(float) for name in ("n_items", "mean", "spread"))
        style = line_style(number)
        axes.plot(at, mean, label=strategy, markersize=5, **style)
        if (spread > 0).any():
            low, high = mean - spread, mean + spread
            axes.fill_between(at, low, high, color=style["color"], alpha=0.12, linewidth=0)
    ticks = np.unique(table["n_items"].to_numpy(float))
    if ticks[-1] / ticks[0] > 30:
        axes.set_xscale("log")
    axes.set_xticks(ticks, [f"{k:g}" for k in ticks], minor=False)
    axes.minorticks_off()
    tidy(axes)


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
    missing = {"strategy", "estimator", "n_items", "gap", "lower", "upper"} - set(flat.columns)
    if missing or not len(flat):
        got = f"a table without {', '.join(sorted(missing)) or 'rows'}"
        raise argument_error("table", "a result of leaderboard.reliable_gaps", got)
    present = flat["estimator"].unique().tolist()
    if estimator is not None:
        check_choice("estimator", estimator, present)
    shown = present if estimator is None else [estimator]
    if not np.isfinite(flat.loc[flat["estimator"].isin(shown), "gap"]).any():
        raise argument_error("table", "one with a finite gap", "none")
    figure, row = panels(len(shown))
    strategies = flat["strategy"].unique().tolist()
    for axes, name in zip(row, shown, strict=True):
        of_estimator = flat[flat["estimator"] == name]
        finite = of_estimator[np.isfinite(of_estimator["gap"])]
        for number, strategy in enumerate(strategies):
            rows = finite[finite["strategy"] == strategy].sort_values("n_items")
            at, gap, low, high = (
                rows[column].to_numpy(float) for column in ("n_items", "gap", "lower", "upper")
            )
            style = line_style(number)
            axes.plot(at, gap, label=strategy, markersize=5, **style)
            high = np.where(np.isfinite(high), high, gap)
            axes.fill_between(at, low, high, color=style["color"], alpha=0.12, linewidth=0)
        axes.set(xscale="log", yscale="log", xlabel="Items run, k")
        ticks = np.unique(of_estimator["n_items"].to_numpy(float))
        axes.set_xticks(ticks, [f"{k:g}" for k in ticks], minor=False)
        axes.minorticks_off()
        axes.set_title(TITLES.get(name, name), fontsize="medium", loc="left")
        tidy(axes)
    _decade_ticks(row[0])  # the panels share the axis
    for axes in row[::COLUMNS]:
        axes.set_ylabel("Smallest gap ranked right (points)")
    add_title(figure, "The smallest gap that k items rank right")
    handles, labels = row[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside right upper", title="Strategy", frameon=False)
    return figure


def _decade_ticks(axes: "Axes") -> None:
    """Ticks at 1, 2 and 5 of every decade within the range of the data."""
    low, high = axes.get_ylim()
    decades = 10.0 ** np.arange(np.floor(np.log10(low)), np.ceil(np.log10(high)) + 1)
    ticks = np.outer(decades, (1, 2, 5)).ravel()
    ticks = ticks[(ticks >= low) & (ticks <= high)]
    axes.set_yticks(ticks, [f"{tick:g}" for tick in ticks])
    axes.minorticks_off()
    axes.set_ylim(low, high)
