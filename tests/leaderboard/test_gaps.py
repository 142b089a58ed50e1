"""The smallest gap ranked right and the plan, against simulation."""

import numpy as np
import pandas as pd
import pytest

from irtcat._common.checks import InputError
from irtcat.bank import ItemBank
from irtcat.leaderboard import design_gaps, evaluate, items_needed, plan, reliable_gaps
from irtcat.leaderboard.gaps import order_curve, smallest_gap
from irtcat.leaderboard.planning import pair_variances
from irtcat.responses import Responses

N, ITEMS = 160, 400


@pytest.fixture(scope="module")
def responses():
    rng = np.random.default_rng(0)
    bank = ItemBank.from_parameters(a=rng.lognormal(0, 0.4, ITEMS), b=rng.normal(0, 1, ITEMS))
    return bank.simulate(0.7 * rng.normal(size=N), seed=1)


@pytest.fixture(scope="module")
def truth(responses):
    """Gap of every pair and, for random subsets of k items, how often it was ranked right."""
    X, rng = responses.to_numpy(), np.random.default_rng(7)
    full = X.mean(axis=1).round(12)
    i, j = np.triu_indices(N, 1)

    def right(k, draws=150):
        total = np.zeros(len(i))
        for _ in range(draws):
            told = X[:, rng.permutation(ITEMS)[:k]].sum(axis=1)
            total += 0.5 + 0.5 * np.sign(told[i] - told[j]) * np.sign(full[i] - full[j])
        return total / draws

    return np.abs(full[i] - full[j]), right


@pytest.fixture(scope="module")
def board(responses):
    return evaluate(responses, ["random"], [10, 40, 120], seeds=range(12), estimators=["mean"])


def test_isotonic_curve_is_the_closest_that_never_falls():
    rng = np.random.default_rng(3)
    gap = np.sort(rng.uniform(0, 0.2, 300))
    right = (rng.random(300) < 0.5 + 2 * gap).astype(float)
    at, level = order_curve(gap, right)
    assert (np.diff(level) >= 0).all()
    assert (np.diff(at) > 0).all()
    from scipy.optimize import isotonic_regression

    bins = (gap / 0.0025).astype(int)
    mass = np.bincount(bins)
    share = np.bincount(bins, right)[mass > 0] / mass[mass > 0]
    wanted = isotonic_regression(share, weights=mass[mass > 0]).x
    np.testing.assert_allclose(level[1:], np.maximum(np.unique(wanted), 0.5))


def test_smallest_gap():
    assert (
        smallest_gap(np.array([0, 0.1, 0.2]), np.array([0.5, 0.7, 0.9]), 0.8) == 0.15000000000000002
    )
    assert smallest_gap(np.array([0, 0.1]), np.array([0.5, 0.7]), 0.8) == np.inf


@pytest.mark.slow
def test_measured_gap_is_the_true_one(board, truth):
    gap, right = truth
    table = reliable_gaps(board, n=60)
    for k in (10, 40, 120):
        keep = gap > 0
        wanted = 100 * smallest_gap(*order_curve(gap[keep], right(k)[keep]), 0.8)
        row = table.loc[("random", "mean", k)]
        assert row["gap"] == pytest.approx(wanted, rel=0.3)
        assert row["lower"] <= row["gap"] <= row["upper"]
    assert table["gap"].is_monotonic_decreasing
    pd.testing.assert_frame_equal(table, reliable_gaps(board, n=60))


def test_formula_is_the_simulation(responses, truth):
    gap, right = truth
    found = design_gaps(responses, (10, 40, 120))["gap"]
    for k in (10, 40, 120):
        keep = gap > 0
        wanted = 100 * smallest_gap(*order_curve(gap[keep], right(k)[keep]), 0.8)
        assert found[k] == pytest.approx(wanted, rel=0.08)


@pytest.mark.parametrize("design", ["random", "stratified"])
def test_pair_variances_by_hand(responses, design):
    X = responses.to_numpy()[:12]
    X[np.random.default_rng(0).random(X.shape) < 0.2] = np.nan
    r = Responses.from_array(X)
    pairs = pair_variances(r, design)
    order = np.argsort(np.nanmean(X, axis=0), kind="stable")
    strata = np.array_split(order, 10) if design == "stratified" else [order]
    for p in (0, 17, 65):
        d = X[pairs.one[p]] - X[pairs.other[p]]
        both = ~np.isnan(d)
        parts = [d[s][both[s]] for s in strata]
        within = sum(len(part) * part.var(ddof=1) for part in parts) / both.sum()
        assert pairs.variance[p] == pytest.approx(within)
        assert pairs.gap[p] == pytest.approx(abs(d[both].mean()))
        assert pairs.share[p] == pytest.approx(both.mean())


@pytest.mark.slow
@pytest.mark.parametrize("gap", [0.03, 0.06])
def test_plan_attains_what_it_claims(responses, truth, gap):
    true_gap, right = truth
    found = plan(responses, gap, n=20)
    k = int(found.to_frame().loc["random", "n_items"])
    near = np.abs(true_gap - gap) < 0.01
    assert right(k)[near].mean() == pytest.approx(0.8, abs=0.025)
    chance = found.curve[found.curve["design"] == "random"].set_index("n_items")["chance"]
    assert chance[k] >= 0.8 > chance[k - 1]
    assert chance.is_monotonic_increasing
    assert chance[ITEMS] == 1


@pytest.mark.slow
def test_plan_of_a_stratified_sample_needs_no_more():
    rng = np.random.default_rng(0)
    b = np.repeat([-3.0, 3.0], 200)
    bank = ItemBank.from_parameters(a=np.r_[np.full(200, 3.0), np.full(200, 0.5)], b=b)
    table = plan(bank.simulate(rng.normal(size=60)), 0.05, n=20).to_frame()
    assert table.loc["stratified", "n_items"] <= table.loc["random", "n_items"]
    assert (table["lower"] <= table["n_items"]).all()
    assert (table["n_items"] <= table["upper"]).all()


def test_items_needed_between_and_beyond_the_k_measured():
    index = pd.MultiIndex.from_product(
        [["a", "b"], ["mean"], [10, 40, 160]], names=["strategy", "estimator", "n_items"]
    )
    gaps = pd.DataFrame({"gap": [8.0, 4.0, 2.0, np.inf, 9.0, 6.0]}, index)
    table = items_needed(gaps, 0.03)
    assert table.loc[("a", "mean"), "n_items"] == np.ceil(40 * (4 / 3) ** 2)
    assert np.isnan(table.loc[("b", "mean"), "n_items"])
    assert "more than the 160" in table.loc[("b", "mean"), "flag"]
    assert "or fewer" in items_needed(gaps, 0.09).loc[("a", "mean"), "flag"]


def test_ties_and_equal_subjects_are_flagged():
    board = evaluate(
        Responses.from_array(np.eye(12, dtype=int)), ["random"], [3], seeds=[0], estimators=["mean"]
    )
    with pytest.raises(InputError, match="different scores"):
        reliable_gaps(board)
    found = plan(Responses.from_array(np.eye(12, dtype=int)), 0.1, n=5)
    assert np.isfinite(found.to_frame().to_numpy()).all()
    assert any(
        "few" in flag for flag in plan(Responses.from_array(np.eye(5, dtype=int)), n=5).flags
    )


@pytest.mark.parametrize(
    "given",
    [
        {"gap": 2},
        {"gap": 0},
        {"confidence": 0.5},
        {"confidence": 1.0},
        {"designs": ("luck",)},
        {"designs": "random"},
        {"n": 1},
        {"responses": Responses.from_array([[1, 0], [1, 0]])},
        {"responses": Responses.from_array([[1, -1], [-1, 0]])},
    ],
)
def test_plan_refuses(responses, given):
    with pytest.raises(InputError):
        plan(**{"responses": responses, **given})
