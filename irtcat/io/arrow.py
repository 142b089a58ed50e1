"""Blocks of responses from Arrow tables that are read in batches: Parquet, datasets, DuckDB."""

import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from irtcat._common.checks import InputError, argument_error, brief, one_line
from irtcat.io.parquet import (
    is_text,
    open_parquet,
    parquet_batches,
    pyarrow_module,
    reading_parquet,
    text_objects,
)
from irtcat.responses._table import ReadingOptions, SourceTable, find_long_columns

BYTES_PER_ID = 64
"""Assumed size of an id in memory, for the number of ids read at once."""


class ArrowTable(NamedTuple):
    """A table of which only a batch of rows is in memory at a time.

    Attributes:
        name: what messages call it.
        schema: names and types of its columns.
        partitions: names of columns that are parts of the paths of files (``part=1/x.parquet``).
        n_rows: number of rows.
        batches: called with the number of rows of a batch and names of columns for each pass;
            yields record batches in the same order each time.
    """

    name: str
    schema: Any
    partitions: set[str]
    n_rows: int
    batches: Callable[[int, list[str]], Iterator[Any]]


class ArrowBlocks(NamedTuple):
    """Responses of a table.

    Attributes:
        n_subjects: number of subjects.
        subject_ids: their ids; None if the table has none.
        item_ids: ids of the items.
        blocks: yields int8 matrices, subjects x items.
    """

    n_subjects: int
    subject_ids: np.ndarray | None
    item_ids: list[str]
    blocks: Callable[[], Iterator[np.ndarray]]


def table_of(data: Any) -> ArrowTable | None:
    """The table of a ``.parquet`` file, a folder of Parquet files, a dataset or a relation.

    Args:
        data: a `Path`, a ``pyarrow.dataset.Dataset`` or a DuckDB relation; None is returned for
            anything else.
    """
    if isinstance(data, Path):
        return _dataset_table(_folder_dataset(data)) if data.is_dir() else _parquet_table(data)
    library = type(data).__module__.split(".")[0].removeprefix("_")
    if library == "duckdb" and hasattr(data, "project"):
        return _relation_table(data)
    return _dataset_table(data) if is_dataset(data) else None


def is_dataset(data: Any) -> bool:
    """Whether it is a ``pyarrow.dataset.Dataset``; pyarrow is not imported for it."""
    dataset = sys.modules.get("pyarrow.dataset")
    return dataset is not None and isinstance(data, dataset.Dataset)


def _parquet_table(path: Path) -> ArrowTable:
    file = open_parquet(path)

    def batches(rows: int, names: list[str]) -> Iterator[Any]:
        return parquet_batches(path, open_parquet(path), rows, names)

    return ArrowTable(str(path), file.schema_arrow, set(), file.metadata.num_rows, batches)


def _folder_dataset(path: Path) -> Any:
    """The Parquet files of a folder and its folders, whose names may say more (``part=1``)."""
    dataset = pyarrow_module(path, "dataset")
    with _reading(str(path)):
        files = dataset.dataset(path, format="parquet", partitioning="hive")
    if not files.files:
        raise InputError(f"{path}: there are no Parquet files in this folder.")
    return files


def _dataset_table(dataset: Any) -> ArrowTable:
    name = "the dataset"

    def batches(rows: int, names: list[str]) -> Iterator[Any]:
        # File by file, with little read ahead: a scan of all of them holds up to a gigabyte where
        # the batches are used more slowly than they are read.
        options = {"columns": names, "batch_readahead": 1, "fragment_readahead": 1}
        with _reading(name):
            for part in _fragments(dataset):
                # A file's own schema has no columns of partitions.
                schema = {} if part is dataset else {"schema": dataset.schema}
                yield from part.to_batches(batch_size=rows, **schema, **options)

    with _reading(name):
        n_rows, partitions = dataset.count_rows(), _partitions(dataset)
    return ArrowTable(name, dataset.schema, partitions, n_rows, batches)


def _partitions(dataset: Any) -> set[str]:
    """Names of the columns that are parts of the paths of files."""
    from pyarrow.dataset import get_partition_keys

    partitioning = getattr(dataset, "partitioning", None)
    if partitioning is not None:
        names = set(partitioning.schema.names)
        return names if names < set(dataset.schema.names) else set()  # all of them if there is none
    found: set[str] = set()
    for fragment in _fragments(dataset):
        if fragment is not dataset:
            found.update(get_partition_keys(fragment.partition_expression))
    return found


def _fragments(dataset: Any) -> Any:
    """The files of a dataset; a filtered one has none, and is returned whole."""
    try:
        return dataset.get_fragments()
    except ValueError:
        return [dataset]


def _relation_table(relation: Any) -> ArrowTable:
    name = "the DuckDB relation"

    def reader(relation: Any, rows: int) -> Any:
        # The second name is that before DuckDB 2.
        read = getattr(relation, "to_arrow_reader", None) or relation.fetch_arrow_reader
        return read(rows)

    def batches(rows: int, names: list[str]) -> Iterator[Any]:
        quoted = ('"' + name.replace('"', '""') + '"' for name in names)
        with _reading(name), closing(reader(relation.project(", ".join(quoted)), rows)) as opened:
            yield from opened

    with _reading(name):
        with closing(reader(relation.limit(0), 1)) as opened:
            schema = opened.schema
        n_rows = relation.aggregate("count(*)").fetchall()[0][0]
    return ArrowTable(name, schema, set(), n_rows, batches)


@contextmanager
def _reading(name: str) -> Iterator[None]:
    """Convert the errors of file systems, files and queries to one sentence."""
    try:
        yield
    except InputError:
        raise
    except Exception as error:
        reason = f"{type(error).__name__}: {one_line(error)}"
        raise InputError(f"{name} cannot be read ({reason}).") from error


def blocks_of(
    table: ArrowTable, options: ReadingOptions, read_bytes: int, item_ids: Any = None
) -> ArrowBlocks:
    """The responses of a table of one row per subject, or of one row per response.

    Args:
        table: the table.
        options: column names and layout, as for other tables.
        read_bytes: approximate size of what is read at once.
        item_ids: of a table of one row per response: its items, which need not all occur.

    Raises:
        InputError: for columns of other types, or rows of a subject that are not together.
    """
    if not table.n_rows or not table.schema.names:
        raise InputError(f"{table.name}: expected a table with rows and columns. Got an empty one.")
    header = SourceTable(table.name, tuple(table.schema.names), lambda row, column: ("", ""))
    columns = find_long_columns(header, options)
    read = table.batches
    table = table._replace(  # filters and empty files give batches without rows
        batches=lambda rows, names: (batch for batch in read(rows, names) if batch.num_rows)
    )
    if columns is None:
        return _wide(table, read_bytes)
    names = [table.schema.names[column] for column in columns[:3]]
    return _long(table, names, read_bytes, item_ids)


def _wide(table: ArrowTable, read_bytes: int) -> ArrowBlocks:
    names = [name for name in table.schema.names if name not in table.partitions]
    has_ids = bool(names) and is_text(table.schema.field(names[0]).type)
    items = names[1:] if has_ids else names
    if not items:
        raise InputError(f"{table.name}: expected a table with rows and columns. Got an empty one.")
    for item in items:
        _check_codes(table, item)
    ids = _text_column(table, names[0], read_bytes) if has_ids else None
    step = max(1, read_bytes // (8 * len(items)))  # each column is cast to 8-byte integers

    def blocks() -> Iterator[np.ndarray]:
        start = 0
        for batch in table.batches(step, names):
            columns = batch.columns
            if ids is not None:
                known = ids[start : start + batch.num_rows]
                _check_order(table, text_objects(columns.pop(0)), known)
                start += batch.num_rows
            codes = np.empty((len(items), batch.num_rows), np.int64)
            for j, column in enumerate(columns):
                codes[j] = _integers(table, items[j], column)
            yield np.ascontiguousarray(byte_codes(codes).T)

    return ArrowBlocks(table.n_rows, ids, items, blocks)


def _long(table: ArrowTable, columns: list[str], read_bytes: int, known_items: Any) -> ArrowBlocks:
    """A table of one row per response, with the rows of each subject together."""
    import pyarrow as pa
    import pyarrow.compute as pc

    _check_codes(table, columns[2])
    batch_rows = read_bytes // (3 * BYTES_PER_ID)
    starts: list[str] = []
    found: set[str] = set()
    n_rows = 0
    for batch in table.batches(batch_rows, columns[:2]):
        n_rows += batch.num_rows
        subjects, items = (_texts(table, batch, k, columns) for k in (0, 1))
        starts += subjects.filter(pa.array(_is_new(subjects, starts[-1:]))).to_pylist()
        found.update(pc.unique(items).to_pylist())
    counts = Counter(starts)
    if len(counts) < len(starts):
        repeated = counts.most_common(1)[0][0]
        raise InputError(
            f"{table.name}: the rows of a subject must be together. Got rows of {brief(repeated)} "
            f"after those of another subject. Order the table by {columns[0]}."
        )
    ids, item_ids = np.array(starts, dtype=object), sorted(found)
    if known_items is not None:
        item_ids = [str(item) for item in known_items]
        unknown = sorted(found.difference(item_ids))
        if unknown:
            got = f"none of {brief(unknown[0])}"
            raise argument_error("item_ids", "all items of the table", got)
    positions = pa.array(item_ids, pa.large_string())
    step = max(1, read_bytes // len(item_ids))
    n_items = len(item_ids)

    def blocks() -> Iterator[np.ndarray]:
        out, first, row, last = np.full((step, n_items), -1, np.int8), 0, -1, list[str]()
        n_read = 0
        for batch in table.batches(batch_rows, columns):
            n_read += batch.num_rows
            subjects, items = (_texts(table, batch, k, columns) for k in (0, 1))
            is_new = _is_new(subjects, last)
            rows = row + np.cumsum(is_new)
            if rows[-1] >= len(ids):
                raise _changed(table)
            _check_order(table, subjects.filter(pa.array(is_new)).to_pylist(), ids[rows[is_new]])
            row, last = int(rows[-1]), [subjects[-1].as_py()]
            codes = byte_codes(_integers(table, columns[2], batch.column(2)))
            places = pc.index_in(items, value_set=positions).fill_null(-1).to_numpy()
            if (places < 0).any():
                raise _changed(table)
            begin = 0
            while begin < len(rows):  # up to the end of the block, and of the next ones
                end = int(np.searchsorted(rows, first + step))
                at = slice(begin, end)
                _fill(table, out, rows[at] - first, places[at], codes[at], (ids, item_ids, first))
                if end < len(rows):
                    yield out
                    out, first = np.full((step, n_items), -1, np.int8), first + step
                begin = end
        if n_read != n_rows:
            raise _changed(table)
        yield out[: len(ids) - first]

    return ArrowBlocks(len(ids), ids, item_ids, blocks)


def _fill(
    table: ArrowTable,
    out: np.ndarray,
    rows: np.ndarray,
    columns: np.ndarray,
    codes: np.ndarray,
    names: tuple[np.ndarray, list[str], int],
) -> None:
    """Write responses to a block; raises if a pair occurs with different ones."""
    is_answered = codes != -1
    rows, columns, codes = rows[is_answered], columns[is_answered], codes[is_answered]
    before = out[rows, columns]
    out[rows, columns] = codes
    repeated = ((before != -1) & (before != codes)) | (out[rows, columns] != codes)
    if repeated.any():
        ids, item_ids, first = names
        at = int(np.argmax(repeated))
        pair = f"{brief(ids[first + rows[at]])} and {brief(item_ids[columns[at]])}"
        raise InputError(
            f"{table.name}: {pair} occur twice with different responses. "
            "Repeated trials are read with irtcat.read_responses."
        )


def _is_new(subjects: Any, last: list[str]) -> np.ndarray:
    """Whether each row has another subject than the row before; ``last`` is that of the first."""
    import pyarrow.compute as pc

    first = [not last or subjects[0].as_py() != last[0]]
    rest = pc.not_equal(subjects[1:], subjects[:-1]).to_numpy(zero_copy_only=False)
    return np.concatenate([np.array(first), rest.astype(bool)])


def _texts(table: ArrowTable, batch: Any, column: int, names: list[str]) -> Any:
    """A column of ids as text."""
    import pyarrow as pa

    values = batch.column(column)
    if values.null_count:
        raise InputError(f"{table.name}: column {names[column]}: expected ids. Got a missing one.")
    try:
        return values.cast(pa.large_string())
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        got = f"Got {values.type}."
        raise InputError(f"{table.name}: column {names[column]} must be of ids. {got}") from None


def _text_column(table: ArrowTable, name: str, read_bytes: int) -> np.ndarray:
    """Read a text column; missing texts are None."""
    batches = table.batches(read_bytes // BYTES_PER_ID, [name])
    with reading_parquet(Path(table.name)):
        return np.concatenate([text_objects(batch.column(0)) for batch in batches])


def _check_order(table: ArrowTable, found: Any, known: np.ndarray) -> None:
    """Raise if the rows of a pass are of other subjects than those of the first."""
    if not np.array_equal(np.asarray(found, dtype=object), known):
        raise _changed(table)


def _changed(table: ArrowTable) -> InputError:
    return InputError(
        f"{table.name}: the rows must be the same in every pass, in the same order. Got others. "
        "Order a query by the subjects, and do not change the files in the meantime."
    )


def _check_codes(table: ArrowTable, name: str) -> None:
    """Raise for a column of other types than integers and truth values."""
    import pyarrow as pa

    kind = table.schema.field(name).type
    if not (pa.types.is_integer(kind) or pa.types.is_boolean(kind)):
        raise InputError(f"{table.name}: column {name} must be of integers. Got {kind}.")


def _integers(table: ArrowTable, name: str, column: Any) -> np.ndarray:
    """A column of codes as integers, -1 for missing."""
    import pyarrow as pa

    if column.null_count or pa.types.is_uint64(column.type):
        try:
            column = column.cast(pa.int64()).fill_null(-1)
        except pa.ArrowInvalid:
            got = "a number of more than 63 bits"
            raise InputError(f"{table.name}: column {name}: expected codes. Got {got}.") from None
    values: np.ndarray = column.to_numpy(zero_copy_only=False)
    return values


def byte_codes(block: np.ndarray) -> np.ndarray:
    """Convert integers to int8; a value out of range becomes -2, which no check accepts."""
    if block.dtype in (np.int8, np.bool_):
        return block.astype(np.int8, copy=False)
    # 126 is the greatest code, that of 127 categories.
    fits = (block >= -1) & (block <= 126) if block.dtype.kind == "i" else block <= 126
    return np.where(fits, block, -2).astype(np.int8)
