"""Keys of QTI items: what their response processing gives to every response.

The rules are run (`Processing`) for all responses that an item can have, or for a text all that the
rules name and some that they do not. A key that gives the same scores is the item's key: one right
response, or points of the parts of a response. Otherwise, and for items with several answer fields,
the key keeps the rules.
"""

import itertools
import math
from collections.abc import Iterator
from dataclasses import replace
from random import Random
from typing import Any
from xml.etree.ElementTree import Element, tostring

from irtcat._common.checks import InputError, shorten
from irtcat.service.content.fields import content_error
from irtcat.service.content.keys import Key, checked_key, unit_of
from irtcat.service.content.qti_processing import Declaration, Processing
from irtcat.service.content.qti_xml import QTI, as_number, check_attributes, local_name, number_text
from irtcat.service.content.records import KINDS, Item
from irtcat.service.content.scoring import qti_value, scored

MOST_RESPONSES = 5_040
"""Most responses of an item that are scored to find its key: all orders of seven choices."""

MOST_STEPS = 2_000_000
"""Most elements of rules that are run to find a key: some seconds."""

TOLERANCE = 1e-6
"""Difference of scores that is rounding: points such as 1/3 have no exact decimals."""

MOST_TEXTS = 100
"""Most texts of one field that are tried."""

OTHER_TEXT, OTHER_NUMBER = "none of the named texts", 0.40625
"""A text and a number that rules do not name."""


Fields = dict[str, Item]
"""The item or its parts by the names of their responses."""


def qti_key(item: Item, fields: Fields, root: Element, rubric: str, where: str) -> Key | None:
    """The key of a QTI item; None if nothing in it says how it is scored.

    ``fields`` are the item or its parts by the names of their responses.

    Raises:
        InputError: response processing or a declaration that is not supported.
    """
    for declared in root.findall("{*}qti-response-declaration"):
        _check_declaration(declared, where)
    found = root.findall("{*}qti-response-processing")
    if len(found) > 1:
        raise content_error(where, "at most one <qti-response-processing>", len(found))
    has_rules = any(len(rules) or rules.get("template") for rules in found)
    if item.kind == "essay" or (rubric and not has_rules):
        highest, unit = _scale(root, where)
        if not highest:
            return None
        key = Key(item.id, "rubric", max_score=highest, rubric=rubric, unit=unit)
        return checked_key(key, item)
    if not has_rules:
        return None
    processing = Processing(root, where)
    for name, field in fields.items():
        if KINDS[field.kind].has_choices:
            named = map(field.normal_pair, map(str, processing.responses[name].named))
            unknown = [value for value in named if value not in field.values]
            if unknown:
                must = f"ids of its choices, {shorten(field.values)}"
                raise content_error(where, must, shorten(unknown))
    left_out = processing.score({})
    if left_out != 0:
        raise content_error(where, "a SCORE of 0 for a response left out", f"{left_out:g}")
    simple = None
    if list(fields.values()) == [item]:
        simple = _key(item, processing, processing.responses[next(iter(fields))])
    key = replace(simple or _rules_key(item, fields, root, processing), rubric=rubric)
    return checked_key(key, item)


def _check_declaration(declaration: Element, where: str) -> None:
    """Raise at parts of a response declaration that are not supported."""
    check_attributes(declaration, "identifier cardinality base-type", where)
    known = {
        "qti-correct-response": "interpretation",
        "qti-mapping": "default-value lower-bound upper-bound",
        "qti-default-value": "interpretation",
    }
    for child in declaration:
        name = local_name(child)
        if name not in known:
            raise InputError(f"{where}: <{name}> in a response declaration is not supported.")
        check_attributes(child, known[name], where)


def _key(item: Item, processing: Processing, declared: Declaration) -> Key | None:
    """The key, without rules, that gives the scores of the rules; None if there is none."""
    where = processing.where
    if processing.template and processing.template_response() is not declared:
        raise content_error(where, "a template that scores the response", declared.identifier)
    if processing.template == "map":
        mapping, is_text = declared.required_mapping, declared.base_type == "string"
        return None if is_text and len(mapping.cases) > 1 else _map_key(item, declared)
    if processing.template == "match":
        return next(_match_keys(item, processing, declared))
    if item.kind == "text" and processing.compares_ranges:
        return None
    responses = _texts(item, processing) if item.kind == "text" else _all_responses(item)
    if responses is None or len(responses) * processing.size > MOST_STEPS:
        return None
    scores = [
        (it, processing.score({declared.identifier: qti_value(item, declared, it)}))
        for it in responses
    ]
    if max(score for _, score in scores) <= 0:
        raise content_error(where, "response processing that gives points", "none")
    keys = _candidates(item, processing, declared, scores)
    return next((key for key in keys if _fits(key, item, scores)), None)


def _rules_key(item: Item, fields: Fields, root: Element, processing: Processing) -> Key:
    """The key that keeps the rules, with the scores that they give.

    Where all combinations of the responses to the fields are too many, they are changed one at a
    time, from all right, none, and the best; and 1,000 are drawn. Sums of points, the whole right
    response, and what is between have their highest score among these.
    """
    where = processing.where
    values: dict[str, list[Any]] = {}
    for name, field in fields.items():
        tried = [None, *_tried(field, processing, name)]
        values[name] = [qti_value(field, processing.responses[name], it) for it in tried]
    totals = set[float]()

    def score(given: dict[str, Any]) -> float:
        value = processing.score(given)
        totals.add(value)
        return value

    count = math.prod(map(len, values.values()))
    if count * processing.size <= MOST_STEPS:
        for combined in itertools.product(*values.values()):
            score(dict(zip(values, combined, strict=True)))
    else:
        right = {name: processing.responses[name].correct for name in values}
        best: dict[str, Any] = max(right, {}, key=score)
        for start in (right, {}, best):
            for name, entries in values.items():
                scores = [score({**start, name: entry}) for entry in entries]
                best = {**best, name: entries[scores.index(max(scores))]}
            best = max(best, right, key=score)
        random = Random(0)
        for _ in range(1_000):
            score({name: random.choice(entries) for name, entries in values.items()})
    if max(totals) <= 0:
        raise content_error(where, "response processing that gives points", "none")
    if min(totals) < 0:
        got = f"a score of {min(totals):g}"
        raise content_error(where, "response processing with no negative score", got)
    rules, unit = _rules(root, list(fields)), unit_of(totals)
    key = Key(item.id, "rules", rules=rules, max_score=max(totals), unit=unit)
    odd = [total for total in sorted(totals) if key.category(total) is None]
    if odd:
        got = f"a score of {odd[0]:g}"
        raise content_error(where, "scores that are multiples of a part of a point", got)
    return key


def _rules(root: Element, names: list[str]) -> str:
    """The declarations and rules of an item, as XML that names no other part of it."""

    def plain(element: Element) -> Element:
        attributes = {k: v for k, v in element.attrib.items() if not k.startswith("{")}
        copy = Element(local_name(element), attributes)
        copy.text = (element.text or "").strip() or None
        copy.extend(map(plain, element))
        return copy

    out = Element("qti-assessment-item", {"xmlns": QTI})
    for kind in ("qti-response-declaration", "qti-outcome-declaration", "qti-response-processing"):
        found = root.findall(f"{{*}}{kind}")
        found.sort(key=lambda it: it.get("identifier") not in names)
        out.extend(map(plain, found))
    return tostring(out, encoding="unicode")


def _fits(key: Key, item: Item, scores: list[tuple[Any, float]]) -> bool:
    """Whether a key gives these scores to these responses."""
    try:
        key = checked_key(key, item)
        return all(
            abs((scored(key, item, response, key.categories) or 0) * key.unit - score) < TOLERANCE
            for response, score in scores
        )
    except InputError:
        return False


def _all_responses(item: Item) -> list[Any] | None:
    """All responses that an item of choices can have; None if they are too many."""
    names = item.values
    if item.kind == "choice":
        return list(names)
    if item.kind == "order":
        count = math.factorial(len(names))
        lists: Iterator[tuple[str, ...]] = itertools.permutations(names)
    else:
        sizes = range(max(item.min_choices, 1), (item.max_choices or len(names)) + 1)
        count = sum(math.comb(len(names), size) for size in sizes)
        lists = itertools.chain.from_iterable(itertools.combinations(names, k) for k in sizes)
    if count > MOST_RESPONSES:
        return None
    return [list(found) for found in lists if not item.pair_faults(found)]


def _tried(item: Item, processing: Processing, name: str) -> list[Any]:
    """Responses to a field that show its scores: all of them, or those near the right one."""
    if item.kind in ("text", "essay"):
        return _texts(item, processing)
    everything = _all_responses(item)
    if everything is not None:
        return everything
    right = list(map(item.normal_pair, processing.responses[name].correct or ()))
    if item.kind == "order":
        start = right or list(item.values)
        return [start, *_swapped(start)]
    most = item.max_choices or len(item.values)
    near = _near(item, right, processing)
    return [it for it in near if it and len(it) <= most and not item.pair_faults(it)]


def _near(item: Item, right: list[str], processing: Processing) -> list[list[str]]:
    """Sets of choices or pairs: those that rules name, and changes of the right ones."""
    named = [list(map(item.normal_pair, it)) for it in processing.combined]
    return [
        *(it for it in named if set(it) <= set(item.values)),
        right,
        *([it for it in right if it != value] for value in right),
        *([value] for value in item.values),
        *([*right, value] for value in item.values if value not in right),
        *(_grown(item, value) for value in item.values),
    ]


def _grown(item: Item, value: str) -> list[str]:
    """A choice or pair, and as many others as the limits of the item allow."""
    grown = [value]
    for other in item.values:
        if other not in grown and not item.pair_faults([*grown, other]):
            grown.append(other)
    return grown


def _swapped(names: list[str]) -> Iterator[list[str]]:
    """Orders that differ from one in two places."""
    for one, other in itertools.combinations(range(len(names)), 2):
        out = list(names)
        out[one], out[other] = out[other], out[one]
        yield out


def _texts(item: Item, processing: Processing) -> list[str]:
    """Texts that the rules name, the same in other cases, and others."""
    named = _named(item, processing)
    if item.numeric:
        between = itertools.pairwise(sorted(set(named.values())))
        near = {value + step for value in named.values() for step in (-1.0, 0.125, 1.0)}
        near |= {(low + high) / 2 for low, high in between}
        values = {*named.values(), *near, OTHER_NUMBER}
        return [number_text(value, processing.where) for value in sorted(values)]
    texts = {*named, *(text.swapcase() for text in named), OTHER_TEXT}
    if processing.compares_ranges:  # of parts of a text too
        texts |= {" ".join(named), " ".join(reversed(named))}
    return sorted(texts)[:MOST_TEXTS]


def _named(item: Item, processing: Processing) -> dict[str, Any]:
    """Texts that the rules name, with their values."""
    if item.numeric:
        numbers = {value for value in processing.constants if isinstance(value, float)}
        return {number_text(value, processing.where): value for value in sorted(numbers)}
    return {value: value for value in processing.constants if isinstance(value, str) and value}


def _candidates(
    item: Item, processing: Processing, declared: Declaration, scores: list[tuple[Any, float]]
) -> Iterator[Key]:
    """Keys that may give the scores of the rules."""
    yield from _match_keys(item, processing, declared)
    if declared.mapping is not None and len(declared.mapping.cases) < 2:
        yield _map_key(item, declared)
    best, highest = max(scores, key=lambda entry: entry[1])
    if item.kind == "text":
        named = {
            text: processing.score({declared.identifier: value})
            for text, value in _named(item, processing).items()
        }
        unnamed = OTHER_NUMBER if item.numeric else OTHER_TEXT
        other = processing.score({declared.identifier: unnamed})
        points = {text: score for text, score in named.items() if score != other}
        if points:
            yield _points_key(item, points, default=other, case_sensitive=not item.numeric)
            folded = {text.casefold(): score for text, score in points.items()}
            yield _points_key(item, folded, default=other)
        return
    correct = (best,) if isinstance(best, str) else tuple(best)
    yield Key(item.id, "match", correct=correct, max_score=highest)
    if item.kind == "choice":
        yield _points_key(item, _nonzero(dict(scores)))
    elif item.kind != "order":
        by_set = {frozenset(response): score for response, score in scores}
        # Points of each choice by the score of the choice alone, or beside the best response.
        alone = _nonzero({name: by_set.get(frozenset([name]), 0.0) for name in item.values})
        changes = {it: by_set.get(frozenset(best) ^ {it}, highest) - highest for it in item.values}
        around = _nonzero({it: -by if it in best else by for it, by in changes.items()})
        for points in (alone, around):
            for lower, upper in itertools.product((None, 0.0), (None, highest)):
                yield _points_key(item, points, lower=lower, upper=upper)


def _points_key(item: Item, points: dict[str, float], **options: Any) -> Key:
    return Key(item.id, "map", points=tuple(points.items()), **options)


def _nonzero(points: dict[Any, float]) -> dict[Any, float]:
    return {name: value for name, value in points.items() if value} or dict(points)


def _match_keys(item: Item, processing: Processing, declared: Declaration) -> Iterator[Key]:
    """Keys for the declared correct response."""
    correct = declared.correct
    if correct is None:
        return
    values = correct if isinstance(correct, tuple) else (correct,)
    texts = tuple(_written(value, processing.where) for value in values)
    score = processing.score({declared.identifier: correct})
    if score > 0:
        is_text = item.kind == "text" and not item.numeric
        for case in (True, False) if is_text else (False,):
            yield Key(item.id, "match", correct=texts, max_score=score, case_sensitive=case)


def _written(value: Any, where: str) -> Any:
    """A value as keys have it."""
    return number_text(value, where) if isinstance(value, float) else value


def _map_key(item: Item, declared: Declaration) -> Key:
    mapping, where = declared.required_mapping, declared.where
    lower, upper = mapping.bounds
    points = {_written(value, where): number for value, number in mapping.points.items()}
    case = item.kind == "text" and not item.numeric and mapping.cases == {"true"}
    same = len(set(points.values())) == 1 and min(points.values()) > 0
    if item.kind == "text" and same and mapping.default == 0 and (lower, upper) == (None, None):
        score = next(iter(points.values()))
        return Key(item.id, "match", correct=tuple(points), max_score=score, case_sensitive=case)
    limits = {"default": mapping.default, "lower": lower, "upper": upper}
    return _points_key(item, points, **limits, case_sensitive=case)


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
