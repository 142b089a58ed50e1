"""Shared by all figures: distinguishable colours, axes style, saving to files."""

import os
from collections.abc import Iterable
from importlib.util import find_spec
from io import BytesIO
from typing import TYPE_CHECKING, Any

import pandas as pd

from irtcat._common.checks import argument_error
from irtcat._common.lazy import optional_module
from irtcat._files.writing import check_target, replacing

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# Okabe & Ito's colours, distinguishable on white and for the colour-blind; always with a marker.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
MARKERS = ("o", "s", "^", "D", "v", "P", "X")
DASHES = ("-", "--", ":")
GREY = "#666666"
Z = 1.959964
"""Half the width of a 95 % interval, in standard errors."""
LETTERS, COLUMNS = 40, 4
FORMATS = (".png", ".svg", ".pdf")


def new_figure(width: float, height: float, layout: Any = "constrained") -> "Figure":
    """Create an empty figure; raise if matplotlib is not installed."""
    advice = "Install it with pip install 'irtcat[plot]'."
    missing = f"Figures need matplotlib, which is not installed. {advice}"
    library = optional_module("matplotlib.figure", missing)
    return library.Figure(figsize=(width, height), layout=layout)


def one_panel(width: float, height: float) -> "tuple[Figure, Axes]":
    """A figure of one panel."""
    figure = new_figure(width, height)
    return figure, figure.subplots()


def plain(text: object) -> str:
    r"""Prepare a user's text for matplotlib: one line, truncated, no math mode or hidden label.

    Example:
        >>> plain("_costs $5")
        ' _costs \\$5'
    """
    line = " ".join(str(text).split())
    line = line if len(line) <= LETTERS else line[: LETTERS - 1] + "…"
    return (" " if line.startswith("_") else "") + line.replace("$", r"\$")


def number_text(value: float, form: str) -> str:
    """A number in a figure's text, with a minus sign as the axes have it.

    Example:
        >>> number_text(-0.5, ".2f"), number_text(3, "g")
        ('−0.50', '3')
    """
    return format(value, form).replace("-", "−")


def panels(n: int) -> "tuple[Figure, list[Axes]]":
    """A figure of n panels, at most four per row, with a common y axis."""
    columns = min(n, COLUMNS)
    rows = -(-n // columns)
    figure = new_figure(2.4 + 3.6 * columns, 4.2 if rows == 1 else 0.8 * 4.2 * rows)
    grid = figure.subplots(rows, columns, sharey=True, squeeze=False).ravel()
    for axes in grid[n:]:
        axes.remove()
    return figure, list(grid[:n])


def tidy(axes: "Axes") -> None:
    """Remove the frame and draw a light grid."""
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(color="#DDDDDD", linewidth=0.6)
    axes.set_axisbelow(True)


def finished(figure: "Figure", title: str, *panels: "Axes") -> "Figure":
    """The figure with tidy panels, and its title above them, from the left edge on."""
    figure.suptitle(title, x=0.1 / figure.get_size_inches()[0], ha="left", fontsize="large")
    for axes in panels:
        tidy(axes)
    return figure


def check_rows(table: Any, columns: Iterable[str], must: str) -> None:
    """Raise if a table lacks one of the columns, or has no rows."""
    missing = sorted(set(columns) - set(table.columns))
    if missing or not len(table):
        got = f"a table without {', '.join(missing) or 'rows'}"
        raise argument_error("table", must, got)


def check_columns(table: Any, columns: Iterable[str]) -> None:
    """Raise if a value is no table with these columns."""
    if not isinstance(table, pd.DataFrame) or not set(columns) <= set(table.columns):
        raise argument_error("table", f"one with the columns {', '.join(sorted(columns))}", table)


def line_style(number: int) -> dict[str, Any]:
    """Colour, marker and dashes of the n-th line, all different for 21 lines."""
    n = len(COLOURS)
    return {
        "color": COLOURS[number % n],
        "marker": MARKERS[number % n],
        "linestyle": DASHES[number // n % len(DASHES)],
    }


def can_draw() -> bool:
    """Whether matplotlib is installed, without importing it.

    Example:
        >>> can_draw()
        True
    """
    return find_spec("matplotlib") is not None


def check_figures() -> None:
    """Raise if figures cannot be drawn; for use before a long computation.

    Raises:
        InputError: matplotlib is not installed.
    """
    new_figure(1, 1)


def check_figure_path(path: str | os.PathLike[str]) -> None:
    """Raise if `save` could not write a figure to ``path``; for use before a long computation.

    Raises:
        InputError: matplotlib is not installed, the suffix is not one of .png, .svg and
            .pdf, or the folder does not exist.
    """
    check_figures()
    check_target(path)
    if os.path.splitext(path)[1].lower() not in FORMATS:
        raise argument_error("path", f"a file name that ends in {', '.join(FORMATS)}", str(path))


def save(figure: "Figure", path: str | os.PathLike[str], dpi: int = 150) -> None:
    """Write a figure atomically; the suffix determines the format.

    Equal figures give equal bytes, because no date is written.

    Args:
        figure: a figure of this package.
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
