"""Wrong keys in benchmarks: the negative-discrimination rule and `labels.rank`.

Rows are models. Of real response tables (and of one simulation) 5 % of the items, drawn at random,
get a wrong key: models that were right become wrong, and of the others a share becomes right, which
depends on the number of alternatives. For every method the share of the changed items among as many
at the top (precision at n), in %; and how many of the items above a suspicion of .5 are changed.

    python experiments/benchmark_labels/run.py --data FOLDER [--draws 8] [--out FOLDER]

FOLDER has benchpred/responses_*.npz and metabench_openllm/responses.npz (arrays X, -1 missing, and
items).
"""

import argparse
import subprocess
import warnings
from pathlib import Path

import numpy as np
import pandas as pd

from irtcat import ItemBank, Responses, fit
from irtcat.diagnose import labels

SHARE, N_ITEMS = 0.05, 400


def real(path, n_subjects, prefix=""):
    """A random part of a response table; ``n`` is another number of models of the same draw."""

    def draw(folder, rng, n=n_subjects):
        arrays = np.load(folder / path, allow_pickle=False)
        mine = np.char.startswith(arrays["items"].astype(str), prefix)
        X = arrays["X"][:, mine].astype(float)
        X = X[(X >= 0).all(axis=1)]
        X = np.unique(X, axis=0)  # the same model twice
        rows = rng.permutation(len(X))[:n]
        columns = rng.permutation(X.shape[1])[:N_ITEMS]
        return X[np.ix_(rows, columns)]

    return draw


def simulated(folder, rng, n=60):
    """Abilities and difficulties of a hard benchmark, 2PL with guessing."""
    theta, b = rng.normal(size=60), rng.normal(0.5, 1.2, N_ITEMS)
    bank = ItemBank.from_parameters(a=rng.lognormal(0.2, 0.4, N_ITEMS), b=b, c=0.2)
    return bank.simulate(theta, seed=int(rng.integers(1 << 30))).to_numpy()


# Data, number of models, alternatives; of open questions the new key is nearly nobody's answer.
SETTINGS = {
    "simulated, 60 models": (simulated, 4),
    "ARC, 60 models": (real("benchpred/responses_arc_challenge.npz", 60), 4),
    "ARC, 200 models": (real("benchpred/responses_arc_challenge.npz", 200), 4),
    "GSM8K (HELM), 83 models": (real("benchpred/responses_gsm.npz", 83), 20),
    "GSM8K (leaderboard), 200 models": (real("metabench_openllm/responses.npz", 200, "gsm8k"), 20),
}


def wrong_keys(X, alternatives, rng):
    """The answers with wrong keys for some items, and which."""
    wrong = rng.permutation(X.shape[1]) < round(SHARE * X.shape[1])
    # Wrong answers concentrate on some alternative: its share among them is drawn.
    g = rng.beta(1, max(1.0, alternatives - 2.0), X.shape[1])
    changed = (X == 0) & (rng.random(X.shape) < g)
    return np.where(wrong, changed, X), wrong


def item_rest(X):
    """Correlation of every item with the number right on the others; 1 for constant items."""
    rest = X.sum(axis=1, keepdims=True) - X
    sd = X.std(axis=0) * rest.std(axis=0)
    covariance = (X * rest).mean(axis=0) - X.mean(axis=0) * rest.mean(axis=0)
    return np.where(sd > 0, covariance / np.maximum(sd, 1e-12), 1.0)


def precision(key, wrong):
    return 100 * wrong[np.argsort(key, kind="stable")[: wrong.sum()]].mean()


def case(make, alternatives, folder, draw):
    """One row of the table."""
    rng = np.random.default_rng([draw, 11])
    X, wrong = wrong_keys(make(folder, rng), alternatives, rng)
    responses = Responses.from_array(X)
    ranking = labels.rank(responses, alternatives=alternatives, seed=draw)
    feasibility = fit(responses, "feasibility").bank.to_frame()["d"].to_numpy()
    table = ranking.table.loc[[f"i{i + 1}" for i in range(X.shape[1])]]
    correlation = item_rest(X)
    row = {
        "item-rest correlation": precision(correlation, wrong),
        "discrimination": precision(table["a"], wrong),
        "answers": precision(-table["log_odds"], wrong),
        "wrong-key": precision(-table["log_odds_wrong_key"], wrong),
        "share": precision(table["share"], wrong),
        "feasibility": precision(feasibility, wrong),
        "auto": 100 * labels.precision_at(ranking, table.index[wrong], int(wrong.sum())),
        "chosen": ranking.by,
    }
    row["estimated"] = 100 * ranking.checks.loc[ranking.by, "found"]
    for name, flagged in {
        "correlation below 0": correlation < 0,
        "a below 0": (table["a"] < 0).to_numpy(),
        "suspicion above .5": (table["suspicion"] > 0.5).to_numpy(),
        "suspicion above .8": (table["suspicion"] > 0.8).to_numpy(),
    }.items():
        row[f"{name}: n"] = flagged.sum()
        row[f"{name}: wrong"] = wrong[flagged].sum()
    return row | {"n_wrong": wrong.sum()}


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--draws", type=int, default=8)
    parser.add_argument("--out", type=Path, default=Path(__file__).parent)
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    command = ["git", "rev-parse", "--short", "HEAD"]
    commit = subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip()
    rows = []
    for draw in range(options.draws):
        for setting, (make, alternatives) in SETTINGS.items():
            row = case(make, alternatives, options.data, draw)
            rows.append({"setting": setting, "draw": draw, **row, "commit": commit})
            pd.DataFrame(rows).to_csv(options.out / "found.csv", index=False, float_format="%.4g")
        print(draw, flush=True)


if __name__ == "__main__":
    main()
