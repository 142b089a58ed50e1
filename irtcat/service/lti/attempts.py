"""Attempts that a platform opens, one per link and person, and their grades for its gradebook.

Grades are scores of Assignment and Grade Services 2.0.
"""

import logging
import re
from collections import Counter
from collections.abc import Callable
from datetime import datetime
from typing import Any

import sqlalchemy as sa
from fastapi import FastAPI

from irtcat._common.checks import InputError
from irtcat.service.attempts.attempt import Attempt, attempt_of, opened
from irtcat.service.attempts.library import PublishedTest, published_test
from irtcat.service.attempts.people import add_person, issue_ticket
from irtcat.service.attempts.results import attempt_result, waiting_items
from irtcat.service.attempts.taking import Device, begin
from irtcat.service.base.errors import ConflictError, GoneError, NotFoundError
from irtcat.service.lti.connection import SCORE_MAXIMUM, Connection, PlatformError, connection_of
from irtcat.service.lti.launching import Launch, LaunchError
from irtcat.service.lti.platforms import platform
from irtcat.service.outbox.sending import GRADES, WAITING
from irtcat.service.storage import tables
from irtcat.service.storage.context import AttemptChanged, Service, digest_of, new_secret

ACTOR = "lti:{}"
"""Who acts, in the audit log: the platform by its id."""

CHANGING = frozenset({"finish", "rating", "void", "reopen"})
"""Kinds of events after which the platform's gradebook is no longer right."""


def test_of(service: Service, launch: Launch) -> PublishedTest:
    """The test that a link opens, by its custom parameter ``test``.

    Raises:
        LaunchError: without this parameter, or for a test that the platform may not open.
    """
    name = launch.custom.get("test", "")
    if not name:
        raise LaunchError("The link names no test: it needs the custom parameter test=ID.")
    try:
        test = published_test(service, name)
    except NotFoundError:
        raise LaunchError(f"There is no test {name[:100]!r}.") from None
    if not platform(service, launch.platform).may_open(name):
        raise LaunchError(f"The platform may not open the test {name!r}.")
    return test


test_of.__test__ = False  # type: ignore[attr-defined]  # not one of pytest's


def attempt_of_launch(service: Service, launch: Launch) -> Any:
    """The row of the attempt that a launch continues, with its status; None if it begins one."""
    rows, people = tables.lti_attempts, tables.people
    issuer = platform(service, launch.platform).issuer
    statement = (
        sa.select(rows, tables.attempts.c.status)
        .join(people, people.c.id == rows.c.person)
        .join(tables.attempts, tables.attempts.c.id == rows.c.attempt)
        .where(*_of_link(launch), people.c.external == external_id(issuer, launch.subject))
    )
    return service.row(statement)


def _of_link(launch: Launch) -> list[Any]:
    """The conditions of the attempts that a link opened."""
    names = ("platform", "deployment", "link")
    return [tables.lti_attempts.c[name] == getattr(launch, name) for name in names]


def external_id(issuer: str, subject: str) -> str:
    """The id of a person in the table of people: a pseudonym that only the platform can resolve."""
    return f"{issuer}|{subject}"


def subject_of(issuer: str, external: str) -> str:
    """The id of a person at an issuer; empty for a person of another system, or an erased one."""
    prefix = external_id(issuer, "")
    return external.removeprefix(prefix) if external.startswith(prefix) else ""


def start(service: Service, launch: Launch) -> Device:
    """Begin the attempt of a launch, or move it to the device of this launch.

    The platform has identified the person, so that no member of staff has to release the attempt
    from another device. That device no longer has it. A finished attempt is opened for its report.

    Raises:
        LaunchError: for a person who does not take tests here, or a test that cannot be opened.
        GoneError: if staff voided the attempt.
        ConflictError: for a test that is retired.
        InputError: for accommodations that the test does not allow.
    """
    if "learner" not in launch.roles:
        raise LaunchError("The platform does not say that you take tests in this course.")
    # Who begins it holds the lock of the audit log, so that two clicks begin one attempt.
    with service.database.writing(alone=True):
        row = attempt_of_launch(service, launch)
        if row is None:
            return _begin(service, launch)
        _set_line_item(service, launch, row)
    # Not within the transaction above: `opened` locks the attempt first, then the database.
    if row.status == "void":
        raise GoneError("Your attempt at this test was ended by the staff.")
    device = new_secret()
    with opened(service, row.attempt, actor="taker") as attempt:
        service.change(tables.attempts, row.attempt, device=digest_of(device))
        if not attempt.progress.is_over:
            attempt.add("device", device=digest_of(device)[:12])
    return Device(row.attempt, device)


def _begin(service: Service, launch: Launch) -> Device:
    test, known = test_of(service, launch), platform(service, launch.platform)
    actor = ACTOR.format(known.id)
    person = add_person(service, external=external_id(known.issuer, launch.subject), actor=actor)
    wanted = re.split(r"[\s,;]+", launch.custom.get("accommodations", ""))
    names = [name for name in wanted if name]
    try:
        ticket = issue_ticket(service, test.id, actor=actor, person=person, accommodations=names)
    except ConflictError:
        raise ConflictError("This test is closed: it takes no new attempts.") from None
    except InputError as error:
        raise LaunchError(f"The link's custom parameter is not valid. {error}") from None
    started = begin(service, ticket.token)
    service.insert(
        tables.lti_attempts,
        attempt=started.attempt,
        platform=known.id,
        deployment=launch.deployment,
        link=launch.link,
        person=person,
        line_item=launch.line_item,
        grade="",
        version=0,
        tries=0,
        due="",
    )
    service.acted(actor, "LTI attempt begun", attempt=started.attempt, person=person)
    return started


def _set_line_item(service: Service, launch: Launch, row: Any) -> None:
    """Keep the column of the gradebook that the platform names now: it may be set up later."""
    if not launch.line_item or launch.line_item == row.line_item:
        return
    values: dict[str, Any] = {"line_item": launch.line_item}
    if row.status in ("finished", "void"):
        values |= {"grade": WAITING, "version": row.version + 1, "tries": 0, "due": service.now()}
    service.change(tables.lti_attempts, row.attempt, **values)


def attempt_changed(service: Service, event: AttemptChanged) -> None:
    """Note that the grade of an attempt is to be sent, if a platform opened it.

    Only this is written: the score is computed when it is sent (`irtcat.service.lti.attempts`), so
    that the platform gets the latest one.
    """
    if not CHANGING.intersection(event.kinds):
        return
    columns = tables.lti_attempts.c
    values = {"grade": WAITING, "version": columns.version + 1, "tries": 0, "due": service.now()}
    service.change(tables.lti_attempts, event.attempt, columns.line_item != "", **values)


def link_summary(service: Service, launch: Launch) -> dict[str, int]:
    """Numbers of attempts of a link by status, and of grades that wait or failed."""
    rows = tables.lti_attempts
    statement = (
        sa.select(tables.attempts.c.status, rows.c.grade)
        .join(tables.attempts, tables.attempts.c.id == rows.c.attempt)
        .where(*_of_link(launch))
    )
    found = service.rows(statement)
    statuses, grades = Counter(row.status for row in found), Counter(row.grade for row in found)
    out = {status: statuses[status] for status in ("running", "paused", "finished", "void")}
    return out | {f"grades {grade}": grades[grade] for grade in (WAITING, SENT, FAILED)}


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
    given = round(SCORE_MAXIMUM * share, 4)
    out |= {"gradingProgress": "FullyGraded", "scoreGiven": given, "scoreMaximum": SCORE_MAXIMUM}
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
    claimed = GRADES.claimed(connection.service, sa.select(tables.lti_attempts), is_stopped)
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
