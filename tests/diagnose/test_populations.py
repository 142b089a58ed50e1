"""Two populations on one scale: laws, a simulated difference, its error rate."""

from dataclasses import replace

import numpy as np
import pytest
from scipy.stats import norm, rankdata

from irtcat import InputError, ItemBank, Responses, fit
from irtcat.diagnose import compare_populations
from irtcat.models import unpack

RNG = np.random.default_rng(0)
N_ITEMS = 20
B = np.linspace(-1.8, 1.8, N_ITEMS)
A = RNG.uniform(0.8, 1.6, N_ITEMS)
NAMES = ("people", "systems")


def calibrated(b, mean, sd, seed, n=800):
    theta = np.random.default_rng(seed).normal(mean, sd, n)
    return fit(ItemBank.from_parameters(a=A, b=b).simulate(theta, seed=seed), "2pl")


@pytest.fixture(scope="module")
def people():
    return calibrated(B, 0.0, 1.0, 1)


@pytest.fixture(scope="module")
def systems():
    """Abler, more alike; item 3 is harder for them and item 15 easier."""
    b = B.copy()
    b[2] += 1.5
    b[14] -= 1.5
    return calibrated(b, 0.7, 0.8, 2)


@pytest.mark.slow
def test_finds_what_differs(people, systems):
    found = compare_populations(people, systems, names=NAMES)
    table = found.to_frame()
    assert set(table.index[table["differs"]]) == {"i3", "i15"}
    assert set(found.biggest(2).index) == {"i3", "i15"}
    assert set(found.biggest(2, by="z").index) == {"i3", "i15"}
    assert table.loc["i3", "difference"] == pytest.approx(1.5, abs=0.5)
    assert table.loc["i3", "rank_change"] > 0 > table.loc["i15", "rank_change"]
    assert not table.loc[["i3", "i15"], "linking"].any()
    # theta_people = A theta_systems + B: the systems' scale has unit .8 and origin .7.
    assert pytest.approx(0.8, abs=0.1) == found.link.A
    assert pytest.approx(0.7, abs=0.15) == found.link.B
    assert 0.7 < found.rank_agreement < 1
    assert "2 differ" in repr(found)


@pytest.mark.slow
def test_figures(people, systems):
    """Ranks, errors and p by hand."""
    found = compare_populations(people, systems, names=NAMES, correction="none")
    table = found.table.loc[[f"i{j + 1}" for j in range(N_ITEMS)]]
    one, two = people.bank.to_frame(), systems.bank.to_frame()
    linked = found.link.A * two["b"] + found.link.B
    np.testing.assert_allclose(table["b_systems"], linked, atol=1e-9)
    np.testing.assert_array_equal(table["rank_people"], rankdata(one["b"]))
    np.testing.assert_array_equal(table["rank_systems"], rankdata(linked))
    se = np.hypot(one["se_b"], found.link.A * two["se_b"])
    np.testing.assert_allclose(table["se"], se, rtol=1e-6)
    np.testing.assert_allclose(table["z"], (linked - one["b"]) / se, rtol=1e-6)
    np.testing.assert_allclose(table["p"], 2 * norm.sf(np.abs(table["z"])), rtol=1e-9)
    assert (table["p_adjusted"] == table["p"]).all()


@pytest.mark.slow
def test_no_difference(people):
    """Equal items in another population: z is about standard Normal."""
    other = calibrated(B, -0.5, 1.2, 3)
    found = compare_populations(people, other, drop_outliers=False)
    z = found.table["z"]
    assert 0.5 < z.std() < 1.5  # SE .16
    assert not found.table["differs"].any()
    assert found.rank_agreement > 0.95


def test_itself(people):
    found = compare_populations(people.bank, people.bank)
    np.testing.assert_allclose(found.table["difference"], 0, atol=1e-5)
    assert found.agreement == pytest.approx(1)
    assert (found.table["rank_change"] == 0).all()


@pytest.mark.slow
def test_odd_items():
    one = ItemBank.from_parameters(a=[1, 1, -1, 1, 1], b=[-1, 0, 0.5, 1, 2])
    two = ItemBank.from_parameters(
        a=[1, 1, 1, 0, 1], b=[-1, 0.1, 0.5, 1, 2], item_ids=["i1", "i2", "i3", "i4", "q"]
    )
    found = compare_populations(one, two, names=NAMES, method="haebara")
    flags = found.table["flag"]
    assert flags["i3"] == "negative slope in people"
    assert flags["i4"] == "no difficulty in systems"
    odd = found.table.loc[["i3", "i4"]]
    assert odd[["rank_people", "rank_change", "difference", "z", "p"]].isna().all(axis=None)
    assert not odd["differs"].any()
    assert found.only == {"people": ("i5",), "systems": ("q",)}
    assert found.table["z"].isna().all()  # known parameters have no errors
    assert found.rank_agreement == pytest.approx(1)


def with_a_flat_item(bank, a, b):
    """The bank with i10 flat: a discrimination near 0, with its error, and so a far difficulty."""
    at = 9
    params, covariance = bank.parameters().copy(), np.array(bank.covariance)
    params[at], covariance[at] = [a, -a * b], np.diag([0.08**2, 0.08**2])
    return replace(bank, model=unpack(bank.model, params), covariance=covariance)


@pytest.mark.slow_cases("difficulties1")
@pytest.mark.parametrize("difficulties", [(-18.0, 13.0), (-7.0, 6.0)])
def test_a_flat_item_does_not_decide_the_agreement(people, difficulties):
    """Slopes of .06 (SE .08): difficulties are not determined, and in no correlation."""
    other = calibrated(B, -0.5, 1.2, 3).bank
    ids = [f"i{j + 1}" for j in range(N_ITEMS) if j != 9]
    expected = compare_populations(people.bank.subset(ids), other.subset(ids), drop_outliers=False)
    one, two = (
        with_a_flat_item(x, 0.06, b)
        for x, b in zip((people.bank, other), difficulties, strict=True)
    )
    found = compare_populations(one, two, drop_outliers=False)
    assert found.agreement == pytest.approx(expected.agreement, abs=0.003)
    assert found.rank_agreement == pytest.approx(expected.rank_agreement, abs=1e-9)
    assert expected.agreement > 0.95
    row = found.table.loc["i10"]
    assert row["flag"] == "difficulty not determined in first; difficulty not determined in second"
    assert row[["rank_first", "rank_second", "rank_change", "difference", "z"]].isna().all()
    assert "1 without a determined difficulty" in repr(found)


def test_the_agreement_is_weighted_by_the_errors(people):
    """A difficulty that is determined, if barely, weighs little; figures by hand."""
    other = calibrated(B, -0.5, 1.2, 3).bank
    one, two = (with_a_flat_item(x, 0.2, b) for x, b in ((people.bank, -6.0), (other, 6.0)))
    found = compare_populations(one, two, drop_outliers=False)
    b = found.table[["b_first", "b_second"]].to_numpy()
    v = found.table["se"].to_numpy() ** 2
    w = np.median(v) / (v + np.median(v))
    covariance = np.cov(b.T, aweights=w)
    assert found.agreement == pytest.approx(
        covariance[0, 1] / np.sqrt(covariance[0, 0] * covariance[1, 1]), abs=1e-9
    )
    assert found.agreement > 0.9 > np.corrcoef(b.T)[0, 1]


def test_flags_of_the_banks(people):
    X = people.responses.to_numpy()
    X[:, 0] = 1
    found = compare_populations(people, fit(Responses.from_array(X), "2pl"), names=NAMES)
    assert "in systems" in found.table.loc["i1", "flag"]


@pytest.mark.slow
def test_thresholds():
    b = np.sort(RNG.normal(size=(6, 3)), axis=1)
    one = ItemBank.from_thresholds(a=1.2, b=b)
    found = compare_populations(one, one.rescale(2.0, 1.0), method="mean-sigma")
    np.testing.assert_allclose(found.table["difference"], 0, atol=1e-9)


BAD = {
    "names": ({"names": ("a", "a")}, "two different names"),
    "one name": ({"names": "ab"}, "two different names"),
    "method": ({"method": "equate"}, "stocking-lord"),
    "correction": ({"correction": "x"}, "holm"),
    "array": ({"second": np.eye(2)}, "`second` argument must be an ItemBank"),
    "nothing shared": (
        {"second": ItemBank.from_parameters(b=[0, 1], item_ids=["x", "y"])},
        "share",
    ),
    "slopes": (
        {"second": ItemBank.from_parameters(a=-1, b=[0.0, 1, 2]), "method": "mean-sigma"},
        "positive slope",
    ),
    "nominal": (
        {
            "second": ItemBank.from_thresholds(
                a=[[0, 1.0], [0, 1.0]], b=[[0, 1.0], [0, 2.0]], model="nominal"
            )
        },
        "difficulty b",
    ),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_input(case):
    arguments, words = BAD[case]
    given = {"first": ItemBank.from_parameters(b=[0.0, 1, 2]), **arguments}
    given.setdefault("second", given["first"])
    with pytest.raises(InputError, match=words):
        compare_populations(**given)


def test_biggest_checks_its_arguments(people):
    found = compare_populations(people, people)
    with pytest.raises(InputError, match="rank_change"):
        found.biggest(3, by="size")
