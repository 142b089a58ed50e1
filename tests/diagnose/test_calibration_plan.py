"""Planned calibrations against exact information, fits, and known designs."""

from itertools import product
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from scipy import stats

import irtcat
from irtcat import InputError, ItemBank, Responses, diagnose, plan_calibration
from irtcat.bank import Population
from irtcat.diagnose.calibration_plan import _answered

A, B = np.array([0.8, 1.3, 1.1, 1.5]), np.array([-1.0, 0.5, 0.0, 1.2])


def exact_errors():
    """SEs of a, b of four 2PL items after one subject, by all 16 patterns of answers."""
    theta = np.linspace(-6, 6, 401)
    weights = np.exp(-(theta**2) / 2)
    weights /= weights.sum()
    x = np.array(list(product([0, 1], repeat=4)))

    def pattern(values):
        a, b = values[:4], values[4:]
        p = 1 / (1 + np.exp(-a * (theta[:, None] - b)))
        return np.where(x[:, None], p, 1 - p).prod(axis=2) @ weights

    values, step = np.r_[A, B], 1e-5
    slopes = [(pattern(values + d) - pattern(values - d)) / (2 * step) for d in np.eye(8) * step]
    information = (np.array(slopes) / pattern(values)) @ np.array(slopes).T
    return np.sqrt(np.diagonal(np.linalg.inv(information)))


@pytest.mark.slow
def test_errors_are_those_of_all_patterns():
    bank = ItemBank.from_parameters(a=A, b=B)
    plan = plan_calibration(bank, n_draws=30_000)
    found = plan.items(1)[["se_a", "se_b"]].to_numpy().T.ravel()
    assert found == pytest.approx(exact_errors(), rel=0.03)
    assert plan.items(400)["se_b"].to_numpy() == pytest.approx(found[4:] / 20)


@pytest.mark.slow_cases("graded", "rasch")
@pytest.mark.parametrize("model", ["rasch", "1pl", "graded"])
def test_errors_are_those_of_a_fit(model):
    """Shared slopes, an estimated SD and thresholds, with a third of the answers missing."""
    rng = np.random.default_rng(0)
    cuts = [-0.7, 0.7] if model == "graded" else [0.0]
    difficulty = np.linspace(-1.5, 1.5, 12)[:, None] + cuts
    logits = 1.2 * (rng.normal(size=(1500, 1, 1)) - difficulty)
    x = (rng.random((1500, 12, 1)) < 1 / (1 + np.exp(-logits))).sum(axis=2).astype(float)
    x[rng.random(x.shape) < 1 / 3] = np.nan
    fit = irtcat.fit(irtcat.Responses.from_array(x), model, standard_errors="full")
    found = plan_calibration(fit).items(1500)
    for name, error in fit.bank.published()[1].items():
        if np.isfinite(error).all():
            assert found[f"se_{name}"].to_numpy() == pytest.approx(error, rel=0.06), name


@pytest.mark.slow
def test_the_weak_who_answer_less_keep_their_patterns():
    """The SEs are the fit's own, of items and abilities; not with abilities of the population."""
    rng = np.random.default_rng(5)
    theta, b = rng.normal(size=1500), np.linspace(-2, 2, 40)
    x = (rng.random((1500, 40)) < 1 / (1 + np.exp(-1.6 * (theta[:, None] - b)))).astype(float)
    first = np.arange(40) % 8 == 4
    x[np.ix_(x[:, first].sum(axis=1) < 3, ~first & (b < 0.5))] = np.nan  # the rest is too hard
    fit = irtcat.fit(irtcat.Responses.from_array(x), "2pl", standard_errors="full")
    se = np.sqrt(np.mean(irtcat.score(fit.bank, fit.responses).se ** 2))
    plan = plan_calibration(fit)
    assert plan.at(10**9)["SE of abilities"] == pytest.approx(se, rel=0.02)
    ratio = plan.items(1500)["se_b"] / fit.bank.published()[1]["b"]
    assert ratio.median() == pytest.approx(1, abs=0.05)
    independent = plan_calibration(fit, population=fit.bank.population)
    assert independent.at(10**9)["SE of abilities"] != pytest.approx(se, rel=0.05)


@pytest.mark.slow
def test_the_number_of_subjects_is_the_smallest():
    bank = ItemBank.from_parameters(a=1.3, b=np.linspace(-1.5, 1.5, 25))
    limit = plan_calibration(bank).at(10**9)
    plan = plan_calibration(
        bank,
        items={"a": 0.1},
        abilities=1.01 * limit["SE of abilities"],
        ranks=limit["right order"] - 0.005,
        share=0.5,
    )
    for name, row in plan.to_frame().iterrows():
        n, better = int(row["n_subjects"]), name == "right order"
        reached = [plan.at(size)[name] - row["wanted"] for size in (n, int(0.99 * n))]
        assert (reached[0] >= 0) == better, name
        assert (reached[1] >= 0) != better, name
    assert plan.n_subjects == plan.to_frame()["n_subjects"].max()
    short = plan_calibration(bank, abilities=0.9 * limit["SE of abilities"])
    assert short.n_subjects is None
    assert short.flags == ("SE of abilities: no number of subjects reaches it",)


@pytest.mark.slow
def test_errors_of_the_items_move_abilities_as_planned():
    """RMS difference of abilities by two calibrations on 400, from the parts due to items."""
    bank = ItemBank.from_parameters(a=1.3, b=np.linspace(-1.5, 1.5, 8))
    rng = np.random.default_rng(3)
    taken = bank.simulate(rng.normal(size=500), seed=9)
    squares = []
    for seed in range(3):
        pair = [
            irtcat.score(
                irtcat.fit(bank.simulate(rng.normal(size=400), seed=2 * seed + half)).bank, taken
            ).theta
            for half in (0, 1)
        ]
        squares.append(np.mean((pair[0] - pair[1]) ** 2) / 2)
    plan = plan_calibration(bank)
    planned = plan.at(400)["SE of abilities"] ** 2 - plan.at(10**9)["SE of abilities"] ** 2
    assert np.mean(squares) == pytest.approx(planned, rel=0.4)


@pytest.mark.slow
def test_candidates_are_those_of_the_optimal_design():
    """For a 2PL item it is half at logit 1.5434, half at -1.5434 (Ford, Torsney & Wu 1992)."""
    bank = ItemBank.from_parameters(a=[1.0] * 4, b=[0.5] * 4)
    ids = [f"m{k}" for k in range(121)]
    grid = np.linspace(-3, 3, 121)
    chosen = plan_calibration(bank, candidates=pd.Series(grid, ids)).candidates
    assert set(chosen.index) == set(ids)
    first = chosen["theta"].iloc[1:21] - 0.5
    assert np.abs(first).median() == pytest.approx(1.5434, abs=0.1)
    assert abs((first > 0).mean() - 0.5) <= 0.1
    at_random = np.random.default_rng(0).permutation(grid)[:20]
    p = 1 / (1 + np.exp(-(at_random - 0.5)))
    design = np.stack([np.ones(20), at_random], 1)
    worst = np.linalg.slogdet(design.T @ (design * (p * (1 - p))[:, None]))[1]
    p = 1 / (1 + np.exp(-chosen["theta"].iloc[:20] + 0.5)).to_numpy()
    design = np.stack([np.ones(20), chosen["theta"].iloc[:20]], 1)
    assert np.linalg.slogdet(design.T @ (design * (p * (1 - p))[:, None]))[1] > worst


@pytest.mark.slow
def test_other_subjects_inform_less_about_items_that_are_too_hard():
    bank = ItemBank.from_parameters(a=1.5, b=np.linspace(1, 2, 10))
    weak = plan_calibration(bank, population=Population(-1.0, 1.0)).at(1000)
    able = plan_calibration(bank, population=Population(1.5, 1.0)).at(1000)
    assert weak["SE of b"] > 2 * able["SE of b"]


@pytest.mark.parametrize(
    ("bank", "options", "message"),
    [
        (ItemBank.from_slopes([[1.0, 0.5]]), {}, "of one ability for plan_calibration"),
        (ItemBank.from_parameters(b=[0.0, 1.0]), {"items": {"c": 0.1}}, r"parameter \(a, b\)"),
        (ItemBank.from_parameters(b=[0.0, 1.0]), {"items": ["b"]}, "by name of a parameter, such"),
        (ItemBank.from_parameters(b=[0.0, 1.0]), {"share": 0}, "`share` argument must be"),
        (ItemBank.from_parameters(b=[0.0, 1.0]), {"ranks": 0.4}, "above 1/2 and below 1"),
        (ItemBank.from_parameters(b=[0.0, 1.0]), {"abilities": -1}, "standard error above 0"),
    ],
)
def test_refusals(bank, options, message):
    with pytest.raises(InputError, match=message):
        plan_calibration(bank, **options)


FITS = {"close": (0.05, 0.08), "not close": (0.05, 0.01), "exact": (0.0, 0.05)}
"""RMSEA of the null and of the alternative in the three tests of MacCallum et al. (1996)."""


def power_by_scipy(df, n, null, alternative, level=0.05):
    """The rejection region of the test under the alternative, from scipy's distributions."""
    at_null, at_alternative = (
        stats.ncx2(df, (n - 1) * df * value**2) if value else stats.chi2(df)
        for value in (null, alternative)
    )
    if alternative > null:
        return at_alternative.sf(at_null.isf(level))
    return at_alternative.cdf(at_null.ppf(level))


@pytest.mark.parametrize("name", FITS)
@pytest.mark.parametrize("df", [2, 5, 20, 100])
def test_rmsea_power_and_sample_size_are_those_of_the_noncentral_chi_square(df, name):
    null, alternative = FITS[name]
    options = {"null": null, "alternative": alternative}
    for n in (50, 200, 1000):
        expected = power_by_scipy(df, n, null, alternative)
        assert diagnose.rmsea_power(df, n, **options) == pytest.approx(expected, rel=1e-6)
    n = diagnose.rmsea_sample_size(df, 0.8, **options)
    assert power_by_scipy(df, n, null, alternative) >= 0.8
    assert power_by_scipy(df, n - 1, null, alternative) < 0.8


@pytest.mark.slow
def test_rmsea_power_is_the_share_of_simulated_statistics():
    """Statistics drawn as sums of squares of shifted Normal numbers, without any distribution."""
    rng, df, n = np.random.default_rng(0), 8, 400

    def drawn(value):
        z = rng.normal(size=(200_000, df))
        z[:, 0] += np.sqrt((n - 1) * df) * value
        return (z**2).sum(axis=1)

    for null, alternative in FITS.values():
        at_null, at_alternative = drawn(null), drawn(alternative)
        if alternative > null:
            share = (at_alternative > np.quantile(at_null, 0.95)).mean()
        else:
            share = (at_alternative < np.quantile(at_null, 0.05)).mean()
        found = diagnose.rmsea_power(df, n, null=null, alternative=alternative)
        assert found == pytest.approx(share, abs=0.01)


def test_refusals_of_rmsea():
    with pytest.raises(InputError, match="another RMSEA than that of the null"):
        diagnose.rmsea_power(10, 100, alternative=0.05)
    with pytest.raises(InputError, match="above alpha and below 1"):
        diagnose.rmsea_sample_size(10, 0.01)
    with pytest.raises(InputError, match="a billion subjects"):
        diagnose.rmsea_sample_size(1, 0.8, alternative=0.05001)


def test_a_share_of_the_items_reaches_its_errors():
    bank = ItemBank.from_parameters(a=1.2, b=np.linspace(-2, 2, 10))
    for share in (0.5, 0.85, 0.95, 1):
        plan = plan_calibration(bank, items={"b": 0.2}, share=share, n_draws=200)
        assert (plan.items(plan.n_subjects)["se_b"] <= 0.2).mean() >= share


@pytest.mark.parametrize("theta", [[0.0], [0.5, 0.5]])
def test_one_ability_does_not_determine_slope_and_difficulty(theta):
    bank = ItemBank.from_parameters(a=1.2, b=np.linspace(-2, 2, 10))
    order = plan_calibration(bank, candidates=theta, n_draws=200).candidates
    assert np.isinf(order[["SE of a", "SE of b"]]).all(axis=None)
    with pytest.raises(InputError, match="at least one subject"):
        plan_calibration(bank, candidates=[])


def test_a_part_of_a_sorted_pilot_is_drawn_at_random():
    bank = ItemBank.from_parameters(a=1.0, b=np.linspace(-1, 1, 8))
    pilot = bank.simulate(np.linspace(-3, 3, 3000), seed=1).to_numpy()
    pilot[::7, 0] = np.nan
    answered, answers = _answered(
        SimpleNamespace(responses=Responses.from_array(pilot, item_ids=bank.item_ids)), bank, 300, 0
    )
    share = answers.sum() / answered.sum()
    assert share == pytest.approx(np.nanmean(pilot), abs=0.05)
