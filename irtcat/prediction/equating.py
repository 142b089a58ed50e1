"""Equating: the full score at the point where the item curves agree with the answers.

The item `score_curves` give the mean score of each item at every full score. A subject is placed
where the curves of the items that it answered have its mean score, and the curves of all items are
read there. This only assumes that easy items stay easier than hard ones, so it also holds for
subjects beyond the calibrated ones. `Equating.posterior` adds what is expected of such subjects.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
from scipy.special import logit

from irtcat._common.types import FloatArray
from irtcat.prediction.estimate import patterns
from irtcat.selection.curves import EDGE, ScoreCurves

GRID = np.linspace(-9, 9, 541)
"""Logits of the full score, .0001 to .9999. Linear interpolation errs by 5e-6 (30 of 300 items)."""

ITEMS_AT_ONCE = 4096
"""Bounds the memory of the curves of all items on the grid (18 MB)."""

LEAST_ERROR = 0.25
"""Means are kept this many answers from 0 and 1, since no subject is known to be perfect."""

RATES = 0.2, 3.0
"""Bounds on the rate at which the full score changes with the mean of the chosen items: at the ends
of the grid both hardly change, and their ratio is without meaning."""


CONTINUITY = 0.5
"""SD of the discreteness of a mean of n answers, in 1 / n: a mean at 0 or 1 is not certain."""


def full_score_curve(curves: ScoreCurves, item_weights: FloatArray) -> FloatArray:
    """The full score at each point of `GRID`: the weighted sum of the curves of all items."""
    total = np.zeros(len(GRID))
    in_score = np.flatnonzero(item_weights)
    for start in range(0, len(in_score), ITEMS_AT_ONCE):
        block = in_score[start : start + ITEMS_AT_ONCE]
        total += item_weights[block] @ curves(GRID, block)
    return total


class SameItems(NamedTuple):
    """Means of subjects who answered the same items, and their distribution given the full score.

    Attributes:
        rows: the subjects.
        mean: weighted mean of their answers.
        n: effective number of answers.
        expected: expected mean at each point of the grid.
        variance: its variance there, over the sampling of the items and the answers.
    """

    rows: np.ndarray
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
        full_score: the full score at each point of `GRID`, from the curves of all items.
    """

    curves: ScoreCurves
    weights: FloatArray
    in_score: FloatArray
    full_score: FloatArray

    def scores(self, means: Means) -> tuple[FloatArray, FloatArray]:
        """Full scores and their sampling SDs.

        With ``g(t) = sum_S w_j p_j(t)`` and ``s(t) = sum_U t_j p_j(t)`` the score is ``s(t)`` at
        the t where g is the weighted mean of the answers, and its SD
        ``sqrt((1 - f) sum w_j^2 p_j (1 - p_j)) ds / dg`` with f the share of s on the answered
        items.

        Args:
            means: the means of the subjects' answers.

        Returns:
            Score and SD of each subject; NaN without an answer that has weight.
        """
        score, sd = np.full((2, means.n_subjects), np.nan)
        for rows, mean, n, expected, variance in means.groups:
            g = np.maximum.accumulate(expected) + 1e-10 * np.arange(len(GRID))  # strictly rising
            at = np.clip(mean, LEAST_ERROR / n, 1 - LEAST_ERROR / n)
            score[rows] = np.interp(at, g, self.full_score)
            rate = np.clip(np.gradient(self.full_score) / np.maximum(np.gradient(g), 1e-6), *RATES)
            # At a mean shrunk inwards a little: all answers right does not imply certainty.
            sd[rows] = np.interp((mean * n + 0.5) / (n + 1), g, np.sqrt(variance) * rate)
        return score, sd

    def posterior(
        self, means: Means, priors: list[tuple[FloatArray, float]], level: float
    ) -> FloatArray:
        """Mean, SD and interval of the full score given the weighted mean of the answers.

        The mean m is Normal about g(t) with the variance ``r^2 (1 - f) sum w_j^2 p_j (1 - p_j)``
        (and 1 / 4n^2, since it is discrete), where r is the ratio of errors to sampling SDs. With
        a prior of t this gives its posterior on the grid, and that of the score s(t). The items'
        weights, not their curves, say how much each answer counts: curves of new kinds of subjects
        are not known well.

        Args:
            means: the means of the subjects' answers.
            priors: probability of each point of `GRID`, and r, for each kind of subject.
            level: probability of the interval.

        Returns:
            Mean, SD, lower and upper end of the equal-tailed interval, and the log-density of the
            mean of the answers, priors x 5 x subjects; NaN without an answer that has weight.
        """
        out = np.full((len(priors), 5, means.n_subjects), np.nan)
        tail = (1 - level) / 2
        for rows, mean, n, expected, variance in means.groups:
            for number, (prior, error_ratio) in enumerate(priors):
                noise = error_ratio**2 * variance + (CONTINUITY / n) ** 2
                log_density = -0.5 * ((mean[:, None] - expected) ** 2 / noise + np.log(noise))
                log_density += np.log(np.maximum(prior, 1e-300))
                highest = log_density.max(axis=1, keepdims=True)
                density = np.exp(log_density - highest)
                total = density.sum(axis=1, keepdims=True)
                out[number, 4, rows] = (highest + np.log(total))[:, 0]
                density /= total
                score = density @ self.full_score
                spread = density @ self.full_score**2 - score**2
                out[number, :2, rows] = np.stack([score, np.sqrt(np.maximum(spread, 0))], axis=1)
                # The probability of a point is that of the cell around it: half lies below it.
                below = np.cumsum(density, axis=1) - 0.5 * density
                for row, cumulative in zip(rows, below, strict=True):
                    ends = np.interp([tail, 1 - tail], cumulative, self.full_score)
                    out[number, 2:4, row] = ends
        return out

    @cached_property
    def on_grid(self) -> FloatArray:
        """Curves of the items, items x points of `GRID`."""
        return self.curves(GRID)

    def expected(self, score: FloatArray) -> FloatArray:
        """Expected answers of subjects with these full scores, subjects x items."""
        return self.curves(logit(np.clip(score, EDGE, 1 - EDGE))).T

    def means(self, x: FloatArray) -> Means:
        """Means of the answers.

        Args:
            x: answers to the items, subjects x items; NaN where missing.
        """
        p, in_score = self.on_grid, self.in_score
        groups = []
        for is_answered, rows in patterns(x):
            w = np.where(is_answered, self.weights * in_score, 0.0)
            if w.sum() <= 0:  # no answered item counts in the score
                w = np.where(is_answered, self.weights, 0.0)
            if w.sum() <= 0:
                continue
            w = w / w.sum()
            unanswered = 1 - in_score[is_answered].sum()
            group = SameItems(
                rows=rows,
                mean=np.where(is_answered, x[rows], 0) @ w,
                n=1 / (w**2).sum(),
                expected=w @ p,
                variance=(w**2) @ (p * (1 - p)) * max(unanswered, 0),
            )
            groups.append(group)
        return Means(len(x), groups)
