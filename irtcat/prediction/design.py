"""Design-based estimators: raw and weighted means."""

import numpy as np

from irtcat._common.types import FloatArray
from irtcat.prediction.intervals import wilson_interval
from irtcat.prediction.result import Estimate
from irtcat.prediction.task import Task

LEAST_SUBJECTS = 8
"""With fewer calibrated subjects no estimator learns from them: five folds leave out one or two."""


def predict_mean(task: Task) -> Estimate:
    """Raw mean of the answers, ``sum_j x_j / m``; Wilson interval for m of N items drawn.

    Weights of items in the score (``weights=`` of `irtcat.predict`) are used here, too.
    """
    return _weighted_mean(task, task.weights_of_chosen * task.n_items)


def predict_weighted(task: Task) -> Estimate:
    """Mean of the answers with the subset's weights, ``sum_j w_j x_j / sum_j w_j``.

    The interval is Wilson's for ``(sum w)^2 / sum w^2`` items (m with equal weights).
    """
    return _weighted_mean(task, task.weights * task.weights_of_chosen * task.n_items)


def predict_for_few(task: Task) -> Estimate:
    """The weighted mean, flagged: the calibration has fewer than `LEAST_SUBJECTS`."""
    note = np.full(len(task.x), f"fewer than {LEAST_SUBJECTS} calibrated subjects", dtype=object)
    how = np.full(len(task.x), "weighted mean", dtype=object)
    return predict_weighted(task)._replace(flag=note, how=how)


def _weighted_mean(task: Task, weights: FloatArray) -> Estimate:
    """Weighted mean of the observed answers; weights are renormalised for missing ones."""
    is_observed = ~np.isnan(task.x)
    total = is_observed @ weights
    usable = total > 0
    mean = np.full(len(total), np.nan)  # also if no answered item has weight in the score
    np.divide(np.where(is_observed, task.x, 0) @ weights, total, out=mean, where=usable)
    mean = np.clip(mean, 0, 1)  # weights of 1/3 may sum to more than 1 by rounding
    effective = np.zeros(len(total))
    np.divide(total**2, is_observed @ weights**2, out=effective, where=usable)
    counts = task.item_weights > 0  # for a group's score the group is the population
    n_answered = is_observed[:, counts[task.chosen]].sum(axis=1)
    # A sample with replacement of the same variance; infinite if all items were run.
    n_items, n = int(counts.sum()), np.full(len(effective), np.inf)
    np.divide(effective * (n_items - 1), n_items - n_answered, out=n, where=n_answered < n_items)
    lower, upper = wilson_interval(mean, n, task.level)
    return Estimate(mean, lower, upper, task.note_of_design())
