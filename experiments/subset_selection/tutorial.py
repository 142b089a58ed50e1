"""Which items rank models as all items do: by chance, difficulty, discrimination, information.

The comparison of Rodriguez et al. (2021), section 4, on leaderboards: new models are ranked by
their answers to k items, chosen at random, as the hardest, as the most discriminating, or by Fisher
information summed over the calibrated models, ``sum_i a_j^2 p_ij (1 - p_ij)``. *Warm start*: the
items are calibrated (2PL) on three quarters of the models; *cold start*: on ten of these. The new
models are the same quarter in both, ranked by ability (EAP) and by number right; Kendall's tau-b
with the ranking by all items, mean over the seeds, and its standard error.

    python experiments/subset_selection/tutorial.py --data FOLDER [--sets arc,ifeval] [--seeds 10]
"""

import argparse
import itertools
from pathlib import Path

import numpy as np
import pandas as pd
from run import HERE, load

import irtcat
from irtcat import agreement, leaderboard

KS = (5, 10, 20, 50, 100, 200)
COLD = 10
STRATEGIES = ("random", "difficulty", "discrimination", "fisher")


def choose(bank, k, strategy, calibration, seed):
    """Ids of the items."""
    if strategy == "difficulty":
        b = bank.to_frame()["b"].to_numpy()
        return bank.item_ids[np.argsort(-b, kind="stable")[:k]]
    return irtcat.select(bank, k, strategy=strategy, calibration=calibration, seed=seed).item_ids


def ranks(data, seeds):
    """One row per start, strategy, k and seed."""
    rows = []
    for seed in range(seeds):
        calibration, new = leaderboard.split_subjects(data, "random", seed)
        truth = leaderboard.full_scores(new)
        few = np.random.default_rng(seed).permutation(calibration.n_subjects)[:COLD]
        for start, seen in (("warm", calibration), ("cold", calibration.subset(subjects=few))):
            bank = irtcat.fit(seen, "2pl", standard_errors="none").bank
            for strategy, k in itertools.product(STRATEGIES, KS):
                ids = choose(bank, min(k, data.n_items), strategy, seen, seed)
                answers = new.subset(items=ids)
                theta = irtcat.score(bank, answers).theta
                for by, told in (("ability", theta), ("number right", answers.to_numpy().mean(1))):
                    tau = agreement.kendall_tau_b(told, truth)
                    rows.append((start, strategy, by, k, seed, tau))
    return pd.DataFrame(rows, columns=["start", "strategy", "by", "k", "seed", "kendall"])


def draw(table, path):
    """tau-b by ability against k, one panel per data set and start."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    names = list(dict.fromkeys(table["data"]))
    size = {"figsize": (4 * len(names), 6.5), "sharex": True, "sharey": "col", "squeeze": False}
    fig, axes = plt.subplots(2, len(names), **size)
    for (row, start), (column, name) in itertools.product(
        enumerate(("cold", "warm")), enumerate(names)
    ):
        axis = axes[row, column]
        part = table[(table["data"] == name) & (table["start"] == start)]
        for strategy in STRATEGIES:
            own = part[(part["strategy"] == strategy) & (part["by"] == "ability")]
            axis.errorbar(own["k"], own["kendall"], own["se"], fmt="o-", ms=3, label=strategy)
        axis.set(title=f"{name}, {start} start", xscale="log")
        if row:
            axis.set_xlabel("items run")
        if not column:
            axis.set_ylabel("tau-b with the full ranking")
    axes[0, 0].legend(fontsize=8)
    fig.tight_layout()
    fig.savefig(path, dpi=110)


def main():
    """Run, print, save."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", required=True)
    parser.add_argument("--sets", default="arc,ifeval,metabench")
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--out", default=str(HERE / "tutorial.csv"))
    arguments = parser.parse_args()
    parts = []
    for name in arguments.sets.split(","):
        each = ranks(load(arguments.data, name), arguments.seeds)
        part = each.groupby(["start", "strategy", "by", "k"], sort=False)["kendall"]
        part = part.agg(["mean", "std"]).reset_index()
        part["se"] = part.pop("std") / np.sqrt(arguments.seeds)
        part = part.rename(columns={"mean": "kendall"})
        part.insert(0, "data", name)
        parts.append(part)
        wide = part.pivot_table(
            index=["start", "by", "strategy"], columns="k", values="kendall", sort=False
        )
        print(f"\n{name}\n{wide.round(3).to_string()}")
    table = pd.concat(parts).round(4)
    table.to_csv(arguments.out, index=False)
    draw(table, Path(arguments.out).with_suffix(".png"))


if __name__ == "__main__":
    main()
