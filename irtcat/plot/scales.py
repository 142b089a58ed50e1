"""Figures of evaluation scales: fitted and empirical curves, ability and score, correlations."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from irtcat._common.checks import argument_error
from irtcat.agreement import CorrelationMatrix
from irtcat.plot.style import (
    COLOURS,
    GREY,
    check_columns,
    finished,
    line_style,
    new_figure,
    number_text,
    one_panel,
    plain,
    tidy,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

COLUMNS = 4
MOST_PANELS = 40
DARK, LONG = 0.6, 9
"""Correlations above DARK are printed in white; names longer than LONG letters are rotated."""


def empirical_curves(table: pd.DataFrame, items: Any = None) -> "Figure":
    """One small panel per item: the model's curve and the smoothed share of right answers.

    Args:
        table: the result of `irtcat.diagnose.empirical_curves`, or `irtcat.scale.Scale.curves`,
            whose column ``status`` marks removed items (drawn in another colour and dashed).
        items: ids of the items to plot; by default the first 40.

    Returns:
        The figure; the model's curve is solid, the empirical one dotted, with a band.

    Raises:
        InputError: the table lacks these columns, an item is unknown, or matplotlib is not
            installed.

    Example:
        >>> from irtcat import fit
        >>> from irtcat.responses.datasets import load
        >>> from irtcat.diagnose import empirical_curves as table_of
        >>> r = load("lsat7")
        >>> figure = empirical_curves(table_of(fit(r, "2pl").bank, r, smoother="spline"))
        >>> [axes.get_title() for axes in figure.axes]
        ['item1', 'item2', 'item3', 'item4', 'item5']

    References:
        Lalor, Wu & Yu (2016), figures 2 and 3.
    """
    check_columns(table, ("item", "theta", "observed", "lower", "upper", "expected"))
    title = "Item curves: the model (line) and the answers (dotted, with a band)"
    y_label = "Probability of a right answer"
    return _item_panels(table, items, _draw_item, title, "Ability θ", y_label)


def option_curves(table: pd.DataFrame, items: Any = None) -> "Figure":
    """One small panel per multiple-choice item: who chose which option.

    Args:
        table: the result of `irtcat.diagnose.distractors`.
        items: ids of the items to plot; by default the first 40.

    Returns:
        The figure: the share of each option in the groups from the lowest to the highest score on
        the other items; keys are thick. A key should rise, and a distractor fall.

    Raises:
        InputError: the table lacks these columns, an item is unknown, or matplotlib is not
            installed.

    Example:
        >>> import irtcat
        >>> answers = pd.DataFrame({"q1": list("AABBC"), "q2": list("BBBAA"), "q3": list("CCACA")})
        >>> choices = irtcat.as_responses(answers, key={"q1": "A", "q2": "B", "q3": "C"})
        >>> figure = option_curves(irtcat.diagnose.distractors(choices, n_groups=2), ["q1", "q3"])
        >>> [axes.get_title() for axes in figure.axes]
        ['q1', 'q3']
    """
    required = {"item", "option", "key", "group_1", "group_2"}
    rows = table.reset_index() if isinstance(table, pd.DataFrame) else pd.DataFrame()
    if not required <= set(rows.columns):
        raise argument_error(
            "table", "a result of irtcat.diagnose.distractors", type(table).__name__
        )
    title = "Options by score on the other items: keys (thick) and distractors"
    x_label = "Group, from the lowest score to the highest"
    return _item_panels(rows, items, _draw_options, title, x_label, "Share that chose the option")


def _draw_options(axes: "Axes", rows: pd.DataFrame, name: str) -> None:
    """Plot the options of one item."""
    columns = [column for column in rows.columns if column.startswith("group_")]
    groups = np.arange(1, len(columns) + 1)
    keys = rows["key"].astype(str).str.lower() == "true"  # as text where read from a file
    for number, (option, key, shares) in enumerate(
        zip(rows["option"], keys, rows[columns].to_numpy(float), strict=True)
    ):
        style = line_style(number) | {"markersize": 3, "linewidth": 2.4 if key else 1.0}
        axes.plot(groups, shares, label=plain(option), **style)
    axes.legend(frameon=False, fontsize=7, handlelength=1.0, labelspacing=0.2)
    axes.set_title(plain(name), fontsize=8)
    axes.set_xticks(groups)


def _item_panels(
    table: pd.DataFrame,
    items: Any,
    draw: Callable[["Axes", pd.DataFrame, str], None],
    title: str,
    x_label: str,
    y_label: str,
) -> "Figure":
    """A figure with one small panel per item of the table's column ``item``."""
    names = list(dict.fromkeys(table["item"].astype(str)))
    selected = names[:MOST_PANELS] if items is None else [str(item) for item in items]
    unknown = [name for name in selected if name not in set(names)]
    if unknown or not selected:
        raise argument_error("items", "ids of items in the table", unknown or items)
    n_rows = -(-len(selected) // COLUMNS)
    width, height = 2.2 * COLUMNS, 1.9 * n_rows + 0.8
    # Fixed margins in inches (below): the constrained layout would draw every panel twice.
    figure = new_figure(width, height, layout=None)
    grid = figure.subplots(n_rows, COLUMNS, sharex=True, sharey=True, squeeze=False).ravel()
    for axes, name in zip(grid, selected, strict=False):
        draw(axes, table[table["item"].astype(str) == name], name)
        axes.set_ylim(-0.02, 1.02)
        tidy(axes)
    for axes in grid[len(selected) :]:
        axes.remove()
    for axes in grid[max(len(selected) - COLUMNS, 0) : len(selected)]:  # the lowest of each column
        axes.tick_params(labelbottom=True)
    figure.supxlabel(x_label, y=0.05 / height, va="bottom", fontsize=10)
    figure.supylabel(y_label, x=0.05 / width, ha="left", fontsize=10)
    figure.subplots_adjust(
        left=0.65 / width,
        right=1 - 0.1 / width,
        bottom=0.55 / height,
        top=1 - 0.7 / height,
        wspace=0.12,
        hspace=0.3,
    )
    place = {"x": 0.1 / width, "y": 1 - 0.1 / height, "ha": "left", "va": "top"}
    figure.suptitle(title, fontsize="large", **place)
    return figure


def _draw_item(axes: "Axes", rows: pd.DataFrame, name: str) -> None:
    """Plot one item; with categories, one line each."""
    removed = "status" in rows and (rows["status"] == "removed").any()
    for number, (_, curve) in enumerate(
        rows.groupby("category") if "category" in rows else [(1, rows)]
    ):
        colour = COLOURS[(1 if removed else 0) if number == 0 else (number + 1) % len(COLOURS)]
        theta = curve["theta"].to_numpy(float)
        axes.fill_between(
            theta, curve["lower"], curve["upper"], color=colour, alpha=0.15, linewidth=0
        )
        axes.plot(theta, curve["expected"], "--" if removed else "-", color=colour, linewidth=1.4)
        axes.plot(theta, curve["observed"], ":", color="black", linewidth=1.2)
    axes.set_title(f"{plain(name)} (removed)" if removed else plain(name), fontsize=8)


def ability_against_correct(abilities: pd.DataFrame) -> "Figure":
    """Each subject's ability against its number of right answers, or its points.

    Args:
        abilities: `irtcat.scale.Scale.abilities`: columns theta and number_correct (or points, for
            items with categories).

    Returns:
        The figure: abilities differ between subjects with equally many, but other right answers.

    Raises:
        InputError: the table lacks these columns, or matplotlib is not installed.

    Example:
        >>> table = pd.DataFrame({"theta": [-1.0, 0.2, 0.4], "number_correct": [2, 5, 5]})
        >>> len(ability_against_correct(table).axes)
        1

    References:
        Lalor, Wu & Yu (2016), figure 4.
    """
    columns = set(abilities.columns) if isinstance(abilities, pd.DataFrame) else set()
    column = "points" if "points" in columns else "number_correct"
    if not {"theta", column} <= columns:
        raise argument_error(
            "abilities", "one with the columns number_correct (or points) and theta", abilities
        )
    figure, axes = one_panel(6.0, 4.0)
    right = abilities[column].to_numpy(float)
    jitter = np.random.default_rng(0).uniform(-0.25, 0.25, len(right))  # makes equal values visible
    axes.plot(right + jitter, abilities["theta"], "o", markersize=3, alpha=0.35, color=COLOURS[0])
    axes.axhline(0, color=GREY, linewidth=0.8)
    label = "Points" if column == "points" else "Number of right answers"
    axes.set(xlabel=label, ylabel="Ability θ")
    return finished(figure, f"{len(right):,} subjects: ability and {label.lower()}", axes)


def correlation_matrix(matrix: CorrelationMatrix) -> "Figure":
    """A correlation matrix in colours with its values; non-significant ones are crossed out.

    Args:
        matrix: the result of `irtcat.agreement.correlation_matrix`.

    Returns:
        The figure; blue is positive and red negative, and the numbers are printed.

    Raises:
        InputError: for another type, or if matplotlib is not installed.

    Example:
        >>> from irtcat.agreement import correlation_matrix as correlate
        >>> scores = {"ability": [1, 2, 3, 4, 5], "accuracy": [2, 4, 5, 7, 9]}
        >>> axes = correlation_matrix(correlate(scores, correction="none")).axes[0]
        >>> [text.get_text() for text in axes.texts]
        ['1.00', '0.99', '0.99', '1.00']

    References:
        Lalor, Wu, Munkhdalai & Yu (2018), Figure 1.
    """
    if not isinstance(matrix, CorrelationMatrix):
        raise argument_error("matrix", "a CorrelationMatrix", type(matrix).__name__)
    values, significant = matrix.values.to_numpy(float), matrix.significant.to_numpy(bool)
    names = [plain(name) for name in matrix.values.columns]
    side = 0.75 * len(names)
    figure, axes = one_panel(2.6 + side, 1.6 + side)
    image = axes.imshow(values, vmin=-1, vmax=1, cmap="RdBu")
    for i, j in np.ndindex(*values.shape):
        colour = "white" if abs(values[i, j]) > DARK else "black"
        axes.text(
            j, i, number_text(float(values[i, j]), ".2f"), ha="center", va="center", color=colour
        )
    rows, columns = np.nonzero(~significant)
    axes.plot(columns, rows, "x", markersize=30, color="black", linewidth=0, alpha=0.3)
    ticks = range(len(names))
    long = max(map(len, names)) > LONG
    axes.set_xticks(ticks, names, rotation=45 if long else 0, ha="right" if long else "center")
    axes.set_yticks(ticks, names)
    figure.colorbar(image, ax=axes, shrink=0.8, label=f"{matrix.method.capitalize()} correlation")
    crossed = " (crossed: not significant)" if len(rows) else ""
    return finished(figure, f"Correlations{crossed}")
