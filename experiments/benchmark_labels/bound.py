"""How well could wrong keys be found? Oracles on the tables of run.py.

    python experiments/benchmark_labels/bound.py --data FOLDER [--draws 8]

Both oracles see the answers of all models of the source before keys were changed. They know the
order of the models' abilities (their scores on the items with the right keys, in ten groups) and
how wrong keys are made, and compare the likelihood of an item's answers under "the key is wrong"
and "the key is right", the models independent given their group.

- ``own curve`` also knows each item's own curve with the right key: the share of right answers of
  each group. Nobody has that before the item is read.
- ``curves of the others`` knows the curves of all other items, of which the item's own is taken to
  be one, each as likely. What an item is like can be learnt from the answers to others only in this
  way: no method that has the answers alone can be expected to be much better. Models err together,
  and their number counts as a half, a fifth or a twentieth, whichever is best on the mean.

``bound.csv``: precision at n in %, mean over draws, beside that of "wrong-key" in found.csv.
"""

import argparse
from pathlib import Path

import numpy as np
import pandas as pd
from run import SETTINGS, precision, simulated, wrong_keys
from scipy.special import logsumexp
from scipy.stats import beta

HERE = Path(__file__).parent
SHARES = (np.arange(20) + 0.5) / 20
GROUPS, WEIGHTS = 10, (1.0, 0.5, 0.2, 0.05)


def counts(X, group):
    """Numbers of right answers and of models, groups x items."""
    right = np.stack([X[group == g].sum(axis=0) for g in range(GROUPS)])
    return right, np.bincount(group, minlength=GROUPS)[:, None]


def log_likelihoods(right, n, p):
    """Of every item's answers under every curve, items x curves."""
    return right.T @ np.log(p) + (n - right).T @ np.log1p(-p)


def oracles(everybody, changed, alternatives):
    """Log odds of a wrong key, by the item's own curve and by those of the others."""
    order = np.argsort(np.argsort(everybody.sum(axis=1), kind="stable"))
    group = order * GROUPS // len(order)
    right, n = counts(everybody, group)
    p = (right + 0.5) / (n + 1)
    right, n = counts(changed, group[: len(changed)])
    is_right = log_likelihoods(right, n, p)
    # The quantiles of the share of wrong answers that the wrong key takes.
    takes = beta.ppf(SHARES, 1, max(1.0, alternatives - 2.0))
    each = np.stack([log_likelihoods(right, n, np.clip(g * (1 - p), 1e-4, None)) for g in takes])
    odds = {"own curve": logsumexp([np.diagonal(e) for e in each], axis=0) - np.diagonal(is_right)}
    others = ~np.eye(len(is_right), dtype=bool)
    for weight in WEIGHTS:
        is_wrong = logsumexp(weight * each, axis=0)
        sums = [logsumexp(t, axis=1, b=others) for t in (is_wrong, weight * is_right)]
        odds[f"others, {weight}"] = sums[0] - sums[1]
    return odds


def main():
    """The table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--draws", type=int, default=8)
    options = parser.parse_args()
    rows = []
    for setting, (make, alternatives) in SETTINGS.items():
        for draw in range(options.draws):
            rng = np.random.default_rng([draw, 11])
            X = make(options.data, rng)
            everybody = X
            if make is not simulated:
                everybody = make(options.data, np.random.default_rng([draw, 11]), n=10**6)
            changed, wrong = wrong_keys(X, alternatives, rng)
            odds = oracles(everybody, changed, alternatives)
            found = {name: precision(-value, wrong) for name, value in odds.items()}
            rows.append({"setting": setting, **found})
    table = pd.DataFrame(rows).groupby("setting", sort=False).mean()
    print(table.round(1).to_string())
    others = [name for name in table if name != "own curve"]
    table["curves of the others"] = table.pop(table[others].mean().idxmax())
    table = table[["own curve", "curves of the others"]]
    found = pd.read_csv(HERE / "found.csv").groupby("setting")["wrong-key"].mean()
    table.insert(0, "wrong-key", found.reindex(table.index))
    table.loc["mean"] = table.mean()
    table.round(0).astype(int).to_csv(HERE / "bound.csv")
    print(table.round(1).to_string())


if __name__ == "__main__":
    main()
