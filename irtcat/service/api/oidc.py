"""Signing in staff by OpenID Connect; a part of applications that have a provider."""

from html import escape
from typing import Annotated

from fastapi import APIRouter, Query, Request, Response
from fastapi.responses import HTMLResponse, RedirectResponse

from irtcat.service.accounts.accounts import BROWSER, issue_token
from irtcat.service.accounts.cookies import cookie_name
from irtcat.service.accounts.oidc import KIND, LASTS, finish_sign_in, start_sign_in
from irtcat.service.accounts.staff import remember_browser
from irtcat.service.api.schemas import service_of

HOME = "/staff"
"""Where staff arrive after they signed in."""

router = APIRouter(include_in_schema=False)


def _redirect(request: Request) -> str:
    return str(request.url_for("oidc_callback"))


@router.get("/auth/oidc/login")
def oidc_login(request: Request) -> Response:
    """Send the browser to the provider."""
    service = service_of(request)
    address, kept = start_sign_in(service, request.app.state.oidc, _redirect(request))
    response = RedirectResponse(address, status_code=303)
    # Lax: the provider sends the browser back from another site.
    response.set_cookie(
        cookie_name(request, KIND),
        kept,
        max_age=LASTS,
        httponly=True,
        samesite="lax",
        secure=request.app.state.secure,
        path="/auth/oidc",
    )
    return response


@router.get("/auth/oidc/callback", name="oidc_callback")
def oidc_callback(
    request: Request,
    code: Annotated[str, Query(max_length=4000)] = "",
    state: Annotated[str, Query(max_length=200)] = "",
) -> Response:
    """Sign in the person that the provider sent back."""
    service = service_of(request)
    account = finish_sign_in(
        service,
        request.app.state.oidc,
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
