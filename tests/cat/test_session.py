"""Live sessions: the log, the store, faults, and the driver."""

import asyncio
import json
import os
import re
import signal
import sqlite3
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from irtcat import InputError, ItemBank, Responses
from irtcat.cat import Config, Session, Store, StoreError, part, replay, run, run_async
from irtcat.cat.engine.engine import lots

RNG = np.random.default_rng(8)
BANK = ItemBank.from_parameters(RNG.uniform(0.7, 2.0, 20), RNG.normal(size=20))
CONFIG = Config(stopping="se<0.2 or n>=6", max_items=8)


def right(item):
    """Everyone's answers."""
    return int(item[1:]) % 3 != 0


def told(session):
    """All that a session's state amounts to."""
    frame = session.to_frame()
    return session.asked, session.reason, frame.index.tolist(), frame.to_numpy(float).tolist()


def test_the_log_is_the_session():
    """At every moment the session goes on from its JSON, with nothing lost."""
    session = Session.begin(BANK, CONFIG, seed=4, prior=(0.5, 0.8), subject="anna")
    while not session.is_over:
        again = Session.from_json(BANK, json.loads(json.dumps(session.to_json())))
        assert told(again) == told(session)
        item = session.asked[0]
        assert again.answer(item, right(item), 2.0) == session.answer(item, right(item), 2.0)
    assert (session.reason, len(session.to_frame())) == ("length", 6)
    assert session.head["subject"] == "anna"
    with pytest.raises(InputError, match="the bank on which the session was begun"):
        Session.from_json(BANK.subset(np.arange(19)), session.to_json())
    changed = session.to_json()
    changed["config"]["max_items"] = 9
    with pytest.raises(InputError, match="as to_json wrote it"):
        Session.from_json(BANK, changed)


def test_what_is_refused():
    session = Session.begin(BANK, CONFIG)
    (item,) = session.asked
    other = next(i for i in BANK.item_ids if i != item)
    for wrong, value, says in (
        (other, 1, "an item that was asked"),
        ("i99", 1, "an item of the bank"),
        (item, 2, "from 0 to 1"),
        (item, "yes", "from 0 to 1"),
        (item, float("nan"), "from 0 to 1"),
    ):
        with pytest.raises(InputError, match=says):
            session.answer(wrong, value)
    after = session.answer(item, 1)
    assert session.answer(item, 1) == after  # the same again changes nothing
    assert len(session.events) == 3
    with pytest.raises(InputError, match="the answer given before"):
        session.answer(item, 0)


@pytest.mark.slow
def test_graded_answers_skips_and_codes():
    bank = ItemBank.from_thresholds(a=1.5, b=np.sort(RNG.normal(size=(6, 3)), axis=1))
    object.__setattr__(bank, "codes", (1, 2, 3, 4))
    session = Session.begin(bank, Config(max_items=3, batch=2))
    first, second = session.asked
    assert session.answer(second, 4) == [first]  # of a batch in any order
    assert session.answer(first, None) != []  # skipped
    frame = session.to_frame()
    assert frame["answer"].tolist()[1] == 4
    assert frame["answer"].isna().tolist() == [True, False]
    with pytest.raises(InputError, match="from 1 to 4"):
        session.answer(session.asked[0], 0)


@pytest.mark.slow
@pytest.mark.parametrize("graded", [False, True])
def test_skipped_items_are_expected_as_those_not_asked_are(graded):
    """The predicted score after every answer, of session and report, by brute force."""
    bank = BANK
    if graded:
        bank = ItemBank.from_thresholds(a=1.5, b=np.sort(RNG.normal(size=(20, 2)), axis=1))
    theta = np.linspace(-8, 8, 4001)
    curves = bank.category_probabilities(theta)
    shares = np.arange(curves.shape[2]) / (curves.shape[2] - 1)
    place = {item: i for i, item in enumerate(bank.item_ids.tolist())}
    session = Session.begin(bank, Config(max_items=6))
    known, wanted = {}, []
    for value in (1, None, 0, None, 1, None):
        (item,) = session.asked
        session.answer(item, value)
        if value is not None:
            known[place[item]] = value
        weight = np.exp(-(theta**2) / 2)
        for i, code in known.items():
            weight = weight * curves[i, :, code]
        expected = (curves @ shares) @ (weight / weight.sum())
        for i, code in known.items():
            expected[i] = shares[code]
        wanted.append(expected.mean())
        assert session.estimate()["score"] == pytest.approx(wanted[-1], abs=2e-4)
    np.testing.assert_allclose(session.to_report().scores(bank)[0], wanted, atol=2e-4)


@pytest.mark.slow
def test_why_this_item():
    bank = ItemBank.from_parameters(BANK.to_frame()["a"].to_numpy(), BANK.to_frame()["b"])
    best = list(Session.begin(bank, CONFIG).explain(3).index)
    config = Config(max_items=5, enemies=[[best[0], best[1]]], exposure=part("randomesque", k=4))
    session = Session.begin(bank, config, seed=3)
    table = session.explain(5)
    assert table.index[0] == best[0]
    assert table["rank"].tolist()[:5] == [1, 2, 3, 4, 5]
    assert table.loc[session.asked[0], "asked"]
    above = table["rank"] < table.loc[session.asked[0], "rank"]
    assert (table.loc[above, "excluded_by"] == "exposure rule randomesque").all()
    forced = Session.begin(bank, Config(max_items=5, enemies=[[best[0], best[1]]]))
    forced.answer(best[0], 1)
    told = forced.explain(20)
    assert told.loc[best[0], "excluded_by"] == "asked before"
    assert told.loc[best[1], "excluded_by"] == "enemy of an item asked"


def test_the_store_keeps_and_resumes(tmp_path):
    path = tmp_path / "sessions.db"
    with Store(path) as store:
        session = store.begin(BANK, CONFIG, session_id="a", seed=1, subject="anna")
        for _ in range(3):
            session.answer(session.asked[0], 1, seconds=1.5)
        with pytest.raises(InputError, match="not taken"):
            store.begin(BANK, CONFIG, session_id="a")
    with Store(path, create=False) as one, Store(path) as two:
        first, second = one.resume("a"), two.resume("a")
        assert told(first) == told(second) == told(session)
        item = first.asked[0]
        after = first.answer(item, 0)
        assert second.answer(item, 0) == after  # the same answer by way of another process
        with pytest.raises(InputError, match="the answer given before"):
            second.answer(item, 1)
        assert told(first) == told(second)
        table = one.sessions()
        assert table.loc["a", ["subject", "answers", "over"]].tolist() == ["anna", 4, ""]
        one.check()
        with pytest.raises(InputError, match="of a session in the store"):
            one.resume("b")
    with pytest.raises(StoreError, match="there is no such store"):
        Store(tmp_path / "none.db", create=False)


def test_nothing_is_rewritten(tmp_path):
    """The log refuses changes; one made behind its back is found out."""
    path = tmp_path / "sessions.db"
    with Store(path) as store:
        session = store.begin(BANK, CONFIG, session_id="a")
        item = session.asked[0]
        session.answer(item, 1)
    db = sqlite3.connect(path, isolation_level=None)
    for statement in ("DELETE FROM events", "UPDATE events SET event = ''"):
        with pytest.raises(sqlite3.DatabaseError, match="append-only"):
            db.execute(statement)
    db.execute("DROP TRIGGER events_stay")
    db.execute("UPDATE events SET event = replace(event, '\"code\": 1', '\"code\": 0')")
    db.close()
    with Store(path) as store:
        with pytest.raises(StoreError, match="event 1 of session a is damaged"):
            store.resume("a")
        with pytest.raises(StoreError, match="event 1"):
            store.check()


def read_all(path):
    """Everything that a store holds."""
    with Store(path) as store:
        store.check()


def test_damage_and_a_full_disk(tmp_path):
    path = tmp_path / "sessions.db"
    with Store(path) as store:
        session = store.begin(BANK, CONFIG, session_id="a")
        before = session.to_json()
        pages = store._db.execute("PRAGMA page_count").fetchone()[0]
        store._db.execute(f"PRAGMA max_page_count={pages}")
        item, asked = session.asked[0], session.asked

        def fill():
            for n in range(40):  # the last page's free space first
                store.begin(BANK, CONFIG, session_id=f"more{n}")

        with pytest.raises(StoreError, match=r"full.*Nothing was acknowledged"):
            fill()
        store._db.execute("PRAGMA max_page_count=100000")
        assert session.asked == asked
        assert session.to_json() == before
        session.answer(item, 1)
    whole = path.read_bytes()
    for name, data in (("cut.db", whole[: len(whole) // 2]), ("noise.db", b"x" * 5000)):
        bad = tmp_path / name
        bad.write_bytes(data)
        with pytest.raises(StoreError, match=r"damaged|malformed|not a database"):
            read_all(bad)
        assert bad.read_bytes() == data


WORKER = """
import sys
from irtcat import ItemBank
from irtcat.cat import Config, Store, part
bank = ItemBank.load(sys.argv[2])
config = Config(stopping="n>=6", max_items=8, exposure=part("restricted", rate=0.5))
store = Store(sys.argv[1])
number = 0
print("ready", flush=True)
while True:
    table = store.sessions()
    left = table[table["over"] == ""].index.tolist()
    name = left[0] if left else f"{sys.argv[3]}-{number}-{len(table)}"
    session = store.resume(name) if left else store.begin(bank, config, name, seed=number)
    number += 1
    while not session.is_over:
        item = session.asked[0]
        session.answer(item, int(item[1:]) % 2)
        print(name, item, flush=True)
"""


@pytest.mark.slow
def test_killed_at_any_moment(tmp_path):
    """No acknowledged answer is lost, and no item is given twice (more kills: experiments/cat)."""
    path, bank = tmp_path / "sessions.db", BANK.save(tmp_path / "bank.npz")
    acknowledged = []
    for kill in range(2):
        worker = subprocess.Popen(
            [sys.executable, "-c", WORKER, str(path), str(bank), str(kill)],
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": os.getcwd()},
            cwd=Path(__file__).parents[2],
        )
        assert worker.stdout.readline() == "ready\n"
        lines = [worker.stdout.readline() for _ in range(4)]
        time.sleep(RNG.uniform(0, 0.05))
        worker.send_signal(signal.SIGKILL)
        lines += worker.stdout.read().split("\n")[:-1]
        worker.wait()
        worker.stdout.close()
        acknowledged += [tuple(line.split()) for line in lines]
    assert len(acknowledged) > 5
    with Store(path) as store:
        store.check()
        for name in store.sessions().index:
            session = store.resume(name)
            given = session.to_frame().index.tolist()
            assert len(set(given)) == len(given)
            assert not set(given) & set(session.asked)
            assert {i for n, i in acknowledged if n == name} <= set(given)


def test_drivers(tmp_path):
    plain = run(BANK, CONFIG, right)

    async def slowly(item):
        await asyncio.sleep(0)
        return right(item)

    async def both():
        return await asyncio.gather(*(run_async(BANK, CONFIG, slowly) for _ in range(2)))

    for session in asyncio.run(both()):
        assert told(session) == told(plain)
    batched = run(BANK, Config(max_items=6, batch=3), lambda items: [right(i) for i in items])
    assert len(batched.to_frame()) == 6
    with pytest.raises(InputError, match="3 answers"):
        run(BANK, Config(max_items=6, batch=3), lambda items: [1])
    with Store(tmp_path / "s.db") as store:
        calls = []

        def stumbles(item):
            calls.append(item)
            if len(calls) == 3:
                raise ConnectionError
            return right(item)

        with pytest.raises(ConnectionError):
            run(BANK, CONFIG, stumbles, store=store, session_id="m", seed=0)
        session = run(BANK, CONFIG, stumbles, store=store, session_id="m")
        assert told(session) == told(plain)
        assert len(calls) == 7  # one item was asked again: it had no answer


@pytest.mark.slow
def test_classes_are_told():
    config = Config(stopping=part("sprt", cuts=(-0.5, 0.5), delta=0.3), max_items=20)
    session = run(BANK, config, lambda item: 1)
    assert session.estimate()["category"] in (None, 2)
    assert 0 <= session.estimate()["score"] <= 1


RULES = [
    part("restricted", rate=0.4),
    part("eligibility", rate=0.4),
    part("conditional-eligibility", rate=0.4, cuts=(-0.3, 0.4)),
    part("overlap", target=0.4),
]


def from_logs(store, config):
    """Given, eligible and sessions by reading every log."""
    n_cells = 3 if config.exposure.name.startswith("conditional") else 1
    given, eligible = np.zeros((n_cells, 20)), np.zeros((n_cells, 20))
    sessions = np.zeros(n_cells)
    for name in store.sessions().index:
        session = store.resume(name)
        if session.config != config:
            continue
        asks = [e for e in session.events if e["kind"] == "ask"]
        for event in asks:
            for item in event["items"]:
                given[event.get("cell", 0), session._positions[item]] += 1
        limit = np.atleast_2d(session.head["counts"][0])
        for cell in {event.get("cell", 0) for event in asks}:
            sessions[cell] += 1
            eligible[cell] += lots(session.head["seed"], 20) < limit[cell]
    return given, eligible, sessions


@pytest.mark.slow_cases("restricted", "overlap", "conditional-eligibility")
@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.name)
def test_counts_of_exposure_are_those_of_the_logs(tmp_path, rule):
    config = Config(max_items=5, exposure=rule)
    with Store(tmp_path / "s.db") as store, Store(tmp_path / "s.db") as other:
        store.begin(BANK, CONFIG, session_id="another configuration")
        for number in range(8):
            opened = store if number % 2 else other
            session = opened.begin(BANK, config, session_id=str(number), seed=number)
            while not session.is_over and number != 5:
                session.answer(session.asked[0], (number + len(session.events)) % 3 > 0)
        told = store.counts(BANK, config)
        for mine, logged in zip(told[1:], from_logs(store, config), strict=True):
            np.testing.assert_array_equal(np.reshape(mine, logged.shape), logged)
        store.check()
        assert told.administered.sum() > 35
        if "eligibility" in rule.name:
            assert (told.limit < 1).any()
        store._db.execute("UPDATE exposure SET given = given + 1")
        with pytest.raises(StoreError, match="do not match the logs"):
            store.check()


def finished_store(path):
    """A closed store of three sessions, and what they amount to."""
    with Store(path) as store:
        sessions = [store.begin(BANK, CONFIG, session_id=f"s{k}", seed=k) for k in range(3)]
        for session in sessions:
            while not session.is_over:
                session.answer(session.asked[0], right(session.asked[0]))
        store._db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        return {session.id: told(session) for session in sessions}


def read_all_of(path, before):
    """What is said of a damaged store; None where all sessions are as they were."""
    try:
        with Store(path, create=False) as store:
            found = {name: told(store.resume(name)) for name in before}
            store.sessions()
            store.check()
    except StoreError as error:
        return str(error)
    assert found == before
    return None


@pytest.mark.slow
def test_overwritten_bytes_are_told_and_never_mended(tmp_path):
    """Noise anywhere in the file: the sessions as they were, or one sentence; no byte changed."""
    whole = tmp_path / "s.db"
    before = finished_store(whole)
    data, outcomes = whole.read_bytes(), []
    for at in np.linspace(0, len(data) - 64, 60).astype(int):
        bad = tmp_path / "bad.db"
        noisy = bytearray(data)
        noisy[at : at + 64] = bytes(RNG.integers(0, 256, 64, dtype=np.uint8))
        bad.write_bytes(noisy)
        outcomes.append(read_all_of(bad, before))
        # None: the noise fell on nothing that is in use.
        assert outcomes[-1] is None or outcomes[-1].startswith(f"{bad}: ")
        assert bad.read_bytes() == bytes(noisy)
        for rest in tmp_path.glob("bad.db*"):
            rest.unlink()
    assert len(outcomes) - outcomes.count(None) > 15


def other_program(path):
    """A database of something else."""
    with sqlite3.connect(path) as db:
        db.execute("CREATE TABLE meta (key TEXT, value TEXT)")
        db.execute("CREATE TABLE sessions (id TEXT)")
        db.execute("CREATE TABLE events (id TEXT)")
    db.close()


def test_other_files_are_left_as_they_are(tmp_path):
    other_program(tmp_path / "theirs.db")
    (tmp_path / "text.db").write_text("not a database at all, but long enough to look at" * 20)
    (tmp_path / "empty.db").write_bytes(b"")
    for name, says in (
        ("theirs.db", "a database of something else"),
        ("text.db", "not a database"),
        ("empty.db", "empty"),
    ):
        before = (tmp_path / name).read_bytes()
        with pytest.raises(StoreError, match=says):
            Store(tmp_path / name, create=False)
        assert (tmp_path / name).read_bytes() == before
        assert not list(tmp_path.glob(f"{name}-*"))  # nor was its journal changed


LIMITED = """
import resource, signal, sys
from irtcat import ItemBank
from irtcat.cat import Config, Store
bank = ItemBank.load(sys.argv[2])
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[3]), resource.RLIM_INFINITY))
store = Store(sys.argv[1])
for number in range(1000):
    try:
        session = store.begin(bank, Config(stopping="n>=6", max_items=8), f"n{number}", seed=1)
        while not session.is_over:
            item = session.asked[0]
            session.answer(item, int(item[1:]) % 2)
            print(session.id, item, flush=True)
    except Exception as error:
        print(type(error).__name__, error, flush=True)
        break
"""


@pytest.mark.slow
def test_a_disk_that_fills_up(tmp_path):
    """A file that may not grow: one sentence, and everything acknowledged is there afterwards."""
    path, bank = tmp_path / "s.db", BANK.save(tmp_path / "bank.npz")
    done = subprocess.run(
        [sys.executable, "-c", LIMITED, str(path), str(bank), "200000"],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": os.getcwd()},
        cwd=Path(__file__).parents[2],
        check=True,
    )
    *lines, last = done.stdout.splitlines()
    assert re.match(r"StoreError .*s\.db: .*Nothing was acknowledged. Free some space", last)
    assert len(lines) > 5
    with Store(path, create=False) as store:
        store.check()
        acknowledged = {}
        for line in lines:
            name, item = line.split()
            acknowledged.setdefault(name, []).append(item)
        for name, items in acknowledged.items():
            assert store.resume(name).to_frame().index.tolist()[: len(items)] == items
        left = [name for name in store.sessions().index if not store.resume(name).is_over]
        for name in left:  # there is room again: the session goes on
            session = store.resume(name)
            session.answer(session.asked[0], 1)


def test_answers_in_categories_unused_in_calibration_are_flagged():
    """Live and simulated: scoring flags them too."""
    bank = ItemBank.from_thresholds(a=[1.0, 1.5, 1.2], b=[[-1.0, 1.0]] * 3)
    bank = replace(bank, statistics=pd.DataFrame({"unused": [(), (1,), ()]}, index=bank.item_ids))
    config = Config(max_items=3)
    session = Session.begin(bank, config, seed=1)
    while not session.is_over:
        assert session.flags() == []
        session.answer(session.asked[0], 0 if session.asked[0] != "i2" else 2)
    session = Session.begin(bank, config, seed=1)
    while not session.is_over:
        session.answer(session.asked[0], 1)
    assert session.flags() == ["Answers in categories that nobody used in calibration: to i2."]
    assert Session.from_json(bank, session.to_json()).flags() == session.flags()
    answers = Responses.from_array([[1, 1, 1], [0, 0, 0]], codes=(0, 1, 2))
    report = replay(bank, answers, config)
    assert report.unused.tolist() == [1, 0]
    assert report.flags() == [
        "1 answers in 1 of 2 sessions are in categories that nobody used in calibration."
    ]
