"""Pages for people: the test taker's and the staff's, rendered on the server."""

from fastapi import Request, Response
from fastapi.responses import PlainTextResponse

__all__ = ["error_page"]


def error_page(request: Request, status: int, title: str, detail: str) -> Response:
    """The page of an error."""
    return PlainTextResponse(f"{title}\n\n{detail}", status_code=status)
