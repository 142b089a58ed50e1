"""The logistic factor model: its moments, laws, and what it recovers."""

import numpy as np
import pytest
from scipy.special import expit

from irtcat.fitting.features.regression import Column, NormalData, regress
from irtcat.prediction.logistic_factors import PROBIT, FeatureColumns, LogisticFactors, _Regressions


def simulated(seed=0, n=150, m=120, dims=2, missing=0.3):
    """True log-odds of a factor model, and answers with cells missing."""
    rng = np.random.default_rng(seed)
    loadings = rng.normal([1.0, 0.0, 0.0][:dims], [0.3, 0.8, 0.5][:dims], size=(m, dims))
    log_odds = rng.normal(size=m) + rng.normal(size=(n, dims)) @ loadings.T
    answers = (rng.random((n, m)) < expit(log_odds)).astype(float)
    answers[rng.random((n, m)) < missing] = np.nan
    return log_odds, answers


def probabilities(fitted):
    """Posterior mean of the probability of every cell."""
    mean, variance = fitted.log_odds()
    return expit(mean / np.sqrt(1 + PROBIT * variance))


def drawn(fitted, seed):
    """Log-odds of every cell by one draw from the posterior."""
    rng = np.random.default_rng(seed)
    subjects, items = (
        mean + np.einsum("nij,nj->ni", np.linalg.cholesky(cov), rng.normal(size=mean.shape))
        for mean, cov in ((fitted.subjects, fitted.subjects_cov), (fitted.items, fitted.items_cov))
    )
    return items[:, 0] + subjects @ items[:, 1:].T


@pytest.fixture(scope="module")
def two():
    log_odds, answers = simulated()
    return log_odds, answers, LogisticFactors(answers, 5).run()


def test_factors_that_are_there_are_found_and_others_vanish(two):
    log_odds, _, fitted = two
    assert fitted.converged
    sizes = np.sqrt((fitted.loadings**2).mean(axis=0))
    assert (sizes[:2] > 0.4).all()
    assert (sizes[2:] < 0.15).all()
    mean, _ = fitted.log_odds()
    assert np.corrcoef(mean.ravel(), log_odds.ravel())[0, 1] > 0.93


def test_posterior_deviations_are_as_large_as_predicted(two):
    log_odds, _, fitted = two
    mean, variance = fitted.log_odds()
    z = (log_odds - mean) / np.sqrt(variance)
    assert 0.8 < np.sqrt(np.mean(z**2)) < 1.25


def test_moments_are_those_of_draws(two):
    _, _, fitted = two
    draws = np.stack([drawn(fitted, seed)[:5, :7] for seed in range(1500)])
    mean, variance = fitted.log_odds()
    se = np.sqrt(variance[:5, :7] / len(draws))
    assert (np.abs(draws.mean(axis=0) - mean[:5, :7]) < 4.5 * se).all()
    np.testing.assert_allclose(draws.var(axis=0), variance[:5, :7], rtol=0.2)
    np.testing.assert_allclose(expit(draws).mean(axis=0), probabilities(fitted)[:5, :7], atol=0.03)


def test_order_of_rows_and_columns_does_not_matter(two):
    _, answers, fitted = two
    rng = np.random.default_rng(1)
    rows, columns = rng.permutation(len(answers)), rng.permutation(answers.shape[1])
    other = LogisticFactors(answers[np.ix_(rows, columns)], 5).run()
    expected = probabilities(fitted)[np.ix_(rows, columns)]
    np.testing.assert_allclose(probabilities(other), expected, atol=1e-6)


def test_rescaling_and_turning_keep_the_log_odds():
    state = LogisticFactors(simulated()[1], 3)
    for _ in range(4):
        state.update_subjects()
        state.update_items()
        state.rescale()
    before = state.log_odds()
    state._transform(np.array([0.5, -1.0, 0.2]), np.linalg.cholesky(np.eye(3) + 0.4))
    state.turn()
    for one, other in zip(before, state.log_odds(), strict=True):
        np.testing.assert_allclose(one, other, atol=1e-10)


def test_more_trials_say_more():
    answers = simulated(n=40, m=30)[1]
    one = LogisticFactors(answers, 1).run()
    same = LogisticFactors(answers, 1, weights=np.ones(answers.shape)).run()
    more = LogisticFactors(answers, 1, weights=np.full(answers.shape, 4.0)).run()
    np.testing.assert_array_equal(probabilities(one), probabilities(same))
    assert one.subjects_cov.mean() > 2 * more.subjects_cov.mean()


def test_answers_enter_a_regression_as_normal_observations():
    """Of vectors N(m, 1 / P), with noise: each counts 1 / (noise + 1 / P), and none without."""
    rng = np.random.default_rng(2)
    x, prior_precision = rng.normal(size=(60, 2)), 2.0
    x -= x.mean(axis=0)
    noise = np.where(np.arange(60) < 15, 1e12, rng.uniform(0.1, 3, 60))
    answers = x @ [1.0, -0.5] + rng.normal(0, np.sqrt(noise + 1 / prior_precision))
    answers[:15] = 50.0  # says nothing
    cov = 1 / (prior_precision + 1 / noise)
    features = FeatureColumns(x, np.zeros(2, int))
    ours = _Regressions(features, 60, 1, 1)
    p = np.full((1, 1), prior_precision)
    ours.update((cov * answers / noise)[:, None], cov[:, None, None], np.zeros((60, 1)), p)
    precision = 1 / (noise + 1 / prior_precision)[15:]
    data = NormalData(precision, precision * answers[15:])
    layout = Column(features.block, np.zeros(1, bool))
    told = regress(x[15:], data, layout, reml=False, residual=False, has_covariance=False).mean(x)
    np.testing.assert_allclose(ours.mean[:, 0], told - told.mean(), atol=1e-3)


@pytest.mark.slow
def test_features_predict_rows_and_columns_without_answers():
    rng = np.random.default_rng(3)
    n, m = 120, 150
    size, steps, noise = rng.normal(size=n), rng.normal(size=m), rng.normal(size=(m, 20))
    log_odds = (1.2 * size + 0.4 * rng.normal(size=n))[:, None] - (
        1.2 * steps + 0.4 * rng.normal(size=m)
    )
    answers = (rng.random((n, m)) < expit(log_odds)).astype(float)
    answers[:20], answers[:, :25] = np.nan, np.nan
    of_items = np.column_stack([steps, noise])
    fitted = LogisticFactors(
        answers,
        2,
        subject_features=FeatureColumns((size - size.mean())[:, None], np.zeros(1, int)),
        item_features=FeatureColumns(of_items - of_items.mean(axis=0), np.repeat([0, 1], [1, 20])),
    ).run()
    mean, _ = fitted.log_odds()
    assert np.corrcoef(fitted.intercepts[:25], -steps[:25])[0, 1] > 0.97
    assert np.corrcoef(mean[:20, :25].ravel(), log_odds[:20, :25].ravel())[0, 1] > 0.9
    plain = LogisticFactors(answers, 2).run()
    np.testing.assert_allclose(plain.intercepts[:25], plain.intercepts[0], atol=1e-6)


@pytest.mark.parametrize("answers", [[[1, 0], [0, 0]], [[1, 1, 1, 0], [1, 1, 1, 1], [0, 0, 0, 0]]])
def test_few_and_separated_answers_stay_finite(answers):
    p = probabilities(LogisticFactors(np.array(answers, float), 12).run())
    assert ((p > 0.01) & (p < 0.99)).all()
