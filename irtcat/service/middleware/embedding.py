"""Pages of tests inside pages of a platform, where the platform is registered with its origin.

Without such a platform nothing is changed: no page may be embedded, and cookies stay on this site.
With one, browsers may show the takers' pages (and no others) inside pages of this origin. Their
cookies are then sent there, too, but in a partition of their own: a cookie that is set inside the
platform's page exists only there. Requests that other sites forge lack the token of the form.
"""

import re
import time
from collections.abc import Callable
from typing import Any

import sqlalchemy as sa
from starlette.concurrency import run_in_threadpool
from starlette.datastructures import Headers, MutableHeaders
from starlette.types import Message, Receive, Scope, Send

from irtcat.cat import StoreError
from irtcat.service.middleware import HttpMiddleware, at_start
from irtcat.service.storage import tables
from irtcat.service.storage.context import Service

PATHS = re.compile(r"/(lti|test|language)(/|$)")
"""The pages of a test that a platform opens. Not the field for tickets, and never the staff's."""

KEPT = 10.0
"""Seconds for which a process keeps the origins: the query is not part of every request."""

FRAMES = ("iframe", "frame")
SAME_SITE = re.compile(r";\s*samesite=\w+", re.IGNORECASE)


class Embedding(HttpMiddleware):
    """ASGI middleware outside of the one that sets the security headers."""

    def __init__(
        self,
        app: Any,
        service: Service,
        secure: bool,
        seconds: Callable[[], float] = time.monotonic,
    ):
        """Without ``secure`` nothing can be embedded; the clock is for tests."""
        super().__init__(app)
        self.service, self.secure, self._seconds = service, secure, seconds
        self._origins: list[str] = []
        self._read = -KEPT

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle a request."""
        if not self.secure or not PATHS.match(scope["path"]):
            await self.app(scope, receive, send)
            return
        origins = await self._known_origins()
        embedded = Headers(scope=scope).get("sec-fetch-dest", "") in FRAMES

        def permit(message: Message) -> None:
            _permit(MutableHeaders(scope=message), origins, embedded)

        await self.app(scope, receive, at_start(send, permit) if origins else send)

    async def _known_origins(self) -> list[str]:
        now = self._seconds()
        if now - self._read >= KEPT:
            try:
                self._origins = await run_in_threadpool(embedding_origins, self.service)
            except StoreError:  # the database is away: as before
                return self._origins
            self._read = now
        return self._origins


def embedding_origins(service: Service) -> list[str]:
    """Origins of open platforms whose pages may embed the pages of tests."""
    columns = tables.lti_platforms.c
    statement = sa.select(columns.origin).where(columns.origin != "", columns.status == "open")
    return sorted({row.origin for row in service.rows(statement)})


def _permit(headers: MutableHeaders, origins: list[str], embedded: bool) -> None:
    """Let a response be embedded; if it is, let its cookies exist there."""
    policy = headers.get("content-security-policy", "")
    headers["content-security-policy"] = policy.replace(
        "frame-ancestors 'none'", f"frame-ancestors {' '.join(origins)}"
    )
    del headers["x-frame-options"]  # knows no origins; the policy above stands for it
    if not embedded:
        return
    cookies = headers.getlist("set-cookie")
    del headers["set-cookie"]
    for cookie in cookies:
        plain = re.sub(r";\s*secure\b", "", SAME_SITE.sub("", cookie), flags=re.IGNORECASE)
        headers.append("set-cookie", f"{plain}; SameSite=None; Secure; Partitioned")
