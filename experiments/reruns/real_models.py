"""Does the interval of `irtcat.compare` hold for real models? Two runs of five samples each.

LiveCodeBench has ten samples of each problem for 53 models. A pair of models is compared on the
first five of each problem, drawn at random (the number of right ones is hypergeometric); the other
five are the second run. Pairs are models at most ten points apart, on the problems of both. Of
each case, over pairs (`real_models.csv`):

- coverage: the interval for the difference in a second run, wider by that run's noise, holds;
- wrong: a verdict "better" or "worse" whose sign the second run reverses beyond its own noise;
- width, and power: the share of verdicts other than "cannot tell";
- answers: those for the same standard error, of those of the unpaired z-test;
- correlation of the two models' scores over the items.

Beside, on the same answers: the unpaired z-test; the paired t-test on the items' means, which is
that of errors clustered by problem (Miller 2024); McNemar's test on the first sample; the noises of
paired differences (Wang 2025): of prediction (within items), of data (between items), and total;
prediction-powered inference with a tuned weight (Angelopoulos, Duchi & Zrnic 2023) with two
auxiliaries: differences that a Rasch bank of the other models predicts, and the old model's answers
to all problems, which irtcat is given too in the rows "old known".

How many answers find a regression of two points with a power of 80 % (`regressions.csv`)? Here the
shares of ten samples are the truth: an old model is that of the pair, the new one the other, moved
in logits so that it is two points worse. irtcat runs as many trials as it needs so that the items
suffice; `power` is that of simulated comparisons; `share` is its answers over those of the unpaired
z-test with one sample of each of as many new items as it takes (`share_domain`: those of the paired
t-test with one sample, for items like these), and `goal` is one minus the correlation of two single
answers, plus .05.

    python experiments/reruns/real_models.py --data DATA [--pairs 400] [--out experiments/reruns]

DATA is a folder with livecodebench/responses.npz.
"""

import argparse
import importlib.util
from pathlib import Path

import numpy as np
import pandas as pd
from scipy import optimize, stats
from scipy.special import expit, logit

from irtcat import Responses, compare
from irtcat.selection import Subset

SAMPLES, HALF, LEVEL, POWER = 10, 5, 0.95, 0.8
Z = stats.norm.ppf(0.5 + LEVEL / 2)
APART, FEWEST = 0.1, 300
LOSS, DRAWS = 0.02, 20
"""The regression, and simulated comparisons of each pair."""
EXTRA = 1.04
"""Answers beyond those of a Normal test with known variances: the power was .793 without them."""
CASES = [(k, trials) for k in (50, 150, None) for trials in (1, 5)]
"""Items run (None: all), and samples of each that are used."""


def flakiness():
    """The experiment that reads the data."""
    path = Path(__file__).parents[1] / "flakiness" / "run.py"
    spec = importlib.util.spec_from_file_location("flakiness", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def close_pairs(counts):
    """Pairs of models with at least `FEWEST` common problems whose scores on them are close."""
    out = []
    for i, one in enumerate(counts):
        for j in range(i):
            common = ~np.isnan(one) & ~np.isnan(counts[j])
            gap = abs(one[common].mean() - counts[j, common].mean()) / SAMPLES
            if common.sum() >= FEWEST and gap <= APART:
                out.append((j, i))
    return np.array(out)


def common_problems(counts, pair, rng):
    """Counts of the two models, in random order, and of the others, on the problems of both."""
    common = ~np.isnan(counts[pair]).any(axis=0)
    return counts[rng.permutation(pair)][:, common].astype(int), np.delete(
        counts[:, common], pair, axis=0
    )


def rasch_difference(x, others, at):
    """The differences on all items that a Rasch bank predicts, from the scores on those run."""
    known = np.nansum(np.isfinite(others), axis=0)
    easiness = logit((np.nansum(others, axis=0) + 1) / (SAMPLES * known + 2))

    def predicted(score):
        score = np.clip(score, 0.005, 0.995)
        theta = optimize.brentq(lambda t: expit(easiness[at] + t).mean() - score, -30, 30)
        return expit(easiness + theta)

    old, new = x.mean(axis=1)
    return predicted(new) - predicted(old)


def powered(d, f, at):
    """Prediction-powered estimate and standard error, with the weight that is best."""
    k, out = len(d), np.ones(len(f), bool)
    out[at] = False
    rest = f[out]
    if len(rest) < 2 or f[at].std() == 0:
        return d.mean(), d.std(ddof=1) / np.sqrt(k)
    weight = np.cov(d, f[at])[0, 1] / f[at].var(ddof=1) / (1 + k / len(rest))
    variance = (d - weight * f[at]).var(ddof=1) / k + weight**2 * rest.var(ddof=1) / len(rest)
    return d.mean() + weight * (rest.mean() - f[at].mean()), np.sqrt(variance)


def tests_in_use(used, trials, others, at, old_known):
    """Estimate, standard error and quantile by method; `used` has counts, 2 x items."""
    x = used / trials
    k, d = x.shape[1], x[1] - x[0]
    t = stats.t.ppf(0.5 + LEVEL / 2, k - 1)
    total = d.var(ddof=1)
    out = {
        "unpaired z": (d.mean(), np.sqrt(x.var(axis=1, ddof=1).sum() / k), Z),
        "paired t, clustered": (d.mean(), np.sqrt(total / k), t),
    }
    if trials > 1:
        within = (x * (1 - x) / (trials - 1)).sum(axis=0).mean()
        out["prediction noise"] = (d.mean(), np.sqrt(within / k), Z)
        out["data noise"] = (d.mean(), np.sqrt(max(total - within, 0.0) / k), Z)
        out["total noise"] = (d.mean(), np.sqrt(total / k), Z)
    out["PPI++, bank"] = (*powered(d, rasch_difference(x, others, at), at), Z)
    out["PPI++, old known"] = (*powered(d, old_known / trials, at), Z)
    return out


def compared(counts, trials, n_all, at, ids, others=None, old_known=None):
    """The comparison of counts, 2 x items, on the items at positions ``at`` of all."""
    r = np.full(counts.shape, trials)
    data = Responses.from_counts(counts, r, item_ids=ids[at], subject_ids=["old", "new"])
    if others is None:
        return compare(None, None, data)
    k = len(at)
    if old_known is not None:
        new = np.full(n_all, np.nan)
        new[at] = counts[1]
        both = np.array([old_known, new])
        r = np.where(np.isnan(both), 0, trials)
        data = Responses.from_counts(both, r, item_ids=ids, subject_ids=["old", "new"])
    drawn = Subset(
        ids[at], np.full(k, 1 / k), np.full(k, k / n_all), np.zeros(k), "random", 0, reach=n_all
    )
    complete = others[~np.isnan(others).any(axis=1)]
    return compare(Responses.from_counts(complete, SAMPLES, item_ids=ids), drawn, data)


def run_case(counts, k, trials, pairs, seed):
    """The rows of a case: one for each method."""
    rng = np.random.default_rng(seed)
    chosen = close_pairs(counts)
    chosen = chosen[rng.permutation(len(chosen))[:pairs]]
    rows = []
    for pair in chosen:
        both, others = common_problems(counts, pair, rng)
        n = both.shape[1]
        ids = np.array([f"p{i}" for i in range(n)])
        first = rng.hypergeometric(both, SAMPLES - both, HALF)
        second = both - first
        used = rng.hypergeometric(first, HALF - first, trials) if trials < HALF else first
        at = np.arange(n) if k is None else np.sort(rng.permutation(n)[:k])
        truth = (second[1] - second[0]).mean() / HALF
        p = both / SAMPLES
        again = (p * (1 - p) * SAMPLES / (SAMPLES - 1)).sum(axis=0).mean() / n / HALF
        with np.errstate(invalid="ignore"):  # all answers of a model may be equal
            corr = np.corrcoef(used[:, at])[0, 1]
        found = {"irtcat": compared(used[:, at], trials, n, at, ids, None if k is None else others)}
        if k is not None:
            found["irtcat, old known"] = compared(used[:, at], trials, n, at, ids, others, used[0])
        estimates = {
            name: (c.centre, c.se, stats.t.ppf(0.5 + LEVEL / 2, min(c.df, 1e6)))
            for name, c in found.items()
        }
        for name, (centre, se, quantile) in {
            **estimates,
            **tests_in_use(used[:, at], trials, others, at, used[0]),
        }.items():
            half = quantile * np.sqrt(se**2 + again)
            decided = abs(centre) > quantile * se
            reversed_sign = decided and centre * truth < 0 and abs(truth) > Z * np.sqrt(again)
            rows.append(
                (
                    name,
                    abs(centre - truth) <= half,
                    reversed_sign,
                    2 * quantile * se,
                    decided,
                    corr,
                    se,
                )
            )
        right = rng.random((2, len(at))) < used[:, at] / trials  # one of the samples
        counted = ((right[1] & ~right[0]).sum(), (right[0] & ~right[1]).sum())
        p_value = 2 * stats.binom.cdf(min(counted), sum(counted), 0.5)
        wrong = p_value < 1 - LEVEL and (counted[0] - counted[1]) * truth < 0
        wrong = wrong and abs(truth) > Z * np.sqrt(again)
        rows.append(
            ("McNemar, one sample", np.nan, wrong, np.nan, p_value < 1 - LEVEL, corr, np.nan)
        )
    columns = ["method", "coverage", "wrong", "width", "power", "correlation", "se"]
    frame = pd.DataFrame(rows, columns=columns).astype(dict.fromkeys(columns[1:], float))
    variance = frame["se"].pow(2).groupby(frame["method"]).mean()
    table = frame.groupby("method", sort=False).mean().drop(columns="se")
    table["answers"] = variance / variance["unpaired z"]
    table["width"] *= 100
    irtcat = frame[frame["method"] == "irtcat"]["coverage"]
    table["p_covers"] = np.nan
    table.loc["irtcat", "p_covers"] = stats.binomtest(
        int(irtcat.sum()), len(irtcat), LEVEL, "less"
    ).pvalue
    return table.reset_index().assign(
        items="all" if k is None else k, trials=trials, pairs=len(chosen)
    )


def moved_to(p, score):
    """Probabilities moved in logits so that their mean is a score."""
    logits = logit(np.clip(p, 1e-3, 1 - 1e-3))
    return expit(logits + optimize.brentq(lambda t: expit(logits + t).mean() - score, -9, 9))


def run_regressions(counts, pairs, seed):
    """A row a pair: answers that find a loss of two points with a power of 80 %."""
    rng = np.random.default_rng(seed)
    chosen = close_pairs(counts)
    chosen = chosen[rng.permutation(len(chosen))[:pairs]]
    target = (LOSS / (Z + stats.norm.ppf(POWER))) ** 2
    precise = target / EXTRA
    rows = []
    for pair in chosen:
        both, _ = common_problems(counts, pair, rng)
        p_old, other = both / SAMPLES
        n = len(p_old)
        p_new = moved_to(other, p_old.mean() - LOSS)
        of_answers = [m.mean() * (1 - m.mean()) for m in (p_old, p_new)]
        correlation = np.cov(p_old, p_new)[0, 1] / np.sqrt(of_answers[0] * of_answers[1])
        noise = (p_old * (1 - p_old) + p_new * (1 - p_new)).mean()
        between = (p_new - p_old).var(ddof=1)
        # (1 - k/N) (between + noise / r) / k + noise / (r N) for k items with r trials each.
        trials = max(int(np.ceil(noise / n / precise)), 2)
        k = int(np.ceil((between + noise / trials) / (precise + between / n)))
        ids = np.array([f"p{i}" for i in range(n)])
        worse = []
        for _ in range(DRAWS):
            at = np.sort(rng.permutation(n)[:k])
            made = rng.binomial(trials, np.array([p_old, p_new])[:, at])
            calibration = np.array([p_old, p_old])  # for the ids and their number alone
            found = compared(made, trials, n, at, ids, np.round(SAMPLES * calibration))
            worse.append(found.verdict == "worse")
        unpaired, paired = sum(of_answers) / target, (between + noise) / target
        rows.append((n, k, trials, k * trials, paired, unpaired, correlation, np.mean(worse)))
    columns = ["items", "k", "trials", "answers", "paired", "unpaired", "correlation", "power"]
    table = pd.DataFrame(rows, columns=columns)
    return table.assign(
        share=table["answers"] / table["unpaired"],
        share_domain=table["paired"] / table["unpaired"],
        goal=1 - table["correlation"] + 0.05,
    )


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", required=True)
    parser.add_argument("--pairs", type=int, default=400)
    parser.add_argument("--out", type=Path, default=Path(__file__).parent)
    options = parser.parse_args()
    _, counts = flakiness().livecodebench(options.data)
    regressions = run_regressions(counts, options.pairs, seed=0)
    regressions.round(4).to_csv(options.out / "regressions.csv", index=False)
    print(regressions.describe().round(3).to_string())
    met = (regressions["share"] <= regressions["goal"]).mean()
    print(f"goal met in {met:.3f} of {len(regressions)} pairs")
    tables = [
        run_case(counts, k, trials, options.pairs, seed) for seed, (k, trials) in enumerate(CASES)
    ]
    table = pd.concat(tables, ignore_index=True)
    table = table[
        [
            "items",
            "trials",
            "pairs",
            "method",
            "coverage",
            "p_covers",
            "wrong",
            "power",
            "width",
            "answers",
            "correlation",
        ]
    ]
    table.round(4).to_csv(options.out / "real_models.csv", index=False)
    print(table.round(3).to_string())


if __name__ == "__main__":
    main()
