"""Tokens against forged requests from other sites (CSRF), for requests that a cookie identifies.

A token is a signature of the cookie's secret, so that it is valid for that device or browser only.
Another site can make a browser send the cookie, but can neither read nor compute the token
(OWASP's signed double submit). Requests with a bearer token need none: no browser adds that itself.
"""

import hmac

from fastapi import Request
from itsdangerous import BadSignature, URLSafeSerializer

from irtcat.service.base.errors import ForbiddenError
from irtcat.service.storage.context import Service, digest_of

HEADER = "X-CSRF-Token"

SAFE = ("GET", "HEAD", "OPTIONS")
"""Methods that change nothing, and so need no token against forged requests."""

SAME_SITE = ("same-origin", "none")
"""Values of ``Sec-Fetch-Site`` of our own pages, and of an address that a person typed."""


def _serializer(service: Service) -> URLSafeSerializer:
    return URLSafeSerializer(service.secret, salt="csrf")


def csrf_token(service: Service, secret: str) -> str:
    """The token of a cookie's secret.

    Args:
        service: the service.
        secret: the secret in the cookie: of a device, or of a signed-in browser.
    """
    return str(_serializer(service).dumps(digest_of(secret)))


def check_csrf(service: Service, secret: str, token: str | None) -> None:
    """Raise unless a token belongs to a cookie's secret.

    Raises:
        ForbiddenError: for a missing token, or one of another device.
    """
    try:
        signed = str(_serializer(service).loads(token or ""))
    except BadSignature:
        signed = ""
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
