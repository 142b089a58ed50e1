"""Equating: the full score at the point where the item curves agree with the answers.

The item `score_curves` give the mean score of each item at every full score. A subject is placed
where the curves of the items that it answered have its mean score, and the curves of all items are
read there. This only assumes that easy items stay easier than hard ones, so it also holds for
subjects beyond the calibrated ones. `Equating.posterior` adds what is expected of such subjects.

Slopes are those among the calibrated subjects. Below the weakest of them they may be others: an
item that is steep among strong subjects need not be steep among weak ones, who guess. So the
posterior of weaker subjects averages over how far slopes hold (`Below`), by the answers.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
from scipy.special import logit, softmax

from irtcat._common.types import FloatArray, IntArray
from irtcat.responses._matrix import patterns
from irtcat.selection.curves import EDGE, MOST_LOGIT, ScoreCurves

GRID = np.linspace(-9, 9, 541)
"""Logits of the full score, .0001 to .9999. Linear interpolation errs by 5e-6 (30 of 300 items)."""

ITEMS_AT_ONCE = 256
"""The curves of so many items on the grid stay in the cache (3.3 MB)."""

LEAST_ERROR = 0.25
"""Means are kept this many answers from 0 and 1, since no subject is known to be perfect."""

CONTINUITY = 0.5
"""SD of the discreteness of a mean of n answers, in 1 / n: a mean at 0 or 1 is not certain."""

HELD = 0.0, 0.5, 1.0
"""Shares of an item's own slope that may hold below the calibrated scores, each as likely before
the answers. Those that fitted the weakest 30 % of eleven data sets best, with the stronger half
calibrated, were .2 to 1.1 (mean .7; of the strongest 30 % .4 to 1.4, mean .9, which is why only
weaker subjects need it; `experiments/subset_selection`)."""

TEMPER = 0.7
"""Weight of an answer in the likelihood, below 1 since answers correlate given the full score."""

LEAST_PROBABILITY = 1e-5
"""Of an answer: curves never exclude one."""


class Kind(NamedTuple):
    """What is expected of a kind of subjects.

    Attributes:
        prior: probability of each point of `GRID`.
        error_ratio: SD of the errors of equating, in sampling SDs.
        slopes_hold: whether items have the slopes that they have among the calibrated subjects.
    """

    prior: FloatArray
    error_ratio: float
    slopes_hold: bool = True


class Below(NamedTuple):
    """Item curves that go on below the calibrated scores with a share h of their own slopes.

        logit p_j(t) = a_j + b_j e + (h b_j + (1 - h) b) (t - e)    for t < e

    From h = 1, all slopes are as among the calibrated subjects, to h = 0, all are equal.

    Attributes:
        end: logit e of the least of the calibrated scores.
        slope: mean slope b of all items.
    """

    end: float
    slope: float

    def __call__(self, curves: ScoreCurves) -> FloatArray:
        """Mean scores, `HELD` x items x points of `GRID`; the last are those of the curves."""
        intercept, own = curves.intercept[:, None], curves.slope[:, None]
        p = np.empty((len(HELD), len(own), len(GRID)))
        p[-1] = 1 / (1 + np.exp(np.minimum(-intercept - own * GRID, MOST_LOGIT)))
        below = GRID[: np.searchsorted(GRID, self.end)]
        held = np.array(HELD[:-1])[:, None, None]
        slope = held * own + (1 - held) * self.slope
        lower = intercept + own * self.end + slope * (below - self.end)
        p[:-1, :, : len(below)] = 1 / (1 + np.exp(np.minimum(-lower, MOST_LOGIT)))
        p[:-1, :, len(below) :] = p[-1, :, len(below) :]
        return p


def full_score_curves(curves: ScoreCurves, below: Below, item_weights: FloatArray) -> FloatArray:
    """The full score, `HELD` x points of `GRID`: the weighted sum of the curves of all items."""
    total = np.zeros((len(HELD), len(GRID)))
    in_score = np.flatnonzero(item_weights)
    for start in range(0, len(in_score), ITEMS_AT_ONCE):
        block = in_score[start : start + ITEMS_AT_ONCE]
        of_block = ScoreCurves(curves.intercept[block], curves.slope[block])
        total += item_weights[block] @ below(of_block)
    return total


class SameItems(NamedTuple):
    """Answers of subjects who answered the same items, and the distribution of their mean.

    Attributes:
        rows: the subjects.
        items: positions of the items that they answered.
        answers: their answers to these, subjects x items.
        mean: weighted mean of the answers.
        n: effective number of answers.
        expected: expected mean, `HELD` x points of the grid.
        variance: its variance there, over the sampling of the items and the answers.
    """

    rows: np.ndarray
    items: IntArray
    answers: FloatArray
    mean: FloatArray
    n: float
    expected: FloatArray
    variance: FloatArray


class Means(NamedTuple):
    """Means of subjects, by the items that they answered.

    Attributes:
        n_subjects: number of subjects.
        groups: those who answered an item that has weight.
    """

    n_subjects: int
    groups: list[SameItems]


@dataclass(frozen=True, eq=False)
class Equating:
    """Reads full scores off the curves of the items that subjects answered.

    Attributes:
        curves: the curves of these items.
        weights: weight of each of them.
        in_score: weight t of each of them in the full score; those of all items sum to 1.
        full_scores: the full score, `HELD` x points of `GRID`, from the curves of all items.
        below: how the curves go on below the calibrated scores.
    """

    curves: ScoreCurves
    weights: FloatArray
    in_score: FloatArray
    full_scores: FloatArray
    below: Below

    def scores(self, means: Means) -> FloatArray:
        """Full scores, NaN without an answer that has weight.

        With ``g(t) = sum_S w_j p_j(t)`` and ``s(t) = sum_U t_j p_j(t)`` the score is ``s(t)`` at
        the t where g is the weighted mean of the answers.

        Args:
            means: the means of the subjects' answers.
        """
        score = np.full(means.n_subjects, np.nan)
        for group in means.groups:
            # Strictly rising.
            g = np.maximum.accumulate(group.expected[-1]) + 1e-10 * np.arange(len(GRID))
            at = np.clip(group.mean, LEAST_ERROR / group.n, 1 - LEAST_ERROR / group.n)
            score[group.rows] = np.interp(at, g, self.full_scores[-1])
        return score

    def posterior(self, means: Means, kinds: list[Kind], level: float) -> FloatArray:
        """Mean, SD and interval of the full score given the weighted mean of the answers.

        The mean m is Normal about g(t) with the variance ``r^2 (1 - f) sum w_j^2 p_j (1 - p_j)``
        (and 1 / 4n^2, since it is discrete), where r is the ratio of errors to sampling SDs. With
        a prior of t this gives its posterior on the grid, and that of the score s(t). The items'
        weights, not their curves, say how much each answer counts: curves of new kinds of subjects
        are not known well.

        Where slopes need not hold it is the mean of the posteriors for each share h of them
        (`Below`), with weights proportional to ``exp(.7 E[log L_h])``, where L_h is the likelihood
        of the answers and the expectation that of the posterior with h.

        Args:
            means: the means of the subjects' answers.
            kinds: what is expected, for each kind of subject.
            level: probability of the interval.

        Returns:
            Mean, SD, lower and upper end of the equal-tailed interval, and the log-density of the
            mean of the answers where all slopes hold, kinds x 5 x subjects; NaN without an answer
            that has weight.
        """
        out = np.full((len(kinds), 5, means.n_subjects), np.nan)
        tail = (1 - level) / 2
        for group in means.groups:
            p = np.clip(self.on_grid[:, group.items], LEAST_PROBABILITY, 1 - LEAST_PROBABILITY)
            for number, kind in enumerate(kinds):
                densities, fits = [], []
                shares = [-1] if kind.slopes_hold else list(range(len(HELD)))
                for h in shares:
                    noise = kind.error_ratio**2 * group.variance[h] + (CONTINUITY / group.n) ** 2
                    error = group.mean[:, None] - group.expected[h]
                    log_density = -0.5 * (error**2 / noise + np.log(noise))
                    log_density += np.log(np.maximum(kind.prior, 1e-300))
                    highest = log_density.max(axis=1, keepdims=True)
                    density = np.exp(log_density - highest)
                    total = density.sum(axis=1, keepdims=True)
                    out[number, 4, group.rows] = (highest + np.log(total))[:, 0]
                    densities.append(density / total)
                    if not kind.slopes_hold:
                        fit = group.answers @ logit(p[h]) + np.log1p(-p[h]).sum(axis=0)
                        fits.append((densities[-1] * fit).sum(axis=1))
                weights = softmax(TEMPER * np.array(fits), axis=0)[..., None] if fits else 1.0
                by_share = weights * np.array(densities)
                density = by_share.swapaxes(0, 1).reshape(len(group.rows), -1)
                full_score = self.full_scores[shares].ravel()
                score = density @ full_score
                spread = density @ full_score**2 - score**2
                out[number, 0, group.rows] = score
                out[number, 1, group.rows] = np.sqrt(np.maximum(spread, 0))
                order = np.argsort(full_score, kind="stable")
                full_score, density = full_score[order], density[:, order]
                # The probability of a point is that of the cell around it: half lies below it.
                below = np.cumsum(density, axis=1) - 0.5 * density
                for row, cumulative in zip(group.rows, below, strict=True):
                    out[number, 2:4, row] = np.interp([tail, 1 - tail], cumulative, full_score)
        return out

    @cached_property
    def on_grid(self) -> FloatArray:
        """Curves of the items, `HELD` x items x points of `GRID`."""
        return self.below(self.curves)

    def expected(self, score: FloatArray) -> FloatArray:
        """Expected answers of subjects with these full scores, subjects x items."""
        return self.curves(logit(np.clip(score, EDGE, 1 - EDGE))).T

    def means(self, x: FloatArray) -> Means:
        """Means of the answers.

        Args:
            x: answers to the items, subjects x items; NaN where missing.
        """
        in_score = self.in_score
        groups = []
        for is_answered, rows in patterns(x):
            w = np.where(is_answered, self.weights * in_score, 0.0)
            if w.sum() <= 0:  # no answered item counts in the score
                w = np.where(is_answered, self.weights, 0.0)
            if w.sum() <= 0:
                continue
            items = np.flatnonzero(is_answered)
            w, answers, p = w[items] / w.sum(), x[np.ix_(rows, items)], self.on_grid[:, items]
            unanswered = 1 - in_score[is_answered].sum()
            group = SameItems(
                rows=rows,
                items=items,
                answers=answers,
                mean=answers @ w,
                n=1 / (w**2).sum(),
                expected=w @ p,
                variance=(w**2) @ (p * (1 - p)) * max(unanswered, 0),
            )
            groups.append(group)
        return Means(len(x), groups)
