"""Taking a test: what a test taker's device may ask for. The pages and the API call these.

An attempt begins with a ticket, and continues on another device. The functions of its steps take
the attempt and the secret of its device, and return the taker's view.

The cookie or the bearer token says which attempt a device has. A browser may have several tests at
once, in several tabs: each attempt has a cookie of its own, and requests name the attempt. Pages do
so in their address, by `attempt_key`; programs in a browser do so by the token against forged
requests, which belongs to one device.
"""

import functools
import hashlib
import json
import math
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, NamedTuple

import sqlalchemy as sa
from fastapi import Request, Response

from irtcat.service.accounts.credentials import (
    HEADER,
    SAFE,
    check_csrf,
    cookie_name,
    service_of,
    set_cookie,
)
from irtcat.service.attempts.attempt import ATTEMPT, GRACE, Attempt, attempt_of, looked_at, opened
from irtcat.service.attempts.attempt import check_device as check_device
from irtcat.service.attempts.library import published_test
from irtcat.service.attempts.results import taker_report
from irtcat.service.attempts.view import MediaUrl, response_of, taker_view, time_left
from irtcat.service.base.errors import (
    ConflictError,
    ForbiddenError,
    GoneError,
    NotFoundError,
    UnauthorizedError,
)
from irtcat.service.definition import time_factor
from irtcat.service.storage import tables
from irtcat.service.storage.context import Service, digest_of, new_id, new_secret


class Device(NamedTuple):
    """A device, which has an attempt or asks for it.

    ``by_cookie`` says whether a cookie of the request identified it.
    """

    attempt: str
    secret: str
    by_cookie: bool = False

    @property
    def token(self) -> str:
        """What the cookie holds, or follows ``Bearer``."""
        return f"{self.attempt}.{self.secret}"


def ticket_of(service: Service, token: str, *, lock: bool = False) -> Any:
    """The row of a ticket that opens a test now.

    With ``lock`` no other transaction may change it until this one ends.

    Raises:
        NotFoundError: for an unknown ticket.
        GoneError: for one that is revoked or expired.
        ConflictError: before the ticket is valid.
    """
    statement = sa.select(tables.tickets).where(tables.tickets.c.token == digest_of(token))
    ticket = service.row(statement.with_for_update() if lock else statement)
    if ticket is None:
        raise NotFoundError("There is no such ticket. Check the link or the code.")
    if ticket.status == "revoked":
        raise GoneError("The ticket is no longer valid.")
    if not ticket.attempt:
        now = service.now()
        if ticket.opens and now < ticket.opens:
            raise ConflictError("The ticket is not valid yet.")
        if ticket.expires and now > ticket.expires:
            raise GoneError("The ticket has expired.")
    return ticket


def begin(service: Service, token: str, key: str = "") -> Device:
    """Begin an attempt with a ticket, or continue it on another device after its release.

    ``key`` is a random text of the device: if the reply is lost, the device that asks again
    with it gets the same secret.

    Raises:
        NotFoundError: for an unknown ticket.
        GoneError: for one that is revoked or expired, or whose attempt is over.
        ConflictError: before the ticket is valid, or while another device has the attempt.
    """
    ticket = ticket_of(service, token)
    if not ticket.attempt:
        started = _begin(service, token, key)
        if started is not None:
            return started
        ticket = ticket_of(service, token)  # another request with this ticket was faster
    return _continue(service, ticket.attempt, token, key)


def _secret(service: Service, token: str, key: str, n_before: int) -> str:
    """The secret of a device that gets an attempt.

    Without a ``key`` it is random. ``n_before`` devices had the attempt before: after a release
    no secret comes back.
    """
    if not key:
        return new_secret()
    return service.signature("device", json.dumps([token, key, n_before]))


def _begin(service: Service, token: str, key: str) -> Device | None:
    """A new attempt with a ticket; None if the ticket has one meanwhile."""
    with service.database.writing():
        ticket = ticket_of(service, token, lock=True)
        if ticket.attempt:
            return None
        device, name, now = _secret(service, token, key, 0), new_id("a"), service.now()
        about = {"id": name, "test": ticket.test, "person": ticket.person}
        head = {
            **ATTEMPT.head,
            **about,
            "ticket": ticket.id,
            "accommodations": json.loads(ticket.accommodations),
            "seed": int.from_bytes(hashlib.sha256(name.encode()).digest()[:4], "big"),
            "started": now,
        }
        service.insert(
            tables.attempts,
            **about,
            head=json.dumps(head),
            started=now,
            status="running",
            device=digest_of(device),
            updated=now,
            summary="{}",
            due="",
        )
        service.change(tables.tickets, ticket.id, status="used", attempt=name)
        attempt = Attempt(service, head, published_test(service, ticket.test))
        attempt.actor = "taker"
        attempt.add("begin", device=digest_of(device)[:12])
        attempt.enter(0)
        attempt.write()
    return Device(name, device)


def _continue(service: Service, name: str, token: str, key: str) -> Device:
    """Give an attempt that was released to a new device, or again to the device that has it."""
    # First the attempt, then its transaction, as everywhere: the other order could wait for ever.
    with opened(service, name, actor="taker") as attempt:
        if attempt.progress.is_over:
            raise GoneError("The test was taken with this ticket.")
        bound = service.get(tables.attempts, name).device
        n_devices = sum(event["kind"] in ("begin", "device") for event in attempt.events())
        same = _secret(service, token, key, n_devices - 1)
        if bound == digest_of(same):
            return Device(name, same)
        if bound:
            raise ConflictError(
                "The test is open on another device. Continue there, or ask for its release."
            )
        device = _secret(service, token, key, n_devices)
        service.change(tables.attempts, name, device=digest_of(device))
        attempt.add("device", device=digest_of(device)[:12])
    return Device(name, device)


ACTOR = "taker"


@dataclass(frozen=True, kw_only=True)
class Invitation:
    """What the start page says of a test, before a device has it.

    Attributes:
        title: name of the test.
        description: what it is about.
        language: language of its content.
        seconds: time limit of this person for the whole test; None without one.
        attempt: id of the attempt that was begun with the ticket; empty before.
        is_over: whether that attempt is over.
        is_open: whether the device that asks may begin or continue it.
    """

    title: str
    description: str
    language: str
    seconds: float | None
    attempt: str
    is_over: bool
    is_open: bool


def invitation(service: Service, token: str, key: str = "") -> Invitation:
    """What a ticket opens; nothing is begun.

    Raises:
        NotFoundError: for an unknown ticket.
        GoneError: for one that is revoked or expired.
        ConflictError: before the ticket is valid.
    """
    with service.database.reading():
        ticket = ticket_of(service, token)
        definition = published_test(service, ticket.test).definition
        attempt = service.get(tables.attempts, ticket.attempt)
        is_over = attempt is not None and attempt.status in ("finished", "void")
        is_open = not is_over
        if is_open and attempt is not None and attempt.device:
            events = attempt_of(service, attempt.id).events()
            n_devices = sum(event["kind"] in ("begin", "device") for event in events)
            is_open = attempt.device == digest_of(_secret(service, token, key, n_devices - 1))
    factor, limit = time_factor(json.loads(ticket.accommodations)), definition.time_limit
    return Invitation(
        title=definition.title,
        description=definition.description,
        language=definition.language,
        seconds=None if limit is None or math.isinf(factor) else limit * factor,
        attempt=ticket.attempt,
        is_over=is_over,
        is_open=is_open,
    )


class OpenedTest(NamedTuple):
    """An attempt that a device has."""

    attempt: str
    title: str
    status: str


def attempts_of(service: Service, devices: Iterable[Device]) -> list[OpenedTest]:
    """The attempts that devices have, of those that they name; the oldest first."""
    digests = {device.attempt: digest_of(device.secret) for device in devices}
    attempts, tests = tables.attempts.c, tables.tests.c
    statement = (
        sa.select(attempts.id, attempts.device, attempts.status, tests.title)
        .join(tables.tests, tests.id == attempts.test)
        .where(attempts.id.in_(sorted(digests)))
        .order_by(attempts.started)
    )
    return [
        OpenedTest(row.id, row.title, row.status)
        for row in (service.rows(statement) if digests else ())
        if row.device == digests[row.id]
    ]


def _item(attempt: Attempt, number: int) -> str:
    for name, known in attempt.progress.number.items():
        if known == number:
            return name
    raise ConflictError("This item was not shown.")


def _step(grace: float = 0.0) -> Callable[[Callable[..., None]], Callable[..., dict[str, Any]]]:
    """A step of the taker: it changes the attempt, and returns the page that the taker sees then.

    It takes the service, the attempt, the secret of the device and `MediaUrl`. One with the id of a
    ``request`` that was carried out changes nothing. In the seconds of ``grace`` after a time limit
    it still counts.

    Raises:
        UnauthorizedError: see `check_device`.
    """

    def decorate(act: Callable[..., None]) -> Callable[..., dict[str, Any]]:
        @functools.wraps(act)
        def step(
            service: Service,
            attempt: str,
            device: str,
            media_url: MediaUrl,
            *,
            request: str = "",
            **options: Any,
        ) -> dict[str, Any]:
            with opened(
                service, attempt, actor=ACTOR, device=device, request=request, grace=grace
            ) as it:
                if not request or request not in it.progress.requests:
                    act(it, **options)
                return taker_view(it, media_url, taker_report(it))

        return step

    return decorate


@_step()
def current(it: Attempt) -> None:
    """The page that the taker sees now; time limits that passed are applied."""


def heartbeat(service: Service, attempt: str, device: str) -> dict[str, Any]:
    """The status of the attempt and the time left; nothing is written.

    A time limit that passed is applied when the taker next asks for the page.
    """
    with looked_at(service, attempt, device) as it:
        return {"status": it.progress.status, "time": time_left(it)}


@_step(grace=GRACE)
def answer(it: Attempt, *, number: int, response: Any) -> None:
    """Record an answer, and return the next page. It is on disk when this returns.

    The item has its number in the attempt, the response the taker's names of choices; None leaves
    the item out.

    Raises:
        ConflictError: for another answer to an item whose answer stands, or one out of turn.
        InputError: for a response that the item cannot have.
    """
    name = _item(it, number)
    it.answer(name, response_of(it, name, response))


@_step()
def go(it: Attempt, *, place: int | None) -> None:
    """Show an item of a section that is reviewed, by its place; None shows the list of answers."""
    items = () if it.progress.part is None else it.progress.part.items
    inside = place is not None and 1 <= place <= len(items)
    if place is not None and it.progress.to_review() and not inside:
        raise ConflictError("This item is not in the current section.")
    it.show(items[place - 1] if inside and place is not None else None)


@_step()
def flag(it: Attempt, *, number: int, flagged: bool) -> None:
    """Mark an item for review, or remove the mark."""
    it.flag(_item(it, number), flagged)


@_step()
def proceed(it: Attempt) -> None:
    """End instructions, practice, a break, or a section that is reviewed."""
    it.proceed()


@_step()
def finish(it: Attempt) -> None:
    """End the test, by the end of its last section.

    Raises:
        ConflictError: in another section, or as `proceed` does.
    """
    it.check_running()
    if it.progress.section < len(it.test.definition.sections) - 1:
        raise ConflictError("There are sections after this one.")
    it.proceed()


@_step()
def pause(it: Attempt) -> None:
    """Pause the test, where the person's accommodations permit it."""
    it.check_running()
    if not it.may_pause():
        raise ConflictError("This test cannot be paused.")
    it.add("pause", reason="by the taker")


@_step()
def resume(it: Attempt) -> None:
    """Continue after a pause of the taker's own."""
    if not it.may_resume():
        raise ConflictError("The test cannot be continued from here.")
    it.add("resume")


# The devices of a browser, and of programs

KIND = "device"

MOST_TESTS = 20
"""Tests under way that a browser keeps; proxies limit the length of a header to 8 kB."""

LASTS = 7 * 24 * 3600
"""Seconds that a browser keeps the cookie: longer than any test with its breaks."""


def attempt_key(attempt: str) -> str:
    """The name of an attempt in addresses and cookies; its id is in the value of the cookie only.

    Example:
        >>> attempt_key("a_example")
        'b68a05051d9871b6'
    """
    return hashlib.sha256(attempt.encode()).hexdigest()[:16]


def devices_of(request: Request) -> dict[str, Device]:
    """The devices that the cookies of a browser name, by the keys of their attempts.

    Whether they have the attempts is not checked here.
    """
    out = {}
    for name, value in request.cookies.items():
        attempt, _, secret = value.partition(".")
        key = attempt_key(attempt)
        plain = value.isascii() and value.isprintable()
        if plain and secret and name == cookie_name(request, KIND, key):
            out[key] = Device(attempt, secret, by_cookie=True)
    return out


def device_with(request: Request, key: str) -> Device:
    """The device of this browser for the attempt of a key.

    Raises:
        UnauthorizedError: without its cookie.
    """
    device = devices_of(request).get(key)
    if device is None:
        raise UnauthorizedError("This device does not have the test. Open it with the ticket.")
    return device


def device_of(request: Request, service: Service) -> Device:
    """The device that a request of a program comes from; whether it has the attempt is not checked.

    A request by cookie that can change something needs a token (see
    `irtcat.service.accounts.credentials`). Of several devices of one browser, the token names the
    one that is meant.

    Raises:
        UnauthorizedError: without a cookie or a bearer token.
        ForbiddenError: for a request by cookie without its token, or with that of another device.
        ConflictError: for a request that can change nothing, of a browser with several tests,
            without a token.
    """
    scheme, _, token = request.headers.get("authorization", "").partition(" ")
    if not scheme:
        return _device_by_cookie(request, service)
    attempt, dot, secret = token.strip().partition(".")
    is_token = attempt and dot and secret and token.isascii() and token.isprintable()
    if scheme.lower() != "bearer" or not is_token:
        raise UnauthorizedError("Open the test with its ticket first.")
    return Device(attempt, secret)


def _device_by_cookie(request: Request, service: Service) -> Device:
    known = list(devices_of(request).values())
    if not known:
        raise UnauthorizedError("Open the test with its ticket first.")
    token = request.headers.get(HEADER)
    if token is None and request.method in SAFE:
        if len(known) > 1:
            raise ConflictError(
                f"This browser has several tests. Name one by its token in the header {HEADER}."
            )
        return known[0]
    for device in known[:-1]:
        with suppress(ForbiddenError):
            check_csrf(service, device.secret, token)
            return device
    check_csrf(service, known[-1].secret, token)
    return known[-1]


def remember_device(request: Request, response: Response, started: Device) -> None:
    """Set the cookie of a device that began or continued an attempt.

    Cookies of attempts that are over, or that the browser no longer has, are deleted: a computer
    that many people use would collect them.
    """
    known = devices_of(request)
    known.pop(attempt_key(started.attempt), None)
    opened = attempts_of(service_of(request), known.values())
    under_way = {row.attempt for row in opened if row.status in ("running", "paused")}
    kept = [key for key, device in known.items() if device.attempt in under_way]
    for key in known.keys() - set(kept[-(MOST_TESTS - 1) :]):
        forget_device(request, response, known[key].attempt)
    name = cookie_name(request, KIND, attempt_key(started.attempt))
    set_cookie(request, response, name, started.token, seconds=LASTS)


def forget_device(request: Request, response: Response, attempt: str) -> None:
    """Delete the cookie of a device."""
    set_cookie(request, response, cookie_name(request, KIND, attempt_key(attempt)), "", seconds=0)
