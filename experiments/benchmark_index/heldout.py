"""One scale over benchmarks: `irtcat.index` and Epoch's published fit, refitted without cells.

Data: 1,324 scores of 179 models on 38 benchmarks of "A Rosetta Stone for AI Benchmarks" (Ho et al.
2025, Epoch AI). The peer is rebuilt from its description: least squares of ``sigmoid(alpha_b (C_m -
D_b))`` with a small ridge on all parameters, one benchmark anchored. First it is compared with the
published parameters, then both predict a tenth of the scores, drawn at random ten times.

    python experiments/benchmark_index/heldout.py --data DATA/benchmark_stitching
"""

import argparse
import subprocess
import time
from pathlib import Path

import numpy as np
import pandas as pd
from scipy.optimize import least_squares
from scipy.special import expit

import irtcat

HERE = Path(__file__).parent
RIDGE, BOUND, SLOPES = 0.1, 10.0, (0.1, 10.0)
"""Published settings: weight of the mean square of the parameters, and their bounds."""
ANCHOR = "Winogrande"
HIDDEN, DRAWS = 0.1, 10


class Epoch:
    """The published fit: capabilities, difficulties and slopes."""

    def __init__(self, scores, seed=42):
        y = scores.to_numpy()
        rows, columns = np.nonzero(np.isfinite(y))
        y = y[rows, columns]
        n, k = scores.shape
        at = scores.columns.get_loc(ANCHOR)
        free = np.flatnonzero(np.arange(k) != at)
        size = n + k + k - 1
        weight = np.sqrt(RIDGE / size)
        slope_column = np.full(k, -1)
        slope_column[free] = n + k + np.arange(k - 1)

        def split(x):
            slopes = np.ones(k)
            slopes[free] = x[n + k :]
            return x[:n], x[n : n + k], slopes

        def residuals(x):
            c, d, a = split(x)
            return np.append(expit(a[columns] * (c[rows] - d[columns])) - y, weight * x)

        def jacobian(x):
            c, d, a = split(x)
            p = expit(a[columns] * (c[rows] - d[columns]))
            slope, cells = p * (1 - p), np.arange(len(y))
            out = np.zeros((len(y) + size, size))
            out[cells, rows] = slope * a[columns]
            out[cells, n + columns] = -slope * a[columns]
            has = slope_column[columns] >= 0
            out[cells[has], slope_column[columns][has]] = (slope * (c[rows] - d[columns]))[has]
            out[len(y) :] = weight * np.eye(size)
            return out

        start = np.append(0.1 * np.random.RandomState(seed).randn(n + k), np.ones(k - 1))
        low = np.r_[np.full(n + k, -BOUND), np.full(k - 1, SLOPES[0])]
        high = np.r_[np.full(n + k, BOUND), np.full(k - 1, SLOPES[1])]
        x = least_squares(residuals, start, jacobian, bounds=(low, high), max_nfev=1000).x
        c, d, a = split(x)
        self.capability = pd.Series(c - d[at], scores.index)
        self.difficulty = pd.Series(d - d[at], scores.columns)
        self.slope = pd.Series(a, scores.columns)

    def predict(self):
        """Scores of all models on all benchmarks."""
        c, d = self.capability.to_numpy()[:, None], self.difficulty.to_numpy()
        return expit(self.slope.to_numpy() * (c - d))


def compared(scores, folder):
    """The rebuilt fit beside the published parameters: greatest and mean differences."""
    fit = Epoch(scores)
    benchmarks = pd.read_csv(folder / "published_fit_benchmarks.csv", index_col="benchmark")
    models = pd.read_csv(folder / "published_fit_models.csv", index_col="model")
    c = models["estimated_capability"].loc[scores.index]
    d = benchmarks["estimated_difficulty"].loc[scores.columns]
    a = benchmarks["estimated_slope"].loc[scores.columns]
    published = expit(a.to_numpy() * (c.to_numpy()[:, None] - d.to_numpy()))
    seen = scores.notna().to_numpy()
    differences = {
        "scores (of the cells there are)": np.abs(fit.predict() - published)[seen],
        "scores (all cells)": np.abs(fit.predict() - published).ravel(),
        "capabilities": np.abs(fit.capability - c).to_numpy(),
        "difficulties": np.abs(fit.difficulty - d).to_numpy(),
        "slopes": np.abs(fit.slope - a).to_numpy(),
    }
    rows = [
        {"what": what, "greatest": values.max(), "mean": values.mean()}
        for what, values in differences.items()
    ]
    return pd.DataFrame(rows).round(5)


def hidden_cells(scores, seed):
    """A tenth of the cells, such that each model and benchmark keeps a score."""
    rng = np.random.default_rng(seed)
    rows, columns = np.nonzero(scores.notna().to_numpy())
    left = scores.notna().to_numpy().copy()
    hidden = np.zeros(left.shape, bool)
    for at in rng.permutation(len(rows)):
        r, c = rows[at], columns[at]
        if left[r].sum() > 1 and left[:, c].sum() > 1:
            left[r, c], hidden[r, c] = False, True
        if hidden.sum() == int(HIDDEN * len(rows)):
            break
    return hidden


def summary(method, draw, error, covered=np.nan, width=np.nan):
    """A row of the table, in points."""
    return {
        "method": method,
        "draw": draw,
        "median_error": 100 * np.median(error),
        "mean_error": 100 * error.mean(),
        "rmse": 100 * np.sqrt(np.mean(error**2)),
        "coverage": covered,
        "median_width": width,
    }


def held_out(scores, dates):
    """Errors of each method in each draw."""
    about = pd.DataFrame({"release": pd.to_datetime(dates)})
    units = dict.fromkeys(scores.columns, "share")
    methods = {"irtcat.index": None, "irtcat.index, with dates": about}
    rows = []
    for draw in range(DRAWS):
        hidden = hidden_cells(scores, draw)
        known, truth = scores.mask(hidden), scores.to_numpy()[hidden]
        rows.append(summary("Epoch, rebuilt", draw, np.abs(Epoch(known).predict()[hidden] - truth)))
        for name, features in methods.items():
            made = irtcat.index(known, units=units, model_features=features).completion
            low, high = made.lower[hidden], made.upper[hidden]
            covered = ((low <= truth) & (truth <= high)).mean()
            error = np.abs(made.score[hidden] - truth)
            width = 100 * np.median(high - low)
            rows.append(summary(name, draw, error, covered, width))
    return pd.DataFrame(rows)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--out", type=Path, default=HERE)
    args = parser.parse_args()
    start = time.process_time()
    long = pd.read_csv(args.data / "scores.csv")
    scores = long.pivot_table(index="model", columns="benchmark", values="performance")
    dates = long.drop_duplicates("model").set_index("model")["date"].loc[scores.index]
    commit = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"],
        capture_output=True,
        text=True,
        cwd=HERE,
        check=False,
    ).stdout.strip()
    table = compared(scores, args.data).assign(commit=commit)
    print(table.to_string())
    table.to_csv(args.out / "published.csv", index=False)
    draws = held_out(scores, dates)
    columns = ["median_error", "mean_error", "rmse", "coverage", "median_width"]
    means = draws.groupby("method")[columns].mean().reset_index().assign(draw="mean")
    table = pd.concat([draws, means]).round(3).assign(commit=commit)
    print(means.round(3).to_string())
    wide = draws.pivot_table(index="draw", columns="method", values="mean_error")
    print((wide.lt(wide["Epoch, rebuilt"], axis=0)).sum().to_string(), "draws better of", DRAWS)
    table.to_csv(args.out / "heldout.csv", index=False)
    found = irtcat.index(scores, units=dict.fromkeys(scores.columns, "share"))
    print(found.to_frame().head(5).round(2).to_string())
    trend = found.trend(dates)
    print(trend, trend.changed)
    print(trend.to_frame().round(3).to_string())
    print(f"{time.process_time() - start:.0f} s")


if __name__ == "__main__":
    main()
