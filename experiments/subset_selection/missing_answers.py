"""Full scores of models without answers to some items of the subset, within the range (interp).

*stopped*: each model's run ended after a third to all of the items. *block*: three in five models
lack the same half of the items, as where newer models are run on other items. *random*: each lacks
two in five at random. Up to 15 models a draw; those with more than a tenth missing count.

    python experiments/subset_selection/missing_answers.py --data FOLDER [--sets arc] [--draws 8]
"""

import argparse
from pathlib import Path

import numpy as np
import pandas as pd
from expectations import KS, load, split

import irtcat
from irtcat import Responses, leaderboard

HERE = Path(__file__).parent
MOST_MODELS, COUNTED = 15, 0.1


def stopped(rng, shape):
    """Which answers are missing in runs that ended early."""
    n_asked = rng.integers(shape[1] // 3, shape[1], shape[0])
    return np.arange(shape[1]) >= n_asked[:, None]


def block(rng, shape):
    """Which answers are missing where some models lack the same items."""
    return (rng.random(shape[0]) < 0.6)[:, None] & (rng.random(shape[1]) < 0.5)


def at_random(rng, shape):
    """Which answers are missing at random."""
    return rng.random(shape) < 0.4


MISSING = {"stopped": stopped, "block": block, "random": at_random}


def draw(responses, seed):
    """Errors, coverage and widths in one draw: a row per model, number of items and kind."""
    calibration, new = split(responses, "interp", seed)
    rng = np.random.default_rng(seed)
    new = new.subset(subjects=np.sort(rng.permutation(new.n_subjects)[:MOST_MODELS]))
    truth, rows = leaderboard.full_scores(new), []
    for k in KS:
        if k > calibration.n_items // 2:
            continue
        subset = irtcat.select(None, k, calibration=calibration, seed=seed)
        answers = new.subset(items=subset.item_ids).to_numpy()
        for kind, rule in MISSING.items():
            missing = rule(rng, answers.shape)
            x = np.where(missing, np.nan, answers)
            left = Responses.from_array(x, new.subject_ids, subset.item_ids)
            p = irtcat.predict(calibration, subset, left)
            rows += [
                {
                    "missing": kind,
                    "n_items": k,
                    "error": 100 * abs(p.score[i] - truth[i]),
                    "coverage": float(p.lower[i] <= truth[i] <= p.upper[i]),
                    "width": 100 * (p.upper[i] - p.lower[i]),
                }
                for i in np.flatnonzero(missing.mean(axis=1) > COUNTED)
            ]
    return rows


def main():
    """Print and save the table."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--data", required=True)
    parser.add_argument("--sets", default="arc,ifeval,gsm,commonsense")
    parser.add_argument("--draws", type=int, default=8)
    parser.add_argument("--first", type=int, default=30, help="seed of the first draw")
    parser.add_argument("--out", type=Path, default=HERE / "missing_answers.csv")
    options = parser.parse_args()
    rows = []
    for name in options.sets.split(","):
        responses = load(options.data, name)
        for seed in range(options.first, options.first + options.draws):
            rows += [{"data": name, **row} for row in draw(responses, seed)]
    table = pd.DataFrame(rows).groupby(["data", "missing", "n_items"], as_index=False)
    table = table.agg(
        models=("error", "size"),
        error=("error", "mean"),
        coverage=("coverage", "mean"),
        width=("width", "mean"),
    ).round(3)
    table.to_csv(options.out, index=False)
    print(table.to_string(index=False))


if __name__ == "__main__":
    main()
