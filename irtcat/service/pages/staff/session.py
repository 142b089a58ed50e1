"""Sign in, sign out, and the page on which staff begin."""

from typing import Any

import sqlalchemy as sa
from fastapi import Request, Response
from fastapi.responses import RedirectResponse

from irtcat.service.accounts.accounts import BROWSER, ROLES, issue_token, revoke_tokens, sign_in
from irtcat.service.accounts.staff import browser_secret, forget_browser, remember_browser
from irtcat.service.attempts import library, proctoring
from irtcat.service.base.errors import UnauthorizedError
from irtcat.service.pages import CheckedForm, local_path, service_of
from irtcat.service.pages.staff.base import SIGN_IN, Staff, field, page, part_router, signed_in
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
    password = form.get("password")
    try:
        account = sign_in(
            service, field(form, "name"), password if isinstance(password, str) else ""
        )
    except UnauthorizedError as error:
        return _sign_in_page(request, to, 401, str(error))
    response = RedirectResponse(_target(to), status_code=303)
    remember_browser(request, response, issue_token(service, account, kind=BROWSER))
    return response


@router.post("/sign-out")
def leave(request: Request, form: CheckedForm) -> Response:
    """Sign out in this browser."""
    try:
        account = signed_in(request)
        revoke_tokens(service_of(request), account.name, browser_secret(request))
    except UnauthorizedError:
        pass
    response = RedirectResponse(SIGN_IN, status_code=303)
    forget_browser(request, response)
    return response


@router.get("")
def start_page(request: Request, account: Staff) -> Response:
    """What there is to do, by role."""
    service = service_of(request)
    figures: list[tuple[str, int, str]] = []
    if account.may("watch"):
        board = proctoring.board(service)
        figures.append(("attempts under way", len(board), "/staff/board"))
    frame = library.published_tests(service)
    figures.append(("open tests", int((frame["status"] == "open").sum()), "/staff/tests"))
    if account.may("tickets"):
        count = _count(service, tables.tickets, tables.tickets.c.status == "open")
        figures.append(("unused tickets", count, "/staff/tickets"))
    if account.may("results"):
        count = _count(service, tables.attempts, tables.attempts.c.status == "finished")
        figures.append(("finished attempts", count, "/staff/attempts?status=finished"))
    return page(
        request,
        account,
        "start.html",
        figures=figures,
        roles={name: ROLES[name] for name in account.roles},
    )


def _count(service: Any, table: sa.Table, condition: Any) -> int:
    return int(service.scalar(sa.select(sa.func.count()).select_from(table).where(condition)))
