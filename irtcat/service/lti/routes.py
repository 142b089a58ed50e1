"""The addresses that a platform knows, and the pages that a launch opens."""

from typing import Annotated
from urllib.parse import urlsplit

from fastapi import APIRouter, Depends, Form, Request, Response
from fastapi.responses import JSONResponse, RedirectResponse

from irtcat._common.checks import InputError
from irtcat.service.accounts.credentials import service_of, set_cookie
from irtcat.service.attempts.taking import remember_device
from irtcat.service.base.errors import ServiceError
from irtcat.service.lti.attempts import attempt_of_launch, link_summary, start, test_of
from irtcat.service.lti.connection import connection_of, public_keys, tool_configuration
from irtcat.service.lti.launching import (
    LAUNCH_LASTS,
    Launch,
    LaunchError,
    begin_login,
    choices,
    launch_of,
    verified_launch,
)
from irtcat.service.pages import CheckedForm, PageRoute, language_of, render
from irtcat.service.pages.taker import has_attempt, test_address
from irtcat.service.pages.translations import spoken_time

PATH = "/lti"

RESULTS = "/staff/tests/{}/results"
"""The staff's page of a test, to which instructors are referred."""

MOST_FIELDS = 30
"""Fields of a login."""


class _Route(PageRoute):
    """Routes whose errors are shown with their reason: the person can pass it on to a teacher."""

    @staticmethod
    def refused(request: Request, error: InputError) -> Response:
        if not isinstance(error, ServiceError):
            raise error
        return render(
            request,
            "lti_error.html",
            language_of(request),
            status=error.status,
            detail=str(error),
            request_id=getattr(request.state, "request_id", ""),
        )


router = APIRouter(prefix=PATH, include_in_schema=False, route_class=_Route)


def _url(request: Request, path: str) -> str:
    return f"{str(request.base_url).rstrip('/')}{PATH}/{path}"


async def _fields(request: Request) -> dict[str, str]:
    """The fields of a login, which platforms send by GET or by POST."""
    sent = dict(request.query_params)
    if request.method == "POST":
        form = await request.form(max_files=0, max_fields=MOST_FIELDS)
        sent |= {name: value for name, value in form.items() if isinstance(value, str)}
    return sent


@router.get("/jwks")
def jwks(request: Request) -> Response:
    """The service's public keys."""
    return JSONResponse(
        public_keys(service_of(request)), headers={"Cache-Control": "public, max-age=3600"}
    )


@router.get("/configuration")
def configuration(request: Request) -> Response:
    """What platforms have to know of the service, as JSON that some of them read."""
    return JSONResponse(tool_configuration(str(request.base_url).rstrip("/")))


@router.get("/login")
@router.post("/login")
def login(request: Request, fields: Annotated[dict[str, str], Depends(_fields)]) -> Response:
    """Begin a login: send the browser to the platform, with a state, a nonce and a cookie."""
    url, cookie, secret = begin_login(service_of(request), fields, _url(request, "launch"))
    response = RedirectResponse(url, status_code=303)
    seconds = int(LAUNCH_LASTS.total_seconds())
    # "strict" would not be sent where another site leads to the launch's page.
    set_cookie(request, response, cookie, secret, seconds=seconds, same_site="lax", path=PATH)
    return response


@router.post("/launch")
def launch(
    request: Request,
    id_token: Annotated[str, Form()] = "",
    state: Annotated[str, Form()] = "",
    error: Annotated[str, Form()] = "",
) -> Response:
    """Verify the platform's message, and go to the page of the launch."""
    if error:
        raise LaunchError(f"The platform refused the login: {error[:200]!r}.")
    code = verified_launch(connection_of(request.app), state, id_token)
    return RedirectResponse(f"{PATH}/open/{code}", status_code=303)


@router.get("/launch")
def not_launched(request: Request) -> Response:
    """A link that is opened outside of the platform."""
    raise LaunchError("This link opens a test from a course. Open it there.")


@router.get("/open/{code}")
def open_page(request: Request, code: str) -> Response:
    """The page of a launch: for learners the start of the test, for instructors a summary."""
    service = service_of(request)
    known = launch_of(service, code, request.cookies)
    if known.kind == "choice":
        return _choice_page(request, known)
    test = test_of(service, known)
    definition = test.definition
    language = language_of(request, definition.language)
    if "instructor" in known.roles:
        return render(
            request,
            "lti_instructor.html",
            language,
            title=definition.title,
            content_language=definition.language,
            link=known.title,
            numbers=link_summary(service, known),
            has_grades=bool(known.line_item),
            results=RESULTS.format(test.id),
        )
    if "learner" not in known.roles:
        raise LaunchError("The platform does not say that you take tests in this course.")
    begun = attempt_of_launch(service, known)
    limit = definition.time_limit if begun is None else None
    return render(
        request,
        "lti_start.html",
        language,
        test=definition,
        limit=None if limit is None else spoken_time(limit, language),
        begun=begun,
    )


def _choice_page(request: Request, known: Launch) -> Response:
    """The page on which an instructor chooses the test of a new link."""
    if "instructor" not in known.roles:
        raise LaunchError("Only instructors choose tests.")
    address = str(known.choice["return_url"])
    response = render(
        request,
        "lti_choice.html",
        language_of(request),
        tests=choices(service_of(request), known, _url(request, "launch")),
        return_url=address,
    )
    # The chosen test is sent to the platform by a form.
    parts = urlsplit(address)
    response.headers["Content-Security-Policy"] = (
        "default-src 'none'; style-src 'self'; img-src 'self'; base-uri 'none'; "
        f"form-action {parts.scheme}://{parts.netloc}; frame-ancestors 'none'"
    )
    return response


@router.post("/open/{code}")
def begin(request: Request, code: str, form: CheckedForm) -> Response:
    """Give the attempt to this device, and go to the test."""
    service = service_of(request)
    known = launch_of(service, code, request.cookies)
    if known.kind != "test":
        raise LaunchError("This launch opens no test.")
    begun = attempt_of_launch(service, known)
    if begun is not None and has_attempt(request, begun.attempt):
        return RedirectResponse(test_address(begun.attempt), status_code=303)
    started = start(service, known)
    response = RedirectResponse(test_address(started.attempt), status_code=303)
    remember_device(request, response, started)
    return response
