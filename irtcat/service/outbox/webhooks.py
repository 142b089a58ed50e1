"""Webhooks: messages to other systems about what happened, written with what they report, and sent.

A message is a row that is written in the transaction of the event, so that none is lost and none is
sent about something that did not happen. Messages are sent afterwards, at least once each: a
receiver recognises a repeated message by its id. Their headers and signature are those of Standard
Webhooks (webhook-id, webhook-timestamp, webhook-signature), for which receivers have libraries in
many languages.

A host name is resolved once, its addresses are checked, and the connection goes to the address that
was checked: a name that later points into the own network (DNS rebinding) gains nothing.
"""

import base64
import hashlib
import hmac
import json
import logging
import secrets
from collections.abc import Callable, Sequence
from typing import Any
from urllib.parse import urlsplit

import httpx
import pandas as pd
import sqlalchemy as sa
from fastapi import FastAPI
from pydantic import BaseModel, Field

from irtcat._common.checks import argument_error
from irtcat.service.base.errors import found, some_of
from irtcat.service.base.metrics import DELIVERIES as OUTCOMES
from irtcat.service.outbox.addresses import AddressError, check_public, checked_address, http_parts
from irtcat.service.outbox.sending import DELIVERIES
from irtcat.service.storage import tables
from irtcat.service.storage.context import AttemptChanged, Service, TestPublished, new_id

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


class Webhook(BaseModel):
    """A new webhook; its secret is shown only once."""

    id: str
    secret: str = Field(description="Signs the messages.")


def _check_url(url: str, private: bool) -> None:
    is_text = isinstance(url, str) and len(url) <= LONGEST_URL and url.isprintable()
    if not is_text or http_parts(url) is None:
        raise argument_error("url", "an address with https and without a password", url)
    if not private:  # judged again before each message
        check_public("url", url, "irtcat serve --private-webhooks")


def add_webhook(
    service: Service, url: str, events: Sequence[str], *, actor: str, private: bool = False
) -> Webhook:
    """Add a webhook.

    With ``private`` the address may be a private one, and without TLS.

    Raises:
        InputError: for an invalid address or event.
    """
    _check_url(url, private)
    events = some_of("events", events, EVENTS)
    # Not in the form for URLs, of which receivers' libraries read another key.
    key = base64.b64encode(secrets.token_bytes(24)).decode()
    added = Webhook(id=new_id("w"), secret=f"whsec_{key}")
    row = {**added.model_dump(), "url": url, "events": json.dumps(events), "status": "open"}
    with service.recorded(actor, "webhook added", webhook=added.id, events=events):
        service.insert(tables.webhooks, **row, created=service.now())
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
    changes = {} if status is None else {"status": status}
    if url is not None:
        _check_url(url, private)
        changes["url"] = url
    if events is not None:
        changes["events"] = json.dumps(some_of("events", events, EVENTS))
    with service.recorded(actor, "webhook changed", webhook=webhook):
        found(service.get(tables.webhooks, webhook), "webhook")
        if changes:
            service.change(tables.webhooks, webhook, **changes)


def remove_webhook(service: Service, webhook: str, *, actor: str) -> None:
    """Remove a webhook with its messages.

    Raises:
        NotFoundError: for an unknown webhook.
    """
    with service.recorded(actor, "webhook removed", webhook=webhook):
        service.delete(tables.deliveries, tables.deliveries.c.webhook == webhook)
        found(service.delete(tables.webhooks, webhook), "webhook")


def webhook_table(service: Service) -> pd.DataFrame:
    """All webhooks, without their secrets, with the numbers of messages that wait or failed."""
    hooks, messages = tables.webhooks.c, tables.deliveries.c

    columns = [hooks.id, hooks.url, hooks.events, hooks.status, hooks.created]
    counts = []
    for status in ("waiting", "failed"):
        own = (messages.webhook == hooks.id, messages.status == status)
        counts.append(tables.counted(tables.deliveries, *own).scalar_subquery().label(status))
    frame = service.frame(sa.select(*columns, *counts).order_by(hooks.created))
    return frame.assign(events=frame["events"].map(json.loads))


def notify(service: Service, event: str, **details: Any) -> None:
    """Write a message for every webhook of an event, within the transaction of the event."""
    assert event in EVENTS, event
    with service.database.writing():
        statement = sa.select(tables.webhooks.c.id, tables.webhooks.c.events)
        for row in service.rows(statement.where(tables.webhooks.c.status == "open")):
            if event not in json.loads(row.events):
                continue
            now = service.now()
            message = {"type": event, "timestamp": now, "data": details}
            service.insert(
                tables.deliveries,
                id=new_id("msg"),
                webhook=row.id,
                event=event,
                body=json.dumps(message),
                tries=0,
                due=now,
                status="waiting",
            )


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


TIMEOUT = 10.0
"""Seconds for a receiver to answer."""

log = logging.getLogger("irtcat.service")


def signature(secret: str, message: str, timestamp: int, body: str) -> str:
    """The signature of a message, as Standard Webhooks defines it."""
    # Earlier secrets had the form of base64 for URLs.
    text = secret.removeprefix("whsec_").replace("-", "+").replace("_", "/")
    key = base64.b64decode(text + "=" * (-len(text) % 4))
    data = f"{message}.{timestamp}.{body}".encode()
    return "v1," + base64.b64encode(hmac.new(key, data, hashlib.sha256).digest()).decode()


def _post(client: httpx.Client, url: str, body: str, headers: dict[str, str], private: bool) -> int:
    """Send a message to the address that was checked; return the status of the response."""
    parts = urlsplit(url)
    host = str(parts.hostname)
    if parts.scheme != "https" and not private:
        raise AddressError("messages are sent by https only")
    port = parts.port or (443 if parts.scheme == "https" else 80)
    address = checked_address(host, port, private)
    literal = f"[{address}]" if ":" in address else address
    target = parts._replace(netloc=f"{literal}:{port}").geturl()
    request = client.build_request(
        "POST",
        target,
        content=body,
        headers={**headers, "Host": parts.netloc},
        extensions={"sni_hostname": host},
    )
    response = client.send(request, stream=True)  # the body of the response is not read
    response.close()
    return response.status_code


def deliver_due(
    service: Service,
    *,
    private: bool = False,
    client: httpx.Client | None = None,
    is_stopped: Callable[[], bool] = lambda: False,
) -> int:
    """Send the messages that are due; return how many were accepted.

    With ``private`` also to private addresses, and without TLS.
    """
    hooks = tables.webhooks.c
    rows = (
        sa.select(tables.deliveries, hooks.url, hooks.secret)
        .join(tables.webhooks, hooks.id == tables.deliveries.c.webhook)
        .where(hooks.status == "open")
    )
    with client or httpx.Client(timeout=TIMEOUT, follow_redirects=False, trust_env=False) as open_:
        claimed = DELIVERIES.claimed(service, rows, is_stopped)
        return sum(_deliver(service, open_, row, private) for row in claimed)


def _deliver(service: Service, client: httpx.Client, row: Any, private: bool) -> bool:
    """Send one message, and store the outcome; return whether it was accepted."""
    timestamp = int(service.clock()[0].timestamp())
    headers = {
        "Content-Type": "application/json",
        "User-Agent": "irtcat-webhooks",
        "webhook-id": row.id,
        "webhook-timestamp": str(timestamp),
        "webhook-signature": signature(row.secret, row.id, timestamp, row.body),
    }
    try:
        status = _post(client, row.url, row.body, headers, private)
        fault = "" if 200 <= status < 300 else f"status {status}"
    except AddressError as error:
        fault = str(error)
    except (httpx.HTTPError, httpx.InvalidURL, ValueError, OSError) as error:
        fault = type(error).__name__
    with service.database.writing():
        if not fault:
            DELIVERIES.change(service, row, {"status": "delivered"})
        elif not DELIVERIES.postpone(service, row):
            service.change(tables.webhooks, row.webhook, status="disabled")
            service.acted("system", "webhook disabled", webhook=row.webhook, reason=fault)
    OUTCOMES.labels("refused" if fault else "accepted").inc()
    if fault:
        log.warning("message not delivered: %s", fault, extra={"webhook": row.webhook})
    return not fault


def send(app: FastAPI, is_stopped: Callable[[], bool]) -> None:
    """Deliver the messages of an application that are due."""
    deliver_due(app.state.service, private=bool(app.state.private_webhooks), is_stopped=is_stopped)
