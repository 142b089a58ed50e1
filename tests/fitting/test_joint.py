"""Penalised joint likelihood: its maximum, its known bias, and honesty."""

import numpy as np
import pytest
from scipy.optimize import minimize
from scipy.special import expit

from irtcat import InputError, ItemBank, Joint, Responses, fit

SHAPE = (300, 16)


def simulate(shape=SHAPE, seed=0, equal=False):
    rng = np.random.default_rng(seed)
    a = np.ones(shape[1]) if equal else rng.uniform(0.7, 1.8, shape[1])
    bank = ItemBank.from_parameters(a=a, b=rng.normal(0, 1, shape[1]))
    theta = rng.normal(size=shape[0])
    return bank, theta, bank.simulate(theta, seed=seed + 1).to_numpy()


def with_gaps(X, share=0.2):
    return np.where(np.random.default_rng(9).random(X.shape) < share, np.nan, X)


def brute_force(X, tied=False):
    """Maximise the penalised joint likelihood by a general optimiser."""
    n, n_items = X.shape
    seen, x = ~np.isnan(X), np.nan_to_num(X)

    def loss(v):
        theta, a, d = v[:n], v[n : n + (1 if tied else n_items)], v[-n_items:]
        z = theta[:, None] * a + d
        r = seen * (x - expit(z))
        value = (seen * (x * z - np.logaddexp(0, z))).sum() - (theta**2).sum() / 2
        value -= ((a - 1) ** 2).sum() / 2 + (d**2).sum() / 18
        by_a = (r * theta[:, None]).sum(0)
        by_a = (by_a.sum(keepdims=True) if tied else by_a) - (a - 1)
        by_theta = (r * a).sum(1) - theta
        return -value, -np.concatenate([by_theta, by_a, r.sum(0) - d / 9])

    start = np.concatenate([np.zeros(n), np.ones(1 if tied else n_items), np.zeros(n_items)])
    found = minimize(
        loss,
        start + 0.01,
        jac=True,
        method="L-BFGS-B",
        options={"maxiter": 5000, "ftol": 1e-14, "gtol": 1e-7},
    )
    theta, a, d = found.x[:n], found.x[n:-n_items], found.x[-n_items:]
    return a * theta.std() + 0 * d, d + a * theta.mean(), -found.fun


@pytest.mark.slow_cases("1pl-False", "2pl-True", "1pl-True")
@pytest.mark.parametrize("gaps", [False, True])
@pytest.mark.parametrize("key", ["1pl", "2pl"])
def test_brute_force(key, gaps):
    X = with_gaps(simulate()[2]) if gaps else simulate()[2]
    result = fit(Responses.from_array(X), key, Joint(tolerance=1e-6))
    slope, intercept, value = brute_force(X, tied=key == "1pl")
    assert result.converged
    np.testing.assert_allclose(result.bank.parameters()[:, 0], slope, atol=1e-3)
    np.testing.assert_allclose(result.bank.parameters()[:, 1], intercept, atol=1e-3)
    assert result.log_posterior == pytest.approx(value, abs=1e-4)


@pytest.mark.slow_cases("rasch")
@pytest.mark.parametrize("key", ["rasch", "2pl"])
def test_the_objective_never_falls(key):
    result = fit(Responses.from_array(simulate()[2]), key, Joint(tolerance=1e-6))
    assert np.diff(result.trace).min() >= -1e-9 * abs(result.trace[-1])


def test_marginal_log_likelihood_is_the_integral(oracle):
    X = with_gaps(simulate()[2])
    result = fit(Responses.from_array(X), "2pl", "joint")
    expected = oracle.marginal(result.bank.parameters(), X)
    assert result.log_likelihood == pytest.approx(expected, abs=1e-4)
    assert result.log_likelihood < fit(Responses.from_array(X), "2pl").log_likelihood


@pytest.mark.slow
def test_close_to_em_on_long_tests():
    bank, theta, X = simulate((300, 60), seed=2)
    joint, em = (fit(Responses.from_array(X), "2pl", m) for m in ("joint", "em"))
    ours, theirs = (f.bank.parameters() for f in (joint, em))
    assert np.corrcoef(ours[:, 0], theirs[:, 0])[0, 1] > 0.97
    assert np.corrcoef(ours[:, 1], theirs[:, 1])[0, 1] > 0.995
    assert np.corrcoef(joint.abilities.theta, theta)[0, 1] > 0.9
    assert np.corrcoef(ours[:, 1], bank.parameters()[:, 1])[0, 1] > 0.97


@pytest.mark.slow
def test_bias_goes_the_way_theory_says():
    """Rasch intercepts are spread too far, by about J / (J - 1), however many the subjects."""
    spreads = []
    for n_items in (8, 32):
        _, _, X = simulate((1000, n_items), seed=5, equal=True)
        joint, em = (fit(Responses.from_array(X), "rasch", m) for m in ("joint", "em"))
        spreads.append(np.std(joint.bank.parameters()) / np.std(em.bank.parameters()))
        assert joint.latent_sd < 0.97
        assert em.latent_sd == pytest.approx(1, abs=1e-3)
    assert 1.05 < spreads[0] < 1.4
    assert 1.0 < spreads[1] < 1 + (spreads[0] - 1) / 2


def test_penalties_are_obeyed():
    X = simulate()[2]
    free = fit(Responses.from_array(X), "2pl", "joint")
    tight = fit(Responses.from_array(X), "2pl", "joint", priors={"slope": (1.0, 0.01)})
    assert np.std(tight.bank.parameters()[:, 0]) < 0.1 * np.std(free.bank.parameters()[:, 0])
    assert free.priors == {"slope": (1.0, 1.0), "intercept": (0.0, 3.0)}


def test_turned_items_stay_negative_and_the_scale_points_up():
    X = simulate()[2]
    X[:, 3] = 1 - X[:, 3]
    result = fit(Responses.from_array(X), "2pl", "joint")
    assert (result.bank.parameters()[:, 0] < 0).tolist() == [j == 3 for j in range(SHAPE[1])]
    assert "negative slope" in result.bank.to_frame()["flag"].iloc[3]
    assert np.corrcoef(result.abilities.theta, X.mean(axis=1))[0, 1] > 0.8


@pytest.mark.slow
def test_degenerate_data():
    X = simulate()[2]
    X[0], X[1], X[2], X[3:, 0], X[3:, 1] = 1, 0, np.nan, 1, 0
    X[:3, :2] = np.nan
    for key in ("rasch", "1pl", "2pl"):
        result = fit(Responses.from_array(X), key, "joint")
        assert result.converged
        assert np.isfinite(result.bank.parameters()).all()
        assert np.isfinite(result.bank.covariance).all()
        assert np.isfinite(result.abilities.theta).all()
        assert result.bank.to_frame()["flag"].tolist()[:2] == ["constant", "constant"]


def test_honest_about_stopping_early():
    result = fit(Responses.from_array(simulate()[2]), solver=Joint(max_iterations=1))
    assert not result.converged
    assert "max_iterations" in result.message


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"model": "3pl"}, r'"joint" is for the models rasch, 1pl, 2pl.*"3pl"'),
        ({"weak_priors": False}, r'`weak_priors` argument is not for the solver "joint"'),
        ({"priors": {"b": (0, 1)}}, "about slope, intercept"),
        ({"priors": {"slope": ("lognormal", 0, 0.5)}}, "of all items with the solver joint"),
        ({"priors": {"slope": {"i1": (1, 1)}}}, "of all items with the solver joint"),
    ],
)
def test_bad_arguments_are_refused(arguments, message):
    with pytest.raises(InputError, match=message):
        fit(Responses.from_array(simulate()[2]), solver="joint", **arguments)


def test_the_alias_of_a_slope_has_its_prior():
    responses = Responses.from_array(simulate()[2])
    fits = [fit(responses, solver="joint", priors={name: (1, 0.1)}) for name in ("a", "slope")]
    np.testing.assert_array_equal(*(f.bank.parameters() for f in fits))
