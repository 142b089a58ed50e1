"""Costs of adaptive tests in one table: estimators against EAP, a numpy loop, and shadow tests.

5,000 subjects, 500 items, 30 answered, 3PL, maximum information. The calls take turns in one
process; "cpu_ms" is the least processor time of a subject (of a step for shadow tests: wall time
is given beside it). The numpy loop runs in blocks of 100 subjects, whose arrays stay in the cache.
Shadow tests: six content groups with bounds, 40 sets of three enemies, live sessions of 30 items;
"integer program" solves every step by HiGHS, as before the relaxation was tried first. catsim runs
if it is installed (20 subjects).

python experiments/cat/costs.py
"""

import subprocess
import time
from pathlib import Path

import numpy as np
import pandas as pd
from speed import ITEMS, LENGTH, N, catsim_run, make, numpy_loop

from irtcat import ItemBank
from irtcat.cat import Config, Session, prepare, simulate
from irtcat.cat.rules import assembly

HERE = Path(__file__).parent
ROUNDS, CACHED, FEW, SESSIONS = 5, 100, 20, 10


def whole_tests(rows):
    a, b, c = make(ITEMS)
    bank, theta = ItemBank.from_parameters(a, b, c), np.random.default_rng(1).normal(size=N)
    config = Config(max_items=LENGTH, nodes=81)

    def irtcat(method, precision):
        changed = Config(method=method, max_items=LENGTH, nodes=81) if method != "eap" else config
        return lambda: simulate(bank, theta, changed, seed=2, precision=precision).theta

    calls = {
        (f"irtcat {method}", precision): (irtcat(method, precision), N)
        for precision in ("float64", "float32")
        for method in ("eap", "ml", "map", "wle")
    }
    parts = range(0, N, CACHED)
    calls["numpy eap", "float64"] = (
        lambda: np.concatenate([numpy_loop(a, b, c, theta[i : i + CACHED], 2) for i in parts]),
        N,
    )
    calls["catsim ml", "float64"] = (lambda: catsim_run(a, b, c, theta[:FEW]), FEW)
    for key in [key for key in calls if key[0].startswith("irtcat")]:
        calls[key][0]()  # compiles
    cpu, wall, rmse = {}, {}, {}
    for number in range(ROUNDS):
        for key, (call, n) in calls.items():
            if key[0].startswith("catsim") and number:
                continue
            begin, used = time.perf_counter(), time.process_time()
            try:
                estimate = call()
            except ImportError:
                continue
            used, begin = time.process_time() - used, time.perf_counter() - begin
            cpu[key] = min(cpu.get(key, np.inf), 1e3 * used / n)
            wall[key] = min(wall.get(key, np.inf), 1e3 * begin / n)
            rmse[key] = np.sqrt(((estimate - theta[:n]) ** 2).mean())
    for key in cpu:
        eap = cpu["irtcat eap", key[1]]
        rows.append((*key, cpu[key], wall[key], np.nan, cpu[key] / eap, rmse[key]))


def shadow_tests(rows):
    rng = np.random.default_rng(0)
    a, b, c = make(ITEMS)
    bank = ItemBank.from_parameters(a, b, c)
    bank.items["topic"] = rng.choice(list("abcdef"), ITEMS, p=[0.3, 0.2, 0.2, 0.1, 0.1, 0.1])
    shuffled = rng.permutation(np.asarray(bank.item_ids))
    config = Config(
        max_items=LENGTH,
        group="topic",
        targets={
            "a": (0.2, 0.3),
            "b": (0.15, 0.25),
            "c": (0.15, 0.25),
            "d": (0.1, 0.2),
            "e": (0.05, 0.15),
            "f": (0.05, 0.15),
        },
        enemies=[list(shuffled[3 * k : 3 * k + 3]) for k in range(40)],
        content="shadow",
    )
    number = {item: i for i, item in enumerate(bank.item_ids)}

    def by_integer_program(values, rules, required):
        candidates = assembly._candidates(values, rules, required)
        return assembly._by_integer_program(values, rules, required, candidates)

    solvers = {
        "shadow test": assembly.best_form,
        "shadow test, integer program": by_integer_program,
    }
    times = {name: [] for name in solvers}
    pools = {name: prepare(bank, config, solver=solver) for name, solver in solvers.items()}
    for seed in range(SESSIONS + 1):
        for name, pool in pools.items():
            truth, draws = rng.normal(), np.random.default_rng(seed)
            session = Session.begin(bank, config, pool=pool, seed=seed)
            while not session.is_over:
                item = number[session.asked[0]]
                p = c[item] + (1 - c[item]) / (1 + np.exp(-a[item] * (truth - b[item])))
                begin, used = time.perf_counter(), time.process_time()
                session.answer(session.asked[0], int(draws.random() < p))
                if seed:  # the first session compiles
                    spent = time.process_time() - used, time.perf_counter() - begin
                    times[name].append(spent)
    for name, spent in times.items():
        (cpu, wall), high = np.median(spent, axis=0), np.percentile([t for _, t in spent], 90)
        rows.append(
            (f"{name}, a step", "float64", 1e3 * cpu, 1e3 * wall, 1e3 * high, np.nan, np.nan)
        )


def main():
    rows = []
    whole_tests(rows)
    shadow_tests(rows)
    columns = ["program", "precision", "cpu_ms", "wall_ms", "wall_p90_ms", "ratio_to_eap", "rmse"]
    table = pd.DataFrame(rows, columns=columns)
    commit = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"],
        cwd=HERE,
        capture_output=True,
        text=True,
        check=True,
    )
    table["commit"] = commit.stdout.strip()
    print(table.round(4).to_string(index=False))
    table.to_csv(HERE / "costs.csv", index=False, float_format="%.4g")


if __name__ == "__main__":
    main()
