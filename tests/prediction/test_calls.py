"""The work of a prediction, counted in Python calls."""

import numpy as np
import pytest

from irtcat import ItemBank, predict, select


@pytest.fixture
def calls(modules_called):
    """Calls of functions in irtcat that a second run makes: the first one imports and caches."""

    def counted(function):
        function()
        return len(modules_called(function))

    return counted


@pytest.fixture(scope="module")
def data():
    rng = np.random.default_rng(0)
    bank = ItemBank.from_parameters(a=rng.lognormal(0, 0.3, 200), b=rng.normal(size=200))
    return bank.simulate(rng.normal(size=100), seed=1), bank.simulate([-1.0, 0.0, 1.0], seed=2)


@pytest.mark.slow
def test_predict_as_in_the_readme(data, calls):
    """Five folds, each with a choice of its own and both ends of the range: at most 410 calls.

    The prior that all new subjects share takes 40 more, by EM, and the noise of the runs, in the
    ranks, 80, for any number of subjects and items.
    """
    calibration, new = data
    subset = select(None, 30, calibration=calibration)
    answers = new.subset(items=subset.item_ids)
    alone = calls(lambda: predict(calibration, subset, answers, estimand="run", pooled=False))
    assert alone <= 410
    assert calls(lambda: predict(calibration, subset, answers, estimand="run")) <= alone + 40
    assert calls(lambda: predict(calibration, subset, answers, pooled=False)) <= 490


def test_a_greedy_choice_makes_no_calls_for_each_item(data, calls):
    """Only blocks of columns of the covariance are called for, not items."""
    calibration, _ = data

    def choose(n_items):
        return calls(
            lambda: select(None, n_items, strategy="score-optimal", calibration=calibration)
        )

    assert choose(60) - choose(10) <= 25
