"""Beginning an attempt with a ticket, and continuing it on another device."""

import hashlib
import json
from typing import Any, NamedTuple

import sqlalchemy as sa

from irtcat.service.attempts.attempt import ATTEMPT, Attempt, attempt_of, opened
from irtcat.service.attempts.library import published_test
from irtcat.service.base.errors import ConflictError, GoneError, NotFoundError
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
    with service.database.reading():
        ticket = ticket_of(service, token)
    if not ticket.attempt:
        started = _begin(service, token, key)
        if started is not None:
            return started
        with service.database.reading():  # another request with this ticket was faster
            ticket = ticket_of(service, token)
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
        device = _secret(service, token, key, 0)
        now = service.now()
        name = new_id("a")
        head = {
            **ATTEMPT.head,
            "id": name,
            "test": ticket.test,
            "person": ticket.person,
            "ticket": ticket.id,
            "accommodations": json.loads(ticket.accommodations),
            "seed": int.from_bytes(hashlib.sha256(name.encode()).digest()[:4], "big"),
            "started": now,
        }
        service.insert(
            tables.attempts,
            id=name,
            test=ticket.test,
            person=ticket.person,
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


def may_continue(service: Service, name: str, token: str, key: str) -> bool:
    """Whether a device may get an attempt that was begun with a ticket; nothing is changed."""
    row = service.get(tables.attempts, name)
    if row is None or not row.device:
        return True
    events = attempt_of(service, name).events()
    n_devices = sum(event["kind"] in ("begin", "device") for event in events)
    return bool(row.device == digest_of(_secret(service, token, key, n_devices - 1)))


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
