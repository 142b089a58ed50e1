"""Shadow tests in processes of their own, with a time limit and a fallback.

A step of a test with the content rule "shadow" solves an integer programme, which takes
milliseconds for most banks and can take seconds. In a worker it would hold up all other takers; so
it is solved in a pool of processes. One that is not solved in time is replaced by an earlier
solution that contains all items asked: items come from shadow tests, so that the one of the
session's step before, or the one of the empty test that is solved at the start, always satisfies
the rules. Only the choice is less than optimal.
"""

import hashlib
import multiprocessing
from collections import OrderedDict
from collections.abc import AsyncIterator
from concurrent.futures import BrokenExecutor, ProcessPoolExecutor
from contextlib import asynccontextmanager
from threading import Lock

import numpy as np
from fastapi import FastAPI
from starlette.concurrency import run_in_threadpool

from irtcat._common.types import BoolArray, FloatArray, IntArray
from irtcat.cat.rules import SOLVER, Rules, best_form
from irtcat.service.base.metrics import SHADOW
from irtcat.service.storage.context import Service

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
        with self._lock:
            is_known = _digest(rules) in self._known
        limit = self.time_limit if is_known else FIRST_LIMIT
        try:
            form = self._submit(values, rules, required, limit)
        except TimeoutError:
            self._restart()
            SHADOW.labels("fallback").inc()
            return self._fallback(values, rules, required)
        except BrokenExecutor:  # the process was killed
            self._restart()
            SHADOW.labels("local").inc()
            form = best_form(values, rules, required)
        else:
            SHADOW.labels("solved").inc()
        if form is not None:
            self._store(rules, form)
        return form

    def _submit(
        self, values: FloatArray, rules: Rules, required: BoolArray, limit: float
    ) -> IntArray | None:
        with self._lock:
            if self._pool is None:
                # "spawn": a fork of a process with the threads of JAX may stand still.
                context = multiprocessing.get_context("spawn")
                self._pool = ProcessPoolExecutor(self._processes, context)
            future = self._pool.submit(best_form, values, rules, required)
        return future.result(limit)

    def _store(self, rules: Rules, form: IntArray) -> None:
        digest, form = _digest(rules), np.sort(form)
        with self._lock:
            self._known.add(digest)
            self._stored[digest, form.tobytes()] = form
            while len(self._stored) > STORED:
                self._stored.popitem(last=False)

    def _fallback(self, values: FloatArray, rules: Rules, required: BoolArray) -> IntArray | None:
        """The best stored form that has all required items, and no others that are closed."""
        digest, needed = _digest(rules), set(np.flatnonzero(required).tolist())
        usable = np.isfinite(values) | required
        best, most = None, -np.inf
        with self._lock:
            forms = [form for (name, _), form in self._stored.items() if name == digest]
        for form in forms:
            if needed <= set(form.tolist()) and usable[form].all():
                total = float(values[form][~required[form]].sum())
                if total > most:
                    best, most = form, total
        return best

    def _restart(self) -> None:
        """End the processes: one that computes does not stop otherwise."""
        with self._lock:
            pool, self._pool = self._pool, None
        if pool is not None:
            for process in list((pool._processes or {}).values()):
                process.kill()
            pool.shutdown(wait=False, cancel_futures=True)

    def close(self) -> None:
        """End the processes."""
        self._restart()


def _digest(rules: Rules) -> str:
    """What identifies rules."""
    out = hashlib.sha256(str(rules.length).encode())
    for array in (rules.group, rules.low, rules.high, rules.enemies, rules.testlet):
        out.update(b"none" if array is None else np.ascontiguousarray(array).tobytes())
    return out.hexdigest()


@asynccontextmanager
async def shadowing(app: FastAPI) -> AsyncIterator[None]:
    """Solve shadow tests by a pool while the application runs; it starts with the first of them."""
    assert isinstance(app.state.service, Service)
    pool, before = ShadowPool(), SOLVER.form
    SOLVER.form = pool
    try:
        yield
    finally:
        SOLVER.form = before
        await run_in_threadpool(pool.close)
