"""Figures of rankings: subjects in order, each with its interval."""

from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from irtcat._checks import argument_error
from irtcat.plot._style import COLOURS, new_figure, plain, tidy

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["ranked"]

NAMED = 40
Z = 1.959964


def ranked(table: pd.DataFrame) -> "Figure":
    """Subjects in order of their ability or predicted score, each with its interval.

    Args:
        table: `Ability.to_frame()` or `Prediction.to_frame()`, or what the commands score and
            predict wrote: theta and se, or score, lower and upper. Where there are no lower and
            upper the interval is 1.96 standard errors either side.

    Returns:
        The figure, the best on top; up to 40 subjects are named, of more the places are numbered.
        Subjects without an estimate (NaN) are left out, and an end that is not finite is not drawn.

    Raises:
        InputError: when the table lacks a column or has no estimate, or matplotlib is missing.

    Example:
        >>> table = pd.DataFrame({"subject": ["x", "y"], "theta": [0.1, 0.9], "se": [0.3, 0.4]})
        >>> [text.get_text() for text in ranked(table).axes[0].get_yticklabels()]
        ['y', 'x']
    """
    flat = table.reset_index() if "subject" in table.index.names else table
    key = "score" if "score" in flat else "theta"
    need = {"subject", key} | ({"lower", "upper"} if key == "score" or "lower" in flat else {"se"})
    absent = sorted(need - set(flat.columns))
    if absent or not flat[key].notna().any():
        got = f"a table without {', '.join(absent) or 'an estimate'}"
        raise argument_error("table", "what score or predict gives, of one ability", got)
    own = flat[flat[key].notna()].sort_values(key, ascending=False, kind="stable")
    middle = own[key].to_numpy(float)
    if "lower" in need:
        low, high = own["lower"].to_numpy(float), own["upper"].to_numpy(float)
    else:
        half = Z * own["se"].to_numpy(float)
        low, high = middle - half, middle + half
    n = len(own)
    few = n <= NAMED
    figure = new_figure(6.8, 1.2 + 0.22 * n if few else 6.0)
    axes = figure.subplots()
    place = np.arange(1, n + 1)
    whole = np.isfinite(low) & np.isfinite(high)
    axes.hlines(place[whole], low[whole], high[whole], color=COLOURS[0],
                linewidth=1.5 if few else 0.8, alpha=0.5)  # fmt: skip
    axes.plot(middle, place, "o", color=COLOURS[0], markersize=5 if few else 3)
    if few:
        axes.set_yticks(place, [plain(name) for name in own["subject"]])
    else:
        axes.set_ylabel("Place")
    axes.set_ylim(n + 1, 0)
    axes.set_xlabel("Predicted score" if key == "score" else "Ability θ")
    if key == "score":
        axes.xaxis.set_major_formatter(lambda value, _: f"{100 * value:g} %")
    tidy(axes)
    return figure
