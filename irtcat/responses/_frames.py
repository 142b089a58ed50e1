"""Tables of other libraries (polars, Hugging Face, xarray, ...) to and from pandas frames."""

import sys
from importlib import import_module
from typing import Any

import pandas as pd

from irtcat._common.checks import InputError

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
    library = _library(data)
    assert library in sys.modules
    return f"{library} {type(data).__name__}"


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
    try:
        return import_module(library)
    except ImportError:
        raise InputError(f"This needs {library}. Install it: pip install {library}.") from None
