"""CSV and TSV, wide (one row per subject) or long (one row per response)."""

import csv
import io
import re
import warnings
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from irtcat._common.checks import InputError
from irtcat._files.csv import is_marked, unescape
from irtcat._files.reading import MOST_BYTES, read_bytes
from irtcat.io.text import check_widths, checked_text, decoded, load_text, records
from irtcat.responses import Responses, responses_of
from irtcat.responses._cells import MISSING
from irtcat.responses._table import ReadingOptions, SourceTable, find_long_columns, further_columns
from irtcat.responses.long import read_long
from irtcat.responses.wide import read_wide

NO_CELL_HAS, NOT_IN_LINES = "\x1f", re.compile("[\r\n\x1f]")

BLOCK_CELLS = 4_000_000
"""Cells of a wide table that are parsed at once, so that memory stays close to that of the data."""


def read_delimited(
    path: Path,
    options: ReadingOptions | None = None,
    separator: str | None = None,
    max_bytes: int = MOST_BYTES,
) -> Responses:
    r"""Read a table of text, wide or long.

    Args:
        path: the file; see the argument ``encoding`` of `irtcat.read_responses`.
        options: column names, layout and what to do with repeated ids.
        separator: between the columns; by default that of the file's extension, else the
            one of comma, tab and semicolon that splits the header into most columns.
        max_bytes: the number of bytes to read at most from a pipe or a sparse file.

    Returns:
        The responses; ids are exactly as in the file.

    Raises:
        InputError: naming the invalid line and column.

    Example:
        >>> import tempfile
        >>> path = Path(tempfile.mkdtemp()) / "small.csv"
        >>> size = path.write_text("subject,q1,q2\n007,1,0\n008,,1\n")
        >>> read_delimited(path).to_frame()
        item      q1  q2
        subject
        007      1.0 0.0
        008      NaN 1.0
    """
    options = options or ReadingOptions()
    data, said = decoded(path, read_bytes(path, max_bytes), options.encoding)
    if said:
        advice = "If letters are wrong, say the encoding with encoding=."
        warnings.warn(f"{path}: {said}. {advice}", UserWarning, stacklevel=4)
    data = checked_text(path, data)
    separator = separator or separator_of(path, data)
    data = _unescaped(path, data, separator)
    table = _table(path, data, separator)
    check_widths(path, data, separator, len(table.header))
    columns = find_long_columns(table, options)
    try:
        if columns is not None:
            used = (*columns, *further_columns(table, columns, options))
            block = _long_block(data, separator, used, len(table.header))
            cells = read_long(table, block, columns, options)
        else:
            blocks = _wide_blocks(path, data, separator, len(table.header))
            cells = read_wide(table, blocks, options)
        return responses_of(cells, options.duplicates, origin=cells.origin, codes=options.codes)
    except InputError:
        raise
    except (ValueError, OverflowError, pd.errors.ParserError):
        raise InputError(f"{path}: the table cannot be read. Export it again as CSV.") from None


def table_header(path: Path) -> tuple[str, ...]:
    """The columns of a table of text."""
    data = load_text(path)
    separator = separator_of(path, data)
    return _table(path, _unescaped(path, data, separator), separator).header


def first_line(path: Path, column: str, value: str) -> int | None:
    """The number of the first line that has a value in a column; None without any."""
    data = load_text(path)
    separator = separator_of(path, data)
    lines = records(path, _unescaped(path, data, separator), separator)
    at = next(lines)[1].index(column)
    return next((line for line, record in lines if record[at] == value), None)


def separator_of(path: Path, data: bytes) -> str:
    """The separator of the extension if the header has it, else the most frequent one."""
    usual = "\t" if path.suffix.lower() in (".tsv", ".tab") else ","
    widths = {}
    for separator in (usual, *(other for other in ",\t;" if other != usual)):
        try:
            widths[separator] = len(next(records(path, data, separator))[1])
        except (InputError, StopIteration):  # with the wrong separator quotes may not match
            widths[separator] = 0
    return usual if widths[usual] > 1 else max(widths, key=lambda separator: widths[separator])


def _unescaped(path: Path, data: bytes, separator: str) -> bytes:
    """Undo the escaping of `irtcat._files.csv.write_csv`, if the table is marked."""
    if not is_marked(next(records(path, data, separator), (1, []))[1]):
        return data
    text = io.StringIO()
    writer = csv.writer(text, delimiter=separator, quoting=csv.QUOTE_ALL, lineterminator="\n")
    for _, record in records(path, data, separator):
        writer.writerow([unescape(cell) for cell in record[:-1]])
    return text.getvalue().encode("utf-8")


def _table(path: Path, data: bytes, separator: str) -> SourceTable:
    """The header, and a function from a cell to its line and text."""

    def cell(row: int, column: int) -> tuple[str, str]:
        # Parses the file again, which is acceptable for an error message.
        line, record = next(islice(records(path, data, separator), row + 1, None))
        return f"line {line}", record[column]

    header = next(records(path, data, separator), None)
    if header is None:
        raise InputError(f"{path}: expected a header and rows. Got an empty file.")
    return SourceTable(str(path), tuple(header[1]), cell)


def _parse(data: bytes, separator: str, **options: Any) -> Any:
    """Read with pandas' C parser; ids remain text, and only `MISSING` is missing."""
    return pd.read_csv(
        io.BytesIO(data),
        sep=separator,
        index_col=False,
        na_values=MISSING,
        keep_default_na=False,
        low_memory=False,
        **options,
    )


def _wide_blocks(path: Path, data: bytes, separator: str, width: int) -> Iterator[pd.DataFrame]:
    """Yield blocks of rows, with the ids in the first column.

    All cells of a block are parsed as one column, of numbers or (if any is not one) of text: pandas
    has a cost per column, which is several times that of the cells in a table of 28,000 items.
    """
    rows = _wide_rows(path, data, separator)
    one_column: Any = {"header": None, "names": ["cell"], "quoting": csv.QUOTE_NONE}
    while block := list(islice(rows, max(1, BLOCK_CELLS // width))):
        ids, cells = zip(*block, strict=True)
        text = b"\n".join(cells) + b"\n"
        column = _parse(text, NO_CELL_HAS, skip_blank_lines=False, **one_column)
        frame = pd.DataFrame(column["cell"].to_numpy().reshape(len(block), width - 1))
        frame.insert(0, "id", np.array(ids, dtype=object))
        yield frame


def _wide_rows(path: Path, data: bytes, separator: str) -> Iterator[tuple[str, bytes]]:
    """Yield the id of each row, and its other cells as lines."""
    plain = data.replace(b"\r\n", b"\n")
    if b'"' not in plain and b"\r" not in plain:
        mark = separator.encode()
        lines = (line for line in io.BytesIO(plain) if line.strip(b" \n"))
        for line in islice(lines, 1, None):
            row_id, _, cells = line.removesuffix(b"\n").partition(mark)
            yield row_id.decode(), cells.replace(mark, b"\n")
        return
    for _, record in islice(records(path, data, separator), 1, None):
        # No number has such a character: a cell that does is refused with or without it.
        yield record[0], "\n".join(NOT_IN_LINES.sub("?", cell) for cell in record[1:]).encode()


def _long_block(data: bytes, separator: str, columns: tuple[int, ...], width: int) -> pd.DataFrame:
    """The subject, item and response columns, in that order, and further ones of the subjects."""
    text = {column: object for at, column in enumerate(columns) if at != 2}
    options: Any = {"header": 0, "names": range(width), "usecols": list(columns), "dtype": text}
    frame = _parse(data, separator, **options)
    return frame[list(columns)]
