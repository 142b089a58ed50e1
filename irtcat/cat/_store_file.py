"""The file of a store: its tables, its identity, and readable errors."""

import os
import sqlite3
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from irtcat._checks import InputError
from irtcat.bank import ItemBank
from irtcat.cat._exposed import EXPOSURE_TABLES

__all__ = [
    "FORMAT",
    "KEY_COLUMN",
    "SEAL_TABLE",
    "STATEMENTS",
    "VERSION",
    "WAIT",
    "OpenFiles",
    "StoreError",
    "as_bytes",
    "statements",
    "store_errors",
]

FORMAT = "irtcat-store"
VERSION = 4
"""2 added the tables of exposure, 3 time stamps and seals; 4 renamed fields of `Config`, so that
exposure is recounted. A store of an earlier version is upgraded when it is opened."""

WAIT = 60.0
"""Seconds to wait while another process writes."""

SCHEMA = """
CREATE TABLE meta (format TEXT NOT NULL, version INTEGER NOT NULL, key TEXT NOT NULL DEFAULT '');
CREATE TABLE banks (hash TEXT PRIMARY KEY, file BLOB NOT NULL);
CREATE TABLE sessions (
  id TEXT PRIMARY KEY, bank TEXT NOT NULL REFERENCES banks(hash), head TEXT NOT NULL,
  started TEXT NOT NULL
);
CREATE TABLE events (
  session TEXT NOT NULL REFERENCES sessions(id), number INTEGER NOT NULL, event TEXT NOT NULL,
  digest TEXT NOT NULL, PRIMARY KEY (session, number)
) WITHOUT ROWID;
CREATE TRIGGER events_stay BEFORE UPDATE ON events BEGIN SELECT RAISE(ABORT, 'append-only'); END;
CREATE TRIGGER events_last BEFORE DELETE ON events BEGIN SELECT RAISE(ABORT, 'append-only'); END;
"""


KEY_COLUMN = "ALTER TABLE meta ADD COLUMN key TEXT NOT NULL DEFAULT ''"
"""Column that a store of version 1 or 2 lacks."""


# Not a column of sessions: a head may be large, and a change rewrites the whole row.
SEAL_TABLE = """
CREATE TABLE seals (
  session TEXT PRIMARY KEY REFERENCES sessions(id), seal TEXT NOT NULL
) WITHOUT ROWID;
"""


class StoreError(InputError):
    """A store that cannot be read or written; nothing was acknowledged, nothing is repaired."""


def statements(text: str) -> list[str]:
    """The statements of a script."""
    return [statement for statement in text.split(";\n") if statement.strip()]


STATEMENTS = statements(SCHEMA + SEAL_TABLE + EXPOSURE_TABLES)
"""Statements that create a store in an empty file."""


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
def store_errors(path: Path) -> Iterator[None]:
    """Convert errors of SQLite, and errors from damaged contents, to a readable `StoreError`."""
    try:
        yield
    except InputError:
        raise
    except (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError,
            ValueError) as error:  # fmt: skip  # from damaged contents
        fault = f"{type(error).__name__}: {error}"
        advice = "The file is damaged; it was not changed. Restore a copy."
        raise StoreError(f"{path}: unreadable contents ({fault}). {advice}") from None
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
        raise StoreError(f"{path}: {text}. {advice}") from None


def as_bytes(bank: ItemBank) -> bytes:
    """The contents of the file of a bank."""
    with tempfile.TemporaryDirectory() as folder:
        return bank.save(Path(folder) / "bank.npz").read_bytes()
