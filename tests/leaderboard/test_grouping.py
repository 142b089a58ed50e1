"""Which models of a leaderboard cannot be distinguished."""

from itertools import combinations

import numpy as np
import pandas as pd
import pytest
from scipy.stats import binomtest, ttest_rel

from irtcat import InputError, ItemBank, Responses
from irtcat.leaderboard import Groups, compare, groups
from irtcat.leaderboard.grouping import letter_groups, letters_of, score_interval, spread_of

BANK = ItemBank.from_parameters(b=np.linspace(-2, 2, 300))
FIVE = BANK.simulate([-1.0, 0.0, 0.1, 0.9, 1.0], seed=1)


def expit(x):
    return 1 / (1 + np.exp(-x))


def drawn(theta, n_items, trials, seed):
    draws = np.random.default_rng(seed)
    p = expit(np.asarray(theta)[:, None] - draws.normal(0, 1.5, n_items))
    scores = draws.random((*p.shape, trials)) < p[:, :, None]
    return (
        Responses.from_trials(scores) if trials > 1 else Responses.from_array(scores[:, :, 0] + 0)
    )


@pytest.mark.slow
def test_two_models_are_compared_as_by_compare():
    two = FIVE.subset(subjects=["s1", "s2"])
    for clusters in (None, dict(zip(two.item_ids, np.arange(300) // 10, strict=True))):
        p = compare(None, None, two, clusters=clusters).p_value
        for adjust in ("holm", "benjamini-hochberg"):
            found = groups(two, adjust=adjust, clusters=clusters)
            assert found.p_values.iloc[0, 1] == pytest.approx(p, rel=1e-6)
    close = FIVE.subset(subjects=["s4", "s5"])
    p = compare(None, None, close).p_value
    assert groups(close, n=40_000).p_values.iloc[0, 1] == pytest.approx(p, abs=0.01)


def test_scores_without_units_have_the_paired_t_test():
    values = np.random.default_rng(0).beta(2, 2, (3, 60))
    found = groups(Responses.from_array(values), adjust="holm", estimand="domain")
    a, b = (int(name[1:]) - 1 for name in found.p_values.index[:2])
    single = sorted(ttest_rel(values[i], values[j]).pvalue for i, j in combinations(range(3), 2))
    least = np.nanmin(found.p_values.to_numpy())
    assert least == pytest.approx(min(3 * single[0], 1), rel=1e-5)
    assert a != b


def test_step_down_as_by_hand():
    """Each p-value is from the hypotheses that are left, by their own draws."""
    data = drawn([0, 0.3, 0.6, 1.2], 200, 1, 3)
    found = groups(data, n=20_000)
    order = [int(name[1:]) - 1 for name in found.p_values.index]
    x = data.to_numpy()[order]
    n_items = x.shape[1]
    draws = np.random.default_rng(7).standard_normal((20_000, n_items))
    centred = x - x.mean(axis=1, keepdims=True)
    means = draws @ centred.T / np.sqrt(n_items * (n_items - 1))
    means /= np.sqrt(np.random.default_rng(8).chisquare(n_items - 1, 20_000) / (n_items - 1))[
        :, None
    ]
    t, simulated = {}, {}
    for i, j in combinations(range(4), 2):
        d = x[i] - x[j]
        variance = d.var(ddof=1) / n_items
        se = np.sqrt(n_items**2 * variance + 2) / (n_items + 2)
        t[i, j] = d.mean() * n_items / (n_items + 2) / se
        simulated[i, j] = (means[:, i] - means[:, j]) / np.sqrt(variance)
    left, p = sorted(t, key=t.get, reverse=True), 0.0
    wrong_signs = np.max([-value for value in simulated.values()], axis=0)
    while left:
        greatest = np.max([wrong_signs, *(simulated[pair] for pair in left)], axis=0)
        p = max(p, float(np.mean(greatest >= t[left[0]])))
        assert found.p_values.iloc[left[0]] == pytest.approx(p, abs=0.015)
        left = left[1:]


@pytest.mark.parametrize("seed", range(6))
def test_groups_are_the_greatest_sets_without_a_difference(seed):
    """By all subsets of eight models."""
    draws = np.random.default_rng(seed)
    apart = np.triu(draws.random((8, 8)) < 0.4, 1)
    apart |= apart.T
    sets = [
        frozenset(subset)
        for size in range(1, 9)
        for subset in combinations(range(8), size)
        if not apart[np.ix_(subset, subset)].any()
    ]
    greatest = {one for one in sets if not any(one < other for other in sets)}
    members = letter_groups(apart)
    assert {frozenset(np.flatnonzero(row).tolist()) for row in members} == greatest
    letters = letters_of(members)
    for i, j in combinations(range(8), 2):
        assert bool(set(letters[i]) & set(letters[j])) != apart[i, j]


def test_letters_beyond_z_have_numbers():
    letters = letters_of(np.eye(54, dtype=bool))
    assert letters[:2] + letters[25:28] + letters[52:] == ["a", "b", "z", "a1", "b1", "a2", "b2"]


def test_rank_sets_count_the_models_that_are_apart():
    found = groups(FIVE)
    assert isinstance(found, Groups)
    frame, apart = found.to_frame(), found.p_values < 0.05
    for name, row in frame.iterrows():
        better = frame.index[(frame["score"] > row["score"]) & apart[name]]
        worse = frame.index[(frame["score"] < row["score"]) & apart[name]]
        assert (row["rank_lower"], row["rank_upper"]) == (1 + len(better), 5 - len(worse))
    assert [sorted(group) for group in found][-1] == ["s1"]
    assert str(found).endswith(
        "Compared are the models' expected scores on all 300 items, over reruns."
    )


def test_of_these_runs_only_equal_scores_are_not_told_apart():
    data = Responses.from_array([[1, 1, 0, 0], [1, 0, 1, 0], [1, 1, 1, 0]])
    frame = groups(data, estimand="run").to_frame()
    assert frame[["rank", "rank_lower", "rank_upper"]].to_numpy().tolist() == [
        [1, 1, 1],
        [2, 2, 3],
        [2, 2, 3],
    ]
    assert (frame["lower"] == frame["score"]).all()


def test_none_and_all_right_have_exact_intervals():
    data = Responses.from_array(np.vstack([np.zeros((1, 40)), np.ones((1, 40))]).astype(int))
    frame = groups(data).to_frame()
    exact = 1 - 0.025 ** (1 / 40)
    assert frame.iloc[0][["lower", "upper"]].tolist() == pytest.approx([1 - exact, 1])
    assert frame.iloc[1][["lower", "upper"]].tolist() == pytest.approx([0, exact])
    assert frame["letters"].tolist() == ["a", "b"]
    trials = Responses.from_trials(np.zeros((2, 40, 5)))
    assert groups(trials).to_frame()["upper"].iloc[0] == pytest.approx(1 - 0.025 ** (1 / 200))


def test_trials_find_smaller_differences_of_models_than_of_domains():
    data = drawn([0, 0.15, 0.3], 300, 10, 0)
    model, domain = (groups(data, estimand=name, adjust="holm") for name in ("model", "domain"))
    assert (model.p_values.fillna(0) <= domain.p_values.fillna(0) + 1e-12).to_numpy().all()
    narrower = model.table["upper"] - model.table["lower"] < 0.6 * (
        domain.table["upper"] - domain.table["lower"]
    )
    assert narrower.all()


def test_what_is_known_of_reruns():
    sure, unsure = (groups(FIVE, reruns=icc, adjust="holm") for icc in (0.9, 0.0))
    assert (sure.p_values.fillna(0) <= unsure.p_values.fillna(0)).to_numpy().all()
    certain = groups(FIVE, reruns="deterministic")
    assert (certain.table["rank_lower"] == certain.table["rank_upper"]).all()


def test_the_spread_over_clusters_is_cr2():
    from irtcat.prediction.intervals import mean_variance

    clusters = np.repeat(np.arange(20), 15)
    spread, _ = spread_of(FIVE, "model", clusters, None)
    x = FIVE.to_numpy()
    d = x[0] - x[3]
    expected = mean_variance(np.full(300, 1 / 300), d - d.mean(), clusters)
    assert spread.variances[0, 3] == pytest.approx(expected.value)
    assert spread.df == pytest.approx(expected.df)


def test_the_same_seed_gives_the_same_figures():
    one, same, other = (groups(FIVE, seed=seed).p_values for seed in (0, 0, 1))
    pd.testing.assert_frame_equal(one, same)
    assert not one.equals(other)


@pytest.mark.slow
@pytest.mark.parametrize(("trials", "estimand"), [(1, "model"), (3, "model"), (1, "domain")])
def test_equal_models_are_rarely_told_apart(trials, estimand):
    """100 leaderboards of six equal models: at most .05, and .05 + 2 standard errors is .094."""
    wrong = 0
    for seed in range(100):
        found = groups(drawn(np.zeros(6), 60, trials, seed), estimand=estimand, n=200)
        wrong += bool((found.p_values < 0.05).to_numpy().any())
    assert wrong <= 9


@pytest.mark.slow
def test_rank_sets_of_unequal_models_hold():
    theta = np.array([0.0, 0.0, 0.5, 0.5, 1.5, 3.0])
    rank = 1 + (theta > theta[:, None]).sum(axis=1)
    last = len(theta) - (theta < theta[:, None]).sum(axis=1)
    held = 0
    for seed in range(100):
        frame = groups(drawn(theta, 100, 1, seed), n=200).to_frame()
        frame = frame.loc[[f"s{i}" for i in range(1, 7)]]
        held += bool(((frame["rank_lower"] <= rank) & (frame["rank_upper"] >= last)).all())
    assert held >= 91


def test_many_models_need_no_array_of_models_models_and_draws():
    draws = np.random.default_rng(0)
    p = draws.beta(3, 2, 500)[None, :] + np.linspace(-0.3, 0.3, 400)[:, None]
    found = groups(Responses.from_array((draws.random(p.shape) < p) + 0), n=200)
    assert len(found.members) > 10
    interval = score_interval(np.array([0.5]), spread_of(FIVE, "model", None, None)[0], 0.95)
    assert interval[0][0] < 0.5 < interval[1][0]


def test_one_odd_trial_is_no_reason_for_an_interval_of_one_degree_of_freedom():
    """300 independent answers vary by s (1 - s) / 300 at most: Wilson's interval is enough."""
    counts = np.full((3, 100), 3)
    counts[0, 0] = 2
    counts[2] = np.arange(100) % 4
    found = groups(Responses.from_counts(counts, 3))
    exact = binomtest(299, 300).proportion_ci(0.95, "wilson")
    row = found.table.loc["s1"]
    assert (row["lower"], row["upper"]) == pytest.approx((exact.low, exact.high), abs=1e-9)
    assert found.table.loc["s2", "lower"] == pytest.approx(0.025 ** (1 / 300))
    assert found.table.loc["s3", "upper"] - found.table.loc["s3", "lower"] < 0.12


def test_items_that_some_models_lack_are_left_out():
    values = FIVE.to_numpy()
    values[0, :100] = np.nan
    data = Responses.from_array(values)
    found = groups(data)
    assert found.n_items == 200
    assert found.flags == ("100 of 300 items not answered by all models",)


def test_few_clusters_give_no_verdict():
    found = groups(FIVE, clusters=dict(zip(FIVE.item_ids, np.arange(300) % 4, strict=True)))
    assert found.flags == ("4 clusters are too few for a verdict: 8 are needed",)
    assert set(found.table["letters"]) == {"a"}


@pytest.mark.parametrize(
    ("data", "options", "message"),
    [
        (FIVE.subset(subjects=["s1"]), {}, "at least 2 models"),
        (Responses.from_array([[1, 0, np.nan], [np.nan, 0, 1]]), {}, "to at least 2 items"),
        (FIVE, {"estimand": "rerun"}, "estimand"),
        (FIVE, {"adjust": "tukey"}, "adjust"),
        (FIVE, {"level": 1.0}, "level"),
        (FIVE, {"n": 10}, "n"),
        (FIVE, {"clusters": "passage"}, "a column of the items"),
        (FIVE, {"reruns": -1}, "an ICC"),
    ],
)
def test_refused(data, options, message):
    with pytest.raises(InputError, match=message):
        groups(data, **options)


def test_letters_are_in_the_figure():
    pytest.importorskip("matplotlib")
    from irtcat import plot

    found = groups(FIVE)
    axes = plot.ranked(found.to_frame()).axes[0]
    assert axes.get_yticklabels()[0].get_text() == "s5  a"
    assert axes.get_xlabel() == "Score"
