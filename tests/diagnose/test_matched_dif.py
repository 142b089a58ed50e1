"""Mantel-Haenszel and standardisation: against difR, pairs counted one by one, and refusals."""

import base64
import itertools
import zlib

import numpy as np
import pandas as pd
import pytest

from irtcat import InputError, ItemBank, Responses, score
from irtcat.diagnose import mantel_haenszel
from irtcat.diagnose.matched_dif import _ets_class, _odds_ratio


@pytest.fixture(scope="module")
def theirs(reference):
    return reference("difr")


def unpacked(data, shape):
    return np.unpackbits(np.frombuffer(data, np.uint8), count=np.prod(shape)).reshape(shape)


@pytest.fixture(scope="module")
def two(reference):
    groups = reference("mirt_groups")
    X = unpacked(bytes.fromhex(groups["right"]), groups["shape"])
    return X, np.where(np.arange(len(X)) < groups["n_reference"], "ref", "foc")


def test_two_groups_are_those_of_difr(two, theirs):
    expected = theirs["two_groups"]
    plain = mantel_haenszel(*two, purify=False, continuity=False)
    table = plain.to_frame()
    np.testing.assert_allclose(table["statistic"], expected["uncorrected"], rtol=1e-7)
    np.testing.assert_allclose(table["odds_ratio"], expected["odds_ratio"], rtol=1e-7)
    np.testing.assert_allclose(table["delta"], -2.35 * np.log(expected["odds_ratio"]), rtol=1e-6)
    se = 2.35 * np.sqrt(expected["var_log_odds_ratio"])
    np.testing.assert_allclose(table["se_delta"], se, rtol=1e-7)
    np.testing.assert_allclose(table["std_p_dif"], expected["std_p_dif"], rtol=1e-7)
    corrected = mantel_haenszel(*two, purify=False).table["statistic"]
    # Where the difference is below 1/2 difR's correction overshoots 0, ours stops there.
    np.testing.assert_allclose(corrected, expected["statistic"], rtol=1e-7, atol=2e-3)
    pure = mantel_haenszel(*two, correction="none")
    np.testing.assert_allclose(pure.table["statistic"], expected["purified"], rtol=1e-7, atol=2e-3)
    assert pure.items == [f"i{j}" for j in expected["found"]]
    assert (pure.n_rounds, pure.settled) == (expected["n_rounds"] + 1, True)
    assert pure.anchors == tuple(f"i{j}" for j in range(1, 13) if j != 3)
    assert pure.table.loc["i3", ["ets", "size", "dif"]].tolist() == ["B-", "negligible", True]


def test_three_groups_are_those_of_difr(reference, theirs):
    case = next(c for c in reference("mirt_group_fit")["cases"].values() if len(c["labels"]) == 3)
    X = unpacked(zlib.decompress(base64.b64decode(case["data"])), case["shape"])
    labels = np.repeat(case["labels"], case["sizes"])
    expected = theirs["three_groups"]
    dif = mantel_haenszel(X, labels, purify=False)
    np.testing.assert_allclose(dif.table["statistic"], expected["statistic"], rtol=1e-7)
    assert dif.table["df"].eq(2).all()
    anchored = mantel_haenszel(X, labels, anchors=slice(8))
    np.testing.assert_allclose(anchored.table["statistic"][8:], expected["anchored"][8:], rtol=1e-7)
    assert anchored.table["p"].notna().sum() == 7
    pair = mantel_haenszel(X[labels != "B"], labels[labels != "B"], purify=False)
    effects = dif.effects.xs("C", level="group")
    pd.testing.assert_frame_equal(effects, pair.effects.xs("C", level="group"))


def test_ordered_categories_counted_pair_by_pair():
    """Mantel's test from finite-population variances, Liu and Agresti's ratio from all pairs."""
    rng = np.random.default_rng(3)
    z = rng.normal(size=(70, 1, 1)) + rng.logistic(size=(70, 4, 1))
    X = (z > np.array([-1, 0.2, 1.1])).sum(axis=2)
    group = np.repeat([0, 1], [40, 30])
    table = mantel_haenszel(X, group, purify=False).table
    total, x = X.sum(axis=1), X[:, 1]
    excess = variance = r = s = weight = difference = 0.0
    for value in np.unique(total):
        y, g = x[total == value], group[total == value]
        n, n_reference, n_group = len(y), (g == 0).sum(), (g == 1).sum()
        if not n_reference or not n_group:
            continue
        excess += y[g == 1].sum() - n_group * y.mean()
        variance += n_reference * n_group / n * y.var(ddof=1)
        for a, b in itertools.product(y[g == 0], y[g == 1]):
            r += max(a - b, 0) / n
            s += max(b - a, 0) / n
        weight += n_group
        difference += n_group * (y[g == 1].mean() - y[g == 0].mean())
    assert table["statistic"]["i2"] == pytest.approx(excess**2 / variance)
    assert table["odds_ratio"]["i2"] == pytest.approx(r / s)
    assert table["std_p_dif"]["i2"] == pytest.approx(difference / weight)


@pytest.mark.slow
def test_standard_errors_are_the_spread_of_estimates():
    """Ordered categories, small strata, and a common cumulative odds ratio of 2."""
    rng = np.random.default_rng(0)
    cuts = np.array([-1, 0, 1.2]) + np.linspace(-2, 2, 30)[:, None]
    found = []
    for _ in range(400):
        counts = np.zeros((30, 2, 4))
        for g, (n, shift) in enumerate(((6, np.log(2)), (4, 0.0))):
            at_least = 1 / (1 + np.exp(cuts - shift))
            p = -np.diff(np.c_[np.ones(30), at_least, np.zeros(30)], axis=1)
            counts[:, g] = rng.multinomial(n, p)
        ratio, se = _odds_ratio(counts)
        found.append((np.log(ratio), se))
    log_ratio, se = np.array(found).T
    assert log_ratio.mean() == pytest.approx(np.log(2), abs=0.04)
    assert se.mean() == pytest.approx(log_ratio.std(), rel=0.1)


def test_classes_of_ets():
    """Zieky's rules: by size and by significance from 0 and from 1."""

    def ets(delta, se, p):
        return _ets_class({"delta": delta, "se_delta": se, "p": p})

    assert ets(0.9, 0.1, 0.001) == ets(2.5, 2.0, 0.2) == "A"
    assert ets(1.2, 0.1, 0.001) == "B+"
    assert ets(-1.6, 0.5, 0.01) == "B-"  # 1.645 x .5 more than .6
    assert ets(-1.6, 0.3, 0.001) == "C-"
    assert ets(np.nan, np.nan, 0.01) == ""


@pytest.mark.slow
def test_matching_by_ability_serves_incomplete_responses():
    rng = np.random.default_rng(1)
    b = np.linspace(-1.5, 1.5, 12)
    fair = ItemBank.from_parameters(a=1.2, b=b)
    unfair = ItemBank.from_parameters(a=1.2, b=b + 0.9 * (np.arange(12) == 6))
    theta = rng.normal(size=(2, 600)) - [[0], [0.5]]
    X = np.vstack(
        [bank.simulate(t).to_numpy() for bank, t in zip((fair, unfair), theta, strict=True)]
    )
    X[rng.random(X.shape) < 0.1] = np.nan
    labels = np.repeat(["here", "there"], 600)
    responses = Responses.from_array(X)
    complete = int((~np.isnan(X).any(axis=1)).sum())
    by_score = mantel_haenszel(responses, labels)
    assert by_score.n_left_out == 1200 - complete
    effects = by_score.effects.loc["i1", ["n_reference", "n_group"]]
    assert effects.to_numpy().sum() <= complete
    abilities = score(fair, responses)
    dif = mantel_haenszel(responses, labels, matching=abilities, n_strata=20)
    assert dif.items == ["i7"]
    assert (dif.n_left_out, dif.anchors) == (0, ())
    assert dif.table.loc["i7", "ets"].endswith("-")
    same = mantel_haenszel(
        responses, labels, n_strata=20, matching=pd.Series(abilities.theta, abilities.subject_ids)
    )
    pd.testing.assert_frame_equal(same.table, dif.table)


def test_groups_and_matching_values_by_subject_id(two):
    X, labels = two
    ids = [f"s{i + 1}" for i in range(len(X))]
    by_id = [dict(zip(ids[::-1], v[::-1], strict=True)) for v in (labels, X.sum(axis=1))]
    found = mantel_haenszel(X, by_id[0], reference="ref", matching=by_id[1]).table
    expected = mantel_haenszel(X, labels, purify=False).table
    np.testing.assert_allclose(found["statistic"], expected["statistic"])
    with pytest.raises(InputError, match=r"a label for every subject\. Got .none for s2"):
        mantel_haenszel(X, {"s1": "ref"})


def test_refusals(two):
    X, labels = two
    with pytest.raises(InputError, match="right/wrong or in categories"):
        mantel_haenszel(X / 2, labels)
    with pytest.raises(InputError, match="`matching` argument must be one number for each"):
        mantel_haenszel(X, labels, matching=[1.0])
    with pytest.raises(InputError, match=r"`matching` .* of some subjects of every group"):
        mantel_haenszel(X, labels, matching={"s1": 1.0})
    holes = X.astype(float)
    holes[labels == "foc", 0] = np.nan
    with pytest.raises(InputError, match=r"every group. Got none in group foc\..*anchors"):
        mantel_haenszel(holes, labels)
    constant = X.copy()
    constant[:, 2] = 1
    table = mantel_haenszel(constant, labels).table
    assert table.loc["i3", "flag"] == "constant"
    assert np.isnan(table.loc["i3", "p"])
    assert table.loc["i3", "ets"] == ""
