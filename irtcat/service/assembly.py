"""Assembly: a service with all that subscribes to its events."""

import os

from irtcat.cat.live import Clock, Key, system_clock
from irtcat.service.base.events import Acted, AttemptChanged, TestPublished
from irtcat.service.lti import attempts as lti
from irtcat.service.outbox import audit, webhooks
from irtcat.service.storage.context import Service, Subscribers
from irtcat.service.storage.database import EngineDatabase

SUBSCRIBERS: Subscribers = {
    Acted: (audit.record,),
    TestPublished: (audit.test_published, webhooks.test_published),
    AttemptChanged: (lti.attempt_changed, webhooks.attempt_changed),
}
"""The functions that are called for an event, by its class, in this order."""


def open_service(
    address: str | os.PathLike[str] | EngineDatabase,
    *,
    create: bool = False,
    key: Key = None,
    clock: Clock = system_clock,
) -> Service:
    """Open a service with its `SUBSCRIBERS`.

    The arguments are those of `irtcat.service.storage.context.Service`, as are the errors.
    """
    return Service(address, SUBSCRIBERS, create=create, key=key, clock=clock)
