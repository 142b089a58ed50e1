"""Scores of subjects who answered items of their own: the items' curves, then their known errors.

The way of adaptive tests, where a regression on the answers does not do: each subject has other
items, and they were picked for what is known of it.
"""

from typing import NamedTuple

import numpy as np
from scipy.special import logit, ndtri

from irtcat._types import FloatArray, IntArray
from irtcat.prediction._task import Estimate, Task, filled_scores, patterns
from irtcat.prediction.auto import FOLDS, LEAST_SUBJECTS, mixture_interval
from irtcat.prediction.design import predict_weighted
from irtcat.selection.curves import score_curves

__all__ = ["CurveField", "predict_curves"]

GRID = np.linspace(-7, 7, 211)
"""Logits of the full score."""

TEMPER = 0.7
"""What an answer counts: answers hang together by more than the full score."""

NARROW = 0.5
"""Width of the kernel, in SDs of the curves' errors."""

STRANGERS = (1.0, 0.5, 0.3)
"""Strangers for every calibrated subject, spread evenly over all scores: the most affordable."""

AFFORDABLE = 1.03
FEWEST_NEAR = 20
LEAST_WIDTH = 0.01
MISFIT = 0.05
"""SD of a stranger's full score about what the curves say of it."""

FEWEST_DRAWN = 3


def predict_curves(task: Task) -> Estimate:
    """Posterior under the items' score curves, moved by the errors of calibrated subjects alike.

    With ``p_j(t)`` the items' `score_curves` and t ~ N(m, (2 s + .5)^2), m and s the mean and SD of
    the calibrated logit scores, the answers give t a posterior (each counts .7 of an answer), and

        E = sum_seen t_j x_j + sum_unseen t_j E[p_j(t) | answers].

    The curves carry on beyond the calibrated scores, but within them they err, the more so on
    items that were picked. So the same items give each calibrated subject an E_i, by curves without
    its own fold, and what those near E were off is taken from E. A subject need not be like them:
    strangers are counted as spread evenly over all scores. With k_i = exp(-(E - E_i)^2 / 2 h^2),

        score = E + sum k_i (y_i - E_i) / (sum k_i + L),    q = L / (sum k_i + L),

    q being the probability of a stranger, near 0 amid the calibrated subjects and 1 beyond. L
    stands for as many strangers as the calibrated subjects' own errors afford. The interval is
    that of the mixture of the two cases.

    Where some items were drawn at random with known chances c_j (`Task.drawn`), their residuals
    estimate what the curves are off on the unseen items whatever the subject is like:

        D = E + (1 - f) sum w_j (x_j - E[p_j]),    w_j = (1 / c_j) / sum 1 / c_j,

    f being the share of the score that is seen. As an observation of the full score with the
    sampling SD it updates both cases, N(inner score, s^2) of a subject like the calibrated ones and
    N(E, SD^2 + .05^2) of a stranger, and the probability of the two.

    With fewer than 8 calibrated subjects the weighted mean is all there is.

    References:
        Nadaraya (1964), Theory of Probability and its Applications 9, 141-142 (the kernel);
        Saerndal, Swensson & Wretman (1992), Model Assisted Survey Sampling, chapter 6 (D);
        Lord (1980), Applications of Item Response Theory, section 4.1.
    """
    if len(task.usable) < LEAST_SUBJECTS:
        note = np.full(len(task.x), f"fewer than {LEAST_SUBJECTS} calibrated subjects", object)
        how = np.full(len(task.x), "weighted mean", dtype=object)
        return predict_weighted(task)._replace(flags=note, how=how)
    return CurveField(task).estimate(task)


class Told(NamedTuple):
    """What the curves tell of some subjects: scores, SDs of their posteriors, expected answers."""

    score: FloatArray
    sd: FloatArray
    expected: FloatArray


class Case(NamedTuple):
    """Normal beliefs about full scores."""

    mean: FloatArray
    variance: FloatArray

    def told(self, drawn: "Case") -> tuple["Case", FloatArray]:
        """Updated by an observation (of infinite variance where there is none); its log-density."""
        total = self.variance + drawn.variance
        off = np.where(np.isfinite(total), drawn.mean - self.mean, 0)
        share = self.variance / total
        with np.errstate(invalid="ignore"):
            density = np.where(np.isfinite(total), -0.5 * (off**2 / total + np.log(total)), 0.0)
        return Case(self.mean + share * off, self.variance * (1 - share)), density


class Curves:
    """The curves of all items on the grid, and what they tell of answers."""

    def __init__(self, x: FloatArray, target: FloatArray, prior: tuple[float, float]):
        self.p = np.clip(score_curves(x)(GRID), 1e-5, 1 - 1e-5)
        self.target = target
        self.whole = target @ self.p
        self.spread = target**2 @ (self.p * (1 - self.p))
        self.log_prior = -0.5 * ((GRID - prior[0]) / prior[1]) ** 2

    def __call__(self, items: IntArray, x: FloatArray) -> Told:
        """By answers to these items, without gaps."""
        p, t = self.p[items], self.target[items]
        log_post = TEMPER * (x @ np.log(p) + (1 - x) @ np.log1p(-p)) + self.log_prior
        w = np.exp(log_post - log_post.max(axis=1, keepdims=True))
        w /= w.sum(axis=1, keepdims=True)
        rest, spread = self.whole - t @ p, self.spread - t**2 @ (p * (1 - p))
        mean = w @ rest
        variance = np.maximum(w @ rest**2 - mean**2, 0) + w @ np.maximum(spread, 0)
        return Told(x @ t + mean, np.sqrt(variance), w @ p.T)


class CurveField:
    """The calibrated subjects, as `predict_curves` sees them whatever the items.

    Attributes:
        x: their scores on all items, gaps filled.
        y: their full scores.
        fold: the fold in which each is left out; the folds take turns along the full score.
        curves: by all of them.
        inner: by those outside each fold.
    """

    def __init__(self, task: Task):
        y = task.targets
        # By the answers where scores are equal, so that the order of the rows does not matter.
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
        for seen, rows in patterns(x):
            if not seen.any():
                continue
            at = np.ix_(rows, np.flatnonzero(seen))
            one, outside = self._alike(task.chosen[seen], x[at], drawn[at], task.level)
            out[:, rows] = one
            flags[rows[outside > 0.5]] = "unlike the calibrated subjects"
            how[rows[outside > 0.5]] = "curves alone"
        return Estimate(out[0], out[1], out[2], flags, how)

    def _alike(
        self, items: IntArray, x: FloatArray, drawn: FloatArray, level: float
    ) -> tuple[FloatArray, FloatArray]:
        """Score and interval by answers to the same items; the probability of a stranger."""
        own = np.empty(len(self.y))
        for f, curves in enumerate(self.inner):
            own[self.fold == f] = curves(items, self.x[np.ix_(self.fold == f, items)]).score
        new = self.curves(items, x)
        off = self.y - own
        h = max(LEAST_WIDTH, NARROW * float(off.std()))
        kernel = np.exp(-0.5 * ((own[:, None] - own) / h) ** 2)
        np.fill_diagonal(kernel, 0)
        total, moved = kernel.sum(axis=1), kernel @ off
        unit = len(self.y) * h * np.sqrt(2 * np.pi)
        errors = np.abs([off - moved / (total + share * unit) for share in STRANGERS])
        at = _affordable(errors)
        kernel = np.exp(-0.5 * ((new.score[:, None] - own) / h) ** 2)
        total = kernel.sum(axis=1)
        inner = new.score + kernel @ off / np.maximum(total, 1e-12)
        z = float(ndtri(0.5 + level / 2))
        near, spread = np.array([self._errors_near(errors[at], v, level) for v in inner]).T
        sample = self._sampled(items, x, drawn, new)
        like, density = Case(inner, spread**2).told(sample)
        strange, strangers = Case(new.score, new.sd**2 + MISFIT**2).told(sample)
        odds = STRANGERS[at] * unit * np.exp(np.clip(strangers - density, -50, 50))
        outside = odds / (total + odds)
        score = (1 - outside) * like.mean + outside * strange.mean
        lower, upper = mixture_interval(
            like.mean, near / z, strange.mean, np.sqrt(strange.variance), outside, level
        )
        return np.stack([score, np.minimum(lower, score), np.maximum(upper, score)]), outside

    def _sampled(self, items: IntArray, x: FloatArray, drawn: FloatArray, new: Told) -> Case:
        """What the drawn items alone say of the full score: D and its sampling variance."""
        used = np.isfinite(drawn)
        weight = np.where(used, 1 / np.where(used, drawn, 1.0), 0.0)
        weight /= np.maximum(weight.sum(axis=1, keepdims=True), 1e-300)
        unseen = 1 - self.curves.target[items].sum()
        residual = x - new.expected
        # The residuals' squares and what the curves expect of them: few residuals may all be small.
        each = (residual**2 + new.expected * (1 - new.expected)) / 2
        variance = unseen**2 * (weight**2 * each).sum(axis=1)
        variance = np.where(used.sum(axis=1) < FEWEST_DRAWN, np.inf, np.maximum(variance, 1e-12))
        return Case(new.score + unseen * (weight * residual).sum(axis=1), variance)

    def _errors_near(self, errors: FloatArray, value: float, level: float) -> tuple[float, float]:
        """Conformal quantile and SD of the errors of the quarter nearest in full score."""
        n = max(min(FEWEST_NEAR, len(errors)), len(errors) // 4)
        near = errors[np.argsort(np.abs(self.y - value), kind="stable")[:n]]
        quantile = np.quantile(near, min(1.0, np.ceil((n + 1) * level) / n))
        return max(float(quantile), 1e-9), max(float(np.sqrt(np.mean(near**2))), 1e-6)


def _affordable(errors: FloatArray) -> int:
    """The most strangers that raise the calibrated subjects' error little, or by chance."""
    best = errors[errors.mean(axis=1).argmin()]
    rise = errors - best
    chance = rise.std(axis=1) / np.sqrt(rise.shape[1])
    little = rise.mean(axis=1) <= np.maximum((AFFORDABLE - 1) * best.mean(), chance)
    return int(np.argmax(little))  # the first: the best one at the latest
