"""The default estimator: regression for subjects like the calibrated ones, equating for others.

Two estimates of a new subject's full score are combined.

- *Regression* R: ridge regression of the full score on the answers, fitted to the calibrated
  subjects. It is the better one for subjects like them, and fails beyond them.
- *Equating* E: the full score at which the curves of the answered items have the subject's mean
  (`irtcat.prediction._equating`). It assumes less, and also holds for stronger or weaker subjects.

How to combine them is learnt from the calibrated subjects, in four steps:

1. *Cross-validation.* Each calibrated subject gets an R and an E as if it were new, from the
   subjects outside its fold; the items, too, are chosen again without it.
2. *Blend.* The ridge penalty and the weight w of ``B = w R + (1 - w) E`` minimise the squared
   error of these cross-validated estimates. B is the score of a subject in range.
3. *Range.* The answers of a new subject give the probability q that it is out of range
   (`irtcat.prediction._out_of_range`). Its score is ``(1 - q) B + q E``.
4. *Interval.* That of the mixture ``(1 - q) N(B, s_B) + q N(E, s_E)``, with s_B from the
   cross-validated errors and s_E from the sampling of the items.
"""

from contextlib import suppress
from hashlib import blake2b
from typing import NamedTuple

import numpy as np
import pandas as pd
from scipy.special import logit, ndtri

from irtcat._checks import InputError
from irtcat._progress import Steps
from irtcat._types import FloatArray, IntArray
from irtcat.prediction._equating import Equating
from irtcat.prediction._flags import BEST, OTHER_ANSWERS, WEAKEST
from irtcat.prediction._intervals import conformal_quantile, mixture_interval
from irtcat.prediction._out_of_range import (
    Estimates,
    affordable_prior,
    probability_out_of_range,
    with_shared_prior,
)
from irtcat.prediction._task import FOLDS, Estimate, Task, filled_scores, patterns
from irtcat.prediction.design import LEAST_SUBJECTS, predict_for_few
from irtcat.prediction.regression import ridge_path
from irtcat.selection import Request, rechoose
from irtcat.selection.curves import EDGE, SLOPE_SD, score_curves

__all__ = ["predict_auto", "predict_auto_pooled"]

PENALTIES = np.geomspace(1e-2, 10**2.5, 19)
"""Ridge penalties, in units of subjects x mean variance of an answer: from no shrinkage to nearly
the mean of all subjects."""

BLENDS = np.linspace(0, 1, 21)
"""Weights of the regression."""

SLOPE_SDS = (0.25, SLOPE_SD, 1.0)
"""Priors of the curves' slopes. The middle one predicts; the others, half and twice as wide,
measure how far the equated score depends on it."""

FEW_MISSING = 0.1
"""Up to this share of missing answers a subject is estimated together with the complete ones: its
missing answers are replaced by their expectations, which is cheaper than a fit for its items."""

MOST_SUBJECTS = 1500
"""Maximum number of calibrated subjects on which items are chosen again in the cross-validation:
more would hardly change the choice, and five choices are most of the time."""

NEAREST, FEWEST_NEAREST = 0.25, 20
"""Share of the calibrated subjects, and their least number, that stand for a subject with items of
its own: they suit its ability, and say little about others."""

ERROR_RATIO = 1.2, 2.0
"""Bounds on the ratio of the errors of equating to its sampling SD. It is that of the calibrated
subjects; beyond them it is at least a little greater, and few subjects give it poorly."""


def predict_auto(task: Task) -> Estimate:
    """Blend of regression and equating, with more equating for subjects unlike the calibrated ones.

    See the module for the method. The column ``estimator`` has the dominant part, and the flags
    the reason for equating.

    The cross-validation chooses the items again with the strategy of the subset, if that needs only
    responses; other items are treated as chosen independently of the calibrated subjects. A new
    subject that answered only some of the items (for example in an adaptive test) is estimated from
    these items alone, with the nearest quarter of the calibrated subjects. With fewer than 8
    calibrated subjects the weighted mean is returned.

    References:
        Saerndal, Swensson & Wretman (1992), Model Assisted Survey Sampling (estimation without a
        model); Lord (1980), Applications of Item Response Theory, chapter 13 (true-score equating);
        Lei et al. (2018), JASA 113, 1094-1111 (conformal residuals).
    """
    return _predict(task, has_shared_prior=False)


def predict_auto_pooled(task: Task) -> Estimate:
    """The same, with the out-of-range share estimated from all new subjects (empirical Bayes).

    The prior of being out of range is estimated by EM from all new subjects, starting from that of
    "auto", which has the weight of ten subjects. It is better if many new subjects are of one kind
    (for example, a new generation); the score of a subject then depends on the other new subjects.

    References:
        Efron (2010), Large-Scale Inference, chapter 2.
    """
    return _predict(task, has_shared_prior=True)


class Calibrated:
    """The calibrated subjects, prepared for any items that new subjects may have answered.

    They are ordered by full score and then by a hash of the id, so that results do not depend on
    the order of the calibration's rows; the hash also assigns the folds.

    Attributes:
        rows: their rows in the calibration.
        x: their scores on all items, imputed.
        y: their full scores.
        fold: the fold in which each is left out.
        choosers: at most `MOST_SUBJECTS` of them, drawn by the hash, to choose items again.
        equating: equating by the curves of all of them, for each of `SLOPE_SDS`.
        equating_without: equating by the curves of those outside each fold.
    """

    def __init__(self, task: Task):
        ids = np.asarray(task.calibration.subject_ids, dtype=str)[task.usable]
        hashes = np.array([blake2b(i.encode(), digest_size=8).hexdigest() for i in ids.tolist()])
        order = np.lexsort((ids, hashes, np.round(task.targets, 12)))
        drawn = np.lexsort((ids[order], hashes[order]))
        self.rows, self.y = task.usable[order], task.targets[order]
        self.x = filled_scores(task.calibration)[self.rows]
        self.fold = np.argsort(drawn) % FOLDS
        self.choosers = np.sort(drawn[:MOST_SUBJECTS])
        self.equating, self.equating_without = [], []
        for sd in SLOPE_SDS:
            self.equating.append(Equating(score_curves(self.x, sd), task.item_weights))
        for fold in range(FOLDS):
            curves = score_curves(self.x[self.fold != fold])
            self.equating_without.append(Equating(curves, task.item_weights))


class Run(NamedTuple):
    """Subjects who answered (nearly) the same items.

    Attributes:
        x: their answers, subjects x items; NaN where missing.
        items: positions of the items in the calibration.
        weights: weight of each item; they sum to 1.
        request: how the items were chosen, or None if that cannot be repeated.
        is_tailored: whether the items were chosen for these subjects.
    """

    x: FloatArray
    items: IntArray
    weights: FloatArray
    request: Request | None
    is_tailored: bool = False


def _predict(task: Task, has_shared_prior: bool) -> Estimate:
    """Both estimators of this module: the new subjects by the items that they answered."""
    if len(task.usable) < LEAST_SUBJECTS:
        return predict_for_few(task)
    share = (~np.isnan(task.x)).mean(axis=1)
    is_partial = (share > 0) & (share < 1 - FEW_MISSING)
    complete, partial = np.flatnonzero(~is_partial), np.flatnonzero(is_partial)
    rows, runs = [complete], [Run(task.x[complete], task.chosen, task.weights, task.request)]
    for is_answered, at in patterns(task.x[partial]) if len(partial) else []:
        weights = task.weights[is_answered]
        if weights.sum() == 0:
            weights = np.ones(len(weights))
        rows.append(partial[at])
        x, items = task.x[np.ix_(rows[-1], is_answered)], task.chosen[is_answered]
        runs.append(Run(x, items, weights / weights.sum(), None, is_tailored=True))
    runs = [run for run in runs if len(run.x)]
    begin = Steps(task.progress, 1 + FOLDS * len(runs))
    begin("Item curves")
    calibrated = Calibrated(task)
    estimates = [_predict_run(task, calibrated, run, has_shared_prior, begin) for run in runs]
    order = np.argsort(np.concatenate(rows))
    return Estimate(*(np.concatenate(column)[order] for column in zip(*estimates, strict=True)))


def _predict_run(
    task: Task, calibrated: Calibrated, run: Run, has_shared_prior: bool, begin: Steps
) -> Estimate:
    """The estimate for subjects who answered (nearly) the same items: steps 1 to 4."""
    y, equate = calibrated.y, calibrated.equating[1]
    by_slope_sd = [equating(run.items, run.weights, run.x) for equating in calibrated.equating]
    equated, equated_sd = by_slope_sd[1]
    similar = np.arange(len(y))
    if run.is_tailored:
        nearest = np.argsort(np.abs(y - equated.mean()), kind="stable")
        similar = nearest[: max(FEWEST_NEAREST, int(len(y) * NEAREST))]
    # Steps 1 and 2, and the prior of step 3, from the calibrated subjects.
    held_out, penalty, w = _cross_validated(task, calibrated, run, similar, begin)
    held_out_blend = w * held_out.regression + (1 - w) * held_out.equated
    prior, held_out_score = affordable_prior(held_out, held_out_blend, y)

    # Steps 2 and 3 for the new subjects; missing answers are replaced by their expectations.
    expected = equate.curves(logit(np.clip(equated, EDGE, 1 - EDGE)), run.items).T
    answers = np.where(np.isnan(run.x), expected, run.x)
    regression = ridge_path(calibrated.x[:, run.items], y, answers, np.array([penalty]))[0]
    new = Estimates(regression, equated, equated_sd)
    probability = with_shared_prior if has_shared_prior else probability_out_of_range
    q = probability(new, held_out, prior)
    blend = w * regression + (1 - w) * equated
    score = (1 - q) * blend + q * equated

    # Step 4.
    z = ndtri(0.5 + task.level / 2)
    blend_sd = conformal_quantile(np.abs(held_out_score - y)[similar], task.level) / z
    by_formula = max(float(np.mean(held_out.equated_sd[similar] ** 2)), 1e-12)
    ratio = np.sqrt(np.mean((held_out.equated - y)[similar] ** 2) / by_formula)
    by_prior = np.ptp([scores for scores, _ in by_slope_sd], axis=0) / 2
    sampling_sd = np.clip(ratio, *ERROR_RATIO) * equated_sd
    outside_sd = np.maximum(np.sqrt(sampling_sd**2 + (by_prior / z) ** 2), blend_sd)
    lower, upper = mixture_interval(blend, blend_sd, equated, outside_sd, q, task.level)
    is_empty = np.isnan(run.x).all(axis=1)
    return Estimate(
        score=np.where(is_empty, np.nan, score),
        lower=np.where(is_empty, np.nan, np.minimum(lower, score)),
        upper=np.where(is_empty, np.nan, np.maximum(upper, score)),
        flags=_reasons(new, held_out, q),
        how=np.where(q > 0.5, "equating", "regression").astype(object),
    )


def _cross_validated(
    task: Task, calibrated: Calibrated, run: Run, similar: IntArray, begin: Steps
) -> tuple[Estimates, float, float]:
    """Estimates of the calibrated subjects as if they were new, from items chosen without them.

    Returns:
        The estimates, the ridge penalty and the weight of the regression in the blend. The last
        two minimise the squared errors of the ``similar`` subjects.
    """
    x, y = calibrated.x, calibrated.y
    path, equated, sd = np.zeros((len(PENALTIES), len(y))), np.zeros(len(y)), np.zeros(len(y))
    index = pd.Index(np.asarray(task.calibration.item_ids, dtype=str))
    for fold in range(FOLDS):
        begin(f"Fold {fold + 1} of {FOLDS} of the cross-validation")
        is_out, items, weights = calibrated.fold == fold, run.items, run.weights
        if run.request is not None:
            choosers = calibrated.choosers[~is_out[calibrated.choosers]]
            others = task.calibration.subset(subjects=calibrated.rows[choosers])
            with suppress(InputError):  # a filter or quota may be infeasible for fewer subjects
                subset = rechoose(run.request, others)
                items, weights = index.get_indexer(pd.Index(subset.item_ids)), subset.weights
        answers = x[np.ix_(is_out, items)]
        path[:, is_out] = ridge_path(x[np.ix_(~is_out, items)], y[~is_out], answers, PENALTIES)
        equated[is_out], sd[is_out] = calibrated.equating_without[fold](items, weights, answers)
    r, e, w = (path - y)[:, similar], (equated - y)[similar], BLENDS
    # Mean of (w r + (1 - w) e)^2 for all penalties (rows) and weights (columns).
    loss = np.outer((r**2).mean(axis=1), w**2) + (e**2).mean() * (1 - w) ** 2
    loss += 2 * np.outer((r * e).mean(axis=1), w * (1 - w))
    penalty, blend = np.unravel_index(loss.argmin(), loss.shape)
    return Estimates(path[penalty], equated, sd), float(PENALTIES[penalty]), float(BLENDS[blend])


def _reasons(new: Estimates, calibrated: Estimates, q: FloatArray) -> np.ndarray:
    """Why subjects are more likely out of range than not; empty for the others."""
    regression = calibrated.regression
    low, high = np.quantile(regression, [0.05, 0.95])
    is_best = (new.equated > regression.max()) | (new.regression > high)
    is_weakest = (new.equated < regression.min()) | (new.regression < low)
    reasons = np.select(
        [~(q > 0.5), is_best, is_weakest],
        ["", BEST, WEAKEST],
        OTHER_ANSWERS,
    )
    return reasons.astype(object)
