"""Observing requests: metrics, a line of the access log, and a span of OpenTelemetry for each."""

import logging
import time
from typing import Any

from opentelemetry import trace
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from irtcat.service.base.metrics import REQUESTS, SECONDS

access = logging.getLogger("irtcat.access")
tracer = trace.get_tracer("irtcat.service")
"""Without a configured SDK of OpenTelemetry its spans do nothing."""

UNKNOWN = "(unknown)"
"""The route of paths that do not exist; their names could hold anything."""

QUIET = ("/health/live", "/health/ready", "/metrics")
"""Routes that programs ask all the time: counted, not logged."""


class Observing:
    """Middleware that observes requests; it changes nothing."""

    def __init__(self, app: ASGIApp):
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, and observe its response."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        started, status = time.perf_counter(), 500
        request_id = ""

        async def observed(message: Message) -> None:
            nonlocal status, request_id
            if message["type"] == "http.response.start":
                status = message["status"]
                headers = dict(message.get("headers", ()))
                request_id = headers.get(b"x-request-id", b"").decode("ascii", "replace")
            await send(message)

        with tracer.start_as_current_span(f"{scope['method']}", kind=trace.SpanKind.SERVER) as span:
            try:
                await self.app(scope, receive, observed)
            finally:
                route = _route(scope)
                seconds = time.perf_counter() - started
                method = scope["method"] if scope["method"] in METHODS else "OTHER"
                REQUESTS.labels(method, route, status).inc()
                SECONDS.labels(route).observe(seconds)
                span.update_name(f"{method} {route}")
                attributes: dict[str, Any] = {
                    "http.request.method": method,
                    "http.route": route,
                    "http.response.status_code": status,
                }
                span.set_attributes(attributes)
                if status >= 500:
                    span.set_status(trace.StatusCode.ERROR)
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


def _route(scope: Scope) -> str:
    """The template of the path, such as ``/t/{ticket}``: it holds no id and no secret."""
    route = scope.get("route")
    return str(getattr(route, "path_format", None) or getattr(route, "path", None) or UNKNOWN)
