"""Credentials of requests: cookies, tokens against forged requests (CSRF), and accounts of staff.

Browsers send a cookie to every port of a host, also to what runs there later. So the name of a
cookie has a part that differs by installation: two services of one host, one after the other or at
two ports, neither read nor overwrite each other's cookies.

A token against forged requests is a signature of the cookie's secret, so that it is valid for that
device or browser only. Another site can make a browser send the cookie, but can neither read nor
compute the token (OWASP's signed double submit). Requests with a bearer token need none: no browser
adds that itself.
"""

import hmac
from typing import Literal

from fastapi import Request, Response

from irtcat.service.accounts.accounts import BROWSER, LASTS, PROGRAM, Account, account_of_token
from irtcat.service.base.errors import ForbiddenError, UnauthorizedError
from irtcat.service.storage.context import Service, digest_of

PREFIX = "irtcat"


def service_of(request: Request) -> Service:
    """The service of a request."""
    service: Service = request.app.state.service
    return service


def service_cookie(service: Service, kind: str, *parts: str) -> str:
    """The name of a cookie of a service, by what it holds, such as "staff", and further parts."""
    return "_".join([PREFIX, kind, service.signature("cookies", "")[:8], *parts])


def cookie_name(request: Request, kind: str, *parts: str) -> str:
    """The name of a cookie of the service that a request reached (see `service_cookie`)."""
    return service_cookie(service_of(request), kind, *parts)


def set_cookie(
    request: Request,
    response: Response,
    name: str,
    value: str,
    *,
    seconds: int | None = None,
    same_site: Literal["lax", "strict"] = "strict",
    path: str = "/",
) -> None:
    """Set a cookie that scripts cannot read and forms of other sites do not send.

    It lasts until the browser is closed where there are no ``seconds``; one that is "lax" is sent
    by a link from another site, too.
    """
    response.set_cookie(
        name,
        value,
        max_age=seconds,
        httponly=True,
        samesite=same_site,
        secure=bool(request.app.state.secure),
        path=path,
    )


HEADER = "X-CSRF-Token"

SAFE = ("GET", "HEAD", "OPTIONS")
"""Methods that change nothing, and so need no token against forged requests."""

SAME_SITE = ("same-origin", "none")
"""Values of ``Sec-Fetch-Site`` of our own pages, and of an address that a person typed."""


def csrf_token(service: Service, secret: str) -> str:
    """The token of a cookie's secret."""
    return service.sealed("csrf", digest_of(secret))


def check_csrf(service: Service, secret: str, token: str | None) -> None:
    """Raise unless a token belongs to a cookie's secret.

    Raises:
        ForbiddenError: for a missing token, or one of another device.
    """
    signed = str(service.unsealed("csrf", token or ""))
    if not hmac.compare_digest(signed.encode(), digest_of(secret).encode()):
        raise ForbiddenError(
            f"The header {HEADER} must hold the token of this device. Load the page again."
        )


def check_same_site(request: Request) -> None:
    """Raise for a request that a browser sent from another site.

    Raises:
        ForbiddenError: for a request of another site.
    """
    if request.headers.get("sec-fetch-site", "none") not in SAME_SITE:
        raise ForbiddenError("This request came from another site.")


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
    `irtcat.service.accounts.credentials`).

    Raises:
        UnauthorizedError: without valid credentials.
        ForbiddenError: for a request by cookie without its token.
    """
    service, token = service_of(request), token_of(request)
    if token:
        return account_of_token(service, token, PROGRAM)
    secret = browser_secret(request)
    if not secret:
        raise UnauthorizedError("Sign in first.")
    account = account_of_token(service, secret, BROWSER)
    if request.method not in SAFE:
        check_csrf(service, secret, request.headers.get(HEADER))
    return account


class Acting:
    """Who acts on which service, by which request."""

    def __init__(self, request: Request, account: Account):
        self.request, self.service = request, service_of(request)
        self.account, self.actor = account, account.actor


def remember_browser(request: Request, response: Response, token: str) -> None:
    """Set the cookie of a signed-in browser."""
    seconds = int(LASTS[BROWSER].total_seconds())
    set_cookie(request, response, cookie_name(request, KIND), token, seconds=seconds)


def forget_browser(request: Request, response: Response) -> None:
    """Delete the cookie of a browser that signs out."""
    set_cookie(request, response, cookie_name(request, KIND), "", seconds=0)
