"""Store: sessions in one SQLite file or a PostgreSQL database, each an append-only log of events.

Every change is one transaction (SQLite in WAL mode with ``synchronous=FULL``, PostgreSQL with
``synchronous_commit=on``): when `Session.answer`
returns, the answer and the events that follow from it are on disk, and a process killed at any
moment leaves a consistent log. Each event has a digest of itself and all events before it, and each
session a seal of its last event, so that changes, truncation and damage are detected. The bank and
the configuration are stored with the sessions, by hash. Any number of processes may use one store
at once. A store whose file was removed or replaced acknowledges nothing.
"""

import json
import os
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import Any
from uuid import uuid4

import numpy as np

from irtcat._common.checks import InputError, argument_error
from irtcat._common.clock import Clock, system_clock
from irtcat.bank import ItemBank
from irtcat.cat.belief.state import Counts, Pool
from irtcat.cat.engine.config import Config
from irtcat.cat.engine.engine import check_prepared, lots
from irtcat.cat.engine.exposure_parameters import ExposureParameters
from irtcat.cat.engine.preparation import prepare
from irtcat.cat.engine.reading import checked_bank
from irtcat.cat.live.database import Database
from irtcat.cat.live.document import new_head
from irtcat.cat.live.log import Event, Key, first_digest, status_digest
from irtcat.cat.live.session import Session
from irtcat.cat.live.status import SessionStatus
from irtcat.cat.live.store_file import StoreError, StoreFile
from irtcat.cat.rules.assembly import best_form
from irtcat.cat.rules.exposure import EXPOSURE, blank_counts, updated

CountKey = tuple[str, str, int]
"""Bank, configuration and cell of ability (0 where the rule has no cells)."""


class Tally:
    """How often items were asked and eligible, by bank, configuration and cell.

    The counts are updated in the same transaction as the events, so that a session begins without
    reading the logs of all others; `Store.check` compares the two.
    """

    def __init__(self) -> None:
        self.administered: Counter[tuple[str, str, int, str]] = Counter()
        self.sessions: Counter[CountKey] = Counter()
        self.eligible: dict[CountKey, np.ndarray] = {}

    def add(
        self, head: Mapping[str, Any], before: Iterable[Mapping[str, Any]], event: Mapping[str, Any]
    ) -> None:
        """Add an event of a session with this head that follows the events ``before``."""
        if event["kind"] != "ask":
            return
        cell = event.get("cell", 0)
        key = (head["bank"], head["config_hash"], cell)
        self.administered.update((*key, item) for item in event["items"])
        if all(past["kind"] != "ask" or past.get("cell", 0) != cell for past in before):
            self.sessions[key] += 1
            eligible = _eligible(head, cell)
            if eligible is not None:
                self.eligible[key] = self.eligible.get(key, 0) + eligible

    def write(self, db: Database) -> None:
        """Add these counts to those of the tables, within the caller's transaction."""
        db.executemany(
            "INSERT INTO exposure VALUES (?, ?, ?, ?, ?) ON CONFLICT (bank, config, cell, item) "
            "DO UPDATE SET given = exposure.given + excluded.given",
            # In one order, so that no two transactions wait for each other.
            [(*key, count) for key, count in sorted(self.administered.items())],
        )
        for key, count in self.sessions.items():
            eligible = self.eligible.get(key)
            if eligible is not None:
                row = db.execute(
                    "SELECT eligible FROM visits WHERE bank = ? AND config = ? AND cell = ?"
                    + db.dialect.lock,
                    key,
                ).fetchone()
                eligible = eligible if row is None else eligible + np.frombuffer(row[0], np.int64)
            db.execute(
                "INSERT INTO visits VALUES (?, ?, ?, ?, ?) ON CONFLICT (bank, config, cell) "
                "DO UPDATE SET sessions = visits.sessions + excluded.sessions, "
                "eligible = excluded.eligible",
                (*key, count, None if eligible is None else eligible.tobytes()),
            )

    def equals(self, db: Database) -> bool:
        """Whether the tables hold exactly these counts."""
        eligible = {key: counts.tobytes() for key, counts in self.eligible.items()}
        expected = {
            "exposure": {(*key, count) for key, count in self.administered.items()},
            "visits": {(*key, count, eligible.get(key)) for key, count in self.sessions.items()},
        }
        return all(
            {tuple(row) for row in db.execute(f"SELECT * FROM {table}").fetchall()} == rows
            for table, rows in expected.items()
        )


def _eligible(head: Mapping[str, Any], cell: int) -> np.ndarray | None:
    """Items that passed the lottery of a session; None where there was no lottery."""
    name = head["config"]["exposure"]["name"]
    if not name.endswith("eligibility") or "counts" not in head:
        return None
    limit = np.atleast_2d(np.asarray(head["counts"][0], float))[cell]
    return (lots(head["seed"], len(limit)) < limit).astype(np.int64)


class StoredSession(Session):
    """A session of a store: `answer` returns when the answer is on disk."""

    _store: "Store"
    _digest: str
    """Digest of the last event that was read or written."""

    def answer(self, item: str, value: Any, seconds: float | None = None) -> list[str]:
        """Record the answer in the store, then apply it (see `Session.answer`)."""
        return self._store.answer(self, item, value, seconds)


class Store(StoreFile):
    """Live sessions in one SQLite file, or in a PostgreSQL database.

    A changed log, or one with missing events at its end, raises an error. The store does not detect
    that a whole session was deleted, or that an earlier copy of the file was restored. Copy a store
    with its ``-wal`` file, or while no process has it open.

    Example:
        >>> import tempfile
        >>> folder = tempfile.mkdtemp()
        >>> store = Store(f"{folder}/sessions.db")
        >>> bank = ItemBank.from_parameters(a=[1.0, 2.0, 1.0], b=[-1.0, 0.1, 1.0])
        >>> session = store.begin(bank, Config(max_items=2), session_id="anna")
        >>> session.answer("i2", 1)
        ['i3']
        >>> Store(f"{folder}/sessions.db").resume("anna").asked
        ['i3']
    """

    def __init__(
        self,
        path: str | os.PathLike[str] | Database,
        create: bool = True,
        key: Key = None,
        clock: Clock = system_clock,
    ):
        """Open a store, or create one.

        Args:
            path: the file; or an address such as ``postgresql://host/tests`` (extra "service");
                or a database.
            create: create the file or the tables if they do not exist.
            key: a secret key of the digests of all logs (HMAC-SHA-256), so that nobody without it
                can change a log undetected. It is set when the store is created, and required from
                then on. Without a key the digests (SHA-256) detect accidents and manual edits.
            clock: returns the time in UTC and the seconds of a monotonic clock; for tests.

        Raises:
            StoreError: if the file is missing, damaged, no store, created with another key, or
                cannot be written.
        """
        self._clock = clock
        self.solver: Callable[..., Any] = best_form
        """Assembles the shadow tests of sessions (see `prepare`)."""
        self._pools: dict[tuple[str, str], Pool] = {}
        self._banks: dict[str, ItemBank] = {}
        super().__init__(path, create, key)

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
        self._db.check_integrity()
        with self._db.writing():  # so that nothing is added meanwhile
            if not self._tally().equals(self._db):
                raise StoreError(
                    f"{self.path}: the counts of exposure do not match the logs. Restore a copy."
                )

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
            prior: mean and SD of this subject's prior, or a `Population`, as for `Session.begin`.
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
        bank = checked_bank(bank, config)
        if pool is not None:
            check_prepared(pool, config)
        drawn = int.from_bytes(os.urandom(4), "big") if seed is None else seed
        if counts is None and EXPOSURE[config.exposure.name].updates:
            counts = self.counts(bank, config)
        name = uuid4().hex if session_id is None else session_id
        identity = {"seed": drawn, "prior": prior, "session_id": name, "subject": subject}
        head = new_head(bank, config, counts, self._clock, **identity)
        digest = head["bank"]
        if pool is not None:
            self._pools.setdefault((digest, head["config_hash"]), pool)
        pool = self._pool_of(bank, config, digest)
        session = StoredSession(bank, config, head, pool, self._clock)
        session._store = self
        first = session._first_events()
        with self._db.writing():
            if session.id in self:
                raise argument_error("session_id", "one that is not taken", session.id)
            self._add_bank(digest, bank)
            self._db.execute(
                "INSERT INTO sessions VALUES (?, ?, ?, ?)",
                (session.id, digest, json.dumps(head), head["started"]),
            )
            last = self._append(session, 0, first_digest(head, self._key), first)
        for event in first:
            session._apply(event)
        session._digest = last
        return session

    def resume(self, session_id: str) -> Session:
        """Load a session in its last state, with the same items asked.

        Raises:
            StoreError: for a damaged log or bank, or an inconsistent log.
            InputError: for an unknown id.
        """
        name = self._known(session_id)
        with self._db.reading():
            events, last = self._events(name)
            head = self._head(name)
            bank, config = self.begun_with(name)
            pool = self._pool_of(bank, config, head["bank"])
            session = StoredSession(bank, config, head, pool, self._clock)
        session._store = self
        self._apply(session, events, last)
        return session

    def begun_with(self, session_id: str) -> tuple[ItemBank, Config]:
        """The bank and the configuration of a session.

        Raises:
            StoreError: for a damaged head or bank.
            InputError: for an unknown id.
        """
        with self._db.reading():
            head = self._head(self._known(session_id))
        return self.bank(head["bank"]), Config.from_json(head["config"])

    def _apply(self, session: StoredSession, events: list[Event], last: str) -> None:
        """Apply events of the file to a session."""
        try:
            session.apply_events(events)
        except InputError as error:
            raise StoreError(f"{self.path}: {error}") from None
        session._digest = last

    def status(self, session_id: str) -> SessionStatus:
        """The status of a session: as stored, or else computed and stored for the next time.

        Raises:
            StoreError, InputError: as `resume` does.
        """
        return super().status(session_id) or self.record_status(self.resume(session_id))

    def record_status(self, session: Session) -> SessionStatus:
        """Compute and store the status of a session of this store, for a quick `status`."""
        assert isinstance(session, StoredSession)
        status = session.status()
        text = status.to_text()
        row = (session.id, text, status_digest(session._digest, text, self._key))
        with self._db.writing():
            self._db.execute(
                "INSERT INTO statuses VALUES (?, ?, ?) ON CONFLICT (session) "
                "DO UPDATE SET status = excluded.status, digest = excluded.digest",
                row,
            )
        return status

    def answer(
        self, session: StoredSession, item: str, value: Any, seconds: float | None = None
    ) -> list[str]:
        """Check, write and acknowledge an answer (see `Session.answer`).

        What follows from the answer is computed from the events known here, before the transaction:
        most often no other process has added any, and then nothing has to be read.
        """
        try:
            try:
                events = session._events_of(item, value, seconds)
            except InputError:
                if self._catch_up(session):  # what was refused may be right by now
                    return self.answer(session, item, value, seconds)
                raise
            if not events:
                self._catch_up(session)
                return session.asked
            with self._db.writing():
                is_current = self._locked_at(session)
                if is_current:
                    last = self._append(session, len(session.events), session._digest, events)
            if not is_current:
                session._forget()
                self._catch_up(session)
                return self.answer(session, item, value, seconds)
        except BaseException:
            session._forget()
            raise
        for event in events:
            session._apply(event)
        session._digest = last
        return session.asked

    def lock(self, session: Session) -> None:
        """Apply the events that other processes added; they add none until the transaction ends."""
        assert isinstance(session, StoredSession)
        if not self._locked_at(session):
            self._catch_up(session)

    def _catch_up(self, session: StoredSession) -> bool:
        """Apply the events that other processes added; whether there were any."""
        with self._db.reading():
            events, last = self._events(session.id, len(session.events), session._digest)
        self._apply(session, events, last)
        return bool(events)

    def counts(self, bank: ItemBank, config: Config) -> Counts:
        """Exposure over the store's sessions with this bank and configuration."""
        blank = blank_counts(config.exposure, bank.n_items)
        administered, eligible = np.zeros((2, *np.atleast_2d(blank.administered).shape))
        sessions = np.zeros(len(administered))
        position = {name: i for i, name in enumerate(bank.item_ids.tolist())}
        key = (bank.hash(), config.hash())
        with self._db.reading(at_once=True):
            query = "SELECT cell, item, given FROM exposure WHERE bank = ? AND config = ?"
            for cell, item, count in self._db.execute(query, key).fetchall():
                administered[cell, position[item]] = count
            query = "SELECT cell, sessions, eligible FROM visits WHERE bank = ? AND config = ?"
            for cell, count, blob in self._db.execute(query, key).fetchall():
                sessions[cell] = count
                eligible[cell] = count if blob is None else np.frombuffer(blob, np.int64)
        shape = blank.administered.shape
        counts = administered.reshape(shape), eligible.reshape(shape), sessions.reshape(shape[:-1])
        return updated(blank, config.exposure, *counts)

    def prepared(self, bank: ItemBank, config: Config) -> Pool:
        """The bank as returned by `prepare`; made once for all sessions of this store."""
        return self._pool_of(bank, config, bank.hash())

    def _pool_of(self, bank: ItemBank, config: Config, digest: str) -> Pool:
        key = (digest, config.hash())
        if key not in self._pools:
            self._pools[key] = prepare(bank, config, solver=self.solver)
        return self._pools[key]

    def bank(self, digest: str) -> ItemBank:
        """A bank of the store by its hash.

        Raises:
            StoreError: if it is missing or damaged.
        """
        if digest not in self._banks:
            with self._db.reading():
                query = "SELECT file FROM banks WHERE hash = ?"
                blob = self._db.execute(query, (digest,)).fetchone()
            damaged = StoreError(f"{self.path}: the bank {digest[:12]} is damaged. Restore a copy.")
            if blob is None or not isinstance(blob[0], bytes):
                raise damaged
            try:
                bank = ItemBank.from_bytes(blob[0])
            except Exception:  # damaged bytes may raise any error
                raise damaged from None
            if bank.hash() != digest:
                raise damaged
            self._banks[digest] = bank
        return self._banks[digest]

    def add_bank(self, bank: ItemBank) -> str:
        """Store a bank, once, and return its hash; sessions refer to it by that."""
        digest = bank.hash()
        with self._db.writing():
            self._add_bank(digest, bank)
        return digest

    def _add_bank(self, digest: str, bank: ItemBank) -> None:
        """Store a bank, whose hash is given, in a transaction."""
        self._banks.setdefault(digest, bank)
        query = "SELECT 1 FROM banks WHERE hash = ?"
        if not self._db.execute(query, (digest,)).fetchone():
            self._db.execute(
                "INSERT INTO banks VALUES (?, ?) ON CONFLICT (hash) DO NOTHING",
                (digest, bank.to_bytes()),
            )

    def _locked_at(self, session: StoredSession) -> bool:
        """Whether the last event known here is the last one of the log.

        No other transaction adds events to the session until this one ends.
        """
        query = f"SELECT seal FROM seals WHERE session = ?{self._db.dialect.lock}"
        row = self._db.execute(query, (session.id,)).fetchone()
        return row is not None and self._log.is_end(session._digest, row[0])

    def _append(self, session: Session, number: int, last: str, events: list[Event]) -> str:
        """Add events to a log and to the counts of exposure; return the last digest."""
        tally, before = Tally(), list(session.events)
        for event in events:
            tally.add(session.head, before, event)
            before.append(event)
        last = self._log.append(session.id, number, last, events)
        tally.write(self._db)
        return last
