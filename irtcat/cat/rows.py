"""Rows of the tables of adaptive rules."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

GROUP = "irtcat.cat_rules"
"""Entry point group of the rows of other packages, for all tables."""


def _first_line(function: Callable[..., Any]) -> str:
    """First line of a docstring, without its full stop (empty under ``python -OO``)."""
    return (function.__doc__ or "").split("\n", maxsplit=1)[0].rstrip(".")


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
        return _first_line(self.function), "yes" if self.multidimensional else ""


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
        several = "yes" if self.multidimensional else ""
        return _first_line(self.function), ", ".join(word.name for word in self.words), several
