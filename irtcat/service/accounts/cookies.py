"""Names of cookies: browsers send a cookie to every port of a host, so the port is in its name."""

import re

from fastapi import Request

PORT = re.compile(r":(\d{1,5})$")


def cookie_name(request: Request, kind: str, *parts: str) -> str:
    """The name of a cookie at the address by which a browser reaches the service.

    Two services at different ports of one host have different cookies.

    Args:
        request: the request.
        kind: what the cookie holds, such as "staff".
        *parts: what else distinguishes it, such as the attempt.
    """
    found = PORT.search(request.headers.get("host", ""))
    port = found[1] if found else "443" if request.url.scheme == "https" else "80"
    return "_".join(["irtcat", kind, port, *parts])
