"""Keys of QTI items: what their response processing gives to every response.

The rules are run (`Processing`) for all responses that an item can have, or for a text all that the
rules name and some that they do not. A key that gives the same scores is the item's key: one right
response, or points of the parts of a response. Rules that no key can express are refused.
"""

import itertools
import math
from collections.abc import Iterator
from dataclasses import replace
from typing import Any
from xml.etree.ElementTree import Element

from irtcat._common.checks import InputError, shorten
from irtcat.service.content.fields import content_error
from irtcat.service.content.qti_attributes import as_number, check_attributes, number_text
from irtcat.service.content.qti_processing import Processing
from irtcat.service.content.records import KINDS, Item, Key, checked_key
from irtcat.service.content.scoring import scored
from irtcat.service.content.xml import local_name

MOST_RESPONSES = 5_040
"""Most responses of an item that are scored to find its key: all orders of seven choices."""

MOST_STEPS = 2_000_000
"""Most elements of rules that are run to find a key: some seconds."""

TOLERANCE = 1e-6
"""Difference of scores that is rounding: points such as 1/3 have no exact decimals."""

OTHER_TEXT, OTHER_NUMBER = "none of the named texts", 0.40625
"""A text and a number that rules do not name."""


def qti_key(item: Item, root: Element, declaration: Element, rubric: str, where: str) -> Key | None:
    """The key of a QTI item; None if nothing in it says how it is scored.

    Args:
        item: the item.
        root: its XML.
        declaration: its response declaration.
        rubric: HTML for the scorers.
        where: for messages.

    Raises:
        InputError: response processing or a declaration that is not supported.
    """
    has_key = _check_declaration(declaration, where)
    found = root.findall("{*}qti-response-processing")
    if len(found) > 1:
        raise content_error(where, "at most one <qti-response-processing>", len(found))
    has_rules = any(len(rules) or rules.get("template") for rules in found)
    if item.kind == "essay" or (rubric and not has_rules):
        highest, unit = _scale(root, where)
        if not highest:
            return None
        return Key(item.id, "rubric", max_score=highest, rubric=rubric, unit=unit)
    if not has_rules:
        if has_key:
            raise content_error(where, "response processing for the correct response", "none")
        return None
    processing = Processing(root, declaration, where)
    if KINDS[item.kind].has_choices:
        unknown = [name for name in processing.named if name not in item.choice_ids]
        if unknown:
            must = f"ids of its choices, {shorten(item.choice_ids)}"
            raise content_error(where, must, shorten(unknown))
    return replace(_key(item, processing, where), rubric=rubric)


def _check_declaration(declaration: Element, where: str) -> bool:
    """Whether a response declaration has a correct response or a mapping."""
    check_attributes(declaration, "identifier cardinality base-type", where)
    known = {
        "qti-correct-response": "interpretation",
        "qti-mapping": "default-value lower-bound upper-bound",
    }
    for child in declaration:
        name = local_name(child)
        if name not in known:
            raise InputError(f"{where}: <{name}> in a response declaration is not supported.")
        check_attributes(child, known[name], where)
    return len(declaration) > 0


def _key(item: Item, processing: Processing, where: str) -> Key:
    """The key that gives the scores of the rules."""
    if processing.template == "map":
        return _map_key(item, processing)
    if item.kind == "text" and processing.compares_ranges:
        must = "response processing that compares a text with single values"
        raise content_error(where, must, "a range of numbers, or a part of a text")
    left_out = processing.score(None)
    if left_out != 0:
        raise content_error(where, "a SCORE of 0 for a response left out", f"{left_out:g}")
    if processing.template == "match":
        return next(_match_keys(item, processing))
    responses = list(_responses(item, processing))
    if len(responses) * processing.size > MOST_STEPS:
        must = f"rules of which all responses together take at most {MOST_STEPS:,} steps"
        raise content_error(where, must, f"{len(responses) * processing.size:,}")
    scores = [(response, processing.score(value)) for response, value in responses]
    highest = max(score for _, score in scores)
    if highest <= 0:
        raise content_error(where, "response processing that gives points", f"{highest:g} at most")
    for key in _candidates(item, processing, scores):
        if _fits(key, item, scores):
            return key
    raise content_error(
        where,
        "response processing that gives points to one right response, or the sum of points of "
        "the parts of a response",
        "other scores",
    )


def _fits(key: Key, item: Item, scores: list[tuple[Any, float]]) -> bool:
    """Whether a key gives these scores to these responses."""
    try:
        checked = checked_key(key, item)
        return all(
            abs((scored(checked, item, response, checked.categories) or 0) * checked.unit - score)
            < TOLERANCE
            for response, score in scores
        )
    except InputError:
        return False


def _responses(item: Item, processing: Processing) -> Iterator[tuple[Any, Any]]:
    """Responses as they are stored, and as values of QTI."""
    ids = item.choice_ids
    if item.kind == "text":
        yield from _texts(item, processing)
        return
    if item.kind == "choice":
        yield from ((name, name) for name in ids)
        return
    if item.kind == "order":
        count = math.factorial(len(ids))
        lists: Iterator[tuple[str, ...]] = itertools.permutations(ids)
    else:
        sizes = range(max(item.min_choices, 1), (item.max_choices or len(ids)) + 1)
        count = sum(math.comb(len(ids), size) for size in sizes)
        lists = itertools.chain.from_iterable(itertools.combinations(ids, k) for k in sizes)
    if count > MOST_RESPONSES:
        must = f"rules other than the templates for at most {MOST_RESPONSES:,} responses"
        raise content_error(processing.where, must, f"{count:,}")
    for names in lists:
        yield list(names), processing.container(list(names))


def _texts(item: Item, processing: Processing) -> Iterator[tuple[Any, Any]]:
    """Texts that the rules name, the same in other cases, and others."""
    named = _named(item, processing)
    if item.numeric:
        near = {value + step for value in named.values() for step in (-1.0, 0.125, 1.0)}
        values = {*named.values(), *near, OTHER_NUMBER}
        yield from ((number_text(value, processing.where), value) for value in sorted(values))
        return
    texts = {*named, *(text.swapcase() for text in named), OTHER_TEXT}
    yield from ((text, text) for text in sorted(texts))


def _named(item: Item, processing: Processing) -> dict[str, Any]:
    """Texts that the rules name, with their values."""
    if item.numeric:
        numbers = {value for value in processing.constants if isinstance(value, float)}
        return {number_text(value, processing.where): value for value in sorted(numbers)}
    return {value: value for value in processing.constants if isinstance(value, str) and value}


def _candidates(
    item: Item, processing: Processing, scores: list[tuple[Any, float]]
) -> Iterator[Key]:
    """Keys that may give the scores of the rules."""
    yield from _match_keys(item, processing)
    if processing.mapping is not None:
        yield _map_key(item, processing)
    best, highest = max(scores, key=lambda entry: entry[1])
    if item.kind == "text":
        named = {text: processing.score(value) for text, value in _named(item, processing).items()}
        other = processing.score(OTHER_NUMBER if item.numeric else OTHER_TEXT)
        points = {text: score for text, score in named.items() if score != other}
        if points:
            pairs = tuple(points.items())
            yield Key(item.id, "map", points=pairs, default=other, case_sensitive=not item.numeric)
            folded = {text.casefold(): score for text, score in pairs}
            yield Key(item.id, "map", points=tuple(folded.items()), default=other)
        return
    yield Key(
        item.id,
        "match",
        correct=(best,) if isinstance(best, str) else tuple(best),
        max_score=highest,
    )
    if item.kind == "choice":
        yield Key(item.id, "map", points=tuple(_nonzero(dict(scores)).items()))
    elif item.kind != "order":
        by_set = {frozenset(response): score for response, score in scores}
        for points in (_alone(item, by_set), _around(item, by_set, frozenset(best), highest)):
            for lower, upper in itertools.product((None, 0.0), (None, highest)):
                yield Key(item.id, "map", points=tuple(points.items()), lower=lower, upper=upper)


def _alone(item: Item, by_set: dict[frozenset[str], float]) -> dict[str, float]:
    """Points of each choice by the score of the choice alone."""
    return _nonzero({name: by_set.get(frozenset([name]), 0.0) for name in item.choice_ids})


def _around(
    item: Item, by_set: dict[frozenset[str], float], best: frozenset[str], highest: float
) -> dict[str, float]:
    """Points of each choice by what it adds to, or takes from, the best response."""
    out = {}
    for name in item.choice_ids:
        change = by_set.get(best ^ {name}, highest) - highest
        out[name] = -change if name in best else change
    return _nonzero(out)


def _nonzero(points: dict[Any, float]) -> dict[Any, float]:
    return {name: value for name, value in points.items() if value} or dict(points)


def _match_keys(item: Item, processing: Processing) -> Iterator[Key]:
    """Keys for the declared correct response."""
    correct = processing.correct
    if correct is None:
        return
    values = correct if isinstance(correct, tuple) else (correct,)
    texts = [
        number_text(value, processing.where) if isinstance(value, float) else value
        for value in values
    ]
    score = processing.score(correct)
    if score > 0:
        is_text = item.kind == "text" and not item.numeric
        for case_sensitive in (True, False) if is_text else (False,):
            yield Key(
                item.id,
                "match",
                correct=tuple(texts),
                max_score=score,
                case_sensitive=case_sensitive,
            )


def _map_key(item: Item, processing: Processing) -> Key:
    """The key of a mapping."""
    mapping, where = processing.required_mapping, processing.where
    lower, upper = mapping.bounds
    points = {
        number_text(value, where) if isinstance(value, float) else value: number
        for value, number in mapping.points.items()
    }
    is_text = item.kind == "text" and not item.numeric
    if is_text and len(mapping.cases) > 1:
        got = shorten(mapping.cases)
        raise content_error(where, "the same case-sensitive in all map entries", got)
    case_sensitive = is_text and mapping.cases == {"true"}
    same = len(set(points.values())) == 1 and min(points.values()) > 0
    if item.kind == "text" and same and mapping.default == 0 and (lower, upper) == (None, None):
        score = next(iter(points.values()))
        return Key(
            item.id, "match", correct=tuple(points), max_score=score, case_sensitive=case_sensitive
        )
    return Key(
        item=item.id,
        kind="map",
        points=tuple(points.items()),
        default=mapping.default,
        lower=lower,
        upper=upper,
        case_sensitive=case_sensitive,
    )


def _scale(root: Element, where: str) -> tuple[float | None, float]:
    """The highest score that outcome declarations state, and the points of one category.

    QTI has no steps of scores by people. A match table of SCORE lists the scores, from 0 on.
    """
    highest = _highest(root, where)
    for table in root.findall("{*}qti-outcome-declaration[@identifier='SCORE']/{*}qti-match-table"):
        scores = sorted(
            as_number(entry.get("target-value"), "target-value", where)
            for entry in table.findall("{*}qti-match-table-entry")
        )
        step = scores[1] if len(scores) > 1 else 0.0
        even = [round(k * step, 9) for k in range(len(scores))]
        if step <= 0 or [round(score, 9) for score in scores] != even:
            must = "a match table of SCORE with the scores 0, s, 2 s, ... of one step s"
            raise content_error(where, must, ", ".join(f"{score:g}" for score in scores) or "none")
        if highest is not None and highest != scores[-1]:
            must = f"a match table of SCORE up to the highest score of {highest:g}"
            raise content_error(where, must, f"{scores[-1]:g}")
        return scores[-1], step
    return highest, 1.0


def _highest(root: Element, where: str) -> float | None:
    """The highest score that outcome declarations state."""
    for declaration in root.findall("{*}qti-outcome-declaration"):
        name = declaration.get("identifier")
        if name == "SCORE" and declaration.get("normal-maximum"):
            return as_number(declaration.get("normal-maximum"), "normal-maximum", where)
        value = declaration.find("{*}qti-default-value/{*}qti-value")
        if name == "MAXSCORE" and value is not None:
            return as_number(value.text, "MAXSCORE", where)
    return None
