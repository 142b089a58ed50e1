"""Full scores of subjects with different items, predicted by the item curves and then corrected.

For adaptive tests, where a regression on the answers is not possible: each subject has different
items, chosen from its earlier answers. The correction comes from the errors of the same prediction
for calibrated subjects, whose full scores are known.
"""

from typing import NamedTuple

import numpy as np
from scipy.special import logit, ndtri

from irtcat._common.progress import Steps
from irtcat._common.types import FloatArray, IntArray
from irtcat.prediction.equating import TEMPER
from irtcat.prediction.intervals import conformal_quantile, mixture_interval, nearest_subjects
from irtcat.prediction.regression import LEAST_SUBJECTS, predict_for_few
from irtcat.prediction.result import FEW_SIMILAR, Estimate
from irtcat.prediction.task import FOLDS, Task, filled_scores
from irtcat.responses._matrix import patterns
from irtcat.selection.curves import score_curves

GRID = np.linspace(-7, 7, 211)
"""Logits of the full score, from .001 to .999."""

KERNEL_SDS, LEAST_WIDTH = 0.5, 0.01
"""Width of the kernel, in SDs of the curves' errors, and its least value."""

OUTSIDE_RATIOS = (1.0, 0.5, 0.3)
"""Candidates, in decreasing order: out-of-range subjects, uniform over all scores, that are assumed
for each calibrated one. The first affordable one is used."""

AFFORDABLE = 1.03
"""A ratio is affordable if the error of the calibrated subjects rises by this factor at most; the
estimator "auto" has the same limit."""

MISFIT = 0.05
"""SD of the full score of an out-of-range subject about the prediction of the curves, added
to that of the posterior: the curves assume that items keep their order of difficulty, which holds
only roughly."""

FEWEST_DRAWN = 3
"""With fewer drawn items the design-based estimate has no usable variance, and is left out."""


def predict_curves(task: Task) -> Estimate:
    """Posterior under the item score curves, corrected by the errors for similar subjects.

    With ``p_j(t)`` the items' `score_curves` and t ~ N(m, (2 s + .5)^2), m and s the mean and SD of
    the calibrated logit scores, the answers give t a posterior (each with weight .7), and

        E = sum_answered t_j x_j + sum_others t_j E[p_j(t) | answers].

    The curves extrapolate beyond the calibrated scores, but within them they are biased, above all
    on chosen items. So E_i is computed for each calibrated subject with the same items, by curves
    without its fold, and E is corrected by the errors of subjects with E_i near E. A new subject
    may differ from the calibrated ones: out-of-range subjects are assumed uniform over all scores.
    With k_i = exp(-(E - E_i)^2 / 2 h^2),

        score = E + sum k_i (y_i - E_i) / (sum k_i + L),    q = L / (sum k_i + L),

    where q is the probability of an out-of-range subject, near 0 among the calibrated subjects and
    1 beyond them. L is the largest number of out-of-range subjects that hardly increases the errors
    for the calibrated ones. The interval is that of the mixture of the two cases.

    If some items were drawn at random with known probabilities c_j (`Task.drawn`), their residuals
    estimate the error of the curves on the other items, for any subject:

        D = E + (1 - f) sum w_j (x_j - E[p_j]),    w_j = (1 / c_j) / sum 1 / c_j,

    where f is the answered share of the score. D is an observation of the full score with the
    sampling SD; it updates both cases, N(corrected E, s^2) for a subject like the calibrated ones
    and N(E, SD^2 + .05^2) for an out-of-range subject, and their probabilities.

    With fewer than 8 calibrated subjects the weighted mean is returned.

    References:
        Nadaraya (1964), Theory of Probability and its Applications 9, 141-142 (the kernel);
        Saerndal, Swensson & Wretman (1992), Model Assisted Survey Sampling, chapter 6 (D);
        Lord (1980), Applications of Item Response Theory, section 4.1.
    """
    if len(task.usable) < LEAST_SUBJECTS:
        return predict_for_few(task)
    x, by_pattern = task.x, patterns(task.x)
    begin = Steps(task.progress, 1 + FOLDS + len(by_pattern))
    calibrated = Calibrated(task, begin)
    drawn = np.full(x.shape, np.nan) if task.drawn is None else task.drawn
    scores, outside = np.full((3, len(x)), np.nan), np.zeros(len(x))
    for is_answered, rows in by_pattern:
        begin(f"Scores of {len(rows)} subjects with the same items")
        if is_answered.any():
            block = np.ix_(rows, is_answered)
            scores[:, rows], outside[rows] = _predict_pattern(
                calibrated, task.chosen[is_answered], x[block], drawn[block], task.level
            )
    unlike = np.where(outside > 0.5, FEW_SIMILAR, "").astype(object)
    how = np.where(outside > 0.5, "curves alone", "curves").astype(object)
    return Estimate(scores[0], scores[1], scores[2], how=how, unlike=unlike)


class CurvePrediction(NamedTuple):
    """Predictions of the curves: scores, SDs of their posteriors, expected answers."""

    score: FloatArray
    sd: FloatArray
    expected: FloatArray


class Case(NamedTuple):
    """Normal distributions of full scores: in one of the two cases, or of an observation of them.

    The two cases of a new subject are "like the calibrated subjects" and "out of range".
    """

    mean: FloatArray
    variance: FloatArray

    def updated_by(self, drawn: "Case") -> tuple["Case", FloatArray]:
        """Update by an observation, and the log-density of the observation (less a constant).

        An observation of infinite variance is none: it changes nothing, and its log-density is 0.
        """
        total = self.variance + drawn.variance
        deviation = np.where(np.isfinite(total), drawn.mean - self.mean, 0)
        share = self.variance / total
        with np.errstate(invalid="ignore"):
            log_density = np.where(
                np.isfinite(total), -0.5 * (deviation**2 / total + np.log(total)), 0.0
            )
        return Case(self.mean + share * deviation, self.variance * (1 - share)), log_density


class Curves:
    """The curves of all items on the grid, and predictions from answers.

    Args:
        x: scores of the subjects to fit to, on all items.
        item_weights: weight t of each item in the full score.
        prior: mean and SD of the logit of the full score.
    """

    def __init__(self, x: FloatArray, item_weights: FloatArray, prior: tuple[float, float]):
        self.p = np.clip(score_curves(x)(GRID), 1e-5, 1 - 1e-5)
        self.item_weights = item_weights
        self.full_score = item_weights @ self.p
        self.variance = item_weights**2 @ (self.p * (1 - self.p))
        self.log_prior = -0.5 * ((GRID - prior[0]) / prior[1]) ** 2

    def __call__(self, items: IntArray, x: FloatArray) -> CurvePrediction:
        """Predict from complete answers to these items."""
        p, t = self.p[items], self.item_weights[items]
        log_post = TEMPER * (x @ np.log(p) + (1 - x) @ np.log1p(-p)) + self.log_prior
        w = np.exp(log_post - log_post.max(axis=1, keepdims=True))
        w /= w.sum(axis=1, keepdims=True)
        rest = self.full_score - t @ p
        rest_variance = np.maximum(self.variance - t**2 @ (p * (1 - p)), 0)
        mean = w @ rest
        variance = np.maximum(w @ rest**2 - mean**2, 0) + w @ rest_variance
        return CurvePrediction(x @ t + mean, np.sqrt(variance), w @ p.T)


class Calibrated:
    """The calibrated subjects, prepared for any items that new subjects may have answered.

    Attributes:
        x: their scores on all items, imputed.
        y: their full scores.
        fold: the fold in which each is left out; assigned in turn along the full score.
        curves: curves fitted to all of them.
        curves_without: curves fitted to those outside each fold.
    """

    def __init__(self, task: Task, begin: Steps):
        y = task.targets
        # Ties are ordered by the answers, so that the order of the rows does not matter.
        x = filled_scores(task.calibration)[task.usable].astype(float)
        order = np.lexsort((np.round(x @ np.arange(x.shape[1]), 6), np.round(y, 12)))
        self.x, self.y = x[order], y[order]
        self.fold = np.arange(len(y)) % FOLDS
        t, logits = task.item_weights, logit(np.clip(self.y, 0.01, 0.99))
        # Wider than the calibrated scores, since new subjects may be out of their range.
        prior = float(logits.mean()), float(2 * logits.std() + 0.5)
        begin("Item curves of all calibrated subjects")
        self.curves, self.curves_without = Curves(self.x, t, prior), []
        for fold in range(FOLDS):
            begin(f"Item curves without fold {fold + 1} of {FOLDS}")
            self.curves_without.append(Curves(self.x[self.fold != fold], t, prior))


def _predict_pattern(
    calibrated: Calibrated, items: IntArray, x: FloatArray, drawn: FloatArray, level: float
) -> tuple[FloatArray, FloatArray]:
    """Predict the subjects that answered the same items (see `predict_curves` for the formulas).

    Args:
        calibrated: the calibrated subjects.
        items: positions of the answered items.
        x: answers of the new subjects to these items.
        drawn: probabilities with which the answered items were drawn; NaN if not at random.
        level: probability of the interval.

    Returns:
        Score, lower and upper end of the interval (3 x subjects), and the probabilities of being
        out of range.
    """
    y = calibrated.y
    held_out = np.empty(len(y))  # the E_i: predictions of calibrated subjects as if they were new
    for fold, curves in enumerate(calibrated.curves_without):
        is_out = calibrated.fold == fold
        held_out[is_out] = curves(items, calibrated.x[np.ix_(is_out, items)]).score
    errors = y - held_out
    h = max(LEAST_WIDTH, KERNEL_SDS * float(errors.std()))
    kernel = np.exp(-0.5 * ((held_out[:, None] - held_out) / h) ** 2)
    np.fill_diagonal(kernel, 0)  # each is corrected by the errors of the others
    total, correction = kernel.sum(axis=1), kernel @ errors
    # L = ratio * uniform_total: the sum of the kernel over as many subjects, uniform over scores.
    uniform_total = len(y) * h * np.sqrt(2 * np.pi)
    ratios = np.array(OUTSIDE_RATIOS)[:, None]
    corrected_errors = np.abs(errors - correction / (total + ratios * uniform_total))
    choice = _affordable(corrected_errors)

    new = calibrated.curves(items, x)
    kernel = np.exp(-0.5 * ((new.score[:, None] - held_out) / h) ** 2)
    total = kernel.sum(axis=1)
    corrected = new.score + kernel @ errors / np.maximum(total, 1e-12)
    half, sd = np.empty((2, len(x)))
    for row, score in enumerate(corrected):
        nearest = nearest_subjects(y, score)
        half[row] = conformal_quantile(corrected_errors[choice, nearest], level)
        sd[row] = np.sqrt(np.mean(corrected_errors[choice, nearest] ** 2))
    sample = _sampled(new, 1 - calibrated.curves.item_weights[items].sum(), x, drawn)
    similar, similar_log_density = Case(corrected, np.maximum(sd, 1e-6) ** 2).updated_by(sample)
    beyond, beyond_log_density = Case(new.score, new.sd**2 + MISFIT**2).updated_by(sample)
    # Bayes: the kernel sums of the two cases are their prior odds, the densities of D update them.
    outside_mass = OUTSIDE_RATIOS[choice] * uniform_total
    log_ratio = np.clip(beyond_log_density - similar_log_density, -50, 50)  # exp without overflow
    outside_mass = outside_mass * np.exp(log_ratio)
    outside = outside_mass / (total + outside_mass)
    score = (1 - outside) * similar.mean + outside * beyond.mean
    similar_sd = np.maximum(half, 1e-9) / ndtri(0.5 + level / 2)
    lower, upper = mixture_interval(
        similar.mean, similar_sd, beyond.mean, np.sqrt(beyond.variance), outside, level
    )
    # The score is the mean of a mixture, which may be beyond the quantiles.
    return np.stack([score, np.minimum(lower, score), np.maximum(upper, score)]), outside


def _sampled(new: CurvePrediction, unanswered: float, x: FloatArray, drawn: FloatArray) -> Case:
    """Estimate of the full score from the drawn items alone: D and its sampling variance."""
    is_drawn = np.isfinite(drawn)
    weight = np.where(is_drawn, 1 / np.where(is_drawn, drawn, 1.0), 0.0)
    weight /= np.maximum(weight.sum(axis=1, keepdims=True), 1e-300)
    residual = x - new.expected
    # The mean of the squared residual and its expectation: a few residuals may all be small.
    squares = (residual**2 + new.expected * (1 - new.expected)) / 2
    variance = unanswered**2 * (weight**2 * squares).sum(axis=1)
    variance = np.where(is_drawn.sum(axis=1) < FEWEST_DRAWN, np.inf, np.maximum(variance, 1e-12))
    return Case(new.score + unanswered * (weight * residual).sum(axis=1), variance)


def _affordable(errors: FloatArray) -> int:
    """Index of the largest affordable ratio: the calibrated error rises little or within chance.

    Args:
        errors: absolute errors of the calibrated subjects, ratios (decreasing) x subjects.
    """
    best = errors[errors.mean(axis=1).argmin()]
    increase = errors - best
    standard_error = increase.std(axis=1) / np.sqrt(increase.shape[1])
    affordable = increase.mean(axis=1) <= np.maximum((AFFORDABLE - 1) * best.mean(), standard_error)
    return int(np.argmax(affordable))  # the first True; there is one, that of the best ratio
