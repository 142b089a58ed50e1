"""Devices of test takers: the cookie or the bearer token that says which attempt a device has.

A browser may have several tests at once, in several tabs: each attempt has a cookie of its own, and
requests name the attempt. Pages do so in their address, by `attempt_key`; programs in a browser do
so by the token against forged requests, which belongs to one device.
"""

import hashlib

from fastapi import Request, Response

from irtcat.service.accounts.credentials import (
    HEADER,
    SAFE,
    check_csrf,
    cookie_name,
    service_of,
    set_cookie,
)
from irtcat.service.attempts.taking import Device, attempts_of
from irtcat.service.base.errors import ConflictError, ForbiddenError, UnauthorizedError
from irtcat.service.storage.context import Service

KIND = "device"

MOST = 20
"""Tests under way that a browser keeps; proxies limit the length of a header to 8 kB."""

LASTS = 7 * 24 * 3600
"""Seconds that a browser keeps the cookie: longer than any test with its breaks."""


def attempt_key(attempt: str) -> str:
    """The name of an attempt in addresses and cookies; its id is in the value of the cookie only.

    Example:
        >>> attempt_key("a_example")
        'b68a05051d9871b6'
    """
    return hashlib.sha256(attempt.encode()).hexdigest()[:16]


def devices_of(request: Request) -> dict[str, Device]:
    """The devices that the cookies of a browser name, by the keys of their attempts.

    Whether they have the attempts is not checked here.
    """
    out = {}
    for name, value in request.cookies.items():
        attempt, _, secret = value.partition(".")
        key = attempt_key(attempt)
        plain = value.isascii() and value.isprintable()
        if plain and secret and name == cookie_name(request, KIND, key):
            out[key] = Device(attempt, secret, by_cookie=True)
    return out


def device_with(request: Request, key: str) -> Device:
    """The device of this browser for the attempt of a key.

    Raises:
        UnauthorizedError: without its cookie.
    """
    found = devices_of(request).get(key)
    if found is None:
        raise UnauthorizedError("This device does not have the test. Open it with the ticket.")
    return found


def device_of(request: Request, service: Service) -> Device:
    """The device that a request of a program comes from; whether it has the attempt is not checked.

    A request by cookie that can change something needs a token (see
    `irtcat.service.accounts.credentials`). Of several devices of one browser, the token names the
    one that is meant.

    Raises:
        UnauthorizedError: without a cookie or a bearer token.
        ForbiddenError: for a request by cookie without its token, or with that of another device.
        ConflictError: for a request that can change nothing, of a browser with several tests,
            without a token.
    """
    scheme, _, token = request.headers.get("authorization", "").partition(" ")
    if not scheme:
        return _device_by_cookie(request, service)
    attempt, dot, secret = token.strip().partition(".")
    is_token = attempt and dot and secret and token.isascii() and token.isprintable()
    if scheme.lower() != "bearer" or not is_token:
        raise UnauthorizedError("Open the test with its ticket first.")
    return Device(attempt, secret)


def _device_by_cookie(request: Request, service: Service) -> Device:
    known = list(devices_of(request).values())
    if not known:
        raise UnauthorizedError("Open the test with its ticket first.")
    token = request.headers.get(HEADER)
    if token is None and request.method in SAFE:
        if len(known) > 1:
            raise ConflictError(
                f"This browser has several tests. Name one by its token in the header {HEADER}."
            )
        return known[0]
    for device in known[:-1]:
        try:
            check_csrf(service, device.secret, token)
        except ForbiddenError:
            continue
        return device
    check_csrf(service, known[-1].secret, token)
    return known[-1]


def remember_device(request: Request, response: Response, started: Device) -> None:
    """Set the cookie of a device that began or continued an attempt.

    Cookies of attempts that are over, or that the browser no longer has, are deleted: a computer
    that many people use would collect them.
    """
    known = devices_of(request)
    known.pop(attempt_key(started.attempt), None)
    opened = attempts_of(service_of(request), known.values())
    under_way = {row.attempt for row in opened if row.status in ("running", "paused")}
    kept = [key for key, device in known.items() if device.attempt in under_way]
    for key in known.keys() - set(kept[-(MOST - 1) :]):
        forget_device(request, response, known[key].attempt)
    name = cookie_name(request, KIND, attempt_key(started.attempt))
    set_cookie(request, response, name, started.token, seconds=LASTS)


def forget_device(request: Request, response: Response, attempt: str) -> None:
    """Delete the cookie of a device."""
    set_cookie(request, response, cookie_name(request, KIND, attempt_key(attempt)), "", seconds=0)
