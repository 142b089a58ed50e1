"""How close variational inference and joint likelihood come to EM, on simulated 2PL data.

    python experiments/vi_vs_em/run.py --out experiments/vi_vs_em/table.csv

Each case is simulated with log a ~ N(0, 0.3), b ~ N(0, 1), theta ~ N(0, 1). Columns: seconds (wall
and CPU, the second fit of the same shape, so without compilation), marginal log-likelihood below
EM's maximum, the latent SD that fits best with the items as estimated (should be 1), root mean
square errors of a and b, correlation of the abilities with the truth.
"""

import argparse
import resource
import time

import numpy as np
import pandas as pd

import irtcat

METHODS = {
    "em": {},
    "vi, hierarchical": {"solver": "vi"},
    "vi, hierarchical, a > 0": {"solver": "vi", "positive": True},
    "vi, vague": {"solver": "vi", "priors": "vague"},
    "joint": {"solver": "joint"},
}
CASES = [(1000, 50, 1.0, 10), (5000, 200, 1.0, 2), (5000, 20000, 0.01, 1)]


def simulate(n_subjects, n_items, share, seed):
    """Responses, a, b and theta; a share of the cells is observed."""
    rng = np.random.default_rng(seed)
    a, b = np.exp(rng.normal(0, 0.3, n_items)), rng.normal(0, 1, n_items)
    theta = rng.normal(size=n_subjects)
    size = n_subjects * n_items
    cells = np.arange(size) if share == 1 else rng.choice(size, int(share * size), replace=False)
    i, j = cells // n_items, cells % n_items
    X = np.full((n_subjects, n_items), -1, np.int8)
    X[i, j] = rng.random(len(cells)) < 1 / (1 + np.exp(-a[j] * (theta[i] - b[j])))
    return irtcat.Responses.from_array(X), a, b, theta


def measure(responses, a, b, theta, warm, arguments):
    """One row of the table but for the comparison with EM."""
    for _ in range(1 + warm):
        clock, cpu = time.perf_counter(), time.process_time()
        fit = irtcat.fit(responses, "2pl", **arguments)
        clock, cpu = time.perf_counter() - clock, time.process_time() - cpu
    table = fit.bank.to_frame()
    return {
        "seconds": clock,
        "cpu_seconds": cpu,
        "steps": fit.n_iterations,
        "converged": fit.converged,
        "log_likelihood": fit.log_likelihood,
        "latent_sd": fit.latent_sd,
        "rmse_a": np.sqrt(np.mean((table["a"] - a) ** 2)),
        "rmse_b": np.sqrt(np.mean((table["b"] - b) ** 2)),
        "theta_correlation": np.corrcoef(fit.abilities.theta, theta)[0, 1],
        "elbo": fit.bank.provenance.get("elbo", np.nan),
        "peak_gb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6,
    }


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--out", required=True)
    parser.add_argument("--cases", default="0,1,2")
    out = parser.parse_args()
    rows = []
    for case in map(int, out.cases.split(",")):
        n_subjects, n_items, share, n_seeds = CASES[case]
        for seed in range(n_seeds):
            data = simulate(n_subjects, n_items, share, seed)
            # EM works on the whole table: the sparse one is left to the method made for it.
            names = METHODS if share == 1 else ["vi, hierarchical, a > 0"]
            top = np.nan
            for name in names:
                row = measure(*data, share == 1 and seed == 0, METHODS[name])
                top = row["log_likelihood"] if name == "em" else top
                about = {"subjects": n_subjects, "items": n_items, "share": share, "seed": seed}
                row["below_em"] = top - row["log_likelihood"]
                rows.append({**about, "method": name, **row})
                print(rows[-1], flush=True)
                pd.DataFrame(rows).to_csv(out.out, index=False, float_format="%.6g")


if __name__ == "__main__":
    main()
