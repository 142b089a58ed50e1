"""The public address of the service: with one, no request can choose the host of links."""

from typing import Any
from urllib.parse import urlsplit

from irtcat._common.checks import argument_error


def checked_url(url: str) -> str:
    """A public address, such as ``https://tests.example.org``, without a slash at its end.

    Args:
        url: the address: a scheme, a host, and a port if it is not that of the scheme.

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


class PublicUrl:
    """Middleware: requests look as if they were sent to the public address.

    Links, redirects and addresses for other systems are made from the host of the request, which
    the sender of a request chooses (the header ``Host``) unless it is replaced here.
    """

    def __init__(self, app: Any, url: str):
        self.app = app
        parts = urlsplit(url)
        self._scheme, self._host = parts.scheme, parts.netloc.encode()

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Pass a request on, with the scheme and the host of the public address."""
        if scope["type"] == "http":
            headers = [(name, value) for name, value in scope["headers"] if name != b"host"]
            headers.append((b"host", self._host))
            scope = {**scope, "scheme": self._scheme, "headers": headers}
        await self.app(scope, receive, send)
