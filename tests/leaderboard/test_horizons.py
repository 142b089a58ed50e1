"""Horizons: the likelihood by brute force, known laws, trends by closed forms, every bad input."""

import numpy as np
import pandas as pd
import pytest
from scipy.special import comb, expit
from scipy.stats import betabinom

import irtcat
from irtcat import InputError, Responses, horizon
from irtcat.leaderboard import horizon_likelihood as module
from irtcat.leaderboard.horizon_likelihood import Tasks, fit_horizons
from irtcat.leaderboard.trends import fit_trend


def simulated(seed=0, n=6, n_families=12, size=4, trials=3):
    rng = np.random.default_rng(seed)
    family = np.repeat(np.arange(n_families), size)
    length = rng.normal(4, 2.5, len(family))
    w = rng.normal(0, 0.8, n_families)[family] + rng.normal(0, 1, len(family))
    log2 = np.linspace(1, 6, n)
    right = rng.binomial(trials, expit(0.7 * (log2[:, None] - length) - w))
    right = np.vstack([right, np.zeros_like(right[0]), np.full_like(right[0], trials)])
    n += 2
    ids = [f"t{i}" for i in range(len(length))]
    r = Responses.from_counts(
        right,
        trials,
        item_ids=ids,
        items=pd.DataFrame({"minutes": 2**length, "family": family}, index=ids),
        subjects=pd.DataFrame({"date": 2020 + np.arange(n) / 2}, index=[f"s{i}" for i in range(n)]),
        subject_ids=[f"s{i}" for i in range(n)],
    )
    return r, log2


def by_gauss_hermite(tasks, theta, slope, sd, share, agreement):
    """Log-likelihood by nested quadrature, with scipy's beta-binomial probabilities."""
    nodes, weights = np.polynomial.hermite_e.hermegauss(60)
    weights = weights / weights.sum()
    total = 0.0
    for f in range(int(tasks.families.max()) + 1):
        of_family = weights.copy()
        for i in np.flatnonzero(tasks.families == f):
            own = np.sqrt((1 - share) * sd**2 + slope**2 * tasks.variances[i])
            w = np.sqrt(share) * sd * nodes[:, None] + own * nodes
            eta = theta - slope * (tasks.lengths[i] - tasks.lengths.mean())
            p = expit(tasks.slopes[i] * (eta[:, None, None] - w))
            k, n = (part[:, i, None, None] for part in (tasks.right, tasks.trials))
            cells = betabinom.pmf(k, n, p / agreement, (1 - p) / agreement) / comb(n, k)
            of_family *= cells.prod(axis=0) @ weights
        total += np.log(of_family.sum())
    return total


@pytest.mark.slow
def test_the_likelihood_is_that_of_another_quadrature(monkeypatch):
    """At the maximum, and at points beside it, where it is less."""
    rng = np.random.default_rng(1)
    lengths = np.array([1.0, 2.0, 3.0, 4.0, 5.0, 6.0])
    trials = rng.integers(0, 3, (3, 6)).astype(float)
    right = rng.binomial(trials.astype(int), expit(2 * (4 - lengths))).astype(float)
    trials[:, 0], right[:, 0] = 2, 1
    tasks = Tasks(
        right,
        trials,
        rng.uniform(0.8, 1.2, 6),
        lengths,
        np.array([0, 0, 0.5, 0.5, 0, 0]),
        np.array([0, 0, 1, 1, 2, 2]),
    )
    seen = []
    original = module.minimize

    def recorded(function, start, **options):
        found = original(function, start, **options)
        for x in (found.x, np.r_[-1.0, 0.5, 1.0, 0.7, 0.2, -0.3, -1.0]):
            seen.append((x, function(x)[0]))
        return found

    monkeypatch.setattr(module, "minimize", recorded)
    fit_horizons(tasks)
    for x, value in seen:
        exact = by_gauss_hermite(tasks, x[:3], x[3], np.exp(x[4]), expit(x[5]), np.exp(x[6]))
        assert -value == pytest.approx(exact, abs=1e-3)
    assert seen[0][1] < seen[1][1]


@pytest.fixture(scope="module")
def found():
    return horizon(simulated()[0], "minutes", clusters="family")


@pytest.mark.slow
def test_what_the_table_says(found):
    _, log2 = simulated()
    table = found.to_frame()
    assert list(table.index) == [f"s{i}" for i in range(8)]
    table = table.iloc[:6]
    assert (np.abs(np.log2(table["horizon"]) - log2) < 1.5).all()
    assert (table["lower"] < table["horizon"]).all()
    assert (table["horizon"] < table["upper"]).all()
    # For p = 1/2 and one slope, marginal and typical are one; for .8 the marginal one is less.
    np.testing.assert_allclose(table["horizon"], table["typical"])
    at = found.at(0.8).to_frame().iloc[:6]
    assert (at["horizon"] < at["typical"]).all()
    assert (at["typical"] < table["typical"]).all()
    # The marginal one by simulation of the tasks.
    w = found.residual_sd * np.random.default_rng(0).normal(size=400_000)
    x = found.slope * (found.log2_lengths[2] - np.log2(at["horizon"].iloc[2]))
    assert expit(x - w).mean() == pytest.approx(0.8, abs=2e-3)
    assert found.slope == pytest.approx(0.7, abs=0.25)
    assert 0 < found.family_share < 1


@pytest.mark.slow
def test_subjects_that_did_all_or_nothing_have_one_end(found):
    none, everything = found.to_frame().iloc[6], found.to_frame().iloc[7]
    assert none["horizon"] == none["lower"] == 0
    assert 0 < none["upper"] < 2
    assert np.isinf(everything["horizon"])
    assert 2**6 < everything["lower"] < np.inf
    assert everything["flag"] == "did every task"


@pytest.mark.slow
def test_errors_of_lengths_are_corrected_and_missing_lengths_are_estimated():
    rng = np.random.default_rng(5)
    length, w = rng.normal(4, 2, 400), rng.normal(0, 0.5, 400)
    right = rng.random((12, 400)) < expit(0.8 * (np.linspace(1, 7, 12)[:, None] - length) - w)
    r = Responses.from_array(right.astype(int))
    observed = dict(zip(r.item_ids, 2 ** (length + 1.5 * rng.normal(size=400)), strict=True))
    observed |= dict.fromkeys(r.item_ids[:100], np.nan)
    found = horizon(r, observed, length_sd=1.5)
    # Errors have a third of the variance: without their correction the slope would be about .5.
    assert found.slope == pytest.approx(0.8, abs=0.12)
    lengths = found.lengths.iloc[:100]
    assert lengths["observed"].isna().all()
    assert np.corrcoef(np.log2(lengths["length"]), length[:100])[0, 1] > 0.7
    within = (lengths["lower"] < 2 ** length[:100]) & (2 ** length[:100] < lengths["upper"])
    assert within.mean() > 0.85
    assert found.flags == ("100 tasks without a length",)


@pytest.mark.slow
def test_a_fit_gives_its_slopes():
    r, _ = simulated(trials=1, n=40)
    fit = irtcat.fit(r, "rasch")
    one, other = horizon(fit, "minutes"), horizon(r, "minutes")
    np.testing.assert_allclose(one.log2_lengths, other.log2_lengths)
    bank = irtcat.ItemBank.from_parameters(
        a=np.full(r.n_items, 2.0), b=np.zeros(r.n_items), item_ids=r.item_ids
    )
    twice = horizon(bank, "minutes", responses=r)
    np.testing.assert_allclose(twice.log2_lengths, other.log2_lengths, atol=5e-3)
    assert twice.slope == pytest.approx(other.slope / 2, rel=1e-3)
    guessed = irtcat.ItemBank.from_parameters(
        a=np.ones(r.n_items), b=np.zeros(r.n_items), c=np.full(r.n_items, 0.2), item_ids=r.item_ids
    )
    with pytest.raises(InputError, match="without guessing"):
        horizon(guessed, "minutes", responses=r)


@pytest.mark.slow
def test_trends_are_generalised_least_squares():
    rng = np.random.default_rng(2)
    t = np.sort(rng.uniform(2020, 2024, 30))
    y = 1.2 * (t - 2020) + 0.3 * rng.normal(size=30)
    trend = fit_trend(y, np.zeros((30, 30)), t)
    x = np.stack([np.ones(30), t - t.mean()], 1)
    beta, rss = np.linalg.lstsq(x, y, rcond=None)[:2]
    se = np.sqrt(rss[0] / 28 / ((t - t.mean()) ** 2).sum())
    assert trend.table.loc["all", "per_year"] == pytest.approx(beta[1])
    assert trend.table.loc["all", "se"] == pytest.approx(se, rel=1e-3)
    assert trend.p_value > 0.05
    bent = y + 2.5 * np.maximum(t - 2022, 0)
    changed = fit_trend(bent, 0.01 * np.eye(30), t, np.arange(30) % 10)
    assert changed.p_value < 0.01
    assert abs(changed.changed - 2022) < 0.4
    assert changed.table.loc["after", "lower"] > 2.5 > changed.table.loc["before", "upper"]
    # p-values of lines without a change are uniform.
    p = [
        fit_trend(rng.normal(size=12), 0.1 * np.eye(12), np.arange(12.0), seed=i).p_value
        for i in range(60)
    ]
    assert 0.35 < np.mean(p) < 0.65


def test_the_trend_of_horizons(found):
    table = found.trend("date").to_frame()
    row = table.loc["all"]
    assert row["lower"] < 2 < row["upper"]
    assert row["doubling_months"] == pytest.approx(12 / row["per_year"])
    assert row["doubling_lower"] < row["doubling_months"] < row["doubling_upper"]


def test_bad_input(found):
    r, _ = simulated()
    with pytest.raises(InputError, match=r"-1.* for t0"):
        horizon(r, {**dict.fromkeys(r.item_ids, 3.0), "t0": -1})
    with pytest.raises(InputError, match="column of the items"):
        horizon(r, "hours")
    with pytest.raises(InputError, match="of the variance of log2 lengths"):
        horizon(r, "minutes", length_sd=4)
    with pytest.raises(InputError, match="at least 10 tasks"):
        horizon(r.subset(items=r.item_ids[:8]), "minutes")
    with pytest.raises(InputError, match="The `responses` argument must be given with a bank"):
        horizon(irtcat.ItemBank.from_parameters(b=[0.0, 1.0]), "minutes")
    with pytest.raises(InputError, match="shares of trials"):
        horizon(
            Responses.from_array(np.random.default_rng(0).random((5, 48))),
            dict.fromkeys(r.item_ids, 1),
        )
    with pytest.raises(InputError, match="makes tasks harder"):
        horizon(r, {item: 1 / r.items["minutes"][item] for item in r.item_ids})
    with pytest.raises(InputError, match="soon for s0"):
        found.trend({"s0": "soon", "s1": "2024-01-01"})
    with pytest.raises(InputError, match="at least 4 subjects"):
        found.trend({"s0": "2023-01-01", "s1": "2024-01-01"})
    with pytest.raises(InputError, match="strictly between 0 and 1"):
        found.at(1)
