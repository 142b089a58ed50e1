"""Store: sessions in one SQLite file, an append-only log of events for each.

Every change is one transaction in WAL mode with ``synchronous=FULL``: when `Session.answer`
returns, the answer and what follows from it are on disk, and a process killed at any moment leaves
the log whole. Each event carries the SHA-256 of itself and all before it, so that a log that was
changed or damaged is found out. The bank and the configuration are kept with the sessions, by
hash. Any number of processes may work on one store at once.
"""

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

from irtcat._checks import argument_error, brief
from irtcat.bank import ItemBank
from irtcat.cat._exposed import EXPOSURE_TABLES, Tally, read_counts
from irtcat.cat._exposure_parameters import ExposureParameters
from irtcat.cat._pool import Counts, Pool
from irtcat.cat._prepare import prepare
from irtcat.cat._store_file import (
    FORMAT,
    STATEMENTS,
    VERSION,
    WAIT,
    StoreError,
    as_bytes,
    digest_after,
    first_digest,
    statements,
    told,
)
from irtcat.cat.config import Config, document_hash
from irtcat.cat.exposure import UPDATES
from irtcat.cat.session import Event, Session, bank_hash, head_of

__all__ = ["Store", "StoreError"]


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
        with told(self.path):
            self._db = sqlite3.connect(self.path, timeout=WAIT, isolation_level=None)
        try:
            self._open(create)
        except BaseException:
            self._db.close()
            raise

    def _open(self, create: bool) -> None:
        """Look at the file before anything is changed in it, then make what is missing."""
        with told(self.path):
            names = {row[0] for row in self._db.execute("SELECT name FROM sqlite_master")}
            if names:
                self._check_kind(names)
            elif not create:
                raise StoreError(f"{self.path}: the file is empty, no store. Name another.")
            self._db.execute("PRAGMA journal_mode=WAL")
            self._db.execute("PRAGMA synchronous=FULL")
            self._db.execute("PRAGMA foreign_keys=ON")
            self._make()

    def _make(self) -> None:
        """The tables, where there are none; those of exposure, where they are missing."""
        with self._writing():
            names = {row[0] for row in self._db.execute("SELECT name FROM sqlite_master")}
            if not names:
                for statement in STATEMENTS:
                    self._db.execute(statement)
                self._db.execute("INSERT INTO meta VALUES (?, ?)", (FORMAT, VERSION))
                return
        if self._check_kind(names) < VERSION:
            self._add_exposure()

    def _check_kind(self, names: set[str]) -> int:
        """The version of the store; raises where the file is something else."""
        found = None
        if {"meta", "sessions", "events"} <= names:
            columns = [row[1] for row in self._db.execute("PRAGMA table_info(meta)")]
            if columns == ["format", "version"]:
                found = self._db.execute("SELECT format, version FROM meta").fetchone()
        if found is None or found[0] != FORMAT or not isinstance(found[1], int):
            raise StoreError(f"{self.path}: this is a database of something else. Name another.")
        if found[1] > VERSION:
            raise StoreError(f"{self.path}: made by a newer irtcat (version {found[1]}). Update.")
        return found[1]

    def _add_exposure(self) -> None:
        """The tables of exposure of a store of version 1, from its logs."""
        with self._writing():
            if self._db.execute("SELECT version FROM meta").fetchone()[0] == VERSION:
                return  # another process was quicker
            for statement in statements(EXPOSURE_TABLES):
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
        with told(self.path):
            found = self._db.execute("PRAGMA integrity_check(1)").fetchone()[0]
            if found != "ok":
                raise StoreError(f"{self.path}: damaged ({found}). Restore a copy.")
            with self._writing():  # nothing is added meanwhile
                if not self._tally().equals(self._db):
                    raise StoreError(
                        f"{self.path}: the counts of exposure are not those of the logs. "
                        "Restore a copy."
                    )

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
        prior: Any = None,
        subject: str = "",
        counts: Counts | ExposureParameters | None = None,
        pool: Pool | None = None,
    ) -> Session:
        """Begin a session and write it down.

        Args:
            bank: calibrated items; kept in the store, once.
            config: the configuration.
            session_id: its id; a random one by default.
            seed: seed of its randomness; drawn by default.
            prior: mean and SD of this subject's prior, as for `Session.begin`.
            subject: who is tested.
            counts: exposure so far, or the parameters of `calibrate_exposure`; by default, where
                the exposure rule goes by earlier sessions, those of the store's sessions with the
                same bank and configuration.
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
        with told(self.path), self._writing():
            taken = self._db.execute("SELECT 1 FROM sessions WHERE id = ?", (name,)).fetchone()
            if taken:
                raise argument_error("session_id", "one that is not taken", name)
            known = self._db.execute("SELECT 1 FROM banks WHERE hash = ?", (digest,)).fetchone()
            if not known:
                self._db.execute("INSERT INTO banks VALUES (?, ?)", (digest, as_bytes(bank)))
            self._db.execute(
                "INSERT INTO sessions VALUES (?, ?, ?, ?)",
                (name, digest, json.dumps(head), datetime.now(UTC).isoformat()),
            )
            self._append(session, 0, first_digest(head), first)
        for event in first:
            session._take(event)
        session._store = self
        return session

    def resume(self, session_id: str) -> Session:
        """A session as it was left: the same items asked, the same state.

        Raises:
            StoreError: for a damaged log or bank.
            InputError: for an unknown id.
        """
        with told(self.path):
            row = self._db.execute(
                "SELECT bank, head FROM sessions WHERE id = ?", (str(session_id),)
            ).fetchone()
            if row is None:
                raise argument_error("session_id", "of a session in the store", session_id)
            events = self._events(str(session_id))
            digest, head = row[0], json.loads(row[1])
        if head["bank"] != digest:
            raise StoreError(
                f"{self.path}: the bank of {brief(session_id)} was changed. Restore a copy."
            )
        bank = self._bank(digest)
        if document_hash(head["config"]) != head["config_hash"]:
            raise StoreError(f"{self.path}: the configuration of {brief(session_id)} was changed.")
        config = Config.from_json(head["config"])
        session = Session(bank, config, head, self._pool_of(bank, config, digest))
        session.take_events(events)
        session._store = self
        return session

    def answer(self, session: Session, item: str, value: Any, seconds: float) -> list[str]:
        """Take an answer: checked, written, acknowledged (see `Session.answer`)."""
        made_here = False
        try:
            with told(self.path):
                news = self._events(session.id, len(session.events))
            session.take_events(news)  # what other processes did to this session comes first
            made = session.events_of(item, value, seconds)
            if made:
                with told(self.path), self._writing():
                    last = self._last(session.id)
                    made_here = last[0] + 1 == len(session.events)
                    if made_here:
                        self._append(session, last[0] + 1, last[1], made)
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
        with told(self.path):
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
        with told(self.path):
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
            with told(self.path):
                row = self._db.execute("SELECT file FROM banks WHERE hash = ?", (digest,))
                found = row.fetchone()
            damaged = StoreError(f"{self.path}: the bank {digest[:12]} is damaged. Restore a copy.")
            if found is None or not isinstance(found[0], bytes):
                raise damaged
            with tempfile.TemporaryDirectory() as folder:
                path = Path(folder) / "bank.npz"
                path.write_bytes(found[0])
                try:
                    bank = ItemBank.load(path)
                except Exception:  # whatever a reader makes of such bytes
                    raise damaged from None
            if bank_hash(bank) != digest:
                raise damaged
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
            raise StoreError(
                f"{self.path}: events of session {brief(name)} are missing. Restore a copy."
            )
        if after > 0:
            last, rows = rows[0][2], rows[1:]
        else:
            head = self._db.execute("SELECT head FROM sessions WHERE id = ?", (name,)).fetchone()
            last = first_digest(json.loads(head[0]))
        for number, (stored, text, digest) in enumerate(rows, start=after):
            if stored != number or digest_after(last, text) != digest:
                place = f"event {number} of session {brief(name)}"
                raise StoreError(f"{self.path}: {place} is damaged or missing. Restore a copy.")
            last = digest
        return [json.loads(text) for _, text, _ in rows]

    def _append(self, session: Session, number: int, last: str, events: list[Event]) -> None:
        """Add events to a log, and what they add to the counts of exposure."""
        tally, before = Tally(), list(session.events)
        for event in events:
            text = json.dumps(event, sort_keys=True)
            last = digest_after(last, text)
            row = (session.id, number, text, last)
            self._db.execute("INSERT INTO events VALUES (?, ?, ?, ?)", row)
            tally.add(session.head, before, event)
            before.append(event)
            number += 1
        tally.write(self._db)
