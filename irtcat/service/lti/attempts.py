"""Attempts that a platform opens, one per link and person."""

import re
from typing import Any

import sqlalchemy as sa

from irtcat._common.checks import InputError
from irtcat.service.attempts.attempt import opened
from irtcat.service.attempts.beginning import Device, begin
from irtcat.service.attempts.library import PublishedTest, published_test
from irtcat.service.attempts.people import add_person, issue_ticket
from irtcat.service.base.errors import ConflictError, GoneError, NotFoundError
from irtcat.service.lti.launching import Launch, LaunchError
from irtcat.service.lti.platforms import Platform, platform
from irtcat.service.outbox.sending import WAITING
from irtcat.service.storage import tables
from irtcat.service.storage.context import Acted, AttemptChanged, Service, digest_of, new_secret

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


def _row(service: Service, launch: Launch, known: Platform) -> Any:
    """The attempt of a launch's link and person, with its status; None before it is begun."""
    rows, people = tables.lti_attempts, tables.people
    statement = (
        sa.select(rows, tables.attempts.c.status)
        .join(people, people.c.id == rows.c.person)
        .join(tables.attempts, tables.attempts.c.id == rows.c.attempt)
        .where(
            rows.c.platform == launch.platform,
            rows.c.deployment == launch.deployment,
            rows.c.link == launch.link,
            people.c.external == external_id(known.issuer, launch.subject),
        )
    )
    return service.row(statement)


def external_id(issuer: str, subject: str) -> str:
    """The id of a person in the table of people: a pseudonym that only the platform can resolve."""
    return f"{issuer}|{subject}"


def subject_of(issuer: str, external: str) -> str:
    """The id of a person at an issuer; empty for a person of another system, or an erased one."""
    prefix = external_id(issuer, "")
    return external.removeprefix(prefix) if external.startswith(prefix) else ""


def attempt_of_launch(service: Service, launch: Launch) -> Any:
    """The row of the attempt that a launch continues, with its status; None if it begins one."""
    return _row(service, launch, platform(service, launch.platform))


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
    known = platform(service, launch.platform)
    # Who begins it holds the lock of the audit log, so that two clicks begin one attempt.
    with service.database.writing(alone=True):
        row = _row(service, launch, known)
        if row is None:
            return _begin(service, launch, known)
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


def _begin(service: Service, launch: Launch, known: Platform) -> Device:
    test = test_of(service, launch)
    actor = ACTOR.format(known.id)
    external = external_id(known.issuer, launch.subject)
    person = add_person(service, external=external, actor=actor)
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
    service.publish(
        Acted(actor, "LTI attempt begun", {"attempt": started.attempt, "person": person})
    )
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
        .where(
            rows.c.platform == launch.platform,
            rows.c.deployment == launch.deployment,
            rows.c.link == launch.link,
        )
    )
    found = service.rows(statement)
    out = {
        status: sum(row.status == status for row in found)
        for status in ("running", "paused", "finished", "void")
    }
    return out | {
        f"grades {grade}": sum(row.grade == grade for row in found)
        for grade in ("waiting", "sent", "failed")
    }
