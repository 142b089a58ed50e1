"""Scores with a guarantee: intervals that hold because the items were drawn, whatever the model is.

The items were drawn with known probabilities, so that the errors of any predictions on the drawn
items estimate their errors on all. See `irtcat.prediction.betting` for the formulas.
"""

import numpy as np
from scipy.special import logit, softmax

from irtcat._common.checks import argument_error, shorten
from irtcat._common.types import FloatArray, IntArray
from irtcat.prediction.betting import ASYMPTOTIC, FINITE, Draw, draw_of, intervals_of, tuning_terms
from irtcat.prediction.curves import GRID
from irtcat.prediction.regression import LEAST_SUBJECTS, predict_aipw
from irtcat.prediction.result import Estimate
from irtcat.prediction.task import Task, filled_scores
from irtcat.responses._matrix import row_blocks
from irtcat.selection.curves import SLOPE_MEAN, score_curves

NOTES = (
    "skipped items count as 0 in the lower end and as 1 in the upper end",
    "skipped items have their predictions, so that the interval is not design-based",
)
"""Flags of subjects who skipped items that were drawn, for the betting and the Normal interval."""


def predict_guaranteed(task: Task) -> Estimate:
    """Item curves corrected by their errors on the drawn items, with the betting interval.

    The items are those of adaptive sessions of `irtcat.cat.Config.guaranteed`, or of a simple
    random sample (the strategy "random" without constraints), in the order of the draws. Before
    each draw the item curves of the calibration and the answers so far predict all others (m), and

        Z_k = sum_drawn t_j x_j + sum_open t_j m_kj + t_J (x_J - m_kJ) / q_kJ

    is unbiased for any predictions. The score is a weighted mean of the Z_k, and the interval holds
    for every sample size (betting on bounded means). A missing answer counts as 0 in the lower end
    and as 1 in the upper one, so that the interval holds whatever it would have been; the score has
    the prediction in its place.

    Other samples with known probabilities ("neyman", "stratified") are not drawn one after
    another: they have the score and the asymptotic interval of "aipw".

    Raises:
        InputError: for items that were chosen, not drawn, or not from all items.

    References:
        Waudby-Smith & Ramdas (2023), JRSS B 86, 1-27, sections 4 and 5; Zrnic & Candes (2024),
        Active statistical inference, ICML; Robins, Rotnitzky & Zhao (1994), JASA 89, 846-866.
    """
    return _predicted(task, is_normal=False)


def predict_design_based(task: Task) -> Estimate:
    """The score of `predict_guaranteed` with a Normal interval, for a sample size fixed before.

    It is shorter than the betting interval. It is asymptotic, and does not hold for a session that
    ended because its interval was short enough.

    Raises:
        InputError: as `predict_guaranteed` does.

    References:
        Zrnic & Candes (2024), section 4; Saerndal, Swensson & Wretman (1992), section 6.5.
    """
    return _predicted(task, is_normal=True)


def _predicted(task: Task, is_normal: bool) -> Estimate:
    """Scores with the interval of either estimator."""
    draws = task.draws
    if draws is None:
        _check_sample(task)
        if not task.in_turn:
            return predict_aipw(task)._replace(how=task.note(ASYMPTOTIC))
        draws = sample_draws(task)
    score, lower, upper = intervals_of(draws, task.level).last(is_normal)
    is_skipped = np.nanmax(np.nan_to_num(draws.upper - draws.lower), axis=1) > 1e-9
    flag = np.where(is_skipped, NOTES[is_normal], "").astype(object)
    return Estimate(score, lower, upper, flag, task.note(ASYMPTOTIC if is_normal else FINITE))


def _check_sample(task: Task) -> None:
    """Raise unless every item had a known probability to be drawn."""
    if task.sampled:
        return
    got = f"items of the strategy {shorten(task.strategy)}" if task.strategy else "ids of items"
    must = "a sample of all items with known probabilities for an interval with a guarantee"
    advice = 'Draw one by irtcat.select(..., strategy="random") or "neyman".'
    raise argument_error("subset", must, got, advice)


class Predictor:
    """Predictions of answers by the item curves, from the answers before each draw.

    Args:
        x: scores of the calibrated subjects on all items.
    """

    def __init__(self, x: FloatArray):
        self.p = np.clip(score_curves(x, slope_mean=SLOPE_MEAN)(GRID), 1e-4, 1 - 1e-4)
        logits = logit(np.clip(x.mean(axis=1), 0.01, 0.99))
        # Wider than the calibrated scores, since new subjects may be out of their range.
        self.log_prior = -0.5 * ((GRID - logits.mean()) / (2 * logits.std() + 0.5)) ** 2

    def posteriors(self, items: IntArray, x: FloatArray) -> FloatArray:
        """Posteriors of the logit of the full score before each draw, draws x nodes.

        Args:
            items: the items in the order of the draws.
            x: the answers; NaN for missing ones.
        """
        p, answers = self.p[items], x[:, None]
        terms = np.nan_to_num(answers * np.log(p) + (1 - answers) * np.log1p(-p), nan=0.0)
        log_posterior = self.log_prior + np.cumsum(terms, axis=0) - terms
        return softmax(log_posterior, axis=1)


def sample_draws(task: Task) -> Draw:
    """The draws of a simple random sample, subjects x draws.

    The predictions are those of the item curves of the calibrated subjects (one half for all items
    with fewer than 8 of them), with the answers before the draw.
    """
    n_subjects, n_draws = task.x.shape
    predictor = None
    if len(task.usable) >= LEAST_SUBJECTS:
        predictor = Predictor(filled_scores(task.calibration)[task.usable].astype(float))
    drawn_at = np.full(task.n_items, n_draws)
    drawn_at[task.chosen] = np.arange(n_draws)
    out = [np.empty((n_subjects, n_draws)) for _ in Draw._fields]
    for row, x in enumerate(task.x):
        lower, upper = np.zeros((2, task.n_items))
        lower[task.chosen], upper[task.chosen] = np.nan_to_num(x, nan=0.0), np.nan_to_num(x, nan=1)
        raw = np.full(n_draws, 0.5)
        if predictor is not None:
            posteriors = predictor.posteriors(task.chosen, x)
            raw = (posteriors * predictor.p[task.chosen]).sum(axis=1)
        factor = task.weights_of_chosen * (task.n_items - np.arange(n_draws))
        terms = tuning_terms(factor, raw, np.where(np.isnan(x), raw, x), np.isfinite(x) * 1.0)
        tuning = np.cumsum(terms, axis=0) - terms
        for block in row_blocks((n_draws, task.n_items)):
            is_open = drawn_at >= np.arange(n_draws)[block, None]
            predicted = np.full(is_open.shape, 0.5)
            if predictor is not None:
                predicted = posteriors[block] @ predictor.p.T
            draws = draw_of(
                task.item_weights,
                predicted,
                is_open / is_open.sum(axis=1, keepdims=True),
                is_open,
                np.broadcast_to(lower, is_open.shape),
                np.broadcast_to(upper, is_open.shape),
                task.chosen[block],
                tuning[block],
            )
            for column, values in zip(out, draws, strict=True):
                column[row, block] = values
    return Draw(*out)
