"""Delivering messages to webhooks: signed, repeated until they are accepted, at public addresses.

The headers and the signature are those of Standard Webhooks (webhook-id, webhook-timestamp,
webhook-signature), for which receivers have libraries in many languages.

A host name is resolved once, its addresses are checked, and the connection goes to the address that
was checked: a name that later points into the own network (DNS rebinding) gains nothing.
"""

import base64
import hashlib
import hmac
import logging
from collections.abc import Callable
from typing import Any
from urllib.parse import urlsplit

import httpx
import sqlalchemy as sa
from fastapi import FastAPI

from irtcat.service.base.events import Acted
from irtcat.service.base.metrics import DELIVERIES as OUTCOMES
from irtcat.service.outbox.addresses import AddressError, checked_address
from irtcat.service.outbox.sending import DELIVERIES
from irtcat.service.storage import tables
from irtcat.service.storage.context import Service

TIMEOUT = 10.0
"""Seconds for a receiver to answer."""

log = logging.getLogger("irtcat.service")


def signature(secret: str, message: str, timestamp: int, body: str) -> str:
    """The signature of a message, as Standard Webhooks defines it.

    Args:
        secret: the secret of the webhook, with its prefix.
        message: id of the message.
        timestamp: seconds since 1970.
        body: the body.
    """
    key = _key(secret)
    data = f"{message}.{timestamp}.{body}".encode()
    return "v1," + base64.b64encode(hmac.new(key, data, hashlib.sha256).digest()).decode()


def _key(secret: str) -> bytes:
    """The key of a secret: base64 after the prefix, which receivers' libraries expect."""
    text = secret.removeprefix("whsec_").replace("-", "+").replace("_", "/")
    return base64.b64decode(text + "=" * (-len(text) % 4))


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

    Args:
        service: the service.
        private: send to private addresses and without TLS, too.
        client: of httpx; for tests.
        is_stopped: asked before each message.
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
            disable = tables.webhooks.update().where(tables.webhooks.c.id == row.webhook)
            service.database.run(disable.values(status="disabled"))
            service.publish(
                Acted("system", "webhook disabled", {"webhook": row.webhook, "reason": fault})
            )
    OUTCOMES.labels("refused" if fault else "accepted").inc()
    if fault:
        log.warning("message not delivered: %s", fault, extra={"webhook": row.webhook})
    return not fault


def send(app: FastAPI, is_stopped: Callable[[], bool]) -> None:
    """Deliver the messages of an application that are due."""
    private = bool(app.state.private_webhooks)
    deliver_due(app.state.service, private=private, is_stopped=is_stopped)
