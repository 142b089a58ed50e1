"""Rows of the tables of adaptive rules."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from jaxtyping import Array

__all__ = ["Criterion", "StoppingRule", "Word"]

GROUP = "irtcat.cat_rules"
"""Entry point group of the rows of other packages, for all tables."""


def _first_line(function: Callable[..., Any]) -> str:
    """First line of a docstring, without its full stop (empty under ``python -OO``)."""
    return (function.__doc__ or "").split("\n", maxsplit=1)[0].rstrip(".")


@dataclass(frozen=True)
class Criterion:
    """A selection criterion: a row of `CRITERIA`.

    Attributes:
        name: the name that users give.
        function: a function of a `Context` that values all items, the best the highest.
        multidimensional: whether it is defined for banks of two or three abilities.
        needs_peaks: whether it uses the ability at which an item's information is greatest.
    """

    name: str
    function: Callable[..., Array]
    multidimensional: bool = False
    needs_peaks: bool = False

    def __call__(self, context: Any) -> Array:
        """The value of every item."""
        return self.function(context)

    @property
    def cells(self) -> tuple[str, str]:
        """Summary, and whether it takes several abilities."""
        return _first_line(self.function), "yes" if self.multidimensional else ""


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
class StoppingRule:
    """A stopping rule: a row of `STOPPING`.

    Attributes:
        name: the name that users give.
        function: a function of a `Context` and keyword options that says whether a session is over.
        multidimensional: whether it is defined for banks of two or three abilities.
        words: the conditions by which `parse_stopping` knows it.
        classifies: whether the function gives the category of the subject instead (0 below the
            first cut, ...; -1 while undecided), so that the session is over when there is one.
    """

    name: str
    function: Callable[..., Array]
    multidimensional: bool = False
    words: tuple[Word, ...] = ()
    classifies: bool = False

    def __call__(self, context: Any, **options: Any) -> Array:
        """Whether the session is over."""
        value = self.function(context, **options)
        return value >= 0 if self.classifies else value

    @property
    def cells(self) -> tuple[str, str]:
        """Summary, and the words."""
        return _first_line(self.function), ", ".join(word.name for word in self.words)
