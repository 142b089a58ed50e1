"""Measures of probabilities, against their definitions and simulations."""

import numpy as np
import pytest
from scipy.stats import mannwhitneyu

from irtcat import InputError, agreement

RNG = np.random.default_rng(0)
P = RNG.random(400).round(2)  # with ties
Y = (RNG.random(400) < P).astype(float)


def test_measures_follow_their_definitions():
    inside = np.clip(P, 1e-12, 1 - 1e-12)
    loss = -np.log(np.where(Y == 1, inside, 1 - inside)).mean()
    assert agreement.log_loss(P, Y) == pytest.approx(loss)
    assert agreement.brier_score(P, Y) == pytest.approx(((P - Y) ** 2).mean())
    u = mannwhitneyu(P[Y == 1], P[Y == 0]).statistic
    assert agreement.auc(P, Y) == pytest.approx(u / (Y.sum() * (1 - Y).sum()))
    edges = np.floor(P * 5).clip(max=4)
    bins = [edges == b for b in range(5)]
    error = sum(abs(Y[b].mean() - P[b].mean()) * b.mean() for b in bins)
    assert agreement.calibration_error(P, Y, 5) == pytest.approx(error)
    curve = agreement.reliability_curve(P, Y, 5)
    assert curve["n"].tolist() == [b.sum() for b in bins]
    np.testing.assert_allclose(curve["share"], [Y[b].mean() for b in bins])


def test_a_share_counts_as_its_trials():
    probability, share, n = np.array([0.2, 0.5, 0.9]), np.array([0.25, 0.5, 1.0]), 4
    trials = np.concatenate([np.arange(n) < s * n for s in share]).astype(float)
    repeated = np.repeat(probability, n)
    assert agreement.auc(probability, share) == pytest.approx(agreement.auc(repeated, trials))
    assert agreement.log_loss(probability, share) == pytest.approx(
        agreement.log_loss(repeated, trials)
    )


def test_one_draw_of_twenty_is_above_the_limit():
    limit = agreement.calibration_limit(P)
    errors = [agreement.calibration_error(P, RNG.random(400) < P) for _ in range(400)]
    assert 0.02 < np.mean(np.array(errors) > limit) < 0.09


def test_ends():
    assert np.isnan(agreement.auc([0.2, 0.4], [1, 1]))
    assert np.isfinite(agreement.log_loss([0.0, 1.0], [1, 1]))
    assert agreement.reliability_curve([1.0, 1.0], [1, 0]).index.tolist() == [14]


@pytest.mark.parametrize(
    ("probability", "answer", "match"),
    [
        ([0.1, 1.2], [0, 1], "`probability`.*1.2 at position 2"),
        ([0.1, 0.2], [0, 2], "`answer`.*2 at position 2"),
        ([0.1, 0.2], [0], "as long as probability"),
        ([0.1], [0], "at least 2"),
        ([0.1, np.nan], [0, 1], "finite"),
    ],
)
def test_refusals(probability, answer, match):
    with pytest.raises(InputError, match=match):
        agreement.log_loss(probability, answer)
