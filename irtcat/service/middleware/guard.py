"""Limits of announced bodies, the id of each request, and the headers of every response."""

import time
from uuid import uuid4

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from irtcat.service.base.responses import problem
from irtcat.service.middleware.body_limit import most_bytes

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


class Guard:
    """Middleware: limits of the body, the id of the request, and the headers of every response."""

    def __init__(self, app: ASGIApp, secure: bool):
        self.app = app
        extra = {"Strict-Transport-Security": "max-age=31536000"} if secure else {}
        self._headers = {**HEADERS, **extra}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, and complete its response."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        request_id, started = uuid4().hex, time.perf_counter()
        scope.setdefault("state", {})["request_id"] = request_id

        async def completed(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in self._headers.items():
                    headers.setdefault(name, value)
                headers["X-Request-Id"] = request_id
                milliseconds = 1000 * (time.perf_counter() - started)
                headers["Server-Timing"] = f"app;dur={milliseconds:.1f}"
            await send(message)

        length = Headers(scope=scope).get("content-length", "")
        most = most_bytes(scope["path"])
        if length.isascii() and length.isdigit() and (len(length) > 12 or int(length) > most):
            refused = problem(413, "Too large", f"A body has at most {most:,} bytes.")
            await refused(scope, receive, completed)
        else:
            await self.app(scope, receive, completed)
