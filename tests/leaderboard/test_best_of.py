"""The best of several checkpoints."""

import numpy as np
import pytest
from scipy.stats import binomtest, norm

from irtcat import InputError, ItemBank, Responses
from irtcat.leaderboard import best, full_scores, groups
from irtcat.leaderboard.best_of import _truncated, hybrid
from irtcat.leaderboard.grouping import GroupSpread, step_of

BANK = ItemBank.from_parameters(b=np.linspace(-2, 2, 200))


def spread(covariance, df=np.inf):
    return GroupSpread(
        np.linalg.cholesky(covariance).T, df, 0.0, 100, np.full(len(covariance), 100.0)
    )


def test_a_model_far_ahead_has_wilsons_interval_or_the_wider_usual_one():
    covariance = np.eye(3) * 0.01**2
    found = hybrid(
        np.array([0.2, 0.8, 0.3]), np.array([0.2, 0.8, 0.3]), spread(covariance), 1, 0.95, 5000, 0
    )
    level = 1 - (0.05 - 0.005) / (1 - 0.005)
    ends = binomtest(1280, 1600).proportion_ci(level, "wilson")  # .8 (1 - .8) / .01^2 = 1600
    usual = 0.8 + norm.ppf(0.5 + level / 2) * 0.01
    assert ends.low < 0.8 - norm.ppf(0.5 + level / 2) * 0.01
    assert ends.high < usual
    assert found == pytest.approx((0.8, ends.low, usual), abs=2e-4)


def test_the_estimate_is_the_mean_of_which_the_score_is_the_median():
    """By simulation of the conditional distribution, with the hybrid's bounds."""
    covariance = np.array([[1.0, 0.3], [0.3, 2.0]]) * 0.02**2
    score, rivals = np.array([0.52, 0.50]), np.array([0.52, 0.50])
    mean, lower, upper = hybrid(score, rivals, spread(covariance), 0, 0.95, 20_000, 0)
    assert lower < mean < 0.52 < upper
    share = 0.3
    low = (0.50 - share * 0.52) / (1 - share)
    draws = np.random.default_rng(0).normal(mean, 0.02, 400_000)
    draws = draws[draws > low]
    assert np.mean(draws < 0.52) == pytest.approx(0.5, abs=0.005)


def test_truncated_distributions_far_in_the_tail():
    for low, high in ((-np.inf, np.inf), (0.5, np.inf), (0.5, 1.5)):
        top, bottom = norm.cdf(high), norm.cdf(low)
        assert _truncated(1.0, 0.0, 1.0, low, high) == pytest.approx(
            (norm.cdf(1.0) - bottom) / (top - bottom)
        )
    assert _truncated(30.1, 0.0, 1.0, 30.0, np.inf) == pytest.approx(1 - np.exp(-3.005), abs=2e-3)
    assert _truncated(-30.1, 0.0, 1.0, -np.inf, -30.0) == pytest.approx(np.exp(-3.005), abs=2e-3)
    assert _truncated(1.0, 0.0, 1.0, 1.0, 2.0) == 0


@pytest.mark.slow
@pytest.mark.parametrize("trials", [1, 3])
def test_the_choice_is_corrected_for(trials):
    """Ten equal models: the greatest score is far too great, the estimate is not."""
    held, errors, observed = 0, [], []
    for seed in range(60):
        draws = np.random.default_rng(seed)
        p = 1 / (1 + np.exp(draws.normal(0, 1.5, 100)))
        scores = draws.random((10, 100, trials)) < p[None, :, None]
        one = Responses.from_array(scores[:, :, 0].astype(int))
        data = one if trials == 1 else Responses.from_trials(scores)
        found = best(data, n=1000, seed=seed)
        held += bool(found.lower <= p.mean() <= found.upper)
        errors.append(found.score - p.mean())
        observed.append(found.observed - p.mean())
    assert held >= 50
    assert np.mean(np.array(observed) > 0) >= 0.9
    assert 0.3 <= np.mean(np.array(errors) > 0) <= 0.7  # median-unbiased


def test_thirds_are_counted_exactly():
    """Sums of thirds in single precision differ, and ties were decided by their last digits.

    The 95 % interval of the best of twenty models with three trials covered 93.6 %.
    """
    rng = np.random.default_rng(0)
    once = rng.binomial(3, 0.5, (1, 500))
    counts = np.vstack([rng.permutation(once[0]) for _ in range(20)])
    data = Responses.from_counts(counts, 3)
    assert best(data).name == "s1"
    assert set(groups(data).table["rank"]) == {1}
    assert np.ptp(full_scores(data)) < 1e-15
    assert np.array_equal(data.to_numpy(), counts / 3)


def test_a_lead_of_one_grade_is_a_lead():
    """The bound is half a grade away: before, half a whole answer, above the winner's own score."""
    grades = np.random.default_rng(0).integers(0, 5, 40)
    grades[0] = 3
    both = np.stack([grades, grades])
    both[1, 0] = 4
    found = best(Responses.from_array(both), n=1000)
    assert found.name == "s2"
    assert found.lower < found.score < found.observed < found.upper


def test_steps_of_scores():
    right = np.array([[1, 0, 1], [0, 1, 1]])
    assert step_of(Responses.from_array(right)) == 1
    assert step_of(Responses.from_array(3 * right, codes=range(5))) == 1 / 4
    assert step_of(Responses.from_array(right * 0.3)) == 0
    assert step_of(Responses.from_counts(right, n=[2, 3, 4])) == 1 / 12
    trials = np.stack([right * 0.3, right * 0.7], axis=2)
    assert step_of(Responses.from_trials(trials)) == 0


def test_of_tied_models_the_first_is_the_best_and_its_interval_is_no_point():
    data = BANK.simulate([0.0], seed=1).to_numpy()
    found = best(Responses.from_array(np.vstack([data, data])))
    assert found.name == "s1"
    assert found.upper - found.lower > 0.05


@pytest.mark.parametrize("trials", [1, 3])
@pytest.mark.parametrize("n_models", [2, 20])
def test_all_right_is_no_narrower_than_exact(trials, n_models):
    """And so for one wrong answer: near 1 the variance at the mean counts, not that at the score.

    With 100 items and a mean of .95 the interval of the best of twenty covered 89 %.
    """
    rng = np.random.default_rng(0)
    counts = rng.binomial(trials, 0.5, (n_models, 100))
    for wrong in (0, 1):
        counts[0] = trials
        counts[0, :wrong] -= 1
        data = Responses.from_counts(counts, trials)
        n = 100 * trials
        exact = binomtest(n - wrong, n).proportion_ci(0.95, "wilson")
        found = best(data if trials > 1 else Responses.from_array(counts))
        assert found.lower <= exact.low
        assert found.lower > exact.low - 0.02
        assert found.upper >= exact.high - 1e-9


def test_what_it_says():
    found = best(BANK.simulate(np.zeros(5), seed=1))
    first, second = str(found).split("\n")
    assert first.startswith(f"{found.name}: ")
    assert "as the best of 5" in first
    assert second == ("Estimated are the models' expected scores on all 200 items, over reruns.")
    frame = found.to_frame()
    assert frame.index.tolist() == [found.name]
    assert frame["lower"].item() <= frame["score"].item() <= frame["observed"].item()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"estimand": "run"}, "estimand"),
        ({"level": 0}, "level"),
        ({"n": 10}, "n"),
        ({"reruns": "deterministic"}, "of runs with noise"),
    ],
)
def test_refused(options, message):
    with pytest.raises(InputError, match=message):
        best(BANK.simulate([0.0, 0.5], seed=1), **options)
