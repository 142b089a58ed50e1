"""People and tickets: who may take which test, lists of people, and how a person is erased.

Logs, results and tickets know a person by a random id. The table of people alone says who that is;
erasing a person deletes that row, and the logs stay whole.

A list of people (a roster) is CSV: cells separated by commas, in double quotes where a cell has a
comma (a quote in it is doubled). What was copied from a spreadsheet has tabs between its cells:
where the first line has one, all lines are read so, and commas belong to the cells. Spaces around
cells and lines without any value are left out. A line that may mean something else than it says is
refused, with its number.
"""

import csv
import io
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, NamedTuple

import pandas as pd
import sqlalchemy as sa
from pydantic import BaseModel, Field

from irtcat._common.checks import InputError, argument_error, check_id, shorten
from irtcat._common.clock import utc_text
from irtcat.service.attempts.library import PublishedTest, published_test
from irtcat.service.base.errors import ConflictError, NotFoundError, ServiceError, found
from irtcat.service.definition import time_factor
from irtcat.service.storage import tables
from irtcat.service.storage.context import Service, digest_of, new_id, new_secret


class Ticket(BaseModel):
    """A ticket as it was issued; its token is shown only once, and not stored."""

    id: str
    token: str = Field(description="The last part of the link to the test.")
    person: str


def add_person(
    service: Service, *, name: str = "", email: str = "", external: str = "", actor: str
) -> str:
    """Add a person; return the random id by which everything else knows them.

    A person with the same external id is returned, not added.

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
        service.insert(tables.people, **row, created=service.now())
        service.acted(actor, "person added", person=person)
    return person


def known_person(service: Service, *, name: str = "", email: str = "", external: str) -> Any:
    """The person with an external id; None without one.

    Nobody is known by an empty id; an empty name or address stands for any.

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
    with service.recorded(actor, "person erased", person=person):
        if not service.delete(tables.people, person):
            raise NotFoundError("There is no such person, or they are erased.")
        tickets = tables.tickets.c
        is_open = (tickets.person == person) & (tickets.status == "open")
        service.change(tables.tickets, is_open, status="revoked")


def people_table(service: Service) -> pd.DataFrame:
    """All people that are not erased."""
    return service.frame(sa.select(tables.people).order_by(tables.people.c.created))


def open_test(service: Service, test: str) -> PublishedTest:
    """A published test that takes new attempts.

    Raises:
        NotFoundError: for an unknown test.
        ConflictError: for a test that is retired.
    """
    published = published_test(service, test)
    # Another process may have retired it after this one read it.
    status = sa.select(tables.tests.c.status).where(tables.tests.c.id == test)
    if service.scalar(status) != "open":
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

    Without a ``person`` it is for a new one without a name. By default it is valid at once, and
    the test may be begun at any time.

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
    if opens and expires and not opens < expires:
        raise argument_error("expires", "a time after `opens`", expires.isoformat())
    token = new_secret()
    with service.database.writing():
        if person is None:
            person = add_person(service, actor=actor)
        else:
            found(service.get(tables.people, person), "person")
        ticket = new_id("t")
        service.insert(
            tables.tickets,
            id=ticket,
            token=digest_of(token),
            test=test,
            person=person,
            accommodations=json.dumps(list(accommodations)),
            **times,
            created=service.now(),
            status="open",
            attempt="",
        )
        service.acted(actor, "ticket issued", ticket=ticket, test=test, person=person)
    return Ticket(id=ticket, token=token, person=person)


def _time(argument: str, value: datetime | None) -> str:
    if value is None:
        return ""
    if not isinstance(value, datetime) or value.utcoffset() is None:
        raise argument_error(argument, "a time with a time zone", value)
    try:
        return utc_text(value.astimezone(UTC))
    except OverflowError:
        raise argument_error(argument, "a time from year 1 to 9999 in UTC", value) from None


def revoke_ticket(service: Service, ticket: str, *, actor: str) -> None:
    """Make a ticket invalid; an attempt that was begun with it is not changed.

    Raises:
        NotFoundError: for an unknown ticket.
        ConflictError: for one that is not open.
    """
    with service.recorded(actor, "ticket revoked", ticket=ticket):
        row = found(service.get(tables.tickets, ticket), "ticket")
        if row.status != "open":
            raise ConflictError(f"The ticket is {row.status}.")
        service.change(tables.tickets, ticket, status="revoked")


def ticket_table(service: Service, test: str | None = None) -> pd.DataFrame:
    """Tickets, the latest first; without tokens, which are not stored."""
    statement = sa.select(*(it for it in tables.tickets.c if it.name != "token"))
    if test is not None:
        statement = statement.where(tables.tickets.c.test == test)
    frame = service.frame(statement.order_by(tables.tickets.c.created.desc()))
    return frame.assign(accommodations=frame["accommodations"].map(json.loads))


COLUMNS = ("external", "name", "email", "accommodations")
"""Columns of a table with a header."""

NEW = "new"
"""Status of a person that is added; that of another is ``known: NAME``."""

QUOTES = 'Write a name with a comma in double quotes: "Müller, Anna"'

SEPARATORS = {"\t": "a tab", ";": "a semicolon"}

LABELS = {
    "name": "name",
    "email": "email",
    "e-mail": "email",
    "external": "external",
    "external id": "external",
    "id": "external",
}
"""Columns by the labels that a first line may have, in any order."""


@dataclass(frozen=True)
class Line:
    """One person of a roster.

    ``number`` is the line on which it begins, from 1.
    """

    number: int
    name: str = ""
    email: str = ""
    external: str = ""
    accommodations: tuple[str, ...] = ()


class Roster(NamedTuple):
    """A table of people."""

    columns: list[str]
    lines: list[Line]


class Issued(NamedTuple):
    """What became of a line.

    The status is `NEW`, or ``known: NAME``; after a trial the ticket does not exist.
    """

    line: Line
    status: str
    ticket: Ticket


def read_lines(text: str, most: int) -> list[Line]:
    """Read people from lines of name, e-mail and external id; the last two may be missing.

    A first line of `LABELS` names other columns, or their order.

    Raises:
        ServiceError: naming the line.

    Example:
        >>> read_lines('Ada, ada@example.org, s-1', most=500)
        [Line(number=1, name='Ada', email='ada@example.org', external='s-1', accommodations=())]
        >>> read_lines('Müller, Anna', most=500)
        Traceback (most recent call last):
        irtcat.service.base.errors.ServiceError: Line 1: an e-mail address has an @. Got ...
    """
    lines, columns = list[Line](), ["name", "email", "external"]
    for at, (number, cells) in enumerate(_records(text)):
        while len(cells) > len(columns) and not cells[-1]:
            cells.pop()  # empty columns of a spreadsheet
        labels = [LABELS.get(cell.lower(), "") for cell in cells]
        if at == 0 and all(labels) and len(set(labels)) == len(labels):
            columns = labels
            continue
        if len(cells) > len(columns):
            got = f"Got {len(cells)} cells. {QUOTES}."
            raise _fault(number, f"it must have a name, an e-mail and an id. {got}")
        values = dict(zip(columns, cells, strict=False))
        name, email, external = (values.get(label, "") for label in ("name", "email", "external"))
        line = Line(number, name, email, external)
        if "@" in line.name and not line.email:
            name = shorten(line.name)
            raise _fault(number, f"the first cell is the name. Got {name}. Begin with a comma.")
        lines.append(line)
    return _checked(lines, most)


def read_table(text: str, most: int) -> Roster:
    """Read people from a table whose header names some of `COLUMNS`.

    Accommodations are separated by ``|``.

    Raises:
        ServiceError: naming the line.
    """
    records = _records(text)
    number, columns = next(records, (1, []))
    if not columns or not set(columns) <= set(COLUMNS) or len(columns) != len(set(columns)):
        must = f"the header must have some of {', '.join(COLUMNS)}, each once, between commas"
        raise _fault(number, f"{must}. Got {shorten(', '.join(columns))}.")
    lines = []
    for number, cells in records:
        if len(cells) != len(columns):
            must = f"it must have a value for each of {len(columns)} columns"
            raise _fault(number, f"{must}. Got {len(cells)} cells. {QUOTES}.")
        values: dict[str, Any] = dict(zip(columns, cells, strict=True))
        names = values.get("accommodations", "").split("|")
        values["accommodations"] = tuple(name for name in names if name)
        lines.append(Line(number, **values))
    return Roster(columns, _checked(lines, most))


def _records(text: str) -> Iterator[tuple[int, list[str]]]:
    """The lines with a value: number of the line on which each begins, and its cells."""
    text = text.removeprefix("\ufeff")
    first = next((line for line in text.splitlines() if line.strip()), "")
    pasted = "\t" in first
    source = io.StringIO(text, newline="")
    delimiter = "\t" if pasted else ","
    reader = csv.reader(source, strict=True, skipinitialspace=not pasted, delimiter=delimiter)
    while True:
        number = reader.line_num + 1
        try:
            cells = [cell.strip(" ") for cell in next(reader)]
        except StopIteration:
            return
        except csv.Error:
            must = "double quotes must be around a whole cell, and those in it doubled"
            raise _fault(number, f"{must}.") from None
        for separator, name in () if pasted else SEPARATORS.items():
            if any(separator in cell for cell in cells):
                raise _fault(number, f"cells must be separated by commas. Got {name}.")
        if any(cells):
            yield number, cells


def _checked(lines: list[Line], most: int) -> list[Line]:
    """The lines, none of which contradicts itself or another."""
    if len(lines) > most:
        raise ServiceError(f"There must be at most {most} people. Got {len(lines)}.")
    first: dict[str, int] = {}
    for line in lines:
        if line.email and "@" not in line.email:
            got = f"Got {shorten(line.email)}. {QUOTES}"
            advice = "or begin with the heads of the columns, such as name and id"
            raise _fault(line.number, f"an e-mail address has an @. {got}, {advice}.")
        if line.external:
            earlier = first.setdefault(line.external, line.number)
            if earlier != line.number:
                got = f"the id {shorten(line.external)} is that of line {earlier} already"
                raise _fault(line.number, f"{got}.")
    return lines


def admit(
    service: Service, *, name: str = "", email: str = "", external: str = "", actor: str
) -> tuple[str, str]:
    """Add a person, or find the known one; return the id, and `NEW` or ``known: NAME``.

    Raises:
        ConflictError: if the external id is known with another name or e-mail.
    """
    about = {"name": name, "email": email, "external": external}
    with service.database.writing():
        known = known_person(service, **about)
        if known is not None:
            return str(known.id), f"known: {known.name or known.external}"
        return add_person(service, **about, actor=actor), NEW


def issue_tickets(
    service: Service,
    test: str,
    lines: Sequence[Line],
    *,
    actor: str,
    accommodations: Sequence[str] = (),
    opens: datetime | None = None,
    expires: datetime | None = None,
    dry_run: bool = False,
) -> list[Issued]:
    """Issue a ticket for each line, all or none.

    ``accommodations`` are those of all tickets, beside those of the lines. A ``dry_run`` checks
    all and stores nothing.

    Raises:
        NotFoundError: for an unknown test.
        ConflictError: for a test that is retired, or an external id that is known with another name
            or e-mail, naming the line.
        ServiceError: for what else a line cannot have, naming it.
    """
    open_test(service, test)
    database, out = service.database, []
    terms: dict[str, Any] = {"actor": actor, "opens": opens, "expires": expires}
    with database.undone() if dry_run else database.writing():
        for line in lines:
            about = {"name": line.name, "email": line.email, "external": line.external}
            wanted = list(dict.fromkeys([*accommodations, *line.accommodations]))
            try:
                person, status = admit(service, **about, actor=actor)
                ticket = issue_ticket(service, test, person=person, accommodations=wanted, **terms)
            except InputError as error:
                kind = type(error) if isinstance(error, ServiceError) else ServiceError
                raise _fault(line.number, str(error), kind) from None
            out.append(Issued(line, status, ticket))
    return out


def _fault(number: int, text: str, kind: type[ServiceError] = ServiceError) -> ServiceError:
    return kind(f"Line {number}: {text}")
