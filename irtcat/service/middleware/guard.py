"""Limits of the size of requests, the id of each request, and the headers of every response."""

import time
from typing import Any
from uuid import uuid4

from starlette.datastructures import Headers, MutableHeaders
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from irtcat.service.base.errors import problem
from irtcat.service.middleware import HttpMiddleware, at_start

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
