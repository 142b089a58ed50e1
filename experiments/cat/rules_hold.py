"""Exposure maxima and content bounds over 10,000 simulated sessions; 100,000 in bounded memory.

python experiments/cat/rules_hold.py
"""

import resource
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd

from irtcat import ItemBank
from irtcat.cat import Config, calibrate_exposure, part, simulate

HERE = Path(__file__).parent
N, LENGTH, RATE = 10_000, 20, 0.25


def main():
    rng = np.random.default_rng(0)
    a, b, c = rng.uniform(0.7, 2, 300), rng.normal(size=300), rng.uniform(0.1, 0.25, 300)
    bank = ItemBank.from_parameters(a, b, c)
    topics = np.array(["algebra", "geometry", "number"])[np.arange(300) % 3]
    bank.items["topic"] = topics
    theta = rng.normal(size=N)
    base = Config(max_items=LENGTH)
    bounds = {"algebra": (0.4, 0.5), "geometry": (0.3, 0.5), "number": (0.1, 0.2)}
    shares = {"algebra": 0.5, "geometry": 0.3, "number": 0.2}
    configs = {
        "no rule": base,
        "randomesque k=10": replace(base, exposure=part("randomesque", k=10)),
        "restricted": replace(base, exposure=part("restricted", rate=RATE)),
        "progressive-restricted": replace(
            base, criterion="progressive", exposure=part("restricted", rate=RATE)
        ),
        "eligibility": replace(base, exposure=part("eligibility", rate=RATE)),
        "conditional-eligibility": replace(
            base, exposure=part("conditional-eligibility", rate=RATE)
        ),
        "overlap at most .15": replace(base, exposure=part("overlap", target=0.15)),
        "sympson-hetter": replace(base, exposure=part("sympson-hetter", rate=RATE)),
        "a-stratified": replace(base, criterion="a-stratified"),
        "bounds": replace(base, content="bounds", group="topic", targets=bounds),
        "kingsbury-zara": replace(base, content="kingsbury-zara", group="topic", targets=shares),
    }
    rows = []
    for name, config in configs.items():
        begin, counts = time.time(), None
        if name == "sympson-hetter":
            counts = calibrate_exposure(bank, theta[:4000], config, rounds=12, seed=50)
        report = simulate(bank, theta, config, seed=1, counts=counts)
        told = report.summary()
        row = {"rule": name, **{k: told[k] for k in ("rmse", "max_exposure", "overlap", "unused")}}
        given = topics[report.items]
        low, high = zip(*[bounds[g] for g in bounds], strict=True)
        counts_by = np.stack([(given == g).sum(axis=1) for g in bounds], axis=1)
        kept = (counts_by >= LENGTH * np.array(low)) & (counts_by <= LENGTH * np.array(high))
        row["sessions_out_of_bounds"] = int((~kept.all(axis=1)).sum())
        row["seconds"] = round(time.time() - begin, 1)
        rows.append(row)
        print(row, flush=True)
    pd.DataFrame(rows).round(4).to_csv(HERE / "rules_hold.csv", index=False)
    begin = time.time()
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    many = simulate(bank, rng.normal(size=100_000), base, seed=2)
    row = {
        "sessions": len(many),
        "seconds": round(time.time() - begin, 1),
        "rmse": round(many.summary()["rmse"], 4),
        "peak_mb_before": round(before),
        "peak_mb_after": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024),
    }
    print(row)
    pd.DataFrame([row]).to_csv(HERE / "many.csv", index=False)


if __name__ == "__main__":
    main()
