"""The test taker's pages: sign in by ticket, take the test, read the score report.

Everything works by plain forms: a request that changes something is followed by a redirection to
the page of the test. Addresses of these pages, and so their forms, name the attempt: several tabs
of a browser may have several tests. Forms of answers also name the item. The script ``taker.js``
sends the same forms without leaving the page, keeps answers while the network is down, and counts
the time down between two looks at the server.
"""

import hashlib
import json
from collections.abc import Callable
from typing import Any

from fastapi import APIRouter, Request, Response
from fastapi.responses import RedirectResponse
from starlette.datastructures import FormData

from irtcat._common.checks import InputError
from irtcat.service.accounts.credentials import service_of
from irtcat.service.attempts import taking
from irtcat.service.attempts.view import media_urls
from irtcat.service.base.errors import ConflictError, ServiceError, UnauthorizedError
from irtcat.service.pages import TEST, CheckedForm, form_secret, form_text, language_of, render
from irtcat.service.pages.fields import Seen
from irtcat.service.pages.translations import (
    clock_text,
    interval_text,
    number_text,
    spoken_time,
    translations,
)
from irtcat.service.storage.context import new_id

router = APIRouter(include_in_schema=False)

OF_TEST = f"{TEST}/{{key}}"
"""The page of the attempt with a key (see `irtcat.service.attempts.taking.attempt_key`)."""

POLL_SECONDS = 30
"""Seconds after which the script looks whether staff paused or extended the test."""


# Devices


def test_address(attempt: str) -> str:
    """The address of the page of an attempt's test."""
    return f"{TEST}/{taking.attempt_key(attempt)}"


test_address.__test__ = False  # type: ignore[attr-defined]  # not one of pytest's


def _device(request: Request) -> taking.Device:
    """This browser's device for the attempt that the address names.

    Raises:
        UnauthorizedError: without its cookie.
    """
    return taking.device_with(request, request.path_params["key"])


def has_attempt(request: Request, attempt: str) -> bool:
    """Whether this browser is the device of an attempt."""
    try:
        device = taking.device_with(request, taking.attempt_key(attempt))
        taking.check_device(service_of(request), attempt, device.secret)
    except UnauthorizedError:
        return False
    return True


def _act(
    request: Request, action: Callable[..., dict[str, Any]], /, **options: Any
) -> dict[str, Any]:
    """The taker's view after an action of `irtcat.service.attempts.taking`."""
    service, device = service_of(request), _device(request)
    media = media_urls(service, device.attempt)
    return action(service, device.attempt, device.secret, media, **options)


# Sign in


@router.get("/")
def code_page(request: Request) -> Response:
    """A field for the code of a ticket, and the tests that are open on this device."""
    opened = taking.attempts_of(service_of(request), taking.devices_of(request).values())
    return render(
        request,
        "taker_code.html",
        language_of(request),
        opened=[
            (test_address(it.attempt), it.title, it.status in ("finished", "void")) for it in opened
        ],
    )


@router.post("/")
def enter_code(request: Request, form: CheckedForm) -> Response:
    """Go to the page of a ticket, from its code or its whole link."""
    code = form_text(form, "code").strip().rstrip("/").rsplit("/", 1)[-1]
    known = code.isascii() and code.replace("-", "").replace("_", "").isalnum()
    return RedirectResponse(f"/t/{code}" if known else "/", status_code=303)


@router.get("/t/{ticket}")
def start_page(request: Request, ticket: str) -> Response:
    """What the ticket opens, with a button to start: opening a link changes nothing."""
    invitation = taking.invitation(service_of(request), ticket, form_secret(request))
    language = language_of(request, invitation.language)
    return render(
        request,
        "taker_start.html",
        language,
        back=f"/t/{ticket}",
        test=invitation,
        limit=None if invitation.seconds is None else spoken_time(invitation.seconds, language),
        continues=bool(invitation.attempt) and has_attempt(request, invitation.attempt),
    )


@router.post("/t/{ticket}")
def start(request: Request, ticket: str, form: CheckedForm) -> Response:
    """Give the test to this device; one that has it continues."""
    service = service_of(request)
    begun = taking.invitation(service, ticket).attempt
    if begun and has_attempt(request, begun):
        return RedirectResponse(test_address(begun), status_code=303)
    started = taking.begin(service, ticket, form_secret(request))
    response = RedirectResponse(test_address(started.attempt), status_code=303)
    taking.remember_device(request, response, started)
    return response


@router.get(TEST)
def opened_test(request: Request) -> Response:
    """The page of the test that is open on this device; the choice, of several."""
    opened = taking.attempts_of(service_of(request), taking.devices_of(request).values())
    if not opened:
        raise UnauthorizedError("This device does not have the test. Open it with the ticket.")
    path = test_address(opened[0].attempt) if len(opened) == 1 else "/"
    return RedirectResponse(path, status_code=303)


@router.post(f"{OF_TEST}/leave")
def leave(request: Request, form: CheckedForm) -> Response:
    """Remove a test that is over from this device."""
    if _act(request, taking.current)["page"] not in ("finished", "void"):
        raise ConflictError("The test is not over.")
    response = RedirectResponse("/", status_code=303)
    taking.forget_device(request, response, _device(request).attempt)
    return response


# The test


def _clocks(view: dict[str, Any], language: str) -> list[dict[str, Any]]:
    """The time limits that count now, from the item to the test, with their warnings in words."""
    time = view["time"]
    # In a break the clock of the test stands still.
    scopes = ("section",) if view["page"] == "break" else ("item", "section", "test")
    warnings = {int(at): spoken_time(at, language) for at in time["warnings"]}
    return [
        {
            "scope": scope,
            "left": time[scope],
            "text": clock_text(time[scope]),
            "warnings": {} if scope == "item" or view["page"] == "break" else warnings,
        }
        for scope in scopes
        if time["running"] and time[scope] is not None
    ]


def _page(
    request: Request,
    view: dict[str, Any],
    *,
    status: int = 200,
    notice: str = "",
    error: str = "",
    entered: Seen | None = None,
) -> Response:
    """The page of the test as it is now.

    It may have a notice, such as that an answer came too late, and the answer to be corrected.
    """
    language = language_of(request, view["language"])
    address = test_address(_device(request).attempt)
    item, report = view["item"], view["report"] or {}
    return render(
        request,
        "taker_test.html",
        language,
        status=status,
        back=address,
        address=address,
        view=view,
        item=item,
        place=next((row["place"] for row in view["items"] if row["current"]), None),
        seen=entered or (item and Seen.of(item)),
        interval=interval_text(report, language) if "lower" in report else "",
        section_state=_section_of(view),
        clocks=_clocks(view, language),
        poll=POLL_SECONDS,
        # Names what the script keeps in the browser.
        storage=request.path_params["key"],
        request_id=new_id("r"),
        notice=notice,
        error=error,
        number_text=lambda value: number_text(value, language),
        topic_interval=lambda entry: interval_text(entry, language),
    )


def _reply(request: Request, view: dict[str, Any]) -> Response:
    """After a change: the page for the script, a redirection to it for a form."""
    if "x-irtcat-page" in request.headers:
        return _page(request, view)
    return RedirectResponse(test_address(_device(request).attempt), status_code=303)


@router.get(OF_TEST)
def test_page(request: Request) -> Response:
    return _page(request, _act(request, taking.current))


@router.get(f"{OF_TEST}/time")
def time_left(request: Request) -> dict[str, Any]:
    """What the script asks from time to time: whether the test is running, and seconds left."""
    device = _device(request)
    beat = taking.heartbeat(service_of(request), device.attempt, device.secret)
    left = {scope: beat["time"][scope] for scope in ("item", "section", "test")}
    return {"status": beat["status"], "time": left}


@router.post(f"{OF_TEST}/answer")
def answer(request: Request, form: CheckedForm) -> Response:
    """Record the answer in a form, and do what its button says.

    In a section that is reviewed a button may also go to another item, show the list of answers, or
    mark the item; the answer is recorded before.
    """
    action, place = form_text(form, "action") or "next", _whole(form, "place")
    number = _whole(form, "number")
    entered = Seen(None) if action == "skip" else Seen.entered(form)
    response = entered.response
    try:
        if action in ("flag", "unflag"):
            _act(request, taking.flag, number=number, flagged=action == "flag")
        if entered.invalid:
            raise InputError("The form has half an answer, or positions twice.")
        view = None
        # An item that is only left for another one stays without an answer.
        if action in ("next", "skip") or response or form_text(form, "answered"):
            # The same form sent again with another answer is another request.
            sent = [form_text(form, "request"), number, response]
            name = hashlib.sha256(json.dumps(sent).encode()).hexdigest()[:32]
            view = _act(request, taking.answer, number=number, response=response, request=name)
        if action not in ("next", "skip"):
            view = _act(request, taking.go, place=_target(action, place))
    except ConflictError:
        view = _act(request, taking.current)
        return _page(request, view, status=409, notice=_late(request, view))
    except ServiceError:
        raise
    except InputError:
        view = _act(request, taking.current)
        if view["item"] is None or view["item"]["number"] != number:
            return _page(request, view, status=409, notice=_late(request, view))
        error = _advice(view, entered, language_of(request, view["language"]))
        return _page(request, view, status=422, error=error, entered=entered)
    assert view is not None
    return _reply(request, view)


def _whole(form: FormData, name: str) -> int:
    text = form_text(form, name)
    return int(text) if text.isascii() and text.isdigit() and len(text) < 7 else 0


def _target(action: str, place: int) -> int | None:
    """The place that a button goes to; None for the list of answers."""
    if action == "list" or (action == "previous" and place <= 1):
        return None
    if action.startswith("go."):
        return int(action[3:]) if action[3:].isascii() and action[3:].isdigit() else 0
    return place - 1 if action == "previous" else place


def _late(request: Request, view: dict[str, Any]) -> str:
    texts = translations(language_of(request, view["language"]))
    if view["page"] == "paused":
        return texts.gettext("The test is paused. Your last answer was not recorded.")
    return texts.gettext(
        "Your last answer was not recorded: the question was answered already, or its time was "
        "over. The test continues here."
    )


def _advice(view: dict[str, Any], entered: Seen, language: str) -> str:
    """How to correct an answer that the item cannot have."""
    texts, item = translations(language), view["item"]
    if item["kind"] == "choice":
        return texts.gettext("Select an answer to continue.")
    if item["kind"] == "several":
        if not entered.response and not entered.invalid:
            return texts.gettext("Answer at least one of the questions to continue.")
        return texts.gettext(
            "Check your answers: a number is written without separators of thousands, an entry is "
            "used as often as it may be."
        )
    if item["kind"] in ("match", "associate"):
        if not entered.response and not entered.invalid:
            return texts.gettext("Give at least one pair to continue.")
        return texts.gettext("Give complete pairs, and use each entry as often as it may be used.")
    if item["kind"] == "order":
        return texts.gettext("Give every entry its own position to continue.")
    if item["kind"] in ("choices", "hottext"):
        least, most = max(item["min_choices"], 1), item["max_choices"] or len(item["choices"])
        if least == most:
            text = texts.ngettext("Select %(n)d answer.", "Select %(n)d answers.", most)
            return text % {"n": most}
        limits = {"least": least, "most": most}
        return texts.gettext("Select from %(least)d to %(most)d answers.") % limits
    if item["numeric"]:
        return texts.gettext("Enter a number without separators of thousands, such as 1500 or 0.5.")
    return texts.gettext("Enter an answer to continue. It may be too long, or have control marks.")


@router.post(f"{OF_TEST}/go")
def go(request: Request, form: CheckedForm) -> Response:
    """Show an item of a section that is reviewed, from the list of answers."""
    return _changed(request, taking.go, place=_whole(form, "place"))


@router.post(f"{OF_TEST}/proceed")
def proceed(request: Request, form: CheckedForm) -> Response:
    """End instructions, practice, a break, or a section that is reviewed."""
    section = form_text(form, "section")
    view = _act(request, taking.current)
    if section != str(_section_of(view)):  # sent twice: the first one did it
        return _reply(request, view)
    return _changed(request, taking.proceed, request=form_text(form, "request")[:64])


def _section_of(view: dict[str, Any]) -> str:
    return f"{view['page']}.{view['section']['number']}.{view['section']['title']}"


@router.post(f"{OF_TEST}/pause")
def pause(request: Request, form: CheckedForm) -> Response:
    return _changed(request, taking.pause)


@router.post(f"{OF_TEST}/resume")
def resume(request: Request, form: CheckedForm) -> Response:
    """Continue after a pause of the taker's own."""
    return _changed(request, taking.resume)


def _changed(
    request: Request, action: Callable[..., dict[str, Any]], /, **options: Any
) -> Response:
    """The page after an action; where it was not possible, the page with a notice."""
    try:
        return _reply(request, _act(request, action, **options))
    except ConflictError:
        view = _act(request, taking.current)
        texts = translations(language_of(request, view["language"]))
        missing = sum(not row["answered"] for row in view["items"])
        notice = texts.gettext("This was not possible. The test continues here.")
        if missing:
            text = texts.ngettext(
                "%(n)d question still needs an answer.",
                "%(n)d questions still need an answer.",
                missing,
            )
            notice = text % {"n": missing}
        return _page(request, view, status=409, notice=notice)
