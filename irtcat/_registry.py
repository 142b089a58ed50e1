"""Tables of rules by name, to which other packages add rows.

A row holds everything that is known of a rule: the function, what it needs, one line of help and
its source. Documentation, command line, messages and tests read the rows.
"""

import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from importlib.metadata import entry_points
from typing import Any, Protocol, TypeVar

from irtcat._checks import InputError, argument_error

__all__ = ["Registry", "Row", "documented"]


class Row(Protocol):
    """What every row has."""

    @property
    def name(self) -> str:
        """The name that users give."""

    @property
    def cells(self) -> tuple[str, ...]:
        """The row in the documentation's table, without the name."""


RowT = TypeVar("RowT", bound=Row)
FunctionT = TypeVar("FunctionT", bound=Callable[..., Any])


def is_row(value: Any) -> bool:
    """Whether a value looks like a row of some table."""
    return hasattr(value, "name") and hasattr(value, "cells")


class Registry(Mapping[str, RowT]):
    """Rows by name, in the order in which they were added.

    Another package adds rows by entry points: each names a row, or a tuple of rows. They are loaded
    when a name is asked for that is not here, or when all names are listed. A script calls `add`.

    Args:
        group: the entry point group, such as "irtcat.strategies".
        kind: class of the rows.
        headers: titles of the table's columns, that of the name included.
        rows: the rows that are always there.

    Raises:
        InputError: as `add` does, for one of the rows.

    Example:
        >>> from irtcat.selection import STRATEGIES
        >>> STRATEGIES["random"].needs, "no-such-strategy" in STRATEGIES
        ((), False)
        >>> STRATEGIES.table()[2]
        '| random | a simple random sample | bank or responses |'
    """

    def __init__(
        self, group: str, kind: type[RowT], headers: tuple[str, ...], rows: Iterable[RowT]
    ) -> None:
        self.group, self.kind, self.headers = group, kind, headers
        self._rows: dict[str, RowT] = {}
        self._is_loaded = False
        for row in rows:
            self.add(row)
        self._own = tuple(self._rows.values())

    def add(self, row: RowT) -> RowT:
        """Add a row.

        Raises:
            InputError: for anything but a row of this registry's kind, or a name that is taken.
        """
        if not isinstance(row, self.kind):
            raise argument_error("row", f"of class {self.kind.__name__}", type(row).__name__)
        if not isinstance(row.name, str) or not row.name.strip():
            raise argument_error("row", "with a name", row.name)
        if row.name in self._rows:
            raise argument_error("row", f"with a name that is not taken in {self.group}", row.name)
        self._rows[row.name] = row
        return row

    def __getitem__(self, name: str) -> RowT:
        if name not in self._rows:
            self._load()
        return self._rows[name]

    def __iter__(self) -> Iterator[str]:
        self._load()
        return iter(list(self._rows))

    def __len__(self) -> int:
        self._load()
        return len(self._rows)

    def _load(self) -> None:
        """Add the rows of installed packages, once; one that fails is left out with a warning."""
        if self._is_loaded:
            return
        self._is_loaded = True
        for point in entry_points(group=self.group):
            try:
                loaded = point.load()
                for row in loaded if isinstance(loaded, tuple) else (loaded,):
                    if isinstance(row, self.kind) or not is_row(row):  # else of another table
                        self.add(row)
            except InputError as error:
                warnings.warn(f"{self.group}: {point.value} is left out. {error}", stacklevel=2)
            except Exception as error:  # whatever a foreign package raises when it is imported
                reason = f"{type(error).__name__}: {error}"
                warnings.warn(f"{self.group}: {point.value} is left out. {reason}", stacklevel=2)

    def table(self) -> list[str]:
        """The rows that are always there, as lines of a Markdown table."""
        lines = [f"| {' | '.join(self.headers)} |", f"|{'---|' * len(self.headers)}"]
        return lines + [f"| {' | '.join((row.name, *row.cells))} |" for row in self._own]


def documented(registry: Registry[Any]) -> Callable[[FunctionT], FunctionT]:
    """Put a registry's table into a docstring, in the place of the line ``{table}``."""

    def decorate(function: FunctionT) -> FunctionT:
        if function.__doc__:  # None under python -OO
            lines = "\n    ".join(registry.table())
            function.__doc__ = function.__doc__.replace("{table}", lines)
        return function

    return decorate
