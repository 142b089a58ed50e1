"""Maintenance: checks of everything that is stored, anchors, backups, and copies to a database.

A chain of digests shows a change within a log, not that a whole log was deleted or that an earlier
copy of the database was restored. An anchor shows both: it lists the last event of every log at one
time, is signed, and is kept elsewhere.
"""

import hashlib
import hmac
import json
import os
import shutil
import sqlite3
import subprocess
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import sqlalchemy as sa

from irtcat._common.checks import InputError, brief, one_line
from irtcat._files import FileFormat, check_target
from irtcat.cat import StoreError
from irtcat.cat.live import SQLITE, EventLog, first_digest, is_digest
from irtcat.service.assembly import open_service
from irtcat.service.attempts.attempt import Attempt, attempt_of
from irtcat.service.attempts.library import published_test, test_id
from irtcat.service.outbox import audit
from irtcat.service.storage import tables
from irtcat.service.storage.context import Service


@dataclass(frozen=True)
class CheckReport:
    """What a check read, and what was wrong.

    Numbers of what was read; ``faults`` are empty if everything agrees.
    """

    attempts: int
    sessions: int
    tickets: int
    entries: int
    faults: tuple[str, ...]


class _Faults(list[str]):
    """Faults found so far; errors of what is read become faults."""

    @contextmanager
    def found(self, what: str) -> Iterator[None]:
        """Add an error within as a fault of something."""
        try:
            yield
        except InputError as error:
            self.append(f"{what}: {error}")
        except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
            self.append(f"{what}: unreadable ({one_line(error)})")


def check(service: Service) -> CheckReport:
    """Check everything that is stored: digests of all logs, and that the tables agree with them.

    Returns:
        What was read and what is wrong. Nothing is changed.
    """
    faults = _Faults()
    with faults.found("sessions"):
        service.store.check()
    with service.database.reading(at_once=True):
        entries = _check_audit(service, faults)
        _check_tests(service, faults)
        attempts, sessions = _check_attempts(service, faults)
        tickets = _check_tickets(service, faults)
    return CheckReport(attempts, sessions, tickets, entries, tuple(faults))


def _check_audit(service: Service, faults: _Faults) -> int:
    with faults.found("audit log"):
        entries = audit.verify(service)
        if not entries and service.scalar(tables.counted(tables.tests)):
            faults.append("audit log: empty, though tests are published")
        return entries
    return 0


def _check_tests(service: Service, faults: _Faults) -> None:
    for (name,) in service.rows(sa.select(tables.tests.c.id).order_by(tables.tests.c.id)):
        with faults.found(f"test {name}"):
            service.tests.drop(name)  # what memory holds proves nothing
            row, test = service.get(tables.tests, name), published_test(service, name)
            if test.items.hash() != row.item_set:
                faults.append(f"test {name}: its items were changed")
            if test_id(json.loads(row.definition), row.bank, row.item_set) != name:
                faults.append(f"test {name}: its definition was changed")


def _check_attempts(service: Service, faults: _Faults) -> tuple[int, int]:
    """Check attempts with their sessions; return the numbers of both."""
    sessions: set[str] = set()
    rows = service.rows(sa.select(tables.attempts).order_by(tables.attempts.c.id))
    for row in rows:
        with faults.found(f"attempt {row.id}"):
            attempt = attempt_of(service, row.id)
            sessions |= set(attempt.progress.sessions.values())
            for fault in (*_row_faults(row, attempt), *_session_faults(service, attempt)):
                faults.append(f"attempt {row.id}: {fault}")
    known = {row.id for row in rows}
    stored = service.database.execute("SELECT id FROM sessions ORDER BY id").fetchall()
    for (name,) in stored:
        if name.rpartition(".")[0] in known and name not in sessions:
            faults.append(f"session {name}: no attempt refers to it")
    logs = sa.select(tables.attempt_events.c.attempt).distinct()
    unknown = {name for (name,) in service.rows(logs)} - known
    faults += [f"attempt {name}: it has a log and no row" for name in sorted(unknown)]
    return len(rows), len(sessions)


def _row_faults(row: Any, attempt: Attempt) -> Iterator[str]:
    """Where the table of attempts differs from what the log says."""
    head, progress = attempt.head, attempt.progress
    columns = (row.id, row.test, row.person, row.started)
    if columns != tuple(head[name] for name in ("id", "test", "person", "started")):
        yield "its row differs from its head"
    if (row.status, row.updated) != (progress.status, progress.last):
        yield f"its row says {row.status}, its log {progress.status}"
    if row.due != attempt.due():
        yield f"its row says that it is due at {row.due!r}, its log at {attempt.due()!r}"


def _session_faults(service: Service, attempt: Attempt) -> Iterator[str]:
    """Where the answers of adaptive sections differ from those of their sessions."""
    log = EventLog(service.database, service.log_key, "session", ("events", "seals"))
    for at, name in attempt.progress.sessions.items():
        row = service.database.execute("SELECT head FROM sessions WHERE id = ?", (name,)).fetchone()
        if row is None:
            yield f"the session {name} is missing"
            continue
        events, _ = log.read(name, first_digest(json.loads(row[0]), service.log_key))
        of_session = {e["item"]: e["code"] for e in events if e["kind"] == "answer"}
        given = attempt.progress.answers.items()
        of_attempt = {item: answer.code for item, answer in given if answer.section == at}
        if of_session != of_attempt:
            both = {**of_attempt, **of_session}
            items = [i for i in both if of_attempt.get(i) != of_session.get(i)]
            names = ", ".join(map(brief, items))
            yield f"answers differ from those of the session {name} ({names})"


def _check_tickets(service: Service, faults: _Faults) -> int:
    """Check that tickets and attempts name each other; return the number of tickets."""
    tickets = service.rows(sa.select(tables.tickets).order_by(tables.tickets.c.id))
    rows: list[Any] = service.rows(sa.select(tables.attempts.c.id, tables.attempts.c.head))
    heads: dict[str, dict[str, Any]] = {row[0]: json.loads(row[1]) for row in rows}
    used = {ticket.attempt: ticket for ticket in tickets if ticket.attempt}
    for ticket in tickets:
        if (ticket.status == "used") != bool(ticket.attempt):
            state = f"{ticket.status}, with the attempt {ticket.attempt!r}"
            faults.append(f"ticket {ticket.id}: {state}")
        elif ticket.attempt and ticket.attempt not in heads:
            faults.append(f"ticket {ticket.id}: its attempt {ticket.attempt} is missing")
    for name, head in heads.items():
        of_attempt = used.get(name)
        if of_attempt is None or of_attempt.id != head["ticket"]:
            faults.append(f"attempt {name}: its ticket is missing")
        elif (of_attempt.test, of_attempt.person) != (head["test"], head["person"]):
            faults.append(f"attempt {name}: its ticket is of another test or person")
    return len(tickets)


ANCHOR = FileFormat("irtcat-anchor", "an anchor", "Give what irtcat service anchor wrote.")

LOGS = {
    "attempts": ("attempt_events", "attempt"),
    "audit": ("audit_events", "log"),
    "sessions": ("events", "session"),
}
"""Tables of events and their column of the log's name, by the name in an anchor."""


def _log_ends(service: Service) -> dict[str, dict[str, list[Any]]]:
    """Number and digest of the last event of every log."""
    out: dict[str, dict[str, list[Any]]] = {}
    for kind, (table, column) in LOGS.items():
        rows = service.database.execute(
            f"SELECT e.{column}, e.number, e.digest FROM {table} e JOIN "
            f"(SELECT {column} AS log, MAX(number) AS number FROM {table} GROUP BY {column}) last "
            f"ON e.{column} = last.log AND e.number = last.number ORDER BY e.{column}"
        ).fetchall()
        out[kind] = {name: [number, digest] for name, number, digest in rows}
    return out


def _signed(service: Service, document: dict[str, Any]) -> str:
    """The signature of an anchor by the key of the logs, or else by the service's secret."""
    text = json.dumps({n: v for n, v in document.items() if n != "signature"}, sort_keys=True)
    if service.log_key is None:
        return service.signature("anchor", text)
    return hmac.new(service.log_key, f"anchor\n{text}".encode(), hashlib.sha256).hexdigest()


def anchor(service: Service) -> dict[str, Any]:
    """A signed statement of the last event of every log now, as a JSON document.

    Keep it where nobody who can write to the database can change it. With a key of the logs it
    cannot be forged without the key; without one, by nobody who cannot read the database.
    """
    with service.database.reading(at_once=True):
        document: dict[str, Any] = {**ANCHOR.head, "at": service.now(), "logs": _log_ends(service)}
    return {**document, "signature": _signed(service, document)}


def check_anchor(service: Service, document: Any) -> list[str]:
    """Compare an anchor with the logs.

    Returns:
        What is wrong: logs that are missing, that end earlier, or whose events were changed; empty
        if the database continues the state of the anchor. Run `check` too: this reads one event
        of each log.

    Raises:
        InputError: for a document that is no anchor, or whose signature is not of this service.
    """
    ANCHOR.check(document, "anchor")
    if not is_digest(document.get("signature"), _signed(service, document)):
        raise InputError("The anchor was changed, or is of another service or key.")
    faults: list[str] = []
    with service.database.reading(at_once=True):
        now = _log_ends(service)
        for kind, logs in document["logs"].items():
            table, column = LOGS[kind]
            for name, (number, digest) in logs.items():
                end = now[kind].get(name)
                if end is None:
                    faults.append(f"{kind}: {name} is missing")
                elif end[0] < number:
                    lost = number - end[0]
                    faults.append(f"{kind}: {name} lacks its last {lost} events (an older copy?)")
                else:
                    row = service.database.execute(
                        f"SELECT digest FROM {table} WHERE {column} = ? AND number = ?",
                        (name, number),
                    ).fetchone()
                    if row is None or row[0] != digest:
                        faults.append(f"{kind}: {name} was changed up to event {number}")
    return faults


def backup(service: Service, path: str | os.PathLike[str]) -> Path:
    """Write a copy of the database to one file, while the service runs, and verify it.

    SQLite: the file is itself a database that `irtcat serve` opens. PostgreSQL: an archive of
    ``pg_dump``, which ``pg_restore`` restores.

    A file that exists is replaced once the copy is complete.

    Returns:
        The path.

    Raises:
        InputError: if the copy cannot be written, or is damaged.
    """
    target = Path(path)
    check_target(target)
    part = target.with_name(f".{target.name}.part")
    part.unlink(missing_ok=True)
    try:
        if service.database.dialect is SQLITE:
            _backup_sqlite(service, part)
        else:
            _backup_postgresql(service, part)
        with open(part, "rb") as file:
            os.fsync(file.fileno())
        part.replace(target)
    finally:
        for name in (part, *(Path(f"{part}-{end}") for end in ("wal", "shm", "journal"))):
            name.unlink(missing_ok=True)
    return target


def _backup_sqlite(service: Service, path: Path) -> None:
    source = service.database.engine.url.database
    assert source is not None
    address = Path(source).absolute().as_uri()  # "#" and "?" in a path are no parts of an address
    try:
        with (
            closing(sqlite3.connect(f"{address}?mode=ro", uri=True)) as old,
            closing(sqlite3.connect(path)) as new,
        ):
            old.backup(new)
            new.execute("PRAGMA journal_mode=DELETE").close()  # one file, without a -wal beside it
    except sqlite3.Error as error:
        raise StoreError(f"{path}: no backup ({error}).") from None
    path.chmod(0o600)
    with open_service(path, key=service.log_key) as copy:
        faults = check(copy).faults
    if faults:
        raise StoreError(f"The backup is damaged, as the database may be: {faults[0]}")


def _programs(name: str) -> str:
    found = shutil.which(name)
    if found is None:
        advice = "Install PostgreSQL's client programs (postgresql-client), or back up the server."
        raise InputError(f"A backup of PostgreSQL needs {name}. {advice}")
    return found


def _backup_postgresql(service: Service, path: Path) -> None:
    url = service.database.engine.url
    environment = {**os.environ, "PGPASSWORD": url.password or os.environ.get("PGPASSWORD", "")}
    if not environment["PGPASSWORD"]:
        del environment["PGPASSWORD"]
    address = url.set(drivername="postgresql", password=None).render_as_string()
    for command in (
        [_programs("pg_dump"), "--format=custom", "--file", str(path), "--dbname", address],
        [_programs("pg_restore"), "--list", str(path)],
    ):
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
        if done.returncode:
            reason = " ".join(done.stderr.split())
            raise StoreError(f"{service.database.label}: no backup ({reason}).")
    path.chmod(0o600)


STORE_TABLES = ("banks", "sessions", "events", "seals", "statuses", "exposure", "visits")
"""Tables of the store of sessions, in the order of their references; ``meta`` is made anew."""

ROWS_AT_ONCE = 1000


def copy_service(
    source: Service, target: Service, progress: Callable[[int, int | None, str], None] | None = None
) -> CheckReport:
    """Copy everything of a service into another database that is empty, and verify it there.

    Nobody should use the source meanwhile, since later changes are not copied. The target is
    new, with the same key of the logs.

    Returns:
        The check of the copy, in which all digests were verified.

    Raises:
        InputError: for a target that is not empty.
        StoreError: if the copy differs from the source.
    """
    store = sa.MetaData()
    with source.database.reading(at_once=True):
        store.reflect(source.database.connection, only=STORE_TABLES)
        copied = [*(store.tables[name] for name in STORE_TABLES), *tables.metadata.sorted_tables]
        with target.database.writing(alone=True):
            for table in copied:
                rows = target.database.run(tables.counted(table))
                if table.name != "settings" and rows.scalar_one():
                    raise InputError(f"{target.database.label}: not empty ({table.name}).")
            target.database.run(tables.settings.delete())  # drawn when the target was made
            for done, table in enumerate(copied):
                if progress is not None:
                    progress(done, len(copied), f"Copying {table.name}")
                rows = source.database.run(sa.select(table))
                for part in rows.mappings().partitions(ROWS_AT_ONCE):
                    target.database.run(table.insert(), [dict(row) for row in part])
        before = _log_ends(source)
    target.secret = source.secret
    with target.database.reading(at_once=True):
        after = _log_ends(target)
    report = check(target)
    if before != after or report.faults:
        fault = report.faults[0] if report.faults else "the ends of the logs differ"
        raise StoreError(f"{target.database.label}: the copy differs from the source: {fault}")
    return report
