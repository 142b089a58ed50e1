"""Checks, anchors, backups and copies: what is wrong is found, and nothing is lost on the way."""

import json
import os
import shutil
import sqlite3
import subprocess

import pytest
import sqlalchemy as sa

from irtcat import InputError
from irtcat.cat import Store, StoreError
from irtcat.cat.live.log import first_digest
from irtcat.service.accounts.accounts import add_account, sign_in
from irtcat.service.assembly import open_service
from irtcat.service.attempts import library, people, proctoring
from irtcat.service.operations import maintenance
from irtcat.service.operations.maintenance import anchor, check, check_anchor, copy_service
from irtcat.service.storage import tables
from tests.service.helpers import HandClock, bank, definition, items, publish
from tests.service.test_taking import Taker, ticket, to_adaptive

WORDS = "correct horse battery"


OPEN = []


@pytest.fixture(autouse=True)
def closed():
    """Services that a test opened are closed after it."""
    yield
    while OPEN:
        OPEN.pop().close()


def filled(address, key=None):
    """A service with one finished attempt and one that is under way."""
    service = open_service(address, create=True, key=key, clock=HandClock())
    OPEN.append(service)
    name = publish(service)
    add_account(service, "ada", password=WORDS, roles=["admin"], actor="test")
    first = Taker(service, ticket(service, name).token)
    to_adaptive(first)
    for _ in range(4):
        first.answer()
    first("proceed")
    for _ in range(3):
        first.answer(right=False)
    first("proceed")
    assert first.view["page"] == "finished"
    second = Taker(service, ticket(service, name).token)
    to_adaptive(second)
    second.answer()
    second.answer(right=False)
    return service, first, second


@pytest.fixture
def service(address):
    return filled(address)[0]


def attempts(service):
    return [name for (name,) in service.rows(sa.select(tables.attempts.c.id))]


def forced(service, *statements):
    """Change tables as somebody would who has the whole database."""
    if service.database.dialect.name == "sqlite":
        drop = ["DROP TRIGGER events_stay", "DROP TRIGGER events_last"]
    else:
        drop = ["DROP TRIGGER events_stay ON events"]
    with service.database.writing():
        for statement in (*drop, *statements):
            service.database.execute(statement)


@pytest.mark.slow
def test_a_sound_service_has_no_faults(service):
    report = check(service)
    assert report.faults == ()
    assert (report.attempts, report.sessions, report.tickets) == (2, 2, 2)
    assert report.entries > 3


CHANGES = {
    "a log": ("UPDATE attempt_events SET event = REPLACE(event, '\"B\"', '\"C\"')", "damaged"),
    "the end of a log": (
        "DELETE FROM attempt_events WHERE number = (SELECT MAX(number) FROM attempt_events)",
        "missing",
    ),
    "a status": ("UPDATE attempts SET status = 'void' WHERE status = 'finished'", "says void"),
    "a person": ("UPDATE attempts SET person = 'p_other'", "differs from its head"),
    "a session's answers": (
        "UPDATE events SET event = REPLACE(event, '\"code\": 1', '\"code\": 0')",
        "damaged",
    ),
    "a session": ("DELETE FROM seals", "missing"),
    "a ticket": ("DELETE FROM tickets", "its ticket is missing"),
    "a ticket's attempt": ("UPDATE tickets SET attempt = ''", "used, with the attempt ''"),
    "the audit log": (
        "UPDATE audit_events SET event = REPLACE(event, 'test published', 'test seen')",
        "audit",
    ),
    "a definition": (
        "UPDATE tests SET definition = REPLACE(definition, 'Small test', 'Other test')",
        "its definition was changed",
    ),
    "items": (
        "UPDATE item_sets SET document = REPLACE(document, 'Question q3', 'Question x')",
        "its items were changed",
    ),
    "keys": ("UPDATE item_keys SET document = REPLACE(document, '\"B\"', '\"C\"')", "changed"),
}


@pytest.mark.slow
@pytest.mark.parametrize("what", CHANGES)
def test_a_check_finds_what_was_changed(what, tmp_path):
    service, *_ = filled(tmp_path / "tests.db")
    statement, says = CHANGES[what]
    forced(service, statement)
    with open_service(tmp_path / "tests.db") as again:
        faults = check(again).faults
    assert any(says in fault for fault in faults), faults


@pytest.mark.slow
def test_an_anchor_is_continued_by_later_events(service):
    document = json.loads(json.dumps(anchor(service)))
    assert {kind: len(logs) for kind, logs in document["logs"].items()} == {
        "attempts": 2,
        "audit": 1,
        "sessions": 2,
    }
    proctoring.note(service, attempts(service)[0], actor="account:ada", text="late")
    assert check_anchor(service, document) == []


@pytest.mark.slow
def test_an_anchor_finds_a_deleted_attempt(service):
    document = anchor(service)
    (name, *_) = attempts(service)
    forced(
        service,
        f"DELETE FROM events WHERE session = '{name}.2'",
        f"DELETE FROM seals WHERE session = '{name}.2'",
        f"DELETE FROM statuses WHERE session = '{name}.2'",
        f"DELETE FROM sessions WHERE id = '{name}.2'",
        f"DELETE FROM attempt_events WHERE attempt = '{name}'",
        f"DELETE FROM attempt_seals WHERE attempt = '{name}'",
        f"DELETE FROM attempts WHERE id = '{name}'",
        f"DELETE FROM tickets WHERE attempt = '{name}'",
    )
    assert check_anchor(service, document) == [
        f"attempts: {name} is missing",
        f"sessions: {name}.2 is missing",
    ]


def test_an_anchor_finds_a_restored_older_copy(tmp_path):
    service, _, taker = filled(tmp_path / "tests.db")
    older = maintenance.backup(service, tmp_path / "older.db")
    taker.answer()
    document = anchor(service)
    with open_service(older) as restored:
        assert check(restored).faults == ()  # the copy alone shows nothing
        faults = check_anchor(restored, document)
    assert f"attempts: {taker.attempt} lacks its last 2 events (an older copy?)" in faults
    assert any(fault.startswith(f"sessions: {taker.attempt}.2 lacks") for fault in faults)


@pytest.mark.slow
def test_an_anchor_finds_a_rewritten_log(tmp_path):
    """Without a key, digests can be computed anew by anybody."""
    service, _, taker = filled(tmp_path / "tests.db")
    document = anchor(service)
    events = proctoring.attempt_events(service, taker.attempt)
    statement = "DELETE FROM {} WHERE attempt = ?"
    with service.database.writing():
        for table in ("attempt_events", "attempt_seals"):
            service.database.execute(statement.format(table), (taker.attempt,))
        head = service.scalar(
            sa.select(tables.attempts.c.head).where(tables.attempts.c.id == taker.attempt)
        )
        first = first_digest(json.loads(head), service.log_key)
        rewritten = [*events[:-1], {**events[-1], "note": "changed"}]
        service.attempt_log.append(taker.attempt, 0, first, rewritten)
    faults = check_anchor(service, document)
    number = len(events) - 1
    assert faults == [f"attempts: {taker.attempt} was changed up to event {number}"]


@pytest.mark.slow
@pytest.mark.parametrize(
    "change",
    [
        lambda document: {**document, "at": "2020-01-01T00:00:00+00:00"},
        lambda document: {**document, "logs": {**document["logs"], "attempts": {}}},
        lambda document: {**document, "signature": ""},
        lambda document: {**document, "signature": None},
        lambda document: {**document, "format": "other"},
        lambda document: [],
        lambda document: None,
    ],
)
def test_a_changed_anchor_is_refused(service, change):
    with pytest.raises(InputError, match="anchor"):
        check_anchor(service, change(anchor(service)))


@pytest.mark.slow
def test_an_anchor_of_a_service_with_a_key_needs_the_key(tmp_path):
    service, *_ = filled(tmp_path / "one.db", key="of the logs")
    document = anchor(service)
    assert check_anchor(service, document) == []
    other, *_ = filled(tmp_path / "two.db", key="another")
    with pytest.raises(InputError, match="another service or key"):
        check_anchor(other, document)


def ends(service):
    with service.database.reading():
        return maintenance._log_ends(service)


@pytest.mark.slow
def test_a_backup_of_sqlite_is_a_service(tmp_path):
    service, _, second = filled(tmp_path / "tests.db")
    path = maintenance.backup(service, tmp_path / "backup.db")
    assert path.stat().st_mode & 0o077 == 0
    second.answer()  # the service goes on; the copy does not
    with open_service(path, clock=HandClock()) as restored:
        assert restored.secret == service.secret
        assert check(restored).faults == ()
        taker = object.__new__(Taker)
        taker.service, taker.attempt, taker.device = restored, second.attempt, second.device
        taker("current")
        taker.answer()
        assert taker.view["progress"]["done"] == 3
    assert sorted(p.name for p in tmp_path.iterdir() if "backup" in p.name) == ["backup.db"]


def test_a_backup_is_of_the_named_file(tmp_path):
    open_service(tmp_path / "tests", create=True).close()  # what the address before "#" names
    with open_service(tmp_path / "tests#2 %41.db", create=True) as service:
        add_account(service, "ada", password=WORDS, roles=["admin"], actor="test")
        path = maintenance.backup(service, tmp_path / "backup.db")
    with open_service(path) as restored:
        assert sign_in(restored, "ada", WORDS).name == "ada"


def test_a_backup_replaces_the_one_before_only_when_it_is_complete(tmp_path, monkeypatch):
    service, *_ = filled(tmp_path / "tests.db")
    path = maintenance.backup(service, tmp_path / "backup.db")
    before = path.read_bytes()
    forced(service, "UPDATE attempts SET status = 'void'")
    with pytest.raises(StoreError, match="backup is damaged"):
        maintenance.backup(service, path)
    assert path.read_bytes() == before
    assert not list(tmp_path.glob(".backup*"))


def test_a_backup_of_postgresql_is_restored(request, tmp_path):
    if "IRTCAT_POSTGRESQL" not in os.environ:
        pytest.skip("PostgreSQL: make test-service")
    server = request.getfixturevalue("server")
    service, *_ = filled(server.create())
    known = ends(service)
    try:
        path = maintenance.backup(service, tmp_path / "backup.dump")
    except StoreError as error:  # Debian's programs may be older than the server from PyPI
        if "version mismatch" not in str(error):
            raise
        pytest.skip(str(error))
    target = server.create()
    restore = shutil.which("pg_restore")
    subprocess.run([restore, "--no-owner", "--dbname", target, str(path)], check=True)
    with open_service(target) as restored:
        assert ends(restored) == known
        assert check(restored).faults == ()


def test_a_backup_of_postgresql_without_pg_dump_is_a_sentence(request, tmp_path, monkeypatch):
    if "IRTCAT_POSTGRESQL" not in os.environ:
        pytest.skip("PostgreSQL: make test-service")
    service = open_service(request.getfixturevalue("server").create(), create=True)
    OPEN.append(service)
    monkeypatch.setattr(maintenance.shutil, "which", lambda name: None)
    with pytest.raises(InputError, match="needs pg_dump"):
        maintenance.backup(service, tmp_path / "backup.dump")


def rows_of(service):
    out = {}
    with service.database.reading():
        for name in (*tables.metadata.tables, *maintenance.STORE_TABLES):
            rows = service.database.execute(f"SELECT * FROM {name}").fetchall()
            out[name] = sorted(
                repr([bytes(v) if isinstance(v, memoryview) else v for v in row]) for row in rows
            )
    return out


@pytest.mark.slow
@pytest.mark.parametrize("key", [None, "of the logs"])
def test_a_copy_from_sqlite_holds_everything(address, tmp_path, key):
    service, _, second = filled(tmp_path / "source.db", key)
    with open_service(address, create=True, key=key, clock=HandClock()) as target:
        report = copy_service(service, target)
        assert (report.attempts, report.sessions, report.faults) == (2, 2, ())
        assert rows_of(target) == rows_of(service)
        assert sign_in(target, "ada", WORDS).roles == ("admin",)
        taker = object.__new__(Taker)
        taker.service, taker.attempt, taker.device = target, second.attempt, second.device
        taker("current")
        taker.answer()
        assert check(target).faults == ()
        with pytest.raises(InputError, match="not empty"):
            copy_service(service, target)


def test_a_copy_needs_the_same_key(tmp_path):
    service, *_ = filled(tmp_path / "source.db", "of the logs")
    other = open_service(tmp_path / "target.db", create=True)
    OPEN.append(other)
    with pytest.raises(StoreError, match="differs"):
        copy_service(service, other)


@pytest.mark.slow
def test_a_store_of_sessions_becomes_a_service(tmp_path):
    path = tmp_path / "sessions.db"
    with Store(path) as store:
        session = store.begin(bank(), definition().sections[2].config, "anna", seed=1)
        session.answer(session.asked[0], 1)
    with sqlite3.connect(path) as plain:
        before = plain.execute("SELECT * FROM events ORDER BY session, number").fetchall()
        heads = plain.execute("SELECT * FROM sessions ORDER BY id").fetchall()
    plain.close()
    assert before
    with open_service(path) as service:
        name, _ = library.publish(
            service, definition(), bank(), items(), actor="test", n_simulated=20
        )
        people.issue_ticket(service, name, actor="test")
        report = check(service)
        assert report.faults == ()
        with service.database.reading():
            rows = service.database.execute("SELECT * FROM events ORDER BY session, number")
            assert [tuple(row) for row in rows.fetchall()] == before
            rows = service.database.execute("SELECT * FROM sessions ORDER BY id")
            assert [tuple(row) for row in rows.fetchall()] == heads
    with Store(path) as store:  # and irtcat session still opens it
        store.check()
        assert len(store.sessions()) == len(heads)
