"""The file of a store: removed, replaced, forged, with names that cannot be."""

import dataclasses
import hashlib
import json
import os
import shutil
import sqlite3
from datetime import UTC, datetime, timedelta

import numpy as np
import pandas as pd
import pytest

from irtcat import InputError, ItemBank
from irtcat.cat import Config, Store, StoreError, part, run
from irtcat.cat.live.store_file import StoreFile
from irtcat.harness import evaluate

RNG = np.random.default_rng(8)
BANK = ItemBank.from_parameters(RNG.uniform(0.7, 2.0, 20), RNG.normal(size=20))
CONFIG = Config(stopping="se<0.2 or n>=6", max_items=8)
COUNTED = Config(max_items=6, exposure=part("eligibility", rate=0.4))


def right(item):
    return int(item[1:]) % 3 != 0


def begun(path, key=None, answers=2):
    """An open store with a session under way."""
    store = Store(path, key=key)
    session = store.begin(BANK, CONFIG, session_id="a", seed=1)
    for _ in range(answers):
        session.answer(session.asked[0], 1)
    return store, session


def other_store(path):
    """The files of another store, with all its sessions in the main one."""
    with Store(path) as store:
        session = store.begin(BANK, CONFIG, session_id="a", seed=1)
        session.answer(session.asked[0], 0)
    return path


def copied(path):
    """Put a copy at the path: the same contents in another file."""
    shutil.copy(path, f"{path}.copy")
    os.replace(f"{path}.copy", path)


CHANGES = {
    "removed": lambda path: path.unlink(),
    "replaced by a copy": copied,
    "replaced by another store": lambda path: os.replace(other_store(path.with_name("o.db")), path),
    "moved": lambda path: path.rename(path.with_name("elsewhere.db")),
    "its folder moved": lambda path: path.parent.rename(path.parent.with_name("elsewhere")),
    "its folder removed": lambda path: shutil.rmtree(path.parent),
    "replaced by a folder": lambda path: (path.unlink(), path.mkdir()),
    "its journal removed": lambda path: os.unlink(f"{path}-wal"),
    "its journal replaced": lambda path: copied(f"{path}-wal"),
    "its index removed": lambda path: os.unlink(f"{path}-shm"),
    "cut short": lambda path: os.truncate(path, 0),
}


@pytest.mark.parametrize("journal", ["in the journal", "in the file"])
@pytest.mark.parametrize("change", CHANGES)
def test_nothing_is_acknowledged_that_a_reader_of_the_path_does_not_find(tmp_path, change, journal):
    folder = tmp_path / "tests"
    folder.mkdir()
    path = folder / "s.db"
    store, session = begun(path)
    if journal == "in the file":
        store._db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    item, before = session.asked[0], session.to_json()
    done = session.events[-2]["item"]
    CHANGES[change](path)
    for attempt in (
        lambda: session.answer(item, 1),
        lambda: session.answer(done, 1),  # the same answer again is acknowledged as well
        lambda: store.begin(BANK, CONFIG, session_id="b"),
        lambda: store.resume("a"),
        lambda: store.sessions(),
    ):
        with pytest.raises(
            StoreError, match="removed or replaced while the store was open"
        ) as told:
            attempt()
        assert "Nothing was acknowledged" in str(told.value)
    assert session.to_json() == before
    store.close()


def test_a_file_that_is_back_goes_on(tmp_path, monkeypatch):
    """Also by way of a relative path and a link, from whatever folder."""
    (tmp_path / "real").mkdir()
    os.symlink(tmp_path / "real" / "s.db", tmp_path / "link.db")
    monkeypatch.chdir(tmp_path)
    store, session = begun("link.db")
    monkeypatch.chdir("real")
    session.answer(session.asked[0], 1)
    for name in ("s.db", "s.db-wal", "s.db-shm"):
        os.rename(name, f"{name}.away")
    with pytest.raises(StoreError, match="removed or replaced"):
        session.answer(session.asked[0], 1)
    for name in ("s.db", "s.db-wal", "s.db-shm"):
        os.rename(f"{name}.away", name)
    session.answer(session.asked[0], 1)
    with Store(tmp_path / "link.db") as later:
        assert len(later.resume("a").to_frame()) == 4
    (tmp_path / "link.db").unlink()
    with pytest.raises(StoreError, match="removed or replaced"):
        session.answer(session.asked[0], 1)
    store.close()


def test_a_file_removed_while_an_answer_is_written(tmp_path):
    """After the last look before the commit: the look after it finds out."""
    path = tmp_path / "s.db"
    store, session = begun(path)
    before = session.to_json()

    def remove(statement):
        if statement == "COMMIT":
            path.unlink()

    store._db.connection.set_trace_callback(remove)
    with pytest.raises(StoreError, match="removed or replaced"):
        session.answer(session.asked[0], 1)
    store._db.connection.set_trace_callback(None)
    assert session.to_json() == before
    store.close()


def test_closing_a_replaced_store_leaves_the_new_one_alone(tmp_path):
    path = tmp_path / "s.db"
    old, _ = begun(path)
    for name in ("s.db", "s.db-wal", "s.db-shm"):
        (tmp_path / name).unlink()
    new, session = begun(path)
    old.close()
    session.answer(session.asked[0], 1)
    with Store(path) as later:
        assert len(later.resume("a").to_frame()) == 3
    new.close()


def test_a_file_that_cannot_be_written(tmp_path):
    store, session = begun(tmp_path / "s.db")
    before = session.to_json()
    store._db.execute("PRAGMA query_only=1")  # as a read-only file system: SQLite says the same
    with pytest.raises(StoreError, match=r"readonly.*Nothing was acknowledged\. Make the file"):
        session.answer(session.asked[0], 1)
    assert session.to_json() == before
    store.close()


@pytest.mark.parametrize(
    "wrong",
    ["a\0b.db", "x" * 300 + ".db", "y" * 5000, "\ud800.db", 5, "no/such/folder/s.db", ".", ""],
)
def test_names_that_no_file_can_have(tmp_path, monkeypatch, wrong):
    monkeypatch.chdir(tmp_path)
    for create in (True, False):
        with pytest.raises(StoreError) as told:
            Store(wrong, create=create)
        assert "unreadable contents" not in str(told.value)
        assert len(str(told.value)) < 6000
    assert list(tmp_path.iterdir()) == []


def test_memory_is_no_file(tmp_path, monkeypatch):
    """What SQLite calls memory is a file like any other: nothing is kept in memory alone."""
    monkeypatch.chdir(tmp_path)
    begun(":memory:")[0].close()
    assert (tmp_path / ":memory:").is_file()


def edit(path, *statements):
    """What somebody does to a store with another program."""
    with sqlite3.connect(path, isolation_level=None) as db:
        for trigger in ("events_stay", "events_last"):
            db.execute(f"DROP TRIGGER IF EXISTS {trigger}")
        for statement in statements:
            db.execute(*statement) if isinstance(statement, tuple) else db.execute(statement)
    db.close()


def chained(path, change):
    """Rewrite a log with new digests, as someone does who knows the format but not the key."""
    db = sqlite3.connect(path)
    last = db.execute("SELECT head FROM sessions").fetchone()[0]
    last = hashlib.sha256(json.dumps(json.loads(last), sort_keys=True).encode()).hexdigest()
    events = [json.loads(row[0]) for row in db.execute("SELECT event FROM events ORDER BY number")]
    db.close()
    rows, events = [], change(events)
    for number, event in enumerate(events):
        text = json.dumps(event, sort_keys=True)
        last = hashlib.sha256(f"{last}\n{text}".encode()).hexdigest()
        rows.append(("INSERT INTO events VALUES ('a', ?, ?, ?)", (number, text, last)))
    seal = hashlib.sha256(f"{last}\nend".encode()).hexdigest()
    edit(path, "DELETE FROM events", *rows, ("UPDATE seals SET seal = ?", (seal,)))


def better(events):
    return [events[0], {**events[1], "code": 0}, *events[2:]]


def test_a_key_guards_a_store_against_forgery(tmp_path):
    secret = os.urandom(32)
    for key, says in ((None, None), (secret, "event 1 of session a is damaged|event 0 of")):
        path = tmp_path / f"{key is None}.db"
        begun(path, key)[0].close()
        chained(path, better)
        with Store(path, key=key) as store:
            if says is None:  # SHA-256 alone guards against accidents
                assert store.resume("a").to_frame()["answer"].tolist() == [0, 1]
                continue
            for read in (lambda s=store: s.resume("a"), store.check):
                with pytest.raises(StoreError, match=says):
                    read()


@pytest.mark.parametrize("key", [None, b"a secret of some length"])
def test_a_log_that_was_cut_is_found_out(tmp_path, key):
    """Rows at the end are lost; what is left has its digests. With a key nobody can seal it."""
    path = tmp_path / "s.db"
    begun(path, key)[0].close()
    edit(path, "DELETE FROM events WHERE number > 2")
    with Store(path, key=key) as store:
        with pytest.raises(StoreError, match="events of session a are missing"):
            store.resume("a")
        with pytest.raises(StoreError, match="events of session a are missing"):
            store.check()
    if key is None:
        return
    db = sqlite3.connect(path)
    (last,) = db.execute("SELECT digest FROM events WHERE number = 2").fetchone()
    db.close()
    seal = hashlib.sha256(f"{last}\nend".encode()).hexdigest()
    edit(path, ("UPDATE seals SET seal = ?", (seal,)))
    with Store(path, key=key) as store, pytest.raises(StoreError, match="are missing"):
        store.resume("a")


def test_keys_that_do_not_fit(tmp_path):
    begun(tmp_path / "keyed.db", "one")[0].close()
    begun(tmp_path / "plain.db")[0].close()
    whole = (tmp_path / "keyed.db").read_bytes()
    assert b"one" not in whole.replace(b"none", b"")
    for name, key, says in (
        ("keyed.db", "two", "made with another key. Give that key"),
        ("keyed.db", None, "made with a key. Give that key"),
        ("plain.db", "one", "made without a key. Open it without one"),
    ):
        with pytest.raises(StoreError, match=says):
            Store(tmp_path / name, key=key)
    with pytest.raises(InputError, match="`key` argument must be text or bytes"):
        Store(tmp_path / "new.db", key="")
    assert not (tmp_path / "new.db").exists()
    with Store(tmp_path / "keyed.db", key=b"one") as store:
        assert len(store.resume("a").to_frame()) == 2


def test_a_log_that_no_test_can_have_is_refused(tmp_path):
    for change, says in (
        (lambda e: [e[0], {**e[1], "code": 7}, *e[2:]], "Event 1 of .* that .* does not have"),
        (lambda e: [*e[:2], {**e[2], "items": e[0]["items"]}, *e[3:]], "Event 2 .* item twice"),
        (lambda e: [e[0], {**e[1], "at": 5}, *e[2:]], "Event 1 .* no valid at"),
    ):
        path = tmp_path / "s.db"
        begun(path)[0].close()
        chained(path, change)
        with Store(path) as store, pytest.raises(StoreError, match=says):
            store.resume("a")
        path.unlink()


def test_a_log_changed_under_a_live_session(tmp_path):
    """Another program rewrites it, digests and all: the session notices before it answers."""
    path = tmp_path / "s.db"
    store, session = begun(path)
    chained(path, better)
    with pytest.raises(StoreError, match="event 4 of session a is damaged"):
        session.answer(session.asked[0], 1)
    store.close()


@pytest.mark.slow
def test_foreign_contents_are_told_in_sentences(tmp_path):
    for statement in (
        "UPDATE sessions SET head = '[]'",
        "UPDATE sessions SET head = '{}'",
        "UPDATE sessions SET head = 'null'",
        "UPDATE sessions SET head = '{'",
        "UPDATE sessions SET started = 5",
        "UPDATE sessions SET started = x'00'",
        "UPDATE sessions SET bank = 5",
        "UPDATE sessions SET id = 'b'",
        "UPDATE seals SET seal = 5",
        "UPDATE events SET event = '[]'",
        "UPDATE events SET event = x'ff'",
        "UPDATE events SET digest = 5",
        "UPDATE banks SET file = 5",
    ):
        path = tmp_path / "s.db"
        begun(path)[0].close()
        edit(path, "PRAGMA foreign_keys=OFF", statement)
        said = []
        with Store(path) as store:
            for read in (lambda s=store: s.resume("a"), store.sessions, store.check):
                try:
                    read()
                except InputError as error:
                    said.append(str(error))
        assert said, statement
        assert all(text.startswith((f"{path}: ", "The `session_id`")) for text in said)
        if "sessions SET" in statement:  # also what only the columns beside the head say
            with Store(path) as store, pytest.raises(InputError):
                store.check()
        path.unlink()


def same_status(status, session):
    """Whether a status says what the session says."""
    about = (session.id, session.asked, session.reason, session.is_over, session.flags())
    known = session.full_score()
    return (
        (status.id, status.asked, status.reason, status.is_over, status.flags) == about
        and status.estimates == session.estimate()
        and status.full_score() == known
        and status.answers.equals(session.to_frame())
        and status.answers.index.equals(session.to_frame().index)
    )


@pytest.mark.slow
@pytest.mark.parametrize("key", [None, "secret"])
def test_a_stored_status_is_read_without_the_engine(tmp_path, key):
    path = tmp_path / "s.db"
    store, session = begun(path, key, answers=0)
    while True:
        assert StoreFile(path, key=key).status("a") is None  # not of this event
        assert same_status(store.status("a"), session)
        assert same_status(StoreFile(path, key=key).status("a"), session)
        if session.is_over:
            break
        session.answer(session.asked[0], 1)
    store.close()


def test_a_status_that_somebody_changed_is_computed_again(tmp_path):
    for key in (None, "secret"):
        path = tmp_path / f"{key}.db"
        store, session = begun(path, key)
        for change in (
            "UPDATE statuses SET status = replace(status, '\"theta\": ', '\"theta\": 1')",
            "UPDATE statuses SET digest = 5",
            "DELETE FROM statuses",
        ):
            store.record_status(session)
            store._db.execute(change)
            assert StoreFile(path, key=key).status("a") is None
            assert same_status(store.status("a"), session)
        store.close()
    edit(path, "UPDATE events SET event = replace(event, '\"code\": 1', '\"code\": 0')")
    with StoreFile(path, key="secret") as file:
        with pytest.raises(StoreError, match="event 1 of session a is damaged"):
            file.status("a")
        with pytest.raises(InputError, match="id of a session in the store"):
            file.status("b")


def test_a_status_of_another_process_is_out_of_date(tmp_path):
    store, session = begun(tmp_path / "s.db")
    with Store(tmp_path / "s.db") as other:
        ahead = other.resume("a")
        ahead.answer(ahead.asked[0], 1)
        store.record_status(session)  # which has not read this answer
        assert StoreFile(tmp_path / "s.db").status("a") is None
        assert same_status(other.status("a"), ahead)
    store.close()


@pytest.mark.slow
def test_statuses_of_several_abilities_and_of_content_plans(tmp_path):
    slopes = [[1.5, 0.0], [0.0, 1.5], [1.0, 1.0], [1.2, 0.3], [0.3, 1.2], [0.8, 0.8]]
    plane = ItemBank.from_slopes(slopes, correlations=[[1, 0.5], [0.5, 1]])
    topics = dataclasses.replace(BANK, items=pd.DataFrame({"topic": ["x", "y"] * 10}))
    planned = Config(max_items=5, content="shadow", group="topic", targets={"x": 0.5, "y": 0.5})
    with Store(tmp_path / "s.db") as store, StoreFile(tmp_path / "s.db") as file:
        session = store.begin(plane, Config(criterion="d-optimal", max_items=3), session_id="a")
        session.answer(session.asked[0], None)
        session.answer(session.asked[0], 1)
        store.status("a")
        assert same_status(file.status("a"), session)
        session = store.begin(topics, planned, session_id="b")
        plan, stored = session.plan, (store.status("b"), file.status("b"))[1]
        assert stored.plan_text == str(plan)
        assert stored.plan.equals(plan.to_frame())


def test_the_time_between_processes_is_that_in_utc(tmp_path):
    now = [datetime(2026, 3, 1, tzinfo=UTC), 100.0]
    with Store(tmp_path / "s.db", clock=lambda: tuple(now)) as store:
        session = store.begin(BANK, CONFIG, session_id="a")
        now[0] += timedelta(hours=5)  # set anew: the monotonic clock goes on
        now[1] += 2.0
        session.answer(session.asked[0], 1)
        assert store.sessions()["started"].tolist() == ["2026-03-01T00:00:00"]
    now[0] += timedelta(seconds=90)
    with Store(tmp_path / "s.db", clock=lambda: (now[0], 3.0)) as store:
        session = store.resume("a")
        session.answer(session.asked[0], 1)
        assert [e["seconds"] for e in session.events if e["kind"] == "answer"] == [2.0, 90.0]
    edit(tmp_path / "s.db", "UPDATE sessions SET started = '2020'")
    with Store(tmp_path / "s.db") as store, pytest.raises(StoreError, match="a was changed"):
        store.resume("a")


def test_ids_of_sessions_in_stores(tmp_path):
    with Store(tmp_path / "s.db") as store:
        for wrong in ("", "a\0b", "a\nb", "\ud800"):
            with pytest.raises(InputError, match="`session_id` argument must be text, not empty"):
                store.begin(BANK, CONFIG, session_id=wrong)
            with pytest.raises(InputError, match="of a session in the store"):
                store.resume(wrong)
            assert wrong not in store
        with pytest.raises(InputError, match="`subject` argument must be text"):
            store.begin(BANK, CONFIG, subject="a\x07")
        assert len(store.sessions()) == 0


def test_a_stored_session_goes_on_under_its_own_settings_only(tmp_path):
    newer = ItemBank.from_parameters(RNG.uniform(0.7, 2.0, 20), RNG.normal(size=20))

    def stumbles(item):
        raise ConnectionError

    with Store(tmp_path / "s.db") as store:
        settings = {"store": store, "session_id": "m"}
        begun = {"seed": 3, "prior": (0.5, 0.8), "subject": "anna"}
        with pytest.raises(ConnectionError):
            run(BANK, CONFIG, stumbles, **settings, **begun)
        for bank, config, given, says in (
            (newer, CONFIG, begun, "`bank` .* Got another. Give another session_id, or pass resu"),
            (
                BANK,
                Config(stopping="n>=6", max_items=7),
                begun,
                "`config` .* another stopping, max",
            ),
            (BANK, CONFIG, begun | {"seed": 4}, "`seed` .* Got 4, begun with 3"),
            (BANK, CONFIG, begun | {"prior": (0, 1)}, "`prior` .* begun with .0.5, 0.8."),
            (BANK, CONFIG, begun | {"subject": "eve"}, "`subject` .* Got 'eve', begun with 'anna'"),
        ):
            with pytest.raises(InputError, match=says):
                run(bank, config, right, **settings, **given)
        with pytest.raises(InputError, match="`resume` argument must be one of same, stored"):
            run(BANK, CONFIG, right, **settings, resume="always")
        assert len(store.resume("m").events) == 1
        session = run(newer, CONFIG, right, **settings, resume="stored")
        assert session.is_over
        assert session.head["prior"] == [0.5, 0.8]
        assert session.bank.to_frame().equals(BANK.to_frame())
        assert run(BANK, CONFIG, right, **settings, **begun).to_frame().equals(session.to_frame())


@pytest.mark.slow
def test_an_evaluation_goes_on_with_its_own_session_only(tmp_path):
    config = Config(stopping="n>=6", max_items=6)

    def stumbles(asked):
        raise ConnectionError

    for folder, seed in (("one", 1), ("two", 2)):
        with pytest.raises(InputError, match="ConnectionError"):
            evaluate(BANK, stumbles, config, out=tmp_path / folder, seed=seed)
    for each in (tmp_path / "one").glob("sessions.db*"):
        each.unlink()
    for each in (tmp_path / "two").glob("sessions.db*"):
        shutil.copy(each, tmp_path / "one")
    with pytest.raises(InputError, match="`seed` argument must be that with which session"):
        evaluate(BANK, stumbles, config, out=tmp_path / "one", seed=1)


def test_counts_that_are_not_of_the_bank(tmp_path):
    rule = Config(max_items=5, exposure=part("restricted", rate=0.5))
    with Store(tmp_path / "s.db") as store:
        counts = store.counts(BANK, rule)
        with pytest.raises(
            InputError, match="`counts` argument must be Counts of sessions with this bank"
        ):
            store.begin(BANK.subset(np.arange(19)), rule, counts=counts)


def test_a_models_name_is_checked_before_anything_is_written(tmp_path):
    with pytest.raises(InputError, match="`subject` argument must be text"):
        evaluate(BANK, lambda asked: 1, CONFIG, out=tmp_path / "new", name="a\nb")
    assert not (tmp_path / "new").exists()
