"""Observing requests: metrics, and a line of the access log for each."""

import logging
import time

from starlette.types import Message, Receive, Scope, Send

from irtcat.service.base.metrics import REQUESTS, SECONDS
from irtcat.service.middleware import HttpMiddleware, at_start

access = logging.getLogger("irtcat.access")

UNKNOWN = "(unknown)"
"""The route of paths that do not exist; their names could hold anything."""

QUIET = ("/health/live", "/health/ready", "/metrics")
"""Routes that programs ask all the time: counted, not logged."""


class Observing(HttpMiddleware):
    """Middleware that observes requests; it changes nothing."""

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, and observe its response."""
        started, status = time.perf_counter(), 500
        request_id = ""

        def note(message: Message) -> None:
            nonlocal status, request_id
            status = message["status"]
            headers = dict(message.get("headers", ()))
            request_id = headers.get(b"x-request-id", b"").decode("ascii", "replace")

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


METHODS = {"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"}


def names_of(scope: Scope) -> tuple[str, str]:
    """The method, and the template of the path, such as ``/t/{ticket}``: no id and no secret."""
    method = scope["method"] if scope["method"] in METHODS else "OTHER"
    route = scope.get("route")
    path = getattr(route, "path_format", None) or getattr(route, "path", None) or UNKNOWN
    return method, str(path)
