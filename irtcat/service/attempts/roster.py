"""Rosters: tables of the people who get tickets, and what becomes of each line.

A roster is CSV: cells separated by commas, in double quotes where a cell has a comma (a quote in it
is doubled). What was copied from a spreadsheet has tabs between its cells: where the first line has
one, all lines are read so, and commas belong to the cells. Spaces around cells and lines without
any value are left out. A line that may mean something else than it says is refused, with its
number.
"""

import csv
import io
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, NamedTuple

from irtcat._common.checks import InputError, shorten
from irtcat.service.attempts.people import Ticket, add_person, issue_ticket, known_person, open_test
from irtcat.service.base.errors import ServiceError
from irtcat.service.storage.context import Service

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

    Attributes:
        number: the line on which it begins, from 1.
        name: name, or empty.
        email: address, or empty.
        external: id in another system, or empty.
        accommodations: names of accommodations.
    """

    number: int
    name: str = ""
    email: str = ""
    external: str = ""
    accommodations: tuple[str, ...] = ()


class Roster(NamedTuple):
    """A table of people.

    Attributes:
        columns: its columns in their order, some of `COLUMNS`.
        lines: its lines.
    """

    columns: list[str]
    lines: list[Line]


class Issued(NamedTuple):
    """What became of a line.

    Attributes:
        line: the line.
        status: `NEW`, or ``known: NAME``.
        ticket: the ticket; after a trial it does not exist.
    """

    line: Line
    status: str
    ticket: Ticket


def read_lines(text: str, most: int) -> list[Line]:
    """Read people from lines of name, e-mail and external id; the last two may be missing.

    A first line of `LABELS` names other columns, or their order.

    Args:
        text: the lines.
        most: greatest number of people.

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

    Args:
        text: the table.
        most: greatest number of people.

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


def issue(
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

    Args:
        service: the service.
        test: id of a published test.
        lines: the people.
        actor: who issues them.
        accommodations: those of all tickets, beside those of the lines.
        opens: from when they are valid.
        expires: until when the test may be begun.
        dry_run: whether this is a trial: all is checked and nothing is stored.

    Raises:
        NotFoundError: for an unknown test.
        ConflictError: for a test that is retired, or an external id that is known with another name
            or e-mail, naming the line.
        ServiceError: for what else a line cannot have, naming it.
    """
    open_test(service, test)
    database, out = service.database, []
    with database.undone() if dry_run else database.writing():
        for line in lines:
            about = {"name": line.name, "email": line.email, "external": line.external}
            wanted = list(dict.fromkeys([*accommodations, *line.accommodations]))
            try:
                person, status = admit(service, **about, actor=actor)
                ticket = issue_ticket(
                    service,
                    test,
                    actor=actor,
                    person=person,
                    accommodations=wanted,
                    opens=opens,
                    expires=expires,
                )
            except InputError as error:
                kind = type(error) if isinstance(error, ServiceError) else ServiceError
                raise _fault(line.number, str(error), kind) from None
            out.append(Issued(line, status, ticket))
    return out


def _fault(number: int, text: str, kind: type[ServiceError] = ServiceError) -> ServiceError:
    return kind(f"Line {number}: {text}")
