"""Store: sessions in one SQLite file, each an append-only log of events.

Every change is one transaction in WAL mode with ``synchronous=FULL``: when `Session.answer`
returns, the answer and the events that follow from it are on disk, and a process killed at any
moment leaves a consistent log. Each event has a digest of itself and all events before it, and each
session a seal of its last event, so that changes, truncation and damage are detected. The bank and
the configuration are stored with the sessions, by hash. Any number of processes may use one store
at once. A store whose file was removed or replaced acknowledges nothing.
"""

import json
import os
import sqlite3
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from uuid import uuid4

import pandas as pd

from irtcat._checks import InputError, argument_error, brief
from irtcat._files import check_target
from irtcat.bank import ItemBank
from irtcat.cat._exposed import EXPOSURE_TABLES, Tally, read_counts
from irtcat.cat._exposure_parameters import ExposureParameters, session_counts
from irtcat.cat._log import (
    Clock,
    Event,
    Key,
    as_key,
    digest_after,
    first_digest,
    is_digest,
    seal_of,
    system_clock,
)
from irtcat.cat._pool import Counts, Pool
from irtcat.cat._prepare import prepare
from irtcat.cat._store_file import (
    FORMAT,
    KEY_COLUMN,
    SEAL_TABLE,
    STATEMENTS,
    VERSION,
    WAIT,
    OpenFiles,
    StoreError,
    as_bytes,
    statements,
    store_errors,
)
from irtcat.cat.config import Config
from irtcat.cat.exposure import EXPOSURE
from irtcat.cat.session import Session, bank_hash, head_of, utc_text

__all__ = ["Store", "StoreError"]


class StoredSession(Session):
    """A session of a store: `answer` returns when the answer is on disk."""

    _store: "Store"
    _digest: str
    """Digest of the last event that was read or written."""

    def answer(self, item: str, value: Any, seconds: float | None = None) -> list[str]:
        """Record the answer in the store, then apply it (see `Session.answer`)."""
        return self._store.answer(self, item, value, seconds)


class Store:
    """Live sessions in one SQLite file.

    A changed log, or one with missing events at its end, raises an error. The store does not detect
    that a whole session was deleted, or that an earlier copy of the file was restored. Copy a store
    with its ``-wal`` file, or while no process has it open.

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

    def __init__(
        self,
        path: str | os.PathLike[str],
        create: bool = True,
        key: Key = None,
        clock: Clock = system_clock,
    ):
        """Open a store, or create one.

        Args:
            path: the file.
            create: create the file if it does not exist.
            key: a secret key of the digests of all logs (HMAC-SHA-256), so that nobody without it
                can change a log undetected. It is set when the store is created, and required from
                then on. Without a key the digests (SHA-256) detect accidents and manual edits.
            clock: returns the time in UTC and the seconds of a monotonic clock; for tests.

        Raises:
            StoreError: if the file is missing, damaged, no store, created with another key, or
                cannot be written.
        """
        try:
            target = check_target(path)
        except InputError as error:
            raise StoreError(str(error)) from None
        self.path, self._key, self._clock = Path(path), as_key(key), clock
        if not create and not self.path.is_file():
            raise StoreError(f"{path}: there is no such store. Start a session with it first.")
        self._pools: dict[tuple[str, str], Pool] = {}
        self._banks: dict[str, ItemBank] = {}
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
        """Upgrade a store of an earlier version; its logs do not change."""
        with self._writing():
            version = self._db.execute("SELECT version FROM meta").fetchone()[0]
            if version == VERSION:
                return  # another process was quicker
            if version < 3:
                for statement in (KEY_COLUMN, *statements(SEAL_TABLE)):
                    self._db.execute(statement)
                for (name,) in self._db.execute("SELECT id FROM sessions").fetchall():
                    last = self._last(name)
                    if last is not None:  # a session without events is damaged: `resume` reports it
                        self._seal(name, last[1])
            if version < 2:
                for statement in statements(EXPOSURE_TABLES):
                    self._db.execute(statement)
            for table in ("exposure", "visits"):
                self._db.execute(f"DELETE FROM {table}")
            self._tally().write(self._db)
            self._db.execute("UPDATE meta SET version = ?", (VERSION,))

    def _tally(self) -> Tally:
        """The counts of exposure according to the logs."""
        tally = Tally()
        for (name,) in self._db.execute("SELECT id FROM sessions").fetchall():
            head, events = self._head(name), self._events(name)[0]
            for number, event in enumerate(events):
                tally.add(head, events[:number], event)
        return tally

    def check(self) -> None:
        """Verify the whole file and the digests of every log.

        Raises:
            StoreError: if something is damaged; it names it.
        """
        with self._using():
            integrity = self._db.execute("PRAGMA integrity_check(1)").fetchone()[0]
            if integrity != "ok":
                raise StoreError(f"{self.path}: damaged ({integrity}). Restore a copy.")
        with self._writing():  # so that nothing is added meanwhile
            if not self._tally().equals(self._db):
                raise StoreError(
                    f"{self.path}: the counts of exposure do not match the logs. Restore a copy."
                )

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

    def begin(
        self,
        bank: ItemBank,
        config: Config,
        session_id: str | None = None,
        seed: int | None = None,
        prior: Any = None,
        subject: str = "",
        counts: Counts | ExposureParameters | None = None,
        pool: Pool | None = None,
    ) -> Session:
        """Begin a session and store it.

        Args:
            bank: calibrated items; stored once.
            config: the configuration.
            session_id: its id, not empty and without control characters; a random one by default.
            seed: seed of its randomness; drawn by default.
            prior: mean and SD of this subject's prior, as for `Session.begin`.
            subject: id of the subject.
            counts: exposure so far, or the parameters of `calibrate_exposure`; by default, if the
                exposure rule uses earlier sessions, the counts of the store's sessions with the
                same bank and configuration.
            pool: the bank as returned by `prepare`, to save time.

        Returns:
            The session, with its first item asked.

        Raises:
            StoreError: if it cannot be written.
            InputError: for an id that is taken, and as `Session.begin` does.
        """
        drawn = int.from_bytes(os.urandom(4), "big") if seed is None else seed
        digest = bank_hash(bank)
        self._banks.setdefault(digest, bank)
        if pool is not None:
            self._pools.setdefault((digest, config.hash()), pool)
        if counts is None and EXPOSURE[config.exposure.name].updates:
            counts = self.counts(bank, config)
        checked = session_counts(bank, config, counts)
        name = uuid4().hex if session_id is None else session_id
        started = utc_text(self._clock()[0])
        head = head_of(bank, config, drawn, prior, name, subject, checked, started)
        pool = self._pool_of(bank, config, digest)
        session = StoredSession(bank, config, head, pool, self._clock)
        session._store = self
        first = session.first_events()
        with self._writing():
            if session.id in self:
                raise argument_error("session_id", "one that is not taken", session.id)
            stored = self._db.execute("SELECT 1 FROM banks WHERE hash = ?", (digest,)).fetchone()
            if not stored:
                self._db.execute("INSERT INTO banks VALUES (?, ?)", (digest, as_bytes(bank)))
            self._db.execute(
                "INSERT INTO sessions VALUES (?, ?, ?, ?)",
                (session.id, digest, json.dumps(head), started),
            )
            last = self._append(session, 0, first_digest(head, self._key), first)
        for event in first:
            session._apply(event)
        session._digest = last
        return session

    def __contains__(self, session_id: object) -> bool:
        """Whether a session with this id has begun."""
        with store_errors(self.path):
            row = (str(session_id).encode("utf-8", "replace").decode(),)
            return bool(self._db.execute("SELECT 1 FROM sessions WHERE id = ?", row).fetchone())

    def resume(self, session_id: str) -> Session:
        """Load a session in its last state, with the same items asked.

        Raises:
            StoreError: for a damaged log or bank, or an inconsistent log.
            InputError: for an unknown id.
        """
        if session_id not in self:
            raise argument_error("session_id", "the id of a session in the store", session_id)
        name = str(session_id)
        with self._using():
            events, last = self._events(name)
            head = self._head(name)
            digest = head["bank"]
            bank, config = self._bank(digest), Config.from_json(head["config"])
            pool = self._pool_of(bank, config, digest)
            session = StoredSession(bank, config, head, pool, self._clock)
        session._store = self
        self._apply(session, events, last)
        return session

    def _apply(self, session: StoredSession, events: list[Event], last: str) -> None:
        """Apply events of the file to a session."""
        try:
            session.apply_events(events)
        except InputError as error:
            raise StoreError(f"{self.path}: {error}") from None
        session._digest = last

    def answer(
        self, session: StoredSession, item: str, value: Any, seconds: float | None = None
    ) -> list[str]:
        """Check, write and acknowledge an answer (see `Session.answer`)."""
        written = False
        try:
            with self._using():
                new_events, last = self._events(session.id, len(session.events), session._digest)
            self._apply(session, new_events, last)  # first apply events of other processes
            own_events = session.events_of(item, value, seconds)
            if own_events:
                with self._writing():
                    number, last = self._last(session.id) or (-1, "")
                    written = number + 1 == len(session.events)
                    if written:
                        last = self._append(session, number + 1, last, own_events)
        except BaseException:
            session.__dict__.pop("_next", None)
            raise
        if not own_events:
            return session.asked
        if not written:  # another process was faster: read again
            session.__dict__.pop("_next", None)
            return self.answer(session, item, value, seconds)
        for event in own_events:
            session._apply(event)
        session._digest = last
        return session.asked

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

    def counts(self, bank: ItemBank, config: Config) -> Counts:
        """Exposure over the store's sessions with this bank and configuration."""
        with self._using():
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
            with store_errors(self.path):
                row = self._db.execute("SELECT file FROM banks WHERE hash = ?", (digest,))
                blob = row.fetchone()
            damaged = StoreError(f"{self.path}: the bank {digest[:12]} is damaged. Restore a copy.")
            if blob is None or not isinstance(blob[0], bytes):
                raise damaged
            with tempfile.TemporaryDirectory() as folder:
                path = Path(folder) / "bank.npz"
                path.write_bytes(blob[0])
                try:
                    bank = ItemBank.load(path)
                except Exception:  # damaged bytes may raise any error
                    raise damaged from None
            if bank_hash(bank) != digest:
                raise damaged
            self._banks[digest] = bank
        return self._banks[digest]

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

    def _append(self, session: Session, number: int, last: str, events: list[Event]) -> str:
        """Add events to a log and to the counts of exposure; return the last digest."""
        tally, before = Tally(), list(session.events)
        for event in events:
            text = json.dumps(event, sort_keys=True)
            last = digest_after(last, text, self._key)
            row = (session.id, number, text, last)
            self._db.execute("INSERT INTO events VALUES (?, ?, ?, ?)", row)
            tally.add(session.head, before, event)
            before.append(event)
            number += 1
        self._seal(session.id, last)
        tally.write(self._db)
        return last
