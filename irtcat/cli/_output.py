"""Output of results: tables for people, JSON for programs, CSV files."""

import json
import math
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["emit_json", "flag_counts", "records", "say", "show", "to_terminal", "write_csv"]

ROWS_ON_SCREEN = 60
"""Rows of a table that are printed on a terminal."""
LONG_NAME = 6
"""Headings with more letters are broken at underscores, to save width."""


def write_csv(frame: "pd.DataFrame", path: Path) -> None:
    """Write a table (see `irtcat._csv.write_csv`)."""
    from irtcat._csv import write_csv

    write_csv(frame, path)


def records(frame: "pd.DataFrame") -> list[dict[str, Any]]:
    """One mapping per row, with the values of a named index."""
    return _with_index(frame).to_dict("records")  # type: ignore[return-value]


def _with_index(frame: "pd.DataFrame") -> "pd.DataFrame":
    """The table with its named index as columns."""
    return frame.reset_index() if frame.index.names[0] is not None else frame


def flag_counts(frame: "pd.DataFrame", kind: str) -> list[str]:
    """How many rows have each of the flags."""
    counts = frame.loc[frame["flags"] != "", "flags"].value_counts()
    return [f"Flagged {flag!r}: {count} of {len(frame)} {kind}" for flag, count in counts.items()]


def to_terminal() -> bool:
    """Whether stdout is a terminal, not a file or a pipe."""
    return sys.stdout.isatty()


def say(text: object = "", end: str = "\n") -> None:
    """Print lines, with control characters escaped, as ids may contain some."""
    from irtcat._checks import visible

    print(visible(str(text), keep="\n"), end=end)


def emit_json(document: Mapping[str, Any]) -> None:
    """Print one JSON document; missing and non-finite values are null."""
    # json.dumps does not escape this control character.
    print(json.dumps(_plain(document), allow_nan=False).replace("\x7f", "\\u007f"))


def _plain(value: Any) -> Any:
    """Convert a value to JSON types."""
    if isinstance(value, Mapping):
        return {str(name): _plain(entry) for name, entry in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(element) for element in value]
    if hasattr(value, "tolist"):  # numpy's scalars and arrays
        return _plain(value.tolist())
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    return value if value is None or isinstance(value, (bool, int, str)) else str(value)


def show(frame: "pd.DataFrame", title: str = "", decimals: int = 3) -> None:
    """Print a table, on a terminal only its first rows; columns without values are omitted."""
    from rich.console import Console
    from rich.table import Table

    from irtcat._checks import visible

    terminal = to_terminal()
    # Wider than any table: a narrow terminal wraps lines, but rich truncates no number.
    console = Console(file=sys.stdout, markup=False, highlight=False, emoji=False, width=9999)
    full = _with_index(frame)
    shown = full.head(ROWS_ON_SCREEN) if terminal else full
    table = Table(box=None, pad_edge=False, show_edge=False)
    columns = []
    for name in full.columns:
        cells = [_cell(value, decimals) for value in shown[name].tolist()]
        if any(cells):
            numeric = full[name].dtype.kind in "iufb"
            text = visible(str(name))
            heading = text.replace("_", "\n") if len(text) > LONG_NAME else text
            table.add_column(heading, justify="right" if numeric else "left", no_wrap=True)
            columns.append(cells)
    for row in zip(*columns, strict=True):
        table.add_row(*row)
    if title:
        say(title)
    console.print(table)
    if len(shown) < len(full):
        print(f"… and {len(full) - len(shown)} more rows; --out writes all of them.")


def _cell(value: Any, decimals: int) -> str:
    """Format a value; a missing one as empty text."""
    from irtcat._checks import visible

    if value is None or (isinstance(value, float) and math.isnan(value)):
        return ""
    return f"{value:.{decimals}f}" if isinstance(value, float) else visible(str(value))
