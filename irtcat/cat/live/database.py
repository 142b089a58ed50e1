"""Databases that hold a store: what the store asks of one, and the kinds that there are.

A store is written in the SQL that SQLite and PostgreSQL share; `Dialect` has what they write in
different ways. Statements mark their parameters by question marks.
"""

import os
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Protocol

from irtcat._common.checks import InputError, argument_error
from irtcat._common.registry import Registry


class StoreError(InputError):
    """A store that cannot be read or written; nothing was acknowledged, nothing is repaired."""


@dataclass(frozen=True)
class Dialect:
    """What a database writes in its own way.

    Attributes:
        name: "sqlite" or "postgresql".
        blob: type of a column of bytes.
        integer: type of a column of whole numbers up to 2^63.
        table_end: what follows the columns of a table whose rows are found by its primary key.
        append_only: statements after which rows of the table ``{table}`` can only be added.
        lock: what follows a SELECT whose rows no other transaction may change meanwhile.
        json_text: expression of a field of a column with JSON text.
    """

    name: str
    blob: str
    integer: str
    table_end: str
    append_only: tuple[str, ...]
    lock: str
    json_text: str

    def statements(self, script: str) -> list[str]:
        """The statements of a script, with the placeholders of this class filled in."""
        filled = script.replace("{blob}", self.blob).replace("{integer}", self.integer)
        filled = filled.replace("{table_end}", self.table_end)
        return [part.strip() for part in filled.split(";\n") if part.strip()]

    def append_only_statements(self, table: str) -> list[str]:
        """Statements that make a table append-only."""
        return [statement.replace("{table}", table) for statement in self.append_only]


class Cursor(Protocol):
    """The rows that a statement returned."""

    def fetchone(self) -> Any:
        """The next row, or None."""

    def fetchall(self) -> Any:
        """All remaining rows."""


class Database(Protocol):
    """A database as a store uses it.

    Attributes:
        label: its name in messages; never a password.
        dialect: its dialect.
    """

    label: str
    dialect: Dialect

    def set_modes(self) -> None:
        """Set modes of the database, once it is known to be a store or empty."""
        ...

    def record(self) -> None:
        """Record what identifies the database, once the tables are made."""
        ...

    def tables(self) -> set[str]:
        """Names of the tables."""
        ...

    def columns(self, table: str) -> list[str]:
        """Names of a table's columns, in order."""
        ...

    def execute(self, statement: str, parameters: Sequence[Any] = ()) -> Cursor:
        """Execute one statement, within `reading` or `writing`."""
        ...

    def executemany(self, statement: str, rows: Iterable[Sequence[Any]]) -> None:
        """Execute one statement for every row, within `writing`."""
        ...

    def reading(self, at_once: bool = False) -> AbstractContextManager[None]:
        """A context for reading, which converts errors to `StoreError`.

        Args:
            at_once: all statements read the same state of the database.
        """
        ...

    def writing(self, alone: bool = False) -> AbstractContextManager[None]:
        """A context of one transaction: all of it is on disk at its end, or nothing is.

        A transaction within another one is part of it.

        Args:
            alone: no other transaction that is alone runs at the same time (to make tables).
        """
        ...

    def check_integrity(self) -> None:
        """Raise a `StoreError` if the database finds damage in its files."""
        ...

    def close(self) -> None:
        """Release the database."""
        ...


@dataclass(frozen=True)
class DatabaseKind:
    """A kind of database that addresses of stores name, such as ``postgresql://host/tests``.

    Attributes:
        name: the scheme of its addresses.
        open: opens the database at an address.
        help: one line for the documentation.
    """

    name: str
    open: Callable[[str], Database]
    help: str

    @property
    def cells(self) -> tuple[str, ...]:
        """The row in the documentation's table, without the name."""
        return (self.help,)


DATABASES: Registry[DatabaseKind] = Registry(
    "irtcat.databases", DatabaseKind, ("scheme", "database"), ()
)
"""Kinds of databases beside the SQLite files that the standard library opens.

PostgreSQL is added by the extra "service"; other packages add theirs by entry points.
"""


def scheme_of(address: str | os.PathLike[str]) -> str | None:
    """The scheme of an address such as ``postgresql://host/tests``; None for the path of a file.

    Raises:
        StoreError: for a scheme that no installed package opens.

    Example:
        >>> scheme_of("tests.db") is None
        True
        >>> scheme_of("oracle://host/tests")
        Traceback (most recent call last):
        irtcat.cat.live.database.StoreError: The `path` argument must be a file or an address ...
    """
    text = str(address)  # opening the file reports what can be none
    if "://" not in text:
        return None
    scheme = text.split("://", 1)[0]
    if scheme not in DATABASES:
        known = ", ".join(f"{name}://" for name in DATABASES) or "none is installed"
        message = argument_error("path", f"a file or an address ({known})", f"{scheme}://...")
        raise StoreError(f'{message} PostgreSQL needs pip install "irtcat[service]".')
    return scheme
