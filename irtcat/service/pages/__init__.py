"""Pages for people: what the test taker's and the staff's pages share.

Pages are rendered on the server by Jinja2 with autoescaping; scripts and styles are files of
``static/``, since the content security policy forbids inline ones. Texts are translated by gettext.
"""

import hashlib
import mimetypes
import re
from collections.abc import AsyncIterator, Callable, Coroutine
from functools import cache
from pathlib import Path
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Request, Response
from fastapi.responses import HTMLResponse, RedirectResponse
from fastapi.routing import APIRoute
from jinja2 import Environment, PackageLoader, StrictUndefined
from starlette.datastructures import FormData

from irtcat._common.checks import InputError
from irtcat.service.accounts.credentials import (
    check_csrf,
    cookie_name,
    csrf_token,
    service_of,
    set_cookie,
)
from irtcat.service.base.errors import ForbiddenError, found
from irtcat.service.definition import TRANSLATED
from irtcat.service.pages.fields import TEMPLATE_GLOBALS
from irtcat.service.pages.translations import (
    direction_of,
    language_names,
    message,
    translated,
    translations,
)
from irtcat.service.storage.context import new_secret

router = APIRouter(include_in_schema=False)

STATIC = Path(__file__).parent / "static"

FORM = "form"
"""Kind of the cookie with the secret of a browser, to which the tokens of its forms are bound."""

LANGUAGE = "language"
"""Kind of the cookie with the language that a person chose."""

LOCAL_PATH = re.compile(r"/([A-Za-z0-9_][A-Za-z0-9_/.-]*)?(\?[A-Za-z0-9_=&%+.~-]*)?")

YEAR = 365 * 24 * 3600

MOST_FILES = 10
"""Files in a form; their sizes are limited by that of the request."""

HASH = 16
"""Characters of the hash in the address of a static file."""


# Static files


@cache
def _static_file(name: str) -> tuple[bytes, str]:
    """Content of a static file and its hash."""
    data = (STATIC / name).read_bytes()
    return data, hashlib.sha256(data).hexdigest()[:HASH]


def static_url(name: str) -> str:
    """The address of a static file; it changes with the content, so that it is kept for ever."""
    return f"/static/{_static_file(name)[1]}/{name}"


@router.get("/static/{version}/{name}")
def static_file(version: str, name: str) -> Response:
    """A script, a style sheet or a picture of the pages."""
    is_known = name in {path.name for path in STATIC.iterdir()}
    found(is_known and version == _static_file(name)[1], "file")
    kind = "text/javascript" if name.endswith(".js") else mimetypes.guess_type(name)[0]
    lasting = {"Cache-Control": f"public, max-age={YEAR}, immutable"}
    return Response(_static_file(name)[0], media_type=kind, headers=lasting)


# Languages


def language_of(request: Request, preferred: str = "") -> str:
    """The language of a page: the person's choice, else the preferred one, else the browser's."""
    chosen = request.cookies.get(cookie_name(request, LANGUAGE), "")
    if chosen in TRANSLATED:
        return chosen
    accepted = request.headers.get("accept-language", "")[:500].split(",")
    wanted = [preferred, *(part.split(";")[0].strip() for part in accepted)]
    return next(filter(None, map(translated, wanted)), TRANSLATED[0])


def local_path(text: str) -> str:
    """A path on this host, which may have a query; "/" for anything else.

    Example:
        >>> local_path("/test?a=1"), local_path("//elsewhere.example"), local_path("https://a.de")
        ('/test?a=1', '/', '/')
    """
    return text if LOCAL_PATH.fullmatch(text) else "/"


@router.get("/language/{tag}")
def choose_language(request: Request, tag: str, to: str = "/") -> Response:
    """Keep the language that a person chose, and go back to the page."""
    found(tag in TRANSLATED, "page")
    response = RedirectResponse(local_path(to), status_code=303)
    set_cookie(request, response, cookie_name(request, LANGUAGE), tag, seconds=YEAR)
    return response


# Cookies and forms


def form_secret(request: Request) -> str:
    """The secret of this browser as it was sent; empty without one."""
    return request.cookies.get(cookie_name(request, FORM), "")


def form_token(request: Request) -> str:
    """The token of this browser's forms against requests that other sites make it send.

    A browser without a secret gets a new one with the response.
    """
    known = form_secret(request) or getattr(request.state, "form_secret", "")
    if not known:
        known = request.state.form_secret = new_secret()
    return csrf_token(service_of(request), str(known))


async def _checked_form(request: Request) -> AsyncIterator[FormData]:
    async with request.form(max_files=MOST_FILES) as form:
        secret = form_secret(request)
        try:
            check_csrf(service_of(request), secret, form_text(form, "token") if secret else "")
        except ForbiddenError:
            raise ForbiddenError(FORM_EXPIRED) from None
        yield form


CheckedForm = Annotated[FormData, Depends(_checked_form)]
"""The fields of a form that this browser got from this service."""


def form_text(form: FormData, name: str) -> str:
    """A text of a form; empty if it is missing."""
    value = form.get(name)
    return value if isinstance(value, str) else ""


# Rendering


@cache
def _environment(language: str) -> Environment:
    """Jinja2 with the translations of a language."""
    environment = Environment(
        loader=PackageLoader("irtcat.service.pages", "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        extensions=["jinja2.ext.i18n"],
    )
    environment.install_gettext_translations(  # type: ignore[attr-defined]
        translations(language), newstyle=True
    )
    environment.globals.update(
        static_url=static_url,
        direction_of=direction_of,
        language=language,
        languages=language_names(),
        **TEMPLATE_GLOBALS,
    )
    return environment


def render(
    request: Request, template: str, language: str, *, status: int = 200, **context: Any
) -> HTMLResponse:
    """A page."""
    context = {"back": "/", **context, "token": form_token(request)}
    html = _environment(language).get_template(template).render(context)
    response = HTMLResponse(html, status_code=status)
    made = getattr(request.state, "form_secret", "")
    if made:
        # A link in a mail, opened again, must not change the secret of forms in other tabs.
        set_cookie(request, response, cookie_name(request, FORM), made, same_site="lax")
    return response


# Errors


class PageRoute(APIRoute):
    """A route whose errors are pages."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """The handler, with a page for what it refuses."""
        handler = super().get_route_handler()

        async def handled(request: Request) -> Response:
            try:
                return await handler(request)
            except InputError as error:
                return self.refused(request, error)

        return handled

    @staticmethod
    def refused(request: Request, error: InputError) -> Response:
        """The page of an error."""
        raise error


FORM_EXPIRED = message("This form is no longer valid. Open the page again and send it once more.")

TITLES = {
    400: message("The request could not be read"),
    401: message("This device does not have the test"),
    403: message("Not permitted"),
    404: message("Not found"),
    409: message("This is not possible now"),
    410: message("No longer valid"),
    413: message("Too large"),
    422: message("The request could not be read"),
    429: message("Too many requests"),
    503: message("Not available at the moment"),
}

MESSAGES = frozenset(
    {
        FORM_EXPIRED,
        message("This device does not have the test. Open it with the ticket."),
        message("There is no such ticket. Check the link or the code."),
        message("There is no such file."),
        message("There is no such page."),
        message("The ticket is no longer valid."),
        message("The ticket is not valid yet."),
        message("The ticket has expired."),
        message("The test was taken with this ticket."),
        message("The test is open on another device. Continue there, or ask for its release."),
        message("The test is paused."),
        message("The test is over."),
        message("This test cannot be paused."),
        message("The test cannot be continued from here."),
        message("The break has a fixed length."),
        message("This item cannot be marked."),
        message("Nothing was saved. Please try again."),
    }
)
"""Messages of the service that takers may read; others can name items."""

OTHER = message("What you asked for was not done. Go back to the test and try again.")

TEST = "/test"
"""Path of the pages of tests: each attempt has its own below it."""

OF_TEST = re.compile(rf"{TEST}/[0-9a-f]{{16}}(?=/|$)")

STAFF = "/staff"
"""Path of the staff's pages, which show the messages of errors as they are."""


def error_page(request: Request, status: int, title: str, detail: str) -> Response:
    """The page of an error.

    Takers see the detail if it is one of `MESSAGES`.
    """
    language = language_of(request)
    texts = translations(language)
    staff = request.url.path == STAFF or request.url.path.startswith(f"{STAFF}/")
    if status == 404 and detail not in MESSAGES and not staff:
        detail = "There is no such page."
    if not staff:
        title = TITLES.get(status, message("An error occurred"))
        detail = detail if detail in MESSAGES else OTHER
    of_test = OF_TEST.match(request.url.path)
    return render(
        request,
        "error.html",
        language,
        status=status,
        title=texts.gettext(title),
        detail=texts.gettext(detail),
        code=status,
        staff=staff,
        test_page=of_test[0] if of_test else TEST,
        request_id=getattr(request.state, "request_id", ""),
    )
