"""One attempt from ticket to report, by the functions that the pages and the interface call."""

import json
import threading
from datetime import timedelta

import numpy as np
import pytest
from sqlalchemy import event

from irtcat._common.checks import InputError
from irtcat.cat import Session, StoreError
from irtcat.service.assembly import open_service
from irtcat.service.attempts import attempt as attempts
from irtcat.service.attempts import library, people, proctoring, results, taking
from irtcat.service.attempts.attempt import attempt_of, seed_of
from irtcat.service.base.errors import ConflictError, GoneError, NotFoundError, UnauthorizedError
from irtcat.service.operations.background import end_due
from irtcat.service.operations.maintenance import check
from irtcat.service.outbox import webhooks
from irtcat.service.storage import tables
from irtcat.service.storage.database import open_database
from tests.service.helpers import bank, definition, items, publish, report_of


def media_url(name):
    return f"/media/{name}"


class Taker:
    """A test taker's device."""

    def __init__(self, service, token):
        self.service = service
        started = taking.begin(service, token)
        self.attempt, self.device = started.attempt, started.secret
        self.view = self("current")

    def __call__(self, action, **options):
        function = getattr(taking, action)
        self.view = function(self.service, self.attempt, self.device, media_url, **options)
        return self.view

    def answer(self, right=True, **options):
        """Answer the item that is shown: B is right, A is wrong."""
        item = self.view["item"]
        wanted = "B" if right else "A"
        place = next(c["id"] for c in item["choices"] if c["content"].endswith(wanted))
        return self("answer", number=item["number"], response=place, **options)


def ticket(service, test, **options):
    return people.issue_ticket(service, test, actor="test", **options)


@pytest.fixture
def taker(service, published):
    return Taker(service, ticket(service, published).token)


def to_adaptive(taker):
    taker("proceed")
    taker.answer()
    assert taker.view["section"]["kind"] == "adaptive"


@pytest.mark.slow
def test_a_whole_test(service, taker, clock):
    assert taker.view["page"] == "instructions"
    assert taker.view["text"] == "<p>Read <em>well</em>.</p>"
    assert taker("proceed")["section"] == {"number": 1, "count": 3, "kind": "practice", "title": ""}
    taker.answer(right=False)
    pattern = [True, False, True, True]
    for at, right in enumerate(pattern):
        assert taker.view["section"]["kind"] == "adaptive"
        assert taker.view["progress"] == {"done": at, "of": 4}
        clock.move(7)
        taker.answer(right)
    assert taker.view["page"] == "break"
    clock.move(100)
    taker("proceed")
    assert taker.view["page"] == "item"
    taker.answer()
    taker.answer()
    taker.answer(right=False)
    assert taker.view["page"] == "answers"
    assert [row["answered"] for row in taker.view["items"]] == [True] * 3
    taker("go", place=3)
    taker.answer()  # changed, to the right one
    taker("proceed")
    assert taker.view["page"] == "finished"
    report = taker.view["report"]
    # The same session in memory chooses the same items, and the result is that of all answers.
    it = attempt_of(service, taker.attempt)
    pool = it.test.pools[2]
    assert pool.item_ids.tolist() == [f"q{i}" for i in range(3, 12)]
    memory = Session.begin(
        pool, it.test.definition.sections[2].config, seed=seed_of(it.head["seed"], 2)
    )
    for right in pattern:
        memory.answer(memory.asked[0], int(right))
    stored = service.store.resume(f"{taker.attempt}.2")
    assert stored.to_frame()["answer"].equals(memory.to_frame()["answer"])
    np.testing.assert_allclose(stored.estimate()["theta"], memory.estimate()["theta"])
    answers = results.scored_answers(it)
    assert answers == {
        **{n: int(v) for n, v in memory.to_frame()["answer"].items()},
        "q0": 1,
        "q1": 1,
        "q2": 1,
    }
    expected = results.result_of(it.test.definition, it.test.bank, answers)
    assert report["score"] == expected.scaled.score
    assert report["lower"] < report["score"] < report["upper"]
    assert set(report) == {"score", "lower", "upper", "interval_level", "level"}
    assert it.progress.used_test == pytest.approx(28)  # without the break
    table = results.result_table(service, it.test.id)
    assert table["attempt"].tolist() == [taker.attempt]
    assert table["theta"].tolist() == [expected.theta]
    service.store.check()


SECRET = {"key", "correct", "theta", "se", "a", "b", "difficulty", "code", "points", "criterion"}


def names_in(value):
    """All field names of a JSON document."""
    if isinstance(value, dict):
        return set(value) | set().union(*map(names_in, value.values()), set())
    return set().union(*map(names_in, value), set()) if isinstance(value, list) else set()


@pytest.mark.slow
def test_the_view_holds_no_secret(taker):
    views = [taker.view, taker("proceed"), taker.answer()]
    views += [taker.answer() for _ in range(4)]
    for view in views:
        assert not names_in(view) & SECRET
        text = json.dumps({**view, "item": {**(view["item"] or {}), "prompt": "", "choices": []}})
        assert '"q' not in text  # no id of an item
        for choice in (view["item"] or {"choices": []})["choices"]:
            assert set(choice) == {"id", "content", "most", "area"}
            assert choice["id"] in {"c1", "c2", "c3", "c4"}


@pytest.mark.slow
def test_equal_repeats_change_nothing_and_conflicting_ones_are_refused(service, taker):
    to_adaptive(taker)
    number = taker.view["item"]["number"]
    place = taker.view["item"]["choices"][0]["id"]
    other = taker.view["item"]["choices"][1]["id"]
    first = taker("answer", number=number, response=place, request="r1")
    events = len(proctoring.attempt_events(service, taker.attempt))
    for request in ("r1", "r2", ""):
        assert taker("answer", number=number, response=place, request=request) == first
    assert len(proctoring.attempt_events(service, taker.attempt)) == events
    # A repeated request is not looked at again, whatever it says; a new one is refused.
    assert taker("answer", number=number, response=other, request="r1") == first
    with pytest.raises(ConflictError, match="which stands"):
        taker("answer", number=number, response=other, request="r3")
    assert taker("current") == first


@pytest.mark.slow
@pytest.mark.parametrize(
    ("response", "error", "message"),
    [
        ("c9", InputError, "one of"),
        (["c1"], InputError, "one of"),
        (None, InputError, "An answer is required"),
        ({"a": 1}, InputError, "one of"),
        (3, InputError, "one of"),
    ],
)
def test_invalid_answers_change_nothing(service, taker, response, error, message):
    to_adaptive(taker)
    before = taker.view
    with pytest.raises(error, match=message):
        taker("answer", number=before["item"]["number"], response=response)
    assert taker("current") == before


@pytest.mark.slow
def test_items_out_of_turn(taker):
    to_adaptive(taker)
    with pytest.raises(ConflictError, match="not shown"):
        taker("answer", number=99, response="c1")
    with pytest.raises(ConflictError, match="not shown at the moment"):
        taker("answer", number=1, response="c1")  # of the practice section
    with pytest.raises(ConflictError, match="fixed order"):
        taker("go", place=1)
    with pytest.raises(ConflictError, match="cannot be marked"):
        taker("flag", number=2, flagged=True)
    with pytest.raises(ConflictError, match="ends with its last item"):
        taker("proceed")


def test_item_time_limit(service, taker, clock):
    to_adaptive(taker)
    assert taker.view["time"] == {
        "test": 600,
        "section": None,
        "item": 60,
        "running": True,
        "warnings": [300.0, 60.0],
        "abandoned_after": 7 * 24 * 3600.0,
    }
    number, place = taker.view["item"]["number"], taker.view["item"]["choices"][0]["id"]
    clock.move(61)  # within the grace for the way to the server
    taker("answer", number=number, response=place)
    clock.move(63)
    late = taker.view["item"]["number"]
    with pytest.raises(ConflictError, match="which stands"):
        taker("answer", number=late, response="c1")
    view = taker("current")
    assert view["item"]["number"] == late + 1
    it = attempt_of(service, taker.attempt)
    name = next(n for n, k in it.progress.number.items() if k == late)
    assert it.progress.answers[name].response is None
    assert it.progress.answers[name].code == 0


def test_test_time_limit_ends_everything(service, taker, clock):
    to_adaptive(taker)
    taker.answer()
    clock.move(10_000)
    view = taker("current")
    assert view["page"] == "finished"
    it = attempt_of(service, taker.attempt)
    assert it.progress.reason == "time limit"
    assert view["report"]["score"] is not None
    with pytest.raises(ConflictError, match="The test is over"):
        taker("answer", number=2, response="c1")


@pytest.mark.slow
def test_a_break_ends_by_itself_and_stops_the_clock(taker, clock):
    to_adaptive(taker)
    for _ in range(4):
        taker.answer()
    assert taker.view["time"]["section"] == 300
    clock.move(301)
    view = taker("current")
    assert view["section"]["kind"] == "fixed"
    assert view["time"]["test"] == 600


@pytest.mark.slow
def test_extra_time_and_extensions(service, published, clock):
    given = ticket(service, published, accommodations=["extra_time_50"])
    taker = Taker(service, given.token)
    to_adaptive(taker)
    assert (taker.view["time"]["test"], taker.view["time"]["item"]) == (900, 90)
    proctoring.extend(service, taker.attempt, seconds=60, actor="test", reason="fire alarm")
    assert taker("current")["time"]["test"] == 960


@pytest.mark.slow
def test_pauses_stop_the_clock(service, taker, clock):
    to_adaptive(taker)
    clock.move(10)
    proctoring.pause(service, taker.attempt, actor="proctor", reason="ill")
    assert taker("current")["page"] == "paused"
    with pytest.raises(ConflictError, match="paused"):
        taker("answer", number=2, response="c1")
    with pytest.raises(ConflictError, match="cannot be continued"):
        taker("resume")
    clock.move(5000)
    proctoring.resume(service, taker.attempt, actor="proctor")
    assert taker("current")["time"]["test"] == 590


@pytest.mark.slow
def test_a_taker_with_the_accommodation_pauses(service, published, clock):
    taker = Taker(service, ticket(service, published, accommodations=["pause"]).token)
    to_adaptive(taker)
    assert taker("pause")["page"] == "paused"
    clock.move(1000)
    assert taker("resume")["time"]["test"] == 600
    proctoring.pause(service, taker.attempt, actor="account:ada", reason="fire alarm")
    with pytest.raises(ConflictError, match="cannot be continued"):  # only the proctor may
        taker("resume")


@pytest.mark.slow
def test_one_device_at_a_time(service, published):
    given = ticket(service, published)
    first = Taker(service, given.token)
    with pytest.raises(ConflictError, match="open on another device"):
        Taker(service, given.token)
    proctoring.release(service, first.attempt, actor="proctor")
    second = Taker(service, given.token)
    assert second.attempt == first.attempt
    with pytest.raises(UnauthorizedError):
        first("current")
    assert second("proceed")["page"] == "item"


@pytest.mark.slow
def test_a_device_whose_reply_was_lost_begins_again(service, published):
    given, key = ticket(service, published), "the text of one device"
    first = taking.begin(service, given.token, key)
    assert taking.begin(service, given.token, key) == first
    taking.check_device(service, first.attempt, first.secret)
    for other in ("", "the text of another"):
        with pytest.raises(ConflictError, match="open on another device"):
            taking.begin(service, given.token, other)
    # After a release the secret is a new one, also for the same device.
    proctoring.release(service, first.attempt, actor="proctor")
    second = taking.begin(service, given.token, key)
    assert second.attempt == first.attempt
    assert second.secret != first.secret
    assert taking.begin(service, given.token, key) == second
    with pytest.raises(UnauthorizedError):
        taking.check_device(service, first.attempt, first.secret)
    proctoring.void(service, first.attempt, actor="proctor", reason="for a test")
    with pytest.raises(GoneError, match="was taken"):
        taking.begin(service, given.token, key)


def test_tickets_open_before_they_expire(service, published, clock):
    now = clock.utc
    with pytest.raises(InputError, match="`expires` argument must be a time after `opens`"):
        ticket(service, published, opens=now + timedelta(hours=1), expires=now)


def test_tickets(service, published, clock):
    now = clock.utc
    early = ticket(service, published, opens=now + timedelta(hours=1))
    with pytest.raises(ConflictError, match="not valid yet"):
        taking.begin(service, early.token)
    late = ticket(service, published, expires=now + timedelta(hours=1))
    clock.move(7200)
    with pytest.raises(GoneError, match="expired"):
        taking.begin(service, late.token)
    taking.begin(service, early.token)
    revoked = ticket(service, published)
    people.revoke_ticket(service, revoked.id, actor="test")
    with pytest.raises(GoneError, match="no longer valid"):
        taking.begin(service, revoked.token)
    with pytest.raises(NotFoundError):
        taking.begin(service, "guess")
    with pytest.raises(InputError, match="extra_time_50, pause"):
        ticket(service, published, accommodations=["untimed"])
    library.retire(service, published, actor="test")
    with pytest.raises(ConflictError, match="retired"):
        ticket(service, published)


def test_reopening_adds_its_seconds_however_late_the_time_limit_was_noticed(service, clock):
    section = {"kind": "fixed", "items": ["q0", "q1"], "time_limit": 500}
    test = publish(service, sections=[section])
    taker = Taker(service, ticket(service, test).token)
    clock.move(7200)
    assert taker("current")["page"] == "finished"
    proctoring.reopen(service, taker.attempt, actor="proctor", reason="power cut", seconds=300)
    left = taker("current")["time"]
    assert (left["test"], left["section"]) == (300, 300)


def test_the_grace_of_a_wide_limit_does_not_open_a_narrow_one(service, clock):
    """The item's time was over for 81 seconds, that of the section for one."""
    section = {"kind": "fixed", "items": ["q0", "q1"], "time_limit": 100, "item_time_limit": 20}
    test = publish(service, sections=[section], time_limit=None)
    taker = Taker(service, ticket(service, test).token)
    clock.move(101)
    with pytest.raises(ConflictError):
        taker.answer()
    assert attempt_of(service, taker.attempt).progress.answers["q0"].response is None


def test_no_ticket_for_a_test_that_another_process_retired(service, published, database):
    other = open_service(database)
    ticket(other, published)  # it has the test in memory
    library.retire(service, published, actor="test")
    with pytest.raises(ConflictError, match="retired"):
        ticket(other, published)


def row_of(service, name):
    return service.row(tables.attempts.select().where(tables.attempts.c.id == name))


def test_an_attempt_out_of_time_ends_by_itself(service, taker, clock):
    hook = webhooks.add_webhook(service, "https://a.example/", ["attempt.finished"], actor="test")
    to_adaptive(taker)
    taker.answer()
    clock.move(595)
    assert end_due(service) == []
    assert row_of(service, taker.attempt).status == "running"
    clock.move(10)
    end_due(service)
    row = row_of(service, taker.attempt)
    assert (row.status, row.due) == ("finished", "")
    (result,) = results.result_table(service, row.test).to_dict("records")
    assert (result["attempt"], result["reason"]) == (taker.attempt, "time limit")
    assert result["n_items"] == 1
    assert results.responses_of(service, row.test).subject_ids.tolist() == [taker.attempt]
    sent = service.rows(tables.deliveries.select().where(tables.deliveries.c.webhook == hook.id))
    assert [json.loads(message.body)["data"]["attempt"] for message in sent] == [taker.attempt]
    assert taker("current")["page"] == "finished"
    events = proctoring.attempt_events(service, taker.attempt)
    assert [e["actor"] for e in events if e["kind"] in ("timeout", "finish")] == ["system"] * 2
    assert not check(service).faults


@pytest.mark.slow
def test_breaks_and_sections_end_by_themselves_and_items_wait_for_the_taker(service, taker, clock):
    to_adaptive(taker)
    clock.move(90)  # the item has 60 s: the next one begins when the taker is there
    end_due(service)
    assert len(attempt_of(service, taker.attempt).progress.answers) == 1
    assert taker("current")["saved"] == 1  # without practice
    for _ in range(3):
        taker.answer()
    assert taker.view["page"] == "break"
    clock.move(303)
    end_due(service)
    it = attempt_of(service, taker.attempt)
    assert it.progress.part.kind == "fixed"
    clock.move(123)
    end_due(service)
    it = attempt_of(service, taker.attempt)
    assert (it.progress.status, it.progress.reason) == ("finished", "completed")


@pytest.mark.slow
def test_an_abandoned_attempt_ends(service, clock):
    test = publish(service, time_limit=None, abandoned_after=7200)
    left, paused, held = (
        Taker(service, ticket(service, test, accommodations=["pause"]).token) for _ in range(3)
    )
    for it in (left, paused, held):
        to_adaptive(it)
        clock.move(30)
        it.answer()
    paused("pause")
    proctoring.pause(service, held.attempt, actor="proctor", reason="alarm")
    clock.move(7100)
    end_due(service)
    assert {row_of(service, it.attempt).status for it in (left, paused)} == {"running", "paused"}
    clock.move(200)
    end_due(service)
    for it, used in ((left, 30), (paused, 90)):  # the time after the last step is not counted
        progress = attempt_of(service, it.attempt).progress
        assert (progress.status, progress.reason) == ("finished", "abandoned")
        assert progress.used_test == pytest.approx(used)
    assert row_of(service, held.attempt).status == "paused"
    proctoring.reopen(service, left.attempt, actor="proctor", reason="came back")
    assert left("current")["page"] == "item"
    assert not check(service).faults


def test_a_damaged_attempt_does_not_hold_up_others(service, published, clock):
    broken, whole = (Taker(service, ticket(service, published).token) for _ in range(2))
    with service.database.writing():
        service.database.run(
            tables.attempt_seals.update()
            .where(tables.attempt_seals.c.attempt == broken.attempt)
            .values(seal="x")
        )
    clock.move(700)
    assert end_due(open_service(service.database, clock=clock)) == [broken.attempt]
    assert row_of(service, whole.attempt).status == "finished"


@pytest.mark.slow
def test_staff_finish_an_attempt(service, taker, clock):
    to_adaptive(taker)
    taker.answer()
    proctoring.finish(service, taker.attempt, actor="proctor", reason="completed")
    assert taker("current")["report"]["score"] is not None
    (result,) = results.result_table(service, row_of(service, taker.attempt).test).to_dict(
        "records"
    )
    assert result["reason"] == "by staff"
    with pytest.raises(ConflictError):
        proctoring.finish(service, taker.attempt, actor="proctor", reason="again")
    # Whatever the reason says, there is more to answer.
    proctoring.reopen(service, taker.attempt, actor="proctor", reason="by mistake")
    assert taker("current")["page"] == "item"
    assert not check(service).faults


@pytest.mark.slow
def test_void_and_reopen(service, taker, clock):
    to_adaptive(taker)
    taker.answer()
    shown = taker.view["item"]["number"]
    proctoring.void(service, taker.attempt, actor="proctor", reason="copied")
    assert taker("current")["page"] == "void"
    proctoring.reopen(service, taker.attempt, actor="proctor", reason="it was not them")
    assert taker("current")["item"]["number"] == shown
    clock.move(10_000)
    assert taker("current")["page"] == "finished"
    proctoring.reopen(service, taker.attempt, actor="proctor", reason="power cut", seconds=20_000)
    assert taker("current")["page"] == "item"
    with pytest.raises(ConflictError, match="running"):
        proctoring.reopen(service, taker.attempt, actor="proctor", reason="again")


@pytest.mark.slow
def test_erased_people_leave_a_whole_log(service, published):
    person = people.add_person(
        service, name="Ada Lovelace", email="ada@example.org", external="s-1", actor="test"
    )
    assert people.add_person(service, external="s-1", actor="test") == person
    taker = Taker(service, ticket(service, published, person=person).token)
    to_adaptive(taker)
    unused = ticket(service, published, person=person)
    people.erase(service, person, actor="test")
    assert people.people_table(service).empty
    taker.answer()
    assert attempt_of(service, taker.attempt).head["person"] == person
    with pytest.raises(GoneError):
        taking.begin(service, unused.token)
    with pytest.raises(NotFoundError):
        people.erase(service, person, actor="test")
    with service.database.reading():
        text = " ".join(
            str(tuple(row))
            for name in service.database.tables()
            for row in service.database.execute(f"SELECT * FROM {name}").fetchall()
        )
    assert "Lovelace" not in text
    assert "ada@" not in text


def test_what_is_deleted_is_not_left_in_the_file(tmp_path):
    path = tmp_path / "tests.db"
    with open_service(path, create=True) as service:
        person = people.add_person(service, name="Ada Lovelace " * 500, actor="test")
    assert b"Lovelace" in path.read_bytes()
    with open_service(path) as service:
        people.erase(service, person, actor="test")
    assert [p.name for p in tmp_path.iterdir() if b"Lovelace" in p.read_bytes()] == []


@pytest.mark.slow
def test_another_process_goes_on(service, taker, clock, address, monkeypatch):
    """Two services on one database (two workers) see the same attempt."""
    other = open_service(service.database, clock=clock)
    to_adaptive(taker)
    for worker in (other, service, other, service):
        taker.service = worker
        taker.answer()
    assert taker.view["page"] == "break"
    assert len(attempts.attempt_of(service, taker.attempt).progress.answers) == 5
    service.store.check()


@pytest.mark.slow
def test_a_clock_that_is_set_back(database, clock):
    """Time limits go on by the monotonic clock, and another worker's time is never negative."""
    service = open_service(database, create=True, clock=clock)
    other = open_service(database, clock=clock)
    test = publish(service, time_limit=600)
    taker = Taker(service, ticket(service, test).token)
    to_adaptive(taker)
    before = taker("current")["time"]["test"]
    clock.utc -= timedelta(hours=1)
    clock.monotonic += 30
    assert taker("current")["time"]["test"] == before - 30
    for at in range(4):
        taker.service = (service, other)[at % 2]
        taker("current")
        taker.answer()
    assert taker.view["page"] == "break"
    assert 0 < taker.view["time"]["test"] <= before
    taker("proceed")
    clock.move(600)
    assert taker("current")["status"] == "finished"
    events = proctoring.attempt_events(service, taker.attempt)
    assert min(event["elapsed"] for event in events) >= 0
    assert not check(service).faults


@pytest.mark.slow
def test_a_full_disk(tmp_path):
    """Nothing is acknowledged while the disk is full; the test goes on when there is space."""
    database = open_database(str(tmp_path / "tests.db"), create=True)
    service = open_service(database, create=True)
    test = publish(service)
    takers = [Taker(service, ticket(service, test).token) for _ in range(3)]
    for taker in takers:
        to_adaptive(taker)
    limit = {}

    @event.listens_for(database.engine, "checkout")
    def limit_pages(connection, *_):
        for pages in limit.values():
            connection.execute(f"PRAGMA max_page_count={pages}").close()

    with database.reading():
        limit["pages"] = database.execute("PRAGMA page_count").fetchone()[0]
    acknowledged = [0, 0, 0]

    def answer_in_turn():
        for n in range(12):
            takers[n % 3].answer()
            acknowledged[n % 3] += 1

    with pytest.raises(StoreError, match="full"):
        answer_in_turn()
    with pytest.raises(StoreError, match="full"):
        takers[sum(acknowledged) % 3].answer()
    limit["pages"] = 1_000_000
    for at, taker in enumerate(takers):
        while taker("current")["section"]["kind"] == "adaptive":
            taker.answer()
            acknowledged[at] += 1
        answers = attempt_of(service, taker.attempt).progress.answers
        assert acknowledged[at] == 4
        assert len(answers) == 5  # and that of the practice
    assert not check(service).faults


@pytest.mark.slow
def test_a_failed_transaction_is_forgotten(service, taker, monkeypatch):
    to_adaptive(taker)
    before = taker.view
    append = service.attempt_log.append

    def fails(*arguments):
        append(*arguments)
        raise OSError("disk full")

    monkeypatch.setattr(service.attempt_log, "append", fails)
    with pytest.raises(OSError, match="disk full"):
        taker.answer()
    monkeypatch.undo()
    assert taker("current") == before
    taker.answer()
    service.store.check()


def test_the_audit_log(service, published):
    from irtcat.service.outbox.audit import audit_entries

    given = ticket(service, published)
    entries = audit_entries(service, verified=True)
    assert entries["action"].tolist() == ["ticket issued", "person added", "test published"]
    assert entries["details"][0]["ticket"] == given.id
    assert given.token not in str(entries.to_dict())


def test_a_report_of_another_test_is_refused(service):
    report = report_of(json.dumps(definition().to_json()))
    other = definition(title="Another")
    with pytest.raises(InputError, match="one of this definition and bank"):
        library.publish(service, other, bank(), items(), actor="test", report=report)


@pytest.mark.slow
def test_a_release_while_the_attempt_is_used(service, published):
    """Beginning on another device and requests of the attempt take their locks in one order."""
    given = ticket(service, published)
    first = Taker(service, given.token)
    faults = []

    def read():
        for _ in range(15):
            try:
                proctoring.note(service, first.attempt, actor="test", text="here")
            except Exception as error:  # reported by the test below
                faults.append(error)

    def move():
        for _ in range(8):
            try:
                proctoring.release(service, first.attempt, actor="test")
                taking.begin(service, given.token)
            except Exception as error:  # reported by the test below
                faults.append(error)

    threads = [threading.Thread(target=work) for work in (read, move, read)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert not any(thread.is_alive() for thread in threads)
    assert not faults


def test_two_devices_begin_at_once(service, published):
    """One ticket makes one attempt, on one device, however many ask for it."""
    given = ticket(service, published)
    outcomes = []

    def start():
        try:
            outcomes.append(taking.begin(service, given.token).attempt)
        except ConflictError as error:
            outcomes.append(str(error))

    threads = [threading.Thread(target=start) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert sum(outcome.startswith("a_") for outcome in outcomes) == 1
    assert sum("another device" in outcome for outcome in outcomes) == 3
