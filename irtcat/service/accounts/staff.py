"""Accounts of requests: the bearer token of a program, or the cookie of a signed-in browser."""

from collections.abc import Callable

from fastapi import Request, Response

from irtcat.service.accounts.accounts import BROWSER, LASTS, PROGRAM, Account, account_of_token
from irtcat.service.accounts.cookies import cookie_name
from irtcat.service.accounts.csrf import HEADER, SAFE, check_csrf
from irtcat.service.base.errors import UnauthorizedError
from irtcat.service.storage.context import Service

KIND = "staff"

MOST = 200
"""Longest token that is looked up: those issued are shorter."""


def token_of(request: Request) -> str:
    """The bearer token of a request; empty without one.

    Raises:
        UnauthorizedError: for another scheme than ``Bearer``, or a token of impossible form.
    """
    header = request.headers.get("authorization", "")
    if not header:
        return ""
    scheme, _, token = header.partition(" ")
    token = token.strip()
    is_possible = token.isascii() and token.isprintable() and len(token) <= MOST
    if scheme.lower() != "bearer" or not token or not is_possible:
        raise UnauthorizedError("The header Authorization must hold a bearer token.")
    return token


def browser_secret(request: Request) -> str:
    """The secret in the cookie of a signed-in browser; empty without one."""
    secret = request.cookies.get(cookie_name(request, KIND), "")
    return secret if secret.isascii() and secret.isprintable() and len(secret) <= MOST else ""


def account_from(request: Request) -> Account:
    """The account that a request comes from.

    A request by cookie that can change something needs a token (see
    `irtcat.service.accounts.csrf`).

    Raises:
        UnauthorizedError: without valid credentials.
        ForbiddenError: for a request by cookie without its token.
    """
    service: Service = request.app.state.service
    token = token_of(request)
    if token:
        return account_of_token(service, token, PROGRAM)
    secret = browser_secret(request)
    if not secret:
        raise UnauthorizedError("Sign in first.")
    account = account_of_token(service, secret, BROWSER)
    if request.method not in SAFE:
        check_csrf(service, secret, request.headers.get(HEADER))
    return account


def permitted(permission: str) -> Callable[[Request], Account]:
    """A dependency of routes: the account of the request, which must hold a permission.

    Args:
        permission: a name of `irtcat.service.accounts.accounts.PERMISSIONS`.
    """

    def dependency(request: Request) -> Account:
        account = account_from(request)
        account.require(permission)
        return account

    return dependency


def remember_browser(request: Request, response: Response, token: str) -> None:
    """Set the cookie of a signed-in browser."""
    response.set_cookie(
        cookie_name(request, KIND),
        token,
        max_age=int(LASTS[BROWSER].total_seconds()),
        httponly=True,
        samesite="strict",
        secure=bool(request.app.state.secure),
        path="/",
    )


def forget_browser(request: Request, response: Response) -> None:
    """Delete the cookie of a browser that signs out."""
    response.delete_cookie(
        cookie_name(request, KIND),
        path="/",
        httponly=True,
        samesite="strict",
        secure=bool(request.app.state.secure),
    )
