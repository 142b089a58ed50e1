"""Scores with what else is known of a subject: closed forms of Normal distributions."""

from types import SimpleNamespace

import numpy as np
import pytest
from scipy.optimize import brentq
from scipy.stats import norm

from irtcat import ItemBank
from irtcat.prediction.score_prior import CELLS, EDGES, ScorePrior, with_prior


def mixture_of(q, blend=(0.5, 0.06), outside=(0.8, 0.04)):
    """A distribution of one subject, out of range with the probability q."""
    return SimpleNamespace(
        blend=np.array([blend[0]]),
        blend_sd=np.array([blend[1]]),
        outside=np.array([outside[0]]),
        outside_sd=np.array([outside[1]]),
        is_empty=np.array([False]),
        q=np.array([q]),
        score_share=np.array([q]),
        with_scores=lambda mean, lower, upper: (mean[0], lower[0], upper[0]),
    )


def cells_of(mean, sd):
    cells = norm.pdf(CELLS, mean, sd)
    return cells / cells.sum()


FLAT = np.full(len(CELLS), 1 / len(CELLS))


@pytest.mark.parametrize("q", [0.0, 0.3, 1.0])
def test_both_parts_count_by_their_probabilities(q):
    """A subject of whom as much is known as of everybody keeps its mixture."""
    told = with_prior(mixture_of(q), FLAT[None], FLAT, 0.8)
    ends = [
        brentq(
            lambda s, p=p: (1 - q) * norm.cdf(s, 0.5, 0.06) + q * norm.cdf(s, 0.8, 0.04) - p, 0, 1
        )
        for p in (0.1, 0.9)
    ]
    np.testing.assert_allclose(told, [(1 - q) * 0.5 + q * 0.8, *ends], atol=2e-3)


def test_the_prior_replaces_the_population_in_range():
    """Normal distributions: precisions add up, and the population's is taken away."""
    population, prior = cells_of(0.55, 0.2), cells_of(0.4, 0.05)
    precisions = np.array([1 / 0.06**2, 1 / 0.05**2, -1 / 0.2**2])
    sd = precisions.sum() ** -0.5
    mean = sd**2 * precisions @ [0.5, 0.4, 0.55]
    told = with_prior(mixture_of(0.0), prior[None], population, 0.9)
    half = norm.ppf(0.95) * sd
    np.testing.assert_allclose(told, [mean, mean - half, mean + half], atol=2e-3)


def test_what_says_the_same_of_both_ends_is_symmetric():
    told = with_prior(mixture_of(0.0), FLAT[None], FLAT, 0.8)
    np.testing.assert_allclose(told[1] + told[2], 1, atol=1e-9)


def test_cells_of_the_score_are_those_of_the_ability():
    """The ability at which the expected score is c has as much of its prior below it."""
    rng = np.random.default_rng(1)
    bank, weights = ItemBank.from_parameters(b=rng.normal(size=12)), rng.dirichlet(np.ones(12))
    prior = ScorePrior(bank, weights)
    means, sds = np.array([-0.6, 0.2, 1.0]), np.array([0.3, 1.0, 0.5])
    below = np.cumsum(prior(means, sds), axis=1)
    for k in (400, 1000, 1500):
        at = brentq(lambda t, k=k: weights @ bank.probability(t)[:, 0] - EDGES[k], -6, 6)
        np.testing.assert_allclose(below[:, k], norm.cdf(at, means, sds), atol=1e-4)
        assert prior.population[: k + 1].sum() == pytest.approx(norm.cdf(at), abs=1e-4)
