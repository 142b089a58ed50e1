"""Tracing requests: a span of OpenTelemetry for each; a part of applications that configure it."""

from opentelemetry import trace
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from irtcat.service.middleware.observing import names_of

tracer = trace.get_tracer("irtcat.service")


class Tracing:
    """Middleware that makes a span of each request; it changes nothing."""

    def __init__(self, app: ASGIApp):
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on within a span."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        status = 500

        async def traced(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        with tracer.start_as_current_span("request", kind=trace.SpanKind.SERVER) as span:
            try:
                await self.app(scope, receive, traced)
            finally:
                method, route = names_of(scope)
                span.update_name(f"{method} {route}")
                span.set_attribute("http.request.method", method)
                span.set_attribute("http.route", route)
                span.set_attribute("http.response.status_code", status)
                if status >= 500:
                    span.set_status(trace.StatusCode.ERROR)
