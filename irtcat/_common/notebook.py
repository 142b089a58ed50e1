"""How objects look in a notebook: one line, a small histogram and the first rows of a table."""

import html
from typing import Any

import numpy as np
import pandas as pd

BINS, WIDTH, HEIGHT = 24, 168, 32
"""Bars of the histogram, and its size in pixels: about the height of two lines of text."""

ROWS, COLUMNS = 5, 10
"""How much of a table is shown."""


def card(
    title: str, head: pd.DataFrame, shape: tuple[int, int], values: Any = (), label: str = ""
) -> str:
    """The HTML of an object: its title, a histogram of numbers and the head of a table.

    Args:
        title: one line.
        head: the object's first rows and columns as a table; at most `ROWS` and `COLUMNS` of
            them are shown.
        shape: number of rows and columns of the object.
        values: numbers of the histogram; NaN and infinite ones are left out.
        label: what the numbers are.

    Example:
        >>> "and 97 more rows" in card("items", pd.DataFrame({"b": [1, 2, 3]}), (100, 1))
        True
    """
    head = head.iloc[:ROWS, :COLUMNS]
    table = head.to_html(border=0, float_format="{:.3g}".format)
    hidden = [
        f"{total - shown:,} more {name}"
        for total, shown, name in zip(shape, head.shape, ("rows", "columns"), strict=True)
        if total > shown
    ]
    rest = f"<small>and {' and '.join(hidden)}</small>" if hidden else ""
    return f"<div><p><b>{html.escape(title)}</b></p>{_histogram(values, label)}{table}{rest}</div>"


def _histogram(values: Any, label: str) -> str:
    """Bars as SVG in the colour of the text; nothing without finite numbers."""
    numbers = np.asarray(values, float).ravel()
    numbers = numbers[np.isfinite(numbers)]
    if not numbers.size:
        return ""
    counts, edges = np.histogram(numbers, BINS)
    step = WIDTH / BINS
    bars = "".join(
        f'<rect x="{i * step:.1f}" y="{HEIGHT * (1 - share):.1f}" width="{step - 1:.1f}" '
        f'height="{HEIGHT * share:.1f}"/>'
        for i, share in enumerate(counts / counts.max())
        if share
    )
    text = html.escape(f"{label}: {edges[0]:.3g} to {edges[-1]:.3g}")
    return (
        f'<svg role="img" aria-label="{text}" width="{WIDTH}" height="{HEIGHT}" '
        f'fill="currentColor">{bars}</svg> <small>{text}</small>'
    )
