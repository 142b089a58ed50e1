"""What runs beside the application: warm-up, ends of attempts that are due, and shadow tests.

*Warm-up.* The first step of a session compiles programs, which takes a second or more; later steps
take milliseconds. A process therefore takes a session of every adaptive section in memory before it
accepts connections, and scores a result. Nothing is stored.

*Ends of attempts.* A time limit is applied whenever somebody opens an attempt. Of those that nobody
opens, the table of attempts says when they are due.

*Shadow tests.* A step of a test with the content rule "shadow" solves an integer programme, which
takes milliseconds for most banks and can take seconds. In a worker it would hold up all other
takers; so it is solved in a pool of processes. One that is not solved in time is replaced by an
earlier solution that contains all items asked: items come from shadow tests, so that the one of the
session's step before, or the one of the empty test that is solved at the start, always satisfies
the rules. Only the choice is less than optimal.
"""

import asyncio
import gc
import hashlib
import logging
import multiprocessing
import time
from collections import OrderedDict
from collections.abc import AsyncIterator, Callable, Collection, Iterator
from concurrent.futures import BrokenExecutor, CancelledError, ProcessPoolExecutor
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager
from threading import Lock
from typing import Any

import numpy as np
import sqlalchemy as sa
from fastapi import FastAPI
from starlette.concurrency import run_in_threadpool

from irtcat._common.types import BoolArray, FloatArray, IntArray
from irtcat.cat import EXPOSURE, Session, StoreError
from irtcat.cat.rules import Rules, best_form
from irtcat.service.attempts.attempt import GRACE, opened
from irtcat.service.attempts.library import PublishedTest, published_test
from irtcat.service.base.metrics import SHADOW
from irtcat.service.definition import Adaptive, Fixed, result_of
from irtcat.service.outbox.sending import repeating
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
            prepared = service.store.prepared(pool, config)
            session = Session.begin(pool, config, counts=counts, pool=prepared)
            for _ in range(WARM_STEPS):
                if session.is_over:
                    break
                item = session.asked[0]
                session.answer(item, test.bank.first_code, seconds=1.0)
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

    while True:  # a worker that fails to start would stop all of them
        try:
            await run_in_threadpool(warm_open_tests, service, done)
            break
        except StoreError as error:
            log.warning("no look for new tests: %s", error)
            await asyncio.sleep(1.0)
    async with repeating(lambda _: warm_open_tests(service, done), "look for new tests", EVERY):
        with _settled():
            yield


AGAIN = 600.0
"""Seconds after which an attempt that could not be opened is tried again."""


def end_due(
    service: Service,
    *,
    without: Collection[str] = (),
    is_stopped: Callable[[], bool] = lambda: False,
) -> list[str]:
    """Apply the rules to attempts that are due: time limits of tests and sections, abandonment.

    An attempt that ends is finished as any other: its result, grade and messages follow.

    Returns:
        Ids of attempts that could not be opened, such as one whose log was changed.
    """
    columns, failed = tables.attempts.c, []
    is_due = (columns.due != "") & (columns.due <= service.now())
    statement = sa.select(columns.id).where(is_due).order_by(columns.due)
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


def sweeping(app: FastAPI) -> AbstractAsyncContextManager[None]:
    """End attempts that are due while the application runs; every process takes part."""
    service: Service = app.state.service
    failed: dict[str, float] = {}

    def sweep(is_stopped: Callable[[], bool]) -> None:
        now = time.monotonic()
        recent = {name for name, at in failed.items() if now < at + AGAIN}
        for name in end_due(service, without=recent, is_stopped=is_stopped):
            failed[name] = now

    return repeating(sweep, "attempts ended")


TIME_LIMIT = 1.0
"""Seconds for a step: a taker waits for the next item, and others wait behind a lock of SQLite."""

FIRST_LIMIT = 60.0
"""Seconds for the first form of a process under some rules: it is solved when the engine is warmed,
before takers come, and is the fallback of all others."""

PROCESSES = 1
"""Processes of a worker: it has one processor on average."""

STORED = 2000
"""Solutions that are kept; each holds the positions of some dozen items."""


class ShadowPool:
    """Solves shadow tests like `irtcat.cat.rules.best_form`, in another process."""

    def __init__(self, processes: int = PROCESSES, time_limit: float = TIME_LIMIT):
        self._processes, self.time_limit = processes, time_limit
        self._lock = Lock()
        self._pool: ProcessPoolExecutor | None = None
        self._stored: OrderedDict[tuple[str, bytes], IntArray] = OrderedDict()
        self._known: set[str] = set()  # rules with a form

    def __call__(self, values: FloatArray, rules: Rules, required: BoolArray) -> IntArray | None:
        """The best form, or an earlier one if that takes too long; None if no form exists."""
        digest = _digest(rules)
        try:
            with self._lock:
                limit = self.time_limit if digest in self._known else FIRST_LIMIT
                if self._pool is None:
                    # "spawn": a fork of a process with the threads of JAX may stand still.
                    context = multiprocessing.get_context("spawn")
                    self._pool = ProcessPoolExecutor(self._processes, context)
                future = self._pool.submit(best_form, values, rules, required)
            form = future.result(limit)
        except TimeoutError:
            self.close()
            SHADOW.labels("fallback").inc()
            return self._fallback(digest, values, required)
        except (BrokenExecutor, CancelledError):  # it was killed, maybe for another form's time
            self.close()
            SHADOW.labels("local").inc()
            form = best_form(values, rules, required)
        else:
            SHADOW.labels("solved").inc()
        if form is not None:
            stored = np.sort(form)
            with self._lock:
                self._known.add(digest)
                self._stored[digest, stored.tobytes()] = stored
                while len(self._stored) > STORED:
                    self._stored.popitem(last=False)
        return form

    def _fallback(self, digest: str, values: FloatArray, required: BoolArray) -> IntArray | None:
        """The best stored form that has all required items, and no others that are closed."""
        needed, usable = set(np.flatnonzero(required).tolist()), np.isfinite(values) | required
        with self._lock:
            forms = [form for (name, _), form in self._stored.items() if name == digest]
        forms = [it for it in forms if needed <= set(it.tolist()) and usable[it].all()]
        return max(forms, key=lambda it: values[it][~required[it]].sum(), default=None)

    def close(self) -> None:
        """End the processes: one that computes does not stop otherwise."""
        with self._lock:
            pool, self._pool = self._pool, None
        if pool is not None:
            for process in list((pool._processes or {}).values()):
                process.kill()
            pool.shutdown(wait=False, cancel_futures=True)


def _digest(rules: Rules) -> str:
    """What identifies rules."""
    out = hashlib.sha256(str(rules.length).encode())
    for array in (rules.group, rules.low, rules.high, rules.enemies, rules.testlet):
        out.update(b"none" if array is None else np.ascontiguousarray(array).tobytes())
    return out.hexdigest()


@asynccontextmanager
async def shadowing(app: FastAPI) -> AsyncIterator[None]:
    """Solve shadow tests by a pool while the application runs; it starts with the first of them."""
    pool = app.state.service.store.solver = ShadowPool()
    try:
        yield
    finally:
        await run_in_threadpool(pool.close)
