"""Does the interval of `irtcat.compare` hold for real models? Two runs of five samples each.

LiveCodeBench has ten samples of each problem for 53 models. A pair of models is compared on the
first five of each problem, drawn at random (the number of right ones is hypergeometric); the other
five are the second run. Pairs are models at most ten points apart, on the problems of both. Of
each case, over pairs:

- coverage: the interval for the difference in a second run, `sqrt(2)` times as wide, holds;
- wrong: a verdict "better" or "worse" whose sign the second run reverses beyond its own noise;
- width, and power: the share of verdicts other than "cannot tell";
- answers: those that the unpaired z-test needs for the same standard error are 1; correlation: of
  the two models' scores over the items;

beside, on the same answers: the unpaired z-test, the paired t-test on the items' means, McNemar's
test on one sample, errors clustered by problem over all samples (Miller 2024: that of the
items' means), the prediction noise of paired differences (Wang 2025: the variance within items
alone, which says nothing of problems that were not run), and prediction-powered inference with a
tuned weight (Angelopoulos et al. 2023), whose auxiliary is the old model's mean over all its
samples of every problem.

    python experiments/reruns/real_models.py --data DATA [--pairs 400] [--out experiments/reruns]

DATA is a folder with livecodebench/responses.npz.
"""

import argparse
import importlib.util
from pathlib import Path

import numpy as np
import pandas as pd
from scipy import stats

from irtcat import Responses, compare
from irtcat.selection import Subset

HALF, LEVEL = 5, 0.95
Z = stats.norm.ppf(0.5 + LEVEL / 2)
APART, FEWEST = 0.1, 300
CASES = [(k, trials) for k in (50, 150, None) for trials in (1, 5)]
"""Items run (None: all), and samples of each that are used."""


def flakiness():
    """The experiment that reads the data."""
    path = Path(__file__).parents[1] / "flakiness" / "run.py"
    spec = importlib.util.spec_from_file_location("flakiness", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def tests_in_use(one, trials, n_all, auxiliary, at):
    """Standard errors of the difference, by method; `one` has counts, 2 x items."""
    x = one / trials
    k, d = x.shape[1], x[1] - x[0]
    within = (x * (1 - x) / max(trials - 1, 1)).sum(axis=0)
    out = {
        "unpaired z": np.sqrt(x.var(axis=1, ddof=1).sum() / k),
        "paired t, clustered": d.std(ddof=1) / np.sqrt(k),
        "prediction noise": np.sqrt(within.mean() / k) if trials > 1 else np.nan,
    }
    f, every = auxiliary[at], auxiliary
    slope = np.cov(d, f)[0, 1] / f.var(ddof=1) if f.std() > 0 else 0.0
    weight = slope / (1 + k / n_all)
    variance = (d - weight * f).var(ddof=1) / k + weight**2 * every.var(ddof=1) / n_all
    shift = weight * (every.mean() - f.mean())
    return out, (d.mean() + shift, np.sqrt(variance))


def close_pairs(counts):
    """Pairs of models with at least `FEWEST` common problems whose scores on them are close."""
    out = []
    for i, one in enumerate(counts):
        for j in range(i):
            common = ~np.isnan(one) & ~np.isnan(counts[j])
            gap = abs(one[common].mean() - counts[j, common].mean()) / (2 * HALF)
            if common.sum() >= FEWEST and gap <= APART:
                out.append((j, i))
    return np.array(out)


def run_case(counts, k, trials, pairs, seed):
    """The rows of a case: one for each method."""
    rng = np.random.default_rng(seed)
    chosen = close_pairs(counts)
    chosen = chosen[rng.permutation(len(chosen))[:pairs]]
    rows = []
    for pair in chosen:
        common = ~np.isnan(counts[pair]).any(axis=0)
        n = int(common.sum())
        ids = np.array([f"p{i}" for i in range(n)])
        both = counts[rng.permutation(pair)][:, common].astype(int)
        first = rng.hypergeometric(both, 2 * HALF - both, HALF)
        second = (both - first).mean(axis=1) / HALF
        used = rng.hypergeometric(first, HALF - first, trials) if trials < HALF else first
        at = np.arange(n) if k is None else np.sort(rng.permutation(n)[:k])
        truth = second[1] - second[0]
        data = Responses.from_counts(
            used[:, at], np.full((2, len(at)), trials), item_ids=ids[at],
            subject_ids=["old", "new"],
        )  # fmt: skip
        if k is None:
            found = compare(None, None, data)
        else:
            size = len(at)
            drawn = Subset(ids[at], np.full(size, 1 / size), np.full(size, size / n),
                           np.zeros(size), "random", 0, reach=n)  # fmt: skip
            others = np.delete(counts, pair, axis=0)[:, common]
            others = others[~np.isnan(others).any(axis=1)]
            field = Responses.from_counts(others, 2 * HALF, item_ids=ids)
            found = compare(field, drawn, data)
        within = (both / 10 * (1 - both / 10) * 10 / 9).sum(axis=0).mean() / n
        again = within / HALF  # variance of the second run on all items
        corr = np.corrcoef(used[:, at])[0, 1]
        methods, powered = tests_in_use(used[:, at], trials, n, both[0] / (2 * HALF), at)
        d = (used[1, at] - used[0, at]).mean() / trials
        q = stats.t.ppf(0.5 + LEVEL / 2, len(at) - 1)
        estimates = {
            "irtcat": (found.centre, found.se, stats.t.ppf(0.975, min(found.df, 1e6))),
            **{name: (d, se, Z if name != "paired t, clustered" else q)
               for name, se in methods.items()},
            "prediction-powered": (*powered, Z),
        }  # fmt: skip
        for name, (centre, se, quantile) in estimates.items():
            if np.isnan(se):
                continue
            half = quantile * np.sqrt(se**2 + again)
            decided = abs(centre) > quantile * se
            reversed_sign = decided and centre * truth < 0 and abs(truth) > Z * np.sqrt(again)
            rows.append((name, abs(centre - truth) <= half, reversed_sign, 2 * quantile * se,
                         decided, corr, se))  # fmt: skip
    columns = ["method", "coverage", "wrong", "width", "power", "correlation", "se"]
    frame = pd.DataFrame(rows, columns=columns)
    unpaired = frame[frame["method"] == "unpaired z"]["se"].pow(2).mean()
    table = frame.groupby("method", sort=False).mean()
    table["answers"] = frame["se"].pow(2).groupby(frame["method"]).mean() / unpaired
    table["width"] *= 100
    return (
        table.drop(columns="se")
        .reset_index()
        .assign(items="all" if k is None else k, trials=trials, pairs=len(chosen))
    )


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", required=True)
    parser.add_argument("--pairs", type=int, default=400)
    parser.add_argument("--out", type=Path, default=Path(__file__).parent)
    options = parser.parse_args()
    _, counts = flakiness().livecodebench(options.data)
    tables = [run_case(counts, k, trials, options.pairs, seed)
              for seed, (k, trials) in enumerate(CASES)]  # fmt: skip
    table = pd.concat(tables, ignore_index=True)
    table = table[["items", "trials", "pairs", "method", "coverage", "wrong", "power", "width",
                   "answers", "correlation"]]  # fmt: skip
    table.round(4).to_csv(options.out / "real_models.csv", index=False)
    print(table.round(3).to_string())


if __name__ == "__main__":
    main()
