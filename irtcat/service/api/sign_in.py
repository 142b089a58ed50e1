"""Signing in: tokens for programs, and OpenID Connect for browsers of staff."""

from html import escape
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Query, Request, Response
from fastapi.responses import HTMLResponse, RedirectResponse
from pydantic import Field

from irtcat.service.accounts.accounts import (
    BROWSER,
    LASTS,
    PROGRAM,
    Account,
    issue_token,
    revoke_tokens,
    sign_in,
)
from irtcat.service.accounts.cookies import cookie_name
from irtcat.service.accounts.csrf import check_same_site
from irtcat.service.accounts.oidc import KIND, Provider, finish_sign_in, start_sign_in
from irtcat.service.accounts.oidc import LASTS as OIDC_LASTS
from irtcat.service.accounts.staff import account_from, browser_secret, remember_browser, token_of
from irtcat.service.api.schemas import Body, Out, problems, service_of
from irtcat.service.base.errors import NotFoundError

HOME = "/staff"
"""Where staff arrive after they signed in."""

router = APIRouter(tags=["sign-in"])


class Credentials(Body):
    """The name and the password of an account."""

    name: str = Field(max_length=200)
    password: str = Field(max_length=200)
    label: str = Field("", max_length=200, description="What the token is for.")


class ProgramToken(Out):
    """A token of a program; it is shown only once."""

    token: str
    expires_in: int = Field(description="Seconds.")


class Me(Out):
    """The account of a request."""

    name: str
    roles: list[str]


@router.post(
    "/api/v1/tokens", response_model=ProgramToken, status_code=201, responses=problems(401)
)
def new_token(request: Request, body: Credentials) -> Any:
    """A token for a program, for `Authorization: Bearer`."""
    service = service_of(request)
    account = sign_in(service, body.name, body.password)
    token = issue_token(service, account, kind=PROGRAM, label=body.label)
    return {"token": token, "expires_in": int(LASTS[PROGRAM].total_seconds())}


@router.delete("/api/v1/tokens/current", status_code=204, responses=problems(401, 403))
def revoke_token(request: Request, account: Annotated[Account, Depends(account_from)]) -> None:
    """Revoke the token, or sign out the browser, of this request."""
    revoke_tokens(service_of(request), account.name, token_of(request) or browser_secret(request))


@router.get("/api/v1/me", response_model=Me, responses=problems(401))
def me(account: Annotated[Account, Depends(account_from)]) -> Any:
    """The account of this request, with its roles."""
    return {"name": account.name, "roles": list(account.roles)}


def _provider(request: Request) -> Provider:
    provider: Provider | None = getattr(request.app.state, "oidc", None)
    if provider is None:
        raise NotFoundError("Signing in by OpenID Connect is not set up.")
    return provider


def _redirect(request: Request) -> str:
    return str(request.url_for("oidc_callback"))


@router.get("/auth/oidc/login", include_in_schema=False)
def oidc_login(request: Request) -> Response:
    """Send the browser to the provider."""
    service = service_of(request)
    address, kept = start_sign_in(service, _provider(request), _redirect(request))
    response = RedirectResponse(address, status_code=303)
    # Lax: the provider sends the browser back from another site.
    response.set_cookie(
        cookie_name(request, KIND),
        kept,
        max_age=OIDC_LASTS,
        httponly=True,
        samesite="lax",
        secure=request.app.state.secure,
        path="/auth/oidc",
    )
    return response


@router.get("/auth/oidc/callback", include_in_schema=False, name="oidc_callback")
def oidc_callback(
    request: Request,
    code: Annotated[str, Query(max_length=4000)] = "",
    state: Annotated[str, Query(max_length=200)] = "",
) -> Response:
    """Sign in the person that the provider sent back."""
    service = service_of(request)
    account = finish_sign_in(
        service,
        _provider(request),
        _redirect(request),
        code=code,
        state=state,
        cookie=request.cookies.get(cookie_name(request, KIND), ""),
    )
    token = issue_token(service, account, kind=BROWSER, label="OpenID Connect")
    # A page, not a redirect: a redirect that another site began would not send the strict cookie.
    page = HTMLResponse(
        f'<!doctype html><html lang="en"><head><meta charset="utf-8">'
        f'<meta http-equiv="refresh" content="0;url={escape(HOME)}"><title>irtcat</title></head>'
        f'<body><p><a href="{escape(HOME)}">Continue</a></p></body></html>'
    )
    remember_browser(request, page, token)
    page.delete_cookie(cookie_name(request, KIND), path="/auth/oidc")
    return page


@router.post(
    "/api/v1/sign-in", response_model=Me, responses=problems(401, 403), include_in_schema=False
)
def sign_in_browser(request: Request, response: Response, body: Credentials) -> Any:
    """Sign in a browser by name and password; it gets a cookie that scripts cannot read."""
    check_same_site(request)
    service = service_of(request)
    account = sign_in(service, body.name, body.password)
    token = issue_token(service, account, kind=BROWSER, label=body.label)
    remember_browser(request, response, token)
    return {"name": account.name, "roles": list(account.roles)}
