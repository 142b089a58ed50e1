"""Parquet, wide or long, with the optional extra pyarrow."""

from pathlib import Path
from typing import Any

import pandas as pd

from irtcat._checks import InputError
from irtcat.io._table import Options, Table, find_long_columns, read_long, read_wide
from irtcat.responses import Responses

__all__ = ["read_parquet"]


def read_parquet(path: Path, options: Options | None = None) -> Responses:
    """Read a Parquet table of one row per subject, or one row per response.

    Args:
        path: the file. A named index that pandas stored counts as the first column.
        options: column names, layout and what to do with repeated ids.

    Raises:
        InputError: pyarrow is not installed, or naming the row and column at fault.

    Example:
        >>> import tempfile
        >>> path = Path(tempfile.mkdtemp()) / "small.parquet"
        >>> pd.DataFrame({"subject": ["a", "b"], "q1": [1, None]}).to_parquet(path)
        >>> read_parquet(path).values.tolist()
        [[1], [-1]]
    """
    options = options or Options()
    frame = _load(path)
    table = _table(path, frame)
    columns = find_long_columns(table, options)
    if columns is not None:
        return read_long(table, frame.iloc[:, list(columns)], columns, options)
    return read_wide(table, [frame], options)


def _load(path: Path) -> pd.DataFrame:
    """The table as a frame, subject ids in a column."""
    try:
        import pyarrow as pa
        from pyarrow import parquet
    except ImportError:
        advice = "Install it: pip install 'irtcat[parquet]'."
        raise InputError(f"{path}: reading Parquet needs pyarrow. {advice}") from None
    try:
        frame: pd.DataFrame = parquet.read_table(path).to_pandas()
    except (pa.ArrowException, OSError, ValueError):
        raise InputError(f"{path}: the Parquet file is damaged. Write it anew.") from None
    if not isinstance(frame.index, pd.RangeIndex):
        frame = frame.reset_index(names=frame.index.name or "subject")
    if not len(frame) or not len(frame.columns):
        raise InputError(f"{path}: expected a table with rows and columns. Got an empty one.")
    return frame


def _table(path: Path, frame: pd.DataFrame) -> Table:
    """The header, and the place of a cell counted in rows."""

    def cell(row: int, column: int) -> tuple[str, str]:
        if row < 0:
            return "column names", str(frame.columns[column])
        value: Any = frame.iloc[row, column]
        absent = pd.api.types.is_scalar(value) and pd.isna(value)
        return f"row {row + 1}", "" if absent else str(value)

    return Table(str(path), tuple(str(name) for name in frame.columns), cell)
