"""What subjects and items are given by id, in whatever order, and in passes as in memory."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from irtcat import InputError, ItemBank, Responses, score, select, sum_score_table
from irtcat.io import ResponseSource


@pytest.fixture(scope="module")
def bank():
    return ItemBank.from_parameters(a=1.2, b=np.linspace(-1, 1, 12))


def test_priors_in_a_series_are_by_subject(bank):
    drawn = bank.simulate([0.0, 0.0], seed=1)
    means = pd.Series([3.0, -3.0], index=["s2", "s1"])
    ability = score(bank, drawn, prior=(means, 0.1))
    assert ability.theta[0] < -2.5
    assert ability.theta[1] > 2.5
    with pytest.raises(InputError, match="prior"):
        score(bank, drawn, prior=(means.iloc[:1], 0.1))


def test_allowed_items_in_a_series_are_by_id(bank):
    marks = pd.Series(np.arange(12) < 3, index=bank.item_ids[::-1])
    assert set(select(bank, 3, strategy="fisher", allowed=marks).item_ids) == {"i10", "i11", "i12"}


@pytest.mark.parametrize(
    "strategy", ["random", "stratified", "balanced", "robust", "neyman", "score-optimal"]
)
def test_a_budget_of_tenths_pays_three_items(bank, strategy):
    calibration = bank.simulate(np.linspace(-2, 2, 40), seed=2)
    tenths = dict.fromkeys(bank.item_ids, 0.1)
    subset = select(bank, 6, strategy=strategy, calibration=calibration, costs=tenths, budget=0.3)
    assert len(subset) == 3


def test_robust_without_a_sampled_share_is_the_optimal_choice(bank):
    calibration = bank.simulate(np.linspace(-2, 2, 40), seed=2)
    shared = {"calibration": calibration, "costs": dict.fromkeys(bank.item_ids, 1), "budget": 3}
    robust = select(bank, 6, strategy="robust", share=0, **shared)
    optimal = select(bank, 6, strategy="score-optimal", **shared)
    assert robust.item_ids.tolist() == optimal.item_ids.tolist()


def test_passes_are_in_the_codes_of_the_bank():
    b = np.array([[-1.5, 0.0, 1.5], [-1.0, 0.5, 1.0], [-0.5, 0.2, 2.0]])
    bank = ItemBank.from_thresholds(a=[1.0, 1.5, 0.8], b=b)
    x = np.array([[1, 2, 3], [2, 3, 1], [1, 1, 2]], np.int8)  # nobody in the lowest category
    memory = Responses.from_array(x, item_ids=bank.item_ids, codes=range(4))
    source = ResponseSource(3, 3, lambda: iter([x]), list(bank.item_ids), n_categories=4)
    expected = score(bank, memory).theta
    for codes in ((), (1, 2, 3, 4)):
        found = score(replace(bank, codes=codes), source)
        np.testing.assert_allclose(found.theta, expected, atol=1e-6)


@pytest.mark.parametrize("level", [0, 1, 95, float("nan"), "a"])
def test_levels_of_sum_scores_are_checked(bank, level):
    with pytest.raises(InputError, match="`level` argument must be a number strictly between"):
        sum_score_table(bank, level=level)


def test_bounds_are_two_numbers(bank):
    for bounds in (3, ("a", "b"), (1, 2, 3)):
        with pytest.raises(InputError, match="two finite numbers in rising order"):
            score(bank, bank.simulate([0.0, 1.0], seed=1), theta_bounds=bounds)
