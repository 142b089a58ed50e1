"""Service: what all operations share: the database, the store, events, the clock and caches."""

import hashlib
import hmac
import json
import os
import secrets
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from threading import RLock
from typing import Any, Generic, TypeVar

import pandas as pd
import sqlalchemy as sa
from itsdangerous import BadSignature, URLSafeSerializer, URLSafeTimedSerializer

from irtcat._common.clock import Clock, system_clock, utc_text
from irtcat.cat import Store
from irtcat.cat.live import EventLog, Key
from irtcat.service.storage import tables
from irtcat.service.storage.database import EngineDatabase, open_database
from irtcat.service.storage.migrations import upgrade


class ServiceEvent:
    """What happened, as `Service.publish` passes it to the subscribers of its class.

    Who publishes an event does not know who subscribes: `irtcat.service.assembly.SUBSCRIBERS` has a
    row for each class of events.
    """


@dataclass(frozen=True)
class Acted(ServiceEvent):
    """Staff or a program did something.

    Attributes:
        actor: who did it, such as ``account:ada`` or ``client:tao``.
        action: what was done, a noun and a verb such as ``ticket issued``.
        details: to what, by ids; nothing that identifies a person.
    """

    actor: str
    action: str
    details: Mapping[str, Any]


@dataclass(frozen=True)
class TestPublished(ServiceEvent):
    """A test was published."""

    test: str
    actor: str


@dataclass(frozen=True)
class AttemptChanged(ServiceEvent):
    """The log of an attempt has new events.

    Attributes:
        attempt: id of the attempt.
        test: id of its test.
        person: id of the person who takes it.
        kinds: kinds of the new events, in order.
        waiting: items whose responses people have to score, after these events.
    """

    attempt: str
    test: str
    person: str
    kinds: tuple[str, ...]
    waiting: tuple[str, ...]


ValueT = TypeVar("ValueT")

Subscriber = Callable[["Service", Any], None]
"""A function of the service and an event."""

Subscribers = Mapping[type, tuple[Subscriber, ...]]
"""The subscribers of each class of events."""

TESTS_KEPT = 50
"""Tests that a process keeps in memory, with their banks and items."""


def new_id(prefix: str) -> str:
    """A random id that nobody can guess, with a prefix that says of what."""
    return f"{prefix}_{secrets.token_urlsafe(15)}"


def new_secret() -> str:
    """A random secret of almost 192 bits, for tickets, tokens and devices.

    It begins with a letter or a digit: to a spreadsheet, one that begins with ``-`` is a formula.
    """
    while True:
        secret = secrets.token_urlsafe(24)
        if secret[0].isalnum():
            return secret


def digest_of(secret: str) -> str:
    """What is stored of a secret: enough to recognise it, not to use it.

    A plain SHA-256: these secrets are random and long, so that they cannot be guessed from it.
    """
    return hashlib.sha256(secret.encode()).hexdigest()


ATTEMPTS_KEPT = 5000
"""Attempts that a process keeps in memory; others are read again from their logs."""


RESULTS_KEPT = 50_000
"""Rows of results that a process keeps, of a kilobyte each; others are computed again."""


class Cache(Generic[ValueT]):
    """The most recently used values by key, for several threads."""

    def __init__(self, size: int):
        self._size, self._lock = size, RLock()
        self._values: OrderedDict[str, ValueT] = OrderedDict()

    def get(self, key: str, make: Callable[[], ValueT]) -> ValueT:
        """The value of a key, made if it is not here."""
        with self._lock:
            if key in self._values:
                self._values.move_to_end(key)
                return self._values[key]
        value = make()
        with self._lock:
            value = self._values.setdefault(key, value)
            self._values.move_to_end(key)
            while len(self._values) > self._size:
                self._values.popitem(last=False)
        return value

    def drop(self, key: str) -> None:
        """Forget a value."""
        with self._lock:
            self._values.pop(key, None)

    def __len__(self) -> int:
        return len(self._values)


class Loaded(Generic[ValueT]):
    """A log's state in memory, for one thread at a time; ``value`` is None until it is read.

    Whoever fails within a transaction drops it, since memory may be ahead of the database.
    """

    def __init__(self) -> None:
        self.lock = RLock()
        self.value: ValueT | None = None


@contextmanager
def held(cache: Cache[Any], key: str) -> Iterator[Loaded[Any]]:
    """What a cache has under a key, locked; after an error it is dropped, and read again."""
    loaded: Loaded[Any] = cache.get(key, Loaded)
    with loaded.lock:
        try:
            yield loaded
        except BaseException:
            cache.drop(key)
            loaded.value = None
            raise


def _conditions(table: sa.Table, where: Sequence[Any]) -> list[Any]:
    return [table.columns[0] == it if isinstance(it, str) else it for it in where]


class Service:
    """The database of tests, people, tickets and attempts, and the store of their sessions.

    Any number of processes and threads may use one database. What a process keeps in memory is
    compared with the database at every use.
    """

    def __init__(
        self,
        address: str | os.PathLike[str] | EngineDatabase,
        subscribers: Subscribers,
        *,
        create: bool = False,
        key: Key = None,
        clock: Clock = system_clock,
    ):
        """Open the service's database; its tables are created if need be.

        Args:
            address: path of a SQLite file, or ``postgresql://...``.
            subscribers: the functions called for each class of events
                (`irtcat.service.assembly.open_service` gives those of this package).
            create: create a file that does not exist, or the tables in an empty database.
            key: secret key of the digests of all logs, as for `irtcat.cat.Store`.
            clock: returns the time in UTC and the seconds of a monotonic clock; for tests.

        Raises:
            StoreError: if the database cannot be opened, or is one of something else.
        """
        if not isinstance(address, EngineDatabase):
            address = open_database(address, create)
        self.database: EngineDatabase = address
        self._subscribers = subscribers
        self.clock = clock
        self.store = Store(self.database, create, key, clock)
        upgrade(self.database)
        log_key = self.store._key
        self.attempt_log = EventLog(
            self.database, log_key, "attempt", ("attempt_events", "attempt_seals")
        )
        self.audit_log = EventLog(self.database, log_key, "log", ("audit_events", "audit_seals"))
        self.log_key = log_key
        self.secret = self.setting("secret", new_secret)
        self.tests: Cache[Any] = Cache(TESTS_KEPT)
        self.attempts: Cache[Any] = Cache(ATTEMPTS_KEPT)
        self.sessions: Cache[Any] = Cache(ATTEMPTS_KEPT)  # of programs that only select items
        self.watched: Cache[Any] = Cache(ATTEMPTS_KEPT)  # of the live board
        self.results: Cache[dict[str, Any]] = Cache(RESULTS_KEPT)

    def setting(self, name: str, make: Callable[[], str]) -> str:
        """A setting of the database, made when it is first asked for."""
        with self.database.writing(alone=True):
            row = self.get(tables.settings, name)
            found = make() if row is None else row.value
            if row is None:
                self.insert(tables.settings, name=name, value=found)
        return str(found)

    def publish(self, event: object) -> None:
        """Tell the subscribers of an event, within the transaction of what it reports.

        What they write is stored with the change or not at all. One that fails ends the
        transaction: neither the change nor what the others wrote is stored.
        """
        with self.database.writing():
            for subscriber in self._subscribers[type(event)]:
                subscriber(self, event)

    def acted(self, actor: str, action: str, /, **details: Any) -> None:
        """Publish that somebody did something (see `Acted`)."""
        self.publish(Acted(actor, action, details))

    @contextmanager
    def recorded(self, actor: str, action: str, /, **details: Any) -> Iterator[None]:
        """One transaction of what somebody does, which publishes it at its end (see `acted`)."""
        with self.database.writing():
            yield
            self.acted(actor, action, **details)

    def now(self) -> str:
        """The time as the logs write it."""
        return utc_text(self.clock()[0])

    def row(
        self, statement: sa.Select[Any], parameters: Mapping[str, Any] | None = None
    ) -> sa.Row[Any] | None:
        """The first row of a statement; None without one."""
        with self.database.reading():
            return self.database.run(statement, parameters).first()

    def rows(self, statement: sa.Select[Any]) -> list[sa.Row[Any]]:
        """All rows of a statement."""
        with self.database.reading():
            return list(self.database.run(statement).all())

    def frame(self, statement: sa.Select[Any]) -> pd.DataFrame:
        """All rows of a statement as a table, which has its columns without rows, too."""
        with self.database.reading():
            found = self.database.run(statement)
            return pd.DataFrame([tuple(row) for row in found], columns=list(found.keys()))

    def get(self, table: sa.Table, key: str) -> Any:
        """The row with a key, which is the first column of the table; None without one."""
        return self.row(sa.select(table).where(table.columns[0] == key))

    def insert(self, table: sa.Table, **values: Any) -> None:
        """Add a row."""
        with self.database.writing():
            self.database.run(table.insert(), values)

    def change(self, table: sa.Table, *where: Any, **values: Any) -> int:
        """Change rows: that of a key, as for `get`, or those of conditions; return how many."""
        statement = table.update().where(*_conditions(table, where)).values(**values)
        with self.database.writing():
            return self.database.run(statement).rowcount

    def delete(self, table: sa.Table, *where: Any) -> int:
        """Delete rows, as `change` finds them; return how many."""
        with self.database.writing():
            return self.database.run(table.delete().where(*_conditions(table, where))).rowcount

    def scalar(self, statement: sa.Select[Any]) -> Any:
        """The first column of the first row of a statement; None without one."""
        found = self.row(statement)
        return None if found is None else found[0]

    def signature(self, purpose: str, text: str) -> str:
        """A signature of a text by the service's secret, for one purpose."""
        data = json.dumps([purpose, text]).encode()
        return hmac.new(self.secret.encode(), data, hashlib.sha256).hexdigest()

    def sealed(self, purpose: str, value: Any, *, timed: bool = False) -> str:
        """A value as a text that only this service can write; with its time if ``timed``."""
        kind = URLSafeTimedSerializer if timed else URLSafeSerializer
        return str(kind(self.secret, salt=purpose).dumps(value))

    def unsealed(self, purpose: str, text: str, seconds: int | None = None) -> Any:
        """The value of a sealed text, or of a timed one from the last ``seconds``; else None."""
        try:
            if seconds is None:
                return URLSafeSerializer(self.secret, salt=purpose).loads(text)
            return URLSafeTimedSerializer(self.secret, salt=purpose).loads(text, max_age=seconds)
        except (BadSignature, ValueError, TypeError):
            return None

    def close(self) -> None:
        """Close the database."""
        self.database.close()

    def __enter__(self) -> "Service":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
