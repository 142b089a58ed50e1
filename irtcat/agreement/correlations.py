"""Rank and product-moment correlation of two lists of numbers, with p-values and intervals."""

import functools
import itertools
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import pandas as pd

from irtcat._checks import argument_error, check_choice
from irtcat._types import FloatArray
from irtcat.agreement._lists import is_constant, number_pairs
from irtcat.agreement.resampling import bootstrap_interval

__all__ = [
    "CORRELATIONS",
    "Correlation",
    "correlation_test",
    "kendall_tau_b",
    "pearson",
    "spearman",
]

MAX_ENUMERATED = 8
"""Up to this many pairs, p-values of rank correlations enumerate all orders (8! = 40,320)."""


@dataclass(frozen=True)
class Correlation:
    """A correlation with its test and interval.

    Attributes:
        value: the correlation.
        p_value: two-sided, of the hypothesis of no association.
        lower: lower end of the bootstrap interval.
        upper: upper end.
        level: probability of the interval.
        n: number of pairs.
        method: ``"kendall"``, ``"spearman"`` or ``"pearson"``.
        resamples: bootstrap resamples in which the correlation is defined.
        undefined: resamples left out because a list is constant in them.
    """

    value: float
    p_value: float
    lower: float
    upper: float
    level: float
    n: int
    method: str
    resamples: int
    undefined: int

    def to_frame(self) -> pd.DataFrame:
        """One row with all attributes."""
        return pd.DataFrame([asdict(self)])


def kendall_tau_b(x: Any, y: Any) -> float:
    """Kendall's rank correlation with correction for ties.

    ``tau_b = (C - D) / sqrt((C + D + X) (C + D + Y))`` over all pairs of positions: C concordant,
    D discordant, X tied in ``x`` only, Y tied in ``y`` only. Computed by merge sort, O(n log n).

    Args:
        x: at least 2 finite numbers.
        y: as many.

    Returns:
        From -1 (reversed) to 1 (the same order); NaN when ``x`` or ``y`` is constant, since a
        constant has no order.

    Raises:
        InputError: for lists of different length, fewer than 2 pairs, or a non-finite value.

    Example:
        >>> round(kendall_tau_b([1, 2, 3, 4], [1, 2, 4, 3]), 6)
        0.666667
        >>> kendall_tau_b([1, 2, 3], [5, 5, 5])
        nan

    References:
        Kendall (1945), Biometrika 33, 239-251; Knight (1966), JASA 61, 436-439 (algorithm).
    """
    from scipy.stats import kendalltau  # scipy.stats is slow to import

    first, second = number_pairs(x, y)
    if is_constant(first) or is_constant(second):
        return float("nan")
    return float(kendalltau(first, second).statistic)


def spearman(x: Any, y: Any) -> float:
    """Spearman's rank correlation: Pearson's correlation of the ranks, mean ranks for ties.

    Args:
        x: at least 2 finite numbers.
        y: as many.

    Returns:
        From -1 to 1; NaN when ``x`` or ``y`` is constant.

    Raises:
        InputError: for lists of different length, fewer than 2 pairs, or a non-finite value.

    Example:
        >>> round(spearman([1, 2, 3, 4], [1, 2, 4, 3]), 6)
        0.8

    References:
        Spearman (1904), American Journal of Psychology 15, 72-101.
    """
    from scipy.stats import rankdata

    first, second = number_pairs(x, y)
    return _correlation(rankdata(first), rankdata(second))


def pearson(x: Any, y: Any) -> float:
    """Pearson's correlation: covariance over the product of the standard deviations.

    Args:
        x: at least 2 finite numbers.
        y: as many.

    Returns:
        From -1 to 1; NaN when ``x`` or ``y`` is constant.

    Raises:
        InputError: for lists of different length, fewer than 2 pairs, or a non-finite value.

    Example:
        >>> round(pearson([1, 2, 3], [2, 4, 7]), 6)
        0.993399
    """
    return _correlation(*number_pairs(x, y))


def correlation_test(
    x: Any,
    y: Any,
    method: str = "kendall",
    *,
    level: float = 0.95,
    resamples: int = 2000,
    seed: int = 0,
) -> Correlation:
    """A correlation with a p-value and a bootstrap interval over pairs.

    Pearson's p-value is that of ``t = r sqrt((n - 2) / (1 - r^2))`` with n - 2 degrees of freedom,
    exact for Normal data. Kendall's and Spearman's enumerate all n! orders up to 8 pairs
    (ties included). Above 8, Kendall's is exact without ties up to 33 pairs and Normal with the
    variance for ties after that; Spearman's is that of t. The interval is the percentile interval
    of resampled pairs.

    Args:
        x: at least 3 finite numbers.
        y: as many.
        method: ``"kendall"`` (tau-b), ``"spearman"`` or ``"pearson"``.
        level: probability of the interval.
        resamples: number of resamples, at least 2.
        seed: random seed of the resamples.

    Returns:
        The correlation, its p-value and interval.

    Raises:
        InputError: for lists of different length, fewer than 3 pairs, a value not finite, or a
            constant list.

    Example:
        >>> result = correlation_test([1, 2, 3, 4, 5, 6], [1, 3, 2, 4, 6, 5], resamples=200)
        >>> round(result.value, 4), round(result.p_value, 4)
        (0.7333, 0.0556)

    References:
        Kendall & Gibbons (1990), Rank Correlation Methods, 5th ed.; Efron & Tibshirani (1993), An
        Introduction to the Bootstrap, chapter 13.
    """
    check_choice("method", method, CORRELATIONS)
    first, second = number_pairs(x, y)
    if len(first) < 3:
        raise argument_error("x", "at least 3 values for a test", f"{len(first)}")
    for name, values in (("x", first), ("y", second)):
        if is_constant(values):
            raise argument_error(name, "numbers that differ", f"{values[0]:g} throughout")
    bootstrap = bootstrap_interval(
        CORRELATIONS[method], first, second, level=level, resamples=resamples, seed=seed
    )
    return Correlation(
        value=bootstrap.value,
        p_value=p_value(method, first, second),
        lower=bootstrap.lower,
        upper=bootstrap.upper,
        level=level,
        n=len(first),
        method=method,
        resamples=bootstrap.resamples,
        undefined=bootstrap.undefined,
    )


CORRELATIONS: dict[str, Callable[[Any, Any], float]] = {
    "kendall": kendall_tau_b,
    "spearman": spearman,
    "pearson": pearson,
}
"""Correlations by ``method``."""


def p_value(method: str, x: FloatArray, y: FloatArray) -> float:
    """Two-sided p-value of no association between two checked lists that are not constant."""
    from scipy.stats import kendalltau, rankdata
    from scipy.stats import t as student

    n = len(x)
    if method == "kendall":
        return _exact_kendall(x, y) if n <= MAX_ENUMERATED else float(kendalltau(x, y).pvalue)
    if method == "spearman":
        x, y = rankdata(x), rankdata(y)
        if n <= MAX_ENUMERATED:
            return _exact_share(x - x.mean(), y - y.mean())
    r = _correlation(x, y)
    if abs(r) >= 1.0:
        return 0.0
    return float(2 * student.sf(abs(r) * np.sqrt((n - 2) / ((1 - r) * (1 + r))), n - 2))


@functools.cache
def _orders(n: int) -> np.ndarray:
    """All permutations of range(n), one per row; cached for the next pair of columns."""
    return np.array(list(itertools.permutations(range(n))))


def _exact_share(x: FloatArray, y: FloatArray) -> float:
    """Share of the orders of y whose covariance with x is at least as far from 0 as observed."""
    sums = y[_orders(len(y))] @ x
    return float((np.abs(sums) >= abs(x @ y) - 1e-9).mean())  # equal sums differ by rounding


def _exact_kendall(x: FloatArray, y: FloatArray) -> float:
    """Share of the orders of y whose |C - D| (concordant, discordant) is at least the observed."""
    upper = np.triu_indices(len(x), 1)
    signs = np.sign(x[upper[0]] - x[upper[1]])
    values = y[_orders(len(y))]
    sums = np.sign(values[:, upper[0]] - values[:, upper[1]]) @ signs
    observed = np.sign(y[upper[0]] - y[upper[1]]) @ signs
    return float((np.abs(sums) >= abs(observed)).mean())


def _correlation(x: FloatArray, y: FloatArray) -> float:
    """Cosine of the centred vectors; NaN when one of them is constant."""
    if is_constant(x) or is_constant(y):  # centring may leave rounding noise
        return float("nan")
    x, y = x - x.mean(), y - y.mean()
    x, y = x / np.abs(x).max(), y / np.abs(y).max()  # so that no square underflows
    return float(np.clip(x @ y / np.sqrt((x @ x) * (y @ y)), -1.0, 1.0))
