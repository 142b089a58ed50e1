"""The shipped example: every key is checked by a computation, and the test can be taken."""

import itertools
import re
import tomllib
from dataclasses import replace
from fractions import Fraction
from math import hypot, isclose, pi

import numpy as np
import pandas as pd
import pytest

from irtcat import ItemBank, load
from irtcat.service import example
from irtcat.service.content import (
    KINDS,
    check_against_bank,
    checked_response,
    read_items,
    scored,
    write_qti,
)
from irtcat.service.content.html import plain_text


def made_bank():
    """The bank of the example from its table; `bank.npz` holds it."""
    table = pd.read_csv(example.folder() / "parameters.csv", index_col="id")
    items = ItemBank.from_thresholds(
        a=table["a"].to_numpy(),
        b=table[["b1", "b2"]].to_numpy(),
        model="gpcm",
        item_ids=np.asarray(table.index, dtype=object),
    )
    origin = "invented for the demonstration; not estimated from responses"
    return replace(items, items=table[["topic"]], provenance={"parameters": origin})


RAIN = [48, 35, 52, 61, 44, 30]
DICE, COINS = range(1, 7), list(itertools.product("HT", repeat=2))
BALLS = list(itertools.permutations(["r1", "r2", "r3", "b1", "b2"], 2))
BOTH_RED = Fraction(sum(a[0] == b[0] == "r" for a, b in BALLS), len(BALLS))
ROOTS = {x for x in range(-9, 10) if x * x - 5 * x + 6 == 0}

ANSWERS = {
    "m01": max(0.405, 0.5, 0.45, 0.054),
    "m02": 80 * (1 - Fraction(25, 100)),
    "m03": Fraction(2, 3) + Fraction(1, 4),
    "m04": Fraction(300, 4) * 6,
    "m07": 3 * 10**4 + 5 * 10**3,
    "m09": next(x for x in range(100) if 3 * x + 5 == 20),
    "m11": 4 + 3 * (20 - 1),
    "m12": Fraction(10 - 2, 4 - 0),
    "m13": max(next((n, n + 1, n + 2) for n in range(72) if 3 * n + 3 == 72)),
    "m17": hypot(6, 8),
    "m18": 2 * (7 + 4),
    "m19": 180 - 50 - 60,
    "m20": pi * 2**2 / (pi * 1**2),
    "m21": 200 * 50 * 30 / 1000,
    "m22": 4 * 50_000 / 100_000,
    "m24": np.mean(RAIN),
    "m25": np.median(RAIN),
    "m27": Fraction(sum(n > 4 for n in DICE), 6),
    "m28": Fraction(sum(c.count("H") == 1 for c in COINS), 4),
    "m29": 5 * 7 - 4 * 6,
    "m30": BOTH_RED,
}
"""The right answer to each item whose answer is a number."""

NUMERALS = re.compile(r"-?\d+(?: \d{3})*(?:\.\d+)?")


@pytest.fixture(scope="module")
def items():
    return read_items(example.folder() / "items")


def number_in(html):
    """The number that a choice states: a fraction in MathML, or a numeral with its unit."""
    fraction = re.search(r"<mfrac><mrow><mn>(\d+)</mn></mrow><mrow><mn>(\d+)</mn></mrow>", html)
    if fraction:
        return Fraction(int(fraction[1]), int(fraction[2]))
    return float(NUMERALS.match(plain_text(html))[0].replace(" ", ""))


def full_score(items, name, response):
    return scored(items.keys[name], items[name], response, items.keys[name].categories) == (
        items.keys[name].categories - 1
    )


@pytest.mark.parametrize("name", ANSWERS)
def test_numbers(items, name):
    """One choice states the right number and only it scores; or the number entered scores."""
    item, answer = items[name], ANSWERS[name]
    if item.kind == "text":
        assert full_score(items, name, f"{float(answer):g}")
        assert not full_score(items, name, f"{float(answer) + 1:g}")
        return
    right = [c.id for c in item.choices if isclose(number_in(c.content_html), answer)]
    assert len(right) == 1
    assert [c for c in item.choice_ids if full_score(items, name, c)] == right


def test_order(items):
    values = {
        c.id: float(number_in(c.content_html))
        if "mfrac" in c.content_html
        else float(plain_text(c.content_html))
        for c in items["m05"].choices
    }
    assert values == {"A": 1 / 2, "B": 2 / 3, "C": 3 / 8, "D": 0.6}
    assert full_score(items, "m05", sorted(values, key=values.get))


def test_several(items):
    numbers = {c.id: int(plain_text(c.content_html)) for c in items["m08"].choices}
    primes = [c for c, n in numbers.items() if all(n % d for d in range(2, n))]
    assert full_score(items, "m08", primes)
    numbers = {c.id: int(plain_text(c.content_html)) for c in items["m16"].choices}
    for pair in itertools.combinations(numbers, 2):
        score = sum(2 * numbers[c] + 1 > 7 for c in pair)
        assert scored(items.keys["m16"], items["m16"], list(pair), 3) == score


def test_expressions(items):
    """Each key by values of the expressions; the others are no alternatives."""
    for k in (1, 2, 10):
        fares = {"A": 4 + 1.5 * k, "B": 5.5 * k, "C": 1.5 + 4 * k, "D": 4 * 1.5 * k}
        if k > 1:
            assert [c for c, fare in fares.items() if fare == 4 + sum([1.5] * k)] == ["A"]
    assert items.keys["m15"].correct == ("A",)
    terms = {
        "A": lambda x: x + 3,
        "B": lambda x: x + 6,
        "C": lambda x: 3 * x + 6,
        "D": lambda x: 2 * x + 6,
    }
    same = [c for c, f in terms.items() if all(f(x) == 2 * (x + 3) - x for x in range(-5, 6))]
    assert items.keys["m10"].correct == tuple(same) == ("B",)
    pairs = {"A": {-2, -3}, "B": {-1, 6}, "C": {1, 6}, "D": {2, 3}}
    assert items.keys["m14"].correct == tuple(c for c, pair in pairs.items() if pair == ROOTS)
    change = Fraction(120, 100) * Fraction(80, 100) - 1
    assert change == Fraction(-4, 100)
    assert plain_text(items["m06"].choices[1].content_html) == "It is 4 % lower."
    assert items.keys["m06"].correct == ("B",)


def test_pictures_show_what_the_items_say(items):
    """The triangle has sides of 6 and 8 in its proportions; 3 of 8 squares are shaded."""
    triangle = (example.folder() / "items/triangle.svg").read_text(encoding="utf-8")
    x0, y0, _, y1, x1, _ = map(int, re.findall(r"\d+", re.search(r'd="(M[^"]*Z)"', triangle)[1]))
    assert Fraction(abs(y1 - y0), x1 - x0) == Fraction(6, 8)
    grid = (example.folder() / "items/grid.svg").read_text(encoding="utf-8")
    shaded, squares = grid.count('fill="#4477aa"'), grid.count('width="60"')
    right = next(c for c in items["m23"].choices if full_score(items, "m23", c.id))
    assert number_in(right.content_html) == Fraction(shaded, squares) == Fraction(3, 8)


def test_stimulus_has_the_numbers(items):
    assert [int(n) for n in re.findall(r">(\d+)<", items.stimuli["rainfall"].content_html)] == RAIN
    assert [i for i in items if items[i].stimulus] == ["m24", "m25"]


def test_hottext_marks_the_generalisation(items):
    """14 of 20 is 70 % of those asked, and the rest 30 %; nothing follows for a country."""
    assert Fraction(14, 20) == Fraction(70, 100)
    assert items.keys["m26"].correct == ("C",)
    assert "in this country" in items["m26"].choices[2].content_html


def test_what_the_example_shows(items):
    """30 scored items of five kinds, a picture, a formula, a stimulus, partial credit."""
    bank = made_bank()
    check_against_bank(items, bank)
    assert len(bank) == 30
    assert set(items) - set(items.keys) == {"p1", "p2"}
    kinds = {items[name].kind for name in bank}
    assert kinds == set(KINDS) - {"essay", "match", "associate", "several"}
    assert any("<math" in item.prompt for item in items.items.values())
    assert any(item.media for item in items.items.values())
    assert [key.categories for key in items.keys.values()].count(3) == 1
    topics = bank.items["topic"]
    assert all(items[name].labels == (topics[name],) for name in bank)


def test_every_key_gives_the_full_score_once_checked(items):
    for name, key in items.keys.items():
        item = items[name]
        if key.kind == "match":
            right = key.correct[0] if item.kind in ("choice", "text") else list(key.correct)
        else:
            right = [value for value, points in key.points if points > 0]
        assert full_score(items, name, checked_response(item, right))


def test_items_show_nothing_of_the_keys(items):
    """An item has the same fields whatever its key is; none is one of the key's."""
    of_keys = {name for key in items.keys.values() for name in key.to_json()} - {"item", "kind"}
    for item in items.items.values():
        assert not set(item.to_json()) & of_keys
        assert all(set(c.to_json()) == {"id", "content_html", "fixed"} for c in item.choices)


@pytest.mark.slow
def test_bank_is_as_its_parameters_and_says_that_they_are_invented():
    bank = load(example.folder() / "bank.npz")
    assert bank == made_bank()
    assert "invented for the demonstration" in bank.provenance["parameters"]
    frame = bank.to_frame()
    assert frame["b"].between(-2.5, 2).all()
    assert frame["b"].idxmin() == "m01"
    assert frame["b"].idxmax() == "m30"


@pytest.mark.slow
def test_round_trip_in_qti(items, tmp_path):
    back = read_items(write_qti(items, tmp_path / "math.zip"))
    assert back == items


def test_definition_fits_the_items_and_the_bank(items):
    with (example.folder() / "math.toml").open("rb") as file:
        test = tomllib.load(file)
    assert load(example.folder() / test["bank"]) == made_bank()
    assert read_items(example.folder() / test["items"]) == items
    by_kind = {section["kind"]: section for section in test["sections"]}
    assert by_kind["practice"]["items"] == ["p1", "p2"]
    assert set(by_kind["fixed"]["items"]) <= set(made_bank())
    cuts = [cut["from"] for cut in test["cuts"]]
    assert cuts == sorted(cuts)
    assert test["score"]["lowest"] < cuts[0] < cuts[-1] < test["score"]["highest"]


@pytest.mark.slow
def test_definition_can_be_published(items):
    definition = pytest.importorskip("irtcat.service.definition")
    test = definition.read_definition(example.folder() / "math.toml")
    definition.check_definition(test, made_bank(), items)


def test_size():
    paths = [path for path in example.folder().rglob("*") if path.suffix not in (".py", ".pyc")]
    assert sum(path.stat().st_size for path in paths if path.is_file()) < 100_000
