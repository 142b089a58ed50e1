"""Rows and items that only fill up the shapes of compiled programs change nothing."""

import numpy as np
import pytest

from irtcat import fit
from irtcat.fitting.em import m_step, problem, rows
from irtcat.latent import expected_sums, line, round_up

RNG = np.random.default_rng(3)
N, M = 201, 11  # filled up to 224 x 16


def answers(model):
    theta, b = RNG.normal(size=(N, 1)), RNG.normal(size=M)
    steps = range(2) if model in ("graded", "gpcm", "nominal", "rsm") else range(1)
    return sum((RNG.random((N, M)) < 1 / (1 + np.exp(b + k - theta))).astype(int) for k in steps)


PRIORS = {"slope": ("lognormal", 0.0, 0.5), "logit_lower": ("beta", 5, 17)}
CASES = [
    ("rasch", {}),
    ("2pl", {}),
    ("2pl", {"equal": ["slope"]}),
    ("2pl", {"groups": np.arange(N) % 2}),
    ("2pl", {"standard_errors": "block"}),
    ("2pl", {"standard_errors": "sandwich"}),
    ("3pl", {"priors": PRIORS}),
    ("graded", {}),
    ("rsm", {}),
    ("nominal", {}),
]


@pytest.mark.slow
@pytest.mark.parametrize(("model", "options"), CASES)
@pytest.mark.parametrize("has_missing", [False, True])
def test_the_fit_is_that_of_the_data_alone(model, options, has_missing, iterations, monkeypatch):
    x = answers(model).astype(float)
    if has_missing:
        x[RNG.random(x.shape) < 0.1] = np.nan
    options = options | {"solver": iterations(30)}
    monkeypatch.setattr(line, "FEW_CELLS", 0)  # nothing is filled up in numpy
    filled = fit(x, model, **options)
    monkeypatch.setattr(problem, "LARGE", 0)
    monkeypatch.setattr(rows, "LARGE", 0)
    alone = fit(x, model, **options)
    assert filled.log_likelihood == pytest.approx(alone.log_likelihood, rel=1e-11)
    for name in ("model", "covariance"):
        a, b = getattr(filled.bank, name), getattr(alone.bank, name)
        if name == "model":
            a, b = filled.bank.parameters(), alone.bank.parameters()
        assert a.shape == b.shape
        # The extrapolation of EM amplifies rounding.
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)
    assert filled.n_parameters == alone.n_parameters


@pytest.mark.slow
def test_other_sizes_use_the_same_programs(monkeypatch):
    monkeypatch.setattr(line, "FEW_CELLS", 0)
    x = answers("2pl")
    fit(x, "2pl")
    before = expected_sums.line_sums._cache_size()
    assert before
    fit(x[:-8, :-1], "2pl")
    assert expected_sums.line_sums._cache_size() == before


def test_large_problems_stay_as_they_are():
    assert problem.ItemFill(1001, 2000).more == 0
    assert problem.ItemFill(1001, np.inf).more == 0
    assert problem.ItemFill(100, 1000).more == 12


@pytest.mark.parametrize("fewest", [1, 8, 32])
def test_sizes_are_few_and_at_most_a_quarter_more(fewest):
    sizes = np.array([round_up(n, fewest) for n in range(1, 3000)])
    n = np.arange(1, 3000)
    assert (sizes >= n).all()
    assert (np.diff(sizes) >= 0).all()
    assert ((sizes - n) / n)[n > 4 * fewest].max() <= 0.25
    assert len(set(sizes)) <= 4 * np.log2(3000 / fewest) + 5
    assert [round_up(int(k), fewest) for k in set(sizes)] == list(set(sizes))


def test_what_has_not_changed_is_filled_once():
    fill = problem.ItemFill(M, N)
    template, x, weights = np.arange(M), np.zeros((N, M), np.int8), np.ones(M)
    bounds = np.full((2, 1), [[-9.0], [9.0]])
    table = m_step.Constraints(*np.ones((2, M, 1)), np.ones((M, 1), bool), *bounds)
    first = fill.constants(template, x, weights, table)
    assert first[1].shape == (N, 16)
    assert first[2].tolist() == [1.0] * M + [0.0] * (16 - M)
    assert not first[3].free[M:].any()
    again = fill.constants(template, x, np.zeros(M), table)
    assert [a is b for a, b in zip(first, again, strict=True)] == [True, True, False, True]
    assert again[2].tolist() == [0.0] * 16
