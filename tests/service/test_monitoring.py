"""Alarms of the live board, exposure over target, and the replay of a session."""

import numpy as np
import pytest

from irtcat.diagnose import person_fit
from irtcat.service.attempts import people, proctoring
from irtcat.service.attempts.attempt import attempt_of
from irtcat.service.base.errors import NotFoundError
from irtcat.service.definition import categories_as_responses
from tests.service.helpers import publish
from tests.service.test_taking import Taker, to_adaptive

LONG = [
    {"kind": "adaptive", "title": "Part 1", "config": {"max_items": 12}, "rapid": {"seconds": 2}}
]


def take(service, test):
    return Taker(service, people.issue_ticket(service, test, actor="test").token)


def kinds(board):
    return {row.attempt: {alarm.kind for alarm in row.alarms} for row in board.itertuples()}


def test_alarms_of_speed_silence_and_time(service, clock):
    taker = take(service, publish(service))
    to_adaptive(taker)
    row = proctoring.live_board(service).iloc[0]
    assert (row["kind"], row["left"], row["silent"], row["alarms"]) == ("adaptive", 600, 0, ())
    clock.move(1)
    taker.answer()
    clock.move(5)
    taker.answer()
    assert kinds(proctoring.live_board(service)) == {taker.attempt: {"rapid"}}
    assert proctoring.live_board(service).iloc[0]["alarms"][0].text == "1 answer too fast"
    clock.move(45)
    assert kinds(proctoring.live_board(service, silent_minutes=0.5)) == {
        taker.attempt: {"rapid", "silent"}
    }
    proctoring.pause(service, taker.attempt, actor="test", reason="a question")
    clock.move(10_000)
    assert kinds(proctoring.live_board(service)) == {taker.attempt: {"rapid"}}
    proctoring.resume(service, taker.attempt, actor="test")
    clock.move(290)
    row = proctoring.live_board(service).iloc[0]
    assert {alarm.kind for alarm in row["alarms"]} == {"rapid", "time"}
    assert row["left"] == 600 - 51 - 290
    clock.move(400)
    assert "the time is over" in [a.text for a in proctoring.live_board(service).iloc[0]["alarms"]]


@pytest.mark.slow
def test_alarm_of_aberrant_patterns(service, clock):
    test = publish(service, sections=LONG)
    odd, usual = take(service, test), take(service, test)
    difficulty = dict(zip(*_difficulties(service, odd), strict=True))
    median = np.median(list(difficulty.values()))
    for number in range(10):
        if number == 9:
            assert kinds(proctoring.live_board(service))[odd.attempt] == set()
        for taker, turned in ((odd, True), (usual, False)):
            clock.move(3)
            shown = attempt_of(service, taker.attempt).progress.current
            taker.answer(right=(difficulty[shown] < median) != turned)
    board = proctoring.live_board(service).set_index("attempt")
    assert kinds(board.reset_index()) == {odd.attempt: {"pattern"}, usual.attempt: set()}
    # The value is that of person_fit on the answers alone.
    it = attempt_of(service, odd.attempt)
    bank = it.test.bank
    values = np.full((1, bank.n_items), -1)
    for item, answer in it.progress.answers.items():
        values[0, bank.positions([item])] = answer.code
    expected = person_fit(bank, categories_as_responses(bank, values))["lz_star"].iloc[0]
    assert board.loc[odd.attempt, "lz_star"] == pytest.approx(expected)
    # Another answer is taken into account.
    odd.answer(right=True)
    again = proctoring.live_board(service).set_index("attempt").loc[odd.attempt, "lz_star"]
    assert again != pytest.approx(expected)


def test_the_pattern_of_changed_answers(service, clock):
    """As many answers as before, all of them changed: lz* stayed at 1.7, and is -6.0."""
    names = [f"q{n}" for n in range(12)]
    sections = [{"kind": "fixed", "items": names, "review": True}]
    taker = take(service, publish(service, sections=sections, time_limit=None))
    for at in range(12):
        clock.move(3)
        taker.answer(right=at < 6)
    assert kinds(proctoring.live_board(service)) == {taker.attempt: set()}
    for at in range(12):
        clock.move(3)
        taker("go", place=at + 1)
        taker.answer(right=at >= 6)
    assert kinds(proctoring.live_board(service)) == {taker.attempt: {"pattern"}}


def _difficulties(service, taker):
    table = attempt_of(service, taker.attempt).test.bank.to_frame()
    return table.index, table["b"]


@pytest.mark.slow
def test_exposure_over_target(service):
    test = publish(service)
    for _ in range(3):
        to_adaptive(take(service, test))
    assert proctoring.exposure_over_target(service, test).empty  # no target
    sections = [
        {
            "kind": "adaptive",
            "config": {"max_items": 2, "exposure": {"name": "sympson-hetter", "rate": 0.5}},
        }
    ]
    limited = publish(service, sections=sections)
    assert proctoring.exposure_over_target(service, limited).empty  # no session
    for _ in range(8):
        take(service, limited)
    table = proctoring.exposure_over_target(service, limited)
    pool = attempt_of(service, take(service, limited).attempt).test.pools[0]
    counts = service.store.counts(
        pool, attempt_of(service, take(service, limited).attempt).test.definition.sections[0].config
    )
    assert np.max(counts.administered) <= 10
    assert (table["rate"] > table["target"]).all()


def test_replay_says_why(service, clock):
    taker = take(service, publish(service))
    to_adaptive(taker)
    for right in (True, False):
        clock.move(4)
        taker.answer(right)
    replay = proctoring.replay(service, taker.attempt, 2)
    assert [step.number for step in replay.steps] == [1, 2, 3]
    assert replay.steps[0].why.startswith("The greatest value by mfi")
    assert [step.code for step in replay.steps] == [1, 0, None]
    assert [step.seconds for step in replay.steps] == [4.0, 4.0, None]
    assert replay.steps[2].estimates == {}
    session = service.store.resume(f"{taker.attempt}.2")
    frame = replay.to_frame()
    np.testing.assert_allclose(frame["theta"][:2], session.to_frame()["theta"])
    np.testing.assert_allclose(frame["se"][:2], session.to_frame()["se"])
    for step in replay.steps:
        assert step.item in step.candidates.index
        assert step.candidates["rank"].iloc[0] == 1
    assert replay.reason == ""
    with pytest.raises(NotFoundError, match="no adaptive section"):
        proctoring.replay(service, taker.attempt, 4)
    with pytest.raises(NotFoundError, match="no such attempt"):
        proctoring.replay(service, "a_none", 2)


def test_attempts_in_any_state(service, clock):
    test = publish(service)
    first, second = take(service, test), take(service, test)
    to_adaptive(first)
    proctoring.void(service, second.attempt, actor="test", reason="a trial")
    table = proctoring.board(service, test, None, latest=9).set_index("attempt")
    assert table["status"].to_dict() == {first.attempt: "running", second.attempt: "void"}
    assert table.loc[first.attempt, "answers"] == 1
    person = table.loc[first.attempt, "person"]
    assert proctoring.board(service, statuses=None, person=person)["attempt"].tolist() == [
        first.attempt
    ]
    assert len(proctoring.board(service, statuses=None, latest=1)) == 1
