"""Results as tables of other libraries: polars and xarray."""

from typing import Any

import pandas as pd

from irtcat._common.checks import argument_error
from irtcat.responses._frames import polars_frame, xarray_of


def to_polars(result: Any) -> Any:
    """Convert a result to a polars DataFrame.

    Args:
        result: a pandas DataFrame, or whatever has ``to_frame()``: responses, a bank, abilities,
            and all results of irtcat that are tables.

    Returns:
        The DataFrame; the index, such as the ids of items, is its first column. NaN is null.

    Raises:
        InputError: polars is not installed, or the result is no table.

    Example:
        >>> from irtcat.responses.datasets import load
        >>> to_polars(load("lsat7").to_frame().head(2)).columns[:3]
        ['subject', 'item1', 'item2']
    """
    own = getattr(result, "to_polars", None)
    return own() if callable(own) else polars_frame(_table(result))


def to_xarray(result: Any) -> Any:
    """Convert a result to xarray.

    Args:
        result: as for `to_polars`.

    Returns:
        Of responses a DataArray of subject and item (see `Responses.to_xarray`); of a table a
        Dataset, whose dimensions are the levels of its index and whose variables are its columns.

    Raises:
        InputError: xarray is not installed, or the result is no table.

    Example:
        >>> from irtcat.responses.datasets import load
        >>> to_xarray(load("lsat7")).dims
        ('subject', 'item')
    """
    is_responses = not isinstance(result, pd.DataFrame) and hasattr(result, "to_xarray")
    return result.to_xarray() if is_responses else xarray_of(_table(result))


def _table(result: Any) -> pd.DataFrame:
    """The table of a result."""
    if isinstance(result, pd.DataFrame):
        return result
    method = getattr(result, "to_frame", None)
    frame = method() if callable(method) else None
    if not isinstance(frame, pd.DataFrame):
        raise argument_error("result", "a table, or have to_frame()", type(result).__name__)
    return frame
