"""Estimators that trust the choice of items and no model: raw and weighted means."""

import numpy as np
from scipy.special import ndtri

from irtcat._types import FloatArray
from irtcat.prediction._task import Estimate, Task

__all__ = ["predict_mean", "predict_weighted", "wilson_interval"]


def predict_mean(task: Task) -> Estimate:
    """Raw mean of the answers, ``sum_j x_j / m``; Wilson interval for m of N items drawn.

    Where items weigh differently in the score (``weights=`` of `irtcat.predict`) they do here.
    """
    return _weighted_mean(task, task.weights_of_chosen * task.n_items)


def predict_weighted(task: Task) -> Estimate:
    """Mean of the answers with the subset's weights, ``sum_j w_j x_j / sum_j w_j``.

    The interval is Wilson's for ``(sum w)^2 / sum w^2`` items, which equal weights would make m.
    """
    return _weighted_mean(task, task.weights * task.weights_of_chosen * task.n_items)


def _weighted_mean(task: Task, weights: FloatArray) -> Estimate:
    """Weighted mean of the observed answers; weights are shared out anew over gaps."""
    seen = ~np.isnan(task.x)
    total = seen @ weights
    usable = total > 0
    mean = np.full(len(total), np.nan)  # also where no answered item counts in the score
    np.divide(np.where(seen, task.x, 0) @ weights, total, out=mean, where=usable)
    mean = np.clip(mean, 0, 1)  # weights of 1/3 may sum to more than 1 by rounding
    effective = np.zeros(len(total))
    np.divide(total**2, seen @ weights**2, out=effective, where=usable)
    counts = task.item_weights > 0  # of a group's score the group is the population
    n_seen = seen[:, counts[task.chosen]].sum(axis=1)
    n = _corrected_size(effective, n_seen, int(counts.sum()))
    lower, upper = wilson_interval(mean, n, task.level)
    return Estimate(mean, lower, upper, task.note_of_design())


def _corrected_size(effective: FloatArray, n_seen: np.ndarray, n_items: int) -> FloatArray:
    """Sample size that, with replacement, would leave the variance of drawing without.

    ``n (N - 1) / (N - m)``: infinite when all N items were run, for then nothing is unknown.
    """
    size = np.full(len(effective), np.inf)
    np.divide(effective * (n_items - 1), n_items - n_seen, out=size, where=n_seen < n_items)
    return size


def wilson_interval(
    share: FloatArray, n: FloatArray, level: float
) -> tuple[FloatArray, FloatArray]:
    """Wilson's score interval of a proportion.

    ``(p + z^2/2n +- z sqrt(p (1 - p)/n + z^2/4n^2)) / (1 + z^2/n)``. For fractional responses it
    is too wide, if anything: no variable on [0, 1] has a greater variance than p (1 - p).

    Args:
        share: observed shares, 0 to 1; NaN gives NaN.
        n: sample sizes, above 0; may be infinite, or fractional after corrections.
        level: probability of the interval, in (0, 1).

    Returns:
        Lower and upper ends, in [0, 1].

    Example:
        >>> lower, upper = wilson_interval(np.array([0.5]), np.array([30.0]), 0.95)
        >>> lower.round(3).tolist(), upper.round(3).tolist()
        ([0.332], [0.668])

    References:
        Wilson (1927), JASA 22, 209-212; Cochran (1977), Sampling Techniques, section 2.6 (finite
        population correction); Kish (1965), Survey Sampling, section 11.7 (effective size).
    """
    z = ndtri(0.5 + level / 2)
    with np.errstate(divide="ignore", invalid="ignore"):
        extra = z**2 / n
        centre = (share + extra / 2) / (1 + extra)
        half = np.sqrt(extra * share * (1 - share) + extra**2 / 4) / (1 + extra)
    return np.clip(centre - half, 0, 1), np.clip(centre + half, 0, 1)
