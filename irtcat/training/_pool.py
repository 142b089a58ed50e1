"""Training members here, or in processes of their own."""

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
from irtcat.training._learners import Answers, Lesson, train

__all__ = ["train_all"]

THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")

_lesson: Lesson | None = None
"""In a process of the pool: what it was started with."""


def _begin(lesson: Lesson) -> None:
    global _lesson
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's to handle
    threading.Thread(target=_end_with_parent, daemon=True).start()
    _lesson = lesson


def _end_with_parent() -> None:
    """A parent that is killed cannot end its processes: they would wait for work for ever."""
    parent = multiprocessing.parent_process()
    assert parent is not None
    wait_for([parent.sentinel])
    os._exit(1)


def _train(task: Assignment) -> Answers:
    assert _lesson is not None
    return train(_lesson, task)


def train_all(
    lesson: Lesson, tasks: Iterator[Assignment], workers: int
) -> Generator[tuple[int, Answers], None, None]:
    """Numbers and answers of the members, as they are finished.

    Processes are spawned, not forked: JAX's threads do not survive a fork. Each is sent the data
    once, and a few members are under way at a time.

    Raises:
        InputError: when a member fails, the learner cannot be sent, or a process dies.
    """
    if workers == 1:
        for task in tasks:
            yield task.member.number, train(lesson, task)
        return
    _check_sendable(lesson)
    others = set(multiprocessing.active_children())
    context = multiprocessing.get_context("spawn")
    with _one_thread_each():
        pool = ProcessPoolExecutor(workers, context, _begin, (lesson,))
        try:
            yield from _collect(pool, tasks, workers)
        except BrokenProcessPool:
            raise InputError(
                "A process that trains members ended abruptly: out of memory, or `fit_predict` is "
                "defined in a notebook or at a prompt (put it in a module), or the script that "
                'calls crowd.build has no `if __name__ == "__main__":` around the call, which '
                "several workers need. Take fewer workers, or workers=1."
            ) from None
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            for process in set(multiprocessing.active_children()) - others:
                process.terminate()
            raise
        finally:
            pool.shutdown(cancel_futures=True)


def _collect(
    pool: ProcessPoolExecutor, tasks: Iterator[Assignment], workers: int
) -> Iterator[tuple[int, Answers]]:
    """Keep two members a process under way, and hand on what is finished."""
    under_way: dict[Future[Answers], int] = {}

    def add(n: int) -> None:
        for task in islice(tasks, n):
            under_way[pool.submit(_train, task)] = task.member.number

    add(2 * workers)
    while under_way:
        done, _ = wait(under_way, return_when=FIRST_COMPLETED)
        # One that failed ends it all: what else is finished is handed on first.
        for future in sorted(done, key=lambda each: each.exception() is not None):
            number = under_way.pop(future)
            yield number, future.result()
        add(len(done))


def _check_sendable(lesson: Lesson) -> None:
    """Raise where the learners cannot be sent to a process."""
    try:
        pickle.dumps(lesson.learners)
    except Exception as error:
        raise argument_error(
            "fit_predict", "a function of a module, or an object that can be pickled", error,
            "Or train with workers=1.",
        ) from None  # fmt: skip


@contextmanager
def _one_thread_each() -> Iterator[None]:
    """Processes started within compute on one thread each, unless the user has said otherwise."""
    missing = [name for name in THREADS if name not in os.environ]
    os.environ.update(dict.fromkeys(missing, "1"))
    try:
        yield
    finally:
        for name in missing:
            os.environ.pop(name, None)
