"""The SQLite file of a store, by the standard library."""

import os
import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from irtcat._common.checks import InputError
from irtcat._files.writing import check_target
from irtcat.cat.live.database import Cursor, Dialect, StoreError

WAIT = 60.0
"""Seconds to wait while another process writes."""

SQLITE = Dialect(
    name="sqlite",
    blob="BLOB",
    integer="INTEGER",
    table_end=" WITHOUT ROWID",
    append_only=(
        "CREATE TRIGGER {table}_stay BEFORE UPDATE ON {table} "
        "BEGIN SELECT RAISE(ABORT, 'append-only'); END",
        "CREATE TRIGGER {table}_last BEFORE DELETE ON {table} "
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
        self._known: dict[str, tuple[int, int]] = {}
        self._note(str(self._path))

    def record(self) -> None:
        """Record the identity of the files after they were opened."""
        for name in (str(self._path), f"{self._beside}-wal", f"{self._beside}-shm"):
            self._note(name)
        self.check()

    def _note(self, name: str) -> None:
        try:
            status = os.stat(name)
        except OSError:
            return
        self._known.setdefault(name, (status.st_dev, status.st_ino))

    def check(self) -> None:
        """Raise unless the files are those that were opened.

        Raises:
            StoreError: if a file was removed or replaced; it names it.
        """
        for name, identity in self._known.items():
            try:
                status = os.stat(name)
                same = (status.st_dev, status.st_ino) == identity
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
