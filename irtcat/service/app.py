"""The web application: routes and errors."""

import os
from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from typing import TYPE_CHECKING, Any

from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException

from irtcat import __version__
from irtcat._common.checks import InputError
from irtcat.cat import StoreError
from irtcat.service.assembly import add_routes, imported, include
from irtcat.service.base.errors import ServiceError, problem
from irtcat.service.middleware import checked_url, middleware
from irtcat.service.storage.context import Service

if TYPE_CHECKING:
    from irtcat.service.accounts.oidc import Provider

OIDC = "IRTCAT_OIDC_ISSUER"
"""The variable of the environment that names a provider of OpenID Connect."""

PROGRAMS = ("/api/", "/ims/", "/oauth/")
"""Paths of programs, which get errors as JSON (RFC 9457); all other paths are pages for people."""

Beside = Callable[[FastAPI], AbstractAsyncContextManager[None]]
"""What runs beside the application: entered before it takes requests, and left after the last."""


def create_app(
    service: Service,
    *,
    secure: bool = True,
    oidc: "Provider | None" = None,
    observed: bool = False,
    limited: bool = False,
    url: str = "",
    private_webhooks: bool = False,
    beside: Sequence[Beside] = (),
) -> FastAPI:
    """The application on an open service.

    Args:
        service: the service.
        secure: cookies are sent over HTTPS only, and browsers are asked to use HTTPS. False for a
            single machine without certificates, such as a demonstration.
        oidc: the provider of identities of staff; by default that of the environment, if any.
        observed: write metrics and a log of requests.
        limited: limit the rates of requests (see `irtcat.service.base.limits`).
        url: the public address, such as ``https://tests.example.org``, of links and addresses for
            other systems; by default the host that each request names.
        private_webhooks: webhooks may have private addresses, and addresses without TLS.
        beside: what runs beside it, such as `irtcat.service.operations.background.warming`.
    """

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> Any:
        async with AsyncExitStack() as stack:
            for start in beside:
                await stack.enter_async_context(start(app))
            app.state.ready = True
            yield
            app.state.ready = False

    url = checked_url(url) if url else ""
    app = FastAPI(
        title="irtcat service",
        version=__version__,
        docs_url=None,  # the usual page loads scripts of another host
        redoc_url=None,
        openapi_url="/api/openapi.json",
        lifespan=lifespan,
        middleware=middleware(service, secure=secure, observed=observed, limited=limited, url=url),
    )
    app.state.service, app.state.secure, app.state.ready = service, secure, False
    app.state.private_webhooks = private_webhooks
    if oidc is None and os.environ.get(OIDC):
        oidc = imported("accounts.oidc:Provider").from_environment()
    app.state.oidc = oidc
    if oidc is not None:
        include(app, ("accounts.oidc",))
    add_routes(app)
    _add_health(app)
    _add_errors(app)
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


def _add_errors(app: FastAPI) -> None:
    def answer(request: Request, status: int, title: str, detail: str, **fields: Any) -> Response:
        if request.url.path.startswith("/ims/"):
            body = imported("api.cat:status_info")(status, detail)
            return JSONResponse(body, status_code=status)
        fields["request"] = getattr(request.state, "request_id", "")
        if request.url.path.startswith(PROGRAMS):
            return problem(status, title, detail, **fields)
        page: Response = imported("pages:error_page")(request, status, title, detail)
        return page

    @app.exception_handler(InputError)
    def refused(request: Request, error: InputError) -> Response:
        if isinstance(error, StoreError):
            return answer(request, 503, "Not available", "Nothing was saved. Please try again.")
        kind = error if isinstance(error, ServiceError) else ServiceError
        response = answer(request, kind.status, kind.title, str(error))
        response.headers.update(getattr(error, "headers", {}))
        return response

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
