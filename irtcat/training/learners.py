"""Learners and their data, and training one member on a subset, to predict all items."""

import copy
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from irtcat._common.checks import InputError, argument_error, check_ids, check_unique, shorten
from irtcat._common.types import FloatArray, IntArray

NONE, OTHER = -1, -2
"""Codes of a missing prediction, and of one that is not a label of the data."""

TOLERANCE = 1e-5
"""Rounding in float16 or float32 may put probabilities this far outside [0, 1]."""


class Member(NamedTuple):
    """One member of a crowd.

    Attributes:
        number: from 0; all random draws of the member depend only on it and the crowd's seed.
        learner: index of its learner.
        size: number of training items.
        noise: share of their labels that are replaced.
        seed: random seed of the learner.
    """

    number: int
    learner: int
    size: int
    noise: float
    seed: int


class Assignment(NamedTuple):
    """The training set of a member.

    Attributes:
        member: the member.
        train: positions of its items, in random order.
        labels: codes of its training labels, some of them wrong.
    """

    member: Member
    train: IntArray
    labels: IntArray


class Setup(NamedTuple):
    """What all members share.

    Attributes:
        learners: estimators or functions.
        X: the inputs of all items.
        labels: code of each item's label.
        classes: the sorted labels.
        probabilities: which are kept: "none", "gold" (of the items' labels) or "all" (of every
            class).
    """

    learners: Sequence[Any]
    X: Any
    labels: IntArray
    classes: np.ndarray
    probabilities: str


class Answers(NamedTuple):
    """A member's predictions of all items.

    Attributes:
        predictions: codes of labels, `NONE` or `OTHER`.
        gold: probability of each item's label; None if unknown.
        probabilities: of each class, items x classes; None if not kept.
    """

    predictions: IntArray
    gold: FloatArray | None
    probabilities: FloatArray | None


def is_estimator(learner: Any) -> bool:
    """Whether it has fit and predict methods, as in scikit-learn."""
    return hasattr(learner, "fit") and hasattr(learner, "predict")


def name_of(learner: Any) -> str:
    """The class with the estimator's settings, or the function."""
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
    """Whether its repr is the same in every process; that of an object may have its address."""
    if isinstance(value, Mapping):
        return all(_plain(item) for pair in value.items() for item in pair)
    if isinstance(value, (list, tuple)):
        return all(map(_plain, value))
    return isinstance(value, (str, int, float, bool, type(None), np.generic))


def take(X: Any, indices: IntArray) -> Any:
    """Rows of an array, a sparse matrix, a frame or a list, or of a mapping of these."""
    if hasattr(X, "iloc"):
        return X.iloc[indices]
    if isinstance(X, Mapping):
        return {name: take(values, indices) for name, values in X.items()}
    if hasattr(X, "shape"):
        return X[indices]
    return [X[i] for i in indices]


def train(setup: Setup, task: Assignment) -> Answers:
    """Train one member and predict all items.

    Raises:
        InputError: if the learner fails or its predictions are invalid; names the member.
    """
    member = task.member
    learner = setup.learners[member.learner]
    X, labels = take(setup.X, task.train), setup.classes[task.labels]
    try:
        if is_estimator(learner):
            return _estimator_answers(learner, member.seed, X, labels, setup)
        return _function_answers(learner(X, labels, setup.X, member.seed), setup)
    except Exception as error:
        reason = str(error) if isinstance(error, InputError) else f"{type(error).__name__}: {error}"
        if (task.labels == task.labels[0]).all():
            reason += f" All its training labels are of class {labels[0]}: use larger subsets."
        raise InputError(
            f"Member {member.number + 1} of the crowd ({name_of(learner)}, {member.size} items, "
            f"noise {member.noise:.3g}) failed: {reason}"
        ) from error


def _estimator_answers(
    learner: Any, seed: int, X: Any, labels: np.ndarray, setup: Setup
) -> Answers:
    """The answers of a copy, with the seed as every ``random_state`` of it and its components."""
    learner = copy.deepcopy(learner)
    if hasattr(learner, "get_params"):
        names = [name for name in learner.get_params() if name.endswith("random_state")]
        learner.set_params(**dict.fromkeys(names, seed))
    learner.fit(X, labels)
    predictions = encode(learner.predict(setup.X), setup.classes, len(setup.labels))
    if setup.probabilities == "none" or not hasattr(learner, "predict_proba"):
        return Answers(predictions, None, None)
    # A subset may lack a class: the columns are its classes.
    columns = encode(learner.classes_, setup.classes, len(learner.classes_))
    if (columns < 0).any():
        unknown = np.asarray(learner.classes_)[columns < 0]
        raise argument_error("fit_predict", "an estimator whose classes_ are labels", unknown)
    output = np.asarray(learner.predict_proba(setup.X))
    probabilities = np.zeros((len(setup.labels), len(setup.classes)), np.float32)
    shape = len(probabilities), len(columns)
    probabilities[:, columns] = _checked(output, shape, "an estimator that returns")
    return _answers(predictions, probabilities, setup)


def _function_answers(output: Any, setup: Setup) -> Answers:
    """The answers from a function's output: labels, or probabilities items x classes."""
    n = len(setup.labels)
    array = np.asarray(output)
    if array.ndim == 1:
        return Answers(encode(array, setup.classes, n), None, None)
    must = f"a function that returns {n} labels or"
    probabilities = _checked(array, (n, len(setup.classes)), must)
    return _answers(probabilities.argmax(axis=1).astype(np.int32), probabilities, setup)


def _checked(output: np.ndarray, shape: tuple[int, int], must: str) -> FloatArray:
    """Probabilities of the shape, checked."""
    must = f"{must} {shape[0]} x {shape[1]} probabilities"
    if output.shape != shape:
        raise argument_error("fit_predict", must, f"shape {output.shape}")
    probabilities = output.astype(np.float32)
    valid = (probabilities >= -TOLERANCE) & (probabilities <= 1 + TOLERANCE)
    if not valid.all():
        first = probabilities[~valid].flat[0]
        raise argument_error("fit_predict", f"{must} from 0 to 1", first)
    return probabilities


def _answers(predictions: IntArray, probabilities: FloatArray, setup: Setup) -> Answers:
    """The answers with the probabilities that the setup keeps."""
    if setup.probabilities == "none":
        return Answers(predictions, None, None)
    gold = gold_of(probabilities, setup.labels)
    return Answers(predictions, gold, probabilities if setup.probabilities == "all" else None)


def gold_of(probabilities: FloatArray, labels: IntArray) -> FloatArray:
    """Probability of each item's label, from items x classes."""
    return np.take_along_axis(probabilities, labels[:, None], axis=1)[:, 0]


def encode(predicted: Any, classes: np.ndarray, n: int) -> IntArray:
    """Codes of labels; `NONE` for missing predictions, `OTHER` for unknown labels.

    Example:
        >>> encode(["cat", "cow", None], np.array(["cat", "dog"]), 3).tolist()
        [0, -2, -1]
    """
    values = np.asarray(predicted)
    if values.shape != (n,):
        raise argument_error("predictions", f"{n} labels, one per item", f"shape {values.shape}")
    if values.dtype.kind not in "biufUSO":
        raise argument_error("predictions", "labels that are numbers or text", values.dtype)
    if values.dtype.kind == "O" or values.dtype.kind != classes.dtype.kind:
        code_of = {label: code for code, label in enumerate(classes.tolist())}
        missing = np.asarray(pd.isna(values))
        codes = np.array([code_of.get(value, OTHER) for value in values.tolist()])
        _check_kind(values[~missing], codes, classes)
        return np.where(missing, NONE, codes).astype(np.int32)
    found = pd.Index(classes).get_indexer(pd.Index(values))
    codes = np.where(found < 0, OTHER, found)
    if values.dtype.kind == "f":
        codes = np.where(np.isnan(values), NONE, codes)
    return codes.astype(np.int32)


def _check_kind(predictions: np.ndarray, codes: IntArray, classes: np.ndarray) -> None:
    """Raise if predictions are text and labels numbers, or vice versa."""
    if len(predictions) and np.max(codes) < 0:
        first, label = predictions.tolist()[0], classes.tolist()[0]
        if isinstance(first, str) != isinstance(label, str):
            raise argument_error("predictions", f"labels such as {label!r}", repr(first))


def read_learners(fit_predict: Any) -> tuple[list[Any], list[str]]:
    """The learners and their names."""
    named = isinstance(fit_predict, dict)
    learners = fit_predict.values() if named else fit_predict
    learners = list(learners) if named or isinstance(learners, (list, tuple)) else [learners]
    for learner in learners:
        if isinstance(learner, type) and is_estimator(learner):
            must = f"an estimator, such as {learner.__name__}()"
            raise argument_error("fit_predict", must, f"the class {learner.__name__}")
    usable = [callable(learner) or is_estimator(learner) for learner in learners]
    if not learners or not all(usable):
        must = "a function, an object with fit and predict, or a list or mapping of these"
        raise argument_error("fit_predict", must, fit_predict)
    return learners, [str(name) for name in (fit_predict if named else map(name_of, learners))]


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
        try:
            length = int(values.shape[0] if hasattr(values, "shape") else len(values))
        except (TypeError, IndexError):
            must = "inputs X in an array, a sparse matrix, a frame, a list or a mapping of these"
            raise argument_error("data", must, type(values).__name__) from None
        if length != len(codes):
            raise argument_error("data", f"inputs of {len(codes)} items, as many as labels", length)
    return X, codes, classes


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
        return _codes_of(values, names)
    try:
        classes, codes = np.unique(values, return_inverse=True)
    except TypeError:
        raise argument_error("labels", "labels of one type", "several types") from None
    if len(classes) < 2:
        raise InputError(f"The labels must be of at least two classes. Got only {classes[0]}.")
    return codes.astype(np.int64), classes


def _codes_of(labels: np.ndarray, names: Any) -> tuple[IntArray, np.ndarray]:
    """Label codes by the classes as the user names them, each once, and these."""
    classes = np.asarray(names)
    if classes.ndim != 1 or len(classes) < 2 or not pd.Index(classes).is_unique:
        raise argument_error("classes", "a list of at least two classes, each once", names)
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
