"""Bootstrap intervals of any statistic of sampled rows.

The same resamples and intervals as those of `scipy.stats.bootstrap`, which returns NaN where the
statistic is not defined in a resample, or is the same in all.
"""

from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import pandas as pd

from irtcat._checks import InputError, argument_error, check_choice, check_count, check_interval
from irtcat._types import FloatArray, IntArray

__all__ = ["BootstrapInterval", "bootstrap_interval"]


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
    rows = [_rows(values) for values in data]
    n = {len(values) for values in rows}
    if len(n) != 1 or min(n) < 2:
        must = "lists of the same length, of at least 2 rows"
        raise argument_error("data", must, [len(values) for values in rows])
    size = n.pop()
    value = float(statistic(*data))
    if np.isnan(value):
        raise InputError("The statistic is not defined (NaN) for these data.")
    rng = np.random.default_rng(seed)
    draws = (rng.integers(size, size=size) for _ in range(resamples))
    estimates = np.array([_evaluate(statistic, rows, draw) for draw in draws])
    defined = estimates[~np.isnan(estimates)]
    if len(defined) < 2:
        raise InputError("The statistic is not defined in the resamples: the data vary too little.")
    tails = np.array([0.5 - level / 2, 0.5 + level / 2])
    if method == "bca":
        jackknife = [_evaluate(statistic, rows, np.delete(np.arange(size), i)) for i in range(size)]
        tails = _bca_tails(tails, value, defined, np.array(jackknife))
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
