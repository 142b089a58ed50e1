"""How many iterations EM takes, with and without parameter expansion and extrapolation.

Both ways stop by the same rule. Prints a table and saves it: iterations, and the log-posterior
that each reached (plain EM's is never higher than by rounding).

    python experiments/em_iterations/run.py [--out experiments/em_iterations/table.csv]
"""

import argparse
from pathlib import Path

import numpy as np
import pandas as pd

import irtcat
from irtcat.responses.datasets import load


def simulate(n_subjects, n_items, c=0.0, d=1.0, seed=0):
    """Responses of a N(0, 1) population: a uniform on (.7, 1.8), b ~ N(0, .8)."""
    rng = np.random.default_rng(seed)
    bank = irtcat.ItemBank.from_parameters(
        a=rng.uniform(0.7, 1.8, n_items), b=rng.normal(0, 0.8, n_items), c=c, d=d
    )
    return bank.simulate(rng.normal(size=n_subjects), seed=seed + 1)


def several(n_subjects, n_items, dims, seed=0):
    """Right/wrong responses that call on ``dims`` abilities in turn."""
    rng = np.random.default_rng(seed)
    theta = rng.normal(size=(n_subjects, dims))
    slope = rng.uniform(0.7, 1.8, n_items)
    z = slope * theta[:, np.arange(n_items) % dims] + rng.normal(0, 1, n_items)
    return irtcat.Responses.from_array((rng.random(z.shape) < 1 / (1 + np.exp(-z))).astype(int))


SLOPE = {"slope": (1.0, 0.5)}
BOTH = {"slope": (1.0, 0.5), "intercept": (0.0, 1.0)}


def cases():
    """Name, responses, model and further arguments."""
    yield "lsat6", load("lsat6"), "2pl", {}
    yield "1000 x 50", simulate(1000, 50), "2pl", {}
    yield "30 x 300", simulate(30, 300), "2pl", {}
    yield "500 x 20, priors", simulate(500, 20), "2pl", {"priors": BOTH}
    yield "2000 x 10, prior on slopes", simulate(2000, 10), "2pl", {"priors": SLOPE}
    yield "lsat7", load("lsat7"), "3pl", {}
    yield "500 x 20", simulate(500, 20, 0.2), "3pl", {}
    yield "500 x 20, prior on slopes", simulate(500, 20, 0.2), "3pl", {"priors": SLOPE}
    yield "2000 x 50", simulate(2000, 50, 0.2), "3pl", {}
    yield "60 x 20", simulate(60, 20, 0.2), "3pl", {}
    yield "200 x 30", simulate(200, 30, 0.2, 0.95), "4pl", {}
    yield "1000 x 20", simulate(1000, 20, 0.2, 0.95), "4pl", {}
    yield "3000 x 40", simulate(3000, 40, 0.2, 0.95), "4pl", {}
    yield "1000 x 20, 2 abilities", several(1000, 20, 2), "m2pl", {"dims": 2}
    yield "1000 x 24, 3 abilities", several(1000, 24, 3), "m2pl", {"dims": 3}


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=Path(__file__).with_name("table.csv"))
    options = parser.parse_args()
    rows = []
    for name, responses, model, arguments in cases():
        quick, plain = (
            irtcat.fit(
                responses,
                model,
                irtcat.EM(accelerate=on, expand=on, max_iterations=5000),
                standard_errors="none",
                **arguments,
            )
            for on in (True, False)
        )
        rows.append(
            {
                "data": name,
                "model": model,
                "iterations": quick.n_iterations,
                "plain_em": plain.n_iterations,
                "ratio": plain.n_iterations / quick.n_iterations,
                "log_posterior": quick.log_posterior,
                "gain_over_plain": quick.log_posterior - plain.log_posterior,
                "both_converged": quick.converged and plain.converged,
            }
        )
        print(pd.DataFrame(rows[-1:]).to_string(index=False, header=False), flush=True)
    table = pd.DataFrame(rows)
    table.round(6).to_csv(options.out, index=False)
    print(table.round(4).to_string(index=False))


if __name__ == "__main__":
    main()
