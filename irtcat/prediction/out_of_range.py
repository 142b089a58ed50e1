"""Is a new subject unlike the calibrated ones? Its probability to be out of their range.

A subject like the calibrated ones is predicted alike by regression and by equating (see
`irtcat.prediction.auto`). One that is stronger or weaker than all of them has a regression in their
tail, and an equated score still further out: a regression is drawn towards their mean.
"""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from scipy.special import expit

from irtcat._common.types import BoolArray, FloatArray, IntArray

PRIOR = 0.65
"""Prior probability of an out-of-range subject. On ten data sets (ten draws, 10 to 100 items) the
errors were, relative to those of .5: within the range +.6 %, beyond it -2 % (.8: +2 and -6 %). A
prior learnt from the calibrated subjects, as the greatest that hardly raises their errors, was no
better within the range (-.6 %), and beyond it intervals covered .30 in the worst cell, now .88.
Half of it for weak subjects (a false alarm costs accuracy) gave errors .8 % smaller within the
range and 7 % greater among the weakest 30 %, whose intervals covered .92 instead of .94."""

ODD = 0.1
"""Probability of odd answers within the range, relative to that of being out of range."""

SPREAD = 4.0
"""SD of the difference E - R of an out-of-range subject, in those of the calibrated subjects."""

MOST_Z = 100.0
"""Beyond it the densities of z would be 0, and no evidence either way."""

NEIGHBOURS, FEWEST_NEIGHBOURS = 0.1, 12
"""The mean and SD of E - R vary with R: they are those of this share of the calibrated subjects,
and of at least so many."""

GROUP, MOST_GROUPS = 5, 200
"""Least number of subjects in a row of the table of their estimates, and most rows but the ends."""

DIGITS, ROUNDING = 12, 1e-11
"""Digits of R in the table, and more than the error that they cause."""

PSEUDO_SUBJECTS, MOST = 10, 0.85
"""Shared priors: weight of `PRIOR` in subjects; upper bound, since some subject may be like the
calibrated ones. On ten data sets (eight draws) the errors were, relative to those without sharing:
within the range -1.7 %, among the strongest 30 % -.1 %, among the weakest -.4 %."""

ROUNDS, CHANGE = 100, 1e-4
"""Most rounds of EM, and the change of the prior at which it ends: errors of a score below 1e-4."""


class Estimates(NamedTuple):
    """Two estimates of the full scores of some subjects.

    Attributes:
        regression: by regression on the answers, R.
        equated: by equating, E.
    """

    regression: FloatArray
    equated: FloatArray


def group_starts(n: int) -> IntArray:
    """Positions at which groups of at least `GROUP` of n ordered subjects begin.

    Example:
        >>> group_starts(17).tolist(), group_starts(4).tolist()
        ([0, 5, 11], [0])
    """
    n_groups = max(1, min(MOST_GROUPS, n // GROUP))
    return np.arange(n_groups) * n // n_groups


@dataclass(frozen=True, eq=False)
class Range:
    """The distribution of R among n calibrated subjects, and that of E - R given R.

    A table with a row for each group of at least `GROUP` subjects of neighbouring R, and for the
    least and the greatest R. It can be passed on without the estimates of all other subjects.

    Attributes:
        n: number of calibrated subjects.
        at: mean R of each row, rising.
        share: mean rank of each row, in n + 1.
        mean: mean of E - R among the subjects nearest in R.
        sd: SD of E - R there.
    """

    n: int
    at: FloatArray
    share: FloatArray
    mean: FloatArray
    sd: FloatArray

    @staticmethod
    def of(calibrated: Estimates) -> "Range":
        """The table of the calibrated subjects' estimates."""
        order = np.argsort(calibrated.regression, kind="stable")
        regression = calibrated.regression[order]
        difference = calibrated.equated[order] - regression
        n = len(order)
        first = group_starts(n)
        size = np.r_[1, np.diff(first, append=n), 1]  # with the rows of the ends
        total = np.r_[regression[0], np.add.reduceat(regression, first), regression[-1]]
        ranks = np.r_[1, np.add.reduceat(np.arange(1, n + 1), first), n]
        # Rounded, so that groups of equal R are one row.
        at, row = np.unique(np.round(total / size, DIGITS), return_inverse=True)
        share = np.bincount(row, ranks) / np.bincount(row, size) / (n + 1)
        m = min(n, max(FEWEST_NEIGHBOURS, int(n * NEIGHBOURS)))
        first = np.clip(np.searchsorted(regression, at) - m // 2, 0, n - m)
        sums = np.concatenate([[0.0], np.cumsum(difference)])
        squares = np.concatenate([[0.0], np.cumsum(difference**2)])
        mean = (sums[first + m] - sums[first]) / m
        variance = np.maximum((squares[first + m] - squares[first]) / m - mean**2, 0)
        # Few neighbours may all be alike: half of the variance is a robust one of all (1.4826 MAD).
        robust = 1.4826 * np.median(np.abs(difference - np.median(difference)))
        sd = np.sqrt(0.5 * variance + 0.5 * robust**2) + 1e-6
        return Range(n=n, at=at, share=share, mean=mean, sd=sd)

    def below(self, regression: FloatArray) -> FloatArray:
        """Share of the calibrated subjects below R, never 0 or 1."""
        below = np.interp(regression, self.at, self.share)
        # Beyond all of them there is half a subject, at the ends one.
        is_above = regression > self.at[-1] + ROUNDING
        below = np.where(is_above, self.n + 0.5, below * (self.n + 1))
        return np.where(regression < self.at[0] - ROUNDING, 0.5, below) / (self.n + 1)

    def standardised(self, new: Estimates) -> FloatArray:
        """E - R less its mean, over its SD, among the calibrated subjects nearest in R."""
        mean = np.interp(new.regression, self.at, self.mean)
        sd = np.interp(new.regression, self.at, self.sd)
        return (new.equated - new.regression - mean) / sd


class Priors(NamedTuple):
    """Prior probabilities of being out of range.

    Attributes:
        stronger: of subjects in the upper half of the calibrated ones.
        weaker: of those in the lower half.
    """

    stronger: float = PRIOR
    weaker: float = PRIOR


ALONE = Priors()
"""Those of a subject that is predicted alone."""


class Evidence(NamedTuple):
    """What the answers of new subjects say: densities in range, beyond it, and of odd answers.

    Two statistics are used: the share u of calibrated subjects beyond R in its nearer tail
    (doubled), and the difference z = E - R standardised by the calibrated subjects nearby.

    - A subject like the calibrated ones has u uniform and z ~ N(0, 1).
    - One out of range has u ~ Beta(.3, 6), and z a half-normal of SD 4 outwards plus N(0, 1).
    - An odd one has u uniform and z ~ N(0, 17).

    Densities are without the factor 1 / sqrt(2 pi).

    Attributes:
        like: density in range.
        unlike: density of the others: beyond the range or, `ODD` times as often, odd.
        is_upper: whether the nearer tail is the upper one.
    """

    like: FloatArray
    unlike: FloatArray
    is_upper: BoolArray

    @staticmethod
    def of(new: Estimates, calibrated: Range) -> "Evidence":
        """That of the estimates of new subjects."""
        below = calibrated.below(new.regression)
        is_upper = below > 0.5
        u = 2 * np.minimum(below, 1 - below)
        z = np.clip(calibrated.standardised(new), -MOST_Z, MOST_Z)
        outwards = np.where(is_upper, z, -z)
        sd = np.sqrt(1 + SPREAD**2)
        # Out of range it is a skew-normal times the Beta density, of which 1.78 is the beta
        # function B(.3, 6); the logistic approximates the Normal.
        odd = np.exp(-0.5 * (z / sd) ** 2) / sd
        beyond = 2 * odd * expit(1.702 * outwards * SPREAD / sd) * u**-0.7 * (1 - u) ** 5 / 1.78
        return Evidence(np.exp(-0.5 * z**2), beyond + ODD * odd, is_upper)

    def probability(self, priors: Priors = ALONE) -> FloatArray:
        """Posterior probability that subjects are unlike the calibrated ones."""
        prior = np.where(self.is_upper, *priors)
        unlike = prior * self.unlike
        return unlike / np.maximum(self.like * (1 - (1 + ODD) * prior) + unlike, 1e-300)


def shared_priors(evidence: Evidence) -> Priors:
    """The priors estimated from all new subjects by EM, which starts at the default ones.

    Args:
        evidence: that of all new subjects with an answer.

    References:
        Efron (2010), Large-Scale Inference, chapter 2 (empirical Bayes).
    """
    count = np.array([evidence.is_upper.sum(), (~evidence.is_upper).sum()])
    priors = ALONE
    for _ in range(ROUNDS):
        outside = evidence.probability(priors)
        strong = outside[evidence.is_upper].sum()
        total = np.array([strong, outside.sum() - strong]) + PSEUDO_SUBJECTS * PRIOR
        before = priors
        priors = Priors(*np.minimum(total / (count + PSEUDO_SUBJECTS), MOST).tolist())
        if np.abs(np.subtract(priors, before)).max() < CHANGE:
            break
    return priors
