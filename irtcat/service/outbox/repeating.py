"""Outboxes: when messages that were not accepted are sent again, and the loop that sends them."""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from typing import Any

from starlette.concurrency import run_in_threadpool

from irtcat.cat import StoreError

PAUSES = (5, 60, 300, 1800, 7200, 21600, 43200)
"""Seconds before the next try: a restart is bridged by the first ones, a night by the last. After
them the message has failed."""

CLAIM = 120
"""Seconds for which a process has a message; one that dies meanwhile leaves it to the others."""

EVERY = 1.0
"""Seconds between two looks for messages that are due."""

AT_ONCE = 50
"""Messages of one look."""

log = logging.getLogger("irtcat.service")


@asynccontextmanager
async def repeating(
    send_due: Callable[[Callable[[], bool]], Any], what: str
) -> AsyncIterator[None]:
    """Send what is due, again and again, until the context is left.

    Args:
        send_due: sends the messages that are due. It is called in a thread, with a function that
            says whether it has to stop.
        what: what is done, such as "grades sent", for the log.
    """
    stopped = False

    async def repeat() -> None:
        while not stopped:
            await asyncio.sleep(EVERY)
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
