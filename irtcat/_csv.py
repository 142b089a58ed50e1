"""Tables as CSV that no spreadsheet runs, and back.

Spreadsheets take a cell of text that begins with ``=``, ``+``, ``-``, ``@``, a tab or a line break
for a formula and run it, also where it is quoted. A table with such a cell is written with an
apostrophe before each of them, and before each text that begins with an apostrophe. Its last
column, ``csv_escape``, says so: it holds the apostrophe in every row. So is a table with control
characters, which irtcat's readers take for damage elsewhere. All other tables are written as they
are, and so are numbers.

`read_csv` undoes it exactly. In pandas: ``frame["item"].str.removeprefix("'")``.
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

from irtcat._files import replacing

__all__ = ["MARK", "csv_bytes", "csv_escape", "is_marked", "read_csv", "unescape", "write_csv"]

ESCAPE = "'"
MARK = "csv_escape"
# With the wide forms, which some spreadsheets take for the narrow ones.
FORMULAS = ("=", "+", "-", "@", "\t", "\r", "\n", "＝", "＋", "－", "＠")

CONTROL = re.compile("[\x00-\x1f\x7f-\x9f]")

_escaping = ContextVar("escaping", default=True)


@contextmanager
def csv_escape(on: bool) -> Iterator[None]:
    """Whether the CSV files written in this context are made safe for spreadsheets.

    Cells of text that begin with ``=``, ``+``, ``-``, ``@``, a tab or a line break get an
    apostrophe before them, by default. A table with such a cell has a last column ``csv_escape``.

    Args:
        on: False writes every cell as it is.

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
    """Write a table in full precision, whole or not at all; a named index becomes a column.

    Returns:
        The path.

    Raises:
        InputError: when the file cannot be written.
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
        table = _each_text(table, _escaped).assign(**{MARK: ESCAPE})
    # The csv module of Python 3.11 does not quote a carriage return, which ends a line.
    quoted = any("\r" in text for text in texts)
    text = table.to_csv(
        index=False, sep=separator, lineterminator="\n",
        quoting=csv.QUOTE_NONNUMERIC if quoted else csv.QUOTE_MINIMAL,
    )  # fmt: skip
    return text.encode("utf-8")


def read_csv(source: Any, **options: Any) -> pd.DataFrame:
    """`pandas.read_csv` of what `write_csv` or anything else has written.

    Example:
        >>> import io
        >>> table = pd.DataFrame({"item": ["=1+1", "'tis"]})
        >>> read_csv(io.BytesIO(csv_bytes(table)))["item"].tolist()
        ['=1+1', "'tis"]
    """
    frame = pd.read_csv(source, **options)
    if not is_marked(list(frame.columns)):
        return frame
    return _each_text(frame.iloc[:, :-1], unescape)


def is_marked(header: list[str] | tuple[str, ...]) -> bool:
    """Whether the header of a table says that its cells are escaped."""
    return len(header) > 1 and header[-1] == MARK


def unescape(text: str) -> str:
    """The text of a cell of a table that is escaped."""
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
    return {each for each in values if isinstance(each, str)}


def _each_text(table: pd.DataFrame, change: Callable[[str], str]) -> pd.DataFrame:
    """The table with every text changed, column names too."""

    def changed(value: Any) -> Any:
        return change(value) if isinstance(value, str) else value

    columns = {i: table.iloc[:, i].map(changed) for i in _text_columns(table)}
    parts = [columns.get(i, table.iloc[:, i]) for i in range(table.shape[1])]
    out = pd.concat(parts, axis=1) if parts else table
    return out.set_axis([changed(name) for name in table.columns], axis=1)
