"""People and tickets: add and erase people; issue tickets, print their links, and revoke them."""

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Annotated, Any
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from fastapi import Depends, Response

from irtcat._common.checks import InputError
from irtcat.service.attempts import library, people, proctoring
from irtcat.service.attempts.library import PublishedTest, published_test
from irtcat.service.base.errors import NotFoundError
from irtcat.service.definition import ACCOMMODATIONS
from irtcat.service.pages import CheckedForm
from irtcat.service.pages.staff.base import Requires, Table, Visit, field, part_router, whole_number
from irtcat.service.storage import tables
from irtcat.service.storage.context import digest_of

router = part_router()

Keeper = Annotated[Visit, Depends(Requires("people"))]

PEOPLE_SHOWN = 500
"""People that the list shows; more are found by searching."""


@router.get("/people")
def list_people(at: Keeper, find: str = "") -> Response:
    """People that are not erased, and a form to add one."""
    frame = people.people_table(at.service)
    if find and len(frame):  # of no rows, `agg` makes no column
        text = frame[["id", "name", "email", "external"]].agg(" ".join, axis=1).str.lower()
        frame = frame[text.str.contains(find.lower(), regex=False)]
    rows = frame.iloc[::-1].head(PEOPLE_SHOWN).to_dict("records")
    return at.page("people.html", people=rows, total=len(frame), find=find)


@router.get("/people/{person}/erase")
def erase_page(at: Keeper, person: str) -> Response:
    """Ask before a person is erased."""
    row = at.service.get(tables.people, person)
    if row is None:
        raise NotFoundError("There is no such person, or they are erased.")
    attempts = len(proctoring.board(at.service, statuses=None, person=person))
    return at.page("erase.html", person=row, attempts=attempts)


Issuer = Annotated[Visit, Depends(Requires("tickets"))]

MOST = 500
"""Tickets of one form: their links fit on a page that can be printed."""

SHOWN = 500
"""Tickets that the list shows."""


@router.get("/tickets")
def list_tickets(at: Issuer, test: str = "", status: str = "") -> Response:
    frame = people.ticket_table(at.service, test or None)
    if status:
        frame = frame[frame["status"] == status]
    tests = library.published_tests(at.service)
    shown = frame.head(SHOWN)
    return at.page(
        "tickets.html",
        tickets=shown.to_dict("records"),
        total=len(frame),
        titles=dict(zip(tests["id"], tests["title"], strict=True)),
        names=at.names_of(shown["person"].tolist()),
        test=test,
        state=status,
    )


def _form_page(at: Visit, *, status: int = 200, **context: Any) -> Response:
    tests = library.published_tests(at.service)
    open_tests = tests[tests["status"] == "open"].to_dict("records")
    allowed = {
        row["id"]: published_test(at.service, row["id"]).definition.accommodations.allowed
        for row in open_tests
    }
    offered = {name for names in allowed.values() for name in names}
    return at.page(
        "ticket_new.html",
        status=status,
        tests=open_tests,
        accommodations={name: text for name, text in ACCOMMODATIONS.items() if name in offered},
        most=MOST,
        **{"values": {}, "error": "", "chosen": [], **context},
    )


@router.get("/tickets/new")
def ticket_page(at: Issuer, test: str = "", person: str = "") -> Response:
    return _form_page(at, values={"test": test, "person": person})


@router.post("/tickets/new")
def issue(at: Issuer, form: CheckedForm) -> Response:
    """Issue tickets, and show their links, once; for lines of people after they are confirmed."""
    values = {name: value for name, value in form.items() if isinstance(value, str)}
    chosen = [str(name) for name in form.getlist("accommodations")]
    if "change" in form:
        return _form_page(at, values=values, chosen=chosen)
    try:
        test = published_test(at.service, field(form, "test"))
        zone = field(form, "zone")
        times = {name: _time(field(form, name), zone) for name in ("opens", "expires")}
        terms: dict[str, Any] = {"actor": at.actor, "accommodations": chosen, **times}
        if field(form, "people") and not field(form, "person"):
            lines = _lines(field(form, "people"))
            trial = people.issue_tickets(at.service, test.id, lines, dry_run=True, **terms)
            seen = _digest(trial, values, chosen)
            if field(form, "seen") != seen:
                shown = dict[str, Any](test=test, times=times, chosen=chosen, seen=seen)
                return _confirm_page(at, trial, values, **shown)
            made = people.issue_tickets(at.service, test.id, lines, **terms)
            issued = [ticket for _, _, ticket in made]
        else:
            issued = _issue(at, form, test, terms)
    except InputError as error:
        return _form_page(at, status=422, values=values, error=str(error), chosen=chosen)
    base = str(at.request.base_url).rstrip("/")
    names = at.names_of([ticket.person for ticket in issued])
    links = [
        (names.get(ticket.person, ""), f"{base}/t/{ticket.token}", ticket) for ticket in issued
    ]
    return at.page(
        "ticket_links.html",
        links=links,
        test=test,
        times=times,
        accommodations=[ACCOMMODATIONS[name] for name in chosen],
    )


def _lines(text: str) -> list[people.Line]:
    try:
        lines = people.read_lines(text, MOST)
    except InputError as error:
        raise InputError(f"People: {error}") from None
    if not lines:
        raise InputError(f"People: enter 1 to {MOST} lines. Got none.")
    return lines


def _digest(trial: Sequence[people.Issued], values: dict[str, str], chosen: list[str]) -> str:
    """A digest of what the page shows before tickets are issued: a change of it is shown again."""
    terms = [values.get(name, "") for name in ("test", "opens", "expires", "zone")]
    return digest_of(repr(([(line, status) for line, status, _ in trial], terms, chosen)))


def _confirm_page(
    at: Visit,
    trial: Sequence[people.Issued],
    values: dict[str, str],
    *,
    chosen: list[str],
    **context: Any,
) -> Response:
    """What will be created for each line."""
    labels = ["Line", "Person", "Name", "E-mail", "Id"]
    rows = [
        [str(line.number), status, line.name, line.email, line.external]
        for line, status, _ in trial
    ]
    kept = {name: value for name, value in values.items() if name not in ("token", "seen")}
    return at.page(
        "ticket_confirm.html",
        values=kept,
        chosen=chosen,
        **context,
        new=sum(status == people.NEW for _, status, _ in trial),
        table=Table("People", [(label, label == "Line") for label in labels], rows),
        accommodations=[ACCOMMODATIONS[name] for name in chosen],
    )


def _time(text: str, zone: str) -> datetime | None:
    if not text:
        return None
    try:
        return datetime.fromisoformat(text).replace(tzinfo=ZoneInfo(zone) if zone else UTC)
    except (ValueError, ZoneInfoNotFoundError):
        raise InputError(f"Validity: enter a date and a time. Got {text[:40]!r}.") from None


def _issue(at: Visit, form: Any, test: PublishedTest, terms: dict[str, Any]) -> list[people.Ticket]:
    """Issue a ticket for a known person, or a number of tickets without names."""
    person = field(form, "person") or None
    n = 1 if person else whole_number(form, "count", "Number of tickets", 1, MOST)
    with at.service.database.writing():
        return [people.issue_ticket(at.service, test.id, person=person, **terms) for _ in range(n)]
