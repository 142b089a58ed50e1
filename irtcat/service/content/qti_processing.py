"""Response processing of QTI: a small interpreter of its rules and expressions.

It gives the SCORE of the responses to an item. Values are None (NULL), numbers, texts, truth
values, and containers: `Multiple`, whose order does not matter, and `Ordered`. Rules and
expressions that are not in the tables below are refused by name.
"""

import contextlib
import math
import operator
from collections.abc import Callable, Iterator, Mapping
from functools import cached_property
from typing import Any, NamedTuple
from xml.etree.ElementTree import Element

from irtcat._common.checks import InputError, shorten
from irtcat.service.content.fields import content_error
from irtcat.service.content.qti_xml import (
    as_number,
    by_identifier,
    check_attributes,
    local_name,
    required,
)

TEMPLATES = {
    "match_correct": "match",
    "map_response": "map",
    "CC2_match": "match",
    "CC2_map_response": "map",
}
"""The standard templates that are read, by the name at the end of their address."""


Expression = Callable[[list[Any], Element], Any]
"""A function of the values of an element's children and of the element."""


class Multiple(tuple[Any, ...]):
    """Values whose order does not matter, sorted."""


class Ordered(tuple[Any, ...]):
    """Values in order."""


class _Exit(Exception):  # noqa: N818
    """The rules end here."""


class Declaration:
    """The declared values of one response.

    Attributes:
        identifier: its name.
        cardinality: "single", "multiple" or "ordered".
        base_type: of its values.
        correct: the correct response; None if none is declared.
        named: the values of the correct response and the mapping.
        mapping: the points of values; None if none is declared.
    """

    def __init__(self, element: Element, where: str):
        self.where = where
        self.identifier = required(element, "identifier", where)
        self.cardinality = element.get("cardinality", "single")
        self.base_type = element.get("base-type", "")
        correct = element.findall("{*}qti-correct-response/{*}qti-value")
        values = [value_of(value.text, self.base_type, where) for value in correct]
        if self.cardinality == "single" and len(values) > 1:
            raise content_error(where, "one correct response of a single value", shorten(values))
        self.correct = self.container(values)
        mapping = element.find("{*}qti-mapping")
        self.mapping = None if mapping is None else _Mapping(mapping, self.base_type, where)
        self.named = [*values, *(self.mapping.points if self.mapping else ())]

    def container(self, values: list[Any]) -> Any:
        """Values as the response has them; None if there are none."""
        if not values:
            return None
        if self.cardinality == "single":
            return values[0]
        return Ordered(values) if self.cardinality == "ordered" else Multiple(sorted(values))

    @property
    def required_mapping(self) -> "_Mapping":
        """The mapping of the declaration."""
        if self.mapping is None:
            raise content_error(self.where, "a <qti-mapping> for map_response", "none")
        return self.mapping


class _State(NamedTuple):
    """Variables while rules are run."""

    outcomes: dict[str, Any]
    responses: Mapping[str, Any]


class Processing:
    """The rules of an item.

    Attributes:
        responses: the declared responses by their names.
        size: number of elements in the rules.
    """

    def __init__(self, root: Element, where: str):
        self.where = where
        declared = by_identifier(root, "qti-response-declaration", where)
        self.responses = {name: Declaration(element, where) for name, element in declared.items()}
        outcomes = by_identifier(root, "qti-outcome-declaration", where)
        self.outcomes = {name: self._default(outcome) for name, outcome in outcomes.items()}
        self._tables = {
            name: child
            for name, outcome in outcomes.items()
            for child in outcome
            if local_name(child) in TABLES
        }
        rules = root.find("{*}qti-response-processing")
        assert rules is not None  # the caller has found one
        check_attributes(rules, "template template-location", where)
        template = rules.get("template", "")
        self.template = TEMPLATES.get(template.rpartition("/")[2].removesuffix(".xml"), "")
        if template and (len(rules) or not self.template):
            must = f"a template of {', '.join(TEMPLATES)}"
            raise content_error(where, must, shorten(template))
        self.rules = list(rules)
        self._elements = list(rules.iter())
        self.size = len(self._elements)

    @cached_property
    def constants(self) -> list[Any]:
        """The values that declarations and rules name."""
        named = [value for declared in self.responses.values() for value in declared.named]
        return named + [
            value_of(element.text, element.get("base-type", ""), self.where)
            for element in self._elements
            if local_name(element) == "qti-base-value" and element.get("base-type") != "boolean"
        ]

    @cached_property
    def combined(self) -> list[list[str]]:
        """The lists of values that rules name."""
        return [
            [(child.text or "").strip() for child in element]
            for element in self._elements
            if local_name(element) in ("qti-multiple", "qti-ordered")
            and all(local_name(child) == "qti-base-value" for child in element)
        ]

    @cached_property
    def compares_ranges(self) -> bool:
        """Whether rules take numbers within a range, or parts of texts, not single ones."""
        return any(
            local_name(element) in (*COMPARISONS, "qti-substring")
            or element.get("tolerance-mode", "exact") != "exact"
            or element.get("substring", "false") == "true"
            for element in self._elements
        )

    def template_response(self) -> Declaration:
        """The response that a template scores: RESPONSE, or the only one with a key."""
        keyed = [it for it in self.responses.values() if it.correct is not None or it.mapping]
        found = [it for it in self.responses.values() if it.identifier == "RESPONSE"] or keyed
        if len(found) != 1:
            raise content_error(self.where, "a template for one response", f"{len(found)} of them")
        if self.template == "match" and found[0].correct is None:
            raise content_error(self.where, "a correct response for match_correct", "none")
        return found[0]

    def score(self, responses: Mapping[str, Any]) -> float:
        """The SCORE of responses by their names; those that are missing are left out."""
        if self.template:
            it = self.template_response()
            given = responses.get(it.identifier)
            if self.template == "match":
                return float(_same(given, it.correct) or 0)
            return it.required_mapping(given)
        state = _State(dict(self.outcomes), responses)
        with contextlib.suppress(_Exit):
            self._run(self.rules, state)
        score = state.outcomes.get("SCORE")
        if score is None:
            return 0.0
        if isinstance(score, (str, bool, tuple)) or not math.isfinite(score):
            raise content_error(self.where, "a SCORE that is a number", shorten(score))
        return round(float(score), 9)

    def _default(self, outcome: Element) -> Any:
        value = outcome.find("{*}qti-default-value/{*}qti-value")
        base_type = outcome.get("base-type", "")
        if value is not None:
            return value_of(value.text, base_type, self.where)
        return 0.0 if base_type in ("integer", "float") else None

    def _looked_up(self, name: str, value: Any) -> Any:
        """The value of an outcome by its table."""
        table = self._tables.get(name)
        if table is None:
            raise content_error(self.where, f"a table of {shorten(name)}", "none")
        at_least = local_name(table) == "qti-interpolation-table"
        for entry in table if value is not None else ():
            source = as_number(entry.get("source-value"), "source-value", self.where)
            inside = value > source or (
                value == source and entry.get("include-boundary") != "false"
            )
            if inside if at_least else value == source:
                return as_number(entry.get("target-value"), "target-value", self.where)
        default = table.get("default-value")
        return None if default is None else as_number(default, "default-value", self.where)

    def _run(self, rules: list[Element], state: _State) -> None:
        for rule in rules:
            name = local_name(rule)
            if name == "qti-response-condition":
                for branch in rule:
                    actions = list(branch)
                    if local_name(branch) != "qti-response-else":
                        if not actions:
                            raise content_error(self.where, f"a condition in <{name}>", "none")
                        if self._evaluate(actions.pop(0), state) is not True:
                            continue
                    self._run(actions, state)
                    break
            elif name == "qti-set-outcome-value":
                if len(rule) != 1:
                    raise content_error(self.where, f"one expression in <{name}>", len(rule))
                value = self._evaluate(rule[0], state)
                state.outcomes[required(rule, "identifier", self.where)] = value
            elif name == "qti-lookup-outcome-value":
                found = required(rule, "identifier", self.where)
                state.outcomes[found] = self._looked_up(found, self._evaluate(rule[0], state))
            elif name == "qti-response-processing-fragment":
                self._run(list(rule), state)
            elif name == "qti-exit-response":
                raise _Exit
            else:
                raise self._unsupported(name)

    def _unsupported(self, name: str) -> InputError:
        return InputError(f"{self.where}: <{name}> in response processing is not supported.")

    def _evaluate(self, element: Element, state: _State) -> Any:
        name = local_name(element)
        if name == "qti-base-value":
            return value_of(element.text, element.get("base-type", ""), self.where)
        if name == "qti-null":
            return None
        if name in ("qti-variable", "qti-correct", "qti-map-response", "qti-default"):
            return self._variable(name, required(element, "identifier", self.where), state)
        function = EXPRESSIONS.get(name)
        if function is None:
            raise self._unsupported(name)
        values = [self._evaluate(child, state) for child in element]
        try:
            return function(values, element)
        except (ArithmeticError, AttributeError, IndexError, TypeError, ValueError):
            got = shorten(values)
            raise content_error(self.where, f"values that <{name}> takes", got) from None

    def _variable(self, name: str, identifier: str, state: _State) -> Any:
        if identifier in self.responses:
            declared, given = self.responses[identifier], state.responses.get(identifier)
            if name == "qti-map-response":
                return declared.required_mapping(given)
            return {"qti-variable": given, "qti-correct": declared.correct}.get(name)
        if name == "qti-variable" and identifier in state.outcomes:
            return state.outcomes[identifier]
        if name == "qti-default" and identifier in self.outcomes:
            return self.outcomes[identifier]
        got = f"{shorten(identifier)} in <{name}>"
        raise content_error(self.where, "a declared response or an outcome", got)


def value_of(text: str | None, base_type: str, where: str) -> Any:
    """A value of QTI; pairs without a direction have their parts in alphabetical order."""
    plain = (text or "").strip()
    if base_type in ("integer", "float"):
        return as_number(plain, "a numeric value", where)
    if base_type in ("pair", "directedPair"):
        return " ".join(sorted(plain.split()) if base_type == "pair" else plain.split())
    return plain == "true" if base_type == "boolean" else plain


class _Mapping:
    """The points of values.

    Attributes:
        points: by value.
        cases: whether case matters, as the entries say.
        default: points of other values.
        bounds: the least and the greatest sum; None for no limit.
    """

    def __init__(self, mapping: Element, base_type: str, where: str):
        self.points: dict[Any, float] = {}
        self.cases = set[str]()
        self._folded: dict[str, float] = {}
        for entry in mapping:
            if local_name(entry) != "qti-map-entry":
                raise InputError(f"{where}: <{local_name(entry)}> in a mapping is not supported.")
            check_attributes(entry, "map-key mapped-value case-sensitive", where)
            value = value_of(required(entry, "map-key", where), base_type, where)
            if value in self.points:
                raise content_error(where, "each map-key once", shorten(value))
            points = as_number(entry.get("mapped-value"), "mapped-value", where)
            self.points[value] = points
            case = entry.get("case-sensitive", "false")  # the default of QTI 3.0
            self.cases.add(case)
            if base_type == "string" and case == "false":
                self._folded.setdefault(value.casefold(), points)
        self.default = as_number(mapping.get("default-value", "0"), "default-value", where)
        bounds = [(name, mapping.get(name)) for name in ("lower-bound", "upper-bound")]
        self.bounds = [None if it is None else as_number(it, name, where) for name, it in bounds]

    def __call__(self, response: Any) -> float:
        """The points of a response, within the bounds; 0 for one left out."""
        if response is None:
            return 0.0
        values = response if isinstance(response, tuple) else (response,)
        total = sum(self._points(value) for value in dict.fromkeys(values))
        low, high = self.bounds
        total = total if low is None else max(total, low)
        return round(total if high is None else min(total, high), 9)

    def _points(self, value: Any) -> float:
        if value in self.points:
            return self.points[value]
        return self._folded.get(value.casefold() if isinstance(value, str) else "", self.default)


def _same(one: Any, other: Any) -> bool | None:
    """Whether two values of one cardinality are the same; None where one of them is NULL."""
    if one is None or other is None:
        return None
    is_container = isinstance(one, tuple) or isinstance(other, tuple)
    return (type(one) is type(other) or not is_container) and bool(one == other)


def _equal(values: list[Any], element: Element) -> bool:
    one, other = values
    tolerance = [float(word) for word in element.get("tolerance", "0").split()]
    low, high = tolerance[0], tolerance[-1]
    mode = element.get("tolerance-mode", "exact")
    if mode == "relative":
        low, high = abs(one) * low / 100, abs(one) * high / 100
    return bool(one == other) if mode == "exact" else bool(one - low <= other <= one + high)


def _texts(values: list[Any], element: Element) -> list[str]:
    """Texts to compare, without their case where it does not matter."""
    folded = element.get("case-sensitive", "true") == "false"
    return [str(value).casefold() if folded else str(value) for value in values]


def _string_match(values: list[Any], element: Element) -> bool:
    one, other = _texts(values, element)
    return other in one if element.get("substring", "false") == "true" else one == other


def _index(values: list[Any], element: Element) -> Any:
    n = int(element.get("n", "1"))
    return values[0][n - 1] if 1 <= n <= len(values[0] or ()) else None


def _substring(values: list[Any], element: Element) -> bool:
    one, other = _texts(values, element)
    return one in other


def _flat(values: list[Any]) -> Iterator[Any]:
    """The values in containers too."""
    for value in values:
        yield from value if isinstance(value, tuple) else (value,)


def _and(values: list[Any], _: Element) -> bool | None:
    return False if False in values else None if None in values else True


def _or(values: list[Any], _: Element) -> bool | None:
    return True if True in values else None if None in values else False


def _contains(values: list[Any], _: Element) -> bool:
    return all(values[0].count(v) >= values[1].count(v) for v in values[1])


def _strict(function: Expression) -> Expression:
    """A function of values that is NULL where one of them is."""
    return lambda values, element: None if None in values else function(values, element)


def _numeric(function: Callable[..., Any]) -> Expression:
    """A function of numbers, also of those in containers; NULL where one of them is."""
    return _strict(lambda values, _: function(list(_flat(values))))


def _divide(numbers: list[float]) -> float | None:
    return numbers[0] / numbers[1] if numbers[1] else None


def _collected(kind: type, values: list[Any]) -> Any:
    found = [value for value in _flat(values) if value is not None]
    return kind(sorted(found) if kind is Multiple else found) if found else None


TABLES = ("qti-match-table", "qti-interpolation-table")

COMPARISONS: dict[str, Callable[[Any, Any], bool]] = {
    "qti-gt": operator.gt,
    "qti-gte": operator.ge,
    "qti-lt": operator.lt,
    "qti-lte": operator.le,
}

EXPRESSIONS: dict[str, Expression] = {
    "qti-match": lambda values, _: _same(*values),
    "qti-equal": _strict(_equal),
    "qti-string-match": _strict(_string_match),
    "qti-is-null": lambda values, _: values[0] is None or values[0] == "",
    "qti-and": _and,
    "qti-or": _or,
    "qti-not": _strict(lambda values, _: not values[0]),
    "qti-member": _strict(lambda values, _: values[0] in values[1]),
    "qti-contains": _strict(_contains),
    "qti-container-size": lambda values, _: float(len(values[0] or ())),
    "qti-multiple": lambda values, _: _collected(Multiple, values),
    "qti-ordered": lambda values, _: _collected(Ordered, values),
    "qti-index": _index,
    "qti-substring": _strict(_substring),
    "qti-sum": _numeric(sum),
    "qti-product": _numeric(math.prod),
    "qti-subtract": _numeric(lambda numbers: numbers[0] - numbers[1]),
    "qti-divide": _numeric(_divide),
    "qti-min": _numeric(min),
    "qti-max": _numeric(max),
    "qti-truncate": _numeric(lambda numbers: float(math.trunc(numbers[0]))),
    "qti-round": _numeric(lambda numbers: float(math.floor(numbers[0] + 0.5))),
    "qti-integer-to-float": _numeric(lambda numbers: float(numbers[0])),
    **{
        name: _numeric(lambda numbers, compare=compare: compare(numbers[0], numbers[1]))
        for name, compare in COMPARISONS.items()
    },
}
"""Expressions by name."""
