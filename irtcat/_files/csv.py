"""Reading and writing CSV tables whose cells no spreadsheet runs as formulas.

Spreadsheets run a text cell that begins with ``=``, ``+``, ``-``, ``@``, a tab or a line break as a
formula, even if it is quoted. In a table with such a cell an apostrophe is written before each of
them, and before each text that begins with an apostrophe. An extra last column, ``csv_escape``,
marks the table: it holds the apostrophe in every row. A table with control characters is escaped
too, because irtcat's readers treat them as damage elsewhere. All other tables, and numbers, are
written unchanged.

`read_csv` undoes the escaping exactly. In pandas: ``frame["item"].str.removeprefix("'")``.
"""

import csv
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from itertools import chain
from pathlib import Path
from typing import Any

import pandas as pd

from irtcat._files.writing import replacing

ESCAPE = "'"
MARK = "csv_escape"
# With the full-width forms, which some spreadsheets read as the ASCII ones.
FORMULAS = ("=", "+", "-", "@", "\t", "\r", "\n", "＝", "＋", "－", "＠")

CONTROL = re.compile("[\x00-\x1f\x7f-\x9f]")

_escaping = ContextVar("escaping", default=True)


@contextmanager
def csv_escape(on: bool) -> Iterator[None]:
    """Switch the escaping of formulas in CSV files on or off in this context.

    By default an apostrophe is written before text cells that begin with ``=``, ``+``, ``-``,
    ``@``, a tab or a line break. A table with such a cell gets a last column ``csv_escape``.

    Args:
        on: False writes every cell unchanged.

    Example:
        >>> with csv_escape(False):
        ...     print(csv_bytes(pd.DataFrame({"item": ["=1+1"]})).decode())
        item
        =1+1
    """
    token = _escaping.set(bool(on))
    try:
        yield
    finally:
        _escaping.reset(token)


def write_csv(frame: pd.DataFrame, path: Any, separator: str = ",") -> Path:
    """Write a table atomically in full precision; a named index becomes a column.

    Returns:
        The path.

    Raises:
        InputError: if the file cannot be written.
    """
    data = csv_bytes(frame, separator)
    with replacing(path) as file:
        file.write(data)
    return Path(path)


def csv_bytes(frame: pd.DataFrame, separator: str = ",") -> bytes:
    """A table as CSV; a named index becomes a column.

    Example:
        >>> print(csv_bytes(pd.DataFrame({"item": ["=1+1", "q2"], "b": [-1.0, 2.0]})).decode())
        item,b,csv_escape
        '=1+1,-1.0,'
        q2,2.0,'
    """
    table = frame.reset_index() if frame.index.names[0] is not None else frame
    texts = _texts(table)
    if _escaping.get() and any(t.startswith(FORMULAS) or CONTROL.search(t) for t in texts):
        table = _map_text(table, _escaped).assign(**{MARK: ESCAPE})
    # Python 3.11's csv module does not quote a carriage return, which readers take as a line end.
    quoted = any("\r" in text for text in texts)
    text = table.to_csv(
        index=False,
        sep=separator,
        lineterminator="\n",
        quoting=csv.QUOTE_NONNUMERIC if quoted else csv.QUOTE_MINIMAL,
    )
    return text.encode("utf-8")


def read_csv(source: Any, **options: Any) -> pd.DataFrame:
    """`pandas.read_csv`, which also undoes the escaping of `write_csv`.

    Example:
        >>> import io
        >>> table = pd.DataFrame({"item": ["=1+1", "'tis"]})
        >>> read_csv(io.BytesIO(csv_bytes(table)))["item"].tolist()
        ['=1+1', "'tis"]
    """
    frame = pd.read_csv(source, **options)
    if not is_marked(list(frame.columns)):
        return frame
    return _map_text(frame.iloc[:, :-1], unescape)


def is_marked(header: list[str] | tuple[str, ...]) -> bool:
    """Whether a header marks its table as escaped."""
    return len(header) > 1 and header[-1] == MARK


def unescape(text: str) -> str:
    """The original text of a cell of an escaped table."""
    return text.removeprefix(ESCAPE)


def _escaped(text: str) -> str:
    return ESCAPE + text if text.startswith((*FORMULAS, ESCAPE)) else text


def _text_columns(table: pd.DataFrame) -> list[int]:
    """Positions of the columns that may hold text."""
    return [i for i, dtype in enumerate(table.dtypes) if not pd.api.types.is_numeric_dtype(dtype)]


def _texts(table: pd.DataFrame) -> set[str]:
    """Every text of the table, column names too."""
    columns = (table.iloc[:, i].tolist() for i in _text_columns(table))
    values = chain(table.columns, *columns)
    return {value for value in values if isinstance(value, str)}


def _map_text(table: pd.DataFrame, change: Callable[[str], str]) -> pd.DataFrame:
    """Apply a function to every text of a table, column names too."""

    def changed(value: Any) -> Any:
        return change(value) if isinstance(value, str) else value

    columns = {i: table.iloc[:, i].map(changed) for i in _text_columns(table)}
    columns_out = [columns.get(i, table.iloc[:, i]) for i in range(table.shape[1])]
    out = pd.concat(columns_out, axis=1) if columns_out else table
    return out.set_axis([changed(name) for name in table.columns], axis=1)
