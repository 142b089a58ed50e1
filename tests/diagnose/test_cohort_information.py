"""Spent items: the information by its formula, and each reason by an item made for it."""

import numpy as np
import pytest
from scipy.special import expit

from irtcat import InputError, ItemBank, score
from irtcat.diagnose import spent_items

A = np.array([1.2, 0.9, 1.5, 1.0, 1.1, 1.3, 0.1, 1.5, 1.5, 1.5, 1.0])
B = np.array([-0.5, 0.0, 0.5, 1.0, -1.0, 0.2, 0.0, -5.0, 5.0, -9.0, 0.0])


@pytest.fixture(scope="module")
def cohort():
    """Answers of 500 subjects; the last item's key is wrong."""
    rng = np.random.default_rng(0)
    x = (rng.random((500, 11)) < expit(A * (rng.normal(size=(500, 1)) - B))).astype(float)
    x[0, 7:9] = 0, 1  # easy and hard, but not for all
    x[:, 9] = 1
    x[:, 10] = 1 - x[:, 10]
    x[:3, 0] = np.nan
    return ItemBank.from_parameters(a=A, b=B), x


def test_each_reason(cohort):
    bank, x = cohort
    table = spent_items(bank, x)
    reasons = ["no discrimination", "too easy", "too hard", "all right", "wrong key suspected"]
    assert table["reason"].tolist() == [""] * 6 + reasons
    assert table["spent"].tolist() == [False] * 6 + [True] * 4 + [False]
    assert table["n"].tolist()[:2] == [497, 500]


@pytest.mark.slow
def test_information_and_correlations(cohort):
    bank, x = cohort
    table = spent_items(bank, x)
    # The population of this cohort: mean and SD for which posteriors have these mean and SD.
    mean, sd = 0.0, 1.0
    for _ in range(60):
        ability = score(bank, x, prior=(mean, sd))
        theta, se = np.asarray(ability.theta, float), np.asarray(ability.se, float)
        mean, sd = theta.mean(), np.sqrt(theta.var() + (se**2).mean())
    p = expit(A * (theta[:, None] - B))
    information = (A**2 * p * (1 - p)).mean(axis=0)
    np.testing.assert_allclose(table["information"], information, rtol=0.03)
    np.testing.assert_allclose(table["share"], information / information.mean(), rtol=0.03)
    rest = np.delete(x, 2, axis=1)
    expected = np.corrcoef(x[3:, 2], rest[3:].mean(axis=1))[0, 1]
    assert table["item_rest"].iloc[2] == pytest.approx(expected, abs=0.01)
    assert np.isnan(table["item_rest"].iloc[9])


@pytest.mark.slow
def test_a_better_cohort_and_refusals(cohort):
    bank, _ = cohort
    better = bank.simulate(np.full(300, 4.5), seed=1)
    table = spent_items(bank, better)
    assert table["reason"].iloc[8] == ""  # the hardest item is worth the most
    assert table["share"].idxmax() == "i9"
    for least in (0, 1):
        with pytest.raises(InputError, match="least"):
            spent_items(bank, better, least=least)
