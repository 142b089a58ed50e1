"""Wrong keys are found, from ten subjects as from hundreds; the evidence by brute force."""

import functools
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from scipy.special import expit, gammaln, logsumexp

from irtcat import InputError, ItemBank, Responses, fit, score
from irtcat.diagnose import labels
from irtcat.diagnose.labels import evidence as _label_evidence
from irtcat.diagnose.labels import evidence as few_subjects
from irtcat.diagnose.labels.answers import hypotheses
from irtcat.diagnose.labels.evidence import few_evidence
from irtcat.responses.datasets import load

N_ITEMS = 40


def crowd(n, seed=0, n_items=N_ITEMS, n_bad=4, options=1):
    """Responses with wrong keys, and the ids of the items that have them."""
    rng = np.random.default_rng(seed)
    bank = ItemBank.from_parameters(a=rng.lognormal(0.2, 0.4, n_items), b=rng.normal(size=n_items))
    X = bank.simulate(rng.normal(size=n), seed=seed).to_numpy()
    bad = rng.choice(n_items, n_bad, replace=False)
    X[:, bad] = (1 - X[:, bad]) * (rng.random((n, n_bad)) < 1 / options)
    return Responses.from_array(X), [f"i{j + 1}" for j in bad]


def average_precision(ids, bad):
    hit = np.isin(ids, bad)
    return (np.cumsum(hit) / np.arange(1, len(hit) + 1))[hit].mean()


@pytest.fixture(scope="module")
def large():
    responses, bad = crowd(200)
    return responses, bad, labels.rank(responses)


@pytest.mark.slow
def test_wrong_keys_come_first(large):
    _, bad, found = large
    assert set(found.first(4).index) == set(bad)
    assert (found.first(4)["suspicion"] > 0.95).all()
    assert (found.first(4)["a"] < 0).all()
    assert found.table["suspicion"].iloc[4:].mean() < 0.05
    assert found.by == "wrong-key"
    assert found.table["log_odds_wrong_key"].is_monotonic_decreasing
    words = found.table.loc[bad[0], "reasons"]
    assert "clearly negative discrimination" in words
    assert "answers are those to another key" in words
    assert "4 more likely" in repr(found) or "5 more likely" in repr(found)


@pytest.mark.slow
def test_posterior_adds_up(large):
    table = large[2].table
    np.testing.assert_allclose(table["suspicion"], table["p_wrong_key"] + table["p_unrelated"])
    np.testing.assert_allclose(table["suspicion"], expit(table["log_odds"]))


@pytest.fixture(scope="module")
def small():
    """Six crowds of ten, by the number of options to choose from: tables and wrong keys."""

    @functools.cache
    def crowds(options):
        drawn = [crowd(10, seed, options=options) for seed in range(6)]
        return [(labels.rank(responses, prior=(0.1, 0.01)).table, bad) for responses, bad in drawn]

    return crowds


@pytest.mark.slow
@pytest.mark.parametrize(("options", "least"), [(1, 0.75), (3, 0.45)])
def test_ten_subjects(options, least, small):
    """Average precision of chance would be about .15; suspicions stay cautious."""
    found = [average_precision(table.index, bad) for table, bad in small(options)]
    assert np.mean(found) > least
    for table, bad in small(options):
        assert table["suspicion"].drop(bad).mean() < 0.15


@pytest.mark.slow
def test_suspicions_are_probabilities(small):
    """With the right prior about as many wrong keys are expected as there are."""
    runs = [*small(1), *small(3)]
    total = sum(table["suspicion"].sum() for table, _ in runs)
    assert total == pytest.approx(sum(len(bad) for _, bad in runs), rel=0.25)


@pytest.mark.slow
def test_a_hard_item_is_not_suspect():
    """Few are right on either: the best on the hard one, others on the one with a wrong key."""
    rng = np.random.default_rng(4)
    bank = ItemBank.from_parameters(a=1.5, b=[*np.linspace(-1.5, 1.5, N_ITEMS - 2), 2.0, -2.0])
    X = bank.simulate(rng.normal(size=200), seed=1).to_numpy()
    X[:, -1] = 1 - X[:, -1]
    found = labels.rank(Responses.from_array(X)).table
    assert found.index[0] == "i40"
    assert found.loc["i39", "suspicion"] < 0.05
    assert abs(found.loc["i39", "share"] - found.loc["i40", "share"]) < 0.12


@pytest.mark.slow
def test_coin_flips():
    found = []
    for seed in range(4):
        responses, _ = crowd(200, seed, n_bad=0)
        X = responses.to_numpy()
        X[:, 7] = np.random.default_rng(seed).integers(0, 2, 200)
        table = labels.rank(Responses.from_array(X)).table
        assert table.index[0] == "i8"
        row = table.loc["i8"]
        found.append(row["p_unrelated"])
        assert row["p_wrong_key"] < 0.1
        assert ("ability does not decide" in row["reasons"]) == (row["p_unrelated"] > 0.5)
    assert np.mean(found) > 0.7


def coin_by_hand(k, right, missed):
    """The probability of these answers, the share of right ones being Beta(k, k)."""
    log = gammaln(2 * k) - 2 * gammaln(k) + gammaln(right + k) + gammaln(missed + k)
    return np.exp(log - gammaln(right + missed + 2 * k))


def by_hand(bank, X, item, grid):
    """Log-probabilities of an item's answers on a fine grid, the item left out of the abilities."""
    theta = np.linspace(-8, 8, 4001)
    frame = bank.to_frame()
    p = expit(frame["a"].to_numpy()[:, None] * (theta - frame["b"].to_numpy()[:, None]))
    log_post = np.tile(-0.5 * theta**2, (len(X), 1))
    for j in range(X.shape[1]):
        if j != item:
            seen = ~np.isnan(X[:, j])
            log_post[seen] += np.log(np.where(X[seen, j, None] == 1, p[j], 1 - p[j]))
    post = np.exp(log_post - logsumexp(log_post, axis=1, keepdims=True))
    mean = post @ expit(grid.a * (theta[:, None] - grid.b))
    x = X[:, item]

    def average(curves):
        each = [
            np.where(x[:, None] == 1, np.log(c), np.where(x[:, None] == 0, np.log1p(-c), 0)).sum(0)
            for c in curves
        ]
        return logsumexp(np.array(each) + grid.log_weight) - np.log(len(each))

    right, missed = (x == 1).sum(), (x == 0).sum()
    coin = np.log(np.mean([coin_by_hand(k, right, missed) for k in (2, 20)]))
    sound = average([c + (1 - c) * mean for c in _label_evidence.GUESSING])
    return sound, average([g * (1 - mean) for g in _label_evidence.KEYED]), coin


def test_evidence_by_brute_force():
    rng = np.random.default_rng(2)
    bank = ItemBank.from_parameters(a=rng.uniform(0.7, 1.6, 8), b=rng.normal(size=8))
    X = bank.simulate(rng.normal(size=25), seed=3).to_numpy()
    X[rng.random(X.shape) < 0.1] = np.nan
    responses = Responses.from_array(X)
    found = _label_evidence.item_evidence(bank, responses, score(bank, responses))
    grid = _label_evidence._parameter_grid(bank)
    assert np.exp(grid.log_weight).sum() == pytest.approx(1)
    for item in (0, 5):
        sound, wrong, coin = by_hand(bank, X, item, grid)
        assert found.sound[item] == pytest.approx(sound, abs=1e-5)
        assert found.wrong_key[item] == pytest.approx(wrong, abs=1e-5)
        assert found.unrelated[item] == pytest.approx(coin, abs=1e-9)


def test_long_tests_keep_the_item_in(large, monkeypatch):
    """On long tests all items tell the abilities: here, with 40, the answer is close already."""
    responses, bad, found = large
    monkeypatch.setattr(_label_evidence, "LONG", 1)
    other = labels.rank(responses, found.bank)
    assert set(other.first(4).index) == set(bad)
    one, two = (t.table["log_odds"].sort_index() for t in (found, other))
    assert np.corrcoef(one, two)[0, 1] > 0.98


def test_best_subjects_by_hand():
    """With few subjects each is a bin of its own."""
    rng = np.random.default_rng(5)
    # Slopes that differ: no two subjects have equal abilities.
    bank = ItemBank.from_parameters(a=np.linspace(0.8, 1.6, 10), b=np.linspace(-1, 1, 10))
    responses = bank.simulate(rng.normal(size=40), seed=1)
    ability = score(bank, responses)
    n, right, expected, sd = _label_evidence.top_subjects(responses, ability, 1.3, 0.25)
    X, theta = responses.to_numpy(), ability.theta
    order = np.argsort(theta, kind="stable")[-10:]
    assert (n == 10).all()
    np.testing.assert_array_equal(right, X[order].sum(axis=0))
    # The usual item of this share: find its b by a table.
    b = np.linspace(-8, 8, 160_001)
    sums = np.zeros_like(b)
    for t in theta:
        sums += expit(1.3 * (t - b))
    for j in (0, 9):
        own = b[np.abs(sums - X[:, j].sum()).argmin()]
        p = expit(1.3 * (theta[order] - own))
        assert expected[j] == pytest.approx(p.sum(), abs=1e-3)
        assert sd[j] == pytest.approx(np.sqrt((p * (1 - p)).sum()), abs=1e-3)


def test_subjects_of_equal_ability_count_alike_in_any_order():
    """At the edge of the best, too."""
    rng = np.random.default_rng(4)
    x = (rng.normal(size=(101, 1)) + rng.logistic(size=(101, 8)) > 0).astype(int)
    order = rng.permutation(101)
    found = []
    for rows in (np.arange(101), order):
        responses = Responses.from_array(x[rows])
        ability = SimpleNamespace(theta=x[rows].mean(axis=1))
        found.append(_label_evidence.top_subjects(responses, ability, 1.3, 0.25))
    np.testing.assert_allclose(*found, atol=1e-9)


def tutorial(seed, n=10, n_items=400):
    """Lalor et al. (2024): abilities and difficulties U(-4, 4), 5 % of the items coin flips."""
    rng = np.random.default_rng(seed)
    theta, b = rng.uniform(-4, 4, n), rng.uniform(-4, 4, n_items)
    flips = rng.random(n_items) < 0.05
    p = np.where(flips, 0.5, expit(theta[:, None] - b))
    return (rng.random(p.shape) < p).astype(float), theta, flips


def area(flips, score):
    return np.mean(score[flips][:, None] > score[~flips]) + 0.5 * np.mean(
        score[flips][:, None] == score[~flips]
    )


@pytest.mark.slow
def test_few_subjects_come_near_the_best_detector():
    """Against the likelihood ratio with abilities and the distribution of b known."""
    ours, best, said, true = [], [], 0.0, 0
    for seed in range(3):
        X, theta, flips = tutorial(seed)
        evidence = np.stack(few_evidence(X, (0.001, 0.05)))
        table = hypotheses(_label_evidence.Evidence(*evidence), (0.001, 0.05))
        grid = np.linspace(-4, 4, 201)
        p = expit(theta[:, None] - grid)
        valid = logsumexp(X.T @ np.log(p) + (1 - X.T) @ np.log1p(-p), axis=1)
        ours.append(area(flips, table["log_odds"].to_numpy()))
        best.append(area(flips, -valid))
        said, true = said + table["suspicion"].sum(), true + flips.sum()
    assert np.mean(ours) > np.mean(best) - 0.015
    assert said == pytest.approx(true, rel=0.35)


def test_few_subjects_by_hand():
    """Evidence on the grid by loops, at the abilities and shares that a round was given."""
    X, theta, _ = tutorial(1, 4, 6)
    X[1, 2] = np.nan
    shares, p = few_subjects._initial_shares(), few_subjects._curves(theta)[0]
    right, missed = (X == 1).astype(float), (X == 0).astype(float)
    joint = few_subjects._log_joint(np.log(p), np.log1p(-p), right, missed, shares)
    found = few_subjects._evidence(joint, right, missed)
    sound = wrong = 0.0
    for u, wu in zip(few_subjects.LOG_SLOPES, shares.slope, strict=True):
        for b, wb in zip(few_subjects.DIFFICULTIES, shares.difficulty, strict=True):
            s = expit(np.exp(u) * (theta - b))
            for c, g in zip(_label_evidence.GUESSING, _label_evidence.KEYED, strict=True):
                for item in (2,):
                    x, seen = X[:, item], ~np.isnan(X[:, item])
                    curve, other = c + (1 - c) * s, g * (1 - s)
                    sound += wu * wb / 2 * np.where(x == 1, curve, 1 - curve)[seen].prod()
                    wrong += wu * wb / 2 * np.where(x == 1, other, 1 - other)[seen].prod()
    assert found.sound[2] == pytest.approx(np.log(sound), rel=1e-6)
    assert found.wrong_key[2] == pytest.approx(np.log(wrong), rel=1e-6)


@pytest.mark.slow
def test_few_subjects_with_gaps_and_constant_answers():
    X, _, _ = tutorial(3, 12, 40)
    X[4], X[5] = 1, 0
    X[:, 0], X[:, 1], X[:, 2], X[3] = 1, 0, np.nan, np.nan
    X[:, 39] = X[:, 5]
    found = labels.rank(Responses.from_array(X)).table
    assert np.isfinite(found[["suspicion", "log_odds"]]).all(axis=None)
    assert found.loc["i3", "suspicion"] == pytest.approx(0.1)
    assert found.loc[["i1", "i2"], "suspicion"].max() < 0.5
    assert found.loc["i40", "log_odds"] == pytest.approx(found.loc["i6", "log_odds"])


@pytest.mark.slow
def test_degenerate_items():
    responses, _ = crowd(200, 1)
    X = responses.to_numpy()
    X[:, 0], X[:, 1], X[:, 2], X[3:, 3] = 1, 0, np.nan, np.nan
    X[5] = np.nan
    X[:, 5] = X[:, 4]
    table = labels.rank(Responses.from_array(X)).table
    assert np.isfinite(table[["suspicion", "log_odds"]]).all(axis=None)
    reasons = table["reasons"]
    assert reasons["i1"].startswith("everybody is right")
    assert reasons["i2"].startswith("nobody is right")
    assert reasons["i3"] == "no answers"
    assert reasons["i4"].startswith("only 3 answers")
    assert table.loc["i3", "suspicion"] == pytest.approx(0.1)
    assert table.loc["i1", "suspicion"] < 0.1
    assert np.isnan(table.loc["i3", "share"])


@pytest.mark.slow
def test_a_bank_with_asymptotes_and_misfit():
    bank = ItemBank.from_parameters(a=1.5, b=np.linspace(-1, 1, 10), d=[0.4] + [1.0] * 9)
    responses = bank.simulate(np.linspace(-2, 2, 150))
    found = labels.rank(responses, bank, misfit={"i2": 0.001, "i3": 0.5}).table
    assert "right 40 % of the time at most" in found.loc["i1", "reasons"]
    assert "does not fit the model (p = 0.001)" in found.loc["i2", "reasons"]
    assert "fit the model" not in found.loc["i3", "reasons"]
    assert found["se_a"].isna().all()


@pytest.mark.slow
def test_known_bank_of_more_items(large):
    responses, _, found = large
    some = responses.subset(items=["i9", "i2", "i30"])
    table = labels.rank(some, found.bank).table
    assert set(table.index) == {"i9", "i2", "i30"}


BAD = {
    "no data": (lambda: labels.rank(None), "Responses"),
    "graded": (lambda: labels.rank(Responses.from_array([[1, 2, 3]])), "right/wrong"),
    "two items": (lambda: labels.rank(Responses.from_array([[1, 0], [0, 1]])), "3 items"),
    "prior": (lambda: labels.rank(load("lsat7"), prior=(0.5, 0.5)), "below 1"),
    "prior 0": (lambda: labels.rank(load("lsat7"), prior=(0.0, 0.1)), "above 0"),
    "one prior": (lambda: labels.rank(load("lsat7"), prior=0.1), "prior"),
    "top": (lambda: labels.rank(load("lsat7"), top=1.0), "top"),
    "bank": (lambda: labels.rank(load("lsat7"), ItemBank.from_parameters(b=[0])), "no item1"),
    "no bank": (lambda: labels.rank(load("lsat7"), 3), "ItemBank"),
    "dims": (lambda: labels.rank(load("lsat7"), ItemBank.from_slopes([[1, 0]])), "one ability"),
    "misfit": (lambda: labels.rank(load("lsat7"), misfit={"q": 0.1}), "misfit"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_input(case):
    call, words = BAD[case]
    with pytest.raises(InputError, match=words):
        call()


@pytest.mark.slow
def test_nothing_is_changed(large):
    responses, _, found = large
    before = responses.to_numpy()
    again = labels.rank(responses, found.bank)
    pd.testing.assert_frame_equal(again.to_frame(), again.table)
    np.testing.assert_array_equal(responses.to_numpy(), before)
    assert fit(responses, "2pl").bank.item_ids.tolist() == found.bank.item_ids.tolist()
