"""Middleware: what every request passes before its route, and its response afterwards."""

from collections.abc import Callable
from typing import Any

from starlette.types import ASGIApp, Message, Receive, Scope, Send


class HttpMiddleware:
    """Middleware of requests; what is not one, such as the start of the server, passes it by."""

    def __init__(self, app: ASGIApp):
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle a request."""
        await (self.handle if scope["type"] == "http" else self.app)(scope, receive, send)

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on."""
        await self.app(scope, receive, send)


def at_start(send: Send, act: Callable[[Message], Any]) -> Send:
    """Send a response, and do something with the message that begins it."""

    async def sent(message: Message) -> None:
        if message["type"] == "http.response.start":
            act(message)
        await send(message)

    return sent
