"""The web application: routes, errors, limits and security headers."""

import re
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from importlib import import_module
from typing import Any
from uuid import uuid4

from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from starlette.datastructures import Headers, MutableHeaders
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from irtcat import __version__
from irtcat._common.checks import InputError
from irtcat.cat import StoreError
from irtcat.service.accounts.oidc import Provider
from irtcat.service.api.cat import status_info
from irtcat.service.api.schemas import document_errors
from irtcat.service.base.body_limit import BodyLimit, most_bytes
from irtcat.service.base.errors import ServiceError
from irtcat.service.lti.embedding import Embedding
from irtcat.service.storage.context import Service

ROUTERS = ("api.take", "api.media", "api.oauth", "api.sign_in", "api.staff", "api.cat",
           "pages", "pages.taker", "pages.staff",
           "lti.routes")  # fmt: skip
"""Modules under `irtcat.service` with a ``router`` each."""

PROGRAMS = ("/api/", "/ims/", "/oauth/")
"""Paths of programs, which get errors as JSON (RFC 9457); all other paths are pages for people."""

POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; media-src 'self'; "
    "font-src 'self'; connect-src 'self'; form-action 'self'; base-uri 'none'; "
    "frame-ancestors 'none'"
)
"""Content security policy: nothing from other hosts, no inline scripts or styles."""

HEADERS = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), microphone=(), geolocation=()",
    "Cache-Control": "no-store",
}


def problem(status: int, title: str, detail: str, **fields: Any) -> JSONResponse:
    """An error as RFC 9457 describes it."""
    slug = re.sub(r"[^a-z0-9]+", "-", title.lower()).strip("-")
    body = {"type": f"urn:irtcat:{slug}", "title": title, "status": status, "detail": detail}
    return JSONResponse(
        {**body, **fields}, status_code=status, media_type="application/problem+json"
    )


Beside = Callable[[FastAPI], AbstractAsyncContextManager[None]]
"""What runs beside the application: entered before it takes requests, and left after the last."""


def create_app(
    service: Service,
    *,
    secure: bool = True,
    oidc: Provider | None = None,
    beside: Sequence[Beside] = (),
) -> FastAPI:
    """The application on an open service.

    Args:
        service: the service.
        secure: cookies are sent over HTTPS only, and browsers are asked to use HTTPS. False for a
            single machine without certificates, such as a demonstration.
        oidc: the provider of identities of staff; by default that of the environment, if any.
        beside: what runs beside it, such as `irtcat.service.operations.server.warming`.
    """

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> Any:
        async with AsyncExitStack() as stack:
            for start in beside:
                await stack.enter_async_context(start(app))
            app.state.ready = True
            yield
            app.state.ready = False

    app = FastAPI(
        title="irtcat service",
        version=__version__,
        docs_url=None,  # the usual page loads scripts of another host
        redoc_url=None,
        openapi_url="/api/openapi.json",
        lifespan=lifespan,
    )
    app.state.service, app.state.secure, app.state.ready = service, secure, False
    app.state.oidc = oidc or Provider.from_environment()
    for name in ROUTERS:
        app.include_router(import_module(f"irtcat.service.{name}").router)
    document_errors(app)
    _add_health(app)
    _add_errors(app)
    app.add_middleware(BodyLimit)
    app.add_middleware(Guard, secure=secure)
    app.add_middleware(Embedding, service=service, secure=secure)
    return app


def _add_health(app: FastAPI) -> None:
    @app.get("/health/live", include_in_schema=False)
    def live() -> dict[str, str]:
        """Whether the process answers."""
        return {"status": "live"}

    @app.get("/health/ready", include_in_schema=False)
    def ready() -> Response:
        """Whether the process can serve takers: it is prepared, and the database answers."""
        service: Service = app.state.service
        if not app.state.ready:
            return problem(503, "Not ready", "The process is starting or stopping.")
        try:
            with service.database.reading():
                service.database.execute("SELECT 1").fetchone()
        except StoreError as error:
            return problem(503, "Not ready", str(error))
        return JSONResponse({"status": "ready"})


def _is_program(request: Request) -> bool:
    return request.url.path.startswith(PROGRAMS)


def _add_errors(app: FastAPI) -> None:
    def answer(request: Request, status: int, title: str, detail: str, **fields: Any) -> Response:
        if request.url.path.startswith("/ims/"):
            return JSONResponse(status_info(status, detail), status_code=status)
        fields["request"] = getattr(request.state, "request_id", "")
        if _is_program(request):
            return problem(status, title, detail, **fields)
        page = import_module("irtcat.service.pages")
        return page.error_page(request, status, title, detail)

    @app.exception_handler(ServiceError)
    def refused(request: Request, error: ServiceError) -> Response:
        response = answer(request, error.status, error.title, str(error))
        response.headers.update(error.headers)
        return response

    @app.exception_handler(StoreError)
    def failed(request: Request, error: StoreError) -> Response:
        return answer(request, 503, "Not available", "Nothing was saved. Please try again.")

    @app.exception_handler(InputError)
    def invalid(request: Request, error: InputError) -> Response:
        return answer(request, 422, "Invalid request", str(error))

    @app.exception_handler(RequestValidationError)
    def malformed(request: Request, error: RequestValidationError) -> Response:
        faults = [
            {"field": ".".join(map(str, fault["loc"])), "message": fault["msg"]}
            for fault in error.errors()
        ]
        detail = "; ".join(f"{fault['field']}: {fault['message']}" for fault in faults[:5])
        return answer(request, 422, "Invalid request", detail, errors=faults)

    @app.exception_handler(HTTPException)
    def http(request: Request, error: HTTPException) -> Response:
        response = answer(request, error.status_code, "Request refused", str(error.detail))
        response.headers.update(error.headers or {})
        return response


class Guard:
    """Middleware: limits of the body, the id of the request, and the headers of every response."""

    def __init__(self, app: ASGIApp, secure: bool):
        self.app = app
        extra = {"Strict-Transport-Security": "max-age=31536000"} if secure else {}
        self._headers = {**HEADERS, **extra}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, and complete its response."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        request_id, started = uuid4().hex, time.perf_counter()
        scope.setdefault("state", {})["request_id"] = request_id

        async def completed(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in self._headers.items():
                    headers.setdefault(name, value)
                headers["X-Request-Id"] = request_id
                milliseconds = 1000 * (time.perf_counter() - started)
                headers["Server-Timing"] = f"app;dur={milliseconds:.1f}"
            await send(message)

        length = Headers(scope=scope).get("content-length", "")
        most = most_bytes(scope["path"])
        if length.isascii() and length.isdigit() and (len(length) > 12 or int(length) > most):
            refused = problem(413, "Too large", f"A body has at most {most:,} bytes.")
            await refused(scope, receive, completed)
        else:
            await self.app(scope, receive, completed)
