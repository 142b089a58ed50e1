"""Independent tasks, in this process or in any `concurrent.futures.Executor`.

An executor only has ``submit(function, *arguments)``. What all tasks share (the data) is not sent
with each of them: a process that does not have it answers so, and the task is submitted again with
the pickled data, which the process keeps. Threads and forked processes have it from the start.
"""

import multiprocessing
import os
import pickle
import platform
import signal
import threading
import traceback
from collections.abc import Callable, Generator, Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, Executor, Future, ProcessPoolExecutor, wait
from contextlib import AbstractContextManager, closing, contextmanager, nullcontext
from functools import partial
from itertools import islice
from multiprocessing.connection import wait as wait_for
from typing import Any, NamedTuple, TypeVar
from uuid import uuid4

from irtcat._common.checks import InputError, argument_error, check_count, one_line

Shared = TypeVar("Shared")
Task = TypeVar("Task")
Result = TypeVar("Result")

LEAST_SUBMITTED = 64
"""Tasks that are submitted and not finished: enough for 32 workers to have one task waiting each.
With more workers there are two for each that has answered. Tasks may hold large arrays."""

MOST_WITHOUT = 3
"""Submissions of a task without the data, for processes that lack them: then it carries them."""

KEPT = 2
"""Shared data that a process keeps of the calls that it has worked for."""

THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")

Job = Callable[[Any], Any]

_begun: dict[str, Job] = {}
"""Calls of `results_of` that are going on in this process, by their keys."""

_received: dict[str, Job] = {}
"""What was sent to this process, in the order of receipt."""


class _Answer(NamedTuple):
    """What a worker says of a task.

    Attributes:
        process: host and number of the worker's process.
        thread: number of its thread.
        value: the result.
        error: the exception instead.
        is_missing: whether the process lacks the shared data.
    """

    process: tuple[str, int]
    thread: int
    value: Any = None
    error: Exception | None = None
    is_missing: bool = False


class _Submitted(NamedTuple):
    """A task that is submitted.

    Attributes:
        number: number of the task.
        task: the task.
        times: how often it was submitted.
    """

    number: int
    task: Any
    times: int


def check_executor(executor: Any) -> None:
    """Raise unless it is None or an executor."""
    if executor is not None and not isinstance(executor, Executor):
        must = (
            "None or a concurrent.futures.Executor, such as ProcessPoolExecutor() or Dask's "
            "client.get_executor()"
        )
        raise argument_error("executor", must, type(executor).__name__)


def results_of(
    function: Callable[[Shared, Task], Result],
    shared: Shared,
    tasks: Iterable[Task],
    executor: Executor | None = None,
    *,
    advice: str = "",
) -> Generator[tuple[int, Result], None, None]:
    """Yield the number and the result ``function(shared, task)`` of each task, as they finish.

    Without an executor the tasks are computed one after the other. Results must depend on the task
    alone: whatever is random takes its seed from it. When the generator is closed, tasks that have
    not begun are cancelled; the executor is left to its owner.

    Args:
        function: of a module, or what can be pickled.
        shared: what all tasks need; sent once to each process that lacks it.
        tasks: taken when they are submitted, a limited number ahead.
        executor: where to compute.
        advice: a sentence for the message that the executor failed.

    Raises:
        InputError: when what is shared cannot be pickled or a worker cannot load it, or the
            executor fails. What a task raises is raised here, after the results that came with it.

    Example:
        >>> from concurrent.futures import ThreadPoolExecutor
        >>> with ThreadPoolExecutor(2) as executor:
        ...     sorted(results_of(pow, 2, [1, 2, 3], executor))
        [(0, 2), (1, 4), (2, 8)]
    """
    if executor is None:
        for number, task in enumerate(tasks):
            yield number, function(shared, task)
        return
    key = uuid4().hex
    job = partial(function, shared)
    _begun[key] = job
    try:
        yield from _collected(executor, key, job, iter(tasks), advice)
    finally:
        del _begun[key]


def in_order(
    function: Callable[[Shared, Task], Result],
    shared: Shared,
    tasks: Iterable[Task],
    executor: Executor | None = None,
    progress: Callable[[int], Any] | None = None,
) -> list[Result]:
    """The results of all tasks, in the order of the tasks (see `results_of`).

    Args:
        function: as for `results_of`.
        shared: as for `results_of`.
        tasks: as for `results_of`.
        executor: as for `results_of`.
        progress: called with the number of tasks done.
    """
    results: dict[int, Result] = {}
    with closing(results_of(function, shared, tasks, executor)) as finished:
        for number, result in finished:
            results[number] = result
            if progress is not None:
                progress(len(results))
    return [results[number] for number in range(len(results))]


def _collected(
    executor: Executor, key: str, job: Job, tasks: Iterator[Any], advice: str
) -> Iterator[tuple[int, Any]]:
    """Submit tasks, answer requests for the data, and yield results."""
    pending: dict[Future[_Answer], _Submitted] = {}
    workers: set[tuple[Any, int]] = set()
    sent: dict[tuple[str, int], Future[_Answer]] = {}  # the last submission with data for each
    numbered = enumerate(tasks)
    pickled: bytes | None = None

    def submit(submitted: _Submitted, data: bytes | None = None) -> Future[_Answer]:
        # The name makes each submission different: Dask would return what it has of an equal one.
        name = f"{submitted.number}.{submitted.times}"
        try:
            future = executor.submit(_perform, key, name, data, submitted.task)
        except Exception as error:
            raise _broken(error, advice) from error
        pending[future] = submitted
        return future

    try:
        while True:
            n_free = max(LEAST_SUBMITTED, 2 * len(workers)) - len(pending)
            for number, task in islice(numbered, max(n_free, 0)):
                submit(_Submitted(number, task, 1))
            if not pending:
                return
            done, _ = wait(pending, return_when=FIRST_COMPLETED)
            failure: Exception | None = None
            missing: list[tuple[_Submitted, tuple[str, int]]] = []
            for future in done:
                submitted = pending.pop(future)
                try:
                    answer = future.result()
                except Exception as error:
                    failure = failure or _broken(error, advice)
                    continue
                workers.add((answer.process, answer.thread))
                if answer.error is not None:
                    failure = failure or answer.error
                elif answer.is_missing:
                    missing.append((submitted, answer.process))
                else:
                    yield submitted.number, answer.value
            if failure is not None:
                raise failure
            for submitted, process in missing:
                again = submitted._replace(times=submitted.times + 1)
                last = sent.get(process)
                # Another process may have taken what was sent for this one.
                if last is None or last.done() or submitted.times > MOST_WITHOUT:
                    pickled = pickled or _pickled(job)
                    sent[process] = submit(again, pickled)
                else:
                    submit(again)
    finally:
        for future in pending:
            future.cancel()


def _perform(key: str, name: str, data: bytes | None, task: Any) -> _Answer:
    """In a worker: compute one task."""
    process, thread = (platform.node(), os.getpid()), threading.get_ident()
    job = _begun.get(key) or _received.get(key)
    if job is None and data is None:
        return _Answer(process, thread, is_missing=True)
    try:
        if job is None:
            job = _receive(key, data)
        return _Answer(process, thread, value=job(task))
    except Exception as error:
        return _Answer(process, thread, error=_portable(error))


def _receive(key: str, data: bytes | None) -> Job:
    """Load and keep what was sent."""
    assert data is not None
    try:
        job: Job = pickle.loads(data)
    except Exception as error:
        raise InputError(
            f"A worker cannot load what it was sent ({type(error).__name__}: {one_line(error)}): "
            "the same packages and modules must be installed where it runs."
        ) from None
    while len(_received) >= KEPT:
        _received.pop(next(iter(_received)), None)
    _received[key] = job
    return job


def _portable(error: Exception) -> Exception:
    """The exception, with its traceback as a note, if it survives pickling; else one like it."""
    text = "".join(traceback.format_exception(error))
    sent = error.with_traceback(None)
    try:
        pickle.loads(pickle.dumps(error))
    except Exception:
        sent = RuntimeError(f"{type(error).__name__}: {error}")
    sent.add_note(f"In a worker:\n{text}")
    return sent


def _pickled(job: Job) -> bytes:
    """The shared data as bytes; with cloudpickle also functions of a notebook or a prompt."""
    try:
        from cloudpickle import dumps
    except ImportError:
        from pickle import dumps
    try:
        return bytes(dumps(job))
    except Exception as error:
        raise InputError(
            "Functions and data for other processes must be of a kind that can be pickled. Got "
            f"{type(error).__name__}: {one_line(error)}. Define functions in a module, or compute "
            "in this process."
        ) from error


def _broken(error: Exception, advice: str) -> InputError:
    """The failure of the executor, not of a task, in words."""
    reason = f"{type(error).__name__}: {one_line(error)}".rstrip(": ")
    text = (
        f"The executor failed ({reason}): a worker was killed, ran out of memory or was lost, or a "
        'script starts processes without `if __name__ == "__main__":` around the call.'
    )
    return InputError(f"{text} {advice}".rstrip())


@contextmanager
def _local_processes(n: int) -> Iterator[ProcessPoolExecutor | None]:
    """An executor of n new processes that compute on one thread each; None for one.

    Processes are spawned, not forked: JAX's threads do not survive a fork. They end when this
    process is interrupted or killed.
    """
    if n == 1:
        yield None
        return
    existing = set(multiprocessing.active_children())
    context = multiprocessing.get_context("spawn")
    with _one_thread_each(), ProcessPoolExecutor(n, context, _initialize) as executor:
        try:
            yield executor
        except BaseException:
            executor.shutdown(wait=False, cancel_futures=True)
            for process in set(multiprocessing.active_children()) - existing:
                process.terminate()
            raise


def executor_of(executor: Executor | None, workers: int) -> AbstractContextManager[Executor | None]:
    """The executor of a call with both arguments; processes of its own with ``workers`` alone."""
    check_executor(executor)
    check_count("workers", workers)
    if executor is not None and workers != 1:
        raise argument_error("workers", "left out with an executor", workers)
    return _local_processes(workers) if executor is None else nullcontext(executor)


def _initialize() -> None:
    """In a process of `_local_processes`, at its start."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent handles Ctrl-C
    threading.Thread(target=_exit_with_parent, daemon=True).start()


def _exit_with_parent() -> None:
    """Exit when the parent is killed: it cannot stop its processes, which would wait forever."""
    parent = multiprocessing.parent_process()
    assert parent is not None
    wait_for([parent.sentinel])
    os._exit(1)


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
