"""Correlations of lists of numbers with p-values and intervals, errors, and agreement of orders."""

import functools
from collections.abc import Callable, Hashable
from dataclasses import asdict, dataclass
from itertools import combinations, permutations
from typing import Any

import numpy as np
import pandas as pd

from irtcat._common.checks import (
    argument_error,
    check_choice,
    check_count,
    check_interval,
    is_number,
)
from irtcat._common.types import FloatArray
from irtcat.agreement.corrections import CORRECTIONS, adjust
from irtcat.agreement.inputs import is_constant, number_pairs
from irtcat.agreement.resampling import bootstrap_interval


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
    variance for ties after that; Spearman's is that of t, or exact for a perfect correlation. The
    interval is the percentile interval of resampled pairs.

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
        p_value=_p_value(method, first, second),
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


def _p_value(method: str, x: FloatArray, y: FloatArray) -> float:
    """Two-sided p-value of no association between two checked lists that are not constant."""
    from scipy.stats import kendalltau, rankdata
    from scipy.stats import t as student

    n = len(x)
    if method == "kendall":
        return _exact_kendall(x, y) if n <= MAX_ENUMERATED else float(kendalltau(x, y).pvalue)
    if method == "spearman":
        x, y = rankdata(x), rankdata(y)
        if n <= MAX_ENUMERATED:
            y = y - y.mean()
            return _share_as_far(y[_orders(n)] @ (x - x.mean()))
    r = _correlation(x, y)
    if method == "spearman" and abs(r) > 1 - 1e-12:
        return _perfect_share(y)
    if abs(r) >= 1.0:
        return 0.0
    return float(2 * student.sf(abs(r) * np.sqrt((n - 2) / ((1 - r) * (1 + r))), n - 2))


@functools.cache
def _orders(n: int) -> np.ndarray:
    """All permutations of range(n), range(n) first; cached for the next pair of columns."""
    return np.array(list(permutations(range(n))))


def _share_as_far(sums: FloatArray) -> float:
    """Share of the sums, one for each order of y, that are at least as far from 0 as the first."""
    return float((np.abs(sums) >= abs(sums[0]) - 1e-9).mean())  # equal sums differ by rounding


def _perfect_share(y: FloatArray) -> float:
    """Share of the orders of y that correlate perfectly with x if one of them does.

    Those that differ within ties are the same, and the reverse is another one where the sizes of
    the ties are symmetrical. t would be infinite: of ten pairs of which one of each list is 1 and
    the others 0, the 1 meets the other one in a tenth of all orders.
    """
    from scipy.special import gammaln  # slow to import

    sizes = np.unique(y, return_counts=True)[1]
    share = np.exp(gammaln(sizes + 1).sum() - gammaln(len(y) + 1))
    return float(share * (2 if (sizes == sizes[::-1]).all() else 1))


def _exact_kendall(x: FloatArray, y: FloatArray) -> float:
    """Share of the orders of y whose |C - D| (concordant, discordant) is at least the observed."""
    upper = np.triu_indices(len(x), 1)
    signs = np.sign(x[upper[0]] - x[upper[1]])
    values = y[_orders(len(y))]
    return _share_as_far(np.sign(values[:, upper[0]] - values[:, upper[1]]) @ signs)


def _correlation(x: FloatArray, y: FloatArray) -> float:
    """Cosine of the centred vectors; NaN when one of them is constant."""
    if is_constant(x) or is_constant(y):  # centring may leave rounding noise
        return float("nan")
    x, y = x - x.mean(), y - y.mean()
    x, y = x / np.abs(x).max(), y / np.abs(y).max()  # so that no square underflows
    return float(np.clip(x @ y / np.sqrt((x @ x) * (y @ y)), -1.0, 1.0))


MIN_ROWS = 3
"""Two rows always correlate perfectly."""


@dataclass(frozen=True, eq=False)
class CorrelationMatrix:
    """Correlations of every two columns; frames with the columns' names in rows and columns.

    Attributes:
        values: correlations, 1 on the diagonal.
        p_values: unadjusted two-sided p-values, NaN on the diagonal.
        adjusted: p-values adjusted for multiple testing.
        n: number of pairs of values of each correlation.
        method: ``"kendall"``, ``"spearman"`` or ``"pearson"``.
        correction: how p-values were adjusted.
        alpha: adjusted p-values below it are significant.
    """

    values: pd.DataFrame
    p_values: pd.DataFrame
    adjusted: pd.DataFrame
    n: pd.DataFrame
    method: str
    correction: str
    alpha: float

    @property
    def significant(self) -> pd.DataFrame:
        """Where the adjusted p-value is below ``alpha``; True on the diagonal."""
        out = self.adjusted < self.alpha
        return out | np.eye(len(out), dtype=bool)

    def to_frame(self) -> pd.DataFrame:
        """A row per pair: first, second, correlation, p_value, adjusted, significant, n."""
        names = list(self.values.columns)
        first, second = np.triu_indices(len(names), 1)
        columns = {"correlation": self.values, "p_value": self.p_values, "adjusted": self.adjusted}
        columns |= {"significant": self.significant, "n": self.n}
        pairs = {"first": [names[i] for i in first], "second": [names[j] for j in second]}
        return pd.DataFrame(pairs | {k: v.to_numpy()[first, second] for k, v in columns.items()})


def correlation_matrix(
    data: Any,
    method: str = "pearson",
    *,
    correction: str = "holm",
    alpha: float = 0.05,
    names: Any = None,
) -> CorrelationMatrix:
    """Correlations of every two columns of a table, and which of them differ from 0.

    Each pair of columns uses the rows in which both have a value.

    Args:
        data: rows are subjects and columns scores: a frame, a matrix, or a dict of lists; NaN is
            missing.
        method: ``"kendall"`` (tau-b), ``"spearman"`` or ``"pearson"``; p-values as in
            `correlation_test`.
        correction: of the p-values of all pairs: ``"holm"``, ``"benjamini-hochberg"``
            (or ``"bh"``, for short) or ``"none"``.
        alpha: level of significance.
        names: of the columns, instead of the frame's.

    Returns:
        Correlations, p-values and numbers of rows.

    Raises:
        InputError: for fewer than 2 columns; and, naming the columns, if one is constant or two
            have fewer than 3 rows in common.

    Example:
        >>> scores = {"ability": [1, 2, 3, 4, 5], "accuracy": [2, 4, 5, 7, 9]}
        >>> scores["speed"] = [3, 1, 2, 5, 4]
        >>> result = correlation_matrix(scores, correction="none")
        >>> result.values.round(2)
                  ability  accuracy  speed
        ability      1.00      0.99   0.60
        accuracy     0.99      1.00   0.59
        speed        0.60      0.59   1.00
        >>> result.significant.loc["ability"].tolist()
        [True, True, False]

    References:
        Lalor, Wu, Munkhdalai & Yu (2018), Figure 1; Holm (1979); Benjamini & Hochberg (1995).
    """
    check_choice("method", method, CORRELATIONS)
    check_choice("correction", correction, CORRECTIONS)
    check_interval("alpha", alpha)
    columns, labels = _columns(data, names)
    k = len(labels)
    values, p, n = np.eye(k), np.full((k, k), np.nan), np.zeros((k, k), dtype=int)
    np.fill_diagonal(n, (~np.isnan(columns)).sum(axis=0))
    for i, j in combinations(range(k), 2):
        x, y = _common(columns, labels, i, j)
        values[i, j] = values[j, i] = CORRELATIONS[method](x, y)
        p[i, j] = _p_value(method, x, y)
        n[i, j] = n[j, i] = len(x)
    adjusted = adjust(p, correction)  # upper triangle only: each test once
    index = pd.Index(labels, tupleize_cols=False)
    lower = np.tril_indices(k, -1)
    for matrix in (p, adjusted):
        matrix[lower] = matrix.T[lower]
    matrices = {"values": values, "p_values": p, "adjusted": adjusted, "n": n}
    frames = {name: pd.DataFrame(matrix, index, index) for name, matrix in matrices.items()}
    return CorrelationMatrix(**frames, method=method, correction=correction, alpha=alpha)


def _columns(data: Any, names: Any) -> tuple[FloatArray, list[Hashable]]:
    """The table as a matrix of float64, NaN where a value is missing, and the columns' names."""
    must = "a table of numbers with at least 2 columns"
    try:
        frame = data if isinstance(data, pd.DataFrame) else pd.DataFrame(data)
        matrix = frame.to_numpy(dtype=np.float64, na_value=np.nan)
    except (TypeError, ValueError):
        raise argument_error("data", must, data) from None
    if matrix.shape[1] < 2:
        raise argument_error("data", must, f"a table of shape {matrix.shape}")
    labels = list(frame.columns) if names is None else list(names)
    if len(labels) != matrix.shape[1] or len(set(labels)) < len(labels):
        argument = "data" if names is None else "names"
        got = f"{len(labels)}, {len(set(labels))} of them distinct"
        raise argument_error(argument, f"{matrix.shape[1]} columns with distinct names", got)
    for name, values in zip(labels, matrix.T, strict=True):
        present = values[~np.isnan(values)]
        if np.isinf(present).any():
            raise argument_error("data", "finite numbers", f"an infinite one in column {name!r}")
        if len(present) and is_constant(present):
            got = f"{present[0]:g} throughout in column {name!r}"
            raise argument_error("data", "columns that vary", got)
    return matrix, labels


def _common(
    columns: FloatArray, labels: list[Hashable], i: int, j: int
) -> tuple[FloatArray, FloatArray]:
    """The values of two columns in the rows where neither is missing."""
    both = ~np.isnan(columns[:, [i, j]]).any(axis=1)
    x, y = columns[both, i], columns[both, j]
    pair = f"in columns {labels[i]!r} and {labels[j]!r}"
    if len(x) < MIN_ROWS:
        raise argument_error("data", f"{MIN_ROWS} or more rows with values", f"{len(x)} {pair}")
    if is_constant(x) or is_constant(y):
        must = "columns that vary over the rows they have in common"
        raise argument_error("data", must, f"a constant one {pair}")
    return x, y
