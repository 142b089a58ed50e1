"""The first page, the audit log, accounts, and credentials of programs."""

from typing import Annotated, Any

import sqlalchemy as sa
from fastapi import Depends, Response

from irtcat.service.accounts.accounts import LEAST_PASSWORD, ROLES, account_table
from irtcat.service.accounts.clients import add_client, client_table
from irtcat.service.attempts import library, proctoring
from irtcat.service.outbox.audit import audit_entries
from irtcat.service.pages import CheckedForm
from irtcat.service.pages.staff.base import Requires, Shown, Staff, Table, Visit, field, part_router
from irtcat.service.storage import tables

router = part_router()


@router.get("")
def start_page(at: Staff) -> Response:
    """What there is to do, by role."""
    figures: list[tuple[str, int, str]] = []
    if at.account.may("watch"):
        board = proctoring.board(at.service)
        figures.append(("attempts under way", len(board), "/staff/board"))
    frame = library.published_tests(at.service)
    figures.append(("open tests", int((frame["status"] == "open").sum()), "/staff/tests"))
    if at.account.may("tickets"):
        count = _count(at.service, tables.tickets, tables.tickets.c.status == "open")
        figures.append(("unused tickets", count, "/staff/tickets"))
    if at.account.may("results"):
        count = _count(at.service, tables.attempts, tables.attempts.c.status == "finished")
        figures.append(("finished attempts", count, "/staff/attempts?status=finished"))
    return at.page(
        "start.html", figures=figures, roles={name: ROLES[name] for name in at.account.roles}
    )


def _count(service: Any, table: sa.Table, condition: Any) -> int:
    return int(service.scalar(sa.select(sa.func.count()).select_from(table).where(condition)))


Auditor = Annotated[Visit, Depends(Requires("audit"))]
Admin = Annotated[Visit, Depends(Requires("accounts"))]

SHOWN = 300
"""Entries of the audit log on one page."""


@router.get("/audit")
def audit_page(at: Auditor, verify: str = "", before: int = 0) -> Response:
    """The audit log, the latest first; its digests are checked if asked for."""
    frame = audit_entries(at.service, verified=bool(verify))
    if before:
        frame = frame[frame["number"] < before]
    shown = frame.head(SHOWN)
    rows = [
        [
            str(number),
            Shown.moment(at),
            actor,
            action,
            ", ".join(f"{name} {Shown.response(value)}" for name, value in details.items()),
        ]
        for number, at, actor, action, details in shown.to_numpy(object)
    ]
    columns = [("No.", True), *((label, False) for label in ("Time", "By", "Action", "Of"))]
    following = int(shown["number"].iloc[-1]) if len(frame) > SHOWN else None
    return at.page(
        "audit.html",
        table=Table("Entries", columns, rows),
        verified=bool(verify),
        following=following,
    )


@router.get("/accounts")
def list_accounts(at: Admin) -> Response:
    """All accounts, and a form to add one."""
    rows = account_table(at.service).to_dict("records")
    return at.page("accounts.html", accounts=rows, roles=ROLES, least=LEAST_PASSWORD)


def _programs(at: Visit, **made: str) -> Response:
    rows = client_table(at.service).to_dict("records")
    base = str(at.request.base_url).rstrip("/")
    return at.page("programs.html", programs=rows, base=base, made=made)


@router.get("/programs")
def programs_page(at: Admin) -> Response:
    """The programs that may use the CAT interface, and a form to add one."""
    return _programs(at)


@router.post("/programs/add")
def add_program(at: Admin, form: CheckedForm) -> Response:
    """Make the credentials of a program, and show them once."""
    name = field(form, "name")
    client, secret = add_client(at.service, name, actor=at.actor)
    return _programs(at, name=name, id=client, secret=secret)
