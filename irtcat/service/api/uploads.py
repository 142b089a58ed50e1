"""Uploads: the body of a request, and its content type."""

from fastapi import Request
from starlette.exceptions import HTTPException

TABLE = "text/csv"

ITEMS = ("application/zip", TABLE)
"""Content types of item sets."""


async def raw_body(request: Request) -> bytes:
    """The body of a request; its size is limited for all requests."""
    return await request.body()


def content_type(request: Request, *allowed: str) -> str:
    """The content type of a request, without its parameters.

    Raises:
        HTTPException: with status 415 for another one.
    """
    found = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if found not in allowed:
        raise HTTPException(415, f"The content type must be {' or '.join(allowed)}.")
    return found
