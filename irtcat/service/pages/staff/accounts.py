"""The audit log, accounts of staff, and credentials of programs."""

from typing import Annotated, Any

from fastapi import Depends, Request, Response

from irtcat._common.checks import InputError
from irtcat.service.accounts.accounts import (
    LEAST_PASSWORD,
    ROLES,
    Account,
    account_table,
    add_account,
    change_account,
    set_password,
    sign_in,
)
from irtcat.service.accounts.clients import add_client, client_table, close_client
from irtcat.service.base.errors import UnauthorizedError
from irtcat.service.outbox.audit import audit_entries
from irtcat.service.pages import CheckedForm, service_of
from irtcat.service.pages.staff.base import (
    Requires,
    Shown,
    Staff,
    Table,
    back_to,
    field,
    page,
    part_router,
)

router = part_router()

Auditor = Annotated[Account, Depends(Requires("audit"))]
Admin = Annotated[Account, Depends(Requires("accounts"))]

SHOWN = 300
"""Entries of the audit log on one page."""


@router.get("/audit")
def audit_page(request: Request, account: Auditor, verify: str = "", before: int = 0) -> Response:
    """The audit log, the latest first; its digests are checked if asked for."""
    frame = audit_entries(service_of(request), verified=bool(verify))
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
    return page(
        request,
        account,
        "audit.html",
        table=Table("Entries", columns, rows),
        verified=bool(verify),
        following=following,
    )


@router.get("/accounts")
def list_accounts(request: Request, account: Admin) -> Response:
    """All accounts, and a form to add one."""
    rows = account_table(service_of(request)).to_dict("records")
    return page(request, account, "accounts.html", accounts=rows, roles=ROLES, least=LEAST_PASSWORD)


def _password(form: Any, name: str = "password") -> str:
    value = form.get(name)
    return value if isinstance(value, str) else ""


@router.post("/accounts/add")
def add(request: Request, account: Admin, form: CheckedForm) -> Response:
    """Add an account."""
    password, subject = _password(form), field(form, "subject")
    if not password and not subject:
        raise InputError("Enter a password, or an identity of OpenID Connect.")
    add_account(
        service_of(request),
        field(form, "name"),
        password=password,
        subject=subject,
        roles=[str(role) for role in form.getlist("roles")],
        actor=account.actor,
    )
    return back_to("/staff/accounts", "added")


@router.post("/accounts/change")
def change(request: Request, account: Admin, form: CheckedForm) -> Response:
    """Change the roles of an account, close or reopen it, or set a new password."""
    service, name = service_of(request), field(form, "name")
    action = field(form, "action")
    if action == "roles":
        roles = [str(role) for role in form.getlist("roles")]
        change_account(service, name, roles=roles, actor=account.actor)
    elif action in ("close", "open"):
        change_account(service, name, is_open=action == "open", actor=account.actor)
    elif action == "password":
        set_password(service, name, _password(form), actor=account.actor)
    else:
        raise InputError("Choose what to change.")
    done = {"close": "closed", "open": "opened"}.get(action, action)
    return back_to("/staff/accounts", done)


def _programs(request: Request, account: Account, **made: str) -> Response:
    rows = client_table(service_of(request)).to_dict("records")
    base = str(request.base_url).rstrip("/")
    return page(request, account, "programs.html", programs=rows, base=base, made=made)


@router.get("/programs")
def programs_page(request: Request, account: Admin) -> Response:
    """The programs that may use the CAT interface, and a form to add one."""
    return _programs(request, account)


@router.post("/programs/add")
def add_program(request: Request, account: Admin, form: CheckedForm) -> Response:
    """Make the credentials of a program, and show them once."""
    name = field(form, "name")
    client, secret = add_client(service_of(request), name, actor=account.actor)
    return _programs(request, account, name=name, id=client, secret=secret)


@router.post("/programs/revoke")
def revoke_program(request: Request, account: Admin, form: CheckedForm) -> Response:
    """Refuse all requests of a program from now on."""
    close_client(service_of(request), field(form, "client"), actor=account.actor)
    return back_to("/staff/programs", "withdrawn")


@router.get("/account")
def own_page(request: Request, account: Staff) -> Response:
    """The signed-in account: its roles, and a form for a new password."""
    roles = {name: ROLES[name] for name in account.roles}
    return page(request, account, "account.html", roles=roles, least=LEAST_PASSWORD)


@router.post("/account/password")
def own_password(request: Request, account: Staff, form: CheckedForm) -> Response:
    """Change the account's own password, given the present one."""
    service = service_of(request)
    try:
        sign_in(service, account.name, _password(form, "present"))
    except UnauthorizedError:
        raise InputError("The present password is wrong.") from None
    if _password(form) != _password(form, "repeated"):
        raise InputError("The two new passwords differ.")
    set_password(service, account.name, _password(form), actor=account.actor)
    return back_to("/staff/sign-in")
