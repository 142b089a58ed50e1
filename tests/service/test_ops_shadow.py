"""Shadow tests in other processes: the same forms, and a stored one when time is short."""

import os
import signal
import time
from concurrent.futures import Future
from unittest.mock import Mock

import numpy as np
import pytest

from irtcat import ItemBank
from irtcat.cat import Config, Session, prepare
from irtcat.cat.rules.assembly import Rules, best_form
from irtcat.service.operations import background
from irtcat.service.operations.background import ShadowPool

N, LENGTH = 40, 8


@pytest.fixture(scope="module")
def pool():
    made = ShadowPool(time_limit=60.0)
    yield made
    made.close()


@pytest.fixture
def rules():
    rng = np.random.default_rng(1)
    enemies = np.zeros((N, 2), bool)
    enemies[[0, 5], 0] = enemies[[1, 9], 1] = True
    group = rng.integers(0, 2, N)
    return Rules(
        length=LENGTH,
        group=group,
        low=np.array([3.0, 3.0]),
        high=np.array([5.0, 5.0]),
        enemies=enemies,
    )


def values(seed=0):
    return np.random.default_rng(seed).random(N)


def slow(values, rules, required):
    time.sleep(60)


def test_forms_are_those_of_the_solver(pool, rules):
    required = np.zeros(N, bool)
    for seed in range(5):
        expected = best_form(values(seed), rules, required)
        np.testing.assert_array_equal(pool(values(seed), rules, required), expected)
        required[expected[0]] = True


def test_a_form_that_takes_too_long_is_an_earlier_one_with_the_items_asked(
    pool, rules, monkeypatch
):
    made = ShadowPool(time_limit=60.0)
    start = made(values(), rules, np.zeros(N, bool))
    asked = np.zeros(N, bool)
    asked[start[:3]] = True
    second = made(values(7), rules, asked)
    monkeypatch.setattr(background, "best_form", slow)
    made.time_limit = 0.3
    asked[next(i for i in second if not asked[i])] = True
    started = time.monotonic()
    form = made(values(8), rules, asked)
    assert time.monotonic() - started < 20
    assert set(np.flatnonzero(asked)) <= set(form)
    assert best_form(np.where(np.isin(np.arange(N), form), 1.0, -np.inf), rules, asked) is not None
    other = np.zeros(N, bool)
    other[[i for i in range(N) if i not in start and i not in second][:2]] = True
    assert made(values(), rules, other) is None  # no stored form has them
    monkeypatch.undo()
    made.time_limit = 60.0
    np.testing.assert_array_equal(  # the pool works again
        made(values(), rules, asked), best_form(values(), rules, asked)
    )
    made.close()


def test_a_form_that_waits_behind_one_that_takes_too_long_is_solved(rules):
    made, future = ShadowPool(), Future()
    future.cancel()  # as the end of the pool does it
    made._pool = Mock(submit=lambda *_: future, _processes={})
    form = made(values(), rules, np.zeros(N, bool))
    np.testing.assert_array_equal(form, best_form(values(), rules, np.zeros(N, bool)))


@pytest.mark.slow
def test_a_process_that_dies_is_replaced(pool, rules):
    none = np.zeros(N, bool)
    pool(values(), rules, none)
    for pid in list(pool._pool._processes):
        os.kill(pid, signal.SIGKILL)
    time.sleep(0.5)
    for _ in range(2):
        np.testing.assert_array_equal(
            pool(values(3), rules, none), best_form(values(3), rules, none)
        )


@pytest.mark.slow
def test_a_session_is_the_same_with_the_pool(pool):
    rng = np.random.default_rng(2)
    bank = ItemBank.from_parameters(a=rng.lognormal(0, 0.3, N), b=rng.normal(size=N))
    bank.items["topic"] = np.where(np.arange(N) % 3, "a", "b")
    config = Config(content="shadow", group="topic", targets=[("a", 0.5), ("b", 0.5)], max_items=6)

    def items(**solver):
        session = Session.begin(bank, config, pool=prepare(bank, config, **solver))
        while not session.is_over:
            session.answer(session.asked[0], len(session.events) % 2)
        return session.to_frame().index.tolist()

    expected = items()
    calls = []

    def counted(*arguments):
        calls.append(1)
        return pool(*arguments)

    assert items(solver=counted) == expected
    assert len(calls) >= 6
