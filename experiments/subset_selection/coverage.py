"""Do the default's 90 % intervals cover, over many splits?

Fifty splits (interp) or fifty choices of items (extrap, one split by ability) of ARC-C, IFEval and
metabench, strategy and estimator by default. Saves one row per data set, split and k, with the
Monte-Carlo error of the coverage (SD over the splits / sqrt(splits)), and prints it pooled over the
three from 30 items on.

    python experiments/subset_selection/coverage.py --data FOLDER [--sets arc,ifeval] [--splits 50]
"""

import argparse

import numpy as np
import pandas as pd
from run import HERE, SETS, load

from irtcat import leaderboard


def main():
    """Run, print, save."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", required=True)
    parser.add_argument("--sets", default="arc,ifeval,metabench")
    parser.add_argument("--splits", type=int, default=50)
    parser.add_argument("--out", default=str(HERE / "coverage.csv"))
    arguments = parser.parse_args()
    rows = []
    for name in arguments.sets.split(","):
        data = load(arguments.data, name)
        ks = [k for k in SETS[name][1] if 30 <= k <= data.n_items]
        for split, label in (("random", "interp"), ("ability", "extrap")):
            board = leaderboard.evaluate(
                data,
                ["balanced"],
                ks,
                split,
                range(arguments.splits),
                estimators=["auto"],
                level=0.9,
            )
            for k, part in board.to_frame().groupby("n_items"):
                own = part["coverage"]
                rows.append(
                    {
                        "data": name,
                        "split": label,
                        "n_items": k,
                        "splits": len(own),
                        "coverage": own.mean(),
                        "mc_error": own.std() / np.sqrt(len(own)),
                        "mae": part["mae"].mean(),
                        "kendall": part["kendall"].mean(),
                    }
                )
                print(
                    pd.DataFrame(rows[-1:]).round(4).to_string(index=False, header=len(rows) == 1)
                )
    table = pd.DataFrame(rows)
    table.round(4).to_csv(arguments.out, index=False)
    print(table.groupby("split", sort=False)["coverage"].mean().round(3).to_string())


if __name__ == "__main__":
    main()
