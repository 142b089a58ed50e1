"""Contamination without dates: who has seen items, and abilities that hold nevertheless.

Simulated: 100 models, 400 items of a 2PL model. Some models have seen some items, the same for all
of them (leaked) or each its own, and answer 95 % of these rightly. "clean" are abilities from the
answers as they would be without that; "usual" those of a 2PL fit to all. Then models whose answers
the 2PL does not describe (guessing; two abilities).

    python experiments/contamination/robust.py [--replications 20]  # goes on where it stopped
"""

import argparse
from functools import cache
from pathlib import Path

import numpy as np
import pandas as pd
from scipy.special import expit

import irtcat
from irtcat.agreement import kendall_tau_b
from irtcat.diagnose import find_contamination

HERE = Path(__file__).parent
N_MODELS, N_ITEMS, RIGHT_IF_SEEN = 100, 400, 0.95


KEYS = ["answers", "models", "items seen", "which items"]
CASES = [
    *[("2PL", share, seen, "the same") for share, seen in ((0.3, 0.6), (0.2, 0.4))],
    *[("2PL", share, seen, "each its own") for share, seen in ((0.3, 0.6), (0.2, 0.4))],
    *[(kind, 0.0, 0.0, "the same") for kind in ("guessing", "two abilities")],
    *[("2PL", share, seen, "the same") for share, seen in ((0.1, 0.2), (0.1, 0.6), (0.3, 0.2))],
    *[("2PL", share, seen, "each its own") for share, seen in ((0.1, 0.2), (0.3, 0.2))],
    *[("two abilities", 0.2, 0.4, "the same"), ("2PL", 0.0, 0.0, "the same")],
    ("guessing", 0.2, 0.4, "the same"),
]


def simulated(rng, kind):
    """Abilities, and answers of models that have seen nothing."""
    theta, a = rng.normal(0, 1, N_MODELS), rng.lognormal(0.2, 0.3, N_ITEMS)
    b = rng.normal(0, 1.5, N_ITEMS)
    eta = a * (theta[:, None] - b)
    if kind == "two abilities":
        eta += (np.arange(N_ITEMS) % 2) * 0.8 * rng.normal(0, 1, N_MODELS)[:, None]
    p = expit(eta)
    if kind == "guessing":
        p = 0.2 + 0.8 * p
    return theta, (rng.random(p.shape) < p).astype(int)


@cache
def usual_abilities(seed, kind):
    """Abilities from the answers as they would be if nobody had seen an item."""
    _, clean = simulated(np.random.default_rng(seed), kind)
    return find_contamination(clean).subjects["usual_ability"].to_numpy()


def one(seed, kind, share, seen, is_common):
    """Measures of one data set."""
    rng = np.random.default_rng(seed)
    theta, clean = simulated(rng, kind)
    has_seen = np.zeros(clean.shape, bool)
    n = round(share * N_MODELS)
    items = rng.random(N_ITEMS) < seen
    for model in range(n):
        has_seen[model] = items if is_common else rng.random(N_ITEMS) < seen
    x = np.where(has_seen & (rng.random(clean.shape) < RIGHT_IF_SEEN), 1, clean)
    without = usual_abilities(seed, kind)
    found = find_contamination(x)
    table = found.subjects
    accused = table["contaminated"].to_numpy()
    everyone = irtcat.Responses.from_array(x)
    usual = irtcat.score(irtcat.fit(everyone, "2pl"), everyone).theta
    leaked = found.items["leaked"].to_numpy()
    return {
        "found": accused[:n].mean() if n else np.nan,
        "false accusations": accused[n:].mean(),
        "tau, clean": kendall_tau_b(without, theta),
        "tau, usual": kendall_tau_b(usual, theta),
        "tau, robust": kendall_tau_b(table["ability"].to_numpy(), theta),
        "items found": leaked[items].mean() if n and is_common else np.nan,
        "items falsely": leaked[~items].mean() if n and is_common else np.nan,
        "inflation": found.inflation,
    }


def main():
    """Simulate the sets that are not in sets.csv yet; robust.csv has their means."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--replications", type=int, default=20)
    args = parser.parse_args()
    path = HERE / "sets.csv"
    done = pd.read_csv(path) if path.exists() else pd.DataFrame(columns=[*KEYS, "seed"])
    for seed in range(args.replications):
        for case in CASES:
            if (done[[*KEYS, "seed"]] == [*case, seed]).all(axis=1).any():
                continue
            kind, share, seen, which = case
            values = one(seed, kind, share, seen, which == "the same")
            row = {**dict(zip(KEYS, case, strict=True)), "seed": seed, **values}
            rows = pd.DataFrame([row])
            done = pd.concat([done, rows], ignore_index=True) if len(done) else rows
            done.round(4).to_csv(path, index=False)
            print(*case, seed, flush=True)
    by = done.groupby(KEYS, sort=False)
    table = by.mean().drop(columns="seed")
    table["tau, robust / clean"] = table["tau, robust"] / table["tau, clean"]
    table["worst of these"] = (
        (done["tau, robust"] / done["tau, clean"])
        .groupby([done[key] for key in KEYS], sort=False)
        .min()
    )
    table["replications"] = by.size()
    table.round(4).to_csv(HERE / "robust.csv")
    print(table.round(3).to_string())


if __name__ == "__main__":
    main()
