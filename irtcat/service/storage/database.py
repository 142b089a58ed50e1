"""Databases of the service: SQLite and PostgreSQL through SQLAlchemy.

`EngineDatabase` is the database of a `irtcat.cat.Store` and of the service's own tables: what both
write within one `writing` is one transaction.
"""

import math
import os
import threading
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path
from typing import Any

import sqlalchemy as sa
from sqlalchemy import event
from sqlalchemy.engine import URL, Connection, Engine, make_url
from sqlalchemy.exc import (
    ArgumentError,
    DBAPIError,
    DisconnectionError,
    NoSuchModuleError,
    SQLAlchemyError,
)
from sqlalchemy.pool import ConnectionPoolEntry, QueuePool

from irtcat._common.checks import InputError
from irtcat._files import check_target
from irtcat.cat import StoreError
from irtcat.cat.live import SQLITE, Cursor, DatabaseKind, Dialect, OpenFiles, store_errors

POSTGRESQL = Dialect(
    name="postgresql",
    blob="BYTEA",
    integer="BIGINT",
    table_end="",
    append_only=(
        "CREATE OR REPLACE FUNCTION irtcat_append_only() RETURNS trigger LANGUAGE plpgsql AS "
        "$$ BEGIN RAISE EXCEPTION 'append-only'; END $$",
        "CREATE TRIGGER events_stay BEFORE UPDATE OR DELETE OR TRUNCATE ON events "
        "EXECUTE FUNCTION irtcat_append_only()",
    ),
    lock=" FOR UPDATE",
    json_text="({column}::json ->> '{field}')",
)


class _UndoneError(Exception):
    """Ends a transaction that is rolled back."""


WAIT = 30.0
"""Seconds that a request waits for a connection, a lock or a statement before it fails."""

POOL: dict[str, Any] = {"pool_size": 16, "max_overflow": 0, "pool_timeout": WAIT}
"""Connections of one process: a request holds one for some milliseconds, so that more only wait in
the database instead of here."""

IDLE = 1.0
"""Seconds after which a connection of PostgreSQL is tried before it is used again."""

PRAGMAS = ("journal_mode=WAL", "synchronous=FULL", "foreign_keys=ON", "secure_delete=ON")
"""Modes of SQLite. Without the last one, what is deleted (names of people who are erased) stays in
free pages of the file."""

ALONE = 7_286_153
"""Number of the advisory lock that PostgreSQL's `writing(alone=True)` takes; any fixed number."""


class EngineDatabase:
    """A SQLite file or PostgreSQL database as `irtcat.cat.Store` uses one, for many threads.

    Every thread has a connection of the pool while it is within `reading` or `writing`.
    """

    def __init__(self, engine: Engine, dialect: Dialect, label: str, file: Path | None = None):
        self.engine, self.dialect, self.label = engine, dialect, label
        self._files = None if file is None else OpenFiles(file)
        self._of_thread = threading.local()

    @property
    def connection(self) -> Connection:
        """The connection of this thread, within `reading` or `writing`."""
        connection: Connection | None = getattr(self._of_thread, "connection", None)
        if connection is None:
            raise RuntimeError("outside of reading() and writing()")
        return connection

    def set_modes(self) -> None:
        """The modes are set on every connection (see `_sqlite_engine` and `_postgresql_engine`)."""

    def record(self) -> None:
        """Record the identity of the files, once the tables are made."""
        if self._files is not None:
            self._files.record()

    def tables(self) -> set[str]:
        """Names of the tables."""
        return set(sa.inspect(self.connection).get_table_names())

    def columns(self, table: str) -> list[str]:
        """Names of a table's columns, in order."""
        return [column["name"] for column in sa.inspect(self.connection).get_columns(table)]

    def execute(self, statement: str, parameters: Sequence[Any] = ()) -> Cursor:
        """Execute one statement with question marks for its parameters."""
        return self.connection.exec_driver_sql(self._text(statement), tuple(parameters))

    def executemany(self, statement: str, rows: Iterable[Sequence[Any]]) -> None:
        """Execute one statement for every row."""
        listed = [tuple(row) for row in rows]
        if listed:  # psycopg's executemany asks the server twice, also for one row
            parameters: Any = listed if len(listed) > 1 else listed[0]
            self.connection.exec_driver_sql(self._text(statement), parameters)

    def _text(self, statement: str) -> str:
        """The statement with the driver's mark of parameters; our statements have no other."""
        return statement if self.dialect is SQLITE else statement.replace("?", "%s")

    def run(
        self, statement: sa.Executable, parameters: Mapping[str, Any] | Sequence[Any] | None = None
    ) -> sa.CursorResult[Any]:
        """Execute a statement of SQLAlchemy on the connection of this thread."""
        return self.connection.execute(statement, parameters)

    def reading(self, at_once: bool = False) -> AbstractContextManager[None]:
        """A context for reading (see `irtcat.cat.live.database.Database`)."""
        # Under READ COMMITTED a transaction that reads adds nothing but two ways to the server.
        return self._connected("REPEATABLE READ" if at_once else "AUTOCOMMIT")

    @contextmanager
    def writing(self, alone: bool = False) -> Iterator[None]:
        """A context of one transaction; a transaction within it is part of it."""
        with self._connected("WRITE"):
            if alone and self.dialect is POSTGRESQL:
                self.execute("SELECT pg_advisory_xact_lock(?)", (ALONE,))
            yield

    @contextmanager
    def undone(self) -> Iterator[None]:
        """A context of one transaction that is rolled back at its end: nothing of it is stored."""
        if getattr(self._of_thread, "mode", None) is not None:
            raise RuntimeError("only a transaction of its own can be undone")
        with suppress(_UndoneError), self.writing():
            yield
            raise _UndoneError

    @contextmanager
    def _connected(self, mode: str) -> Iterator[None]:
        """A transaction of this thread, or the one that is under way."""
        under_way: str | None = getattr(self._of_thread, "mode", None)
        if under_way is not None:
            if mode == "WRITE" and under_way != "WRITE":
                raise RuntimeError("a transaction that reads cannot write")
            yield
            return
        with self._errors():
            self._check_files()
            with self.engine.connect() as connection:
                if self.dialect is SQLITE:
                    connection.execution_options(begin="IMMEDIATE" if mode == "WRITE" else "")
                elif mode != "WRITE":
                    connection.execution_options(isolation_level=mode)
                self._of_thread.connection, self._of_thread.mode = connection, mode
                try:
                    with connection.begin():
                        yield
                        if mode == "WRITE":
                            self._check_files()
                finally:
                    self._of_thread.connection = self._of_thread.mode = None
            self._check_files()

    def _check_files(self) -> None:
        if self._files is not None:
            self._files.check()

    @contextmanager
    def _errors(self) -> Iterator[None]:
        """Convert errors of the database to `StoreError`."""
        try:
            yield
        except DBAPIError as error:
            if self.dialect is SQLITE and error.orig is not None:
                with store_errors(self.label):
                    raise error.orig from None
            raise StoreError(f"{self.label}: {_reason(error)}") from None
        except SQLAlchemyError as error:
            raise StoreError(f"{self.label}: {error}. Nothing was acknowledged.") from None

    def check_integrity(self) -> None:
        """Raise a `StoreError` if SQLite finds damage in the file; PostgreSQL checks its pages."""
        if self.dialect is SQLITE:
            with self.reading():
                integrity = self.execute("PRAGMA integrity_check(1)").fetchone()[0]
                if integrity != "ok":
                    raise StoreError(f"{self.label}: damaged ({integrity}). Restore a copy.")

    def close(self) -> None:
        """Close all connections."""
        self.engine.dispose()


def _reason(error: DBAPIError) -> str:
    """What PostgreSQL says, with what to do."""
    text = " ".join(str(error.orig).split())
    if error.connection_invalidated or "connection" in text:
        advice = "Nothing was acknowledged. Start the database, or check its address."
    elif "No space left" in text or "could not extend" in text:
        advice = "Nothing was acknowledged. Free some space and send the answer again."
    else:
        advice = "Nothing was acknowledged."
    return f"{text.rstrip('.?')}. {advice}"


def open_database(address: str | os.PathLike[str], create: bool = False) -> EngineDatabase:
    """The database at the path of a SQLite file, or at an address of PostgreSQL.

    Args:
        address: a path, or ``postgresql://user:password@host:port/name`` (also with a folder of
            sockets as host, as psycopg takes it).
        create: create a SQLite file that does not exist.

    Raises:
        StoreError: for an address that cannot be read, or a file that does not exist.
    """
    text = str(address)
    if "://" not in text:
        return _sqlite_engine(address, create)
    try:
        url = make_url(text)
    except (ArgumentError, ValueError):
        scheme = text.split("://", 1)[0]  # the rest may hold a password
        raise StoreError(f"{scheme}://...: this is no address of a database.") from None
    if url.get_backend_name() not in ("postgresql", "postgres"):
        raise StoreError(f"{_label(url)}: the service needs SQLite or PostgreSQL.")
    return _postgresql_engine(url.set(drivername="postgresql+psycopg"))


def _label(url: URL) -> str:
    """An address without its password."""
    return url.set(drivername=url.drivername.split("+")[0]).render_as_string(hide_password=True)


def _sqlite_engine(path: str | os.PathLike[str], create: bool) -> EngineDatabase:
    try:
        target = check_target(path)
    except InputError as error:
        raise StoreError(str(error)) from None
    file = Path(path)
    if not create and not file.is_file():
        raise StoreError(f"{path}: there is no such store. Create it with irtcat service init.")
    engine = sa.create_engine(
        URL.create("sqlite", database=str(target)),
        poolclass=QueuePool,
        **POOL,
        connect_args={"timeout": WAIT, "check_same_thread": False},
    )

    @event.listens_for(engine, "connect")
    def set_modes(connection: Any, _: Any) -> None:
        connection.isolation_level = None  # BEGIN is ours: see `begin`
        for pragma in PRAGMAS:
            connection.execute(f"PRAGMA {pragma}").close()

    @event.listens_for(engine, "begin")
    def begin(connection: Connection) -> None:
        mode = connection.get_execution_options().get("begin", "")
        connection.exec_driver_sql(f"BEGIN {mode}")

    return EngineDatabase(engine, SQLITE, str(path), file)


def _postgresql_engine(url: URL) -> EngineDatabase:
    wait = int(1000 * WAIT)
    modes = f"-c synchronous_commit=on -c lock_timeout={wait} -c statement_timeout={wait}"
    try:
        engine = sa.create_engine(
            url, **POOL, connect_args={"options": modes, "connect_timeout": 10}
        )
    except NoSuchModuleError:  # pragma: no cover - the extra installs it
        raise StoreError('PostgreSQL needs pip install "irtcat[service]".') from None

    # What SQLAlchemy's `pool_pre_ping` does at every checkout, a way to the server each time. One
    # connection that breaks renews the pool, so that only long idle ones can be broken unnoticed.
    @event.listens_for(engine, "checkin")
    def note_time(connection: Any, record: ConnectionPoolEntry) -> None:
        record.info["used"] = time.monotonic()

    @event.listens_for(engine, "checkout")
    def check_idle(connection: Any, record: ConnectionPoolEntry, _: Any) -> None:
        if time.monotonic() > record.info.get("used", math.inf) + IDLE:
            try:
                engine.dialect.do_ping(connection)
            except engine.dialect.loaded_dbapi.Error:
                raise DisconnectionError from None  # the pool makes a new one

    return EngineDatabase(engine, POSTGRESQL, _label(url))


POSTGRESQL_KIND = DatabaseKind(
    "postgresql", open_database, "a PostgreSQL database, by psycopg 3 (extra ``service``)"
)
"""The row that `irtcat.cat.Store` finds by the scheme of an address."""
