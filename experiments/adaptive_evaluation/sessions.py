"""Adaptive sessions against a fixed subset of the same length.

    python experiments/adaptive_evaluation/sessions.py --data DATA [--draws 8] [--out FILE]

Each draw calibrates some models and holds others out: a random quarter ("similar"), or those with
the highest scores ("stronger"), at most 30. Sessions are those of `irtcat.cat.plan_evaluation`, the
fixed subset that of `irtcat.select` with the same length and expectation. Where sessions ask the
fixed subset alone (other expectations than "similar", fewer than 100 calibrated models) the two are
equal and are not listed. The table has the mean absolute errors of the predicted full score in
percentage points, the share of 95 % intervals that contain it, and their widths.
"""

import argparse
from pathlib import Path

import numpy as np
import pandas as pd
from joint_model import SETS, load

import irtcat
from irtcat import leaderboard
from irtcat.cat import plan_evaluation, replay

HERE = Path(__file__).parent
LENGTHS = (10, 30, 100)
SPLITS = {"similar": "random", "stronger": "ability"}
HELD_OUT = 30
KEY = ["data", "split", "expect", "k"]


def results(data, split, seed):
    """Errors, coverage and width of both ways in one draw."""
    old, new = leaderboard.split_subjects(data, SPLITS[split], seed)
    drawn = np.random.default_rng(seed).permutation(new.n_subjects)[:HELD_OUT]
    new = new.subset(subjects=np.sort(drawn))
    truth = leaderboard.full_scores(new)
    bank = irtcat.fit(old, standard_errors="none").bank
    for expect in (None, "similar") if split == "similar" else (None,):
        for k in LENGTHS:
            plan = plan_evaluation(bank, old, k, expect, seed=seed)
            if plan.config.criterion == "sequential":
                continue
            report = replay(plan.bank, new, plan.config, precision="float32")
            subset = irtcat.select(None, k, calibration=old, expect=expect, seed=seed)
            ways = {
                "session": report.predict(plan.bank, old, estimand="run"),
                "fixed": irtcat.predict(
                    old, subset, new, expect=expect, pooled=False, estimand="run"
                ),
            }
            for way, p in ways.items():
                yield {
                    "split": split,
                    "expect": str(expect),
                    "k": k,
                    "seed": seed,
                    "way": way,
                    "n": new.n_subjects,
                    "mae": 100 * np.abs(p.score - truth).mean(),
                    "coverage": ((p.lower <= truth) & (truth <= p.upper)).mean(),
                    "width": 100 * (p.upper - p.lower).mean(),
                }


def summary(rows):
    """Ratio of the errors and coverage, by data set and as geometric means."""
    means = rows.pivot_table(["mae", "coverage", "width"], KEY, "way")
    table = pd.DataFrame(
        {
            "fixed": means["mae"]["fixed"],
            "session": means["mae"]["session"],
            "ratio": means["mae"]["session"] / means["mae"]["fixed"],
            "coverage": means["coverage"]["session"],
            "coverage, fixed": means["coverage"]["fixed"],
            "width": means["width"]["session"] / means["width"]["fixed"],
            "draws": rows.groupby(KEY)["seed"].nunique(),
        }
    )
    groups = table.groupby(["split", "expect", "k"])
    overall = groups[["coverage", "coverage, fixed"]].mean()
    overall.insert(
        0, "ratio", np.exp(np.log(table["ratio"]).groupby(["split", "expect", "k"]).mean())
    )
    return table.round(3), overall.round(3)


def main():
    """Run, print, save."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--data", required=True)
    parser.add_argument("--sets", default=",".join(["digits", *SETS]))
    parser.add_argument("--draws", type=int, default=8)
    parser.add_argument("--out", default=str(HERE / "sessions.csv"))
    options = parser.parse_args()
    names = [name for name in options.sets.split(",") if name != "alpaca"]  # not right/wrong
    matrices = {name: load(options.data, name) for name in names}
    rows = []
    for seed in range(options.draws):
        for name, data in matrices.items():
            for split in SPLITS:
                rows += [{"data": name, **row} for row in results(data, split, seed)]
            pd.DataFrame(rows).round(5).to_csv(options.out, index=False)
            print(f"draw {seed + 1}, {name}", flush=True)
    table, overall = summary(pd.DataFrame(rows))
    print(table.to_string(), overall.to_string(), sep="\n\n")


if __name__ == "__main__":
    main()
