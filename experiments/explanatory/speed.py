"""Time of fits with features beside plain ones.

    python experiments/explanatory/speed.py [--wide] [--out speed.csv]

Warm seconds (best of three, without standard errors) of a 2PL with 20 features of subjects, of
items, and of both, over the plain fit. ``--wide``: 30,000 items with 5,000 columns, 200 subjects
(one run; about 4 GB). The column ``blas_threads`` is OPENBLAS_NUM_THREADS ("all" if it is not set).
"""

import argparse
import os
import time

import numpy as np
import pandas as pd
from scipy.special import expit

import irtcat

N_FEATURES = 20


def simulated(n: int, n_items: int, columns: int, seed: int = 0):
    """Responses, and features that explain half of the variance of abilities and easiness."""
    rng = np.random.default_rng(seed)

    def explained(rows: int, width: int) -> tuple[np.ndarray, np.ndarray]:
        x = rng.standard_normal((rows, width), dtype=np.float32)
        signal = x @ rng.standard_normal(width).astype(np.float32) / np.sqrt(width)
        return x, 0.7 * signal + 0.7 * rng.standard_normal(rows)

    z, theta = explained(n, N_FEATURES)
    w, easiness = explained(n_items, columns)
    slope = rng.lognormal(0.1, 0.3, n_items)
    p = expit(theta[:, None] * slope + easiness)
    r = irtcat.Responses.from_array((rng.random(p.shape) < p).astype(np.int8))
    return r, pd.DataFrame(z, index=r.subject_ids), pd.DataFrame(w, index=r.item_ids)


def seconds(r: irtcat.Responses, repeats: int = 3, **features) -> tuple[float, irtcat.Fit]:
    """The best of several runs after a first one."""
    times = []
    for _ in range(repeats + (repeats > 1)):
        start = time.perf_counter()
        f = irtcat.fit(r, "2pl", standard_errors="none", **features)
        times.append(time.perf_counter() - start)
    return min(times[-repeats:]), f


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--wide", action="store_true")
    parser.add_argument("--out")
    options = parser.parse_args()
    sizes = [(200, 30_000, 5000)] if options.wide else [(1000, 100, 20), (5000, 200, 20)]
    rows = []
    for n, n_items, columns in sizes:
        r, z, w = simulated(n, n_items, columns)
        repeats = 1 if options.wide else 3
        plain, _ = seconds(r, repeats)
        kinds = {
            "subjects": {"subject_features": z},
            "items": {"item_features": w},
            "both": {"subject_features": z, "item_features": w},
        }
        for kind, features in kinds.items():
            if options.wide and kind != "items":
                continue
            took, f = seconds(r, repeats, **features)
            rows.append(
                {
                    "subjects": n,
                    "items": n_items,
                    "columns": columns,
                    "blas_threads": os.environ.get("OPENBLAS_NUM_THREADS", "all"),
                    "features_of": kind,
                    "plain_s": round(plain, 3),
                    "seconds": round(took, 3),
                    "ratio": round(took / plain, 2),
                    "iterations": f.n_iterations,
                    "converged": f.converged,
                }
            )
    table = pd.DataFrame(rows)
    print(table.to_string(index=False))
    if options.out:
        table.to_csv(options.out, index=False)


if __name__ == "__main__":
    main()
