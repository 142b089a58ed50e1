"""Recovery of items and correlations, and coverage of 95 % intervals, with simulated subjects.

Right/wrong answers to items that each measure one ability; slopes lognormal (log mean 0, SD .2),
intercepts Normal, all correlations .5. The items are the same in all replications, the subjects and
their answers new ones. Intervals are estimate +- 1.96 standard errors of all parameters together.
Bias and RMSE are means over the parameters of a kind; the Monte Carlo error of a coverage is that
of replications as independent draws; replications whose fit reports no errors do not count in it.

    python experiments/several_abilities/recovery.py --abilities 3 [--seconds 100] [--out x.csv]
"""

import argparse
import time
from pathlib import Path

import numpy as np
import pandas as pd

from irtcat import fit

DESIGNS = {3: (1000, 18), 6: (600, 24)}
"""Subjects and items by number of abilities."""

CORRELATION = 0.5


def replication(seed, pattern, slopes, intercepts, n):
    """Estimates and standard errors of slopes, intercepts and correlations; converged or not."""
    rng = np.random.default_rng([seed, 1])
    dims = pattern.shape[1]
    common, own = rng.normal(size=(n, 1)), rng.normal(size=(n, dims))
    theta = np.sqrt(CORRELATION) * common + np.sqrt(1 - CORRELATION) * own
    p = 1 / (1 + np.exp(-(theta @ (pattern * slopes[:, None]).T + intercepts)))
    x = (rng.random(p.shape) < p).astype(int)
    result = fit(x, "2pl", pattern=pattern, correlated=True, standard_errors="full")
    at, pairs = np.nonzero(pattern), np.tril_indices(dims, -1)
    errors = np.sqrt(np.diagonal(result.bank.covariance, axis1=1, axis2=2))
    parameters = result.bank.parameters()
    of_correlations = result.bank.provenance["se_correlations"]
    if of_correlations is None:  # the information is not positive definite: no errors at all
        errors, of_correlations = np.full_like(errors, np.nan), np.full((dims, dims), np.nan)
    values = {
        "slopes": (parameters[at], errors[at]),
        "intercepts": (parameters[:, dims], errors[:, dims]),
        "correlations": (
            result.bank.population.correlations[pairs],
            np.asarray(of_correlations)[pairs],
        ),
    }
    return values, result.converged


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--abilities", type=int, choices=DESIGNS, default=3)
    parser.add_argument("--replications", type=int, default=200)
    parser.add_argument("--seconds", type=float, default=np.inf, help="of the processor, at most")
    parser.add_argument("--out", type=Path, help="also write the table as CSV")
    arguments = parser.parse_args()
    dims = arguments.abilities
    n, m = DESIGNS[dims]
    rng = np.random.default_rng(dims)
    pattern = (np.arange(m)[:, None] % dims == np.arange(dims)).astype(int)
    slopes, intercepts = rng.lognormal(0, 0.2, m), rng.normal(size=m)
    truth = {
        "slopes": slopes,
        "intercepts": intercepts,
        "correlations": np.full(dims * (dims - 1) // 2, CORRELATION),
    }
    start, converged, seen = time.process_time(), 0, {name: [] for name in truth}
    n_fits = 0
    while n_fits < arguments.replications and time.process_time() - start < arguments.seconds:
        values, ended = replication(n_fits, pattern, slopes, intercepts, n)
        n_fits, converged = n_fits + 1, converged + ended
        for name in truth:
            seen[name].append(values[name])
    rows = []
    for name, true in truth.items():
        estimate, error = np.moveaxis(np.array(seen[name]), 1, 0)
        off, has_errors = estimate - true, ~np.isnan(error).any(axis=1)
        covered = (np.abs(off) <= 1.96 * error)[has_errors].mean(axis=1)
        rows.append(
            {
                "abilities": dims,
                "subjects": n,
                "items": m,
                "replications": n_fits,
                "converged": converged,
                "of": name,
                "bias": off.mean(),
                "RMSE": np.sqrt((off**2).mean()),
                "mean standard error": error[has_errors].mean(),
                "coverage": covered.mean(),
                "its error": covered.std(ddof=1) / np.sqrt(len(covered)),
                "without errors": n_fits - len(covered),
            }
        )
    table = pd.DataFrame(rows).round(4)
    print(table.to_string(index=False))
    print(f"{time.process_time() - start:.0f} s of the processor")
    if arguments.out:
        table.to_csv(arguments.out, index=False)


if __name__ == "__main__":
    main()
