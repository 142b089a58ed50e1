"""Aberrant times against conditional Normal distributions, and planted ones."""

import numpy as np
import pandas as pd
import pytest

from irtcat import InputError, ItemBank
from irtcat.response_times import aberrant_times, fit_times

N, K = 200, 12
RNG = np.random.default_rng(5)
THETA = RNG.normal(size=N)
BANK = ItemBank.from_parameters(a=1.0, b=np.linspace(-2, 2, K))
RESPONSES = BANK.simulate(THETA, seed=0)
TIMES = np.exp(3 - 0.3 * RNG.normal(size=(N, 1)) + 0.5 * RNG.normal(size=(N, K)))
TIMES[0, 0] = np.nan
MODEL = fit_times(TIMES)


def test_residuals_are_those_of_the_conditional_distribution():
    found = aberrant_times(MODEL, TIMES)
    beta, alpha = MODEL.items["intensity"].to_numpy(), MODEL.items["discrimination"].to_numpy()
    covariance = MODEL.speed_sd**2 + np.diag(alpha**-2)
    deviation = np.log(TIMES) - beta
    for row, item in ((0, 3), (5, 0)):
        other = np.setdiff1d(np.flatnonzero(~np.isnan(TIMES[row])), item)
        slope = np.linalg.solve(covariance[np.ix_(other, other)], covariance[other, item])
        sd = np.sqrt(covariance[item, item] - slope @ covariance[other, item])
        z = (deviation[row, item] - slope @ deviation[row, other]) / sd
        assert found.z.iloc[row, item] == pytest.approx(z, abs=1e-10)
    seen = ~np.isnan(TIMES[0])
    design, weight = np.ones((seen.sum(), 1)), alpha[seen]
    least = np.linalg.lstsq(weight[:, None] * design, weight * deviation[0, seen], rcond=None)[1]
    assert found.subjects["statistic"].iloc[0] == pytest.approx(least[0], abs=1e-9)
    assert found.subjects["df"].tolist()[:2] == [K - 2, K - 1]


def test_planted_answers_have_their_kind():
    times, values = TIMES.copy(), RESPONSES.values.copy()
    times[[3, 4, 5], [2, K - 1, 6]] *= [0.05, 0.05, 20.0]
    values[3, 2], values[4] = 0, np.r_[np.zeros(K - 1), 1]
    ids = RESPONSES.subject_ids, RESPONSES.item_ids
    found = aberrant_times(MODEL, times, pd.DataFrame(values, *ids), bank=BANK)
    kinds = found.cells.set_index(["subject", "item"])["kind"]
    assert kinds.loc["s4", "i3"] == "rapid guess"
    assert kinds.loc["s5", "i12"] == "preknowledge"
    assert kinds.loc["s6", "i7"] == "slow"
    assert len(kinds) <= 5
    assert found.subjects.loc[["s4", "s5", "s6"], "aberrant"].all()
    assert found.subjects[["rapid guess", "slow"]].loc["s4"].tolist() == [1, 0]


def test_refusals():
    with pytest.raises(InputError, match="together with responses"):
        aberrant_times(MODEL, TIMES, RESPONSES)
    with pytest.raises(InputError, match="items of the model"):
        aberrant_times(MODEL, pd.DataFrame(TIMES, columns=[f"x{i}" for i in range(K)]))
