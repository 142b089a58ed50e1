"""Adaptive E-steps with items on lines, against those with every item at every node."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from irtcat import ItemBank
from irtcat._common.precision import precision
from irtcat.fitting.em.m_step import item_terms
from irtcat.latent.adaptive import adaptive_quadrature
from irtcat.latent.e_step import PackedItems, ResponseRows
from irtcat.latent.e_step_program import e_step_program
from irtcat.latent.population import PopulationDesign, population_numbers
from irtcat.latent.quadrature_choice import as_rule
from irtcat.models import Graded

N_ROWS, N_ITEMS, DIMS = 60, 12, 4


def items_of_one_ability_each(model, rng):
    """Items of four abilities."""
    pattern = np.tile(np.eye(DIMS), (3, 1))
    slopes, intercepts = pattern * rng.uniform(0.8, 2.5, (N_ITEMS, 1)), rng.normal(size=N_ITEMS)
    bank = ItemBank.from_slopes(slopes, intercepts)
    if model == "graded":
        gaps = np.log(rng.uniform(0.8, 1.6, (N_ITEMS, 1)))
        items = Graded(slopes, intercepts + 0.7, gaps, np.full(N_ITEMS, 3))
        bank = ItemBank(model=items, item_ids=bank.item_ids)
    return bank, pattern


@pytest.mark.slow_cases("graded-float64-2")
@pytest.mark.parametrize(
    ("model", "name", "n_groups"), [("2pl", "float32", 1), ("graded", "float64", 2)]
)
def test_items_on_lines_have_the_sums_of_items_at_the_nodes(model, name, n_groups):
    """Complete and missing responses, groups, weights of rows, an item that is set aside."""
    rng = np.random.default_rng(0)
    bank, pattern = items_of_one_ability_each(model, rng)
    has_missing = n_groups > 1
    x = bank.simulate(rng.standard_normal((N_ROWS, DIMS)), seed=1).to_numpy().astype(np.int8)
    x[:, :5] = np.where(has_missing & (rng.random((N_ROWS, 5)) < 0.3), -1, x[:, :5])
    group, design = np.arange(N_ROWS) % n_groups, PopulationDesign(DIMS, DIMS, True, n_groups, True)
    mean, sd = 0.3 * rng.standard_normal((n_groups, DIMS)), np.array([1.0, 1.3])[:n_groups]
    covariance = (0.5 + 0.5 * np.eye(DIMS)) * sd[:, None, None] ** 2
    numbers = population_numbers(mean, covariance, design._replace(full=True))
    centre = 0.4 * rng.standard_normal((N_ROWS, DIMS))
    with precision(name) as dtype:
        params, numbers, *nodes = (
            jnp.asarray(array, dtype)
            for array in (bank.parameters(), numbers, centre, [0.4 * np.eye(DIMS)] * N_ROWS)
        )
        template = jax.tree.map(lambda a: jnp.asarray(a, dtype), bank.model)
        weights = jnp.asarray(rng.integers(1, 4, N_ROWS), dtype)
        item_weights = jnp.ones(N_ITEMS, dtype).at[5].set(0)
        items = PackedItems(template, params, item_weights)

        def sums_by(rule):
            program = e_step_program(rule, items, numbers, design, has_missing)
            ((layout, placed),) = program.layouts([group], [tuple(nodes)])
            rows = ResponseRows(
                jnp.asarray(x), weights, layout, has_missing=has_missing, nodes=placed
            )
            return program(items, numbers, rows)

        rule = as_rule(adaptive_quadrature(DIMS), pattern, DIMS, dtype, is_product=True)
        lines, plain = sums_by(rule), sums_by(rule._replace(lines=None))
        counts = lines.belief.counts, lines.belief.totals, lines.theta
        _, gradient, information = jax.jit(item_terms)(template, params, *counts)
    error = 1e-5 if name == "float64" else 1e-3
    for field in ("mean", "covariance", "log_z"):
        ours, theirs = (np.asarray(getattr(sums.belief, field)) for sums in (lines, plain))
        np.testing.assert_allclose(ours, theirs, atol=error, err_msg=field)
    np.testing.assert_allclose(lines.polynomials, plain.polynomials, atol=N_ROWS * error)
    # Of the slopes only those of an item's own ability are estimated.
    own = np.concatenate([pattern != 0, np.ones((N_ITEMS, params.shape[1] - DIMS), bool)], axis=1)
    ours, theirs = (np.asarray(table)[own] for table in (gradient, plain.gradient))
    np.testing.assert_allclose(ours, theirs, atol=N_ROWS * error)
    both = own[:, :, None] & own[:, None, :]
    ours, theirs = (np.asarray(table)[both] for table in (information, plain.information))
    np.testing.assert_allclose(ours, theirs, atol=N_ROWS * error)


def test_marginal_likelihoods_are_products_of_integrals():
    """Of independent abilities, where every item measures one of them."""
    rng = np.random.default_rng(1)
    bank, pattern = items_of_one_ability_each("2pl", rng)
    x = bank.simulate(rng.standard_normal((N_ROWS, DIMS)), seed=1).to_numpy()
    line = np.linspace(-8, 8, 2001)
    p = bank.probability(np.repeat(line[:, None], DIMS, axis=1))  # at equal abilities
    log_lik = np.where(x[:, :, None] == 1, np.log(p), np.log1p(-p))
    by_ability = np.einsum("rin,id->rdn", log_lik, pattern)
    density = np.exp(-0.5 * line**2) / np.sqrt(2 * np.pi) * (line[1] - line[0])
    exact = np.log(np.exp(by_ability) @ density).sum(axis=1)
    posterior = np.exp(by_ability) * density
    posterior /= posterior.sum(axis=2, keepdims=True)
    centre = posterior @ line
    spread = np.sqrt(posterior @ line**2 - centre**2)
    design = PopulationDesign(DIMS, DIMS, True, 1, True)
    numbers = population_numbers(
        np.zeros((1, DIMS)), np.eye(DIMS)[None], design._replace(full=True)
    )
    with precision("float64") as dtype:
        template = jax.tree.map(lambda a: jnp.asarray(a, dtype), bank.model)
        items = PackedItems(template, jnp.asarray(bank.parameters()), jnp.ones(N_ITEMS))
        rule = as_rule(adaptive_quadrature(DIMS), pattern, DIMS, dtype, is_product=True)
        program = e_step_program(rule, items, numbers, design, False)
        roots = [np.diag(sd) for sd in spread]
        ((layout, placed),) = program.layouts([np.zeros(N_ROWS, int)], [(centre, roots)])
        rows = ResponseRows(
            jnp.asarray(x.astype(np.int8)),
            jnp.ones(N_ROWS),
            layout,
            has_missing=False,
            nodes=placed,
        )
        found = program(items, jnp.asarray(numbers), rows).belief.log_z
    np.testing.assert_allclose(found, exact, atol=0.02)
