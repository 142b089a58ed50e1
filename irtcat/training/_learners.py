"""Training one member: an estimator or a function, on a subset, answering for all items."""

import copy
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from irtcat._checks import InputError, argument_error, shorten
from irtcat._types import FloatArray, IntArray
from irtcat.training._design import Assignment

__all__ = [
    "NONE",
    "OTHER",
    "Answers",
    "Lesson",
    "encode",
    "gold_of",
    "is_estimator",
    "name_of",
    "train",
]

NONE, OTHER = -1, -2
"""Codes of a prediction that is missing, and of one that is no label of the data."""

TOLERANCE = 1e-5
"""Probabilities in float16 or float32 may lie so far outside of [0, 1]."""


class Lesson(NamedTuple):
    """What all members share.

    Attributes:
        learners: estimators or functions.
        X: the inputs of all items.
        labels: number of each item's label.
        classes: the labels, sorted.
        probabilities: "none", "gold" (of the items' labels) or "all" (of every class) are kept.
    """

    learners: Sequence[Any]
    X: Any
    labels: IntArray
    classes: np.ndarray
    probabilities: str


class Answers(NamedTuple):
    """What a member says of all items.

    Attributes:
        predictions: numbers of labels, `NONE` or `OTHER`.
        gold: probability of each item's own label; None where none is known.
        every: probability of each class, items x classes; None where not asked for.
    """

    predictions: IntArray
    gold: FloatArray | None
    every: FloatArray | None


def is_estimator(learner: Any) -> bool:
    """Whether it has fit and predict, as scikit-learn's have."""
    return hasattr(learner, "fit") and hasattr(learner, "predict")


def name_of(learner: Any) -> str:
    """The class or the function, with an estimator's settings."""
    if is_estimator(learner):
        settings = learner.get_params() if hasattr(learner, "get_params") else vars(learner)
        simple = {key: value for key, value in sorted(settings.items()) if _plain(value)}
        return f"{type(learner).__qualname__}({simple})"
    inner = getattr(learner, "func", learner)  # functools.partial
    name = f"{getattr(inner, '__module__', '')}.{getattr(inner, '__qualname__', type(inner))}"
    if inner is learner:
        return name
    return f"{name}({shorten(learner.args, 400)}, {shorten(learner.keywords, 400)})"


def _plain(value: Any) -> bool:
    """Whether it is written the same in every process: no objects, which have addresses."""
    if isinstance(value, Mapping):
        return all(_plain(each) for pair in value.items() for each in pair)
    if isinstance(value, (list, tuple)):
        return all(map(_plain, value))
    return isinstance(value, (str, int, float, bool, type(None), np.generic))


def take(X: Any, at: IntArray) -> Any:
    """Rows of an array, a sparse matrix, a frame or a list."""
    if hasattr(X, "iloc"):
        return X.iloc[at]
    if isinstance(X, Mapping):
        return {name: take(part, at) for name, part in X.items()}
    if hasattr(X, "shape"):
        return X[at]
    return [X[i] for i in at]


def train(lesson: Lesson, task: Assignment) -> Answers:
    """Train one member and ask it for all items.

    Raises:
        InputError: when the learner fails or its answers cannot be used, saying whose.
    """
    member = task.member
    learner = lesson.learners[member.learner]
    chosen, labels = take(lesson.X, task.train), lesson.classes[task.labels]
    try:
        if not is_estimator(learner):
            answers = _read(learner(chosen, labels, lesson.X, member.seed), lesson)
        else:
            answers = _estimate(_seeded(learner, member.seed), chosen, labels, lesson)
    except Exception as error:
        told = str(error) if isinstance(error, InputError) else f"{type(error).__name__}: {error}"
        if (task.labels == task.labels[0]).all():
            told += f" All that it was trained on is of class {labels[0]}: take larger subsets."
        raise InputError(
            f"Member {member.number + 1} of the crowd ({name_of(learner)}, {member.size} items, "
            f"noise {member.noise:.3g}) failed: {told}"
        ) from error
    return answers


def _seeded(learner: Any, seed: int) -> Any:
    """A copy, with the seed wherever the estimator (or a part of it) has a ``random_state``."""
    learner = copy.deepcopy(learner)
    if hasattr(learner, "get_params"):
        named = [name for name in learner.get_params() if name.endswith("random_state")]
        learner.set_params(**dict.fromkeys(named, seed))
    return learner


def _estimate(learner: Any, X: Any, labels: np.ndarray, lesson: Lesson) -> Answers:
    learner.fit(X, labels)
    predictions = encode(learner.predict(lesson.X), lesson.classes, len(lesson.labels))
    if lesson.probabilities == "none" or not hasattr(learner, "predict_proba"):
        return Answers(predictions, None, None)
    # A subset may lack a class: its columns are those of the classes it has.
    columns = encode(learner.classes_, lesson.classes, len(learner.classes_))
    if (columns < 0).any():
        strange = np.asarray(learner.classes_)[columns < 0]
        raise argument_error("fit_predict", "an estimator whose classes_ are labels", strange)
    told = np.asarray(learner.predict_proba(lesson.X))
    every = np.zeros((len(lesson.labels), len(lesson.classes)), np.float32)
    every[:, columns] = _checked(told, (len(every), len(columns)), "an estimator")
    return _kept(predictions, every, lesson)


def _read(told: Any, lesson: Lesson) -> Answers:
    """What a function returned: labels, or probabilities items x classes."""
    n = len(lesson.labels)
    array = np.asarray(told)
    if array.ndim == 1:
        return Answers(encode(array, lesson.classes, n), None, None)
    every = _checked(array, (n, len(lesson.classes)), f"a function that gives {n} labels or")
    return _kept(every.argmax(axis=1).astype(np.int32), every, lesson)


def _checked(told: np.ndarray, shape: tuple[int, int], who: str) -> FloatArray:
    """Probabilities, if that is what they are."""
    must = f"{who} {'' if who.endswith('or') else 'that gives '}{shape[0]} x {shape[1]}"
    if told.shape != shape:
        raise argument_error("fit_predict", f"{must} probabilities", f"shape {told.shape}")
    every = told.astype(np.float32)
    inside = (every >= -TOLERANCE) & (every <= 1 + TOLERANCE)
    if not inside.all():
        strange = every[~inside].flat[0]
        raise argument_error("fit_predict", f"{must} probabilities from 0 to 1", strange)
    return every


def _kept(predictions: IntArray, every: FloatArray, lesson: Lesson) -> Answers:
    """The answers with the probabilities that are to be kept."""
    if lesson.probabilities == "none":
        return Answers(predictions, None, None)
    gold = gold_of(every, lesson.labels)
    return Answers(predictions, gold, every if lesson.probabilities == "all" else None)


def gold_of(every: FloatArray, labels: IntArray) -> FloatArray:
    """Probability of each item's own label, of those of all classes."""
    return np.take_along_axis(every, labels[:, None], axis=1)[:, 0]


def encode(predicted: Any, classes: np.ndarray, n: int) -> IntArray:
    """Numbers of labels; what is missing and what is no label have codes of their own.

    Example:
        >>> encode(["cat", "cow", None], np.array(["cat", "dog"]), 3).tolist()
        [0, -2, -1]
    """
    values = np.asarray(predicted)
    if values.shape != (n,):
        raise argument_error("predictions", f"{n} labels, one an item", f"shape {values.shape}")
    if values.dtype.kind not in "biufUSO":
        raise argument_error("predictions", "labels that are numbers or text", values.dtype)
    if values.dtype.kind == "O" or values.dtype.kind != classes.dtype.kind:
        number = {label: code for code, label in enumerate(classes.tolist())}
        absent = np.asarray(pd.isna(values))
        found = [number.get(value, OTHER) for value in values.tolist()]
        _check_kind(values[~absent], found, classes)
        return np.where(absent, NONE, found).astype(np.int32)
    at = np.clip(np.searchsorted(classes, values), 0, len(classes) - 1)
    codes = np.where(classes[at] == values, at, OTHER)
    if values.dtype.kind == "f":
        codes = np.where(np.isnan(values), NONE, codes)
    return codes.astype(np.int32)


def _check_kind(told: np.ndarray, codes: Any, classes: np.ndarray) -> None:
    """Raise where text is told and the labels are numbers, or the other way round."""
    if len(told) and np.max(codes) < 0:
        first, label = told.tolist()[0], classes.tolist()[0]
        if isinstance(first, str) != isinstance(label, str):
            raise argument_error("predictions", f"labels such as {label!r}", repr(first))
