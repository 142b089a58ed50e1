"""Data frames of other libraries (polars, pyarrow, ...) as pandas frames."""

import sys
from typing import Any

import pandas as pd

NATIVE = ("polars", "pyarrow", "modin", "cudf", "dask", "duckdb", "ibis", "pyspark", "sqlframe")
"""Libraries whose frames narwhals reads. Only objects of one of them cause it to be imported."""


def as_pandas(data: Any) -> pd.DataFrame | None:
    """A data frame of any library as a pandas frame; None if it is not a data frame.

    Lazy frames are collected. Columns are converted one by one, which needs no pyarrow. Frames of
    other libraries have no index: the rows are numbered from 0.

    Example:
        >>> as_pandas([[1, 0]]) is None
        True
        >>> as_pandas(pd.DataFrame({"q1": [1, 0]})).shape
        (2, 1)
    """
    if isinstance(data, pd.DataFrame):
        return data
    if type(data).__module__.split(".")[0].removeprefix("_") not in NATIVE:
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
    library = type(data).__module__.split(".")[0].removeprefix("_")
    assert library in sys.modules
    return f"{library} {type(data).__name__}"
