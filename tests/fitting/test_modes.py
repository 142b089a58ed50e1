"""Data with several modes: the fit starts from the factors and the copies of the items as well."""

import numpy as np
import pytest

from irtcat import EM, Responses, fit
from irtcat.fitting.em.directions import item_directions
from irtcat.responses.datasets import load

SHAPE = (60, 26)  # that of test_degenerate.py: compiled once


def right_wrong(seed=0, shape=SHAPE, theta=None):
    rng = np.random.default_rng(seed)
    theta = rng.normal(size=shape[0]) if theta is None else theta
    slopes, difficulty = rng.uniform(0.7, 2.0, shape[1]), rng.normal(size=shape[1])
    p = 1 / (1 + np.exp(-slopes * (theta[:, None] - difficulty)))
    return (rng.random(shape) < p).astype(float)


def opposed():
    """Every item and its reverse: all scores are the same and order nobody."""
    half = right_wrong(shape=(60, 13))
    return np.hstack([half, 1 - half])


def few_items_copied():
    return right_wrong(3)[:, np.random.default_rng(1).integers(0, 6, SHAPE[1])]


def six_patterns():
    return np.repeat(right_wrong()[:6], 10, axis=0)


def directions_of(X):
    observed = ~np.isnan(X)
    ones = np.ones(len(X))
    return item_directions(np.nan_to_num(X), 1.0 * observed, ones, np.ones(X.shape[1], bool))


@pytest.mark.slow
@pytest.mark.parametrize("data", [opposed, few_items_copied, six_patterns])
def test_no_other_start_is_higher(data):
    X = Responses.from_array(data())
    first = fit(X, "2pl", standard_errors="none")
    best = fit(X, "2pl", EM(starts=4), standard_errors="none")
    assert best.log_posterior <= first.log_posterior + 0.1


@pytest.mark.slow
def test_opposed_items_are_fitted_and_the_message_says_how():
    found = fit(Responses.from_array(opposed()), "2pl")
    slopes = found.bank.parameters()[:, 0]
    assert np.sign(slopes[:13]).tolist() == (-np.sign(slopes[13:])).tolist()
    assert np.median(np.abs(slopes)) > 0.5
    assert "suggest several modes" in found.message
    assert found.converged
    more = fit(Responses.from_array(opposed()), "2pl", EM(starts=2), standard_errors="none")
    assert "suggest several modes" in more.message
    assert "2 starts: none was higher" in more.message


@pytest.mark.slow
def test_a_pair_of_copies_of_few_items():
    """The mode of the pair (slopes at the bound) is the higher one, and found by default."""
    X = right_wrong(20, (200, 20))
    X[:, 1] = X[:, 0]
    found = fit(Responses.from_array(X), "2pl", standard_errors="none")
    np.testing.assert_array_equal(np.abs(found.bank.parameters()[:2, 0]), 25)
    assert "suggest several modes" in found.message


@pytest.mark.parametrize(
    "X",
    [
        *(right_wrong(seed) for seed in range(4)),
        right_wrong(5, (1000, 50)),
        right_wrong(6, (400, 200)),
        np.where(
            np.random.default_rng(0).random((500, 40)) < 0.4, np.nan, right_wrong(7, (500, 40))
        ),
        1 - right_wrong(8),
        load("lsat7").to_numpy().astype(float),
    ],
)
def test_ordinary_data_have_the_one_start(X):
    assert directions_of(X) == []


def test_directions_of_two_abilities():
    theta = np.random.default_rng(2).normal(size=(2, 500))
    X = np.hstack([right_wrong(k, (500, 12), theta[k]) for k in range(2)])
    first, second, *turned = directions_of(X)
    blocks = [np.abs(each).reshape(2, 12).mean(axis=1) for each in turned]
    assert all(part.max() > 5 * part.min() for part in blocks)
    assert {int(part.argmax()) for part in blocks} == {0, 1}
    np.testing.assert_allclose(first @ second, 0, atol=1e-3)


def test_directions_of_copies():
    X = right_wrong(4, (500, 20))
    X[:, 3], X[:, 9] = X[:, 0], 1 - X[:, 0]
    X[:2, 3] = 1 - X[:2, 3]  # two subjects differ
    (only,) = directions_of(X)
    expected = np.zeros(20)
    expected[[0, 3, 9]] = 1, 1, -1
    np.testing.assert_array_equal(only, expected)


def test_directions_leave_out_items_that_do_not_count():
    X = opposed()
    counting = np.arange(SHAPE[1]) != 4
    X[:, 7] = 1
    for each in item_directions(X, np.ones(SHAPE), np.ones(SHAPE[0]), counting):
        assert each[[4, 7]].tolist() == [0, 0]
        assert np.isfinite(each).all()


def test_the_direction_is_that_of_the_subjects_not_of_the_patterns():
    for seed in (4, 15, 24):
        rng = np.random.default_rng(seed)
        slopes = 1.5 * np.array([1, 1, -1, -1])
        p = 1 / (1 + np.exp(1.5 - slopes * rng.normal(size=(200, 1))))
        x = (rng.random((200, 4)) < p).astype(int)
        result = fit(Responses.from_array(x), "2pl", standard_errors="none", weak_priors=False)
        assert np.corrcoef(result.abilities.theta, x.sum(axis=1))[0, 1] > 0
