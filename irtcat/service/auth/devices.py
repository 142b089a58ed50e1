"""Devices of test takers: the cookie or the bearer token that says which attempt a device has."""

from typing import NamedTuple

from fastapi import Request, Response

from irtcat.service.auth.csrf import HEADER, check_csrf
from irtcat.service.context import Service
from irtcat.service.errors import UnauthorizedError
from irtcat.service.taking import Started

__all__ = ["COOKIE", "Device", "device_of", "forget_device", "remember_device"]

COOKIE = "irtcat_device"

LASTS = 7 * 24 * 3600
"""Seconds that a browser keeps the cookie: longer than any test with its breaks."""

SAFE = ("GET", "HEAD", "OPTIONS")
"""Methods that change nothing, and so need no token against forged requests."""


class Device(NamedTuple):
    """The device of a request.

    Attributes:
        attempt: id of the attempt.
        secret: secret of the device.
        by_cookie: whether a cookie identified it.
    """

    attempt: str
    secret: str
    by_cookie: bool = False

    @property
    def token(self) -> str:
        """What the cookie holds, or follows ``Bearer``."""
        return f"{self.attempt}.{self.secret}"


def device_of(request: Request, service: Service) -> Device:
    """The device that a request comes from; whether it has the attempt is not checked here.

    A request by cookie that can change something needs a token (see `irtcat.service.auth.csrf`).

    Raises:
        UnauthorizedError: without a cookie or a bearer token.
        ForbiddenError: for a request by cookie without its token.
    """
    scheme, _, token = request.headers.get("authorization", "").partition(" ")
    by_cookie = not scheme
    if by_cookie:
        token = request.cookies.get(COOKIE, "")
    elif scheme.lower() != "bearer":
        token = ""
    attempt, dot, secret = token.strip().partition(".")
    if not (attempt and dot and secret and token.isascii() and token.isprintable()):
        raise UnauthorizedError("Open the test with its ticket first.")
    if by_cookie and request.method not in SAFE:
        check_csrf(service, secret, request.headers.get(HEADER))
    return Device(attempt, secret, by_cookie)


def remember_device(response: Response, started: Started, secure: bool) -> None:
    """Set the cookie of a device that began or continued an attempt."""
    response.set_cookie(
        COOKIE,
        Device(started.attempt, started.device).token,
        max_age=LASTS,
        httponly=True,
        samesite="strict",
        secure=secure,
        path="/",
    )


def forget_device(response: Response, secure: bool) -> None:
    """Delete the cookie of a device."""
    response.delete_cookie(COOKIE, path="/", httponly=True, samesite="strict", secure=secure)
