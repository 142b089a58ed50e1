"""Rows of data sets in memory: pandas and polars frames, Arrow tables, Hugging Face data sets.

A row of `KINDS` holds what is known about a kind of data set. Rows are selected by the library of
the data set, so that schemas, types and metadata remain.
"""

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from irtcat._common.checks import InputError, argument_error
from irtcat._common.lazy import optional_module
from irtcat._common.positions import IdIndex
from irtcat._common.types import IntArray
from irtcat.responses._frames import as_pandas

BATCH = 1 << 16
"""Rows of a data set that are written at a time."""


class Kind(NamedTuple):
    """What is known about a kind of data set.

    Attributes:
        library: top-level module of its class.
        classes: names of its classes.
        names: names of its columns.
        column: one column as an array.
        take: the rows at positions, which ascend if the last argument says so.
        arrow: Arrow batches.
    """

    library: str
    classes: tuple[str, ...]
    names: Callable[[Any], list[str]]
    column: Callable[[Any, str], np.ndarray]
    take: Callable[[Any, IntArray, bool], Any]
    arrow: Callable[[Any], Iterator[Any]]


def _arrow_take(table: Any, positions: IntArray, ascending: bool) -> Any:
    """Rows of an Arrow table; a mask does not join the chunks of long texts."""
    import pyarrow as pa

    if not ascending:
        return table.take(pa.array(positions))
    mask = np.zeros(len(table), bool)
    mask[positions] = True
    return table.filter(pa.array(mask))


def _dataset_batches(data: Any) -> Iterator[Any]:
    for table in data.with_format("arrow").iter(BATCH):
        # The features of the data set are in the metadata of its schema.
        yield from table.cast(data.features.arrow_schema).to_batches()


def _pandas_batches(data: pd.DataFrame) -> Iterator[Any]:
    pa = pyarrow()
    schema = pa.Schema.from_pandas(data)
    for start in range(0, max(len(data), 1), BATCH):
        part = pa.Table.from_pandas(data.iloc[start : start + BATCH], schema=schema)
        yield from part.replace_schema_metadata(schema.metadata).to_batches()


KINDS = (
    Kind(
        library="pandas",
        classes=("DataFrame",),
        names=lambda data: list(data.columns),
        column=lambda data, name: data[name].to_numpy(),
        take=lambda data, positions, _: data.iloc[positions],
        arrow=_pandas_batches,
    ),
    Kind(
        library="polars",
        classes=("DataFrame",),
        names=lambda data: data.columns,
        column=lambda data, name: data[name].to_numpy(),
        take=lambda data, positions, _: data[positions],
        arrow=lambda data: iter(data.to_arrow().to_batches()),
    ),
    Kind(
        library="pyarrow",
        classes=("Table", "RecordBatch"),
        names=lambda data: data.schema.names,
        column=lambda data, name: np.asarray(data.column(name)),
        take=_arrow_take,
        arrow=lambda data: iter(data.to_batches() if hasattr(data, "to_batches") else [data]),
    ),
    Kind(
        library="datasets",
        classes=("Dataset",),
        names=lambda data: data.column_names,
        # In Arrow: the format "numpy" of a data set rounds to single precision.
        column=lambda data, name: np.asarray(
            data.select_columns(name).with_format("arrow")[:].column(name)
        ),
        take=lambda data, positions, _: data.select(positions),
        arrow=_dataset_batches,
    ),
)
"""The kinds of data sets whose rows are selected."""


def find_kind(data: Any) -> Kind | None:
    """The kind of a data set in memory; None for other objects."""
    for cls in type(data).__mro__:
        library = cls.__module__.split(".")[0].removeprefix("_")
        for kind in KINDS:
            if library == kind.library and cls.__name__ in kind.classes:
                return kind
    return None


def kind_of(data: Any) -> Kind:
    """The kind of a data set.

    Raises:
        InputError: for other objects.
    """
    kind = find_kind(data)
    if kind is None:
        must = "a pandas or polars DataFrame, an Arrow table or a Hugging Face Dataset"
        splits = "Select a split of it." if type(data).__name__ == "DatasetDict" else ""
        raise argument_error("data", must, type(data).__name__, splits)
    return kind


def columns_of(data: Any, wanted: tuple[str, ...]) -> pd.DataFrame | None:
    """Some columns of a data set as a pandas frame, without converting the others.

    Returns:
        The frame, with the rows' numbers as its index (of a pandas frame its own); None for an
        object that is not a data set.
    """
    if isinstance(data, pd.DataFrame):
        return data
    kind = find_kind(data)
    if kind is None:
        return as_pandas(data)
    names = [name for name in kind.names(data) if name in wanted]
    return pd.DataFrame(
        {name: kind.column(data, name) for name in names}, index=pd.RangeIndex(len(data))
    )


def rows_at(data: Any, items: pd.Index, key: str | None) -> tuple[Kind, IntArray]:
    """The item of each row of a data set, as its position; -1 for none.

    Args:
        data: the data set.
        items: ids of the items.
        key: column with the id of each row's item; None if row k is item k.

    Raises:
        InputError: for another object, a column that is missing or has no id of an item, or,
            without a key, another number of rows.
    """
    kind = kind_of(data)
    if key is None:
        if len(data) != len(items):
            raise InputError(
                f"The data set has {len(data)} rows, and there are {len(items)} items. "
                "Rows match by position; name the column with the items' ids (`key`) to match by "
                "id."
            )
        return kind, np.arange(len(items))
    if key not in kind.names(data):
        raise argument_error("key", f"a column ({', '.join(map(str, kind.names(data)))})", key)
    positions = ids_by_text(items).positions(pd.Index(kind.column(data, key)).astype(str))
    if (positions < 0).all():
        first = str(items[0])
        raise InputError(f"No row has the id of an item in {key!r}. The first item is {first!r}.")
    return kind, positions


def ids_by_text(items: pd.Index) -> IdIndex:
    """Positions of items by the text of their ids.

    Raises:
        InputError: if two ids have the same text.
    """
    index = IdIndex(items)
    if index.repeated is not None:
        raise argument_error("key", "None for items whose ids repeat as text", index.repeated)
    return index


def arrow_batches(data: Any) -> Iterator[Any]:
    """The rows of a data set as Arrow batches; at least one, perhaps empty."""
    pyarrow()
    return kind_of(data).arrow(data)


def pyarrow() -> Any:
    """Arrow, or an error that names the extra."""
    missing = "Parquet and Arrow files need pyarrow. Install it with: pip install 'irtcat[parquet]'"
    return optional_module("pyarrow", missing)
