"""Time of a step of planned sessions: from an answer to the next item, in memory.

Sessions of `irtcat.cat.plan_evaluation` on simulated 2PL items. The first session compiles; the
others are timed, by wall clock and by processor time, which other programs disturb less. A
"program" is what was compiled or read from disk. Last, what the step must at least do: the products
of the posterior of 8 factors (Newton steps on the items asked, one pass over all items for their
covariance and values) and of the predicted score's curves, in operations and bytes.
"""

import argparse
import time
from pathlib import Path

import jax
import numpy as np
import pandas as pd

from irtcat import ItemBank
from irtcat.cat import Session, plan_evaluation, prepare
from irtcat.cat.engine.engine import start_compiled, step_compiled
from irtcat.prediction.factor_scores import NEWTON_STEPS

COMPILED = "/jax/core/compile/backend_compile_duration"
SESSIONS = 10


def programs():
    """Programs so far of the two functions of a session."""
    return start_compiled._cache_size() + step_compiled._cache_size()


def timed_steps(plan, pool, answers, seed):
    """Milliseconds of wall clock and of the processor of each step of a session, and its begin."""
    positions = {name: i for i, name in enumerate(plan.bank.item_ids.tolist())}
    begin = time.perf_counter()
    session = Session.begin(plan.bank, plan.config, pool=pool, seed=seed)
    begun = time.perf_counter() - begin
    rows = []
    while not session.is_over:
        item = session.asked[0]
        at, used = time.perf_counter(), time.process_time()
        session.answer(item, int(answers[positions[item]]))
        rows.append((time.perf_counter() - at, time.process_time() - used))
    return 1e3 * begun, 1e3 * np.array(rows)


def least_work(n_items, n_asked, dims, n_nodes):
    """Operations and bytes (float64) of the products of one step."""
    asked = 2 * n_asked * dims * (dims + 2) * NEWTON_STEPS
    every = 2 * n_items * dims * (2 * dims + 3)
    curves = 4 * n_items * n_nodes
    read = 8 * (n_items * (1 + dims) + 2 * n_items * n_nodes + n_items)
    return (asked + every + curves) / 1e6, read / 1e6


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--items", type=int, default=5000)
    parser.add_argument("--models", type=int, default=1000)
    parser.add_argument("--length", type=int, default=100)
    parser.add_argument("--out", default=Path(__file__).parent / "step_speed.csv")
    a = parser.parse_args()
    rng = np.random.default_rng(0)
    bank = ItemBank.from_parameters(rng.lognormal(0, 0.4, a.items), rng.normal(0, 1.3, a.items))
    known = bank.simulate(rng.normal(size=a.models), seed=1)
    new = bank.simulate(rng.normal(size=SESSIONS + 1), seed=2).to_numpy()
    compiled = []
    jax.monitoring.register_event_duration_secs_listener(
        lambda name, _, **__: compiled.append(name) if name == COMPILED else None
    )
    rows = []
    for expect in (None, "similar", "stronger"):
        plan = plan_evaluation(bank, known, a.length, expect)
        pool = prepare(plan.bank, plan.config)
        timed_steps(plan, pool, new[0], 0)
        before, n_programs = len(compiled), programs()
        sessions = [timed_steps(plan, pool, new[s], s) for s in range(1, SESSIONS + 1)]
        steps = np.vstack([times for _, times in sessions])
        row = {"expect": str(expect), "items": a.items, "models": a.models, "steps": len(steps)}
        for column, name in enumerate(("wall", "cpu")):
            for q in (50, 90, 99):
                row[f"{name}_p{q}_ms"] = np.percentile(steps[:, column], q)
        row["begin_ms"] = np.median([begun for begun, _ in sessions])
        row["compiled_later"] = len(compiled) - before + programs() - n_programs
        rows.append(row)
        dims = 0 if pool.factors is None else pool.factors.shape[1] - 1
        row["mflop"], row["mb_read"] = least_work(a.items, a.length, dims, pool.nodes.shape[0])
    frame = pd.DataFrame(rows).round(3)
    frame.to_csv(a.out, index=False)
    print(frame.to_string(index=False))


if __name__ == "__main__":
    main()
