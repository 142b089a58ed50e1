"""Confidence: by definition over all orders of ties, and laws."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from irtcat import agreement
from irtcat._common.checks import InputError

few = settings(max_examples=50, deadline=None)
answers = st.lists(
    st.tuples(st.sampled_from("ab"), st.sampled_from("ab"), st.integers(0, 3)),
    min_size=1,
    max_size=6,
)


def over_orders(rows, score):
    """Mean of a score over all orders in which confidence does not rise."""
    orders = itertools.permutations(rows)
    fair = [o for o in orders if all(a[2] >= b[2] for a, b in itertools.pairwise(o))]
    return np.mean([score(o) for o in fair])


def mean_accuracy(rows):
    right = [g == s for g, s, _ in rows]
    return np.mean([np.mean(right[:i]) for i in range(1, len(rows) + 1)])


@pytest.mark.slow
@few
@given(answers)
def test_confidence_weighted_score(rows):
    gold, system, confidence = zip(*rows, strict=True)
    found = agreement.confidence_weighted_score(gold, system, confidence)
    assert found == pytest.approx(over_orders(rows, mean_accuracy))
    weights = agreement.confidence_weights(confidence, "harmonic")
    assert found == pytest.approx(agreement.accuracy(gold, system, weights=weights))


@few
@given(answers)
def test_average_precision(rows):
    gold, _, confidence = zip(*rows, strict=True)
    if "a" not in gold:
        return

    def precisions(order, only):
        hits = [g == "a" for g, *_ in order]
        ranks = [i for i in range(len(hits)) if hits[i] or not only]
        return np.mean([np.mean(hits[: i + 1]) for i in ranks])

    for cutoffs, only in (("positives", True), ("all", False)):
        found = agreement.average_precision(gold, confidence, "a", cutoffs)
        assert found == pytest.approx(over_orders(rows, lambda o, only=only: precisions(o, only)))


@pytest.mark.slow
@few
@given(answers)
def test_sound_outputs_are_perfect_for_some_gold_standard(rows):
    """Bergmair (2009), section 4.1, over all gold standards and all orders of ties."""
    _, system, confidence = zip(*rows, strict=True)
    ranked = itertools.permutations(zip(confidence, system, strict=True))
    sound = any(
        all(one[0] >= two[0] and one[1] <= two[1] for one, two in itertools.pairwise(order))
        for order in ranked
    )
    assert agreement.is_sound(system, confidence, "a") == sound
    assert agreement.is_self_contradictory(system, confidence, "a") != sound
    perfect = [
        gold
        for gold in itertools.product("ab", repeat=len(rows))
        if "a" in gold
        and agreement.accuracy(gold, system) == 1
        and agreement.average_precision(gold, confidence, "a") == pytest.approx(1)
    ]
    if perfect:
        assert sound
    elif sound and "a" in system:  # only an order of ties other than the mean one is perfect
        assert len(set(confidence)) < len(confidence)


three_way = st.lists(
    st.tuples(st.sampled_from("ECU"), st.sampled_from("ECU"), st.integers(1, 5)),
    min_size=3,
    max_size=12,
)
NEGATED = {"E": "C", "U": "U", "C": "E"}


@pytest.mark.slow
@few
@given(three_way)
def test_measures_are_symmetric_under_negation(rows):
    """Negation turns entailment into contradiction: a measure must not care (section 4.2)."""
    gold, system, weights = zip(*rows, strict=True)
    measures = [
        agreement.accuracy,
        agreement.balanced_accuracy,
        agreement.entropy,
        agreement.conditional_entropy,
        agreement.mutual_information,
    ]
    if len(set(gold) | set(system)) > 1:
        measures.append(agreement.cohen_kappa)
    not_gold, not_system = ([NEGATED[label] for label in labels] for labels in (gold, system))
    for measure in measures:
        found = measure(gold, system, weights=weights)
        assert measure(not_gold, not_system, weights=weights) == pytest.approx(found, nan_ok=True)
    found = agreement.confidence_weighted_score(gold, system, weights)
    negated = agreement.confidence_weighted_score(not_gold, not_system, weights)
    assert negated == pytest.approx(found)


def test_two_way_accuracy_and_average_precision_are_not_symmetric():
    gold, system = list("EEUC"), list("EUUU")
    two_way = [[label == "E" for label in labels] for labels in (gold, system)]
    negated = [[NEGATED[label] == "E" for label in labels] for labels in (gold, system)]
    assert agreement.accuracy(*two_way) == agreement.accuracy(*negated) == 0.75
    system = list("EUUC")
    two_way = [[label == "E" for label in labels] for labels in (gold, system)]
    negated = [[NEGATED[label] == "E" for label in labels] for labels in (gold, system)]
    assert agreement.accuracy(*two_way) != agreement.accuracy(*negated)
    ranking = [4, 1, 3, 2]
    one = agreement.average_precision(gold, ranking, "E")
    assert one != agreement.average_precision(gold, [-c for c in ranking], "C")


def test_average_precision_is_scikit_learns(reference):
    case = reference("agreement")["average_precision"]
    found = agreement.average_precision(case["gold"], case["confidence"])
    assert found == pytest.approx(case["value"])


@pytest.mark.parametrize("scheme", ["linear", "harmonic"])
def test_weights(scheme):
    rng = np.random.default_rng(0)
    confidence = rng.integers(0, 9, 30)
    weights = agreement.confidence_weights(confidence, scheme)
    assert weights.sum() == pytest.approx(1)
    order = np.argsort(confidence, kind="stable")
    assert (np.diff(weights[order]) >= 0).all()
    assert (np.diff(weights[order])[np.diff(confidence[order]) == 0] == 0).all()
    turned = agreement.confidence_weights(np.exp(confidence), scheme)  # ranks alone count
    np.testing.assert_allclose(weights, turned)
    np.testing.assert_allclose(agreement.confidence_weights([5] * 4, scheme), 0.25)
    assert agreement.confidence_weights([3], scheme).tolist() == [1]


def test_two_dimensions_of_confidence():
    """Section 5.3: all weight on one instance makes the task trivial, and H(G) says so."""
    gold, system = ["E", "U", "C", "E"], ["E", "U", "C", "C"]
    alone = agreement.entropy(gold, weights=[1, 0, 0, 0])
    assert alone == agreement.mutual_information(gold, system, weights=[1, 0, 0, 0]) == 0
    sure = agreement.confidence_weights([9, 8, 7, 1])  # least confident where it is wrong
    unsure = agreement.confidence_weights([1, 2, 3, 9])
    shares = [
        agreement.mutual_information(gold, system, weights=w, normalise="gold")
        for w in (sure, unsure)
    ]
    assert shares[0] > shares[1]


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: agreement.confidence_weights([]), "a list of numbers. Got 'nothing'"),
        (lambda: agreement.confidence_weights([1, np.nan]), "nan at position 2"),
        (lambda: agreement.confidence_weights([1], "softmax"), "one of linear, harmonic"),
        (lambda: agreement.average_precision(["a"], [1, 2], "a"), "as long as gold (1 labels)"),
        (lambda: agreement.average_precision(["a"], [1], "b"), "occurs in gold. Got \"'b'\""),
        (lambda: agreement.average_precision(["a", None], [1, 2], "a"), "none at position 2"),
        (lambda: agreement.confidence_weighted_score(["a"], ["a"], [1, 2]), "1 numbers"),
    ],
)
def test_refused(call, words):
    with pytest.raises(InputError) as error:
        call()
    assert words in str(error.value)
