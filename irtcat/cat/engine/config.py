"""Config: how an adaptive test starts, chooses, estimates and stops."""

import inspect
import itertools
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from types import UnionType
from typing import Any, get_args, get_origin

import numpy as np

from irtcat._common.checks import (
    argument_error,
    check_choice,
    check_count,
    check_interval,
    check_positive,
    is_number,
    is_whole,
)
from irtcat._files.json import json_hash, json_value
from irtcat.cat.belief.line import PRIORS
from irtcat.cat.rows import Part, Rule, Settings, as_part, part
from irtcat.cat.rules.content import CONTENT
from irtcat.cat.rules.criteria import CRITERIA
from irtcat.cat.rules.estimators import CONSTANT, METHODS
from irtcat.cat.rules.exposure import EXPOSURE
from irtcat.cat.rules.sampling import FLOOR
from irtcat.cat.rules.starting import START
from irtcat.cat.rules.stopping import (
    COMBINATIONS,
    STOPPING,
    check_half_width,
    length_within,
    parse_stopping,
    single_rules,
)
from irtcat.prediction.task import ReplayedLength
from irtcat.selection import expectation_of

MOST_NODES = 2001
"""Maximum number of nodes of the grid of one ability."""

LENGTH = 30
"""Default of ``max_items`` without a length rule."""

COLUMN = "a column of the bank's metadata"

SHARES_WITHIN = 0.01
"""Shares that sum to 1 within this are treated as rounded: they are scaled to sum to 1."""


OTHER_RULES = ("content", "start", "exposure", "enemies", "targets", "testlet", "pretest", "first")
"""Rules beside the criterion that choose items."""


@dataclass(frozen=True)
class FixedItems:
    """A fixed subset that a session follows: first, and where its criterion should not choose.

    A criterion learns the subject from its answers, and is right only for subjects like the
    calibrated ones. The first items of the subset are asked in any case. Then, while the predicted
    full score +- 1 SD is not ``within`` two limits, its other items are asked instead of those of
    the criterion.

    Attributes:
        items: ids of the subset, in order.
        core: number of these that are asked first; by default all.
        within: the limits; None for none.
        seed: seed with which `irtcat.select` chose the items from the calibrated responses;
            `Report.predict` can then treat a session that followed them as this subset. None for
            other items.
        plan: digest of what `plan_evaluation` chose the items from, which identifies the plan where
            the last digits of its numbers differ between processors; empty for other items.
        replayed: what replays of calibrated subjects say of sessions, by length
            (`irtcat.prediction.task.ReplayedLength`): `Report.predict` predicts by it, and the
            stopping rule "predicted-width" needs it; empty without replays.

    Raises:
        InputError: for ids that repeat, or numbers out of range.
    """

    items: tuple[str, ...]
    core: int | None = None
    within: tuple[float, float] | None = None
    seed: int | None = None
    plan: str = ""
    replayed: tuple[ReplayedLength, ...] = ()

    def __post_init__(self) -> None:
        """Check the fields, and convert them to their canonical form."""
        ids = _ids("fixed", self.items)
        if not ids or len(set(ids)) < len(ids):
            raise argument_error("fixed", "ids of items that differ", list(ids))
        if self.core is not None:
            check_count("core", self.core, 0, len(ids))
        within = self.within
        if within is not None:
            ends = _members("within", "two numbers", within)
            if len(ends) != 2 or not all(map(is_number, ends)) or not 0 <= ends[0] <= ends[1] <= 1:
                raise argument_error("within", "two scores from 0 to 1 in rising order", within)
            within = float(ends[0]), float(ends[1])
        if self.seed is not None:
            check_count("seed", self.seed, 0)
        if not isinstance(self.plan, str):
            raise argument_error("plan", "text", self.plan)
        object.__setattr__(self, "replayed", _replayed(self.replayed))
        object.__setattr__(self, "items", ids)
        object.__setattr__(self, "within", within)

    @property
    def n_core(self) -> int:
        """Number of items that are asked first."""
        return len(self.items) if self.core is None else self.core


@dataclass(frozen=True)
class Config(Settings):
    """All rules of an adaptive test; frozen, hashable, converted by `to_json` / `from_json`.

    Banks of several abilities accept the rules whose rows say so: the criteria "d-optimal",
    "t-optimal", "a-optimal", "mepv", "mutual-information", "score-optimal" and others, the methods
    "eap" (up to three abilities) and "map", and the prior "normal". Other rules raise an error that
    names those.

    Attributes:
        criterion: how items are valued; a name of `CRITERIA`.
        stopping: when a session ends: a name of `STOPPING`, a part, `any_of` / `all_of` of them, or
            text such as "se<0.3 or n>=30".
        method: "eap", "map", "ml", "wle" or "robust"; or a part with options (of "robust").
        exposure: a name of `EXPOSURE`, or a part with options.
        content: a name of `CONTENT`, a part, or several of them. Rules that close items
            ("testlets", "bounds", "shadow") act before those that only prefer some.
        start: how the first items are chosen; a name of `START`, or a part with options.
        prior: a name of `PRIORS`: "normal" (by default the bank's population, also where it is a
            density or a mixture), "uniform" within the theta bounds, or "jeffreys" (the root of the
            test information).
        max_items: maximum number of scored items. 0 (the default) is the greatest length of a
            length rule, or 30 without one that ends a session by itself (and with one that does
            not, as in "se<0.3 and n>=8", at least 30). Items at ``pretest_at`` are extra.
        min_items: number of scored items before a stopping rule may act.
        batch: number of items asked at a time, chosen jointly.
        theta_bounds: lowest and highest possible estimate, on the bank's scale; by default the
            population's mean +- 5 SDs, wider where a density or a part of a mixture reaches beyond
            (+- 4 for each of several abilities).
        nodes: number of nodes of the grid between the theta bounds (for each ability); by default
            as many as the narrowest posterior after ``max_items`` of the bank requires, and at
            least 81 (15 with several abilities).
        constant: the estimate of "ml" while all answers are right or all wrong: "bound" (the theta
            bound), "step" (``constant_step`` from the last estimate), "halfway" (to the hardest or
            easiest item), or another estimator.
        constant_step: length of those steps.
        group: column of the bank's metadata with the content group of each item.
        targets: group -> its share of the scored items, or (least, greatest) share. They apply with
            any content rule: `prepare` rounds them to a plan of whole numbers of items (largest
            remainders, within the bounds) or names the rules that conflict. If the least shares sum
            to 1 (+-.01) the other groups get no items, otherwise they get the rest. The plan is for
            a test of `full_length`; a session that another rule ends earlier satisfies the upper
            bounds, and may not have reached the lower ones.
        enemies: sets of ids; a test holds at most one item of each set.
        testlet: column of the metadata with the testlet of each item; missing for items outside
            testlets. It adds "testlets" to ``content``: a testlet that is begun is completed.
        pretest: column of the metadata that marks pretest items, which are not scored.
        pretest_at: positions in the test (from 1) at which a pretest item is asked. These items
            count neither for ``max_items`` nor for the targets.
        first: ids of items that are always asked first, in this order.
        fixed: a fixed subset that is followed (`FixedItems`), or None. Not with other rules that
            choose or exclude items.
        strata: number of strata of "a-stratified", or their sizes.
        acceleration: exponent of "progressive" and "proportional".
        seconds: column of the metadata with the time that an answer takes, for simulations.
        cost: column of the metadata with the expected cost of each item (dollars, tokens, minutes).
            The value of an item is then divided by its cost: the criterion must be a gain of at
            least 0, such as "mfi", "score-optimal" or "score-factors", or "sequential" or "random",
            whose order stays. A factor by which a subject is more expensive than others on all
            items changes no choice.
        budget: maximum total cost of the items of a session: items that cost more than is left are
            closed. None for no limit.
        sampled: share of the items, 0 to 1, that are drawn at random instead of chosen by the
            criterion, at positions spread evenly over the test; the probability of an open item is
            proportional to the SD of its answer. They correct predicted scores where the bank does
            not fit, above all for subjects stronger than any calibrated one.
        uniform: share of that probability, above 0 to 1, that is spread evenly over the open items
            instead: it bounds the weight of an answer where the bank is wrong.
        expect: what is known of the subjects, as in `irtcat.predict`: predicted full scores use it.

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
    fixed: FixedItems | None = None
    strata: Any = 4
    acceleration: float = 1.0
    seconds: str | None = None
    cost: str | None = None
    budget: float | None = None
    sampled: float = 0.0
    uniform: float = FLOOR
    expect: str | None = None

    def __post_init__(self) -> None:
        """Check the fields, and convert them to their canonical form."""
        check_choice("criterion", self.criterion, CRITERIA)
        method = _checked_rule("method", self.method, METHODS, 1)
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
        self._set("exposure", _checked_rule("exposure", self.exposure, EXPOSURE, 2))
        self._set("start", _checked_rule("start", self.start, START, 2))
        rules = self.content if isinstance(self.content, (list, tuple)) else (self.content,)
        self._set("content", tuple(_checked_rule("content", rule, CONTENT, 2) for rule in rules))
        if self.theta_bounds is not None:
            self._set("theta_bounds", _theta_bounds(self.theta_bounds))
        self._set("targets", _targets(self.targets))
        self._set("first", _ids("first", self.first))
        self._check_enemies()
        self._check_columns()
        self._check_pretest()
        self._check_strata()
        share = self.sampled
        if not isinstance(share, (int, float)) or isinstance(share, bool) or not 0 <= share <= 1:
            raise argument_error("sampled", "a proportion in [0, 1]", share)
        if not is_number(self.uniform) or not 0 < self.uniform <= 1:
            raise argument_error("uniform", "a proportion in (0, 1]", self.uniform)
        expectation_of(self.expect)
        self._check_costs()
        self._check_fixed()
        self._check_needs()

    def _check_fixed(self) -> None:
        fixed = self.fixed
        if fixed is None:
            return
        if isinstance(fixed, Mapping):
            unknown = set(fixed) - {field.name for field in fields(FixedItems)}
            if unknown or "items" not in fixed:
                raise argument_error("fixed", "a mapping of the fields of FixedItems", fixed)
            fixed = FixedItems(**fixed)
        if not isinstance(fixed, FixedItems):
            raise argument_error("fixed", "a FixedItems, or None", fixed)
        self._set("fixed", fixed)
        why = "with fixed items, which no other rule may exclude"
        self._check_equals(Config(), ("sampled", *OTHER_RULES), why)

    def _check_costs(self) -> None:
        if self.cost is not None and CRITERIA[self.criterion].by_cost is None:
            able = ", ".join(name for name, row in CRITERIA.items() if row.by_cost is not None)
            raise argument_error("criterion", f"one of {able} with costs", self.criterion)
        if self.budget is not None:
            check_positive("budget", self.budget)
            if self.cost is None:
                raise argument_error("cost", f"{COLUMN}, for a budget", None)

    def _check_enemies(self) -> None:
        sets = _members("enemies", "sets of ids", self.enemies)
        self._set("enemies", _in_order(self.enemies, (_ids("enemies", ids) for ids in sets)))
        if any(len(set(ids)) < 2 for ids in self.enemies):
            raise argument_error("enemies", "sets of at least two ids each", self.enemies)

    def _check_columns(self) -> None:
        for name in ("group", "testlet", "pretest", "seconds", "cost"):
            value = getattr(self, name)
            if value is not None and not isinstance(value, str):
                raise argument_error(name, f"{COLUMN}, or None", value)
        if self.testlet is not None and all(part.name != "testlets" for part in self.content):
            self._set("content", (*self.content, _checked_rule("content", "testlets", CONTENT, 2)))

    def _check_pretest(self) -> None:
        self._set("pretest_at", _members("pretest_at", "positions", self.pretest_at))
        for position in self.pretest_at:
            check_count("pretest_at", position)
        for earlier, position in enumerate(sorted(self.pretest_at)):
            # Later positions come after the last scored item and would never be reached.
            check_count("pretest_at", position, 1, self.max_items + earlier)
        if len(set(self.pretest_at)) < len(self.pretest_at):
            raise argument_error("pretest_at", "positions that differ", self.pretest_at)

    def _check_strata(self) -> None:
        if isinstance(self.strata, (list, tuple)):
            self._set("strata", tuple(self.strata))
        for number in self.strata if isinstance(self.strata, tuple) else (self.strata,):
            check_count("strata", number)
        if self.strata == ():
            raise argument_error("strata", "a number, or the sizes of the strata", self.strata)

    @staticmethod
    def for_evaluation(max_items: int = 100, expect: str | None = None, **rules: Any) -> "Config":
        """A configuration for the evaluation of models, which estimates the full-benchmark score.

        "score-optimal", and half of the items drawn (``sampled=0.5``), since a bank calibrated on
        earlier models may not fit new ones. Compute the scores with `Report.predict`. Where new
        models are expected to be like the calibrated ones no item is drawn, where they are expected
        to be weaker all are.

        Args:
            max_items: length of every session.
            expect: what is known of the models: "similar", "stronger" or "weaker".
            **rules: further fields of `Config`, which override these.

        Example:
            >>> Config.for_evaluation(60, batch=10).sampled
            0.5
            >>> Config.for_evaluation(60, "similar").sampled
            0.0
        """
        expectation = expectation_of(expect)
        defaults: dict[str, Any] = {
            "criterion": "score-optimal",
            "sampled": 0.5 if expectation is None else expectation.drawn,
            "max_items": max_items,
            "expect": expect,
        }
        return Config(**(defaults | rules))

    @staticmethod
    def guaranteed(
        max_items: int = 200,
        half_width: float = 0.0,
        level: float = 0.95,
        uniform: float = 0.7,
        **rules: Any,
    ) -> "Config":
        """A configuration whose interval of the full-benchmark score holds whatever the bank is.

        Every item is drawn at random, with a probability that the bank proposes. The score is a
        mean of answers corrected by the bank's predictions (doubly robust), which is unbiased for
        any bank, and its betting interval is valid for any number of items, also where the session
        stops as soon as the interval is short enough. A good bank makes it shorter. Other rules
        that choose or exclude items are refused. `Session.full_score` and `Report.predict` have
        the estimators "guaranteed" and "design-based".

        Args:
            max_items: length of a session that does not stop earlier; the number of items of the
                bank makes the score exact.
            half_width: half-width of the interval, on the scale from 0 to 1, at which a session
                stops; 0 for sessions of ``max_items``.
            level: probability of that interval.
            uniform: share of the probability that is spread evenly over the open items: a larger
                share shortens the interval for few items and with a bad bank, a smaller one for
                many items with a good bank.
            **rules: further fields of `Config`, such as ``batch``.

        Raises:
            InputError: for a number out of range, or a rule that chooses or excludes items.

        Example:
            >>> config = Config.guaranteed(300, half_width=0.05, batch=10)
            >>> config.sampled, config.stopping.kwargs()
            (1.0, {'half_width': 0.05, 'level': 0.95})

        References:
            Waudby-Smith & Ramdas (2023), JRSS B 86, 1-27; Zrnic & Candes (2024), ICML.
        """
        check_half_width(half_width)
        check_interval("level", level)
        defaults: dict[str, Any] = {
            "criterion": "random",
            "sampled": 1.0,
            "uniform": uniform,
            "max_items": max_items,
            "stopping": part("guaranteed", half_width=half_width, level=level),
        }
        return Config(**(defaults | rules))

    @property
    def is_guaranteed(self) -> bool:
        """Whether a stopping rule needs that every item is drawn with known probability."""
        return any(STOPPING[leaf.name].needs_draws for leaf in single_rules(self.stopping))

    @property
    def default_estimator(self) -> str:
        """The default estimator of the full score."""
        return "guaranteed" if self.is_guaranteed else "auto"

    @property
    def n_strata(self) -> int:
        """Number of strata of "a-stratified"."""
        return len(self.strata) if isinstance(self.strata, tuple) else self.strata

    @property
    def total_items(self) -> int:
        """Maximum number of items of a session, scored and pretest."""
        return self.max_items + len(self.pretest_at)

    @property
    def full_length(self) -> int:
        """Number of scored items of a session that only length rules end.

        Example:
            >>> Config(stopping="se<0.3 or n>=12", max_items=20).full_length
            12
        """
        length = max(length_within(self.stopping, math.inf), self.min_items)
        return int(min(length, self.max_items))

    @property
    def least_length(self) -> int:
        """Smallest number of scored items after which a rule may end a session."""
        return int(min(max(length_within(self.stopping, 0), self.min_items), self.max_items))

    def _set(self, name: str, value: Any) -> None:
        object.__setattr__(self, name, value)

    def _stopping(self) -> Part:
        """The stopping rule; a length rule without a length ends at ``max_items``."""
        value = self.stopping
        if isinstance(value, str) and value not in STOPPING:
            value = parse_stopping(value)
        rule = _stopping_rule(value)
        lengths = [leaf.get("at") for leaf in single_rules(rule) if leaf.name == "length"]
        if self.max_items == 0:
            explicit = [at for at in lengths if isinstance(at, int) and at > 0]
            # In "se<0.3 and n>=8" the length does not end a session, so it is no maximum.
            least = 0 if math.isfinite(length_within(rule, math.inf)) else LENGTH
            self._set("max_items", max(least, max(explicit, default=LENGTH)))
        if rule == Part("length"):
            rule = Part("length", (("at", self.max_items),))
        return rule

    def _check_needs(self) -> None:
        """Raise where a rule lacks the column or the targets that it needs."""
        needs = {name for rule in self.content for name in CONTENT[rule.name].needs}
        if self.targets:
            needs.add("group")
        if self.pretest_at:
            needs.add("pretest")
        for name in ("group", "targets", "testlet", "pretest"):
            if name in needs and not getattr(self, name):
                must = "the share of each content group" if name == "targets" else COLUMN
                raise argument_error(name, must, None)
        if self.is_guaranteed:
            why = "for a guaranteed interval, since every item must be drawn"
            names = ("sampled", *OTHER_RULES, "fixed", "budget")
            self._check_equals(Config(sampled=1.0), names, why)

    def _check_equals(self, needed: "Config", names: Iterable[str], why: str) -> None:
        """Raise where a rule is another than the one that is needed."""
        for name in names:
            value, found = (getattr(config, name) for config in (needed, self))
            if found != value:
                must, got = (
                    rule.name if isinstance(rule, Part) else rule for rule in (value, found)
                )
                raise argument_error(name, f"{must!r} {why}", got)

    def to_json(self) -> dict[str, Any]:
        """The configuration as a JSON document."""
        return {field.name: json_value(getattr(self, field.name)) for field in fields(self)}

    @staticmethod
    def from_json(document: Mapping[str, Any]) -> "Config":
        """A configuration from the output of `to_json`.

        Raises:
            InputError: naming an unknown field.
        """
        must = "a mapping of the fields of Config"
        if not isinstance(document, Mapping):
            raise argument_error("config", must, document)
        if unknown := set(document) - {field.name for field in fields(Config)}:
            raise argument_error("config", must, sorted(map(str, unknown)))
        try:
            return Config(**document)
        except RecursionError:
            raise argument_error(
                "config", "a configuration with few levels of nested rules", "too many"
            ) from None

    def hash(self) -> str:
        """SHA-256 of the configuration, in hexadecimal; stored with every session."""
        return json_hash(self)


def _stopping_rule(value: Any) -> Part:
    """A checked stopping rule, including those that it combines."""
    rule = as_part("stopping", value)
    if rule.name not in COMBINATIONS:
        return _checked_rule("stopping", rule, STOPPING, 1)
    inner = rule.get("rules")
    if set(rule.kwargs()) != {"rules"} or not isinstance(inner, tuple) or not inner:
        raise argument_error("stopping", f"{rule.name} of a list of rules", value)
    return Part(rule.name, (("rules", tuple(_stopping_rule(member) for member in inner)),))


def _checked_rule(argument: str, value: Any, table: Mapping[str, Rule], skip: int) -> Part:
    """A part with a name of the table and with options that its function accepts."""
    rule = as_part(argument, value)
    check_choice(argument, rule.name, table)
    signature = inspect.signature(table[rule.name].function)
    parameters = dict(list(signature.parameters.items())[skip:])
    unknown = sorted(set(rule.kwargs()) - set(parameters))
    if unknown:
        options = ", ".join(parameters) or "no options"
        raise argument_error(argument, f"{rule.name!r} with {options}", unknown)
    for name, option in rule.options:
        kind = parameters[name].annotation
        members = get_args(kind) if isinstance(kind, UnionType) else (kind,)
        kinds = [k for k in (get_origin(member) or member for member in members) if k in OPTIONS]
        if kinds and not any(OPTIONS[k][1](option) for k in kinds):
            must = " or ".join(OPTIONS[k][0] for k in kinds)
            raise argument_error(argument, f"{rule.name!r} with {name} {must}", option)
    return rule


def _is_numbers(value: Any) -> bool:
    return isinstance(value, tuple) and bool(value) and all(map(is_number, value))


OPTIONS: dict[Any, tuple[str, Callable[[Any], bool]]] = {
    int: ("a whole number", is_whole),
    float: ("a finite number", is_number),
    tuple: ("finite numbers", _is_numbers),
    str: ("a text", lambda value: isinstance(value, str)),
    type(None): ("None", lambda value: value is None),
}
"""Valid options of a rule by their annotation; the rule itself checks other ones."""


def _members(name: str, contents: str, value: Any) -> tuple[Any, ...]:
    """The members of a list, tuple, set, range or array."""
    if not isinstance(value, (list, tuple, set, frozenset, range, np.ndarray)):
        raise argument_error(name, f"a list of {contents}", value)
    return tuple(value)


def _ids(name: str, value: Any) -> tuple[str, ...]:
    """Ids of items as text."""
    ids = _members(name, "ids", value)
    for item in ids:
        if not (isinstance(item, str) or is_whole(item)) or not str(item).strip():
            raise argument_error(name, "ids of items as text, not empty", item)
    return _in_order(value, map(str, ids))


def _in_order(given: Any, members: Iterable[Any]) -> tuple[Any, ...]:
    """Members as given; those of a set sorted, so that all processes have one hash."""
    return tuple(sorted(members) if isinstance(given, (set, frozenset)) else members)


def _replayed(value: Any) -> tuple[ReplayedLength, ...]:
    """Rows of numbers, from JSON or not."""
    must = f"rows of {', '.join(ReplayedLength._fields)}, by rising length"
    out = []
    for row in _members("replayed", "rows", value):
        try:
            out.append(ReplayedLength(**row) if isinstance(row, Mapping) else ReplayedLength(*row))
        except TypeError:
            raise argument_error("replayed", must, row) from None
        if not all(map(is_number, out[-1])) or min(out[-1]) < 0 or not out[-1].n_items:
            raise argument_error("replayed", must, row)
    if any(b.n_items <= a.n_items for a, b in itertools.pairwise(out)):
        raise argument_error("replayed", must, [row.n_items for row in out])
    return tuple(out)


def _theta_bounds(value: Any) -> tuple[float, float]:
    ends = _members("theta_bounds", "two numbers", value)
    if len(ends) != 2 or not all(map(is_number, ends)) or not ends[0] < ends[1]:
        raise argument_error("theta_bounds", "two finite numbers in rising order", value)
    return float(ends[0]), float(ends[1])


def _targets(value: Any) -> tuple[tuple[str, float, float], ...]:
    """Group, least and greatest share."""
    entries = list(value.items()) if isinstance(value, Mapping) else value
    out = []
    for entry in _members("targets", "groups with their shares", entries):
        group, *shares = _members("targets", "groups with their shares", entry) or ("",)
        if len(shares) == 1 and isinstance(shares[0], (list, tuple)):
            shares = list(shares[0])
        if not isinstance(group, str) and not is_number(group) and not isinstance(group, bool):
            raise argument_error("targets", "a mapping with names of groups", group)
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


TABLES: dict[str, Mapping[str, Any]] = {
    "method": METHODS,
    "prior": PRIORS,
    "start": START,
    "exposure": EXPOSURE,
    "content": CONTENT,
    "criterion": CRITERIA,
    "stopping": STOPPING,
}
"""The tables of rules by the field of `Config` that names their rows."""


def rule_names(config: Config) -> dict[str, list[str]]:
    """Names of the rules of a configuration, by its fields."""
    rules: dict[str, Sequence[Any]] = {field: [getattr(config, field)] for field in TABLES}
    rules |= {"content": config.content, "stopping": single_rules(config.stopping)}
    return {field: [as_part(field, one).name for one in listed] for field, listed in rules.items()}


def check_config(config: Any) -> None:
    """Raise unless ``config`` is a `Config`."""
    if not isinstance(config, Config):
        got = type(config).__name__
        raise argument_error("config", "an irtcat.cat.Config, such as Config(max_items=20)", got)
