"""Tracing requests: a span of OpenTelemetry for each; a part of applications that configure it."""

from opentelemetry import trace
from starlette.types import Message, Receive, Scope, Send

from irtcat.service.middleware import HttpMiddleware, at_start
from irtcat.service.middleware.observing import names_of

tracer = trace.get_tracer("irtcat.service")


class Tracing(HttpMiddleware):
    """Middleware that makes a span of each request; it changes nothing."""

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on within a span."""
        status = 500

        def note(message: Message) -> None:
            nonlocal status
            status = message["status"]

        with tracer.start_as_current_span("request", kind=trace.SpanKind.SERVER) as span:
            try:
                await self.app(scope, receive, at_start(send, note))
            finally:
                method, route = names_of(scope)
                span.update_name(f"{method} {route}")
                span.set_attribute("http.request.method", method)
                span.set_attribute("http.route", route)
                span.set_attribute("http.response.status_code", status)
                if status >= 500:
                    span.set_status(trace.StatusCode.ERROR)
