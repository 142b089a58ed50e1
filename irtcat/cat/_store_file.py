"""The file of a store: its tables, its identity, and readable errors."""

import json
import os
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Self

import pandas as pd

from irtcat._checks import InputError, argument_error, brief
from irtcat._files import check_target
from irtcat.cat._log import (
    Event,
    Key,
    as_key,
    digest_after,
    first_digest,
    is_digest,
    seal_of,
    status_digest,
)
from irtcat.cat._status import SessionStatus

__all__ = [
    "EXPOSURE_TABLES",
    "KEY_COLUMN",
    "SEAL_TABLE",
    "STATUS_TABLE",
    "VERSION",
    "OutdatedStoreError",
    "StoreError",
    "StoreFile",
    "statements",
    "store_errors",
]

FORMAT = "irtcat-store"
VERSION = 5
"""2 added the tables of exposure, 3 time stamps and seals; 4 renamed fields of `Config`, so that
exposure is recounted; 5 added the table of statuses. A store of an earlier version is upgraded when
it is opened."""

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


# Written when a status is computed, not with every answer: with 30,000 items the score takes 8 ms,
# an answer 1.6 ms (experiments/cat/live.csv). A row that follows an earlier event is out of date.
STATUS_TABLE = """
CREATE TABLE statuses (
  session TEXT PRIMARY KEY REFERENCES sessions(id), status TEXT NOT NULL, digest TEXT NOT NULL
) WITHOUT ROWID;
"""


EXPOSURE_TABLES = """
CREATE TABLE exposure (
  bank TEXT NOT NULL, config TEXT NOT NULL, cell INTEGER NOT NULL, item TEXT NOT NULL,
  given INTEGER NOT NULL, PRIMARY KEY (bank, config, cell, item)
) WITHOUT ROWID;
CREATE TABLE visits (
  bank TEXT NOT NULL, config TEXT NOT NULL, cell INTEGER NOT NULL, sessions INTEGER NOT NULL,
  eligible BLOB, PRIMARY KEY (bank, config, cell)
) WITHOUT ROWID;
"""


class StoreError(InputError):
    """A store that cannot be read or written; nothing was acknowledged, nothing is repaired."""


class OutdatedStoreError(StoreError):
    """A store of an earlier version, which `irtcat.cat.Store` upgrades when it opens it."""


def statements(text: str) -> list[str]:
    """The statements of a script."""
    return [statement for statement in text.split(";\n") if statement.strip()]


STATEMENTS = statements(SCHEMA + SEAL_TABLE + STATUS_TABLE + EXPOSURE_TABLES)
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


class StoreFile:
    """The file of a store: what can be read and checked without the rules of its tests."""

    def __init__(self, path: str | os.PathLike[str], create: bool = False, key: Key = None):
        """Open the file (see `irtcat.cat.Store`)."""
        try:
            target = check_target(path)
        except InputError as error:
            raise StoreError(str(error)) from None
        self.path, self._key = Path(path), as_key(key)
        if not create and not self.path.is_file():
            raise StoreError(f"{path}: there is no such store. Start a session with it first.")
        self._files = OpenFiles(self.path)
        with store_errors(self.path):
            self._db = sqlite3.connect(target, timeout=WAIT, isolation_level=None)
        try:
            self._open(create)
        except BaseException:
            self._db.close()
            raise

    def _open(self, create: bool) -> None:
        """Check the file before anything is changed in it, then create missing tables."""
        with store_errors(self.path):
            names = {row[0] for row in self._db.execute("SELECT name FROM sqlite_master")}
            if names:
                self._check_kind(names)
            elif not create:
                raise StoreError(f"{self.path}: the file is empty, no store. Name another.")
            self._db.execute("PRAGMA journal_mode=WAL")
            self._db.execute("PRAGMA synchronous=FULL")
            self._db.execute("PRAGMA foreign_keys=ON")
        self._make()
        self._files.record()

    def _make(self) -> None:
        """Create the tables of a new store, or upgrade a store of an older version."""
        with self._writing():
            names = {row[0] for row in self._db.execute("SELECT name FROM sqlite_master")}
            if not names:
                for statement in STATEMENTS:
                    self._db.execute(statement)
                row = (FORMAT, VERSION, self._key_mark())
                self._db.execute("INSERT INTO meta VALUES (?, ?, ?)", row)
                return
        if self._check_kind(names) < VERSION:
            self._upgrade()

    def _key_mark(self) -> str:
        """Digest that identifies the key in the file; empty without a key."""
        return "" if self._key is None else seal_of(FORMAT, self._key)

    def _check_kind(self, names: set[str]) -> int:
        """The version of the store; raises an error for another kind of file."""
        meta: tuple[Any, ...] | None = None
        if {"meta", "sessions", "events"} <= names:
            columns = [row[1] for row in self._db.execute("PRAGMA table_info(meta)")]
            if columns in (["format", "version"], ["format", "version", "key"]):
                meta = self._db.execute("SELECT * FROM meta").fetchone()
        if meta is None or meta[0] != FORMAT or not isinstance(meta[1], int):
            raise StoreError(f"{self.path}: this is a database of something else. Name another.")
        if meta[1] > VERSION:
            raise StoreError(f"{self.path}: made by a newer irtcat (version {meta[1]}). Update.")
        mark = meta[2] if len(meta) > 2 else ""
        if not is_digest(mark, self._key_mark()):
            fault = "made with another key" if mark and self._key else "made with a key"
            advice = "Give that key (in commands --key-file or IRTCAT_STORE_KEY)."
            if not mark:
                fault, advice = "made without a key", "Open it without one."
            raise StoreError(f"{self.path}: {fault}. {advice}")
        return meta[1]

    def _upgrade(self) -> None:
        """Upgrade a store of an earlier version, which takes the rules of its tests."""
        raise OutdatedStoreError(f"{self.path}: made by an earlier irtcat. Open it with Store.")

    @contextmanager
    def _using(self) -> Iterator[None]:
        """Readable errors, and a check before and after that the path is still the open file."""
        with store_errors(self.path):
            self._files.check()
            yield
            self._files.check()

    @contextmanager
    def _writing(self) -> Iterator[None]:
        """One transaction: all of it on disk in the file at the path, or nothing acknowledged."""
        with self._using():
            self._db.execute("BEGIN IMMEDIATE")
            try:
                yield
                self._files.check()
                self._db.execute("COMMIT")
            except BaseException:
                if self._db.in_transaction:
                    self._db.execute("ROLLBACK")
                raise

    def __contains__(self, session_id: object) -> bool:
        """Whether a session with this id has begun."""
        with store_errors(self.path):
            row = (str(session_id).encode("utf-8", "replace").decode(),)
            return bool(self._db.execute("SELECT 1 FROM sessions WHERE id = ?", row).fetchone())

    def sessions(self) -> pd.DataFrame:
        """All sessions: subject, start, number of answers, and the reason of the end (if over).

        Read without verification; `resume` and `check` verify the digests.
        """
        query = """
            SELECT s.id, s.head, s.started,
                   (SELECT COUNT(*) FROM events e WHERE e.session = s.id
                      AND json_extract(e.event, '$.kind') = 'answer'),
                   (SELECT json_extract(e.event, '$.reason') FROM events e WHERE e.session = s.id
                      ORDER BY number DESC LIMIT 1)
            FROM sessions s ORDER BY s.started, s.id"""
        with self._using():
            table = [
                {
                    "session": name,
                    "subject": json.loads(head).get("subject", ""),
                    "started": started[:19],
                    "answers": answers,
                    "over": reason or "",
                }
                for name, head, started, answers, reason in self._db.execute(query).fetchall()
            ]
        columns = ["session", "subject", "started", "answers", "over"]
        return pd.DataFrame(table, columns=columns).set_index("session")

    def status(self, session_id: str) -> SessionStatus | None:
        """The stored status of a session; None if none is stored for its last event.

        Raises:
            StoreError: for a damaged log.
            InputError: for an unknown id.
        """
        name = self._known(session_id)
        with self._using():
            self._head(name)
            _, last = self._events(name)
            row = self._db.execute(
                "SELECT status, digest FROM statuses WHERE session = ?", (name,)
            ).fetchone()
            if row is None or not is_digest(row[1], status_digest(last, row[0], self._key)):
                return None
            return SessionStatus.from_text(row[0])

    def close(self) -> None:
        """Close the file."""
        self._db.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _known(self, session_id: str) -> str:
        """The id of a session; raises an error for an unknown one."""
        if session_id not in self:
            raise argument_error("session_id", "the id of a session in the store", session_id)
        return str(session_id)

    def _head(self, name: str) -> dict[str, Any]:
        """The head of a session, checked against the other columns of its row.

        The digests cover only the head.
        """
        text, *columns = self._db.execute(
            "SELECT head, id, bank, started FROM sessions WHERE id = ?", (name,)
        ).fetchone()
        head: dict[str, Any] = json.loads(text)
        if columns != [head["id"], head["bank"], head.get("started", columns[2])]:
            raise StoreError(f"{self.path}: session {brief(name)} was changed. Restore a copy.")
        return head

    def _last(self, name: str) -> tuple[int, str] | None:
        """Number and digest of a session's last event."""
        return self._db.execute(
            "SELECT number, digest FROM events WHERE session = ? ORDER BY number DESC LIMIT 1",
            (name,),
        ).fetchone()

    def _events(self, name: str, after: int = 0, last: str = "") -> tuple[list[Event], str]:
        """The events of a session from a number on, with verified digests, and the last digest.

        Args:
            name: the session's id.
            after: number of known events.
            last: digest of the last known event.
        """
        first = max(after - 1, 0)
        rows = self._db.execute(
            "SELECT e.number, e.event, e.digest, s.seal FROM seals s JOIN events e "
            "ON e.session = s.session WHERE s.session = ? AND e.number >= ? ORDER BY e.number",
            (name, first),
        ).fetchall()
        if not after:
            head = self._db.execute("SELECT head FROM sessions WHERE id = ?", (name,)).fetchone()
            last = first_digest(json.loads(head[0]), self._key)
        out: list[Event] = []
        for position, (number, text, digest, _) in enumerate(rows, first):
            expected = last if position < after else digest_after(last, text, self._key)
            if number != position or not is_digest(digest, expected):
                event = f"event {position} of session {brief(name)}"
                raise StoreError(f"{self.path}: {event} is damaged or missing. Restore a copy.")
            last = digest
            if position >= after:
                out.append(json.loads(text))
        if not rows or not is_digest(rows[-1][3], seal_of(last, self._key)):
            raise StoreError(
                f"{self.path}: events of session {brief(name)} are missing. Restore a copy."
            )
        return out, last

    def _seal(self, name: str, last: str) -> None:
        """Store the end of a session's log, as a seal of the digest of its last event."""
        row = (name, seal_of(last, self._key))
        self._db.execute("INSERT OR REPLACE INTO seals VALUES (?, ?)", row)
