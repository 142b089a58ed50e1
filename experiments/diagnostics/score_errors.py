"""Reliable change and errors of single scores: do the rates hold?

    python experiments/diagnostics/score_errors.py [--replications 10]

``reliable_change.csv``: shares of subjects with a "rise" or a "fall" among 5,000 who answer a
2PL test twice, of whom nobody changed (nominal .05), and the share of rises where all rose by one
SD; means of ten replications. Errors are each subject's own (abilities by WLE or ML, with the true
items or items fitted to 500 others), or those of Jacobson & Truax with coefficient alpha. Also by
true ability: at most 1 SD from the mean, and beyond.

``score_errors.csv``: SD of the sum score of 20,000 subjects at an ability, over the standard error
of `sum_score_errors` with true items, and with items fitted to 500 subjects (mean over
replications), of `binomial_errors` (root mean square over these subjects' scores, Lord and Keats),
and the coverage of its interval of the true score.
"""

import argparse
from pathlib import Path

import numpy as np
import pandas as pd

import irtcat
from irtcat import ItemBank, diagnose

HERE = Path(__file__).parent
N, N_CALIBRATION = 5000, 500
THETA = (-2.0, -1.0, 0.0, 1.0, 2.0)


def test(n_items: int) -> ItemBank:
    """A 2PL test."""
    rng = np.random.default_rng(n_items)
    return ItemBank.from_parameters(a=rng.lognormal(0.2, 0.3, n_items), b=rng.normal(size=n_items))


def fitted(bank: ItemBank, seed: int) -> ItemBank:
    """The items, calibrated by other subjects."""
    theta = np.random.default_rng([seed, 1]).normal(size=N_CALIBRATION)
    return irtcat.fit(bank.simulate(theta, seed=10**6 + seed), "2pl").bank


def changes(bank: ItemBank, calibrated: ItemBank, seed: int, rise: float) -> dict:
    """The decisions on all subjects, by kind of error, and their true abilities."""
    theta = np.random.default_rng([seed, 2]).normal(size=N)
    answers = [bank.simulate(theta + rise * k, seed=10 * seed + 2 * k + (rise > 0)) for k in (0, 1)]
    found = {}
    for name, items, method in (
        ("WLE, true items", bank, "wle"),
        ("WLE, fitted items", calibrated, "wle"),
        ("ML, true items", bank, "ml"),
    ):
        found[name] = diagnose.reliable_change(*(irtcat.score(items, x, method) for x in answers))
    alpha = diagnose.coefficient_alpha(answers[0])
    sums = [x.values.sum(axis=1) for x in answers]
    found["sum scores, alpha"] = diagnose.reliable_change(*sums, reliability=alpha)
    return {name: (table["change"].to_numpy(), np.abs(theta) <= 1) for name, table in found.items()}


def reliable(replications: int) -> pd.DataFrame:
    """Rates of rises and falls."""
    rows = []
    for n_items in (20, 40):
        bank, parts = test(n_items), []
        for seed in range(replications):
            calibrated = fitted(bank, seed)
            for rise in (0.0, 1.0):
                for name, (change, middle) in changes(bank, calibrated, seed, rise).items():
                    rates = (change == "rise") if rise else (change != "none")
                    parts.append(
                        (name, rise, rates.mean(), rates[middle].mean(), rates[~middle].mean())
                    )
        table = pd.DataFrame(parts, columns=["errors", "rise", "all", "within 1 SD", "beyond"])
        mean = table.pivot_table(index="errors", columns="rise", sort=False)
        row = pd.DataFrame(
            {
                "unchanged": mean["all", 0.0],
                "unchanged, within 1 SD": mean["within 1 SD", 0.0],
                "unchanged, beyond 1 SD": mean["beyond", 0.0],
                "rose by 1 SD": mean["all", 1.0],
            }
        )
        rows.append(row.reset_index().assign(items=n_items))
        print(rows[-1].round(3).to_string(index=False), flush=True)
    return pd.concat(rows)[["items", *rows[0].columns[:-1]]]


def single(replications: int) -> pd.DataFrame:
    """Errors of sum scores at an ability."""
    rows = []
    for n_items in (20, 40):
        bank = test(n_items)
        expected = diagnose.sum_score_errors(bank, THETA)
        of_fits = np.mean(
            [
                diagnose.sum_score_errors(fitted(bank, seed), THETA)["se"]
                for seed in range(replications)
            ],
            axis=0,
        )
        population = np.random.default_rng(0).normal(size=5000)
        binomial = diagnose.binomial_errors(bank.simulate(population, seed=1))
        for k, theta in enumerate(THETA):
            sums = bank.simulate(np.full(20_000, theta), seed=k).values.sum(axis=1)
            of_scores, true = binomial.loc[sums], expected["expected"].iloc[k]
            inside = (of_scores["lower"] <= true) & (true <= of_scores["upper"])
            sd = sums.std()
            rows.append(
                {
                    "items": n_items,
                    "theta": theta,
                    "sd": sd,
                    "sd / se": sd / expected["se"].iloc[k],
                    "sd / se, fitted items": sd / of_fits[k],
                    "sd / se, binomial": sd / np.sqrt((of_scores["se"] ** 2).mean()),
                    "sd / se, Keats": sd / np.sqrt((of_scores["se_keats"] ** 2).mean()),
                    "coverage, binomial": inside.mean(),
                }
            )
    return pd.DataFrame(rows)


def main() -> None:
    """Both tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--replications", type=int, default=10)
    replications = parser.parse_args().replications
    errors = single(replications).round(3)
    errors.to_csv(HERE / "score_errors.csv", index=False)
    print(errors.to_string(index=False), flush=True)
    reliable(replications).round(4).to_csv(HERE / "reliable_change.csv", index=False)


if __name__ == "__main__":
    main()
