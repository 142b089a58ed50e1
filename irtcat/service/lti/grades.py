"""Grades for the gradebook of a platform: scores of Assignment and Grade Services 2.0."""

import logging
from collections.abc import Callable
from datetime import datetime
from typing import Any

import sqlalchemy as sa
from fastapi import FastAPI

from irtcat.service.attempts.attempt import Attempt, attempt_of
from irtcat.service.attempts.results import attempt_result, waiting_items
from irtcat.service.lti.attempts import subject_of
from irtcat.service.lti.connection import Connection, PlatformError, connection_of
from irtcat.service.lti.platforms import platform
from irtcat.service.lti.tool import SCORE_MAXIMUM
from irtcat.service.outbox.sending import GRADES, WAITING
from irtcat.service.storage import tables
from irtcat.service.storage.context import Service

log = logging.getLogger("irtcat.service")

SENT, FAILED = "sent", "failed"
"""States of a grade that does not wait."""


def score_document(attempt: Attempt, user: str) -> dict[str, Any]:
    """The score of an attempt as it is sent to the platform.

    The reported score is mapped from the test's lowest and highest score to 0 and `SCORE_MAXIMUM`.
    An attempt that was voided or reopened has no score, which clears an earlier one.
    """
    progress, scale = attempt.progress, attempt.test.definition.score
    assert progress.last is not None
    out: dict[str, Any] = {
        "userId": user,
        # The platform refuses a time that is not later than that of the score before. All of them
        # can read milliseconds.
        "timestamp": datetime.fromisoformat(progress.last).isoformat(timespec="milliseconds"),
        "activityProgress": "InProgress",
        "gradingProgress": "NotReady",
    }
    if progress.status == "void":
        return out | {"activityProgress": "Initialized"}
    if progress.status != "finished":
        return out
    out["activityProgress"] = "Completed"
    if waiting_items(attempt):
        return out | {"gradingProgress": "PendingManual"}
    result = attempt_result(attempt)
    score = None if result is None else result.scaled.score
    if result is None or score is None:
        return out | {"gradingProgress": "Failed"}
    share = (score - scale.lowest) / (scale.highest - scale.lowest)
    out |= {
        "gradingProgress": "FullyGraded",
        "scoreGiven": round(SCORE_MAXIMUM * share, 4),
        "scoreMaximum": SCORE_MAXIMUM,
    }
    comment = _comment(result.shown(attempt.test.definition))
    return out | ({"comment": comment} if comment else {})


def _comment(report: dict[str, Any]) -> str:
    """The part of the score report that fits in a line: what the test shows, and nothing else."""
    parts = []
    if report.get("score") is not None:
        text = f"{report['score']:.15g}"  # all digits: with :g alone there are six
        if report.get("lower") is not None:
            text += f" ({report['lower']:.15g} to {report['upper']:.15g})"
        parts.append(text)
    if report.get("level"):
        parts.append(str(report["level"]))
    return ", ".join(parts)


def send_due(connection: Connection, *, is_stopped: Callable[[], bool] = lambda: False) -> int:
    """Send the grades that are due; return how many were accepted."""
    service = connection.service
    claimed = GRADES.claimed(service, sa.select(tables.lti_attempts), is_stopped)
    return sum(_send(connection, row) for row in claimed)


def _send(connection: Connection, row: Any) -> bool:
    """Send one grade, and store the outcome; return whether it was accepted."""
    service = connection.service
    known = platform(service, row.platform)
    external = sa.select(tables.people.c.external).where(tables.people.c.id == row.person)
    user = subject_of(known.issuer, service.scalar(external) or "")
    try:
        if not user:
            raise PlatformError("the person is erased", final=True)
        score = score_document(attempt_of(service, row.attempt), user)
        connection.post_score(known, row.line_item, score)
    except PlatformError as error:
        connection.forget_token(known)
        GRADES.postpone(service, row, final=error.final)
        about = {"platform": known.id, "attempt": row.attempt}
        log.warning("grade not sent: %s", error, extra=about)
        return False
    return GRADES.change(service, row, {"grade": SENT})


def send_again(service: Service, platform: str) -> int:
    """Send the failed grades of a platform once more; return how many."""
    columns = tables.lti_attempts.c
    failed = (columns.platform == platform) & (columns.grade == FAILED)
    return service.change(tables.lti_attempts, failed, grade=WAITING, tries=0, due=service.now())


def send(app: FastAPI, is_stopped: Callable[[], bool]) -> None:
    """Send the grades of an application that are due; every process takes part."""
    send_due(connection_of(app), is_stopped=is_stopped)
