"""Where does a fit of several abilities spend its time? E-step, M-step, population, covariance.

Each row is a process of its own without programs on disk: a first fit, then warm ones, of which the
last is timed part by part (every part waits for its result, so that parts add up). Seconds are of
the processor, so that other work on the machine does not count; for one thread set
OPENBLAS_NUM_THREADS=1 and XLA_FLAGS=--xla_cpu_multi_thread_eigen=false. "bare" is one dense E-step
in numpy over 31 nodes for each of two abilities and 15 for each of three (961 and 3,375), float64:
two products, exponentials, normalisation; "products" its two products alone.

    python experiments/several_abilities/parts.py [--only 0 3] [--out parts.csv]
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import pandas as pd

CASES = {
    "2pl, 2 correlated, 2000 x 20": ("2pl", 2000, 20, 2, "confirmatory"),
    "2pl, 2 exploratory, 2000 x 20": ("2pl", 2000, 20, 2, "exploratory"),
    "2pl, 3 correlated, 2000 x 30": ("2pl", 2000, 30, 3, "confirmatory"),
    "graded, 2 correlated, 1500 x 20": ("graded", 1500, 20, 2, "confirmatory"),
    "2pl, bifactor of 4, 2000 x 24": ("2pl", 2000, 24, 4, "bifactor"),
    "2pl, 2 correlated, 10000 x 60": ("2pl", 10000, 60, 2, "confirmatory"),
    "2pl, 1 ability, 2000 x 20": ("2pl", 2000, 20, 1, "one"),
}
BARE_NODES = {1: 121, 3: 3375}
"""Nodes of the bare E-step by number of abilities; 961 for all others."""

WARM = 2
"""Number of warm fits before the one that is timed part by part."""


def data(model, n, m, dims, kind):
    """Answers of correlated abilities (.5), each measured by every dims-th item; and options."""
    rng = np.random.default_rng(0)
    at = np.arange(m) % dims
    theta = np.sqrt(0.5) * rng.normal(size=(n, 1)) + np.sqrt(0.5) * rng.normal(size=(n, dims))
    slope, intercept = rng.lognormal(0, 0.3, m), rng.normal(size=m)
    eta = slope * theta[:, at]

    def answers(shift):
        return (rng.random((n, m)) < 1 / (1 + np.exp(-(eta + intercept - shift)))).astype(int)

    x = answers(0.0) + answers(1.0) if model == "graded" else answers(0.0)
    pattern = (at[:, None] == np.arange(dims)).astype(int)
    return x, {
        "one": {},
        "confirmatory": {"pattern": pattern, "correlated": True},
        "exploratory": {"dims": dims},
        "bifactor": {"structure": "bifactor", "pattern": at},
    }[kind]


def bare(n, m, n_nodes):
    """Seconds of a dense E-step in numpy, and of its two products."""
    rng = np.random.default_rng(1)
    x, eta = (rng.random((n, m)) < 0.5).astype(float), rng.normal(size=(m, n_nodes))
    base = np.log1p(np.exp(eta)).sum(0)
    best = np.full(2, np.inf)
    for _ in range(3):
        start = time.process_time()
        log_lik = x @ eta
        first = time.process_time() - start
        log_lik -= base
        log_lik -= log_lik.max(1, keepdims=True)
        np.exp(log_lik, out=log_lik)
        log_lik /= log_lik.sum(1, keepdims=True)
        middle = time.process_time()
        log_lik.T @ x
        end = time.process_time()
        best = np.minimum(best, [end - start, first + end - middle])
    return best


def timed(seconds, part, function):
    """The function, which waits for its result and adds its seconds to a part."""
    import jax

    def call(*args, **kwargs):
        start = time.process_time()
        out = jax.block_until_ready(function(*args, **kwargs))
        seconds[part] = seconds.get(part, 0.0) + time.process_time() - start
        return out

    return call


def profile(case):
    """One row: seconds of the parts of a fit."""
    start = time.process_time()
    from irtcat import fit
    from irtcat.fitting import design, marginal, multidimensional, refinement, unidimensional
    from irtcat.fitting.em import iteration

    model, n, m, *_ = CASES[case]
    x, options = data(*CASES[case])
    row = {"fit": case, "imports": time.process_time() - start}
    start = time.process_time()
    result = fit(x, model, **options)
    row["first"] = time.process_time() - start
    for _ in range(WARM):
        start = time.process_time()
        result = fit(x, model, standard_errors="none", **options)
        row["warm"] = time.process_time() - start
    start = time.process_time()
    fit(x, model, **options)
    row["warm, with errors"] = time.process_time() - start
    seconds: dict[str, float] = {}
    iteration.sums_at = timed(seconds, "E-step", iteration.sums_at)
    refinement.sums_at = iteration.sums_at
    iteration.em_update = timed(seconds, "M-step", iteration.em_update)
    shown = refinement.run_em
    refinement.run_em = timed(seconds, "iterations", shown)
    unidimensional.run_covered = timed(seconds, "iterations", unidimensional.run_covered)
    name = "finer_log_likelihood"
    setattr(multidimensional, name, timed(seconds, "finer check", getattr(multidimensional, name)))
    refinement.modes_of = timed(seconds, "modes", refinement.modes_of)
    for module in (design, unidimensional):
        module.set_up = timed(seconds, "set-up", module.set_up)
    marginal.fit_of = timed(seconds, "bank", marginal.fit_of)
    start = time.process_time()
    result = fit(x, model, standard_errors="none", **options)
    total = time.process_time() - start
    n_iterations = result.n_iterations
    row["iterations"], row["log-likelihood"] = n_iterations, result.log_likelihood
    row["iteration"] = seconds["iterations"] / n_iterations
    nodes = result.bank.provenance.get("nodes", 121)
    row["nodes"] = nodes
    row["bare"], row["products"] = bare(n, m, BARE_NODES.get(CASES[case][3], 961))
    # The E-steps after the iterations (identified axes, finer check) count in those parts.
    row |= {f"{part} s": value for part, value in sorted(seconds.items())}
    outside = ("iterations", "finer check", "modes", "set-up", "bank")
    row["rest s"] = total - sum(seconds.get(part, 0.0) for part in outside)
    return row


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", type=int, nargs="+", help="numbers of rows, from 0")
    parser.add_argument("--row", help=argparse.SUPPRESS)
    parser.add_argument("--out", type=Path, help="also write the table as CSV")
    arguments = parser.parse_args()
    if arguments.row:
        print(json.dumps(profile(arguments.row)))
        return
    names = list(CASES)
    rows = []
    for name in names if arguments.only is None else [names[i] for i in arguments.only]:
        with tempfile.TemporaryDirectory() as folder:
            done = subprocess.run(
                [sys.executable, "-W", "ignore", __file__, "--row", name],
                env=os.environ | {"IRTCAT_CACHE": folder},
                capture_output=True,
                text=True,
                check=True,
            )
        rows.append(json.loads(done.stdout.splitlines()[-1]))
        print(pd.Series(rows[-1]).to_string(), flush=True)
    if arguments.out:
        pd.DataFrame(rows).round(4).to_csv(arguments.out, index=False)


if __name__ == "__main__":
    main()
