"""Items calibrated on known abilities: against plain regressions, and against themselves."""

import jax.numpy as jnp
import numpy as np
import pandas as pd
import pytest
from scipy.optimize import minimize

from irtcat import EM, InputError, ItemBank, Responses, fit, score
from irtcat._common.precision import precision
from irtcat.fitting.item_regression import N_NODES, spread
from irtcat.latent import cells_of, item_curves
from irtcat.models import unpack

SHAPE = (400, 5)
EXACT = {"solver": EM(tolerance=1e-9)}


def draw(model="2pl", seed=0, mean=1.5, sd=2.0, shape=SHAPE):
    rng = np.random.default_rng(seed)
    theta = mean + sd * rng.normal(size=shape[0])
    c = {"c": np.full(shape[1], 0.2)} if model == "3pl" else {}
    bank = ItemBank.from_parameters(
        a=rng.uniform(0.5, 1.5, shape[1]), b=mean + rng.normal(size=shape[1]), **c
    )
    X = bank.simulate(theta, seed=seed + 1).to_numpy().astype(float)
    X[rng.random(shape) < 0.1] = np.nan
    return theta, Responses.from_array(X)


def numerical_hessian(function, x, step=1e-3):
    eye = step * np.eye(len(x))
    return np.array(
        [
            [
                sum(s * t * function(x + s * u + t * v) for s in (1, -1) for t in (1, -1))
                / (4 * step**2)
                for u in eye
            ]
            for v in eye
        ]
    )


def regression(theta, x, model, penalise=True):
    """Minus the log-likelihood (and prior of logit c) of one item, in plain numpy."""
    seen = ~np.isnan(x)
    theta, x = theta[seen], x[seen]

    def loss(phi):
        p = 1 / (1 + np.exp(-(phi[0] * theta + phi[1])))
        out = 0.0
        if model == "3pl":
            c = 1 / (1 + np.exp(-phi[2]))
            p = c + (1 - c) * p
            out = 0.5 * ((phi[2] + 1.1) / 0.5) ** 2 * penalise
        return out - np.where(x == 1, np.log(p), np.log1p(-p)).sum()

    return loss


@pytest.mark.slow_cases(".*3pl")
@pytest.mark.parametrize("model", ["2pl", "3pl"])
@pytest.mark.parametrize("rounded", [False, True])
def test_each_item_is_a_plain_regression(model, rounded):
    theta, responses = draw(model)
    theta = theta.round(1) if rounded else theta  # few distinct abilities are nodes themselves
    assert (len(np.unique(theta)) <= N_NODES) == rounded
    found = fit(responses, model, theta=theta, **EXACT)
    assert found.converged
    params = found.bank.parameters()
    X = responses.to_numpy().astype(float)
    total = 0.0
    for j in range(SHAPE[1]):
        loss = regression(theta, X[:, j], model)
        start = np.r_[0.8, -1.0, [-1.1] * (model == "3pl")]
        best = minimize(loss, start, method="BFGS", options={"gtol": 1e-6}).x
        np.testing.assert_allclose(params[j], best, atol=2e-4)
        assert loss(params[j]) <= loss(best) + 1e-7
        errors = np.sqrt(np.diag(np.linalg.inv(numerical_hessian(loss, params[j]))))
        ours = np.sqrt(np.diag(found.bank.covariance[j]))
        np.testing.assert_allclose(ours, errors, rtol=1e-4)
        total -= regression(theta, X[:, j], model, penalise=False)(params[j])
    assert found.log_likelihood == pytest.approx(total, abs=1e-6)
    assert found.bank.population.mean == pytest.approx(theta.mean())
    assert found.bank.population.sd == pytest.approx(theta.std())
    assert (np.diff(found.trace) >= -1e-8).all()
    assert found.n_parameters == params.size


def test_curves_are_interpolated_exactly():
    theta = draw(shape=(3000, 1))[0]
    nodes, weights = spread(np.r_[theta, 60.0])  # one far off makes the grid longer, not coarser
    assert np.diff(nodes)[0] <= theta.std() / 7.5
    weight = weights(np.arange(3000))
    np.testing.assert_allclose(weight.sum(1), 1, atol=1e-12)
    np.testing.assert_allclose(
        weight @ np.log1p(np.exp(1.2 * nodes - 1)), np.log1p(np.exp(1.2 * theta - 1)), atol=1e-7
    )


def test_equal_slopes_and_slopes_of_one():
    theta, responses = draw()
    X = responses.to_numpy().astype(float)
    common = fit(responses, "1pl", theta=theta, **EXACT).bank.parameters()

    def loss(phi):
        items = [regression(theta, X[:, j], "2pl")(phi[[0, j + 1]]) for j in range(SHAPE[1])]
        return sum(items)

    best = minimize(loss, np.r_[1.0, np.zeros(SHAPE[1])], method="BFGS").x
    np.testing.assert_allclose(common[0, 0], best[0], atol=2e-4)
    np.testing.assert_allclose(common[:, 1], best[1:], atol=5e-4)
    rasch = fit(responses, "rasch", theta=theta, **EXACT)
    stated = fit(responses, "2pl", theta=theta, fixed={"slope": 1.0}, **EXACT)
    assert rasch.n_parameters == SHAPE[1]
    np.testing.assert_allclose(rasch.bank.parameters()[:, 0], stated.bank.parameters()[:, 1])
    assert rasch.bank.population.sd == pytest.approx(theta.std())


@pytest.mark.slow
def test_graded_items_climb_to_a_point_where_the_gradient_vanishes():
    theta, _ = draw()
    rng = np.random.default_rng(5)
    z = 1.2 * (theta - 1.5)[:, None] + rng.logistic(size=SHAPE)
    responses = Responses.from_array((z > -1).astype(int) + (z > 1))
    found = fit(responses, "graded", theta=theta, **EXACT)
    assert found.converged

    def loss(phi, x):
        cut = [1 / (1 + np.exp(-(phi[0] * theta + phi[1 + k]))) for k in range(2)]
        p = np.choose(x, [1 - cut[0], cut[0] - cut[1], cut[1]])
        return -np.log(p).sum()

    X = responses.to_numpy().astype(int)
    likelihood = 0.0
    for j in range(SHAPE[1]):
        best = minimize(loss, [1.0, 0.0, -2.0], X[:, j], method="Nelder-Mead", tol=1e-9)
        likelihood -= best.fun
    assert found.log_likelihood == pytest.approx(likelihood, abs=1e-5)


@pytest.mark.slow
def test_graded_items_in_float32_as_well():
    theta, _ = draw()
    noise = np.random.default_rng(5).logistic(size=SHAPE)
    z = 1.2 * (theta - 1.5)[:, None] + noise
    responses = Responses.from_array((z > -1).astype(int) + (z > 1))
    found = fit(responses, "gpcm", EM(precision="float32"), theta=theta)
    assert found.precision == "float64"  # always
    marginal = fit(responses, "gpcm", EM(precision="float32"))  # warned of its integer fields once
    assert marginal.precision == "float32"
    assert marginal.log_likelihood < found.log_likelihood


@pytest.mark.slow
@pytest.mark.parametrize("model", ["feasibility", "nominal", "rsm", "binomial", "beta"])
def test_other_models_end_at_a_maximum_of_the_conditional_likelihood(model):
    theta, _ = draw(mean=0.3, sd=1.2)
    rng = np.random.default_rng(6)
    z = theta[:, None] - np.linspace(-1, 1, SHAPE[1])
    p = 1 / (1 + np.exp(-z))
    responses = {
        "feasibility": lambda: Responses.from_array((rng.random(SHAPE) < 0.9 * p).astype(int)),
        "binomial": lambda: Responses.from_counts(rng.binomial(6, p), 6),
        "beta": lambda: Responses.from_array(rng.beta(8 * p, 8 * (1 - p))),
    }.get(model, lambda: Responses.from_array(rng.binomial(2, p)))()
    found = fit(responses, model, theta=theta, **EXACT)
    assert found.converged

    def log_likelihood(params):
        with precision("float64") as dtype:
            items = unpack(found.bank.model, jnp.asarray(params))
            curves = item_curves(items, jnp.asarray(theta))  # at the abilities themselves
            x, gaps = cells_of(items, responses)
            statistics, mask = items.sufficient_statistics(
                jnp.asarray(x), len(curves.contrast), gaps, dtype
            )
            assert mask is None
            return float((curves.contrast * statistics).sum() + curves.base.sum())

    best = found.bank.parameters()
    own = log_likelihood(best)
    assert found.log_likelihood == pytest.approx(own, abs=1e-6)
    if not found.priors and found.n_sparse == 0:
        columns = best.shape[1] if model != "rsm" else 1  # whose steps all items share
        for column in range(columns):
            for step in (-1e-2, 1e-2):
                moved = best.copy()
                moved[0, column] += step
                assert log_likelihood(moved) < own


@pytest.mark.slow
def test_abilities_are_looked_up_by_subject():
    theta, responses = draw()
    direct = fit(responses, theta=theta)
    shuffled = np.random.default_rng(1).permutation(len(theta))
    series = pd.Series(theta, index=responses.subject_ids).iloc[shuffled]
    looked_up = fit(responses, theta=series)
    np.testing.assert_array_equal(looked_up.bank.parameters(), direct.bank.parameters())
    ability = score(direct.bank, responses)
    ours = fit(responses, theta=ability)
    np.testing.assert_array_equal(
        ours.bank.parameters(), fit(responses, theta=ability.theta).bank.parameters()
    )


def test_a_scale_where_less_is_better_and_items_that_say_nothing():
    theta, responses = draw("3pl")
    X = responses.to_numpy().astype(float)
    up = fit(responses, "3pl", theta=theta, **EXACT)
    down = fit(responses, "3pl", theta=-theta, **EXACT)
    np.testing.assert_allclose(down.log_likelihood, up.log_likelihood, atol=1e-6)
    np.testing.assert_allclose(down.bank.parameters() * [-1, 1, 1], up.bank.parameters(), atol=1e-4)
    X[:, 0], X[:, 1] = 1.0, np.nan
    odd = fit(Responses.from_array(X), theta=theta)
    frame = odd.bank.to_frame()
    assert odd.converged
    assert np.isfinite(odd.bank.parameters()).all()
    assert "constant" in frame["flag"].iloc[0]
    assert "no responses" in frame["flag"].iloc[1]
    assert odd.priors.keys() <= {"slope", "intercept"}


@pytest.mark.slow
def test_a_fixed_theta_does_not_go_with_anchors():
    theta, responses = draw(mean=0.0, sd=1.0)
    bank = fit(responses).bank
    known = bank.subset(bank.item_ids[:2])
    with pytest.raises(InputError, match="Leave out either `anchors`"):
        fit(responses, theta=theta, anchors=known)


@pytest.mark.parametrize(
    ("abilities", "message"),
    [
        (np.zeros(3), "400 numbers, one a subject"),
        (np.zeros(400), "different from one another"),
        (np.r_[np.nan, np.ones(399)], "finite"),
        (pd.Series([1.0], index=["who"]), "none for"),
        (["a"] * 400, "must be numbers"),
    ],
)
def test_abilities_that_cannot_be(abilities, message):
    with pytest.raises(InputError, match=message):
        fit(draw()[1], theta=abilities)


def test_what_known_abilities_do_not_go_with():
    theta, responses = draw()
    for arguments in (
        {"groups": np.arange(400) % 2},
        {"standard_errors": "sandwich"},
        {"solver": "vi"},
        {"model": "m2pl", "dims": 2},
    ):
        with pytest.raises(InputError):
            fit(responses, theta=theta, **arguments)


def test_one_extreme_ability_does_not_widen_the_spacing_of_the_others():
    rng = np.random.default_rng(1)
    theta = rng.normal(size=2000)
    X = (rng.random((2000, 2)) < 1 / (1 + np.exp(-3 * theta[:, None] - [1, 0]))).astype(float)
    theta[0] = 500.0
    X[0] = 1.0
    result = fit(Responses.from_array(X), "2pl", theta=theta, standard_errors="none")
    for j, phi in enumerate(result.bank.parameters()):
        z = phi[0] * theta + phi[1]
        assert np.abs((X[:, j] - 1 / (1 + np.exp(-z)))[1:] @ np.c_[theta, z**0][1:]).max() < 0.1
