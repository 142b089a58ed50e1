"""Beliefs, curves and the choice of an item in one state, against their definitions."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.optimize import brentq

from irtcat import InputError, ItemBank, fisher_information
from irtcat._common.precision import precision
from irtcat.cat import CRITERIA, METHODS, Config, Session, prepare, start, step
from irtcat.cat.belief.curves import information_at
from irtcat.cat.belief.priors import mixture_moments
from irtcat.cat.engine.choice import choose, context_of
from irtcat.cat.engine.config import FixedItems

from . import helpers as ref
from .test_rule_laws import BANK, GRID, N, context

RNG = np.random.default_rng(4)
B = np.sort(RNG.normal(size=(6, 3)), axis=1)


@pytest.fixture(autouse=True)
def float64():
    with precision("float64"):
        yield


@pytest.mark.parametrize(
    "bank", [BANK, *(ItemBank.from_thresholds(1.3, B, key) for key in ("graded", "gpcm"))]
)
def test_information_is_that_of_the_slopes_of_the_probabilities(bank):
    h = 1e-5
    for theta in (-1.7, 0.0, 0.4, 2.2):
        down, p, up = np.moveaxis(bank.category_probabilities([theta - h, theta, theta + h]), 1, 0)
        wanted = (((up - down) / (2 * h)) ** 2 / p).sum(axis=1)
        found = information_at(bank.model, jnp.asarray(theta))
        np.testing.assert_allclose(found, wanted, rtol=1e-6)


def test_the_ability_of_greatest_information_is_that_of_a_fine_grid():
    fine, config = (
        np.linspace(-4, 4, 8001),
        Config(**(GRID | {"criterion": "thopt", "max_items": 6})),
    )
    for bank in (BANK, ItemBank.from_thresholds(1.3, B, "graded")):
        best = np.asarray(prepare(bank, config).best_theta)
        inside = np.abs(best) < 3.99
        found = fine[fisher_information(bank, fine).argmax(axis=1)]
        assert inside.sum() >= 5
        assert np.abs(best - found)[inside].max() < 2e-3


def test_a_mode_within_the_first_or_last_cell_is_not_at_the_bound():
    priors, answers, h = np.array([[-3.98, 0.5], [3.98, 0.5]]), np.array([0, 1]), 1e-5
    at = context(BANK, [5], [0], method="map")

    @jax.jit
    @jax.vmap
    def modes(prior, answer):
        items = ref.padded([5], N)
        state = ref.state_after(at.pool, at.config, items, jnp.full(N, -1).at[0].set(answer), prior)
        return METHODS["map"](context_of(at.pool, at.config, state))

    found = modes(jnp.asarray(priors), jnp.asarray(answers))
    for prior, answer, theta, se in zip(priors, answers, found.theta, found.se, strict=True):

        def slope(theta, answer=answer, prior=prior):
            ends = BANK.probability([theta - h, theta + h])[5]
            rise = np.diff(np.log(ends if answer else 1 - ends))[0] / (2 * h)
            return rise - (theta - prior[0]) / prior[1] ** 2

        wanted = brentq(slope, prior[0] - 0.3, prior[0] + 0.3)
        assert 3.9 < abs(wanted) < 4
        assert float(theta) == pytest.approx(wanted, abs=1e-6)
        assert np.isfinite(float(se))


SLOPES = RNG.uniform(0, 1.8, (8, 4))
GIVEN, RIGHT = [1, 4, 6], [0, 0, 1]


def of_several(dims, **rules):
    """A bank of several correlated abilities, and what rules see after three answers."""
    among = np.full((dims, dims), 0.4) + 0.6 * np.eye(dims)
    bank = ItemBank.from_slopes(SLOPES[:, :dims], np.linspace(-1, 1, 8), correlations=among)
    prior = np.vstack([np.zeros(dims), np.linalg.inv(among)])
    rules = {"method": "map", "max_items": 8, "theta_bounds": None, "nodes": None} | rules
    return bank, context(
        bank, GIVEN, RIGHT, theta=np.linspace(0.3, -0.2, dims), prior=prior, **rules
    )


def precision_at(bank, at):
    every = fisher_information(bank, [np.asarray(at.theta)])[:, 0]
    return every, np.linalg.inv(bank.population.correlations) + every[GIVEN].sum(axis=0)


def test_criteria_of_two_abilities_are_those_of_the_matrices():
    bank, at = of_several(2, criterion="d-optimal", nodes=15)
    every, before = precision_at(bank, at)
    traces, inverse = np.trace(every, axis1=1, axis2=2), np.linalg.inv
    names = "t-optimal", "d-optimal", "a-optimal"
    program = jax.jit(lambda theta: [CRITERIA[name](replace(at, theta=theta)) for name in names])
    found = dict(zip(names, program(at.theta), strict=True))
    np.testing.assert_allclose(found["t-optimal"], traces, rtol=1e-9)
    gain = np.log(np.linalg.det(before + every) / np.linalg.det(before))
    np.testing.assert_allclose(found["d-optimal"], gain, rtol=1e-9)
    lost = np.trace(inverse(before)) - np.trace(inverse(before + every), axis1=1, axis2=2)
    np.testing.assert_allclose(found["a-optimal"], lost, rtol=1e-9)


def test_nodes_of_many_abilities_have_the_mean_and_covariance_of_the_posterior():
    """Wrong answers inform as much as right ones."""
    bank, at = of_several(4, criterion="mpwi")
    at = replace(at, state=at.state._replace(theta=at.theta))
    share, nodes = np.exp(np.asarray(at.pool.log_weights)), np.asarray(at.nodes)
    np.testing.assert_allclose(share @ nodes, at.theta, atol=1e-9)
    off = nodes - np.asarray(at.theta)
    wanted = np.linalg.inv(precision_at(bank, at)[1])
    np.testing.assert_allclose((share[:, None] * off).T @ off, wanted, atol=1e-9)


def test_grids_of_several_abilities_have_a_greatest_size():
    for dims, most in ((2, 164), (3, 30)):
        with pytest.raises(InputError, match=f"at most {most}, for each of {dims}"):
            of_several(dims, criterion="d-optimal", nodes=most + 1)


def test_priors_narrower_than_half_of_a_step_are_refused():
    _, at = of_several(2, criterion="d-optimal", nodes=15)
    step = 8 / 14
    for share, refused in ((0.48, True), (0.52, False)):
        rows = np.vstack([np.zeros(2), np.diag([1.0, (share * step) ** -2])])
        if refused:
            with pytest.raises(InputError, match="conditional SD at least half"):
                at.pool.belief.check_priors(rows)
        else:
            at.pool.belief.check_priors(rows)


@pytest.mark.parametrize("prior", [(0.0, 0.0), (0.0, -1.0), (0.0,), (np.nan, 1.0)])
def test_a_prior_has_a_mean_and_an_sd_above_0(prior):
    with pytest.raises(InputError, match="the SD above 0"):
        Session.begin(BANK, Config(**GRID), prior=prior)


def test_moments_of_a_mixture_do_not_depend_on_the_sum_of_its_shares():
    means, sds, shares = np.array([[-1.0, 2.0], [0.5, 1.5], [1.0, 3.0]])
    mean = (means * shares).sum() / 4
    second = ((sds**2 + means**2) * shares).sum() / 4
    found = mixture_moments(np.stack([means, sds, shares]))
    assert found == pytest.approx((mean, np.sqrt(second - mean**2)))


def test_nodes_of_items_that_say_little_are_an_sd_of_the_population_apart():
    bank = ItemBank.from_parameters(a=[0.02] * 4, b=[0.0] * 4)
    pool = prepare(bank, Config(max_items=4, theta_bounds=(-40, 40)))
    assert len(pool.nodes) == pytest.approx(81, abs=1)


def test_a_session_that_is_over_does_not_change():
    config = Config(**(GRID | {"max_items": 1}))
    pool = prepare(BANK, config)
    over = step(pool, config, start(pool, config), [1], seconds=2.0)
    assert int(over.stop) > 0
    again = step(pool, config, over, [0], seconds=5.0)
    for before, after in zip(jax.tree.leaves(over), jax.tree.leaves(again), strict=True):
        np.testing.assert_array_equal(before, after)


def test_the_core_of_a_fixed_subset_comes_first():
    """Whatever the score; then its items are asked only while the score is out of the limits."""
    for within, follows in (((0.0, 1.0), False), ((0.45, 0.55), True)):
        at = context(fixed=FixedItems(("i3", "i4", "i9"), core=1, within=within))
        assert choose(at.pool, at.config, at.state)[0].tolist() == [2]
        one = context(BANK, [2], [1], fixed=at.config.fixed)
        assert (choose(one.pool, one.config, one.state)[0].tolist() == [3]) == follows


ML, ENDS = {"method": "ml", "constant": "halfway"}, {"constant": "bound"}


def test_drawn_sessions_and_estimates_beyond_the_bounds_compare_all_items():
    n = 48
    bank = ItemBank.from_parameters(np.linspace(0.5, 2, n), np.linspace(-2, 2, n)[::-1])
    base = GRID | {"max_items": 4}
    for rules, few in (({}, True), ({"sampled": 1.0}, False), (ML, False), (ML | ENDS, True)):
        assert (prepare(bank, Config(**(base | rules))).near is not None) == few
