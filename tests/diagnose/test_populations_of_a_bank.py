"""Fit statistics of banks with several populations or a density: mirt's numbers, right rates."""

import base64
import json
import zlib
from pathlib import Path

import numpy as np
import pytest

from irtcat import EM, InputError, ItemBank, Population, Responses, fit, plausible_values, score
from irtcat.diagnose import (
    infit_outfit,
    item_fit,
    ld_statistics,
    marginal_reliability,
    model_fit,
    omega,
    person_fit,
    q3,
    s_x2,
)

MIRT = json.loads((Path(__file__).parent.parent / "reference/mirt_group_fit.json").read_text())
CASES = MIRT["cases"]


@pytest.fixture(scope="module", params=list(CASES))
def fitted(request):
    case = CASES[request.param]
    bits = np.frombuffer(zlib.decompress(base64.b64decode(case["data"])), np.uint8)
    n = np.prod(case["shape"])
    r = Responses.from_array(np.unpackbits(bits)[:n].reshape(case["shape"]))
    groups = np.repeat(case["labels"], case["sizes"])
    return fit(r, "2pl", EM(tolerance=1e-6), groups=groups), r, groups, case


@pytest.mark.slow_cases("three_groups")
def test_the_fit_and_its_populations_are_mirts(fitted):
    f, _, _, case = fitted
    assert f.log_likelihood > case["log_likelihood"] - 3e-3
    assert list(f.bank.populations) == case["labels"]
    for label, population in f.bank.populations.items():
        assert population.mean == pytest.approx(case["means"][label], abs=2e-3)
        assert population.sd**2 == pytest.approx(case["variances"][label], abs=3e-3)
    sizes = [population.n_subjects for population in f.bank.populations.values()]
    assert sizes == case["sizes"]


def test_m2_of_all_groups_is_mirts(fitted):
    f, r, groups, case = fitted
    found, theirs = model_fit(f.bank, r, groups=groups), case["m2"]
    assert found.df == theirs["df"]
    assert found.statistic == pytest.approx(theirs["M2"], rel=2.5e-3)
    assert found.rmsea == pytest.approx(theirs["RMSEA"], abs=1e-3)
    for label, value in found.srmsr_by_group.items():
        assert value == pytest.approx(theirs[f"SRMSR.{label}"], abs=1e-4)
    # Each group alone fits under its own population, and not under that of another group.
    for label in case["labels"]:
        theirs_alone = r.subset(subjects=np.flatnonzero(groups == label))
        assert model_fit(f.bank.of_group(label), theirs_alone).p > 0.01
    first, second = case["labels"][:2]
    other = r.subset(subjects=np.flatnonzero(groups == second))
    assert model_fit(f.bank.of_group(first), other, estimated="none").p < 1e-6


@pytest.mark.slow
def test_without_groups_the_mixture_is_tested_and_said(fitted):
    f, r, groups, case = fitted
    found = model_fit(f.bank, r)
    n = r.n_items
    assert found.n_parameters == 2 * n + 2 * (len(case["labels"]) - 1)
    assert found.p > 0.01
    assert "mixture of the populations" in found.flags
    assert (ld_statistics(f.bank, r).table["p"] < 0.05).mean() < 0.1
    assert "mixture" in repr(ld_statistics(f.bank, r))
    assert ld_statistics(f.bank, r, groups=groups).note == ""


@pytest.mark.slow_cases("three_groups")
def test_s_x2_by_group_has_mirts_statistic(fitted):
    f, r, groups, case = fitted
    table = s_x2(f.bank, r, groups=groups)
    assert list(table.index.names) == ["group", "item"]
    for label, theirs in case["s_x2"].items():
        np.testing.assert_allclose(table.loc[label, "s_x2"], theirs, atol=0.01, rtol=2e-3)
        # mirt subtracts two parameters and the group's mean and SD in every group.
        fewer = 2 if label == case["labels"][0] else 4
        cells = np.array(case["df_s_x2"][label]) + fewer
        taken = cells - table.loc[label, "df"].to_numpy()
        assert ((taken > 0) & (taken < 2)).all()
        assert (table.loc[label, "n"] == (groups == label).sum()).all()


@pytest.mark.slow_cases("three_groups")
def test_the_parameters_of_an_item_are_subtracted_once_over_the_groups(fitted):
    f, r, groups, case = fitted
    table = s_x2(f.bank, r, groups=groups)
    known = s_x2(f.bank, r, estimated="none", groups=groups)
    taken = (known["df"] - table["df"]).groupby("item").sum()
    np.testing.assert_allclose(taken, 2.0, atol=1e-9)
    # One group alone is the test without groups.
    label = case["labels"][0]
    alone = r.subset(subjects=np.flatnonzero(groups == label))
    one = s_x2(f.bank.of_group(label), alone)
    np.testing.assert_allclose(table.loc[label, "s_x2"], one["s_x2"], rtol=1e-10)


@pytest.mark.slow
def test_abilities_are_under_the_population_of_the_group(fitted):
    f, r, groups, case = fitted
    found = score(f.bank, r, groups=groups)
    for label, theirs in zip(case["labels"], case["eap"], strict=True):
        at = np.flatnonzero(groups == label)
        np.testing.assert_allclose(found.theta[at[:5]], theirs, atol=3e-3)
        assert found.theta[at].mean() == pytest.approx(f.bank.populations[label].mean, abs=0.02)
    np.testing.assert_array_equal(found.theta, f.abilities.theta)
    assert "mixture" in score(f.bank, r).note


@pytest.mark.slow
def test_all_measures_take_groups(fitted):
    f, r, groups, case = fitted
    n = len(case["labels"])
    assert len(item_fit(f.bank, r, groups=groups)) == n * r.n_items
    squares = infit_outfit(f.bank, r, groups=groups)
    assert (squares["infit_z"].abs() < 3.5).all()
    persons = person_fit(f.bank, r, groups=groups)
    assert abs(persons["lz_star"].mean()) < 0.2
    by_subject = score(f.bank, r, "map", groups=groups).theta
    np.testing.assert_allclose(persons["theta"], by_subject)
    assert q3(f.bank, r, groups=groups).table["q3"].abs().max() < 0.4
    alone = [marginal_reliability(f.bank, group=label) for label in case["labels"]]
    if n == 2:  # means 2 apart: more true variance in both together
        assert marginal_reliability(f.bank) > max(alone) + 0.05
        assert omega(f.bank)["total"] > omega(f.bank, group="A")["total"]


@pytest.mark.slow_cases("three_groups")
def test_unknown_labels_name_the_subject(fitted):
    f, r, groups, _ = fitted
    wrong = groups.copy()
    wrong[3] = "Z"
    for measure in (score, model_fit, s_x2, ld_statistics, q3, person_fit, infit_outfit):
        with pytest.raises(InputError, match=r"populations.*Z.* for subject s4"):
            measure(f.bank, r, groups=wrong)
    missing = list(groups)
    missing[2] = None
    with pytest.raises(InputError, match="none for 's3'"):
        score(f.bank, r, groups=missing)
    with pytest.raises(InputError, match="one population"):
        score(f.bank.of_group("A"), r, groups=groups)


def test_a_density_is_the_population_of_its_bank():
    """A skewed population: LD rejected 86 to 100 % of the pairs under N(0, 1)."""
    rng = np.random.default_rng(3)
    theta = rng.gamma(1.0, 1.0, 2000) - 1.0
    truth = ItemBank.from_parameters(a=1.5, b=np.linspace(-1.5, 1.5, 12))
    r = truth.simulate(theta, seed=4)
    f = fit(r, "2pl", density="davidian-4")
    population = f.bank.population
    assert not population.is_normal
    np.testing.assert_allclose([population.mean, population.sd], [0, 1], atol=1e-6)
    assert (ld_statistics(f.bank, r).table["p"] < 0.05).mean() < 0.1
    assert model_fit(f.bank, r).p > 0.001
    normal = ItemBank(f.bank.model, f.bank.item_ids)
    assert (ld_statistics(normal, r).table["p"] < 0.05).mean() > 0.3
    shares = score(f.bank, r).percentile / 100
    assert shares.mean() == pytest.approx(0.5, abs=0.03)
    np.testing.assert_array_equal(score(f.bank, r).theta, f.abilities.theta)


def test_items_that_differ_between_groups_are_those_of_each_group():
    rng = np.random.default_rng(5)
    b = np.linspace(-1, 1, 8)
    groups = np.repeat(["A", "B"], 1500)
    theta = rng.normal(size=3000) + (groups == "B")
    banks = {"A": b, "B": np.where(np.arange(8) == 7, b + 1.5, b)}
    values = np.empty((3000, 8))
    for label, difficulty in banks.items():
        at = groups == label
        bank = ItemBank.from_parameters(1.4, difficulty)
        values[at] = bank.simulate(theta[at], seed=6).to_numpy()
    r = Responses.from_array(values)
    f = fit(r, "2pl", groups=groups, invariance={"i8": "none"})
    assert f.bank.n_items == 9
    found = model_fit(f.bank, r, groups=groups)
    assert found.p > 0.001
    assert found.n_parameters == 18 + 2
    scores = score(f.bank, r, groups=groups)
    np.testing.assert_allclose(scores.theta, f.abilities.theta, atol=1e-10)
    assert len(s_x2(f.bank, r, groups=groups)) == 16
    assert (s_x2(f.bank, r, groups=groups)["p"] > 1e-4).all()
    with pytest.raises(InputError, match=r"i8.* differ between groups"):
        score(f.bank, r)
    assert f.bank.of_group("B").item_ids.tolist() == r.item_ids.tolist()


def test_populations_outlive_a_file(tmp_path):
    bank = ItemBank.from_parameters(
        b=[0.0, 1.0],
        populations={
            "one": Population(0.0, 1.0, n_subjects=20),
            "two": Population(nodes=[-1.0, 0.0, 2.0], weights=[0.2, 0.5, 0.3], n_subjects=5),
        },
    )
    again = ItemBank.load(bank.save(tmp_path / "bank.npz"))
    assert again == bank
    assert list(again.populations) == ["one", "two"]
    assert again.populations["two"].mean == pytest.approx(0.4)
    assert again.populations["two"].n_subjects == 5
    assert again.rescale(2.0, 1.0).populations["two"].mean == pytest.approx(1.8)


@pytest.mark.slow
def test_tables_of_a_mixture_warn(fitted):
    f, r, _, _ = fitted
    for measure in (s_x2, infit_outfit, person_fit, plausible_values):
        with pytest.warns(UserWarning, match=r"mixture of the populations .* Pass groups="):
            measure(f.bank, r)
