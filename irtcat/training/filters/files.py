"""Writing the kept items of a filter: ids, or rows of a data file, which is streamed."""

import csv
import json
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from itertools import compress
from pathlib import Path
from typing import IO, Any, NamedTuple

import numpy as np
import pandas as pd

from irtcat._common.checks import InputError, argument_error, shorten
from irtcat._common.types import BoolArray, IntArray
from irtcat._files.csv import is_marked, unescape, write_csv
from irtcat._files.json import json_value
from irtcat._files.reading import check_regular, numbered_lines, parse_json
from irtcat._files.writing import replacing
from irtcat.io.parquet import parquet_batches, reading_parquet
from irtcat.training.rows import arrow_batches, ids_by_text, pyarrow

FORMATS = {
    ".csv": "csv",
    ".tsv": "tsv",
    ".tab": "tsv",
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".parquet": "parquet",
    ".pq": "parquet",
    ".arrow": "arrow",
    ".feather": "arrow",
    ".ipc": "arrow",
    ".txt": "ids",
}

MAX_FIELD = 1 << 30
"""Limit on the characters of a CSV field; the csv module's default is 131,072."""

BATCH = 1 << 16
"""Rows of a file in memory at a time."""

BATCH_BYTES = 1 << 24
"""Bytes of CSV records or JSON lines in memory at a time: long texts make smaller batches."""

ARROW_FILE = b"ARROW1"
"""How the Arrow file format begins; the stream format does not."""


IDS = ("csv", "tsv", "jsonl", "parquet", "ids")
"""Formats of the ids."""


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
    kind = _format(path, IDS)
    if kind == "parquet":
        pyarrow()
        with replacing(path) as file:
            kept.reset_index().to_parquet(file, index=False)
        return path
    if kind == "jsonl":
        text = str(kept.reset_index().to_json(orient="records", lines=True))
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
    ids: pd.Index, kept: BoolArray, source: Any, path: Path, key: str | None
) -> RowsWritten:
    """Copy the rows of the kept items from one data file, or a data set in memory, to a file.

    Raises:
        InputError: see `irtcat.training.filters.Filtered.save_rows`.
    """
    if not isinstance(source, Path):
        kind = _format(path, WRITERS)
        match = _Match(ids, kept, key, "the data set")
        with replacing(path) as out:
            _copy_batches(arrow_batches(source), match, out, WRITERS[kind])
            return match.counts()
    kind = _format(source, ROWS)
    if _format(path, ROWS) != kind:
        raise argument_error("path", f"a file of the format of {source.name}", path.name)
    check_regular(source)
    match = _Match(ids, kept, key, str(source))
    try:
        with _long_fields(), source.open("rb") as data, replacing(path) as out:
            ROWS[kind](source, data, out, match)
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

    def __init__(self, ids: pd.Index, kept: BoolArray, key: str | None, source: str):
        self.id_field, self.kept, self.source, self.n = key, kept, source, len(ids)
        self._first = str(ids[0])
        self._ids = None if key is None else ids_by_text(ids)
        self._matched = np.zeros(len(ids), bool)
        self.read = self.written = self.unknown = self.repeated = 0

    def keeps(self, ids: list[Any], n: int) -> BoolArray:
        """Whether the next rows are kept.

        Args:
            ids: their ids; not used if rows match by position.
            n: number of rows.
        """
        if self._ids is None:
            # With too many rows, `counts` raises an error.
            positions: IntArray = np.arange(min(self.read, self.n), min(self.read + n, self.n))
        else:
            positions = self._ids.positions([str(value) for value in ids])
        self.read += n
        known = positions >= 0
        self.unknown += int(n - known.sum()) if self._ids is not None else 0
        first = ~self._matched[positions] & known
        self._matched[positions[known]] = True
        fresh = len(np.unique(positions[first]))
        self.repeated += int(known.sum()) - fresh
        keep = np.zeros(n, bool)
        keep[: len(positions)] = known & self.kept[positions]
        self.written += int(keep.sum())
        return keep

    def counts(self) -> RowsWritten:
        """The counts; raises an error if the file has other items."""
        if self.id_field is None and self.read != self.n:
            raise InputError(
                f"{self.source}: has {self.read} rows, and there are {self.n} items. Rows match by "
                "position; name the column with the items' ids (`key`) to match by id."
            )
        if self.id_field is not None and self.read == self.unknown:
            raise InputError(
                f"{self.source}: no row has the id of an item in {shorten(self.id_field)}. "
                f"The first item is {shorten(self._first)}."
            )
        absent = int((self.kept & ~self._matched).sum())
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


class _Pending:
    """Records that wait until their ids are looked up together."""

    def __init__(self, out: IO[bytes], match: _Match) -> None:
        self._out, self._match = out, match
        self._records: list[bytes] = []
        self._ids: list[Any] = []
        self._bytes = 0

    def add(self, record: bytes, value: Any) -> None:
        """Add a record, which is written later if its item is kept."""
        self._records.append(record)
        self._ids.append(value)
        self._bytes += len(record)
        if len(self._records) == BATCH or self._bytes > BATCH_BYTES:
            self.flush()

    @property
    def read(self) -> int:
        """Number of records so far."""
        return self._match.read + len(self._records)

    def flush(self) -> None:
        """Write the records whose items are kept."""
        keep = self._match.keeps(self._ids, len(self._records))
        self._out.write(b"".join(compress(self._records, keep)))
        self._records, self._ids, self._bytes = [], [], 0


def _csv_rows(source: Path, data: IO[bytes], out: IO[bytes], match: _Match) -> None:
    """Copy records unchanged, the header first."""
    raw: list[str] = []
    delimiter = "," if FORMATS[source.suffix.lower()] == "csv" else "\t"
    reader = csv.reader(_lines(data, raw), delimiter=delimiter, strict=True)
    header = next(reader, None)
    if header is None:
        raise InputError(f"{source}: expected a header and rows. Got an empty file.")
    escaped = is_marked(header)
    column = _column([unescape(name) for name in header] if escaped else header, match, source.name)
    pending = _Pending(out, match)
    out.write(_record(raw))
    for record in reader:
        if record:  # an empty record is a blank line
            if column is not None and column >= len(record):
                where = f"{source}, record {pending.read + 1}"
                raise InputError(f"{where}: has no column {shorten(match.id_field)}.")
            cell = "" if column is None else record[column]
            pending.add(_record(raw), unescape(cell) if escaped else cell)
        raw.clear()
    pending.flush()


def _record(raw: list[str]) -> bytes:
    """The lines of a record; the last line of a file may lack its newline."""
    text = "".join(raw)
    raw.clear()
    return (text if text.endswith("\n") else text + "\n").encode("utf-8")


def _column(names: list[str], match: _Match, source: str) -> int | None:
    """Position of the key's column."""
    if match.id_field is None:
        return None
    if match.id_field not in names:
        raise argument_error("key", f"a column of {source} ({', '.join(names)})", match.id_field)
    return names.index(match.id_field)


def _json_rows(source: Path, data: IO[bytes], out: IO[bytes], match: _Match) -> None:
    """Copy lines unchanged; they are parsed only to match ids."""
    pending = _Pending(out, match)
    for number, line, ended in numbered_lines(source):
        value: Any = None
        if match.id_field is not None:
            where = f"{source}, line {number}"
            record = parse_json(line, where)
            if not isinstance(record, dict) or match.id_field not in record:
                must = f"expected a JSON object with a field {shorten(match.id_field)}"
                raise InputError(f"{where}: {must}. Got {shorten(record)}.")
            value = record[match.id_field]
        pending.add(line if ended else line + b"\n", value)
    pending.flush()


def _parquet_rows(source: Path, data: IO[bytes], out: IO[bytes], match: _Match) -> None:
    """Copy batches of rows with the schema of the file."""
    pyarrow()
    from pyarrow import parquet

    with reading_parquet(source):
        file = parquet.ParquetFile(data)
    batches = parquet_batches(source, file, BATCH)
    with parquet.ParquetWriter(out, file.schema_arrow) as writer:
        column = _column(list(file.schema_arrow.names), match, source.name)
        _copy_valid(batches, source, column, match, writer.write_batch)


def _arrow_rows(source: Path, data: IO[bytes], out: IO[bytes], match: _Match) -> None:
    """Copy record batches of an Arrow file or stream, in the same format."""
    pa = pyarrow()
    with _reading_arrow(source):
        is_file = data.read(len(ARROW_FILE)) == ARROW_FILE
        data.seek(0)
        reader = (pa.ipc.open_file if is_file else pa.ipc.open_stream)(data)
    column = _column(list(reader.schema.names), match, source.name)
    new = pa.ipc.new_file if is_file else pa.ipc.new_stream
    with new(out, reader.schema) as writer:
        _copy_valid(_arrow_file(source, reader), source, column, match, writer.write_batch)


def _arrow_file(source: Path, reader: Any) -> Iterator[Any]:
    """The record batches of an Arrow file or stream, in slices of at most `BATCH` rows."""
    with _reading_arrow(source):
        is_file = hasattr(reader, "num_record_batches")
        numbers = range(reader.num_record_batches) if is_file else ()
        for batch in map(reader.get_batch, numbers) if is_file else reader:
            for start in range(0, len(batch), BATCH):
                yield batch.slice(start, BATCH)


@contextmanager
def _reading_arrow(source: Path) -> Iterator[None]:
    """Convert Arrow's errors about a damaged file to one sentence."""
    pa = pyarrow()
    try:
        yield
    except InputError:
        raise
    except (pa.ArrowException, OSError, ValueError, OverflowError):
        raise InputError(f"{source}: the Arrow file is damaged. Write it again.") from None


def _copy_valid(
    batches: Iterable[Any], source: Path, column: int | None, match: _Match, write: Any
) -> None:
    """Write the kept rows of the batches of a file."""
    for batch in batches:
        with reading_parquet(source):
            batch.validate(full=True)  # finds text that is not UTF-8, for example
        ids = [] if column is None else batch.column(column).to_pylist()
        mask = match.keeps(ids, len(batch))
        write(batch.filter(mask) if not mask.all() else batch)


ROWS = {
    "csv": _csv_rows,
    "tsv": _csv_rows,
    "jsonl": _json_rows,
    "parquet": _parquet_rows,
    "arrow": _arrow_rows,
}
"""How the rows of a file are copied, by its format."""


class _JsonWriter:
    """Writes Arrow batches as JSON lines."""

    def __init__(self, out: IO[bytes], schema: Any) -> None:
        self._out = out

    def write_batch(self, batch: Any) -> None:
        for row in batch.to_pylist():
            text = json.dumps(json_value(row, _refuse), ensure_ascii=False)
            self._out.write(text.encode("utf-8") + b"\n")

    def close(self) -> None:
        """Nothing is pending."""


def _refuse(value: Any) -> None:
    """Raise for a value that JSON lacks: its text would not be the value."""
    must = "values of JSON, dates and times"
    raise argument_error("source", must, type(value).__name__, "Write a .parquet file.")


def _parquet_writer(out: IO[bytes], schema: Any) -> Any:
    from pyarrow import parquet

    return parquet.ParquetWriter(out, schema)


WRITERS: dict[str, Any] = {
    "jsonl": _JsonWriter,
    "parquet": _parquet_writer,
    "arrow": lambda out, schema: pyarrow().ipc.new_file(out, schema),
}
"""How Arrow batches are written, by the format."""


def _copy_batches(batches: Iterator[Any], match: _Match, out: IO[bytes], new: Any) -> None:
    """Write the kept rows of a data set in memory."""
    writer = None
    for batch in batches:
        if writer is None:
            column = _column(list(batch.schema.names), match, "the data set")
            writer = new(out, batch.schema)
        ids = [] if column is None else batch.column(column).to_pylist()
        writer.write_batch(batch.filter(pyarrow().array(match.keeps(ids, len(batch)))))
    if writer is not None:
        writer.close()
