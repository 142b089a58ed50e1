"""Scores of subjects with different items: the item curves, then their known errors.

For adaptive tests, where a regression on the answers is not possible: each subject has different
items, chosen from its earlier answers.
"""

from typing import NamedTuple

import numpy as np
from scipy.special import logit, ndtri

from irtcat._types import FloatArray, IntArray
from irtcat.prediction._mixture import mixture_interval
from irtcat.prediction._task import FOLDS, Estimate, Task, filled_scores, patterns
from irtcat.prediction.design import LEAST_SUBJECTS, predict_for_few
from irtcat.selection.curves import score_curves

__all__ = ["CurveField", "predict_curves"]

GRID = np.linspace(-7, 7, 211)
"""Logits of the full score."""

TEMPER = 0.7
"""Weight of an answer in the likelihood, below 1 since answers correlate given the full score."""

NARROW = 0.5
"""Width of the kernel, in SDs of the curves' errors."""

OUTSIDE_RATIOS = (1.0, 0.5, 0.3)
"""Out-of-range subjects per calibrated subject, uniform over all scores: the largest affordable."""

AFFORDABLE = 1.03
FEWEST_NEAR = 20
LEAST_WIDTH = 0.01
"""Smallest width of the kernel."""

MISFIT = 0.05
"""SD of the full score of an out-of-range subject about the prediction of the curves."""

FEWEST_DRAWN = 3
"""With fewer drawn items the design-based estimate is not used."""


def predict_curves(task: Task) -> Estimate:
    """Posterior under the item score curves, corrected by the errors for similar subjects.

    With ``p_j(t)`` the items' `score_curves` and t ~ N(m, (2 s + .5)^2), m and s the mean and SD of
    the calibrated logit scores, the answers give t a posterior (each with weight .7), and

        E = sum_seen t_j x_j + sum_unseen t_j E[p_j(t) | answers].

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
    estimate the error of the curves on the unseen items, for any subject:

        D = E + (1 - f) sum w_j (x_j - E[p_j]),    w_j = (1 / c_j) / sum 1 / c_j,

    where f is the observed share of the score. D is an observation of the full score with the
    sampling SD; it updates both cases, N(inner score, s^2) for a subject like the calibrated ones
    and N(E, SD^2 + .05^2) for an out-of-range subject, and their probabilities.

    With fewer than 8 calibrated subjects the weighted mean is returned.

    References:
        Nadaraya (1964), Theory of Probability and its Applications 9, 141-142 (the kernel);
        Saerndal, Swensson & Wretman (1992), Model Assisted Survey Sampling, chapter 6 (D);
        Lord (1980), Applications of Item Response Theory, section 4.1.
    """
    if len(task.usable) < LEAST_SUBJECTS:
        return predict_for_few(task)
    return CurveField(task).estimate(task)


class CurvePrediction(NamedTuple):
    """Predictions of the curves: scores, SDs of their posteriors, expected answers."""

    score: FloatArray
    sd: FloatArray
    expected: FloatArray


class Case(NamedTuple):
    """Normal distributions of full scores."""

    mean: FloatArray
    variance: FloatArray

    def updated_by(self, drawn: "Case") -> tuple["Case", FloatArray]:
        """Update by an observation (of infinite variance if there is none), and its log-density."""
        total = self.variance + drawn.variance
        deviation = np.where(np.isfinite(total), drawn.mean - self.mean, 0)
        share = self.variance / total
        with np.errstate(invalid="ignore"):
            density = np.where(
                np.isfinite(total), -0.5 * (deviation**2 / total + np.log(total)), 0.0
            )
        return Case(self.mean + share * deviation, self.variance * (1 - share)), density


class Curves:
    """The curves of all items on the grid, and predictions from answers."""

    def __init__(self, x: FloatArray, target: FloatArray, prior: tuple[float, float]):
        self.p = np.clip(score_curves(x)(GRID), 1e-5, 1 - 1e-5)
        self.target = target
        self.full_curve = target @ self.p
        self.spread = target**2 @ (self.p * (1 - self.p))
        self.log_prior = -0.5 * ((GRID - prior[0]) / prior[1]) ** 2

    def __call__(self, items: IntArray, x: FloatArray) -> CurvePrediction:
        """Predict from complete answers to these items."""
        p, t = self.p[items], self.target[items]
        log_post = TEMPER * (x @ np.log(p) + (1 - x) @ np.log1p(-p)) + self.log_prior
        w = np.exp(log_post - log_post.max(axis=1, keepdims=True))
        w /= w.sum(axis=1, keepdims=True)
        rest, spread = self.full_curve - t @ p, self.spread - t**2 @ (p * (1 - p))
        mean = w @ rest
        variance = np.maximum(w @ rest**2 - mean**2, 0) + w @ np.maximum(spread, 0)
        return CurvePrediction(x @ t + mean, np.sqrt(variance), w @ p.T)


class CurveField:
    """The calibrated subjects as used by `predict_curves`, for any items of new subjects.

    Attributes:
        x: their scores on all items, imputed.
        y: their full scores.
        fold: the fold in which each is left out; assigned in turn along the full score.
        curves: curves fitted to all of them.
        inner: curves fitted to those outside each fold.
    """

    def __init__(self, task: Task):
        y = task.targets
        # Ties are ordered by the answers, so that the order of the rows does not matter.
        x = filled_scores(task.calibration)[task.usable].astype(float)
        order = np.lexsort((np.round(x @ np.arange(x.shape[1]), 6), np.round(y, 12)))
        self.x, self.y = x[order], y[order]
        self.fold = np.arange(len(y)) % FOLDS
        height = logit(np.clip(self.y, 0.01, 0.99))
        prior = float(height.mean()), float(2 * height.std() + 0.5)
        target = task.item_weights
        self.curves = Curves(self.x, target, prior)
        self.inner = [Curves(self.x[self.fold != f], target, prior) for f in range(FOLDS)]

    def estimate(self, task: Task) -> Estimate:
        """Scores of subjects with NaN where an item was not answered."""
        x = task.x
        drawn = np.full(x.shape, np.nan) if task.drawn is None else task.drawn
        out = np.full((3, len(x)), np.nan)
        flags = np.full(len(x), "", dtype=object)
        how = np.full(len(x), "curves", dtype=object)
        for is_observed, rows in patterns(x):
            if not is_observed.any():
                continue
            block = np.ix_(rows, np.flatnonzero(is_observed))
            ends, outside = self._estimate_same_items(
                task.chosen[is_observed], x[block], drawn[block], task.level
            )
            out[:, rows] = ends
            flags[rows[outside > 0.5]] = "unlike the calibrated subjects"
            how[rows[outside > 0.5]] = "curves alone"
        return Estimate(out[0], out[1], out[2], flags, how)

    def _estimate_same_items(
        self, items: IntArray, x: FloatArray, drawn: FloatArray, level: float
    ) -> tuple[FloatArray, FloatArray]:
        """Score and interval from answers to the same items; the probability of being outside."""
        calibrated_scores = np.empty(len(self.y))
        for f, curves in enumerate(self.inner):
            calibrated_scores[self.fold == f] = curves(
                items, self.x[np.ix_(self.fold == f, items)]
            ).score
        new = self.curves(items, x)
        errors_of_curves = self.y - calibrated_scores
        h = max(LEAST_WIDTH, NARROW * float(errors_of_curves.std()))
        kernel = np.exp(-0.5 * ((calibrated_scores[:, None] - calibrated_scores) / h) ** 2)
        np.fill_diagonal(kernel, 0)
        total, weighted_errors = kernel.sum(axis=1), kernel @ errors_of_curves
        unit = len(self.y) * h * np.sqrt(2 * np.pi)
        errors = np.abs(
            [
                errors_of_curves - weighted_errors / (total + share * unit)
                for share in OUTSIDE_RATIOS
            ]
        )
        choice = _affordable(errors)
        kernel = np.exp(-0.5 * ((new.score[:, None] - calibrated_scores) / h) ** 2)
        total = kernel.sum(axis=1)
        inner = new.score + kernel @ errors_of_curves / np.maximum(total, 1e-12)
        z = float(ndtri(0.5 + level / 2))
        near, spread = np.array([self._errors_near(errors[choice], v, level) for v in inner]).T
        sample = self._sampled(items, x, drawn, new)
        similar_case, similar_density = Case(inner, spread**2).updated_by(sample)
        outside_case, outside_density = Case(new.score, new.sd**2 + MISFIT**2).updated_by(sample)
        odds = (
            OUTSIDE_RATIOS[choice]
            * unit
            * np.exp(np.clip(outside_density - similar_density, -50, 50))
        )
        outside = odds / (total + odds)
        score = (1 - outside) * similar_case.mean + outside * outside_case.mean
        lower, upper = mixture_interval(
            similar_case.mean,
            near / z,
            outside_case.mean,
            np.sqrt(outside_case.variance),
            outside,
            level,
        )
        return np.stack([score, np.minimum(lower, score), np.maximum(upper, score)]), outside

    def _sampled(
        self, items: IntArray, x: FloatArray, drawn: FloatArray, new: CurvePrediction
    ) -> Case:
        """Estimate of the full score from the drawn items alone: D and its sampling variance."""
        used = np.isfinite(drawn)
        weight = np.where(used, 1 / np.where(used, drawn, 1.0), 0.0)
        weight /= np.maximum(weight.sum(axis=1, keepdims=True), 1e-300)
        unseen = 1 - self.curves.target[items].sum()
        residual = x - new.expected
        # Mean of squared residuals and their expectation, since few residuals may all be small.
        squares = (residual**2 + new.expected * (1 - new.expected)) / 2
        variance = unseen**2 * (weight**2 * squares).sum(axis=1)
        variance = np.where(used.sum(axis=1) < FEWEST_DRAWN, np.inf, np.maximum(variance, 1e-12))
        return Case(new.score + unseen * (weight * residual).sum(axis=1), variance)

    def _errors_near(self, errors: FloatArray, value: float, level: float) -> tuple[float, float]:
        """Conformal quantile and SD of the errors of the quarter nearest in full score."""
        n = max(min(FEWEST_NEAR, len(errors)), len(errors) // 4)
        near = errors[np.argsort(np.abs(self.y - value), kind="stable")[:n]]
        quantile = np.quantile(near, min(1.0, np.ceil((n + 1) * level) / n))
        return max(float(quantile), 1e-9), max(float(np.sqrt(np.mean(near**2))), 1e-6)


def _affordable(errors: FloatArray) -> int:
    """Index of the largest ratio that increases the calibrated error little, or by chance."""
    best = errors[errors.mean(axis=1).argmin()]
    increase = errors - best
    standard_error = increase.std(axis=1) / np.sqrt(increase.shape[1])
    affordable = increase.mean(axis=1) <= np.maximum((AFFORDABLE - 1) * best.mean(), standard_error)
    return int(np.argmax(affordable))  # the first; the best one always qualifies
