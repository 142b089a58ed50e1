"""Proctoring: what staff do with attempts under way, and the live board."""

import json
from collections.abc import Sequence
from typing import Any

import pandas as pd
import sqlalchemy as sa

from irtcat._common.checks import argument_error, is_number
from irtcat.cat.live import Event
from irtcat.service.attempts.attempt import attempt_of, opened
from irtcat.service.attempts.progress import BY_STAFF, COMPLETED
from irtcat.service.base.errors import ConflictError
from irtcat.service.base.events import Acted
from irtcat.service.storage import tables
from irtcat.service.storage.context import Service


def _act(service: Service, attempt: str, actor: str, action: str, **details: Any) -> None:
    service.publish(Acted(actor, action, {"attempt": attempt, **details}))


def pause(service: Service, attempt: str, *, actor: str, reason: str) -> None:
    """Stop the clock; the taker sees that the test is paused.

    Raises:
        ConflictError: unless the attempt is running.
    """
    with opened(service, attempt, actor=actor) as it:
        it.check_running()
        it.add("pause", reason=_text("reason", reason))
        _act(service, attempt, actor, "attempt paused", reason=reason)


def resume(service: Service, attempt: str, *, actor: str) -> None:
    """Let the clock run again.

    Raises:
        ConflictError: unless the attempt is paused.
    """
    with opened(service, attempt, actor=actor) as it:
        if it.progress.status != "paused":
            raise ConflictError(f"The attempt is {it.progress.status}.")
        it.add("resume")
        _act(service, attempt, actor, "attempt resumed")


def extend(service: Service, attempt: str, *, seconds: float, actor: str, reason: str) -> None:
    """Add time to the limits of the test and of the current section.

    Raises:
        ConflictError: for an attempt that is over.
    """
    if not is_number(seconds) or not 0 < seconds <= 24 * 3600:
        raise argument_error("seconds", "a number above 0, at most a day", seconds)
    with opened(service, attempt, actor=actor) as it:
        if it.progress.is_over:
            raise ConflictError("The attempt is over. Reopen it with more time.")
        it.add("extend", seconds=float(seconds), reason=_text("reason", reason))
        _act(service, attempt, actor, "attempt extended", seconds=seconds, reason=reason)


def finish(service: Service, attempt: str, *, actor: str, reason: str) -> None:
    """End an attempt now; the answers so far are scored, as when its time is over.

    Raises:
        ConflictError: for an attempt that is over.
    """
    with opened(service, attempt, actor=actor) as it:
        if it.progress.is_over:
            raise ConflictError("The attempt is over.")
        it.add("finish", reason=BY_STAFF, text=_text("reason", reason))
        _act(service, attempt, actor, "attempt finished", reason=reason)


def void(service: Service, attempt: str, *, actor: str, reason: str) -> None:
    """End an attempt without a result; its log stays.

    Raises:
        ConflictError: for an attempt that is void.
    """
    with opened(service, attempt, actor=actor) as it:
        if it.progress.status == "void":
            raise ConflictError("The attempt is void.")
        it.add("void", reason=_text("reason", reason))
        _act(service, attempt, actor, "attempt voided", reason=reason)


def reopen(
    service: Service, attempt: str, *, actor: str, reason: str, seconds: float = 0.0
) -> None:
    """Let a person continue an attempt that is over, where it ended.

    Args:
        service: the service.
        attempt: id of the attempt.
        actor: who reopens it.
        reason: why.
        seconds: time added to the limits that had passed.

    Raises:
        ConflictError: for an attempt that is not over, or that ended after its last section.
    """
    if not is_number(seconds) or not 0 <= seconds <= 24 * 3600:
        raise argument_error("seconds", "a number from 0 to a day", seconds)
    with opened(service, attempt, actor=actor) as it:
        progress = it.progress
        if not progress.is_over:
            raise ConflictError(f"The attempt is {progress.status}.")
        if progress.status == "finished" and progress.reason == COMPLETED:
            raise ConflictError("The attempt is complete: there is nothing left to answer.")
        it.add("reopen", reason=_text("reason", reason), seconds=float(seconds))
        if progress.part is None:
            it.enter(progress.section + 1)
        elif progress.current is None and progress.items and not progress.to_review():
            it.add("show", item=progress.items[-1])
        _act(service, attempt, actor, "attempt reopened", reason=reason, seconds=seconds)


def note(service: Service, attempt: str, *, actor: str, text: str) -> None:
    """Add a note to the log of an attempt."""
    with opened(service, attempt, actor=actor) as it:
        it.add("note", text=_text("text", text))


def release(service: Service, attempt: str, *, actor: str) -> None:
    """Let the person continue on another device, with the same ticket.

    Raises:
        ConflictError: for an attempt that is over.
    """
    with opened(service, attempt, actor=actor) as it:
        if it.progress.is_over:
            raise ConflictError("The attempt is over.")
        it.add("release")
        statement = tables.attempts.update().where(tables.attempts.c.id == attempt)
        service.database.run(statement.values(device=""))
        _act(service, attempt, actor, "device released")


def _text(argument: str, value: Any) -> str:
    if not isinstance(value, str) or not value.strip() or len(value) > 2000:
        raise argument_error(argument, "a text of 1 to 2,000 characters", value)
    return value.strip()


def board(
    service: Service,
    test: str | None = None,
    statuses: Sequence[str] | None = ("running", "paused"),
) -> pd.DataFrame:
    """Attempts that are running or paused: who, where, how long, the last sign.

    Args:
        service: the service.
        test: id of a test; all tests by default.
        statuses: only attempts of these statuses; None for all.
    """
    statement = sa.select(tables.attempts)
    if statuses is not None:
        statement = statement.where(tables.attempts.c.status.in_(statuses))
    if test is not None:
        statement = statement.where(tables.attempts.c.test == test)
    rows = []
    for row in service.rows(statement.order_by(tables.attempts.c.started)):
        summary = json.loads(row.summary)
        rows.append(
            {
                "attempt": row.id,
                "test": row.test,
                "person": row.person,
                "status": row.status,
                "section": summary.get("section", 0) + 1,
                "answers": summary.get("answered", 0),
                "seconds": summary.get("seconds", 0.0),
                "started": row.started,
                "updated": row.updated,
                "device": bool(row.device),
            }
        )
    columns = [
        "attempt",
        "test",
        "person",
        "status",
        "section",
        "answers",
        "seconds",
        "started",
        "updated",
        "device",
    ]
    return pd.DataFrame(rows, columns=columns)


def attempt_events(service: Service, attempt: str) -> list[Event]:
    """The verified log of an attempt."""
    with service.database.reading(at_once=True):
        return attempt_of(service, attempt).events()
