"""How long the difficulty of 60,000 items from 1,000 members takes: responses, fit, filter.

    python experiments/training_speed/run.py [--members 1000] [--items 60000] [--out table.csv]

Each case runs in a process of its own, so that importing is left out and compiling is not.
Answers are simulated (theta ~ N(0, 1), b ~ N(-1, 1.5), log a ~ N(0, 0.3)); "out of sample" has
those missing that a crowd of `irtcat.training.crowd` with subsets of 5 to 80 % would have. Columns:
seconds by the clock and of the processor, largest memory of the process, iterations, rank
correlation of the estimated difficulties with the true ones, and load, the programs that wanted a
core in the last minute (`os.getloadavg`), this one among them.
"""

import argparse
import json
import os
import resource
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pandas as pd

HERE = Path(__file__).parent
CASES = [(model, missing) for model in ("rasch", "2pl") for missing in (False, True)]


def simulate(n_members: int, n_items: int, missing: bool) -> tuple[np.ndarray, np.ndarray]:
    """Answers (-1: missing) and true difficulties."""
    from irtcat.training.crowd.members import assignments, draw_members

    rng = np.random.default_rng(0)
    b, a = rng.normal(-1, 1.5, n_items), np.exp(rng.normal(0, 0.3, n_items))
    theta = rng.normal(size=n_members)
    values = np.empty((n_members, n_items), np.int8)
    for row, ability in zip(values, theta, strict=True):
        row[:] = rng.random(n_items) < 1 / (1 + np.exp(-a * (ability - b)))
    if missing:
        members = draw_members(n_members, n_items, (0.05, 0.8), 0.0, 0, 1)
        for task in assignments(members, np.zeros(n_items, int), 2, 0):
            values[task.member.number, task.train] = -1
    return values, b


def measure(model: str, missing: bool, n_members: int, n_items: int) -> dict:
    """One row of the table."""
    import irtcat
    from irtcat.training import filters

    values, b = simulate(n_members, n_items, missing)
    row = {"model": model, "answers": "out of sample" if missing else "all"}
    row |= {"members": n_members, "items": n_items, "missing": round(float((values < 0).mean()), 3)}
    clock, cpu = time.perf_counter(), time.process_time()

    def lap(name: str) -> None:
        nonlocal clock, cpu
        now, used = time.perf_counter(), time.process_time()
        row[f"{name}_s"], row[f"{name}_cpu_s"] = round(now - clock, 2), round(used - cpu, 2)
        clock, cpu = now, used

    responses = irtcat.Responses.from_array(values)
    lap("responses")
    fitted = irtcat.fit(responses, model)
    lap("fit")
    kept = filters.apply(fitted.bank, "avi", keep=0.25)
    lap("filter")
    for what in ("s", "cpu_s"):
        parts = [row[f"{name}_{what}"] for name in ("responses", "fit", "filter")]
        row[f"all_{what}"] = round(sum(parts), 2)
    estimated = pd.Series(fitted.bank.to_frame()["b"].to_numpy())
    row["memory_mb"] = round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)
    row |= {"iterations": fitted.n_iterations, "converged": bool(fitted.converged)}
    row |= {"rank_correlation": round(float(estimated.corr(pd.Series(b), "spearman")), 4)}
    return row | {"kept": len(kept), "load": round(os.getloadavg()[0], 1)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--members", type=int, default=1000)
    parser.add_argument("--items", type=int, default=60_000)
    parser.add_argument("--case", type=int, help="run one case and print it")
    parser.add_argument("--out", type=Path, default=HERE / "table.csv")
    given = parser.parse_args()
    if given.case is not None:
        print(json.dumps(measure(*CASES[given.case], given.members, given.items)))
        return
    rows = []
    for case in range(len(CASES)):
        options = [
            "--members",
            str(given.members),
            "--items",
            str(given.items),
            "--case",
            str(case),
        ]
        command = [sys.executable, __file__, *options]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        rows.append(json.loads(done.stdout.splitlines()[-1]))
        print(rows[-1], flush=True)
    pd.DataFrame(rows).to_csv(given.out, index=False)


if __name__ == "__main__":
    main()
