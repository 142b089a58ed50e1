"""The factor model of complete responses."""

import functools

import numpy as np
import pytest
from scipy.optimize import minimize
from scipy.special import expit, log_expit, logit

from irtcat.prediction.factor_scores import FactorModel

RNG = np.random.default_rng(1)
LOADINGS = RNG.normal(size=(40, 2)) * [1.5, 0.8]
INTERCEPTS = RNG.normal(size=40)
Z = RNG.normal(size=(600, 2))
X = (RNG.random((600, 40)) < expit(INTERCEPTS + Z @ LOADINGS.T)).astype(float)


@functools.cache
def fitted_model():
    return FactorModel.fit(X[:400], 5)


def test_dimensions_without_support_shrink():
    """Two of five dimensions generated the responses; the fit keeps their covariances."""
    spread = np.sort(np.linalg.svd(fitted_model().loadings, compute_uv=False))[::-1]
    assert spread[2:].max() < 0.3 * spread[1]
    true, fitted = LOADINGS @ LOADINGS.T, fitted_model().loadings @ fitted_model().loadings.T
    off = ~np.eye(40, dtype=bool)
    assert np.corrcoef(true[off], fitted[off])[0, 1] > 0.94


def test_posterior_is_the_mode_and_its_curvature():
    asked = np.arange(40) % 3 == 0
    x = X[400:403]
    found = fitted_model().posterior(x, np.tile(asked, (3, 1)))
    a, b = fitted_model().loadings[asked], fitted_model().intercepts[asked]
    for row in range(3):
        sign = 2 * x[row, asked] - 1

        def loss(z, sign=sign):
            return 0.5 * z @ z - log_expit(sign * (b + a @ z)).sum()

        mode = minimize(loss, np.zeros(5), method="BFGS", options={"gtol": 1e-8}).x
        assert found.mean[row] == pytest.approx(mode, abs=1e-5)
        p = expit(b + a @ mode)
        precision = np.eye(5) + (a.T * (p * (1 - p))) @ a
        assert found.cov[row] == pytest.approx(np.linalg.inv(precision), abs=1e-5)


def test_scores_are_answers_and_expectations():
    """Right for subjects beyond the fit, from a third of the items; exact from all."""
    weights = np.full(40, 1 / 40)
    items = np.arange(0, 40, 3)
    truth = X[400:].mean(axis=1)
    by_factors = fitted_model().scores(X[400:][:, items], items, weights)
    plain = X[400:][:, items].mean(axis=1)
    assert np.abs(by_factors - truth).mean() < 0.7 * np.abs(plain - truth).mean()
    assert fitted_model().scores(X[400:], np.arange(40), weights) == pytest.approx(truth)


def test_uncertainty_is_that_of_the_items_not_asked():
    """Without loadings answers are coins: ``sum p (1 - p)`` over N^2; a session asks its items."""
    p = np.linspace(0.1, 0.9, 12)
    coins = FactorModel(logit(p), np.zeros((12, 2)))
    asked = np.arange(12) < np.array([[0], [5], [12]])
    expected = np.sqrt([(p * (1 - p))[~row].sum() for row in asked]) / 12
    np.testing.assert_allclose(coins.score_sds(np.ones((3, 12)), asked), expected, atol=1e-12)
    core = np.array([1, 3])
    sessions = fitted_model().session(X[400:403], core, 6)
    items = fitted_model().session_items(X[400:403], core, 6)
    for row, chosen in zip(sessions, items, strict=True):
        assert np.flatnonzero(row).tolist() == sorted(chosen)
        assert set(core) < set(chosen)
