"""Where the difficulty of an item is determined, and the difficulty to rank items by.

The difficulty ``b = -intercept / slope`` of an item whose slope may be 0 can be any number.
Whatever ranks items then uses the share of right answers in its place.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from irtcat._types import BoolArray, FloatArray

__all__ = [
    "FARTHEST",
    "Ranking",
    "determined_items",
    "printed",
    "rank_items",
    "usual_errors",
    "weights_of",
]

FARTHEST = 8.0
"""SDs from the population's mean beyond which a difficulty that is not determined is not printed,
and beyond which an item without a standard error of its slope has no determined difficulty."""

NORMAL_975 = 1.959963984540054
"""The 97.5 % quantile of the standard Normal: intervals have 95 %."""

NODES, WEIGHTS = np.polynomial.hermite_e.hermegauss(41)
WEIGHTS = WEIGHTS / WEIGHTS.sum()
GRID = 2001
MOST_LOGIT = 20.0
"""Shares of right answers are distinguished up to this logit."""

PAIRS = (("a", "b"), ("mdisc", "mdiff"))
"""Names of slope and difficulty, in one and in several dimensions."""


class Ranking(NamedTuple):
    """Difficulties to rank items by.

    Attributes:
        b: the difficulty; NaN where it is neither determined nor replaced nor finite.
        a: the slope that goes with it.
        se_b: its standard error; NaN where unknown.
        by_share: whether b comes from the share of right answers.
    """

    b: FloatArray
    a: FloatArray
    se_b: FloatArray
    by_share: BoolArray


def determined_items(
    values: Mapping[str, FloatArray],
    errors: Mapping[str, FloatArray],
    mean: float,
    sd: float,
    fixed_slopes: bool,
) -> BoolArray:
    """Whether each item's difficulty is determined; see `irtcat.ItemBank.determined`.

    Args:
        values: the published parameters by name.
        errors: their standard errors.
        mean: mean ability of the population.
        sd: its standard deviation.
        fixed_slopes: whether the model has no slopes to estimate (Rasch).

    Example:
        >>> values = {"a": np.array([1.0, 0.2, 1.0, -1.0]), "b": np.array([0.5, 3.0, 9.0, 0.0])}
        >>> errors = {"a": np.array([0.2, 0.2, np.nan, 0.1])}
        >>> determined_items(values, errors, 0.0, 1.0, fixed_slopes=False).tolist()
        [True, False, False, False]
    """
    pair = next(((x, y) for x, y in PAIRS if x in values and y in values), None)
    if pair is None:
        return np.zeros(len(next(iter(values.values()))), bool)
    a, b = (np.asarray(values[name], float) for name in pair)
    defined = np.isfinite(b) & (a > 0)
    if fixed_slopes:
        return defined
    error = np.asarray(errors.get(pair[0], np.full(len(a), np.nan)), float)
    near = ~_far(b, mean, sd)
    return defined & np.where(np.isnan(error), near, a - NORMAL_975 * np.nan_to_num(error) > 0)


def printed(
    values: Mapping[str, FloatArray],
    errors: Mapping[str, FloatArray],
    mean: float,
    sd: float,
    fixed_slopes: bool,
) -> tuple[dict[str, FloatArray], dict[str, FloatArray]]:
    """Values and errors without the far difficulties and thresholds that are not determined.

    Args:
        values: the published parameters by name.
        errors: their standard errors.
        mean: mean ability of the population.
        sd: its standard deviation.
        fixed_slopes: whether the model has no slopes to estimate (Rasch).
    """
    unsure = ~determined_items(values, errors, mean, sd, fixed_slopes)
    shown, shown_errors = dict(values), dict(errors)
    if not unsure.any():
        return shown, shown_errors
    for name in values:
        if name == "mdiff" or (name[:1] == "b" and name[1:].isdigit() | (name == "b")):
            hidden = unsure & _far(np.asarray(values[name], float), mean, sd)
            for table in (shown, shown_errors):
                if name in table and hidden.any():
                    table[name] = np.where(hidden, np.nan, table[name])
    return shown, shown_errors


def _far(b: FloatArray, mean: float, sd: float) -> BoolArray:
    """Whether difficulties are more than `FARTHEST` SDs from the mean."""
    return np.abs(b - mean) > FARTHEST * sd


def usual_errors(b: FloatArray, a: FloatArray, mean: Any, sd: Any) -> FloatArray:
    """Standard errors of difficulties up to a common factor, for items without known ones.

    Of a logistic item it is ``sqrt(1 + z^2) / |a|``, where z is the difficulty in SDs from the
    population's mean; infinite where the slope is 0.

    Example:
        >>> usual_errors(np.array([0.0, 3.0]), np.array([1.0, 0.1]), 0.0, 1.0).round(1).tolist()
        [1.0, 31.6]
    """
    with np.errstate(divide="ignore"):
        return np.sqrt(1 + ((b - mean) / sd) ** 2) / np.abs(a)


def weights_of(variance: FloatArray, usable: BoolArray) -> FloatArray:
    """Weights of differences between two difficulties: ``median v / (v + median v)``.

    The median is that of the usable ones; the others have weight 0. All usable ones have weight 1
    where the median is 0 (all are known) or infinite.

    Args:
        variance: v, the variance of each difference.
        usable: mask of the differences that may have a weight.

    Example:
        >>> weights_of(np.array([1.0, 1.0, 99.0, 1.0]), np.arange(4) < 3).tolist()
        [0.5, 0.5, 0.01, 0.0]
    """
    usual = np.median(variance[usable]) if usable.any() else 0.0
    if not (np.isfinite(usual) and usual > 0):
        return usable.astype(float)
    return np.where(usable, usual / (variance + usual), 0.0)


def rank_items(
    values: Mapping[str, FloatArray],
    errors: Mapping[str, FloatArray],
    statistics: pd.DataFrame,
    mean: float,
    sd: float,
    determined: BoolArray,
) -> Ranking:
    """Difficulties to rank items by: b where it is determined, else from the share right.

    The share p of right answers is mapped to the b at which a subject of the population is right
    with probability p on an item of typical slope: ``c + (d - c) E[sigmoid(a (theta - b))] = p``,
    with a, c and d the medians of the items whose difficulty is determined. Shares of 0 and 1 count
    as half an answer (of n) from there. An item without a recorded share keeps its b.

    Args:
        values: the published parameters a and b, perhaps c and d, by name.
        errors: their standard errors.
        statistics: of the items, with the columns ``proportion_correct`` and ``n_responses`` where
            they are recorded.
        mean: mean ability of the population.
        sd: its standard deviation.
        determined: whether each item's difficulty is determined.

    Example:
        >>> values = {"a": np.array([1.0, 1e-9, 1e-9]), "b": np.array([0.5, -1e9, 2e8])}
        >>> seen = pd.DataFrame({"proportion_correct": [0.4, 0.1, 0.9], "n_responses": 20})
        >>> known = np.array([True, False, False])
        >>> rank_items(values, {}, seen, 0.0, 1.0, known).b.round(2).tolist()
        [0.5, 2.56, -2.56]
    """
    b = np.array(values["b"], float)
    a = np.array(values.get("a", np.ones(len(b))), float)
    se = np.array(errors.get("b", np.full(len(b), np.nan)), float)
    share = np.full(len(b), np.nan)
    if "proportion_correct" in statistics:
        share = statistics["proportion_correct"].to_numpy(float)
    by_share = ~determined & np.isfinite(share)
    if not by_share.any():
        return Ranking(b, a, se, by_share)
    typical = determined if determined.any() else a > 0
    slope = _median(a[typical], 1.0)
    low, high = (
        _median(np.asarray(values[name], float)[typical], limit) if name in values else limit
        for name, limit in (("c", 0.0), ("d", 1.0))
    )
    n = np.full(len(b), np.inf)
    for name in ("n_responses", "n_trials"):
        if name in statistics:
            n = np.maximum(statistics[name].to_numpy(float), 1.0)
    margin = np.minimum(0.5 / n, 0.5)[by_share]
    right = np.clip((share[by_share] - low) / (high - low), margin, 1 - margin)
    edge = 1 / (1 + np.exp(MOST_LOGIT))
    right = np.clip(right, edge, 1 - edge)
    width = FARTHEST * sd + 2 * MOST_LOGIT / slope
    grid = np.linspace(mean - width, mean + width, GRID)
    curve = 1 / (1 + np.exp(-slope * (mean + sd * NODES - grid[:, None])))
    wrong = (1 / (1 + np.exp(slope * (mean + sd * NODES - grid[:, None])))) @ WEIGHTS
    logit = np.log(curve @ WEIGHTS) - np.log(wrong)
    b[by_share] = np.interp(-np.log(right / (1 - right)), -logit, grid)
    a[by_share] = slope
    # The binomial error of the logit, on the scale of b.
    counted = np.where(np.isfinite(n[by_share]), n[by_share], 1.0)
    se[by_share] = 1 / (slope * np.sqrt(counted * right * (1 - right)))
    return Ranking(b, a, se, by_share)


def _median(values: FloatArray, default: float) -> float:
    """The median of the finite values."""
    finite = values[np.isfinite(values)]
    return float(np.median(finite)) if len(finite) else default
