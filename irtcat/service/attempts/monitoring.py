"""Monitoring: alarms of attempts under way, exposure over target, and sessions replayed."""

import json
import math
from dataclasses import dataclass
from threading import RLock
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import sqlalchemy as sa
from scipy.stats import binom

from irtcat._common.checks import InputError, argument_error, check_count, is_number
from irtcat.cat import EXPOSURE, in_words, retraced
from irtcat.cat.rules import greatest_rate
from irtcat.diagnose import person_fit
from irtcat.service.attempts import proctoring
from irtcat.service.attempts.attempt import Attempt, attempt_of
from irtcat.service.attempts.library import PublishedTest, published_test
from irtcat.service.attempts.results import rapid_answers, scored_answers
from irtcat.service.base.errors import NotFoundError
from irtcat.service.definition import Adaptive, Break, Instructions, categories_as_responses
from irtcat.service.storage import tables
from irtcat.service.storage.context import Service

ALARMS = {
    "rapid": "answers faster than the limit of the section",
    "pattern": "answers that do not fit together (lz*)",
    "silent": "no sign from the taker",
    "time": "the time is almost over",
}
"""Kinds of alarms of an attempt, and what they mean."""

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
    """What staff should look at.

    Attributes:
        kind: a name of `ALARMS`.
        text: what happened, in words.
    """

    kind: str
    text: str


class Watched:
    """An attempt as the board last saw it; the attempt reads only what was added since.

    Attributes:
        lock: held while the attempt is brought up to date.
        updated: time stamp of the last event that is applied.
        lz_star: lz* of the answers so far, and of how many answers; NaN without a value.
    """

    def __init__(self, attempt: Attempt):
        self.attempt, self.lock, self.updated = attempt, RLock(), ""
        self.lz_star, self.n_fitted = math.nan, -1
        self.rapid: list[str] = []
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

    Args:
        service: the service.
        test: id of a test; all by default.
        silent_minutes: minutes without a sign after which there is an alarm.

    Returns:
        The columns of `irtcat.service.attempts.proctoring.board`, and ``title`` (of the section),
        ``kind`` (of the section), ``left`` (seconds of the tightest limit of the test or the
        section, NaN without one), ``silent`` (seconds since the last event), ``rapid`` (number of
        too fast answers), ``lz_star`` and ``alarms`` (a tuple of `Alarm`).

    References:
        Snijders (2001), Psychometrika 66, 331-342; van Krimpen-Stoop & Meijer (1999), Applied
        Psychological Measurement 23, 327-345.
    """
    if not is_number(silent_minutes) or silent_minutes <= 0:
        raise argument_error("silent_minutes", "a number above 0", silent_minutes)
    board = proctoring.board(service, test)
    watched = [
        _watched(service, name, updated)
        for name, updated in board[["attempt", "updated"]].to_numpy(object)
    ]
    _fit_patterns(watched)
    rows = [_signs(state, 60 * silent_minutes) for state in watched]
    columns = ["title", "kind", "left", "silent", "rapid", "lz_star", "alarms"]
    return board.join(pd.DataFrame(rows, columns=columns, index=board.index))


def _watched(service: Service, name: str, updated: str) -> Watched:
    state: Watched = service.watched.get(name, lambda: Watched(attempt_of(service, name)))
    state.bring_up_to_date(service, updated)
    return state


def _fit_patterns(watched: list[Watched]) -> None:
    """Compute lz* of the attempts whose answers changed, those of one test together."""
    by_test: dict[str, list[Watched]] = {}
    for state in watched:
        if len(state.codes) >= LEAST_ANSWERS and state.n_fitted != len(state.codes):
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
            state.lz_star, state.n_fitted = float(value), len(state.codes)


def _signs(state: Watched, silent_after: float) -> dict[str, Any]:
    """The board's columns of an attempt that follow from its log."""
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
        return {
            "title": "" if part is None else part.title,
            "kind": "" if part is None else part.kind,
            "left": math.nan if math.isinf(left) else max(left, 0.0),
            "silent": silent,
            "rapid": len(state.rapid),
            "lz_star": state.lz_star,
            "alarms": tuple(alarms),
        }


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
    frames = [
        _over_target(service, published, at, section)
        for at, section in enumerate(published.definition.sections)
        if isinstance(section, Adaptive)
    ]
    columns = ["section", "item", "uses", "sessions", "rate", "target"]
    frames = [frame for frame in frames if len(frame)]
    return pd.concat(frames, ignore_index=True) if frames else pd.DataFrame(columns=columns)


def _over_target(service: Service, test: PublishedTest, at: int, section: Adaptive) -> pd.DataFrame:
    rule = section.config.exposure
    target = greatest_rate(rule) if EXPOSURE[rule.name].limit == "rate" else None
    if target is None:
        return pd.DataFrame()
    pool = test.pools[at]
    counts = service.store.counts(pool, section.config)
    uses = np.atleast_2d(np.asarray(counts.administered, float)).sum(axis=0)
    sessions = float(np.sum(np.asarray(counts.sessions)))
    if not sessions:
        return pd.DataFrame()
    over = (uses / sessions > target) & (binom.sf(uses - 1, sessions, target) <= OVER_TARGET)
    frame = pd.DataFrame(
        {
            "section": at + 1,
            "item": pool.item_ids[over],
            "uses": uses[over].astype(int),
            "sessions": int(sessions),
            "rate": uses[over] / sessions,
            "target": target,
        }
    )
    return frame.sort_values("rate", ascending=False)


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

    Args:
        service: the service.
        attempt: id of the attempt.
        section: position of the section, from 0.

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


def attempt_table(
    service: Service, test: str | None = None, *, person: str | None = None, n: int = 500
) -> pd.DataFrame:
    """Attempts in any state, the latest first.

    Args:
        service: the service.
        test: id of a test; all by default.
        person: id of a person; all by default.
        n: most attempts.
    """
    check_count("n", n)
    names = ["id", "test", "person", "status", "started", "updated", "summary"]
    statement = sa.select(*(tables.attempts.c[name] for name in names))
    if test is not None:
        statement = statement.where(tables.attempts.c.test == test)
    if person is not None:
        statement = statement.where(tables.attempts.c.person == person)
    rows = service.rows(statement.order_by(tables.attempts.c.started.desc()).limit(n))
    frame = pd.DataFrame([tuple(row) for row in rows], columns=names)
    summaries = [json.loads(text) for text in frame.pop("summary")]
    frame["answers"] = [summary.get("answered", 0) for summary in summaries]
    frame["seconds"] = [summary.get("seconds", 0.0) for summary in summaries]
    frame["waiting"] = [len(summary.get("waiting", ())) for summary in summaries]
    return frame.rename(columns={"id": "attempt"})
