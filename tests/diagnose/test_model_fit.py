"""M2 and C2 against mirt's numbers and against the formula summed over all patterns."""

import itertools
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from irtcat import ItemBank, Population, Responses, fit
from irtcat._common.checks import InputError
from irtcat.diagnose import model_fit
from irtcat.diagnose.answer_moments import projected, whiten
from irtcat.models import unpack

LSAT = [
    ("lsat6", "rasch"),
    ("lsat6", "1pl"),
    ("lsat6", "2pl"),
    ("lsat7", "rasch"),
    ("lsat7", "2pl"),
]
FIGURES = ["statistic", "p", "rmsea", "srmsr", "tli", "cfi", "rmsea_lower", "rmsea_upper"]


def close(found, theirs, rtol=2e-4):
    """All figures; mirt's interval of RMSEA divides by N where ours divides by N - 1, as its
    estimate does."""
    assert found.df == theirs["df"]
    by_n = np.sqrt(found.n_subjects / (found.n_subjects - 1))
    for name in FIGURES:
        want = theirs[name] * (by_n if name.startswith("rmsea_") else 1)
        assert getattr(found, name) == pytest.approx(want, rel=rtol, abs=2e-5), name


@pytest.mark.slow_cases("lsat6-.*")
@pytest.mark.parametrize(("data", "model"), LSAT)
def test_lsat_is_mirts(lsat, lsat_fit, data, model):
    """Shared slopes and a free SD counted right, whether 1PL or Rasch."""
    responses, bank, numbers = lsat(data, model)
    ours = lsat_fit(data, model).bank
    close(model_fit(ours, responses), numbers["m2"])
    if model == "2pl":
        close(model_fit(bank, responses, estimated="all"), numbers["m2"])


@pytest.mark.parametrize("model", ["rasch", "2pl"])
def test_sat12_is_mirts(diagnostics, shared, model):
    responses = Responses.from_array(pd.read_csv(shared / "reference" / "mirt" / "SAT12_keyed.csv"))
    bank = fit(responses, model, standard_errors="none").bank
    close(model_fit(bank, responses), diagnostics["sat12"][model]["m2"])


@pytest.mark.parametrize("model", ["graded", "gpcm", "pcm", "rsm"])
def test_science_is_mirts(diagnostics, shared, model):
    """mirt's derivatives of partial credit items are by finite differences: its C2 is off by .3 %
    (pcm), .2 % (rsm) and 14 % (gpcm) of what `test_by_brute_force` finds."""
    responses = Responses.from_array(pd.read_csv(shared / "reference" / "mirt" / "Science.csv"))
    bank = fit(responses, model).bank
    found, theirs = model_fit(bank, responses), diagnostics["science"][model]["c2"]
    assert (found.kind, found.df) == ("C2", theirs["df"])
    assert found.srmsr == pytest.approx(theirs["srmsr"], rel=1e-4)
    want = brute_force(bank, responses, "C2", model)
    assert found.statistic == pytest.approx(want, rel=1e-5)
    if model == "graded":
        close(found, theirs)
    if model in ("pcm", "rsm"):
        close(found, theirs, rtol=1e-2)
    if model != "rsm":
        with pytest.raises(InputError, match="fewer parameters than moments"):
            model_fit(bank, responses, "M2")


def test_two_factors_are_mirts(reference, diagnostics, two_factor_data):
    """One factor, two turned at will (their turns are no parameters) and two correlated ones."""
    theirs, banks = diagnostics["two_factors"], reference("mirt_two_factors")
    close(model_fit(fit(two_factor_data, "2pl").bank, two_factor_data), theirs["one"]["m2"])
    free = banks["exploratory"]
    two = ItemBank.from_slopes(free["slopes"], free["intercepts"])
    close(model_fit(two, two_factor_data, estimated="all"), theirs["two"]["m2"], rtol=5e-4)
    own = banks["confirmatory"]
    coefficients, r = np.array(own["coef"]), own["correlation"]
    slopes = coefficients[:, :2]
    bank = ItemBank.from_slopes(slopes, coefficients[:, 2], correlations=[[1, r], [r, 1]])
    found = model_fit(bank, two_factor_data, estimated="all")
    close(found, theirs["confirmatory"]["m2"], rtol=5e-4)
    assert found.n_parameters == 16 + 18 + 1


# --- the formula, over all patterns


def moments_of(patterns, categories, kind):
    """The statistics of each pattern."""
    x = patterns.astype(float)
    pairs = itertools.combinations(range(x.shape[1]), 2)
    cross = [x[:, i] * x[:, j] for i, j in pairs]
    if kind == "C2":
        single = [x[:, i] == k for i, n in enumerate(categories) for k in range(1, n)]
    else:
        single = list(x.T)
    return np.array([*single, *cross], float)


def brute_force(bank, responses, kind, model=""):
    """n e' C (C' X C)^-1 C' e, C the complement of the derivatives, all by finite differences."""
    x = np.asarray(responses.values, int)
    categories = [int(n) for n in (bank.category_probabilities(0.0)[:, 0] > 0).sum(axis=1)]
    patterns = np.array(list(itertools.product(*map(range, categories))))

    def probabilities_of(some):
        z = np.linspace(-6, 6, 121)
        w = np.exp(-(z**2) / 2)
        p = some.category_probabilities(some.population.mean + some.population.sd * z)
        likelihood = np.ones((len(patterns), len(z)))
        for i in range(x.shape[1]):
            likelihood *= p[i, :, patterns[:, i]]
        return likelihood @ w / w.sum()

    def slope(move):
        return (probabilities_of(move(1e-5)) - probabilities_of(move(-1e-5))) / 2e-5

    params = bank.parameters()

    def moved(rows, column):
        def move(by):
            new = params.copy()
            new[rows, column] += by
            return replace(bank, model=unpack(bank.model, new))

        return move

    columns = []
    for column in range(params.shape[1]):
        shared = model == "rsm" and column > 0
        for rows in [slice(None)] if shared else range(len(params)):
            columns.append(slope(moved(rows, column)))
    if model in ("rasch", "pcm", "rsm"):
        sd = bank.population.sd
        columns.append(slope(lambda by: replace(bank, populations=Population(0.0, sd + by))))
    t, pi = moments_of(patterns, categories, kind), probabilities_of(bank)
    jacobian = t @ np.array(columns).T
    # The step to a category that an item lacks is no parameter: its derivative is 0.
    jacobian = jacobian[:, np.abs(jacobian).max(axis=0) > 1e-12]
    # The step to a category that an item lacks is no parameter: its derivative is 0.
    jacobian = jacobian[:, np.abs(jacobian).max(axis=0) > 1e-12]
    covariance = t @ (np.diag(pi) - np.outer(pi, pi)) @ t.T
    gap = moments_of(x, categories, kind).mean(axis=1) - t @ pi
    rest = np.linalg.qr(jacobian, mode="complete")[0][:, jacobian.shape[1] :]
    inner = np.linalg.solve(rest.T @ covariance @ rest, rest.T @ gap)
    return len(x) * gap @ rest @ inner


def mixed_bank():
    """Three items of two categories and three of three, which do not fit the data."""
    rng = np.random.default_rng(2)
    b = np.sort(rng.normal(size=(6, 2)), axis=1)
    b[:3, 1] = np.nan
    bank = ItemBank.from_thresholds(a=rng.uniform(0.8, 1.6, 6), b=b, model="gpcm")
    return bank, bank.simulate(rng.normal(0.2, 1.2, 400), 3)


@pytest.mark.parametrize("kind", ["M2", "C2"])
def test_by_brute_force(kind):
    bank, responses = mixed_bank()
    found = model_fit(bank, responses, kind, estimated="all")
    assert found.statistic == pytest.approx(brute_force(bank, responses, kind), rel=1e-5)
    assert found.n_parameters == 6 + 9
    assert found.kind == {"M2": "M2*", "C2": "C2"}[kind]


def test_known_items_leave_all_degrees_of_freedom(small):
    bank, responses = small
    found = model_fit(bank, responses)
    assert (found.df, found.n_parameters) == (36, 0)
    z = np.linspace(-6, 6, 121)
    w = np.exp(-(z**2) / 2) / np.exp(-(z**2) / 2).sum()
    patterns = np.array(list(itertools.product((0, 1), repeat=8)))
    p = bank.category_probabilities(z)
    pi = np.prod([p[i, :, patterns[:, i]] for i in range(8)], axis=0) @ w
    t = moments_of(patterns, [2] * 8, "M2")
    gap = moments_of(responses.values, [2] * 8, "M2").mean(axis=1) - t @ pi
    covariance = t @ (np.diag(pi) - np.outer(pi, pi)) @ t.T
    want = 60 * gap @ np.linalg.solve(covariance, gap)
    assert found.statistic == pytest.approx(want, rel=1e-6)


# --- laws


def test_nothing_is_left_of_what_parameters_can_do():
    rng = np.random.default_rng(0)
    root = rng.normal(size=(12, 12))
    covariance, jacobian = root @ root.T, rng.normal(size=(12, 4))

    def left(residual, derivatives):
        rows = whiten(covariance, np.column_stack([residual, derivatives]))
        return projected(rows[:, 0], rows[:, 1:], 4)

    assert left(np.zeros(12), jacobian) == (0.0, True)
    value, clear = left(jacobian @ rng.normal(size=4), jacobian)
    assert value == pytest.approx(0, abs=1e-9)
    assert clear
    # The same parameters named otherwise, or one of them twice, change nothing.
    gap = rng.normal(size=12)
    value, _ = left(gap, jacobian)
    other = left(gap, jacobian @ rng.normal(size=(4, 4)))[0]
    twice = left(gap, np.column_stack([jacobian, jacobian[:, 0]]))[0]
    assert other == pytest.approx(value)
    assert twice == pytest.approx(value)
    assert not left(gap, jacobian[:, [0, 1, 2, 0]])[1]


def test_rmsea_interval_is_of_the_noncentral_chi_square(lsat, lsat_fit):
    from scipy.stats import ncx2

    responses, _, _ = lsat("lsat7", "2pl")
    found = model_fit(lsat_fit("lsat7", "2pl").bank, responses, level=0.8)
    for end, tail in ((found.rmsea_lower, 0.9), (found.rmsea_upper, 0.1)):
        noncentrality = end**2 * found.df * 999
        assert ncx2.cdf(found.statistic, found.df, noncentrality) == pytest.approx(tail)
    assert found.rmsea_lower < found.rmsea < found.rmsea_upper


def test_gaps_are_left_out_and_counted(small):
    bank, responses = small
    X = responses.to_numpy()
    X[:10, 0] = np.nan
    found = model_fit(bank, Responses.from_array(X), estimated="all")
    alone = model_fit(bank, responses.subset(subjects=np.arange(10, 60)), estimated="all")
    assert (found.n_subjects, found.n_left_out) == (50, 10)
    assert found.statistic == pytest.approx(alone.statistic)
    assert found.to_frame().loc[0, "df"] == found.df == 36 - 16


def test_refused(small):
    bank, responses = small
    X = responses.to_numpy()
    X[:, 2] = 1
    with pytest.raises(InputError, match=r"without constant items.*i3"):
        model_fit(bank, Responses.from_array(X))
    with pytest.raises(InputError, match="fewer parameters than moments"):
        model_fit(bank.subset([0, 1]), responses, estimated="all")
    with pytest.raises(InputError, match="The `kind` argument"):
        model_fit(bank, responses, "G2")
    X = responses.to_numpy()
    X[np.arange(60), np.arange(60) % 8] = np.nan
    with pytest.raises(InputError, match="without missing answers"):
        model_fit(bank, Responses.from_array(X))
    wide = ItemBank.from_parameters(b=np.zeros(160))
    with pytest.raises(InputError, match="at most 12000 moments"):
        model_fit(wide, wide.simulate(np.linspace(-2, 2, 20)))
    graded, answers = mixed_bank()
    merged = Responses.from_array(np.minimum(answers.values, 1), codes=(0, 1, 2))
    with pytest.raises(InputError, match=r"every category.*i4 category 3"):
        model_fit(graded, merged)


def test_pairwise_moments_of_complete_answers_are_the_same(lsat, lsat_fit):
    responses, _, _ = lsat("lsat7", "2pl")
    bank = lsat_fit("lsat7", "2pl").bank
    one, other = (model_fit(bank, responses, missing=how) for how in ("complete", "pairwise"))
    assert other.statistic == pytest.approx(one.statistic, rel=1e-9)
    assert (other.df, other.n_subjects) == (one.df, one.n_subjects)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["M2", "C2"])
def test_pairwise_covariance_is_that_of_the_moments(kind):
    """The covariance of pairwise moments by simulation of the data themselves."""
    from irtcat.diagnose.answer_moments import conditional, moment_covariance, observed_moments

    rng = np.random.default_rng(8)
    bank = ItemBank.from_thresholds(1.5, [[-0.5, 0.5], [0.0, 1.0], [-1.0, 0.2]])
    answered = rng.random((400, 3)) < 0.7
    categories = np.full(3, 3)
    draws = []
    for seed in range(1500):
        x = bank.simulate(rng.normal(size=400), seed=seed).to_numpy().astype(int)
        draws.append(observed_moments(np.where(answered, x, -1), categories, kind)[0])
    points, weights = bank.population.quadrature(3)
    curves = bank.category_probabilities(points[:, 0])
    covariance = moment_covariance(conditional(curves, weights, categories, kind))
    counts = observed_moments(np.where(answered, 1, -1), categories, kind)[1]
    own = np.diagonal(counts)
    expected = covariance * counts / np.outer(own, own)
    found = np.cov(np.array(draws).T)
    sd = np.sqrt(np.diagonal(expected))
    np.testing.assert_allclose(found / np.outer(sd, sd), expected / np.outer(sd, sd), atol=0.12)
    np.testing.assert_allclose(np.diagonal(found), np.diagonal(expected), rtol=0.12)


@pytest.mark.slow
def test_pairs_that_nobody_answered_are_left_out():
    rng = np.random.default_rng(9)
    bank = ItemBank.from_parameters(1.4, np.linspace(-1, 1, 10))
    x = bank.simulate(rng.normal(size=1500), seed=1).to_numpy()
    x[:750, :3], x[750:, -3:] = np.nan, np.nan
    r = Responses.from_array(x)
    fitted = fit(r, "2pl").bank
    found = model_fit(fitted, r, missing="pairwise")
    assert (found.n_subjects, found.n_left_out) == (1500, 0)
    assert found.n_moments == 10 + 45 - 9
    assert found.p > 0.01
    with pytest.raises(InputError, match="complete rows"):
        model_fit(fitted, r)
    with pytest.raises(InputError, match="missing"):
        model_fit(bank, r, missing="some")


# --- survey weights


def test_weighted_moments_are_those_of_repeated_rows():
    """The statistic before its correction, and the indices that do not depend on n."""
    rng = np.random.default_rng(5)
    eta = 1.2 * rng.normal(size=(300, 1)) - np.linspace(-1, 1, 6)
    x = (rng.random(eta.shape) < 1 / (1 + np.exp(-eta))).astype(int)
    w = rng.integers(0, 5, 300)
    bank, n = fit(x, "2pl", subject_weights=w).bank, (w > 0).sum()
    weighted = model_fit(bank, x, subject_weights=w)
    repeated = model_fit(bank, np.repeat(x, w, axis=0))
    times = w.sum() / n
    assert weighted.n_subjects == n
    assert weighted.statistic * weighted.design_effect * times == pytest.approx(repeated.statistic)
    assert weighted.srmsr == pytest.approx(repeated.srmsr)
    # The design effect of weights that do not depend on the answers is near Kish's.
    assert weighted.design_effect == pytest.approx(n * (w**2).sum() / w.sum() ** 2, rel=0.1)
    with pytest.raises(InputError, match='"complete" with subject_weights'):
        model_fit(bank, x, missing="pairwise", subject_weights=w)


@pytest.mark.slow
def test_the_design_effect_is_the_mean_of_the_statistic_over_samples():
    """Samples by weights that depend on an answer, for a model without estimated parameters."""
    bank = ItemBank.from_parameters(a=[1.0, 1.2, 0.8], b=[-0.5, 0.0, 0.5])
    rng, found = np.random.default_rng(6), []
    for _ in range(60):
        x = bank.simulate(rng.normal(size=900), seed=int(rng.integers(2**31))).to_numpy()
        chosen = rng.random(900) < np.where(x[:, 0] == 1, 0.9, 0.3)
        w = np.where(x[:, 0] == 1, 1 / 0.9, 1 / 0.3)[chosen]
        found.append(model_fit(bank, x[chosen], estimated="none", subject_weights=w))
    statistics = np.array([each.statistic for each in found])
    assert found[0].df == 6
    assert found[0].design_effect > 1.1
    assert abs(statistics.mean() - 6) < 3 * statistics.std() / np.sqrt(60)
