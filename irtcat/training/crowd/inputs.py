"""Checks of the inputs of a crowd: learners, data, labels and ids."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd

from irtcat._common.checks import InputError, argument_error, check_ids, check_unique, shorten
from irtcat._common.types import IntArray
from irtcat.training.learners import is_estimator, name_of


def read_learners(fit_predict: Any) -> tuple[list[Any], list[str]]:
    """The learners and their names."""
    if isinstance(fit_predict, dict):
        learners = list(fit_predict.values())
    else:
        learners = list(fit_predict) if isinstance(fit_predict, (list, tuple)) else [fit_predict]
    for learner in learners:
        if isinstance(learner, type) and is_estimator(learner):
            must = f"an estimator, such as {learner.__name__}()"
            raise argument_error("fit_predict", must, f"the class {learner.__name__}")
    usable = [callable(learner) or is_estimator(learner) for learner in learners]
    if not learners or not all(usable):
        must = "a function, an object with fit and predict, or a list or mapping of these"
        raise argument_error("fit_predict", must, fit_predict)
    names = fit_predict if isinstance(fit_predict, dict) else map(name_of, learners)
    return learners, [str(name) for name in names]


def read_data(data: Any) -> tuple[Any, IntArray, np.ndarray]:
    """Inputs, label codes, and the sorted labels."""
    if not isinstance(data, (tuple, list)) or len(data) != 2:
        raise argument_error("data", "a pair: inputs X and labels y", type(data).__name__)
    X, y = data
    codes, classes = read_labels(y)
    inputs = list(X.values()) if isinstance(X, Mapping) else [X]
    if not inputs:
        raise argument_error("data", "a pair with inputs X", "an empty mapping")
    for values in inputs:
        length = _length(values)
        if length != len(codes):
            raise argument_error("data", f"inputs of {len(codes)} items, as many as labels", length)
    return X, codes, classes


def _length(values: Any) -> int:
    """Number of items in the inputs."""
    try:
        return int(values.shape[0] if hasattr(values, "shape") else len(values))
    except (TypeError, IndexError):
        must = "inputs X in an array, a sparse matrix, a frame, a list or a mapping of these"
        raise argument_error("data", must, type(values).__name__) from None


def read_labels(y: Any, names: Any = None) -> tuple[IntArray, np.ndarray]:
    """Label codes, and the classes: as named, else the sorted labels."""
    values = np.asarray(y)
    if values.ndim != 1 or not len(values):
        raise argument_error("labels", "one label per item", f"shape {values.shape}")
    # Checked on `y`: in `values` NaN among texts has become the text "nan".
    if (absent := np.asarray(pd.isna(np.asarray(y, dtype=object)))).any():
        got = f"none for item {int(np.argmax(absent)) + 1}"
        raise argument_error("labels", "one label per item, none missing", got)
    if names is not None:
        return _codes_of(values, _read_classes(names))
    try:
        classes, codes = np.unique(values, return_inverse=True)
    except TypeError:
        raise argument_error("labels", "labels of one type", "several types") from None
    if len(classes) < 2:
        raise InputError(f"The labels must be of at least two classes. Got only {classes[0]}.")
    return codes.astype(np.int64), classes


def _read_classes(names: Any) -> np.ndarray:
    """The classes as the user names them, each once."""
    classes = np.asarray(names)
    if isinstance(names, range):
        classes = np.arange(names.start, names.stop, names.step)
    if classes.ndim != 1 or len(classes) < 2 or not pd.Index(classes).is_unique:
        raise argument_error("classes", "a list of at least two classes, each once", names)
    return classes


def _codes_of(labels: np.ndarray, classes: np.ndarray) -> tuple[IntArray, np.ndarray]:
    """Label codes by the classes, each of which must be one of them."""
    codes = pd.Index(classes).get_indexer(pd.Index(labels))
    if (codes < 0).any():
        first = int(np.argmax(codes < 0))
        must = f"of the classes {shorten(classes.tolist())}"
        got = f"{shorten(labels[first])} for item {first + 1}"
        raise argument_error("labels", must, got, "Or name all classes with `classes`.")
    return codes.astype(np.int64), classes


def read_item_ids(item_ids: Any, n: int) -> np.ndarray:
    """Unique ids of n items; i1, i2, … for None."""
    if item_ids is None:
        item_ids = [f"i{i + 1}" for i in range(n)]
    return check_unique("item_ids", check_ids("item_ids", item_ids, n, "item"))
