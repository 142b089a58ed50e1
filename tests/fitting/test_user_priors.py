"""Fixed and equal parameters, priors of several families: against brute force and other models."""

import numpy as np
import pandas as pd
import pytest
from scipy import stats
from scipy.optimize import minimize
from scipy.special import expit

import irtcat
from irtcat import EM, InputError, ItemBank, fit
from irtcat.fitting.em.m_step import Constraints, log_prior, prior_slopes
from irtcat.responses.datasets import load

EXACT = {"solver": EM(tolerance=1e-7, precision="float64", max_iterations=20000)}


@pytest.fixture(scope="module")
def lsat():
    return load("lsat7")


@pytest.mark.parametrize("key", ["2pl", "3pl"])
def test_priors_on_slopes_fix_the_scale_and_those_on_guessing_do_not(lsat, key):
    """Where the scale is free, the population that fits best is the one that defines it."""
    free = fit(lsat, key, standard_errors="none")
    assert free.latent_mean == pytest.approx(0, abs=1e-4)
    assert free.latent_sd == pytest.approx(1, abs=1e-3)
    fixed = fit(lsat, key, priors={"slope": (1.0, 0.5)}, standard_errors="none")
    assert np.isnan([fixed.latent_mean, fixed.latent_sd]).all()


@pytest.mark.slow
def test_equal_slopes_are_the_one_parameter_model(lsat):
    equal, one = fit(lsat, "2pl", equal=["slope"], **EXACT), fit(lsat, "1pl", **EXACT)
    np.testing.assert_allclose(equal.bank.parameters(), one.bank.parameters(), atol=1e-8)
    np.testing.assert_allclose(equal.bank.covariance, one.bank.covariance, rtol=1e-6)
    assert equal.n_parameters == one.n_parameters == 6


@pytest.mark.slow
def test_fixed_asymptotes_are_the_smaller_model(lsat):
    """c = 0 by its own name: a 2PL; the other parameters' errors are the 2PL's."""
    fixed, two = fit(lsat, "3pl", fixed={"c": 0}, **EXACT), fit(lsat, "2pl", **EXACT)
    np.testing.assert_allclose(fixed.bank.parameters()[:, :2], two.bank.parameters(), atol=1e-6)
    assert fixed.n_parameters == two.n_parameters == 10
    assert fixed.priors == {"logit_lower": (-1.1, 0.5)}
    assert fixed.log_posterior == pytest.approx(fixed.log_likelihood)
    np.testing.assert_allclose(fixed.bank.covariance[:, :2, :2], two.bank.covariance, rtol=1e-4)
    assert np.isnan(fixed.bank.covariance[:, 2]).all()
    assert (fixed.bank.to_frame()["flag"] == "").all()


@pytest.mark.slow
def test_fixed_by_item(lsat, oracle):
    """One slope is held: the rest maximises the likelihood (general optimiser)."""
    result = fit(lsat, "2pl", fixed={"a": {"item2": 1.5}, "intercept": {"item4": 0.3}}, **EXACT)
    ours, X = result.bank.parameters(), lsat.to_numpy()
    assert ours[1, 0] == 1.5
    assert ours[3, 1] == 0.3
    free = np.ones((5, 2), bool)
    free[1, 0] = free[3, 1] = False

    def loss(vector):
        params = ours.copy()
        params[free] = vector
        return -oracle.marginal(params, X, n=201)

    found = minimize(loss, ours[free] + 0.05, method="BFGS", options={"gtol": 1e-5})
    np.testing.assert_allclose(ours[free], found.x, atol=2e-3)
    assert result.n_parameters == 8
    assert np.diff(result.trace).min() >= -1e-9 * abs(result.log_posterior)


PRIORS = {
    "lognormal and beta": {"slope": ("lognormal", 0.1, 0.4), "c": ("beta", 5, 17)},
    "by item": {
        "slope": {"i1": ("lognormal", 0.0, 0.3), "i2": (1.0, 0.2), "i4": (1.3, 0.4)},
        "intercept": pd.DataFrame({"mean": [0.5], "sd": [0.4]}, index=["i3"]),
        "c": {f"i{j}": ("beta", 4, 9) for j in range(1, 5)},
    },
}


def density(params, which):
    """Log-density of the priors, by scipy."""
    a, c = params[:, 0], expit(params[:, 2])
    if which == "lognormal and beta":
        return (stats.lognorm.logpdf(a, 0.4, scale=np.exp(0.1)) + stats.beta.logpdf(c, 5, 17)).sum()
    total = stats.lognorm.logpdf(a[0], 0.3) + stats.norm.logpdf(a[1], 1, 0.2)
    total += stats.norm.logpdf(a[3], 1.3, 0.4) + stats.norm.logpdf(params[2, 1], 0.5, 0.4)
    return total + stats.beta.logpdf(c, 4, 9).sum()


@pytest.mark.slow
@pytest.mark.parametrize("which", PRIORS)
def test_priors_against_brute_force(which, oracle):
    """Parameters, log-posterior and curvature (the standard errors) of the families."""
    bank = ItemBank.from_parameters(a=[1, 1.4, 1.2, 0.9], b=[-1, 0, 0.5, 1], c=0.2)
    responses = bank.simulate(np.random.default_rng(0).normal(size=150), seed=1)
    result = fit(
        responses, "3pl", priors=PRIORS[which], weak_priors=False, standard_errors="full", **EXACT
    )
    ours, X = result.bank.parameters(), responses.to_numpy()
    assert result.converged
    assert np.diff(result.trace).min() >= -1e-9 * abs(result.log_posterior)

    def loss(vector):
        params = vector.reshape(4, 3)
        if (which == "lognormal and beta" and (params[:, 0] <= 0).any()) or params[0, 0] <= 0:
            return 1e10
        return -oracle.marginal(params, X, n=201) - density(params, which)

    assert result.log_posterior == pytest.approx(-loss(ours.ravel()), abs=1e-5)
    found = minimize(loss, ours.ravel() + 0.03, method="BFGS", options={"gtol": 1e-5})
    np.testing.assert_allclose(ours.ravel(), found.x, atol=5e-3)
    n, step = ours.size, 1e-3
    eye, hessian = step * np.eye(n), np.zeros((n, n))
    for i in range(n):
        for j in range(i, n):
            ends = [loss(ours.ravel() + s * eye[i] + t * eye[j]) for s in (1, -1) for t in (1, -1)]
            hessian[i, j] = hessian[j, i] = (ends[0] - ends[1] - ends[2] + ends[3]) / 4 / step**2
    errors = np.sqrt(np.diag(np.linalg.inv(hessian)))
    mine = np.sqrt(np.diag(result.bank.full_covariance))
    np.testing.assert_allclose(mine, errors, rtol=1e-2)


WRONG = {
    "no mapping": ({"fixed": 1.0}, "mapping from names"),
    "a list": ({"priors": [("slope", (1, 1))]}, "mapping from names"),
    "family in vi": ({"priors": {"a": ("normal", 0, 1)}, "solver": "vi"}, "SD above 0"),
    "by item in vi": ({"priors": {"b": {"i1": (0, 1)}}, "solver": "vi"}, "SD above 0"),
    "b is no parameter": ({"fixed": {"b": 0.0}}, "-a b"),
    "no such parameter": ({"fixed": {"guess": 0.0}}, "among slope, intercept"),
    "no such item": ({"fixed": {"slope": {"q": 1.0}}}, "'q'"),
    "c outside [0, 1]": ({"fixed": {"c": 2.0}, "model": "3pl"}, "in .0, 1."),
    "not a number": ({"fixed": {"slope": "one"}}, "finite number"),
    "equal what": ({"equal": ["difficulty"]}, "equal"),
    "no such family": ({"priors": {"slope": ("gamma", 1, 2)}}, "normal, lognormal, beta"),
    "beta on a slope": ({"priors": {"slope": ("beta", 1, 2)}}, "Beta is for c"),
    "beta below 1": ({"priors": {"c": ("beta", 0.5, 2)}, "model": "3pl"}, "1 or more"),
    "normal on c": ({"priors": {"c": (0.2, 0.1)}, "model": "3pl"}, "logit_lower"),
    "lognormal intercept": ({"priors": {"intercept": ("lognormal", 0, 1)}}, "slopes"),
    "prior of no item": ({"priors": {"slope": {"q": (1, 1)}}}, "'q'"),
}


@pytest.mark.parametrize("case", WRONG)
def test_bad_input(case, lsat):
    arguments, words = WRONG[case]
    arguments = {"model": "2pl", **arguments}
    with pytest.raises(InputError, match=words):
        fit(lsat, **arguments)


# --- shared parameters


def shared_data():
    rng = np.random.default_rng(0)
    theta, a, b = rng.normal(size=(300, 1)), rng.uniform(0.7, 1.8, 12), rng.normal(size=12)
    return (rng.random((300, 12)) < 1 / (1 + np.exp(-a * (theta - b)))).astype(int)


@pytest.mark.slow
def test_the_prior_of_a_shared_parameter_does_not_depend_on_the_items_order():
    x = shared_data()
    x[:, 0] = 1  # constant: set aside
    fits = [
        irtcat.fit(irtcat.Responses.from_array(z), "1pl", priors={"slope": (3.0, 0.01)})
        for z in (x, np.roll(x, -1, axis=1))
    ]
    slopes = [f.bank.to_frame()["a"].iloc[0] for f in fits]
    assert slopes[0] == pytest.approx(slopes[1], abs=1e-4)
    assert slopes[0] == pytest.approx(3, abs=0.02)
    assert fits[0].log_posterior == pytest.approx(fits[1].log_posterior, abs=1e-3)


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        ({"equal": ["slope"], "fixed": {"slope": {"i1": 2.0}}}, "share"),
        ({"equal": ["slope"], "priors": {"slope": {"i1": (1, 1), "i2": (3, 1)}}}, "share"),
        ({"equal": ["slope"], "fixed": {"slope": [1.0] * 12}}, "finite number"),
        ({"fixed": {"slope": 50.0}}, "25"),
        ({"fixed": {"a": 1.0, "slope": 2.0}}, "once"),
    ],
)
def test_what_cannot_be_shared_or_fixed(arguments, named):
    with pytest.raises(irtcat.InputError, match=named):
        irtcat.fit(irtcat.Responses.from_array(shared_data()), "2pl", **arguments)


@pytest.mark.slow
def test_all_parameters_shared():
    r = irtcat.Responses.from_array(shared_data())
    given = {"equal": ["slope", "intercept"]}
    errors = [
        irtcat.fit(r, "2pl", standard_errors=which, **given).bank.to_frame()["se_a"].iloc[0]
        for which in ("block", "full")
    ]
    assert errors[0] == pytest.approx(errors[1], rel=0.2)
    best = irtcat.fit(r, "2pl", equal=["slope", "intercept"])
    assert (np.ptp(best.bank.parameters(), axis=0) == 0).all()
    slope, intercept = best.bank.parameters()[0]
    for step in ((0.05, 0), (-0.05, 0), (0, 0.05), (0, -0.05)):
        moved = {"slope": slope + step[0], "intercept": intercept + step[1]}
        assert irtcat.fit(r, "2pl", fixed=moved).log_likelihood < best.log_likelihood


def test_a_checkpoint_of_other_fixed_values_is_refused(tmp_path):
    r = irtcat.Responses.from_array(shared_data())
    file = tmp_path / "state.npz"
    irtcat.fit(r, "2pl", irtcat.EM(checkpoint=file), fixed={"slope": 1.0})
    with pytest.raises(irtcat.InputError, match="other"):
        irtcat.fit(r, "2pl", irtcat.EM(checkpoint=file, resume=True), fixed={"slope": 2.0})


def test_groups_without_common_items_are_refused():
    x = shared_data()
    x[:150, :6] = -1
    x[150:, 6:] = -1
    with pytest.raises(irtcat.InputError, match="connected"):
        irtcat.fit(irtcat.Responses.from_array(x), "2pl", groups=["A"] * 150 + ["B"] * 150)


def test_subjects_all_alike_tell_of_no_population():
    bank = irtcat.fit(irtcat.Responses.from_array(np.ones((50, 6), int)), "2pl").bank
    assert (bank.population.mean, bank.population.sd) == (0, 1)


def test_slopes_of_priors_are_derivatives():
    """Gradient and curvature of each family, by central differences."""
    rng = np.random.default_rng(3)
    params = rng.uniform(0.3, 2.0, (4, 3))
    first, second = np.full((2, 4, 3), [[[0.2, 0.1, 5.0]], [[1.5, 4.0, 17.0]]])
    edges = np.full(3, np.inf)
    priors = Constraints(
        first, second, first > 0, -edges, edges, np.broadcast_to([0, 1, 2], (4, 3))
    )
    gradient, curvature = prior_slopes(params, priors)
    h = 1e-4
    for column in range(3):
        move = h * np.eye(3)[column]
        ends = [log_prior(params + step * move, priors) for step in (-1, 0, 1)]
        np.testing.assert_allclose(gradient[:, column], (ends[2] - ends[0]) / (2 * h), rtol=1e-6)
        bend = (ends[0] - 2 * ends[1] + ends[2]) / h**2
        np.testing.assert_allclose(curvature[:, column], -bend, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("several", [{"pattern": np.repeat(np.eye(2), 4, axis=0)}, {"dims": 2}])
def test_equal_intercepts_of_several_abilities_stay_equal(several):
    """Removing the abilities' means would move the intercepts of steep items more."""
    slopes = np.repeat(np.eye(2), 4, axis=0) * np.linspace(0.6, 2, 8)[:, None]
    theta = np.random.default_rng(0).normal(size=(400, 2))
    data = ItemBank.from_slopes(slopes, 0.6).simulate(theta, seed=1)
    result = fit(data, equal=["intercept"], standard_errors="none", **several)
    assert np.ptp(np.asarray(result.bank.model.intercept)) < 1e-9


def test_fixed_slopes_stay_with_a_density(lsat):
    """The scale is that of the items, on which the density has an SD of its own."""
    given = {"density": "davidian-2", "standard_errors": "none"}
    result, free = (fit(lsat, **given, **kind) for kind in ({"fixed": {"slope": 2.0}}, {}))
    np.testing.assert_allclose(result.bank.model.slope, 2.0)
    assert result.bank.population.sd < 0.9
    assert free.bank.population.sd == pytest.approx(1)
