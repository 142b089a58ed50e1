"""The table of several abilities: two profiles beside what mirt took, as issue numbers recorded.

    python experiments/several_abilities/table.py before.csv after.csv [--out table.csv]

The two are written by `parts.py --out`, at two commits on the same machine.
"""

import argparse
from pathlib import Path

import pandas as pd

RECORDED = {
    "2pl, 2 correlated, 2000 x 20": (3.7, 18),
    "2pl, 2 exploratory, 2000 x 20": (8.6, 61),
    "2pl, 3 correlated, 2000 x 30": (20.4, 25),
    "graded, 2 correlated, 1500 x 20": (7.1, 19),
    "2pl, bifactor of 4, 2000 x 24": (8.5, 22),
    "2pl, 2 correlated, 10000 x 60": (56.0, 35),
}
"""Wall seconds and iterations of R's mirt 1.47, two idle cores, other data of the same design."""

COLUMNS = ("first", "warm", "warm, with errors", "iterations", "iteration", "log-likelihood")


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("before", type=Path)
    parser.add_argument("after", type=Path)
    parser.add_argument("--out", type=Path, help="also write the table as CSV")
    arguments = parser.parse_args()
    before, after = (pd.read_csv(p, index_col=0) for p in (arguments.before, arguments.after))
    table = pd.DataFrame(index=after.index)
    for name in COLUMNS:
        table[f"{name} before"] = before[name]
        table[name] = after[name]
    table["bare"] = after["bare"]
    table["iteration / bare"] = after["iteration"] / after["bare"]
    for k, name in enumerate(("mirt s (recorded)", "mirt iterations (recorded)")):
        table[name] = [RECORDED.get(case, (None, None))[k] for case in table.index]
    print(table.round(4).T.to_string())
    if arguments.out:
        table.round(4).to_csv(arguments.out)


if __name__ == "__main__":
    main()
