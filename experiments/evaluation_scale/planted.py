"""Does the pipeline drop planted bad items and keep good ones?

Each data set: 16 good items (a from 0.8 to 2.4, b from -1.8 to 1.8) and four bad ones: flat (a coin
with P = .6), a wrong key, half a copy of a good item, and one whose curve rises and falls again. A
`good only` run has the 16 alone: what is dropped there are false alarms.

    python experiments/evaluation_scale/planted.py [--sets 50] [--subjects 1000]
"""

import argparse
from pathlib import Path

import numpy as np
import pandas as pd

from irtcat import ItemBank, Responses, scale

GOOD = 16
BAD = ("flat", "wrong key", "dependent", "bow")


def simulate(n, seed, bad):
    """Responses with or without the bad items."""
    rng = np.random.default_rng(seed)
    theta = rng.normal(size=n)
    bank = ItemBank.from_parameters(
        a=rng.uniform(0.8, 2.4, GOOD), b=rng.permutation(np.linspace(-1.8, 1.8, GOOD))
    )
    X = bank.simulate(theta, seed=seed).to_numpy()
    ids = [f"good{j}" for j in range(GOOD)]
    if bad:
        flat = rng.random(n) < 0.6
        key = rng.random(n) < 1 / (1 + np.exp(1.5 * theta))
        own = rng.random(n) < 1 / (1 + np.exp(-1.2 * (theta - bank.to_frame()["b"].iloc[3])))
        twin = np.where(rng.random(n) < 0.5, X[:, 3], own)
        up, down = (1 / (1 + np.exp(-s * (theta - m))) for s, m in ((2.5, -0.8), (4.0, 0.9)))
        bow = rng.random(n) < 0.1 + 0.85 * up - 0.6 * down
        X = np.column_stack([X, flat, key, twin, bow])
        ids += list(BAD)
    return Responses.from_array(X.astype(int), item_ids=ids)


def main():
    """Run, print, save."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sets", type=int, default=50)
    parser.add_argument("--subjects", type=int, default=1000)
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "planted.csv")
    arguments = parser.parse_args()
    rows = []
    for seed in range(arguments.sets):
        for bad in (True, False):
            data = simulate(arguments.subjects, seed, bad)
            found = scale.build(data, ["all"] * data.n_items, n_factors=1, two_factors="skip")
            own = found["all"]
            reasons = own.items["reason"].str.split(" with ").str[0]
            for item in own.items.index:
                kind = item if item in BAD else ("good" if bad else "good only")
                dropped = item in set(own.removed)
                # Of a dependent pair either one may go.
                rows.append((seed, kind, item, dropped, reasons[item] if dropped else ""))
            guessed = own.items.loc[own.retained].get("c", pd.Series(0.0)).gt(0).sum()
            rows.append((seed, "c kept" if bad else "c kept, good only", "", bool(guessed), ""))
    table = pd.DataFrame(rows, columns=["seed", "kind", "item", "dropped", "reason"])
    pair = table[table["item"].isin(["good3", "dependent"]) & table["kind"].ne("good only")]
    either = pair.groupby("seed")["dropped"].max().rename("dropped").reset_index()
    table = pd.concat([table, either.assign(kind="either of the dependent pair")])
    out = table.groupby("kind", sort=False)["dropped"].agg(["mean", "sum", "size"])
    out = out.rename(columns={"mean": "share_dropped", "sum": "dropped", "size": "items"})
    reasons = (
        table[table["dropped"]]
        .groupby("kind")["reason"]
        .agg(lambda r: ", ".join(f"{k} {v}" for k, v in r.value_counts().items() if k))
    )
    out["reasons"] = reasons
    print(out.round(3).to_string())
    out.round(4).to_csv(arguments.out)


if __name__ == "__main__":
    main()
