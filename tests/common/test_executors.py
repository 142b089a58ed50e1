"""Every function with ``executor=``: the same result in processes and threads as without."""

import multiprocessing
import sys
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from irtcat import InputError, ItemBank, Responses, cat, leaderboard
from irtcat.agreement import bootstrap_interval, cohen_kappa
from irtcat.diagnose import parallel_analysis
from irtcat.training import crowd
from tests.parallel_tasks import nearest

BANK = ItemBank.from_parameters(a=np.linspace(0.8, 2, 40), b=np.linspace(-2, 2, 40))
THETA = np.random.default_rng(0).normal(size=60)
RESPONSES = BANK.simulate(THETA, seed=1)
DATED = Responses.from_array(
    RESPONSES.values,
    RESPONSES.subject_ids,
    subjects=pd.DataFrame({"date": np.arange(60) // 2}, index=RESPONSES.subject_ids),
)
CONFIG = cat.Config(max_items=6)
RESTRICTED = cat.Config(max_items=6, exposure=cat.part("sympson-hetter", rate=0.5))
BOARD = {
    "strategies": ["random", "fisher"],
    "n_items": [5, 10],
    "seeds": range(2),
    "estimators": ["irt"],
}


def crowd_of(executor, progress):
    X = np.random.default_rng(0).normal(size=(50, 2))
    y = (X[:, 0] > 0).astype(int)
    return crowd.build(
        nearest, (X, y), 9, size=10, executor=executor, progress=progress or False
    ).to_frame()


def board(split):
    def evaluate(executor, progress):
        board = leaderboard.evaluate(
            DATED, split=split, **BOARD, executor=executor, progress=progress
        )
        return board.to_frame()

    return evaluate


def simulated(executor, progress):
    report = cat.simulate(
        BANK, THETA, CONFIG, 3, block=25, precision="float64", executor=executor, progress=progress
    )
    return report.to_frame()


def replayed(executor, progress):
    data = RESPONSES.to_numpy()
    data[::3, 5] = np.nan
    report = cat.replay(
        BANK, Responses.from_array(data), CONFIG, block=16, executor=executor, progress=progress
    )
    return report.to_frame()


def calibrated(executor, progress):
    parameters = cat.calibrate_exposure(
        BANK, THETA, RESTRICTED, 4, progress=progress, executor=executor
    )
    return pd.DataFrame({"limit": parameters.limit})


def bootstrapped(method):
    def bootstrap(executor, progress):
        gold, system = np.tile([0, 1, 1], 20), np.tile([0, 1, 1, 0], 15)
        interval = bootstrap_interval(
            cohen_kappa, gold, system, resamples=120, method=method, executor=executor
        )
        return interval.to_frame()

    return bootstrap


def components(executor, progress):
    return parallel_analysis(
        RESPONSES, n=5, executor=executor, progress=progress or False
    ).to_frame()


CALLS = {
    "crowd": crowd_of,
    "leaderboard": board("random"),
    "leaderboard, one fold for all seeds": board("before:date"),
    "simulate": simulated,
    "replay": replayed,
    "calibrate_exposure": calibrated,
    "bootstrap, percentile": bootstrapped("percentile"),
    "bootstrap, bca": bootstrapped("bca"),
    "parallel_analysis": components,
}


@pytest.fixture(scope="module")
def executors():
    """Two processes, which find this folder's modules however pytest was started, and threads."""
    sys.path.insert(0, str(Path(__file__).parents[2]))
    with (
        ProcessPoolExecutor(2, multiprocessing.get_context("spawn")) as processes,
        ThreadPoolExecutor(2) as threads,
    ):
        yield {"processes": processes, "threads": threads}
    sys.path.pop(0)


@pytest.mark.slow_cases(
    "leaderboard|replay|calibrate_exposure",
    "leaderboard, one fold for all seeds",
    "parallel_analysis",
)
@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
def test_the_same_result(call, executors):
    alone, steps = call(None, None), {}
    for name, executor in executors.items():
        steps[name] = []
        one = call(executor, lambda *step, to=steps[name]: to.append(step))
        pd.testing.assert_frame_equal(one, alone, check_exact=True)
    if call not in (CALLS["bootstrap, percentile"], CALLS["bootstrap, bca"]):
        for reported in steps.values():
            done = [step[0] for step in reported]
            assert done == sorted(done)
            assert done[-1] == reported[-1][1], "all, in the end"


@pytest.mark.slow_cases("parallel_analysis", "bootstrap, bca")
@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
def test_what_is_no_executor(call):
    with pytest.raises(InputError, match=r"`executor` argument must be None or a concurrent"):
        call("processes", None)


@pytest.mark.slow
def test_an_exposure_rule_that_counts(executors):
    counts = cat.Config(max_items=6, exposure=cat.part("restricted", rate=0.5))
    with pytest.raises(InputError, match=r"executor.*restricted, which uses the counts"):
        cat.simulate(BANK, THETA, counts, executor=executors["threads"])
