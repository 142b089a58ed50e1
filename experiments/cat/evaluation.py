"""Adaptive evaluation of held-out models on real matrices, against fixed subsets of equal length.

    python experiments/cat/evaluation.py --data FOLDER [--sets arc] [--seeds 3] [--ks 10,30,100]

A 2PL is fitted to the calibrated models; the held-out ones are replayed, each answering as it did.
Score and rank are predicted by the session's own posterior (`Report.score`). Fixed: "balanced" with
"auto" and a random subset's mean, as `irtcat.leaderboard` evaluates them, on the same splits.
*interp*: a quarter of the models held out at random; *extrap*: calibrated on the bottom half, the
top 30 % predicted. MAE in percentage points and Kendall's tau-b of the full scores.
"""

import argparse
from pathlib import Path

import numpy as np
import pandas as pd

import irtcat
from irtcat import agreement
from irtcat.cat import Config, replay

HERE = Path(__file__).parent
SETS = {
    "arc": "benchpred/responses_arc_challenge.npz",
    "ifeval": "benchpred/responses_ifeval.npz",
    "mmlu_pro": "mmlu_pro/responses.npz",
    "metabench": "metabench_openllm/responses.npz",
}
ADAPTIVE = ("score-optimal", "mutual-information", "mfi", "random")


def load(folder, name):
    with np.load(Path(folder) / SETS[name], allow_pickle=True) as file:
        x = file["X"]
    if name == "metabench":
        x = x[(x >= 0).all(axis=1)]
    return irtcat.Responses.from_array(x).without_duplicate_subjects()


def split(data, kind, seed):
    """Positions of calibrated and held-out models."""
    n = data.n_subjects
    if kind == "interp":
        order = np.random.default_rng(seed).permutation(n)
        return order[n // 4 :], order[: n // 4]
    order = np.argsort(data.to_numpy().mean(axis=1), kind="stable")
    return order[: n // 2], order[-int(0.3 * n) :]


def figures(predicted, full):
    return {
        "mae": 100 * np.abs(predicted - full).mean(),
        "tau": agreement.kendall_tau_b(predicted, full),
    }


def one(data, kind, seed, ks):
    known, held = (data.subset(subjects=rows) for rows in split(data, kind, seed))
    bank = irtcat.fit(known, "2pl", standard_errors="none").bank
    full = held.to_numpy().mean(axis=1)
    rows = []
    for k in ks:
        for criterion in ADAPTIVE:
            config = Config(criterion=criterion, max_items=k)
            report = replay(bank, held, config, seed, precision="float32")
            rows.append({"k": k, "way": f"adaptive {criterion}", **figures(report.score, full)})
        config = Config(criterion="mutual-information", max_items=k, fences=(-8, 8))
        report = replay(bank, held, config, seed, prior=(0, 3), precision="float32")
        way = "adaptive mutual-information, prior N(0, 3)"
        rows.append({"k": k, "way": way, **figures(report.score, full)})
        for strategy, estimator in (("balanced", "auto"), ("random", "mean"), ("fisher", "irt")):
            subset = irtcat.select(bank, k, strategy, known, seed)
            answers = held.subset(items=subset.item_ids)
            told = irtcat.predict(known, subset, answers, bank, estimator)
            way = f"fixed {strategy} + {estimator}"
            rows.append({"k": k, "way": way, **figures(told.to_frame()["score"], full)})
    return rows


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--data", required=True)
    parser.add_argument("--sets", default="arc")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--ks", default="10,30,100")
    parser.add_argument("--out", default="evaluation.csv")
    options = parser.parse_args()
    ks = [int(k) for k in options.ks.split(",")]
    rows = []
    for name in options.sets.split(","):
        data = load(options.data, name)
        for kind in ("interp", "extrap"):
            for seed in range(options.seeds):
                for row in one(data, kind, seed, ks):
                    rows.append({"data": name, "split": kind, "seed": seed, **row})
            table = pd.DataFrame(rows)
            print(table.groupby(["data", "split", "k", "way"])[["mae", "tau"]].mean().round(3),
                  flush=True)  # fmt: skip
    table = pd.DataFrame(rows).groupby(["data", "split", "k", "way"], sort=False)[["mae", "tau"]]
    table.mean().round(4).to_csv(HERE / options.out)


if __name__ == "__main__":
    main()
