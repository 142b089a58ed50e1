"""Printing results: tables for people, JSON for programs, CSV files."""

import json
import math
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["emit_json", "records", "say", "show", "to_terminal", "write_csv"]

ROWS_ON_SCREEN = 60
LONG_NAME = 6


def write_csv(frame: "pd.DataFrame", path: Path) -> None:
    """Write a table, see `irtcat._csv.write_csv`."""
    from irtcat._csv import write_csv

    write_csv(frame, path)


def records(frame: "pd.DataFrame") -> list[dict[str, Any]]:
    """One mapping per row, a named index included."""
    return _with_index(frame).to_dict("records")  # type: ignore[return-value]


def _with_index(frame: "pd.DataFrame") -> "pd.DataFrame":
    """The table with the names of its rows as columns."""
    return frame.reset_index() if frame.index.names[0] is not None else frame


def to_terminal() -> bool:
    """Whether what is printed goes to a terminal, not to a file or a pipe."""
    return sys.stdout.isatty()


def say(text: object = "", end: str = "\n") -> None:
    """Print lines in which no id is obeyed by the terminal."""
    from irtcat._checks import visible

    print(visible(str(text), keep="\n"), end=end)


def emit_json(document: Mapping[str, Any]) -> None:
    """Print one JSON document; what is missing or not finite is null."""
    # JSON leaves this one control character as it is.
    print(json.dumps(_plain(document), allow_nan=False).replace("\x7f", "\\u007f"))


def _plain(value: Any) -> Any:
    """The value in types that JSON knows."""
    if isinstance(value, Mapping):
        return {str(name): _plain(part) for name, part in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(part) for part in value]
    if hasattr(value, "tolist"):  # numpy's scalars and arrays
        return _plain(value.tolist())
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    return value if value is None or isinstance(value, (bool, int, str)) else str(value)


def show(frame: "pd.DataFrame", title: str = "", decimals: int = 3) -> None:
    """Print a table; on a terminal its first rows only. Columns without a value are left out."""
    from rich.console import Console
    from rich.table import Table

    from irtcat._checks import visible

    terminal = to_terminal()
    # Wider than any table: a narrow terminal folds lines, but no number is cut off.
    console = Console(file=sys.stdout, markup=False, highlight=False, emoji=False, width=9999)
    named = _with_index(frame)
    shown = named.head(ROWS_ON_SCREEN) if terminal else named
    table = Table(box=None, pad_edge=False, show_edge=False)
    columns = []
    for name in named.columns:
        cells = [_cell(value, decimals) for value in shown[name].tolist()]
        if any(cells):
            numeric = named[name].dtype.kind in "iufb"
            text = visible(str(name))
            heading = text.replace("_", "\n") if len(text) > LONG_NAME else text
            table.add_column(heading, justify="right" if numeric else "left", no_wrap=True)
            columns.append(cells)
    for row in zip(*columns, strict=True):
        table.add_row(*row)
    if title:
        say(title)
    console.print(table)
    if len(shown) < len(named):
        print(f"… and {len(named) - len(shown)} more rows; --out writes all of them.")


def _cell(value: Any, decimals: int) -> str:
    """A value as text; nothing for what is missing."""
    from irtcat._checks import visible

    if value is None or (isinstance(value, float) and math.isnan(value)):
        return ""
    return f"{value:.{decimals}f}" if isinstance(value, float) else visible(str(value))
