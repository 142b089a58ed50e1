"""People and tickets: who may take which test, and how a person is erased.

Logs, results and tickets know a person by a random id. The table of people alone says who that is;
erasing a person deletes that row, and the logs stay whole.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import pandas as pd
import sqlalchemy as sa

from irtcat._common.checks import argument_error, check_id, shorten
from irtcat.cat.live import utc_text
from irtcat.service.attempts.library import PublishedTest, published_test
from irtcat.service.base.errors import ConflictError, NotFoundError
from irtcat.service.base.events import Acted
from irtcat.service.definition import time_factor
from irtcat.service.storage import tables
from irtcat.service.storage.context import Service, digest_of, new_id, new_secret


@dataclass(frozen=True)
class Ticket:
    """A ticket as it was issued; the token is shown once and not stored.

    Attributes:
        id: id of the ticket.
        token: the secret that opens the test, the last part of the link.
        person: id of the person.
    """

    id: str
    token: str
    person: str


def add_person(
    service: Service, *, name: str = "", email: str = "", external: str = "", actor: str
) -> str:
    """Add a person; return the random id by which everything else knows them.

    Args:
        service: the service.
        name: name, shown to the person and to staff.
        email: address, for the staff's use.
        external: id in another system. A person with the same one is returned, not added.
        actor: who adds it.

    Raises:
        ConflictError: if the external id is known with another name or e-mail.
    """
    for field, value in (("name", name), ("email", email), ("external", external)):
        if value:
            check_id(field, value)
    with service.database.writing():
        known = known_person(service, name=name, email=email, external=external)
        if known is not None:
            return str(known.id)
        person = new_id("p")
        row = {"id": person, "name": name, "email": email, "external": external}
        service.database.run(tables.people.insert(), {**row, "created": service.now()})
        service.publish(Acted(actor, "person added", {"person": person}))
    return person


def known_person(service: Service, *, name: str = "", email: str = "", external: str) -> Any:
    """The person with an external id; None without one.

    Args:
        service: the service.
        name: name; empty for any.
        email: address; empty for any.
        external: id in another system; nobody is known by an empty one.

    Raises:
        ConflictError: if the external id is known with another name or e-mail.
    """
    if not external:
        return None
    people = tables.people
    row = service.row(sa.select(people).where(people.c.external == external))
    if row is not None:
        for field, given, stored in (("name", name, row.name), ("e-mail", email, row.email)):
            if given and given != stored:
                known = f"{field} {shorten(stored)}" if stored else f"no {field}"
                text = f"The id {shorten(external)} is known with {known}. Got {shorten(given)}."
                raise ConflictError(text)
    return row


def erase(service: Service, person: str, *, actor: str) -> None:
    """Delete what identifies a person; attempts and results stay, under the random id.

    Open tickets of the person are revoked.

    Raises:
        NotFoundError: for an unknown person, or one that is erased.
    """
    with service.database.writing():
        deleted = service.database.run(tables.people.delete().where(tables.people.c.id == person))
        if not deleted.rowcount:
            raise NotFoundError("There is no such person, or they are erased.")
        revoked = tables.tickets.update().where(
            tables.tickets.c.person == person, tables.tickets.c.status == "open"
        )
        service.database.run(revoked.values(status="revoked"))
        service.publish(Acted(actor, "person erased", {"person": person}))


def people_table(service: Service) -> pd.DataFrame:
    """All people that are not erased."""
    names = ["id", "name", "email", "external", "created"]
    columns = [tables.people.c[name] for name in names]
    rows = service.rows(sa.select(*columns).order_by(tables.people.c.created))
    return pd.DataFrame([tuple(row) for row in rows], columns=names)


def open_test(service: Service, test: str) -> PublishedTest:
    """A published test that takes new attempts.

    Raises:
        NotFoundError: for an unknown test.
        ConflictError: for a test that is retired.
    """
    published = published_test(service, test)
    if published.status != "open":
        raise ConflictError(f"The test {published.definition.title!r} is retired.")
    return published


def issue_ticket(
    service: Service,
    test: str,
    *,
    actor: str,
    person: str | None = None,
    accommodations: Sequence[str] = (),
    opens: datetime | None = None,
    expires: datetime | None = None,
) -> Ticket:
    """Issue a ticket: one person may take one test once.

    Args:
        service: the service.
        test: id of a published test.
        actor: who issues it.
        person: id of the person; a new one without a name by default.
        accommodations: some of those that the test allows.
        opens: from when it is valid; at once by default.
        expires: until when the test may be begun; no end by default.

    Raises:
        NotFoundError: for an unknown test or person.
        ConflictError: for a test that is retired.
        InputError: for accommodations that the test does not allow, or times without a time zone.
    """
    published = open_test(service, test)
    time_factor(accommodations)
    allowed = published.definition.accommodations.allowed
    for name in accommodations:
        if name not in allowed:
            must = f"some of those that the test allows ({', '.join(allowed) or 'none'})"
            raise argument_error("accommodations", must, name)
    times = {"opens": _time("opens", opens), "expires": _time("expires", expires)}
    token = new_secret()
    with service.database.writing():
        if person is None:
            person = add_person(service, actor=actor)
        elif service.row(sa.select(tables.people.c.id).where(tables.people.c.id == person)) is None:
            raise NotFoundError("There is no such person.")
        ticket = new_id("t")
        row = {
            "id": ticket,
            "token": digest_of(token),
            "test": test,
            "person": person,
            "accommodations": json.dumps(list(accommodations)),
            **times,
            "created": service.now(),
            "status": "open",
            "attempt": "",
        }
        service.database.run(tables.tickets.insert(), row)
        service.publish(
            Acted(actor, "ticket issued", {"ticket": ticket, "test": test, "person": person})
        )
    return Ticket(ticket, token, person)


def _time(argument: str, value: datetime | None) -> str:
    if value is None:
        return ""
    if not isinstance(value, datetime) or value.utcoffset() is None:
        raise argument_error(argument, "a time with a time zone", value)
    return utc_text(value.astimezone(UTC))


def revoke_ticket(service: Service, ticket: str, *, actor: str) -> None:
    """Make a ticket invalid; an attempt that was begun with it is not changed.

    Raises:
        NotFoundError: for an unknown ticket.
        ConflictError: for one that is not open.
    """
    with service.database.writing():
        row = service.row(sa.select(tables.tickets.c.status).where(tables.tickets.c.id == ticket))
        if row is None:
            raise NotFoundError("There is no such ticket.")
        if row.status != "open":
            raise ConflictError(f"The ticket is {row.status}.")
        statement = tables.tickets.update().where(tables.tickets.c.id == ticket)
        service.database.run(statement.values(status="revoked"))
        service.publish(Acted(actor, "ticket revoked", {"ticket": ticket}))


def ticket_table(service: Service, test: str | None = None) -> pd.DataFrame:
    """Tickets, the latest first; without tokens, which are not stored."""
    names = [
        "id",
        "test",
        "person",
        "accommodations",
        "opens",
        "expires",
        "created",
        "status",
        "attempt",
    ]
    statement = sa.select(*(tables.tickets.c[name] for name in names))
    if test is not None:
        statement = statement.where(tables.tickets.c.test == test)
    rows: list[Any] = service.rows(statement.order_by(tables.tickets.c.created.desc()))
    frame = pd.DataFrame([tuple(row) for row in rows], columns=names)
    frame["accommodations"] = [json.loads(text) for text in frame["accommodations"]]
    return frame
