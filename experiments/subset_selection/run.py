"""Which items, and which estimator: the table of strategies x estimators on real leaderboards.

Protocol: duplicate rows dropped; *interp*: a quarter of the models held out at random, five seeds;
*extrap*: calibrated on the bottom half of the models by full score, the top 30 % predicted, as many
seeds of the choice; one subset for all held-out models. tau-b and MAE (percentage points) of the
predicted full scores, coverage of the 90 % intervals.

    python experiments/subset_selection/run.py --data FOLDER [--sets arc,ifeval,metabench] [--quick]

FOLDER holds benchpred/ and metabench_openllm/ with npz files of X (subjects x items, -1 missing).
"""

import argparse
import itertools
from pathlib import Path

import numpy as np
import pandas as pd

import irtcat
from irtcat import agreement, leaderboard

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
    ("random", "mean"),
    ("stratified", "mean"),
    ("stratified", "auto"),
    ("stratified", "aipw"),
    ("balanced", "auto"),
    ("balanced", "weighted"),
    ("score-optimal", "ridge"),
    ("score-optimal", "auto"),
    ("robust", "aipw"),
    ("anchor-points", "weighted"),
    ("kmeans-correctness", "ridge"),
]
LARGE = [
    *SMALL,
    ("rank-optimal", "ridge"),
    ("stratified", "ridge"),
    ("stratified", "gp"),
    ("disagreement", "ridge"),
    ("pcub", "mean"),
    ("kmeans-correctness", "weighted"),
    ("kmeans-irt", "gpirt"),
    ("fisher", "irt"),
    ("stratified", "irt"),
    ("stratified", "pirt"),
    ("anchor-points", "gpirt"),
    ("balanced", "irt"),
    ("discrimination", "ridge"),
    ("avi", "mean"),
    ("minimax", "irt"),
]
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
            data, [strategy], ks_here, split, range(seeds), estimators=estimators, level=0.9
        )
        rows.append(board.summary()[METRICS].reset_index())
    return pd.concat(rows)


def two_stage(data, ks, split, seeds):
    """A third of the items drawn, the rest by what each held-out model's answers show."""
    rows = []
    for k, seed in itertools.product(ks, range(seeds)):
        if k > data.n_items:
            continue
        calibration, new = leaderboard.split_subjects(data, split, seed)
        first = irtcat.select(
            None, max(10, k // 3), strategy="stratified", calibration=calibration, seed=seed
        )
        truth = leaderboard.full_scores(new)
        score, lower, upper = (np.full(len(truth), np.nan) for _ in range(3))
        how = irtcat.predict(calibration, first, new).how
        for kind in np.unique(how):
            at = np.flatnonzero(how == kind)
            own = new.subset(subjects=at)
            items = irtcat.select_next(None, first, own, k - len(first), calibration=calibration)
            told = irtcat.predict(calibration, items, own, level=0.9)
            score[at], lower[at], upper[at] = told.score, told.lower, told.upper
        rows.append(
            {
                "n_items": k,
                "kendall": agreement.kendall_tau_b(score, truth),
                "mae": 100 * np.abs(score - truth).mean(),
                "coverage": ((lower <= truth) & (truth <= upper)).mean(),
            }
        )
    table = pd.DataFrame(rows).groupby("n_items", as_index=False).mean()
    return table.assign(strategy="two-stage", estimator="auto")


SHOWN = [
    ("random", "mean"),
    ("stratified", "mean"),
    ("score-optimal", "ridge"),
    ("kmeans-correctness", "ridge"),
    ("balanced", "auto"),
]


def draw(table, path):
    """MAE against k of the pairs that matter, one panel per data set and split."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    panels = list(table.groupby(["data", "split"], sort=False))
    fig, axes = plt.subplots(2, -(-len(panels) // 2), figsize=(4 * -(-len(panels) // 2), 7))
    for axis, ((name, split), part) in zip(axes.T.ravel(), panels, strict=False):
        for strategy, estimator in SHOWN:
            own = part[(part["strategy"] == strategy) & (part["estimator"] == estimator)]
            axis.plot(own["n_items"], own["mae"], "o-", label=f"{strategy} + {estimator}")
        axis.set(title=f"{name}, {split}", xscale="log", yscale="log", xlabel="items run")
        axis.set_ylabel("MAE of the full score (points)")
    axes.ravel()[0].legend(fontsize=7)
    fig.tight_layout()
    fig.savefig(path, dpi=110)


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
        pairs = SMALL if arguments.quick else LARGE
        for split, label in (("random", "interp"), ("ability", "extrap")):
            ks = SETS[name][1]
            table = run(data, ks, split, arguments.seeds, pairs)
            if max(ks) > 10:
                ks = [k for k in ks if k >= 30]
                table = pd.concat([table, two_stage(data, ks, split, arguments.seeds)])
            table.insert(0, "split", label)
            table.insert(0, "data", name)
            parts.append(table)
            wide = table.pivot_table(
                index=["strategy", "estimator"],
                columns="n_items",
                sort=False,
                values=["kendall", "mae", "coverage"],
            )
            print(f"\n{name} {data.n_subjects} x {data.n_items}, {label}")
            print(wide.round(3).to_string())
            whole = pd.concat(parts).round(4)
            whole.to_csv(arguments.out, index=False)
    draw(whole, Path(arguments.out).with_suffix(".png"))


if __name__ == "__main__":
    main()
