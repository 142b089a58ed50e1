"""The database of a store: its tables, its version, and its logs with their digests."""

import json
import os
from typing import Any, Self, cast

import pandas as pd

from irtcat._common.checks import argument_error, brief
from irtcat._files.formats import FileFormat
from irtcat.cat.live.database import DATABASES, Database, Dialect, SQLiteFile, StoreError, scheme_of
from irtcat.cat.live.log import (
    SESSION,
    Event,
    Key,
    as_key,
    digest_after,
    first_digest,
    is_digest,
    seal_of,
    status_digest,
)
from irtcat.cat.live.status import SessionStatus

STORE = FileFormat("irtcat-store", "a store", "Name another.")

# Seals are not a column of sessions: a head may be large, and a change rewrites the whole row.
# A status is written when it is computed, not with every answer: with 30,000 items the score takes
# 8 ms, an answer 1.6 ms (experiments/cat/live.csv). A row that follows an earlier event is out of
# date.
SCHEMA = """
CREATE TABLE meta (format TEXT NOT NULL, version INTEGER NOT NULL, key TEXT NOT NULL);
CREATE TABLE banks (hash TEXT PRIMARY KEY, file {blob} NOT NULL);
CREATE TABLE sessions (
  id TEXT PRIMARY KEY, bank TEXT NOT NULL REFERENCES banks(hash), head TEXT NOT NULL,
  started TEXT NOT NULL
);
CREATE TABLE events (
  session TEXT NOT NULL REFERENCES sessions(id), number INTEGER NOT NULL, event TEXT NOT NULL,
  digest TEXT NOT NULL, PRIMARY KEY (session, number)
){table_end};
CREATE TABLE seals (
  session TEXT PRIMARY KEY REFERENCES sessions(id), seal TEXT NOT NULL
){table_end};
CREATE TABLE statuses (
  session TEXT PRIMARY KEY REFERENCES sessions(id), status TEXT NOT NULL, digest TEXT NOT NULL
){table_end};
CREATE TABLE exposure (
  bank TEXT NOT NULL, config TEXT NOT NULL, cell INTEGER NOT NULL, item TEXT NOT NULL,
  given {integer} NOT NULL, PRIMARY KEY (bank, config, cell, item)
){table_end};
CREATE TABLE visits (
  bank TEXT NOT NULL, config TEXT NOT NULL, cell INTEGER NOT NULL, sessions {integer} NOT NULL,
  eligible {blob}, PRIMARY KEY (bank, config, cell)
){table_end};
"""
"""Tables of a new store, in the SQL that all databases share (`Dialect` fills the placeholders)."""


AT_ONCE = 100
"""Events of one statement: one way to the server for those of an answer (two or three)."""


class EventLog:
    """Append-only logs of events in two tables, each event with a digest of all before it.

    The table of events has the columns name, ``number``, ``event`` and ``digest``; the table of
    seals the columns name and ``seal``: a digest that marks the last event.
    """

    def __init__(self, database: Database, key: bytes | None, name: str, tables: tuple[str, str]):
        """Describe the tables.

        Args:
            database: the database that holds them.
            key: the secret key of the digests; None for plain digests.
            name: the column that names the log of an event, and the noun of messages.
            tables: the tables of events and of seals.
        """
        self._database, self._key, self._name = database, key, name
        self._events, self._seals = tables
        self._label = database.label

    def last(self, log: str) -> tuple[int, str] | None:
        """Number and digest of the last event of a log."""
        return self._database.execute(
            f"SELECT number, digest FROM {self._events} WHERE {self._name} = ? "
            "ORDER BY number DESC LIMIT 1",
            (log,),
        ).fetchone()

    def read(self, log: str, first: str, after: int = 0, last: str = "") -> tuple[list[Event], str]:
        """The events from a number on, with verified digests, and the digest of the last one.

        Args:
            log: name of the log.
            first: digest of the head of the log.
            after: number of known events.
            last: digest of the last known event.

        Raises:
            StoreError: for a log that is damaged, or whose last events are missing.
        """
        start = max(after - 1, 0)
        rows = self._database.execute(
            f"SELECT e.number, e.event, e.digest, s.seal FROM {self._seals} s "
            f"JOIN {self._events} e ON e.{self._name} = s.{self._name} "
            f"WHERE s.{self._name} = ? AND e.number >= ? ORDER BY e.number",
            (log, start),
        ).fetchall()
        last = last if after else first
        out: list[Event] = []
        for position, (number, text, digest, _) in enumerate(rows, start):
            expected = last if position < after else digest_after(last, text, self._key)
            if number != position or not is_digest(digest, expected):
                event = f"event {position} of {self._name} {brief(log)}"
                raise StoreError(f"{self._label}: {event} is damaged or missing. Restore a copy.")
            last = digest
            if position >= after:
                out.append(json.loads(text))
        if not rows or not self.is_end(last, rows[-1][3]):
            raise StoreError(
                f"{self._label}: events of {self._name} {brief(log)} are missing. Restore a copy."
            )
        return out, last

    def append(self, log: str, number: int, last: str, events: list[Event]) -> str:
        """Add events, within the caller's transaction; return the digest of the last one.

        Args:
            log: name of the log.
            number: number of the first of these events.
            last: digest of the event before them, or of the head.
            events: what to add.
        """
        row = "(?, ?, ?, ?)"
        for start in range(0, len(events), AT_ONCE):
            values: list[str | int] = []
            for position, event in enumerate(events[start : start + AT_ONCE], number + start):
                text = json.dumps(event, sort_keys=True)
                last = digest_after(last, text, self._key)
                values += [log, position, text, last]
            rows = ", ".join([row] * (len(values) // 4))
            self._database.execute(f"INSERT INTO {self._events} VALUES {rows}", values)
        self.seal(log, last)
        return last

    def is_end(self, last: str, seal: str) -> bool:
        """Whether a seal marks the event with the digest ``last`` as the end of its log."""
        return is_digest(seal, seal_of(last, self._key))

    def seal(self, log: str, last: str) -> None:
        """Mark the end of a log, by a seal of the digest of its last event."""
        self._database.execute(
            f"INSERT INTO {self._seals} VALUES (?, ?) "
            f"ON CONFLICT ({self._name}) DO UPDATE SET seal = excluded.seal",
            (log, seal_of(last, self._key)),
        )


def open_database(path: str | os.PathLike[str] | Database, create: bool) -> Database:
    """The database at a path or an address; a database is returned as it is."""
    if isinstance(getattr(path, "dialect", None), Dialect):
        return cast(Database, path)
    address = cast(str | os.PathLike[str], path)
    scheme = scheme_of(address)
    if scheme is None:
        return SQLiteFile(address, create)
    return DATABASES[scheme].open(os.fspath(address))


class StoreFile:
    """The file of a store: what can be read and checked without the rules of its tests."""

    def __init__(
        self, path: str | os.PathLike[str] | Database, create: bool = False, key: Key = None
    ):
        """Open the store (see `irtcat.cat.Store`)."""
        self._key = as_key(key)
        self._db = open_database(path, create)
        self.path = self._db.label
        self._log = EventLog(self._db, self._key, "session", ("events", "seals"))
        try:
            self._open(create)
        except BaseException:
            self._db.close()
            raise

    def _open(self, create: bool) -> None:
        """Check the database before anything is changed in it, then create missing tables."""
        with self._db.reading():
            names = self._db.tables()
            if names:
                self._check_kind(names)
            elif not create:
                raise StoreError(f"{self.path}: empty, no store. Name another.")
        self._db.set_modes()
        self._make()
        self._db.record()

    def _make(self) -> None:
        """Create the tables of a new store."""
        with self._db.writing(alone=True):
            if names := self._db.tables():  # another process may have made it meanwhile
                self._check_kind(names)
                return
            dialect = self._db.dialect
            for statement in (*dialect.statements(SCHEMA), *dialect.append_only):
                self._db.execute(statement)
            row = (STORE.name, STORE.version, self._key_mark())
            self._db.execute("INSERT INTO meta VALUES (?, ?, ?)", row)

    def _key_mark(self) -> str:
        """Digest that identifies the key in the file; empty without a key."""
        return "" if self._key is None else seal_of(STORE.name, self._key)

    def _check_kind(self, names: set[str]) -> None:
        """Raise an error for another kind of file, another version or another key."""
        meta: tuple[Any, ...] | None = None
        columns = self._db.columns("meta") if {"meta", "sessions", "events"} <= names else []
        if columns[:2] == ["format", "version"]:
            meta = self._db.execute("SELECT * FROM meta").fetchone()
        if meta is None:
            raise StoreError(f"{self.path}: this is a database of something else. Name another.")
        STORE.check({"format": meta[0], "version": meta[1]}, self.path, StoreError)
        mark = meta[2]
        if not is_digest(mark, self._key_mark()):
            fault = "made with another key" if mark and self._key else "made with a key"
            advice = "Give that key (in commands --key-file or IRTCAT_STORE_KEY)."
            if not mark:
                fault, advice = "made without a key", "Open it without one."
            raise StoreError(f"{self.path}: {fault}. {advice}")

    def __contains__(self, session_id: object) -> bool:
        """Whether a session with this id has begun."""
        name = str(session_id).encode("utf-8", "replace").decode()
        with self._db.reading():
            query = "SELECT 1 FROM sessions WHERE id = ?"
            return bool(self._db.execute(query, (name,)).fetchone())

    def sessions(self) -> pd.DataFrame:
        """All sessions: subject, start, number of answers, and the reason of the end (if over).

        Read without verification; `resume` and `check` verify the digests.
        """
        kind, reason_text = (
            self._db.dialect.json_text.format(column="e.event", field=field)
            for field in ("kind", "reason")
        )
        query = f"""
            SELECT s.id, s.head, s.started,
                   (SELECT COUNT(*) FROM events e WHERE e.session = s.id AND {kind} = 'answer'),
                   (SELECT {reason_text} FROM events e WHERE e.session = s.id
                      ORDER BY number DESC LIMIT 1)
            FROM sessions s ORDER BY s.started, s.id"""
        with self._db.reading():
            table = [
                (name, json.loads(head)["subject"], started[:19], answers, reason or "")
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
        with self._db.reading():
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
        SESSION.check(head, f"{self.path}: session {brief(name)}", StoreError)
        if columns != [head["id"], head["bank"], head["started"]]:
            raise StoreError(f"{self.path}: session {brief(name)} was changed. Restore a copy.")
        return head

    def _events(self, name: str, after: int = 0, last: str = "") -> tuple[list[Event], str]:
        """The events of a session from a number on, and the last digest (see `EventLog.read`)."""
        first = ""
        if not after:
            query = "SELECT head FROM sessions WHERE id = ?"
            head = self._db.execute(query, (name,)).fetchone()
            first = first_digest(json.loads(head[0]), self._key)
        return self._log.read(name, first, after, last)
