"""Wrong labels from what trainers have: labels and out-of-sample probabilities of the classes."""

from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd

from irtcat._common.checks import InputError, argument_error, float_array, shorten
from irtcat._common.progress import ProgressOption
from irtcat.diagnose import labels as ranking
from irtcat.diagnose.labels import LabelRanking
from irtcat.responses._frames import as_pandas
from irtcat.training.crowd import Crowd, from_predictions
from irtcat.training.crowd.crowd import class_probabilities


def audit(
    labels: Any,
    pred_probs: Any,
    *,
    classes: Any = None,
    item_ids: Any = None,
    by: str = "auto",
    seed: int = 0,
    progress: ProgressOption = None,
) -> LabelRanking:
    """Rank examples by the probability that their labels are wrong, from predicted probabilities.

    The inputs are those of cleanlab. The probabilities must be out of sample, as from
    cross-validation: a learner that was trained on a wrong label remembers it. They are calibrated
    on the labels, while the confusion of the classes by those who labelled is estimated; the
    suspicion of an example is the probability that another class is right.

    Args:
        labels: one label per example: numbers or text, none missing.
        pred_probs: examples x classes, from 0 to 1, rows that sum to 1 (NaN: not predicted); of
            several learners or repeats a list of such matrices, or members x examples x classes.
            Arrays or tables.
        classes: the class of each column, also those that no label has. By default the names of a
            table's columns; the sorted labels, if there is one for each column; or 0, 1, …, if all
            labels are such numbers.
        item_ids: ids of the examples; by default the index of a table or Series, else positions
            from 0.
        by: the order: "auto" or another of `irtcat.diagnose.labels.rank`. With "auto" the order is
            "classes", unless another one finds clearly more of the labels that are planted for a
            check.
        seed: seed of the planted labels.
        progress: see `irtcat.diagnose.labels.rank`.

    Returns:
        The ranking. Its table has a row per example, the most suspect first: suspicion, share
        (of the members that predict the label), n (members), label, suggested (the most probable
        class), p_other_class, margin, confidence (mean probability of the label), variability, aum,
        reasons; of ten members or more also what `irtcat.diagnose.labels.rank` makes of right and
        wrong answers.

    Raises:
        InputError: for other shapes, probabilities that do not sum to 1, a label that is none of
            the classes, or columns whose classes are in doubt.

    Example:
        >>> rng = np.random.default_rng(0)
        >>> right = rng.integers(0, 3, 60)
        >>> pred_probs = 0.1 + 0.7 * np.eye(3)[right]
        >>> given = right.copy()
        >>> given[7] = (right[7] + 1) % 3
        >>> audit(given, pred_probs).first(1)[["label", "suggested"]].to_numpy().tolist()
        [[1, 0]]

    References:
        Northcutt, Jiang & Chuang (2021), Confident learning: estimating uncertainty in dataset
        labels, Journal of Artificial Intelligence Research 70, 1373-1411 (the same inputs); for the
        model see `irtcat.diagnose.labels.rank`.
    """
    crowd, ids = crowd_of(labels, pred_probs, classes, item_ids)
    result = ranking.rank(crowd, by=by, seed=seed, progress=progress)
    rows = result.table.index.astype(int)
    return replace(result, table=result.table.set_axis(ids[rows].rename("item")))


def crowd_of(
    labels: Any, pred_probs: Any, classes: Any = None, item_ids: Any = None
) -> tuple[Crowd, pd.Index]:
    """The crowd of the members, whose items are the positions from 0, and the ids; see `audit`."""
    values = np.asarray(labels)
    if values.ndim != 1 or not len(values):
        raise argument_error("labels", "one label per example", f"shape {values.shape}")
    label_index = labels.index if isinstance(labels, pd.Series) else None
    members, columns, index = _members(pred_probs, len(values))
    if index is not None and label_index is not None and not index.equals(label_index):
        raise InputError(
            "The rows of `labels` and `pred_probs` have different ids. Pass them in one order, as "
            "pred_probs.loc[labels.index], or without ids (to_numpy())."
        )
    sources = (item_ids, index, label_index, range(len(values)))
    ids = pd.Index(next(source for source in sources if source is not None))
    if len(ids) != len(values) or not ids.is_unique:
        got = f"{ids.nunique()} different ids"
        raise argument_error("item_ids", f"{len(values)} ids, each once", got)
    if classes is None:
        classes = _classes(values, columns, members.shape[2])
    positions = [str(row) for row in range(len(values))]
    return from_predictions(members, values, classes=classes, item_ids=positions), ids


def _members(pred_probs: Any, n: int) -> tuple[np.ndarray, pd.Index | None, pd.Index | None]:
    """Probabilities (members x examples x classes), and names of columns and rows of a table."""
    frame = as_pandas(pred_probs)
    if frame is not None:
        is_numbered = frame.columns.equals(pd.RangeIndex(frame.shape[1]))
        names = None if is_numbered else pd.Index(frame.columns)
        is_pandas = isinstance(pred_probs, pd.DataFrame)
        return _members(frame.to_numpy(), n)[0], names, frame.index if is_pandas else None
    if isinstance(pred_probs, (list, tuple)) and pred_probs and np.ndim(pred_probs[0]) == 2:
        read = [_members(matrix, n) for matrix in pred_probs]
        _, columns, index = read[0]
        shapes = [matrix.shape[1:] for matrix, _, _ in read]
        for _, others, rows in read[1:]:
            if not (_are_equal(columns, others) and _are_equal(index, rows)):
                must = "tables with the same rows and columns"
                raise argument_error("pred_probs", must, "other ids or names")
        if len(set(shapes)) > 1:
            raise argument_error("pred_probs", "matrices of one shape", shapes)
        return np.concatenate([matrix for matrix, _, _ in read]), columns, index
    array = float_array("pred_probs", "numbers in rows of equal length", pred_probs)
    members = array[None] if array.ndim == 2 else array
    if members.ndim != 3 or members.shape[1] != n or 0 in members.shape:
        of_two = "For two classes pass np.column_stack([1 - p, p])."
        advice = of_two if array.shape == (n,) else ""
        must = f"{n} examples x classes, as many rows as labels, or members of that shape"
        raise argument_error("pred_probs", must, f"shape {array.shape}", advice)
    return class_probabilities("pred_probs", members), None, None


def _are_equal(first: pd.Index | None, other: pd.Index | None) -> bool:
    return first is other or (first is not None and first.equals(other))


def _classes(labels: np.ndarray, columns: pd.Index | None, n: int) -> Any:
    """The class of each column, where there is no doubt."""
    advice = "Name the class of each column, in order, with `classes`."
    if columns is not None:
        if labels.dtype.kind in "iu" and all(str(name).isdecimal() for name in columns):
            columns = columns.astype(int)  # a header of numbers is read as text
        if len(others := pd.Index(labels)[~pd.Index(labels).isin(columns)]):
            must = f"names of the columns of `pred_probs` ({shorten(list(columns))})"
            raise argument_error("labels", must, shorten(others[0]), advice)
        return columns.to_numpy()
    present = pd.unique(pd.Series(labels))
    if len(present) == n:
        return None  # the sorted labels
    if labels.dtype.kind in "iu" and labels.min() >= 0 and labels.max() < n:
        if labels.min() > 0:
            raise InputError(
                f"The labels are {labels.min()} to {labels.max()}, and `pred_probs` has {n} "
                f"columns: of the classes 0 to {n - 1}, or 1 to {n}? Pass classes=range({n}) or "
                f"classes=range(1, {n + 1})."
            )
        return np.arange(n)
    must = f"of {len(present)} classes, as there are labels"
    raise argument_error("pred_probs", must, f"{n} columns", advice)
