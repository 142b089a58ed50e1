"""Survey weights in samples whose inclusion depends on ability: bias and coverage.

    python experiments/survey_weights/informative_sample.py [--replications 200] [--subjects 1500]

A population of ``subjects`` with theta ~ N(0.3, 1) answers eight 2PL items of a known bank, and
four new ones. Each of them is sampled with probability 1 / (1 + exp(-(theta - 1))) + .1 (able
subjects more often), and the weight of a subject is 1 over it. The population's mean and SD and a
new item are estimated without and with weights. Bias, SD over replications, mean standard error and
coverage of 95 % intervals go to informative_sample.csv; how often M2 of the weighted 2PL, which
holds, rejects it goes to model_fit.csv.
"""

import argparse
from pathlib import Path

import numpy as np
import pandas as pd
from scipy.stats import chi2

from irtcat import ItemBank, Responses, diagnose, fit

MEAN = 0.3
SLOPES = np.array([0.8, 1.0, 1.2, 1.4, 0.9, 1.1, 1.3, 1.5, 1.0, 1.2, 0.9, 1.4])
DIFFICULTIES = np.array([-1.5, -1.0, -0.5, 0.0, 0.3, 0.6, 1.0, 1.5, -0.8, 0.0, 0.5, 1.0])
N_ANCHORS = 8
WAYS = ("unweighted", "weighted, inverse information", "weighted, sandwich")


def sample(bank: ItemBank, n: int, seed: int) -> tuple[Responses, np.ndarray]:
    """Responses of the subjects who are sampled, and their weights."""
    rng = np.random.default_rng(seed)
    theta = rng.normal(MEAN, 1, n)
    answers = bank.simulate(theta, seed=seed)
    share = np.minimum(1 / (1 + np.exp(-(theta - 1))) + 0.1, 1)
    chosen = np.flatnonzero(rng.random(n) < share)
    return answers.subset(subjects=chosen), 1 / share[chosen]


def estimates(fitted) -> dict[str, tuple[float, float]]:
    """Estimates with standard errors: the population's mean, and one new item."""
    group = fitted.groups.iloc[0]
    row = fitted.bank.to_frame().loc["i10"]
    return {
        "mean of the population": (group["mean"], group["se_mean"]),
        "SD of the population": (group["sd"], group["se_sd"]),
        "a of a new item": (row["a"], row["se_a"]),
        "b of a new item": (row["b"], row["se_b"]),
    }


def main() -> None:
    """Run all replications."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--replications", type=int, default=200)
    parser.add_argument("--subjects", type=int, default=1500)
    options = parser.parse_args()
    bank = ItemBank.from_parameters(a=SLOPES, b=DIFFICULTIES)
    anchors = bank.subset(bank.item_ids[:N_ANCHORS])
    truth = {
        "mean of the population": MEAN,
        "SD of the population": 1.0,
        "a of a new item": SLOPES[9],
        "b of a new item": DIFFICULTIES[9],
    }
    rows, tests = [], []
    for seed in range(options.replications):
        responses, weights = sample(bank, options.subjects, seed)
        for way in WAYS:
            given = {"standard_errors": "full"}
            if way != "unweighted":
                given["subject_weights"] = weights
            if way == "weighted, sandwich":
                given["standard_errors"] = "sandwich"
            fitted = fit(responses, "2pl", anchors=anchors, **given)
            for name, (value, se) in estimates(fitted).items():
                inside = abs(value - truth[name]) <= 1.96 * se
                rows.append((name, way, value - truth[name], se, inside))
        free = fit(responses, "2pl", subject_weights=weights).bank
        weighted = diagnose.model_fit(free, responses, subject_weights=weights)
        uncorrected = chi2.sf(weighted.statistic * weighted.design_effect, weighted.df)
        tests.append((weighted.p < 0.05, uncorrected < 0.05, weighted.design_effect))
    table = pd.DataFrame(rows, columns=["estimate", "way", "error", "se", "inside"])
    by = table.groupby(["estimate", "way"], sort=False)
    out = pd.DataFrame(
        {
            "bias": by["error"].mean(),
            "sd": by["error"].std(),
            "mean_se": by["se"].mean(),
            "coverage": by["inside"].mean(),
        }
    )
    out.round(4).to_csv(Path(__file__).with_suffix(".csv"))
    print(out.round(3).to_string())
    names = ["rejected", "rejected without correction", "design effect"]
    rates = pd.DataFrame(np.array(tests, float), columns=names).mean().rename("mean")
    rates.round(4).to_csv(Path(__file__).with_name("model_fit.csv"), index_label="M2 at .05")
    print(rates.round(3).to_string())


if __name__ == "__main__":
    main()
