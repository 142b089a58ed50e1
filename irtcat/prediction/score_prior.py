"""What is known of new subjects besides their answers, as a prior of their full scores.

A prior of the ability (`Fit.predict_subjects`) becomes one of the full score through the bank's
expected score. Estimates that were learnt from the calibrated subjects already contain the
distribution of these: it is replaced by the prior of the subject.
"""

import numpy as np
from scipy.special import ndtr

from irtcat._common.types import FloatArray
from irtcat.bank import ItemBank, check_needs
from irtcat.latent import LIMIT
from irtcat.prediction.model import weighted_moments
from irtcat.prediction.result import Estimate
from irtcat.prediction.score_rule import Mixture

N_CELLS = 2000
EDGES = np.arange(1, N_CELLS) / N_CELLS
CELLS = (np.arange(N_CELLS) + 0.5) / N_CELLS
"""Full scores at which densities are tabulated: .05 points apart, less than any interval."""

LEAST_INSIDE = 1e-9
"""Less of a prior within the range of abilities is rounding: then it is all at one end."""

N_ABILITIES = 401

LEAST_REFERENCE = 0.01
"""Least density of the distribution that is replaced, relative to its greatest: that of scores
which hardly any calibrated subject had is not known, and would multiply without bound."""


class ScorePrior:
    """Converts Normal distributions of ability to distributions of the full score.

    Args:
        bank: the items, of one ability.
        item_weights: weight of each item in the full score; they sum to 1.
    """

    def __init__(self, bank: ItemBank, item_weights: FloatArray):
        check_needs(bank.model, ["one ability"], "a prior of ability")
        sds = np.linspace(-LIMIT, LIMIT, N_ABILITIES)
        theta = bank.population.mean + bank.population.sd * sds
        score, _ = weighted_moments(bank, item_weights, theta)
        rising = np.maximum.accumulate(score) + 1e-12 * np.arange(N_ABILITIES)
        self._range = theta[0], theta[-1]
        self._theta = np.interp(EDGES, rising, theta, left=theta[0], right=theta[-1])
        self.population = self(bank.population.mean, bank.population.sd)

    def __call__(self, mean: FloatArray | float, sd: FloatArray | float) -> FloatArray:
        """Probabilities of the cells, subjects x `CELLS`, of abilities N(mean, sd^2)."""
        mean, sd = np.asarray(mean, float)[..., None], np.asarray(sd, float)[..., None]
        below = ndtr((self._theta - mean) / sd)
        cells = np.diff(below, prepend=0.0, append=1.0, axis=-1)
        # Within the range of abilities: a very wide prior says nothing, not that scores are 0 or 1.
        lowest, highest = (ndtr((end - mean) / sd) for end in self._range)
        inside = np.diff(below, prepend=lowest, append=highest, axis=-1)
        total = inside.sum(axis=-1, keepdims=True)
        usable = total > LEAST_INSIDE
        return np.where(usable, inside / np.where(usable, total, 1.0), cells)


def with_prior(
    mixture: Mixture, prior: FloatArray, population: FloatArray, level: float
) -> Estimate:
    """Means and equal-tailed intervals of the mixture, with what else is known of each subject.

    In range the prior of the subject replaces the population's:

        p(s)  proportional to  (1 - q) p_within(s) prior(s) / population(s) + q p_beyond(s)

    with both parts normalised. The share q, from the answers alone, and the part beyond the range
    stay as they are: a prior that was learnt from the calibrated subjects says little about those
    beyond them. (With the share updated, too, intervals of the strongest fifth of the models
    covered .03 to .12 on metabench; so they cover .92 to .95.)

    Args:
        mixture: the distributions in range and out of range, by the answers.
        prior: what is known of each subject, subjects x `CELLS`.
        population: the distribution of the calibrated subjects, cells.
        level: probability of the interval.
    """
    is_empty = mixture.is_empty[:, None]
    within = np.where(is_empty, population, _normal_cells(mixture.blend, mixture.blend_sd))
    beyond = np.where(is_empty, 0.0, _normal_cells(mixture.outside, mixture.outside_sd))
    cells = within * prior / np.maximum(population, LEAST_REFERENCE * population.max())
    total = cells.sum(axis=1, keepdims=True)
    # A prior far from the answers leaves nothing: then it counts alone.
    cells = np.where(total > 0, cells / np.where(total > 0, total, 1), prior)
    in_interval, in_mean = mixture.q, mixture.score_share
    mean = (1 - in_mean) * (cells @ CELLS) + in_mean * (beyond @ CELLS)
    cells = (1 - in_interval)[:, None] * cells + in_interval[:, None] * beyond
    cumulated = np.cumsum(cells, axis=1) - cells / 2
    tail = (1 - level) / 2
    ends = [np.interp([tail, 1 - tail], row, CELLS) for row in cumulated]
    lower, upper = np.array(ends).reshape(-1, 2).T
    return mixture.with_scores(mean, lower, upper)


def _normal_cells(mean: FloatArray, sd: FloatArray | float) -> FloatArray:
    """Probabilities of the cells of scores N(mean, sd^2) within 0 and 1, subjects x cells."""
    sds = np.broadcast_to(np.maximum(sd, 1e-6), mean.shape)
    below = ndtr((EDGES - mean[:, None]) / sds[:, None])
    return np.diff(below, prepend=0.0, append=1.0, axis=1)
