"""Horizons: coverage of the intervals of `irtcat.horizon` and of METR's published procedure.

Simulated: 8 models with dates, about 100 tasks in 25 families, 3 attempts each. The peer is rebuilt
from its public description (Kwa et al. 2025, arXiv:2503.14499, and its public repository): a
logistic regression of success on log2 minutes for each model, attempts weighted by 1 over their
number times the root of the family's size, a slight ridge on the slope, intervals by a bootstrap of
families, tasks within them and attempts within these, and ordinary least squares of the log
horizons on the dates in each resample. The usual bootstrap is the same with tasks alone resampled.

    python experiments/horizons/coverage.py [--replications 200] [--out coverage.csv]
"""

import argparse
import subprocess
import time
from pathlib import Path

import numpy as np
import pandas as pd
from scipy.optimize import brentq
from scipy.special import expit, logit, roots_hermitenorm

import irtcat

HERE = Path(__file__).parent
N_MODELS, N_FAMILIES, ATTEMPTS, RESAMPLES, RIDGE = 8, 25, 3, 150, 1e-5
SLOPE, SD, SHARE = 0.6, 1.5, 0.4
"""Fall of the logit per doubling, SD of tasks of one length, and the share of families in it."""
GROWTH, RESIDUAL = 1.5, 0.5
"""Doublings a year, and the SD of the models around the trend (log2)."""
SCENARIOS = {
    "exact lengths": {"error": 0.0, "cell": 0.0},
    "lengths with errors, attempts that agree": {"error": 1.5, "cell": 1.0},
}
"""SD of the error of log2 lengths, and of each model's own difficulty with a task (logits)."""

PEERS = {"METR, rebuilt": "families, tasks, attempts", "bootstrap of tasks": "tasks"}
TREND = "doublings a year"


def simulated(rng, error, cell):
    """Answers, observed lengths, families, years, and the true horizons."""
    family = np.repeat(np.arange(N_FAMILIES), rng.choice([1, 2, 4, 9], N_FAMILIES))
    n = len(family)
    length = 0.5 * rng.normal(4, 2.5, N_FAMILIES)[family] + 0.5 * 4 + 2.2 * rng.normal(size=n)
    w = SD * (
        np.sqrt(SHARE) * rng.normal(size=N_FAMILIES)[family]
        + np.sqrt(1 - SHARE) * rng.normal(size=n)
    )
    years = np.sort(rng.uniform(0, 4, N_MODELS))
    log2_horizon = 1 + GROWTH * years + RESIDUAL * rng.normal(size=N_MODELS)
    eta = SLOPE * (log2_horizon[:, None] - length) - w + cell * rng.normal(size=(N_MODELS, n))
    right = rng.random((N_MODELS, n, ATTEMPTS)) < expit(eta)[:, :, None]
    observed = length + error * rng.normal(size=n)
    shift = needed(0.8, np.hypot(SD, cell)) / SLOPE
    return right, observed, family, 2020 + years, log2_horizon, log2_horizon - shift


def needed(p, sd):
    """The logit with which the success averaged over residual difficulties is p."""
    nodes, weights = roots_hermitenorm(61)
    weights = weights / weights.sum()
    return brentq(lambda x: expit(x - sd * nodes) @ weights - p, -40, 40)


def logistic(x, y, weight, steps=9):
    """Intercepts and slopes of weighted logistic regressions (resamples x tasks), by Newton.

    The ridge on the slope is against a total weight of 1, as published.
    """
    weight = weight / weight.sum(axis=1, keepdims=True)
    a, b = logit(np.clip((weight * y).sum(axis=1), 0.01, 0.99)), np.zeros(len(weight))
    for _ in range(steps):
        p = expit(np.clip(a[:, None] + b[:, None] * x, -30, 30))
        r, v = weight * (y - p), weight * p * (1 - p)
        g0, g1 = r.sum(axis=1), (r * x).sum(axis=1) - RIDGE * b
        h00, h01 = v.sum(axis=1), (v * x).sum(axis=1)
        h11 = (v * x**2).sum(axis=1) + RIDGE
        det = np.maximum(h00 * h11 - h01**2, 1e-12)
        a = a + np.clip((h11 * g0 - h01 * g1) / det, -3, 3)
        b = b + np.clip((h00 * g1 - h01 * g0) / det, -3, 3)
    return a, b


def resampled_tasks(rng, family, levels):
    """How often each task is drawn: families, then tasks within each drawn family, or tasks."""
    if levels == "tasks":
        return rng.multinomial(len(family), np.full(len(family), 1 / len(family)), RESAMPLES)
    counts = np.zeros((RESAMPLES, len(family)))
    members = [np.flatnonzero(family == f) for f in range(N_FAMILIES)]
    for row in counts:
        for f in rng.integers(N_FAMILIES, size=N_FAMILIES):
            np.add.at(row, rng.choice(members[f], len(members[f])), 1)
    return counts


def published(rng, right, length, family, years, levels):
    """Horizons for p = .5 and .8 and doublings a year: estimates and resamples."""
    x = length - length.mean()
    weight = 1 / np.sqrt(np.bincount(family)[family])
    counts = np.vstack([np.ones(len(family)), resampled_tasks(rng, family, levels)])
    log2 = np.full((2, RESAMPLES + 1, N_MODELS), np.nan)
    for m in range(N_MODELS):
        share = right[m].mean(axis=1)
        y = np.tile(share, (RESAMPLES + 1, 1))
        if levels == "families, tasks, attempts":
            y[1:] = rng.binomial(ATTEMPTS, share, (RESAMPLES, len(x))) / ATTEMPTS
        a, b = logistic(x, y, counts * weight)
        with np.errstate(divide="ignore", invalid="ignore"):
            for i, p in enumerate((0.5, 0.8)):
                log2[i, :, m] = (logit(p) - a) / b + length.mean()
    t = years - years.mean()
    growth = (log2[0] - log2[0].mean(axis=1, keepdims=True)) @ t / (t @ t)
    return log2, growth


def of_irtcat(right, length, family, years, error):
    """Horizons for p = .5 and .8 and the trend, each with its interval, on the log2 scale."""
    ids = [f"t{i}" for i in range(len(length))]
    r = irtcat.Responses.from_counts(
        right.sum(axis=2),
        ATTEMPTS,
        item_ids=ids,
        items=pd.DataFrame({"minutes": 2.0**length, "family": family}, index=ids),
    )
    fit = irtcat.horizon(r, "minutes", clusters="family", length_sd=error)
    with np.errstate(divide="ignore"):
        tables = [np.log2(fit.at(p).to_frame()[["horizon", "lower", "upper"]]) for p in (0.5, 0.8)]
    dates = dict(zip(r.subject_ids, years, strict=True))
    trend = fit.trend(dates, change=False).table.loc["all"]
    return tables, trend[["per_year", "lower", "upper"]].to_numpy(float)


def rows_of(scenario, method, quantity, truth, estimate, lower, upper):
    """A row for each interval."""
    return pd.DataFrame(
        {
            "scenario": scenario,
            "method": method,
            "quantity": quantity,
            "error": estimate - truth,
            "covered": (lower <= truth) & (truth <= upper),
            "width": upper - lower,
        }
    )


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--replications", type=int, default=200)
    parser.add_argument("--out", type=Path, default=HERE / "coverage.csv")
    args = parser.parse_args()
    parts, start = [], time.process_time()
    for number, (name, setting) in enumerate(SCENARIOS.items()):
        for seed in range(args.replications):
            rng = np.random.default_rng([number, seed])
            right, length, family, years, h50, h80 = simulated(rng, **setting)
            truths = {"horizon, p = .5": h50, "horizon, p = .8": h80}
            tables, trend = of_irtcat(right, length, family, years, setting["error"])
            for i, (quantity, truth) in enumerate(truths.items()):
                values = tables[i].to_numpy().T
                parts.append(rows_of(name, "irtcat.horizon", quantity, truth, *values))
            growth = np.array([GROWTH])
            parts.append(rows_of(name, "irtcat.horizon", TREND, growth, *trend[:, None]))
            for method, levels in PEERS.items():
                log2, slopes = published(rng, right, length, family, years, levels)
                for i, (quantity, truth) in enumerate(truths.items()):
                    ends = np.nanquantile(log2[i, 1:], [0.025, 0.975], axis=0)
                    parts.append(rows_of(name, method, quantity, truth, log2[i, 0], *ends))
                ends = np.r_[slopes[0], np.nanquantile(slopes[1:], [0.025, 0.975])]
                parts.append(rows_of(name, method, TREND, growth, *ends[:, None]))
    rows = pd.concat(parts)
    rows["finite"] = np.isfinite(rows["error"])
    keys = ["scenario", "quantity", "method"]
    grouped = rows[rows["finite"]].groupby(keys, sort=False)
    table = grouped.agg(
        intervals=("covered", "size"),
        coverage=("covered", "mean"),
        bias=("error", "mean"),
        rmse=("error", lambda e: float(np.sqrt(np.mean(e**2)))),
        median_width=("width", "median"),
    ).round(3)
    commit = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"],
        capture_output=True,
        text=True,
        cwd=HERE,
        check=False,
    ).stdout.strip()
    table = table.reset_index().assign(
        replications=args.replications, seconds=round(time.process_time() - start), commit=commit
    )
    print(table.to_string())
    table.to_csv(args.out, index=False)


if __name__ == "__main__":
    main()
