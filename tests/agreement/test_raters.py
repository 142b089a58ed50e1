"""Many raters: published examples, other programs, definitions counted pair by pair."""

import itertools

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from irtcat import agreement
from irtcat._common.checks import InputError

few = settings(max_examples=50, deadline=None)

# Krippendorff (2011), Computing Krippendorff's Alpha-Reliability: four observers, twelve units.
OBSERVERS = """
1 2 3 3 2 1 4 1 2 . . .
1 2 3 3 2 2 4 1 2 5 . 3
. 3 3 3 2 3 4 2 2 5 1 .
1 2 3 3 2 4 4 1 2 5 1 .
"""
LEVELS = {"nominal": 0.743, "ordinal": 0.815, "interval": 0.849, "ratio": 0.797}

ratings = st.lists(
    st.lists(st.sampled_from([0, 1, 2, None]), min_size=3, max_size=3), min_size=2, max_size=8
)


def units():
    lines = [line.split() for line in OBSERVERS.strip().split("\n")]
    return [[None if v == "." else int(v) for v in unit] for unit in zip(*lines, strict=True)]


# --- Fleiss


def test_fleiss_1971(reference):
    case = reference("agreement")["diagnoses"]
    found = agreement.fleiss_kappa_test(case["ratings"])
    assert agreement.fleiss_kappa(case["ratings"]) == pytest.approx(case["kappa"], abs=5e-8)
    assert found["kappa"].iloc[0] == pytest.approx(case["kappa"], abs=5e-8)
    assert found["z"].iloc[0] == pytest.approx(case["z"], abs=5e-6)
    np.testing.assert_allclose(found["kappa"].iloc[1:], case["by_label"], atol=5e-4)
    np.testing.assert_allclose(found["z"].iloc[1:], case["z_by_label"], atol=5e-4)
    assert found.index.tolist() == ["overall", 1, 2, 3, 4, 5]


def test_fleiss_of_other_programs(reference):
    case = reference("agreement")["fleiss"]
    found = agreement.fleiss_kappa_test(counts=case["counts"]).loc["overall"]
    assert found["kappa"] == pytest.approx(case["kappa"])
    assert found["se"] == pytest.approx(case["irrcac"]["se"], abs=5e-6)
    case = reference("agreement")["fleiss_single"]
    assert agreement.fleiss_kappa(case["ratings"]) == pytest.approx(case["kappa"], abs=5e-6)


@pytest.mark.slow
def test_fleiss_error_is_the_jackknifes():
    rng = np.random.default_rng(1)
    truth, n = rng.integers(3, size=200), rng.integers(1, 6, 200)
    rows = [
        np.where(rng.random(k) < 0.6, t, rng.integers(3, size=k)).tolist()
        for t, k in zip(truth, n, strict=True)
    ]
    found = agreement.fleiss_kappa_test(rows).loc["overall"]
    left = [agreement.fleiss_kappa(rows[:i] + rows[i + 1 :]) for i in range(200)]
    assert found["se"] == pytest.approx(np.std(left) * np.sqrt(199), rel=0.02)
    assert np.isnan(found[["null_se", "z", "p_value"]]).all()  # numbers of ratings differ


def test_fleiss_null_error_holds_in_simulation():
    rng = np.random.default_rng(2)
    counts = rng.multinomial(4, [0.6, 0.3, 0.1], size=(1500, 60))
    kappas = [agreement.fleiss_kappa(counts=c) for c in counts]
    tests = agreement.fleiss_kappa_test(counts=counts.reshape(-1, 3)).loc["overall"]
    assert np.std(kappas) == pytest.approx(tests["null_se"] * np.sqrt(1500), rel=0.06)


@pytest.mark.slow
@few
@given(ratings)
def test_fleiss_by_pairs(rows):
    rated = [[v for v in row if v is not None] for row in rows]
    pairs = [list(itertools.permutations(row, 2)) for row in rated if len(row) > 1]
    labels = {v for row in rated for v in row}
    if not pairs or len(labels) < 2:
        with pytest.raises(InputError):
            agreement.fleiss_kappa(rows)
        return
    seen = np.mean([np.mean([a == b for a, b in unit]) for unit in pairs])
    shares = [np.mean([np.mean([v == x for v in row]) for row in rated if row]) for x in labels]
    chance = np.square(shares).sum()
    expected = (seen - chance) / (1 - chance)
    assert agreement.fleiss_kappa(rows) == pytest.approx(expected, abs=1e-9)
    assert agreement.fleiss_kappa(rated) == pytest.approx(expected, abs=1e-9)  # ragged lists
    turned = [row[::-1] for row in rows[::-1]]
    assert agreement.fleiss_kappa(turned) == pytest.approx(expected, abs=1e-9)


def test_fleiss_labels_never_or_always_given():
    rows = [["a", "a"], ["a", "b"], ["b", "b"]]
    found = agreement.fleiss_kappa_test(rows, labels=["b", "a", "c"])
    assert found.index.tolist() == ["overall", "b", "a", "c"]
    assert found.loc["c", "share"] == 0
    assert np.isnan(found.loc["c", "kappa"])
    assert found.loc["a", "kappa"] == pytest.approx(found.loc["overall", "kappa"])


# --- Krippendorff


@pytest.mark.parametrize("level", LEVELS)
def test_krippendorff_2011(level):
    assert agreement.krippendorff_alpha(units(), level) == pytest.approx(LEVELS[level], abs=5e-4)


@pytest.mark.parametrize("level", LEVELS)
def test_krippendorff_of_another_program(reference, level):
    case = reference("agreement")["krippendorff"]
    rows = [[None if v is None else v + 1 for v in row] for row in case["ratings"]]
    found = agreement.krippendorff_alpha(rows, level)
    assert found == pytest.approx(case["alpha"][level])
    frame = pd.DataFrame(rows, dtype=float)
    assert agreement.krippendorff_alpha(frame, level) == pytest.approx(found)


@few
@given(ratings)
def test_krippendorff_by_pairs(rows):
    rated = [[v for v in row if v is not None] for row in rows]
    rated = [row for row in rated if len(row) > 1]
    pooled = [v for row in rated for v in row]
    if len(set(pooled)) < 2:
        with pytest.raises(InputError):
            agreement.krippendorff_alpha(rows, "interval")
        return
    seen = [
        (a - b) ** 2 / (len(row) - 1) for row in rated for a, b in itertools.permutations(row, 2)
    ]
    chance = [(a - b) ** 2 for a, b in itertools.permutations(pooled, 2)]
    expected = 1 - sum(seen) / len(pooled) / np.mean(chance)
    found = agreement.krippendorff_alpha(rows, "interval")
    assert found == pytest.approx(expected, abs=1e-9)


def test_two_values_have_one_distance():
    rows = [[1, 1, 2], [2, 2, 2], [1, 1, None], [1, 2, None]]
    values = [agreement.krippendorff_alpha(rows, level) for level in LEVELS]
    np.testing.assert_allclose(values, values[0])


def test_ordinal_words_need_their_order():
    rows = [["low", "mid"], ["high", "high"], ["low", "low"], ["mid", "high"]]
    with pytest.raises(InputError, match="`labels` argument must be given in order"):
        agreement.krippendorff_alpha(rows, "ordinal")
    numbers = [[{"low": 1, "mid": 2, "high": 3}[v] for v in row] for row in rows]
    expected = agreement.krippendorff_alpha(numbers, "ordinal")
    order = ["low", "mid", "high"]
    assert agreement.krippendorff_alpha(rows, "ordinal", labels=order) == expected


# --- majorities


def test_majorities():
    rows = [["a", "a", "b"], ["a", "b", None], ["c", "c", "c"], [None, None, None]]
    found = agreement.majority_labels(rows)
    assert found["label"].tolist() == ["a", "a", "c", None]
    assert found["tied"].tolist() == [False, True, False, False]
    assert found["majority"].tolist() == [True, False, True, False]
    assert found["supermajority"].tolist() == [True, False, True, False]
    assert np.isnan(found["share"].iloc[3])
    assert agreement.majority_share(rows) == pytest.approx(2 / 3)
    assert agreement.majority_share(rows, 0.5) == 1
    assert agreement.majority_share(rows, 1) == pytest.approx(1 / 3)


def test_ids_and_counts():
    frame = pd.DataFrame([[2, 1], [0, 3]], index=["u", "v"], columns=["no", "yes"])
    found = agreement.majority_labels(counts=frame)
    assert found.index.tolist() == ["u", "v"]
    assert found["label"].tolist() == ["no", "yes"]
    table = agreement.fleiss_kappa_test(counts=frame, labels=["yes", "no"])
    assert table.index.tolist() == ["overall", "yes", "no"]
    assert table.loc["yes", "share"] == pytest.approx(4 / 6)


@pytest.mark.parametrize(
    ("name", "args", "options", "words"),
    [
        ("fleiss_kappa", ([["a", "a"], ["a", "a"]],), {}, "0 / 0"),
        ("fleiss_kappa", ([["a"], ["b"]],), {}, "at most one rating per unit"),
        ("fleiss_kappa", ([],), {}, "a row per unit"),
        ("fleiss_kappa", (["ab", "ba"],), {}, "a row per unit"),
        ("fleiss_kappa", ([[None, None]],), {}, "with at least one rating"),
        ("fleiss_kappa", (), {}, "exactly one of `ratings` and `counts`"),
        ("fleiss_kappa", (), {"counts": [[1.5, 2]]}, "whole numbers. Got 1.5"),
        ("fleiss_kappa", (), {"counts": [[-1, 2]]}, "-1.0 at row 1, column 1"),
        ("fleiss_kappa", ([["a", "b"]],), {"labels": ["a"]}, "'b' at position 2"),
        ("krippendorff_alpha", ([["a", "a"], ["a", "a"]],), {}, "0 / 0"),
        ("krippendorff_alpha", ([["a"], ["b"]],), {}, "at most one rating per unit"),
        (
            "krippendorff_alpha",
            ([["a", "b"]], "interval"),
            {},
            'numbers for measurement="interval"',
        ),
        ("krippendorff_alpha", ([[-1, 2]], "ratio"), {}, "at least 0"),
        ("krippendorff_alpha", ([[1, 2]], "nominals"), {}, "one of nominal"),
        ("majority_share", ([["a"]], 0), {}, "above 0 and at most 1"),
        ("majority_share", ([["a"]], "most"), {}, "above 0 and at most 1"),
    ],
)
def test_refused(name, args, options, words):
    with pytest.raises(InputError) as error:
        getattr(agreement, name)(*args, **options)
    assert words in str(error.value)
