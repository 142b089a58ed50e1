"""Responses that are too many for memory: read, or made, a block of rows at a time."""

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
"""About how much is read from a file at once."""


class NumberedIds(Sequence[str]):
    """The ids s1, s2, ... of n subjects (or i1, i2, ... of items), made when they are asked for.

    A text takes 60 bytes and more: a hundred times what a subject's answer to an item takes.

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
        whole: np.ndarray = self[:]
        return whole if dtype is None else whole.astype(dtype)

    def tolist(self) -> list[str]:
        """All ids."""
        return list(self)


@dataclass(frozen=True, eq=False)
class ResponseSource:
    """Responses of which only a block of rows is in memory at a time.

    `irtcat.fit` and `irtcat.score` take it in place of `Responses` and go over it in passes.

    Attributes:
        n_subjects: number of rows.
        n_items: number of columns.
        blocks: called once a pass; yields int8 matrices of any number of rows, in the same order
            each time, that add up to all subjects: codes 0..n_categories - 1, and -1 for missing.
        item_ids: unique ids as text; i1, i2, ... by default.
        subject_ids: unique ids as text; s1, s2, ... by default, which take no memory.
        n_categories: number of categories; 2 for right/wrong.

    Example:
        >>> def blocks():
        ...     for seed in range(3):  # drawn anew in every pass, always the same
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
        """Check the sizes and make the ids."""
        check_count("n_subjects", self.n_subjects)
        check_count("n_items", self.n_items)
        check_count("n_categories", self.n_categories, least=2, most=127)
        if not callable(self.blocks):
            must = "a function that yields blocks of rows"
            raise argument_error("blocks", must, type(self.blocks).__name__)
        for name, n in (("item_ids", self.n_items), ("subject_ids", self.n_subjects)):
            ids = getattr(self, name)
            if ids is None:
                ids = NumberedIds(name[0], n)
            elif not isinstance(ids, NumberedIds):
                ids = check_ids(name, ids, n, name[:-4])
                if len(set(ids.tolist())) != n:
                    repeated = pd.Index(ids)[pd.Index(ids).duplicated()].unique().tolist()
                    raise argument_error(name, "unique", repeated)
            object.__setattr__(self, name, ids)

    def __repr__(self) -> str:
        return f"ResponseSource({self.n_subjects} subjects x {self.n_items} items)"

    @property
    def items(self) -> pd.DataFrame:
        """Metadata of the items: none."""
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
            column holds the subject ids if it is text, every other column an item.
        item_ids: ids of the items; by default the columns of a table, or i1, i2, ....
        subject_ids: ids of the subjects; by default the table's, or s1, s2, ....
        n_categories: number of categories; 2 for right/wrong.

    Returns:
        The source; rows are read in every pass and checked in the first.

    Raises:
        InputError: when the file is not such a matrix or table, or not of the size that its header
            says.

    Example:
        >>> import tempfile
        >>> path = Path(tempfile.mkdtemp()) / "big.npy"
        >>> np.save(path, np.zeros((1000, 20), np.int8))
        >>> open_source(path)
        ResponseSource(1000 subjects x 20 items)
    """
    file = check_regular(path)
    more = {"item_ids": item_ids, "subject_ids": subject_ids, "n_categories": n_categories}
    if file.suffix.lower() == ".npy":
        return _array_source(map_npy(file), str(path), more)
    if file.suffix.lower() in (".parquet", ".pq"):
        return _parquet_source(file, more)
    raise argument_error("path", "a .npy or .parquet file", str(path))


def as_source(given: Any) -> ResponseSource | None:
    """What `irtcat.fit` was given as a source; None if it is none.

    A path, a memory-mapped array, or any object with n_subjects, n_items and ``blocks()``.
    """
    if isinstance(given, ResponseSource):
        return given
    if isinstance(given, (str, os.PathLike)):
        return open_source(given)
    if isinstance(given, np.memmap):
        return _array_source(given, "array", {})
    if all(hasattr(given, name) for name in ("n_subjects", "n_items", "blocks")):
        names = ("item_ids", "subject_ids", "n_categories")
        more = {name: getattr(given, name) for name in names if hasattr(given, name)}
        return ResponseSource(given.n_subjects, given.n_items, given.blocks, **more)
    return None


def _array_source(matrix: np.ndarray, name: str, more: dict[str, Any]) -> ResponseSource:
    """The rows of a mapped matrix, read rather than mapped, so that they do not stay resident."""
    if matrix.ndim != 2 or 0 in matrix.shape or matrix.dtype.kind not in "biu":
        got = f"{matrix.dtype} of shape {matrix.shape}"
        must = "a matrix of integers or truth values, subjects x items"
        raise InputError(f"{name}: the array must be {must}. Got {got}.")
    n, width = matrix.shape[0], matrix.shape[1] * matrix.dtype.itemsize
    step = max(1, READ_BYTES // width)
    whole = isinstance(getattr(matrix, "base", None), mmap.mmap) and matrix.flags.c_contiguous

    def blocks() -> Iterator[np.ndarray]:
        for start in range(0, n, step):
            count = min(step, n - start)
            if whole and isinstance(matrix, np.memmap) and matrix.filename is not None:
                at = matrix.offset + start * width
                flat = np.fromfile(
                    matrix.filename, matrix.dtype, count * matrix.shape[1], offset=at
                )
                yield _codes(flat.reshape(count, -1))
            else:
                yield _codes(np.asarray(matrix[start : start + count]))

    return ResponseSource(n, matrix.shape[1], blocks, **more)


def _codes(block: np.ndarray) -> np.ndarray:
    """Integers as int8; what does not fit becomes -2, which is refused with its place."""
    if block.dtype in (np.int8, np.bool_):
        return block.view(np.int8) if block.dtype == np.int8 else block.astype(np.int8)
    fits = (block <= 126) & (block >= -1) if block.dtype.kind == "i" else block <= 126
    return np.where(fits, block, -2).astype(np.int8)


def _parquet_source(path: Path, more: dict[str, Any]) -> ResponseSource:
    """The rows of a wide table, some of a row group at a time."""
    file = open_parquet(path)
    import pyarrow as pa

    schema = file.schema_arrow
    names = list(schema.names)
    if not names:
        raise InputError(f"{path}: expected a table with rows and columns. Got an empty one.")
    text = is_text(schema.types[0])
    items = names[1:] if text else names
    for name, kind in zip(names[int(text) :], schema.types[int(text) :], strict=True):
        if not (pa.types.is_integer(kind) or pa.types.is_boolean(kind)):
            raise InputError(f"{path}: column {name} must be of integers. Got {kind}.")
    n = file.metadata.num_rows
    if not n or not items:
        raise InputError(f"{path}: expected a table with rows and columns. Got an empty one.")
    if text and more["subject_ids"] is None:
        more["subject_ids"] = _text_column(path, file, names[0])
    if more["item_ids"] is None:
        more["item_ids"] = items
    step = max(1, READ_BYTES // (8 * len(items)))

    def blocks() -> Iterator[np.ndarray]:
        for batch in parquet_batches(path, open_parquet(path), step, items):
            out = np.empty((batch.num_rows, len(items)), np.int8)
            for j, column in enumerate(batch.columns):
                try:
                    values = column.cast(pa.int64()).fill_null(-1)
                except pa.ArrowInvalid:
                    got = "a number of more than 63 bits"
                    raise InputError(
                        f"{path}: column {items[j]}: expected codes. Got {got}."
                    ) from None
                out[:, j] = _codes(values.to_numpy(zero_copy_only=False))
            yield out

    return ResponseSource(n, len(items), blocks, **more)


def _text_column(path: Path, file: Any, name: str) -> np.ndarray:
    """A column of text; a missing one is None."""
    with reading_parquet(path):
        batches = parquet_batches(path, file, READ_BYTES // 64, [name])
        return np.concatenate([text_objects(batch.column(0)) for batch in batches])


def chunks(source: ResponseSource, rows: int) -> Iterator[np.ndarray]:
    """One pass in chunks of exactly ``rows`` rows, the last filled up with -1.

    The next chunk is made in a thread of its own while the caller works on this one.

    Raises:
        InputError: when the blocks are not what the source said.
    """
    pending = _equal_chunks(source, rows)
    with ThreadPoolExecutor(1) as pool:
        ahead = pool.submit(next, pending, None)
        while (chunk := ahead.result()) is not None:
            ahead = pool.submit(next, pending, None)
            yield chunk


def _equal_chunks(source: ResponseSource, rows: int) -> Iterator[np.ndarray]:
    """The blocks cut and joined to chunks of equal size."""
    seen = filled = 0
    buffer = aligned_empty((rows, source.n_items), np.int8)
    for block in source.blocks():
        _check_block(source, block, seen)
        seen += len(block)
        while len(block):
            part = block[: rows - filled]
            buffer[filled : filled + len(part)] = part
            filled, block = filled + len(part), block[len(part) :]
            if filled == rows:
                yield buffer
                buffer, filled = aligned_empty((rows, source.n_items), np.int8), 0
    if seen != source.n_subjects:
        raise argument_error("blocks", f"{source.n_subjects} rows in all", seen)
    if filled:
        buffer[filled:] = -1
        yield buffer


def _check_block(source: ResponseSource, block: Any, seen: int) -> None:
    """Refuse a block that is not a piece of the matrix."""
    shape, dtype = getattr(block, "shape", None), getattr(block, "dtype", None)
    if shape is None or len(shape) != 2 or shape[1] != source.n_items or dtype != np.int8:
        must = f"int8 matrices of {source.n_items} columns"
        raise argument_error("blocks", must, f"{dtype} of shape {shape}")
    if seen + len(block) > source.n_subjects:
        raise argument_error("blocks", f"{source.n_subjects} rows in all", seen + len(block))
    if len(block) and (block.min() < -1 or block.max() >= source.n_categories):
        bad = (block < -1) | (block >= source.n_categories)
        row, column = np.argwhere(bad)[0]
        raise InputError(
            f"The `blocks` argument must be codes 0 to {source.n_categories - 1}, or -1 for "
            f"missing. Got another in row {seen + row + 1} "
            f"({brief(source.subject_ids[seen + row])}), "
            f"column {column + 1} ({brief(source.item_ids[column])})."
        )
