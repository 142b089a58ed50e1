"""Priors on slopes for few calibrators: how well b orders the items, with and without.

    python experiments/training_filters/few_calibrators.py [--draws 8] [--out FOLDER]

Each draw has 100 items (b ~ N(0, 1.5), log a ~ N(0, 0.3)) and n calibrators (theta ~ N(0, 1)),
who answer every item once (2pl) or 16 times (binomial). `few_calibrators.csv` has, by model, n and
prior of slopes, means over draws of the Pearson and the Spearman correlation of the true
difficulties with the estimates b (also those that `to_frame` leaves out), with the difficulties
that filters rank by and with the share of wrong answers; the share of items whose difficulty is
determined; the RMSE of abilities, in SDs of the bank's population from its mean; and the lowest
correlation of b over draws.
"""

import argparse
from pathlib import Path

import numpy as np
import pandas as pd
from scipy.stats import spearmanr

import irtcat
from irtcat import Responses
from irtcat.bank import ranking

SIZES = (8, 16, 30, 60, 200)
N_ITEMS, TRIALS = 100, 16
PRIORS = {
    "off": {"slope": None},
    "N(1, 0.5)": {"slope": (1.0, 0.5)},
    "logN(0, 0.5)": {"slope": ("lognormal", 0.0, 0.5)},
    "logN(0, 0.3)": {"slope": ("lognormal", 0.0, 0.3)},
}


def correlations(model: str, n: int, prior: dict[str, object], draw: int) -> dict[str, float]:
    """How well one fit orders the items."""
    rng = np.random.default_rng([draw, n])
    b, a = rng.normal(0, 1.5, N_ITEMS), np.exp(rng.normal(0, 0.3, N_ITEMS))
    theta = rng.normal(size=n)
    p = 1 / (1 + np.exp(-a * (theta[:, None] - b)))
    if model == "binomial":
        responses = Responses.from_counts(rng.binomial(TRIALS, p), TRIALS)
    else:
        responses = Responses.from_array((rng.random(p.shape) < p).astype(int))
    fit = irtcat.fit(responses, model, priors=prior)
    bank, population = fit.bank, fit.bank.population
    error = (fit.abilities.theta - population.mean) / population.sd - theta
    slope, intercept = bank.parameters().T
    estimates = {
        "b": -intercept / slope,
        "ranked": ranking(bank).b,
        "wrong": 1 - bank.statistics["proportion_correct"].to_numpy(),
    }
    row = {f"r_{name}": float(np.corrcoef(x, b)[0, 1]) for name, x in estimates.items()}
    row |= {f"rank_r_{name}": float(spearmanr(x, b)[0]) for name, x in estimates.items()}
    rmse = float(np.sqrt(np.mean(error**2)))
    return {**row, "determined": float(bank.determined.mean()), "rmse_theta": rmse}


def main() -> None:
    """Write the table."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--draws", type=int, default=8)
    parser.add_argument("--out", type=Path, default=Path(__file__).parent)
    options = parser.parse_args()
    rows = []
    for model in ("2pl", "binomial"):
        for n in SIZES:
            for name, prior in PRIORS.items():
                each = pd.DataFrame(
                    [correlations(model, n, prior, draw) for draw in range(options.draws)]
                )
                row = {"model": model, "n": n, "prior": name, **each.mean().round(3)}
                rows.append({**row, "least_r_b": round(float(each["r_b"].min()), 3)})
                print(rows[-1], flush=True)
    pd.DataFrame(rows).to_csv(options.out / "few_calibrators.csv", index=False)


if __name__ == "__main__":
    main()
