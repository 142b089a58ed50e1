"""Which items, and which estimator: the table of strategies x estimators on real leaderboards.

Protocol: duplicate rows dropped; *interp*: a quarter of the models held out at random, five seeds;
*extrap*: calibrated on the bottom half of the models by full score, the top 30 % predicted, as many
seeds of the choice; one subset for all held-out models. tau-b and MAE (percentage points) of the
predicted full scores, coverage of the 90 % intervals.

    python experiments/subset_selection/run.py --data FOLDER [--sets arc,ifeval,metabench] [--quick]

FOLDER holds benchpred/ and metabench_openllm/ with npz files of X (subjects x items, -1 missing).
"""

import argparse
from pathlib import Path

import numpy as np
import pandas as pd

import irtcat
from irtcat import leaderboard

HERE = Path(__file__).parent
SETS = {
    "arc": ("benchpred/responses_arc_challenge.npz", (10, 30, 60, 100, 300)),
    "ifeval": ("benchpred/responses_ifeval.npz", (30, 100)),
    "metabench": ("metabench_openllm/responses.npz", (10, 30, 100, 300)),
    "gsm": ("benchpred/responses_gsm.npz", (30, 100)),
    "mmlu": ("benchpred/responses_mmlu.npz", (30, 100)),
    "commonsense": ("benchpred/responses_commonsense.npz", (30, 100)),
    "mmlu_pro": ("mmlu_pro/responses.npz", (30, 100)),
    "swebench": ("swebench_verified_minisweagent/responses.npz", (30, 100)),
    "livecodebench": ("livecodebench/responses.npz", (30, 100)),
    "alpaca": ("alpaca_eval/responses.npz", (30, 100)),
}
SMALL = [
    ("random", "mean"), ("stratified", "mean"), ("stratified", "auto"), ("stratified", "aipw"),
    ("balanced", "auto"), ("balanced", "auto-pooled"), ("balanced", "weighted"),
    ("score-optimal", "ridge"), ("score-optimal", "auto"), ("robust", "aipw"),
    ("anchor-points", "weighted"), ("kmeans-correctness", "ridge"),
]  # fmt: skip
LARGE = [
    *SMALL, ("rank-optimal", "ridge"), ("stratified", "ridge"), ("stratified", "gp"),
    ("disagreement", "ridge"), ("pcub", "mean"), ("kmeans-correctness", "weighted"),
    ("kmeans-irt", "gpirt"), ("fisher", "irt"), ("stratified", "irt"), ("stratified", "pirt"),
    ("anchor-points", "gpirt"), ("balanced", "irt"), ("discrimination", "ridge"), ("avi", "mean"),
    ("minimax", "irt"),
]  # fmt: skip
METRICS = ["kendall", "mae", "coverage"]


def load(folder, name):
    """The responses of a data set without duplicates; of metabench the complete rows."""
    with np.load(Path(folder) / SETS[name][0], allow_pickle=True) as file:
        x = file["X"]
    if name == "metabench":
        x = x[(x >= 0).all(axis=1)]
    if x.dtype.kind == "f":
        x = np.clip(x, 0, 1)
    return irtcat.Responses.from_array(x).without_duplicate_subjects()


def run(data, ks, split, seeds, pairs):
    """One row per strategy, estimator and k."""
    rows = []
    for strategy in dict.fromkeys(s for s, _ in pairs):
        estimators = [e for s, e in pairs if s == strategy]
        ks_here = [k for k in ks if k <= data.n_items]
        board = leaderboard.evaluate(
            data, [strategy], ks_here, split, range(seeds), estimators=estimators, interval=0.9
        )
        rows.append(board.summary()[METRICS].reset_index())
    return pd.concat(rows)


def main():
    """Run, print, save."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", required=True)
    parser.add_argument("--sets", default="arc,ifeval,metabench")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--quick", action="store_true", help="the short list of pairs")
    parser.add_argument("--out", default=str(HERE / "table.csv"))
    arguments = parser.parse_args()
    parts = []
    for name in arguments.sets.split(","):
        data = load(arguments.data, name)
        pairs = SMALL if arguments.quick or name != "arc" else LARGE
        for split, label in (("random", "interp"), ("ability", "extrap")):
            table = run(data, SETS[name][1], split, arguments.seeds, pairs)
            table.insert(0, "split", label)
            table.insert(0, "data", name)
            parts.append(table)
            wide = table.pivot_table(index=["strategy", "estimator"], columns="k", sort=False,
                                     values=["kendall", "mae", "coverage"])  # fmt: skip
            print(f"\n{name} {data.n_subjects} x {data.n_items}, {label}")
            print(wide.round(3).to_string())
            whole = pd.concat(parts).round(4)
            whole.to_csv(arguments.out, index=False)


if __name__ == "__main__":
    main()
