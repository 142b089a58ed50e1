"""Proctoring: what staff do with attempts, the live board with its alarms, and replays."""

import functools
import json
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from threading import RLock
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import sqlalchemy as sa
from scipy.stats import binom

from irtcat._common.checks import InputError, argument_error, is_number
from irtcat.cat import EXPOSURE, in_words, retraced
from irtcat.cat.live import Event
from irtcat.cat.rules import greatest_rate
from irtcat.diagnose import person_fit
from irtcat.service.attempts.attempt import Attempt, attempt_of, opened
from irtcat.service.attempts.library import published_test
from irtcat.service.attempts.progress import BY_STAFF, COMPLETED
from irtcat.service.attempts.results import rapid_answers, scored_answers
from irtcat.service.base.errors import ConflictError, NotFoundError
from irtcat.service.definition import Break, Instructions, categories_as_responses
from irtcat.service.storage import tables
from irtcat.service.storage.context import Service


def _conduct(done: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Something that staff do with an attempt: of the service, the attempt and the ``actor``.

    The audit log calls it ``done``; where this is empty, it is in the log of the attempt only.

    Raises:
        ConflictError: where the attempt is in another state.
        InputError: for an empty or too long text.
    """

    def decorate(act: Callable[..., None]) -> Callable[..., None]:
        @functools.wraps(act)
        def conduct(service: Service, attempt: str, *, actor: str, **given: Any) -> None:
            for name in given.keys() & {"reason", "text"}:
                given[name] = _text(name, given[name])
            with opened(service, attempt, actor=actor) as it:
                act(it, **given)
                if done:
                    service.acted(actor, done, attempt=attempt, **given)

        return conduct

    return decorate


def _text(argument: str, value: Any) -> str:
    if not isinstance(value, str) or not value.strip() or len(value) > 2000:
        raise argument_error(argument, "a text of 1 to 2,000 characters", value)
    return value.strip()


@_conduct("attempt paused")
def pause(it: Attempt, *, reason: str) -> None:
    """Stop the clock of a running attempt; the taker sees that the test is paused."""
    it.check_running()
    it.add("pause", reason=reason)


@_conduct("attempt resumed")
def resume(it: Attempt) -> None:
    """Let the clock of a paused attempt run again."""
    if it.progress.status != "paused":
        raise ConflictError(f"The attempt is {it.progress.status}.")
    it.add("resume")


@_conduct("attempt extended")
def extend(it: Attempt, *, seconds: float, reason: str) -> None:
    """Add time to the limits of the test and of the current section."""
    if not is_number(seconds) or not 0 < seconds <= 24 * 3600:
        raise argument_error("seconds", "a number above 0, at most a day", seconds)
    if it.progress.is_over:
        raise ConflictError("The attempt is over. Reopen it with more time.")
    it.add("extend", seconds=float(seconds), reason=reason)


@_conduct("attempt finished")
def finish(it: Attempt, *, reason: str) -> None:
    """End an attempt now; the answers so far are scored, as when its time is over."""
    if it.progress.is_over:
        raise ConflictError("The attempt is over.")
    it.add("finish", reason=BY_STAFF, text=reason)


@_conduct("attempt voided")
def void(it: Attempt, *, reason: str) -> None:
    """End an attempt without a result; its log stays, and it can be reopened."""
    if it.progress.status == "void":
        raise ConflictError("The attempt is void.")
    it.add("void", reason=reason)


@_conduct("attempt reopened")
def reopen(it: Attempt, *, reason: str, seconds: float = 0.0) -> None:
    """Let a person continue an attempt that is over, where it ended.

    The seconds are added to the limits that had passed. An attempt that ended after its last
    section is not reopened.
    """
    if not is_number(seconds) or not 0 <= seconds <= 24 * 3600:
        raise argument_error("seconds", "a number from 0 to a day", seconds)
    progress = it.progress
    if not progress.is_over:
        raise ConflictError(f"The attempt is {progress.status}.")
    if progress.status == "finished" and progress.reason == COMPLETED:
        raise ConflictError("The attempt is complete: there is nothing left to answer.")
    it.add("reopen", reason=reason, seconds=float(seconds))
    if progress.part is None:
        it.enter(progress.section + 1)
    elif progress.current is None and progress.items and not progress.to_review():
        it.add("show", item=progress.items[-1])


@_conduct("")
def note(it: Attempt, *, text: str) -> None:
    """Add a note to the log of an attempt."""
    it.add("note", text=text)


@_conduct("device released")
def release(it: Attempt) -> None:
    """Let the person continue on another device, with the same ticket."""
    if it.progress.is_over:
        raise ConflictError("The attempt is over.")
    it.add("release")
    it.service.change(tables.attempts, it.id, device="")


def board(
    service: Service,
    test: str | None = None,
    statuses: Sequence[str] | None = ("running", "paused"),
    *,
    person: str | None = None,
    latest: int | None = None,
) -> pd.DataFrame:
    """Attempts, the first ones first: who, where, how long, the last sign.

    ``statuses`` of None are all; with ``latest`` there are only so many, the latest first.
    """
    columns = tables.attempts.c
    shown = (columns.test, columns.person, columns.status, columns.summary, columns.started)
    statement = sa.select(columns.id.label("attempt"), *shown, columns.updated, columns.device)
    if statuses is not None:
        statement = statement.where(columns.status.in_(statuses))
    for column, value in ((columns.test, test), (columns.person, person)):
        statement = statement if value is None else statement.where(column == value)
    order = columns.started if latest is None else columns.started.desc()
    frame = service.frame(statement.order_by(order).limit(latest))
    summaries = [json.loads(text) for text in frame.pop("summary")]
    return frame.assign(
        device=frame["device"].astype(bool),
        section=[summary.get("section", 0) + 1 for summary in summaries],
        answers=[summary.get("answered", 0) for summary in summaries],
        seconds=[summary.get("seconds", 0.0) for summary in summaries],
        waiting=[len(summary.get("waiting", ())) for summary in summaries],
    )


def attempt_events(service: Service, attempt: str) -> list[Event]:
    """The verified log of an attempt."""
    with service.database.reading(at_once=True):
        return attempt_of(service, attempt).events()


SILENT_MINUTES = 5.0
"""Minutes without a sign after which there is an alarm: longer than people read one item."""

LEAST_ANSWERS = 10
"""Answers from which lz* is looked at; its distribution is far from normal below."""

LZ_STAR_LIMIT = -2.326
"""The lowest 1 % of a standard normal. In adaptive tests lz* varies less than that (van
Krimpen-Stoop & Meijer, 1999), so that fewer takers than 1 % are below it by chance."""

OVER_TARGET = 0.01
"""An item is over its target where chance gives as many uses with this probability at most."""

BLOCK = 64
"""Takers whose patterns are computed together; computing empty rows takes no time to speak of."""

CANDIDATES = 5
"""Candidates that a step of a replay lists."""


class Alarm(NamedTuple):
    """What staff should look at: rapid answers, their pattern (lz*), silence, or the time."""

    kind: str
    text: str


class Watched:
    """An attempt as the board last saw it; the attempt reads only what was added since.

    Attributes:
        lock: held while the attempt is brought up to date.
        updated: time stamp of the last event that is applied.
        lz_star: lz* of the answers so far; NaN without a value.
        fitted: category by item of the answers that it was computed from.
    """

    def __init__(self, service: Service, name: str):
        self.attempt, self.lock, self.updated = attempt_of(service, name), RLock(), ""
        self.lz_star = math.nan
        self.rapid: list[str] = []
        self.fitted: dict[str, int] = {}
        self.codes: dict[str, int] = {}

    def bring_up_to_date(self, service: Service, updated: str) -> None:
        """Apply what was added, if the table of attempts says that there is something."""
        with self.lock:
            if updated == self.updated:
                return
            with service.database.reading():
                self.attempt.catch_up()
            self.updated = updated
            self.rapid = rapid_answers(self.attempt)
            given = self.attempt.progress.answers
            self.codes = {
                name: code
                for name, code in scored_answers(self.attempt).items()
                if code is not None and name in given
            }


def live_board(
    service: Service, test: str | None = None, *, silent_minutes: float = SILENT_MINUTES
) -> pd.DataFrame:
    """Attempts that are running or paused, with the time that is left and alarms.

    The pattern of answers is checked from 10 scored answers on, by lz* of the answers so far at the
    MAP estimate of ability (`irtcat.diagnose.person_fit`); below -2.33 there is an alarm.

    Returns:
        The columns of `board`, and ``title`` (of the section),
        ``kind`` (of the section), ``left`` (seconds of the tightest limit of the test or the
        section, NaN without one), ``silent`` (seconds since the last event), ``rapid`` (number of
        too fast answers), ``lz_star`` and ``alarms`` (a tuple of `Alarm`).

    References:
        Snijders (2001), Psychometrika 66, 331-342; van Krimpen-Stoop & Meijer (1999), Applied
        Psychological Measurement 23, 327-345.
    """
    if not is_number(silent_minutes) or silent_minutes <= 0:
        raise argument_error("silent_minutes", "a number above 0", silent_minutes)
    frame = board(service, test)
    watched: list[Watched] = []
    for name, updated in frame[["attempt", "updated"]].to_numpy(object):
        watched.append(service.watched.get(name, functools.partial(Watched, service, name)))
        watched[-1].bring_up_to_date(service, updated)
    _fit_patterns(watched)
    rows = [_signs(state, 60 * silent_minutes) for state in watched]
    return frame.join(pd.DataFrame(rows, columns=SIGNS, index=frame.index))


def _fit_patterns(watched: list[Watched]) -> None:
    """Compute lz* of the attempts whose answers changed, those of one test together."""
    by_test: dict[str, list[Watched]] = {}
    for state in watched:
        if len(state.codes) >= LEAST_ANSWERS and state.fitted != state.codes:
            by_test.setdefault(state.attempt.test.id, []).append(state)
    for states in by_test.values():
        bank = states[0].attempt.test.bank
        # Whole blocks, so that the functions are compiled once, not for every number of takers.
        values = np.full((-(-len(states) // BLOCK) * BLOCK, bank.n_items), -1)
        for row, state in enumerate(states):
            values[row, bank.positions(list(state.codes))] = list(state.codes.values())
        try:
            measures = person_fit(bank, categories_as_responses(bank, values))["lz_star"]
        except InputError:  # a model without lz*
            measures = pd.Series(np.nan, index=range(len(states)))
        for state, value in zip(states, measures, strict=False):
            state.lz_star, state.fitted = float(value), state.codes


SIGNS = ["title", "kind", "left", "silent", "rapid", "lz_star", "alarms"]
"""Columns of the board that follow from the log of an attempt."""


def _signs(state: Watched, silent_after: float) -> tuple[Any, ...]:
    """The values of `SIGNS`."""
    with state.lock:
        attempt = state.attempt
        progress, part = attempt.progress, attempt.progress.part
        silent = attempt.seconds()
        remaining = attempt.remaining()
        left = remaining.test if isinstance(part, Break) else min(remaining.test, remaining.section)
        alarms = []
        if state.rapid:
            alarms.append(Alarm("rapid", f"{_counted(len(state.rapid), 'answer')} too fast"))
        if state.lz_star < LZ_STAR_LIMIT:
            text = f"answers that do not fit together (lz* {state.lz_star:.1f})"
            alarms.append(Alarm("pattern", text))
        running = progress.status == "running"
        if running and not isinstance(part, (Break, Instructions)) and silent >= silent_after:
            alarms.append(Alarm("silent", f"no sign for {_counted(int(silent // 60), 'minute')}"))
        if running and left <= max(attempt.test.definition.time_warnings, default=0.0):
            text = "the time is over" if left <= 0 else "the time is almost over"
            alarms.append(Alarm("time", text))
        title, kind = ("", "") if part is None else (part.title, part.kind)
        left = math.nan if math.isinf(left) else max(left, 0.0)
        return title, kind, left, silent, len(state.rapid), state.lz_star, tuple(alarms)


def _counted(n: int, noun: str) -> str:
    return f"{n} {noun}" if n == 1 else f"{n} {noun}s"


def exposure_over_target(service: Service, test: str) -> pd.DataFrame:
    """Items that the sessions of a test use more often than its exposure rules allow.

    An item is listed where its rate is above the target, and so many uses have a probability of at
    most 1 % at the target.

    Returns:
        Columns ``section`` (from 1), ``item``, ``uses``, ``sessions``, ``rate`` and ``target``, the
        highest rate first. Empty for sections whose rule sets no target.
    """
    published = published_test(service, test)
    frames = []
    for at, pool in published.pools.items():
        section = published.definition.adaptive[at]
        rule = section.config.exposure
        target = greatest_rate(rule) if EXPOSURE[rule.name].limit == "rate" else None
        if target is None:
            continue
        counts = service.store.counts(pool, section.config)
        uses = np.atleast_2d(np.asarray(counts.administered, float)).sum(axis=0)
        sessions = float(np.sum(np.asarray(counts.sessions)))
        if not sessions:
            continue
        over = (uses / sessions > target) & (binom.sf(uses - 1, sessions, target) <= OVER_TARGET)
        used = {"section": at + 1, "item": pool.item_ids[over], "uses": uses[over].astype(int)}
        rates = {"sessions": int(sessions), "rate": uses[over] / sessions, "target": target}
        if over.any():
            frames.append(pd.DataFrame(used | rates).sort_values("rate", ascending=False))
    columns = ["section", "item", "uses", "sessions", "rate", "target"]
    return pd.concat(frames, ignore_index=True) if frames else pd.DataFrame(columns=columns)


class Step(NamedTuple):
    """One item of an adaptive section.

    Attributes:
        number: its place in the section, from 1.
        item: its id.
        why: one sentence on why it was chosen.
        response: the response; None without one.
        code: its category; None while there is none.
        seconds: time until the answer; None without one.
        estimates: theta (theta_1, ... for several abilities) and se after the answer; empty without
            one.
        candidates: the best candidates at that time, as of `irtcat.cat.explain`.
    """

    number: int
    item: str
    why: str
    response: Any
    code: int | None
    seconds: float | None
    estimates: dict[str, float]
    candidates: pd.DataFrame


@dataclass(frozen=True)
class Replay:
    """An adaptive section, replayed from its log.

    Attributes:
        section: its position from 0.
        steps: the items in their order.
        reason: why it ended; empty while it goes on.
        flags: what to know about its estimate (see `irtcat.cat.Session.flags`).
    """

    section: int
    steps: tuple[Step, ...]
    reason: str
    flags: tuple[str, ...]

    def to_frame(self) -> pd.DataFrame:
        """The steps as a table: item, code, seconds, theta and se after each answer, why."""
        rows = [
            {"item": s.item, "code": s.code, "seconds": s.seconds, **s.estimates, "why": s.why}
            for s in self.steps
        ]
        return pd.DataFrame(rows, index=pd.RangeIndex(1, len(rows) + 1, name="number"))


def replay(service: Service, attempt: str, section: int) -> Replay:
    """An adaptive section step by step, with the reason why each item was chosen.

    The log of the session is verified and replayed through the engine: the reasons are those of the
    time when the item was chosen.

    Sections are counted from 0.

    Raises:
        NotFoundError: for an unknown attempt, or a section that it has not reached or that is not
            adaptive.
        StoreError: for a log that was changed.
    """
    it = attempt_of(service, attempt)
    if section not in it.progress.sessions:
        raise NotFoundError("The attempt has no adaptive section with this number.")
    session = service.store.resume(it.progress.sessions[section])
    estimates = session.to_frame().drop(columns="answer").to_dict("index")
    steps: list[Step] = []
    for event, then, candidates in retraced(session):
        for item in event["items"]:
            answer = it.progress.answers.get(item)
            best = candidates.head(CANDIDATES)
            shown = best if item in best.index else pd.concat([best, candidates.loc[[item]]])
            steps.append(
                Step(
                    number=len(steps) + 1,
                    item=item,
                    why=in_words(then, candidates, item),
                    response=None if answer is None else answer.response,
                    code=None if answer is None else answer.code,
                    seconds=None if answer is None else answer.seconds,
                    estimates={str(k): float(v) for k, v in estimates.get(item, {}).items()},
                    candidates=shown,
                )
            )
    return Replay(section, tuple(steps), session.reason, tuple(session.flags()))
