"""The store on SQLite and PostgreSQL through SQLAlchemy: as on the standard library's SQLite."""

import threading

import numpy as np
import pytest

from irtcat.bank import ItemBank
from irtcat.cat import Config, Session, Store, StoreError, part
from irtcat.service.assembly import open_service
from irtcat.service.attempts import people
from irtcat.service.storage.database import open_database

BANK = ItemBank.from_parameters(
    a=np.linspace(0.8, 2.0, 20), b=np.linspace(-2, 2, 20), item_ids=[f"i{i}" for i in range(20)]
)
CONFIG = Config(max_items=6)
PATTERN = [1, 0, 1, 1, 0, 1]


def finish(session):
    for value in PATTERN:
        session.answer(session.asked[0], value, seconds=1.0)
    return session


def plain(session):
    """Items, answers and estimates, without times."""
    events = [{k: v for k, v in e.items() if k not in ("at", "elapsed")} for e in session.events]
    return events, session.estimate()


@pytest.mark.slow
def test_sessions_are_those_of_memory(database):
    store = Store(database)
    expected = finish(Session.begin(BANK, CONFIG, seed=3))
    finish(store.begin(BANK, CONFIG, session_id="anna", seed=3, subject="Anna"))
    resumed = Store(database).resume("anna")
    assert plain(resumed) == plain(expected)
    assert resumed.is_over
    row = store.sessions().loc["anna"]
    assert (row["subject"], row["answers"], row["over"]) == ("Anna", 6, "length")
    assert store.status("anna").estimates == expected.estimate()
    store.check()


def test_an_address_opens_the_store(address):
    with Store(address) as store:
        store.begin(BANK, CONFIG, session_id="a", seed=1)
    with Store(address) as again:
        assert "a" in again
        assert "b" not in again
        assert again.resume("a").asked == Session.begin(BANK, CONFIG, seed=1).asked


def test_a_key_is_needed_where_it_was_set(address):
    with Store(address, key="secret") as store:
        store.begin(BANK, CONFIG, session_id="a")
    with pytest.raises(StoreError, match="made with a key"):
        Store(address)
    with pytest.raises(StoreError, match="another key"):
        Store(address, key="other")
    with Store(address, key="secret") as store:
        store.check()


def test_events_stay(database):
    store = Store(database)
    store.begin(BANK, CONFIG, session_id="a")
    for statement in ("UPDATE events SET event = '{}'", "DELETE FROM events"):
        with pytest.raises(StoreError, match="append-only"), database.writing():
            database.execute(statement)
    store.check()


def test_what_fails_within_a_transaction_leaves_nothing(database):
    store = Store(database)

    def fails():
        with database.writing():
            store.begin(BANK, CONFIG, session_id="a")
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fails()
    assert "a" not in store
    store.begin(BANK, CONFIG, session_id="a")
    store.check()


@pytest.mark.slow
def test_exposure_is_counted_and_used(database):
    config = Config(max_items=6, exposure=part("eligibility", rate=0.5))
    store = Store(database)
    for i in range(5):
        finish(store.begin(BANK, config, session_id=f"s{i}", seed=i))
    counts = store.counts(BANK, config)
    assert float(np.asarray(counts.administered).sum()) == 30
    assert float(np.asarray(counts.sessions).max()) == 5
    store.check()


def test_a_changed_event_is_found(database):
    store = Store(database)
    finish(store.begin(BANK, CONFIG, session_id="a"))
    with database.writing():
        for trigger in ("events_stay", "events_last"):
            on = " ON events" if database.dialect.name == "postgresql" else ""
            database.execute(f"DROP TRIGGER IF EXISTS {trigger}{on}")
        database.execute(
            "UPDATE events SET event = REPLACE(event, '\"code\": 1', '\"code\": 0') "
            "WHERE number = 1"
        )
    with pytest.raises(StoreError, match="event 1 of session a is damaged"):
        Store(database).resume("a")


@pytest.mark.slow
def test_threads_answer_their_sessions_at_once(database):
    """Eight threads, each with sessions of its own: no answer is lost, exposure adds up."""
    store = Store(database)
    store.begin(BANK, CONFIG, session_id="first")
    faults = []

    def work(number):
        try:
            for turn in range(3):
                finish(store.begin(BANK, CONFIG, session_id=f"{number}-{turn}"))
        except Exception as error:  # reported by the test below
            faults.append(error)

    threads = [threading.Thread(target=work, args=(n,)) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not faults
    table = store.sessions().drop("first")
    assert len(table) == 24
    assert (table["answers"] == 6).all()
    store.check()


def test_one_session_from_two_sides(database):
    """Two copies of a session give different answers to one item: one is acknowledged."""
    store = Store(database)
    store.begin(BANK, CONFIG, session_id="a", seed=1)
    one, two = Store(database).resume("a"), Store(database).resume("a")
    item = one.asked[0]
    results = []

    def send(session, value):
        try:
            session.answer(item, value)
            results.append(("taken", value))
        except Exception as error:
            results.append((str(error), value))

    threads = [threading.Thread(target=send, args=pair) for pair in ((one, 0), (two, 1))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    taken = [value for message, value in results if message == "taken"]
    refused = [message for message, _ in results if message != "taken"]
    assert len(taken) == 1
    assert "must be the answer given before" in refused[0]
    session = store.resume("a")
    assert session.to_frame()["answer"].tolist() == taken
    store.check()


@pytest.mark.parametrize(
    ("address", "message"),
    [
        ("oracle://host/x", "a file or an address"),
        ("postgresql://nobody:secret@127.0.0.1:1/none", "127.0.0.1"),
        ("postgresql://:::", "no address of a database"),
    ],
)
def test_other_addresses_are_refused(address, message):
    with pytest.raises(StoreError, match=message) as error:
        Store(address)
    assert "secret" not in str(error.value)


def test_other_databases_are_refused(database):
    with database.writing():
        database.execute("CREATE TABLE things (a INTEGER)")
    with pytest.raises(StoreError, match="something else"):
        Store(database)


def test_an_empty_database_is_no_store(address):
    database = open_database(address, create=True)
    with pytest.raises(StoreError, match="empty, no store"):
        Store(database, create=False)


def test_what_was_erased_is_not_in_the_file(tmp_path):
    """SQLite keeps deleted rows in free pages unless it is told to overwrite them."""
    path, name = tmp_path / "tests.db", "Zebulon Quixworthy"
    with open_service(path, create=True) as service:
        person = people.add_person(service, name=name, actor="test")
        people.erase(service, person, actor="test")
        with service.database.reading():
            assert service.database.execute("PRAGMA secure_delete").fetchone()[0] == 1
    assert name.encode() not in b"".join(file.read_bytes() for file in tmp_path.iterdir())
