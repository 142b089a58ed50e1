"""Inclusion probabilities, by drawing many samples."""

import numpy as np
import pytest
from scipy.special import expit

from irtcat import InputError, Responses
from irtcat.selection import select
from irtcat.selection.balanced import balanced_weights, eligible_share, layout
from irtcat.selection.sampling import _greatest_cost, _inclusion

N = 20
RNG = np.random.default_rng(7)
X = (RNG.random((30, N)) < np.linspace(0.1, 0.9, N)).astype(int)
DATA = Responses.from_array(X)
GROUPS = np.repeat(["a", "b", "c"], [11, 6, 3])
COSTS = np.round(np.random.default_rng(1).uniform(1, 4, N), 2)
DRAWS = 500

CASES = {
    "plain": {},
    "allowed": {"allowed": np.arange(N) % 3 > 0},
    "quotas": {"groups": GROUPS, "quotas": {"a": (0, 2), "c": (1, 3)}},
    "exact quotas": {"groups": GROUPS, "quotas": {"b": 3, "c": 1}},
    "costs": {"costs": COSTS, "budget": 14.0},
    "costs and quotas": {
        "costs": COSTS,
        "budget": 25.0,
        "groups": GROUPS,
        "quotas": {"c": 1, "b": (2, 4)},
    },
}


def draws(strategy, options):
    """How often each item was drawn, and the probability it was said to have."""
    options = {"groups": GROUPS, **options}
    counts, said = np.zeros(N), np.full(N, np.nan)
    index = {name: i for i, name in enumerate(DATA.item_ids)}
    for seed in range(DRAWS):
        subset = select(None, 6, strategy=strategy, calibration=DATA, seed=seed, **options)
        at = np.array([index[name] for name in subset.item_ids])
        drawn = np.isfinite(subset.probabilities)
        counts[at[drawn]] += 1
        if np.isfinite(said[at[drawn]]).any():
            old = said[at[drawn]]
            np.testing.assert_allclose(
                np.where(np.isnan(old), subset.probabilities[drawn], old),
                subset.probabilities[drawn],
            )
        said[at[drawn]] = subset.probabilities[drawn]
    return counts, said


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize(
    "strategy", ["random", "stratified", "stratified-group", "stratified-both", "robust", "neyman"]
)
def test_inclusion_probabilities_are_right(strategy, case):
    counts, said = draws(strategy, CASES[case])
    frame = np.isfinite(said)
    p = said[frame]
    z = (counts[frame] / DRAWS - p) / np.sqrt(np.maximum(p * (1 - p), 1e-9) / DRAWS)
    assert np.abs(z).max() < 4.2
    allowed = CASES[case].get("allowed", np.ones(N, bool))
    if strategy != "robust":
        np.testing.assert_array_equal(frame, allowed)  # nobody is left out


def test_weighted_mean_of_robust_has_no_bias():
    """Whatever a new model is like: here one that is right where the others are wrong."""
    x = dict(zip(DATA.item_ids, (np.arange(N) < 5).astype(float), strict=True))
    estimates = []
    for seed in range(DRAWS):
        subset = select(None, 8, strategy="robust", calibration=DATA, seed=seed, share=0.5)
        estimates.append(subset.weights @ [x[name] for name in subset.item_ids])
    spread = np.std(estimates) / np.sqrt(DRAWS)
    assert abs(np.mean(estimates) - 0.25) < 4 * spread
    first = select(None, 8, strategy="robust", calibration=DATA, seed=0)
    assert np.isnan(first.probabilities).sum() == 4
    alone = select(None, 4, strategy="score-optimal", calibration=DATA, seed=0)
    np.testing.assert_array_equal(first.item_ids[:4], alone.item_ids)


def test_share_runs_from_none_to_all():
    none = select(None, 6, strategy="robust", calibration=DATA, share=0.0)
    np.testing.assert_array_equal(
        none.item_ids, select(None, 6, strategy="score-optimal", calibration=DATA).item_ids
    )
    assert np.isnan(none.probabilities).all()
    whole = select(None, 6, strategy="robust", calibration=DATA, seed=2, share=1.0)
    np.testing.assert_array_equal(
        whole.item_ids, select(None, 6, strategy="stratified", calibration=DATA, seed=2).item_ids
    )


def test_strata_get_their_shares():
    order = np.argsort(X.mean(axis=0), kind="stable")
    index = {name: i for i, name in enumerate(DATA.item_ids)}
    for seed in range(30):
        subset = select(None, 10, strategy="stratified", calibration=DATA, seed=seed)
        strata = np.searchsorted(
            np.arange(2, N, 2),
            [np.flatnonzero(order == index[i])[0] for i in subset.item_ids],
            side="right",
        )
        np.testing.assert_array_equal(np.bincount(strata, minlength=10), 1)
        by_group = select(
            None, 10, strategy="stratified-group", calibration=DATA, seed=seed, groups=GROUPS
        )
        counts = [(GROUPS[[index[i] for i in by_group.item_ids]] == g).sum() for g in "abc"]
        assert counts[0] in (5, 6)
        assert counts[1] == 3
        assert counts[2] in (1, 2)


def test_quotas_without_room_under_a_budget_are_a_sentence():
    quotas = {"a": 0, "b": 0, "c": 0}
    for strategy in ("random", "balanced", "pcub"):
        with pytest.raises(InputError, match="wide enough for one affordable item"):
            select(
                None,
                5,
                strategy=strategy,
                calibration=DATA,
                groups=GROUPS,
                quotas=quotas,
                costs=COSTS,
                budget=9.0,
            )


def test_allowed_items_may_be_a_set_and_not_none():
    names = DATA.item_ids[:4].tolist()
    from_set = select(None, 3, strategy="pcub", calibration=DATA, allowed=set(names)).item_ids
    assert (
        from_set.tolist()
        == select(None, 3, strategy="pcub", calibration=DATA, allowed=names).item_ids.tolist()
    )
    for allowed in ([], set(), "i1"):
        with pytest.raises(InputError, match="of at least one item"):
            select(None, 3, strategy="pcub", calibration=DATA, allowed=allowed)


def test_dearest_sample_is_the_dearest_start():
    rng = np.random.default_rng(3)
    for _ in range(60):
        size = int(rng.integers(1, 40))
        n = int(rng.integers(1, size + 1))
        costs = rng.lognormal(size=size)
        starts = (np.arange(2000) + 0.5) / 2000
        items = ((starts[:, None] + np.arange(n)) * size / n).astype(int)
        greatest = _greatest_cost(costs, _inclusion(np.ones(size), n))
        assert greatest == pytest.approx(costs[items].sum(axis=1).max())


def test_dearest_sample_of_unequal_probabilities_is_the_dearest_start():
    rng = np.random.default_rng(4)
    for _ in range(60):
        size = int(rng.integers(1, 40))
        n = int(rng.integers(1, size + 1))
        costs, measure = rng.lognormal(size=(2, size))
        inclusion = _inclusion(measure, n)
        assert inclusion.sum() == pytest.approx(n)
        assert inclusion.max() <= 1
        edges = np.cumsum(inclusion)
        starts = ((np.arange(4000) + 0.5) / 4000)[:, None] + np.arange(n)
        items = np.minimum(np.searchsorted(edges, starts, side="right"), size - 1)
        assert _greatest_cost(costs, inclusion) == pytest.approx(costs[items].sum(axis=1).max())


@pytest.mark.parametrize("strategy", ["balanced", "stratified", "robust"])
@pytest.mark.parametrize("share", [0.1, 0.3])
def test_most_of_a_budget_is_spent(strategy, share):
    rng = np.random.default_rng(4)
    data = Responses.from_array((rng.random((40, 300)) < rng.uniform(0.1, 0.9, 300)).astype(int))
    costs = rng.lognormal(0, 0.5, 300)
    budget = share * costs.sum()
    for seed in range(4):
        subset = select(
            None, 300, strategy=strategy, calibration=data, seed=seed, costs=costs, budget=budget
        )
        spent = costs[np.isin(data.item_ids, subset.item_ids)].sum()
        assert 0.8 * budget < spent <= budget + 1e-9


def test_robust_draws_all_where_the_rest_pays_for_no_sample():
    costs = np.r_[np.ones(3), np.full(N - 3, 5.0)]
    subset = select(
        None, 4, strategy="robust", calibration=DATA, costs=costs, budget=1.5, share=0.3
    )
    assert len(subset.item_ids) == 1
    assert costs[np.isin(DATA.item_ids, subset.item_ids)].sum() == 1


@pytest.mark.parametrize("strategy", ["random", "stratified", "stratified-both", "neyman"])
def test_every_item_may_be_drawn_under_a_budget(strategy):
    subset = select(
        None, 6, strategy=strategy, calibration=DATA, groups=GROUPS, costs=COSTS, budget=14.0
    )
    assert subset.reach == N


def test_robust_takes_its_share_of_a_quota():
    """Half of four items of a group are chosen; of three, one."""
    groups = np.repeat(["a", "b"], [12, 8])
    for n_a, n_first in ((4, 2), (3, 1)):
        quotas = {"a": (0, n_a), "b": 0}
        subset = select(
            None, n_a, strategy="robust", calibration=DATA, groups=groups, quotas=quotas, share=0.5
        )
        assert np.isnan(subset.probabilities).sum() == n_first


def test_a_budget_that_cheap_items_leave_buys_more_of_them():
    """Every tenth item is dear and says nothing of the others: the mean cost is far too high."""
    rng = np.random.default_rng(4)
    theta, b, dear = rng.normal(size=(60, 1)), np.linspace(-1.5, 1.5, 200), np.arange(200) % 10 == 5
    p = expit(np.where(dear, 0, 2 * theta) - b)
    data = Responses.from_array((rng.random((60, 200)) < p).astype(int))
    costs = np.where(dear, 50.0, 1.0)  # 5.9 on average: 50 items
    subset = select(None, 200, strategy="balanced", calibration=data, costs=costs, budget=300.0)
    assert len(subset) > 100
    assert costs[np.isin(data.item_ids, subset.item_ids)].sum() <= 300


def test_the_share_of_eligible_items_and_the_cells():
    assert eligible_share(19, 30) == 1
    assert eligible_share(20, 30) == 0.5
    assert eligible_share(60, 30) == 0.25
    assert eligible_share(20, 90) == pytest.approx(0.7)
    assert [layout(k) for k in (1, 9, 99, 100)] == [(1, 1), (3, 1), (10, 1), (5, 2)]


def test_balanced_weights_restore_the_strata():
    """Each stratum with a chosen item has its share of the items."""
    order = DATA.item_ids[np.argsort(X.mean(axis=0), kind="stable")]
    chosen = order[[0, 1, 2, 4, 6, 8, 13, 12, 18]]  # of three strata of 7, 7 and 6 items
    weights = balanced_weights(DATA, chosen)
    stratum = np.array([0, 0, 0, 0, 0, 1, 1, 1, 2])
    found = np.bincount(stratum, weights)
    np.testing.assert_allclose(found, np.array([7, 7, 6]) / 20)
    assert np.ptp(weights[stratum == 1]) == pytest.approx(0)
