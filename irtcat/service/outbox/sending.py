"""Outboxes: messages that are rows of a table, sent again until they are accepted.

Several processes send from one outbox. One that takes a message changes its time in the same
statement that checks it, so that no other process takes it.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import sqlalchemy as sa
from starlette.concurrency import run_in_threadpool

from irtcat._common.clock import utc_text
from irtcat.cat import StoreError
from irtcat.service.storage import tables
from irtcat.service.storage.context import Service

PAUSES = (5, 60, 300, 1800, 7200, 21600, 43200)
"""Seconds before the next try: a restart is bridged by the first ones, a night by the last. After
them the message has failed."""

CLAIM = 120
"""Seconds for which a process has a message; one that dies meanwhile leaves it to the others."""

EVERY = 1.0
"""Seconds between two looks for messages that are due."""

AT_ONCE = 50
"""Messages of one look."""

WAITING = "waiting"
"""The state of messages that are to be sent."""

log = logging.getLogger("irtcat.service")


@dataclass(frozen=True)
class Outbox:
    """A table of messages, with the columns ``due`` and ``tries``.

    Attributes:
        table: the table.
        state: name of the column with the states of messages.
        same: names of the columns by which a message is recognised; it is another one after they
            changed.
    """

    table: sa.Table
    state: str
    same: tuple[str, ...]

    def due(self, service: Service) -> list[Any]:
        """Conditions of messages that are due."""
        columns = self.table.c
        return [columns[self.state] == WAITING, columns.due <= service.now()]

    def any_due(self, service: Service) -> bool:
        """Whether there are messages to send now."""
        found = sa.select(self.table.c.due).where(*self.due(service)).limit(1)
        return service.scalar(found) is not None

    def claimed(
        self, service: Service, rows: sa.Select[Any], is_stopped: Callable[[], bool]
    ) -> Iterator[Any]:
        """The messages that this process got.

        ``rows`` selects the table, and what else is needed of other tables.
        """
        columns = self.table.c
        due = rows.where(*self.due(service)).order_by(columns.due).limit(AT_ONCE)
        for row in service.rows(due):
            if is_stopped():
                return
            values = {"due": _after(service, CLAIM), "tries": row.tries + 1}
            if self.change(service, row, values, columns.due == row.due):
                yield row

    def change(self, service: Service, row: Any, values: dict[str, Any], *conditions: Any) -> bool:
        """Change a message that waits, unless it became another one meanwhile."""
        columns = self.table.c
        same = [columns[name] == getattr(row, name) for name in self.same]
        statement = self.table.update().where(*same, columns[self.state] == WAITING, *conditions)
        with service.database.writing():
            return bool(service.database.run(statement.values(values)).rowcount)

    def postpone(self, service: Service, row: Any, *, final: bool = False) -> bool:
        """Send a message later; return False if it failed for good.

        After a ``final`` fault there is no other try.
        """
        if final or row.tries >= len(PAUSES):
            self.change(service, row, {self.state: "failed"})
            return False
        self.change(service, row, {"due": _after(service, PAUSES[row.tries])})
        return True


def _after(service: Service, seconds: float) -> str:
    return utc_text(service.clock()[0] + timedelta(seconds=seconds))


DELIVERIES = Outbox(tables.deliveries, "status", ("id",))
"""Messages to webhooks (`irtcat.service.outbox.webhooks`)."""

GRADES = Outbox(tables.lti_attempts, "grade", ("attempt", "version"))
"""Grades for the gradebooks of platforms (`irtcat.service.lti.attempts`)."""


@asynccontextmanager
async def repeating(
    send_due: Callable[[Callable[[], bool]], Any], what: str, every: float = EVERY
) -> AsyncIterator[None]:
    """Send what is due, again and again, until the context is left.

    ``send_due`` is called in a thread, with a function that says whether it has to stop.
    """
    stopped = False

    async def repeat() -> None:
        while not stopped:
            await asyncio.sleep(every)
            try:
                await run_in_threadpool(send_due, lambda: stopped)
            except StoreError as error:  # the database is away
                log.warning("no %s: %s", what, error)

    task = asyncio.create_task(repeat())
    try:
        yield
    finally:
        stopped = True
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task
