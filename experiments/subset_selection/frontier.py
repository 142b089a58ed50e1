"""How much should be left to chance? Errors of the default as the share of eligible items varies.

`balanced` picks the best items of a part of each cell drawn at random. With a small part it is a
stratified sample, with all items eligible it is "score-optimal" within cells. Error within the
calibrated range (interp) against error beyond it (extrap), averaged over ARC-C, IFEval and
metabench after division by the stratified mean's error in the same runs; a point for each share, a
line for each k.

    python experiments/subset_selection/frontier.py --data FOLDER [--sets arc,ifeval] [--seeds 5]
"""

import argparse
from pathlib import Path

import pandas as pd
from run import HERE, load, run

from irtcat.selection import balanced

SHARES = (0.1, 0.3, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0)
KS = (30, 100)


def measure(data, seeds):
    """MAE and coverage for every share, split and k, and the stratified mean's MAE."""
    rows = []
    for split, label in (("random", "interp"), ("ability", "extrap")):
        base = run(data, KS, split, seeds, [("stratified", "mean")]).set_index("n_items")["mae"]
        for share in SHARES:
            balanced.ELIGIBLE, balanced.SUBJECTS_FOR_HALF = share, 0
            table = run(data, KS, split, seeds, [("balanced", "auto")])
            table = table.assign(
                share=share, split=label, of_mean=table["mae"] / table["n_items"].map(base)
            )
            rows.append(table.drop(columns=["strategy", "estimator"]))
    return pd.concat(rows)


def draw(table, path):
    """Relative error beyond the range against that within it."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    wide = table.pivot_table(index=["n_items", "share"], columns="split", values="of_mean")
    fig, axis = plt.subplots(figsize=(5.5, 4.5))
    for k, part in wide.groupby(level="n_items"):
        axis.plot(part["interp"], part["extrap"], "o-", ms=4, label=f"{k} items")
        for (_, share), row in part.iterrows():
            axis.annotate(f"{share:g}", (row["interp"], row["extrap"]), fontsize=7)
    axis.axhline(1.0, color="grey", lw=0.7)
    axis.set_xlabel("error within the calibrated range / stratified mean's")
    axis.set_ylabel("error beyond it / stratified mean's")
    axis.legend()
    fig.tight_layout()
    fig.savefig(path, dpi=110)


def main():
    """Run, print, save."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", required=True)
    parser.add_argument("--sets", default="arc,ifeval,metabench")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--out", default=str(HERE / "frontier.csv"))
    arguments = parser.parse_args()
    parts = []
    for name in arguments.sets.split(","):
        parts.append(measure(load(arguments.data, name), arguments.seeds).assign(data=name))
    table = pd.concat(parts)
    values = ["mae", "of_mean", "coverage", "kendall"]
    print(
        table.pivot_table(index=["split", "n_items", "share"], values=values).round(3).to_string()
    )
    ordered = table[["data", "split", "n_items", "share", *values]]
    ordered.round(4).to_csv(arguments.out, index=False)
    draw(table, Path(arguments.out).with_suffix(".png"))


if __name__ == "__main__":
    main()
