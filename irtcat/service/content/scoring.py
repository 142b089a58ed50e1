"""Responses: their check, and their scores by key, by map, or by people."""

import functools
import unicodedata
from collections.abc import Sequence
from typing import Any

import numpy as np

from irtcat._common.checks import InputError, brief, check_count, shorten
from irtcat.bank import ItemBank
from irtcat.models import item_categories
from irtcat.service.content.fields import content_error
from irtcat.service.content.item_set import ItemSet
from irtcat.service.content.keys import Key, limited, map_totals
from irtcat.service.content.numerals import number_of
from irtcat.service.content.qti_processing import Declaration, Processing
from irtcat.service.content.qti_xml import parse_xml
from irtcat.service.content.records import KINDS, Item

MOST_TEXT = 1_000
"""Longest text entry, in characters."""

MOST_ESSAY = 100_000
"""Longest essay, in characters: fifteen thousand words."""


def checked_response(item: Item, response: Any) -> Any:
    r"""A response in its normal form, as it is stored and scored.

    ========== ==========================================================================
    kind       response
    ========== ==========================================================================
    choice     the id of the choice
    choices    a list of ids, stored in the order of the item's choices
    order      a list of all ids in the person's order
    hottext    a list of ids, stored in the order of the text
    text       a text; white space around it is removed (a number is stored as it was written)
    essay      a text with ``\n`` as line breaks
    match      a list of pairs ``"A B"`` of a choice and an option, stored in their order
    associate  a list of pairs ``"A B"`` of two choices, stored in the order of the choices
    several    the responses by the ids of the parts; parts left out are not stored
    ========== ==========================================================================

    Args:
        item: the item.
        response: the JSON value that was sent; None is an item left out.

    Returns:
        The JSON value to store; None for an item left out (also an empty text or list).

    Raises:
        InputError: naming the item and what its response must be.

    Example:
        >>> from irtcat.service.content import Choice
        >>> item = Item("q1", "choices", "<p>Primes?</p>", (Choice("A", "2"), Choice("B", "3")))
        >>> checked_response(item, ["B", "A"])
        ['A', 'B']
    """
    return _checked(item, response, f"response to item {brief(item.id)}")


def _checked(item: Item, response: Any, where: str) -> Any:
    if response is None or response == "" or response == []:
        return None
    if item.kind == "several":
        return _checked_parts(item, response, where)
    if item.kind == "choice":
        if not isinstance(response, str) or response not in item.choice_ids:
            raise content_error(where, f"one of {shorten(item.choice_ids)}", shorten(response))
        return response
    if KINDS[item.kind].has_choices:
        return _checked_list(item, response, where)
    most = MOST_TEXT if item.kind == "text" else MOST_ESSAY
    return _checked_text(item, response, most, where)


def _checked_parts(item: Item, response: Any, where: str) -> dict[str, Any] | None:
    parts = {part.id: part for part in item.parts}
    if not isinstance(response, dict) or not set(response) <= set(parts):
        raise content_error(where, f"responses by {shorten(list(parts))}", shorten(response))
    found = {
        name: _checked(part, response.get(name), f"{where}, {brief(name)}")
        for name, part in parts.items()
    }
    return {name: value for name, value in found.items() if value is not None} or None


def _checked_list(item: Item, response: Any, where: str) -> list[str]:
    what = "pair" if KINDS[item.kind].in_pairs else "choice"
    if not isinstance(response, list) or not all(isinstance(value, str) for value in response):
        raise content_error(where, f"a list of ids of {what}s", shorten(response))
    response = list(map(item.normal_pair, response))
    unknown = [value for value in response if value not in item.values]
    if unknown:
        raise content_error(where, f"ids from {shorten(item.values)}", shorten(unknown))
    if len(set(response)) < len(response):
        raise content_error(where, f"each {what} once", shorten(response))
    n, most = len(response), item.max_choices or len(item.values)
    if item.kind == "order":
        if n < len(item.choices):
            raise content_error(where, f"all {len(item.choices)} choices in order", f"{n}")
        return list(response)
    if not item.min_choices <= n <= most:
        raise content_error(where, f"from {item.min_choices} to {most} {what}s", f"{n}")
    fault = item.pair_faults(response) if what == "pair" else ""
    if fault:
        raise content_error(where, "each choice in as many pairs as it may be", fault)
    return [value for value in item.values if value in response]


def _checked_text(item: Item, response: Any, most: int, where: str) -> str | None:
    if not isinstance(response, str):
        raise content_error(where, "a text", shorten(response))
    if len(response) > most:
        raise content_error(where, f"at most {most:,} characters", f"{len(response):,}")
    text = unicodedata.normalize("NFC", response.replace("\r\n", "\n").replace("\r", "\n"))
    keep = "\n\t" if item.kind == "essay" else "\t"
    if any(unicodedata.category(c) in ("Cc", "Cs") and c not in keep for c in text):
        raise content_error(where, "a text without control characters", shorten(text))
    if item.kind == "text":
        text = text.strip()
    if not text.strip():
        return None
    if item.numeric and number_of(text, item.language) is None:
        advice = "Write it without separators of thousands, such as 1500 or 0.5"
        raise content_error(where, "a number", shorten(text), advice)
    return text


def scored(key: Key, item: Item, response: Any, n_categories: int) -> int | None:
    """The score of a response: its category in the bank.

    Args:
        key: the key of the item.
        item: the item.
        response: the response, as `checked_response` returns it; None (left out) scores 0.
        n_categories: number of categories of the item in the bank.

    Returns:
        The score in units of ``key.unit``, a whole number from 0 to ``n_categories - 1``; None if
        people have to score the response.

    Raises:
        InputError: the response is not one to this item, or the score is not one of the categories.

    Example:
        >>> from irtcat.service.content import Choice
        >>> item = Item("q1", "choice", "<p>2 + 2 = ?</p>", (Choice("A", "3"), Choice("B", "4")))
        >>> key = Key("q1", "match", correct=("B",))
        >>> [scored(key, item, response, 2) for response in ("A", "B", None)]
        [0, 1, 0]
    """
    check_count("n_categories", n_categories, 2)
    if key.item != item.id:
        raise content_error(f"key of item {brief(key.item)}", f"the key of {brief(item.id)}")
    response = checked_response(item, response)
    if response is None:
        return 0
    if key.kind == "rubric":
        return None
    if key.kind == "rules":
        total = rule_score(key.rules, item, response)
    elif key.kind == "match":
        total = float(key.max_score or 0) if _is_right(key, item, response) else 0.0
    else:
        total = limited(_points(key, item, response), key)
    category = key.category(total)
    if category is None or not 0 <= category < n_categories:
        where, highest = f"item {brief(item.id)}", (n_categories - 1) * key.unit
        must = "a whole score" if key.unit == 1 else f"a multiple of {key.unit:g}"
        raise content_error(where, f"{must} from 0 to {highest:g}", f"{total:g}")
    return category


@functools.lru_cache(maxsize=1024)
def _processing(rules: str) -> Processing:
    return Processing(parse_xml(rules.encode(), "rules of a key"), "rules of a key")


def rule_score(rules: str, item: Item, response: Any) -> float:
    """The score that response processing gives to a response, as `checked_response` returns it."""
    processing = _processing(rules)
    if item.kind == "several":
        named = {part.id: (part, response.get(part.id)) for part in item.parts}
    else:
        named = {next(iter(processing.responses)): (item, response)}
    values = {
        name: qti_value(part, processing.responses[name], value)
        for name, (part, value) in named.items()
        if name in processing.responses
    }
    return processing.score(values)


def qti_value(item: Item, declaration: Declaration, response: Any) -> Any:
    """A response, as `checked_response` returns it, as the value of its declaration in QTI."""
    if response is None:
        return None
    if declaration.base_type in ("integer", "float"):
        return float(number_of(response, item.language) or 0)
    if isinstance(response, str):
        response = [response]
    elif declaration.base_type == "pair":
        response = [" ".join(sorted(value.split(" "))) for value in response]
    return declaration.container(response)


def _is_right(key: Key, item: Item, response: Any) -> bool:
    if not KINDS[item.kind].has_choices:
        return any(_is_same(key, item, response, value) for value in key.correct)
    values = [response] if isinstance(response, str) else response
    collected = tuple if item.kind == "order" else set
    return collected(values) == collected(key.correct)


def _points(key: Key, item: Item, response: Any) -> float:
    if KINDS[item.kind].has_choices:
        points = dict(key.points)
        values = [response] if isinstance(response, str) else response
        return round(sum(points.get(value, key.default) for value in values), 9)
    for value, points_of_value in key.points:
        if _is_same(key, item, response, value):
            return points_of_value
    return key.default


def _is_same(key: Key, item: Item, response: str, value: str) -> bool:
    """Whether a text equals an accepted one: as numbers, or as texts without extra white space."""
    if item.numeric:
        return number_of(response, item.language) == number_of(value, item.language)
    return _normal(response, key.case_sensitive) == _normal(value, key.case_sensitive)


def _normal(text: str, case_sensitive: bool) -> str:
    plain = " ".join(unicodedata.normalize("NFC", text).split())
    return plain if case_sensitive else unicodedata.normalize("NFC", plain.casefold())


def check_against_bank(items: ItemSet, bank: ItemBank, ids: Sequence[str] | None = None) -> None:
    """Raise unless every item of a bank has content and a key whose scores are its categories.

    Args:
        items: the item set.
        bank: the bank.
        ids: the items to check; by default all of the bank.

    Raises:
        InputError: listing every fault: items without content or without a key, a key that gives
            scores that are no multiples of its unit from 0 to the number of categories less 1, or
            never the highest.

    Example:
        >>> item = Item("q1", "text", "<p>2 + 2 = ?</p>", numeric=True)
        >>> bank = ItemBank.from_parameters(b=[0.0], item_ids=["q1"])
        >>> check_against_bank(ItemSet([item]), bank)
        Traceback (most recent call last):
        irtcat._common.errors.InputError: The items must fit the bank: item q1 has no key.
    """
    sizes = dict(zip(bank.item_ids.tolist(), np.asarray(item_categories(bank.model)), strict=True))
    faults = []
    for name in bank.item_ids.tolist() if ids is None else ids:
        fault = _fault(items, str(name), int(sizes[name]) if name in sizes else None)
        faults += [f"item {brief(name)} {fault}"] if fault else []
    if faults:
        shown = "; ".join(faults[:10])
        rest = f"; and {len(faults) - 10} more" if len(faults) > 10 else ""
        notes = " ".join(items.notes)
        left_out = f" Left out when the items were read: {notes}" if notes else ""
        raise InputError(f"The items must fit the bank: {shown}{rest}.{left_out}")


def _fault(items: ItemSet, name: str, n_categories: int | None) -> str:
    """What is wrong with an item, as the end of a sentence; empty if nothing is."""
    if n_categories is None:
        return "is not in the bank"
    if name not in items:
        return "has no content"
    if name not in items.keys:
        return "has no key"
    key, item = items.keys[name], items[name]
    highest = float(key.max_score or 0)
    totals = map_totals(key, item) if key.kind == "map" else {0.0, highest}
    partial = sorted(total for total in totals if key.category(total) is None)
    if partial:
        return f"can have the score {partial[0]:g}, which is no multiple of {key.unit:g}"
    if key.category(highest) != n_categories - 1:
        steps = "" if key.unit == 1 else f" in steps of {key.unit:g}"
        scores = f"the scores 0 to {highest:g}{steps}"
        return f"has {scores}, and {n_categories} categories in the bank"
    return ""
