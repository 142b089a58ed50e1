"""Writing the kept items of a filter: ids, or rows of a data file, which is streamed."""

import csv
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, NamedTuple

import numpy as np
import pandas as pd

from irtcat._checks import InputError, argument_error, shorten
from irtcat._csv import is_marked, unescape, write_csv
from irtcat._files import replacing
from irtcat._reading import check_regular, numbered_lines, parse_json
from irtcat._types import BoolArray
from irtcat.io.parquet import parquet_batches, reading_parquet

__all__ = ["RowsWritten", "write_ids", "write_rows"]

FORMATS = {
    ".csv": "csv",
    ".tsv": "tsv",
    ".tab": "tsv",
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".parquet": "parquet",
    ".pq": "parquet",
    ".txt": "ids",
}

MAX_FIELD = 1 << 30
"""Limit on the characters of a CSV field; the csv module's default is 131,072."""

BATCH = 1 << 16
"""Rows of a Parquet file in memory at a time."""


class RowsWritten(NamedTuple):
    """Counts of the rows of a data file.

    Attributes:
        read: rows of the file.
        written: rows kept.
        unknown: rows whose id is not that of an item; left out.
        absent: kept items without a row in the file.
        repeated: rows with the same id as an earlier row; kept or left out like that row.
    """

    read: int
    written: int
    unknown: int
    absent: int
    repeated: int


def write_ids(kept: pd.DataFrame, path: Path) -> Path:
    """Write the kept items in the format of the file's extension.

    Raises:
        InputError: for another extension.
    """
    kind = _format(path, FORMATS.values())
    if kind == "parquet":
        _pyarrow()
        with replacing(path) as file:
            kept.reset_index().to_parquet(file, index=False)
        return path
    if kind == "jsonl":
        lines = kept.reset_index().to_json(orient="records", lines=True)
        text = str(lines)
    elif kind == "ids":
        if any(len(str(item).splitlines()) > 1 for item in kept.index):
            must = "a .csv, .jsonl or .parquet file for ids of several lines"
            raise argument_error("path", must, path.name)
        text = "".join(f"{item}\n" for item in kept.index)
    else:
        return write_csv(kept, path, "," if kind == "csv" else "\t")
    with replacing(path) as file:
        file.write(text.encode("utf-8"))
    return path


def write_rows(
    ids: pd.Index, kept: BoolArray, source: Path, path: Path, key: str | None
) -> RowsWritten:
    """Copy the rows of the kept items from one data file to another.

    Raises:
        InputError: see `irtcat.training.filters.Filtered.save_rows`.
    """
    rows = {"csv": _csv_rows, "tsv": _csv_rows, "jsonl": _json_rows, "parquet": _parquet_rows}
    kind = _format(source, rows)
    if _format(path, rows) != kind:
        raise argument_error("path", f"a file of the format of {source.name}", path.name)
    check_regular(source)
    match = _Match(ids, kept, key, source)
    try:
        with _long_fields(), source.open("rb") as data, replacing(path) as out:
            rows[kind](data, out, match)
            return match.counts()
    except UnicodeDecodeError:
        raise InputError(f"{source}: this is not UTF-8 text.") from None
    except csv.Error as error:
        raise InputError(f"{source}, record {match.read + 1}: {error}.") from None


@contextmanager
def _long_fields() -> Iterator[None]:
    """Allow long texts in CSV fields."""
    previous = csv.field_size_limit(MAX_FIELD)
    try:
        yield
    finally:
        csv.field_size_limit(previous)


class _Match:
    """Which rows are kept, and their counts."""

    def __init__(self, ids: pd.Index, kept: BoolArray, key: str | None, source: Path):
        self.key, self.kept, self.source, self.n = key, kept, source, len(ids)
        text = ids.astype(str)
        if key is not None and not text.is_unique:
            repeated = text[text.duplicated()][0]
            raise argument_error("key", "None for items whose ids repeat as text", repeated)
        self.position = dict(zip(text, range(len(ids)), strict=True)) if key is not None else {}
        self.matched = np.zeros(len(ids), bool)
        self.read = self.written = self.unknown = self.repeated = 0

    def keeps(self, value: Any) -> bool:
        """Whether the next row is kept; ``value`` is its id."""
        position = self.position.get(str(value)) if self.key is not None else self.read
        self.read += 1
        if position is None:
            self.unknown += 1
            return False
        if position >= self.n:
            return False  # too many rows: `counts` raises an error
        self.repeated += bool(self.matched[position])
        self.matched[position] = True
        keep = bool(self.kept[position])
        self.written += keep
        return keep

    def counts(self) -> RowsWritten:
        """The counts; raises an error if the file has other items."""
        if self.key is None and self.read != self.n:
            raise InputError(
                f"{self.source}: has {self.read} rows, and there are {self.n} items. Rows match by "
                "position; name the column with the items' ids (`key`) to match by id."
            )
        if self.read == self.unknown:
            first = shorten(next(iter(self.position), ""))
            raise InputError(
                f"{self.source}: no row has the id of an item in {shorten(self.key)}. "
                f"The first item is {first}."
            )
        absent = int((self.kept & ~self.matched).sum())
        return RowsWritten(self.read, self.written, self.unknown, absent, self.repeated)


def _format(path: Path, choices: Any) -> str:
    """The format by the file's extension."""
    kind = FORMATS.get(path.suffix.lower(), "")
    names = list(choices)
    if kind not in names:
        extensions = ", ".join(suffix for suffix, name in FORMATS.items() if name in names)
        raise argument_error("path", f"a file ending in one of {extensions}", path.name)
    return kind


def _lines(data: IO[bytes], raw: list[str]) -> Iterator[str]:
    """The lines of a file, also appended to ``raw``: a CSV record may have several lines."""
    for number, line in enumerate(data):
        raw.append(line.decode("utf-8"))
        yield raw[-1] if number else raw[-1].removeprefix("\ufeff")


def _csv_rows(data: IO[bytes], out: IO[bytes], match: _Match) -> None:
    """Copy records unchanged, the header first."""
    raw: list[str] = []
    delimiter = "," if FORMATS[match.source.suffix.lower()] == "csv" else "\t"
    reader = csv.reader(_lines(data, raw), delimiter=delimiter, strict=True)
    header = next(reader, None)
    if header is None:
        raise InputError(f"{match.source}: expected a header and rows. Got an empty file.")
    escaped = is_marked(header)
    column = _column([unescape(name) for name in header] if escaped else header, match)
    _copy(raw, out)
    for record in reader:
        if record:  # an empty record is a blank line
            if column is not None and column >= len(record):
                raise InputError(
                    f"{match.source}, record {match.read + 1}: has no column {shorten(match.key)}."
                )
            cell = "" if column is None else record[column]
            if match.keeps(unescape(cell) if escaped else cell):
                _copy(raw, out)
        raw.clear()


def _copy(raw: list[str], out: IO[bytes]) -> None:
    """Write the lines of a record; the last line of a file may lack its newline."""
    text = "".join(raw)
    out.write((text if text.endswith("\n") else text + "\n").encode("utf-8"))
    raw.clear()


def _column(names: list[str], match: _Match) -> int | None:
    """Position of the key's column."""
    if match.key is None:
        return None
    if match.key not in names:
        raise argument_error(
            "key", f"a column of {match.source.name} ({', '.join(names)})", match.key
        )
    return names.index(match.key)


def _json_rows(data: IO[bytes], out: IO[bytes], match: _Match) -> None:
    """Copy lines unchanged; they are parsed only to match ids."""
    for number, line, ended in numbered_lines(match.source):
        value: Any = None
        if match.key is not None:
            where = f"{match.source}, line {number}"
            record = parse_json(line, where)
            if not isinstance(record, dict) or match.key not in record:
                must = f"expected a JSON object with a field {shorten(match.key)}"
                raise InputError(f"{where}: {must}. Got {shorten(record)}.")
            value = record[match.key]
        if match.keeps(value):
            out.write(line if ended else line + b"\n")


def _parquet_rows(data: IO[bytes], out: IO[bytes], match: _Match) -> None:
    """Copy batches of rows with the schema of the file."""
    parquet = _pyarrow()
    with reading_parquet(match.source):
        file = parquet.ParquetFile(data)
    column = _column(list(file.schema_arrow.names), match)
    with parquet.ParquetWriter(out, file.schema_arrow) as writer:
        for batch in parquet_batches(match.source, file, BATCH):
            with reading_parquet(match.source):
                batch.validate(full=True)  # finds text that is not UTF-8, for example
            ids = [None] * len(batch) if column is None else batch.column(column).to_pylist()
            mask = np.fromiter((match.keeps(value) for value in ids), bool, len(batch))
            writer.write_batch(batch.filter(mask) if not mask.all() else batch)


def _pyarrow() -> Any:
    """The Parquet module, or an error that names the extra."""
    try:
        import pyarrow.parquet
    except ImportError:
        raise InputError(
            "Parquet files need pyarrow. Install it with: pip install 'irtcat[parquet]'"
        ) from None
    return pyarrow.parquet
