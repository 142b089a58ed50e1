"""The default estimator: regression where a subject resembles the calibrated ones, else equating.

The estimator combines two estimates of the full score. *Regression* (ridge on the answers) is
better for subjects like the calibrated ones, and fails beyond them. *Equating* finds the point on
the item `score_curves` at which the weighted mean of the answered items equals the subject's, and
reads the full score from the curves of all items: it only assumes that easy items stay easier than
hard ones. The blend and the remaining errors are estimated from the calibrated subjects by
cross-validation in which the items are chosen again in each fold; the answers of a new subject
decide how similar it is to the calibrated ones.
"""

from dataclasses import replace
from hashlib import blake2b
from typing import NamedTuple

import numpy as np
import pandas as pd
from scipy.special import expit, logit, ndtr, ndtri

from irtcat._checks import InputError
from irtcat._types import FloatArray, IntArray
from irtcat.prediction._task import Estimate, Task, filled_scores, patterns
from irtcat.prediction.design import predict_weighted
from irtcat.selection import rechoose
from irtcat.selection.curves import SLOPE_SD, ScoreCurves, score_curves

__all__ = ["equate", "predict_auto", "predict_auto_pooled"]

PENALTIES = np.geomspace(1e-2, 10**2.5, 19)
"""Ridge penalties, in units of subjects x mean variance of an answer."""

SLOPE_SDS = (0.25, SLOPE_SD, 1.0)
"""The outer two measure the sensitivity of the curves to the prior."""

GRID = np.linspace(-9, 9, 541)
FOLDS = 5
FEWEST_NEAR = 20
FEW_GAPS = 0.1
"""Share of the chosen items that may be missing for a subject to be estimated with the others."""

LEAST_SUBJECTS = 8
MOST_SUBJECTS = 1500
"""Maximum number of calibrated subjects on which items are chosen again in the cross-validation."""

PRIORS = (0.8, 0.65, 0.5, 0.35, 0.2, 0.1, 0.05, 0.02, 0.01, 0.003)
"""Candidate prior probabilities of an out-of-range subject: the largest affordable one is used."""

AFFORDABLE, CHANCE = 1.03, 2.0
"""Affordable: the cross-validated error of calibrated subjects rises by at most this factor, or by
at most two standard errors of the rise."""

AT_THE_WEAK_END = 0.1
"""Share of that prior for subjects among the weakest: new ones are seldom weaker than all."""

WIDER = 1.2, 2.0
"""Bounds on the ratio of the sampling errors of out-of-range subjects to those by formula."""

PSEUDO_SUBJECTS, ROUNDS, MOST_OUTSIDE = 10, 30, 0.85

ITEMS_AT_ONCE = 4096


class Parts(NamedTuple):
    """The two estimates of some subjects, and the sampling SD of the second."""

    regression: FloatArray
    equated: FloatArray
    sd: FloatArray


def predict_auto(task: Task) -> Estimate:
    """Blend of regression and equating, with more equating for subjects unlike the calibrated ones.

    With R the regression, E the equated score and w from the cross-validation, a subject like the
    calibrated ones gets ``B = w R + (1 - w) E``. With q the posterior probability that it is not
    (`probability_outside`), the score is ``(1 - q) B + q E``, and the interval that of the mixture
    ``(1 - q) N(B, s_B) + q N(E, s_E)``: s_B from the cross-validated errors, s_E from the sampling
    of the items (widened by the ratio of these errors to it) and from the sensitivity of E to the
    prior of the slopes. The column ``estimator`` has the dominant part, and the flags the reason
    for equating.

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
    return _estimate(task, pooled=False)


def predict_auto_pooled(task: Task) -> Estimate:
    """The same, with the out-of-range share estimated from all new subjects (empirical Bayes).

    The prior of being outside is estimated by EM from all new subjects, starting from that of
    "auto", which has the weight of ten subjects. It is better if many new subjects are of one kind
    (for example, a new generation); the score of a subject then depends on the other new subjects.

    References:
        Efron (2010), Large-Scale Inference, chapter 2.
    """
    return _estimate(task, pooled=True)


def _pooled(new: Parts, cross_validated: Parts, prior: float, outside: FloatArray) -> FloatArray:
    """Probabilities of being outside under a prior that all new subjects share."""
    for _ in range(ROUNDS):
        total = PSEUDO_SUBJECTS * prior + outside.sum()
        share = min(MOST_OUTSIDE, float(total / (PSEUDO_SUBJECTS + len(outside))))
        outside = probability_outside(new, cross_validated, share)
    return outside


class Calibrated:
    """Quantities of the calibrated subjects that do not depend on the new ones.

    The subjects are ordered by full score and then by a hash of the id, so that results do not
    depend on the order of the calibration's rows; the hash also assigns the folds.

    Attributes:
        order: their rows in the calibration.
        x: their scores on all items, imputed.
        y: their full scores.
        fold: the fold in which each is left out.
        curves: the item curves, for each of `SLOPE_SDS`.
        inner: the curves without each fold.
        some: at most `MOST_SUBJECTS` of them, selected by the hash.
    """

    def __init__(self, task: Task):
        ids = np.asarray(task.calibration.subject_ids, dtype=str)[task.usable]
        mixed = np.array(
            [blake2b(name.encode(), digest_size=8).hexdigest() for name in ids.tolist()]
        )
        order = np.lexsort((ids, mixed, np.round(task.targets, 12)))
        self.order = task.usable[order]
        self.x = filled_scores(task.calibration)[self.order]
        self.y = task.targets[order]
        drawn = np.lexsort((ids[order], mixed[order]))
        self.fold = np.argsort(drawn) % FOLDS
        self.some = np.sort(drawn[:MOST_SUBJECTS])
        self.curves = [score_curves(self.x, sd) for sd in SLOPE_SDS]
        self.inner = [score_curves(self.x[self.fold != f]) for f in range(FOLDS)]


def _estimate(task: Task, pooled: bool) -> Estimate:
    """Both estimators of this module; subjects with many missing answers are grouped by pattern."""
    if len(task.usable) < LEAST_SUBJECTS:
        simple = predict_weighted(task)
        how = np.full(len(task.x), "weighted mean", dtype=object)
        note = np.full(len(task.x), f"fewer than {LEAST_SUBJECTS} calibrated subjects", object)
        return simple._replace(flags=note, how=how)
    calibrated = Calibrated(task)
    is_observed = ~np.isnan(task.x)
    share = is_observed.mean(axis=1)
    incomplete = (share > 0) & (share < 1 - FEW_GAPS)
    if not incomplete.any():
        return _together(task, calibrated, pooled)
    estimates, rows = [], []
    if not incomplete.all():
        rows.append(np.flatnonzero(~incomplete))
        estimates.append(_together(_part(task, rows[0]), calibrated, pooled))
    for pattern, at in patterns(task.x[incomplete]):
        rows.append(np.flatnonzero(incomplete)[at])
        some = _part(task, rows[-1], np.flatnonzero(pattern))
        estimates.append(_together(some, calibrated, pooled, own=True))
    order = np.argsort(np.concatenate(rows))
    return Estimate(*(np.concatenate(column)[order] for column in zip(*estimates, strict=True)))


def _part(task: Task, rows: IntArray, items: IntArray | None = None) -> Task:
    """The task for some of the new subjects and some of the chosen items."""
    if items is None:
        return replace(task, answers=task.answers.subset(subjects=rows))
    weights = task.weights[items]
    weights = weights / weights.sum() if weights.sum() > 0 else np.full(len(items), 1 / len(items))
    return replace(
        task,
        answers=task.answers.subset(subjects=rows, items=items),
        weights=weights,
        probabilities=task.probabilities[items],
        request=None,
    )


def _together(task: Task, calibrated: Calibrated, pooled: bool, own: bool = False) -> Estimate:
    """The estimate for subjects who answered (nearly) the same items.

    With ``own`` the items were chosen for the subject's ability, and are less informative about
    others.
    """
    x, y, t = calibrated.x, calibrated.y, task.item_weights
    curves = calibrated.curves
    by_slope_sd = [equate(c, task.chosen, task.weights, t, task.x) for c in curves]
    among = np.arange(len(y))
    if own:
        gap = np.abs(y - by_slope_sd[1][0].mean())
        among = np.argsort(gap, kind="stable")[: max(FEWEST_NEAR, len(y) // 4)]
    cross_validated, penalty, blend = _learn(task, calibrated, among)
    within = blend * cross_validated.regression + (1 - blend) * cross_validated.equated
    prior, mixed = _prior(cross_validated, within, y)
    equated, sd = by_slope_sd[1]
    spread = np.ptp([part[0] for part in by_slope_sd], axis=0) / 2
    at = logit(np.clip(equated, 0.005, 0.995))
    expected = curves[1](at, task.chosen).T
    answers = np.where(np.isnan(task.x), expected, task.x)
    regression = ridge_path(x[:, task.chosen], y, answers, PENALTIES[[penalty]])[0]
    new = Parts(regression, equated, sd)
    outside = probability_outside(new, cross_validated, prior)
    if pooled:
        outside = _pooled(new, cross_validated, prior, outside)
    inner = blend * regression + (1 - blend) * equated
    score = (1 - outside) * inner + outside * equated
    z = ndtri(0.5 + task.level / 2)
    errors = np.abs(mixed - y)[among]
    n = len(errors)
    near = float(np.quantile(errors, min(1.0, np.ceil((n + 1) * task.level) / n))) / z
    sampling = max(float(np.mean(cross_validated.sd[among] ** 2)), 1e-12)
    wider = np.sqrt(np.mean((cross_validated.equated - y)[among] ** 2) / sampling)
    far = np.maximum(np.sqrt((np.clip(wider, *WIDER) * sd) ** 2 + (spread / z) ** 2), near)
    lower, upper = mixture_interval(inner, near, equated, far, outside, task.level)
    how = np.where(outside > 0.5, "equating", "regression").astype(object)
    empty = np.isnan(task.x).all(axis=1)
    return Estimate(
        np.where(empty, np.nan, score),
        np.where(empty, np.nan, np.minimum(lower, score)),
        np.where(empty, np.nan, np.maximum(upper, score)),
        _reasons(regression, equated, cross_validated, outside),
        how,
    )


def _reasons(
    regression: FloatArray, equated: FloatArray, cross_validated: Parts, outside: FloatArray
) -> np.ndarray:
    """The reason for classifying a subject as outside."""
    reasons = np.full(len(outside), "", dtype=object)
    ends = cross_validated.regression.min(), cross_validated.regression.max()
    for row in np.flatnonzero(outside > 0.5):
        reason = "answers unlike those of the calibrated subjects"
        if equated[row] > ends[1] or regression[row] > np.quantile(
            cross_validated.regression, 0.95
        ):
            reason = "among the best of the calibrated subjects or beyond"
        elif equated[row] < ends[0] or regression[row] < np.quantile(
            cross_validated.regression, 0.05
        ):
            reason = "among the weakest of the calibrated subjects or beyond"
        reasons[row] = reason
    return reasons


def _learn(task: Task, calibrated: Calibrated, among: IntArray) -> tuple[Parts, int, float]:
    """Cross-validated estimates, and the best penalty (its index) and blend ``among`` some."""
    x, y, fold = calibrated.x, calibrated.y, calibrated.fold
    path, equated, sd = np.zeros((len(PENALTIES), len(y))), np.zeros(len(y)), np.zeros(len(y))
    for f in range(FOLDS):
        out = fold == f
        inner = calibrated.some[~out[calibrated.some]]
        chosen, weights = _chosen_anew(task, calibrated.order[inner])
        path[:, out] = ridge_path(x[~out][:, chosen], y[~out], x[out][:, chosen], PENALTIES)
        equated[out], sd[out] = equate(
            calibrated.inner[f], chosen, weights, task.item_weights, x[out][:, chosen]
        )
    blends = np.linspace(0, 1, 21)
    off, out_by = path[:, among] - y[among], (equated - y)[among]
    loss = np.array([[np.mean((w * r + (1 - w) * out_by) ** 2) for w in blends] for r in off])
    penalty, at = np.unravel_index(loss.argmin(), loss.shape)
    return Parts(path[penalty], equated, sd), int(penalty), float(blends[at])


def _chosen_anew(task: Task, rows: IntArray) -> tuple[IntArray, FloatArray]:
    """The items, with weights, that the strategy chooses from the responses of these subjects."""
    if task.request is None:
        return task.chosen, task.weights
    try:
        subset = rechoose(task.request, task.calibration.subset(subjects=rows))
    except InputError:  # a filter or a quota that is infeasible for fewer subjects
        return task.chosen, task.weights
    index = pd.Index(np.asarray(task.calibration.item_ids, dtype=str))
    return index.get_indexer(pd.Index(subset.item_ids)), subset.weights


def ridge_path(x: FloatArray, y: FloatArray, new: FloatArray, penalties: FloatArray) -> FloatArray:
    """Ridge predictions for every penalty, penalties x new rows.

    Uses the eigenvectors of x'x or xx', whichever is smaller: a fifth of the time of the singular
    value decomposition, whose threads also wait long on busy cores.
    """
    centre = x.mean(axis=0, dtype=float)
    about, target = np.asarray(x, float) - centre, y - y.mean()
    wide = about.shape[1] > len(about)
    values, vectors = np.linalg.eigh(about @ about.T if wide else about.T @ about)
    scores = (new - centre) @ (about.T @ vectors if wide else vectors)
    inner = vectors.T @ (target if wide else about.T @ target)
    inner[values <= 1e-12 * max(values[-1], 1.0)] = 0.0
    unit = len(x) * about.var(axis=0).mean() + 1e-12
    return np.array([y.mean() + scores @ (inner / (values + p * unit)) for p in penalties])


def equate(
    curves: ScoreCurves, chosen: IntArray, weights: FloatArray, target: FloatArray, x: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Full score at the point where the chosen items have the subject's mean, and its sampling SD.

    With ``g(t) = sum_S w_j p_j(t)`` and ``s(t) = sum_U t_j p_j(t)`` the score is ``s(t)`` at the t
    where g is the weighted mean of the answers, and its SD
    ``sqrt((1 - f) sum w_j^2 p_j (1 - p_j)) ds / dg`` with f the share of s on the answered items.
    Means are kept a quarter of an answer from 0 and 1, since no subject is known to be perfect.
    """
    p = curves(GRID, chosen)
    full_score = np.zeros(len(GRID))
    for start in range(0, len(target), ITEMS_AT_ONCE):
        at = slice(start, start + ITEMS_AT_ONCE)
        full_score += target[at] @ curves(GRID, at)
    score, sd = np.full(len(x), np.nan), np.full(len(x), np.nan)
    score_weights = weights * target[chosen]
    for is_observed, rows in patterns(x):
        w = np.where(is_observed, score_weights, 0.0)
        if w.sum() <= 0:
            w = np.where(is_observed, weights, 0.0)
        if w.sum() <= 0:
            continue
        w = w / w.sum()
        g = np.maximum.accumulate(w @ p) + 1e-10 * np.arange(len(GRID))
        size = 1 / (w**2).sum()
        raw = np.where(is_observed, x[rows], 0) @ w
        score[rows] = np.interp(np.clip(raw, 0.25 / size, 1 - 0.25 / size), g, full_score)
        slope = np.clip(np.gradient(full_score) / np.maximum(np.gradient(g), 1e-6), 0.2, 3)
        variance = (
            (w**2) @ (p * (1 - p)) * max(1 - target[chosen][is_observed].sum() / target.sum(), 0)
        )
        # At a mean shrunk inwards a little: all answers right does not imply certainty.
        sd[rows] = np.interp((raw * size + 0.5) / (size + 1), g, np.sqrt(variance) * slope)
    return score, sd


def probability_outside(
    new: Parts, cross_validated: Parts, prior: FloatArray | float
) -> FloatArray:
    """Posterior probability that subjects are unlike the calibrated ones.

    It uses two statistics: the share u of calibrated subjects beyond the regression in its nearer
    tail (doubled), and z, the difference E - R standardised by the calibrated subjects nearby. A
    subject like them has u uniform and z ~ N(0, 1); one beyond their range (``prior``) has u ~
    Beta(.3, 6) and z a half-normal of SD 4 outwards plus N(0, 1); an odd one (a tenth of the prior)
    has u uniform and z ~ N(0, 17). At the weak end a tenth of the prior is used: new subjects are
    mostly stronger, and a false alarm costs accuracy.
    """
    n = len(cross_validated.regression)
    order = np.sort(cross_validated.regression)
    above = (n - np.searchsorted(order, new.regression, "left") + 0.5) / (n + 1)
    below = (np.searchsorted(order, new.regression, "right") + 0.5) / (n + 1)
    u = np.minimum(2 * np.minimum(above, below), 1.0)
    prior = np.where(above < below, prior, AT_THE_WEAK_END * prior)
    centre, unit = _nearby(cross_validated, new.regression)
    z = (new.equated - new.regression - centre) / unit
    wide = np.sqrt(17.0)
    outwards = np.where(above < below, z, -z)
    like = np.exp(-0.5 * z**2) * (1 - 1.1 * prior)
    odd = np.exp(-0.5 * (z / wide) ** 2) / wide
    beyond = 2 * odd * expit(1.702 * outwards * 4 / wide) * u**-0.7 * (1 - u) ** 5 / 1.78
    strange = prior * (beyond + odd / 10)
    return strange / np.maximum(like + strange, 1e-300)


def _nearby(cross_validated: Parts, at: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Mean and SD of E - R among the tenth (12 at least) of calibrated subjects nearest in R."""
    order = np.argsort(cross_validated.regression, kind="stable")
    sorted_regression = cross_validated.regression[order]
    gap = (cross_validated.equated - cross_validated.regression)[order]
    n = len(gap)
    m = min(n, max(12, n // 10))
    first, second = (np.concatenate([[0.0], np.cumsum(gap**power)]) for power in (1, 2))
    i = np.clip(np.searchsorted(sorted_regression, at) - m // 2, 0, n - m)
    mean = (first[i + m] - first[i]) / m
    variance = np.maximum((second[i + m] - second[i]) / m - mean**2, 0)
    robust = 1.4826 * np.median(np.abs(gap - np.median(gap)))
    return mean, np.sqrt(0.5 * variance + 0.5 * robust**2) + 1e-6


def _prior(cross_validated: Parts, within: FloatArray, y: FloatArray) -> tuple[float, FloatArray]:
    """The largest affordable prior of being outside, and the calibrated scores under it."""
    plain = np.mean(np.abs(within - y))
    for prior in PRIORS:
        outside = probability_outside(cross_validated, cross_validated, prior)
        mixed = (1 - outside) * within + outside * cross_validated.equated
        rise = np.abs(mixed - y) - np.abs(within - y)
        chance = CHANCE * rise.std() / np.sqrt(len(y))
        if rise.mean() <= max((AFFORDABLE - 1) * plain, chance):
            break
    return prior, mixed


def mixture_interval(
    mean: FloatArray,
    sd: FloatArray | float,
    other: FloatArray,
    other_sd: FloatArray,
    share: FloatArray,
    level: float,
) -> tuple[FloatArray, FloatArray]:
    """Equal-tailed interval of ``(1 - share) N(mean, sd) + share N(other, other_sd)``."""
    ends = []
    sd, other_sd = np.maximum(sd, 1e-9), np.maximum(other_sd, 1e-9)
    for probability in ((1 - level) / 2, (1 + level) / 2):
        low, high = np.full(len(mean), -2.0), np.full(len(mean), 3.0)
        for _ in range(40):
            middle = (low + high) / 2
            below = (1 - share) * ndtr((middle - mean) / sd)
            below = below + share * ndtr((middle - other) / other_sd) < probability
            low, high = np.where(below, middle, low), np.where(below, high, middle)
        ends.append((low + high) / 2)
    return ends[0], ends[1]
