"""Item fit against mirt's numbers, brute force over all patterns, and what cannot be tested."""

import itertools
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from irtcat import ItemBank, Responses, fit, score
from irtcat._common.checks import InputError
from irtcat.diagnose import grouped_fit, grouped_fit_table, infit_outfit, item_fit, s_x2, s_x2_table
from irtcat.diagnose.estimated_parameters import free_of

LSAT = [(data, model) for data in ("lsat6", "lsat7") for model in ("rasch", "1pl", "2pl", "3pl")]
SQUARES = ["outfit", "outfit_z", "infit", "infit_z"]


def as_mirt(bank, responses):
    """Abilities and parameters taken for known, as in mirt: the same mean squares, its z."""
    theta = score(bank, responses, "eap", precision="float64").theta
    found = infit_outfit(bank, responses, abilities=theta, estimated="none")
    ours = infit_outfit(bank, responses)
    pd.testing.assert_frame_equal(found[["outfit", "infit"]], ours[["outfit", "infit"]])
    return found


@pytest.mark.parametrize(("data", "model"), LSAT)
def test_s_x2_is_mirts(lsat, data, model):
    """mirt counts a Rasch population's variance among every item's parameters."""
    responses, bank, numbers = lsat(data, model)
    theirs = numbers["item"]
    found = s_x2(bank, responses, estimated="all")
    n_free = {"rasch": 2, "1pl": 2, "2pl": 2, "3pl": 3}[model]
    # A bank of known Rasch items is a 2pl bank: two parameters an item.
    np.testing.assert_array_equal(found["df"], theirs["df"])
    assert (free_of(bank, "all").by_item == n_free).all()
    tested = found["df"] > 0
    for name in ("s_x2", "p", "rmsea"):
        want = np.array(theirs[name], float)
        np.testing.assert_allclose(found[name][tested], want[tested], rtol=5e-6, atol=2e-6)
    assert found["s_x2"][~tested].isna().all()
    assert (found["flag"][~tested] == "too few cells").all()


@pytest.mark.parametrize("model", ["rasch", "2pl", "3pl"])
def test_sat12_is_mirts(diagnostics, shared, model):
    """600 x 32: many sparse cells to be merged."""
    X = pd.read_csv(shared / "reference" / "mirt" / "SAT12_keyed.csv")
    responses, theirs = Responses.from_array(X), diagnostics["sat12"][model]
    slope, intercept = np.array(theirs["slope"]), np.array(theirs["intercept"])
    bank = ItemBank.from_parameters(slope, -intercept / slope, theirs["lower"], item_ids=X.columns)
    found = s_x2(bank, responses, estimated="all")
    if model == "rasch":  # known items, but not the variance, which is not in the table
        bank = fit(responses, "rasch").bank
        found = s_x2(bank, responses)
    np.testing.assert_array_equal(found["df"], theirs["item"]["df"])
    np.testing.assert_allclose(found["s_x2"], theirs["item"]["s_x2"], rtol=1e-3, atol=2e-3)


@pytest.mark.parametrize("model", ["graded", "gpcm", "nominal", "pcm", "rsm"])
def test_science_is_mirts(diagnostics, shared, model):
    """Four categories, from our own fit."""
    responses = Responses.from_array(pd.read_csv(shared / "reference" / "mirt" / "Science.csv"))
    theirs, bank = diagnostics["science"][model], fit(responses, model).bank
    found = item_fit(bank, responses, n_groups=0)
    np.testing.assert_allclose(found["s_x2"], theirs["item"]["s_x2"], rtol=1e-3)
    df = np.array(theirs["item"]["df"])
    # mirt's rating scale fixes the first item's location and frees all three steps; ours has a
    # location an item and two steps: 3 parameters an item, and the SD.
    np.testing.assert_array_equal(
        found["df"], df + np.array([0, 1, 1, 1]) if model == "rsm" else df
    )
    found = as_mirt(bank, responses)
    for name in SQUARES:
        np.testing.assert_allclose(found[name], theirs["mean_squares"][name], atol=2e-3)


@pytest.mark.slow_cases("lsat6-3pl")
@pytest.mark.parametrize(("data", "model"), [pair for pair in LSAT if pair[1] in ("2pl", "3pl")])
def test_grouped_fit_is_mirts(lsat, data, model):
    """X2 and G2; where scores tie (Rasch, 1PL) the groups hang on rounding in mirt."""
    responses, bank, numbers = lsat(data, model)
    theirs = numbers["grouped"]
    found = grouped_fit(bank, responses, estimated="all")
    np.testing.assert_array_equal(found["df"], theirs["df"])
    np.testing.assert_allclose(found["x2"], theirs["x2"], rtol=1e-6)
    np.testing.assert_allclose(found["g2"], theirs["g2"], rtol=1e-6)
    # mirt's df of G2 leaves out cells that nobody is in, and groups that are left with one cell.
    cells = grouped_fit_table(bank, responses)
    used = cells[cells["observed"] > 0].groupby(["item", "group"], sort=False).size()
    own = (used - 1).groupby("item", sort=False).sum() - free_of(bank, "all").by_item
    np.testing.assert_array_equal(own, theirs["df_g2"])


@pytest.mark.parametrize(("data", "model"), LSAT)
def test_mean_squares_are_mirts(lsat, data, model):
    responses, bank, numbers = lsat(data, model)
    found = as_mirt(bank, responses)
    for name in SQUARES:
        np.testing.assert_allclose(found[name], numbers["mean_squares"][name], rtol=1e-5, atol=2e-5)


@pytest.mark.slow
def test_our_own_fit_gives_the_same(lsat, lsat_fit):
    for data, model in [("lsat6", "rasch"), ("lsat7", "2pl")]:
        responses, _, numbers = lsat(data, model)
        found = item_fit(lsat_fit(data, model).bank, responses)
        np.testing.assert_allclose(found["s_x2"], numbers["item"]["s_x2"], rtol=1e-3)
        np.testing.assert_array_equal(found["df"], numbers["item"]["df"])
        np.testing.assert_allclose(found["infit"], numbers["mean_squares"]["infit"], rtol=1e-3)


# --- laws


def brute_force_shares(bank, item):
    """Share of each category among those with a score, by summing over all patterns."""
    z = np.linspace(-6, 6, 301)
    weights = np.exp(-(z**2) / 2)
    p = bank.category_probabilities(z)
    categories = [int(k) for k in (p.sum(axis=1) > 0).sum(axis=1)]
    joint = np.zeros((sum(categories) - len(p) + 1, categories[item]))
    for pattern in itertools.product(*map(range, categories)):
        likelihood = np.prod([p[i, :, k] for i, k in enumerate(pattern)], axis=0)
        joint[sum(pattern), pattern[item]] += likelihood @ weights
    return joint / joint.sum(axis=1, keepdims=True)


def test_expected_counts_by_brute_force():
    """Items of two, three and four categories together."""
    bank = ItemBank.from_thresholds(
        a=[1.0, 1.5, 0.8, 1.2],
        b=[[0.2, np.nan, np.nan], [-1, 1, np.nan], [-1, 0, 1], [0.5, 1.5, np.nan]],
    )
    responses = bank.simulate(np.random.default_rng(3).normal(size=300), seed=4)
    table = s_x2_table(bank, responses, min_expected=None)
    total = responses.values.sum(axis=1)
    n_with = np.bincount(total, minlength=9)
    for j, item in enumerate(bank.item_ids):
        want = brute_force_shares(bank, j) * n_with[:, None]
        own = table[table["item"] == item]
        np.testing.assert_allclose(own.expected, want[own.score, own.category], rtol=1e-6)
        seen = np.zeros_like(want)
        np.add.at(seen, (total, responses.values[:, j]), 1)
        np.testing.assert_array_equal(own.observed, seen[own.score, own.category])


@pytest.mark.parametrize("least", [1.0, 5.0])
def test_merging_loses_nobody(small, least):
    bank, responses = small
    total = responses.values.sum(axis=1)
    inner = ((total > 0) & (total < 8)).sum()
    table = s_x2_table(bank, responses, min_expected=least)
    for _, own in table.groupby("item"):
        assert own.observed.sum() == inner
        assert own.expected.sum() == pytest.approx(inner)
        assert own.expected.min() >= least


def test_rows_and_columns_in_any_order(small):
    bank, responses = small
    order = np.random.default_rng(0).permutation(8)
    rows = np.random.default_rng(1).permutation(60)
    turned = responses.subset(subjects=rows, items=order)
    first = s_x2(bank, responses, estimated="all")
    pd.testing.assert_frame_equal(first, s_x2(bank, turned, estimated="all"), rtol=1e-9)
    other = s_x2(bank.subset(order), responses, estimated="all")
    pd.testing.assert_frame_equal(first, other.loc[first.index], check_exact=False, atol=1e-9)


@pytest.mark.slow
def test_an_item_of_another_shape_is_found():
    """The middle of the population answers it rightly, both ends wrongly."""
    rng = np.random.default_rng(8)
    bank = ItemBank.from_parameters(a=rng.uniform(0.8, 1.8, 8), b=rng.normal(0, 0.7, 8))
    theta = rng.normal(size=1000)
    X = bank.simulate(theta, 9).to_numpy()
    before = item_fit(bank, Responses.from_array(X))
    assert before["p_holm"].min() > 0.05
    X[:, 0] = np.abs(theta) < 0.7
    found = item_fit(bank, Responses.from_array(X))
    assert found["p_holm"].idxmin() == "i1"
    assert found.loc["i1", ["p_holm", "p_x2", "p_g2"]].max() < 1e-10
    assert found.loc["i1", "outfit_z"] > 3


# --- which parameters count


@pytest.mark.slow
def test_free_parameters(lsat_fit):
    one = lsat_fit("lsat7", "2pl").bank
    assert free_of(one).total == 10
    assert free_of(one, "none").total == 0
    rasch = lsat_fit("lsat7", "rasch").bank
    assert free_of(rasch).total == 6
    assert free_of(lsat_fit("lsat7", "1pl").bank).total == 6
    known = ItemBank.from_parameters(a=1.0, b=[0.0, 1.0])
    assert free_of(known).total == 0
    assert free_of(known, "all").total == 4
    held = np.array(one.covariance)
    held[1, 0, :] = held[1, :, 0] = np.nan
    assert free_of(replace(one, covariance=held)).total == 9
    with pytest.raises(InputError, match="The `estimated` argument"):
        free_of(one, "some")


def test_fixed_and_equal_parameters():
    from irtcat.responses.datasets import load

    responses = load("lsat7")
    equal = fit(responses, "2pl", equal=["slope"], fixed={"intercept": {"item2": 0.8}})
    assert free_of(equal.bank).total == equal.n_parameters == 5
    np.testing.assert_array_equal(free_of(equal.bank).by_item, [2, 1, 2, 2, 2])


# --- gaps and degenerate data


@pytest.mark.slow
def test_gaps_are_left_out_and_counted(small):
    bank, responses = small
    X = responses.to_numpy()
    X[:10, 0] = np.nan
    gappy = Responses.from_array(X)
    found = item_fit(bank, gappy, estimated="all", n_groups=4)
    assert (found["n_complete"] == 50).all()
    assert found["n"].tolist() == [50] + [60] * 7
    alone = s_x2(bank, responses.subset(subjects=np.arange(10, 60)), estimated="all")
    np.testing.assert_allclose(found["s_x2"], alone["s_x2"])
    X[np.arange(60), np.arange(60) % 8] = np.nan
    with pytest.raises(InputError, match="at least 2 subjects without missing answers"):
        s_x2(bank, Responses.from_array(X))
    partly = item_fit(bank, Responses.from_array(X), n_groups=4)
    assert (partly["flag"] == "too few items or complete rows").all()
    assert partly["s_x2"].isna().all()
    assert np.isfinite(partly["infit"]).all()
    first = bank.subset(bank.item_ids[:1])
    alone = item_fit(first, responses.subset(items=first.item_ids))
    assert alone[["n_complete", "flag"]].values.tolist() == [[60, "too few items or complete rows"]]


@pytest.mark.slow
@pytest.mark.parametrize("by_group", [False, True])
def test_incomplete_rows_take_their_share_of_the_parameters(by_group):
    """Parameters that are mostly estimated from other rows cost few degrees of freedom."""
    bank = ItemBank.from_parameters(a=1.2, b=np.linspace(-1, 1, 10))
    r = bank.simulate(np.random.default_rng(8).normal(size=1000), 9)
    X = r.to_numpy().astype(float)
    X[:600, 0] = np.nan
    X[:300, 1] = np.nan
    r = Responses.from_array(X)
    options = {"groups": np.tile(["a", "b"], 500)} if by_group else {}
    bank = fit(r, "2pl", standard_errors="none", **options).bank
    taken = s_x2(bank, r, estimated="none", **options)["df"] - s_x2(bank, r, **options)["df"]
    taken = taken.groupby("item").sum()
    np.testing.assert_allclose(taken["i1"], 2.0, rtol=1e-6)
    np.testing.assert_allclose(taken["i2"], 2 * 400 / 700, rtol=0.02 if by_group else 1e-6)
    np.testing.assert_allclose(taken["i5"], 2 * 400 / 1000, rtol=0.02 if by_group else 1e-6)


@pytest.mark.slow
def test_constant_items_and_perfect_subjects_are_flagged(small):
    bank, responses = small
    X = responses.to_numpy()
    X[:, 2] = 1
    found = item_fit(bank, Responses.from_array(X), n_groups=4)
    assert found.loc["i3", "flag"] == "constant"
    assert np.isnan(found.loc["i3", "s_x2"])
    assert found.drop("i3")["s_x2"].notna().all()
    perfect = Responses.from_array(np.vstack([np.ones((5, 8)), np.zeros((5, 8))]))
    found = item_fit(bank, perfect, n_groups=2)
    assert (found["flag"] == "too few cells").all()
    assert found["s_x2"].isna().all()
    X[:, 4] = np.nan
    empty = infit_outfit(bank, Responses.from_array(X))
    assert empty.loc["i5", "flag"] == "no responses"
    assert empty.loc["i5", SQUARES].isna().all()


def test_refused(small):
    bank, responses = small
    with pytest.raises(InputError, match="at least 2 items"):
        s_x2(bank.subset([0]), responses)
    with pytest.raises(InputError, match="all are missing"):
        item_fit(bank, replace(responses, values=np.full((60, 8), -1, np.int8)))
    with pytest.raises(InputError, match="The `responses` argument must be right/wrong or graded"):
        s_x2(bank, Responses.from_array(np.full((3, 8), 0.5)))
    with pytest.raises(InputError, match="The `bank` argument must be an ItemBank"):
        item_fit(responses, responses)
    with pytest.raises(InputError, match="The `responses` argument must be Responses"):
        item_fit(bank, None)
    with pytest.raises(InputError, match="The `min_expected` argument"):
        s_x2(bank, responses, min_expected=0)
    with pytest.raises(InputError, match="The `center` argument"):
        grouped_fit(bank, responses, center="mode")
    with pytest.raises(InputError, match="`responses` argument must be of at least 61 subjects"):
        grouped_fit(bank, responses, n_groups=61)
    with pytest.raises(InputError, match=r"at least 10 subjects .* Got 9\. Or use fewer groups"):
        item_fit(bank, responses.subset(subjects=range(9)))
    with pytest.raises(InputError, match="The `abilities` argument must be of shape"):
        infit_outfit(bank, responses, abilities=np.zeros(3))
    with pytest.raises(InputError, match="NaN for all"):
        infit_outfit(bank, responses, abilities=np.full(60, np.nan))
    with pytest.raises(InputError, match="The `method` argument"):
        infit_outfit(bank, responses, method="guess")
    several = ItemBank.from_slopes(np.ones((8, 2)))
    with pytest.raises(InputError, match="of one ability"):
        grouped_fit(several, responses)


@pytest.mark.slow
@pytest.mark.parametrize("errors", ["auto", "none"])
def test_what_no_response_informs_is_not_counted(errors):
    """The number of parameters is that of the fit, with and without standard errors."""
    X = np.random.default_rng(1).integers(0, 2, (60, 26)).astype(float)
    X[:, 3], X[:, 8] = 1, np.nan
    found = fit(Responses.from_array(X), "2pl", standard_errors=errors)
    free = free_of(found.bank)
    assert free.total == found.n_parameters == 48
    assert free.by_item[[3, 8]].tolist() == [0, 0]


@pytest.mark.slow
def test_upper_asymptotes_do_not_count():
    """df of 4PL items is that of 3PL items in the same table, without one more parameter."""
    bank = ItemBank.from_parameters(1.2, np.linspace(-1.5, 1.5, 10), 0.2)
    responses = bank.simulate(np.random.default_rng(2).normal(size=800), 3)
    lower = s_x2(bank, responses, estimated="all")
    upper = ItemBank.from_parameters(1.2, np.linspace(-1.5, 1.5, 10), 0.2, 1 - 1e-9)
    found = s_x2(upper, responses, estimated="all")
    np.testing.assert_allclose(found["s_x2"], lower["s_x2"], rtol=1e-5)
    np.testing.assert_array_equal(found["df"], lower["df"])
