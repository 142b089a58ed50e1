"""Webhooks: messages to other systems about what happened, written with what they report.

A message is a row that is written in the transaction of the event, so that none is lost and none is
sent about something that did not happen. `irtcat.service.outbox.delivering` sends them afterwards,
at least once each: a receiver recognises a repeated message by its id.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

import pandas as pd
import sqlalchemy as sa

from irtcat._common.checks import argument_error
from irtcat.service.base.errors import NotFoundError
from irtcat.service.base.events import Acted, AttemptChanged, TestPublished
from irtcat.service.outbox.addresses import check_public
from irtcat.service.storage import tables
from irtcat.service.storage.context import Service, new_id, new_secret

EVENTS = {
    "attempt.started": "a person began a test",
    "attempt.finished": "an attempt ended, by its last item, a time limit, staff, or abandonment",
    "attempt.voided": "staff voided an attempt",
    "rating.needed": "an attempt ended with responses that people have to score",
    "test.published": "a test was published",
}
"""Events with what they mean. Messages hold ids only: nothing that identifies a person, no score.
"""

MESSAGES = {"begin": "attempt.started", "finish": "attempt.finished", "void": "attempt.voided"}
"""Messages by kind of event of an attempt's log."""

LONGEST_URL = 2000


@dataclass(frozen=True)
class Webhook:
    """A new webhook.

    Attributes:
        id: its id.
        secret: the secret of its signatures, for the receiver.
    """

    id: str
    secret: str


def _check_url(url: str, private: bool) -> None:
    try:
        parts = urlsplit(url) if isinstance(url, str) and len(url) <= LONGEST_URL else None
    except ValueError:  # such as http://[
        parts = None
    is_url = parts is not None and parts.scheme in ("http", "https") and parts.hostname
    if not is_url or not url.isprintable() or "@" in parts.netloc:  # type: ignore[union-attr]
        raise argument_error("url", "an address with https and without a password", url)
    if not private:  # judged again before each message
        check_public("url", url, "irtcat serve --private-webhooks")


def _check_events(events: Sequence[str]) -> None:
    for name in events:
        if name not in EVENTS:
            raise argument_error("events", f"some of {', '.join(EVENTS)}", name)
    if not events:
        raise argument_error("events", f"at least one of {', '.join(EVENTS)}", list(events))


def add_webhook(
    service: Service, url: str, events: Sequence[str], *, actor: str, private: bool = False
) -> Webhook:
    """Add a webhook.

    Args:
        service: the service.
        url: where messages are sent.
        events: some of `EVENTS`.
        actor: who adds it.
        private: permit private addresses, and addresses without TLS.

    Raises:
        InputError: for an invalid address or event.
    """
    _check_url(url, private)
    _check_events(events)
    added = Webhook(new_id("w"), f"whsec_{new_secret()}")
    row = {
        "id": added.id,
        "url": url,
        "secret": added.secret,
        "events": json.dumps(sorted(set(events))),
        "status": "open",
        "created": service.now(),
    }
    with service.database.writing():
        service.database.run(tables.webhooks.insert(), row)
        service.publish(
            Acted(actor, "webhook added", {"webhook": added.id, "events": sorted(set(events))})
        )
    return added


def change_webhook(
    service: Service,
    webhook: str,
    *,
    actor: str,
    url: str | None = None,
    events: Sequence[str] | None = None,
    status: str | None = None,
    private: bool = False,
) -> None:
    """Change a webhook; "open" as its status lets messages be sent again.

    Arguments that are None change nothing; ``private`` is that of `add_webhook`.

    Raises:
        NotFoundError: for an unknown webhook.
        InputError: for an invalid address, event or status.
    """
    if status not in (None, "open", "disabled"):
        raise argument_error("status", '"open" or "disabled"', status)
    if url is not None:
        _check_url(url, private)
    if events is not None:
        _check_events(events)
    with service.database.writing():
        row = service.row(sa.select(tables.webhooks).where(tables.webhooks.c.id == webhook))
        if row is None:
            raise NotFoundError("There is no such webhook.")
        changes = {
            "url": row.url if url is None else url,
            "events": row.events if events is None else json.dumps(sorted(set(events))),
            "status": status or row.status,
        }
        statement = tables.webhooks.update().where(tables.webhooks.c.id == webhook)
        service.database.run(statement.values(**changes))
        service.publish(Acted(actor, "webhook changed", {"webhook": webhook}))


def remove_webhook(service: Service, webhook: str, *, actor: str) -> None:
    """Remove a webhook with its messages.

    Raises:
        NotFoundError: for an unknown webhook.
    """
    with service.database.writing():
        messages = tables.deliveries.delete().where(tables.deliveries.c.webhook == webhook)
        service.database.run(messages)
        statement = tables.webhooks.delete().where(tables.webhooks.c.id == webhook)
        if not service.database.run(statement).rowcount:
            raise NotFoundError("There is no such webhook.")
        service.publish(Acted(actor, "webhook removed", {"webhook": webhook}))


def webhook_table(service: Service) -> pd.DataFrame:
    """All webhooks, without their secrets, with the numbers of messages that wait or failed."""
    hooks, messages = tables.webhooks.c, tables.deliveries.c

    def count(status: str) -> Any:
        where = (messages.webhook == hooks.id) & (messages.status == status)
        return sa.select(sa.func.count()).where(where).scalar_subquery()

    columns = [hooks.id, hooks.url, hooks.events, hooks.status, hooks.created]
    statement = sa.select(*columns, count("waiting"), count("failed")).order_by(hooks.created)
    names = ["id", "url", "events", "status", "created", "waiting", "failed"]
    frame = pd.DataFrame([tuple(row) for row in service.rows(statement)], columns=names)
    frame["events"] = [json.loads(text) for text in frame["events"]]
    return frame


def notify(service: Service, event: str, **details: Any) -> None:
    """Write a message for every webhook of an event, within the transaction of the event.

    Args:
        service: the service.
        event: one of `EVENTS`.
        **details: ids of what it is about.
    """
    assert event in EVENTS, event
    with service.database.writing():
        statement = sa.select(tables.webhooks.c.id, tables.webhooks.c.events)
        for row in service.rows(statement.where(tables.webhooks.c.status == "open")):
            if event not in json.loads(row.events):
                continue
            now = service.now()
            message = {"type": event, "timestamp": now, "data": details}
            delivery = {
                "id": new_id("msg"),
                "webhook": row.id,
                "event": event,
                "body": json.dumps(message),
                "tries": 0,
                "due": now,
                "status": "waiting",
            }
            service.database.run(tables.deliveries.insert(), delivery)


def test_published(service: Service, event: TestPublished) -> None:
    """Write the messages about a test that was published."""
    notify(service, "test.published", test=event.test)


def attempt_changed(service: Service, event: AttemptChanged) -> None:
    """Write the messages about the new events of an attempt."""
    about = {"attempt": event.attempt, "test": event.test, "person": event.person}
    for kind in event.kinds:
        if kind in MESSAGES:
            notify(service, MESSAGES[kind], **about)
        if kind == "finish" and event.waiting:
            notify(service, "rating.needed", **about, items=event.waiting)
