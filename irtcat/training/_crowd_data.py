"""Reading what a crowd is built of: learners, inputs, labels and ids."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd

from irtcat._checks import InputError, argument_error, check_ids, check_unique
from irtcat._types import IntArray
from irtcat.training._learners import is_estimator, name_of

__all__ = ["read_data", "read_item_ids", "read_labels", "read_learners"]


def read_learners(given: Any) -> tuple[list[Any], list[str]]:
    """The learners and their names."""
    several = isinstance(given, (list, tuple))
    learners = list(given.values() if isinstance(given, dict) else given if several else [given])
    for each in learners:
        if isinstance(each, type) and is_estimator(each):
            must = f"an estimator, such as {each.__name__}()"
            raise argument_error("fit_predict", must, f"the class {each.__name__}")
    usable = [callable(each) or is_estimator(each) for each in learners]
    if not learners or not all(usable):
        must = "a function, an object with fit and predict, or a list or mapping of such"
        raise argument_error("fit_predict", must, given)
    names = given if isinstance(given, dict) else map(name_of, learners)
    return learners, [str(name) for name in names]


def read_data(data: Any) -> tuple[Any, IntArray, np.ndarray]:
    """Inputs, numbers of labels, and the labels."""
    if not isinstance(data, (tuple, list)) or len(data) != 2:
        raise argument_error("data", "a pair: inputs X and labels y", type(data).__name__)
    X, y = data
    codes, classes = read_labels(y)
    parts = list(X.values()) if isinstance(X, Mapping) else [X]
    if not parts:
        raise argument_error("data", "a pair with inputs X", "an empty mapping")
    for part in parts:
        length = _length(part)
        if length != len(codes):
            raise argument_error("data", f"inputs of {len(codes)} items, as the labels", length)
    return X, codes, classes


def _length(part: Any) -> int:
    """How many items there are inputs of."""
    try:
        return int(part.shape[0] if hasattr(part, "shape") else len(part))
    except (TypeError, IndexError):
        must = "inputs X in an array, a sparse matrix, a frame, a list or a mapping of such"
        raise argument_error("data", must, type(part).__name__) from None


def read_labels(y: Any) -> tuple[IntArray, np.ndarray]:
    """Numbers of the labels and the labels, sorted."""
    values = np.asarray(y)
    if values.ndim != 1 or not len(values):
        raise argument_error("labels", "one label per item", f"shape {values.shape}")
    # Asked of the labels as given: in `values` NaN among texts has become the text "nan".
    if (absent := np.asarray(pd.isna(np.asarray(y, dtype=object)))).any():
        got = f"none for item {int(np.argmax(absent)) + 1}"
        raise argument_error("labels", "one label per item, none missing", got)
    try:
        classes, codes = np.unique(values, return_inverse=True)
    except TypeError:
        raise argument_error("labels", "labels of one type", "several types") from None
    if len(classes) < 2:
        raise InputError(f"The labels must be of at least two classes. Got only {classes[0]}.")
    return codes.astype(np.int64), classes


def read_item_ids(given: Any, n: int) -> np.ndarray:
    ids = check_ids(
        "item_ids", [f"i{i + 1}" for i in range(n)] if given is None else given, n, "item"
    )
    return check_unique("item_ids", ids)
