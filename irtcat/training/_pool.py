"""Training members in this process, or in a pool of processes."""

import multiprocessing
import os
import pickle
import signal
import threading
from collections.abc import Generator, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from itertools import islice
from multiprocessing.connection import wait as wait_for

from irtcat._checks import InputError, argument_error
from irtcat.training._design import Assignment
from irtcat.training._learners import Answers, Setup, train

__all__ = ["train_all"]

THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")

_setup: Setup | None = None
"""In a process of the pool: the setup that `_initialize` received."""


def _initialize(setup: Setup) -> None:
    global _setup
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent handles Ctrl-C
    threading.Thread(target=_exit_with_parent, daemon=True).start()
    _setup = setup


def _exit_with_parent() -> None:
    """Exit when the parent is killed: it cannot stop its processes, which would wait forever."""
    parent = multiprocessing.parent_process()
    assert parent is not None
    wait_for([parent.sentinel])
    os._exit(1)


def _train(task: Assignment) -> Answers:
    assert _setup is not None
    return train(_setup, task)


def train_all(
    setup: Setup, tasks: Iterator[Assignment], workers: int
) -> Generator[tuple[int, Answers], None, None]:
    """Numbers and answers of the members, as they finish.

    Processes are spawned, not forked: JAX's threads do not survive a fork. Each process receives
    the data once, and only a few members are submitted at a time.

    Raises:
        InputError: if a member fails, the learner cannot be pickled, or a process dies.
    """
    if workers == 1:
        for task in tasks:
            yield task.member.number, train(setup, task)
        return
    _check_picklable(setup)
    existing = set(multiprocessing.active_children())
    context = multiprocessing.get_context("spawn")
    with _one_thread_each():
        pool = ProcessPoolExecutor(workers, context, _initialize, (setup,))
        try:
            yield from _collect(pool, tasks, workers)
        except BrokenProcessPool:
            raise InputError(
                "A process that trains members ended abruptly: out of memory, or `fit_predict` is "
                "defined in a notebook or at a prompt (put it in a module), or the script that "
                'calls crowd.build has no `if __name__ == "__main__":` around the call, which '
                "several workers need. Use fewer workers, or workers=1."
            ) from None
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            for process in set(multiprocessing.active_children()) - existing:
                process.terminate()
            raise
        finally:
            pool.shutdown(cancel_futures=True)


def _collect(
    pool: ProcessPoolExecutor, tasks: Iterator[Assignment], workers: int
) -> Iterator[tuple[int, Answers]]:
    """Keep two members per process submitted, and yield finished ones."""
    pending: dict[Future[Answers], int] = {}

    def add(n: int) -> None:
        for task in islice(tasks, n):
            pending[pool.submit(_train, task)] = task.member.number

    add(2 * workers)
    while pending:
        done, _ = wait(pending, return_when=FIRST_COMPLETED)
        # A failed member stops the loop, so finished ones come first.
        for future in sorted(done, key=lambda future: future.exception() is not None):
            number = pending.pop(future)
            yield number, future.result()
        add(len(done))


def _check_picklable(setup: Setup) -> None:
    """Raise if the learners cannot be sent to a process."""
    try:
        pickle.dumps(setup.learners)
    except Exception as error:
        raise argument_error(
            "fit_predict", "a function of a module, or an object that can be pickled", error,
            "Or train with workers=1.",
        ) from None  # fmt: skip


@contextmanager
def _one_thread_each() -> Iterator[None]:
    """Processes started inside use one thread each, unless the user's environment sets another."""
    missing = [name for name in THREADS if name not in os.environ]
    os.environ.update(dict.fromkeys(missing, "1"))
    try:
        yield
    finally:
        for name in missing:
            os.environ.pop(name, None)
