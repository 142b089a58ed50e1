"""Do 95 % intervals of item parameters hold the truth 95 % of the time?

Simulates a 2PL, fits it, and counts how often slope and intercept lie within 1.96 standard
errors of the truth, pooled over items and replications; for the full and the item-by-item
("block") standard errors.

    python experiments/recovery/coverage.py --out experiments/recovery/coverage.csv
"""

import argparse
import time

import numpy as np
import pandas as pd

import irtcat

CASES = [("full", 1000, 20), ("full", 2000, 40), ("block", 1000, 150)]


def one(rng, n_subjects, n_items, which):
    """Coverage indicators and z-scores of one replication, items x (slope, intercept)."""
    a = np.exp(rng.normal(0.1, 0.3, n_items))
    b = rng.normal(0, 1, n_items)
    truth = np.stack([a, -a * b], axis=1)
    theta = rng.normal(size=n_subjects)
    p = 1 / (1 + np.exp(-(theta[:, None] * a - a * b)))
    x = (rng.random(p.shape) < p).astype(np.int8)
    fit = irtcat.fit(irtcat.Responses.from_array(x), "2pl", standard_errors=which)
    se = np.sqrt(np.stack([fit.bank.covariance[:, i, i] for i in (0, 1)], axis=1))
    return (fit.bank.parameters() - truth) / se, fit.converged


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--replications", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", default="experiments/recovery/coverage.csv")
    options = parser.parse_args()
    rows = []
    for which, n_subjects, n_items in CASES:
        rng = np.random.default_rng(options.seed)
        start = time.perf_counter()
        results = [one(rng, n_subjects, n_items, which) for _ in range(options.replications)]
        z = np.stack([r[0] for r in results])
        covered = np.abs(z) < 1.959964
        # Items of one replication share its sample, so the Monte-Carlo error is over replications.
        error = covered.mean((1, 2)).std(ddof=1) / np.sqrt(len(z))
        rows.append(
            {
                "standard_errors": which,
                "subjects": n_subjects,
                "items": n_items,
                "replications": len(z),
                "coverage": covered.mean(),
                "mc_error": error,
                "coverage_slope": covered[..., 0].mean(),
                "coverage_intercept": covered[..., 1].mean(),
                "mean_z": z.mean(),
                "sd_z": z.std(),
                "converged": np.mean([r[1] for r in results]),
                "seconds": time.perf_counter() - start,
            }
        )
        print(pd.DataFrame(rows[-1:]).round(4).to_string(index=False, header=len(rows) == 1))
    pd.DataFrame(rows).round(5).to_csv(options.out, index=False)


if __name__ == "__main__":
    main()
