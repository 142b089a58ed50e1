"""Metadata tables of subjects and items: align with the ids, convert to JSON and back."""

from typing import Any

import numpy as np
import pandas as pd

from irtcat._common.checks import InputError, argument_error, shorten

HARNESS_COLUMNS = {
    "task": ("task", "task_name", "evaluation_name"),
    "sample": ("sample_id", "sample", "doc_id", "doc_index"),
    "hash": ("doc_hash", "hash"),
}
"""Columns of metadata by which harnesses know an item; the first one that exists is used."""


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
        cells = [None if _is_missing(cell) else cell for cell in column.tolist()]
        if column.dtype.kind == "M":
            cells = [None if cell is None else cell.isoformat() for cell in cells]
        if any(not isinstance(cell, (str, int, float, bool, type(None))) for cell in cells):
            got = f"the metadata column {shorten(name)} of type {column.dtype}"
            raise InputError(f"Only text, numbers, truth values and dates can be saved. Got {got}.")
        columns[str(name)] = {"type": str(column.dtype), "cells": cells}
    return columns


def _is_missing(cell: Any) -> bool:
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
