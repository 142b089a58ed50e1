"""Tables and figure of all runs of `run.py` in a folder.

python experiments/tutorial_wrong_labels/summary.py [--runs FOLDER] [--out FOLDER]
"""

import argparse
from pathlib import Path

import numpy as np
import pandas as pd

SHOWN = {
    "bound": "bound (abilities known)",
    "rank": "labels.rank",
    "2pl vi, a > 0: -a": "2PL, VI, a > 0",
    "2pl em, a > 0: -a": "2PL, EM, a > 0",
    "item-rest": "item-rest correlation",
    "proportion wrong": "proportion wrong",
}


def summary(runs):
    """Means over the data sets, and of AUC its standard error and the gap to the bound's."""
    bound = runs[runs["method"] == "bound"].set_index(["subjects", "seed"])["auc"]
    keys = pd.MultiIndex.from_frame(runs[["subjects", "seed"]])
    runs = runs.assign(below_bound=bound.reindex(keys).to_numpy() - runs["auc"].to_numpy())
    parts = runs.groupby(["subjects", "method"], sort=False)
    table = parts.mean(numeric_only=True).drop(columns=["seed"])
    table.insert(0, "data_sets", parts.size())
    table.insert(3, "auc_se", parts["auc"].std() / np.sqrt(parts.size()))
    table.insert(4, "auc_least", parts["auc"].min())
    return table.reset_index().sort_values(["subjects", "auc"], ascending=[True, False])


def figure(table, path):
    """Area under the curve by the number of subjects."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    fig, axis = plt.subplots(figsize=(6.4, 4.0), layout="constrained")
    for name, label in SHOWN.items():
        part = table[table["method"] == name]
        axis.errorbar(part["subjects"], part["auc"], 2 * part["auc_se"], marker="o", label=label)
    axis.set_xscale("log")
    axis.set_xticks([10, 30, 100, 300], ["10", "30", "100", "300"])
    axis.set_xlabel("subjects")
    axis.set_ylabel("area under the ROC curve")
    axis.axhline(0.5, color="black", lw=0.8, ls=":")
    axis.legend(fontsize=8, loc="center right")
    fig.savefig(path, dpi=120)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=Path, default=Path(__file__).parent)
    parser.add_argument("--out", type=Path, default=Path(__file__).parent)
    options = parser.parse_args()
    runs = pd.concat([pd.read_csv(path) for path in sorted(options.runs.glob("runs*_*.csv"))])
    runs = runs.drop_duplicates(["subjects", "seed", "method"])
    table = summary(runs)
    table.to_csv(options.out / "summary.csv", index=False, float_format="%.4g")
    runs.sort_values(["subjects", "seed"])[["subjects", "seed", "method", "auc", "at_top"]].to_csv(
        options.out / "runs.csv", index=False, float_format="%.4f"
    )
    figure(table, options.out / "auc.png")
    print(table.round(3).to_string(index=False))


if __name__ == "__main__":
    main()
