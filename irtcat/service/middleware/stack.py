"""The middleware of the application, in the order in which requests pass it."""

import os
import sys
from importlib import import_module

from starlette.middleware import Middleware

from irtcat.service.middleware.body_limit import BodyLimit
from irtcat.service.middleware.embedding import Embedding
from irtcat.service.middleware.guard import Guard
from irtcat.service.middleware.observing import Observing
from irtcat.service.middleware.public_url import PublicUrl
from irtcat.service.middleware.rate_limits import RateLimits
from irtcat.service.storage.context import Service


def middleware(
    service: Service, *, secure: bool, observed: bool, limited: bool, url: str = ""
) -> list[Middleware]:
    """What a request passes, from the first to the last; its response passes it backwards.

    Args:
        service: the service.
        secure: cookies are sent over HTTPS only.
        observed: write metrics and a log of requests.
        limited: limit the rates of requests.
        url: the public address of the service; empty to take the host of each request for it.
    """
    rows = [
        *_tracing(observed),
        (observed, Middleware(Observing)),  # before the others: it counts refused requests, too
        (limited, Middleware(RateLimits)),
        # It changes the headers that `Guard` sets.
        (True, Middleware(Embedding, service=service, secure=secure)),
        (True, Middleware(Guard, secure=secure)),
        (True, Middleware(BodyLimit)),
        (bool(url), Middleware(PublicUrl, url=url)),
    ]
    return [row for is_used, row in rows if is_used]


def _tracing(observed: bool) -> list[tuple[bool, Middleware]]:
    """Spans of requests, where an SDK of OpenTelemetry is configured or was set up already."""
    is_configured = any(name.startswith("OTEL_") for name in os.environ)
    if not observed or not (is_configured or "opentelemetry.sdk" in sys.modules):
        return []
    return [(True, Middleware(import_module("irtcat.service.middleware.tracing").Tracing))]
