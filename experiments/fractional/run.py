"""Judge scores of uneven precision: Beta model, quasi-likelihood 2PL, or the plain mean?

Scores are drawn from a Beta model whose items differ in precision (phi from 2 to 60). Each way of
scoring is compared with the true abilities: correlation, RMSE after standardising, and Kendall's
tau-b of the ranking, means over replications.

    python experiments/fractional/run.py --out experiments/fractional/abilities.csv
"""

import argparse

import numpy as np
import pandas as pd

import irtcat
from irtcat import agreement
from irtcat.models import MODELS, Design, unpack

CASES = [(200, 20), (200, 60)]


def scores_of(rng, n_subjects, n_items):
    """Abilities and simulated scores."""
    columns = [
        np.exp(rng.normal(-0.2, 0.4, n_items)),
        rng.normal(0.3, 0.8, n_items),
        np.log(2) + rng.random(n_items) * np.log(30),
    ]
    blank = MODELS["beta"].blank(Design(np.full(n_items, 2)))
    bank = irtcat.ItemBank(unpack(blank, np.stack(columns, 1)), [f"q{j}" for j in range(n_items)])
    theta = rng.normal(size=n_subjects)
    return theta, bank.simulate(theta, seed=int(rng.integers(2**31)))


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--replications", type=int, default=10)
    parser.add_argument("--out", default="experiments/fractional/abilities.csv")
    options = parser.parse_args()
    rows = []
    for n_subjects, n_items in CASES:
        rng = np.random.default_rng(0)
        for _ in range(options.replications):
            theta, responses = scores_of(rng, n_subjects, n_items)
            ways = {"mean": (responses.to_numpy().mean(1), np.full(n_subjects, np.nan))}
            for model in ("2pl", "beta"):
                ability = irtcat.fit(responses, model, standard_errors="none").abilities
                ways[model] = ability.theta, ability.se
            z = (theta - theta.mean()) / theta.std()
            for way, (estimate, se) in ways.items():
                e = (estimate - estimate.mean()) / estimate.std()
                rows.append(
                    {
                        "subjects": n_subjects,
                        "items": n_items,
                        "scored by": {"2pl": "2pl, quasi-likelihood"}.get(way, way),
                        "correlation": np.corrcoef(estimate, theta)[0, 1],
                        "rmse": np.sqrt(((e - z) ** 2).mean()),
                        "tau_b": agreement.kendall_tau_b(estimate, theta),
                        "se": se.mean(),
                        "z_sd": ((estimate - theta) / se).std(),
                    }
                )
    keys = ["subjects", "items", "scored by"]
    table = pd.DataFrame(rows).groupby(keys, sort=False).mean().round(4)
    print(table.to_string())
    table.to_csv(options.out)


if __name__ == "__main__":
    main()
