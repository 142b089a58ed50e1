"""The middleware of the application, in the order in which requests pass it."""

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
        (observed, Middleware(Observing)),  # first: it counts refused requests, too
        (limited, Middleware(RateLimits)),
        # It changes the headers that `Guard` sets.
        (True, Middleware(Embedding, service=service, secure=secure)),
        (True, Middleware(Guard, secure=secure)),
        (True, Middleware(BodyLimit)),
        (bool(url), Middleware(PublicUrl, url=url)),
    ]
    return [row for is_used, row in rows if is_used]
