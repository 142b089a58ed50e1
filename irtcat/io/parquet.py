"""Parquet, wide or long, with the optional extra pyarrow."""

from collections.abc import Container, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from irtcat._checks import InputError, shorten
from irtcat._reading import MOST_BYTES, allowed_bytes, opened, too_large
from irtcat.io._table import Options, Table, find_long_columns, read_long, read_wide
from irtcat.responses import Responses

__all__ = [
    "is_text",
    "open_parquet",
    "parquet_batches",
    "read_parquet",
    "reading_parquet",
    "text_objects",
    "unpacked_bytes",
]


def read_parquet(
    path: Path, options: Options | None = None, max_bytes: int = MOST_BYTES
) -> Responses:
    """Read a Parquet table of one row per subject, or one row per response.

    Args:
        path: the file. A named index that pandas stored counts as the first column.
        options: column names, layout and what to do with repeated ids.
        max_bytes: how much memory the table may take; what the file takes on disk is allowed in
            any case.

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
    found = _Columns(path, open_parquet(path))
    table = Table(str(path), found.header, found.cell)
    columns = find_long_columns(table, options)
    if columns is not None:
        found.check(columns, LONG_ROW * found.rows, max_bytes)
        block = pd.concat(list(found.blocks(columns)), ignore_index=True)
        return read_long(table, block, columns, options)
    every = range(len(found.header))
    width = 8 if any(found.is_float(column) for column in every[1:]) else 1
    found.check(every, (len(every) * width + WIDE_ROW) * found.rows, max_bytes)
    return read_wide(table, found.blocks(every), options)


LONG_ROW, WIDE_ROW = 24, 64
"""Bytes of memory that a row of a long table takes, and that an id of a wide one does."""

BLOCK_CELLS = 2**22
"""Cells in memory at once before they are made codes of one byte."""

INDEX = "__index_level_"
"""What the column of an index without a name is called that pandas stored."""


def open_parquet(path: Path) -> Any:
    """A Parquet file, open; texts stay in the dictionaries in which they are stored.

    One text that is stored once for a million rows would else take a million times its length.

    Raises:
        InputError: pyarrow is not installed, or the file cannot be read.
    """
    try:
        from pyarrow import parquet
    except ImportError:
        advice = "Install it: pip install 'irtcat[parquet]'."
        raise InputError(f"{path}: reading Parquet needs pyarrow. {advice}") from None
    with opened(path):  # says why it cannot be opened
        pass
    with reading_parquet(path):
        schema = parquet.ParquetFile(path).schema_arrow
        texts = [each.name for each in schema if is_text(each.type)]
        return parquet.ParquetFile(path, read_dictionary=texts)


@contextmanager
def reading_parquet(path: Path) -> Iterator[None]:
    """What pyarrow raises about a damaged file, as one sentence."""
    import pyarrow as pa

    try:
        yield
    except InputError:
        raise
    except (pa.ArrowException, OSError, ValueError, LookupError, TypeError, OverflowError):
        raise InputError(f"{path}: the Parquet file is damaged. Write it anew.") from None


def is_text(kind: Any) -> bool:
    """Whether a column's type is that of text, in a dictionary or not."""
    import pyarrow as pa

    kind = kind.value_type if pa.types.is_dictionary(kind) else kind
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))


def parquet_batches(
    path: Path, file: Any, rows: int, names: list[str] | None = None
) -> Iterator[Any]:
    """Some columns (all by default), so many rows at a time.

    Raises:
        InputError: for a damaged file, also where it has fewer rows than it says.
    """
    left = file.metadata.num_rows
    with reading_parquet(path):
        for batch in file.iter_batches(rows, columns=names):
            left -= batch.num_rows
            yield batch
    if left:
        raise InputError(f"{path}: the Parquet file is damaged. Write it anew.")


def unpacked_bytes(meta: Any, groups: Iterable[int], names: Container[str], most: int) -> int:
    """The size of some columns of row groups, unpacked, by the file's own account.

    Where all columns together have at most ``most`` bytes, their size: pyarrow ends the process
    when it is asked about a column whose description is damaged.

    Args:
        meta: the file's metadata.
        groups: numbers of the row groups.
        names: paths of columns; that of a nested one stands for all of its parts.
        most: the limit that the caller compares the size with.
    """
    found = [meta.row_group(group) for group in groups]
    sizes = [group.total_byte_size for group in found]
    if min(sizes, default=0) >= 0 and sum(sizes) <= most:
        return sum(sizes)
    columns = [group.column(j) for group in found for j in range(group.num_columns)]
    return sum(c.total_uncompressed_size for c in columns if _is_named(c.path_in_schema, names))


def _is_named(path: str, names: Container[str]) -> bool:
    """Whether a column, or one that it is a part of, is among those named."""
    parts = path.split(".")
    return any(".".join(parts[: k + 1]) in names for k in range(len(parts)))


class _Columns:
    """The columns of a Parquet file; an index that pandas stored comes first."""

    def __init__(self, path: Path, file: Any):
        self.path, self.file, self.rows = path, file, int(file.metadata.num_rows)
        schema = file.schema_arrow
        about = schema.pandas_metadata if _has_pandas(schema) else {}
        index = [name for name in (about or {}).get("index_columns", []) if isinstance(name, str)]
        index = [name for name in index if name in schema.names]
        self._names = [*index, *(name for name in schema.names if name not in index)]
        self._types = [schema.field(name).type for name in self._names if self._once(name)]
        self.header = tuple("subject" if n.startswith(INDEX) else n for n in self._names)
        if not self.rows or not self._names:
            raise InputError(f"{path}: expected a table with rows and columns. Got an empty one.")

    def _once(self, name: str) -> bool:
        """Refuse a name that is there twice: the columns could not be told apart."""
        if self._names.count(name) > 1:
            raise InputError(f"{self.path}: the column {name!r} is there twice. Rename one.")
        return True

    def is_float(self, column: int) -> bool:
        """Whether a column is of fractions."""
        import pyarrow as pa

        return bool(pa.types.is_floating(self._types[column]))

    def check(self, columns: Iterable[int], needed: int, max_bytes: int) -> None:
        """Refuse columns of other things than ids and numbers, and tables that are too large."""
        import pyarrow as pa

        types = pa.types
        plain = (types.is_integer, types.is_floating, types.is_boolean, types.is_decimal,
                 types.is_null, is_text)  # fmt: skip
        for column in columns:
            kind = self._types[column]
            kind = kind.value_type if types.is_dictionary(kind) else kind
            if not any(test(kind) for test in plain):
                where = f"{self.path}, column {column + 1} ({shorten(self.header[column])})"
                raise InputError(f"{where}: expected text, numbers or true/false. Got {kind}.")
        with opened(self.path) as stream:
            most = allowed_bytes(stream, max_bytes)
        meta, wanted = self.file.metadata, {self._names[column] for column in columns}
        with reading_parquet(self.path):
            packed = unpacked_bytes(meta, range(meta.num_row_groups), wanted, most)
        if max(needed, packed) > most:
            raise too_large(f"{self.path}: the table", most)

    def blocks(self, columns: Iterable[int]) -> Iterator[pd.DataFrame]:
        """Blocks of rows."""
        names = [self._names[column] for column in columns]
        rows = max(1, BLOCK_CELLS // len(names))
        for batch in parquet_batches(self.path, self.file, rows, names):
            with reading_parquet(self.path):  # such as text that is not UTF-8
                yield _frame(batch.select(names))

    def cell(self, row: int, column: int) -> tuple[str, str]:
        """The place and the text of a cell; the file is read again, for a message only."""
        if row < 0:
            return "column names", self.header[column]
        start = 0
        for block in self.blocks([column]):
            if row < start + len(block):
                value: Any = block.iloc[row - start, 0]
                return f"row {row + 1}", "" if pd.isna(value) else str(value)
            start += len(block)
        raise InputError(f"{self.path}: the Parquet file is damaged. Write it anew.")


def _frame(batch: Any) -> pd.DataFrame:
    """A batch as a frame, its columns numbered; equal texts are one object."""
    texts = [j for j, column in enumerate(batch.columns) if is_text(column.type)]
    others = [j for j in range(batch.num_columns) if j not in set(texts)]
    frame = batch.select(others).to_pandas(ignore_metadata=True).set_axis(others, axis=1)
    for j in texts:
        frame.insert(j, j, pd.Series(text_objects(batch.column(j)), dtype=object))
    return frame


def text_objects(column: Any) -> np.ndarray:
    """A column of text as Python's objects, each text once; a missing one is None."""
    import pyarrow as pa

    column = column if pa.types.is_dictionary(column.type) else column.dictionary_encode()
    texts = np.array([*column.dictionary.to_pylist(), None], dtype=object)
    return texts[column.indices.fill_null(len(texts) - 1).to_numpy()]


def _has_pandas(schema: Any) -> bool:
    """Whether what pandas noted about the table can be read."""
    try:
        return isinstance(schema.pandas_metadata, dict)
    except (ValueError, RecursionError):
        return False
