"""The middleware of the application, in the order in which requests pass it."""

import os
import sys
from typing import Any
from urllib.parse import urlsplit

from starlette.middleware import Middleware

from irtcat._common.checks import argument_error
from irtcat.service.middleware import HttpMiddleware
from irtcat.service.middleware.embedding import Embedding
from irtcat.service.middleware.guard import BodyLimit, Guard
from irtcat.service.middleware.observing import Observing
from irtcat.service.middleware.rate_limits import RateLimits
from irtcat.service.storage.context import Service


def checked_url(url: str) -> str:
    """A public address, such as ``https://tests.example.org``, without a slash at its end.

    It has a scheme, a host, and a port if it is not that of the scheme.

    Raises:
        InputError: for anything else.

    Example:
        >>> checked_url("https://tests.example.org/")
        'https://tests.example.org'
    """
    expected = "an address such as https://tests.example.org, without a path"
    try:
        parts = urlsplit(url)
        is_url = bool(parts.scheme in ("http", "https") and parts.hostname) and parts.port != 0
    except ValueError:  # such as http://[ or a port that is no number
        raise argument_error("url", expected, url) from None
    more = parts.path.strip("/") or parts.query or parts.fragment or "@" in parts.netloc
    if not is_url or more or not parts.netloc.isascii() or not parts.netloc.isprintable():
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


def middleware(
    service: Service, *, secure: bool, observed: bool, limited: bool, url: str = ""
) -> list[Middleware]:
    """What a request passes, from the first to the last; its response passes it backwards.

    The arguments are those of `irtcat.service.app.create_app`.
    """
    rows = [
        (
            observed,
            Middleware(Observing, traced=_is_traced()),
        ),  # before the others: it counts refused requests, too
        (limited, Middleware(RateLimits)),
        # It changes the headers that `Guard` sets.
        (True, Middleware(Embedding, service=service, secure=secure)),
        (True, Middleware(Guard, secure=secure)),
        (True, Middleware(BodyLimit)),
        (bool(url), Middleware(PublicUrl, url=url)),
    ]
    return [row for is_used, row in rows if is_used]


def _is_traced() -> bool:
    """Whether an SDK of OpenTelemetry is configured or was set up already."""
    is_configured = any(name.startswith("OTEL_") for name in os.environ)
    return is_configured or "opentelemetry.sdk" in sys.modules
