"""What a wrong expectation does to the intervals: coverage with and without doubt in it.

    python experiments/subset_selection/wrong_expectations.py --data FOLDER [--draws 2]

Models are told to be "similar" or "stronger" in splits where this holds and where it does not: a
random quarter, whole families (the organisation in the id), the latest quarter, and the top 30 %
predicted from the bottom half. ``doubt`` is `irtcat.prediction.score_rule.DOUBT`, the probability
that the expectation is wrong. `wrong_expectations.csv` has the mean absolute error in points, the
coverage of the 95 % intervals on average and in the worst cell (data set x number of items), the
cells below .90 by a one-sided test at 1 %, and the mean width.
"""

import argparse
import itertools
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
from expectations import DATES, KS, MATRICES, load
from scipy.stats import binom

import irtcat
from irtcat import leaderboard
from irtcat.prediction import score_rule

HERE = Path(__file__).parent
DOUBTS = (0.0, 0.1)
SPLITS = {
    "random": "random",
    "family": "metadata:family",
    "date": "before:date",
    "stronger": "ability",
}
TOLD = ("similar", "stronger")
SETS = ("arc", "ifeval", "gsm", "mmlu", "commonsense", "swe_agents", "swebench")


def with_families(folder, name):
    """The responses, with a column for the organisation where ids have one."""
    responses = load(folder, name)
    if name not in ("arc", "ifeval"):
        return responses
    with np.load(Path(folder) / MATRICES[name], allow_pickle=True) as file:
        names = [str(one) for one in file["subjects"]]
    families = [names[int(s[1:]) - 1].split("/")[0] for s in responses.subject_ids]
    return replace(responses, subjects=responses.subjects.assign(family=families))


def rows(name, responses, split, seed):
    """A row for each expectation, number of items and doubt."""
    old, new = leaderboard.split_subjects(responses, SPLITS[split], seed)
    truth = leaderboard.full_scores(new)
    for told, k in itertools.product(TOLD, KS):
        subset = irtcat.select(None, k, calibration=old, expect=told, seed=seed)
        for doubt in DOUBTS:
            score_rule.DOUBT = doubt
            p = irtcat.predict(old, subset, new, pooled=False, estimand="run")
            yield {
                "told": told,
                "split": split,
                "doubt": doubt,
                "data": name,
                "k": k,
                "mae": 100 * np.nanmean(np.abs(p.score - truth)),
                "covered": int(((p.lower <= truth) & (truth <= p.upper)).sum()),
                "n": len(truth),
                "width": 100 * (p.upper - p.lower).mean(),
            }


def main():
    """Run, print, save."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--data", required=True)
    parser.add_argument("--draws", type=int, default=2)
    options = parser.parse_args()
    found = []
    for name in SETS:
        responses = with_families(options.data, name)
        has = {"family": name in ("arc", "ifeval"), "date": name in ("swe_agents", *DATES)}
        for split in (split for split in SPLITS if has.get(split, True)):
            for seed in range(options.draws if split != "date" else 1):
                found += rows(name, responses, split, seed)
        print(name, flush=True)
    keys = ["told", "split", "doubt"]
    cells = pd.DataFrame(found).groupby([*keys, "data", "k"])
    sums = cells[["covered", "n"]].sum().join(cells[["mae", "width"]].mean())
    sums["coverage"] = sums["covered"] / sums["n"]
    sums["below .90"] = binom.cdf(sums["covered"], sums["n"], 0.9) < 0.01
    table = sums.groupby(keys).agg(
        mae=("mae", "mean"),
        width=("width", "mean"),
        coverage=("coverage", "mean"),
        least=("coverage", "min"),
        below=("below .90", "sum"),
        cells=("n", "size"),
    )
    table = table.rename(columns={"below": "below .90"}).round(3)
    table.to_csv(HERE / "wrong_expectations.csv")
    print(table.to_string())


if __name__ == "__main__":
    main()
