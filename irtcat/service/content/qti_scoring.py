"""Response processing of QTI items: the two standard templates, and rules that do the same."""

from dataclasses import replace
from decimal import Decimal
from typing import Any
from xml.etree.ElementTree import Element

from irtcat._common.checks import InputError, shorten
from irtcat.service.content.fields import content_error
from irtcat.service.content.numerals import number_of
from irtcat.service.content.records import Key
from irtcat.service.content.xml import local_name

PRESENTATION = ("class", "id", "role", "label", "style")
"""Attributes on any element that only change how it looks; they are not kept."""


def check_attributes(element: Element, known: str, where: str) -> None:
    """Raise at an attribute that is neither known nor about presentation."""
    for name in element.attrib:
        plain = name.rpartition("}")[2]
        ignored = plain in PRESENTATION or plain.startswith(("data-", "aria-"))
        if not ignored and plain not in (*known.split(), "lang", "dir", "schemaLocation"):
            tag = local_name(element)
            raise InputError(f"{where}: the attribute {plain} of <{tag}> is not supported.")


def required(element: Element, name: str, where: str) -> str:
    """An attribute that an element must have."""
    value = element.get(name, "").strip()
    if not value:
        raise content_error(where, f"{name} of <{local_name(element)}>", "none")
    return value


def as_number(text: str | None, label: str, where: str) -> float:
    """A number in XML."""
    try:
        number = float(text or "")
    except ValueError:
        raise content_error(where, f"{label} as a number", shorten(text)) from None
    if number != number or number in (float("inf"), float("-inf")):
        raise content_error(where, f"{label} as a finite number", shorten(text))
    return number


def qti_key(item: str, root: Element, declaration: Element, kind: str, rubric: str,
            where: str) -> Key | None:  # fmt: skip
    """The key of a QTI item; None if nothing in it says how it is scored.

    Args:
        item: id of the item.
        root: the item.
        declaration: its response declaration.
        kind: its kind, of `KINDS`.
        rubric: HTML for the scorers.
        where: for messages.

    Raises:
        InputError: response processing or a declaration that is not supported.
    """
    correct, mapping = _declared(declaration, where)
    rule, score = "", 1.0
    for processing in root.findall("{*}qti-response-processing"):
        default = _default_score(root, where)
        rule, score = _rule(processing, declaration.get("identifier", ""), default, where)
    if kind == "essay" or (rubric and not rule):
        highest, unit = _scale(root, where)
        return Key(item, "rubric", max_score=highest, rubric=rubric, unit=unit) if highest else None
    if not rule:
        if correct or mapping is not None:
            raise content_error(where, "response processing for the correct response", "none")
        return None
    numeric = declaration.get("base-type") in ("integer", "float")
    text = kind == "text" and not numeric
    if rule == "match":
        if not correct:
            raise content_error(where, "a correct response for match_correct", "none")
        if kind == "text" and len(correct) > 1:
            raise content_error(where, "one correct response of a text", shorten(correct))
        values = [_numeral(value, where) if numeric else value for value in correct]
        return Key(
            item=item,
            kind="match",
            correct=tuple(values),
            max_score=score,
            case_sensitive=text,
            rubric=rubric,
        )
    if mapping is None:
        raise content_error(where, "a <qti-mapping> for map_response", "none")
    return replace(_map_key(item, mapping, kind, numeric, where), rubric=rubric)


def _declared(declaration: Element, where: str) -> tuple[list[str], Element | None]:
    """The correct response and the mapping of a response declaration."""
    check_attributes(declaration, "identifier cardinality base-type", where)
    correct, mapping = [], None
    for child in declaration:
        name = local_name(child)
        if name == "qti-correct-response":
            check_attributes(child, "interpretation", where)
            correct = [(value.text or "").strip() for value in child.findall("{*}qti-value")]
        elif name == "qti-mapping":
            check_attributes(child, "default-value lower-bound upper-bound", where)
            mapping = child
        else:
            raise InputError(f"{where}: <{name}> in a response declaration is not supported.")
    return correct, mapping


def _map_key(item: str, mapping: Element, kind: str, numeric: bool, where: str) -> Key:
    points, cases = {}, set()
    for entry in mapping:
        if local_name(entry) != "qti-map-entry":
            raise InputError(f"{where}: <{local_name(entry)}> in a mapping is not supported.")
        check_attributes(entry, "map-key mapped-value case-sensitive", where)
        value = required(entry, "map-key", where)
        if value in points:
            raise content_error(where, "each map-key once", shorten(value))
        points[_numeral(value, where) if numeric else value] = as_number(
            entry.get("mapped-value"), "mapped-value", where
        )
        cases.add(entry.get("case-sensitive", "false"))  # the default of the standard
    bounds: dict[str, Any] = {
        name: None if mapping.get(f"{name}-bound") is None
        else as_number(mapping.get(f"{name}-bound"), f"{name}-bound", where)
        for name in ("lower", "upper")
    }  # fmt: skip
    default = as_number(mapping.get("default-value", "0"), "default-value", where)
    if kind == "text" and len(cases) > 1:
        raise content_error(where, "the same case-sensitive in all map entries", shorten(cases))
    case_sensitive = kind == "text" and not numeric and cases == {"true"}
    same = len(set(points.values())) == 1 and min(points.values()) > 0
    if kind == "text" and same and default == 0 and bounds == {"lower": None, "upper": None}:
        return Key(
            item=item,
            kind="match",
            correct=tuple(points),
            max_score=next(iter(points.values())),
            case_sensitive=case_sensitive,
        )
    return Key(
        item=item,
        kind="map",
        points=tuple(points.items()),
        default=default,
        case_sensitive=case_sensitive,
        **bounds,
    )


def _numeral(text: str, where: str) -> str:
    """A number of XML as people write it: without an exponent, and the same in all languages."""
    plain = text
    if number_of(plain) is None:
        as_number(text, "a numeric response", where)
        plain = f"{Decimal(text):f}"
    if "." in plain and number_of(plain, "de") is None:
        plain += "0"  # 1.500 could be 1500 in German, 1.5000 could not
    if number_of(plain) is None:
        raise content_error(where, "a number of at most 30 digits", shorten(text))
    return plain


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


def _default_score(root: Element, where: str) -> float:
    """The SCORE where no rule sets it; 0 unless its declaration has another default value."""
    for declaration in root.findall("{*}qti-outcome-declaration"):
        value = declaration.find("{*}qti-default-value/{*}qti-value")
        if declaration.get("identifier") == "SCORE" and value is not None:
            return as_number(value.text, "the default value of SCORE", where)
    return 0.0


def _rule(processing: Element, response: str, default: float, where: str) -> tuple[str, float]:
    """The kind of key, "match" or "map", and the score of a match."""
    check_attributes(processing, "template template-location", where)
    template = processing.get("template", "")
    if template:
        name = template.rpartition("/")[2].removesuffix(".xml")
        if len(processing) == 0 and name in ("match_correct", "map_response"):
            return ("match" if name == "match_correct" else "map"), 1.0
        raise content_error(where, "the template match_correct or map_response", shorten(template))
    outline = tuple(_outline(child) for child in processing)
    if not outline:
        return "", 1.0
    wrong, score = _match_scores(outline, response, default)
    if score is not None and wrong != 0:
        raise content_error(where, "a SCORE of 0 for a wrong response", f"{wrong:g}")
    if score is not None:
        return "match", score
    if _is_map(outline, response):
        return "map", 1.0
    names = sorted({local_name(element) for element in processing.iter()} - RULE_NAMES)
    got = f"<{names[0]}>" if names else "other rules"
    must = "response processing that matches the correct response or maps the response"
    raise content_error(where, must, got)


RULE_NAMES = {
    "qti-response-processing", "qti-response-condition", "qti-response-if", "qti-response-else",
    "qti-match", "qti-variable", "qti-correct", "qti-set-outcome-value", "qti-base-value",
    "qti-map-response", "qti-is-null",
}  # fmt: skip


def _outline(element: Element) -> tuple[str, str, tuple]:
    """Name, identifier or value, and children of a rule."""
    text = (element.text or "").strip() if not len(element) else ""
    label = element.get("identifier", text)
    return local_name(element), label, tuple(_outline(child) for child in element)


def _match_scores(rules: tuple, response: str, default: float) -> tuple[float | None, float | None]:
    """The SCORE of a wrong and of a right response, if the rules set it by a match.

    Without an else, a wrong response keeps the default value of SCORE.
    """
    test = ("qti-match", "",
            (("qti-variable", response, ()), ("qti-correct", response, ())))  # fmt: skip
    swapped = (*test[:2], test[2][::-1])
    match rules:
        case (("qti-response-condition", _, (("qti-response-if", _, (found, right)), *rest)),):
            match rest:
                case []:
                    wrong: float | None = default
                case [("qti-response-else", _, (rule,))]:
                    wrong = _set_score(rule)
                case _:
                    return None, None
            if found in (test, swapped) and wrong is not None:
                return wrong, _set_score(right) or None
    return None, None


def _set_score(rule: tuple) -> float | None:
    """The constant that a rule sets as SCORE."""
    match rule:
        case ("qti-set-outcome-value", "SCORE", (("qti-base-value", text, ()),)):
            try:
                return float(text)
            except ValueError:
                return None
    return None


def _is_map(rules: tuple, response: str) -> bool:
    """Whether the rules set SCORE to the mapped response, and to 0 where there is none."""
    mapped = ("qti-set-outcome-value", "SCORE", (("qti-map-response", response, ()),))
    if rules == (mapped,):
        return True
    empty = ("qti-is-null", "", (("qti-variable", response, ()),))
    match rules:
        case (("qti-response-condition", _, (
            ("qti-response-if", _, (found, zero)), ("qti-response-else", _, (other,)),
        )),):  # fmt: skip
            return found == empty and _set_score(zero) == 0 and other == mapped
    return False
