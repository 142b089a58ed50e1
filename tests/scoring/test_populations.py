"""Scores under a density or a mixture, against a search by brute force."""

from dataclasses import replace

import numpy as np
import pytest
from scipy.stats import multivariate_normal

from irtcat import ItemBank, Population, Responses, score

RNG = np.random.default_rng(11)
A, B = RNG.uniform(0.7, 2.0, 10), RNG.normal(0, 1.2, 10)
THETA = np.linspace(-6, 6, 24_001)


def skewed():
    """A gamma density with mean 0 and SD 1."""
    nodes = np.linspace(-1.35, 6, 121)
    return Population(nodes=nodes, weights=(nodes + 1.4142) * np.exp(-1.4142 * nodes))


def spiky():
    """A histogram of few subjects: little but three atoms, and many probabilities of 0."""
    weights = np.zeros(101)
    weights[[20, 21, 47, 80]] = 0.2, 0.3, 0.4, 0.1
    return Population(nodes=np.linspace(-4, 4, 101), weights=weights)


GROUPS = {"a": Population(-0.8, 0.4, n_subjects=300), "b": Population(2.0, 0.7, n_subjects=100)}
POPULATIONS = {
    "skewed": skewed(),
    "spiky": spiky(),
    "mixture": GROUPS,
    "mixture of densities": {"a": skewed(), "b": Population(2.5, 0.4, n_subjects=5)},
}


@pytest.mark.slow_cases("spiky|mixture", "skewed")
@pytest.mark.parametrize("name", POPULATIONS)
def test_map_is_the_highest_of_brute_force(name):
    bank = ItemBank.from_parameters(a=A, b=B, populations=POPULATIONS[name])
    x = RNG.integers(0, 2, (200, 10))
    found = score(bank, Responses.from_array(x, item_ids=bank.item_ids), "map")
    p = 1 / (1 + np.exp(-A[:, None] * (THETA - B[:, None])))
    log_post = x @ np.log(p) + (1 - x) @ np.log1p(-p) + bank.population.log_density(THETA)
    at, step, far = log_post.argmax(axis=1), THETA[1] - THETA[0], 8
    np.testing.assert_allclose(found.theta, THETA[at], atol=step)
    rows = np.arange(len(x))
    around = log_post[rows[:, None], at[:, None] + far * np.array([-1, 0, 1])]
    bend = -(around @ [1, -2, 1]) / (far * step) ** 2
    np.testing.assert_allclose(found.se, bend**-0.5, rtol=2e-3)


def test_map_of_a_group_is_that_of_its_population():
    bank = ItemBank.from_parameters(a=A, b=B, populations={"a": skewed(), "b": Population(1.0)})
    responses = Responses.from_array(RNG.integers(0, 2, (4, 10)), item_ids=bank.item_ids)
    found = score(bank, responses, "map", groups=["a", "b", "a", "b"]).theta
    one = [score(bank.of_group(label), responses, "map").theta for label in "ab"]
    assert found == pytest.approx(np.where([True, False] * 2, *one))


def test_sum_scores_without_answers_have_the_interval_of_the_population():
    for population in (skewed(), GROUPS):
        bank = ItemBank.from_parameters(a=A, b=B, populations=population)
        x = np.full((2, 10), np.nan)
        x[0] = 1
        responses = Responses.from_array(x, item_ids=bank.item_ids)
        found = score(bank, responses, "eapsum")
        density = np.exp(bank.population.log_density(THETA))
        below = np.cumsum(density) / density.sum()
        ends = [THETA[np.searchsorted(below, q)] for q in (0.025, 0.975)]
        assert (found.lower[1], found.upper[1]) == pytest.approx(ends, abs=0.03)
        assert found.theta[1] == pytest.approx(bank.population.mean)


@pytest.mark.parametrize("name", ["skewed", "spiky", "mixture"])
def test_eap_and_its_error_are_those_of_brute_force(name):
    """A density has mass at its nodes alone."""
    bank = ItemBank.from_parameters(a=A, b=B, populations=POPULATIONS[name])
    x = RNG.integers(0, 2, (60, 10)).astype(float)
    x[:20][RNG.random((20, 10)) < 0.4] = np.nan
    found = score(bank, Responses.from_array(x, item_ids=bank.item_ids))
    population = bank.population
    theta, weights = population.nodes, population.weights
    if name == "mixture":
        theta, weights = THETA, np.exp(population.log_density(THETA))
    p = 1 / (1 + np.exp(-A[:, None] * (theta - B[:, None])))
    right, wrong = (np.where(np.isnan(x), 0.0, value) for value in (x, 1 - x))
    post = weights * np.exp(right @ np.log(p) + wrong @ np.log1p(-p))
    post /= post.sum(axis=1, keepdims=True)
    mean = post @ theta
    sd = np.sqrt((post * (theta - mean[:, None]) ** 2).sum(axis=1))
    np.testing.assert_allclose(found.theta, mean, atol=2e-5)
    np.testing.assert_allclose(found.se, sd, rtol=2e-4)


def test_a_mixture_of_several_abilities_is_that_of_brute_force():
    """Mean, covariance of the errors, with the distance of the parts' posteriors in it."""
    groups = {
        "a": Population([-0.8, 0.5], [0.5, 0.8], [[1, 0.4], [0.4, 1]], n_subjects=300),
        "b": Population([1.5, -1.0], [0.7, 0.6], n_subjects=100),
    }
    slopes = np.column_stack([A, RNG.uniform(0.3, 1.5, 10)])
    bank = replace(ItemBank.from_slopes(slopes, B), populations=groups)
    x = RNG.integers(0, 2, (12, 10))
    found = score(bank, Responses.from_array(x, item_ids=bank.item_ids))
    line = np.linspace(-5, 5, 201)
    points = np.stack(np.meshgrid(line, line, indexing="ij"), axis=-1).reshape(-1, 2)
    z = points @ slopes.T + B
    density = sum(
        share * multivariate_normal(part.mean, part.covariance).pdf(points)
        for share, part in zip([0.75, 0.25], groups.values(), strict=True)
    )
    post = density * np.exp(x @ -np.logaddexp(0, -z).T + (1 - x) @ -np.logaddexp(0, z).T)
    post /= post.sum(axis=1, keepdims=True)
    mean = post @ points
    off = points - mean[:, None]
    sd = np.sqrt((post[..., None] * off**2).sum(axis=1))
    np.testing.assert_allclose(found.theta, mean, atol=2e-3)
    np.testing.assert_allclose(found.se, sd, rtol=5e-3)
