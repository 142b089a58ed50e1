"""Responses that do not fit in memory: read or generated in blocks of rows."""

import mmap
import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from irtcat._common.checks import (
    InputError,
    argument_error,
    brief,
    check_choice,
    check_count,
    check_ids,
)
from irtcat._files.archives import map_npy
from irtcat._files.reading import check_path, check_regular
from irtcat.io.arrow import blocks_of, byte_codes, is_dataset, table_of
from irtcat.responses import Responses
from irtcat.responses._matrix import aligned_empty
from irtcat.responses._table import ReadingOptions

READ_BYTES = 2**25
"""Approximate number of bytes read from a file at once."""

READ_ROWS = 1024
"""Rows of a block when all are read into memory."""


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
        return np.asarray(self[:], dtype)

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

    def read(self) -> Responses:
        """Read all responses into memory."""
        values = np.concatenate(list(chunks(self, min(self.n_subjects, READ_ROWS))))
        return Responses.from_array(
            values[: self.n_subjects],
            self.subject_ids,
            self.item_ids,
            codes=range(self.n_categories),
        )

    @property
    def items(self) -> pd.DataFrame:
        """Metadata of the items: a frame without columns."""
        return pd.DataFrame(index=pd.Index(np.asarray(self.item_ids), dtype=object, name="item"))


def open_source(
    data: Any,
    *,
    subject: str = "subject",
    item: str = "item",
    response: str = "response",
    format: str | None = None,
    item_ids: Any = None,
    subject_ids: Any = None,
    n_categories: int = 2,
) -> ResponseSource:
    """Open responses without reading them into memory.

    | data | what |
    |---|---|
    | path of a ``.npy`` file | a matrix of integers or truth values, subjects x items |
    | path of a ``.parquet`` file | a table |
    | path of a folder | the tables of all Parquet files in it and in its folders |
    | `pyarrow.dataset.Dataset` | a table in files of any format that Arrow reads, also on object \
storage (through fsspec) |
    | DuckDB relation | the table that the query gives; it is run in every pass |

    A wide table has a row per subject: its first column contains the subject ids if it is text, and
    every other column is an item, but for columns that are parts of paths
    (``part=1/file.parquet``). A long table has a row per response, in columns named subject (model,
    user, ...), item (question, ...) and response (score, correct, ...), with the rows of each
    subject together. Rows must come in the same order in every pass: order a query by the subjects.

    Args:
        data: one of the above.
        subject: name of the subject column of a long table, if it is not detected.
        item: name of its item column.
        response: name of its response column.
        format: "wide" or "long" for the layout of a table; detected by default.
        item_ids: ids of the items; by default the columns of a wide table, the items of a long one
            (sorted; its items, which need not all occur, if they are given), or i1, i2, ....
        subject_ids: ids of the subjects; by default the table's, or s1, s2, ....
        n_categories: number of categories; 2 for right/wrong. Codes are 0..n_categories - 1, and
            -1 or a missing value for missing.

    Returns:
        The source; its rows are read and checked in every pass.

    Raises:
        InputError: the data are not such a matrix or table, or cannot be read.

    Example:
        >>> import pathlib, tempfile
        >>> path = pathlib.Path(tempfile.mkdtemp()) / "big.npy"
        >>> np.save(path, np.zeros((1000, 20), np.int8))
        >>> open_source(path)
        ResponseSource(1000 subjects x 20 items)
    """
    if format is not None:
        check_choice("format", format, ("wide", "long"))
    if isinstance(data, (str, os.PathLike)):
        data = check_path(data)
        suffix = data.suffix.lower()
        if not data.is_dir():
            check_regular(data)
            if suffix == ".npy":
                options = {"item_ids": item_ids, "subject_ids": subject_ids}
                options["n_categories"] = n_categories
                return _array_source(map_npy(data), str(data), options)
            if suffix not in (".parquet", ".pq"):
                raise argument_error("data", "a .npy or .parquet file, or a folder", str(data))
    table = table_of(data)
    if table is None:
        must = "the path of a file or folder, a pyarrow Dataset or a DuckDB relation"
        raise argument_error("data", must, type(data).__name__)
    layout = ReadingOptions(subject, item, response, layout=format)
    found = blocks_of(table, layout, READ_BYTES, item_ids)
    return ResponseSource(
        n_subjects=found.n_subjects,
        n_items=len(found.item_ids),
        blocks=found.blocks,
        item_ids=found.item_ids if item_ids is None else item_ids,
        subject_ids=found.subject_ids if subject_ids is None else subject_ids,
        n_categories=n_categories,
    )


def as_source(responses: Any) -> ResponseSource | None:
    """Convert the ``responses`` argument of `irtcat.fit` to a source; None if it is not one.

    A source is a path, a memory-mapped array, a ``pyarrow.dataset.Dataset``, or an object with
    n_subjects, n_items and ``blocks()``.
    """
    if isinstance(responses, ResponseSource):
        return responses
    if is_dataset(responses) or isinstance(responses, (str, os.PathLike)):
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
                yield byte_codes(flat.reshape(count, -1))
            else:
                yield byte_codes(np.asarray(matrix[start : start + count]))

    return ResponseSource(n, matrix.shape[1], blocks, **options)


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
