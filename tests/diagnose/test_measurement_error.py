"""Conditional errors against all answer patterns; reliable change against its formulas."""

import itertools

import numpy as np
import pandas as pd
import pytest
from scipy.special import expit
from scipy.stats import binom, binomtest

import irtcat
from irtcat import InputError, ItemBank
from irtcat.diagnose import (
    binomial_errors,
    reliable_change,
    sum_score_errors,
    sum_score_reliability,
)
from irtcat.responses.datasets import load

A, B = np.array([1.0, 1.5, 0.7, 1.2, 2.0]), np.array([-1.0, -0.3, 0.0, 0.6, 1.2])
BANK = ItemBank.from_parameters(a=A, b=B, c=0.2)
SCALED = np.array([100.0, 104.0, 111.0, 120.0, 133.0, 150.0])


def test_sum_score_errors_are_those_of_all_patterns():
    theta = np.array([-1.5, 0.0, 0.7])
    found = sum_score_errors(BANK, theta, scaled=SCALED)
    p = 0.2 + 0.8 * expit(A[:, None] * (theta - B[:, None]))
    patterns = np.array(list(itertools.product((0, 1), repeat=5)))
    share = np.prod(np.where(patterns[:, :, None] == 1, p, 1 - p), axis=1)
    for prefix, values in (("", patterns.sum(1)), ("scaled_", SCALED[patterns.sum(1)])):
        mean = values @ share
        sd = np.sqrt(values**2 @ share - mean**2)
        np.testing.assert_allclose(found[f"{prefix}expected"], mean, atol=1e-10)
        np.testing.assert_allclose(found[f"{prefix}se"], sd, atol=1e-10)
    np.testing.assert_allclose(found["se"], np.sqrt((p * (1 - p)).sum(0)), atol=1e-10)


@pytest.mark.slow
def test_reliability_is_the_correlation_of_parallel_scores():
    theta = np.random.default_rng(0).normal(size=40000)
    first, second = (BANK.simulate(theta, seed=s).values.sum(axis=1) for s in (1, 2))
    for scaled, (x, y) in ((None, (first, second)), (SCALED, (SCALED[first], SCALED[second]))):
        assert sum_score_reliability(BANK, scaled=scaled) == pytest.approx(
            np.corrcoef(x, y)[0, 1], abs=0.015
        )


def test_binomial_errors():
    n, data = 5, load("lsat6")
    found = binomial_errors(data, scaled=SCALED)
    np.testing.assert_allclose(found["se"] ** 2, [0, 1, 1.5, 1.5, 1, 0])
    interval = binomtest(3, n).proportion_ci(0.95)
    np.testing.assert_allclose(found.loc[3, ["lower", "upper"]], n * np.array(interval))
    share = binom.pmf(np.arange(6), n, 0.4)
    sd = np.sqrt(share @ SCALED**2 - (share @ SCALED) ** 2) * np.sqrt(n / (n - 1))
    assert found.loc[2, "scaled_se"] == pytest.approx(sd)
    # Keats: on average the error variance is that of alpha.
    sums = data.values.sum(axis=1)
    error = (found["se_keats"].to_numpy()[sums] ** 2).mean()
    alpha = irtcat.diagnose.coefficient_alpha(data)
    assert error == pytest.approx((1 - alpha) * sums.var(), rel=1e-10)
    assert "se_keats" not in binomial_errors(5)


@pytest.mark.slow
def test_reliable_change_of_scores_and_of_abilities():
    before, after = (
        pd.Series([10.0, 20, 30, 5], list("abcd")),
        pd.Series([30.0, 9, 21], list("cba")),
    )
    found = reliable_change(before, after, reliability=0.84, sd=5)
    se = 5 * np.sqrt(2 * 0.16)
    assert found["se"].tolist() == pytest.approx([se] * 3)
    assert found.loc["a", "index"] == pytest.approx(11 / se)
    assert found["change"].to_dict() == {"a": "rise", "b": "fall", "c": "none"}
    assert ((found["lower"] > 0) | (found["upper"] < 0)).tolist() == [True, True, False]
    mappings = before.to_dict(), after.to_dict()
    pd.testing.assert_frame_equal(reliable_change(*mappings, reliability=0.84, sd=5), found)
    bank = ItemBank.from_parameters(a=1.5, b=np.linspace(-2, 2, 40))
    theta = np.random.default_rng(0).normal(size=2000)
    times = [irtcat.score(bank, bank.simulate(theta, seed=s), "wle") for s in (0, 1)]
    found = reliable_change(*times)
    np.testing.assert_allclose(found["se"], np.hypot(times[0].se, times[1].se))
    assert (found["change"] != "none").mean() == pytest.approx(0.05, abs=0.015)


@pytest.mark.parametrize(
    ("call", "match"),
    [
        (lambda: reliable_change([1, 2], [2, 3]), "`reliability` .* 0 to below 1"),
        (lambda: reliable_change([1, 2], [2, 3], reliability="high"), "0 to below 1"),
        (lambda: reliable_change([1, 2], [np.inf, 3], reliability=0.9), "finite .*infinite for s1"),
        (lambda: sum_score_errors(BANK, ["a"]), "`theta` argument must be a number"),
        (lambda: reliable_change(irtcat.score(BANK, BANK.simulate([0.0])), [1]), "as before"),
        (lambda: reliable_change(*[irtcat.score(BANK, BANK.simulate([0.0]))] * 2), '"wle" or "ml"'),
        (lambda: reliable_change(pd.Series([1, 2], ["a", "a"]), [1]), "one score a subject"),
        (lambda: reliable_change([1, 2], [2, 3, 4], reliability=0.9), "2 scores as before"),
        (lambda: sum_score_errors(BANK, scaled=[1, 2]), "6 numbers, one for each sum score"),
        (lambda: binomial_errors(1), "`items` .* at least 2"),
        (lambda: binomial_errors([[0, 1], [1, None]]), "complete right/wrong"),
    ],
)
def test_refusals(call, match):
    with pytest.raises(InputError, match=match):
        call()
