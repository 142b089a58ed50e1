"""Two labellings: against scikit-learn and statsmodels, the paper's figures, and laws."""

import itertools

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from irtcat import agreement
from irtcat._common.checks import InputError

few = settings(max_examples=60, deadline=None)
TABLE = np.array([[0.20, 0.25, 0.05], [0.09, 0.18, 0.09], [0.01, 0.07, 0.06]])
"""Figure 2 of Bergmair (2009): gold E, U, C in rows, the system's E, U, C in columns."""

MERGED = np.column_stack([TABLE[:, 0] + TABLE[:, 1], np.zeros(3), TABLE[:, 2]])
MEASURES = ("accuracy", "balanced_accuracy", "cohen_kappa", "mutual_information")

lists = st.integers(2, 15).flatmap(
    lambda n: st.tuples(*[st.lists(st.sampled_from("abcd"), min_size=n, max_size=n) for _ in "xy"])
)


@pytest.fixture(scope="module")
def two(reference):
    return reference("agreement")["two_raters"]


# --- other programs


@pytest.mark.parametrize("distance", ["nominal", "linear", "quadratic"])
def test_kappa_and_its_test(two, distance):
    x, y, weights = two["x"], two["y"], two["weights"]
    assert agreement.cohen_kappa(x, y, distance=distance) == pytest.approx(two["kappa"][distance])
    weighted = agreement.cohen_kappa(x, y, distance=distance, weights=weights)
    assert weighted == pytest.approx(two["kappa"][f"{distance}_weights"])
    found = agreement.cohen_kappa_test(x, y, distance=distance)
    for name, value in two["test"][distance].items():
        assert getattr(found, name) == pytest.approx(value, rel=1e-9), name
    assert found.to_frame().loc[0, "n"] == 60


def test_accuracies(two):
    x, y = two["x"], two["y"]
    assert agreement.accuracy(x, y) == pytest.approx(two["accuracy"])
    weighted = agreement.accuracy(x, y, weights=two["weights"])
    assert weighted == pytest.approx(two["accuracy_weights"])
    assert agreement.balanced_accuracy(x, y) == pytest.approx(two["balanced_accuracy"])
    assert agreement.conditioned_accuracies(x, y).tolist() == pytest.approx(two["recall"])
    precision = agreement.conditioned_accuracies(x, y, given="system")
    assert precision.tolist() == pytest.approx(two["precision"])


def test_information(two):
    x, y = two["x"], two["y"]
    assert agreement.mutual_information(x, y) == pytest.approx(two["mutual_information"])
    for form, value in two["normalised"].items():
        assert agreement.mutual_information(x, y, normalise=form) == pytest.approx(value), form
    joint = agreement.mutual_information(x, y, normalise="joint")
    pairs = [f"{a}{b}" for a, b in zip(x, y, strict=True)]
    assert joint == pytest.approx(two["mutual_information"] / agreement.entropy(pairs))


# --- papers/002: Bergmair (2009), Figure 2


def test_figure_2():
    assert agreement.entropy(TABLE) == pytest.approx(1.4277, abs=5e-5)
    given_label = agreement.conditional_entropies(TABLE, labels=["E", "U", "C"])
    assert given_label["E"] == pytest.approx(1.0746, abs=5e-5)
    assert given_label["U"] == pytest.approx(agreement.entropy(TABLE))  # nothing is revealed
    assert given_label["C"] == pytest.approx(1.5395, abs=5e-5)
    assert agreement.conditional_entropy(TABLE) == pytest.approx(1.3441, abs=5e-5)
    assert agreement.mutual_information(TABLE) == pytest.approx(0.0836, abs=5e-5)
    assert agreement.accuracy(TABLE) == pytest.approx(0.44)
    assert agreement.cohen_kappa(TABLE) == pytest.approx(0.1277, abs=5e-5)


def test_figure_2_with_u_merged_into_e():
    assert agreement.conditional_entropy(MERGED) == pytest.approx(1.3703, abs=5e-5)
    # The text prints 0.0262 for what remains. By its own H(G) - H(G | L) that is what is lost:
    # 0.0836 - 0.0574, both rounded.
    left = agreement.mutual_information(MERGED)
    assert left == pytest.approx(0.0574, abs=5e-5)
    whole = agreement.mutual_information(TABLE)
    assert round(round(whole, 4) - round(left, 4), 4) == 0.0262
    assert agreement.accuracy(MERGED) == pytest.approx(0.51)
    kappa = agreement.cohen_kappa(MERGED)
    assert kappa == pytest.approx(0.14336, abs=5e-6)
    assert int(kappa * 10_000) == 1433  # as printed: cut off, not rounded


def test_trivial_systems():
    """Section 3: constant labels, and random ones, know nothing; accuracy does not say so."""
    gold = TABLE.sum(axis=1)
    for constant in range(3):
        joint = np.zeros((3, 3))
        joint[:, constant] = gold
        assert agreement.accuracy(joint) == pytest.approx([0.5, 0.36, 0.14][constant])
        assert agreement.balanced_accuracy(joint) == pytest.approx(1 / 3)
        assert agreement.mutual_information(joint) == 0
        assert agreement.cohen_kappa(joint) == pytest.approx(0, abs=1e-12)
        assert agreement.conditional_entropy(joint) == pytest.approx(agreement.entropy(joint))
    for system in ([1, 1, 1], [0.5, 0.3, 0.2]):
        joint = np.outer(gold, system)
        assert agreement.mutual_information(joint) == pytest.approx(0, abs=1e-12)
        assert agreement.cohen_kappa(joint) == pytest.approx(0, abs=1e-12)


def test_a_perfect_system():
    joint = np.diag(TABLE.sum(axis=1))
    assert agreement.conditional_entropy(joint) == 0
    assert agreement.cohen_kappa(joint) == 1
    assert agreement.mutual_information(joint) == pytest.approx(agreement.entropy(joint))


def test_all_at_once():
    row = agreement.label_agreement(TABLE)
    assert row["kappa"] == pytest.approx(agreement.cohen_kappa(TABLE))
    assert row["gold_entropy"] - row["conditional_entropy"] == pytest.approx(
        row["mutual_information"]
    )


# --- laws


@pytest.mark.slow
@few
@given(lists)
def test_information_is_symmetric_bounded_and_a_difference(pair):
    x, y = pair
    bits = agreement.mutual_information(x, y)
    assert bits == pytest.approx(agreement.mutual_information(y, x), abs=1e-12)
    h, k = agreement.entropy(x), agreement.entropy(y)
    assert bits == pytest.approx(h - agreement.conditional_entropy(x, y), abs=1e-9)
    assert -1e-12 <= bits <= min(h, k) + 1e-9
    by_label = agreement.conditional_entropies(x, y)
    share = pd.Series(y).value_counts(normalize=True)
    whole = sum(share[label] * value for label, value in by_label.dropna().items())
    assert agreement.conditional_entropy(x, y) == pytest.approx(whole, abs=1e-9)


@pytest.mark.slow
@few
@given(lists, st.permutations("abcd"))
def test_names_and_order_do_not_matter(pair, names):
    x, y = pair
    new = dict(zip("abcd", names, strict=True))
    order = np.random.default_rng(len(x)).permutation(len(x))
    turned = [[new[z[i]] for i in order] for z in pair]
    for name in MEASURES:
        measure = getattr(agreement, name)
        if name == "cohen_kappa" and len({*x, *y}) == 1:
            continue
        assert measure(x, y) == pytest.approx(measure(*turned), abs=1e-12), name


@pytest.mark.slow
@few
@given(lists)
def test_merging_the_systems_labels_never_adds_information(pair):
    x, y = pair
    merged = ["a" if label == "b" else label for label in y]
    assert agreement.mutual_information(x, merged) <= agreement.mutual_information(x, y) + 1e-12


@pytest.mark.slow
@few
@given(lists, st.integers(0, 9))
def test_weights_are_repetitions(pair, seed):
    x, y = pair
    times = np.random.default_rng(seed).integers(0, 4, len(x))
    if not times.any():
        return
    long = [np.repeat(z, times) for z in pair]
    for name in MEASURES:
        if name == "cohen_kappa" and len({*long[0], *long[1]}) == 1:
            continue
        measure = getattr(agreement, name)
        assert measure(x, y, weights=times) == pytest.approx(measure(*long), abs=1e-12)


@pytest.mark.slow
@settings(max_examples=20, deadline=None)
@given(lists)
def test_tables_are_lists(pair):
    x, y = pair
    table = agreement.joint_table(x, y, labels=list("abcd"))
    assert table.to_numpy().sum() == pytest.approx(1)
    counts = pd.crosstab(pd.Series(x), pd.Series(y)).reindex(
        index=list("abcd"), columns=list("dcba"), fill_value=0
    )
    for name in MEASURES:
        if name == "cohen_kappa" and len({*x, *y}) == 1:
            continue
        measure = getattr(agreement, name)
        assert measure(table) == pytest.approx(measure(x, y), abs=1e-12)
        assert measure(counts) == pytest.approx(measure(x, y), abs=1e-12)


def test_kappa_by_its_definition():
    rng = np.random.default_rng(3)
    x, y = rng.integers(0, 4, (2, 50))
    d = np.abs(np.subtract.outer([0, 1, 5, 6], [0, 1, 5, 6])) ** 1.5
    seen = np.mean([d[a, b] for a, b in zip(x, y, strict=True)])
    chance = np.mean([d[a, b] for a, b in itertools.product(x, y)])
    assert agreement.cohen_kappa(x, y, distance=d) == pytest.approx(1 - seen / chance)


def test_kappa_errors_hold_in_simulation():
    rng = np.random.default_rng(0)
    p = TABLE + 0.05 * np.eye(3)
    tables = rng.multinomial(400, (p / p.sum()).ravel(), size=1500).reshape(-1, 3, 3)
    kappas = [agreement.cohen_kappa(t, distance="linear") for t in tables]
    found = agreement.cohen_kappa_test(p / p.sum(), distance="linear", n=400)
    assert np.std(kappas) == pytest.approx(found.standard_error, rel=0.06)
    apart = np.outer(p.sum(axis=1), p.sum(axis=0))
    tables = rng.multinomial(400, (apart / apart.sum()).ravel(), size=1500).reshape(-1, 3, 3)
    kappas = [agreement.cohen_kappa(t, distance="linear") for t in tables]
    assert np.std(kappas) == pytest.approx(found.null_standard_error, rel=0.06)


# --- input


@pytest.mark.parametrize(
    "kind", [list, tuple, np.array, pd.Series, lambda v: pd.Series(v, dtype="category")]
)
def test_any_labels_in_any_list(kind):
    x, y = ["no", "yes", "yes", "maybe"], ["no", "yes", "no", "maybe"]
    assert agreement.accuracy(kind(x), kind(y)) == 0.75
    tuples = [(1, "a"), (2, "b"), (1, "a")]
    assert agreement.accuracy(tuples, tuples) == 1
    assert agreement.joint_table(tuples, tuples).index.tolist() == [(1, "a"), (2, "b")]
    assert agreement.accuracy([1, 2], np.array([1.0, 3.0])) == 0.5


def test_inputs_are_left_alone():
    table, weights = TABLE.copy(), np.array([1.0, 2.0])
    agreement.label_agreement(table)
    agreement.accuracy(["a", "b"], ["a", "a"], weights=weights)
    np.testing.assert_array_equal(table, TABLE)
    np.testing.assert_array_equal(weights, [1, 2])


@pytest.mark.parametrize("name", MEASURES)
@pytest.mark.parametrize(
    ("args", "options", "words"),
    [
        (([], []), {}, "a list of labels. Got 'nothing'"),
        ((["a"], ["a", "b"]), {}, "(1 labels). Got '2 labels'"),
        (("ab", "ab"), {}, "a list of labels. Got 'ab'"),
        ((["a", None], ["a", "b"]), {}, "a label everywhere. Got 'none at position 2"),
        ((["a", "b"], ["a", np.nan]), {}, "a label everywhere. Got 'none at position 2"),
        ((["a", "b"], ["a", "c"]), {"labels": ["a", "b"]}, "'c' at position 2"),
        ((["a", "b"], ["a", "b"]), {"labels": ["a", "a"]}, "distinct labels"),
        ((["a", "b"], ["a", "b"]), {"labels": []}, "distinct labels"),
        (([1, 2], ["1", "2"]), {}, "labels of one type. Got \"both 1 and '1'\""),
        (([[1], [2]], [[1], [2]]), {}, "hashable labels"),
        ((["a", "b"], ["a", "b"]), {"weights": [1]}, "2 numbers, one per observation"),
        ((["a", "b"], ["a", "b"]), {"weights": [1, -1]}, "at least 0. Got '-1.0 at position 2"),
        ((["a", "b"], ["a", "b"]), {"weights": [0, 0]}, "only zeros"),
        ((["a", "b"], ["a", "b"]), {"weights": [1, np.nan]}, "nan at position 2"),
        ((["a", "b"],), {}, "a joint table if"),
        (([[1, -1], [0, 2]],), {}, "-1.0 at row 1, column 2"),
        (([[1, np.nan], [0, 2]],), {}, "nan at row 1, column 2"),
        ((np.zeros((2, 2)),), {}, "only zeros"),
        ((np.zeros((0, 0)),), {}, "shape (0, 0)"),
        ((TABLE,), {"weights": [1, 1]}, "left out with a joint table"),
        ((TABLE,), {"labels": ["a", "b"]}, "labels of a table of shape (3, 3)"),
    ],
)
def test_refused(name, args, options, words):
    with pytest.raises(InputError) as error:
        getattr(agreement, name)(*args, **options)
    assert words in str(error.value)


def test_other_refusals():
    constant = (["a", "a"], ["a", "a"])
    for name in ("cohen_kappa", "cohen_kappa_test"):
        with pytest.raises(InputError, match="0 / 0"):
            getattr(agreement, name)(*constant)
    with pytest.raises(InputError, match="one label only"):
        agreement.mutual_information(*constant, normalise="min")
    assert agreement.mutual_information(*constant) == agreement.entropy(constant[0]) == 0
    words = (["low", "high", "mid"], ["low", "mid", "mid"])
    with pytest.raises(InputError, match="`labels` argument must be given in order"):
        agreement.cohen_kappa(*words, distance="linear")
    order = ["low", "mid", "high"]
    assert agreement.cohen_kappa(*words, distance="linear", labels=order) == pytest.approx(4 / 7)
    with pytest.raises(InputError, match="Weighted kappa is `distance="):
        agreement.cohen_kappa(*words, weights="quadratic")
    with pytest.raises(InputError, match="must be one of nominal"):
        agreement.cohen_kappa([1, 2], [1, 2], distance="cubic")
    for bad in (np.ones((2, 2)), np.ones((3, 3)), [[0, -1], [1, 0]], [[0, np.inf], [1, 0]]):
        with pytest.raises(InputError, match="2 x 2 matrix"):
            agreement.cohen_kappa([1, 2], [1, 1], distance=bad)
    with pytest.raises(InputError, match="number of observations"):
        agreement.cohen_kappa_test(TABLE)
    with pytest.raises(InputError, match="`n` argument"):
        agreement.cohen_kappa_test([[3, 1], [1, 3]], n=9)
    frame = pd.DataFrame([[1, 2], [3, 4]], index=["a", "b"], columns=["a", "c"])
    with pytest.raises(InputError, match="the same labels in rows and columns"):
        agreement.accuracy(frame)
    assert agreement.mutual_information(frame) > 0
    with pytest.raises(InputError, match="a label that the system gives"):
        agreement.conditional_entropy(["a", "b"], ["a", "a"], given="b")


def test_labels_that_do_not_occur():
    found = agreement.conditioned_accuracies(["a", "b"], ["a", "a"], labels=["a", "b", "c"])
    assert found.tolist()[:2] == [1, 0]
    assert np.isnan(found["c"])
    assert agreement.balanced_accuracy(["a", "b"], ["a", "a"], labels=["a", "b", "c"]) == 0.5
    assert np.isnan(agreement.conditional_entropies(["a", "b"], ["a", "a"], labels=["a", "b"])["b"])
    one = agreement.cohen_kappa_test([[5, 5], [0, 0]])
    assert one.kappa == pytest.approx(0)
    assert np.isnan(one.z)
    assert one.null_standard_error == 0
