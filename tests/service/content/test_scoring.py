"""Responses: their normal form, and scores by match, by map and by people."""

import itertools
from fractions import Fraction

import numpy as np
import pytest

from irtcat import InputError, ItemBank
from irtcat.service.content import (
    Choice,
    Item,
    ItemSet,
    Key,
    check_against_bank,
    checked_response,
    scored,
)
from irtcat.service.content.numerals import number_of

ABC = (Choice("A", "a"), Choice("B", "b"), Choice("C", "c"))
HOT = '<p><span data-choice="A">a</span> <span data-choice="B">b</span></p>'


def item(kind, **fields):
    choices = () if kind in ("text", "essay", "hottext") else ABC
    prompt = HOT if kind == "hottext" else "<p>?</p>"
    return Item(**{"id": "q", "kind": kind, "prompt": prompt, "choices": choices, **fields})


def key(kind, **fields):
    return Key("q", kind, **fields)


@pytest.mark.parametrize(
    ("kind", "fields", "response", "stored"),
    [
        ("choice", {}, "B", "B"),
        ("choice", {}, None, None),
        ("choice", {}, "", None),
        ("choices", {}, ["C", "A"], ["A", "C"]),
        ("choices", {}, [], None),
        ("order", {}, ["C", "A", "B"], ["C", "A", "B"]),
        ("hottext", {}, ["B"], ["B"]),
        ("text", {}, "  twelve\u00a0", "twelve"),
        ("text", {}, "e\u0301te\u0301", "\u00e9t\u00e9"),
        ("text", {"numeric": True}, " 1,5 ", "1,5"),
        ("text", {}, "   ", None),
        ("essay", {}, "a\r\nb\tc\r", "a\nb\tc\n"),
        ("essay", {}, " \n", None),
    ],
)
def test_normal_form(kind, fields, response, stored):
    assert checked_response(item(kind, **fields), response) == stored
    assert checked_response(item(kind, **fields), stored) == stored


@pytest.mark.parametrize(
    ("kind", "fields", "response", "message"),
    [
        ("choice", {}, "D", "expected one of A, B, C. Got 'D'"),
        ("choice", {}, ["A"], "expected one of A, B, C"),
        ("choice", {}, 1, "expected one of A, B, C"),
        ("choice", {}, True, "expected one of"),
        ("choice", {}, {"A": 1}, "expected one of"),
        ("choices", {}, "A", "a list of ids of choices"),
        ("choices", {}, ["A", 1], "a list of ids of choices"),
        ("choices", {}, ["A", "D"], "ids from A, B, C. Got D"),
        ("choices", {}, ["A", "A"], "each choice once"),
        ("choices", {"max_choices": 1}, ["A", "B"], "from 0 to 1 choices. Got 2"),
        ("choices", {"min_choices": 2}, ["A"], "from 2 to 3 choices. Got 1"),
        ("order", {}, ["A", "B"], "all 3 choices in order"),
        ("order", {}, ["A", "B", "B"], "each choice once"),
        ("hottext", {}, "A", "a list of ids"),
        ("text", {}, 12, "a text. Got 12"),
        ("text", {}, "x" * 1001, "at most 1,000 characters"),
        ("text", {}, "a\x00b", "control characters"),
        ("text", {}, "a\nb", "control characters"),
        ("text", {}, "\ud800", "control characters"),
        ("text", {"numeric": True}, "twelve", "a number"),
        ("text", {"numeric": True}, "1,500", "without separators of thousands"),
        ("essay", {}, "x" * 100_001, "at most 100,000 characters"),
        ("essay", {}, ["x"], "a text"),
    ],
)
def test_wrong_responses_say_what_is_wrong(kind, fields, response, message):
    with pytest.raises(InputError, match="response to item q: expected") as caught:
        checked_response(item(kind, **fields), response)
    assert message in str(caught.value)


MATCHES = [
    ("choice", {}, key("match", correct=("B",)), {"B": 1, "A": 0}),
    ("choice", {}, key("match", correct=("B",), max_score=3), {"B": 3, "C": 0}),
    ("text", {}, key("match", correct=("Bern", "Berne")), {"bern": 1, " BERNE ": 1, "Basel": 0}),
    ("text", {}, key("match", correct=("pH",), case_sensitive=True), {"pH": 1, "PH": 0}),
    ("text", {}, key("match", correct=("a b",)), {"a  b": 1, "a\tb": 1, "ab": 0}),
    ("text", {}, key("match", correct=("Straße",)), {"STRASSE": 1, "strase": 0}),
    (
        "text",
        {"numeric": True},
        key("match", correct=("0.75",)),
        {"3/4": 1, ".75": 1, "0,750": 1, "75/100": 1, "+0.75": 1, "0.749": 0},
    ),
    ("text", {"numeric": True, "language": "de"}, key("match", correct=("1500",)), {"1 500": 1}),
    ("text", {"numeric": True}, key("match", correct=("-2",)), {"−2": 1, "- 2": 1, "2": 0}),
]


@pytest.mark.parametrize(("kind", "fields", "rule", "scores"), MATCHES)
def test_match(kind, fields, rule, scores):
    for response, score in scores.items():
        assert scored(rule, item(kind, **fields), response, rule.categories) == score
    assert scored(rule, item(kind, **fields), None, rule.categories) == 0


def test_match_of_lists_by_brute_force():
    """All subsets and all orders: only the right one scores."""
    several, right = item("choices"), key("match", correct=("A", "C"))
    for n in (1, 2, 3):
        for subset in itertools.permutations("ABC", n):
            assert scored(right, several, list(subset), 2) == (set(subset) == {"A", "C"})
    order, right = item("order"), key("match", correct=("B", "A", "C"), max_score=2)
    for response in itertools.permutations("ABC"):
        expected = 2 if response == ("B", "A", "C") else 0
        assert scored(right, order, list(response), 3) == expected
    hot, right = item("hottext"), key("match", correct=("B",))
    assert [scored(right, hot, r, 2) for r in (["A"], ["B"], ["A", "B"])] == [0, 1, 0]


@pytest.mark.parametrize(
    ("default", "lower", "upper"), [(0, 0, None), (-1, 0, 3), (1, None, 2), (0, 0, 1)]
)
def test_map_by_brute_force(default, lower, upper):
    """The sum over the selected choices within the limits, and the highest that can be reached."""
    rule = key("map", points=(("A", 2), ("B", 1)), default=default, lower=lower, upper=upper)
    items = ItemSet([item("choices")], [rule])
    points = {"A": 2, "B": 1, "C": default}
    totals = {0}
    for n in (1, 2, 3):
        for subset in itertools.combinations("ABC", n):
            total = sum(points[c] for c in subset)
            total = total if lower is None else max(total, lower)
            total = total if upper is None else min(total, upper)
            totals.add(total)
            assert scored(items.keys["q"], items["q"], list(subset), 9) == total
    assert items.keys["q"].categories == max(totals) + 1


def test_map_of_one_choice_and_of_text():
    one = ItemSet([item("choice")], [key("map", points={"A": 2, "B": 1})])
    assert [scored(one.keys["q"], one["q"], r, 3) for r in "ABC"] == [2, 1, 0]
    assert one.keys["q"].categories == 3
    text = ItemSet([item("text")], [key("map", points={"mean": 2, "average": 1})])
    assert [scored(text.keys["q"], text["q"], r, 3) for r in ("Mean", "average", "x")] == [2, 1, 0]


def test_people_score_rubrics():
    rule = key("rubric", max_score=3, rubric="<p>Two reasons</p>")
    assert scored(rule, item("essay"), "Because.", 4) is None
    assert scored(rule, item("essay"), " ", 4) == 0
    assert key("rubric", criteria={"content": 2, "form": 1}).categories == 4


@pytest.mark.parametrize(
    ("fields", "unit", "scores"),
    [
        ({"max_score": 1, "unit": 0.5}, 0.5, [0, 0.5, 1]),
        ({"max_score": 1.5}, 0.5, [0, 0.5, 1, 1.5]),
        ({"max_score": 0.5}, 0.5, [0, 0.5]),
        ({"max_score": 2.25}, 0.25, [k / 4 for k in range(10)]),
        ({"max_score": 1, "unit": 0.333333}, 1 / 3, [0, 1 / 3, 2 / 3, 1]),
        ({"criteria": {"content": 0.5, "form": 0.5}}, 0.5, [0, 0.5, 1]),
        ({"criteria": {"content": 2, "form": 1}}, 1, [0, 1, 2, 3]),
        ({"criteria": {"content": 2, "form": 1}, "unit": 0.5}, 0.5, [k / 2 for k in range(7)]),
    ],
)
def test_rubrics_with_parts_of_a_point(fields, unit, scores):
    items = ItemSet([item("essay")], [key("rubric", **fields)])
    found = items.keys["q"]
    assert found.unit == pytest.approx(unit, abs=1e-12)
    assert found.categories == len(scores)
    assert [found.score(k) for k in range(found.categories)] == pytest.approx(scores, abs=1e-9)
    assert [found.category(points) for points in scores] == list(range(len(scores)))
    assert scored(found, items["q"], "Because.", len(scores)) is None
    again = ItemSet.from_json(items.to_json())
    assert (again, again.hash()) == (items, items.hash())


def test_scores_outside_the_categories_are_refused():
    rule = key("map", points={"A": 2, "B": 0.5})
    with pytest.raises(InputError, match=r"item q: expected a whole score from 0 to 1\. Got 2"):
        scored(rule, item("choice"), "A", 2)
    with pytest.raises(InputError, match=r"a whole score from 0 to 2. Got 0.5"):
        scored(rule, item("choice"), "B", 3)
    with pytest.raises(InputError, match="expected the key of q"):
        scored(Key("other", "match", correct=("A",)), item("choice"), "A", 2)
    with pytest.raises(InputError, match="n_categories"):
        scored(rule, item("choice"), "A", 1)


def test_faults_against_the_bank_are_all_named():
    items = ItemSet(
        [item("choice", id=name) for name in ("nokey", "odd", "half", "low", "good")],
        [
            Key("odd", "map", points={"A": 1, "B": 0.123}),
            Key("half", "map", points={"A": 1, "B": 0.5}),
            Key("low", "match", correct=("A",), max_score=2),
            Key("good", "match", correct=("A",)),
        ],
    )
    names = ["nokey", "odd", "half", "low", "good", "lost"]
    bank = ItemBank.from_parameters(b=[0.0] * 6, item_ids=names)
    with pytest.raises(InputError) as caught:
        check_against_bank(items, bank)
    message = str(caught.value)
    assert "item nokey has no key" in message
    assert "item odd can have the score 0.123, which is no multiple of 1" in message
    assert "item half has the scores 0 to 1 in steps of 0.5, and 2 categories" in message
    assert "item low has the scores 0 to 2, and 2 categories in the bank" in message
    assert "item lost has no content" in message
    assert "good" not in message
    check_against_bank(items, bank, ["good"])
    with pytest.raises(InputError, match="item else is not in the bank"):
        check_against_bank(items, bank, ["else"])


@pytest.mark.parametrize(
    ("rule", "unit", "codes"),
    [
        (key("map", points={"A": 1, "B": 0.5}), 0.5, {"A": 2, "B": 1, "C": 0}),
        (key("map", points={"A": 1.5, "B": 0.5}), 0.5, {"A": 3, "B": 1, "C": 0}),
        (key("map", points={"A": 1, "B": 1 / 3}), 1 / 3, {"A": 3, "B": 1, "C": 0}),
        (key("map", points={"A": 2, "B": 1}), 1, {"A": 2, "B": 1, "C": 0}),
        (key("match", correct=("A",), max_score=0.5), 0.5, {"A": 1, "B": 0}),
    ],
)
def test_parts_of_a_point_are_categories(rule, unit, codes):
    items = ItemSet([item("choice")], [rule])
    found = items.keys["q"]
    assert found.unit == pytest.approx(unit, abs=1e-12)
    n = max(codes.values()) + 1
    assert found.categories == n
    assert {value: scored(found, items["q"], value, n) for value in codes} == codes
    assert ItemSet.from_json(items.to_json()).hash() == items.hash()
    assert Key.from_json(found.to_json()) == found
    model = {"a": [1.0], "item_ids": ["q"]}
    banks = {2: ItemBank.from_parameters(b=[0.0], **model)} | {
        m: ItemBank.from_thresholds(b=[np.linspace(-1, 1, m - 1)], model="gpcm", **model)
        for m in (3, 4)
    }
    check_against_bank(items, banks.pop(n))
    for other in banks.values():
        with pytest.raises(InputError, match="categories in the bank"):
            check_against_bank(items, other)


def test_sums_of_half_points_that_are_whole_stay_whole():
    both = item("choices", min_choices=2, max_choices=2)
    rule = Key("q", "map", points={name: 0.5 for name in both.choice_ids})
    found = ItemSet([both], [rule]).keys["q"]
    assert (found.unit, found.categories) == (1, 2)
    assert scored(found, both, list(both.choice_ids[:2]), 2) == 1


def test_partial_credit_fits_a_bank_of_three_categories():
    bank = ItemBank.from_thresholds(a=[1.0], b=[[-1.0, 1.0]], item_ids=["q"], model="gpcm")
    items = ItemSet([item("choice")], [key("map", points={"A": 2, "B": 1})])
    check_against_bank(items, bank)


@pytest.mark.parametrize(
    ("text", "language", "number"),
    [
        ("12", "en", Fraction(12)),
        ("0.50", "en", Fraction(1, 2)),
        ("0,50", "en", Fraction(1, 2)),
        ("1.500", "en", Fraction(3, 2)),
        ("1.500", "de", None),
        ("1,500", "es-MX", Fraction(3, 2)),
        ("1,500", "en-GB", None),
        ("12,345", "en", None),
        ("0,345", "en", Fraction(345, 1000)),
        ("1 234 567", "en", Fraction(1234567)),
        ("1 23", "en", None),
        ("7/0", "en", None),
        ("1.5/2", "en", None),
        ("", "en", None),
        (".", "en", None),
        ("1e3", "en", None),
        ("٣", "ar", Fraction(3)),
        ("--1", "en", None),
        ("1.2.3", "en", None),
        ("9" * 40, "en", None),
    ],
)
def test_numbers(text, language, number):
    assert number_of(text, language) == number
