"""The default estimator: regression where a subject resembles the calibrated ones, else equating.

Two estimates of the full score are made. *Regression* (ridge on the answers) is the better one for
subjects like the calibrated ones, and collapses beyond them. *Equating* finds the point on the
items' `score_curves` at which the weighted mean of the answered items is what the subject got, and
reads the full score off the curves of all items: it asks only that easy items stay easier than
hard ones. How they are blended, and what errors are left, is learnt from the calibrated subjects
by cross-validation in which the items are chosen anew each time; how far a new subject is to be
taken for one of them is decided from its own answers.
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
"""The outer two tell how much the curves are to be trusted."""

GRID = np.linspace(-9, 9, 541)
FOLDS = 5
FEWEST_NEAR = 20
FEW_GAPS = 0.1
"""Share of the chosen items that a subject may leave out and still be judged with the others."""

LEAST_SUBJECTS = 8
MOST_SUBJECTS = 1500
"""Items are chosen anew in the cross-validation on so many calibrated subjects at most."""

PRIORS = (0.8, 0.65, 0.5, 0.35, 0.2, 0.1, 0.05, 0.02, 0.01, 0.003)
"""Prior probability of a subject beyond the calibrated range: the largest affordable one."""

AFFORDABLE, CHANCE = 1.03, 2.0
"""By so much it may raise the cross-validated error of subjects within, or by what may be chance:
two standard errors of the rise."""

AT_THE_WEAK_END = 0.1
"""Share of that prior for subjects among the weakest: new ones are seldom weaker than all."""

WIDER = 1.2, 2.0
"""Least and most by which sampling errors of strangers are taken to exceed those by formula."""

PSEUDO_SUBJECTS, ROUNDS, MOST_OUTSIDE = 10, 30, 0.85

ITEMS_AT_ONCE = 4096


class Parts(NamedTuple):
    """The two estimates of some subjects, and the sampling SD of the second."""

    regression: FloatArray
    equated: FloatArray
    sd: FloatArray


def predict_auto(task: Task) -> Estimate:
    """Blend of regression and equating; more of the latter the less a subject is like the others.

    With R the regression, E the equated score and w from the cross-validation, a subject that
    resembles the calibrated ones gets ``B = w R + (1 - w) E``. With q the posterior probability
    that it does not (`probability_outside`), the score is ``(1 - q) B + q E``, and the interval
    that of the mixture ``(1 - q) N(B, s_B) + q N(E, s_E)``: s_B from the cross-validated errors,
    s_E from the sampling of the items (made wider by what these errors exceed it) and from how
    much E depends on the slopes' prior. The column ``estimator`` says which part has the say, and
    the flags why it is equating.

    The cross-validation chooses the items anew with the subset's own strategy, where that needs
    only responses; for items that came about otherwise it takes them as chosen without
    regard to the calibrated subjects. A new subject that answered but a part of the items (its own,
    in an adaptive test) is judged by that part alone, and so is the quarter of the calibrated
    ones nearest to it. With fewer than 8 calibrated subjects the weighted
    mean is all there is.

    References:
        Saerndal, Swensson & Wretman (1992), Model Assisted Survey Sampling (what a sample tells
        without a model); Lord (1980), Applications of Item Response Theory, chapter 13 (true-score
        equating); Lei et al. (2018), JASA 113, 1094-1111 (conformal residuals).
    """
    return _estimate(task, pooled=False)


def predict_auto_pooled(task: Task) -> Estimate:
    """The same, with the share of strangers learnt from all new subjects (empirical Bayes).

    The prior of being outside is estimated by EM from the new subjects together, starting from
    that of "auto", which counts as ten subjects. Better where many new subjects are of one kind
    (all of a new generation, say); a subject's score then depends on whom it is predicted with.

    References:
        Efron (2010), Large-Scale Inference, chapter 2.
    """
    return _estimate(task, pooled=True)


def _pooled(new: Parts, told: Parts, prior: float, outside: FloatArray) -> FloatArray:
    """Probabilities of being outside under a prior that all new subjects share."""
    for _ in range(ROUNDS):
        total = PSEUDO_SUBJECTS * prior + outside.sum()
        share = min(MOST_OUTSIDE, float(total / (PSEUDO_SUBJECTS + len(outside))))
        outside = probability_outside(new, told, share)
    return outside


class Calibrated:
    """What the calibrated subjects tell whatever the new ones answered.

    They are put in an order of their own, by full score and then by a hash of the id, so that
    nothing hangs on the order of the calibration's rows; the folds are drawn by the hash.

    Attributes:
        order: their rows in the calibration.
        x: their scores on all items, gaps filled.
        y: their full scores.
        fold: the fold in which each is left out.
        curves: the items' curves, for each of `SLOPE_SDS`.
        inner: the curves without each fold.
        some: at most `MOST_SUBJECTS` of them, picked by the hash.
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
    """Both estimators of this module; subjects with gaps by the items that they answered."""
    if len(task.usable) < LEAST_SUBJECTS:
        simple = predict_weighted(task)
        how = np.full(len(task.x), "weighted mean", dtype=object)
        note = np.full(len(task.x), f"fewer than {LEAST_SUBJECTS} calibrated subjects", object)
        return simple._replace(flags=note, how=how)
    calibrated = Calibrated(task)
    seen = ~np.isnan(task.x)
    share = seen.mean(axis=1)
    own = (share > 0) & (share < 1 - FEW_GAPS)
    if not own.any():
        return _together(task, calibrated, pooled)
    parts, rows = [], []
    if not own.all():
        rows.append(np.flatnonzero(~own))
        parts.append(_together(_part(task, rows[0]), calibrated, pooled))
    for pattern, at in patterns(task.x[own]):
        rows.append(np.flatnonzero(own)[at])
        some = _part(task, rows[-1], np.flatnonzero(pattern))
        parts.append(_together(some, calibrated, pooled, own=True))
    order = np.argsort(np.concatenate(rows))
    return Estimate(*(np.concatenate(column)[order] for column in zip(*parts, strict=True)))


def _part(task: Task, rows: IntArray, items: IntArray | None = None) -> Task:
    """The same for some of the new subjects, and by some of the chosen items."""
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
    """The estimate of subjects who answered (all but) the same items.

    Items of a subject's ``own`` were chosen for its ability, and say less of other subjects.
    """
    x, y, t = calibrated.x, calibrated.y, task.item_weights
    curves = calibrated.curves
    each = [equate(c, task.chosen, task.weights, t, task.x) for c in curves]
    among = np.arange(len(y))
    if own:
        gap = np.abs(y - each[1][0].mean())
        among = np.argsort(gap, kind="stable")[: max(FEWEST_NEAR, len(y) // 4)]
    told, penalty, blend = _learn(task, calibrated, among)
    within = blend * told.regression + (1 - blend) * told.equated
    prior, mixed = _prior(told, within, y)
    equated, sd = each[1]
    spread = np.ptp([part[0] for part in each], axis=0) / 2
    at = logit(np.clip(equated, 0.005, 0.995))
    expected = curves[1](at, task.chosen).T
    answers = np.where(np.isnan(task.x), expected, task.x)
    regression = ridge_path(x[:, task.chosen], y, answers, PENALTIES[[penalty]])[0]
    new = Parts(regression, equated, sd)
    outside = probability_outside(new, told, prior)
    if pooled:
        outside = _pooled(new, told, prior, outside)
    inner = blend * regression + (1 - blend) * equated
    score = (1 - outside) * inner + outside * equated
    z = ndtri(0.5 + task.level / 2)
    errors = np.abs(mixed - y)[among]
    n = len(errors)
    near = float(np.quantile(errors, min(1.0, np.ceil((n + 1) * task.level) / n))) / z
    sampling = max(float(np.mean(told.sd[among] ** 2)), 1e-12)
    wider = np.sqrt(np.mean((told.equated - y)[among] ** 2) / sampling)
    far = np.maximum(np.sqrt((np.clip(wider, *WIDER) * sd) ** 2 + (spread / z) ** 2), near)
    lower, upper = mixture_interval(inner, near, equated, far, outside, task.level)
    how = np.where(outside > 0.5, "equating", "regression").astype(object)
    empty = np.isnan(task.x).all(axis=1)
    return Estimate(
        np.where(empty, np.nan, score),
        np.where(empty, np.nan, np.minimum(lower, score)),
        np.where(empty, np.nan, np.maximum(upper, score)),
        _reasons(regression, equated, told, outside),
        how,
    )


def _reasons(
    regression: FloatArray, equated: FloatArray, told: Parts, outside: FloatArray
) -> np.ndarray:
    """Why a subject is taken not to be like the calibrated ones."""
    reasons = np.full(len(outside), "", dtype=object)
    ends = told.regression.min(), told.regression.max()
    for row in np.flatnonzero(outside > 0.5):
        why = "answers unlike those of the calibrated subjects"
        if equated[row] > ends[1] or regression[row] > np.quantile(told.regression, 0.95):
            why = "among the best of the calibrated subjects or beyond"
        elif equated[row] < ends[0] or regression[row] < np.quantile(told.regression, 0.05):
            why = "among the weakest of the calibrated subjects or beyond"
        reasons[row] = why
    return reasons


def _learn(task: Task, calibrated: Calibrated, among: IntArray) -> tuple[Parts, int, float]:
    """Cross-validated estimates; the penalty (its number) and the blend best ``among`` some."""
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
    """The items, and their weights, that would have been chosen by these subjects."""
    if task.request is None:
        return task.chosen, task.weights
    try:
        subset = rechoose(task.request, task.calibration.subset(subjects=rows))
    except InputError:  # a filter or a quota that these fewer subjects do not meet
        return task.chosen, task.weights
    index = pd.Index(np.asarray(task.calibration.item_ids, dtype=str))
    return index.get_indexer(pd.Index(subset.item_ids)), subset.weights


def ridge_path(x: FloatArray, y: FloatArray, new: FloatArray, penalties: FloatArray) -> FloatArray:
    """Ridge predictions for every penalty, penalties x new rows.

    By the eigenvectors of x'x or xx', whichever is smaller: a fifth of the time of the singular
    value decomposition, which besides waits long for its threads where the cores are busy.
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
    """Full score at the point where the chosen items' mean is the subject's; its sampling SD.

    With ``g(t) = sum_S w_j p_j(t)`` and ``s(t) = sum_U t_j p_j(t)`` the score is ``s(t)`` at the t
    where g is the weighted mean of the answers, and its SD
    ``sqrt((1 - f) sum w_j^2 p_j (1 - p_j)) ds / dg`` with f the answered items' share of s. Means
    are kept a quarter of an answer from 0 and 1: nobody is known to be perfect.
    """
    p = curves(GRID, chosen)
    whole = np.zeros(len(GRID))
    for start in range(0, len(target), ITEMS_AT_ONCE):
        at = slice(start, start + ITEMS_AT_ONCE)
        whole += target[at] @ curves(GRID, at)
    score, sd = np.full(len(x), np.nan), np.full(len(x), np.nan)
    own = weights * target[chosen]
    for seen, rows in patterns(x):
        w = np.where(seen, own, 0.0)
        if w.sum() <= 0:
            w = np.where(seen, weights, 0.0)
        if w.sum() <= 0:
            continue
        w = w / w.sum()
        g = np.maximum.accumulate(w @ p) + 1e-10 * np.arange(len(GRID))
        size = 1 / (w**2).sum()
        raw = np.where(seen, x[rows], 0) @ w
        score[rows] = np.interp(np.clip(raw, 0.25 / size, 1 - 0.25 / size), g, whole)
        slope = np.clip(np.gradient(whole) / np.maximum(np.gradient(g), 1e-6), 0.2, 3)
        variance = (w**2) @ (p * (1 - p)) * max(1 - target[chosen][seen].sum() / target.sum(), 0)
        # At a mean pulled inwards a little: a sheet of right answers is not certain.
        sd[rows] = np.interp((raw * size + 0.5) / (size + 1), g, np.sqrt(variance) * slope)
    return score, sd


def probability_outside(new: Parts, told: Parts, prior: FloatArray | float) -> FloatArray:
    """Posterior probability that subjects do not resemble the calibrated ones.

    From two numbers: the share u of calibrated subjects beyond the regression in its nearer tail
    (doubled), and z, the difference E - R against that of the calibrated subjects nearby. A subject
    like them has u uniform and z ~ N(0, 1); one beyond their range (``prior``) has u ~ Beta(.3, 6)
    and z a half-normal of SD 4 outwards plus N(0, 1); an odd one (a tenth of the prior) has u
    uniform and z ~ N(0, 17). At the weak end a tenth of the prior is taken: what is new is mostly
    stronger, and every suspicion costs accuracy where it is wrong.
    """
    n = len(told.regression)
    order = np.sort(told.regression)
    above = (n - np.searchsorted(order, new.regression, "left") + 0.5) / (n + 1)
    below = (np.searchsorted(order, new.regression, "right") + 0.5) / (n + 1)
    u = np.minimum(2 * np.minimum(above, below), 1.0)
    prior = np.where(above < below, prior, AT_THE_WEAK_END * prior)
    centre, unit = _nearby(told, new.regression)
    z = (new.equated - new.regression - centre) / unit
    wide = np.sqrt(17.0)
    outwards = np.where(above < below, z, -z)
    like = np.exp(-0.5 * z**2) * (1 - 1.1 * prior)
    odd = np.exp(-0.5 * (z / wide) ** 2) / wide
    beyond = 2 * odd * expit(1.702 * outwards * 4 / wide) * u**-0.7 * (1 - u) ** 5 / 1.78
    strange = prior * (beyond + odd / 10)
    return strange / np.maximum(like + strange, 1e-300)


def _nearby(told: Parts, at: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Mean and SD of E - R among the tenth (12 at least) of calibrated subjects nearest in R."""
    order = np.argsort(told.regression, kind="stable")
    place = told.regression[order]
    gap = (told.equated - told.regression)[order]
    n = len(gap)
    m = min(n, max(12, n // 10))
    first, second = (np.concatenate([[0.0], np.cumsum(gap**power)]) for power in (1, 2))
    i = np.clip(np.searchsorted(place, at) - m // 2, 0, n - m)
    mean = (first[i + m] - first[i]) / m
    variance = np.maximum((second[i + m] - second[i]) / m - mean**2, 0)
    robust = 1.4826 * np.median(np.abs(gap - np.median(gap)))
    return mean, np.sqrt(0.5 * variance + 0.5 * robust**2) + 1e-6


def _prior(told: Parts, within: FloatArray, y: FloatArray) -> tuple[float, FloatArray]:
    """The largest prior of being outside that subjects within can afford; their scores."""
    plain = np.mean(np.abs(within - y))
    for prior in PRIORS:
        outside = probability_outside(told, told, prior)
        mixed = (1 - outside) * within + outside * told.equated
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
