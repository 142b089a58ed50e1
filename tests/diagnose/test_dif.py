"""Items that differ between groups: against mirt, closed forms, and simulated differences."""

import numpy as np
import pandas as pd
import pytest

from irtcat import InputError, ItemBank, Responses
from irtcat.diagnose import find_dif
from irtcat.responses.datasets import load


@pytest.fixture(scope="module")
def theirs(reference):
    return reference("mirt_dif")


@pytest.fixture(scope="module")
def data(reference):
    groups = reference("mirt_groups")
    packed = np.frombuffer(bytes.fromhex(groups["right"]), np.uint8)
    n, k = groups["shape"]
    X = np.unpackbits(packed, count=n * k).reshape(n, k)
    labels = np.where(np.arange(n) < groups["n_reference"], "ref", "foc")
    return Responses.from_array(X), labels


@pytest.fixture(scope="module")
def drop(data):
    return find_dif(*data, purify=False)


@pytest.mark.slow
def test_drop_scheme_is_mirts(drop, theirs):
    table = drop.to_frame()
    np.testing.assert_allclose(table["statistic"], theirs["X2"], rtol=2e-3, atol=2e-3)
    assert table["df"].tolist() == theirs["df"]
    np.testing.assert_allclose(table["p"], theirs["p"], atol=1e-3)
    np.testing.assert_allclose(table["p_adjusted"], theirs["adj_p"], atol=5e-3)
    assert drop.items == ["i3"]
    assert drop.converged
    assert drop.groups.loc["foc", "mean"] == pytest.approx(theirs["mean"], abs=2e-3)


def test_areas_have_a_closed_form(drop):
    """Raju (1988): an area between two 2PL curves, here within 6 SDs, is a difference of
    integrals log(1 + exp(a (theta - b))) / a; over the whole line it is that of the b.
    """

    def integral(group):
        row = drop.parameters.xs(group, level="group")
        ends = [np.logaddexp(0, row["a"] * (end - row["b"])) / row["a"] for end in (6.0, -6.0)]
        return ends[0] - ends[1]

    goal = integral("foc") - integral("ref")
    np.testing.assert_allclose(drop.table["signed_area"], goal.loc[drop.table.index], atol=2e-4)
    b = drop.parameters["b"]
    apart = b.xs("ref", level="group") - b.xs("foc", level="group")
    np.testing.assert_allclose(drop.table["signed_area"], apart[drop.table.index], atol=6e-3)
    table = drop.table
    assert (table["unsigned"] >= table["signed"].abs() - 1e-12).all()
    assert (table["unsigned_area"] >= table["signed_area"].abs() - 1e-12).all()
    row = drop.parameters.loc["i3"]
    by_ref, by_foc = row.loc["ref"], row.loc["foc"]
    mean, sd = 0.481164702981763, np.sqrt(1.08891117532055)  # of mirt's fit with equal items
    theta = mean + sd * np.random.default_rng(0).normal(size=200_000)
    gap = np.subtract(
        *(1 / (1 + np.exp(-p["a"] * (theta - p["b"]))) for p in (by_foc, by_ref))
    ).mean()
    assert table.loc["i3", "signed"] == pytest.approx(gap, abs=4e-3)
    assert table.loc["i3", "size"] == "moderate"


def test_wald_is_close_to_the_likelihood_ratio(data, drop):
    """Asymptotically the same test; p_slope is of the slopes' difference against its SE."""
    wald = find_dif(*data, method="wald", purify=False, items=["i1", "i2", "i3"])
    ratio = drop.table["statistic"][["i1", "i2", "i3"]]
    np.testing.assert_allclose(wald.table["statistic"].dropna(), ratio, rtol=0.1)
    assert wald.table["df"].dropna().tolist() == [2, 2, 2]
    assert wald.parameters["se_a"].notna().all()
    a, se = (wald.parameters.loc["i2", name] for name in ("a", "se_a"))
    z = (a["foc"] - a["ref"]) / np.hypot(se["foc"], se["ref"])
    from scipy.stats import norm

    assert wald.table.loc["i2", "p_slope"] == pytest.approx(2 * norm.sf(abs(z)), abs=0.05)


@pytest.mark.slow
def test_add_scheme(data):
    """One free item and all others anchors: the test by adding is the test by dropping."""
    anchors = [f"i{j}" for j in range(1, 13) if j not in (3, 7)]
    add = find_dif(*data, scheme="add", anchors=anchors, correction="bh")
    assert add.table["statistic"].notna().sum() == 2
    assert add.anchors == tuple(anchors)
    one = find_dif(*data, scheme="add", anchors=[*anchors, "i7"])
    by_drop = find_dif(*data, items=["i3"], purify=False)
    assert one.table.loc["i3", "statistic"] == pytest.approx(
        by_drop.table.loc["i3", "statistic"], abs=1e-4
    )


def simulated(n=500, n_dif=3, shift=1.2, seed=0, n_items=9, n_groups=2):
    rng = np.random.default_rng(seed)
    b = np.linspace(-1.5, 1.5, n_items)
    parts = []
    for g in range(n_groups):
        own = b.copy()
        own[:n_dif] += shift * (g > 0)
        theta = rng.normal(0.5 * g, 1, n)
        parts.append(ItemBank.from_parameters(a=1.3, b=own).simulate(theta, seed=g).to_numpy())
    labels = np.repeat([f"g{g}" for g in range(n_groups)], n)
    return Responses.from_array(np.concatenate(parts)), labels


@pytest.mark.slow
def test_purification():
    """A third of the items harder for one group: without purifying, others look easier."""
    responses, labels = simulated()
    plain = find_dif(responses, labels, "rasch", purify=False)
    pure = find_dif(responses, labels, "rasch")
    assert set(pure.items) == {"i1", "i2", "i3"}
    assert pure.settled
    assert set(pure.anchors) == {f"i{j}" for j in range(4, 10)}
    others = [f"i{j}" for j in range(4, 10)]
    assert pure.table.loc[others, "statistic"].max() < plain.table.loc[others, "statistic"].max()
    b = pure.parameters["b"]
    gap = b.xs("g1", level="group") - b.xs("g0", level="group")
    # The slopes of 1.3 are the Rasch scale's unit.
    np.testing.assert_allclose(gap[["i1", "i2", "i3"]], 1.3 * 1.2, atol=0.4)
    assert pure.groups.loc["g1", "mean"] == pytest.approx(1.3 * 0.5, abs=0.2)
    assert pure.table["df"].eq(1).all()


@pytest.mark.slow
def test_no_difference_no_alarm():
    """The statistics of 9 equal items in two groups are about chi-squared of one degree."""
    found = [
        find_dif(*simulated(n_dif=0, seed=seed), "rasch", purify=False).table["statistic"]
        for seed in range(5)
    ]
    values = np.concatenate(found)
    assert abs(values.mean() - 1) < 0.45  # SE .21
    assert (values > 3.84).mean() < 0.16


@pytest.mark.slow
def test_three_groups():
    responses, labels = simulated(n=300, n_dif=1, n_groups=3)
    found = find_dif(responses, labels, "rasch", reference="g1", purify=False, items=[0, 4])
    assert found.table["df"].dropna().tolist() == [2, 2]
    assert found.effects.loc["i1"].index.tolist() == ["g0", "g2"]
    assert found.effects.loc[("i1", "g0"), "signed"] > 0.1  # easier there than in g1 ...
    assert abs(found.effects.loc[("i1", "g2"), "signed"]) < 0.1  # ... and alike here
    assert found.table.loc["i1", "signed"] == found.effects.loc[("i1", "g0"), "signed"]


@pytest.mark.slow
def test_the_other_reference():
    """Which group is the reference changes no statistic and turns the signs."""
    responses, labels = simulated(n_dif=1, n_items=5)
    one = find_dif(responses, labels, "rasch", purify=False).table
    other = find_dif(responses, labels, "rasch", purify=False, reference="g1").table
    np.testing.assert_allclose(one["statistic"], other["statistic"], atol=1e-4)
    assert np.sign(one.loc["i1", "signed"]) == -np.sign(other.loc["i1", "signed"])


@pytest.mark.slow
def test_degenerate_items():
    responses, labels = simulated(n=60, n_dif=0, n_items=6)
    X = responses.to_numpy()
    X[:, 0] = 1
    X[:60, 1] = 0
    X[60:, 2] = np.nan
    X[:60, 3] = 0
    X[:3, 3] = 1
    odd = Responses.from_array(X)
    found = find_dif(odd, labels, "rasch")
    flags = found.table["flag"]
    assert flags["i1"] == "constant"
    assert flags["i2"] == "constant in group g0"
    assert flags["i3"] == "no answers in group g1"
    assert flags["i4"] == "few answers"
    assert found.table.loc[["i1", "i2", "i3"], "statistic"].isna().all()
    assert not found.table.loc[["i1", "i2", "i3"], "dif"].any()
    assert found.table.loc[["i4", "i5", "i6"], "p"].notna().all()
    with pytest.raises(InputError, match=r"i2 \(constant in group g0\)"):
        find_dif(odd, labels, "rasch", scheme="add", anchors=["i2"])


@pytest.mark.slow
def test_all_different():
    """Where nothing is alike one item is kept as the anchor."""
    responses, labels = simulated(n=300, n_dif=2, n_items=2, shift=0.0)
    X = responses.to_numpy()
    X[300:, 0], X[300:, 1] = 1 - X[300:, 0], X[300:, 1]
    found = find_dif(Responses.from_array(X), labels, "rasch", alpha=0.5, correction="none")
    assert len(found.anchors) >= 1
    assert np.isfinite(found.table["statistic"]).all()


@pytest.mark.slow
def test_graded_items():
    rng = np.random.default_rng(1)
    b = np.array([[-1, 0.5], [-0.5, 1], [0, 1.2], [-1.2, 0]])
    parts = []
    for g in range(2):
        own = b + np.array([[1.0 * g, 1.0 * g], [0, 0], [0, 0], [0, 0]])
        bank = ItemBank.from_thresholds(a=1.5, b=own)
        parts.append(bank.simulate(rng.normal(size=500), seed=g).to_numpy())
    responses = Responses.from_array(np.concatenate(parts))
    labels = np.repeat(["x", "y"], 500)
    found = find_dif(responses, labels, "graded", purify=False, items=["i1", "i4"])
    assert found.table["df"].dropna().tolist() == [3, 3]
    assert found.items[0] == "i1"
    assert found.table.loc["i1", "signed"] < -0.2


@pytest.mark.slow
def test_progress():
    calls = []
    responses, labels = simulated(n_dif=0, n_items=5)
    find_dif(responses, labels, "rasch", purify=False, progress=lambda *call: calls.append(call))
    assert calls == [(j, 5) for j in range(1, 6)]


LABELS = np.array(["a", "b"] * 500)
BAD = {
    "one group": ({"groups": np.repeat("a", 1000)}, "two groups"),
    "labels": ({"groups": ["a"]}, "groups"),
    "method": ({"method": "score"}, "lr, wald"),
    "anchors": ({"scheme": "add"}, "anchors"),
    "unknown": ({"anchors": ["q"]}, "anchors"),
    "both": ({"anchors": ["item1"], "items": ["item1"]}, "other than the anchors"),
    "all": ({"anchors": [f"item{j}" for j in range(1, 6)]}, "No item can be tested"),
    "correction": ({"correction": "bonferroni"}, "holm"),
    "alpha": ({"alpha": 0}, "alpha"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_input(case):
    arguments, words = BAD[case]
    with pytest.raises(InputError, match=words):
        find_dif(load("lsat7"), **{"groups": LABELS, **arguments})


def test_fractions_are_refused():
    with pytest.raises(InputError, match="categories"):
        find_dif(Responses.from_array(np.full((4, 2), 0.5)), ["a", "a", "b", "b"])


@pytest.mark.slow
def test_labels_in_the_responses():
    responses, labels = simulated(n=100, n_dif=0, n_items=4)
    who = pd.DataFrame({"country": labels}, index=responses.subject_ids)
    held = Responses.from_array(responses.to_numpy(), subjects=who)
    assert find_dif(held, "country", "rasch", purify=False).groups.index.tolist() == ["g0", "g1"]


@pytest.mark.slow
def test_an_item_all_of_a_group_got_right_spoils_nothing():
    """The others' tests are those with that group's answers to it left out: no group runs away."""
    rng = np.random.default_rng(0)
    bank = ItemBank.from_parameters(a=np.full(6, 1.4), b=rng.normal(0, 0.8, 6))
    X = bank.simulate(rng.normal(size=400), seed=0).to_numpy()
    here = np.arange(400) % 2 == 0
    X[~here, 0] = rng.random(200) < 0.5
    labels = np.where(here, "a", "b")
    gap = X.copy()
    X[here, 2], gap[here, 2] = 1, np.nan
    found = find_dif(Responses.from_array(X.astype(int)), labels)
    assert found.converged
    assert found.table.loc["i3", "flag"] == "constant in group a"
    assert not found.table.loc["i2":, "dif"].any()
    left_out = find_dif(Responses.from_array(gap), labels).table
    columns = ["statistic", "p", "unsigned"]
    np.testing.assert_allclose(found.table[columns], left_out[columns], rtol=1e-6)
    assert found.groups["sd"].between(0.5, 2).all()


@pytest.mark.slow
def test_survey_weights_are_tested_by_wald_with_the_sandwich():
    """An item whose answers depend on the sampling: equal weights would find it different."""
    rng = np.random.default_rng(8)
    groups = np.repeat(["a", "b"], 1500)
    theta = rng.normal(size=3000)
    x = (rng.random((3000, 6)) < 1 / (1 + np.exp(-1.2 * theta[:, None]))).astype(int)
    # In group b those who solved the last item are sampled less often.
    share = np.where((groups == "b") & (x[:, 5] == 1), 0.4, 1.0)
    chosen = rng.random(3000) < share
    given = {"method": "wald", "purify": False, "items": ["i6"]}
    r = Responses.from_array(x[chosen])
    assert find_dif(r, groups[chosen], "2pl", **given).items == ["i6"]
    weighted = {**given, "subject_weights": 1 / share[chosen]}
    found = find_dif(r, groups[chosen], "2pl", **weighted)
    assert found.items == []
    assert found.table["p"]["i6"] > 0.05
    with pytest.raises(InputError, match='"wald" with subject_weights'):
        find_dif(r, groups[chosen], "2pl", subject_weights=1 / share[chosen])
