"""Limit of the size of requests, also of those that do not announce their size."""

from typing import Any

from starlette.exceptions import HTTPException

MOST_BODY = 1_000_000
"""Bytes of a request's body; uploads of items and banks have a limit of their own."""

MOST_UPLOAD = 200_000_000
"""Bytes of an upload by staff."""

UPLOADS = ("/api/v1/uploads/", "/staff/uploads")
"""Paths to which staff send banks and items."""


def most_bytes(path: str) -> int:
    """The largest body of a request to a path."""
    return MOST_UPLOAD if path.startswith(UPLOADS) else MOST_BODY


class BodyLimit:
    """Refuses bodies above the limit while they are read: a chunked one has no length before."""

    def __init__(self, app: Any):
        self.app = app

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Pass a request on, counting the bytes of its body."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        most, n_bytes = most_bytes(scope["path"]), 0

        async def counted() -> Any:
            nonlocal n_bytes
            message = await receive()
            n_bytes += len(message.get("body", b""))
            if n_bytes > most:
                raise HTTPException(413, f"A body has at most {most:,} bytes.")
            return message

        await self.app(scope, counted, send)
