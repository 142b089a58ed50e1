"""JSON that every program reads: the one conversion to its values, texts and files."""

import hashlib
import json
import math
import os
from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import fields, is_dataclass
from enum import Enum
from typing import Any

import numpy as np
import pandas as pd

from irtcat._files.writing import replacing


def json_value(value: Any, other: Callable[[Any], Any] = str) -> Any:
    """A value as mappings, lists, text, numbers, truth values and None.

    | value | result |
    |---|---|
    | NaN, infinities, None, NaT, NA | None: JSON has no other numbers |
    | numpy scalars and arrays, jax arrays, pandas columns | numbers and lists |
    | tuples, sets (sorted) and other sequences | lists |
    | objects with a method ``to_json`` | what it returns |
    | data frames, dataclass records and named tuples | mappings of their columns or fields |
    | dates and times | text in ISO 8601 |
    | members of an enumeration | their values |

    Args:
        value: any value.
        other: makes the result for all other values; by default their text.

    Example:
        >>> json_value({"se": np.array([0.5, np.inf]), 1: (np.int64(3), pd.Timestamp(2026, 1, 31))})
        {'se': [0.5, None], '1': [3, '2026-01-31T00:00:00']}
    """
    if value is None or type(value) in (bool, int, str):
        return value
    if isinstance(value, Enum):
        return json_value(value.value, other)
    if isinstance(value, float):  # numpy's float64 is one
        return float(value) if math.isfinite(value) else None
    if isinstance(value, str):
        return str(value)
    if isinstance(value, Mapping):
        return {str(name): json_value(entry, other) for name, entry in value.items()}
    if isinstance(value, pd.DataFrame):
        return {str(name): json_value(column, other) for name, column in value.items()}
    if isinstance(value, pd.Series) and value.dtype.kind in "biuf":
        value = value.to_numpy() if isinstance(value.dtype, np.dtype) else value
    if isinstance(value, np.ndarray) and value.dtype.kind in "biuf" and np.isfinite(value).all():
        return value.tolist()  # much faster than number by number
    if hasattr(value, "tolist"):
        return json_value(value.tolist(), other)
    return _object_value(value, other)


def _object_value(value: Any, other: Callable[[Any], Any]) -> Any:
    """`json_value` of what is no number, text, mapping or array."""
    if hasattr(value, "to_json"):
        return json_value(value.to_json(), other)
    if is_dataclass(value) and not isinstance(value, type):
        return {f.name: json_value(getattr(value, f.name), other) for f in fields(value)}
    if isinstance(value, tuple) and hasattr(value, "_asdict"):
        return json_value(value._asdict(), other)
    if isinstance(value, Set):
        return json_value(sorted(value), other)
    if isinstance(value, Sequence) and not isinstance(value, (bytes, bytearray)):
        return [json_value(entry, other) for entry in value]
    if value is pd.NaT or value is pd.NA:
        return None
    return value.isoformat() if hasattr(value, "isoformat") else other(value)


def json_text(value: Any, **style: Any) -> str:
    """A value as JSON text (see `json_value`), with options of `json.dumps`.

    Example:
        >>> json_text({"b": (1, float("nan"))})
        '{"b": [1, null]}'
    """
    return json.dumps(json_value(value), allow_nan=False, **style)


def json_hash(value: Any) -> str:
    """SHA-256 of a value as JSON, independent of the order of its fields.

    Example:
        >>> json_hash({"a": 1, "b": 2}) == json_hash({"b": 2, "a": 1})
        True
    """
    return hashlib.sha256(json_text(value, sort_keys=True).encode()).hexdigest()


def write_json(path: str | os.PathLike[str], value: Any) -> None:
    """Write a value to a JSON file, atomically.

    Raises:
        InputError: it cannot be written.
    """
    with replacing(path) as file:
        file.write((json_text(value, indent=1) + "\n").encode("utf-8"))
