"""A part of a configuration: the name of a rule and its options."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from irtcat._common.checks import argument_error
from irtcat._files.json import json_value


class Settings(Protocol):
    """What rules may read of a `Config`, which stands above them and knows their tables."""

    @property
    def criterion(self) -> str:
        """Name of the selection criterion."""

    @property
    def start(self) -> Any:
        """The start rule, a `Part`."""

    @property
    def content(self) -> Any:
        """The content rules, `Part`s."""

    @property
    def fixed(self) -> Any:
        """The fixed subset that is followed, or None."""

    @property
    def budget(self) -> float | None:
        """Maximum total cost of the items of a session, or None."""

    @property
    def enemies(self) -> Any:
        """Sets of ids of which a test holds at most one."""

    @property
    def sampled(self) -> float:
        """Share of the items that are drawn at random."""

    @property
    def uniform(self) -> float:
        """Share of the probability of a draw that is spread evenly over the open items."""

    @property
    def method(self) -> Any:
        """Estimation method of the ability."""

    @property
    def prior(self) -> str:
        """Kind of the prior."""

    @property
    def constant(self) -> str:
        """Estimate of "ml" while all answers are right or all wrong."""

    @property
    def constant_step(self) -> float:
        """Length of its steps."""

    @property
    def max_items(self) -> int:
        """Greatest number of scored items."""

    @property
    def pretest_at(self) -> tuple[int, ...]:
        """Positions of pretest items."""

    @property
    def acceleration(self) -> float:
        """Exponent of "progressive" and "proportional"."""

    @property
    def n_strata(self) -> int:
        """Number of strata of "a-stratified"."""

    @property
    def exposure(self) -> Any:
        """The exposure rule, a `Part`."""

    @property
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
