"""The middleware of the application, in the order in which requests pass it.

Without a platform that is registered with its origin no page may be embedded, and cookies stay on
this site. With one, browsers may show the takers' pages (and no others) inside pages of this
origin. Their cookies are then sent there, too, but in a partition of their own: a cookie that is
set inside the platform's page exists only there. Requests that other sites forge lack the token of
the form.
"""

import ipaddress
import logging
import os
import re
import sys
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext, suppress
from functools import partial
from typing import Any
from urllib.parse import urlsplit
from uuid import uuid4

import sqlalchemy as sa
from starlette.concurrency import run_in_threadpool
from starlette.datastructures import Headers, MutableHeaders
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from irtcat._common.checks import argument_error
from irtcat.cat import StoreError
from irtcat.service.accounts.credentials import HEADER
from irtcat.service.base.errors import TooManyError, problem
from irtcat.service.base.limits import ADDRESS, DEVICE, TICKET, Buckets, Rate
from irtcat.service.base.metrics import LIMITED, REQUESTS, SECONDS
from irtcat.service.storage import tables
from irtcat.service.storage.context import Service, digest_of


class HttpMiddleware:
    """Middleware of requests; what is not one, such as the start of the server, passes it by."""

    def __init__(self, app: ASGIApp):
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle a request."""
        await (self.handle if scope["type"] == "http" else self.app)(scope, receive, send)

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on."""
        await self.app(scope, receive, send)


def at_start(send: Send, act: Callable[[Message], Any]) -> Send:
    """Send a response, and do something with the message that begins it."""

    async def sent(message: Message) -> None:
        if message["type"] == "http.response.start":
            act(message)
        await send(message)

    return sent


access = logging.getLogger("irtcat.access")

UNKNOWN = "(unknown)"
"""The route of paths that do not exist; their names could hold anything."""

QUIET = ("/health/live", "/health/ready", "/metrics")
"""Routes that programs ask all the time: counted, not logged."""


class Observing(HttpMiddleware):
    """Middleware that observes requests; it changes nothing.

    With ``traced`` each has a span; OpenTelemetry is not imported without.
    """

    def __init__(self, app: ASGIApp, traced: bool = False):
        super().__init__(app)
        self._span: Callable[[], AbstractContextManager[Any]] = nullcontext
        if traced:
            from opentelemetry import trace

            tracer = trace.get_tracer("irtcat.service")
            self._span = partial(
                tracer.start_as_current_span, "request", kind=trace.SpanKind.SERVER
            )

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, and observe its response."""
        started, status = time.perf_counter(), 500
        request_id = ""

        def note(message: Message) -> None:
            nonlocal status, request_id
            status = message["status"]
            headers = dict(message.get("headers", ()))
            request_id = headers.get(b"x-request-id", b"").decode("ascii", "replace")

        with self._span() as span:
            try:
                await self.app(scope, receive, at_start(send, note))
            finally:
                method, route = names_of(scope)
                seconds = time.perf_counter() - started
                REQUESTS.labels(method, route, status).inc()
                SECONDS.labels(route).observe(seconds)
                if route not in QUIET:
                    line = {
                        "method": method,
                        "route": route,
                        "status": status,
                        "ms": round(1000 * seconds, 1),
                        "request": request_id,
                    }
                    access.info("request", extra=line)
                if span is not None:
                    _describe(span, method, route, status)


def _describe(span: Any, method: str, route: str, status: int) -> None:
    from opentelemetry.trace import StatusCode

    span.update_name(f"{method} {route}")
    span.set_attribute("http.request.method", method)
    span.set_attribute("http.route", route)
    span.set_attribute("http.response.status_code", status)
    if status >= 500:
        span.set_status(StatusCode.ERROR)


METHODS = {"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"}


def names_of(scope: Scope) -> tuple[str, str]:
    """The method, and the template of the path, such as ``/t/{ticket}``: no id and no secret."""
    method = scope["method"] if scope["method"] in METHODS else "OTHER"
    route = scope.get("route")
    path = getattr(route, "path_format", None) or getattr(route, "path", None) or UNKNOWN
    return method, str(path)


MOST_BODY = 1_000_000
"""Bytes of a request's body; uploads of items and banks have a limit of their own."""

MOST_UPLOAD = 200_000_000
"""Bytes of an upload by staff."""

UPLOADS = ("/api/v1/uploads/", "/staff/uploads")
"""Paths to which staff send banks and items."""


def most_bytes(path: str) -> int:
    """The largest body of a request to a path."""
    return MOST_UPLOAD if path.startswith(UPLOADS) else MOST_BODY


class BodyLimit(HttpMiddleware):
    """Refuses bodies above the limit while they are read: a chunked one has no length before."""

    async def handle(self, scope: Any, receive: Any, send: Any) -> None:
        """Pass a request on, counting the bytes of its body."""
        most, n_bytes = most_bytes(scope["path"]), 0

        async def counted() -> Any:
            nonlocal n_bytes
            message = await receive()
            n_bytes += len(message.get("body", b""))
            if n_bytes > most:
                raise HTTPException(413, f"A body has at most {most:,} bytes.")
            return message

        await self.app(scope, counted, send)


POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; media-src 'self'; "
    "font-src 'self'; connect-src 'self'; form-action 'self'; base-uri 'none'; "
    "frame-ancestors 'none'"
)
"""Content security policy: nothing from other hosts, no inline scripts or styles."""

HEADERS = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), microphone=(), geolocation=()",
    "Cache-Control": "no-store",
}


class Guard(HttpMiddleware):
    """Middleware: limits of the body, the id of the request, and the headers of every response."""

    def __init__(self, app: ASGIApp, secure: bool):
        super().__init__(app)
        extra = {"Strict-Transport-Security": "max-age=31536000"} if secure else {}
        self._headers = {**HEADERS, **extra}

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, and complete its response."""
        request_id, started = uuid4().hex, time.perf_counter()
        scope.setdefault("state", {})["request_id"] = request_id

        def complete(message: Message) -> None:
            headers = MutableHeaders(scope=message)
            for name, value in self._headers.items():
                headers.setdefault(name, value)
            headers["X-Request-Id"] = request_id
            milliseconds = 1000 * (time.perf_counter() - started)
            headers["Server-Timing"] = f"app;dur={milliseconds:.1f}"

        completed = at_start(send, complete)
        length = Headers(scope=scope).get("content-length", "")
        most = most_bytes(scope["path"])
        if length.isascii() and length.isdigit() and (len(length) > 12 or int(length) > most):
            refused = problem(413, "Too large", f"A body has at most {most:,} bytes.")
            await refused(scope, receive, completed)
        else:
            await self.app(scope, receive, completed)


PATHS = re.compile(r"/(lti|test|language)(/|$)")
"""The pages of a test that a platform opens. Not the field for tickets, and never the staff's."""

KEPT = 10.0
"""Seconds for which a process keeps the origins: the query is not part of every request."""

FRAMES = ("iframe", "frame")
SAME_SITE = re.compile(r";\s*samesite=\w+", re.IGNORECASE)


class Embedding(HttpMiddleware):
    """ASGI middleware outside of the one that sets the security headers."""

    def __init__(
        self,
        app: Any,
        service: Service,
        secure: bool,
        seconds: Callable[[], float] = time.monotonic,
    ):
        """Without ``secure`` nothing can be embedded; the clock is for tests."""
        super().__init__(app)
        self.service, self.secure, self._seconds = service, secure, seconds
        self._origins: list[str] = []
        self._read = -KEPT

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle a request."""
        if not self.secure or not PATHS.match(scope["path"]):
            await self.app(scope, receive, send)
            return
        origins = await self._known_origins()
        if origins:
            embedded = Headers(scope=scope).get("sec-fetch-dest", "") in FRAMES
            send = at_start(send, partial(_permit, origins=origins, embedded=embedded))
        await self.app(scope, receive, send)

    async def _known_origins(self) -> list[str]:
        now = self._seconds()
        if now - self._read >= KEPT:
            with suppress(StoreError):  # the database is away: as before
                self._origins = await run_in_threadpool(embedding_origins, self.service)
                self._read = now
        return self._origins


def embedding_origins(service: Service) -> list[str]:
    """Origins of open platforms whose pages may embed the pages of tests."""
    columns = tables.lti_platforms.c
    statement = sa.select(columns.origin).where(columns.origin != "", columns.status == "open")
    return sorted({row.origin for row in service.rows(statement)})


def _permit(message: Message, origins: list[str], embedded: bool) -> None:
    """Let a response be embedded; if it is, let its cookies exist there."""
    headers = MutableHeaders(scope=message)
    policy = headers.get("content-security-policy", "")
    headers["content-security-policy"] = policy.replace(
        "frame-ancestors 'none'", f"frame-ancestors {' '.join(origins)}"
    )
    del headers["x-frame-options"]  # knows no origins; the policy above stands for it
    if not embedded:
        return
    cookies = headers.getlist("set-cookie")
    del headers["set-cookie"]
    for cookie in cookies:
        plain = re.sub(r";\s*secure\b", "", SAME_SITE.sub("", cookie), flags=re.IGNORECASE)
        headers.append("set-cookie", f"{plain}; SameSite=None; Secure; Partitioned")


def checked_url(url: str) -> str:
    """A public address, such as ``https://tests.example.org``, without a slash at its end.

    It has a scheme, a host, and a port if it is not that of the scheme.

    Raises:
        InputError: for anything else.

    Example:
        >>> checked_url("https://tests.example.org/")
        'https://tests.example.org'
    """
    from irtcat.service.outbox.addresses import http_parts

    parts = http_parts(url)
    more = parts and (parts.path.strip("/") or parts.query or parts.fragment)
    if parts is None or more or not parts.netloc.isascii() or not parts.netloc.isprintable():
        expected = "an address such as https://tests.example.org, without a path"
        raise argument_error("url", expected, url)
    return f"{parts.scheme}://{parts.netloc}"


class PublicUrl(HttpMiddleware):
    """Middleware: requests look as if they were sent to the public address.

    Links, redirects and addresses for other systems are made from the host of the request, which
    the sender of a request chooses (the header ``Host``) unless it is replaced here.
    """

    def __init__(self, app: Any, url: str):
        super().__init__(app)
        parts = urlsplit(url)
        self._scheme, self._host = parts.scheme, parts.netloc.encode()

    async def handle(self, scope: Any, receive: Any, send: Any) -> None:
        """Pass a request on, with the scheme and the host of the public address."""
        headers = [(name, value) for name, value in scope["headers"] if name != b"host"]
        headers.append((b"host", self._host))
        scope = {**scope, "scheme": self._scheme, "headers": headers}
        await self.app(scope, receive, send)


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
    """An address, or the network of one customer for IPv6 (/64), of which it has 2^64 addresses.

    Example:
        >>> _network("2001:db8::1"), _network("::ffff:192.0.2.1")
        ('2001:db8::/64', '192.0.2.1')
    """
    try:
        parsed = ipaddress.ip_address(address)
    except ValueError:
        return address
    if parsed.version == 4:
        return address
    if parsed.ipv4_mapped is not None:  # a socket for both versions: not one network for all
        return str(parsed.ipv4_mapped)
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


def middleware(
    service: Service, *, secure: bool, observed: bool, limited: bool, url: str = ""
) -> list[Middleware]:
    """What a request passes, from the first to the last; its response passes it backwards.

    The arguments are those of `irtcat.service.app.create_app`.
    """
    # An SDK of OpenTelemetry is configured, or was set up already.
    traced = any(it.startswith("OTEL_") for it in os.environ) or "opentelemetry.sdk" in sys.modules
    rows = [
        # Before the others: it counts refused requests, too.
        (observed, Middleware(Observing, traced=traced)),
        (limited, Middleware(RateLimits)),
        # It changes the headers that `Guard` sets.
        (True, Middleware(Embedding, service=service, secure=secure)),
        (True, Middleware(Guard, secure=secure)),
        (True, Middleware(BodyLimit)),
        (bool(url), Middleware(PublicUrl, url=url)),
    ]
    return [row for is_used, row in rows if is_used]
