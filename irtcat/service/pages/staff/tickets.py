"""Tickets: issue one or many, with accommodations and validity; print the links; revoke."""

import csv
import io
from datetime import UTC, datetime
from typing import Annotated, Any
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from fastapi import Depends, Request, Response

from irtcat._checks import InputError
from irtcat.service import library, people
from irtcat.service.auth.accounts import Account
from irtcat.service.definition import ACCOMMODATIONS
from irtcat.service.library import PublishedTest, published_test
from irtcat.service.pages import CheckedForm, service_of
from irtcat.service.pages.staff._base import (
    Requires,
    back_to,
    field,
    names_of_people,
    page,
    part_router,
    whole_number,
)

__all__ = ["router"]

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
        request, account, "tickets.html", tickets=shown.to_dict("records"), total=len(frame),
        titles=dict(zip(tests["id"], tests["title"], strict=True)),
        names=names_of_people(service, shown["person"].tolist()), test=test, state=status,
    )  # fmt: skip


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
        request, account, "ticket_new.html", status=status, tests=open_tests,
        accommodations={name: text for name, text in ACCOMMODATIONS.items() if name in offered},
        most=MOST, **{"values": {}, "error": "", "chosen": [], **context},
    )  # fmt: skip


@router.get("/tickets/new")
def ticket_page(request: Request, account: Issuer, test: str = "", person: str = "") -> Response:
    """The form to issue tickets."""
    return _form_page(request, account, values={"test": test, "person": person})


@router.post("/tickets/new")
def issue(request: Request, account: Issuer, form: CheckedForm) -> Response:
    """Issue tickets, and show their links, once."""
    service = service_of(request)
    values = {name: value for name, value in form.items() if isinstance(value, str)}
    chosen = [str(name) for name in form.getlist("accommodations")]
    try:
        test = published_test(service, field(form, "test"))
        holders = _holders(form)
        times = {
            name: _time(field(form, name), field(form, "zone")) for name in ("opens", "expires")
        }
        issued = _issue(request, account, test, holders, chosen, times)
    except InputError as error:
        return _form_page(
            request, account, status=422, values=values, error=str(error), chosen=chosen
        )
    base = str(request.base_url).rstrip("/")
    links = [(name, f"{base}/t/{ticket.token}", ticket) for name, ticket in issued]
    return page(
        request, account, "ticket_links.html", links=links, test=test, times=times,
        accommodations=[ACCOMMODATIONS[name] for name in chosen],
    )  # fmt: skip


def _holders(form: Any) -> list[dict[str, str]]:
    """For whom the tickets are: a person that is known, lines of names, or a number of unnamed."""
    if field(form, "person"):
        return [{"person": field(form, "person")}]
    lines = field(form, "people")
    if not lines:
        return [{}] * whole_number(form, "count", "Number of tickets", 1, MOST)
    holders = []
    for cells in csv.reader(io.StringIO(lines)):
        parts = [cell.strip() for cell in cells]
        if not any(parts):
            continue
        if len(parts) > 3:
            raise InputError(f"People: a line has a name, an e-mail and an id. Got {len(parts)}.")
        names = ("name", "email", "external")
        holders.append(dict(zip(names, [*parts, "", ""], strict=False)))
    if not 1 <= len(holders) <= MOST:
        raise InputError(f"People: enter 1 to {MOST} lines. Got {len(holders)}.")
    return holders


def _time(text: str, zone: str) -> datetime | None:
    if not text:
        return None
    try:
        return datetime.fromisoformat(text).replace(tzinfo=ZoneInfo(zone) if zone else UTC)
    except (ValueError, ZoneInfoNotFoundError):
        raise InputError(f"Validity: enter a date and a time. Got {text[:40]!r}.") from None


def _issue(
    request: Request, account: Account, test: PublishedTest, holders: list[dict[str, str]],
    accommodations: list[str], times: dict[str, datetime | None],
) -> list[tuple[str, people.Ticket]]:  # fmt: skip
    """Issue all tickets, or none."""
    service, out = service_of(request), []
    with service.database.writing():
        for holder in holders:
            person = holder.get("person")
            if person is None and holder:
                person = people.add_person(service, **holder, actor=account.actor)
            ticket = people.issue_ticket(
                service, test.id, actor=account.actor, person=person,
                accommodations=accommodations, **times,
            )  # fmt: skip
            out.append((holder.get("name", "") or holder.get("external", ""), ticket))
    names = names_of_people(service, [ticket.person for _, ticket in out])
    return [(name or names.get(ticket.person, ""), ticket) for name, ticket in out]


@router.post("/tickets/{ticket}/revoke")
def revoke(request: Request, account: Issuer, form: CheckedForm, ticket: str) -> Response:
    """Make a ticket invalid."""
    people.revoke_ticket(service_of(request), ticket, actor=account.actor)
    return back_to("/staff/tickets", "revoked")
