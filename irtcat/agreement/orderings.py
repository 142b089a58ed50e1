"""How well one list of scores preserves the order of another, and how far the two differ."""

from typing import Any

import numpy as np

from irtcat._common.checks import argument_error, check_count, is_number
from irtcat._common.types import FloatArray
from irtcat.agreement.inputs import number_pairs


def mean_absolute_error(x: Any, y: Any) -> float:
    """Mean of ``|x - y|``, in the units of the inputs; 0 is perfect.

    Args:
        x: at least 2 finite numbers.
        y: as many.

    Returns:
        At least 0, never NaN.

    Raises:
        InputError: for lists of different length, fewer than 2 pairs, or a non-finite value.

    Example:
        >>> mean_absolute_error([1, 2, 3], [1, 4, 4])
        1.0
    """
    first, second = number_pairs(x, y)
    return float(np.abs(first - second).mean())


def root_mean_squared_error(x: Any, y: Any) -> float:
    """Square root of the mean of ``(x - y)^2``, in the units of the inputs; 0 is perfect.

    Args:
        x: at least 2 finite numbers.
        y: as many.

    Returns:
        At least the mean absolute error, never NaN.

    Raises:
        InputError: for lists of different length, fewer than 2 pairs, or a non-finite value.

    Example:
        >>> root_mean_squared_error([0, 0], [3, 4])
        3.5355339059327378
    """
    first, second = number_pairs(x, y)
    return float(np.sqrt(np.square(first - second).mean()))


def pairwise_accuracy(x: Any, y: Any, low: float = 0.0, high: float = float("inf")) -> float:
    """Share of pairs that ``x`` orders as ``y`` does, among pairs at some distance in ``y``.

    The mean, over pairs i, j with ``low <= |y_i - y_j| < high`` and ``y_i != y_j``, of 1 if
    ``x`` has the same order, 1/2 if it ties, 0 if it has the opposite order.

    Args:
        x: at least 2 finite numbers, such as predicted scores.
        y: as many, such as full scores.
        low: smallest distance in ``y`` that counts.
        high: distances in ``y`` must be below it.

    Returns:
        From 0 to 1, 1/2 for guessing; NaN if there is no such pair.

    Raises:
        InputError: for lists of different length, fewer than 2 pairs, a non-finite value, or
            distances that are no numbers.

    Example:
        >>> pairwise_accuracy([1, 1, 3], [1, 2, 3])
        0.8333333333333334
        >>> pairwise_accuracy([1, 1, 3], [1, 2, 3], low=2)
        1.0
    """
    for name, value in (("low", low), ("high", high)):
        if not (is_number(value) or value == float("inf")):
            raise argument_error(name, "a number", value)
    first, second = number_pairs(x, y)
    total = right = 0.0
    for row in range(len(first) - 1):  # a row at a time, so that memory stays O(n)
        difference = second[row + 1 :] - second[row]
        distance = np.abs(difference)
        counts = (distance >= low) & (distance < high) & (distance > 0)
        agrees = np.sign(first[row + 1 :] - first[row]) * np.sign(difference)
        total += np.count_nonzero(counts)
        right += float((0.5 + 0.5 * agrees[counts]).sum())
    return float(right / total) if total else float("nan")


def top_overlap(x: Any, y: Any, n: int) -> float:
    """Share of the n best by ``y`` that are among the n best by ``x``.

    Values that tie at rank n share the remaining ranks: of three that tie for the last rank, each
    has a third of it. The overlap is ``sum_i min(share_i(x), share_i(y)) / n``.

    Args:
        x: at least 2 finite numbers, greater is better.
        y: as many.
        n: number of best values, from 1 to all.

    Returns:
        From 0 to 1.

    Raises:
        InputError: for lists of different length, fewer than 2 pairs, a value that is not
            finite, or n out of range.

    Example:
        >>> top_overlap([1, 2, 3, 4], [1, 4, 2, 3], 2)
        0.5
    """
    first, second = number_pairs(x, y)
    check_count("n", n, 1, len(first))
    return float(np.minimum(_top_shares(first, n), _top_shares(second, n)).sum() / n)


def _top_shares(values: FloatArray, n: int) -> FloatArray:
    """Share of one of the n top ranks that each value has."""
    from scipy.stats import rankdata  # scipy.stats is slow to import

    first, last = rankdata(-values, "min"), rankdata(-values, "max")
    return np.clip((n + 1 - first) / (last + 1 - first), 0.0, 1.0)
