"""Parquet, wide or long, with the optional extra pyarrow."""

from collections.abc import Container, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from irtcat._common.checks import InputError, shorten
from irtcat._common.lazy import optional_module
from irtcat._files.reading import MOST_BYTES, allowed_bytes, opened, too_large
from irtcat.responses import Responses, responses_of
from irtcat.responses._table import (
    ReadingOptions,
    SourceTable,
    check_names,
    find_long_columns,
    further_columns,
)
from irtcat.responses.long import read_long
from irtcat.responses.wide import read_wide


def read_parquet(path: Path, options: ReadingOptions, max_bytes: int = MOST_BYTES) -> Responses:
    """Read a Parquet table of one row per subject, or one row per response.

    Args:
        path: the file. A named index that pandas stored counts as the first column.
        options: column names, layout and what to do with repeated ids.
        max_bytes: how much memory the table may take; the size of the file on disk is always
            allowed.

    Raises:
        InputError: pyarrow is not installed, or naming the invalid row and column.

    Example:
        >>> import tempfile
        >>> path = Path(tempfile.mkdtemp()) / "small.parquet"
        >>> pd.DataFrame({"subject": ["a", "b"], "q1": [1, None]}).to_parquet(path)
        >>> read_parquet(path, ReadingOptions()).values.tolist()
        [[1], [-1]]
    """
    source = _Columns(path, open_parquet(path))
    table = SourceTable(str(path), source.header, source.cell)
    columns = find_long_columns(table, options)
    if columns is not None:
        used = (*columns, *further_columns(table, columns, options))
        source.check(used, LONG_ROW * source.rows, max_bytes)
        block = pd.concat(list(source.blocks(used)), ignore_index=True)
        cells = read_long(table, block, columns, options)
    else:
        check_names(table.name, table.header, options)
        used = tuple(j for j, name in enumerate(table.header) if name not in options.ignore)
        width = 8 if any(source.is_float(column) for column in used[1:]) else 1
        source.check(used, (len(used) * width + WIDE_ROW) * source.rows, max_bytes)
        table, options = table.without(options.ignore), replace(options, ignore=())
        cells = read_wide(table, source.blocks(used), options)
    return responses_of(cells, options.duplicates, origin=cells.origin, codes=options.codes)


def parquet_header(path: Path) -> tuple[str, ...]:
    """The columns of a Parquet table."""
    return _Columns(path, open_parquet(path)).header


LONG_ROW, WIDE_ROW = 24, 64
"""Bytes of memory of a row of a long table, and of an id in a wide table."""

BLOCK_CELLS = 2**22
"""Cells in memory at once before they are converted to codes of one byte."""

INDEX = "__index_level_"
"""Prefix of the column name that pandas gives to an index without a name."""


def pyarrow_module(path: Path, name: str) -> Any:
    """A module of pyarrow, with which a file is read."""
    advice = "Install it: pip install 'irtcat[parquet]'."
    missing = f"{path}: reading Parquet needs pyarrow. {advice}"
    optional_module("pyarrow", missing)
    return optional_module(f"pyarrow.{name}", missing)


def open_parquet(path: Path) -> Any:
    """Open a Parquet file; text columns are read as dictionaries.

    Otherwise a text that is stored once for a million rows would take a million times its length.

    Raises:
        InputError: pyarrow is not installed, or the file cannot be read.
    """
    parquet = pyarrow_module(path, "parquet")
    with opened(path):  # raises with the reason if it cannot be opened
        pass
    with reading_parquet(path):
        file = parquet.ParquetFile(path)
        texts = [field.name for field in file.schema_arrow if is_text(field.type)]
        return parquet.ParquetFile(path, metadata=file.metadata, read_dictionary=texts)


@contextmanager
def reading_parquet(path: Path) -> Iterator[None]:
    """Convert pyarrow's errors about a damaged file to one sentence."""
    import pyarrow as pa

    try:
        yield
    except InputError:
        raise
    except (pa.ArrowException, OSError, ValueError, LookupError, TypeError, OverflowError):
        raise InputError(f"{path}: the Parquet file is damaged. Write it again.") from None


def is_text(kind: Any) -> bool:
    """Whether a column type is text, dictionary-encoded or not."""
    import pyarrow as pa

    kind = kind.value_type if pa.types.is_dictionary(kind) else kind
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))


def parquet_batches(
    path: Path, file: Any, rows: int, names: list[str] | None = None
) -> Iterator[Any]:
    """Yield columns (all by default) in batches of rows.

    Raises:
        InputError: the file is damaged, or has fewer rows than its metadata declare.
    """
    remaining = file.metadata.num_rows
    with reading_parquet(path):
        for batch in file.iter_batches(rows, columns=names):
            remaining -= batch.num_rows
            yield batch
    if remaining:
        raise InputError(f"{path}: the Parquet file is damaged. Write it again.")


def unpacked_bytes(meta: Any, groups: Iterable[int], names: Container[str], most: int) -> int:
    """The unpacked size of columns of row groups, according to the file's metadata.

    If all columns together have at most ``most`` bytes, this is their total size: pyarrow ends the
    process when a column with damaged metadata is accessed.

    Args:
        meta: the file's metadata.
        groups: numbers of the row groups.
        names: paths of columns; the path of a nested one includes all columns below it.
        most: the limit with which the caller compares the size.
    """
    row_groups = [meta.row_group(group) for group in groups]
    sizes = [group.total_byte_size for group in row_groups]
    if min(sizes, default=0) >= 0 and sum(sizes) <= most:
        return sum(sizes)
    columns = [group.column(j) for group in row_groups for j in range(group.num_columns)]
    return sum(c.total_uncompressed_size for c in columns if _is_named(c.path_in_schema, names))


def _is_named(path: str, names: Container[str]) -> bool:
    """Whether a column, or one that contains it, is among the names."""
    fields = path.split(".")
    return any(".".join(fields[: k + 1]) in names for k in range(len(fields)))


class _Columns:
    """The columns of a Parquet file; an index stored by pandas comes first."""

    def __init__(self, path: Path, file: Any):
        self.path, self.file, self.rows = path, file, int(file.metadata.num_rows)
        schema = file.schema_arrow
        about = schema.pandas_metadata if _has_pandas(schema) else {}
        index = [name for name in (about or {}).get("index_columns", []) if isinstance(name, str)]
        index = [name for name in index if name in schema.names]
        self._names = [*index, *(name for name in schema.names if name not in index)]
        if repeated := pd.Index(self._names)[pd.Index(self._names).duplicated()].tolist():
            raise InputError(f"{path}: the column {repeated[0]!r} occurs twice. Rename one.")
        self._types = [schema.field(name).type for name in self._names]
        self.header = tuple("subject" if n.startswith(INDEX) else n for n in self._names)
        if not self.rows or not self._names:
            raise InputError(f"{path}: expected a table with rows and columns. Got an empty one.")

    def is_float(self, column: int) -> bool:
        """Whether a column is of floating-point numbers."""
        import pyarrow as pa

        return bool(pa.types.is_floating(self._types[column]))

    def check(self, columns: Iterable[int], needed: int, max_bytes: int) -> None:
        """Raise for columns that are not text or numbers, and for tables that are too large."""
        import pyarrow as pa

        types = pa.types
        accepted = [types.is_integer, types.is_floating, types.is_boolean, types.is_decimal]
        accepted += [types.is_null, is_text]
        for column in columns:
            kind = self._types[column]
            kind = kind.value_type if types.is_dictionary(kind) else kind
            if not any(test(kind) for test in accepted):
                where = f"{self.path}, column {column + 1} ({shorten(self.header[column])})"
                raise InputError(f"{where}: expected text, numbers or true/false. Got {kind}.")
        with opened(self.path) as stream:
            most = allowed_bytes(stream, max_bytes)
        meta, names = self.file.metadata, {self._names[column] for column in columns}
        with reading_parquet(self.path):
            packed = unpacked_bytes(meta, range(meta.num_row_groups), names, most)
        if max(needed, packed) > most:
            raise too_large(f"{self.path}: the table", most)

    def blocks(self, columns: Iterable[int]) -> Iterator[pd.DataFrame]:
        """Yield blocks of rows."""
        names = [self._names[column] for column in columns]
        rows = max(1, BLOCK_CELLS // len(names))
        for batch in parquet_batches(self.path, self.file, rows, names):
            with reading_parquet(self.path):  # such as text that is not UTF-8
                yield _frame(batch.select(names))

    def cell(self, row: int, column: int) -> tuple[str, str]:
        """The position and text of a cell for a message; this reads the file again."""
        if row < 0:
            return "column names", self.header[column]
        start = 0
        for block in self.blocks([column]):
            if row < start + len(block):
                value: Any = block.iloc[row - start, 0]
                return f"row {row + 1}", "" if pd.isna(value) else str(value)
            start += len(block)
        raise InputError(f"{self.path}: the Parquet file is damaged. Write it again.")


def _frame(batch: Any) -> pd.DataFrame:
    """Convert a batch to a frame with numbered columns; equal texts share one object."""
    texts = [j for j, column in enumerate(batch.columns) if is_text(column.type)]
    others = [j for j in range(batch.num_columns) if j not in set(texts)]
    frame = batch.select(others).to_pandas(ignore_metadata=True).set_axis(others, axis=1)
    for j in texts:
        frame.insert(j, j, pd.Series(text_objects(batch.column(j)), dtype=object))
    return frame


def text_objects(column: Any) -> np.ndarray:
    """Convert a text column to Python objects; equal texts share one, missing ones are None."""
    import pyarrow as pa

    column = column if pa.types.is_dictionary(column.type) else column.dictionary_encode()
    texts = np.array([*column.dictionary.to_pylist(), None], dtype=object)
    return texts[column.indices.fill_null(len(texts) - 1).to_numpy()]


def _has_pandas(schema: Any) -> bool:
    """Whether the table has readable pandas metadata."""
    try:
        return isinstance(schema.pandas_metadata, dict)
    except (ValueError, RecursionError):
        return False
