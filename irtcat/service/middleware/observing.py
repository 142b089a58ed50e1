"""Observing requests: metrics, a line of the access log, and a span of OpenTelemetry for each."""

import logging
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import Any

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from irtcat.service.base.metrics import REQUESTS, SECONDS
from irtcat.service.middleware import HttpMiddleware, at_start

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
