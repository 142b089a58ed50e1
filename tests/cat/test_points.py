"""Point estimates in a session against an independent search, and the curves that they use."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.optimize import brentq

from irtcat import ItemBank
from irtcat._common.compilation import jit
from irtcat._common.precision import precision
from irtcat.cat import Config, prepare, simulate
from irtcat.cat.belief.curves import answer_terms, category_terms
from irtcat.cat.engine import engine
from irtcat.cat.rules.estimators import estimate
from irtcat.models import take

from . import helpers as ref

N_ITEMS, N_PATTERNS = 15, 120
LOW, HIGH = -5.0, 5.0


def random_bank(upper, steepest=2.5):
    rng = np.random.default_rng(4)
    d = rng.uniform(0.75, 0.98, N_ITEMS) if upper else 1.0
    a, b = rng.uniform(0.4, steepest, N_ITEMS), rng.normal(0, 1.2, N_ITEMS)
    return ItemBank.from_parameters(a, b, rng.uniform(0, 0.3, N_ITEMS) * (a > 0.6), d)


def random_patterns():
    """Random ones, which have several maxima, likely ones, and all right and all wrong."""
    rng = np.random.default_rng(5)
    x = rng.integers(0, 2, (N_PATTERNS, N_ITEMS))
    x[:12], x[12:24], x[24:48] = 1, 0, rng.random((24, N_ITEMS)) < 0.85
    keep = np.arange(N_ITEMS) < rng.integers(1, N_ITEMS + 1, N_PATTERNS)[:, None]
    items = np.where(keep, np.arange(N_ITEMS), -1).astype(np.int32)
    return items, np.where(keep, x, -1).astype(np.int32)


def estimates(bank, config, items, answers, dtype="float64"):
    with precision(dtype) as width:
        pool = prepare(bank, config, dtype)

        @jit
        def all_of_them(pool, items, answers):
            def one(items, answers):
                prior = jnp.asarray([0.0, 1.0], width)
                state = ref.state_after(pool, config, items, answers, prior)
                return estimate(engine.context_of(pool, config, state))

            return jax.vmap(one)(items, answers)

        return [np.asarray(part) for part in all_of_them(pool, items, answers)]


def slope_by_hand(bank, method, items, answers):
    """The slope of the objective by textbook formulas, with Warm's J by its definition."""
    used = items >= 0
    a, b, c, d = (
        column[items[used], None] for column in bank.to_frame()[list("abcd")].to_numpy().T
    )
    x = answers[used][:, None]

    def slope(theta):
        s = 1 / (1 + np.exp(-a * (np.ravel(theta) - b)))
        p = c + (d - c) * s
        d1 = a * (d - c) * s * (1 - s)
        d2 = a * d1 * (1 - 2 * s)
        score = (d1 * (x - p) / (p * (1 - p))).sum(axis=0)
        if method == "map":
            score = score - np.ravel(theta)
        if method == "wle":
            information = (d1**2 / (p * (1 - p))).sum(axis=0)
            score = score + (d1 * d2 / (p * (1 - p))).sum(axis=0) / (2 * information)
        return score

    return slope


def maximum_by_hand(slope):
    fine = np.linspace(LOW, HIGH, 20_001)
    at = slope(fine)
    height = np.concatenate([[0.0], np.cumsum(0.5 * (at[1:] + at[:-1]) * (fine[1] - fine[0]))])
    best = height.argmax()
    if best in (0, len(fine) - 1):
        return fine[best]
    return brentq(lambda t: slope(t)[0], fine[best - 1], fine[best + 1], xtol=1e-13)


@pytest.mark.slow
@pytest.mark.parametrize("upper", [False, True], ids=["3pl", "4pl"])
@pytest.mark.parametrize("method", ["ml", "map", "wle"])
def test_estimates_are_the_global_maxima(method, upper):
    bank = random_bank(upper)
    items, answers = random_patterns()
    config = Config(
        method=method, constant="bound", theta_bounds=(LOW, HIGH), max_items=N_ITEMS, nodes=161
    )
    theta, _ = estimates(bank, config, items, answers)
    wanted = np.array(
        [
            maximum_by_hand(slope_by_hand(bank, method, *pattern))
            for pattern in zip(items, answers, strict=True)
        ]
    )
    np.testing.assert_allclose(theta, wanted, rtol=0, atol=1e-9)
    single, _ = estimates(bank, config, items, answers, "float32")
    near = np.abs(single - wanted) < 1e-3
    assert near.mean() > 0.99  # of flat likelihoods float32 knows less


@pytest.mark.slow
@pytest.mark.parametrize("constant", ["map", "eap", "wle", "step"])
def test_constant_patterns_have_the_other_estimate(constant):
    bank = random_bank(upper=False)
    items, answers = random_patterns()
    config = Config(method="ml", constant=constant, max_items=N_ITEMS)
    plain = estimates(
        bank, Config(method="ml", constant="bound", max_items=N_ITEMS), items, answers
    )
    both = estimates(bank, config, items, answers)
    x = np.where(items >= 0, answers, 2)
    is_constant = ~((x == 0).any(axis=1) & (x == 1).any(axis=1))
    assert is_constant.any()
    assert not is_constant.all()
    if constant != "step":
        other = estimates(bank, Config(method=constant, max_items=N_ITEMS), items, answers)
        for mine, wanted in zip(both, other, strict=True):
            np.testing.assert_allclose(mine[is_constant], wanted[is_constant], atol=1e-10)
    else:
        up = np.where(x[is_constant, 0] == 1, 0.7, -0.7)
        np.testing.assert_allclose(both[0][is_constant], up, atol=1e-12)
    for mine, wanted in zip(both, plain, strict=True):
        np.testing.assert_allclose(mine[~is_constant], wanted[~is_constant], atol=1e-10)


@pytest.mark.slow
def test_simulated_and_single_sessions_have_equal_estimates():
    """In a block other sessions still search, or need what this one does not."""
    bank = random_bank(upper=True)
    config = Config(method="ml", max_items=N_ITEMS, theta_bounds=(LOW, HIGH))
    truth = np.linspace(-3, 3, 12)
    report = simulate(bank, truth, config, seed=3, precision="float64")
    pool = prepare(bank, config)
    for row in range(len(truth)):
        state = engine.start(pool, config)
        while int(state.stop) == 0:
            n = int(state.n)
            assert int(state.asked[0]) == report.items[row, n]
            state = engine.step(pool, config, state, [report.answers[row, n]])
            np.testing.assert_allclose(state.theta, report.thetas[row, n], atol=1e-10)


@pytest.mark.slow
@pytest.mark.parametrize("upper", [False, True], ids=["3pl", "4pl"])
def test_slopes_of_answers_are_the_derivatives(upper):
    """The closed forms and their derivatives, near and far from the items."""
    bank = random_bank(upper, steepest=8.0)
    with precision("float64"):
        model = take(bank.model, jnp.arange(N_ITEMS))
        by_derivatives = jax.vmap(category_terms, (0, None))

        def general(theta, answers):
            _, d1, information, warm = by_derivatives(model, theta)
            return jnp.take_along_axis(d1, answers[:, None], axis=1)[:, 0], information, warm

        for answer in (0, 1):
            answers = jnp.full(N_ITEMS, answer)
            for theta in (-6.0, -1.3, float(bank.to_frame()["b"].iloc[0]), 0.0, 2.2, 7.0):
                pairs = [
                    jax.jvp(terms, (jnp.asarray(theta),), (jnp.asarray(1.0),))
                    for terms in (
                        lambda t: answer_terms(model, answers, t),  # noqa: B023
                        lambda t: general(t, answers),  # noqa: B023
                    )
                ]
                for mine, wanted in zip(*map(jax.tree.leaves, pairs), strict=True):
                    np.testing.assert_allclose(mine, wanted, rtol=1e-8, atol=1e-12)
    far = answer_terms(random_bank(False, 200.0).model, jnp.ones(N_ITEMS, int), jnp.asarray(-50.0))
    assert all(np.isfinite(term).all() for term in far)
