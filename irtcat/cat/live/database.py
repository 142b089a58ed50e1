"""Databases that hold a store: what the store asks of one, and the kinds that there are.

A store is written in the SQL that SQLite and PostgreSQL share; `Dialect` has what they write in
different ways. Statements mark their parameters by question marks.

The kind that needs no server is the SQLite file, by the standard library.
"""

import os
import sqlite3
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from irtcat._common.checks import InputError, argument_error
from irtcat._common.registry import Registry
from irtcat._files.writing import check_target


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
        append_only: statements after which events can only be added.
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
        filled = script.format_map(vars(self))
        return [part.strip() for part in filled.split(";\n") if part.strip()]


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

    def record(self) -> None:
        """Record what identifies the database, once the tables are made."""

    def tables(self) -> set[str]:
        """Names of the tables."""

    def columns(self, table: str) -> list[str]:
        """Names of a table's columns, in order."""

    def execute(self, statement: str, parameters: Sequence[Any] = ()) -> Cursor:
        """Execute one statement, within `reading` or `writing`."""

    def executemany(self, statement: str, rows: Iterable[Sequence[Any]]) -> None:
        """Execute one statement for every row, within `writing`."""

    def reading(self, at_once: bool = False) -> AbstractContextManager[None]:
        """A context for reading, which converts errors to `StoreError`.

        Args:
            at_once: all statements read the same state of the database.
        """

    def writing(self, alone: bool = False) -> AbstractContextManager[None]:
        """A context of one transaction: all of it is on disk at its end, or nothing is.

        A transaction within another one is part of it.

        Args:
            alone: no other transaction that is alone runs at the same time (to make tables).
        """

    def check_integrity(self) -> None:
        """Raise a `StoreError` if the database finds damage in its files."""

    def close(self) -> None:
        """Release the database."""


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


WAIT = 60.0
"""Seconds to wait while another process writes."""

SQLITE = Dialect(
    name="sqlite",
    blob="BLOB",
    integer="INTEGER",
    table_end=" WITHOUT ROWID",
    append_only=(
        "CREATE TRIGGER events_stay BEFORE UPDATE ON events "
        "BEGIN SELECT RAISE(ABORT, 'append-only'); END",
        "CREATE TRIGGER events_last BEFORE DELETE ON events "
        "BEGIN SELECT RAISE(ABORT, 'append-only'); END",
    ),
    lock="",  # a transaction that writes has the whole file
    json_text="json_extract({column}, '$.{field}')",
)
"""What SQLite writes in its own way."""


class OpenFiles:
    """The files of a store as they were when it was opened.

    SQLite continues with a file that was removed or replaced at its path: it would acknowledge an
    answer that no later reader of the path finds. So device and inode are compared. A file that is
    overwritten in place keeps both; this is detected only if the file became shorter.
    """

    def __init__(self, path: Path):
        """Record the identity of the file at a path, if it exists."""
        self._path = Path(os.path.abspath(path))
        self._beside = os.path.realpath(path)  # where SQLite keeps its journal
        self._size = 0
        self._known: dict[str, os.stat_result] = {}
        self._note(str(self._path))

    def record(self) -> None:
        """Record the identity of the files after they were opened."""
        for name in (str(self._path), f"{self._beside}-wal", f"{self._beside}-shm"):
            self._note(name)
        self.check()

    def _note(self, name: str) -> None:
        with suppress(OSError):
            self._known.setdefault(name, os.stat(name))

    def check(self) -> None:
        """Raise unless the files are those that were opened.

        Raises:
            StoreError: if a file was removed or replaced; it names it.
        """
        for name, identity in self._known.items():
            try:
                status = os.stat(name)
                same = os.path.samestat(status, identity)
            except OSError:
                same = False
            if same and name == str(self._path):
                same = status.st_size >= self._size
                self._size = max(status.st_size, self._size)
            if not same:
                advice = "Nothing was acknowledged. Put the file back, or open the store again."
                raise StoreError(f"{name}: removed or replaced while the store was open. {advice}")


@contextmanager
def store_errors(label: str) -> Iterator[None]:
    """Convert errors of SQLite, and errors from damaged contents, to a readable `StoreError`."""
    try:
        yield
    except InputError:
        raise
    except (
        ArithmeticError,
        AttributeError,
        LookupError,
        RecursionError,
        TypeError,
        ValueError,
    ) as error:  # from damaged contents
        fault = f"{type(error).__name__}: {error}"
        advice = "The file is damaged; it was not changed. Restore a copy."
        raise StoreError(f"{label}: unreadable contents ({fault}). {advice}") from None
    except sqlite3.Error as error:
        text = str(error)
        advice = "Nothing was acknowledged."
        if "full" in text or "disk I/O error" in text:
            advice = "Nothing was acknowledged. Free some space and send the answer again."
        elif any(sign in text for sign in ("malformed", "not a database", "no such", "decode")):
            advice = "The file is damaged or no store; it was not changed. Restore a copy."
        elif "locked" in text:
            advice = "Another process has locked it. Nothing was acknowledged; try again."
        elif "readonly" in text or "unable to open" in text:
            advice = "Nothing was acknowledged. Make the file and its folder writable."
        raise StoreError(f"{label}: {text}. {advice}") from None


class SQLiteFile:
    """A `Database` in one file: WAL mode, ``synchronous=FULL``, one writer at a time."""

    dialect = SQLITE

    def __init__(self, path: str | os.PathLike[str], create: bool = False):
        """Open the file; nothing is changed in it before `set_modes`.

        Raises:
            StoreError: if it is missing and not to be created, or cannot be opened.
        """
        try:
            target = check_target(path)
        except InputError as error:
            raise StoreError(str(error)) from None
        self.path, self.label = Path(path), str(path)
        if not create and not self.path.is_file():
            raise StoreError(f"{path}: there is no such store. Start a session with it first.")
        self._files = OpenFiles(self.path)
        with store_errors(self.label):
            self.connection = sqlite3.connect(target, timeout=WAIT, isolation_level=None)

    def set_modes(self) -> None:
        """Set the modes of the file, once it is known to be a store or empty."""
        with store_errors(self.label):
            for pragma in ("journal_mode=WAL", "synchronous=FULL", "foreign_keys=ON"):
                self.execute(f"PRAGMA {pragma}")

    def record(self) -> None:
        """Record the identity of the files, once the tables are made."""
        self._files.record()

    def tables(self) -> set[str]:
        """Names of the tables; with those of triggers and indices, so that no file seems empty."""
        return {row[0] for row in self.execute("SELECT name FROM sqlite_master").fetchall()}

    def columns(self, table: str) -> list[str]:
        """Names of a table's columns, in order."""
        return [row[1] for row in self.execute(f"PRAGMA table_info({table})").fetchall()]

    def execute(self, statement: str, parameters: Sequence[Any] = ()) -> Cursor:
        """Execute one statement."""
        return self.connection.execute(statement, parameters)

    def executemany(self, statement: str, rows: Iterable[Sequence[Any]]) -> None:
        """Execute one statement for every row."""
        self.connection.executemany(statement, rows)

    @contextmanager
    def reading(self, at_once: bool = False) -> Iterator[None]:
        """Readable errors, and a check before and after that the path is still the open file."""
        with store_errors(self.label):
            self._files.check()
            begin = at_once and not self.connection.in_transaction
            if begin:
                self.execute("BEGIN")
            try:
                yield
            finally:
                if begin:
                    self.execute("COMMIT")
            self._files.check()

    @contextmanager
    def writing(self, alone: bool = False) -> Iterator[None]:
        """One transaction: all of it on disk in the file at the path, or nothing acknowledged."""
        if self.connection.in_transaction:  # part of the transaction that is under way
            yield
            return
        with self.reading():
            self.execute("BEGIN IMMEDIATE")
            try:
                yield
                self._files.check()
                self.execute("COMMIT")
            except BaseException:
                if self.connection.in_transaction:
                    self.execute("ROLLBACK")
                raise

    def check_integrity(self) -> None:
        """Raise a `StoreError` if SQLite finds damage in the file."""
        with self.reading():
            integrity = self.execute("PRAGMA integrity_check(1)").fetchone()[0]
            if integrity != "ok":
                raise StoreError(f"{self.label}: damaged ({integrity}). Restore a copy.")

    def close(self) -> None:
        """Close the file."""
        self.connection.close()
