"""Scores under a density or a mixture, against a search by brute force."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from scipy.stats import multivariate_normal

from irtcat import InputError, ItemBank, Population, Responses, score
from irtcat.bank.bank import VERSION_GROUP, VERSION_OF

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


@pytest.mark.parametrize("method", ["map", "eap"])
def test_a_group_is_scored_by_its_population(method):
    bank = ItemBank.from_parameters(a=A, b=B, populations={"a": spiky(), "b": Population(1.0)})
    responses = Responses.from_array(RNG.integers(0, 2, (4, 10)), item_ids=bank.item_ids)
    found = score(bank, responses, method, groups=["a", "b", "a", "b"])
    one = [score(bank.of_group(label), responses, method).theta for label in "ab"]
    assert found.theta == pytest.approx(np.where([True, False] * 2, *one))
    assert found.nodes is None  # those of a density are not as many


@pytest.mark.parametrize("differs", ["i1", None])
def test_groups_have_their_versions_of_items_and_may_lack_some(differs):
    """The answers to an item that differs are those to the version of the group."""
    ids = ["i1 (a)", "i1 (b)", "i2", "i3", "i4"] if differs else [f"i{k}" for k in range(1, 6)]
    bank = ItemBank.from_parameters(a=A[:5], b=B[:5], item_ids=ids, populations=GROUPS)
    if differs:
        columns = {VERSION_OF: ["i1", "i1", *ids[2:]], VERSION_GROUP: ["a", "b", "", "", ""]}
        bank = replace(bank, statistics=pd.DataFrame(columns, index=bank.statistics.index))
    x = RNG.integers(0, 2, (6, 4))
    responses = Responses.from_array(x, item_ids=["i1", "i2", "i3", "i4"])
    labels = np.array(["a", "b", "a"] * 2)
    found = score(bank, responses, groups=labels)
    for row, label in enumerate(labels):
        own = [k for k, name in enumerate(ids) if name[:2] in responses.item_ids]
        own = [k for k in own if "(" not in ids[k] or f"({label})" in ids[k]]
        alone = ItemBank.from_parameters(a=A[own], b=B[own], populations=GROUPS[label])
        expected = score(alone, Responses.from_array(x[[row]], item_ids=alone.item_ids))
        assert found.theta[row] == pytest.approx(expected.theta[0], abs=1e-9)
        assert found.n_items[row] == 4
    if differs:
        with pytest.raises(InputError, match="whose items i1 differ between groups"):
            score(bank, responses)
    else:
        assert "mixture of the populations a, b" in score(bank, responses).note


def test_sum_scores_without_answers_have_the_interval_of_the_population():
    for population in (skewed(), GROUPS, Population(0.4, 1.3)):
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
