"""Responses that do not fit in memory: read or generated in blocks of rows."""

import mmap
import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from irtcat._archives import map_npy
from irtcat._checks import InputError, argument_error, brief, check_count, check_ids
from irtcat._matrix import aligned_empty
from irtcat._reading import check_regular
from irtcat.io.parquet import is_text, open_parquet, parquet_batches, reading_parquet, text_objects

__all__ = ["ResponseSource", "as_source", "chunks", "open_source"]

READ_BYTES = 2**25
"""Approximate number of bytes read from a file at once."""

BYTES_PER_ID = 64
"""Assumed size of an id in memory, for the number of ids read at once."""


class NumberedIds(Sequence[str]):
    """The ids s1, s2, ... of n subjects (or i1, i2, ... of items), generated on access.

    A Python string takes at least 60 bytes, far more than the one byte of a response.

    Example:
        >>> ids = NumberedIds("s", 10**9)
        >>> ids[0], ids[-1], ids[5:7].tolist()
        ('s1', 's1000000000', ['s6', 's7'])
    """

    def __init__(self, letter: str, n: int):
        self._letter, self._numbers = letter, range(1, n + 1)

    def __len__(self) -> int:
        return len(self._numbers)

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            numbers = self._numbers[index]
            return np.array([f"{self._letter}{number}" for number in numbers], dtype=object)
        return f"{self._letter}{self._numbers[index]}"

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        ids: np.ndarray = self[:]
        return ids if dtype is None else ids.astype(dtype)

    def tolist(self) -> list[str]:
        """All ids."""
        return list(self)


@dataclass(frozen=True, eq=False)
class ResponseSource:
    """Responses of which only a block of rows is in memory at a time.

    `irtcat.fit` and `irtcat.score` accept it instead of `Responses` and read it in passes.

    Attributes:
        n_subjects: number of rows.
        n_items: number of columns.
        blocks: called once per pass; yields int8 matrices of any number of rows, in the same order
            each time, which together contain all subjects: codes 0..n_categories - 1, and -1 for
            missing.
        item_ids: unique ids as text; i1, i2, ... by default.
        subject_ids: unique ids as text; s1, s2, ... by default, which take no memory.
        n_categories: number of categories; 2 for right/wrong.

    Example:
        >>> def blocks():
        ...     for seed in range(3):  # the same draws in every pass
        ...         yield np.random.default_rng(seed).integers(0, 2, (50, 8)).astype(np.int8)
        >>> ResponseSource(150, 8, blocks)
        ResponseSource(150 subjects x 8 items)
    """

    n_subjects: int
    n_items: int
    blocks: Callable[[], Iterator[np.ndarray]]
    item_ids: Any = None
    subject_ids: Any = None
    n_categories: int = 2

    def __post_init__(self) -> None:
        """Check the sizes and the ids."""
        check_count("n_subjects", self.n_subjects)
        check_count("n_items", self.n_items)
        check_count("n_categories", self.n_categories, least=2, most=127)  # codes are int8
        if not callable(self.blocks):
            must = "a function that yields blocks of rows"
            raise argument_error("blocks", must, type(self.blocks).__name__)
        for name, n in (("item_ids", self.n_items), ("subject_ids", self.n_subjects)):
            ids = getattr(self, name)
            if ids is None:
                ids = NumberedIds(name[0], n)
            elif not isinstance(ids, NumberedIds):
                ids = check_ids(name, ids, n, name.removesuffix("_ids"))
                if len(set(ids.tolist())) != n:
                    repeated = pd.Index(ids)[pd.Index(ids).duplicated()].unique().tolist()
                    raise argument_error(name, "unique", repeated)
            object.__setattr__(self, name, ids)

    def __repr__(self) -> str:
        return f"ResponseSource({self.n_subjects} subjects x {self.n_items} items)"

    @property
    def items(self) -> pd.DataFrame:
        """Metadata of the items: a frame without columns."""
        return pd.DataFrame(index=pd.Index(np.asarray(self.item_ids), dtype=object, name="item"))


def open_source(
    path: str | os.PathLike[str],
    *,
    item_ids: Any = None,
    subject_ids: Any = None,
    n_categories: int = 2,
) -> ResponseSource:
    """Open a file of responses without reading it into memory.

    Args:
        path: a ``.npy`` matrix of integers or truth values, subjects x items (-1 = missing; 0, 1
            or codes 0..n_categories - 1), or a Parquet table of one row per subject, whose first
            column contains the subject ids if it is text; every other column is an item.
        item_ids: ids of the items; by default the columns of a table, or i1, i2, ....
        subject_ids: ids of the subjects; by default the table's, or s1, s2, ....
        n_categories: number of categories; 2 for right/wrong.

    Returns:
        The source; its rows are read and checked in every pass.

    Raises:
        InputError: the file is not such a matrix or table, or does not have the size that its
            header declares.

    Example:
        >>> import tempfile
        >>> path = Path(tempfile.mkdtemp()) / "big.npy"
        >>> np.save(path, np.zeros((1000, 20), np.int8))
        >>> open_source(path)
        ResponseSource(1000 subjects x 20 items)
    """
    file = check_regular(path)
    options = {"item_ids": item_ids, "subject_ids": subject_ids, "n_categories": n_categories}
    if file.suffix.lower() == ".npy":
        return _array_source(map_npy(file), str(path), options)
    if file.suffix.lower() in (".parquet", ".pq"):
        return _parquet_source(file, options)
    raise argument_error("path", "a .npy or .parquet file", str(path))


def as_source(responses: Any) -> ResponseSource | None:
    """Convert the ``responses`` argument of `irtcat.fit` to a source; None if it is not one.

    A source is a path, a memory-mapped array, or an object with n_subjects, n_items and
    ``blocks()``.
    """
    if isinstance(responses, ResponseSource):
        return responses
    if isinstance(responses, (str, os.PathLike)):
        return open_source(responses)
    if isinstance(responses, np.memmap):
        return _array_source(responses, "array", {})
    if all(hasattr(responses, name) for name in ("n_subjects", "n_items", "blocks")):
        names = ("item_ids", "subject_ids", "n_categories")
        options = {name: getattr(responses, name) for name in names if hasattr(responses, name)}
        return ResponseSource(responses.n_subjects, responses.n_items, responses.blocks, **options)
    return None


def _array_source(matrix: np.ndarray, name: str, options: dict[str, Any]) -> ResponseSource:
    """The rows of a memory-mapped matrix, read from its file in blocks.

    Rows accessed through the map would stay in memory; rows read from the file are freed with their
    block. ``name`` names the matrix in messages.
    """
    if matrix.ndim != 2 or 0 in matrix.shape or matrix.dtype.kind not in "biu":
        got = f"{matrix.dtype} of shape {matrix.shape}"
        must = "a matrix of integers or truth values, subjects x items"
        raise InputError(f"{name}: the array must be {must}. Got {got}.")
    n, width = matrix.shape[0], matrix.shape[1] * matrix.dtype.itemsize
    step = max(1, READ_BYTES // width)
    # A view of a map has the map's offset, which is not its own: only the map itself is read.
    is_whole_map = isinstance(matrix.base, mmap.mmap) and matrix.flags.c_contiguous

    def blocks() -> Iterator[np.ndarray]:
        for start in range(0, n, step):
            count = min(step, n - start)
            if is_whole_map and isinstance(matrix, np.memmap) and matrix.filename is not None:
                offset = matrix.offset + start * width
                flat = np.fromfile(
                    matrix.filename, matrix.dtype, count * matrix.shape[1], offset=offset
                )
                yield _codes(flat.reshape(count, -1))
            else:
                yield _codes(np.asarray(matrix[start : start + count]))

    return ResponseSource(n, matrix.shape[1], blocks, **options)


def _codes(block: np.ndarray) -> np.ndarray:
    """Convert integers to int8; a value out of range becomes -2, which `_check_block` rejects."""
    if block.dtype in (np.int8, np.bool_):
        return block.astype(np.int8, copy=False)
    # 126 is the greatest code, that of 127 categories.
    fits = (block >= -1) & (block <= 126) if block.dtype.kind == "i" else block <= 126
    return np.where(fits, block, -2).astype(np.int8)


def _parquet_source(path: Path, options: dict[str, Any]) -> ResponseSource:
    """The rows of a Parquet table of one row per subject, in batches."""
    file = open_parquet(path)
    import pyarrow as pa

    schema = file.schema_arrow
    names = list(schema.names)
    if not names:
        raise InputError(f"{path}: expected a table with rows and columns. Got an empty one.")
    has_ids = is_text(schema.types[0])
    first = 1 if has_ids else 0
    items = names[first:]
    for name, kind in zip(items, schema.types[first:], strict=True):
        if not (pa.types.is_integer(kind) or pa.types.is_boolean(kind)):
            raise InputError(f"{path}: column {name} must be of integers. Got {kind}.")
    n = file.metadata.num_rows
    if not n or not items:
        raise InputError(f"{path}: expected a table with rows and columns. Got an empty one.")
    if has_ids and options["subject_ids"] is None:
        options["subject_ids"] = _text_column(path, file, names[0])
    if options["item_ids"] is None:
        options["item_ids"] = items
    step = max(1, READ_BYTES // (8 * len(items)))  # each column is cast to 8-byte integers

    def blocks() -> Iterator[np.ndarray]:
        for batch in parquet_batches(path, open_parquet(path), step, items):
            yield _batch_codes(batch)

    return ResponseSource(n, len(items), blocks, **options)


def _batch_codes(batch: Any) -> np.ndarray:
    """Convert a batch of integers and truth values to int8, -1 where missing.

    Columns of one type are converted together: 28,000 columns one by one take four times as long.
    """
    frame = batch.to_pandas(ignore_metadata=True)
    out = np.empty(frame.shape, np.int8)
    kinds = frame.dtypes.to_numpy()
    for kind in frame.dtypes.unique():
        columns = np.flatnonzero(kinds == kind)
        values = frame.iloc[:, columns].to_numpy()
        if kind.kind not in "biu":  # floats, or objects of truth values: some are missing
            numbers = values.astype(float)
            numbers[np.isnan(numbers)] = -1
            values = np.clip(numbers, -2, 127).astype(np.int64)
        out[:, columns] = _codes(values)
    return out


def _text_column(path: Path, file: Any, name: str) -> np.ndarray:
    """Read a text column; missing texts are None."""
    with reading_parquet(path):
        batches = parquet_batches(path, file, READ_BYTES // BYTES_PER_ID, [name])
        return np.concatenate([text_objects(batch.column(0)) for batch in batches])


def chunks(source: ResponseSource, rows: int) -> Iterator[np.ndarray]:
    """One pass in chunks of exactly ``rows`` rows, the last padded with -1.

    A thread prepares the next chunk while the caller uses the current one.

    Raises:
        InputError: the blocks do not match the description of the source.
    """
    pending = _equal_chunks(source, rows)
    with ThreadPoolExecutor(1) as pool:
        ahead = pool.submit(next, pending, None)
        while (chunk := ahead.result()) is not None:
            ahead = pool.submit(next, pending, None)
            yield chunk


def _equal_chunks(source: ResponseSource, rows: int) -> Iterator[np.ndarray]:
    """Split and join the blocks to chunks of equal size.

    Each chunk is a new array, since the caller still computes on the last one.
    """
    n_read = filled = 0
    buffer = aligned_empty((rows, source.n_items), np.int8)
    for block in source.blocks():
        _check_block(source, block, n_read)
        n_read += len(block)
        while len(block):
            rows_to_copy = block[: rows - filled]
            buffer[filled : filled + len(rows_to_copy)] = rows_to_copy
            filled, block = filled + len(rows_to_copy), block[len(rows_to_copy) :]
            if filled == rows:
                yield buffer
                buffer, filled = aligned_empty((rows, source.n_items), np.int8), 0
    if n_read != source.n_subjects:
        raise argument_error("blocks", f"{source.n_subjects} rows in total", n_read)
    if filled:
        buffer[filled:] = -1
        yield buffer


def _check_block(source: ResponseSource, block: Any, start: int) -> None:
    """Raise if a block is not a valid slice of the matrix."""
    shape, dtype = getattr(block, "shape", None), getattr(block, "dtype", None)
    if shape is None or len(shape) != 2 or shape[1] != source.n_items or dtype != np.int8:
        must = f"int8 matrices of {source.n_items} columns"
        raise argument_error("blocks", must, f"{dtype} of shape {shape}")
    if start + len(block) > source.n_subjects:
        raise argument_error("blocks", f"{source.n_subjects} rows in total", start + len(block))
    if len(block) and (block.min() < -1 or block.max() >= source.n_categories):
        bad = (block < -1) | (block >= source.n_categories)
        row, column = np.argwhere(bad)[0]
        raise InputError(
            f"The `blocks` argument must be codes 0 to {source.n_categories - 1}, or -1 for "
            f"missing. Got another in row {start + row + 1} "
            f"({brief(source.subject_ids[start + row])}), "
            f"column {column + 1} ({brief(source.item_ids[column])})."
        )
