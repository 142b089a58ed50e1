"""Response processing of QTI: a small interpreter of its rules and expressions.

It gives the SCORE of one response. Values are None (NULL), numbers, texts, truth values, and
containers: `Multiple`, whose order does not matter, and `Ordered`. Rules and expressions that are
not in the tables below are refused by name.
"""

import contextlib
import math
import operator
from collections.abc import Callable, Iterator
from typing import Any
from xml.etree.ElementTree import Element

from irtcat._common.checks import InputError, shorten
from irtcat.service.content.fields import content_error
from irtcat.service.content.qti_attributes import as_number, check_attributes, required
from irtcat.service.content.xml import local_name

TEMPLATES: dict[str, str] = {
    "match_correct": "match",
    "map_response": "map",
    "CC2_match": "match",
    "CC2_map_response": "map",
}
"""The standard templates that are read, by the name at the end of their address."""


class Multiple(tuple[Any, ...]):
    """Values whose order does not matter, sorted."""


class Ordered(tuple[Any, ...]):
    """Values in order."""


class _Exit(Exception):  # noqa: N818
    """The rules end here."""


class Processing:
    """The rules of an item with one response.

    Attributes:
        correct: the correct response; None if none is declared.
        named: the values of the correct response and the mapping.
        constants: these, and the values that rules name.
        size: number of elements in the rules.
        compares_ranges: whether rules take numbers within a range, not single ones.
    """

    def __init__(self, root: Element, declaration: Element, where: str):
        self.where = where
        self.response = declaration.get("identifier", "")
        self.cardinality = declaration.get("cardinality", "single")
        self.base_type = declaration.get("base-type", "")
        self.outcomes = {
            required(outcome, "identifier", where): self._default(outcome)
            for outcome in root.findall("{*}qti-outcome-declaration")
        }
        correct = declaration.findall("{*}qti-correct-response/{*}qti-value")
        values = [self._value(value.text, self.base_type) for value in correct]
        if self.cardinality == "single" and len(values) > 1:
            raise content_error(where, "one correct response of a single value", shorten(values))
        self.correct = self.container(values)
        mapping = declaration.find("{*}qti-mapping")
        self.mapping = None if mapping is None else _Mapping(mapping, self._value, self)
        rules = root.find("{*}qti-response-processing")
        assert rules is not None  # the caller has found one
        check_attributes(rules, "template template-location", where)
        template = rules.get("template", "")
        self.template = TEMPLATES.get(template.rpartition("/")[2].removesuffix(".xml"), "")
        if template and (len(rules) or not self.template):
            must = f"a template of {', '.join(TEMPLATES)}"
            raise content_error(where, must, shorten(template))
        if self.template == "match" and self.correct is None:
            raise content_error(where, "a correct response for match_correct", "none")
        self.rules = list(rules)
        elements = list(rules.iter())
        self.size = len(elements)
        self._given: Any = None
        self.named = [*values, *(self.mapping.points if self.mapping else ())]
        self.constants = self.named + [
            self._value(element.text, element.get("base-type", ""))
            for element in elements
            if local_name(element) == "qti-base-value" and element.get("base-type") != "boolean"
        ]
        self.compares_ranges = any(
            local_name(element) in COMPARISONS
            or element.get("tolerance-mode", "exact") != "exact"
            or element.get("substring", "false") == "true"
            for element in elements
        )

    def score(self, response: Any) -> float:
        """The SCORE of a response; None for one left out."""
        if self.template == "match":
            return float(_same(response, self.correct) or 0)
        if self.template == "map":
            return self.mapped(response)
        outcomes, self._given = dict(self.outcomes), response
        with contextlib.suppress(_Exit):
            self._run(self.rules, outcomes)
        score = outcomes.get("SCORE")
        if score is None:
            return 0.0
        if isinstance(score, (str, bool, tuple)) or not math.isfinite(score):
            raise content_error(self.where, "a SCORE that is a number", shorten(score))
        return float(score)

    def container(self, values: list[Any]) -> Any:
        """Values as the response has them; None if there are none."""
        if not values:
            return None
        if self.cardinality == "single":
            return values[0]
        return Ordered(values) if self.cardinality == "ordered" else Multiple(sorted(values))

    def mapped(self, response: Any) -> float:
        """The points of a response by the mapping of its declaration."""
        return self.required_mapping(response)

    @property
    def required_mapping(self) -> "_Mapping":
        """The mapping of the declaration."""
        if self.mapping is None:
            raise content_error(self.where, "a <qti-mapping> for map_response", "none")
        return self.mapping

    def _value(self, text: str | None, base_type: str) -> Any:
        plain = (text or "").strip()
        if base_type in ("integer", "float"):
            return as_number(plain, "a numeric value", self.where)
        return plain == "true" if base_type == "boolean" else plain

    def _default(self, outcome: Element) -> Any:
        value = outcome.find("{*}qti-default-value/{*}qti-value")
        base_type = outcome.get("base-type", "")
        if value is not None:
            return self._value(value.text, base_type)
        return 0.0 if base_type in ("integer", "float") else None

    def _run(self, rules: list[Element], outcomes: dict[str, Any]) -> None:
        for rule in rules:
            name = local_name(rule)
            if name == "qti-response-condition":
                for branch in rule:
                    actions = list(branch)
                    if local_name(branch) != "qti-response-else":
                        if not actions:
                            raise content_error(self.where, f"a condition in <{name}>", "none")
                        if self._evaluate(actions.pop(0), outcomes) is not True:
                            continue
                    self._run(actions, outcomes)
                    break
            elif name == "qti-set-outcome-value":
                if len(rule) != 1:
                    raise content_error(self.where, f"one expression in <{name}>", len(rule))
                value = self._evaluate(rule[0], outcomes)
                outcomes[required(rule, "identifier", self.where)] = value
            elif name == "qti-response-processing-fragment":
                self._run(list(rule), outcomes)
            elif name == "qti-exit-response":
                raise _Exit
            else:
                raise self._unsupported(name)

    def _unsupported(self, name: str) -> InputError:
        return InputError(f"{self.where}: <{name}> in response processing is not supported.")

    def _evaluate(self, element: Element, outcomes: dict[str, Any]) -> Any:
        """The value of an expression."""
        name = local_name(element)
        if name == "qti-base-value":
            return self._value(element.text, element.get("base-type", ""))
        if name == "qti-null":
            return None
        if name in ("qti-variable", "qti-correct", "qti-map-response", "qti-default"):
            return self._variable(name, required(element, "identifier", self.where), outcomes)
        function = EXPRESSIONS.get(name)
        if function is None:
            raise self._unsupported(name)
        values = [self._evaluate(child, outcomes) for child in element]
        try:
            return function(values, element)
        except (ArithmeticError, AttributeError, IndexError, TypeError, ValueError):
            got = shorten(values)
            raise content_error(self.where, f"values that <{name}> takes", got) from None

    def _variable(self, name: str, identifier: str, outcomes: dict[str, Any]) -> Any:
        if identifier == self.response:
            if name == "qti-map-response":
                return self.mapped(self._given)
            return {"qti-variable": self._given, "qti-correct": self.correct}.get(name)
        if name == "qti-variable" and identifier in outcomes:
            return outcomes[identifier]
        if name == "qti-default" and identifier in self.outcomes:
            return self.outcomes[identifier]
        got = f"{shorten(identifier)} in <{name}>"
        raise content_error(self.where, "the declared response or an outcome", got)


class _Mapping:
    """The points of values.

    Attributes:
        points: by value.
        cases: whether case matters, as the entries say.
        default: points of other values.
        bounds: the least and the greatest sum; None for no limit.
    """

    def __init__(self, mapping: Element, value_of: Callable[..., Any], processing: Processing):
        where = processing.where
        self.points: dict[Any, float] = {}
        self.cases = set[str]()
        self._folded: dict[str, float] = {}
        for entry in mapping:
            if local_name(entry) != "qti-map-entry":
                raise InputError(f"{where}: <{local_name(entry)}> in a mapping is not supported.")
            check_attributes(entry, "map-key mapped-value case-sensitive", where)
            value = value_of(required(entry, "map-key", where), processing.base_type)
            if value in self.points:
                raise content_error(where, "each map-key once", shorten(value))
            points = as_number(entry.get("mapped-value"), "mapped-value", where)
            self.points[value] = points
            case = entry.get("case-sensitive", "false")  # the default of QTI 3.0
            self.cases.add(case)
            if processing.base_type == "string" and case == "false":
                self._folded.setdefault(value.casefold(), points)
        self.default = as_number(mapping.get("default-value", "0"), "default-value", where)
        self.bounds: list[float | None] = [
            None
            if mapping.get(f"{name}-bound") is None
            else as_number(mapping.get(f"{name}-bound"), f"{name}-bound", where)
            for name in ("lower", "upper")
        ]

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


def _equal(values: list[Any], element: Element) -> bool | None:
    if None in values:
        return None
    one, other = values
    tolerance = [float(word) for word in element.get("tolerance", "0").split()]
    low, high = tolerance[0], tolerance[-1]
    mode = element.get("tolerance-mode", "exact")
    if mode == "relative":
        low, high = abs(one) * low / 100, abs(one) * high / 100
    return bool(one == other) if mode == "exact" else bool(one - low <= other <= one + high)


def _string_match(values: list[Any], element: Element) -> bool | None:
    if None in values:
        return None
    one, other = map(str, values)
    if element.get("case-sensitive", "true") == "false":
        one, other = one.casefold(), other.casefold()
    return other in one if element.get("substring", "false") == "true" else one == other


def _flat(values: list[Any]) -> Iterator[Any]:
    """The values in containers too."""
    for value in values:
        yield from value if isinstance(value, tuple) else (value,)


def _and(values: list[Any], _: Element) -> bool | None:
    return False if False in values else None if None in values else True


def _or(values: list[Any], _: Element) -> bool | None:
    return True if True in values else None if None in values else False


def _not(values: list[Any], _: Element) -> bool | None:
    return None if values[0] is None else not values[0]


def _contains(values: list[Any], _: Element) -> bool | None:
    if None in values:
        return None
    return all(values[0].count(v) >= values[1].count(v) for v in values[1])


def _numeric(function: Callable[..., Any]) -> Callable[[list[Any], Element], Any]:
    """A function of numbers, also of those in containers; NULL where one of them is."""

    def evaluate(values: list[Any], element: Element) -> Any:
        numbers = list(_flat(values))
        if None in numbers:
            return None
        return function(numbers)

    return evaluate


def _divide(numbers: list[float]) -> float | None:
    return numbers[0] / numbers[1] if numbers[1] else None


def _collected(kind: type, values: list[Any]) -> Any:
    found = [value for value in _flat(values) if value is not None]
    return kind(sorted(found) if kind is Multiple else found) if found else None


COMPARISONS: dict[str, Callable[[Any, Any], bool]] = {
    "qti-gt": operator.gt,
    "qti-gte": operator.ge,
    "qti-lt": operator.lt,
    "qti-lte": operator.le,
}

EXPRESSIONS: dict[str, Callable[[list[Any], Element], Any]] = {
    "qti-match": lambda values, _: _same(*values),
    "qti-equal": _equal,
    "qti-string-match": _string_match,
    "qti-is-null": lambda values, _: values[0] is None or values[0] == "",
    "qti-and": _and,
    "qti-or": _or,
    "qti-not": _not,
    "qti-member": lambda values, _: None if None in values else values[0] in values[1],
    "qti-contains": _contains,
    "qti-container-size": lambda values, _: float(len(values[0] or ())),
    "qti-multiple": lambda values, _: _collected(Multiple, values),
    "qti-ordered": lambda values, _: _collected(Ordered, values),
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
"""Expressions by name: functions of the values of their children and of the element."""
