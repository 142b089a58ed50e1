"""Calibration of items with several categories, and of feasibility: laws, and brute force."""

import functools

import numpy as np
import pytest
from scipy.special import logsumexp, ndtri
from scipy.stats import norm

from irtcat import EM, ItemBank, Responses, fit
from irtcat.models import MODELS, unpack

EXACT = {"solver": EM(tolerance=1e-7, precision="float64", max_iterations=20000)}
KEYS = ("graded", "gpcm", "pcm", "rsm", "nominal", "feasibility")
N, ITEMS = 900, 6
NODES = np.linspace(-7, 7, 281)


def truth(key):
    """Items of four categories, the last two of three where they may differ."""
    rng = np.random.default_rng(3)
    a = rng.uniform(0.9, 1.7, ITEMS)
    if key == "feasibility":
        columns = np.column_stack([a, rng.normal(0.4, 0.6, ITEMS), np.full(ITEMS, 1.4)])
        return ItemBank(unpack(MODELS[key], columns), np.array([f"i{j}" for j in range(ITEMS)]))
    if key == "nominal":
        slopes = a[:, None] * np.array([0.0, 0.5, 1.6, 2.2])
        return ItemBank.from_thresholds(slopes, rng.normal(0, 0.4, (ITEMS, 4)), key)
    if key == "rsm":
        b = rng.normal(0, 0.7, (ITEMS, 1)) + np.array([-1.0, 0.2, 0.8])
        return ItemBank.from_thresholds(1.0, b, "pcm")
    b = np.sort(rng.normal(0, 1.0, (ITEMS, 3)), axis=1)
    b[-2:, 2] = np.nan
    return ItemBank.from_thresholds(1.0 if key == "pcm" else a, b, key)


@functools.cache
def data(key, gaps=True):
    bank = truth(key)
    responses = bank.simulate(ndtri((np.arange(N) + 0.5) / N), seed=4)
    if not gaps:
        return responses
    X = responses.to_numpy()
    X[np.random.default_rng(5).random(X.shape) < 0.1] = np.nan
    return Responses.from_array(X, codes=responses.codes)


@functools.cache
def exact(key):
    return fit(data(key), key, weak_priors=False, **EXACT)


@pytest.mark.slow
@pytest.mark.parametrize("key", KEYS)
def test_the_objective_never_falls(key):
    result = exact(key)
    assert result.converged
    assert np.diff(result.trace).min() >= -1e-9 * abs(result.log_posterior)


class Brute:
    """The marginal log-likelihood (and the prior) from published parameters, in plain numpy."""

    def __init__(self, key, oracle):
        self.key, self.oracle = key, oracle
        X = data(key).to_numpy()
        self.seen, self.x = ~np.isnan(X), np.nan_to_num(X).astype(int)

    def __call__(self, table, sd):
        kind = "gpcm" if self.key in ("pcm", "rsm") else self.key
        with np.errstate(divide="ignore"):
            curves = np.log(self.oracle.category_curves(kind, table, NODES))
        total = norm.logpdf(NODES, 0, sd)[:, None] + np.log(NODES[1] - NODES[0])
        for j in range(ITEMS):
            total = total + np.where(self.seen[:, j], curves[j][:, self.x[:, j]], 0.0)
        log_likelihood = logsumexp(total, axis=0).sum()
        if self.key != "feasibility":
            return log_likelihood, log_likelihood
        priors = [row.prior for row in MODELS[self.key].parameters.values()]
        ((mean, spread),) = [prior for prior in priors if prior]
        logit = np.log(table["d"] / (1 - table["d"]))
        return log_likelihood, log_likelihood + norm.logpdf(logit, mean, spread).sum()


def moves(key, table):
    """Directions in which the parameters may go, as tables of changes; the SD's is a number."""
    zero = table * 0.0
    steps = [c for c in table if c[0] == "b" and c[1:].isdigit()]
    if key in ("pcm", "rsm"):
        yield zero, 1.0
    if key == "rsm":
        for k in range(len(steps) - 1):
            change = zero.copy()
            change[steps[k]], change[steps[k + 1]] = 1.0, -1.0
            yield change, 0.0
        for item in table.index:
            change = zero.copy()
            change.loc[item, steps] = 1.0
            yield change, 0.0
        return
    fixed = {"c", "ak3"} | ({"a"} if key == "pcm" else set())
    fixed |= {"b"} if key != "feasibility" else set()
    for item in table.index:
        for name in table:
            if name not in fixed and np.isfinite(table.loc[item, name]):
                change = zero.copy()
                change.loc[item, name] = 1.0
                yield change, 0.0


@pytest.mark.slow_cases("gpcm", "rsm", "feasibility", "pcm", "nominal")
@pytest.mark.parametrize("key", KEYS)
def test_brute_force_has_its_top_there(key, oracle):
    """The plain integral agrees, and is flat in every direction at our estimates."""
    result, brute = exact(key), Brute(key, oracle)
    shown = result.bank.to_frame()
    names = [n for n in shown if n in "abcd" or n[:-1] in ("b", "ak", "d")]
    table, sd = shown[names], result.bank.population.sd
    log_likelihood, top = brute(table, sd)
    assert log_likelihood == pytest.approx(result.log_likelihood, abs=1e-5)
    assert top == pytest.approx(result.log_posterior, abs=1e-5)
    h, found = 2e-3, 0
    for change, by in moves(key, table):
        up, down = (brute(table + s * h * change, sd + s * h * by)[1] for s in (1, -1))
        slope, curvature = (up - down) / (2 * h), (up - 2 * top + down) / h**2
        assert curvature < 0
        assert abs(slope) < 0.02 * np.sqrt(-curvature)  # .02 standard errors from the top
        found += 1
    assert found >= ITEMS


@pytest.mark.slow_cases("gpcm", "rsm", "pcm", "nominal", "feasibility")
@pytest.mark.parametrize("key", KEYS)
def test_default_tolerance_is_close_and_the_truth_is_near(key):
    """Within 5 % of a standard error of the exact answer; the truth within a few of them."""
    quick, slow = fit(data(key), key, weak_priors=False), exact(key)
    errors = np.sqrt(np.diagonal(slow.bank.covariance, axis1=1, axis2=2))
    gap = np.abs(quick.bank.parameters() - slow.bank.parameters()) / errors
    assert np.nanmax(gap) < 0.05
    if key == "rsm":  # the truth is written as partial credit items
        ours, theirs = (b.to_frame()[["b1", "b2", "b3"]] for b in (slow.bank, truth(key)))
        assert np.abs(ours.to_numpy() - theirs.to_numpy()).max() < 0.3
        return
    z = (slow.bank.parameters() - truth(key).parameters()) / errors
    assert np.nanmax(np.abs(z)) < 4


def test_a_category_that_nobody_used_is_flagged():
    X = data("graded", gaps=False).to_numpy()
    X[:, 0] = np.where(X[:, 0] == 1, 2, X[:, 0])
    result = fit(Responses.from_array(X, codes=range(4)), "graded")
    assert np.isfinite(result.bank.parameters()).all()
    flags = result.bank.to_frame()["flag"]
    assert "category 2 of its answers never used" in flags.iloc[0]
    assert not flags.iloc[1:].str.contains("never used").any()


@pytest.mark.slow
def test_rating_scales_take_unused_categories_to_be_there():
    X = data("rsm", gaps=False).to_numpy()
    X[:, 0] = np.minimum(X[:, 0], 1)
    result = fit(Responses.from_array(X, codes=range(4)), "rsm")
    assert np.isfinite(result.bank.parameters()).all()
    assert "category 3 of its answers never used" in result.bank.to_frame()["flag"].iloc[0]


@pytest.mark.slow
def test_an_item_that_all_answered_in_the_highest_category_has_no_difficulty():
    """None of its thresholds has an estimate, so their mean has none either."""
    X = np.random.default_rng(0).integers(0, 3, (60, 26)).astype(float)
    X[:, 4] = 2
    table = fit(Responses.from_array(X), "graded").bank.to_frame()
    assert table.iloc[4][["b", "b1", "b2", "se_b"]].isna().all()
    assert table["b"].drop(table.index[4]).notna().all()
