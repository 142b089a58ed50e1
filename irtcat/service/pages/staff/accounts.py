"""Signing in and out, the first page, the audit log, accounts, and credentials of programs."""

from contextlib import suppress
from typing import Annotated

from fastapi import Depends, Request, Response
from fastapi.responses import RedirectResponse

from irtcat._common.checks import InputError
from irtcat.service.accounts import accounts, clients
from irtcat.service.accounts.credentials import (
    browser_secret,
    forget_browser,
    remember_browser,
    service_of,
)
from irtcat.service.base.errors import UnauthorizedError
from irtcat.service.outbox.audit import audit_entries
from irtcat.service.pages import CheckedForm, form_text, local_path
from irtcat.service.pages.staff.base import (
    SIGN_IN,
    Requires,
    Shown,
    Staff,
    Table,
    Visit,
    back_to,
    field,
    page,
    part_router,
    signed_in,
)
from irtcat.service.storage import tables

router = part_router()


def _target(text: str) -> str:
    """The page to go to after signing in: one of staff."""
    path = local_path(text)
    return path if path.startswith(("/staff/", "/staff?")) else "/staff"


def _sign_in_page(request: Request, to: str, status: int = 200, error: str = "") -> Response:
    provider = request.app.state.oidc
    return page(
        request,
        None,
        "sign_in.html",
        status=status,
        to=_target(to),
        error=error,
        oidc="" if provider is None else provider.name,
    )


@router.get("/sign-in")
def sign_in_page(request: Request, to: str = "/staff") -> Response:
    """Name and password, and the provider of OpenID Connect where there is one."""
    return _sign_in_page(request, to)


@router.post("/sign-in")
def enter(request: Request, form: CheckedForm) -> Response:
    """Sign in by name and password."""
    service, to = service_of(request), field(form, "to")
    try:
        account = accounts.sign_in(service, field(form, "name"), form_text(form, "password"))
    except UnauthorizedError as error:
        return _sign_in_page(request, to, 401, str(error))
    response = RedirectResponse(_target(to), status_code=303)
    remember_browser(
        request, response, accounts.issue_token(service, account, kind=accounts.BROWSER)
    )
    return response


@router.post("/sign-out")
def leave(request: Request, form: CheckedForm) -> Response:
    """Sign out in this browser."""
    with suppress(UnauthorizedError):
        account = signed_in(request)
        accounts.revoke_tokens(service_of(request), account.name, browser_secret(request))
    response = RedirectResponse(SIGN_IN, status_code=303)
    forget_browser(request, response)
    return response


@router.get("/account")
def own_page(at: Staff) -> Response:
    """The signed-in account: its roles, and a form for a new password."""
    roles = {name: accounts.ROLES[name] for name in at.account.roles}
    return at.page("account.html", roles=roles, least=accounts.LEAST_PASSWORD)


@router.post("/account/password")
def own_password(at: Staff, form: CheckedForm) -> Response:
    """Change the account's own password, given the present one."""
    try:
        accounts.sign_in(at.service, at.account.name, form_text(form, "present"))
    except UnauthorizedError:
        raise InputError("The present password is wrong.") from None
    if form_text(form, "password") != form_text(form, "repeated"):
        raise InputError("The two new passwords differ.")
    accounts.set_password(at.service, at.account.name, form_text(form, "password"), actor=at.actor)
    return back_to(SIGN_IN)


FIGURES = (
    ("attempts under way", "watch", tables.attempts, ("running", "paused"), "board"),
    ("open tests", "", tables.tests, ("open",), "tests"),
    ("unused tickets", "tickets", tables.tickets, ("open",), "tickets"),
    ("finished attempts", "results", tables.attempts, ("finished",), "attempts?status=finished"),
)
"""Rows of the start page that are counted: label, permission, table, statuses, and the page."""


@router.get("")
def start_page(at: Staff) -> Response:
    """What there is to do, by role."""
    figures = [
        (
            label,
            at.service.scalar(tables.counted(table, table.c.status.in_(statuses))),
            f"/staff/{page}",
        )
        for label, permission, table, statuses, page in FIGURES
        if not permission or at.account.may(permission)
    ]
    roles = {name: accounts.ROLES[name] for name in at.account.roles}
    return at.page("start.html", figures=figures, roles=roles)


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
    rows = []
    for number, moment, actor, action, details in shown.to_numpy(object):
        of = ", ".join(f"{name} {Shown.response(value)}" for name, value in details.items())
        rows.append([str(number), Shown.moment(moment), actor, action, of])
    columns = [("No.", True), *((label, False) for label in ("Time", "By", "Action", "Of"))]
    following = int(shown["number"].iloc[-1]) if len(frame) > SHOWN else None
    table = Table("Entries", columns, rows)
    return at.page("audit.html", table=table, verified=bool(verify), following=following)


@router.get("/accounts")
def list_accounts(at: Admin) -> Response:
    """All accounts, and a form to add one."""
    rows = accounts.account_table(at.service).to_dict("records")
    return at.page(
        "accounts.html", accounts=rows, roles=accounts.ROLES, least=accounts.LEAST_PASSWORD
    )


def _programs(at: Visit, **made: str) -> Response:
    rows = clients.client_table(at.service).to_dict("records")
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
    client, secret = clients.add_client(at.service, name, actor=at.actor)
    return _programs(at, name=name, id=client, secret=secret)
