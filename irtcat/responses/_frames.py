"""Tables: those of other libraries (polars, xarray, ...) to and from pandas, and metadata.

Metadata tables of subjects and items are aligned with the ids, and converted to JSON and back.
"""

from typing import Any

import numpy as np
import pandas as pd

from irtcat._common.checks import InputError, argument_error, shorten
from irtcat._common.lazy import optional_module

NATIVE = ("polars", "pyarrow", "modin", "cudf", "dask", "duckdb", "ibis", "pyspark", "sqlframe")
"""Libraries whose frames narwhals reads. Only objects of one of them cause it to be imported."""


def as_pandas(data: Any) -> pd.DataFrame | None:
    """A data frame of any library as a pandas frame; None if it is not a data frame.

    A Hugging Face ``Dataset`` is one too. Lazy frames are collected. Columns are converted one by
    one, which needs no pyarrow. Frames of other libraries have no index: the rows are numbered from
    0.

    Example:
        >>> as_pandas([[1, 0]]) is None
        True
        >>> as_pandas(pd.DataFrame({"q1": [1, 0]})).shape
        (2, 1)
    """
    if isinstance(data, pd.DataFrame):
        return data
    library = _library(data)
    if library == "datasets" and type(data).__name__ == "Dataset":
        return data.to_pandas()
    if library not in NATIVE:
        return None
    import narwhals as nw

    frame = nw.from_native(data, pass_through=True)
    if isinstance(frame, nw.LazyFrame):
        frame = frame.collect()
    if not isinstance(frame, nw.DataFrame):
        return None
    return pd.DataFrame({name: frame[name].to_numpy() for name in frame.columns}, copy=False)


def frame_kind(data: Any) -> str:
    """What a data frame is called in messages, such as "polars DataFrame".

    Example:
        >>> frame_kind(pd.DataFrame())
        'pandas DataFrame'
    """
    return f"{_library(data)} {type(data).__name__}"


def dataset_advice(data: Any) -> str:
    """How to get a Hugging Face ``Dataset`` from its other classes; "" for other data."""
    kind = type(data).__name__
    if _library(data) != "datasets" or "Dataset" not in kind:
        return ""
    if kind.endswith("Dict"):
        return f"Select a split of it: data[{next(iter(data), 'train')!r}]."
    return "Read its rows first: datasets.Dataset.from_list(list(data))."


def _library(data: Any) -> str:
    return type(data).__module__.split(".")[0].removeprefix("_")


def polars_frame(frame: pd.DataFrame) -> Any:
    """A pandas frame as a polars DataFrame; a named index becomes its first columns.

    NaN and None are null. Columns are converted one by one, which needs no pyarrow.

    Raises:
        InputError: polars is not installed, or two columns have the same name.
    """
    pl = imported("polars")
    if any(name is not None for name in frame.index.names):
        names = [name for name in frame.index.names if name in frame.columns]
        if names:
            raise InputError(f"The index and a column are both named {names[0]}. Rename one.")
        frame = frame.reset_index()
    columns = [str(name) for name in frame.columns]
    if len(set(columns)) < len(columns):
        repeated = next(name for name in columns if columns.count(name) > 1)
        raise InputError(f"Two columns are named {repeated}. Rename one.")

    def values(column: pd.Series) -> Any:
        if column.dtype.kind in "biuf":
            return column.to_numpy()
        return column.astype(object).where(column.notna(), None).tolist()

    series = [
        pl.Series(name, values(frame.iloc[:, at]), strict=False, nan_to_null=True)
        for at, name in enumerate(columns)
    ]
    return pl.DataFrame(series)


def xarray_of(frame: pd.DataFrame) -> Any:
    """A pandas frame as an xarray Dataset: the levels of its index are dimensions.

    Raises:
        InputError: xarray is not installed, or a row of the index occurs twice.
    """
    imported("xarray")
    if not frame.index.is_unique:
        repeated = frame.index[frame.index.duplicated()][0]
        raise InputError(f"The row {repeated} of the table occurs twice: it has no dimensions.")
    return frame.rename(columns=str).to_xarray()


def imported(library: str) -> Any:
    """A package that irtcat does not require."""
    return optional_module(library, f"This needs {library}. Install it: pip install {library}.")


def cells_table(ids: dict[str, Any], values: dict[str, np.ndarray]) -> pd.DataFrame:
    """Matrices as columns of a table with a row for each cell.

    Args:
        ids: name and ids of the rows, and of the columns.
        values: matrices by name.
    """
    (first, rows), (second, columns) = ids.items()
    known = {first: np.repeat(rows, len(columns)), second: np.tile(columns, len(rows))}
    return pd.DataFrame(known | {name: matrix.ravel() for name, matrix in values.items()})


def align_metadata(name: str, frame: pd.DataFrame | None, ids: np.ndarray) -> pd.DataFrame:
    """Reorder metadata to match the ids; rows of other ids are dropped.

    Raises:
        InputError: the index lacks an id or repeats one, or two columns share a name.

    Example:
        >>> frame = pd.DataFrame({"size": [7, 3]}, index=["b", "a"])
        >>> align_metadata("subjects", frame, np.array(["a", "b"]))["size"].tolist()
        [3, 7]
    """
    if frame is None:
        return pd.DataFrame(index=pd.Index(ids, dtype=object), columns=pd.Index([], dtype=object))
    if not isinstance(frame, pd.DataFrame):
        raise argument_error(name, "a pandas DataFrame with the ids as its index", frame)
    index = pd.Index([str(value) for value in frame.index], dtype=object)
    columns = pd.Index([str(column) for column in frame.columns], dtype=object)
    for labels, axis in ((index, "index"), (columns, "columns")):
        if not labels.is_unique:
            got = f"repeats of {shorten(labels[labels.duplicated()].unique().tolist())}"
            raise InputError(f"The `{name}` argument must have unique {axis}. Got {got}.")
    rows = index.get_indexer(pd.Index(ids, dtype=object))
    if (rows < 0).any():
        got = f"no row for {shorten(ids[rows < 0])}"
        must = "a table with the ids as its index (see DataFrame.set_index)"
        raise InputError(f"The `{name}` argument must be {must}. Got {got}.")
    return frame.set_axis(columns, axis="columns").iloc[rows]


def frame_to_plain(frame: pd.DataFrame) -> dict[str, Any]:
    """Convert columns to JSON types, each with its dtype; `frame_from_plain` reverses it.

    Raises:
        InputError: a column has cells other than text, numbers, truth values and dates.
    """
    columns: dict[str, Any] = {}
    for name, column in frame.items():
        cells = [None if is_absent(cell) else cell for cell in column.tolist()]
        if column.dtype.kind == "M":
            cells = [None if cell is None else cell.isoformat() for cell in cells]
        if any(not isinstance(cell, (str, int, float, bool, type(None))) for cell in cells):
            got = f"the metadata column {shorten(name)} of type {column.dtype}"
            raise InputError(f"Only text, numbers, truth values and dates can be saved. Got {got}.")
        columns[str(name)] = {"type": str(column.dtype), "cells": cells}
    return columns


def is_absent(cell: Any) -> bool:
    """Whether a cell is None, NaN, NA or NaT."""
    return bool(pd.api.types.is_scalar(cell) and pd.isna(cell))


def frame_from_plain(columns: dict[str, Any], ids: np.ndarray, name: str) -> pd.DataFrame:
    """Rebuild the table that `frame_to_plain` wrote, with the ids as its index.

    Example:
        >>> ids = np.array(["a", "b"])
        >>> plain = frame_to_plain(pd.DataFrame({"size": [7, 3]}, index=ids))
        >>> frame_from_plain(plain, ids, "subject")["size"].to_dict()
        {'a': 7, 'b': 3}

    Raises:
        ValueError: or KeyError, TypeError, ... if the columns are not of this form.
    """
    index = pd.Index(ids, dtype=object, name=name)
    series = {column: _column(content, index) for column, content in columns.items()}
    table = pd.DataFrame(series, index=index)
    table.columns = table.columns.astype(object)
    return table


def _column(content: dict[str, Any], index: pd.Index) -> pd.Series:
    """Rebuild a column; ValueError for anything that `frame_to_plain` does not write."""
    cells, kind = content["cells"], content["type"]
    plain = (str, int, float, bool, type(None))
    if not isinstance(cells, list) or not all(isinstance(cell, plain) for cell in cells):
        raise ValueError("cells")
    if kind in ("object", "str", "string"):
        kind = None  # the name of the text dtype depends on the pandas version: let pandas infer it
    else:
        dtype = pd.api.types.pandas_dtype(kind)
        if isinstance(dtype, np.dtype) and dtype.kind in "SUVOc":  # S1000000000 would fill memory
            raise ValueError("type")
    return pd.Series(cells, index=index, dtype=kind)
