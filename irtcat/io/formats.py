"""The formats of response files: their readers, and how they are detected."""

import os
from collections.abc import Callable
from pathlib import Path

from irtcat._common.checks import InputError
from irtcat.io.delimited import first_line, read_delimited, table_header
from irtcat.io.json_lines import json_columns, read_json_lines
from irtcat.io.logs.find import is_log
from irtcat.io.office import office_header, read_excel, read_labelled
from irtcat.io.parquet import parquet_header, read_parquet
from irtcat.io.pyirt import is_pyirt, read_pyirt
from irtcat.responses import Responses, read_npz
from irtcat.responses._table import ReadingOptions

Reader = Callable[[Path, ReadingOptions, int], Responses]

FORMATS: dict[str, Reader] = {
    "csv": lambda path, options, most: read_delimited(path, options, None, most),
    "tsv": lambda path, options, most: read_delimited(path, options, "\t", most),
    "npz": lambda path, options, most: read_npz(path, options.duplicates, most),
    "parquet": lambda path, options, most: read_parquet(path, options, most),
    "pyirt": lambda path, options, most: read_pyirt(path, options.duplicates),
    "jsonl": lambda path, options, most: read_json_lines(path, options, most),
    "excel": lambda path, options, most: read_excel(path, options, most),
    "spss": lambda path, options, most: read_labelled(path, options, most),
    "stata": lambda path, options, most: read_labelled(path, options, most),
    "sas": lambda path, options, most: read_labelled(path, options, most),
}

OFFICE = ("excel", "spss", "stata", "sas")

TABLES = ("csv", "tsv", "parquet", "jsonl", *OFFICE)
"""Formats of tables, whose columns can be named."""

_EXTENSIONS = {
    ".csv": "csv",
    ".tsv": "csv",  # the same reader, which detects the separator by extension and header
    ".tab": "csv",
    ".txt": "csv",
    ".npz": "npz",
    ".parquet": "parquet",
    ".pq": "parquet",
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".json": "jsonl",
    ".xlsx": "excel",
    ".xlsm": "excel",
    ".sav": "spss",
    ".zsav": "spss",
    ".por": "spss",
    ".dta": "stata",
    ".sas7bdat": "sas",
    ".xpt": "sas",
}

_PICKLE = "pickles run code when they are loaded. Save the responses as CSV or .npz"

_REFUSED = {
    ".pkl": _PICKLE,
    ".pickle": _PICKLE,
    ".joblib": _PICKLE,
    ".npy": "a bare array has no ids. Save X, subjects and items with np.savez",
    ".xls": "old Excel files are not read. Save it as .xlsx, or export the sheet as CSV",
    ".ods": "this spreadsheet is not read. Save it as .xlsx, or export the sheet as CSV",
    ".numbers": "this spreadsheet is not read. Export it as .xlsx or CSV",
    ".gz": "the file is compressed. Unpack it first",
    ".zip": "the file is compressed. Unpack it first",
}

_FIRST_BYTES = {b"PK\x03\x04": "npz", b"PAR1": "parquet", b"\x1f\x8b": ".gz", b"\x80": ".pkl"}


def columns_of(path: str | os.PathLike[str]) -> tuple[str, ...]:
    """The columns of a table; none of another file, a folder or a pipe."""
    file = Path(path)
    if not file.is_file() or is_log(file):
        return ()
    kind = detect(file)
    headers: dict[str, Callable[[Path], tuple[str, ...]]]
    headers = {"parquet": parquet_header, "jsonl": json_columns}
    headers |= dict.fromkeys(OFFICE, office_header)
    return headers.get(kind, table_header)(file) if kind in TABLES else ()


def place_of(path: str | os.PathLike[str], column: str, value: str) -> str:
    """Where a table first has a value in a column, for messages."""
    is_text = detect(Path(path)) in ("csv", "tsv")
    line = first_line(Path(path), column, value) if is_text else None
    place = "" if line is None else f", line {line}"
    return f"{path}{place}, column {columns_of(path).index(column) + 1} ({column!r})"


def detect(file: Path) -> str:
    """Detect the format by extension and first bytes; raise for refused formats."""
    extension = file.suffix.lower()
    if extension in _REFUSED:
        raise InputError(f"{file}: {_REFUSED[extension]}.")
    try:
        with file.open("rb") as stream:
            head = stream.read(64)
    except OSError as error:
        raise InputError(f"{file}: cannot be opened ({error.strerror}).") from None
    kind = _EXTENSIONS.get(extension)
    if kind in OFFICE:
        return kind
    by_content = next((k for first, k in _FIRST_BYTES.items() if head.startswith(first)), None)
    if by_content in _REFUSED:
        raise InputError(f"{file}: {_REFUSED[str(by_content)]}.")
    is_json = head.removeprefix(b"\xef\xbb\xbf").lstrip().startswith(b"{")
    if is_json and kind in (None, "csv", "jsonl"):
        by_content = "pyirt" if is_pyirt(file) else "jsonl"
    return by_content or kind or "csv"
