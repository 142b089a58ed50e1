"""Tables of rules by name, to which other packages add rows.

A row holds everything that is known of a rule: the function, what it needs, one line of help and
its source. Documentation, command line, messages and tests read the rows.
"""

import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from importlib.metadata import entry_points
from typing import Any, TypeVar

from irtcat._common.checks import InputError, argument_error

RowT = TypeVar("RowT")
FunctionT = TypeVar("FunctionT", bound=Callable[..., Any])


class Registry(Mapping[str, RowT]):
    """Rows by name, in the order in which they were added.

    Another package adds rows by entry points: each names a row, or a tuple of rows. They are loaded
    when a name is asked for that is not here, or when all names are listed. A script calls `add`.

    Args:
        group: the entry point group, such as "irtcat.strategies".
        kind: class of the rows, which have a ``name`` and ``cells`` for the documentation's table.
            A subclass of the registry may take others: see `check`, `name_of` and `cells_of`.
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
        self, group: str, kind: type[Any], headers: tuple[str, ...], rows: Iterable[RowT]
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
        self.check(row)
        name = self.name_of(row)
        if not isinstance(name, str) or not name.strip():
            raise argument_error("row", "with a name", name)
        if name in self._rows:
            raise argument_error("row", f"with a name that is not taken in {self.group}", name)
        self._rows[name] = row
        return row

    def check(self, row: Any) -> None:
        """Raise unless this is a row of the registry's kind."""
        if not isinstance(row, self.kind):
            raise argument_error("row", f"of class {self.kind.__name__}", type(row).__name__)

    def name_of(self, row: Any) -> str:
        """The name that users give."""
        return row.name

    def cells_of(self, row: Any) -> tuple[str, ...]:
        """The row in the documentation's table, without the name."""
        return row.cells

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
                    is_row = hasattr(row, "name") and hasattr(row, "cells")
                    if isinstance(row, self.kind) or not is_row:  # else of another table
                        self.add(row)
            except Exception as error:  # whatever a foreign package raises when it is imported
                kind = "" if isinstance(error, InputError) else f"{type(error).__name__}: "
                reason = f"{kind}{error}"
                warnings.warn(f"{self.group}: {point.value} is left out. {reason}", stacklevel=2)

    def table(self) -> list[str]:
        """The rows that are always there, as lines of a Markdown table."""
        lines = [f"| {' | '.join(self.headers)} |", f"|{'---|' * len(self.headers)}"]
        cells = [(self.name_of(row), *self.cells_of(row)) for row in self._own]
        return lines + [f"| {' | '.join(row)} |" for row in cells]


def documented(registry: Registry[Any]) -> Callable[[FunctionT], FunctionT]:
    """Put a registry's table into a docstring, in the place of the line ``{table}``."""

    def decorate(function: FunctionT) -> FunctionT:
        if function.__doc__:  # None under python -OO
            lines = "\n    ".join(registry.table())
            function.__doc__ = function.__doc__.replace("{table}", lines)
        return function

    return decorate
