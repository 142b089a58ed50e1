"""Audit log: what staff and programs did, under a chain of digests, and anchors of all logs."""

import json

import pandas as pd
import sqlalchemy as sa

from irtcat._files import FileFormat
from irtcat.cat.live import Event, first_digest
from irtcat.service.storage import tables
from irtcat.service.storage.context import Acted, Service, TestPublished

LOG = "audit"
HEAD = FileFormat("irtcat-audit", "an audit log").head


def record(service: Service, event: Acted) -> None:
    """Add an entry to the audit log."""
    with service.database.writing(alone=True):
        number, last = service.audit_log.last(LOG) or (-1, first_digest(HEAD, service.log_key))
        about = {"at": service.now(), "actor": event.actor, "action": event.action}
        entry: Event = {**about, **event.details}
        service.audit_log.append(LOG, number + 1, last, [entry])


def test_published(service: Service, event: TestPublished) -> None:
    """Record that a test was published."""
    record(service, Acted(event.actor, "test published", {"test": event.test}))


def verify(service: Service) -> int:
    """Check the digests of the audit log; return its number of entries.

    Raises:
        StoreError: for a log that was changed.
    """
    if service.audit_log.last(LOG) is None:
        return 0
    return len(service.audit_log.read(LOG, first_digest(HEAD, service.log_key))[0])


def audit_entries(service: Service, n: int | None = None, verified: bool = False) -> pd.DataFrame:
    """Entries of the audit log, the latest first.

    There are all by default; ``verified`` checks the digests of the whole log.

    Raises:
        StoreError: for a log that was changed, if it is verified.
    """
    if verified:
        with service.database.reading(at_once=True):
            verify(service)
    statement = (
        sa.select(tables.audit_events.c.number, tables.audit_events.c.event)
        .where(tables.audit_events.c.log == LOG)
        .order_by(tables.audit_events.c.number.desc())
        .limit(n)
    )
    frame = service.frame(statement)
    details = [json.loads(text) for text in frame.pop("event")]
    about = {name: [entry.pop(name) for entry in details] for name in ("at", "actor", "action")}
    return frame.assign(**about, details=details)
