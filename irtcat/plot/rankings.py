"""Figures of rankings: subjects in order, each with its interval."""

from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from irtcat._common.checks import argument_error
from irtcat._common.types import FloatArray
from irtcat.plot.style import COLOURS, GREY, add_title, new_figure, plain, tidy

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

MAX_LABELS = 40
"""Up to so many subjects are named on the axis."""
STEPS = (10, 20, 50, *(digit * 10**power for power in range(2, 12) for digit in (1, 2, 5)))
"""Steps of the numbered ranks: the least that gives at most ten."""
MARGIN = 0.03
"""Margin of the axis of many ranks, in which the first and last name have room."""
Z = 1.959964


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
    figure = new_figure(6.8, 1.6 + 0.22 * n if has_labels else 6.4)
    axes = figure.subplots()
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
    subjects = f"{n:,} subjects" if n > 1 else "1 subject"
    add_title(figure, f"{subjects} by {measure}, with intervals")
    if key == "score":
        axes.xaxis.set_major_formatter(lambda value, _: f"{100 * value:g} %")
        if np.nanmax(high[finite], initial=0) <= 1:
            axes.set_xlim(right=min(axes.get_xlim()[1], 1.01))  # the dot of 100 % is not cut
    tidy(axes)
    return figure


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
