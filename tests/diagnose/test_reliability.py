"""Reliability: mirt's numbers, textbook formulas, simulation, and what has none."""

import numpy as np
import pandas as pd
import pytest

from irtcat import ItemBank, Responses, score
from irtcat._common.checks import InputError
from irtcat.diagnose import (
    coefficient_alpha,
    empirical_reliability,
    item_analysis,
    marginal_reliability,
    omega,
)
from irtcat.models import TwoPL
from irtcat.responses.datasets import load


@pytest.mark.parametrize(("data", "model"), [("lsat6", "2pl"), ("lsat7", "3pl"), ("lsat7", "1pl")])
def test_mirts_numbers(lsat, data, model):
    responses, bank, numbers = lsat(data, model)
    assert marginal_reliability(bank) == pytest.approx(numbers["marginal_reliability"], abs=1e-6)
    found = empirical_reliability(score(bank, responses))
    assert found == pytest.approx(numbers["empirical_reliability"], abs=1e-6)


@pytest.mark.slow
def test_reliability_is_the_squared_correlation_with_the_truth():
    rng = np.random.default_rng(0)
    bank = ItemBank.from_parameters(
        a=rng.uniform(0.8, 1.8, 25), b=rng.normal(size=25), population_sd=1.3, population_mean=0.5
    )
    theta = rng.normal(0.5, 1.3, 3000)
    responses = bank.simulate(theta, 1)
    for method in ("eap", "wle"):
        ability = score(bank, responses, method)
        truth = np.corrcoef(ability.theta, theta)[0, 1] ** 2
        assert empirical_reliability(ability) == pytest.approx(truth, abs=0.03)
        assert marginal_reliability(bank) == pytest.approx(truth, abs=0.03)
    total = responses.to_numpy().sum(axis=1)
    expected = bank.probability(theta).sum(axis=0)
    share = expected.var() / (expected.var() + (total - expected).var())
    assert omega(bank)["total"] == pytest.approx(share, abs=0.02)
    assert coefficient_alpha(responses) == pytest.approx(omega(bank)["total"], abs=0.02)


def test_alpha_by_its_definition():
    X = load("lsat7").to_numpy()
    k = X.shape[1]
    want = k / (k - 1) * (1 - X.var(axis=0, ddof=1).sum() / X.sum(axis=1).var(ddof=1))
    assert coefficient_alpha(load("lsat7")) == pytest.approx(want)
    r = np.corrcoef(X.T)[np.triu_indices(k, 1)].mean()
    standardised = coefficient_alpha(load("lsat7"), standardised=True)
    assert standardised == pytest.approx(k * r / (1 + (k - 1) * r))


def test_item_analysis_by_its_definition():
    X = load("lsat6").to_numpy()
    found = item_analysis(load("lsat6"))
    for i in range(5):
        rest = np.delete(X, i, axis=1)
        row = found.iloc[i]
        assert row["item_rest"] == pytest.approx(np.corrcoef(X[:, i], rest.sum(axis=1))[0, 1])
        assert row["item_total"] == pytest.approx(np.corrcoef(X[:, i], X.sum(axis=1))[0, 1])
        assert row["alpha_if_dropped"] == pytest.approx(
            coefficient_alpha(Responses.from_array(rest))
        )
        assert (row["mean"], row["sd"]) == pytest.approx((X[:, i].mean(), X[:, i].std(ddof=1)))


def test_upper_and_lower_27_percent():
    """Subjects without ties one by one, and tied ones by the mean over all orders of the ties."""
    rng = np.random.default_rng(0)
    X = (rng.random((100, 40)) < rng.random(100)[:, None]).astype(float)
    total, rng_orders = X.sum(axis=1), np.random.default_rng(1)
    wanted = []
    for _ in range(3000):
        order = np.lexsort((rng_orders.random(100), total))
        wanted.append(X[order[-27:]].mean(axis=0) - X[order[:27]].mean(axis=0))
    table = item_analysis(Responses.from_array(X))
    np.testing.assert_allclose(table["discrimination"], np.mean(wanted, axis=0), atol=2e-3)
    graded = item_analysis(Responses.from_array(2 * X.astype(int), codes=range(3)))
    np.testing.assert_allclose(graded["discrimination"], table["discrimination"])
    np.testing.assert_allclose(graded["p"], X.mean(axis=0))
    X[:25, 0] = np.nan
    assert item_analysis(Responses.from_array(X))["missing"].tolist() == [0.25] + [0.0] * 39


def test_gaps(small):
    _, responses = small
    X = responses.to_numpy()
    X[::5, 0], X[1::7, 3] = np.nan, np.nan
    gappy = Responses.from_array(X)
    whole = Responses.from_array(X[~np.isnan(X).any(axis=1)])
    assert coefficient_alpha(gappy) == pytest.approx(coefficient_alpha(whole))
    covariance = pd.DataFrame(X).cov().to_numpy()
    want = 8 / 7 * (1 - np.trace(covariance) / covariance.sum())
    assert coefficient_alpha(gappy, "pairwise") == pytest.approx(want)
    assert coefficient_alpha(responses, "pairwise") == pytest.approx(coefficient_alpha(responses))
    assert item_analysis(gappy, "pairwise")["n"].tolist() == [48, 60, 60, 51, 60, 60, 60, 60]


def test_omega_of_a_bifactor_bank_is_that_of_simulated_sums():
    rng = np.random.default_rng(3)
    pattern = np.column_stack([np.ones(12), np.repeat(np.eye(3), 4, axis=0)])
    pattern[11, 1:] = 0  # an item of the general ability alone
    slopes = pattern * np.column_stack([np.full(12, 1.2), np.full((12, 3), 1.0)])
    model = TwoPL(slopes, rng.normal(0, 0.7, 12))
    bank = ItemBank(model, [f"i{k}" for k in range(12)])
    found = omega(bank)
    theta = rng.normal(size=(20_000, 4))
    mean = bank.probability(theta)
    noise = (mean * (1 - mean)).sum(axis=0).mean()
    total = mean.sum(axis=0).var() + noise
    assert found["total"] == pytest.approx(mean.sum(axis=0).var() / total, abs=0.01)
    # Two subjects with the same general ability: their covariance is its variance.
    other = np.column_stack([theta[:, 0], rng.normal(size=(20_000, 3))])
    shared = np.cov(mean.sum(axis=0), bank.probability(other).sum(axis=0))[0, 1]
    assert found["hierarchical"] == pytest.approx(shared / total, abs=0.01)
    assert found["hierarchical"] < found["total"]
    plain = ItemBank.from_slopes(rng.uniform(0.3, 1.5, (6, 2)))
    assert np.isnan(omega(plain)["hierarchical"])
    assert 0 < omega(plain)["total"] < 1


def test_what_has_none(small):
    _, responses = small
    X = responses.to_numpy()
    X[:, 1] = 1
    table = item_analysis(Responses.from_array(X))
    assert table.loc["i2", "flag"] == "constant"
    assert table.loc["i2", ["item_rest", "item_total"]].isna().all()
    assert table.drop("i2").notna().all(axis=None)
    assert np.isnan(coefficient_alpha(Responses.from_array(np.ones((5, 3)))))
    assert np.isnan(coefficient_alpha(Responses.from_array(X), standardised=True))
    assert np.isnan(item_analysis(Responses.from_array(X[:, [0, 2]]))["alpha_if_dropped"]).all()
    silent = ItemBank.from_parameters(a=0.0, b=[0.0, 0.0])
    assert marginal_reliability(silent) == pytest.approx(0)
    assert omega(silent)["total"] == pytest.approx(0)
    same = score(silent, Responses.from_array([[1, 0], [0, 1], [1, 1]]))
    assert np.isnan(empirical_reliability(same)) or empirical_reliability(same) < 1e-6


def test_refused(small):
    bank, responses = small
    with pytest.raises(InputError, match="at least 2 items"):
        coefficient_alpha(responses.subset(items=[0]))
    X = responses.to_numpy()
    X[np.arange(60), np.arange(60) % 8] = np.nan
    gappy = Responses.from_array(X)
    with pytest.raises(InputError, match='Pass missing="pairwise"'):
        coefficient_alpha(gappy)
    with pytest.raises(InputError, match="The `missing` argument"):
        item_analysis(responses, "drop")
    with pytest.raises(InputError, match="of one ability"):
        marginal_reliability(ItemBank.from_slopes(np.ones((3, 2))))
    with pytest.raises(InputError, match="The `abilities` argument"):
        empirical_reliability([0.0, 1.0])
    with pytest.raises(InputError, match="at least 2 subjects with an estimate"):
        empirical_reliability(score(bank, responses.subset(subjects=[0])))
    with pytest.raises(InputError, match="The `bank` argument"):
        omega(responses)


def test_an_item_whose_rest_is_constant_is_flagged():
    """Two items, one of them constant: the other has no item-rest correlation."""
    found = item_analysis(Responses.from_array([[0, 1], [1, 1], [1, 1]]))
    assert found["item_rest"].isna().all()
    assert found["flag"].tolist() == ["constant rest", "constant"]
    opposed = item_analysis(Responses.from_array([[0, 1], [1, 0], [1, 0]]))
    assert opposed["item_total"].isna().all()
    assert opposed["item_rest"].tolist() == pytest.approx([-1, -1])
    assert opposed["flag"].tolist() == ["constant total"] * 2
