"""Store: sessions in one SQLite file, an append-only log of events for each.

Every change is one transaction in WAL mode with ``synchronous=FULL``: when `Session.answer`
returns, the answer and what follows from it are on disk, and a process killed at any moment leaves
the log whole. Each event carries the SHA-256 of itself and all before it, so that a log that was
changed or damaged is found out. The bank and the configuration are kept with the sessions, by
hash. Any number of processes may work on one store at once.
"""

import hashlib
import json
import os
import sqlite3
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from uuid import uuid4

import pandas as pd

from irtcat._checks import InputError, argument_error
from irtcat.bank import ItemBank
from irtcat.cat._exposed import EXPOSURE_TABLES, Tally, read_counts
from irtcat.cat._pool import Counts, Pool
from irtcat.cat._prepare import prepare
from irtcat.cat.config import Config, document_hash
from irtcat.cat.exposure import UPDATES
from irtcat.cat.session import Event, Session, bank_hash, head_of

__all__ = ["Store", "StoreError"]

FORMAT = "irtcat-store"
VERSION = 2
"""2 added the tables of exposure; stores of version 1 get them when they are opened."""

WAIT = 60.0
"""Seconds to wait while another process writes."""

SCHEMA = """
CREATE TABLE meta (format TEXT NOT NULL, version INTEGER NOT NULL);
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


class StoreError(InputError):
    """A store that cannot be read or written; nothing was acknowledged and nothing is repaired."""


class Store:
    """Live sessions in one SQLite file.

    Example:
        >>> folder = tempfile.mkdtemp()
        >>> store = Store(Path(folder) / "sessions.db")
        >>> bank = ItemBank.from_parameters(a=[1.0, 2.0, 1.0], b=[-1.0, 0.1, 1.0])
        >>> session = store.begin(bank, Config(max_items=2), session_id="anna")
        >>> session.answer("i2", 1)
        ['i3']
        >>> Store(Path(folder) / "sessions.db").resume("anna").asked
        ['i3']
    """

    def __init__(self, path: str | os.PathLike[str], create: bool = True):
        """Open a store, or make one.

        Args:
            path: the file.
            create: whether to make it where there is none.

        Raises:
            StoreError: when the file is missing, damaged, no store, or cannot be written.
        """
        self.path = Path(path)
        if not self.path.parent.is_dir():
            raise StoreError(
                f"{path}: the folder {self.path.parent} does not exist. Make it first."
            )
        if not create and not self.path.is_file():
            raise StoreError(f"{path}: there is no such store. Start a session with it first.")
        self._pools: dict[tuple[str, str], Pool] = {}
        self._banks: dict[str, ItemBank] = {}
        with self._told():
            self._db = sqlite3.connect(self.path, timeout=WAIT, isolation_level=None)
            self._db.execute("PRAGMA journal_mode=WAL")
            self._db.execute("PRAGMA synchronous=FULL")
            self._db.execute("PRAGMA foreign_keys=ON")
            self._make()

    def _make(self) -> None:
        """The tables, where there are none; else check that the file is a store, and sound."""
        with self._writing():
            names = {row[0] for row in self._db.execute("SELECT name FROM sqlite_master")}
            if not names:
                for statement in (SCHEMA + EXPOSURE_TABLES).split(";\n"):
                    if statement.strip():
                        self._db.execute(statement)
                self._db.execute("INSERT INTO meta VALUES (?, ?)", (FORMAT, VERSION))
                return
        if not {"meta", "sessions", "events"} <= names:
            raise StoreError(f"{self.path}: this is a database of something else. Name another.")
        found = self._db.execute("SELECT format, version FROM meta").fetchone()
        if found is None or found[0] != FORMAT:
            raise StoreError(f"{self.path}: this is a database of something else. Name another.")
        if found[1] > VERSION:
            raise StoreError(f"{self.path}: made by a newer irtcat (version {found[1]}). Update.")
        if found[1] < VERSION:
            self._add_exposure()

    def _add_exposure(self) -> None:
        """The tables of exposure of a store of version 1, from its logs."""
        with self._writing():
            if self._db.execute("SELECT version FROM meta").fetchone()[0] == VERSION:
                return  # another process was quicker
            for statement in EXPOSURE_TABLES.split(";\n"):
                if statement.strip():
                    self._db.execute(statement)
            self._tally().write(self._db)
            self._db.execute("UPDATE meta SET version = ?", (VERSION,))

    def _tally(self) -> Tally:
        """The counts of exposure by the logs."""
        tally = Tally()
        for name, text in self._db.execute("SELECT id, head FROM sessions").fetchall():
            head, events = json.loads(text), self._events(name)
            for number, event in enumerate(events):
                tally.add(head, events[:number], event)
        return tally

    def check(self) -> None:
        """Read the whole file and every log's digests.

        Raises:
            StoreError: naming what is damaged.
        """
        with self._told():
            told = self._db.execute("PRAGMA integrity_check(1)").fetchone()[0]
            if told != "ok":
                raise StoreError(f"{self.path}: damaged ({told}). Restore a copy.")
            with self._writing():  # nothing is added meanwhile
                if not self._tally().equals(self._db):
                    raise StoreError(
                        f"{self.path}: the counts of exposure are not those of the logs. "
                        "Restore a copy."
                    )

    @contextmanager
    def _told(self) -> Iterator[None]:
        """SQLite's errors as sentences."""
        try:
            yield
        except sqlite3.Error as error:
            text = str(error)
            advice = "Nothing was acknowledged."
            if "full" in text:
                advice = "Nothing was acknowledged. Free some space and send the answer again."
            elif "malformed" in text or "not a database" in text:
                advice = "The file is damaged or no store; it is left as it is. Restore a copy."
            elif "locked" in text:
                advice = "Another process holds it. Nothing was acknowledged; try again."
            raise StoreError(f"{self.path}: {text}. {advice}") from None

    @contextmanager
    def _writing(self) -> Iterator[None]:
        """One transaction: all of it on disk, or nothing."""
        self._db.execute("BEGIN IMMEDIATE")
        try:
            yield
        except BaseException:
            if self._db.in_transaction:
                self._db.execute("ROLLBACK")
            raise
        self._db.execute("COMMIT")

    def begin(
        self,
        bank: ItemBank,
        config: Config,
        session_id: str | None = None,
        seed: int | None = None,
        prior: tuple[float, float] | None = None,
        subject: str = "",
        counts: Counts | None = None,
        pool: Pool | None = None,
    ) -> Session:
        """Begin a session and write it down.

        Args:
            bank: calibrated items; kept in the store, once.
            config: the configuration.
            session_id: its id; a random one by default.
            seed: seed of its randomness; drawn by default.
            prior: mean and SD of this subject's prior; by default the bank's population.
            subject: who is tested.
            counts: exposure so far; by default, where the exposure rule goes by them, those of
                the store's sessions with the same bank and configuration.
            pool: what `prepare` made of the bank, to spare the time.

        Returns:
            The session, its first item asked.

        Raises:
            StoreError: when it cannot be written.
            InputError: for an id that is taken, and as `Session.begin` does.
        """
        name = uuid4().hex if session_id is None else str(session_id)
        drawn = int.from_bytes(os.urandom(4), "big") if seed is None else seed
        digest = bank_hash(bank)
        self._banks.setdefault(digest, bank)
        if pool is not None:
            self._pools.setdefault((digest, config.hash()), pool)
        if counts is None and config.exposure.name in UPDATES:
            counts = self.counts(bank, config)
        head = head_of(bank, config, drawn, prior, name, subject, counts)
        session = Session(bank, config, head, self._pool_of(bank, config, digest))
        first = session.asking(session.state)
        with self._told(), self._writing():
            taken = self._db.execute("SELECT 1 FROM sessions WHERE id = ?", (name,)).fetchone()
            if taken:
                raise argument_error("session_id", "one that is not taken", name)
            known = self._db.execute("SELECT 1 FROM banks WHERE hash = ?", (digest,)).fetchone()
            if not known:
                self._db.execute("INSERT INTO banks VALUES (?, ?)", (digest, _as_bytes(bank)))
            self._db.execute(
                "INSERT INTO sessions VALUES (?, ?, ?, ?)",
                (name, digest, json.dumps(head), datetime.now(UTC).isoformat()),
            )
            self._append(session, 0, _first_digest(head), [first])
        session._take(first)
        session._store = self
        return session

    def resume(self, session_id: str) -> Session:
        """A session as it was left: the same items asked, the same state.

        Raises:
            StoreError: for a damaged log or bank.
            InputError: for an unknown id.
        """
        with self._told():
            row = self._db.execute(
                "SELECT bank, head FROM sessions WHERE id = ?", (str(session_id),)
            ).fetchone()
            if row is None:
                raise argument_error("session_id", "of a session in the store", session_id)
            events = self._events(str(session_id))
        digest, head = row[0], json.loads(row[1])
        bank = self._bank(digest)
        if document_hash(head["config"]) != head["config_hash"]:
            raise StoreError(f"{self.path}: the configuration of {session_id} was changed.")
        config = Config.from_json(head["config"])
        session = Session(bank, config, head, self._pool_of(bank, config, digest))
        session.take_events(events)
        session._store = self
        return session

    def answer(self, session: Session, item: str, value: Any, seconds: float) -> list[str]:
        """Take an answer: checked, written, acknowledged (see `Session.answer`)."""
        try:
            with self._told():
                # What other processes did to this session comes first.
                session.take_events(self._events(session.id, len(session.events)))
                made = session.events_of(item, value, seconds)
                if made:
                    with self._writing():
                        last = self._last(session.id)
                        if last[0] + 1 == len(session.events):
                            self._append(session, last[0] + 1, last[1], made)
                            made_here = True
                        else:
                            made_here = False
        except BaseException:
            session.__dict__.pop("_next", None)
            raise
        if not made:
            return session.asked
        if not made_here:  # another process was quicker: look again
            session.__dict__.pop("_next", None)
            return self.answer(session, item, value, seconds)
        session.take_events(made)
        return session.asked

    def sessions(self) -> pd.DataFrame:
        """All sessions: subject, start, number of answers, whether and why over."""
        query = """
            SELECT s.id, s.head, s.started,
                   (SELECT COUNT(*) FROM events e WHERE e.session = s.id
                      AND json_extract(e.event, '$.kind') = 'answer'),
                   (SELECT json_extract(e.event, '$.reason') FROM events e WHERE e.session = s.id
                      ORDER BY number DESC LIMIT 1)
            FROM sessions s ORDER BY s.started, s.id"""
        with self._told():
            rows = self._db.execute(query).fetchall()
        table = [
            {
                "session": name,
                "subject": json.loads(head).get("subject", ""),
                "started": started[:19],
                "answers": answers,
                "over": reason or "",
            }
            for name, head, started, answers, reason in rows
        ]
        columns = ["session", "subject", "started", "answers", "over"]
        return pd.DataFrame(table, columns=columns).set_index("session")

    def counts(self, bank: ItemBank, config: Config) -> Counts:
        """Exposure over the store's sessions with this bank and configuration."""
        with self._told():
            return read_counts(self._db, bank, bank_hash(bank), config)

    def close(self) -> None:
        """Close the file."""
        self._db.close()

    def __enter__(self) -> "Store":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _pool_of(self, bank: ItemBank, config: Config, digest: str) -> Pool:
        key = (digest, config.hash())
        if key not in self._pools:
            self._pools[key] = prepare(bank, config)
        return self._pools[key]

    def _bank(self, digest: str) -> ItemBank:
        """A bank of the store, checked against its hash."""
        if digest not in self._banks:
            with self._told():
                row = self._db.execute("SELECT file FROM banks WHERE hash = ?", (digest,))
                found = row.fetchone()
            with tempfile.TemporaryDirectory() as folder:
                path = Path(folder) / "bank.npz"
                path.write_bytes(b"" if found is None else found[0])
                bank = ItemBank.load(path)
            if bank_hash(bank) != digest:
                raise StoreError(f"{self.path}: the bank {digest[:12]} is damaged. Restore a copy.")
            self._banks[digest] = bank
        return self._banks[digest]

    def _last(self, name: str) -> tuple[int, str]:
        """Number and digest of a session's last event."""
        return self._db.execute(
            "SELECT number, digest FROM events WHERE session = ? ORDER BY number DESC LIMIT 1",
            (name,),
        ).fetchone()

    def _events(self, name: str, after: int = 0) -> list[Event]:
        """The events of a session from one number on, their digests checked."""
        rows = self._db.execute(
            "SELECT number, event, digest FROM events WHERE session = ? AND number >= ? "
            "ORDER BY number",
            (name, max(after - 1, 0)),
        ).fetchall()
        if after > 0 and not rows:
            raise StoreError(f"{self.path}: events of session {name} are missing. Restore a copy.")
        if after > 0:
            last, rows = rows[0][2], rows[1:]
        else:
            head = self._db.execute("SELECT head FROM sessions WHERE id = ?", (name,)).fetchone()
            last = _first_digest(json.loads(head[0]))
        for number, (stored, text, digest) in enumerate(rows, start=after):
            if stored != number or _digest(last, text) != digest:
                place = f"event {number} of session {name}"
                raise StoreError(f"{self.path}: {place} is damaged or missing. Restore a copy.")
            last = digest
        return [json.loads(text) for _, text, _ in rows]

    def _append(self, session: Session, number: int, last: str, events: list[Event]) -> None:
        """Add events to a log, and what they add to the counts of exposure."""
        tally, before = Tally(), list(session.events)
        for event in events:
            text = json.dumps(event, sort_keys=True)
            last = _digest(last, text)
            row = (session.id, number, text, last)
            self._db.execute("INSERT INTO events VALUES (?, ?, ?, ?)", row)
            tally.add(session.head, before, event)
            before.append(event)
            number += 1
        tally.write(self._db)


def _digest(last: str, text: str) -> str:
    """SHA-256 of an event and all before it."""
    return hashlib.sha256(f"{last}\n{text}".encode()).hexdigest()


def _first_digest(head: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(head, sort_keys=True).encode()).hexdigest()


def _as_bytes(bank: ItemBank) -> bytes:
    """The bank's file."""
    with tempfile.TemporaryDirectory() as folder:
        return bank.save(Path(folder) / "bank.npz").read_bytes()
