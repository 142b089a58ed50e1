"""How far are standard errors from checkpoints too small, against many runs of other seeds?

    python experiments/difficulty_evidence/dependence.py [--runs 12]

`Dependence.se_factor` from 1, 2 and 4 runs, beside that from all of them.
"""

import argparse
from pathlib import Path

import data
import jax
import learners
import numpy as np
import pandas as pd
from run import log_probabilities

from irtcat.training import crowd

SIZES = (1, 2, 4)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=12)
    options = parser.parse_args()
    rows = []
    for name in ("digits", "cancer"):
        d = data.load(name, "symmetric 10", 0)
        n_classes = int(d.labels.max()) + 1
        runs = [
            log_probabilities(np.asarray(learners.follow(key, d.X, d.given, n_classes)), d.given)
            for key in jax.random.split(jax.random.key(1), options.runs)
        ]
        row = {"data": name}
        for size in (*SIZES, options.runs):
            found = []
            for start in range(0, options.runs - size + 1, size):
                some = np.concatenate(runs[start : start + size])
                of = np.repeat(range(size), learners.EPOCHS)
                found.append(crowd.from_checkpoints(some, "log-likelihood", runs=of).dependence())
            row[f"{size} runs"] = np.mean([one.se_factor for one in found])
        rows.append(row)
        table = pd.DataFrame(rows)
        table.to_csv(Path(__file__).parent / "dependence.csv", index=False, float_format="%.3f")
    print(table.round(2).to_string(index=False))


if __name__ == "__main__":
    main()
