"""Figures of rankings: subjects in order, each with its interval."""

from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from irtcat._checks import argument_error
from irtcat.plot._style import COLOURS, new_figure, plain, tidy

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["ranked"]

MAX_LABELS = 40
"""Up to so many subjects are named on the axis."""
Z = 1.959964


def ranked(table: pd.DataFrame) -> "Figure":
    """Subjects in order of their ability or predicted score, each with its interval.

    Args:
        table: `Ability.to_frame()` or `Prediction.to_frame()`, or the output of the commands score
            and predict: theta and se, or score, lower and upper. Without lower and upper the
            interval is 1.96 standard errors either side.

    Returns:
        The figure, the best on top; up to 40 subjects are named, otherwise ranks are numbered.
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
    if "lower" in required:
        low, high = rows["lower"].to_numpy(float), rows["upper"].to_numpy(float)
    else:
        half = Z * rows["se"].to_numpy(float)
        low, high = middle - half, middle + half
    n = len(rows)
    has_labels = n <= MAX_LABELS
    figure = new_figure(6.8, 1.2 + 0.22 * n if has_labels else 6.0)
    axes = figure.subplots()
    rank = np.arange(1, n + 1)
    finite = np.isfinite(low) & np.isfinite(high)
    axes.hlines(rank[finite], low[finite], high[finite], color=COLOURS[0],
                linewidth=1.5 if has_labels else 0.8, alpha=0.5)  # fmt: skip
    axes.plot(middle, rank, "o", color=COLOURS[0], markersize=5 if has_labels else 3)
    if has_labels:
        axes.set_yticks(rank, [plain(name) for name in rows["subject"]])
    else:
        axes.set_ylabel("Rank")
    axes.set_ylim(n + 1, 0)
    axes.set_xlabel("Predicted score" if key == "score" else "Ability θ")
    if key == "score":
        axes.xaxis.set_major_formatter(lambda value, _: f"{100 * value:g} %")
    tidy(axes)
    return figure
