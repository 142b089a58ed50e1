"""How long choosing 300 of 30,000 items takes, calibrated on 5,000 simulated subjects."""

import argparse
import time
from pathlib import Path

import numpy as np
import pandas as pd

from irtcat import ItemBank, Responses, select
from irtcat.selection import STRATEGIES

HERE = Path(__file__).parent
LIGHT = ("random", "stratified", "pcub", "pclb", "stratified-group", "stratified-both")
WITHOUT_BANK = {name for name, row in STRATEGIES.items() if "bank" not in row.needs}
STRATEGIES_TIMED = [name for name in STRATEGIES if name in WITHOUT_BANK and name not in LIGHT]
BANK_TIMED = ["kmeans-irt", "fisher", "minimax", "d-optimal"]


def simulate(n_subjects: int, n_items: int, seed: int = 0) -> tuple[ItemBank, Responses]:
    """2PL responses drawn a block of subjects at a time, and the true bank."""
    rng = np.random.default_rng(seed)
    a, b = rng.uniform(0.5, 1.8, n_items), rng.normal(size=n_items)
    values = np.empty((n_subjects, n_items), np.int8)
    for start in range(0, n_subjects, 250):
        theta = rng.normal(size=(len(values[start : start + 250]), 1))
        p = 1 / (1 + np.exp(-a * (theta - b)))
        values[start : start + 250] = rng.random(p.shape) < p
    return ItemBank.from_parameters(a=a, b=b), Responses.from_array(values)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--subjects", type=int, default=5000)
    parser.add_argument("--items", type=int, default=30_000)
    parser.add_argument("-k", type=int, default=300)
    parser.add_argument("--out", type=Path, default=HERE / "select_speed.csv")
    given = parser.parse_args()
    bank, responses = simulate(given.subjects, given.items)
    rows = []
    for strategy in STRATEGIES_TIMED + BANK_TIMED:
        start = time.perf_counter()
        # Without responses the strategies of a bank plan for its population.
        data = responses if strategy in WITHOUT_BANK else None
        subset = select(bank, given.k, strategy=strategy, calibration=data)
        seconds = time.perf_counter() - start
        size = f"{given.subjects} x {given.items}"
        rows.append({"size": size, "strategy": strategy, "k": len(subset), "seconds": seconds})
        print(f"{size:>14} {strategy:>20} {len(subset):>4} {seconds:7.1f} s", flush=True)
    pd.DataFrame(rows).round(1).to_csv(given.out, index=False)


if __name__ == "__main__":
    main()
