"""Posteriors, populations and their scores against plain sums, in numpy: nothing is compiled."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.special import expit, logsumexp

from irtcat import ItemBank
from irtcat._common.precision import precision
from irtcat.fitting.em.multidimensional_scores import items_by_ability, product_score_sums
from irtcat.latent import LayoutPlan, PackedItems, ResponseRows, filled, population
from irtcat.latent.expected_sums import product_sums
from irtcat.latent.grid import grid_posterior, line_rule
from irtcat.latent.layout import REACH
from irtcat.latent.likelihood import grid_points, item_curves
from irtcat.latent.modes import posterior_modes
from irtcat.latent.population import Moments, PopulationDesign, population_numbers
from irtcat.latent.product import product_rule
from irtcat.latent.quadrature_choice import as_rule, choose_nodes

N, ITEMS = 12, 6
PATTERN = np.repeat(np.eye(2), 3, axis=0)


@pytest.fixture(autouse=True)
def float64():
    with precision("float64"):
        yield


def drawn(pattern=PATTERN, gaps=False):
    """A model in numpy, and codes of answers."""
    rng = np.random.default_rng(5)
    slopes = pattern * rng.uniform(0.8, 2.0, (ITEMS, 1))
    bank = ItemBank.from_slopes(slopes, rng.normal(0, 0.7, ITEMS))
    x = rng.integers(0, 2, (N, ITEMS)).astype(np.int8)
    if gaps:
        x[rng.random(x.shape) < 0.2] = -1
    return jax.tree.map(np.asarray, bank.model), bank, x


def log_likelihoods(model, x, theta):
    """Of each row at each ability vector."""
    p = expit(theta @ np.asarray(model.slope).T + np.asarray(model.intercept))
    return (x == 1) @ np.log(p).T + (x == 0) @ np.log1p(-p).T


def test_posterior_of_a_grid():
    model, _, x = drawn()
    line = np.linspace(-4, 4, 9)
    nodes = np.stack(np.meshgrid(line, line), -1).reshape(-1, 2)
    prior = -0.5 * (nodes**2).sum(axis=1)
    arguments = jax.tree.map(jnp.asarray, (1.0 * x[None], None, item_curves(model, nodes), prior))
    found = grid_posterior(*arguments)
    joint = log_likelihoods(model, x, nodes) + prior
    log_z = logsumexp(joint, axis=1)
    np.testing.assert_allclose(found[0], np.exp(joint - log_z[:, None]), rtol=1e-9)
    np.testing.assert_allclose(found[1], log_z, rtol=1e-12)


@pytest.mark.parametrize("gaps", [False, True])
def test_modes_have_no_slope_and_the_inverse_of_the_information(gaps):
    model, _, x = drawn(np.array([[1, 0.4], [0.3, 1]] * 3), gaps)
    blocks = np.append(np.arange(N), [N, N]).reshape(2, 7).astype(np.int32)
    found = posterior_modes(model, x, blocks, np.ones(1), has_missing=gaps)
    slopes, z = np.asarray(model.slope), np.asarray(found.mode)
    p = expit(z @ slopes.T + np.asarray(model.intercept))
    np.testing.assert_allclose(np.where(x >= 0, x - p, 0) @ slopes, z, atol=1e-8)
    weight = np.where(x >= 0, p * (1 - p), 0)
    information = np.eye(2) + np.einsum("rj,ja,jb->rab", weight, slopes, slopes)
    np.testing.assert_allclose(found.covariance, np.linalg.inv(information), rtol=1e-7)


def test_windows_hold_the_posteriors_of_their_rows():
    rng = np.random.default_rng(0)
    n = 300
    mean, sd = rng.normal(size=n), rng.uniform(0.01, 0.09, n)
    layout = LayoutPlan(n, 400, 8).layout(mean, sd)
    nodes = grid_points(np.dtype(float))
    seen = []
    for rows, first in zip(layout.narrow.rows, layout.narrow.first, strict=True):
        rows = rows[rows < n]
        if not len(rows):
            continue
        seen.extend(rows)
        assert nodes[first] <= (mean - REACH * sd)[rows].min()
        assert nodes[first + layout.window - 1] >= (mean + REACH * sd)[rows].max()
    assert sorted(seen) == list(range(n))


def test_rows_beyond_the_last_are_empty():
    table = filled(np.ones((2, 3)), 4, np.dtype(float))
    assert table.tolist() == [[1.0] * 3] * 2 + [[0.0] * 3] * 2
    model, _, x = drawn()
    answers = ResponseRows(x, np.arange(1.0, N + 1), None).answers(model, np.array([0, N - 1, N]))
    assert answers.weight.tolist() == [1, N, 0]


@pytest.mark.parametrize("nodes", [9, 21])
def test_a_given_number_of_nodes_is_that_of_each_ability(nodes):
    chosen = choose_nodes(2, 2, 0.9, 1.0, nodes)
    rule = as_rule(chosen, np.ones((3, 2)), 2, np.dtype(float))
    assert [len(np.unique(axis)) for axis in np.asarray(rule.nodes).T] == [nodes, nodes]


TARGET = np.array([[1, 0.5, -0.2], [0.5, 1, 0.3], [-0.2, 0.3, 1]])


def test_a_step_of_the_population_fits_the_second_moments():
    design = PopulationDesign(3, 3, True)
    numbers = population_numbers(np.zeros((1, 3)), np.eye(3)[None], design)
    moments = Moments(np.array([100.0]), np.zeros((1, 3)), TARGET[None])
    new, _ = population.population_step(numbers, moments, design)
    found = population.populations_of(new, 3).covariance[0]
    np.testing.assert_allclose(found, TARGET, atol=2e-3)


def test_curvature_of_the_correlations_is_that_of_their_gradient():
    free = population.free_correlations(TARGET[None])[0] * 0.8
    second = TARGET + 0.1 * np.eye(3)
    terms, h = population.correlation_terms(free, second), 1e-6
    ends = [
        [population.correlation_terms(free + s * h * e, second).gradient for s in (1, -1)]
        for e in np.eye(3)
    ]
    curvature = np.array([(up - down) / (2 * h) for up, down in ends])
    found = -(terms.vectors * terms.values) @ terms.vectors.T
    np.testing.assert_allclose(found, curvature, atol=1e-6)


@pytest.mark.parametrize("is_canonical", [True, False])
def test_lines_of_groups_are_the_grid_of_all_abilities(is_canonical):
    """Two populations of other means and SDs: posteriors, and covariances of the scores."""
    model, bank, x = drawn()
    group = np.arange(N) % 2
    means, sds = np.array([[0.3, -0.2], [-0.4, 0.1]]), np.array([[1.2, 0.8], [0.9, 1.4]])
    covariances = np.array([[1, 0.4], [0.4, 1]]) * sds[:, :, None] * sds[:, None]
    design = PopulationDesign(2, 2, True, 2, first_is_free=True, full=True)
    numbers = population_numbers(means, covariances, design)
    rule = jax.tree.map(np.asarray, product_rule(line_rule(0.4), PATTERN))
    chunks = tuple(np.flatnonzero(group == g)[None].astype(np.int32) for g in range(2))
    weights = np.linspace(1, 2, N)
    rows = ResponseRows(x, weights, chunks)
    items = PackedItems(model, bank.parameters(), np.ones(ITEMS))
    sums = product_sums(items, numbers, rows, rule, design=design)
    own = items_by_ability(np.asarray(rule.members))
    scores = np.asarray(
        product_score_sums(
            items, numbers, rows, rule, own, design=design, is_canonical=is_canonical
        )
    ).reshape(12, 12)
    line = np.arange(-7, 7.01, 0.2)
    z = np.stack(np.meshgrid(line, line, indexing="ij"), -1).reshape(-1, 2)
    expected = np.zeros((12, 12))
    for g in range(2):
        theta = means[g] + z @ np.linalg.cholesky(covariances[g]).T
        at = group == g
        joint = log_likelihoods(model, x[at], theta) - 0.5 * (z**2).sum(axis=1)
        log_z = logsumexp(joint, axis=1, keepdims=True)
        constant = 2 * np.log(0.2) - np.log(2 * np.pi)
        np.testing.assert_allclose(sums.belief.log_z[at], log_z[:, 0] + constant, atol=1e-6)
        p = expit(theta @ np.asarray(model.slope).T + np.asarray(model.intercept))
        for row, post, weight in zip(x[at], np.exp(joint - log_z), weights[at], strict=True):
            residual = row - p
            own_theta = theta[:, np.repeat([0, 1], 3)]
            both = np.stack([residual, residual * own_theta], axis=2).reshape(len(z), 12)
            off = both - post @ both
            expected += weight * (off.T * post) @ off
    np.testing.assert_allclose(scores, expected, atol=1e-5)
