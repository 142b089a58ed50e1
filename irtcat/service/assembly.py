"""Assembly: a service with all that subscribes to its events, and the parts that few use.

LTI, webhooks, the interface for TAO, and scoring by people are imported when they are first used: a
request for one of their routes, or a row in their table. Until then a process holds none of their
code, nor the libraries that only they need.
"""

import os
import re
from collections.abc import Callable
from importlib import import_module
from typing import Any

import sqlalchemy as sa
from fastapi import APIRouter, FastAPI
from starlette.routing import BaseRoute, Match
from starlette.types import Receive, Scope, Send

from irtcat._common.clock import Clock, system_clock
from irtcat.cat.live import Key
from irtcat.service.outbox import audit
from irtcat.service.storage import tables
from irtcat.service.storage.context import (
    Acted,
    AttemptChanged,
    Service,
    Subscriber,
    Subscribers,
    TestPublished,
)
from irtcat.service.storage.database import EngineDatabase


def imported(name: str) -> Any:
    """What a name such as ``lti.attempts:send`` means, below `irtcat.service`."""
    module, _, attribute = name.partition(":")
    return getattr(import_module(f"irtcat.service.{module}"), attribute)


def if_rows(table: sa.Table, name: str) -> Subscriber:
    """A subscriber that is imported when its table has a row.

    The table is that of what subscribes, such as webhooks; `imported` reads the name.
    """
    any_row = sa.select(sa.literal(1)).select_from(table).limit(1)

    def subscriber(service: Service, event: Any) -> None:
        if service.scalar(any_row) is not None:
            imported(name)(service, event)

    return subscriber


SUBSCRIBERS: Subscribers = {
    Acted: (audit.record,),
    TestPublished: (
        audit.test_published,
        if_rows(tables.webhooks, "outbox.webhooks:test_published"),
    ),
    AttemptChanged: (
        if_rows(tables.lti_platforms, "lti.attempts:attempt_changed"),
        if_rows(tables.webhooks, "outbox.webhooks:attempt_changed"),
    ),
}
"""The functions that are called for an event, by its class, in this order."""

ROUTERS = (
    "api.take",
    "api.media",
    "api.sign_in",
    "api.staff",
    "api.actions",
    "pages",
    "pages.taker",
    "pages.staff",
)
"""Modules with a ``router`` each."""


LATE_ROUTERS = {
    r"/lti/": ("lti.routes",),
    r"/(ims|oauth)/": ("api.cat",),
    r"/api/v1/webhooks": ("api.webhooks",),
    r"/api/v1/(ratings|(attempts|tests)/[^/]+/ratings)|/staff/scoring": (
        "api.ratings",
        "pages.staff.scoring",
    ),
}
"""The parts that few use, by their paths; imported at the first request for one of them."""


class LateRoutes(BaseRoute):
    """Stands for the routes of a part until one of them is asked for."""

    def __init__(self, app: FastAPI, paths: str, routers: tuple[str, ...]):
        self.app, self.routers, self.is_loaded = app, routers, False
        self.paths = re.compile(paths)

    def matches(self, scope: Scope) -> tuple[Match, Scope]:
        """A full match for a path of the part, before its routes are there."""
        is_match = scope["type"] == "http" and self.paths.match(scope["path"])
        return (Match.FULL if is_match and not self.is_loaded else Match.NONE), {}

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Import the routes, and handle the request by them."""
        self.load()
        await self.app.router(scope, receive, send)

    def load(self) -> None:
        """Import the routes, once."""
        if not self.is_loaded:
            self.is_loaded = True
            include(self.app, self.routers)


def include(app: FastAPI, routers: tuple[str, ...]) -> None:
    """Add the routes of modules to an application."""
    for name in routers:
        router: APIRouter = imported(f"{name}:router")
        app.include_router(router)


def add_routes(app: FastAPI) -> None:
    """Add all routes; the OpenAPI document has those of `LATE_ROUTERS`, too."""
    include(app, ROUTERS)
    late = [LateRoutes(app, *row) for row in LATE_ROUTERS.items()]
    app.router.routes.extend(late)
    generate: Callable[[], dict[str, Any]] = app.openapi

    def openapi() -> dict[str, Any]:
        for routes in late:
            routes.load()
        document = generate()
        imported("api.schemas:document_errors")(document)
        return document

    app.openapi = openapi  # type: ignore[method-assign]


def open_service(
    address: str | os.PathLike[str] | EngineDatabase,
    *,
    create: bool = False,
    key: Key = None,
    clock: Clock = system_clock,
) -> Service:
    """Open a service with its `SUBSCRIBERS`.

    The arguments are those of `irtcat.service.storage.context.Service`, as are the errors.
    """
    return Service(address, SUBSCRIBERS, create=create, key=key, clock=clock)
