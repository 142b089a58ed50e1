"""Products of lines against the plain sum over a dense grid, and their error bounds."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.special import expit, logsumexp

from irtcat import EM, ItemBank, Responses, fit
from irtcat._common.precision import precision
from irtcat.latent.e_step import PackedItems, ResponseRows
from irtcat.latent.e_step_program import e_step_program
from irtcat.latent.expected_sums import product_sums
from irtcat.latent.grid import grid_step, group_items, line_rule, row_chunks, two_tier_step
from irtcat.latent.population import PopulationDesign, population_numbers
from irtcat.latent.product import is_separable, linear_grid_step, linear_two_tier_step, product_rule
from irtcat.latent.quadrature_choice import as_rule, choose_nodes, n_nodes
from irtcat.models import restricted


def three(n=60, seed=0):
    """Items of three correlated abilities, and answers with missing ones."""
    rng = np.random.default_rng(seed)
    slopes = np.repeat(np.eye(3), 3, axis=0) * rng.uniform(0.8, 2.0, (9, 1))
    correlations = np.array([[1, 0.6, 0.3], [0.6, 1, -0.2], [0.3, -0.2, 1]])
    bank = ItemBank.from_slopes(slopes, rng.normal(0, 0.7, 9), correlations=correlations)
    theta = rng.standard_normal((n, 3)) @ np.linalg.cholesky(correlations).T
    x = bank.simulate(theta, seed=seed).to_numpy().astype(float)
    x[rng.random(x.shape) < 0.1] = np.nan
    return bank, x, correlations


def dense(bank, x, mean, covariance, step=0.25):
    """Posteriors on a dense grid of z, as plainly as possible."""
    line = np.arange(-6.0, 6.0 + step / 2, step)
    z = np.stack(np.meshgrid(line, line, line, indexing="ij"), -1).reshape(-1, 3)
    theta = mean + z @ np.linalg.cholesky(covariance).T
    p = expit(theta @ np.asarray(bank.model.slope).T + np.asarray(bank.model.intercept))
    seen = ~np.isnan(x)
    right = np.where(seen, x, 0.0)
    log_post = right @ np.log(p).T + np.where(seen, 1 - right, 0.0) @ np.log1p(-p).T
    log_post += -0.5 * (z**2).sum(1) - 1.5 * np.log(2 * np.pi) + 3 * np.log(step)
    log_z = logsumexp(log_post, axis=1)
    return log_z, np.exp(log_post - log_z[:, None]), z, theta


@pytest.mark.slow
@pytest.mark.parametrize("name", ["float64", "float32"])
def test_a_line_for_each_ability_is_the_dense_grid(name):
    """The population's mean and SDs differ from 0 and 1; chunks do not divide the rows."""
    bank, x, correlations = three()
    mean, sd = np.array([0.3, -0.2, 0.0]), np.array([1.2, 0.8, 1.0])
    covariance = correlations * np.outer(sd, sd)
    log_z, post, z, theta = dense(bank, x, mean, covariance)
    codes = np.where(np.isnan(x), -1, x).astype(np.int8)
    with precision(name) as dtype:
        design = PopulationDesign(3, 3, True, 1, first_is_free=True, full=True)
        numbers = population_numbers(mean[None], covariance[None], design)
        rule = product_rule(line_rule(0.4), np.asarray(bank.model.slope))
        rule = jax.tree.map(lambda a: jnp.asarray(a, dtype), rule)
        at = np.append(np.arange(60), np.full(8, 60)).reshape(4, 17).astype(np.int32)
        ones, chunks = jnp.ones(60, dtype), (jnp.asarray(at),)
        rows = ResponseRows(jnp.asarray(codes), ones, chunks, has_missing=True)
        items = PackedItems(bank.model, jnp.asarray(bank.parameters(), dtype), ones[:9])
        sums = product_sums(items, jnp.asarray(numbers, dtype), rows, rule, design=design)
        moments = sums.moments(design)
    error = 1e-6 if name == "float64" else 2e-5
    np.testing.assert_allclose(sums.belief.log_z, log_z, atol=error)
    np.testing.assert_allclose(sums.belief.mean, post @ z, atol=error)
    second = np.einsum("rn,nd,ne->rde", post, z, z)
    expected = second - np.einsum("rd,re->rde", post @ z, post @ z)
    np.testing.assert_allclose(sums.belief.covariance, expected, atol=5 * error)
    np.testing.assert_allclose(moments.mean[0], (post @ theta).mean(0), atol=error)
    second = np.einsum("rn,nd,ne->de", post, theta, theta) / 60
    np.testing.assert_allclose(moments.second[0], second, atol=5 * error)
    # Counts on the lines have the sums and the first moments of those on the dense grid.
    own = np.asarray(sums.theta)[:, np.repeat(np.arange(3), 3)]
    right = np.where(np.isnan(x), 0.0, x)
    counts = np.asarray(sums.belief.counts[0], float)
    np.testing.assert_allclose(counts.sum(0), right.sum(0), rtol=1e-4)
    by_item = np.einsum("rj,rj->j", right, (post @ theta)[:, np.repeat(np.arange(3), 3)])
    np.testing.assert_allclose((own * counts).sum(0), by_item, atol=60 * error)
    np.testing.assert_allclose(
        np.asarray(sums.belief.totals).sum(0), (~np.isnan(x)).sum(0), rtol=1e-4
    )


@pytest.mark.parametrize("ratio", [1.0, 1.15, 1.5])
def test_the_error_of_a_line_is_bounded_by_the_width_of_the_posterior(ratio):
    """Relative error at most 2 exp(-2 pi^2 / ratio^2) a line, spacing ``ratio`` posterior SDs."""
    sd = 0.5
    nodes = np.asarray(line_rule(ratio * sd).nodes)[:, 0]
    bound = 2 * np.exp(-2 * np.pi**2 / ratio**2)
    for centre in np.linspace(-1.5, 1.5, 23):
        density = np.exp(-0.5 * ((nodes - centre) / sd) ** 2) / (sd * np.sqrt(2 * np.pi))
        assert abs(ratio * sd * density.sum() - 1) <= 1.01 * bound + 1e-12


@pytest.mark.slow
def test_lines_are_used_where_they_resolve_the_population():
    """Strong correlations are narrow along the lines: more nodes, or one grid on the z scale."""
    x = three(n=150, seed=2)[1][:, :6]
    pattern = np.repeat(np.eye(2), 3, axis=0)
    options = {"pattern": pattern, "correlated": True, "standard_errors": "none"}
    result = fit(Responses.from_array(x), "2pl", **options)
    assert result.bank.provenance["nodes_are"] == "a line for each ability"
    assert abs(result.integration_error) < 1e-4
    rng = np.random.default_rng(0)
    eta = np.repeat(1.5 * rng.standard_normal((150, 1)), 6, axis=1)
    one = Responses.from_array((rng.random((150, 6)) < expit(eta)).astype(int))
    same = fit(one, "2pl", EM(max_iterations=40), **options)
    assert same.bank.population.correlations[0, 1] > 0.9
    assert same.bank.provenance["nodes"] > result.bank.provenance["nodes"]
    z = np.stack(np.meshgrid(*[np.arange(-6, 6.1, 0.1)] * 2, indexing="ij"), -1).reshape(-1, 2)
    theta = z @ np.linalg.cholesky(same.bank.population.correlations).T
    p = expit(theta @ np.asarray(same.bank.model.slope).T + np.asarray(same.bank.model.intercept))
    right = one.to_numpy()
    log_lik = right @ np.log(p).T + (1 - right) @ np.log1p(-p).T
    plain = logsumexp(log_lik - 0.5 * (z**2).sum(1) - np.log(2 * np.pi) + 2 * np.log(0.1), axis=1)
    assert same.log_likelihood == pytest.approx(plain.sum(), abs=1e-3)


def test_the_choice_of_lines():
    """Narrow posteriors take more nodes, and below the finest spacing nodes of their own."""
    assert choose_nodes(3, 3, 0.55, 1.0, None, is_product=True) == 0.5
    assert choose_nodes(2, 2, 0.9, 1.0, None, is_product=True) == 0.4
    assert choose_nodes(3, 3, 0.22, 1.0, None, is_product=True) == 0.2
    assert not isinstance(choose_nodes(3, 3, 0.15, 1.0, None, is_product=True), float)
    assert not isinstance(choose_nodes(4, 4, 0.9, 1.0, None, is_product=True), float)
    assert n_nodes(product_rule(line_rule(0.5), np.eye(3))) == 25**3


@pytest.mark.slow_cases("float32-.*|float64-3", "float64-2")
@pytest.mark.parametrize("dims", [2, 3, 4])
@pytest.mark.parametrize("name", ["float64", "float32"])
def test_factors_of_complete_answers_are_the_products_over_items(name, dims):
    """Posteriors and expected numbers, and the counts' sums and moments: on a grid, in two tiers.

    Rows have weights, an item is set aside, and one has no specific ability.
    """
    rng = np.random.default_rng(dims)
    n_general = dims if dims < 4 else 1
    specific = np.arange(10)[:, None] % 4 == np.arange(3)  # every fourth has none
    pattern = np.ones((10, dims)) if dims < 4 else np.column_stack([np.ones(10), specific])
    bank = ItemBank.from_slopes(pattern * rng.uniform(-0.3, 1.5, (10, dims)), rng.normal(size=10))
    x = bank.simulate(rng.standard_normal((150, dims)), seed=dims).to_numpy().astype(np.int8)
    with precision(name) as dtype:
        rule = as_rule(0.5, pattern, n_general, dtype).shifted()
        model = jax.tree.map(lambda a: jnp.asarray(a, dtype), bank.model)
        weights = jnp.asarray(rng.integers(1, 4, 150), dtype), jnp.ones(10, dtype).at[2].set(0)
        chunks = jnp.asarray(row_chunks(150, 2**14))
        rows = ResponseRows(jnp.asarray(x), weights[0], chunks)
        arguments = rows, weights[1], rule
        if dims < 4:
            plain = grid_step(model, *arguments)
            quick, points = linear_grid_step(model, *arguments), rule.nodes
        else:
            own = np.minimum(1 + group_items(pattern, 1)[0], 3)
            model = restricted(model, np.column_stack([np.zeros(10, int), own]))
            plain = two_tier_step(model, *arguments)
            quick, points = linear_two_tier_step(model, *arguments), rule.pairs
    bound = 1e-10 if name == "float64" else 2e-4
    for field in ("mean", "covariance", "log_z", "mass"):
        numbers = getattr(quick, field), getattr(plain, field)
        np.testing.assert_allclose(*numbers, atol=bound, rtol=bound, err_msg=field)
    totals = np.broadcast_to(plain.totals.T, quick.totals.T.shape)
    np.testing.assert_allclose(quick.totals.T, totals, atol=bound, rtol=bound)
    basis = np.column_stack([np.ones(len(points)), np.asarray(points, float)])
    ours, theirs = (basis.T @ np.asarray(sums.counts[0], float) for sums in (quick, plain))
    np.testing.assert_allclose(ours, theirs, atol=10 * bound, rtol=bound)


def test_factors_that_underflow_are_not_used():
    """300 items of two abilities; 300 of a bifactor model, 30 of each specific factor."""
    slopes, intercepts, ones = np.full((300, 2), 1.2), np.zeros(300), np.ones(300)
    with precision("float64"):
        grid = as_rule(0.2, np.ones((300, 2)), 2, np.dtype(float))
    assert is_separable(slopes[:50], intercepts[:50], ones[:50], grid)
    assert not is_separable(slopes, intercepts, ones, grid)
    assert is_separable(slopes, intercepts, ones * (np.arange(300) < 50), grid)
    pattern = np.column_stack([np.ones(300), np.arange(300)[:, None] % 10 == np.arange(10)])
    with precision("float64"):
        tiers = as_rule(0.4, pattern, 1, np.dtype(float))
    assert is_separable(slopes, intercepts, ones, tiers)
    assert not is_separable(slopes, intercepts, ones.astype(np.float32), tiers)


def test_long_tests_have_the_dense_likelihood():
    """Where factors would underflow, the products over the items are used: the same likelihood."""
    rng = np.random.default_rng(5)
    bank = ItemBank.from_slopes(rng.uniform(0.5, 1.5, (110, 2)), rng.normal(size=110))
    x = bank.simulate(3 * rng.standard_normal((30, 2)), seed=5).to_numpy().astype(np.int8)
    design, group = PopulationDesign(2, 0), np.zeros(30, int)
    with precision("float64"):
        rule = as_rule(0.1, np.ones((110, 2)), 2, np.dtype(float))
        for n_items in (90, 110):  # by factors, and not
            some = bank.subset(range(n_items))
            slopes, intercepts = np.asarray(some.model.slope), np.asarray(some.model.intercept)
            assert is_separable(slopes, intercepts, np.ones(n_items), rule) == (n_items == 90)
            here = jnp.asarray(x[:, :n_items])
            items, numbers = (
                PackedItems(some.model, some.parameters(), jnp.ones(n_items)),
                np.zeros((1, 4)),
            )
            program = e_step_program(rule, items, numbers, design, has_missing=False)
            ((layout, _),) = program.layouts([group], [()])
            sums = program(items, numbers, ResponseRows(here, jnp.ones(30), layout))
            eta = np.asarray(rule.nodes) @ slopes.T + intercepts
            log_lik = here @ eta.T - np.logaddexp(0, eta).sum(1) + np.asarray(rule.log_prior)
            np.testing.assert_allclose(sums.belief.log_z, logsumexp(log_lik, axis=1), atol=1e-10)
