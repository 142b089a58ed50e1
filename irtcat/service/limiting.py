"""Middleware of the rate limits (see `irtcat.service.limits`)."""

import ipaddress
import re
import time
from collections.abc import Callable

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from irtcat.service.app import HEADERS, problem
from irtcat.service.context import digest_of
from irtcat.service.errors import TooManyError
from irtcat.service.limits import ADDRESS, DEVICE, TICKET, Buckets, Rate
from irtcat.service.metrics import LIMITED

__all__ = ["RateLimits"]

FAILURES = (401, 403, 404, 410)
"""Statuses of requests without permission."""

TICKETS = re.compile(r"^/(?:t|api/v1/take)/([A-Za-z0-9_-]{16,64})$")
"""Paths that open a ticket."""

TAKING = "/api/v1/take"
"""Paths of takers' programs, which show a bearer token."""

DEVICE_COOKIE = re.compile(r"(?:^|;\s*)irtcat_device=([^;]+)")


def _network(address: str) -> str:
    """An address, or the network of one customer for IPv6 (/64), of which it has 2^64 addresses."""
    try:
        parsed = ipaddress.ip_address(address)
    except ValueError:
        return address
    if parsed.version == 4:
        return address
    return str(ipaddress.ip_network((parsed, 64), strict=False))


class RateLimits:
    """Middleware that refuses requests over a rate with status 429 and ``Retry-After``."""

    def __init__(self, app: ASGIApp, clock: Callable[[], float] = time.monotonic):
        self.app = app
        self._tickets, self._devices, self._addresses = (
            Buckets(rate, clock) for rate in (TICKET, DEVICE, ADDRESS)
        )

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, unless a bucket is empty."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        address = _network((scope.get("client") or ("",))[0])
        found = self._refusal(scope, address)
        if found is not None:
            await _refuse(*found, scope, receive, send)
            return

        async def counted(message: Message) -> None:
            if message["type"] == "http.response.start" and message["status"] in FAILURES:
                self._addresses.take(address)
            await send(message)

        await self.app(scope, receive, counted)

    def _refusal(self, scope: Scope, address: str) -> tuple[Rate, float] | None:
        """The limit that refuses a request, and the seconds until it does not."""
        device = _device(scope)
        if device:
            wait = self._devices.take(digest_of(device))
            return (DEVICE, wait) if wait else None
        wait = self._addresses.wait(address)
        if wait:
            return ADDRESS, wait
        ticket = TICKETS.match(scope["path"])
        if ticket and scope["method"] == "POST":
            wait = self._tickets.take(digest_of(ticket[1]))
            if wait:
                return TICKET, wait
        return None


def _device(scope: Scope) -> str:
    """What a taker's device shows: its cookie, or its bearer token; empty without either."""
    headers = Headers(scope=scope)
    cookie = DEVICE_COOKIE.search(headers.get("cookie", ""))
    if cookie:
        return cookie[1]
    return headers.get("authorization", "") if scope["path"].startswith(TAKING) else ""


async def _refuse(rate: Rate, wait: float, scope: Scope, receive: Receive, send: Send) -> None:
    LIMITED.labels(rate.name).inc()
    error = TooManyError(wait)
    response = problem(error.status, error.title, str(error))
    response.headers.update({**HEADERS, **error.headers})
    await response(scope, receive, send)
