"""Judged means: coverage and width with labels alone, drawn evenly (PPI++), and chosen.

150 labels of 2,000 items, simulated. Labels are right or wrong, or grades whose errors by the judge
differ from item to item, as the judge knows; the judge is correlated .6 with them or useless.

    python experiments/judged_means/simulation.py [--replications 2000]
"""

import argparse
import subprocess
from pathlib import Path

import numpy as np
import pandas as pd

from irtcat.agreement import judged_mean, labelling_probabilities

HERE = Path(__file__).parent
N, LABELS, CORRELATION = 2000, 150, 0.6


def right_or_wrong(rng):
    """Labels, the judge's scores, and its uncertainty; the true mean is .5."""
    a = (1 / CORRELATION**2 - 1) / 2
    q = rng.beta(a, a, N)
    return (rng.random(N) < q).astype(float), q, np.sqrt(q * (1 - q)), 0.5


def grades(rng):
    """Grades, and a judge that errs much on some items and knows which; the true mean is 0."""
    f, size = rng.normal(size=N), rng.lognormal(-0.5, 1.0, N)
    noise = np.sqrt(1 / CORRELATION**2 - 1) * size / np.exp(0.5)
    return f + noise * rng.normal(size=N), f, size, 0.0


def useless(made, rng):
    """The same labels, with a judge that knows nothing, not even where it errs."""
    y, f, uncertainty, mean = made
    order = rng.permutation(N)
    return y, f[order], uncertainty[order], mean


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--replications", type=int, default=2000)
    args = parser.parse_args()
    rows = []
    for labels, make in (("right/wrong", right_or_wrong), ("grades", grades)):
        for judge in ("correlated .6", "useless"):
            results = []
            for seed in range(args.replications):
                rng = np.random.default_rng(seed)
                made = make(rng)
                y, f, uncertainty, mean = made if judge != "useless" else useless(made, rng)
                even = np.full(N, np.nan)
                drawn = rng.choice(N, LABELS, replace=False)
                even[drawn] = y[drawn]
                p = labelling_probabilities(uncertainty, LABELS)
                chosen = judged_mean(f, np.where(rng.random(N) < p, y, np.nan), probabilities=p)
                plain = judged_mean(f, even)
                half = (plain.upper - plain.lower) / 2 / plain.se * plain.labels_alone_se
                results.append(
                    (
                        abs(plain.labels_alone - mean) < half,
                        2 * half,
                        plain.lower < mean < plain.upper,
                        plain.upper - plain.lower,
                        chosen.lower < mean < chosen.upper,
                        chosen.upper - chosen.lower,
                    )
                )
            values = np.array(results, float).mean(axis=0)
            methods = ("labels alone", "PPI++ (even)", "chosen")
            for k, method in enumerate(methods):
                rows.append(
                    {
                        "labels": labels,
                        "judge": judge,
                        "method": method,
                        "coverage": values[2 * k],
                        "width": values[2 * k + 1],
                        "of labels alone": values[2 * k + 1] / values[1],
                        "of PPI++": values[2 * k + 1] / values[3],
                    }
                )
    commit = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"],
        capture_output=True,
        text=True,
        cwd=HERE,
        check=False,
    ).stdout.strip()
    table = pd.DataFrame(rows).round(3).assign(replications=args.replications, commit=commit)
    print(table.to_string())
    table.to_csv(HERE / "simulation.csv", index=False)


if __name__ == "__main__":
    main()
