"""Tasks in this process and in executors: the same results, whatever computes them."""

import multiprocessing
import re
import sys
import threading
import time
from concurrent.futures import Executor, ProcessPoolExecutor, ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest

from irtcat import InputError
from irtcat._common.executors import (
    LEAST_SUBMITTED,
    check_executor,
    executor_of,
    in_order,
    results_of,
)
from tests.parallel_tasks import (
    OddError,
    fails_at_three,
    fails_oddly,
    killed_at_three,
    scaled,
    where,
)

SPAWN = multiprocessing.get_context("spawn")


class Counting(ProcessPoolExecutor):
    """Counts the submissions, and those that carry data."""

    submitted = carrying = 0

    def submit(self, function, key, name, data, task):
        self.submitted += 1
        self.carrying += data is not None
        return super().submit(function, key, name, data, task)


@pytest.fixture(scope="module", autouse=True)
def importable():
    """Processes find this folder's modules, however pytest was started."""
    sys.path.insert(0, str(Path(__file__).parents[2]))
    yield
    sys.path.pop(0)


@pytest.fixture(scope="module")
def processes(importable):
    with Counting(2, SPAWN) as executor:
        yield executor


def loky():
    from joblib.externals.loky import get_reusable_executor

    return get_reusable_executor(max_workers=2)


@pytest.mark.slow_cases("loky")
@pytest.mark.parametrize("kind", ["none", "threads", "processes", "loky"])
def test_results_are_those_of_this_process(kind, processes):
    tasks = [np.arange(3) + k for k in range(100)]
    alone = [scaled({"factor": 2.0}, task) for task in tasks]
    made = {
        "none": lambda: None,
        "threads": lambda: ThreadPoolExecutor(3),
        "processes": lambda: processes,
        "loky": loky,
    }
    executor = made[kind]()
    done = []
    out = in_order(scaled, {"factor": 2.0}, tasks, executor, done.append)
    np.testing.assert_array_equal(out, alone)
    assert done == list(range(1, 101))
    if kind == "loky":
        executor.shutdown(wait=True)


def test_data_are_sent_once_to_each_process(processes):
    """Asked for by a process that lacks them, not sent with every task."""
    before = processes.submitted, processes.carrying
    out = in_order(where, np.zeros(10**6), range(60), processes)
    used = len(set(out))
    submitted, carrying = processes.submitted - before[0], processes.carrying - before[1]
    assert used == 2
    assert used <= carrying <= used + 2, "of 60 tasks"
    assert submitted >= 60 + carrying


def test_threads_share_the_data_unpickled():
    """A lock cannot be pickled, and need not be."""
    with ThreadPoolExecutor(2) as executor:
        out = in_order(lambda lock, task: lock.locked(), threading.Lock(), range(5), executor)
    assert out == [False] * 5


def test_tasks_are_taken_when_they_are_needed():
    taken = []
    with ThreadPoolExecutor(2) as executor:
        tasks = (taken.append(k) or k for k in range(500))
        for n_done, _ in enumerate(results_of(pow, 1, tasks, executor)):
            assert len(taken) <= n_done + 1 + LEAST_SUBMITTED
    assert len(taken) == 500


def test_no_tasks():
    with ThreadPoolExecutor(1) as executor:
        assert in_order(pow, 2, [], executor) == []
    assert in_order(pow, 2, []) == []


def test_closing_cancels_what_has_not_begun():
    begun = []

    def slow(shared, task):
        begun.append(task)
        time.sleep(0.05)

    executor = ThreadPoolExecutor(1)
    with executor, closing(results_of(slow, None, range(60), executor)) as results:
        next(results)
    assert len(begun) < 5


@pytest.mark.parametrize("kind", ["none", "threads", "processes"])
def test_what_a_task_raises_is_raised_here(kind, processes):
    threads = ThreadPoolExecutor(1)
    executor = {"none": None, "threads": threads, "processes": processes}[kind]
    got = []
    with pytest.raises(ZeroDivisionError, match="three") as caught:
        got += [value for _, value in results_of(fails_at_three, None, range(8), executor)]
    threads.shutdown()
    if executor is not None:
        assert "fails_at_three" in "".join(caught.value.__notes__), "where it came from"


def until_it_fails(results):
    """The results before an exception, and the exception."""
    got = []
    try:
        for _, value in results:
            got.append(value)
    except Exception as error:
        return set(got), error
    raise AssertionError("did not fail")


def test_finished_results_come_before_a_failure():
    with ThreadPoolExecutor(1) as executor:
        got, error = until_it_fails(results_of(fails_at_three, None, range(8), executor))
    assert isinstance(error, ZeroDivisionError)
    assert {0, 1, 2} <= got


def test_an_exception_that_cannot_be_pickled(processes):
    with pytest.raises(RuntimeError, match="OddError: odd"):
        in_order(fails_oddly, None, [1], processes)
    with pytest.raises(OddError):
        in_order(fails_oddly, None, [1])


def test_a_killed_worker_is_a_sentence():
    with ProcessPoolExecutor(1, SPAWN) as executor:
        results = results_of(killed_at_three, 0, range(8), executor, advice="Go on.")
        got, error = until_it_fails(results)
        assert isinstance(error, InputError)
        assert re.match(r"The executor failed \(BrokenProcessPool.*Go on\.", str(error))
        with pytest.raises(InputError, match="executor failed"):
            in_order(scaled, {"factor": 1}, [1], executor)
    assert 3 not in got


def test_an_executor_that_was_shut_down():
    executor = ThreadPoolExecutor(1)
    executor.shutdown()
    with pytest.raises(InputError, match=r"executor failed \(RuntimeError: cannot schedule"):
        in_order(pow, 2, [1], executor)


def test_what_cannot_be_sent_is_a_sentence(processes):
    with pytest.raises(InputError, match=r"can be pickled. Got TypeError: .*lock"):
        in_order(scaled, {"factor": threading.Lock()}, [1, 2], processes)


def test_what_a_worker_cannot_load_is_a_sentence(processes, tmp_path, monkeypatch):
    (tmp_path / "only_here_4711.py").write_text("def task(shared, task):\n    return task\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    import only_here_4711

    with pytest.raises(InputError, match=r"cannot load.*ModuleNotFoundError.*only_here_4711"):
        in_order(only_here_4711.task, None, [1, 2], processes)


def test_functions_of_a_notebook(processes):
    """What cloudpickle can send: here a function that closes over a number."""
    offset = 10

    def shifted(shared, task):
        return shared + task + offset

    shifted.__module__ = "__main__"  # as a notebook's
    assert in_order(shifted, 1, range(3), processes) == [11, 12, 13]


class Client:
    """Not an executor, as Dask's client."""

    def submit(self, *_):
        return None


@pytest.mark.parametrize("executor", [2, "threads", ThreadPoolExecutor, Client()])
def test_other_executors_are_refused(executor):
    with pytest.raises(InputError, match=r"`executor` argument must be None or .*get_executor"):
        check_executor(executor)


@pytest.mark.slow
def test_executor_and_workers():
    with ThreadPoolExecutor(1) as executor:
        assert isinstance(executor, Executor)
        with executor_of(executor, 1) as given:
            assert given is executor
        with pytest.raises(InputError, match="`workers` argument must be left out"):
            executor_of(executor, 2)
    with executor_of(None, 1) as given:
        assert given is None
    with pytest.raises(InputError, match="workers"):
        executor_of(None, 0)
