"""Judged means: the formula by closed forms, coverage by simulation, every bad input."""

import numpy as np
import pandas as pd
import pytest
from scipy.stats import binom, norm
from scipy.stats import t as student

from irtcat import InputError
from irtcat.agreement import judged_mean, judged_means, labelling_probabilities


def test_with_all_labels_it_is_the_mean_and_its_t_interval():
    rng = np.random.default_rng(0)
    y = rng.normal(size=40)
    found = judged_mean(rng.normal(size=40), y)
    assert found.mean == pytest.approx(y.mean())
    assert found.se == pytest.approx(y.std(ddof=1) / np.sqrt(40) * np.sqrt(40 / 38))
    half = student.ppf(0.975, 38) * found.se
    assert found.upper - found.mean == pytest.approx(half)


def test_even_draws_are_the_regression_estimate():
    rng = np.random.default_rng(1)
    f = rng.normal(size=500)
    y = 0.7 * f + rng.normal(size=500)
    labels = np.where(np.arange(500) < 60, y, np.nan)
    found = judged_mean(f, labels)
    slope, constant = np.polyfit(f[:60], y[:60], 1)
    assert found.weight == pytest.approx(slope)
    assert found.mean == pytest.approx(constant + slope * f.mean())
    assert found.labels_alone == pytest.approx(y[:60].mean())
    # Of the variance of the labels the residuals remain, and the judge's scores on all items.
    rest = (y[:60] - constant - slope * f[:60]).var()
    assert found.se**2 == pytest.approx(rest / 60 + slope**2 * f.var() / 500, rel=0.1)


def test_a_judge_that_missed_none_of_the_labels_may_miss_others():
    found = judged_mean(np.ones(300), np.r_[np.ones(30), np.full(270, np.nan)])
    assert found.se == pytest.approx(np.sqrt(2) / 32)
    assert found.labels_alone_se == pytest.approx(np.sqrt(2) / 32)
    grades = judged_mean(np.ones(300), np.r_[np.full(30, 5.0), np.full(270, np.nan)])
    assert grades.se == pytest.approx(5 * np.sqrt(2) / 32)
    p = np.r_[np.full(10, 0.5), np.full(290, 0.1)]
    chosen = judged_mean(np.ones(300), np.r_[np.ones(20), np.full(280, np.nan)], probabilities=p)
    m = (10 * 2 + 10 * 10) ** 2 / (10 * 2**2 + 10 * 10**2)
    assert chosen.se >= np.sqrt(2) / (m + 2) - 1e-9


@pytest.mark.parametrize(("right", "n", "level"), [(0.95, 20, 0.95), (0.95, 50, 0.8)])
def test_exact_coverage_of_a_judge_that_says_right_always(right, n, level):
    covered = 0.0
    for k in range(n + 1):
        labels = np.r_[np.ones(k), np.zeros(n - k), np.full(9 * n, np.nan)]
        found = judged_mean(np.ones(10 * n), labels, level=level)
        covered += binom.pmf(k, n, right) * (found.lower <= right <= found.upper)
    assert covered > level - 0.02  # without the labels added .64 and .68


@pytest.mark.slow
@pytest.mark.parametrize("judge", ["good", "useless", "misleading"])
def test_intervals_cover_whatever_the_judge_is(judge):
    covered, ratio = [], []
    for seed in range(300):
        rng = np.random.default_rng(seed)
        q = rng.beta(0.5, 0.4, 2000)
        y = (rng.random(2000) < q).astype(float)
        f = {"good": 0.2 + 0.8 * q, "useless": rng.random(2000), "misleading": 1 - q}[judge]
        p = labelling_probabilities(np.sqrt(f * (1 - f)), 150)
        found = judged_mean(f, np.where(rng.random(2000) < p, y, np.nan), probabilities=p)
        covered.append(found.lower < 0.5 / 0.9 < found.upper)
        ratio.append(found.se / np.sqrt(y.var() / 150))
    # In 1,500 simulations .935 to .944; the standard error of 300 is .013.
    assert 0.9 <= np.mean(covered) <= 0.98
    assert np.mean(ratio) < (1.15 if judge == "useless" else 0.8)


def test_probabilities_sum_to_the_labels():
    p = labelling_probabilities(np.r_[np.zeros(90), np.full(10, 100.0)], 40)
    assert p.sum() == pytest.approx(40)
    assert (p[90:] == 1).all()
    np.testing.assert_allclose(p[:90], 30 / 90)
    np.testing.assert_allclose(labelling_probabilities(np.zeros(10), 5), 0.5)


@pytest.mark.slow
def test_subjects_borrow_from_each_other():
    covered, ratio, truth = [], [], np.array([0.3, 0.5, 0.7])
    for seed in range(60):
        rng = np.random.default_rng(seed)
        hard, wrong = rng.normal(0, 2, 1500), rng.beta(0.8, 3.2, 1500)
        # With this threshold the share of right answers is the wanted one.
        p = (hard < 2 * norm.ppf(truth)[:, None]) * 0.8 + 0.1
        y = (rng.random(p.shape) < p).astype(float)
        f = np.where(rng.random(p.shape) < wrong, 1 - y, y)
        labels = np.where(rng.random(p.shape) < 0.1, y, np.nan)
        found = judged_means(pd.DataFrame(f, index=["a", "b", "c"]), labels, features=hard[:, None])
        assert found.index.tolist() == ["a", "b", "c"]
        mean = 0.1 + 0.8 * truth
        covered.append((found["lower"] < mean) & (mean < found["upper"]))
        alone = [judged_mean(*pair).se for pair in zip(f, labels, strict=True)]
        ratio.append(found["se"] / alone)
    assert 0.9 <= np.mean(covered) <= 0.99
    assert np.mean(ratio) < 0.95
    # A judge whose scores never vary leaves the labels alone.
    found = judged_means(np.ones_like(f), labels)
    np.testing.assert_allclose(found["mean"], found["labels_alone"], atol=0.02)


def test_labels_are_matched_by_id():
    rng = np.random.default_rng(0)
    items, subjects = [f"i{j}" for j in range(60)], ["a", "b"]
    judge = pd.DataFrame(rng.random((2, 60)), subjects, items)
    labels = (judge + rng.normal(0, 0.1, judge.shape)).where(rng.random((2, 60)) < 0.7)
    features = pd.DataFrame({"length": rng.random(60)}, items)
    shuffled = labels.iloc[::-1, rng.permutation(60)]
    found = judged_means(judge, shuffled, features=features[::-1])
    expected = judged_means(judge.to_numpy(), labels.to_numpy(), features=features.to_numpy())
    np.testing.assert_allclose(found, expected)
    some = shuffled.loc["a"].dropna()
    alone = judged_mean(judge.loc["a"].to_numpy(), labels.loc["a"].to_numpy())
    assert judged_mean(judge.loc["a"], some).mean == pytest.approx(alone.mean)
    counted = [pd.Series(v.to_numpy()) for v in (judge.loc["a"], labels.loc["a"])]
    assert judged_mean(counted[0], counted[1][::-1]).mean == pytest.approx(alone.mean)
    with pytest.raises(InputError, match=r"`labels` .* for each item\. Got .one for other"):
        judged_mean(judge.loc["a"], some.rename({some.index[0]: "other"}))


def test_bad_input():
    bad = [
        (lambda: judged_mean([np.nan] * 20, np.ones(20)), "finite score"),
        (lambda: judged_mean(np.ones(20), np.ones(19)), "20 values"),
        (lambda: judged_mean(np.ones(20), np.r_[np.inf, np.ones(19)]), "an infinite one"),
        (lambda: judged_mean(np.ones(20), np.r_[np.ones(9), [np.nan] * 11]), "at least 10 labels"),
        (lambda: judged_mean(np.ones(20), np.ones(20), probabilities=np.zeros(20)), "above 0"),
        (lambda: judged_means(np.ones(20), np.ones(20)), "a matrix"),
        (lambda: judged_means(np.ones((2, 20)), np.ones((2, 19))), "every answer"),
        (lambda: judged_means(*[np.ones((2, 20))] * 2, features=np.ones((2, 1))), "20 rows"),
        (lambda: judged_means(*[np.ones((2, 20))] * 2, probabilities=[[1]]), "2 x 20 numbers"),
        (lambda: labelling_probabilities([-1.0, 1.0], 1), "at least 0"),
        (lambda: labelling_probabilities([1.0, 1.0], 3), "between 1 and 2"),
    ]
    for call, message in bad:
        with pytest.raises(InputError, match=message):
            call()
