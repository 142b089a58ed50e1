"""Tickets: issue one or many, with accommodations and validity; print the links; revoke."""

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Annotated, Any
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from fastapi import Depends, Request, Response

from irtcat._common.checks import InputError
from irtcat.service.accounts.accounts import Account
from irtcat.service.attempts import library, people, roster
from irtcat.service.attempts.library import PublishedTest, published_test
from irtcat.service.definition import ACCOMMODATIONS
from irtcat.service.pages import CheckedForm, service_of
from irtcat.service.pages.staff.base import (
    Requires,
    Table,
    back_to,
    field,
    names_of_people,
    page,
    part_router,
    whole_number,
)
from irtcat.service.storage.context import digest_of

router = part_router()

Issuer = Annotated[Account, Depends(Requires("tickets"))]

MOST = 500
"""Tickets of one form: their links fit on a page that can be printed."""

SHOWN = 500
"""Tickets that the list shows."""


@router.get("/tickets")
def list_tickets(request: Request, account: Issuer, test: str = "", status: str = "") -> Response:
    """Tickets, the latest first."""
    service = service_of(request)
    frame = people.ticket_table(service, test or None)
    if status:
        frame = frame[frame["status"] == status]
    tests = library.published_tests(service)
    shown = frame.head(SHOWN)
    return page(
        request,
        account,
        "tickets.html",
        tickets=shown.to_dict("records"),
        total=len(frame),
        titles=dict(zip(tests["id"], tests["title"], strict=True)),
        names=names_of_people(service, shown["person"].tolist()),
        test=test,
        state=status,
    )


def _form_page(
    request: Request, account: Account, *, status: int = 200, **context: Any
) -> Response:
    service = service_of(request)
    tests = library.published_tests(service)
    open_tests = tests[tests["status"] == "open"].to_dict("records")
    allowed = {
        row["id"]: published_test(service, row["id"]).definition.accommodations.allowed
        for row in open_tests
    }
    offered = {name for names in allowed.values() for name in names}
    return page(
        request,
        account,
        "ticket_new.html",
        status=status,
        tests=open_tests,
        accommodations={name: text for name, text in ACCOMMODATIONS.items() if name in offered},
        most=MOST,
        **{"values": {}, "error": "", "chosen": [], **context},
    )


@router.get("/tickets/new")
def ticket_page(request: Request, account: Issuer, test: str = "", person: str = "") -> Response:
    """The form to issue tickets."""
    return _form_page(request, account, values={"test": test, "person": person})


@router.post("/tickets/new")
def issue(request: Request, account: Issuer, form: CheckedForm) -> Response:
    """Issue tickets, and show their links, once; for lines of people after they are confirmed."""
    service = service_of(request)
    values = {name: value for name, value in form.items() if isinstance(value, str)}
    chosen = [str(name) for name in form.getlist("accommodations")]
    if "change" in form:
        return _form_page(request, account, values=values, chosen=chosen)
    try:
        test = published_test(service, field(form, "test"))
        times = {
            name: _time(field(form, name), field(form, "zone")) for name in ("opens", "expires")
        }
        terms: dict[str, Any] = {"actor": account.actor, "accommodations": chosen, **times}
        if field(form, "people") and not field(form, "person"):
            lines = _lines(field(form, "people"))
            trial = roster.issue(service, test.id, lines, dry_run=True, **terms)
            seen = _digest(trial, values, chosen)
            if field(form, "seen") != seen:
                shown: dict[str, Any] = {
                    "test": test,
                    "times": times,
                    "chosen": chosen,
                    "seen": seen,
                }
                return _confirm_page(request, account, trial, values, **shown)
            made = roster.issue(service, test.id, lines, **terms)
            issued = [ticket for _, _, ticket in made]
        else:
            issued = _issue(request, form, test, terms)
    except InputError as error:
        return _form_page(
            request, account, status=422, values=values, error=str(error), chosen=chosen
        )
    base = str(request.base_url).rstrip("/")
    names = names_of_people(service, [ticket.person for ticket in issued])
    links = [
        (names.get(ticket.person, ""), f"{base}/t/{ticket.token}", ticket) for ticket in issued
    ]
    return page(
        request,
        account,
        "ticket_links.html",
        links=links,
        test=test,
        times=times,
        accommodations=[ACCOMMODATIONS[name] for name in chosen],
    )


def _lines(text: str) -> list[roster.Line]:
    try:
        lines = roster.read_lines(text, MOST)
    except InputError as error:
        raise InputError(f"People: {error}") from None
    if not lines:
        raise InputError(f"People: enter 1 to {MOST} lines. Got none.")
    return lines


def _digest(trial: Sequence[roster.Issued], values: dict[str, str], chosen: list[str]) -> str:
    """A digest of what the page shows before tickets are issued: a change of it is shown again."""
    terms = [values.get(name, "") for name in ("test", "opens", "expires", "zone")]
    return digest_of(repr(([(line, status) for line, status, _ in trial], terms, chosen)))


def _confirm_page(
    request: Request,
    account: Account,
    trial: Sequence[roster.Issued],
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
    return page(
        request,
        account,
        "ticket_confirm.html",
        values=kept,
        chosen=chosen,
        **context,
        new=sum(status == roster.NEW for _, status, _ in trial),
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


def _issue(
    request: Request, form: Any, test: PublishedTest, terms: dict[str, Any]
) -> list[people.Ticket]:
    """Issue a ticket for a known person, or a number of tickets without names."""
    service, person = service_of(request), field(form, "person") or None
    n = 1 if person else whole_number(form, "count", "Number of tickets", 1, MOST)
    with service.database.writing():
        return [people.issue_ticket(service, test.id, person=person, **terms) for _ in range(n)]


@router.post("/tickets/{ticket}/revoke")
def revoke(request: Request, account: Issuer, form: CheckedForm, ticket: str) -> Response:
    """Make a ticket invalid."""
    people.revoke_ticket(service_of(request), ticket, actor=account.actor)
    return back_to("/staff/tickets", "revoked")
