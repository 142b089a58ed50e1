"""Config: how an adaptive test starts, chooses, estimates and stops."""

import hashlib
import inspect
import json
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from types import UnionType
from typing import Any, get_args, get_origin

import numpy as np

from irtcat._checks import (
    argument_error,
    check_choice,
    check_count,
    check_positive,
    is_number,
)
from irtcat.cat._parts import Part, as_part
from irtcat.cat.content import CONTENT
from irtcat.cat.criteria import CRITERIA
from irtcat.cat.estimators import CONSTANT, METHODS
from irtcat.cat.exposure import EXPOSURE
from irtcat.cat.starting import START
from irtcat.cat.stopping import COMBINATIONS, STOPPING, leaves, length_within, parse_stopping

__all__ = ["PRIORS", "SHARES_WITHIN", "Config", "document_hash"]

PRIORS = ("normal", "uniform", "jeffreys")
MOST_NODES = 2001
LENGTH = 30
SHARES_WITHIN = 0.01
"""Shares that sum to 1 within this are taken to be rounded: they are scaled to sum to 1."""


@dataclass(frozen=True)
class Config:
    """All rules of an adaptive test; frozen, hashable, and JSON in `to_json` / `from_json`.

    Banks of two or three abilities take the criteria that have a meaning there ("d-optimal",
    "t-optimal", "a-optimal", "mepv", "mutual-information", "score-optimal" and others), the
    methods "eap" and "map" and the prior "normal"; what does not suit is refused by name.

    Attributes:
        criterion: what an item is worth; a name of `CRITERIA`.
        stopping: when a session is over: a name of `STOPPING`, a part, `any_of` / `all_of` of
            them, or words such as "se<0.3 or n>=30".
        method: "eap", "map", "ml", "wle" or "robust"; or a part with options (of "robust").
        exposure: a name of `EXPOSURE`, or a part with options.
        content: a name of `CONTENT`, a part, or several of them. Rules that close items
            ("testlets", "bounds", "shadow") act before those that only prefer some.
        start: a name of `START`, or a part with options: how the first items are chosen.
        prior: "normal" (by default the bank's population), "uniform" within the theta bounds, or
            "jeffreys" (the root of the test information).
        max_items: no session has more scored items; 0 (the default) for the longest that a length
            rule says, or 30 where none does. Items at ``pretest_at`` come on top.
        min_items: no stopping rule acts before.
        batch: number of items that are asked at a time, chosen jointly.
        theta_bounds: lowest and highest ability that estimates may take, on the bank's scale; by
            default the population's mean +- 5 SDs (of several abilities, each within +- 4).
        nodes: number of nodes of the grid between the theta bounds; by default as many as the
            narrowest posterior that ``max_items`` of the bank can give needs, and at least 81. Of
            several abilities it is the number for each, and at least 15.
        constant: what "ml" gives while all answers are right or all wrong: "bound" (the theta
            bound), "step" (``constant_step`` from the last estimate), "halfway" (to the hardest or
            easiest item), or another estimator.
        constant_step: length of those steps.
        group: column of the bank's metadata with the content group of each item.
        targets: group -> its share of the scored items, or (least, greatest) share. They hold
            whatever the content rule: `prepare` rounds them to a plan of whole numbers of items
            (largest remainders, within the bounds) or names the rules that conflict. Least shares
            that sum to 1 (+-.01) leave nothing to the other groups, less leaves them the rest.
            The plan is for a test of `full_length`; a session that another rule ends earlier
            has kept the upper bounds, and may not have reached the lower ones.
        enemies: sets of ids, of each of which a test holds at most one.
        testlet: column of the metadata with the testlet of each item; missing: on its own. It
            adds "testlets" to ``content``: a testlet that is begun is completed.
        pretest: column of the metadata that marks the items that are tried out and not scored.
        pretest_at: positions in the test (from 1) at which such an item is asked. These items
            count neither for ``max_items`` nor for the targets.
        first: ids of items that are always given first, in this order.
        strata: number of strata of "a-stratified", or their sizes.
        acceleration: exponent of "progressive" and "proportional".
        seconds: column of the metadata with the time that an answer takes, for simulations.
        sampled: share of the items, 0 to 1, that are drawn at random whatever the criterion: those
            at places spread evenly over the test, each open item with a chance in proportion to the
            SD of its answer. They keep predicted scores honest where the bank does not hold, for
            subjects stronger than any calibrated one in the first place.

    Raises:
        InputError: for an unknown name or option, or a number out of range.

    Example:
        >>> config = Config(criterion="mpwi", stopping="se<0.3 or n>=20", max_items=20)
        >>> Config.from_json(config.to_json()) == config
        True
    """

    criterion: str = "mfi"
    stopping: Any = "length"
    method: Any = "eap"
    exposure: Any = "none"
    content: Any = ()
    start: Any = "criterion"
    prior: str = "normal"
    max_items: int = 0
    min_items: int = 0
    batch: int = 1
    theta_bounds: tuple[float, float] | None = None
    nodes: int | None = None
    constant: str = "map"
    constant_step: float = 0.7
    group: str | None = None
    targets: Any = ()
    enemies: tuple[tuple[str, ...], ...] = ()
    testlet: str | None = None
    pretest: str | None = None
    pretest_at: tuple[int, ...] = ()
    first: tuple[str, ...] = ()
    strata: Any = 4
    acceleration: float = 1.0
    seconds: str | None = None
    sampled: float = 0.0

    def __post_init__(self) -> None:
        """Check the parts, and bring them to their one form."""
        check_choice("criterion", self.criterion, CRITERIA)
        method = _known("method", self.method, METHODS, 1)
        self._set("method", method if method.options else method.name)
        check_choice("prior", self.prior, PRIORS)
        check_choice("constant", self.constant, CONSTANT)
        check_count("max_items", self.max_items, 0)
        self._set("stopping", self._stopping())
        check_count("min_items", self.min_items, 0, self.max_items)
        check_count("batch", self.batch, 1, self.max_items)
        check_positive("constant_step", self.constant_step)
        check_positive("acceleration", self.acceleration)
        if self.nodes is not None:
            check_count("nodes", self.nodes, 5, MOST_NODES)
        self._set("exposure", _known("exposure", self.exposure, EXPOSURE, 2))
        self._set("start", _known("start", self.start, START, 2))
        several = self.content if isinstance(self.content, (list, tuple)) else (self.content,)
        self._set("content", tuple(_known("content", each, CONTENT, 2) for each in several))
        self._set(
            "theta_bounds", None if self.theta_bounds is None else _theta_bounds(self.theta_bounds)
        )
        self._set("targets", _targets(self.targets))
        self._set("first", _ids("first", self.first))
        sets = _several("enemies", "sets of ids", self.enemies)
        self._set("enemies", tuple(_ids("enemies", each) for each in sets))
        if any(len(set(each)) < 2 for each in self.enemies):
            raise argument_error("enemies", "sets of at least two ids each", self.enemies)
        for name in ("group", "testlet", "pretest", "seconds"):
            value = getattr(self, name)
            if value is not None and not isinstance(value, str):
                raise argument_error(name, "a column of the bank's metadata, or None", value)
        if self.testlet is not None and all(part.name != "testlets" for part in self.content):
            self._set("content", (*self.content, _known("content", "testlets", CONTENT, 2)))
        self._set("pretest_at", _several("pretest_at", "positions", self.pretest_at))
        for position in self.pretest_at:
            check_count("pretest_at", position)
        for earlier, position in enumerate(sorted(self.pretest_at)):
            # Later positions come after the last scored item, so that they would never be asked.
            check_count("pretest_at", position, 1, self.max_items + earlier)
        if len(set(self.pretest_at)) < len(self.pretest_at):
            raise argument_error("pretest_at", "positions that differ", self.pretest_at)
        if isinstance(self.strata, (list, tuple)):
            self._set("strata", tuple(self.strata))
        share = self.sampled
        if not isinstance(share, (int, float)) or isinstance(share, bool) or not 0 <= share <= 1:
            raise argument_error("sampled", "a proportion in [0, 1]", share)
        for number in self.strata if isinstance(self.strata, tuple) else (self.strata,):
            check_count("strata", number)
        if self.strata == ():
            raise argument_error("strata", "a number, or the sizes of the strata", self.strata)
        self._check_needs()

    @staticmethod
    def for_evaluation(max_items: int = 100, **rules: Any) -> "Config":
        """Rules that suit the evaluation of models, whose full-benchmark score is wanted.

        "score-optimal", and half of the items drawn (``sampled=0.5``): a bank of the models of
        yesterday does not hold for those of tomorrow. Read the scores by `Report.predict`. Where
        new models are like the calibrated ones ``sampled=0`` is better; where they are known to be
        stronger, a fixed subset of the same length ("balanced", read by "auto") is.

        Args:
            max_items: length of every session.
            **rules: further fields of `Config`, which go over these.

        Example:
            >>> Config.for_evaluation(60, batch=10).sampled
            0.5
        """
        own: dict[str, Any] = {"criterion": "score-optimal", "sampled": 0.5, "max_items": max_items}
        return Config(**(own | rules))

    @property
    def n_strata(self) -> int:
        """Number of strata of "a-stratified"."""
        return len(self.strata) if isinstance(self.strata, tuple) else self.strata

    @property
    def total_items(self) -> int:
        """The most items that a session can have: the scored ones and those tried out."""
        return self.max_items + len(self.pretest_at)

    @property
    def full_length(self) -> int:
        """Number of scored items of a session that only rules on its length end.

        Example:
            >>> Config(stopping="se<0.3 or n>=12", max_items=20).full_length
            12
        """
        length = max(length_within(self.stopping, math.inf), self.min_items)
        return int(min(length, self.max_items))

    @property
    def least_length(self) -> int:
        """The fewest scored items that a session can have before a rule may end it."""
        return int(min(max(length_within(self.stopping, 0), self.min_items), self.max_items))

    def _set(self, name: str, value: Any) -> None:
        object.__setattr__(self, name, value)

    def _stopping(self) -> Part:
        """The stopping rule, with a length at ``max_items`` where it says none of its own."""
        given = self.stopping
        if isinstance(given, str) and given not in STOPPING:
            given = parse_stopping(given)
        rule = _stopping_rule(given)
        lengths = [leaf.get("at") for leaf in leaves(rule) if leaf.name == "length"]
        if self.max_items == 0:
            known = [at for at in lengths if isinstance(at, int) and at > 0]
            self._set("max_items", max(known, default=LENGTH))
        if rule == Part("length"):
            rule = Part("length", (("at", self.max_items),))
        return rule

    def _check_needs(self) -> None:
        """Rules that need content groups, targets or testlets say so."""
        names = {each.name for each in self.content}
        by_group = names & {"kingsbury-zara", "penalties", "bounds", "shadow"}
        if (by_group or self.targets) and self.group is None:
            raise argument_error("group", "a column of the bank's metadata", None)
        if by_group and not self.targets:
            raise argument_error("targets", "the share of each content group", None)
        if "testlets" in names and self.testlet is None:
            raise argument_error("testlet", "a column of the bank's metadata", None)
        if self.pretest_at and self.pretest is None:
            raise argument_error("pretest", "a column of the bank's metadata", None)

    def to_json(self) -> dict[str, Any]:
        """The configuration in types that JSON knows."""
        out: dict[str, Any] = {}
        for field in fields(self):
            value = getattr(self, field.name)
            if isinstance(value, Part):
                value = value.to_json()
            elif field.name == "content":
                value = [each.to_json() for each in value]
            out[field.name] = json.loads(json.dumps(value))
        return out

    @staticmethod
    def from_json(document: Mapping[str, Any]) -> "Config":
        """A configuration from what `to_json` gave.

        Raises:
            InputError: naming an unknown field.
        """
        known = {field.name for field in fields(Config)}
        if not isinstance(document, Mapping):
            raise argument_error("config", "a mapping of the fields of Config", document)
        named = {RENAMED.get(name, name): value for name, value in document.items()}
        if set(named) - known or len(named) < len(document):
            unknown = sorted(set(document) - known)
            raise argument_error("config", "a mapping of the fields of Config", unknown)
        if named.get("constant") == "fence":
            named["constant"] = "bound"
        try:
            return Config(**named)
        except RecursionError:
            raise argument_error("config", "of rules in few levels", "rules within rules") from None

    def hash(self) -> str:
        """SHA-256 of the configuration, in hexadecimal: what a session is frozen by."""
        return document_hash(self.to_json())


RENAMED = {"estimator": "method", "fences": "theta_bounds"}
"""Fields by the names that sessions and stores of earlier versions have them under."""


def document_hash(document: Mapping[str, Any]) -> str:
    """SHA-256 of a JSON document, whatever the order of its fields."""
    return hashlib.sha256(json.dumps(document, sort_keys=True).encode()).hexdigest()


def _stopping_rule(value: Any) -> Part:
    """A stopping rule, with those that it combines."""
    rule = as_part("stopping", value)
    if rule.name not in COMBINATIONS:
        return _known("stopping", rule, STOPPING, 1)
    inner = rule.get("rules")
    if set(rule.kwargs()) != {"rules"} or not isinstance(inner, tuple) or not inner:
        raise argument_error("stopping", f"{rule.name} of a list of rules", value)
    return Part(rule.name, (("rules", tuple(_stopping_rule(each) for each in inner)),))


def _known(argument: str, value: Any, table: Mapping[str, Callable[..., Any]], skip: int) -> Part:
    """A part whose name is in the table, with options that its function takes."""
    made = as_part(argument, value)
    check_choice(argument, made.name, table)
    takes = dict(list(inspect.signature(table[made.name]).parameters.items())[skip:])
    unknown = sorted(set(made.kwargs()) - set(takes))
    if unknown:
        options = ", ".join(takes) or "no options"
        raise argument_error(argument, f"{made.name!r} with {options}", unknown)
    for name, option in made.options:
        kind = takes[name].annotation
        several = get_args(kind) if isinstance(kind, UnionType) else (kind,)
        kinds = [each for each in (get_origin(each) or each for each in several) if each in OPTIONS]
        if kinds and not any(OPTIONS[each][1](option) for each in kinds):
            must = " or ".join(OPTIONS[each][0] for each in kinds)
            raise argument_error(argument, f"{made.name!r} with {name} {must}", option)
    return made


def _is_whole(value: Any) -> bool:
    return isinstance(value, (int, np.integer)) and not isinstance(value, bool)


def _is_numbers(value: Any) -> bool:
    return isinstance(value, tuple) and bool(value) and all(map(is_number, value))


OPTIONS: dict[Any, tuple[str, Callable[[Any], bool]]] = {
    int: ("a whole number", _is_whole),
    float: ("a finite number", is_number),
    tuple: ("finite numbers", _is_numbers),
    str: ("a text", lambda value: isinstance(value, str)),
    type(None): ("None", lambda value: value is None),
}
"""What an option of a rule must be, by its annotation; others the rule checks itself."""


def _several(name: str, what: str, value: Any) -> tuple[Any, ...]:
    """The members of a list, tuple, set, range or array."""
    if not isinstance(value, (list, tuple, set, frozenset, range, np.ndarray)):
        raise argument_error(name, f"a list of {what}", value)
    return tuple(value)


def _ids(name: str, value: Any) -> tuple[str, ...]:
    """Ids of items as text."""
    ids = _several(name, "ids", value)
    for each in ids:
        if not (isinstance(each, str) or _is_whole(each)) or not str(each).strip():
            raise argument_error(name, "ids of items, each a text that is not empty", each)
    return tuple(map(str, ids))


def _theta_bounds(value: Any) -> tuple[float, float]:
    ends = _several("theta_bounds", "two numbers", value)
    if len(ends) != 2 or not all(map(is_number, ends)) or not ends[0] < ends[1]:
        raise argument_error("theta_bounds", "two finite numbers in rising order", value)
    return float(ends[0]), float(ends[1])


def _targets(value: Any) -> tuple[tuple[str, float, float], ...]:
    """Group, least and greatest share."""
    given = list(value.items()) if isinstance(value, Mapping) else value
    out = []
    for each in _several("targets", "groups with their shares", given):
        group, *shares = _several("targets", "groups with their shares", each) or ("",)
        if len(shares) == 1 and isinstance(shares[0], (list, tuple)):
            shares = list(shares[0])
        if not isinstance(group, str) and not is_number(group) and not isinstance(group, bool):
            raise argument_error("targets", "of groups that are named", group)
        number = len(shares) in (1, 2) and all(map(is_number, shares))
        if not number or not 0 <= shares[0] <= shares[-1] <= 1:
            must = "one share for each group, or the least and the greatest, from 0 to 1"
            raise argument_error("targets", must, {group: shares})
        out.append((str(group), float(shares[0]), float(shares[-1])))
    if len({group for group, *_ in out}) < len(out):
        raise argument_error("targets", "each group once", [group for group, *_ in out])
    if sum(low for _, low, _ in out) > 1 + SHARES_WITHIN + 1e-9:
        raise argument_error("targets", "shares that sum to at most 1", value)
    return tuple(out)
