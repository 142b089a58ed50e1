"""Fits in which an item that separates the subjects perfectly ends at the bound of its slope."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from irtcat import EM, ItemBank, Responses, fit
from irtcat._common.precision import precision
from irtcat.fitting.em import m_step as m_steps
from irtcat.fitting.em.iteration import _newton_step
from irtcat.fitting.em.m_step import CompleteData, Constraints, m_step
from irtcat.fitting.em.problem import StepRule
from irtcat.latent import EStep, ExpectedSums, PackedItems
from irtcat.models import (
    MODELS,
    Design,
    TwoPL,
    column_names,
    fitted_form,
    free_parameters,
    in_precision,
)
from irtcat.models.mixed import mixture

BOUND = 25.0


def _few_subjects(seed: int) -> Responses:
    """80 subjects and near-copies of four of them on 300 items; the first is a step of ability."""
    rng = np.random.default_rng(seed)
    bank = ItemBank.from_parameters(a=rng.lognormal(0.2, 0.4, 300), b=rng.normal(size=300))
    theta = rng.normal(size=80)
    values = bank.simulate(theta, seed=seed).values.copy()
    values[:, 0] = theta > 0.3
    copies = values[:4].copy()
    copies[:, 1:4] = 1 - copies[:, 1:4]
    return Responses.from_array(np.vstack([values, copies]))


@pytest.mark.slow
@pytest.mark.parametrize(("seed", "previous"), [(1, -12266.27199), (4, -11841.15952)])
def test_items_at_a_bound_do_not_slow_the_fit_down(seed, previous):
    """Took 210 and 59 iterations while the latent scale was removed as if no bound were active."""
    result = fit(_few_subjects(seed), "2pl", standard_errors="none")
    assert result.converged
    assert result.n_iterations <= 30
    assert result.bank.parameters()[0, 0] == pytest.approx(BOUND)
    assert "slope of i1" in result.message
    # The integration error of the step item is larger than any difference of the estimates.
    assert result.log_posterior == pytest.approx(previous, abs=0.01)


@pytest.mark.slow
def test_removing_the_latent_scale_keeps_the_maximum_under_a_bound():
    """On a short test the nodes are fixed, and EM without parameter expansion is exact."""
    rng = np.random.default_rng(1)
    bank = ItemBank.from_parameters(a=rng.lognormal(0.5, 0.2, 12), b=rng.normal(size=12))
    values = bank.simulate(rng.normal(size=60), seed=1).values.copy()
    values[:, 0] = values[:, 1:].sum(axis=1) > 6
    data = Responses.from_array(values)
    arguments = {"standard_errors": "none", "weak_priors": False}
    expanded = fit(data, "2pl", EM(tolerance=1e-6), **arguments)
    simple = EM(expand=False, accelerate=False, max_iterations=9000, tolerance=1e-6)
    plain = fit(data, "2pl", simple, **arguments)
    assert expanded.bank.parameters()[0, 0] == plain.bank.parameters()[0, 0] == BOUND
    assert expanded.n_iterations < 60
    np.testing.assert_allclose(expanded.bank.parameters(), plain.bank.parameters(), atol=1e-3)
    assert expanded.log_posterior == pytest.approx(plain.log_posterior, abs=1e-5)


@pytest.mark.slow
def test_the_m_step_solves_for_the_other_parameters_along_a_bound():
    """From beside the bound, the intercept moves as if the slope were at the bound already."""
    with precision("float64") as dtype:
        template = in_precision(TwoPL.blank(Design(np.array([2]))), dtype)
        nodes = jnp.linspace(-3, 3, 31)
        totals = jnp.exp(-(nodes**2) / 2)
        counts = (totals / (1 + jnp.exp(-(2.0 * nodes + 1.0))))[None, :, None]
        zero = jnp.zeros((1, 2))
        constraints = Constraints(
            prior_mean=zero,
            prior_precision=zero,
            free=zero == 0,
            lower=jnp.array([-1.0, -9.0]),
            upper=jnp.array([1.0, 9.0]),
        )

        def run(params, n_steps):
            data = CompleteData(
                template, jnp.array([params]), counts, totals, constraints, nodes[:, None]
            )
            return m_step(data, jnp.ones(1), (), n_steps)

        far = run([0.8, -1.0], 8)
        assert far.params[0, 0] == 1.0
        assert far.gradient[0, 0] > 0.1
        assert float(far.gradient[0, 1]) == pytest.approx(0, abs=1e-8)
        beside = run([1.0 - 1e-9, float(far.params[0, 1])], 1)
        assert float(beside.step) < 1e-6
        np.testing.assert_allclose(beside.params, far.params, atol=1e-6)


def test_the_newton_step_of_several_abilities_is_best_along_a_bound():
    """The slope stops at its bound; the intercept solves its equation there."""
    with precision("float64"):
        zero = jnp.zeros((1, 2))
        constraints = Constraints(
            prior_mean=zero,
            prior_precision=zero,
            free=zero == 0,
            lower=jnp.array([-1.0, -9.0]),
            upper=jnp.array([1.0, 9.0]),
        )
        nothing = jnp.zeros(0)
        belief = EStep(zero, zero, nothing, nothing, nothing, nothing)
        gradient, information = jnp.array([[4.0, 2.0]]), jnp.array([[[4.0, 1.0], [1.0, 2.0]]])
        sums = ExpectedSums(belief, nothing, None, gradient, information)
        rule = StepRule()
        start = jnp.array([[0.9, 0.0]])
        items = PackedItems(TwoPL.blank(Design(np.array([2]))), start, jnp.ones(1))
        new = _newton_step(items, sums, constraints, jnp.zeros(()), rule, ())
        # 2 move = 2 - 1 * .1, the move of the slope to its bound
        np.testing.assert_allclose(new.params, [[1.0, 0.95]], atol=1e-8)


@pytest.mark.slow_cases("options0")
@pytest.mark.parametrize(
    "options",
    [{}, {"equal": {"slope": [[0, 1, 2], [3, 4]]}}, {"priors": {"slope": ("lognormal", 0, 0.5)}}],
)
def test_an_m_step_in_numpy_is_that_of_the_program(options, monkeypatch):
    rng = np.random.default_rng(1)
    theta = rng.normal(size=(90, 1))
    x = (rng.random((90, 6)) < 1 / (1 + np.exp(rng.normal(size=6) - theta))).astype(int)
    by_numpy = fit(x, "2pl", **options)
    monkeypatch.setattr(m_steps, "FEW_PARAMS", 0)
    by_program = fit(x, "2pl", **options)
    assert by_numpy.log_likelihood == pytest.approx(by_program.log_likelihood, rel=1e-11)
    np.testing.assert_allclose(by_numpy.bank.parameters(), by_program.bank.parameters(), rtol=1e-7)


TERMS = ["3pl", "graded", "nominal", "mixed", "4pl", "feasibility", "gpcm", "rsm"]


@pytest.mark.slow_cases("4pl", "feasibility", "gpcm", "rsm")
@pytest.mark.parametrize("key", TERMS)
def test_the_terms_of_links_in_numpy_are_those_of_the_program(key):
    """Value, gradient and information of every item; `test_an_m_step_in_numpy` has the fits."""
    rng = np.random.default_rng(3)
    model = mixture(("3pl", "graded")) if key == "mixed" else fitted_form(MODELS[key])[0]
    categories = np.array([2, 4, 3, 4]) if model.is_polytomous else np.full(4, 2)
    settings = {}
    if key == "mixed":
        categories, settings = np.array([2, 4, 3, 2]), {"kind": np.array([0, 1, 1, 0])}
    if "categories" not in model.fixed:
        categories[:] = categories.max()
    template = model.blank(Design(categories, 1, settings))
    n_params = len(column_names(template))
    params = np.where(free_parameters(template), rng.normal(0, 0.7, (4, n_params)), 0.0)
    nodes = np.linspace(-4, 4, 9)[:, None]
    used = np.arange(1, template.n_categories)[:, None, None] < categories
    counts = rng.uniform(0, 1, (template.n_categories - 1, 9, 4)) * used
    totals = counts.sum(0) + rng.uniform(0, 1, (9, 4))
    assert m_steps.needs_no_program(template, params, counts)
    with precision("float64"):
        own = m_steps.item_terms(template, params, counts, totals, nodes)
        arrays = [jnp.asarray(array) for array in (params, counts, totals, nodes)]
        program = jax.jit(m_steps.item_terms)(template, *arrays)
    for ours, theirs in zip(own, program, strict=True):
        assert isinstance(ours, np.ndarray)
        np.testing.assert_allclose(ours, theirs, rtol=1e-12, atol=1e-13)
    assert np.abs(own[1]).min(where=free_parameters(template), initial=1) > 1e-4
