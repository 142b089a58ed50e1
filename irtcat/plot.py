"""Figures of what others computed: item curves, information, rank correlation against k.

Every function returns a matplotlib ``Figure`` that belongs to no window and to no global state;
`save` writes it. Needs the extra ``plot``.
"""

import os
from io import BytesIO
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from irtcat._checks import InputError, argument_error, check_choice
from irtcat._files import check_target, replacing
from irtcat.bank import ItemBank, one_ability
from irtcat.information import expected_se, test_information

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = [
    "check_figure_path",
    "headroom",
    "information_curve",
    "item_curves",
    "rank_correlation",
    "reliable_gaps",
    "save",
]

# Okabe & Ito's colours that tell apart on white, also for the colour-blind; never colour alone.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
MARKERS = ("o", "s", "^", "D", "v", "P", "X")
DASHES = ("-", "--", ":")
GREY = "#666666"
NAMED_CURVES = 8
FORMATS = (".png", ".svg", ".pdf")

METRICS = {
    "kendall": "Kendall's tau-b",
    "spearman": "Spearman's rho",
    "pearson": "Pearson's r",
    "mae": "Mean absolute error (percentage points)",
    "rmse": "Root mean squared error (percentage points)",
    "pairwise_under_2": "Pairs ranked right, true gap under 2 points (share)",
    "pairwise_2_to_5": "Pairs ranked right, true gap of 2 to 5 points (share)",
    "pairwise_over_5": "Pairs ranked right, true gap over 5 points (share)",
    "top_overlap": "Best subjects told to be the best (share)",
    "coverage": "Full scores within their interval (share)",
    "width": "Width of the intervals (percentage points)",
}
ESTIMATORS = {
    "mean": "Mean of the chosen items",
    "weighted": "Weighted mean of the chosen items",
    "irt": "IRT prediction of the full score",
}


def _new_figure(width: float, height: float) -> "Figure":
    """An empty figure, or a sentence where matplotlib is missing."""
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise InputError(
            "Figures need matplotlib, which is not installed. "
            "Install it with pip install 'irtcat[plot]'."
        ) from None
    return Figure(figsize=(width, height), layout="constrained")


def _tidy(axes: "Axes") -> None:
    """Leave what carries the data: no frame, a light grid."""
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(color="#DDDDDD", linewidth=0.6)
    axes.set_axisbelow(True)


def _style(number: int) -> dict[str, Any]:
    """Colour, marker and dashes of the n-th line, all different for 21 lines."""
    n = len(COLOURS)
    return {
        "color": COLOURS[number % n],
        "marker": MARKERS[number % n],
        "linestyle": DASHES[number // n % len(DASHES)],
    }


def _abilities(bank: ItemBank, theta: Any) -> np.ndarray:
    """The abilities to draw at: those given, or four population SDs either side of the mean."""
    one_ability(bank, "plots")
    if theta is None:
        return bank.population_mean + bank.population_sd * np.linspace(-4, 4, 201)
    vector = np.atleast_1d(np.asarray(theta, float))
    if vector.ndim != 1 or len(vector) < 2 or not np.isfinite(vector).all():
        raise argument_error("theta", "a vector of at least two finite numbers", theta)
    return vector


def item_curves(bank: ItemBank, items: Any = None, theta: Any = None) -> "Figure":
    """Item characteristic curves: probability of a right answer against ability.

    Of counts and continuous scores the expected share or score.

    Up to eight items are named in a legend; more are told apart by the colour of their
    difficulty.

    Args:
        bank: the calibrated items.
        items: ids, positions or a mask of the items drawn; all by default.
        theta: abilities on the bank's scale; by default four SDs of its population either side.

    Returns:
        The figure; one line per item, in the order asked.

    Raises:
        InputError: naming an unknown item, or when matplotlib is not installed.

    Example:
        >>> bank = ItemBank.from_parameters(a=[1.0, 2.0], b=[0.0, 1.0])
        >>> figure = item_curves(bank)
        >>> [line.get_label() for line in figure.axes[0].lines]
        ['i1', 'i2']
    """
    figure = _new_figure(6.8, 4.2)
    chosen = bank if items is None else bank.subset(items)
    if len(chosen) == 0:
        raise argument_error("items", "at least one item", items)
    at = _abilities(bank, theta)
    axes = figure.subplots()
    curves = chosen.probability(at)
    if len(chosen) <= NAMED_CURVES:
        apart = max(len(at) // 4, 1)
        for number, (name, curve) in enumerate(zip(chosen.item_ids, curves, strict=True)):
            places = (number * apart // NAMED_CURVES, apart)
            axes.plot(at, curve, label=name, markevery=places, **_style(number))
        figure.legend(loc="outside right upper", title="Item", frameon=False)
    else:
        _draw_by_difficulty(figure, axes, chosen, at, curves)
    right = chosen.model.takes in ("right/wrong", "graded")
    label = "Probability of a right answer" if right else "Expected score"
    axes.set(xlabel="Ability θ", ylabel=label, ylim=(-0.02, 1.02))
    axes.set_xlim(at.min(), at.max())
    _tidy(axes)
    return figure


def _draw_by_difficulty(
    figure: "Figure", axes: "Axes", bank: ItemBank, at: np.ndarray, curves: np.ndarray
) -> None:
    """One thin line per item, coloured by difficulty within the range drawn."""
    from matplotlib import colormaps
    from matplotlib.cm import ScalarMappable
    from matplotlib.colors import Normalize

    difficulty = bank.to_frame()["b"].to_numpy(float)
    shown = np.nan_to_num(np.clip(difficulty, at.min(), at.max()))
    scale = Normalize(shown.min(), shown.max())
    mappable = ScalarMappable(scale, colormaps["viridis"])
    alpha = 0.9 if len(bank) <= 40 else 0.35
    for name, b, curve in zip(bank.item_ids, shown, curves, strict=True):
        axes.plot(at, curve, label=name, color=mappable.to_rgba(b), linewidth=0.9, alpha=alpha)
    figure.colorbar(mappable, ax=axes, label="Difficulty b (on the scale of θ)", fraction=0.05)


def information_curve(bank: ItemBank, theta: Any = None) -> "Figure":
    """Test information and the standard error it implies, against ability.

    Args:
        bank: the calibrated items.
        theta: abilities on the bank's scale; by default four SDs of its population either side.

    Returns:
        The figure: information above, 1 / sqrt(information) below; the shaded band is where
        95 % of the calibration population lie if it is normal.

    Raises:
        InputError: when matplotlib is not installed.

    Example:
        >>> figure = information_curve(ItemBank.from_parameters(b=[-1.0, 0.0, 1.0]), [-1, 0, 1])
        >>> figure.axes[0].lines[0].get_ydata().round(3).tolist()
        [0.552, 0.643, 0.552]
    """
    figure = _new_figure(6.8, 5.0)
    from matplotlib.ticker import LogLocator

    at = _abilities(bank, theta)
    upper, lower = figure.subplots(2, 1, sharex=True)
    upper.plot(at, test_information(bank, at), color=COLOURS[0])
    upper.set_ylabel("Information (1/θ²)")
    upper.set_ylim(bottom=0)
    lower.plot(at, expected_se(bank, at), color=COLOURS[1])
    lower.set(xlabel="Ability θ", ylabel="Standard error of θ", yscale="log")
    lower.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    lower.yaxis.set_major_formatter("{x:g}")
    lower.minorticks_off()
    half = 1.96 * bank.population_sd
    for axes in (upper, lower):
        low, high = bank.population_mean - half, bank.population_mean + half
        axes.axvspan(low, high, color="#EEEEEE", zorder=0, linewidth=0)
        axes.set_xlim(at.min(), at.max())
        _tidy(axes)
    upper.set_title(
        f"{bank.n_items} items; shaded: 95 % of the calibration population",
        fontsize="medium",
        loc="left",
    )
    return figure


def rank_correlation(
    table: pd.DataFrame, metric: str = "kendall", estimator: str | None = None
) -> "Figure":
    """How well k items keep the full ranking: one line per strategy, a panel per estimator.

    Args:
        table: `Leaderboard.summary()`, or `Leaderboard.to_frame()`, which is averaged here.
        metric: one of `irtcat.leaderboard.METRICS`.
        estimator: draw this estimator only; by default each has its panel.

    Returns:
        The figure; the line is the mean over seeds, the band one standard deviation either side.

    Raises:
        InputError: when the table lacks a column or the estimator, holds several splits, or
            when matplotlib is not installed.

    Example:
        >>> table = pd.DataFrame({
        ...     "strategy": "random", "estimator": "mean", "k": [10, 10, 30, 30],
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
    panels = present if estimator is None else [estimator]
    strategies = table["strategy"].unique().tolist()
    figure = _new_figure(2.4 + 3.6 * len(panels), 4.2)
    row = figure.subplots(1, len(panels), sharey=True, squeeze=False)[0]
    for axes, name in zip(row, panels, strict=True):
        _draw_strategies(axes, table[table["estimator"] == name], strategies)
        axes.set_title(ESTIMATORS.get(name, name), fontsize="medium", loc="left")
        axes.set_xlabel("Items run, k")
    row[0].set_ylabel(METRICS[metric] + _with_what(metric))
    handles, labels = row[0].get_legend_handles_labels()
    title = "Strategy" + _band_text(table)
    figure.legend(handles, labels, loc="outside right upper", title=title, frameon=False)
    return figure


def _summarised(table: pd.DataFrame, metric: str) -> pd.DataFrame:
    """Mean and SD over the seeds per strategy, estimator and k, as columns."""
    keys = ["strategy", "estimator", "k"]
    flat = table.reset_index() if set(keys) & set(table.index.names) else table
    absent = {*keys, metric} - set(flat.columns)
    if absent or not len(flat):
        got = f"a table without {', '.join(sorted(absent)) or 'rows'}"
        raise argument_error("table", "what Leaderboard.summary() gives", got)
    if f"{metric}_sd" in flat:
        return flat.assign(mean=flat[metric], spread=flat[f"{metric}_sd"])
    splits = flat["split"].unique().tolist() if "split" in flat else []
    if len(splits) > 1:
        raise argument_error("table", "of one split", splits, "Choose its rows first.")
    groups = flat.groupby(keys, sort=False)[metric]
    parts = {"mean": groups.mean(), "spread": groups.std(), "n_seeds": groups.size()}
    return pd.DataFrame(parts).reset_index()


def _band_text(table: pd.DataFrame) -> str:
    """What line and band are, where there is more than one seed."""
    n = int(table["n_seeds"].max()) if "n_seeds" in table else 1
    return f"\n(mean ± SD, {n} seeds)" if n > 1 else ""


def _with_what(metric: str) -> str:
    """What a correlation is with; an error says it in its name."""
    return " with the full ranking" if metric in ("kendall", "spearman", "pearson") else ""


def _draw_strategies(axes: "Axes", table: pd.DataFrame, strategies: list[str]) -> None:
    """The mean over seeds of each strategy against k, with a band."""
    for number, strategy in enumerate(strategies):
        rows = table[table["strategy"] == strategy].sort_values("k")
        at, mean, spread = (rows[name].to_numpy(float) for name in ("k", "mean", "spread"))
        style = _style(number)
        axes.plot(at, mean, label=strategy, markersize=5, **style)
        if (spread > 0).any():
            low, high = mean - spread, mean + spread
            axes.fill_between(at, low, high, color=style["color"], alpha=0.12, linewidth=0)
    ticks = np.unique(table["k"].to_numpy(float))
    if ticks[-1] / ticks[0] > 30:
        axes.set_xscale("log")
    axes.set_xticks(ticks, [f"{k:g}" for k in ticks], minor=False)
    axes.minorticks_off()
    _tidy(axes)


def reliable_gaps(table: pd.DataFrame, estimator: str | None = None) -> "Figure":
    """The smallest gap that k items rank right: one line per strategy, a panel per estimator.

    Args:
        table: what `irtcat.leaderboard.reliable_gaps` gave.
        estimator: draw this estimator only; by default each has its panel.

    Returns:
        The figure, both axes logarithmic; the band is the bootstrap interval. Gaps that are not
        finite are left out.

    Raises:
        InputError: when the table lacks a column or the estimator, or matplotlib is missing.

    Example:
        >>> index = pd.MultiIndex.from_product([["random"], ["mean"], [25, 100]],
        ...     names=["strategy", "estimator", "k"])
        >>> table = pd.DataFrame({"gap": [8.0, 4.0], "lower": [7.0, 3.0], "upper": 9.0}, index)
        >>> reliable_gaps(table).axes[0].lines[0].get_xydata().tolist()
        [[25.0, 8.0], [100.0, 4.0]]
    """
    flat = table.reset_index()
    absent = {"strategy", "estimator", "k", "gap", "lower", "upper"} - set(flat.columns)
    if absent or not len(flat):
        got = f"a table without {', '.join(sorted(absent)) or 'rows'}"
        raise argument_error("table", "what leaderboard.reliable_gaps gives", got)
    present = flat["estimator"].unique().tolist()
    if estimator is not None:
        check_choice("estimator", estimator, present)
    panels = present if estimator is None else [estimator]
    figure = _new_figure(2.4 + 3.6 * len(panels), 4.2)
    row = figure.subplots(1, len(panels), sharey=True, squeeze=False)[0]
    strategies = flat["strategy"].unique().tolist()
    for axes, name in zip(row, panels, strict=True):
        part = flat[flat["estimator"] == name]
        for number, strategy in enumerate(strategies):
            rows = part[(part["strategy"] == strategy) & np.isfinite(part["gap"])].sort_values("k")
            at, gap, low, high = (
                rows[column].to_numpy(float) for column in ("k", "gap", "lower", "upper")
            )
            style = _style(number)
            axes.plot(at, gap, label=strategy, markersize=5, **style)
            high = np.where(np.isfinite(high), high, gap)
            axes.fill_between(at, low, high, color=style["color"], alpha=0.12, linewidth=0)
        axes.set(xscale="log", yscale="log", xlabel="Items run, k")
        ticks = np.unique(part["k"].to_numpy(float))
        axes.set_xticks(ticks, [f"{k:g}" for k in ticks], minor=False)
        axes.minorticks_off()
        axes.set_yticks([1, 2, 5, 10, 20, 50], ["1", "2", "5", "10", "20", "50"])
        axes.set_title(ESTIMATORS.get(name, name), fontsize="medium", loc="left")
        _tidy(axes)
    row[0].set_ylabel("Smallest gap ranked right (points)")
    handles, labels = row[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside right upper", title="Strategy", frameon=False)
    return figure


def headroom(table: pd.DataFrame) -> "Figure":
    """Test sets beside each other: difficulty, discrimination, and headroom at the best subject.

    Args:
        table: what `irtcat.leaderboard.headroom` gave.

    Returns:
        The figure: one row per test set, in the table's order, the first on top. Lines reach from
        the 5th to the 95th percentile of the items, thick ones from the 25th to the 75th, dots are
        medians; the dashed line is the best subject's ability. Headroom has its 95 % interval.

    Raises:
        InputError: when the table lacks a column or has no rows, or matplotlib is missing.

    Example:
        >>> from irtcat import leaderboard
        >>> bank = ItemBank.from_parameters(b=[-1.0, 0.0, 1.0, 2.0])
        >>> table = leaderboard.headroom(bank, ["x", "x", "y", "y"], theta=1.0)
        >>> [text.get_text() for text in headroom(table).axes[0].get_yticklabels()]
        ['y', 'x']
    """
    wanted = ["headroom", "headroom_se", "theta"]
    wanted += [f"{name}_{q}" for name in ("b", "a") for q in ("p05", "p25", "p50", "p75", "p95")]
    absent = set(wanted) - set(table.columns)
    if absent or not len(table):
        got = f"a table without {', '.join(sorted(absent)) or 'rows'}"
        raise argument_error("table", "what leaderboard.headroom gives", got)
    figure = _new_figure(8.4, 1.6 + 0.34 * len(table))
    row = figure.subplots(1, 3, sharey=True)
    place = np.arange(len(table))
    for axes, name, colour in zip(row, ("b", "a"), COLOURS, strict=False):
        low, first, middle, third, high = (
            table[f"{name}_{q}"].to_numpy(float) for q in ("p05", "p25", "p50", "p75", "p95")
        )
        axes.hlines(place, low, high, color=colour, linewidth=1)
        axes.hlines(place, first, third, color=colour, linewidth=4)
        axes.plot(middle, place, "o", color="white", markeredgecolor=colour, markersize=5)
    row[0].axvline(float(table["theta"].iloc[0]), color=GREY, linestyle="--", linewidth=1)
    row[0].set_xlabel("Difficulty b (on the scale of θ)")
    row[1].set_xlabel("Discrimination a")
    score, error = (table[name].to_numpy(float) for name in ("headroom", "headroom_se"))
    row[2].errorbar(
        score, place, xerr=1.96 * np.nan_to_num(error), fmt="s", color=COLOURS[2], markersize=5
    )
    row[2].set_xlabel("Headroom: mean slope at the best θ")
    row[2].set_xlim(left=min(0.0, float(np.nanmin(score))))
    row[0].set_yticks(place, [str(name) for name in table.index])
    row[0].invert_yaxis()
    for axes in row:
        _tidy(axes)
    return figure


def check_figure_path(path: str | os.PathLike[str]) -> None:
    """Raise where `save` could not write a figure to ``path``; for use before long work.

    Raises:
        InputError: when matplotlib is not installed, the suffix is not one of .png, .svg and
            .pdf, or the folder does not exist.
    """
    _new_figure(1, 1)
    check_target(path)
    if os.path.splitext(path)[1].lower() not in FORMATS:
        raise argument_error("path", f"a file name that ends in {', '.join(FORMATS)}", str(path))


def save(figure: "Figure", path: str | os.PathLike[str], dpi: int = 150) -> None:
    """Write a figure, whole or not at all; the suffix says the format.

    The same figure gives the same bytes: no date is written.

    Args:
        figure: what a function of this module returned.
        path: ends in .png, .svg or .pdf; an existing file is replaced.
        dpi: dots per inch of a PNG.

    Raises:
        InputError: see `check_figure_path`.
    """
    check_figure_path(path)
    import matplotlib

    suffix = os.path.splitext(path)[1].lower().removeprefix(".")
    undated = {"png": {}, "svg": {"Date": None}, "pdf": {"CreationDate": None}}[suffix]
    image = BytesIO()
    with matplotlib.rc_context({"svg.hashsalt": "irtcat"}):
        figure.savefig(image, format=suffix, dpi=dpi, metadata=undated)
    with replacing(path) as file:
        file.write(image.getvalue())
