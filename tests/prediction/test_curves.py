"""The estimator "curves": its prior, its two cases and their probabilities by closed forms."""

from types import SimpleNamespace

import numpy as np
import pytest
from scipy.special import logit
from scipy.stats import norm

from irtcat import ItemBank, predict
from irtcat.prediction.curves import GRID, Calibrated, Case, _predict_pattern
from irtcat.selection.curves import score_curves

N_ITEMS = 40
BANK = ItemBank.from_parameters(b=np.random.default_rng(0).normal(0, 1, N_ITEMS))
CALIBRATION = BANK.simulate(np.random.default_rng(1).normal(-1, 0.4, 60), seed=1)
TRUTH = CALIBRATION.to_numpy().mean(axis=1)
ITEMS = np.arange(0, N_ITEMS, 4)


@pytest.fixture(scope="module")
def calibrated():
    task = SimpleNamespace(
        targets=TRUTH,
        calibration=CALIBRATION,
        usable=np.arange(60),
        item_weights=np.full(N_ITEMS, 1 / N_ITEMS),
    )
    return Calibrated(task, lambda text: None)


def test_an_observation_adds_its_precision():
    case = Case(np.array([0.3, 0.3]), np.array([0.02, 0.02]))
    (mean, variance), density = case.updated_by(Case(np.full(2, 0.5), np.array([0.03, np.inf])))
    assert 1 / variance[0] == pytest.approx(1 / 0.02 + 1 / 0.03)
    assert mean[0] / variance[0] == pytest.approx(0.3 / 0.02 + 0.5 / 0.03)
    expected = norm.logpdf(0.5, 0.3, np.sqrt(0.05)) + np.log(2 * np.pi) / 2
    assert density.tolist() == pytest.approx([expected, 0])
    assert (mean[1], variance[1]) == (0.3, 0.02)


def test_without_answers_the_score_is_the_prior_mean(calibrated):
    logits = logit(np.clip(TRUTH, 0.01, 0.99))
    nodes, weights = np.polynomial.hermite_e.hermegauss(41)
    t = logits.mean() + (2 * logits.std() + 0.5) * nodes
    expected = score_curves(calibrated.x)(t).mean(axis=0) @ weights / weights.sum()
    told = calibrated.curves(np.arange(0), np.empty((1, 0)))
    assert told.score[0] == pytest.approx(expected, abs=1e-3)


def test_curves_of_a_fold_are_those_of_the_others(calibrated):
    for fold, curves in enumerate(calibrated.curves_without):
        others = score_curves(calibrated.x[calibrated.fold != fold])(GRID)
        np.testing.assert_allclose(curves.p, np.clip(others, 1e-5, 1 - 1e-5))


def test_out_of_range_subjects_are_uniform_over_the_scores(calibrated):
    """The odds: as many subjects at equal distances, or a half or .3 of them, to those there."""
    answers = BANK.simulate([-1.2, -1.0, -0.6], seed=2).to_numpy()[:, ITEMS]
    _, outside = _predict_pattern(calibrated, ITEMS, answers, np.full((3, 10), np.nan), 0.9)
    held_out = np.empty(60)
    for fold, curves in enumerate(calibrated.curves_without):
        out = calibrated.fold == fold
        held_out[out] = curves(ITEMS, calibrated.x[np.ix_(out, ITEMS)]).score
    width = max(0.01, (calibrated.y - held_out).std() / 2)

    def like(score, scores):
        return np.exp(-(((score - scores) / width) ** 2) / 2).sum()

    score = calibrated.curves(ITEMS, answers).score
    uniform = like(0.5, (np.arange(6000) + 0.5) / 6000) / 100
    for one, share in zip(score, outside, strict=True):
        ratio = share / (1 - share) * like(one, held_out) / uniform
        assert min(abs(ratio - r) for r in (1, 0.5, 0.3)) < 1e-3


def test_a_subject_beyond_all_has_the_curves_alone(calibrated):
    right = BANK.simulate([8.0], seed=3).subset(items=BANK.item_ids[ITEMS])
    p = predict(CALIBRATION, right.item_ids, right, estimator="curves", level=0.8, estimand="run")
    assert (p.how == "curves alone").all()
    alone = calibrated.curves(ITEMS, right.to_numpy())
    np.testing.assert_allclose(p.score, alone.score, atol=1e-3)
    half = norm.ppf(0.9) * np.hypot(alone.sd, 0.05)
    known = right.to_numpy().sum(axis=1) / N_ITEMS
    np.testing.assert_allclose(p.lower, np.maximum(alone.score - half, known), atol=2e-3)
    most = known + (N_ITEMS - 10) / N_ITEMS
    np.testing.assert_allclose(p.upper, np.minimum(alone.score + half, most), atol=2e-3)
