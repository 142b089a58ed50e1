"""Errors of the service: what a caller did wrong, with the HTTP status that says so."""

import math
import re
from collections.abc import Mapping, Sequence
from typing import Any

from fastapi.responses import JSONResponse

from irtcat._common.checks import InputError, argument_error


class ServiceError(InputError):
    """A request that cannot be carried out; nothing was changed.

    Attributes:
        status: HTTP status.
        title: short name of the problem, the same for all errors of a class.
        headers: further headers of the response.
    """

    status, title, headers = 422, "Invalid request", dict[str, str]()


class UnauthorizedError(ServiceError):
    """No valid credentials.

    Its header says that programs sign in by a token, as RFC 9110, section 11.6.1, asks.
    """

    status, title, headers = 401, "Not signed in", {"WWW-Authenticate": 'Bearer realm="irtcat"'}


class ForbiddenError(ServiceError):
    """Valid credentials that do not permit this."""

    status, title = 403, "Not permitted"


class NotFoundError(ServiceError):
    """Nothing with this id, or nothing that the caller may know of."""

    status, title = 404, "Not found"


class ConflictError(ServiceError):
    """Not possible in the present state."""

    status, title = 409, "Conflict"


class GoneError(ServiceError):
    """Was valid once: a used, revoked or expired ticket."""

    status, title = 410, "No longer valid"


class TooManyError(ServiceError):
    """More requests than a limit permits."""

    status, title = 429, "Too many requests"

    def __init__(self, seconds: float):
        self.seconds = max(math.ceil(seconds), 1)
        self.headers = {"Retry-After": str(self.seconds)}
        super().__init__(f"Too many attempts. Try again in {self.seconds} s.")


def found(it: Any, what: str) -> Any:
    """What was looked for, such as a row of a table; anything true stands for it.

    Raises:
        NotFoundError: if there is none.
    """
    if not it:
        raise NotFoundError(f"There is no such {what}.")
    return it


def some_of(argument: str, names: Sequence[str], known: Mapping[str, Any]) -> list[str]:
    """Names in alphabetical order, each once: at least one, and all of them known.

    Raises:
        InputError: for other names, or none.
    """
    listed = ", ".join(known)
    for name in names:
        if name not in known:
            raise argument_error(argument, f"some of {listed}", name)
    if not names:
        raise argument_error(argument, f"at least one of {listed}", list(names))
    return sorted(set(names))


def problem(status: int, title: str, detail: str, **fields: Any) -> JSONResponse:
    """An error as RFC 9457 describes it."""
    slug = re.sub(r"[^a-z0-9]+", "-", title.lower()).strip("-")
    body = {"type": f"urn:irtcat:{slug}", "title": title, "status": status, "detail": detail}
    return JSONResponse(
        {**body, **fields}, status_code=status, media_type="application/problem+json"
    )
