"""Small fits of one ability run in numpy: the same numbers as by compiled programs."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from irtcat import fit
from irtcat._common.compilation import forget_programs
from irtcat._common.precision import precision
from irtcat.fitting.em.covariance import _numpy_information, _observed_information
from irtcat.fitting.em.m_step import CompleteData, Constraints
from irtcat.latent import (
    LayoutPlan,
    Moments,
    PackedItems,
    ResponseRows,
    ScaleTransform,
    density_scores,
    expected_sums,
    line,
    modes,
    population_gradient,
    population_log_density,
    populations_of,
    product,
)
from irtcat.models import MODELS, Design, parameter_matrix

N, ITEMS = 250, 9


def answers(n_categories, seed=5):
    rng = np.random.default_rng(seed)
    theta, b = rng.normal(size=(N, 1)), rng.normal(size=ITEMS)
    steps = np.linspace(-0.8, 0.8, n_categories - 1) if n_categories > 2 else [0.0]
    return sum((rng.random((N, ITEMS)) < 1 / (1 + np.exp(b + s - theta))) for s in steps) * 1.0


CASES = [
    ("graded", 4, {"standard_errors": "sandwich"}, True, True),
    ("3pl", 2, {}, False, True),
    ("2pl", 2, {"standard_errors": "block"}, True, False),
    ("rasch", 2, {}, False, False),
    ("2pl", 2, {"standard_errors": "sandwich"}, True, True),
    ("4pl", 2, {"priors": {"slope": ("lognormal", 0.0, 0.5)}}, True, False),
    ("feasibility", 2, {}, False, False),
    ("graded", 3, {}, False, False),
    ("gpcm", 3, {"standard_errors": "sandwich"}, False, True),
    ("pcm", 3, {}, True, False),
    ("rsm", 3, {}, False, False),
    ("nominal", 3, {}, True, True),
    (["2pl"] * 5 + ["3pl"] * 4, 2, {}, True, False),
]


@pytest.mark.slow_cases(r"(?!graded-4|3pl).*")
@pytest.mark.parametrize(("model", "n_categories", "options", "gaps", "groups"), CASES)
def test_a_small_fit_is_that_of_the_programs(
    model, n_categories, options, gaps, groups, monkeypatch, iterations
):
    x = answers(n_categories)
    if gaps:
        x[np.random.default_rng(1).random(x.shape) < 0.1] = np.nan
    options = {**options, "solver": iterations(20)}
    if groups:
        options["groups"] = np.arange(N) % 2
    used, function = [], line.Layout.fits_numpy

    def recorded(*arguments):
        used.append(function(*arguments))
        return used[-1]

    monkeypatch.setattr(line.Layout, "fits_numpy", recorded)
    ours = fit(x, model, **options)
    assert used
    assert all(used)
    monkeypatch.setattr(line, "FEW_CELLS", 0)
    theirs = fit(x, model, **options)
    assert not used[-1]
    assert ours.n_iterations == theirs.n_iterations
    assert ours.log_likelihood == pytest.approx(theirs.log_likelihood, rel=1e-11)
    # The extrapolation of EM amplifies rounding.
    np.testing.assert_allclose(ours.bank.parameters(), theirs.bank.parameters(), rtol=1e-7)
    np.testing.assert_allclose(ours.bank.covariance, theirs.bank.covariance, rtol=1e-6, atol=1e-9)


@pytest.mark.slow_cases(r"(?!graded).*")
@pytest.mark.parametrize(
    ("model", "n_categories", "options", "gaps", "groups"),
    [
        ("graded", 3, {"standard_errors": "full"}, True, True),
        ("2pl", 2, {"standard_errors": "full"}, False, False),
        ("gpcm", 3, {"standard_errors": "full"}, False, True),
        ("3pl", 2, {"standard_errors": "none"}, True, False),
        ("2pl", 2, {"standard_errors": "full"}, False, True),
    ],
)
def test_a_small_fit_of_lines_is_that_of_the_programs(
    model, n_categories, options, gaps, groups, monkeypatch, iterations
):
    x = answers(n_categories)
    if gaps:
        x[np.random.default_rng(1).random(x.shape) < 0.1] = np.nan
    pattern = (np.arange(ITEMS) % 2)[:, None] == np.arange(2)
    # Lengths of steps are float32: their paths differ by 1e-7 of a step, their ends do not.
    options = {**options, "dims": 2, "solver": iterations(40), "pattern": pattern}
    if groups:
        options["groups"] = np.arange(N) % 2

    def compiled():
        programs = expected_sums.product_sums, modes.posterior_modes
        return [program._cache_size() for program in programs]

    forget_programs()
    ours = fit(x, model, **options)
    assert compiled() == [0, 0]
    monkeypatch.setattr(product, "FEW_CELLS", 0)
    monkeypatch.setattr(modes, "FEW_CELLS", 0)
    theirs = fit(x, model, **options)
    assert all(compiled())
    assert ours.log_likelihood == pytest.approx(theirs.log_likelihood, rel=1e-11)
    np.testing.assert_allclose(ours.bank.parameters(), theirs.bank.parameters(), rtol=1e-7)
    if ours.bank.covariance is not None:
        np.testing.assert_allclose(
            ours.bank.covariance, theirs.bank.covariance, rtol=1e-6, atol=1e-9
        )


def test_the_gradient_of_the_populations_is_that_of_their_density():
    rng = np.random.default_rng(0)
    with precision("float64"):
        root = rng.normal(size=(2, 3, 5))
        second, mean = root @ root.swapaxes(1, 2), rng.normal(size=(2, 3)) * 0.1
        moments, numbers = Moments(np.array([30.0, 0.0]), mean, second), rng.normal(size=(2, 9))
        expected = jax.grad(population_log_density)(numbers * 0.3, moments)
        found = population_gradient(numbers * 0.3, moments)
        one = Moments(np.array([30.0]), mean[:1, :1], second[:1, :1, :1])
        line = jax.grad(population_log_density)(numbers[:1, :2], one)
        np.testing.assert_allclose(population_gradient(numbers[:1, :2], one), line, rtol=1e-10)
    np.testing.assert_allclose(found, expected, rtol=1e-10, atol=1e-10)


def test_errors_from_local_nodes_whose_weights_may_be_negative():
    """Steep items have posteriors narrower than the grid, which are interpolated from it."""
    steps = (np.arange(100)[:, None] > np.linspace(5, 95, 12)).astype(int)
    found = fit(steps[:, :6] + steps[:, 6:], "graded").bank.to_frame()
    assert found["se_a"].between(20, 35).all()
    assert found["se_b"].between(0.1, 0.15).all()


def test_long_tests_and_single_precision_take_programs():
    plan = line.Layout(None, None, 28)
    items = MODELS["2pl"].blank(Design(np.full(ITEMS, 2), 1, {}))
    assert plan.fits_numpy(items, (N, ITEMS), np.dtype(float))
    assert not plan.fits_numpy(items, (N, ITEMS), np.dtype("float32"))
    assert not plan.fits_numpy(items, (2**14, ITEMS), np.dtype(float))
    assert not plan.fits_numpy(items, (100, 2**12), np.dtype(float))
    blocks = line.Blocks(np.zeros((1, N), np.int32), np.zeros(1, np.int32))
    narrow = line.Layout(None, blocks, 28)
    assert not narrow.fits_numpy(items, (N, ITEMS), np.dtype(float))
    beta = MODELS["beta"].blank(Design(np.full(ITEMS, 2), 1, {}))
    assert not plan.fits_numpy(beta, (N, ITEMS), np.dtype(float))


@pytest.mark.parametrize(
    ("key", "categories"),
    [("4pl", [2, 2]), ("graded", [4, 3]), ("3pl", [2, 2]), ("feasibility", [2, 2])],
)
def test_observed_information_is_minus_the_second_derivative(key, categories):
    rng = np.random.default_rng(0)
    n_items, most = len(categories), max(categories)
    with precision("float64"):
        items = MODELS[key].blank(Design(np.array(categories), 1, {}))
        params = rng.normal(size=np.asarray(parameter_matrix(items)).shape) * 0.7
        params[:, 0] = np.abs(params[:, 0]) + 0.3
        nodes, counts = np.linspace(-4, 4, 21), 3 * rng.random((most - 1, 21, n_items))
        for item, n in enumerate(categories):
            counts[n - 1 :, :, item] = 0
        totals = counts.sum(0) + rng.random((21, n_items))
        nothing = np.zeros(params.shape)
        free = np.ones(params.shape, bool)
        constraints = Constraints(nothing, nothing, nothing - 50, nothing + 50, free)
        data = CompleteData(items, params, counts, totals, constraints, nodes)
        ours = _numpy_information(jax.tree.map(np.asarray, data))
        theirs = np.asarray(_observed_information(data))
    np.testing.assert_allclose(ours, theirs, rtol=1e-10, atol=1e-10)


def test_the_scores_of_a_line_are_derivatives_of_its_density():
    rng = np.random.default_rng(0)
    numbers, theta = rng.normal(size=(3, 2)) * 0.5, rng.normal(size=7)
    with precision("float64"):

        def log_density(numbers, at):
            populations = populations_of(numbers, 1)
            sd = populations.root[1, 0, 0]
            return -0.5 * ((at - populations.mean[1, 0]) / sd) ** 2 - jnp.log(sd)

        expected = jax.vmap(jax.grad(log_density), (None, 0))(numbers, theta)
        found = density_scores(numbers, theta[:, None], 1)
    np.testing.assert_allclose(found, expected.reshape(7, -1), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("gaps", [False, True])
def test_a_pass_is_that_of_the_program_for_groups_on_another_scale(gaps):
    """Stated populations put the grid on a scale of its own."""
    rng = np.random.default_rng(7)
    x = answers(3).astype(np.int8)
    if gaps:
        x[rng.random(x.shape) < 0.2] = -1
    with precision("float64"):
        items = MODELS["gpcm"].blank(Design(np.full(ITEMS, 3), 1, {}))
        params = rng.normal(size=np.asarray(parameter_matrix(items)).shape)
        packed = PackedItems(items, params, np.ones(ITEMS))
        plan = LayoutPlan(N, ITEMS, 8)
        plan.resolve(0.4, 1.0)
        rows = ResponseRows(
            x, rng.uniform(0.5, 2, N), plan.layout(np.zeros(N), np.ones(N)), np.arange(N) % 2, gaps
        )
        numbers, by = np.array([[0.3, -0.2], [-0.5, 0.4]]), ScaleTransform(*np.array([0.2, 1.3]))
        ours = expected_sums.line_sums(packed, numbers, rows, by)
        theirs = jax.jit(expected_sums.line_sums)(packed, numbers, rows, by)
    assert isinstance(ours.belief.mean, np.ndarray)
    for one, other in zip(jax.tree.leaves(ours), jax.tree.leaves(theirs), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-9, atol=1e-9)
