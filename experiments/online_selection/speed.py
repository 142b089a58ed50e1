"""Time of `next(1024)` and of `update` with 1,024 groups, and memory, for a million prompts.

    OPENBLAS_NUM_THREADS=1 python experiments/online_selection/speed.py

writes speed.csv: processor time and wall time on one core in milliseconds (median and 90th
percentile of 60 steps after 10 to warm up), for a cold start, a prior of each prompt, 20 topics
with quotas, and eight features, and the bytes that are kept for a prompt (without features, which
are the user's matrix in single precision).
"""

import subprocess
import time
from pathlib import Path

import numpy as np
import pandas as pd

from irtcat.training.online import Selector

N, BATCH, WARM_UP, STEPS = 1_000_000, 1024, 10, 60


def measure(name, selector, b):
    """Times of one selector."""
    rng = np.random.default_rng(1)
    times = []
    for step in range(WARM_UP + STEPS):
        row = []
        clocks = (time.process_time, time.perf_counter)
        start = [clock() for clock in clocks]
        ids = selector.next(BATCH)
        row += [clock() - s for clock, s in zip(clocks, start, strict=True)]
        right = rng.binomial(8, 1 / (1 + np.exp(b[ids] - 0.01 * step)))
        start = [clock() for clock in clocks]
        selector.update(ids, right, trials=8)
        row += [clock() - s for clock, s in zip(clocks, start, strict=True)]
        times.append(row)
    times = 1e3 * np.array(times[WARM_UP:])
    out = {"selector": name, "prompts": N, "groups": BATCH}
    for k, what in enumerate(("next_cpu", "next_wall", "update_cpu", "update_wall")):
        out[f"{what}_ms"] = np.median(times[:, k])
        out[f"{what}_p90_ms"] = np.percentile(times[:, k], 90)
    return out | {"bytes_a_prompt": selector.n_bytes / N}


def main():
    rng = np.random.default_rng(0)
    b = rng.normal(0, 2, N)
    known = pd.DataFrame({"b": b + rng.normal(0, 0.5, N), "se_b": 0.5, "a": 1.0, "se_a": 0.3})
    topics = rng.integers(0, 20, N)
    features = rng.normal(size=(N, 8)).astype(np.float32)
    features[:, 0] = b
    rows = []
    for name, items, options in (
        ("cold", N, {}),
        ("thompson", N, {"rule": "thompson"}),
        ("prior", known, {}),
        ("20 topics, quotas", N, {"topics": topics, "quotas": {k: 1 for k in range(20)}}),
        ("prior, 20 topics", known, {"topics": topics}),
        ("8 features", N, {"features": features}),
    ):
        rows.append(measure(name, Selector(items, **options), b))
        print(rows[-1], flush=True)
    commit = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=False
    ).stdout.strip()
    table = pd.DataFrame(rows).round(1).assign(commit=commit)
    table.to_csv(Path(__file__).parent / "speed.csv", index=False)


if __name__ == "__main__":
    main()
