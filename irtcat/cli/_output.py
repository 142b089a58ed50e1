"""Printing results: tables for people, JSON for programs, CSV files."""

import json
import math
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["emit_json", "filling", "records", "show", "write_csv"]

ROWS_ON_SCREEN = 60
LONG_NAME = 6


def write_csv(frame: "pd.DataFrame", path: Path) -> None:
    """Write a table in full precision, whole or not at all; a named index becomes a column."""
    from irtcat._files import replacing

    text = _with_index(frame).to_csv(index=False, lineterminator="\n")
    with replacing(path) as file:
        file.write(text.encode("utf-8"))


@contextmanager
def filling(folder: Path) -> Iterator[Path]:
    """A folder to write to, whose files are moved to this one when all are written.

    Where anything goes wrong before, none is, and folders made for it are gone again.
    """
    made = [each for each in (folder, *folder.parents) if not each.exists()]
    folder.mkdir(parents=True, exist_ok=True)
    part = Path(tempfile.mkdtemp(prefix=".", suffix=".partial", dir=folder))
    try:
        yield part
        for file in sorted(part.iterdir()):
            os.replace(file, folder / file.name)
    finally:
        shutil.rmtree(part, ignore_errors=True)
        for each in made:
            with suppress(OSError):  # it holds something
                each.rmdir()


def records(frame: "pd.DataFrame") -> list[dict[str, Any]]:
    """One mapping per row, a named index included."""
    return _with_index(frame).to_dict("records")  # type: ignore[return-value]


def _with_index(frame: "pd.DataFrame") -> "pd.DataFrame":
    """The table with the names of its rows as columns."""
    return frame.reset_index() if frame.index.names[0] is not None else frame


def emit_json(document: Mapping[str, Any]) -> None:
    """Print one JSON document; what is missing or not finite is null."""
    print(json.dumps(_plain(document), allow_nan=False))


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

    terminal = sys.stdout.isatty()
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
            heading = str(name).replace("_", "\n") if len(str(name)) > LONG_NAME else str(name)
            table.add_column(heading, justify="right" if numeric else "left", no_wrap=True)
            columns.append(cells)
    for row in zip(*columns, strict=True):
        table.add_row(*row)
    if title:
        print(title)
    console.print(table)
    if len(shown) < len(named):
        print(f"… and {len(named) - len(shown)} more rows; --out writes all of them.")


def _cell(value: Any, decimals: int) -> str:
    """A value as text; nothing for what is missing."""
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return ""
    return f"{value:.{decimals}f}" if isinstance(value, float) else str(value)
