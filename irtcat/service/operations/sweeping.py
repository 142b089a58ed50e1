"""Sweeping: attempts whose takers do not come back end by the rules of the test.

A time limit is applied whenever somebody opens an attempt. Of those that nobody opens, the table of
attempts says when they are due.
"""

import logging
import time
from collections.abc import AsyncIterator, Callable, Collection
from contextlib import asynccontextmanager

import sqlalchemy as sa
from fastapi import FastAPI

from irtcat.service.attempts.attempt import GRACE, opened
from irtcat.service.outbox.sending import repeating
from irtcat.service.storage import tables
from irtcat.service.storage.context import Service

AGAIN = 600.0
"""Seconds after which an attempt that could not be opened is tried again."""

log = logging.getLogger("irtcat.service")


def end_due(
    service: Service,
    *,
    without: Collection[str] = (),
    is_stopped: Callable[[], bool] = lambda: False,
) -> list[str]:
    """Apply the rules to attempts that are due: time limits of tests and sections, abandonment.

    An attempt that ends is finished as any other: its result, grade and messages follow.

    Args:
        service: the service.
        without: ids of attempts that are left alone.
        is_stopped: asked before each attempt.

    Returns:
        Ids of attempts that could not be opened, such as one whose log was changed.
    """
    columns, failed = tables.attempts.c, []
    statement = (
        sa.select(columns.id)
        .where(columns.due != "", columns.due <= service.now())
        .order_by(columns.due)
    )
    for (name,) in service.rows(statement):
        if is_stopped():
            break
        if name in without:
            continue
        try:
            with opened(service, name, actor="system", grace=GRACE):
                pass  # opening it applies the rules
        except Exception:  # one that is damaged does not hold up the others
            log.exception("attempt not ended", extra={"attempt": name})
            failed.append(name)
    return failed


@asynccontextmanager
async def sweeping(app: FastAPI) -> AsyncIterator[None]:
    """End attempts that are due while the application runs; every process takes part."""
    service: Service = app.state.service
    failed: dict[str, float] = {}

    def sweep(is_stopped: Callable[[], bool]) -> None:
        now = time.monotonic()
        recent = {name for name, at in failed.items() if now < at + AGAIN}
        for name in end_due(service, without=recent, is_stopped=is_stopped):
            failed[name] = now

    async with repeating(sweep, "attempts ended"):
        yield
