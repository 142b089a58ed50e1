"""Parts of predictions that have a closed form: design-based intervals, ridge, who beats whom."""

import numpy as np
import pytest
from scipy.special import ndtr

from irtcat import Responses, Subset, predict
from irtcat.prediction import full_scores
from irtcat.prediction.regression import PENALTIES, fit_ridge, ridge_path

Z = 1.959963984540054


@pytest.fixture(scope="module")
def data():
    rng = np.random.default_rng(0)
    p = 1 / (1 + np.exp(-rng.normal(size=(60, 1)) - rng.normal(size=40)))
    return Responses.from_array((rng.random((60, 40)) < p).astype(float))


def _predicted(data, estimator, weights, chosen):
    nothing = np.full(len(chosen), np.nan)
    subset = Subset(data.item_ids[chosen], weights, nothing, nothing, "fixed", 0)
    new = data.subset(subjects=range(5), items=data.item_ids[chosen])
    names = [f"new{i}" for i in range(5)]
    new = Responses.from_array(new.values.astype(float), subject_ids=names, item_ids=new.item_ids)
    calibration = data.subset(subjects=range(5, 60))
    return predict(calibration, subset, new, estimator=estimator, estimand="run"), new


def _wilson(mean, n):
    centre = (mean + Z**2 / (2 * n)) / (1 + Z**2 / n)
    half = Z / (1 + Z**2 / n) * np.sqrt(mean * (1 - mean) / n + Z**2 / (4 * n**2))
    return centre - half, centre + half


def test_intervals_of_means_are_wilsons_for_a_finite_population(data):
    """A sample of n of N without replacement varies as one of n (N - 1) / (N - n) with it."""
    prediction, new = _predicted(data, "mean", np.full(12, 1 / 12), np.arange(0, 36, 3))
    mean = new.values.mean(axis=1)
    np.testing.assert_allclose(prediction.score, mean, atol=1e-12)
    lower, upper = _wilson(mean, 12 * 39 / 28)
    np.testing.assert_allclose(prediction.lower, lower, atol=1e-9)
    np.testing.assert_allclose(prediction.upper, upper, atol=1e-9)


def test_a_group_is_the_population_of_its_score(data):
    labels = np.repeat(["a", "b"], [25, 15])
    chosen = np.arange(0, 36, 3)  # 9 of 25, and 3 of 15
    calibration, new = data.subset(subjects=range(5, 60)), data.subset(subjects=range(5))
    told = predict(calibration, data.item_ids[chosen], new, estimator="mean", groups=labels).groups
    for name, n, n_items in (("a", 9, 25), ("b", 3, 15)):
        mean = new.to_numpy()[:, chosen[labels[chosen] == name]].mean(axis=1)
        ends = _wilson(mean, n * (n_items - 1) / (n_items - n))
        known = mean * n / n_items, (mean * n + n_items - n) / n_items
        found = told[told.group == name]
        np.testing.assert_allclose(found.score, mean, atol=1e-12)
        np.testing.assert_allclose(found.lower, np.maximum(ends[0], known[0]), atol=1e-9)
        np.testing.assert_allclose(found.upper, np.minimum(ends[1], known[1]), atol=1e-9)


@pytest.mark.parametrize("n_categories", [2, 3])
def test_full_scores_are_weighted_means_of_the_answers_there_are(n_categories):
    rng = np.random.default_rng(3)
    x, weights = rng.integers(0, n_categories, (6, 9)).astype(float), rng.random(9)
    x[:, 0], x[:, 1] = 0, n_categories - 1
    x[rng.random(x.shape) < 0.3] = np.nan
    answers = Responses.from_array(x, codes=range(n_categories))
    for t in (None, weights):
        w = np.where(np.isnan(x), 0, 1 if t is None else t)
        expected = np.nansum(w * x, axis=1) / w.sum(axis=1) / (n_categories - 1)
        np.testing.assert_allclose(full_scores(answers, t), expected, atol=1e-12)


def test_weights_lower_the_effective_number_of_answers(data):
    weights = np.arange(1.0, 13.0) / 78
    prediction, new = _predicted(data, "weighted", weights, np.arange(0, 36, 3))
    mean = new.values @ weights
    np.testing.assert_allclose(prediction.score, mean, atol=1e-12)
    lower, upper = _wilson(mean, 1 / (weights**2).sum() * 39 / 28)  # Kish
    right = new.values.sum(axis=1)  # the score of all 40 cannot be less than these
    lower, upper = np.maximum(lower, right / 40), np.minimum(upper, 1 - (12 - right) / 40)
    np.testing.assert_allclose(prediction.lower, lower, atol=1e-9)
    np.testing.assert_allclose(prediction.upper, upper, atol=1e-9)


def test_who_beats_whom_is_normal_with_the_half_interval_on_that_side(data):
    prediction, _ = _predicted(data, "mean", np.full(12, 1 / 12), np.arange(0, 36, 3))
    beats = prediction.beats()
    full = data.subset(subjects=range(5, 60)).values.mean(axis=1)
    for row in range(5):
        score = prediction.score[row]
        half = np.where(full < score, score - prediction.lower[row], prediction.upper[row] - score)
        expected = ndtr((score - full) * Z / half)
        np.testing.assert_allclose(beats.to_numpy()[row], expected, atol=1e-9)


@pytest.mark.parametrize("shape", [(30, 8), (8, 30)])
def test_ridge_is_the_normal_equations(shape):
    rng = np.random.default_rng(1)
    x, y = rng.normal(1, 2, shape), rng.normal(3, 1, shape[0])
    penalties = np.array([0.01, 1.0, 50.0])
    intercepts, slopes = ridge_path(x, y, penalties)
    z = x - x.mean(axis=0)
    unit = len(x) * z.var(axis=0).mean()
    for k, penalty in enumerate(penalties):
        gram = z.T @ z + penalty * unit * np.eye(shape[1])
        expected = np.linalg.solve(gram, z.T @ (y - y.mean()))
        np.testing.assert_allclose(slopes[:, k], expected, atol=1e-9)
        assert intercepts[k] == pytest.approx(y.mean() - x.mean(axis=0) @ expected, abs=1e-9)


@pytest.mark.parametrize("shape", [(20, 6), (9, 15), (12, 1)])
def test_the_penalty_of_ridge_has_the_least_errors_of_subjects_left_out(shape):
    rng = np.random.default_rng(2)
    x, y = rng.normal(1, 2, shape), rng.normal(3, 1, (shape[0], 3))
    y[:, 0] += x[:, 0]

    def left_out(penalty):
        errors = []
        for i in range(len(x)):
            rest = np.arange(len(x)) != i
            z, mean = x[rest] - x[rest].mean(axis=0), y[rest].mean(axis=0)
            slopes = np.linalg.solve(z.T @ z + penalty * np.eye(shape[1]), z.T @ (y[rest] - mean))
            errors.append(y[i] - mean - (x[i] - x[rest].mean(axis=0)) @ slopes)
        return np.array(errors)

    best = min(map(left_out, PENALTIES), key=lambda errors: (errors**2).sum())
    np.testing.assert_allclose(fit_ridge(x, y).residuals, best, atol=1e-8)
