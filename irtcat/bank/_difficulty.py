"""Where the difficulty of an item is determined, and the difficulty to rank items by.

The difficulty ``b = -intercept / slope`` of an item whose slope may be 0 can be any number.
Whatever ranks items then uses the share of right answers in its place, the recorded one or the one
that the parameters imply.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from irtcat._common.types import BoolArray, FloatArray

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


class Estimates(NamedTuple):
    """Published parameters of items, and the population that their difficulties refer to.

    Attributes:
        values: the parameters by name.
        errors: their standard errors.
        mean: mean ability of the population.
        sd: its standard deviation.
        fixed_slopes: whether the model has no slopes to estimate (Rasch).
    """

    values: Mapping[str, FloatArray]
    errors: Mapping[str, FloatArray]
    mean: float = 0.0
    sd: float = 1.0
    fixed_slopes: bool = False

    def is_far(self, name: str) -> BoolArray:
        """Whether difficulties or thresholds are more than `FARTHEST` SDs from the mean."""
        return np.abs(np.asarray(self.values[name], float) - self.mean) > FARTHEST * self.sd


class Ranking(NamedTuple):
    """Difficulties to rank items by.

    Attributes:
        b: the difficulty; NaN where it is neither determined nor replaced nor finite.
        a: the slope that goes with it.
        se_b: its standard error; NaN where unknown.
        by_share: whether b comes from the share of right answers, recorded or implied.
    """

    b: FloatArray
    a: FloatArray
    se_b: FloatArray
    by_share: BoolArray


def determined_items(items: Estimates) -> BoolArray:
    """Whether each item's difficulty is determined; see `irtcat.ItemBank.determined`.

    Example:
        >>> values = {"a": np.array([1.0, 0.2, 1.0, -1.0]), "b": np.array([0.5, 3.0, 9.0, 0.0])}
        >>> errors = {"a": np.array([0.2, 0.2, np.nan, 0.1])}
        >>> determined_items(Estimates(values, errors)).tolist()
        [True, False, False, False]
    """
    values, errors = items.values, items.errors
    pair = next(((x, y) for x, y in PAIRS if x in values and y in values), None)
    if pair is None:
        return np.zeros(len(next(iter(values.values()))), bool)
    a, b = (np.asarray(values[name], float) for name in pair)
    defined = np.isfinite(b) & (a > 0)
    if items.fixed_slopes:
        return defined
    error = np.asarray(errors.get(pair[0], np.full(len(a), np.nan)), float)
    near = ~items.is_far(pair[1])
    return defined & np.where(np.isnan(error), near, a - NORMAL_975 * np.nan_to_num(error) > 0)


def printed(items: Estimates) -> tuple[dict[str, FloatArray], dict[str, FloatArray]]:
    """Values and errors without the far difficulties and thresholds that are not determined."""
    unsure = ~determined_items(items)
    shown, shown_errors = dict(items.values), dict(items.errors)
    if not unsure.any():
        return shown, shown_errors
    for name in items.values:
        if name == "mdiff" or (name[:1] == "b" and name[1:].isdigit() | (name == "b")):
            hidden = unsure & items.is_far(name)
            for table in (shown, shown_errors):
                if name in table and hidden.any():
                    table[name] = np.where(hidden, np.nan, table[name])
    return shown, shown_errors


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


def rank_items(items: Estimates, statistics: pd.DataFrame) -> Ranking:
    """Difficulties to rank items by: b where it is determined, else from the share right.

    The share p of right answers is mapped to the b at which a subject of the population is right
    with probability p on an item of typical slope: ``c + (d - c) E[sigmoid(a (theta - b))] = p``,
    with a, c and d the medians of the items whose difficulty is determined. Shares of 0 and 1 count
    as half an answer (of n) from there. An item without a recorded share has the one that its
    parameters imply, ``E[sigmoid(a (theta - b))]``: it is determined even where b is not. Where
    that is not defined either, b is as it was.

    Args:
        items: with the parameters a and b, perhaps c and d.
        statistics: of the items, with the columns ``proportion_correct`` and ``n_responses`` where
            they are recorded.

    Example:
        >>> values = {"a": np.array([1.0, 1e-9, 1e-9]), "b": np.array([0.5, -1e9, 2e8])}
        >>> seen = pd.DataFrame({"proportion_correct": [0.4, 0.1, 0.9], "n_responses": 20})
        >>> rank_items(Estimates(values, {}), seen).b.round(2).tolist()
        [0.5, 2.56, -2.56]
    """
    values, errors, mean, sd, _ = items
    determined = determined_items(items)
    b = np.array(values["b"], float)
    a = np.array(values.get("a", np.ones(len(b))), float)
    se = np.array(errors.get("b", np.full(len(b), np.nan)), float)
    share = np.full(len(b), np.nan)
    if "proportion_correct" in statistics:
        share = statistics["proportion_correct"].to_numpy(float)
    recorded = ~determined & np.isfinite(share)
    implied = ~determined & ~recorded & np.isfinite(a * b)
    by_share = recorded | implied
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
    margin = np.minimum(0.5 / n, 0.5)[recorded]
    right = np.clip((share[recorded] - low) / (high - low), margin, 1 - margin)
    edge = 1 / (1 + np.exp(MOST_LOGIT))
    right = np.clip(right, edge, 1 - edge)
    logit = np.full(len(b), np.nan)
    logit[recorded] = np.log(right / (1 - right))
    logit[implied] = _share_logits(a[implied], b[implied], mean, sd)
    width = FARTHEST * sd + 2 * MOST_LOGIT / slope
    grid = np.linspace(mean - width, mean + width, GRID)
    curve = _share_logits(np.full(GRID, slope), grid, mean, sd)
    b[by_share] = np.interp(-logit[by_share], -curve, grid)
    a[by_share] = slope
    # The binomial error of the logit, on the scale of b: sqrt(1 / (n p (1 - p))).
    counted = np.where(np.isfinite(n), n, 1.0)[by_share]
    se[by_share] = 2 * np.cosh(logit[by_share] / 2) / (slope * np.sqrt(counted))
    return Ranking(b, a, se, by_share)


def _share_logits(a: FloatArray, b: FloatArray, mean: float, sd: float) -> FloatArray:
    """Log-odds of the share of the population that is right on each item, without asymptotes."""
    log_odds = a[:, None] * (mean + sd * NODES - b[:, None])
    # Of the shares right and wrong, each from its own curve: neither loses digits near 0.
    right, wrong = (
        np.logaddexp.reduce(np.log(WEIGHTS) - np.logaddexp(0.0, -sign * log_odds), axis=1)
        for sign in (1, -1)
    )
    return right - wrong


def _median(values: FloatArray, default: float) -> float:
    """The median of the finite values."""
    finite = values[np.isfinite(values)]
    return float(np.median(finite)) if len(finite) else default
