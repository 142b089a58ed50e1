"""Parts of EM against closed forms, derivatives and brute force."""

from dataclasses import fields

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.special import expit

from irtcat import EM, ItemBank, Responses, fit
from irtcat._common.precision import precision
from irtcat.fitting.em.anchors import Anchors
from irtcat.fitting.em.covariance import Covariance
from irtcat.fitting.em.directions import item_directions
from irtcat.fitting.em.m_step import Constraints
from irtcat.fitting.em.priors import PriorTable
from irtcat.fitting.em.start import category_counts, jittered
from irtcat.fitting.em.steps import Posteriors, item_scores
from irtcat.fitting.specification import Specification
from irtcat.models import MODELS, Design, parameter_matrix


@pytest.fixture
def rng():
    return np.random.default_rng(6)


@pytest.mark.parametrize("has_lower", [False, True])
def test_scores_of_a_subject_are_derivatives_of_its_log_likelihood(has_lower, rng):
    """Of a subject whose ability is certain: by eta, and by eta of the slope by logit c."""
    items = 5
    slopes, intercept, lower = rng.normal(1, 0.4, (items, 1)), rng.normal(size=items), -1.3
    mean, nothing = np.array([[0.4], [-0.7]]), np.zeros((2, 1, 1))
    posteriors = Posteriors(mean, nothing, np.ones(2))
    right = np.array([[True] * items, [False] * items])

    def log_p(eta, logit_lower, right):
        c = jax.nn.sigmoid(logit_lower) if has_lower else 0.0
        p = c + (1 - c) * jax.nn.sigmoid(eta)
        return jnp.where(right, jnp.log(p), jnp.log1p(-p))

    given = np.full(items, lower) if has_lower else None
    found = item_scores(slopes, intercept, given, posteriors, right, None)
    with precision("float64"):
        eta, here = mean @ slopes.T + intercept, jnp.full((2, items), lower)

        def derivative(function):
            return lambda *at: jax.jvp(
                lambda e: function(e, *at[1:]), at[:1], (jnp.ones_like(at[0]),)
            )[1]

        by_eta = log_p
        for ours in found.g:
            by_eta = derivative(by_eta)
            np.testing.assert_allclose(ours, by_eta(eta, here, right), rtol=1e-9, atol=1e-12)
        assert len(found.h) == 2 * has_lower

        def by_logit(eta, logit_lower, right):
            one = jnp.ones_like(logit_lower)
            return jax.jvp(lambda c: log_p(eta, c, right), (logit_lower,), (one,))[1]

        for ours in found.h:
            by_logit = derivative(by_logit)
            wanted = np.where(right, by_logit(eta, here, right), 0)
            np.testing.assert_allclose(ours, wanted, rtol=1e-9, atol=1e-12)


def test_the_sets_of_copies_of_greatest_variance_are_tried(rng):
    """Of four pairs of copies three are, those of shares near one half."""
    shares = [0.5, 0.6, 0.9, 0.35]
    x = (rng.random((400, 4)) < shares).astype(float)[:, [0, 1, 2, 3, 0, 1, 2, 3]]
    directions = item_directions(x, np.ones(x.shape), np.ones(400), np.ones(8, bool))
    pairs = [set(np.flatnonzero(each)) for each in directions if (each != 0).sum() == 2]
    assert pairs == [{0, 4}, {1, 5}, {3, 7}]


def test_the_first_population_is_on_the_scale_of_the_anchors(rng):
    bank = ItemBank.from_parameters(rng.uniform(0.8, 2, 9), rng.normal(0.5, 1.2, 9))
    theta = rng.normal(0.8, 1.3, 600)
    mean, sd = Anchors(bank, np.empty((0, 0))).first_population(
        bank.simulate(theta, seed=2), np.dtype(float)
    )
    assert mean == pytest.approx(theta.mean(), abs=0.12)
    assert sd == pytest.approx(theta.std(), abs=0.1)


@pytest.mark.parametrize(
    ("asked", "how", "has_note"),
    [
        ("full", "full", False),
        ("full", "block", True),
        ("full sandwich", "block sandwich", True),
        ("block", "block", False),
        ("auto", "block", False),
    ],
)
def test_a_note_says_where_errors_are_not_those_that_were_asked_for(asked, how, has_note):
    assert bool(Covariance(how=how).note(asked)) == has_note


def test_counts_of_categories_hold_every_row(rng):
    x, weights = rng.integers(-1, 3, (7, 4)).astype(np.int8), np.arange(1.0, 8)
    rows = np.array([[0, 1, 2, 3], [4, 5, 6, 7]], np.int32)  # 7 is no row
    with precision("float64"):
        found = category_counts(*map(jnp.asarray, (x, weights, rows)), n_categories=3)
    np.testing.assert_allclose(found, [weights @ (x == k) for k in range(3)])


def test_further_starts_differ_and_are_repeated(rng):
    template = MODELS["2pl"].blank(Design(np.full(5, 2), 1, {}))
    params = rng.uniform(0.5, 2, np.asarray(parameter_matrix(template)).shape)

    def start(number, positive=False, seed=0):
        blank = dict.fromkeys(field.name for field in fields(Specification))
        own = {"solver": EM(seed=seed), "start": number, "positive": positive}
        given = Specification(**(blank | own))
        return jittered(params, template, given)

    np.testing.assert_array_equal(start(0), params)
    np.testing.assert_array_equal(start(1), start(1))
    every = [start(1), start(2), start(1, seed=1), params]
    for number, one in enumerate(every):
        assert all((one != other).any() for other in every[:number])
    assert all((start(k, positive=True)[:, 0] > 0).all() for k in range(1, 9))


def test_a_category_that_nobody_used_is_held_and_named(iterations, rng):
    theta = rng.normal(size=(200, 1))
    x = (theta + rng.logistic(size=(200, 4)) > 0) * 1.0 + (theta + rng.logistic(size=(200, 4)) > 0)
    x[x[:, 0] == 1, 0] = 2
    given = {"standard_errors": "none", "solver": iterations(2)}
    for model in ("nominal", "gpcm"):
        priors = fit(Responses.from_array(x), model, **given).priors
        assert priors["unused categories"].endswith("(1 of 4 items)")


def test_priors_on_slopes_fix_the_scale_of_the_highest_posterior(rng):
    """All slopes of the log-posterior are 0 at the fit, by sums over a fine grid."""
    theta = rng.normal(size=(150, 1))
    x = (rng.random((150, 6)) < expit(1.3 * theta - rng.normal(size=6))).astype(float)
    found = fit(x, "2pl", priors={"slope": ("lognormal", 0.5, 0.2)}, standard_errors="none")
    nodes = np.linspace(-7, 7, 281)[:, None]
    a, d = found.bank.parameters().T
    p = expit(nodes * a + d)
    joint = np.exp(x @ np.log(p).T + (1 - x) @ np.log1p(-p).T - 0.5 * nodes[:, 0] ** 2)
    post = joint / joint.sum(axis=1, keepdims=True)
    residual = x.T @ post - (post.sum(axis=0)[:, None] * p).T
    by_slope = residual @ nodes[:, 0] - (1 + (np.log(a) - 0.5) / 0.2**2) / a
    scale = found.bank.population.sd
    assert (found.bank.population.mean, scale) == (0, 1)
    np.testing.assert_allclose(residual.sum(axis=1), 0, atol=0.02)
    np.testing.assert_allclose(by_slope, 0, atol=0.02)
    assert found.converged


def test_the_prior_of_a_shared_parameter_moves_to_an_item_that_is_free():
    precision_, mean, nothing = np.zeros((3, 2)), np.zeros((3, 2)), np.zeros(3, bool)
    mean[1, 0], precision_[1, 0] = 0.5, 4.0
    edges = np.full(2, np.inf)
    cells = np.zeros((3, 2), bool)
    table = PriorTable(
        constraints=Constraints(mean, precision_, ~cells, -edges, edges),
        sparse=nothing,
        empty=cells.T[:, :3],
        held=cells,
        informed=~cells,
        aside=nothing,
        scaled=True,
        few_subjects=False,
        description={},
        tied=(0,),
    )
    left = table.without(np.array([[False] * 2, [True] * 2, [False] * 2])).constraints
    np.testing.assert_array_equal(left.prior_precision[:, 0], [4, 0, 0])
    assert float(left.prior_mean[0, 0]) == 0.5
    np.testing.assert_array_equal(left.free, [[True] * 2, [False] * 2, [True] * 2])
