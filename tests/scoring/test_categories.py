"""Scores on items that differ in their number of categories, against brute force."""

from dataclasses import replace

import numpy as np
import pytest

from irtcat import InputError, ItemBank, Responses, score, sum_score_table

NAMES = ["x", "y", "z"]


@pytest.fixture(scope="module")
def bank():
    b = [[-1.5, -0.2, 1.0], [-0.5, 0.8, np.nan], [0.3, np.nan, np.nan]]
    return ItemBank.from_thresholds(a=[1.2, 0.8, 1.6], b=b, item_ids=NAMES)


def test_brute_force(bank):
    X = np.array([[3, 2, 1], [0, 0, 0], [2, 1, 0], [1, -1, 1]])
    z = np.linspace(-8, 8, 2001)
    p = bank.category_probabilities(z)
    likelihood = np.ones((len(X), len(z)))
    for j in range(3):
        seen = X[:, j] >= 0
        likelihood[seen] *= p[j].T[X[seen, j]]
    weights = likelihood * np.exp(-0.5 * z**2)
    mean = (weights @ z) / weights.sum(axis=1)
    responses = Responses.from_array(X, item_ids=NAMES)
    np.testing.assert_allclose(score(bank, responses).theta, mean, atol=1e-5)
    table = sum_score_table(bank)
    assert len(table) == 3 + 2 + 1 + 1  # only the sums that can be reached
    assert np.isfinite(table.to_numpy()).all()
    assert table.probability.sum() == pytest.approx(1, abs=1e-6)
    np.testing.assert_allclose(table.theta.iloc[[-1, 0]], mean[:2], atol=1e-5)


def test_codes(bank):
    """A file in which not every category occurs is read with declared codes."""
    with pytest.raises(InputError, match="codes="):
        Responses.from_array([[3, 1, 0]], item_ids=NAMES)
    few = Responses.from_array([[2, 1, 0]], item_ids=NAMES)
    declared = Responses.from_array([[2, 1, 0]], item_ids=NAMES, codes=range(4))
    assert declared.codes == (0, 1, 2, 3)
    np.testing.assert_array_equal(score(bank, few).theta, score(bank, declared).theta)
    with pytest.raises(InputError, match="to 1 for item z"):
        score(bank, Responses.from_array([[2, 0, 2]], item_ids=NAMES, codes=range(4)))
    with pytest.raises(InputError, match="among the codes 0 to 3"):
        Responses.from_array([[4, 0, 0]], codes=range(4))
    with pytest.raises(InputError, match="declared codes"):
        score(bank, Responses.from_array([[2, 1, 1]], item_ids=NAMES, codes=(1, 2)))


def test_codes_may_begin_elsewhere(bank):
    """The bank has no codes: the lowest of the declared ones is its lowest category."""
    X = np.array([[3, 2, 1], [0, 1, 0]])
    plain = score(bank, Responses.from_array(X, item_ids=NAMES, codes=range(4)))
    later = score(bank, Responses.from_array(X + 1, item_ids=NAMES, codes=range(1, 5)))
    np.testing.assert_array_equal(plain.theta, later.theta)
    coded = replace(bank, codes=(1, 2, 3, 4))
    np.testing.assert_array_equal(
        score(coded, Responses.from_array(X + 1, item_ids=NAMES, codes=range(1, 5))).theta,
        plain.theta,
    )
    high = np.array([[3, 2, 1], [1, 1, 1]])  # nobody in the lowest category
    of_bank = score(bank, Responses.from_array(high, item_ids=NAMES, codes=range(4)))
    without = Responses.from_array(high + 1, item_ids=NAMES, codes=(2, 3, 4))
    np.testing.assert_array_equal(score(coded, without).theta, of_bank.theta)
