"""IRT equating against roots found for every score, and all response patterns."""

import itertools

import numpy as np
import pytest
from scipy.optimize import brentq

import irtcat
from irtcat import InputError, ItemBank
from irtcat.equating import equate_banks
from irtcat.equating.observed import equipercentile_equated

RNG = np.random.default_rng(0)
A, B, C = RNG.lognormal(0, 0.3, (2, 8)), RNG.normal(size=(2, 8)), [0.2, 0.15]
FORMS = [ItemBank.from_parameters(a=A[k], b=B[k], c=C[k]) for k in (0, 1)]


def expected(theta, k):
    return (C[k] + (1 - C[k]) / (1 + np.exp(-A[k] * (theta - B[k])))).sum()


@pytest.mark.slow
def test_true_scores_are_those_of_roots():
    found = equate_banks(*FORMS).table["equated"]
    for score in range(9):
        if score <= 8 * C[0]:
            want = score * C[1] / C[0]
        elif score == 8:
            want = 8
        else:
            theta = brentq(lambda t, s=score: expected(t, 0) - s, -30, 30)
            want = expected(theta, 1)
        assert found[score] == pytest.approx(want, abs=1e-6)


def test_observed_scores_are_those_of_all_patterns():
    theta = np.linspace(-6, 6, 241)
    weight = np.exp(-(theta**2) / 2) / np.exp(-(theta**2) / 2).sum()
    shares = []
    for k in (0, 1):
        p = C[k] + (1 - C[k]) / (1 + np.exp(-A[k][:, None] * (theta - B[k][:, None])))
        share = np.zeros(9)
        for pattern in itertools.product((0, 1), repeat=8):
            x = np.array(pattern)[:, None]
            share[sum(pattern)] += weight @ np.prod(np.where(x, p, 1 - p), axis=0)
        shares.append(share)
    found = equate_banks(*FORMS, "observed-score").table["equated"]
    np.testing.assert_allclose(found, equipercentile_equated(*shares), atol=1e-5)


@pytest.mark.slow
def test_errors_are_the_spread_over_calibrations():
    """Both forms calibrated again and again, by equivalent groups."""
    forms = [ItemBank.from_parameters(a=1.2, b=B[k]) for k in (0, 1)]
    equated, errors = [], []
    for seed in range(8):
        theta = np.random.default_rng(seed).normal(size=(2, 400))
        banks = [
            irtcat.fit(form.simulate(t, seed=seed), "1pl").bank
            for form, t in zip(forms, theta, strict=True)
        ]
        table = equate_banks(*banks, n_draws=40).table
        equated.append(table["equated"])
        errors.append(table["se"])
    spread, se = np.std(equated, axis=0, ddof=1), np.mean(errors, axis=0)
    np.testing.assert_allclose(se[2:7].mean(), spread[2:7].mean(), rtol=0.35)
    assert (se[0], se[8]) == (0, 0)


def test_refusals():
    falling = ItemBank.from_parameters(a=[1.0, -3.0], b=0.0)
    with pytest.raises(InputError, match="rises with ability"):
        equate_banks(falling, FORMS[1])
    with pytest.raises(InputError, match="`y` argument must be an ItemBank"):
        equate_banks(FORMS[0], [1, 2])
