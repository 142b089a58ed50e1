"""Middleware of the rate limits (see `irtcat.service.base.limits`)."""

import ipaddress
import re
import time
from collections.abc import Callable

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from irtcat.service.accounts.credentials import HEADER
from irtcat.service.base.errors import TooManyError, problem
from irtcat.service.base.limits import ADDRESS, DEVICE, TICKET, Buckets, Rate
from irtcat.service.base.metrics import LIMITED
from irtcat.service.middleware import HttpMiddleware
from irtcat.service.middleware.guard import HEADERS
from irtcat.service.storage.context import digest_of

TICKET_PAGE = re.compile(r"^/(?:t/([^/]+)|api/v1/take/([A-Za-z0-9_-]{16,64}))$")
"""Paths that open a ticket; other paths of the takers' interface end with shorter words."""

PASSWORDS = re.compile(r"^/(?:staff/sign-in|api/v1/(?:tokens|sign-in))$")
"""Paths to which people send a name and a password."""

OF_TEST = re.compile(r"^/test/([0-9a-f]{16})(?:/|$)")
"""Pages of a test, by the key of its attempt."""

TAKING = "/api/v1/take/"
"""Paths of takers' programs."""

DEVICE_COOKIE = re.compile(r"(?:^|;\s*)irtcat_device_[0-9a-f]{8}_([0-9a-f]{16})=([^;]+)")


def _guessed(method: str, path: str) -> str:
    """What a request has guessed if it fails: a ticket, a password, or a cookie or token."""
    if method == "POST" and PASSWORDS.match(path):
        return "password"
    return "ticket" if TICKET_PAGE.match(path) else "credential"


def _network(address: str) -> str:
    """An address, or the network of one customer for IPv6 (/64), of which it has 2^64 addresses."""
    try:
        parsed = ipaddress.ip_address(address)
    except ValueError:
        return address
    if parsed.version == 4:
        return address
    return str(ipaddress.ip_network((parsed, 64), strict=False))


class RateLimits(HttpMiddleware):
    """Middleware that refuses requests over a rate with status 429 and ``Retry-After``.

    Over the rate of an address, a password is refused before it is looked at, since people choose
    passwords that can be guessed. Tickets, cookies and tokens are random texts of 192 bits: those
    that are right open what they open, and those that are wrong get 429.
    """

    def __init__(self, app: ASGIApp, clock: Callable[[], float] = time.monotonic):
        super().__init__(app)
        self._tickets, self._devices, self._addresses = (
            Buckets(rate, clock) for rate in (TICKET, DEVICE, ADDRESS)
        )

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, unless a bucket is empty."""
        guessed = _guessed(scope["method"], scope["path"])
        bucket = f"{guessed} {_network((scope.get('client') or ('',))[0])}"
        found = self._refusal(scope, guessed, bucket)
        if found is not None:
            await _refuse(*found, scope, receive, send)
            return
        refused, failed = False, 404 if guessed == "ticket" else 401  # what a wrong guess gets

        async def counted(message: Message) -> None:
            nonlocal refused
            if message["type"] == "http.response.start" and message["status"] == failed:
                wait = self._addresses.take(bucket)
                if wait:
                    refused = True
                    await _refuse(ADDRESS, wait, scope, receive, send)
            if not refused:
                await send(message)

        await self.app(scope, receive, counted)

    def _refusal(self, scope: Scope, guessed: str, bucket: str) -> tuple[Rate, float] | None:
        """The limit that refuses a request unseen, and the seconds until it does not."""
        wait = self._addresses.wait(bucket) if guessed == "password" else 0.0
        if wait:
            return ADDRESS, wait
        ticket = TICKET_PAGE.match(scope["path"])
        if ticket and scope["method"] == "POST":
            wait = self._tickets.take(digest_of(ticket[1] or ticket[2]))
            return (TICKET, wait) if wait else None
        device = _device(scope)
        wait = self._devices.take(digest_of(device)) if device else 0.0
        return (DEVICE, wait) if wait else None


def _device(scope: Scope) -> str:
    """What a taker's device shows for the test that a request is about; empty without it."""
    headers = Headers(scope=scope)
    cookies = dict(DEVICE_COOKIE.findall(headers.get("cookie", "")))
    page = OF_TEST.match(scope["path"])
    if page:
        return cookies.get(page[1], "")
    if not scope["path"].startswith(TAKING):
        return ""
    token = headers.get("authorization", "") or headers.get(HEADER, "")
    return token or " ".join(sorted(cookies.values()))


async def _refuse(rate: Rate, wait: float, scope: Scope, receive: Receive, send: Send) -> None:
    LIMITED.labels(rate.name).inc()
    error = TooManyError(wait)
    response = problem(error.status, error.title, str(error))
    response.headers.update({**HEADERS, **error.headers})
    await response(scope, receive, send)
