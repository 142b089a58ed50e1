"""Do the intervals of `irtcat.compare` hold, and how often does it raise a false alarm?

Pairs of models less than five points apart are compared on random subsets of k items; their full
scores are known. "paired" knows the items run only; "assisted" also knows the old model's answers
to all items. Simulated models by default; ``--data FOLDER`` adds every ``responses_*.npz`` there.
"Wrong" is the share of verdicts on the wrong side ("worse" of a model that is not, or the reverse).

    python experiments/comparison/run.py [--data FOLDER] [--out experiments/comparison]
"""

import argparse
from pathlib import Path

import numpy as np
import pandas as pd

import irtcat
from irtcat.selection import Subset

KS = (10, 30, 100, 300)
CLOSE = 0.05


def simulated(seed=0):
    rng = np.random.default_rng(seed)
    bank = irtcat.ItemBank.from_parameters(
        a=rng.lognormal(0.1, 0.4, 800), b=rng.normal(-0.5, 1.2, 800)
    )
    return bank.simulate(rng.normal(size=150), seed=seed)


def rows(name, responses, repeats):
    """One row per k and method."""
    responses = responses.without_duplicate_subjects()
    X, rng = responses.to_numpy(), np.random.default_rng(0)
    full, ids = X.mean(axis=1), responses.item_ids.astype(str)
    pairs = np.argwhere(np.abs(full[:, None] - full) < CLOSE)
    pairs = pairs[pairs[:, 0] != pairs[:, 1]]
    for k in (k for k in KS if k < len(ids)):
        seen = {"paired": [], "assisted": []}
        for _ in range(repeats):
            old, new = pairs[rng.integers(len(pairs))]
            at = np.sort(rng.permutation(len(ids))[:k])
            both = responses.subset(subjects=[old, new])
            others = responses.subset(subjects=np.setdiff1d(np.arange(len(X)), [old, new]))
            subset = Subset(
                ids[at], np.full(k, 1 / k), np.full(k, k / len(ids)), np.zeros(k), "random", 0
            )
            true = full[new] - full[old]
            for method, out in seen.items():
                told = irtcat.compare(others, subset, both, method=method)
                wrong = (told.verdict == "better" and true <= 0) or (
                    told.verdict == "worse" and true >= 0
                )
                out.append(
                    {
                        "coverage": told.lower <= true <= told.upper,
                        "wrong": wrong,
                        "told": told.verdict != "cannot tell",
                        "width": 100 * (told.upper - told.lower),
                        "error": 100 * abs(told.difference - true),
                    }
                )
        for method, out in seen.items():
            means = pd.DataFrame(out).astype(float).mean()
            error = np.sqrt(means["coverage"] * (1 - means["coverage"]) / repeats)
            row = {"data": name, "k": k, "method": method, **means, "coverage_se": error}
            print(pd.Series(row).to_frame().T.to_string(index=False, header=False), flush=True)
            yield row


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path)
    parser.add_argument("--repeats", type=int, default=1000)
    parser.add_argument("--out", type=Path, default=Path(__file__).parent)
    options = parser.parse_args()
    found = {"simulated": simulated()}
    for path in sorted(options.data.glob("responses_*.npz")) if options.data else []:
        found[path.stem.removeprefix("responses_")] = irtcat.read_responses(
            path, duplicates="suffix"
        )
    table = pd.DataFrame(row for name, r in found.items() for row in rows(name, r, options.repeats))
    table.round(4).to_csv(options.out / "coverage.csv", index=False)


if __name__ == "__main__":
    main()
