"""Label lists, joint tables, ratings and lists of numbers from users: checked, coded, counted."""

from collections.abc import Iterable
from contextlib import suppress
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from irtcat._common.checks import InputError, argument_error, float_array, shorten
from irtcat._common.types import FloatArray, IntArray


class JointRatings(NamedTuple):
    """The joint distribution of two labellings.

    Attributes:
        p: probabilities, rows by the first labelling, columns by the second; they sum to 1.
        rows: labels of the rows, in order.
        columns: labels of the columns.
        n: number of observations; None if unknown (probabilities, weights).
    """

    p: FloatArray
    rows: list[Any]
    columns: list[Any]
    n: float | None


def read_joint(
    first: Any,
    second: Any,
    labels: Any,
    weights: Any,
    names: tuple[str, str] = ("gold", "system"),
    square: bool = True,
) -> JointRatings:
    """The joint distribution of two lists of labels, or of a joint table (``second`` is None)."""
    if second is None:
        return _read_table(first, labels, weights, names, square)
    lists = [label_list(name, x) for name, x in zip(names, (first, second), strict=True)]
    n = len(lists[0])
    if len(lists[1]) != n:
        must = f"as long as {names[0]} ({n} labels)"
        raise argument_error(names[1], must, f"{len(lists[1])} labels")
    codes, order = code_labels(np.concatenate(lists), labels, names, n)
    if (codes < 0).any():
        index = int((codes < 0).argmax())
        advice = "Leave out the pairs without a label first."
        got = f"none at position {index % n + 1}"
        raise argument_error(names[index // n], "a label everywhere", got, advice)
    k = len(order)
    mass = np.bincount(codes[:n] * k + codes[n:], weight_vector(weights, n), minlength=k * k)
    p = mass.reshape(k, k) / mass.sum()
    return JointRatings(p, order, order, float(n) if weights is None else None)


def is_table(values: Any) -> bool:
    """Whether the values are a table: a frame, a matrix, or rows of numbers."""
    if isinstance(values, (str, bytes)):
        return False
    try:
        return np.ndim(values) == 2
    except ValueError:  # rows of unequal length
        return False


def code_labels(
    values: np.ndarray, labels: Any, names: tuple[str, ...], n: int
) -> tuple[IntArray, list[Any]]:
    """Code of each value (-1 where it is missing), and the labels in order.

    The order is that of ``labels``; else sorted; else, if labels cannot be compared, that of
    their first occurrence.
    """
    try:
        codes, uniques = pd.factorize(values)  # None, NaN, NA and NaT become -1
    except TypeError:
        raise argument_error(names[0], "hashable labels", values) from None
    observed = list(uniques)
    if labels is None:
        _check_types(observed, names[0])
        order = observed
        with suppress(TypeError):  # labels that cannot be compared
            order = sorted(observed)
    else:
        order = _distinct_labels(labels)
    position = {label: i for i, label in enumerate(order)}
    for code, label in enumerate(observed):
        if label not in position:
            index = int((codes == code).argmax())
            advice = f"The labels are {shorten([repr(x) for x in order])}."
            must = "made of labels in the `labels` argument"
            got = f"{label!r} at position {index % n + 1}"
            raise argument_error(names[index // n], must, got, advice)
    lookup = np.array([position[label] for label in observed] + [-1], dtype=np.intp)
    return lookup[codes], order


def has_natural_order(labels: list[Any]) -> bool:
    """Whether the labels are numbers, so that their order need not be stated."""
    return all(isinstance(label, (int, float, np.number)) for label in labels)


def read_counts(ratings: Any, counts: Any, labels: Any) -> tuple[FloatArray, list[Any], list[Any]]:
    """Units x labels: how many raters gave the unit each label; the labels; the units' ids.

    Ratings are a row per unit and a column per rater, or one list of labels per unit; None and NaN
    are missing ratings.
    """
    if (ratings is None) == (counts is None):
        raise InputError("Pass exactly one of `ratings` and `counts`.")
    if counts is not None:
        return _check_counts(counts, labels)
    units = list(ratings.index) if isinstance(ratings, pd.DataFrame) else None
    if isinstance(ratings, pd.DataFrame):
        ratings = ratings.to_numpy(dtype=object)
    must = "a table of labels, a row per unit and a column per rater"
    if isinstance(ratings, (str, bytes)) or not hasattr(ratings, "__len__") or len(ratings) == 0:
        raise argument_error("ratings", must, ratings)
    rows = [_row_of_ratings(row, must) for row in ratings]
    unit = np.repeat(np.arange(len(rows)), [len(row) for row in rows])
    codes, order = code_labels(np.concatenate(rows), labels, ("ratings",), max(len(unit), 1))
    if not order or (codes < 0).all():
        raise argument_error("ratings", "a table with at least one rating", "none")
    k = len(order)
    rated = codes >= 0
    table = np.bincount(unit[rated] * k + codes[rated], minlength=len(rows) * k)
    units = list(range(len(rows))) if units is None else units
    return table.reshape(len(rows), k).astype(np.float64), order, units


def _row_of_ratings(row: Any, must: str) -> np.ndarray:
    if isinstance(row, (str, bytes)) or not hasattr(row, "__len__"):
        raise argument_error("ratings", must, row)
    return np.fromiter(row, dtype=object, count=len(row))


def _check_counts(counts: Any, labels: Any) -> tuple[FloatArray, list[Any], list[Any]]:
    """Checked counts, with the labels of their columns and the ids of their rows."""
    table = _matrix("counts", counts)
    if (table != np.round(table)).any():
        raise argument_error("counts", "whole numbers", table[table != np.round(table)][0])
    frame = counts if isinstance(counts, pd.DataFrame) else pd.DataFrame(table)
    units, order = list(frame.index), list(frame.columns)
    if labels is not None:
        order = _distinct_labels(labels)
        if len(order) != table.shape[1]:
            must = f"{table.shape[1]} labels, one per column of counts"
            raise argument_error("labels", must, f"{len(order)}")
        if not frame.columns.equals(pd.RangeIndex(len(order))):
            if set(order) != set(frame.columns):
                raise argument_error("labels", "the labels of the columns of counts", order)
            table = _matrix("counts", frame[order])
    return table, order, units


def _read_table(
    table: Any, labels: Any, weights: Any, names: tuple[str, str], square: bool
) -> JointRatings:
    """A joint table of counts or probabilities."""
    if weights is not None:
        raise argument_error("weights", "left out with a joint table", "weights")
    if not is_table(table):
        must = f"a joint table if `{names[1]}` is left out"
        raise argument_error(names[0], must, table)
    values = _matrix(names[0], table)
    frame = table if isinstance(table, pd.DataFrame) else pd.DataFrame(values)
    rows, columns = list(frame.index), list(frame.columns)
    if isinstance(table, pd.DataFrame):
        if len({*rows}) < len(rows) or len({*columns}) < len(columns):
            raise argument_error(names[0], "a table of distinct labels", "repeated ones")
        if labels is not None:
            rows = columns = _distinct_labels(labels)
            if {*table.index} != {*rows} or {*table.columns} != {*rows}:
                raise argument_error("labels", "the labels of the table", rows)
        elif {*rows} == {*columns}:
            columns = rows
        values = _matrix(names[0], table.loc[rows, columns])
    elif labels is not None:
        rows = columns = _distinct_labels(labels)
        if values.shape != (len(rows), len(rows)):
            must = f"labels of a table of shape {values.shape}"
            raise argument_error("labels", must, f"{len(rows)} labels")
    if square and rows != columns:
        got = f"shape {values.shape}" if values.shape[0] != values.shape[1] else "different labels"
        raise argument_error(names[0], "a table with the same labels in rows and columns", got)
    are_counts = bool((values == np.round(values)).all())
    total = values.sum()
    return JointRatings(values / total, rows, columns, float(total) if are_counts else None)


def _matrix(name: str, values: Any) -> FloatArray:
    """A non-empty matrix of finite numbers of at least 0, not all 0."""
    must = "a table of numbers of at least 0"
    table = float_array(name, must, values).copy()
    if table.ndim != 2 or 0 in table.shape:
        raise argument_error(name, must, f"an array of shape {table.shape}")
    invalid = ~(np.isfinite(table) & (table >= 0))
    if invalid.any():
        row, column = np.argwhere(invalid)[0]
        got = f"{table[row, column]} at row {row + 1}, column {column + 1}"
        raise argument_error(name, must, got)
    if not table.any():
        raise argument_error(name, must, "only zeros")
    return table


def label_list(name: str, values: Any) -> np.ndarray:
    """A non-empty list of labels as an array of objects."""
    must = "a list of labels"
    if isinstance(values, (str, bytes, dict)) or not hasattr(values, "__len__"):
        raise argument_error(name, must, values)
    if isinstance(values, pd.DataFrame) or (isinstance(values, np.ndarray) and values.ndim != 1):
        raise argument_error(name, must, f"a table of shape {values.shape}")
    if len(values) == 0:
        raise argument_error(name, must, "nothing")
    return np.fromiter(values, dtype=object, count=len(values))


def _distinct_labels(labels: Any) -> list[Any]:
    """The ``labels`` argument as a list of distinct labels."""
    must = "a list of distinct labels"
    if isinstance(labels, (str, bytes)) or not isinstance(labels, Iterable):
        raise argument_error("labels", must, labels)
    order = list(labels)
    try:
        distinct = len(set(order))
    except TypeError:
        raise argument_error("labels", must, order) from None
    if not order or distinct < len(order):
        raise argument_error("labels", must, order)
    return order


def _check_types(labels: list[Any], name: str) -> None:
    """Raise if two labels print alike, as 1 and "1" do: they would never agree."""
    printed: dict[str, Any] = {}
    for label in labels:
        other = printed.setdefault(str(label), label)
        if other is not label:
            raise argument_error(name, "labels of one type", f"both {other!r} and {label!r}")


def number_pairs(x: Any, y: Any) -> tuple[FloatArray, FloatArray]:
    """Both lists as vectors of float64, checked."""
    first, second = number_vector("x", x), number_vector("y", y)
    if len(first) != len(second):
        raise argument_error("y", f"as long as x ({len(first)} values)", f"{len(second)} values")
    if len(first) < 2:
        raise argument_error("x", "at least 2 values to compare", f"{len(first)}")
    return first, second


def number_vector(name: str, values: Any) -> FloatArray:
    """A vector of finite numbers, or an error that names the first bad position."""
    vector = float_array(name, "a list of numbers", values)
    if vector.ndim != 1:
        raise argument_error(name, "one list of numbers", f"an array of shape {vector.shape}")
    invalid = ~np.isfinite(vector)
    if invalid.any():
        index = int(invalid.argmax())
        advice = "Leave out the pairs without a value first."
        got = f"{vector[index]} at position {index + 1}"
        raise argument_error(name, "finite numbers", got, advice)
    return vector


def weight_vector(weights: Any, n: int) -> FloatArray:
    """Weights of n observations that sum to 1; equal weights for None."""
    if weights is None:
        return np.full(n, 1.0 / n)
    vector = number_vector("weights", weights)
    if len(vector) != n:
        raise argument_error("weights", f"{n} numbers, one per observation", f"{len(vector)}")
    if (vector < 0).any():
        index = int((vector < 0).argmax())
        raise argument_error("weights", "at least 0", f"{vector[index]} at position {index + 1}")
    if not vector.any():
        raise argument_error("weights", "above 0 for some observation", "only zeros")
    vector = vector / vector.max()  # so that the sum of huge weights does not overflow
    return vector / vector.sum()


def is_constant(values: FloatArray) -> bool:
    """Whether all values are the same number."""
    return bool((values == values[0]).all())
