"""Do two runs of a model differ as `diagnose.reruns` and `leaderboard.plan` say?

Ten trials of each item are split at random into two runs of five, as new runs would be drawn: the
number of right trials in the first is hypergeometric. From the first run alone the noise is
estimated; the second tells whether it holds. Of each case:

- coverage of 95 % intervals of the difference of a model's two runs;
- the share of pairs of models at most two points apart in the first run whose order is the other
  one in the second, observed and predicted;
- the SD of the difference of two models over draws of k items with r trials of each, as a ratio to
  the standard error that the plan is made with (root mean square over pairs).

    python experiments/flakiness/run.py --out experiments/flakiness/splits.csv
    python experiments/flakiness/run.py --data DATA --out experiments/flakiness/splits.csv

DATA is a folder with livecodebench/responses.npz: shares of ten samples by model and problem.
"""

import argparse
from pathlib import Path

import numpy as np
import pandas as pd
from scipy.special import expit, ndtr

from irtcat import Responses, read_responses
from irtcat.diagnose import reruns
from irtcat.leaderboard.planning import _noise_of, _with_noise, pair_variances

N_TRIALS, HALF = 10, 5
SPLITS = 40
CLOSE = 0.02
DESIGNS = ((50, 1), (50, 3), (150, 1), (150, 5))


def simulated(seed, concentration):
    """Counts of ten trials for 40 models on 300 items, the less flaky the smaller the number."""
    rng = np.random.default_rng(seed)
    mean = expit(rng.normal(0, 0.5, (40, 1)) + rng.normal(0, 1.5, 300))
    p = rng.beta(concentration * mean, concentration * (1 - mean))
    return rng.binomial(N_TRIALS, p).astype(float)


def livecodebench(folder):
    """Counts of the models with ten samples of each problem, and problems all of them have."""
    data = read_responses(Path(folder) / "livecodebench" / "responses.npz").to_numpy()
    counts = data * N_TRIALS
    tenths = (np.abs(counts - np.rint(counts)) < 0.02) | np.isnan(data)
    repeated = ((data > 0) & (data < 1)).any(axis=1)  # the others have one sample
    counts = np.rint(counts[tenths.all(axis=1) & repeated])
    full = counts[(~np.isnan(counts)).mean(axis=1) > 0.8]  # of the later snapshots
    return full[:, ~np.isnan(full).any(axis=0)], counts


def two_runs(counts, rng):
    """Counts of the two runs of five; NaN where an item is missing."""
    known = ~np.isnan(counts)
    c = np.where(known, counts, 0).astype(int)
    first = rng.hypergeometric(c, N_TRIALS - c, HALF).astype(float)
    return np.where(known, first, np.nan), np.where(known, c - first, np.nan)


def agreement(counts, rng):
    """Coverage and flips over random splits."""
    inside, flips, predicted = [], [], []
    for _ in range(SPLITS):
        one, two = two_runs(counts, rng)
        result = reruns(Responses.from_counts(one, HALF), n=2)
        error = result.to_frame()["noise"].to_numpy() / 100 / np.sqrt(HALF)
        a, b = np.nanmean(one, axis=1) / HALF, np.nanmean(two, axis=1) / HALF
        inside.append(np.abs(a - b) <= 1.96 * np.sqrt(2) * error)
        i, j = np.triu_indices(len(a), 1)
        close = (np.abs(a[i] - a[j]) <= CLOSE) & (a[i] != a[j]) & (b[i] != b[j])
        i, j = i[close], j[close]
        flips.append((a[i] > a[j]) != (b[i] > b[j]))
        # A flat prior of the true difference: a new run differs by twice the variance.
        spread = np.sqrt(2 * (error[i] ** 2 + error[j] ** 2))
        predicted.append(ndtr(-np.abs(a[i] - a[j]) / spread))
    return np.mean(inside), np.concatenate(flips).mean(), np.concatenate(predicted).mean()


def ratio(counts, k, r, rng, n_draws=400):
    """SD over draws of k items and r trials of ten, as a share of the predicted one."""
    n_models, n_items = counts.shape
    runs = Responses.from_counts(counts, N_TRIALS)
    pairs = _with_noise(pair_variances(runs), runs, _noise_of(runs, 0))
    # The trials are drawn from the ten that there are, not from all that there could be.
    pairs = pairs._replace(trial=pairs.trial * (1 - r / N_TRIALS))
    # The items' variance is that of the ten trials, whose own noise is part of it here.
    pairs = pairs._replace(variance=pair_variances(runs).variance)
    means = np.empty((n_draws, n_models))
    c = counts.astype(int)
    for draw in range(n_draws):
        items = rng.choice(n_items, k, replace=False)
        means[draw] = rng.hypergeometric(c[:, items], N_TRIALS - c[:, items], r).mean(axis=1) / r
    i, j = pairs.one, pairs.other
    observed = (means[:, i] - means[:, j]).var(axis=0, ddof=1)
    expected = pairs.standard_errors(k, n_items, r) ** 2
    return np.sqrt(observed.mean() / expected.mean())


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", help="folder of shared data")
    parser.add_argument("--out", default="experiments/flakiness/splits.csv")
    options = parser.parse_args()
    cases = {f"simulated, concentration {c}": (simulated(0, c),) * 2 for c in (0.5, 2, 20)}
    if options.data:
        cases["livecodebench"] = livecodebench(options.data)
    rows = []
    for name, (complete, counts) in cases.items():
        rng = np.random.default_rng(1)
        result = reruns(Responses.from_counts(counts, np.where(np.isnan(counts), 0, N_TRIALS)))
        coverage, flips, predicted = agreement(counts, rng)
        row = {
            "data": name,
            "models": len(counts),
            "items": counts.shape[1],
            "icc": result.icc,
            "flip_rate": result.flip_rate,
            "noise_floor": result.noise_floor,
            "coverage": coverage,
            "order_flips": flips,
            "order_flips_predicted": predicted,
        }
        for k, r in DESIGNS:
            row[f"sd_ratio_{k}x{r}"] = ratio(complete, k, r, rng)
        rows.append(row)
    table = pd.DataFrame(rows).set_index("data")
    table.round(3).to_csv(options.out)
    print(table.T.round(3).to_string())


if __name__ == "__main__":
    main()
