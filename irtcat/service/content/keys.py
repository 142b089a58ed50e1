"""Keys: how the responses to an item are scored, and the scores that they can give.

A `Key` is stored apart from its `Item` and never sent to takers.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any, NamedTuple

from irtcat._common.checks import brief, shorten
from irtcat.service.base.records import (
    Fault,
    Invalid,
    flag,
    list_of,
    number,
    one_of,
    optional,
    reported,
    setting,
)
from irtcat.service.content.fields import Record, content_error, identifier, set_field, text_of
from irtcat.service.content.html import clean_html
from irtcat.service.content.numerals import number_of
from irtcat.service.content.records import KINDS, MOST_HTML, Item

MOST_SCORE = 100
"""Highest score of an item: item models with more categories cannot be calibrated."""

MOST_TOTALS = 100_000
"""Most different sums of points by number of choices: whole points of 100 choices stay below, and
irregular fractions would double with every choice."""

PRECISION = 1e-6
"""Difference from a multiple that is rounding: points such as 1/3 have no exact decimals."""


KEY_NEEDS = {"match": "correct", "map": "points", "rules": "rules", "rubric": ""}
"""The kinds of keys, and the field that each needs."""


def _pairs(value: Any, where: str, faults: list[Fault]) -> tuple[tuple[str, float], ...]:
    """(name, number) pairs from a mapping or from pairs."""
    entries = list(value.items()) if isinstance(value, Mapping) else value
    out: dict[str, float] = {}
    for entry in entries if isinstance(entries, (list, tuple)) else [None]:
        if not isinstance(entry, (list, tuple)) or len(entry) != 2:
            raise Invalid("values with their points", value)
        label = text_of(1000)(entry[0], where, faults)
        if label in out:
            raise Invalid("a table with each value once", label)
        out[label] = reported(number(), entry[1], f"{where}.{brief(label)}", faults)
    return tuple(out.items())


@dataclass(frozen=True)
class Key(Record):
    """How the responses to an item are scored; stored apart from the item, never sent to takers.

    Four kinds:

    - "match": a response that is entirely right scores ``max_score``, any other 0. ``correct`` has
      the id of the right choice; all ids of the right choices; all right pairs, ``"A B"``; the ids
      in the right order; or for a text each accepted answer.
    - "map": each part of the response (the choice, each selected choice, each pair, the text) has
      points in ``points``, or else ``default``. Their sum, limited to ``lower`` and ``upper``, is
      the score.
    - "rules": response processing of QTI in ``rules`` gives the score, from 0 to ``max_score`` in
      steps of ``unit``.
    - "rubric": people score the response from 0 to ``max_score`` by ``rubric``, in steps of
      ``unit``.

    Attributes:
        item: id of the item.
        kind: "match", "map", "rules" or "rubric".
        correct: the right response of a "match".
        points: (value, points) pairs of a "map".
        default: points of a value that is not in ``points``.
        lower: least score of a "map"; None for no limit.
        upper: greatest score of a "map"; None for no limit.
        case_sensitive: whether texts are compared with their case.
        max_score: highest score. Of a "map" by default the sum of its positive points, limited to
            ``upper``; for an item that takes one choice or a text, the greatest of its points.
        rubric: sanitised HTML for the scorers.
        criteria: (name, points) pairs of a "rubric"; the points sum to ``max_score``.
        unit: points of one category: 1, or the largest part of a point, such as 0.5, of which all
            scores are multiples. A score of 1.5 is then category 3. `ItemSet` finds it; in a
            "rubric" it is also the smallest difference of scores that people give, so that
            ``max_score`` 1 and ``unit`` 0.5 are the scores 0, 0.5 and 1.
        rules: XML of QTI 3.0: an item with only its response declarations, outcome declarations and
            response processing.

    Raises:
        InputError: naming the item and the field.

    Example:
        >>> Key("q1", "match", correct=("B",)).categories
        2
        >>> Key("q2", "map", points=(("A", 2), ("B", 1)), max_score=2).categories
        3
    """

    identity = "key of item", "item"
    rare = ("unit", "rules")

    item: str = setting(identifier)
    kind: str = setting(one_of(KEY_NEEDS))
    correct: tuple[str, ...] = setting(list_of(text_of(1000), "texts"), ())
    points: tuple[tuple[str, float], ...] = setting(_pairs, ())
    default: float = setting(number(), 0.0)
    lower: float | None = setting(optional(number()), None)
    upper: float | None = setting(optional(number()), None)
    case_sensitive: bool = setting(flag, False)
    max_score: float | None = setting(optional(number(above=0, most=MOST_SCORE)), None)
    rubric: str = setting(text_of(MOST_HTML), "")
    criteria: tuple[tuple[str, float], ...] = setting(_pairs, ())
    unit: float = setting(number(above=0, most=1), 1.0)
    rules: str = setting(text_of(MOST_HTML), "")

    def check(self, where: str) -> None:
        """Sanitise the rubric, and check what must hold between valid fields."""
        set_field(self, "rubric", clean_html(self.rubric, f"{where}, rubric"))
        if self.lower is not None and self.upper is not None and self.lower > self.upper:
            raise content_error(where, "lower of at most upper", f"{self.lower:g} > {self.upper:g}")
        self._check_kind(where)
        highest = self._highest() if self.max_score is None else self.max_score
        if not 0 < highest <= MOST_SCORE:
            must = f"a highest score above 0 and of at most {MOST_SCORE}"
            raise content_error(where, must, f"{highest:g}")
        set_field(self, "max_score", float(highest))
        total = sum(points for _, points in self.criteria)
        if self.criteria and not math.isclose(total, highest):
            raise content_error(where, f"criteria of {highest:g} points in all", f"{total:g}")

    def _check_kind(self, where: str) -> None:
        needed = KEY_NEEDS[self.kind]
        if needed and not getattr(self, needed):
            raise content_error(where, f"{needed} in a key of the kind {self.kind}", "none")
        kinds = {name: kind for kind, name in KEY_NEEDS.items() if name} | {"criteria": "rubric"}
        for name, kind in kinds.items():
            if getattr(self, name) and self.kind != kind:
                raise content_error(where, f"{name} only in a key of the kind {kind}", self.kind)
        if self.kind in ("rubric", "rules") and self.max_score is None and not self.criteria:
            raise content_error(where, f"max_score in a key of the kind {self.kind}", "none")
        for name, points in self.criteria:
            if points <= 0:
                raise content_error(where, f"points above 0 for criterion {brief(name)}", points)

    def _highest(self) -> float:
        if self.kind == "match":
            return 1.0
        if self.kind == "rubric":
            return sum(points for _, points in self.criteria)
        total = sum(max(points, 0.0) for _, points in self.points)
        return total if self.upper is None else min(total, self.upper)

    @property
    def categories(self) -> int:
        """Number of categories of the item: the scores 0 to ``max_score`` in steps of ``unit``."""
        return math.floor((self.max_score or 0) / self.unit + PRECISION) + 1

    @property
    def named(self) -> tuple[str, ...]:
        """The values that the key names."""
        return (*self.correct, *(value for value, _ in self.points))

    def score(self, category: int) -> float:
        """The points of a category.

        Example:
            >>> Key("q", "match", correct=("B",), max_score=1, unit=1 / 3).score(3)
            1.0
        """
        return round(category * self.unit, 9)

    def category(self, score: float) -> int | None:
        """The category of a score; None if the score is no multiple of ``unit``.

        Example:
            >>> Key("q", "match", correct=("B",), max_score=1.5, unit=0.5).category(1.5)
            3
        """
        steps = score / self.unit
        return round(steps) if abs(steps - round(steps)) < PRECISION else None


def checked_key(key: Key, item: Item) -> Key:
    """The key with its highest score on this item.

    Raises:
        InputError: the key cannot score an item of this kind, or names a choice that it lacks.
    """
    where = f"key of item {brief(item.id)}"
    kinds = KINDS[item.kind].keys
    if key.kind not in kinds:
        must = f"kind as {' or '.join(kinds)} for an item of the kind {item.kind}"
        raise content_error(where, must, key.kind)
    if KINDS[item.kind].has_choices:
        key = _of_choices(key, item, where)
    if item.numeric:
        tags = [item.language] if item.language else ["en", "de"]  # either decimal mark
        for value in key.named:
            if all(number_of(value, tag) is None for tag in tags):
                raise content_error(where, "numbers for a numeric item", shorten(value))
    if key.kind == "match":
        _check_match(key, item, where)
        return replace(key, unit=unit_of({float(key.max_score or 0)}))
    if key.kind == "map":
        return _with_highest(key, item, where)
    return key if key.kind == "rules" else _with_steps(key, where)


def _of_choices(key: Key, item: Item, where: str) -> Key:
    """The key with its pairs as the item has them; it must name only choices of the item."""
    correct = list(map(item.normal_pair, key.correct))
    points = tuple((item.normal_pair(value), number) for value, number in key.points)
    in_pairs = KINDS[item.kind].in_pairs
    if in_pairs:  # a set of pairs
        places = {value: at for at, value in enumerate(item.values)}
        correct.sort(key=lambda value: places.get(value, len(places)))
    key = replace(key, correct=tuple(correct), points=points)
    unknown = [value for value in key.named if value not in item.values]
    if unknown:
        what = "pairs of ids" if in_pairs else "ids"
        must = f"{what} of its choices, {shorten(item.values)}"
        raise content_error(where, must, shorten(unknown))
    return key


def _with_steps(key: Key, where: str) -> Key:
    """A rubric with the largest part of a point of which its unit and all points are multiples."""
    points = {float(key.max_score or 0), *(points for _, points in key.criteria)}
    unit = unit_of(points | {key.unit})
    if key.unit < 1 and not math.isclose(unit, key.unit, rel_tol=PRECISION):
        most = f"at most {MOST_SCORE} of them"
        must = f"unit as a part of a point, such as 0.5: all its points are multiples, {most}"
        raise content_error(where, must, f"{key.unit:g}")
    found = replace(key, unit=unit)
    odd = [value for value in sorted(points) if found.category(value) is None]
    if odd:
        must = f"points of a rubric as at most {MOST_SCORE} equal parts, such as halves"
        raise content_error(where, must, f"{odd[0]:g}")
    return found


def _check_match(key: Key, item: Item, where: str) -> None:
    n = len(key.correct)
    if KINDS[item.kind].has_choices and len(set(key.correct)) < n:
        raise content_error(where, "each right choice once", shorten(key.correct))
    if item.kind == "choice" and n != 1:
        got = shorten(key.correct)
        raise content_error(where, "one right choice", got, "Is it of kind choices?")
    if item.kind == "order" and n != len(item.choices):
        raise content_error(where, "all choices in order", shorten(key.correct))
    most = item.max_choices or len(item.choices)
    if KINDS[item.kind].in_pairs:
        fault, most = item.pair_faults(key.correct), item.max_choices or len(item.pairs)
        if fault:
            raise content_error(where, "right pairs that the item allows", fault)
    if item.kind not in ("choice", "order", "text") and not item.min_choices <= n <= most:
        must = f"from {item.min_choices} to {most} right choices, as the item allows"
        raise content_error(where, must, shorten(key.correct))


def _with_highest(key: Key, item: Item, where: str) -> Key:
    """A map with the highest total that a response can reach as its highest score."""
    totals = map_totals(key, item)
    highest, lowest = max(totals), min(totals)
    if lowest < 0:
        got = f"a score of {lowest:g}"
        raise content_error(where, "points with no negative score", got, "Set lower to 0")
    return replace(key, max_score=highest, unit=unit_of(totals))


def unit_of(totals: set[float]) -> float:
    """The largest 1/n of which all scores are multiples; 1 if none gives `MOST_SCORE` categories.

    Example:
        >>> unit_of({0.0, 2.0}), unit_of({0.0, 0.25, 0.5}), unit_of({0.0, 0.123})
        (1.0, 0.25, 1.0)
    """
    parts = [Fraction(total).limit_denominator(MOST_SCORE) for total in totals]
    n = math.lcm(*(part.denominator for part in parts))
    exact = all(abs(float(p) - t) < PRECISION for p, t in zip(parts, totals, strict=True))
    return 1 / n if exact and n * max(totals) <= MOST_SCORE else 1.0


def map_totals(key: Key, item: Item) -> set[float]:
    """Every score that a map can give to a response to the item, and 0 for no response."""
    named = dict(key.points)
    points = {value: named.get(value, key.default) for value in item.values}
    if not KINDS[item.kind].has_choices:
        sums = {*named.values(), key.default}
    elif KINDS[item.kind].in_pairs:
        sums = _pair_totals(points, item)
    else:
        sums = _choice_totals(points, item)
    return {limited(total, key) for total in sums} | {0.0}


def _choice_totals(points: dict[str, float], item: Item) -> set[float]:
    """Sums of the points of all sets of choices that an item allows, by their number."""
    most = 1 if item.kind == "choice" else item.max_choices or len(points)
    least = 1 if item.kind == "choice" else item.min_choices
    by_count: list[set[float]] = [{0.0}] + [set() for _ in range(most)]
    for value in points.values():
        for count in range(most, 0, -1):
            by_count[count] |= {round(total + value, 9) for total in by_count[count - 1]}
        _check_totals(sum(map(len, by_count)), item)
    return set[float]().union(*by_count[least:])


class _Pairs(NamedTuple):
    """Some pairs: the sum of their points, their number, and how often limited choices are used."""

    total: float = 0.0
    n: int = 0
    used: frozenset[tuple[str, int]] = frozenset()


def _pair_totals(points: dict[str, float], item: Item) -> set[float]:
    """Sums of the points of all sets of pairs that an item allows.

    A choice of which all pairs are done is not kept in the states.
    """
    limits = {choice.id: choice.most for choice in (*item.choices, *item.options) if choice.most}
    scored = [pair.split(" ") for pair in item.pairs if points[pair]]
    last = {name: at for at, pair in enumerate(scored) for name in pair}
    most = item.max_choices or len(scored)

    def joined(pairs: _Pairs, pair: list[str]) -> _Pairs:
        """The pairs with one more; the same where the limits do not allow it."""
        used = dict(pairs.used)
        used |= {name: used.get(name, 0) + 1 for name in pair if name in limits}
        if pairs.n == most or any(times > limits[name] for name, times in used.items()):
            return pairs
        total = round(pairs.total + points[" ".join(pair)], 9)
        return _Pairs(total, pairs.n + 1, frozenset(used.items()))

    states = {_Pairs()}
    for at, pair in enumerate(scored):
        done = {name for name in pair if last[name] == at}
        states |= {joined(pairs, pair) for pairs in states}
        states = {
            pairs._replace(used=frozenset(use for use in pairs.used if use[0] not in done))
            for pairs in states
        }
        _check_totals(len(states), item)
    return {pairs.total for pairs in states}


def _check_totals(count: int, item: Item) -> None:
    if count > MOST_TOTALS:
        must = "points with fewer different sums, such as whole numbers"
        raise content_error(f"key of item {brief(item.id)}", must)


def limited(total: float, key: Key) -> float:
    """A sum of points within the limits of the key."""
    low = -math.inf if key.lower is None else key.lower
    high = math.inf if key.upper is None else key.upper
    return min(max(total, low), high)
