"""Person fit against mirt's numbers, by hand, by its law, and degenerate subjects."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from scipy.special import expit

from irtcat import ItemBank, Responses, score
from irtcat._common.checks import InputError
from irtcat.diagnose import person_fit

MEASURES = ["outfit", "outfit_z", "infit", "infit_z", "lz"]


@pytest.mark.slow_cases("(?!lsat6-2pl$).*")
@pytest.mark.parametrize(
    ("data", "model"), [("lsat6", "rasch"), ("lsat6", "2pl"), ("lsat7", "3pl")]
)
def test_lsat_is_mirts(lsat, data, model):
    """mirt's Zh is lz at the EAP."""
    responses, bank, numbers = lsat(data, model)
    theta = score(bank, responses, "eap", precision="float64").theta
    found = person_fit(bank, responses, abilities=theta)  # as known ones: mirt's z
    same = ["outfit", "infit", "lz", "lz_star"]
    pd.testing.assert_frame_equal(found[same], person_fit(bank, responses, "eap")[same])
    patterns = ["".join(map(str, row)) for row in responses.values]
    want = np.array([numbers["person"][pattern] for pattern in patterns])
    # Outfit of a lone answer against the odds magnifies the seventh digit of the parameters.
    np.testing.assert_allclose(found[MEASURES], want, rtol=2e-5, atol=2e-5)
    assert found["lz_star"].isna().all()  # the correction is not for EAP
    assert found["flag"].str.contains("fewer than 10 items").all()


# --- lz* by its definition


def by_hand(a, b, x, theta, r_0):
    """Snijders's eqs. for right/wrong items: weights w = log P - log Q, r = a (2PL)."""
    p = expit(a * (theta - b))
    w = np.log(p) - np.log1p(-p)
    slope = a * p * (1 - p)
    r = slope / (p * (1 - p))
    c = (slope * w).sum() / (slope * r).sum()
    left = w - c * r
    return (((x - p) * w).sum() + c * r_0) / np.sqrt((left**2 * p * (1 - p)).sum())


@pytest.mark.parametrize("method", ["ml", "wle", "map"])
def test_lz_star_by_hand(method):
    rng = np.random.default_rng(4)
    a, b = rng.uniform(0.7, 1.8, 15), rng.normal(0, 0.8, 15)
    bank = ItemBank.from_parameters(a, b, population_mean=0.3, population_sd=1.2)
    responses = bank.simulate([0.0, -0.5, 1.0], 5)
    found = person_fit(bank, responses, method)
    for x, theta, value in zip(responses.values, found["theta"], found["lz_star"], strict=True):
        p = expit(a * (theta - b))
        information = (a**2 * p * (1 - p)).sum()
        bend = (a**3 * p * (1 - p) * (1 - 2 * p)).sum()
        r_0 = {"ml": 0.0, "wle": bend / (2 * information), "map": (0.3 - theta) / 1.2**2}[method]
        assert r_0 + (a * (x - p)).sum() == pytest.approx(0, abs=1e-4)  # the estimate's equation
        assert value == pytest.approx(by_hand(a, b, x, theta, r_0), abs=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("method", ["ml", pytest.param("wle", marks=pytest.mark.slow), "map"])
def test_lz_star_is_standard_normal_and_lz_is_not(method):
    """1,500 subjects, 40 items; graded ones in half the cases."""
    rng = np.random.default_rng(6)
    b = np.sort(rng.normal(size=(40, 2)), axis=1)
    b[::2, 1] = np.nan
    bank = ItemBank.from_thresholds(a=rng.uniform(0.8, 1.8, 40), b=b)
    found = person_fit(bank, bank.simulate(rng.normal(size=1500), 7), method)
    star, plain = found["lz_star"].dropna(), found["lz"].dropna()
    assert len(star) >= 1490
    assert abs(star.mean()) < 0.12
    assert abs(star.std() - 1) < 0.06
    assert plain.std() < 0.94
    assert (found["p"] < 0.05).mean() == pytest.approx(0.05, abs=0.02)
    at_truth = person_fit(bank, bank.simulate(np.zeros(1500), 8), abilities=np.zeros(1500))
    assert abs(at_truth["lz"].mean()) < 0.1
    assert at_truth["lz"].std() == pytest.approx(1, abs=0.07)
    assert at_truth["lz_star"].isna().all()
    assert at_truth["outfit"].mean() == pytest.approx(1, abs=0.02)
    assert at_truth["infit"].mean() == pytest.approx(1, abs=0.02)


@pytest.mark.slow
def test_guessing_is_found():
    rng = np.random.default_rng(9)
    bank = ItemBank.from_parameters(a=1.5, b=np.linspace(-2, 2, 40))
    X = bank.simulate(rng.normal(size=200), 10).to_numpy()
    X[:20] = rng.integers(0, 2, (20, 40))
    found = person_fit(bank, Responses.from_array(X))
    assert (found["p"].iloc[:20] < 0.05).mean() > 0.8
    assert (found["p"].iloc[20:] < 0.05).mean() < 0.12
    assert found["p_bh"].idxmin() in found.index[:20]
    assert found["outfit"].iloc[:20].mean() > 1.5


@pytest.mark.slow
def test_several_abilities():
    rng = np.random.default_rng(11)
    slopes = np.kron(np.eye(2), np.ones((20, 1))) * rng.uniform(0.8, 1.8, (40, 1))
    bank = ItemBank.from_slopes(slopes, rng.normal(size=40), correlations=[[1, 0.5], [0.5, 1]])
    theta = rng.multivariate_normal([0, 0], [[1, 0.5], [0.5, 1]], 400)
    found = person_fit(bank, bank.simulate(theta, 12))
    assert list(found.columns[:3]) == ["theta_1", "theta_2", "n_items"]
    assert abs(found["lz_star"].mean()) < 0.2
    assert abs(found["lz_star"].std() - 1) < 0.12
    assert abs(found["lz_star"].std() - 1) < abs(found["lz"].std() - 1)


# --- degenerate subjects


@pytest.mark.slow
def test_perfect_empty_and_short_rows_are_flagged(small):
    bank, responses = small
    X = responses.to_numpy()
    X[0], X[1], X[2] = 1, 0, np.nan
    X[3, 2:] = np.nan
    abilities = score(bank, Responses.from_array(X), "ml")
    assert abilities.at_bound.tolist()[:3] == [True, True, False]
    assert score(bank, Responses.from_array(X)).at_bound is None
    silent = replace(abilities, flag=np.full(len(X), ""))  # the state counts, not the text
    found = person_fit(bank, Responses.from_array(X), abilities=silent, min_items=5)
    assert np.isnan(found["lz_star"].iloc[0])
    found = person_fit(bank, Responses.from_array(X), "ml", min_items=5)
    assert found["flag"].iloc[0] == "highest answers only; ability at its bound"
    assert found["flag"].iloc[1] == "lowest answers only; ability at its bound"
    assert found["flag"].iloc[2] == "no responses"
    assert "fewer than 5 items" in found["flag"].iloc[3]
    assert (found["n_items"].iloc[:4] == [8, 8, 0, 2]).all()
    assert found["lz_star"].iloc[:3].isna().all()
    empty = found.iloc[2][["theta", "lz", "p", "p_bh", *MEASURES]]
    assert empty.isna().all()
    ordinary = found.iloc[4:]
    ordinary = ordinary[ordinary["flag"] == ""]
    assert ordinary.notna().all(axis=None)


@pytest.mark.slow
def test_what_cannot_vary_is_nan():
    """All items alike: the likelihood hangs on the number right alone, and nothing is left."""
    bank = ItemBank.from_parameters(a=1.0, b=np.zeros(12))
    found = person_fit(bank, Responses.from_array([[1] * 6 + [0] * 6, [1] * 3 + [0] * 9]))
    assert found["lz_star"].isna().all()
    assert np.isfinite(found["outfit"]).all()


@pytest.mark.slow
def test_abilities_given(small):
    bank, responses = small
    ability = score(bank, responses, "wle", precision="float64")
    given, own = person_fit(bank, responses, abilities=ability), person_fit(bank, responses, "wle")
    np.testing.assert_array_equal(given["lz_star"], own["lz_star"])
    with pytest.raises(InputError, match="of the subjects of the responses"):
        person_fit(bank, responses.subset(subjects=np.arange(59, -1, -1)), abilities=ability)


def test_refused(small):
    bank, responses = small
    with pytest.raises(InputError, match="The `min_items` argument"):
        person_fit(bank, responses, min_items=0)
    with pytest.raises(InputError, match="The `method` argument"):
        person_fit(bank, responses, "mode")
    with pytest.raises(InputError, match="The `abilities` argument must be numbers"):
        person_fit(bank, responses, abilities=["a"] * 60)
    with pytest.raises(InputError, match="finite, or NaN"):
        person_fit(bank, responses, abilities=np.full(60, np.inf))
