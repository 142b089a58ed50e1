"""Does IRT ability rank ten subjects better than accuracy does?

The evaluation-metric example of Lalor et al. (2024): ten subjects with abilities U(-4, 4) and 1,000
items, of which 800 are easy, 150 moderate and 50 hard. The tutorial does not print the bands'
difficulties; U(-4, 0), U(0, 3) and U(3, 4) come near its table (`expected` prints by how much).

Cases: all items valid; 5 % invalid (coin flips), the tutorial's "similar setup"; 20 % of the
moderate and hard ones invalid, which the floor of .1 in its table looks like; slopes that differ
between items (log a ~ N(0, .5)). Abilities: of a 2PL fitted by EM to the same ten subjects, and
with known items (invalid ones known to be flat). Kendall's tau-b against the true abilities, as
accuracy's. Cases that are not run keep their rows.

    python experiments/tutorial_metrics/run.py [--seeds 200] [--cases 0,1,2,3] [--out FOLDER]
"""

import argparse
from pathlib import Path

import numpy as np
import pandas as pd
from scipy.special import expit
from scipy.stats import kendalltau

import irtcat

BANDS = {"easy": (800, -4.0, 0.0), "moderate": (150, 0.0, 3.0), "hard": (50, 3.0, 4.0)}
BAND = np.repeat(list(BANDS), [n for n, _, _ in BANDS.values()])
CASES = {
    "all valid": ((0, 0, 0), 0.0),
    "5 % invalid": ((0.05, 0.05, 0.05), 0.0),
    "20 % of moderate and hard invalid": ((0, 0.2, 0.2), 0.0),
    "slopes differ": ((0, 0, 0), 0.5),
}
PRINTED = {  # true ability, accuracy on easy, moderate, hard items: the tutorial's table
    -3.506: (0.218, 0.093, 0.100),
    -1.214: (0.650, 0.113, 0.120),
    0.232: (0.848, 0.293, 0.120),
    2.50: (0.971, 0.686, 0.340),
}


def simulate(case, seed):
    """Answers, abilities, slopes (0 where the item is invalid) and difficulties."""
    shares, spread = CASES[case]
    rng = np.random.default_rng(seed)
    theta = np.sort(rng.uniform(-4, 4, 10))
    b = np.concatenate([rng.uniform(low, high, n) for n, low, high in BANDS.values()])
    invalid = rng.random(len(b)) < np.repeat(shares, [n for n, _, _ in BANDS.values()])
    a = np.where(invalid, 0.0, np.exp(spread * rng.normal(size=len(b))))
    return (rng.random((10, len(b))) < expit(a * (theta[:, None] - b))).astype(float), theta, a, b


def abilities(X, a, b):
    """Ability by EM from these subjects alone, and with the items known."""
    fit = irtcat.fit(irtcat.Responses.from_array(X), "2pl", standard_errors="none")
    bank = irtcat.ItemBank.from_parameters(np.where(a > 0, a, 1), b, population_sd=4 / np.sqrt(3))
    known = irtcat.score(bank, irtcat.Responses.from_array(np.where(a > 0, X, np.nan))).theta
    return {"ability": fit.abilities.theta, "ability, items known": known}


def one(case, seed):
    """A row for every score: its tau, and that of accuracy."""
    X, theta, a, b = simulate(case, seed)
    scores = {f"accuracy, {band}": X[:, band == BAND].mean(axis=1) for band in BANDS}
    scores = {"accuracy": X.mean(axis=1), **scores, **abilities(X, a, b)}
    table = pd.DataFrame({"true": theta, **scores})
    taus = {name: kendalltau(score, theta).statistic for name, score in scores.items()}
    return taus, table


def summary(runs):
    """How often each score ranks better, equally well and worse than accuracy."""
    rows = []
    for case, part in runs.groupby("case", sort=False):
        for name in part.columns.drop(["case", "seed"]):
            gap = part[name].fillna(0) - part["accuracy"]
            rows.append(
                {
                    "case": case,
                    "score": name,
                    "data_sets": len(part),
                    "tau": part[name].mean(),
                    "better": (gap > 1e-9).mean(),
                    "equal": (gap.abs() <= 1e-9).mean(),
                    "worse": (gap < -1e-9).mean(),
                    "gap": gap.mean(),
                    "gap_se": gap.std() / np.sqrt(len(part)),
                }
            )
    return pd.DataFrame(rows)


def figure(table, path):
    """Shares better and worse than accuracy."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    shown = table[table["score"].str.startswith("ability")].iloc[::-1]
    names, at = shown["case"] + "\n" + shown["score"], np.arange(len(shown))
    fig, axis = plt.subplots(figsize=(7, 4.2), layout="constrained")
    axis.barh(at, shown["better"], color="tab:green", label="ability ranks better")
    axis.barh(at, -shown["worse"], color="tab:red", label="accuracy ranks better")
    axis.set_yticks(at, names, fontsize=7)
    axis.axvline(0, color="black", lw=0.8)
    axis.set_xlabel("share of data sets (the rest: equal)")
    fig.legend(fontsize=8, ncols=2, loc="outside upper center")
    fig.savefig(path, dpi=120)


def expected():
    """Accuracies by band that the assumed difficulties give for the tutorial's subjects."""
    rng = np.random.default_rng(0)
    for theta, printed in PRINTED.items():
        for (band, (_, low, high)), seen in zip(BANDS.items(), printed, strict=True):
            p = expit(theta - rng.uniform(low, high, 100_000)).mean()
            yield {"true": theta, "band": band, "printed": seen, "valid": p, "flips": 0.8 * p + 0.1}


def earlier(path, cases):
    """Rows on file of the cases that are not run now."""
    if not path.exists():
        return []
    there = pd.read_csv(path)
    return there[~there["case"].isin(cases)].to_dict("records")


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=200)
    parser.add_argument("--cases", default="0,1,2,3")
    parser.add_argument("--out", type=Path, default=Path(__file__).parent)
    options = parser.parse_args()
    print(pd.DataFrame(expected()).round(3).to_string(index=False), flush=True)
    path = options.out / "runs.csv"
    rows = earlier(path, [list(CASES)[int(k)] for k in options.cases.split(",")])
    for case in (list(CASES)[int(k)] for k in options.cases.split(",")):
        for seed in range(options.seeds):
            taus, table = one(case, seed)
            rows.append({"case": case, "seed": seed, **taus})
            if seed == 0 and case == "5 % invalid":
                table.round(3).to_csv(options.out / "example.csv", index=False)
        pd.DataFrame(rows).to_csv(path, index=False, float_format="%.4f")
        print(case, flush=True)
    table = summary(pd.DataFrame(rows))
    table.to_csv(options.out / "summary.csv", index=False, float_format="%.4f")
    figure(table, options.out / "summary.png")
    print(table.round(3).to_string(index=False))


if __name__ == "__main__":
    main()
