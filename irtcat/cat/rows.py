"""Adaptive rules: rows of their tables, and the name and options of one in a configuration."""

import abc
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from irtcat._common.checks import argument_error
from irtcat._files.json import json_value


class Settings(abc.ABC):
    """What rules may read of a `Config`, which stands above them and knows their tables.

    Attributes:
        criterion: name of the selection criterion.
        start: the start rule, a `Part`.
        content: the content rules, `Part`s.
        fixed: the fixed subset that is followed, or None.
        budget: maximum total cost of the items of a session, or None.
        enemies: sets of ids of which a test holds at most one.
        sampled: share of the items that are drawn at random.
        uniform: share of the probability of a draw that is spread evenly over the open items.
        method: estimation method of the ability.
        prior: kind of the prior.
        constant: estimate of "ml" while all answers are right or all wrong.
        constant_step: length of its steps.
        max_items: greatest number of scored items.
        pretest_at: positions of pretest items.
        acceleration: exponent of "progressive" and "proportional".
        exposure: the exposure rule, a `Part`.
    """

    criterion: str
    start: Any
    content: Any
    fixed: Any
    budget: float | None
    enemies: Any
    sampled: float
    uniform: float
    method: Any
    prior: str
    constant: str
    constant_step: float
    max_items: int
    pretest_at: tuple[int, ...]
    acceleration: float
    exposure: Any

    @property
    @abc.abstractmethod
    def n_strata(self) -> int:
        """Number of strata of "a-stratified"."""

    @property
    @abc.abstractmethod
    def least_length(self) -> int:
        """Fewest items of a session."""


@dataclass(frozen=True)
class Part:
    """The name of a row of a table of rules, and the options it is called with.

    Attributes:
        name: the row.
        options: name and value of each option, in order of their names.
    """

    name: str
    options: tuple[tuple[str, Any], ...] = ()

    def kwargs(self) -> dict[str, Any]:
        """The options as keyword arguments."""
        return dict(self.options)

    def get(self, name: str, otherwise: Any = None) -> Any:
        """One option."""
        return dict(self.options).get(name, otherwise)

    def to_json(self) -> dict[str, Any]:
        """The part as a JSON document."""
        return {"name": self.name, **json_value(dict(self.options))}


def part(name: str, **options: Any) -> Part:
    """A rule by its name, with options.

    Example:
        >>> part("randomesque", k=5)
        Part(name='randomesque', options=(('k', 5),))
    """
    return Part(name, tuple((key, _frozen(value)) for key, value in sorted(options.items())))


def _frozen(value: Any) -> Any:
    """A value that can be hashed: lists become tuples, mappings sorted pairs."""
    if isinstance(value, Mapping):
        if "name" in value:
            return as_part("part", value)
        return tuple((str(k), _frozen(v)) for k, v in value.items())
    if isinstance(value, (list, tuple)):
        return tuple(_frozen(v) for v in value)
    return value.item() if hasattr(value, "item") and getattr(value, "ndim", 1) == 0 else value


def as_part(argument: str, value: Any) -> Part:
    """A part from a part, a name, or a mapping with a name and options."""
    if isinstance(value, Part):
        return value
    if isinstance(value, str):
        return Part(value)
    if isinstance(value, Mapping) and isinstance(value.get("name"), str):
        return part(value["name"], **{k: v for k, v in value.items() if k != "name"})
    raise argument_error(argument, "a name, or irtcat.cat.part(name, ...)", value)


GROUP = "irtcat.cat_rules"
"""Entry point group of the rows of other packages, for all tables."""


@dataclass(frozen=True)
class Rule:
    """A row of a table of rules.

    Attributes:
        name: the name that users give.
        function: a function of a `Context`, of what else the table says, and of keyword options.
        multidimensional: whether it is defined for several abilities.
    """

    name: str
    function: Callable[..., Any]
    multidimensional: bool = False

    def __call__(self, *arguments: Any, **options: Any) -> Any:
        """What the function returns."""
        return self.function(*arguments, **options)

    @property
    def bank_needs(self) -> tuple[str, ...]:
        """What it needs of a bank, by the names of `irtcat.bank.needs.NEEDS`."""
        return () if self.multidimensional else ("one ability",)

    @property
    def cells(self) -> tuple[str, ...]:
        """Summary, and whether it takes several abilities."""
        documented = self.function.__doc__ or ""  # empty under ``python -OO``
        summary = documented.split("\n", maxsplit=1)[0].rstrip(".")
        return summary, "yes" if self.multidimensional else ""


@dataclass(frozen=True)
class Criterion(Rule):
    """A selection criterion: a row of `CRITERIA`; a function that values all items, best highest.

    Attributes:
        needs_peaks: whether it uses the ability at which an item's information is greatest.
        needs_factors: whether it uses the factor model of the calibrated responses.
        by_cost: what costs of the items do: "divide" its values, which are gains of at least 0; ""
            nothing, since the order has nothing to do with values; None where values are no gains.
    """

    needs_peaks: bool = False
    needs_factors: bool = False
    by_cost: str | None = None


@dataclass(frozen=True)
class Method(Rule):
    """A method of estimation: a row of `METHODS`; a function that returns an `Estimate`.

    Attributes:
        needs_grid: whether it integrates over a grid, which limits the number of abilities.
        needs_logistic: whether it takes right/wrong items of the logistic family only.
    """

    needs_grid: bool = False
    needs_logistic: bool = False


@dataclass(frozen=True)
class Prior(Rule):
    """A kind of prior: a row of `PRIORS`; its function gives the log-density of one ability."""


@dataclass(frozen=True)
class StartRule(Rule):
    """A start rule: a row of `START`; a function of the values that returns new ones."""


@dataclass(frozen=True)
class ContentRule(Rule):
    """A content rule: a row of `CONTENT`; a function of the values that returns new ones.

    Attributes:
        needs: the fields of `Config` that it needs.
    """

    multidimensional: bool = True
    needs: tuple[str, ...] = ()


@dataclass(frozen=True)
class ExposureRule(Rule):
    """An exposure rule: a row of `EXPOSURE`; a function of the values that chooses an item.

    Attributes:
        limit: its option that bounds the rate of an item over all sessions; empty if there is none.
        updates: whether it uses the counts of earlier sessions.
        can_fail: whether it may pass no open item.
    """

    multidimensional: bool = True
    limit: str = ""
    updates: bool = False
    can_fail: bool = False


@dataclass(frozen=True)
class Word:
    """A condition of `parse_stopping`, such as ``se<0.3``.

    Attributes:
        name: the word, such as "se".
        option: the rule's option that the number is for.
        rises: whether the condition is "at least" (``n>=30``), not "at most" (``se<0.3``).
        is_whole: whether the number must be whole.
        fixed: further options of the rule.
    """

    name: str
    option: str
    rises: bool = False
    is_whole: bool = False
    fixed: tuple[tuple[str, Any], ...] = ()


@dataclass(frozen=True)
class StoppingRule(Rule):
    """A stopping rule: a row of `STOPPING`; a function that says whether a session is over.

    Attributes:
        words: the conditions by which `parse_stopping` knows it.
        classifies: whether the function gives the category of the subject instead (0 below the
            first cut, ...; -1 while undecided), so that the session is over when there is one.
        needs_draws: whether it needs a test of which every item is drawn with known probability.
        needs_replays: whether it needs a plan with replayed sessions of calibrated subjects
            (`irtcat.cat.plan_evaluation`).
    """

    words: tuple[Word, ...] = ()
    classifies: bool = False
    needs_draws: bool = False
    needs_replays: bool = False

    def __call__(self, *arguments: Any, **options: Any) -> Any:
        """Whether the session is over."""
        value = self.function(*arguments, **options)
        return value >= 0 if self.classifies else value

    @property
    def cells(self) -> tuple[str, ...]:
        """Summary, the words, and whether it takes several abilities."""
        summary, several = super().cells
        return summary, ", ".join(word.name for word in self.words), several
