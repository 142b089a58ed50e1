"""The regression of pseudo-data on features: against closed forms."""

import numpy as np
import pytest

from irtcat.fitting.features.regression import (
    Column,
    NormalData,
    _objective,
    _objective_of,
    regress,
)

N, P = 60, 5


def mixed_data(seed=0):
    """Five columns with fixed coefficients, four indicators of a random effect, rows unseen."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(N, P + 4))
    x[:, P:] = np.eye(4)[rng.integers(0, 4, N)]
    precision = rng.gamma(2, 1, N)
    precision[:5] = 0.0
    noise = rng.normal(size=N) / np.sqrt(np.maximum(precision, 1e-9))
    y = x @ rng.normal(size=P + 4) + 0.5 * rng.normal(size=N) + noise
    layout = Column(np.r_[np.zeros(P, int), np.ones(4, int)], np.array([True, False]))
    return x, y, NormalData(precision, np.where(precision > 0, precision * y, 0.0)), layout


def marginal(x, y, precision, fixed, tau, kappa, reml):
    """Minus the log of the Normal density of y, with its covariance written out."""
    z = np.c_[np.ones(len(x)), x[:, fixed]]
    v = np.diag(1 / precision + tau**2) + kappa**2 * x[:, ~fixed] @ x[:, ~fixed].T
    inverse = np.linalg.inv(v)
    information = z.T @ inverse @ z
    coefficients = np.linalg.solve(information, z.T @ inverse @ y)
    residual = y - z @ coefficients
    value = 0.5 * (np.linalg.slogdet(v)[1] + residual @ inverse @ residual)
    if reml:
        value += 0.5 * np.linalg.slogdet(information)[1]
    return value, coefficients, np.linalg.inv(information)


@pytest.mark.parametrize("reml", [True, False])
def test_variances_maximise_the_marginal_likelihood(reml):
    x, y, data, layout = mixed_data()
    seen, fixed = data.precision > 0, np.arange(P + 4) < P
    result = regress(x, data, layout, reml=reml)
    tau, kappa = result.residual_sd, result.block_sd[1]

    def value(log_tau, log_kappa):
        return marginal(
            x[seen], y[seen], data.precision[seen], fixed, np.exp(log_tau), np.exp(log_kappa), reml
        )[0]

    here, h = (np.log(tau), np.log(kappa)), 1e-4
    for move in ((h, 0), (0, h)):
        up, down = (value(here[0] + s * move[0], here[1] + s * move[1]) for s in (1, -1))
        assert abs(up - down) / (2 * h) < 1e-4
    _, coefficients, covariance = marginal(
        x[seen], y[seen], data.precision[seen], fixed, tau, kappa, reml
    )
    np.testing.assert_allclose(result.coefficients[: P + 1], coefficients, atol=1e-8)
    np.testing.assert_allclose(result.errors[: P + 1], np.sqrt(np.diag(covariance)), rtol=1e-6)
    assert np.isinf(result.block_sd[0])


@pytest.mark.parametrize("reml", [True, False])
def test_the_gradient_is_that_of_the_objective(reml):
    x, _, data, layout = mixed_data(1)
    seen = data.precision > 0
    z = np.c_[np.ones(seen.sum()), x[seen]]
    block = np.r_[-1, layout.block]
    rows = NormalData(data.precision[seen], data.weighted[seen])
    at = np.array([-0.3, 0.0, -0.2])

    def value(log_sd):
        return _objective(z, rows, block, log_sd, np.append(layout.fixed, True)[block], reml)

    for k in (0, 2):
        step = 1e-5 * (np.arange(3) == k)
        difference = (value(at + step)[0] - value(at - step)[0]) / 2e-5
        assert abs(value(at)[1][k] - difference) < 1e-5


@pytest.mark.parametrize("reml", [True, False])
def test_rows_and_columns_give_one_objective(reml):
    """With more columns than rows the covariance of the rows is used: same values and gradients."""
    x, _, data, layout = mixed_data(3)
    wide = np.c_[x, np.random.default_rng(0).normal(size=(N, N))]
    layout = Column(np.r_[layout.block, np.full(N, 2)], np.append(layout.fixed, False))
    seen = data.precision > 0
    rows = NormalData(data.precision[seen], data.weighted[seen])
    by_rows = _objective_of(wide[seen], rows, layout, reml)
    is_fixed = np.append(layout.fixed, True)[np.r_[-1, layout.block]]
    z = np.insert(wide[seen], 0, 1.0, axis=1)
    points = [np.array(at) for at in ([-0.3, 0.0, -0.2, -1.0], [0.1, 0.0, -0.5, -0.7])]
    ours = [by_rows(at) for at in points]
    theirs = [_objective(z, rows, np.r_[-1, layout.block], at, is_fixed, reml) for at in points]
    assert ours[1][0] - ours[0][0] == pytest.approx(theirs[1][0] - theirs[0][0], abs=1e-7)
    for (_, mine), (_, other) in zip(ours, theirs, strict=True):
        np.testing.assert_allclose(mine, other, atol=1e-7)


def test_a_block_wider_than_the_rows_is_kriging():
    """With more columns than rows: the mean and variance of a Gaussian process."""
    rng = np.random.default_rng(0)
    x, new = rng.normal(size=(50, 300)), rng.normal(size=(3, 300))
    y = x @ rng.normal(size=300) * 0.1 + 0.3 * rng.normal(size=50)
    precision = np.full(50, 20.0)
    layout = Column(np.zeros(300, int), np.array([False]))
    result = regress(x, NormalData(precision, precision * y), layout)
    kernel = result.block_sd[0] ** 2
    inverse = np.linalg.inv(kernel * x @ x.T + np.eye(50) * (1 / 20 + result.residual_sd**2))
    one = np.ones(50)
    mean = one @ inverse @ y / (one @ inverse @ one)
    k = kernel * x @ new.T
    expected = mean + k.T @ inverse @ (y - mean)
    variance = kernel * (new**2).sum(1) - np.diag(k.T @ inverse @ k)
    variance += (1 - one @ inverse @ k) ** 2 / (one @ inverse @ one)
    np.testing.assert_allclose(result.mean(new), expected, atol=1e-8)
    np.testing.assert_allclose(result.variance(new), variance, atol=1e-8)
    assert result.errors.shape == (301,)
    assert np.isfinite(result.errors).all()


def test_without_a_residual_it_is_weighted_least_squares():
    x, y, data, layout = mixed_data(2)
    fixed = Column(layout.block, np.array([True, True]))
    result = regress(x[:, :P], data, Column(fixed.block[:P], fixed.fixed[:1]), residual=False)
    z, w = np.c_[np.ones(N), x[:, :P]], data.precision
    expected = np.linalg.solve(z.T @ (w[:, None] * z), z.T @ (w * y))
    np.testing.assert_allclose(result.coefficients, expected, atol=1e-4)
    assert result.residual_sd == pytest.approx(1e-3)


def test_nothing_observed_gives_finite_numbers():
    x = np.random.default_rng(0).normal(size=(20, 3))
    layout = Column(np.zeros(3, int), np.array([False]))
    result = regress(x, NormalData(np.zeros(20), np.zeros(20)), layout)
    assert np.isfinite(result.coefficients).all()
