"""The lognormal model against multivariate Normal densities and two-dimensional integrals."""

import functools
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from scipy.optimize import approx_fprime
from scipy.special import expit
from scipy.stats import multivariate_normal, norm

from irtcat import InputError, ItemBank, Population
from irtcat.cat import Config, Session
from irtcat.response_times import fit_times, score_with_times

N, K = 80, 4
RNG = np.random.default_rng(3)
A, B = np.array([1.0, 1.5, 0.8, 1.2]), np.array([-1.0, 0.0, 0.5, 1.0])
ALPHA, BETA = np.array([1.5, 2.0, 2.5, 3.0]), np.array([3.0, 3.5, 4.0, 3.2])
LATENT = RNG.multivariate_normal([0, 0], [[1, 0.6], [0.6, 1]], N)
BANK = ItemBank.from_parameters(a=A, b=B)
RESPONSES = BANK.simulate(LATENT[:, 0], seed=0)
TIMES = np.exp(BETA - 0.4 * LATENT[:, 1:] + RNG.normal(size=(N, K)) / ALPHA)
TIMES[RNG.random((N, K)) < 0.15] = np.nan
SEEN = ~np.isnan(TIMES)
TABLE = pd.DataFrame(TIMES, RESPONSES.subject_ids, RESPONSES.item_ids)


@functools.cache
def alone():
    return fit_times(TIMES)


@functools.cache
def joint():
    return fit_times(TIMES, RESPONSES, bank=BANK)


def parameters(model):
    items = model.items
    return np.r_[items["intensity"], items["discrimination"], model.speed_sd]


def log_likelihood(params):
    """Of the times alone: Normal log-times with a common component."""
    beta, alpha, omega = params[:K], params[K : 2 * K], params[-1]
    covariance = omega**2 + np.diag(alpha**-2)
    total = 0.0
    for pattern in np.unique(SEEN, axis=0):
        seen = np.flatnonzero(pattern)
        if len(seen):
            rows = np.log(TIMES[(pattern == SEEN).all(axis=1)][:, seen])
            within = covariance[np.ix_(seen, seen)]
            total += multivariate_normal.logpdf(rows, beta[seen], within).sum()
    return total


@pytest.mark.slow
def test_times_alone_are_a_normal_model_with_a_common_component():
    params = parameters(alone())
    assert alone().log_likelihood == pytest.approx(log_likelihood(params), abs=1e-8)
    gradient = approx_fprime(params, log_likelihood, 1e-6)
    np.testing.assert_allclose(gradient, 0, atol=0.05)
    hessian = np.array(
        [
            (
                approx_fprime(params + 1e-3 * e, log_likelihood, 1e-5)
                - approx_fprime(params - 1e-3 * e, log_likelihood, 1e-5)
            )
            / 2e-3
            for e in np.eye(len(params))
        ]
    )
    se = np.sqrt(np.diag(np.linalg.inv(-hessian)))
    items = alone().items
    found = np.r_[items["intensity_se"], items["discrimination_se"], alone().speed_sd_se]
    np.testing.assert_allclose(found, se, rtol=1e-3)


def joint_integrals(model):
    """Marginal likelihood of each subject, and moments of both, by sums over a grid."""
    x = np.linspace(-6, 6, 121)
    theta, z = (axis.ravel() for axis in np.meshgrid(x, x))
    prior = (
        multivariate_normal.pdf(
            np.stack([theta, z], 1), [0, 0], [[1, model.correlation], [model.correlation, 1]]
        )
        * (x[1] - x[0]) ** 2
    )
    p = expit(A * (theta[:, None] - B))
    items = model.items
    centre = items["intensity"].to_numpy() - model.speed_sd * z[:, None]
    out = []
    for answer, row in zip(RESPONSES.values, np.log(TIMES), strict=True):
        seen = ~np.isnan(row)
        spread = 1 / items["discrimination"].to_numpy()[seen]
        likelihood = norm.pdf(row[seen], centre[:, seen], spread).prod(1) * prior
        likelihood *= np.where(answer == 1, p, 1 - p).prod(1)
        mass = likelihood.sum()
        first, second = (
            [likelihood @ v**k / mass for v in (theta, model.speed_sd * z)] for k in (1, 2)
        )
        out.append([np.log(mass), *first, *np.sqrt(np.array(second) - np.square(first))])
    return np.array(out).T


@pytest.mark.slow
def test_the_joint_fit_is_a_maximum_of_the_integral_over_both():
    log_mass, theta, speed, theta_sd, speed_sd = joint_integrals(joint())
    assert joint().log_likelihood == pytest.approx(log_mass.sum(), abs=1e-5)
    for change in (-0.01, 0.01):
        other = replace(joint(), correlation=joint().correlation + change)
        assert joint_integrals(other)[0].sum() < log_mass.sum()
    found = score_with_times(BANK, RESPONSES, joint(), TABLE)
    for name, want in (("theta", theta), ("se", theta_sd), ("speed", speed)):
        np.testing.assert_allclose(found[name], want, atol=2e-5)
    np.testing.assert_allclose(found["speed_se"], speed_sd, atol=2e-5)
    assert (found["se"] < found["se_without"]).mean() > 0.9


@pytest.mark.slow
def test_ids_match_times_and_responses_in_any_order():
    shuffled = TABLE.iloc[::-1, ::-1]
    long = TABLE.rename_axis("subject").reset_index().melt("subject", None, "item", "seconds")
    for times in (shuffled, long):
        model = fit_times(times, RESPONSES, bank=BANK)
        assert model.correlation == pytest.approx(joint().correlation, abs=1e-7)
        assert model.log_likelihood == pytest.approx(joint().log_likelihood, abs=1e-6)
    assert fit_times(TABLE, RESPONSES.subset(subjects=np.arange(20)), bank=BANK).converged
    moved = ItemBank.from_parameters(a=A / 2, b=3 + 2 * B, populations={"": Population(3.0, 2.0)})
    model = fit_times(TIMES, RESPONSES, bank=moved)
    assert model.correlation == pytest.approx(joint().correlation, abs=1e-6)
    expected = 3 + 2 * joint().prior(TABLE)["mean"]
    np.testing.assert_allclose(model.prior(TABLE)["mean"], expected, atol=1e-5)


def changed(row, column, value):
    out = TIMES.copy()
    out[row, column] = value
    return out


@pytest.mark.parametrize(
    ("times", "options", "match"),
    [
        (changed(2, 1, 0.0), {}, "above 0 and finite, or NaN.* '0 of subject s3 on item i2"),
        (changed(2, 1, -4.0), {}, "above 0.* '-4 of subject s3"),
        (np.minimum(TIMES, 40), {}, "not cut off.* exactly 40.* limit=np.inf"),
        (TIMES, {"limit": 60.0}, "below the limit of 60.*no censored times"),
        (changed(slice(2, None), 1, np.nan), {}, "at least 3 on each item. Got '[0-2] on item i2"),
        (changed(slice(None), 1, 5.0), {"limit": np.inf}, "one time on item i2"),
        (np.exp(RNG.permuted(np.log(TIMES), axis=0) + LATENT[:, :1] * [1, -1, 1, -1]), {}, "speed"),
        (TIMES, {"bank": BANK}, "together with responses"),
    ],
)
def test_refusals(times, options, match):
    with pytest.raises(InputError, match=match):
        fit_times(times, **options)


def test_a_model_of_times_alone_says_nothing_of_ability():
    with pytest.raises(InputError, match="one of times and ability"):
        score_with_times(BANK, RESPONSES, alone(), TABLE)
    with pytest.raises(InputError, match="one time of a subject"):
        fit_times(pd.DataFrame({"subject": [1, 1], "item": [1, 1], "seconds": [2, 3]}))


@pytest.mark.slow
def test_sessions_keep_the_times_of_their_answers():
    session = Session.begin(BANK, Config(max_items=3))
    for seconds, value in ((2.5, 1), (4.0, None), (7.0, 0)):
        session.answer(session.asked[0], value, seconds)
    times = session.seconds()
    assert times.dropna().tolist() == [2.5, 7.0]
    assert times.isna().sum() == 1
    assert set(session.to_frame().index) <= set(times.index)
