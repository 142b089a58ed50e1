"""Out of core: 100,000 subjects x 30,000 items, three billion responses that are never in memory.

Responses are drawn anew in every pass from a seed, so that nothing lies on disk either. Each size
runs in a process of its own: starting values, a few EM iterations, peak memory. The time of the
drawing alone is measured too, since it is no part of fitting (a pass over a file takes its place).
Prints a table and saves it.

    python experiments/out_of_core/run.py [--subjects 12500,25000,50000,100000] [--items 30000]
        [--iterations 2] [--out experiments/out_of_core/table.csv]
"""

import argparse
import json
import resource
import subprocess
import sys
import time
from pathlib import Path

import numpy as np

HERE = Path(__file__).parent
LEVELS = 257
BLOCK = 500


def truth(n_items):
    """2PL parameters: log a ~ N(0.1, 0.3), b ~ N(0, 1)."""
    rng = np.random.default_rng(0)
    return np.exp(rng.normal(0.1, 0.3, n_items)), rng.normal(size=n_items)


def abilities(n_subjects):
    """N(0, 1) quantiles in random order, rounded to a fine grid."""
    from scipy.special import ndtri

    z = ndtri((np.arange(n_subjects) + 0.5) / n_subjects)
    grid = np.linspace(-4, 4, LEVELS)
    level = np.clip(np.rint((z + 4) / (grid[1] - grid[0])), 0, LEVELS - 1).astype(int)
    return grid, np.random.default_rng(1).permutation(level)


def make_source(n_subjects, n_items):
    """Responses drawn by comparing 16 random bits with the probability at the subject's level."""
    from irtcat.io import ResponseSource

    a, b = truth(n_items)
    grid, level = abilities(n_subjects)
    p = 1 / (1 + np.exp(-a * (grid[:, None] - b)))
    threshold = np.rint(p * 65535).astype(np.uint16)

    def blocks():
        for start in range(0, n_subjects, BLOCK):
            rng = np.random.Generator(np.random.SFC64(start))
            rows = level[start : start + BLOCK]
            bits = np.frombuffer(rng.bytes(2 * len(rows) * n_items), np.uint16)
            out = np.empty((len(rows), n_items), np.int8)
            for i, (row, at) in enumerate(zip(bits.reshape(len(rows), -1), rows, strict=True)):
                np.less(row, threshold[at], out=out[i].view(bool))
            yield out

    return ResponseSource(n_subjects, n_items, blocks)


def work(n_subjects, n_items, iterations):
    """One size; its figures as JSON on stdout."""
    import jax

    import irtcat

    jax.numpy.zeros(1).block_until_ready()
    source = make_source(n_subjects, n_items)
    begin = time.perf_counter()
    n_drawn = sum(len(block) for block in source.blocks())
    drawing = time.perf_counter() - begin
    base = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    told = []

    def progress(iteration, log_posterior, step):
        told.append(time.perf_counter())
        print(f"  iteration {iteration}: {log_posterior:.1f}, step {step:.2g}", file=sys.stderr)

    begin = time.perf_counter()
    fit = irtcat.fit(
        source,
        "2pl",
        irtcat.EM(max_iterations=iterations),
        standard_errors="none",
        progress=progress,
    )
    total = time.perf_counter() - begin
    a, b = truth(n_items)
    slope, intercept = fit.bank.parameters().T
    each = np.diff(told)
    out = {
        "subjects": n_drawn,
        "items": n_items,
        "responses": n_drawn * n_items,
        "iterations": fit.n_iterations,
        "drawing_s": drawing,
        "start_and_first_s": told[0] - begin,
        "per_iteration_s": float(each.mean()) if len(each) else float("nan"),
        "total_s": total,
        "peak_MB": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
        "before_MB": base,
        "log_likelihood": fit.log_likelihood,
        "latent_sd": fit.latent_sd,
        "converged": fit.converged,
        "rmse_a": float(np.sqrt(np.mean((slope - a) ** 2))),
        "rmse_b": float(np.sqrt(np.mean((-intercept / slope - b) ** 2))),
        "cor_b": float(np.corrcoef(-intercept / slope, b)[0, 1]),
    }
    print(json.dumps(out))


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--subjects", default="12500,25000,50000,100000")
    parser.add_argument("--items", type=int, default=30000)
    parser.add_argument("--iterations", type=int, default=2)
    parser.add_argument("--out", default=str(HERE / "table.csv"))
    parser.add_argument("--one", type=int, help="run this size here (used by the script itself)")
    options = parser.parse_args()
    if options.one:
        work(options.one, options.items, options.iterations)
        return
    import pandas as pd

    rows = []
    for n in map(int, options.subjects.split(",")):
        command = [sys.executable, __file__, "--one", str(n), "--items", str(options.items)]
        command += ["--iterations", str(options.iterations)]
        done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
        rows.append(json.loads(done.stdout.splitlines()[-1]))
        print(pd.Series(rows[-1]).to_string(), "\n", flush=True)
    table = pd.DataFrame(rows)
    table.round(5).to_csv(options.out, index=False)
    print(table.round(3).to_string(index=False))


if __name__ == "__main__":
    main()
