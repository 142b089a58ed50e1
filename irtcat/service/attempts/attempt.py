"""Attempt: one person's take of one test, an append-only log beside the sessions of its sections.

Every operation runs within one transaction that holds the attempt's row: it reads what other
processes added, applies what time limits demand, adds its own events, and writes all of it together
with the events of the session. A process keeps attempts in memory; one whose transaction failed is
dropped and read again.
"""

import hashlib
import json
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta
from typing import Any

import sqlalchemy as sa

from irtcat._common.checks import InputError
from irtcat._common.clock import Stopwatch, utc_text
from irtcat._files import FileFormat
from irtcat.cat import Session, StoreError
from irtcat.cat.live import Event, first_digest
from irtcat.service.attempts.library import PublishedTest, published_test
from irtcat.service.attempts.progress import ABANDONED, COMPLETED, TIME_LIMIT, Progress
from irtcat.service.base.errors import ConflictError, UnauthorizedError, found
from irtcat.service.base.metrics import ANSWERS, engine_time
from irtcat.service.definition import Adaptive, Break, Fixed, Instructions, Practice
from irtcat.service.storage import tables
from irtcat.service.storage.context import AttemptChanged, Loaded, Service, digest_of, held

ATTEMPT = FileFormat("irtcat-attempt", "an attempt", "Restore a copy.")

ROW = (
    sa.select(tables.attempts.c.head, tables.attempts.c.device, tables.attempt_seals.c.seal)
    .join_from(tables.attempts, tables.attempt_seals)
    .where(tables.attempts.c.id == sa.bindparam("name"))
)
"""What every request reads first: whose the attempt is, and where its log ends."""

# Both rows: who waits for them then sees what the other transaction wrote.
LOCKED_ROW = ROW.with_for_update()

UPDATE = (
    tables.attempts.update()
    .where(tables.attempts.c.id == sa.bindparam("name"))
    .values({name: sa.bindparam(name) for name in ("status", "updated", "summary", "due")})
)

GRACE = 2.0
"""Seconds after a time limit in which an answer still counts, for the way to the server."""


class Attempt:
    """An attempt as a process knows it. Use it within `opened`."""

    def __init__(self, service: Service, head: dict[str, Any], test: PublishedTest):
        self.service, self.head, self.test = service, head, test
        self.id = str(head["id"])
        self.progress = Progress(test.definition, tuple(head["accommodations"]))
        self._stopwatch = Stopwatch(service.clock)
        self._sessions: dict[int, Session] = {}
        self._written = 0
        self._digest = first_digest(head, service.log_key)
        self._new: list[Event] = []
        self.actor, self.request = "system", ""
        self._item_limits = {name: item.time_limit for name, item in test.items.items.items()}

    # Reading and writing the log

    def catch_up(self, seal: str = "") -> None:
        """Apply the events that other processes added; none if the seal is of the last one here."""
        if self._written and self.service.attempt_log.is_end(self._digest, seal):
            return
        events, digest = self.service.attempt_log.read(
            self.id, self._digest if not self._written else "", self._written, self._digest
        )
        for event in events:
            self.progress.apply(event)
        self._written += len(events)
        self._digest = digest

    def write(self) -> None:
        """Write the new events, and what the table of attempts shows of them."""
        if not self._new:
            return
        progress, log = self.progress, self.service.attempt_log
        self._digest = log.append(self.id, self._written, self._digest, self._new)
        self._written += len(self._new)
        waiting = sorted(
            n for n, a in progress.answers.items() if a.code is None and progress.stands(n)
        )
        kinds = tuple(event["kind"] for event in self._new)
        person = self.head["person"]
        self.service.publish(AttemptChanged(self.id, self.test.id, person, kinds, tuple(waiting)))
        for event in self._new:
            if event["kind"] == "answer":
                part = self.test.definition.sections[progress.answers[event["item"]].section]
                ANSWERS.labels(part.kind).inc()
        self._new = []
        summary = {
            "section": progress.section,
            "answered": len(progress.answers),
            "seconds": round(progress.used_test, 1),
            "waiting": waiting,
        }
        shown = {"status": progress.status, "updated": progress.last, "due": self.due()}
        shown |= {"name": self.id, "summary": json.dumps(summary)}
        self.service.database.run(UPDATE, shown)

    @property
    def has_changed(self) -> bool:
        """Whether there are events that are not written yet."""
        return bool(self._new)

    def add(self, kind: str, **fields: Any) -> None:
        """Add an event now, with its time, who caused it, and the id of the request."""
        event: Event = {"kind": kind, **fields, **self._stopwatch.stamp(self.progress.last)}
        event["actor"] = self.actor
        if self.request:
            event["request"] = self.request
        self.progress.apply(event)
        self._new.append(event)

    def events(self) -> list[Event]:
        """The whole log, verified."""
        first = first_digest(self.head, self.service.log_key)
        return self.service.attempt_log.read(self.id, first)[0]

    # The course of the test

    def seconds(self) -> float:
        """Seconds since the last event."""
        return self._stopwatch.since(self.progress.last)

    def remaining(self) -> Any:
        """The time that is left (see `Progress.remaining`)."""
        return self.progress.remaining(self.seconds(), self._item_limits)

    def is_left(self) -> bool:
        """Whether time without a step counts: not in a pause by staff, nor after the end."""
        progress = self.progress
        by_taker = progress.status == "paused" and progress.paused_by == "taker"
        return progress.status == "running" or by_taker

    def due(self) -> str:
        """When the rules end the test or the section, if nothing happens until then.

        Limits of items are not among them: they pass when the taker next asks, since the next item
        is shown then. Empty if time does not count.
        """
        progress = self.progress
        if progress.last is None or not self.is_left():
            return ""
        seconds = self.test.definition.abandoned_after
        if progress.status == "running":
            remaining = progress.remaining(0.0, {})
            left = remaining.section
            if not isinstance(progress.part, Break):  # in a break the clock of the test stands
                left = min(left, remaining.test)
            seconds = min(seconds, max(left, 0.0) + GRACE)
        return utc_text(datetime.fromisoformat(progress.last) + timedelta(seconds=seconds))

    def session(self) -> Session:
        """The session of the current adaptive section."""
        at = self.progress.section
        if at not in self._sessions:
            self._sessions[at] = self.service.store.resume(self.progress.session)
        return self._sessions[at]

    def enter(self, at: int) -> None:
        """Go to a section; after the last one the attempt is finished."""
        if at >= len(self.test.definition.sections):
            self.add("finish", reason=COMPLETED)
            return
        section = self.test.definition.sections[at]
        if isinstance(section, Adaptive):
            with engine_time("begin"):
                session = self.service.store.begin(
                    self.test.pools[at],
                    section.config,
                    session_id=f"{self.id}.{at}",
                    seed=seed_of(self.head["seed"], at),
                    subject=self.head["person"],
                    counts=self.test.exposure.get(at),
                )
            self._sessions[at] = session
            self.add("section", section=at, session=session.id)
            self.add("show", item=session.asked[0])
        else:
            self.add("section", section=at)
            if section.items:
                self.add("show", item=section.items[0])

    def apply_time_limits(self, grace: float = 0.0) -> None:
        """End what a time limit has ended; more than one may have passed meanwhile.

        An attempt that was abandoned is finished.
        """
        is_idle = self.is_left() and self.seconds() >= self.test.definition.abandoned_after
        if is_idle and self.remaining().expired() not in ("test", "section"):
            with self._by_system():
                self.add("finish", reason=ABANDONED)
        while self.progress.status == "running":
            scope = self.remaining().expired(grace)
            if not scope:
                return
            with self._by_system():
                self.add("timeout", scope=scope)
                if scope == "test":
                    self.add("finish", reason=TIME_LIMIT)
                elif scope == "section":
                    self.enter(self.progress.section + 1)
                else:
                    self._skip_current()

    @contextmanager
    def _by_system(self) -> Iterator[None]:
        """Events of the rules: the caller's request is still to be carried out."""
        caller = self.actor, self.request
        self.actor, self.request = "system", ""
        try:
            yield
        finally:
            self.actor, self.request = caller

    def _skip_current(self) -> None:
        item = self.progress.current
        assert item is not None
        if item in self.progress.answers:
            self._next()
        else:
            self._record(item, None, 0)

    def answer(self, item: str, response: Any) -> None:
        """Record the answer to an item, and show the next one.

        Raises:
            InputError: for a response that the item cannot have, or an item that cannot be skipped.
            ConflictError: for an item that was not shown, or another answer where answers stand.
        """
        progress, part = self.progress, self.progress.part
        self.check_running()
        if item not in progress.items:
            raise ConflictError("This item is not shown at the moment.")
        response, code = self.test.coded(item, response)
        if isinstance(part, Practice):
            code = code or 0  # nobody rates practice
        if response is None and not self.may_skip():
            raise InputError("An answer is required to continue.")
        known = progress.answers.get(item)
        if known is not None and known.response == response:
            if not isinstance(part, Adaptive) and progress.current == item:
                self._next()
            return
        if known is not None and not progress.to_review():
            raise ConflictError("This item has another answer, which stands.")
        self._record(item, response, code)

    def _record(self, item: str, response: Any, code: int | None) -> None:
        seconds = round(self.progress.seconds_on(item, self.seconds()), 3)
        if isinstance(self.progress.part, Adaptive):
            assert code is not None, "publishing refuses adaptive items that people score"
            session = self.session()
            with engine_time("answer"):
                session.answer(item, code + self.test.bank.first_code, seconds)
        if item in self.progress.answers:  # ratings are of the response that it had
            self.service.delete(tables.ratings, self.id, tables.ratings.c.item == item)
        self.add("answer", item=item, response=response, code=code, seconds=seconds)
        if self.progress.current == item:
            self._next()

    def _next(self) -> None:
        """Show the next item, or go to the next section."""
        progress, part = self.progress, self.progress.part
        if isinstance(part, Adaptive):
            session = self.session()
            if session.is_over:
                self.enter(progress.section + 1)
            else:
                self.add("show", item=session.asked[0])
            return
        assert isinstance(part, (Fixed, Practice))
        at = part.items.index(progress.current or "") + 1
        if at < len(part.items):
            self.add("show", item=part.items[at])
        elif progress.to_review():
            self.add("show", item=None)  # the page of all answers
        else:
            self.enter(progress.section + 1)

    def show(self, item: str | None) -> None:
        """Show an item of a section whose answers may be changed; None shows the list of answers.

        Raises:
            ConflictError: in other sections, or for an item of another section.
        """
        self.check_running()
        part = self.progress.part
        if not self.progress.to_review() or not isinstance(part, Fixed):
            raise ConflictError("The items of this section come in a fixed order.")
        if item is not None and item not in part.items:
            raise ConflictError("This item is not in the current section.")
        if item != self.progress.current:
            self.add("show", item=item)

    def flag(self, item: str, flagged: bool) -> None:
        """Mark an item for review, or remove the mark.

        Raises:
            ConflictError: for an item that was not shown, or where answers cannot be reviewed.
        """
        self.check_running()
        if not self.progress.to_review() or item not in self.progress.items:
            raise ConflictError("This item cannot be marked.")
        if (item in self.progress.flagged) != flagged:
            self.add("flag", item=item, flagged=flagged)

    def proceed(self) -> None:
        """End a page of instructions, a break, practice, or a section that is reviewed.

        Raises:
            ConflictError: where the section does not end by the taker's choice, or lacks answers.
        """
        self.check_running()
        part, progress = self.progress.part, self.progress
        if isinstance(part, Break) and not part.may_end_early:
            raise ConflictError("The break has a fixed length.")
        if isinstance(part, Adaptive) or (isinstance(part, Fixed) and not part.review):
            raise ConflictError("This section ends with its last item.")
        if isinstance(part, Fixed) and not part.allow_skip:
            given = {name for name, it in progress.answers.items() if it.response is not None}
            missing = set(part.items) - given
            if missing:
                raise ConflictError(f"{len(missing)} items have no answer yet.")
        self.enter(progress.section + 1)

    def may_skip(self) -> bool:
        """Whether the item that is shown may be left out."""
        part = self.progress.part
        may_skip = isinstance(part, Practice) or getattr(part, "allow_skip", False)
        return may_skip or self.progress.to_review()

    def may_pause(self) -> bool:
        """Whether the taker may pause the test."""
        return "pause" in self.progress.accommodations

    def may_resume(self) -> bool:
        """Whether the taker may end the pause: one of their own, not one by staff."""
        by_taker = self.progress.paused_by == "taker"
        return self.progress.status == "paused" and by_taker and self.may_pause()

    def check_running(self) -> None:
        """Raise unless the attempt is running."""
        status = self.progress.status
        if status == "paused":
            raise ConflictError("The test is paused.")
        if status != "running":
            raise ConflictError("The test is over.")

    def may_proceed(self) -> bool:
        """Whether `proceed` is possible, but for missing answers."""
        part = self.progress.part
        if isinstance(part, Break):
            return part.may_end_early
        return isinstance(part, (Instructions, Practice)) or self.progress.to_review()


def seed_of(seed: int, at: int) -> int:
    """The seed of a section's session, from that of the attempt."""
    return int.from_bytes(hashlib.sha256(f"{seed}.{at}".encode()).digest()[:4], "big")


@contextmanager
def opened(
    service: Service,
    name: str,
    *,
    actor: str,
    device: str | None = None,
    request: str = "",
    grace: float = 0.0,
) -> Iterator[Attempt]:
    """One transaction on an attempt: its state with time limits applied, then the caller's changes.

    Args:
        service: the service.
        name: id of the attempt.
        actor: who acts.
        device: secret of the device that acts; None if it is no taker's.
        request: id of the request, stored with its events.
        grace: seconds after a time limit in which it is not yet applied.

    Raises:
        NotFoundError: for an unknown attempt.
        UnauthorizedError: for a device that may not continue it (see `check_device`).
    """
    loaded: Loaded[Attempt] = service.attempts.get(name, Loaded)
    with loaded.lock:
        try:
            with service.database.writing():
                attempt = _read(service, name, loaded, device, is_locked=True)
                attempt.actor, attempt.request = actor, request
                attempt.apply_time_limits(grace)
                time_limits_acted = attempt.has_changed
                if not time_limits_acted:
                    yield attempt
                attempt.write()
            if time_limits_acted:
                # What they demand is written even if the caller's request is then refused.
                with service.database.writing():
                    attempt = _read(service, name, loaded, device, is_locked=True)
                    yield attempt
                    attempt.write()
            _forget_over(service, attempt)
        except BaseException as error:
            is_refusal = isinstance(error, InputError) and not isinstance(error, StoreError)
            if not is_refusal or loaded.value is None or loaded.value.has_changed:
                service.attempts.drop(name)
                loaded.value = None
            raise


@contextmanager
def looked_at(service: Service, name: str, device: str | None = None) -> Iterator[Attempt]:
    """The state of an attempt, to read only: nothing is written, and time limits are not applied.

    It is quick: an attempt that this process knows reads only the events that others added.

    ``device`` is the secret of a taker's device that asks.

    Raises:
        NotFoundError: for an unknown attempt.
        UnauthorizedError: for a device that may not continue it (see `check_device`).
    """
    with held(service.attempts, name) as loaded:
        with service.database.reading():
            attempt = _read(service, name, loaded, device)
        yield attempt
        _forget_over(service, attempt)


def _forget_over(service: Service, attempt: Attempt) -> None:
    """Free the memory of an attempt that is over; its log has what a report needs."""
    if attempt.progress.is_over:
        service.attempts.drop(attempt.id)


def check_device(service: Service, name: str, device: str) -> None:
    """Raise unless a device may continue an attempt.

    Raises:
        UnauthorizedError: for another device, a released one, or an unknown attempt: an outsider
            does not learn which.
    """
    _check_device(service.row(ROW, {"name": name}), device)


def _check_device(row: Any, device: str) -> None:
    if row is None or not row.device or row.device != digest_of(device):
        raise UnauthorizedError("This device does not have the test. Open it with the ticket.")


def _read(
    service: Service,
    name: str,
    loaded: Loaded[Attempt],
    device: str | None = None,
    is_locked: bool = False,
) -> Attempt:
    """The attempt as the database has it.

    With ``is_locked`` no other transaction changes it until this one ends.
    """
    row = service.row(LOCKED_ROW if is_locked else ROW, {"name": name})
    if device is not None:
        _check_device(row, device)
    row = found(row, "attempt")
    if loaded.value is None:
        document = json.loads(row.head)
        ATTEMPT.check(document, f"attempt {name}", StoreError)
        loaded.value = Attempt(service, document, published_test(service, document["test"]))
    loaded.value.catch_up(row.seal)
    return loaded.value


def attempt_of(service: Service, name: str) -> Attempt:
    """An attempt as its log says, to look at; time limits are not applied.

    Raises:
        NotFoundError: for an unknown attempt.
        StoreError: for a log that was changed.
    """
    with service.database.reading():
        return _read(service, name, Loaded())
