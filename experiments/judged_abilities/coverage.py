"""Judged abilities: coverage of the intervals of `irtcat.leaderboard.judged_abilities`.

Simulated: 8 subjects; votes of three judges who differ in consistency, position and length effects
and ties; with grades of two of them, and votes of people (gold) on a few pairs. In the second kind,
each item makes some answers better and judges see the same answers: judgements of an item depend on
each other. Votes are drawn from Davidson's model, where a subject's quality differs from item to
item around its ability, and the truth is the ability that most votes (of 8,000 items) give.

    python experiments/judged_abilities/coverage.py [--replications 200] [--out coverage.csv]
"""

import argparse
import subprocess
import time
from pathlib import Path

import numpy as np
import pandas as pd
from scipy.special import expit

from irtcat.leaderboard import judged_abilities

HERE = Path(__file__).parent
NAMES = np.array([f"m{i}" for i in range(8)])
ABILITY = np.array([-1.2, -0.8, -0.3, 0.0, 0.1, 0.5, 0.7, 1.0])
JUDGES = {
    "people": {"consistency": 1.0, "position": 0.0, "length": 0.0, "tie": 0.6},
    "careful": {"consistency": 1.4, "position": 0.1, "length": 0.1, "tie": 0.3},
    "hasty": {"consistency": 0.6, "position": 0.7, "length": 0.2, "tie": 1.0},
    "long-winded": {"consistency": 1.0, "position": -0.2, "length": 0.6, "tie": 0.0},
}
GRADERS = {"careful": (1.5, -0.3), "hasty": (0.8, 0.4)}
"""Consistency in grades, and severity."""

CUTS = np.array([-1.2, -0.2, 0.6, 1.5])
N_ITEMS, PAIRS, GRADED = 150, 4, 8
"""Items; pairs of answers of each that every judge votes on; answers of each that are graded."""

SD = {"independent": 0.0, "items": 0.8}
"""SD of the quality of an answer around the ability of its subject, shared by the judges."""

EFFECTS = ("consistency", "position", "length")


def simulated(rng, sd, n_items, with_grades, people=0.2):
    """One table of votes and grades."""
    quality = ABILITY + sd * rng.normal(size=(n_items, 8))
    size = np.exp(rng.normal(6, 0.5, (n_items, 8)))
    parts = []
    for judge, effect in JUDGES.items():
        item = np.repeat(np.arange(n_items), PAIRS)
        if judge == "people":
            item = item[rng.random(len(item)) < people]
        a = rng.integers(0, 8, len(item))
        b = (a + rng.integers(1, 8, len(item))) % 8
        eta = effect["consistency"] * (quality[item, a] - quality[item, b]) + effect["position"]
        eta += effect["length"] * np.log2(size[item, a] / size[item, b])
        weight = np.stack([np.exp(eta / 2), np.exp(-eta / 2), np.full(len(item), effect["tie"])], 1)
        share = np.cumsum(weight / weight.sum(1, keepdims=True), 1)
        drawn = (rng.random((len(item), 1)) > share).sum(1)
        votes = {"judge": judge, "item": item, "a": NAMES[a], "b": NAMES[b]}
        votes |= {"length_a": size[item, a], "length_b": size[item, b]}
        parts.append(pd.DataFrame({**votes, "outcome": np.array(["a", "b", "tie"])[drawn]}))
    for judge, (consistency, severity) in GRADERS.items() if with_grades else ():
        item, subject = (x.ravel() for x in np.indices((n_items, 8)))
        at = consistency * (quality[item, subject] - severity)
        at_least = expit(at[:, None] - consistency * CUTS)
        grade = 1 + (rng.random((len(item), 1)) < at_least).sum(1)
        about = {"judge": judge, "item": item, "subject": NAMES[subject]}
        parts.append(pd.DataFrame({**about, "grade": grade}))
    return pd.concat(parts, ignore_index=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--replications", type=int, default=200)
    parser.add_argument("--out", default="coverage.csv")
    args = parser.parse_args()
    rows = []
    for kind, sd in SD.items():
        for with_grades in (False, True):
            unit = np.mean([judge["consistency"] for judge in JUDGES.values()])
            truth = unit * (ABILITY - ABILITY.mean())
            if sd:  # votes are flatter than the quality of single answers says
                large = simulated(np.random.default_rng(10**6), sd, 8_000, with_grades, 1.0)
                large = large.drop(columns="item")
                truth = judged_abilities(large, effects=EFFECTS, gold="people").abilities
                truth = truth["ability"].to_numpy()
            started, hits = time.process_time(), []
            for seed in range(args.replications):
                table = simulated(np.random.default_rng(seed), sd, N_ITEMS, with_grades)
                for errors in ("by item",) if with_grades else ("by item", "independent"):
                    used = table if errors == "by item" else table.drop(columns="item")
                    found = judged_abilities(used, effects=EFFECTS, gold="people")
                    low, high = found.abilities["lower"], found.abilities["upper"]
                    pair = found.difference("m7", "m4")
                    inside = ((low < truth) & (truth < high)).mean()
                    of_pair = pair["lower"] < truth[7] - truth[4] < pair["upper"]
                    hits.append((errors, inside, of_pair, (high - low).mean()))
            seconds = time.process_time() - started
            table = pd.DataFrame(hits, columns=["errors", "ability", "difference", "width"])
            means = table.groupby("errors", as_index=False).mean()
            about = {"judgements": kind, "grades": with_grades}
            rows.extend(
                {**about, **row, "seconds": seconds / len(hits)} for row in means.to_dict("records")
            )
            print(pd.DataFrame(rows).round(3).to_string(), flush=True)
    commit = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"],
        capture_output=True,
        text=True,
        cwd=HERE,
        check=False,
    ).stdout.strip()
    table = pd.DataFrame(rows).round(3).assign(replications=args.replications, commit=commit)
    table.to_csv(HERE / args.out, index=False)


if __name__ == "__main__":
    main()
