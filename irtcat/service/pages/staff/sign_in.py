"""Signing in and out, and the signed-in account with its password."""

from fastapi import Request, Response
from fastapi.responses import RedirectResponse

from irtcat._common.checks import InputError
from irtcat.service.accounts.accounts import (
    BROWSER,
    LEAST_PASSWORD,
    ROLES,
    issue_token,
    revoke_tokens,
    set_password,
    sign_in,
)
from irtcat.service.accounts.credentials import (
    browser_secret,
    forget_browser,
    remember_browser,
    service_of,
)
from irtcat.service.base.errors import UnauthorizedError
from irtcat.service.pages import CheckedForm, form_text, local_path
from irtcat.service.pages.staff.base import (
    SIGN_IN,
    Staff,
    back_to,
    field,
    page,
    part_router,
    signed_in,
)

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
        account = sign_in(service, field(form, "name"), form_text(form, "password"))
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


@router.get("/account")
def own_page(at: Staff) -> Response:
    """The signed-in account: its roles, and a form for a new password."""
    roles = {name: ROLES[name] for name in at.account.roles}
    return at.page("account.html", roles=roles, least=LEAST_PASSWORD)


@router.post("/account/password")
def own_password(at: Staff, form: CheckedForm) -> Response:
    """Change the account's own password, given the present one."""
    try:
        sign_in(at.service, at.account.name, form_text(form, "present"))
    except UnauthorizedError:
        raise InputError("The present password is wrong.") from None
    if form_text(form, "password") != form_text(form, "repeated"):
        raise InputError("The two new passwords differ.")
    set_password(at.service, at.account.name, form_text(form, "password"), actor=at.actor)
    return back_to(SIGN_IN)
