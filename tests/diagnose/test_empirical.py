"""Empirical curves: by hand, against known curves, and where there is little to smooth."""

import numpy as np
import pytest
from scipy.stats import binomtest

from irtcat import ItemBank, Responses
from irtcat._common.checks import InputError
from irtcat.diagnose import SMOOTHERS, empirical_curves


@pytest.fixture(scope="module")
def large():
    """3,000 subjects with known abilities; the last item has three categories."""
    rng = np.random.default_rng(1)
    bank = ItemBank.from_thresholds(a=[1.2, 1.5], b=[[0.2, np.nan], [-0.8, 0.8]])
    theta = rng.normal(size=3000)
    return bank, theta, bank.simulate(theta, 2)


def test_bins_by_hand(large):
    bank, theta, responses = large
    found = empirical_curves(bank, responses, ["i1"], n_points=5, abilities=theta, level=0.9)
    order = np.argsort(theta)
    assert found["n"].tolist() == [600] * 5
    for row, rows in zip(found.itertuples(), np.split(order, 5), strict=True):
        right = int(responses.values[rows, 0].sum())
        assert row.observed == pytest.approx(right / 600)
        assert row.theta == pytest.approx(theta[rows].mean())
        assert row.expected == pytest.approx(bank.category_probabilities(row.theta)[0, 0, 1])
        level = binomtest(right, 600).proportion_ci(0.9)
        assert (row.lower, row.upper) == pytest.approx((level.low, level.high), abs=1e-9)


@pytest.mark.parametrize("smoother", SMOOTHERS)
def test_a_good_item_follows_its_curve(large, smoother):
    bank, theta, responses = large
    found = empirical_curves(bank, responses, smoother=smoother, n_points=12, abilities=theta)
    assert found.groupby("item")["category"].unique().map(list).to_dict() == {
        "i1": [1],
        "i2": [0, 1, 2],
    }
    inside = (found.lower <= found.expected) & (found.expected <= found.upper)
    assert inside.mean() > 0.8
    assert (found.observed - found.expected).abs().mean() < 0.03
    assert found.observed.between(found.lower, found.upper).all()
    assert found[["lower", "upper"]].stack().between(0, 1).all()


@pytest.mark.parametrize("smoother", SMOOTHERS)
def test_a_bad_item_leaves_its_curve(large, smoother):
    bank, theta, responses = large
    X = responses.to_numpy()
    X[:, 0] = np.abs(theta) < 0.7
    bad = Responses.from_array(X, codes=(0, 1, 2))
    found = empirical_curves(bank, bad, ["i1"], smoother, n_points=12, abilities=theta)
    outside = (found.expected < found.lower) | (found.expected > found.upper)
    assert outside.mean() > 0.6


@pytest.mark.parametrize("smoother", SMOOTHERS)
def test_little_data(small, smoother):
    """A constant item, an item without answers, two subjects: finite or NaN, never a crash."""
    bank, responses = small
    X = responses.to_numpy()
    X[:, 0], X[:, 1] = 1, np.nan
    found = empirical_curves(bank, Responses.from_array(X), smoother=smoother, n_points=4)
    assert "i2" not in set(found["item"])
    constant = found[found["item"] == "i1"]
    assert (constant["observed"] > 0.95).all()
    assert (constant["upper"] > 0.99).all()
    two = empirical_curves(bank, Responses.from_array(X[:2]), smoother=smoother, n_points=4)
    assert set(two["item"]) == {f"i{k}" for k in (1, 3, 4, 5, 6, 7, 8)}
    assert two["expected"].between(0, 1).all()


def test_kernel_is_the_local_mean(large):
    bank, theta, responses = large
    found = empirical_curves(
        bank, responses, ["i1"], "kernel", n_points=3, bandwidth=0.4, abilities=theta
    )
    for row in found.itertuples():
        weight = np.exp(-0.5 * ((theta - row.theta) / 0.4) ** 2)
        assert row.observed == pytest.approx(np.average(responses.values[:, 0], weights=weight))


def test_refused(small):
    bank, responses = small
    for settings, name in [
        ({"smoother": "loess"}, "smoother"),
        ({"n_points": 1}, "n_points"),
        ({"level": 1.0}, "level"),
        ({"bandwidth": 0.0}, "bandwidth"),
        ({"df": 3}, "df"),
        ({"items": ["nobody"]}, "items"),
    ]:
        with pytest.raises(InputError, match=f"The `{name}` argument"):
            empirical_curves(bank, responses, **settings)
    with pytest.raises(InputError, match="of one ability"):
        empirical_curves(ItemBank.from_slopes(np.ones((8, 2))), responses)
