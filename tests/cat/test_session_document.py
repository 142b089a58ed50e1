"""Sessions as JSON: digests, keys, valid logs; their clock and ids."""

import copy
import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import numpy as np
import pytest

from irtcat import InputError, ItemBank
from irtcat.cat import Config, Session, part, prepare, run
from irtcat.cat.live.log import document_digest
from irtcat.cat.rules.exposure import blank_counts

RNG = np.random.default_rng(8)
BANK = ItemBank.from_parameters(RNG.uniform(0.7, 2.0, 20), RNG.normal(size=20))
CONFIG = Config(stopping="se<0.2 or n>=6", max_items=8)
PAIRS = Config(stopping="n>=6", max_items=6, batch=2, exposure=part("restricted", rate=0.9))
POOLS = {config: prepare(BANK, config) for config in (CONFIG, PAIRS)}


def begin(config=CONFIG, **settings):
    if config is PAIRS:
        settings["counts"] = blank_counts(PAIRS.exposure, 20)
    return Session.begin(BANK, config, pool=POOLS[config], **settings)


def load(document, config=CONFIG, **settings):
    return Session.from_json(BANK, document, POOLS[config], **settings)


def half_done(config):
    """A session with five answers, the last of them (in batches) alone."""
    session = begin(config, seed=3, subject="anna")
    for k in range(5):
        session.answer(session.asked[-1], k % 2, 1.5)
    return session


def over():
    session = begin()
    while not session.is_over:
        session.answer(session.asked[0], 1, 1.5)
    return session


def leaves_of(value, path=()):
    """The paths of all values in a document that hold no others."""
    if isinstance(value, dict) and value:
        return [leaf for k, v in value.items() for leaf in leaves_of(v, (*path, k))]
    if isinstance(value, list) and value:
        return [leaf for k, v in enumerate(value) for leaf in leaves_of(v, (*path, k))]
    return [path]


def others(value):
    """Other values that could stand there."""
    if isinstance(value, bool) or value is None or isinstance(value, (list, dict)):
        return [1, "x"]
    if isinstance(value, str):
        return [value + "x", "", 1, None]
    return [value + 1, -value - 1, value + 0.5, str(value), None, True, [value]]


def changed(document, path, value):
    """A copy of a document with another value at a path."""
    copied = copy.deepcopy(document)
    inner = copied
    for key in path[:-1]:
        inner = inner[key]
    inner[path[-1]] = value
    return copied


def sealed(document, key=None):
    """A document with the digest that it would have, as someone who knows the format makes it."""
    return {**document, "digest": document_digest(document, key)}


@pytest.mark.slow
@pytest.mark.parametrize("config", [CONFIG, PAIRS], ids=["single", "batches"])
def test_no_value_of_a_document_can_be_changed(config):
    document = half_done(config).to_json()
    assert load(document, config).to_json() == document
    paths = leaves_of(document)
    assert len(paths) > 60
    for path in paths:
        value = document
        for key in path:
            value = value[key]
        for other in others(value):
            with pytest.raises(InputError):
                load(changed(document, path, other), config)
    for name in document:
        with pytest.raises(InputError):
            load({k: v for k, v in document.items() if k != name}, config)
    with pytest.raises(InputError):
        load({**document, "more": 1}, config)


@pytest.mark.slow
@pytest.mark.parametrize("config", [CONFIG, PAIRS], ids=["single", "batches"])
def test_a_changed_value_with_its_digest_is_valid_or_refused(config):
    """Without a key a digest can be made anew: what it covers must still be a session."""
    document = half_done(config).to_json()
    taken = 0
    for path in leaves_of(document):
        if path[0] in ("config", "counts", "digest"):
            continue
        value = document
        for key in path:
            value = value[key]
        for other in others(value)[:3]:
            forged = sealed(changed(document, path, other))
            try:
                session = load(forged, config)
            except InputError:
                continue
            taken += 1
            assert np.isfinite(session.estimate()["theta"])
            assert session.to_json() == forged
    assert taken > 10  # another answer, another time: valid sessions, of which only a key can tell


@pytest.mark.slow
def test_events_that_are_lost_moved_or_doubled():
    document = half_done(CONFIG).to_json()
    events = document["events"]
    for k in range(len(events)):
        lost = events[:k] + events[k + 1 :]
        double = events[: k + 1] + events[k:]
        cut = events[:k]
        moved = events[:k] + events[k + 1 : k + 2] + [events[k]] + events[k + 2 :]
        for log in (lost, double, cut, *([moved] if k + 1 < len(events) else [])):
            with pytest.raises(InputError, match="as to_json wrote it"):
                load({**document, "events": log})
        for log in (double, *([lost, moved] if k + 1 < len(events) else [])):
            with pytest.raises(InputError, match="Event"):
                load(sealed({**document, "events": log}))


def test_logs_that_no_test_can_have():
    """Each with its digest; the message names the event."""
    document = half_done(CONFIG).to_json()
    asked = [event["items"][0] for event in document["events"][::2]]
    spare = next(i for i in BANK.item_ids if i not in asked)
    at = document["events"][-1]["at"]
    stop = {"kind": "stop", "reason": "length", "at": at, "elapsed": 0.0}
    for path, value, says in (
        (("events", 1, "code"), 7, "Event 1 .* an answer that .* does not have"),
        (("events", 1, "code"), -2, "does not have"),
        (("events", 3, "item"), spare, "Event 3 .* an item that is not asked"),
        (("events", 4, "items"), [asked[0]], "Event 4 .* asks an item twice"),
        (("events", 4, "items"), [spare, spare], "asks an item twice"),
        (("events", 4, "items"), [asked[2], spare], "more than 1 items at a time"),
        (("events", 4, "items"), ["i99"], "not in the bank"),
        (("events", 4, "items"), [], "no valid items"),
        (("events", 4, "cell"), 0, "a cell that"),
        (("events", 4), stop, "ends after 2 answers, before 6"),
        (("events", 4), {**stop, "reason": "max_items"}, "ends after 2 answers, before 8"),
        (("events", 4), {**stop, "reason": "boredom"}, "a rule that the configuration does not"),
        (("events", 0), stop, "ends before anything is asked"),
        (("events", 1), document["events"][2], "comes before the answer to"),
        (("events", 1, "kind"), "question", "is none of ask, answer, stop"),
        (("events", 1), 5, "is none of ask, answer, stop"),
        (("events", 1, "seconds"), -1.0, "no valid seconds"),
        (("events", 1, "seconds"), float("nan"), "no valid seconds"),
        (("events", 1, "elapsed"), "1", "no valid elapsed"),
        (("events", 1, "at"), "yesterday", "no valid at"),
        (("events", 1, "at"), "2026-01-01T00:00:00+02:00", "no valid at"),
        (("events", 1, "note"), "x", "an unknown field .note."),
        (("started",), "yesterday", "a valid start time"),
        (("prior",), [0.0, -1.0], "the SD above 0"),
        (("prior",), 1.0, "the SD above 0"),
        (("prior",), [0.0, 1.0, 2.0], "the SD above 0"),
        (("seed",), -1, "at least 0"),
        (("id",), "a\nb", "without control characters"),
        (("config",), {"max_items": "x"}, "max_items"),
        (("config",), 5, "config"),
        (("config", "enemies"), 5, "a list of sets of ids"),
        (("counts",), [1, 2], "a session as returned by to_json"),
        (("counts",), [[1], [0], [0], 0], "counts for the bank"),
    ):
        with pytest.raises(InputError, match=says):
            load(sealed(changed(document, path, value)))
    ended = over().to_json()
    with pytest.raises(InputError, match="follows the end"):
        load(sealed({**ended, "events": [*ended["events"], stop]}))
    with pytest.raises(InputError, match="first item asked"):
        load(sealed({**document, "events": []}))


def test_a_session_goes_on_after_its_pretest_items():
    """They are asked beyond ``max_items``."""
    bank = replace(BANK, items=BANK.items.assign(new=np.arange(20) >= 15))
    session = Session.begin(bank, Config(max_items=3, pretest="new", pretest_at=[2]))
    for value in (0, 1, 0):
        session.answer(session.asked[0], value)
    again = Session.from_json(bank, session.to_json())
    assert again.asked == session.asked
    assert not again.answer(again.asked[0], 1)


def test_what_is_no_session():
    document = over().to_json()
    deep: list = []
    for _ in range(100_000):
        deep = [deep]
    for wrong in (
        None,
        5,
        "text",
        [],
        {},
        {"format": "irtcat-session"},
        {**document, "version": "2"},
        {**document, "version": 99},
        {**document, "version": True},
        {**document, "events": {}},
        {**document, "digest": 5},
        {**document, "digest": "é"},
        {**document, "prior": {1, 2}},
        {**document, "prior": deep},
    ):
        with pytest.raises(InputError, match="The `document` argument must be"):
            load(wrong)


def test_a_key_guards_against_forgery():
    session = half_done(CONFIG)
    document = session.to_json(key="correct horse")
    assert load(document, key=b"correct horse").to_frame().equals(session.to_frame())
    plain = session.to_json()
    assert document["digest"] != plain["digest"]
    better = changed(document, ("events", 1, "code"), 1 - document["events"][1]["code"])
    for forged, key in (
        (document, None),
        (document, "another"),
        (plain, "correct horse"),
        (sealed(better), "correct horse"),
        (sealed(better, b"another"), "correct horse"),
        ({**document, "events": document["events"][:-2]}, "correct horse"),
    ):
        with pytest.raises(InputError, match="with the same key") as caught:
            load(forged, key=key)
        assert "horse" not in str(caught.value)
    for wrong in ("", b"", 5):
        with pytest.raises(InputError, match="text or bytes, not empty"):
            session.to_json(key=wrong)


def test_other_programs_may_write_its_numbers_otherwise():
    """1.0 becomes 1 and fields are sorted where JavaScript or a database passes a document on."""

    def passed_on(value):
        if isinstance(value, dict):
            return {k: passed_on(value[k]) for k in sorted(value)}
        if isinstance(value, list):
            return [passed_on(each) for each in value]
        return int(value) if isinstance(value, float) and value.is_integer() else value

    session = half_done(PAIRS)
    document = session.to_json()
    other = json.loads(json.dumps(passed_on(document)))
    assert json.dumps(other) != json.dumps(document)
    again = load(other, PAIRS)
    assert again.asked == session.asked
    assert again.estimate() == session.estimate()
    assert again.to_json()["digest"] == document["digest"]


class Clock:
    """Two clocks that go on when they are moved."""

    def __init__(self):
        self.utc, self.ticks = datetime(2026, 3, 1, 12, tzinfo=UTC), 50.0

    def __call__(self):
        return self.utc, self.ticks

    def move(self, seconds, utc=None):
        self.ticks += seconds
        self.utc += timedelta(seconds=seconds if utc is None else utc)


def test_the_time_of_answers_is_measured():
    clock = Clock()
    session = begin(clock=clock)
    assert session.head["started"] == "2026-03-01T12:00:00.000000+00:00"
    clock.move(4.5, utc=-3600)  # the machine's time is corrected: not by this clock
    session.answer(session.asked[0], 1)
    clock.move(2)
    session.answer(session.asked[0], 1, seconds=0.5)  # what the caller knows better
    answers = [event for event in session.events if event["kind"] == "answer"]
    assert [event["seconds"] for event in answers] == [4.5, 0.5]
    assert [event["elapsed"] for event in answers] == [4.5, 2.0]
    assert float(session.state.seconds) == 5.0
    assert session.events[1]["at"] == "2026-03-01T11:00:00.000000+00:00"
    later = Clock()  # of another process, an hour later by the time in UTC
    later.utc = clock.utc + timedelta(hours=1)
    again = load(session.to_json(), clock=later)
    again.answer(again.asked[0], 1)
    assert again.events[-2]["seconds"] == 3600.0
    later.utc = clock.utc - timedelta(hours=1)  # whose clock is slow
    again = load(session.to_json(), clock=later)
    again.answer(again.asked[0], 1)
    assert again.events[-2]["seconds"] == 0.0
    again.restart_timer()
    later.move(7)
    again.answer(again.asked[0], 1)
    assert again.events[-2]["seconds"] == 7.0


def test_the_times_of_a_batch_add_up():
    clock = Clock()
    session = begin(PAIRS, clock=clock)
    for wait in (10, 20):
        clock.move(wait)
        session.answer(session.asked[0], 1)
    assert float(session.state.seconds) == 30.0


@pytest.mark.slow
def test_a_test_ends_when_its_time_is_over():
    config = Config(stopping="seconds>=60 or n>=8", max_items=8)
    clock = Clock()
    session = Session.begin(BANK, config, clock=clock)
    while not session.is_over:
        clock.move(25)
        session.answer(session.asked[0], 1)
    assert (session.reason, len(session.to_frame())) == ("time", 3)
    assert Session.from_json(BANK, session.to_json()).reason == "time"


def test_times_that_are_none():
    session = begin()
    for wrong in ("3", "", True, float("nan"), float("inf"), -1.0, 10**400, [1], 1j):
        with pytest.raises(InputError, match="The `seconds` argument must be a finite number"):
            session.answer(session.asked[0], 1, seconds=wrong)
    for wrong in (10**400, np.complex128(1), [1], b"1"):
        with pytest.raises(InputError, match="a whole number from 0 to 1"):
            session.answer(session.asked[0], wrong)
    assert len(session.events) == 1


@pytest.mark.parametrize(
    "wrong", ["", "  ", "a\0b", "a\nb", "a\x1b[31m", "\ud800", "a\u2028b", None]
)
def test_ids_are_text_without_control_characters(wrong):
    with pytest.raises(
        InputError, match="`session_id` argument must be text, not empty and without"
    ):
        begin(session_id=wrong)
    if wrong:
        with pytest.raises(InputError, match="`subject` argument must be text, not empty and"):
            begin(subject=wrong)


def test_other_ids_stay_as_they_are():
    for good in ("Ümit 7", "東京", "a/b:c", "👩‍🔬"):
        assert begin(session_id=good, subject=good).id == good
    assert begin(session_id=7).id == "7"
    with pytest.raises(InputError, match="`session_id` argument must be text, not empty"):
        run(BANK, CONFIG, lambda item: 1, session_id="")
    session = run(BANK, CONFIG, lambda item: 1, subject="anna")
    assert load(session.to_json()).head["subject"] == "anna"


def test_an_unknown_estimator_is_refused_with_and_without_calibration():
    for calibration in (None, BANK.simulate(np.zeros(5), seed=1)):
        with pytest.raises(InputError, match="estimator"):
            begin().full_score(calibration, estimator="garanteed")
