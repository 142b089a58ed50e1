"""Names of cookies: browsers send a cookie to every port of a host, also to what runs there later.

So the name holds a part that differs by installation: two services of one host, one after the
other or at two ports, neither read nor overwrite each other's cookies.
"""

from fastapi import Request

from irtcat.service.storage.context import Service

PREFIX = "irtcat"


def installation(service: Service) -> str:
    """Eight characters by which the cookies of this database differ from those of others."""
    return service.signature("cookies", "")[:8]


def service_cookie(service: Service, kind: str, *parts: str) -> str:
    """The name of a cookie of a service.

    Args:
        service: the service.
        kind: what the cookie holds, such as "staff".
        *parts: what else distinguishes it, such as the attempt.
    """
    return "_".join([PREFIX, kind, installation(service), *parts])


def cookie_name(request: Request, kind: str, *parts: str) -> str:
    """The name of a cookie of the service that a request reached (see `service_cookie`)."""
    return service_cookie(request.app.state.service, kind, *parts)
