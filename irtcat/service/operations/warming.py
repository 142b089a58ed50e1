"""Warm-up: compile the engine's programs for every open test before takers need them.

The first step of a session compiles programs, which takes a second or more; later steps take
milliseconds. A process therefore takes a session of every adaptive section in memory before it
accepts connections, and scores a result. Nothing is stored.
"""

import asyncio
import gc
import logging
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from typing import Any

import sqlalchemy as sa
from fastapi import FastAPI
from starlette.concurrency import run_in_threadpool

from irtcat.cat import EXPOSURE, Session, StoreError
from irtcat.service.attempts.library import PublishedTest, published_test
from irtcat.service.definition import Adaptive, Fixed, result_of
from irtcat.service.storage import tables
from irtcat.service.storage.context import Service

WARM_STEPS = 3
"""Answers of a session in memory. With the example the first one compiles (or loads) the programs
and takes 280 ms of processor time, the second and all later ones take 2 ms; one more, since a rule
may begin after some items."""

SEARCH_AFTER = 20_000, 50, 100
"""Objects after which Python looks for garbage among the youngest, and how many of these searches
there are before it looks at older ones, and at all."""

EVERY = 10.0
"""Seconds between two looks for tests that were published meanwhile."""

log = logging.getLogger("irtcat.service")


def warm(service: Service, test: PublishedTest) -> None:
    """Compile what attempts at a test need, by sessions in memory and a score."""
    answers: dict[str, int | None] = {}
    for at, section in enumerate(test.definition.sections):
        if isinstance(section, Adaptive):
            pool, config = test.pools[at], section.config
            counts: Any = test.exposure.get(at)
            if counts is None and EXPOSURE[config.exposure.name].updates:
                counts = service.store.counts(pool, config)
            session = Session.begin(
                pool, config, counts=counts, pool=service.store.prepared(pool, config)
            )
            for _ in range(WARM_STEPS):
                if session.is_over:
                    break
                item = session.asked[0]
                session.answer(item, test.first_code, seconds=1.0)
                answers[item] = 0
        elif isinstance(section, Fixed) and section.scored:
            answers |= dict.fromkeys(section.items, 0)
    if answers:
        result_of(test.definition, test.bank, answers)


def warm_open_tests(service: Service, done: set[str]) -> None:
    """Warm all open tests that are not among those ``done``, and add them to these.

    A test that cannot be warmed is logged and left: its takers wait for the programs.
    """
    statement = sa.select(tables.tests.c.id).where(tables.tests.c.status == "open")
    for (name,) in service.rows(statement):
        if name in done:
            continue
        done.add(name)
        started = time.perf_counter()
        try:
            warm(service, published_test(service, name))
        except Exception:
            log.exception("warming failed", extra={"test": name})
        else:
            seconds = round(time.perf_counter() - started, 3)
            log.info("test warmed", extra={"test": name, "seconds": seconds})


@contextmanager
def _settled() -> Iterator[None]:
    """Keep Python's search for garbage from holding up requests.

    What is loaded now stays: a search of all of it takes half a second, once a minute. With 2,000
    attempts in memory one takes .2 s; nearly all garbage is young.
    """
    before = gc.get_threshold()
    gc.collect()
    gc.freeze()
    gc.set_threshold(*SEARCH_AFTER)
    try:
        yield
    finally:
        gc.set_threshold(*before)
        gc.unfreeze()


@asynccontextmanager
async def warming(app: FastAPI) -> AsyncIterator[None]:
    """Warm all open tests before the application takes requests, and later ones as they come."""
    service: Service = app.state.service
    done: set[str] = set()

    async def look() -> bool:
        """Warm new tests; whether the database answered."""
        try:
            await run_in_threadpool(warm_open_tests, service, done)
        except StoreError as error:
            log.warning("no look for new tests: %s", error)
            return False
        return True

    async def repeat() -> None:
        while True:
            await asyncio.sleep(EVERY)
            await look()

    while not await look():  # a worker that fails to start would stop all of them
        await asyncio.sleep(1.0)

    task = asyncio.create_task(repeat())
    try:
        with _settled():
            yield
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task
