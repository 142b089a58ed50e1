"""Tables of text: checks before pandas parses them, and CSV and TSV, wide or long."""

import codecs
import csv
import io
import os
import re
import warnings
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from irtcat._common.checks import InputError, argument_error, shorten
from irtcat._common.numbers import number_in
from irtcat._files.csv import MARK, is_marked, read_csv, unescape
from irtcat._files.reading import MOST_BYTES, check_path, read_bytes
from irtcat.io.office import read_key_sheet
from irtcat.responses import Responses, responses_of
from irtcat.responses._cells import MISSING
from irtcat.responses._key import Key, key_of, key_of_rows
from irtcat.responses._table import ReadingOptions, SourceTable, find_long_columns, further_columns
from irtcat.responses.long import read_long
from irtcat.responses.wide import read_wide

CONTROLS = [bytes([code]) for code in (*range(9), 11, 12, *range(14, 32), 127)]
"""Control characters except tab and line breaks. Some readers treat them as blanks."""

MARKED = re.compile(rb"[^\r\n]*[,\t;]\"?" + MARK.encode() + rb"\"?\r?\n")
"""The header of a table that `irtcat._files.csv.write_csv` marked as escaped."""

CONTROLS_ABOVE = re.compile("[\x80-\x9f]")


def load_text(path: Path, max_bytes: int = MOST_BYTES, must: str = "a header and rows") -> bytes:
    """Read text as UTF-8 without control characters; line ends become line feeds.

    Tables that `irtcat._files.csv.write_csv` marked may have control characters in their texts.

    Args:
        path: the file.
        max_bytes: refuse larger files.
        must: the expected content, for the message about an empty file.

    Raises:
        InputError: naming the invalid line.
    """
    return checked_text(path, decoded(path, read_bytes(path, max_bytes))[0], must)


def checked_encoding(name: str | None) -> str | None:
    """The name of an encoding of text, or None.

    Raises:
        InputError: Python knows no such encoding.
    """
    if name is None:
        return None
    try:
        if isinstance("".encode(name).decode(name), str):
            return name
    except (LookupError, TypeError, ValueError):
        pass
    raise argument_error("encoding", "the name of an encoding, such as 'cp1252' or 'utf-8'", name)


WESTERN = frozenset(
    "ÀÁÂÃÄÅÆÇÈÉÊËÌÍÎÏÑÒÓÔÕÖØÙÚÛÜßàáâãäåæçèéêëìíîïñòóôõöøùúûüÿŒœŠšŽž‘’“”–—…€£§°ºª«»¿¡·´²³½¼¾"
)
"""Characters beyond ASCII that Western European texts have; as cp1252 has them."""

MOST_WESTERN = 1 / 3
"""Share of letters beyond ASCII in words that have any; in other alphabets they are nearly all."""


def decoded(path: Path, data: bytes, encoding: str | None = None) -> tuple[bytes, str]:
    """A text as UTF-8 without a byte order mark, and what was guessed of its encoding.

    Raises:
        InputError: the text is not of this encoding.
    """
    if encoding is None and data[:2] in (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE):
        encoding = "utf-16"
    if encoding is not None:
        try:
            return data.decode(encoding).removeprefix("\ufeff").encode("utf-8"), ""
        except (UnicodeError, ValueError):
            must = f"expected text in {encoding}. Say its encoding with encoding="
            raise InputError(f"{path}: {must}.") from None
    data = data.removeprefix(codecs.BOM_UTF8)
    try:
        data.decode("utf-8")
    except UnicodeDecodeError:
        text = _as_western(data)
        if text is not None:
            return text.encode("utf-8"), "read as cp1252 (Windows), since it is not UTF-8"
    return data, ""


def _as_western(data: bytes) -> str | None:
    """A text in cp1252 if it is one without doubt."""
    try:
        text = data.decode("cp1252")
    except UnicodeDecodeError:
        return None
    beyond = set(filter(lambda letter: not letter.isascii(), text))
    words = [word for word in re.findall(r"[^\W\d_]+", text) if not word.isascii()]
    letters = "".join(words)
    share = sum(not letter.isascii() for letter in letters) / max(1, len(letters))
    return text if beyond <= WESTERN and share <= MOST_WESTERN else None


def checked_text(path: Path, data: bytes, must: str = "a header and rows") -> bytes:
    """UTF-8 text without control characters; line ends become line feeds.

    Raises:
        InputError: naming the invalid line.
    """
    if not data.strip():
        raise InputError(f"{path}: expected {must}. Got an empty file.")
    marked = MARKED.match(data) is not None
    matches = [data.find(control) for control in (CONTROLS[:1] if marked else CONTROLS)]
    if first := [position for position in matches if position >= 0]:
        _refuse_control(path, data, min(first), data[min(first)])
    if not data.isascii():
        try:
            text = data.decode("utf-8")
        except UnicodeDecodeError as error:
            line = data.count(b"\n", 0, error.start) + 1
            got = f"the byte {data[error.start]:#04x}"
            message = f"expected UTF-8 text. Got {got}. Save the file as UTF-8"
            message += ", or say its encoding with encoding=."
            raise InputError(f"{path}, line {line}: {message}") from None
        if not marked and (above := CONTROLS_ABOVE.search(text)):
            at = len(text[: above.start()].encode())
            _refuse_control(path, data, at, ord(above[0]))
    return data if b"\n" in data else data.replace(b"\r", b"\n")


def _refuse_control(path: Path, data: bytes, at: int, code: int) -> None:
    """Raise about the control character at a position."""
    line = data.count(b"\n", 0, at) + 1
    got = "a zero byte" if code == 0 else f"the control character U+{code:04X}"
    raise InputError(f"{path}, line {line}: expected text. Got {got}.")


def records(path: Path, data: bytes, separator: str) -> Iterator[tuple[int, list[str]]]:
    """Yield each record that is not blank, with the number of its first line."""
    text = io.TextIOWrapper(io.BytesIO(data), encoding="utf-8", newline="")
    last = ""

    def lines() -> Iterator[str]:
        nonlocal last
        for line_text in text:
            last = line_text
            yield line_text

    reader = csv.reader(lines(), delimiter=separator, strict=True)
    line = 1
    try:
        for record in reader:
            if last.strip(" \r\n"):  # tests the line: for pandas a line of two quotes is a record
                yield line, record
            line = reader.line_num + 1
    except csv.Error as error:
        message = "the quotes of a cell do not match. Close them, or double those inside."
        if "field larger" in str(error):
            message = "a cell is longer than 131,072 characters. Is a quote open?"
        raise InputError(f"{path}, line {line}: {message}") from None


def check_widths(path: Path, data: bytes, separator: str, width: int) -> None:
    """Raise at the first line with more or fewer cells than the header (pandas would pad it)."""
    lone_returns = data.count(b"\r") - data.count(b"\r\n")  # line ends for pandas
    if b'"' not in data and not lone_returns:  # counting separators is faster than parsing
        mark = separator.encode()
        widths = {line.count(mark) + 1 for line in io.BytesIO(data) if line.strip(b" \r\n")}
        if widths == {width}:
            return
    for line, record in records(path, data, separator):
        if len(record) != width:
            got = f"{len(record)} cell{'s' if len(record) > 1 else ''}"
            raise InputError(f"{path}, line {line}: expected {width} cells. Got {got}.")


def read_table(path: Any, text: Any = None, **options: Any) -> pd.DataFrame:
    """Read a CSV table with a header of unique names by `pandas.read_csv`.

    Args:
        path: the file.
        text: columns (positions or names) to read as text, empty cells as "".
        options: more options of `pandas.read_csv`.

    Raises:
        InputError: naming the invalid line.
    """
    file = Path(path)
    data = load_text(file)
    header = next(records(file, data, ","))[1]
    check_widths(file, data, ",", len(header))
    marked = is_marked(header)
    names = [unescape(name) for name in header[:-1]] if marked else header
    if repeated := pd.Index(names)[pd.Index(names).duplicated()].tolist():
        raise InputError(f"{path}, line 1: the column {shorten(repeated[0])} occurs twice.")
    as_is = [i for i, name in enumerate(names) if text is not None and (i in text or name in text)]
    columns = [*as_is, len(header) - 1] if marked else as_is
    missing: Any = {"na_values": MISSING, "keep_default_na": False}  # not "None" or "N/A"
    as_text: Any = {"usecols": columns, "dtype": str, "keep_default_na": False}
    try:
        table = read_csv(io.BytesIO(data), index_col=False, low_memory=False, **missing | options)
        if as_is:  # a second pass: keep_default_na applies to all columns at once
            texts = read_csv(io.BytesIO(data), index_col=False, **as_text)
            table[list(texts.columns)] = texts
        return table
    except (ValueError, OverflowError, pd.errors.ParserError):
        raise InputError(f"{path}: the table cannot be read. Export it again as CSV.") from None


def column_numbers(column: pd.Series) -> np.ndarray:
    """Convert a parsed column to numbers: NaN if missing, infinite if it is not a number.

    The caller rejects infinite numbers and names the cell.
    """
    if pd.api.types.is_numeric_dtype(column.dtype):
        return column.to_numpy(np.float64, na_value=np.nan)
    numbers = [number_in(str(cell)) for cell in column.where(column.notna(), "nan")]
    missing = column.isna() | (column.astype(str).str.strip(" ") == "")
    return np.where(missing, np.nan, [np.inf if number is None else number for number in numbers])


NO_CELL_HAS, NOT_IN_LINES = "\x1f", re.compile("[\r\n\x1f]")

BLOCK_CELLS = 4_000_000
"""Cells of a wide table that are parsed at once, so that memory stays close to that of the data."""


def read_delimited(
    path: Path, options: ReadingOptions, separator: str | None = None, max_bytes: int = MOST_BYTES
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
        >>> read_delimited(path, ReadingOptions()).to_frame()
        item      q1  q2
        subject
        007      1.0 0.0
        008      NaN 1.0
    """
    data, said = decoded(path, read_bytes(path, max_bytes), options.encoding)
    if said:
        advice = "If letters are wrong, say the encoding with encoding=."
        warnings.warn(f"{path}: {said}. {advice}", UserWarning, stacklevel=4)
    data = checked_text(path, data)
    data, separator = _separated(path, data, separator)
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
    return _table(path, *_separated(path, load_text(path))).header


def first_line(path: Path, column: str, value: str) -> int | None:
    """The number of the first line that has a value in a column; None without any."""
    lines = records(path, *_separated(path, load_text(path)))
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


def _separated(path: Path, data: bytes, separator: str | None = None) -> tuple[bytes, str]:
    """A text and its separator; the escaping of `irtcat._files.csv.write_csv` is undone."""
    separator = separator or separator_of(path, data)
    if not is_marked(next(records(path, data, separator), (1, []))[1]):
        return data, separator
    text = io.StringIO()
    writer = csv.writer(text, delimiter=separator, quoting=csv.QUOTE_ALL, lineterminator="\n")
    for _, record in records(path, data, separator):
        writer.writerow([unescape(cell) for cell in record[:-1]])
    return text.getvalue().encode("utf-8"), separator


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
    return _parse(data, separator, **options)[list(columns)]


def read_key(key: Any, encoding: str | None = None) -> Key | None:
    r"""The ``key`` argument: a file, or what `irtcat.responses._key.key_of` takes.

    Args:
        key: a table with columns item, key and perhaps credit; or one row of right answers below
            the items; or a mapping, Series, data frame or list.
        encoding: of a file of text.

    Example:
        >>> import tempfile
        >>> from pathlib import Path
        >>> path = Path(tempfile.mkdtemp()) / "key.csv"
        >>> size = path.write_text("item,key\nq1,B\nq2,A|C\n")
        >>> sorted(read_key(path).credits["q2"])
        ['a', 'c']
    """
    if not isinstance(key, (str, os.PathLike)):
        return key_of(key)
    path = check_path(key)
    if path.suffix.lower() in (".xlsx", ".xlsm"):
        return read_key_sheet(path)
    data = checked_text(path, decoded(path, read_bytes(path), encoding)[0])
    separator = separator_of(path, data)
    rows = [row for _, row in records(path, data, separator)]
    check_widths(path, data, separator, len(rows[0]))
    try:
        return key_of_rows(rows[0], rows[1:], str(path))
    except InputError as error:
        text = str(error).replace("The `key` argument must be", "expected")
    raise InputError(text if text.startswith(str(path)) else f"{path}: {text}")
