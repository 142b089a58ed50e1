"""How far two lists of numbers agree: rank correlations and errors; arrays in, numbers out."""

from typing import Any

import numpy as np

from irtcat._checks import argument_error, check_count
from irtcat._types import FloatArray

__all__ = [
    "kendall_tau_b",
    "mean_absolute_error",
    "pairwise_accuracy",
    "pearson",
    "root_mean_squared_error",
    "spearman",
    "top_overlap",
]


def kendall_tau_b(x: Any, y: Any) -> float:
    """Kendall's rank correlation with correction for ties.

    ``tau_b = (C - D) / sqrt((C + D + X) (C + D + Y))`` over all pairs of positions: C concordant,
    D discordant, X tied in ``x`` only, Y tied in ``y`` only. Computed by merge sort, O(n log n).

    Args:
        x: at least 2 finite numbers.
        y: as many.

    Returns:
        From -1 (reversed) over 0 to 1 (the same order); NaN when ``x`` or ``y`` is constant, since
        there is then no order to agree with.

    Raises:
        InputError: for lists of different length, fewer than 2 pairs, or a value not finite.

    Example:
        >>> round(kendall_tau_b([1, 2, 3, 4], [1, 2, 4, 3]), 6)
        0.666667
        >>> kendall_tau_b([1, 2, 3], [5, 5, 5])
        nan

    References:
        Kendall (1945), Biometrika 33, 239-251; Knight (1966), JASA 61, 436-439 (algorithm).
    """
    from scipy.stats import kendalltau  # here, because scipy.stats is slow to import

    first, second = _pairs(x, y)
    if _is_constant(first) or _is_constant(second):
        return float("nan")
    return float(kendalltau(first, second).statistic)


def spearman(x: Any, y: Any) -> float:
    """Spearman's rank correlation: Pearson's correlation of the ranks, ties sharing the mean rank.

    Args:
        x: at least 2 finite numbers.
        y: as many.

    Returns:
        From -1 to 1; NaN when ``x`` or ``y`` is constant.

    Raises:
        InputError: for lists of different length, fewer than 2 pairs, or a value not finite.

    Example:
        >>> round(spearman([1, 2, 3, 4], [1, 2, 4, 3]), 6)
        0.8

    References:
        Spearman (1904), American Journal of Psychology 15, 72-101.
    """
    from scipy.stats import rankdata

    first, second = _pairs(x, y)
    return _correlation(rankdata(first), rankdata(second))


def pearson(x: Any, y: Any) -> float:
    """Pearson's correlation: covariance over the product of the standard deviations.

    Args:
        x: at least 2 finite numbers.
        y: as many.

    Returns:
        From -1 to 1; NaN when ``x`` or ``y`` is constant.

    Raises:
        InputError: for lists of different length, fewer than 2 pairs, or a value not finite.

    Example:
        >>> round(pearson([1, 2, 3], [2, 4, 7]), 6)
        0.993399
    """
    return _correlation(*_pairs(x, y))


def mean_absolute_error(x: Any, y: Any) -> float:
    """Mean of ``|x - y|``, in the units of the inputs; 0 is perfect.

    Args:
        x: at least 2 finite numbers.
        y: as many.

    Returns:
        At least 0, never NaN.

    Raises:
        InputError: for lists of different length, fewer than 2 pairs, or a value not finite.

    Example:
        >>> mean_absolute_error([1, 2, 3], [1, 4, 4])
        1.0
    """
    first, second = _pairs(x, y)
    return float(np.abs(first - second).mean())


def root_mean_squared_error(x: Any, y: Any) -> float:
    """Square root of the mean of ``(x - y)^2``, in the units of the inputs; 0 is perfect.

    Args:
        x: at least 2 finite numbers.
        y: as many.

    Returns:
        At least the mean absolute error, never NaN.

    Raises:
        InputError: for lists of different length, fewer than 2 pairs, or a value not finite.

    Example:
        >>> root_mean_squared_error([0, 0], [3, 4])
        3.5355339059327378
    """
    first, second = _pairs(x, y)
    return float(np.sqrt(np.square(first - second).mean()))


def pairwise_accuracy(x: Any, y: Any, low: float = 0.0, high: float = float("inf")) -> float:
    """Share of pairs that ``x`` orders as ``y`` does, among those ``y`` sets some way apart.

    The mean, over pairs i, j with ``low <= |y_i - y_j| < high`` and ``y_i != y_j``, of 1 where
    ``x`` has the same order, 1/2 where it ties, 0 where it has the other.

    Args:
        x: at least 2 finite numbers, such as predicted scores.
        y: as many, such as full scores.
        low: smallest distance in ``y`` that counts.
        high: distances in ``y`` from here on do not count.

    Returns:
        From 0 to 1, 1/2 for guessing; NaN when there is no such pair.

    Raises:
        InputError: for lists of different length, fewer than 2 pairs, or a value not finite.

    Example:
        >>> pairwise_accuracy([1, 1, 3], [1, 2, 3])
        0.8333333333333334
        >>> pairwise_accuracy([1, 1, 3], [1, 2, 3], low=2)
        1.0
    """
    first, second = _pairs(x, y)
    total = right = 0.0
    for row in range(len(first) - 1):  # a row at a time, so that memory stays O(n)
        gap = second[row + 1 :] - second[row]
        far = np.abs(gap)
        counts = (far >= low) & (far < high) & (far > 0)
        agrees = np.sign(first[row + 1 :] - first[row]) * np.sign(gap)
        total += np.count_nonzero(counts)
        right += float((0.5 + 0.5 * agrees[counts]).sum())
    return float(right / total) if total else float("nan")


def top_overlap(x: Any, y: Any, n: int) -> float:
    """Share of the n best by ``y`` that are among the n best by ``x``.

    Values that tie at the n-th place share the places that are left: of three that tie for the last
    one each has a third of it. The overlap is ``sum_i min(place_i(x), place_i(y)) / n``.

    Args:
        x: at least 2 finite numbers, greater is better.
        y: as many.
        n: how many are the best, from 1 to all.

    Returns:
        From 0 to 1.

    Raises:
        InputError: for lists of different length, fewer than 2 pairs, a value not finite, or n
            out of range.

    Example:
        >>> top_overlap([1, 2, 3, 4], [1, 4, 2, 3], 2)
        0.5
    """
    first, second = _pairs(x, y)
    check_count("n", n, 1, len(first))
    return float(np.minimum(_places(first, n), _places(second, n)).sum() / n)


def _places(values: FloatArray, n: int) -> FloatArray:
    """Share of one of the n top places that each value has."""
    above = len(values) - np.searchsorted(np.sort(values), values, side="right")
    _, group, size = np.unique(values, return_inverse=True, return_counts=True)
    return np.clip((n - above) / size[group], 0.0, 1.0)


def _pairs(x: Any, y: Any) -> tuple[FloatArray, FloatArray]:
    """Both lists as vectors of float64, checked."""
    first, second = _vector("x", x), _vector("y", y)
    if len(first) != len(second):
        raise argument_error("y", f"as long as x ({len(first)} values)", f"{len(second)} values")
    if len(first) < 2:
        raise argument_error("x", "at least 2 values to compare", f"{len(first)}")
    return first, second


def _vector(name: str, values: Any) -> FloatArray:
    """A vector of finite numbers, or an error that names the first bad position."""
    try:
        vector = np.asarray(values, dtype=np.float64)
    except (TypeError, ValueError):
        raise argument_error(name, "a list of numbers", values) from None
    if vector.ndim != 1:
        raise argument_error(name, "one list of numbers", f"an array of shape {vector.shape}")
    bad = ~np.isfinite(vector)
    if bad.any():
        at = int(bad.argmax())
        advice = "Leave out the pairs without a value first."
        raise argument_error(name, "finite numbers", f"{vector[at]} at position {at + 1}", advice)
    return vector


def _is_constant(values: FloatArray) -> bool:
    return bool((values == values[0]).all())


def _correlation(x: FloatArray, y: FloatArray) -> float:
    """Cosine of the centred vectors; NaN when one of them is constant."""
    if _is_constant(x) or _is_constant(y):  # before centring, which may leave rounding noise
        return float("nan")
    x, y = x - x.mean(), y - y.mean()
    x, y = x / np.abs(x).max(), y / np.abs(y).max()  # so that no square underflows
    return float(np.clip(x @ y / np.sqrt((x @ x) * (y @ y)), -1.0, 1.0))
