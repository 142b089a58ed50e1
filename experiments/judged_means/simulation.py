"""Judged means: coverage and width with labels alone, drawn evenly (PPI++), and chosen.

150 labels of 2,000 items, simulated. Labels are right or wrong, or grades whose errors by the judge
differ from item to item, as the judge knows; the judge is correlated .6 with them or useless.

Then eight subjects at once, 150 labels each of right/wrong answers of a 2PL model, by
`judged_means`: with the judge's scores alone, with the items' difficulties (logits of the share of
right answers of 40 earlier subjects, whose answers are labelled), and chosen by the uncertainty
that these difficulties leave.

    python experiments/judged_means/simulation.py [--replications 2000] [--many 300]
"""

import argparse
import subprocess
from pathlib import Path

import numpy as np
import pandas as pd
from scipy.special import expit, logit, roots_hermitenorm

from irtcat.agreement import judged_mean, judged_means, labelling_probabilities

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


ABILITIES = np.linspace(-1, 1, 8)
EARLIER, SLOPE = 40, 1.5
NODES, WEIGHTS = roots_hermitenorm(81)
WEIGHTS = WEIGHTS / WEIGHTS.sum()


def many_subjects(rng, sd, is_useless):
    """Labels and verdicts of a judge (subjects x items), difficulties from earlier subjects, means.

    The judge is wrong on some items more than on others, for all subjects: in a fifth of all.
    """
    b = rng.normal(0, sd, N)
    y = (rng.random((8, N)) < expit(SLOPE * (ABILITIES[:, None] - b))).astype(float)
    is_wrong = rng.random((8, N)) < rng.beta(0.8, 3.2, N)
    f = np.where(is_wrong, 1 - y, y)
    if is_useless:
        f = rng.permuted(f, axis=1)
    earlier = rng.random((EARLIER, N)) < expit(SLOPE * (rng.normal(size=(EARLIER, 1)) - b))
    share = (earlier.sum(axis=0) + 0.5) / (EARLIER + 1)
    mean = expit(SLOPE * (ABILITIES[:, None] - sd * NODES)) @ WEIGHTS
    return y, f, -logit(share), mean


def of_many(sd, is_useless, replications):
    """Coverage and width of each method, over subjects and replications."""
    results = []
    for seed in range(replications):
        rng = np.random.default_rng(seed)
        y, f, difficulty, mean = many_subjects(rng, sd, is_useless)
        even = np.full_like(y, np.nan)
        for row, label in zip(even, y, strict=True):
            drawn = rng.choice(N, LABELS, replace=False)
            row[drawn] = label[drawn]
        guess = expit(SLOPE * ABILITIES[:, None] - difficulty)  # abilities are known roughly
        p = np.stack([labelling_probabilities(np.sqrt(q * (1 - q)), LABELS) for q in guess])
        chosen = np.where(rng.random(y.shape) < p, y, np.nan)
        features = {"features": difficulty[:, None]}
        tables = {
            "PPI++ (even)": pd.concat(
                [judged_mean(*pair).to_frame() for pair in zip(f, even, strict=True)]
            ),
            "judged_means": judged_means(f, even),
            "judged_means, difficulties": judged_means(f, even, **features),
            "judged_means, difficulties, chosen": judged_means(
                f, chosen, probabilities=p, **features
            ),
        }
        plain = tables["PPI++ (even)"]
        half = (plain["upper"] - plain["lower"]) / 2 / plain["se"] * plain["labels_alone_se"]
        ends = {"lower": plain["labels_alone"] - half, "upper": plain["labels_alone"] + half}
        for name, table in {"labels alone": pd.DataFrame(ends), **tables}.items():
            inside = (table["lower"].to_numpy() < mean) & (mean < table["upper"].to_numpy())
            results.append((name, inside.mean(), (table["upper"] - table["lower"]).mean()))
    table = pd.DataFrame(results, columns=["method", "coverage", "width"])
    table = table.groupby("method", sort=False, as_index=False).mean()
    return table.assign(
        **{
            "labels": f"8 subjects, right/wrong, difficulties with an SD of {sd:g}",
            "judge": "useless" if is_useless else "wrong in a fifth",
            "of labels alone": table["width"] / table["width"][0],
            "of PPI++": table["width"] / table["width"][1],
            "replications": replications,
        }
    )


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--replications", type=int, default=2000)
    parser.add_argument("--many", type=int, default=300)
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
    tables = [pd.DataFrame(rows).assign(replications=args.replications)]
    tables += [
        of_many(sd, is_useless, args.many)
        for sd, is_useless in ((1.0, False), (2.0, False), (2.0, True))
    ]
    table = pd.concat(tables, ignore_index=True).round(3).assign(commit=commit)
    print(table.to_string())
    table.to_csv(HERE / "simulation.csv", index=False)


if __name__ == "__main__":
    main()
