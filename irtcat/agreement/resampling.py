"""Bootstrap intervals of any statistic of sampled rows.

The same resamples and intervals as those of `scipy.stats.bootstrap`, which returns NaN where the
statistic is not defined in a resample, or is the same in all.
"""

import copy
from collections.abc import Callable, Iterator
from concurrent.futures import Executor
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from irtcat._common.checks import (
    InputError,
    argument_error,
    check_choice,
    check_count,
    check_interval,
)
from irtcat._common.executors import check_executor, in_order
from irtcat._common.types import FloatArray, IntArray

AT_ONCE = 50
"""Evaluations of the statistic in one task: 2,000 resamples are 40 tasks."""


@dataclass(frozen=True)
class BootstrapInterval:
    """A statistic with its bootstrap interval.

    Attributes:
        value: the statistic of the data.
        lower: lower end.
        upper: upper end.
        standard_error: standard deviation over resamples.
        level: probability of the interval.
        resamples: resamples in which the statistic is defined.
        undefined: resamples left out because it is not defined (all drawn rows equal, say).
    """

    value: float
    lower: float
    upper: float
    standard_error: float
    level: float
    resamples: int
    undefined: int

    def to_frame(self) -> pd.DataFrame:
        """One row with all attributes."""
        return pd.DataFrame([asdict(self)])


def bootstrap_interval(
    statistic: Callable[..., float],
    *data: Any,
    level: float = 0.95,
    resamples: int = 2000,
    method: str = "percentile",
    seed: int = 0,
    executor: Executor | None = None,
) -> BootstrapInterval:
    """Interval of a statistic from resamples of the rows, with replacement.

    The rows (observations, units, subjects) are the sample; the lists are resampled together.
    ``"percentile"`` takes percentiles of the resampled statistic; ``"bca"`` corrects them for bias
    and skewness, at the cost of one more evaluation per row.

    Args:
        statistic: takes the data, returns a number; NaN or an `InputError` if it is not
            defined.
        data: lists, arrays or frames with the same number of rows: for a measure of this package
            its label lists, or a table of ratings with a row per unit.
        level: probability of the interval.
        resamples: number of resamples, at least 2.
        method: ``"percentile"`` or ``"bca"``.
        seed: random seed of the resamples.
        executor: evaluates the statistic, in parallel: any `concurrent.futures.Executor`; worth it
            if one evaluation takes milliseconds. The result is the same. By default the current
            process.

    Returns:
        The statistic, its interval and standard error. Resamples in which it is not defined are
        left out and counted.

    Raises:
        InputError: for data of different length or fewer than 2 rows; if the statistic is not
            defined for the data, or in fewer than 2 resamples; as the statistic.

    Example:
        >>> from irtcat.agreement import cohen_kappa
        >>> gold, system = ["E", "C", "E", "C"] * 10, ["E", "C", "C", "C"] * 10
        >>> result = bootstrap_interval(cohen_kappa, gold, system, resamples=200)
        >>> result.value, result.lower < 0.5 < result.upper
        (0.5, True)

    References:
        Efron & Tibshirani (1993), An Introduction to the Bootstrap, chapters 13 and 14.
    """
    check_interval("level", level)
    check_count("resamples", resamples, 2)
    check_count("seed", seed, 0)
    check_choice("method", method, ("percentile", "bca"))
    check_executor(executor)
    rows = [_rows(values) for values in data]
    n = {len(values) for values in rows}
    if len(n) != 1 or min(n) < 2:
        must = "lists of the same length, of at least 2 rows"
        raise argument_error("data", must, [len(values) for values in rows])
    size = n.pop()
    value = float(statistic(*data))
    if np.isnan(value):
        raise InputError("The statistic is not defined (NaN) for these data.")
    shared = _SharedDraws(statistic, rows, size)
    estimates = np.concatenate(
        in_order(_resampled, shared, _draws(resamples, size, seed), executor)
    )
    defined = estimates[~np.isnan(estimates)]
    if len(defined) < 2:
        raise InputError("The statistic is not defined in the resamples: the data vary too little.")
    tails = np.array([0.5 - level / 2, 0.5 + level / 2])
    if method == "bca":
        parts = [range(size)[i : i + AT_ONCE] for i in range(0, size, AT_ONCE)]
        jackknife = np.concatenate(in_order(_left_out, shared, parts, executor))
        tails = _bca_tails(tails, value, defined, jackknife)
    lower, upper = np.quantile(defined, tails)
    return BootstrapInterval(
        value=value,
        lower=float(lower),
        upper=float(upper),
        standard_error=float(defined.std(ddof=1)),
        level=level,
        resamples=len(defined),
        undefined=resamples - len(defined),
    )


def _rows(values: Any) -> Any:
    """Data that can be indexed by row."""
    if isinstance(values, (pd.Series, pd.DataFrame, np.ndarray)):
        if np.ndim(values) == 0:
            raise argument_error("data", "lists, arrays or frames", values)
        return values
    if isinstance(values, (str, bytes)) or not hasattr(values, "__len__"):
        raise argument_error("data", "lists, arrays or frames", values)
    return np.fromiter(values, dtype=object, count=len(values))


class _SharedDraws(NamedTuple):
    """What all evaluations share: the statistic, the data by row, and the number of rows."""

    statistic: Callable[..., float]
    rows: list[Any]
    size: int


def _draws(resamples: int, size: int, seed: int) -> Iterator[tuple[np.random.Generator, int]]:
    """Generators that draw consecutive resamples of one seed, with how many each draws."""
    rng = np.random.default_rng(seed)
    for first in range(0, resamples, AT_ONCE):
        n = min(AT_ONCE, resamples - first)
        yield copy.deepcopy(rng), n
        for _ in range(n):
            rng.integers(size, size=size)


def _resampled(shared: _SharedDraws, draws: tuple[np.random.Generator, int]) -> FloatArray:
    """The statistic of some resamples."""
    rng, n = draws
    resamples = (rng.integers(shared.size, size=shared.size) for _ in range(n))
    return np.array([_evaluate(shared.statistic, shared.rows, draw) for draw in resamples])


def _left_out(shared: _SharedDraws, left_out: range) -> FloatArray:
    """The statistic without one row, for some rows."""
    everything = np.arange(shared.size)
    draws = (np.delete(everything, row) for row in left_out)
    return np.array([_evaluate(shared.statistic, shared.rows, draw) for draw in draws])


def _evaluate(statistic: Callable[..., float], rows: list[Any], draw: IntArray) -> float:
    """The statistic of the drawn rows; NaN if it raises an `InputError`."""
    resample = [
        values.iloc[draw] if isinstance(values, (pd.Series, pd.DataFrame)) else values[draw]
        for values in rows
    ]
    try:
        return float(statistic(*resample))
    except InputError:
        return float("nan")


def _bca_tails(
    tails: FloatArray, value: float, estimates: FloatArray, jackknife: FloatArray
) -> FloatArray:
    """Tail probabilities of the BCa interval."""
    from scipy.special import ndtr, ndtri

    n = len(estimates)
    below = np.count_nonzero(estimates < value) + np.count_nonzero(estimates == value) / 2
    bias = ndtri(np.clip(below / n, 1 / (2 * n), 1 - 1 / (2 * n)))
    deviations = np.nanmean(jackknife) - jackknife[~np.isnan(jackknife)]
    spread = (deviations**2).sum()
    skew = (deviations**3).sum() / (6 * spread**1.5) if spread > 0 else 0.0
    z = bias + ndtri(tails)
    return np.asarray(ndtr(bias + z / (1 - skew * z)))
