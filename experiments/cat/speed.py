"""Speed of adaptive testing, side by side in one process.

5,000 subjects, 500 items, 30 answered, 3PL, maximum information: irtcat (EAP, float32 and
float64), numpy (EAP on the same grid) with all subjects at once, numpy with one subject at a time
(500 subjects), and catsim (ML, which is what it has; 20 subjects). "cpu_s" is processor time, which
other programs on the machine disturb less. Then one selection of each criterion from 500 items, and
the next item of a live session on 30,000 items, with and without the store.
"""

import sys
import tempfile
import time
from pathlib import Path

import jax
import numpy as np
import pandas as pd

from irtcat import ItemBank
from irtcat.cat import CRITERIA, Config, Session, Store, prepare, simulate, start, step

HERE = Path(__file__).parent
N, ITEMS, LENGTH = 5000, 500, 30
FEW = 500


def make(n_items, seed=0):
    rng = np.random.default_rng(seed)
    a, b, c = (
        rng.uniform(0.7, 2, n_items),
        rng.normal(size=n_items),
        rng.uniform(0.1, 0.25, n_items),
    )
    return a, b, c


def numpy_loop(a, b, c, theta, seed):
    """All subjects at once, item by item, in plain numpy: EAP on 81 nodes, maximum information."""
    rng = np.random.default_rng(seed)
    nodes = np.linspace(-5, 5, 81)
    p_nodes = c[:, None] + (1 - c[:, None]) / (1 + np.exp(-a[:, None] * (nodes - b[:, None])))
    log_p, log_q = np.log(p_nodes), np.log1p(-p_nodes)
    log_post = np.tile(-0.5 * nodes**2, (len(theta), 1))
    used = np.zeros((len(theta), len(a)), bool)
    estimate = np.zeros(len(theta))
    rows = np.arange(len(theta))
    for _ in range(LENGTH):
        s = 1 / (1 + np.exp(-a * (estimate[:, None] - b)))
        p = c + (1 - c) * s
        information = ((1 - c) * a * s * (1 - s)) ** 2 / (p * (1 - p))
        information[used] = -1
        item = information.argmax(axis=1)
        used[rows, item] = True
        true = c[item] + (1 - c[item]) / (1 + np.exp(-a[item] * (theta - b[item])))
        right = rng.random(len(theta)) < true
        log_post += np.where(right[:, None], log_p[item], log_q[item])
        weight = np.exp(log_post - log_post.max(axis=1, keepdims=True))
        estimate = weight @ nodes / weight.sum(axis=1)
    return estimate


def numpy_one_by_one(a, b, c, theta, seed):
    """One subject after the other, as one writes it down first: the same rules and grid."""
    rng = np.random.default_rng(seed)
    nodes = np.linspace(-5, 5, 81)
    p_nodes = c[:, None] + (1 - c[:, None]) / (1 + np.exp(-a[:, None] * (nodes - b[:, None])))
    log_p, log_q = np.log(p_nodes), np.log1p(-p_nodes)
    out = np.empty(len(theta))
    for row, truth in enumerate(theta):
        log_post, used, estimate = -0.5 * nodes**2, np.zeros(len(a), bool), 0.0
        for _ in range(LENGTH):
            s = 1 / (1 + np.exp(-a * (estimate - b)))
            p = c + (1 - c) * s
            information = ((1 - c) * a * s * (1 - s)) ** 2 / (p * (1 - p))
            information[used] = -1
            item = information.argmax()
            used[item] = True
            true = c[item] + (1 - c[item]) / (1 + np.exp(-a[item] * (truth - b[item])))
            log_post = log_post + (log_p if rng.random() < true else log_q)[item]
            weight = np.exp(log_post - log_post.max())
            estimate = weight @ nodes / weight.sum()
        out[row] = estimate
    return out


def catsim_run(a, b, c, theta):
    from catsim.estimation import NumericalSearchEstimator
    from catsim.initialization import FixedPointInitializer
    from catsim.selection import MaxInfoSelector
    from catsim.simulation import Simulator
    from catsim.stopping import TestLengthStopper

    items = np.column_stack([a, b, c, np.ones(len(a))])
    simulator = Simulator(
        items,
        theta,
        FixedPointInitializer(0),
        MaxInfoSelector(),
        NumericalSearchEstimator(),
        TestLengthStopper(max_items=LENGTH),
    )
    simulator.simulate()
    return np.array([each[-1] for each in simulator.estimations])


def best_of(call, repeats=3):
    times, cpu = [], []
    for _ in range(repeats):
        begin, used = time.perf_counter(), time.process_time()
        out = call()
        times.append(time.perf_counter() - begin)
        cpu.append(time.process_time() - used)
    return min(times), min(cpu), out


def whole_tests(rows):
    a, b, c = make(ITEMS)
    bank = ItemBank.from_parameters(a, b, c)
    theta = np.random.default_rng(1).normal(size=N)
    config = Config(max_items=LENGTH, nodes=81)
    calls = {
        "irtcat float32": lambda: simulate(bank, theta, config, seed=2, precision="float32").theta,
        "irtcat float64": lambda: simulate(bank, theta, config, seed=2, precision="float64").theta,
        "numpy, all subjects at once": lambda: numpy_loop(a, b, c, theta, 2),
        "numpy, one subject at a time": lambda: numpy_one_by_one(a, b, c, theta[:FEW], 2),
    }
    for name, call in calls.items():
        n = FEW if "one subject" in name else N
        begin = time.perf_counter()
        call()
        first = time.perf_counter() - begin
        seconds, cpu, estimate = best_of(call, 3 if "numpy" in name else 8)
        rmse = np.sqrt(((estimate - theta[:n]) ** 2).mean())
        rows.append((name, n, first, seconds, cpu, 1e3 * seconds / n, 1e3 * cpu / n, rmse))
        print(rows[-1], flush=True)
    try:
        few = theta[:20]
        seconds, cpu, estimate = best_of(lambda: catsim_run(a, b, c, few), 1)
    except ImportError:
        return
    rmse = np.sqrt(((estimate - few) ** 2).mean())
    each = 1e3 * seconds / len(few), 1e3 * cpu / len(few)
    rows.append(("catsim (ML)", len(few), seconds, seconds, cpu, *each, rmse))
    print(rows[-1], flush=True)


def selections(rows):
    """One selection from 500 items, compiled, in a session with ten answers."""
    a, b, c = make(ITEMS)
    bank = ItemBank.from_parameters(a, b, c)
    for name in CRITERIA:
        config = Config(criterion=name, max_items=LENGTH)
        pool = prepare(bank, config)
        state = start(pool, config)
        for n in range(10):
            state = step(pool, config, state, [n % 2])
        times = []
        for n in range(15):
            begin = time.perf_counter()
            state = step(pool, config, state, [n % 2])
            jax.block_until_ready(state)
            times.append(1e3 * (time.perf_counter() - begin))
        rows.append((name, np.median(times), np.max(times)))
        print(rows[-1], flush=True)


def live(rows):
    """Answer to next item on 30,000 items, warm."""
    bank = ItemBank.from_parameters(*make(30_000))
    config = Config(max_items=60)
    with tempfile.TemporaryDirectory() as folder:
        pool = prepare(bank, config)
        for name in ("in memory", "store"):
            store = Store(Path(folder) / "s.db") if name == "store" else None
            times = []
            for number in range(5):
                if store is None:
                    session = Session.begin(bank, config, pool=pool)
                else:
                    session = store.begin(bank, config, session_id=str(number), seed=0)
                while not session.is_over:
                    begin = time.perf_counter()
                    session.answer(session.asked[0], int(session.asked[0][-1] in "02468"))
                    times.append(1e3 * (time.perf_counter() - begin))
            times = np.array(times[5:])
            rows.append((name, len(times), *np.percentile(times, [50, 99]), times.max()))
            print(rows[-1], flush=True)


def main():
    whole, one, next_item = [], [], []
    wanted = sys.argv[1:] or ["whole", "selections", "live"]
    if "whole" in wanted:
        whole_tests(whole)
        columns = ["program", "subjects", "first_s", "best_s", "cpu_s"]
        columns += ["ms_per_subject", "cpu_ms_per_subject", "rmse"]
        pd.DataFrame(whole, columns=columns).to_csv(HERE / "speed.csv", index=False)
    if "selections" in wanted:
        selections(one)
        columns = ["criterion", "median_ms", "max_ms"]
        pd.DataFrame(one, columns=columns).to_csv(HERE / "selections.csv", index=False)
    if "live" in wanted:
        live(next_item)
        columns = ["where", "answers", "p50_ms", "p99_ms", "max_ms"]
        pd.DataFrame(next_item, columns=columns).to_csv(HERE / "live.csv", index=False)


if __name__ == "__main__":
    main()
