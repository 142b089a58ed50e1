"""Intervals with a guarantee: coverage, effective sample size and what stopping early saves.

Sessions of `Config.guaranteed` on real benchmarks (held-out models that are like the calibrated
ones, and stronger ones) and on hostile ones, made from SWE-bench Verified so that the bank is
wrong. Beside them: plain random sampling with the same intervals (without a model), the confidence
sequence of Waudby-Smith & Ramdas (2020) for sampling without replacement, the estimators
"guaranteed" and "design-based" on fixed samples, and "auto" on a balanced subset.

    python experiments/guarantee/guarantee.py --data FOLDER [--replications 2000] [--only Verified]
    python experiments/guarantee/guarantee.py --data FOLDER --samples

Writes table.csv (coverage, width, error, effective sample size by number of items) and
stopping.csv (items until the interval is short enough); with --samples samples.csv (`predict`).
Replication r has the held-out model r modulo their number; seeds are 0 for the sessions, 1 for
plain sampling, and 0, 1, ... for samples.
"""

import argparse
import subprocess
from pathlib import Path

import numpy as np
import pandas as pd

import irtcat
from irtcat.cat import Config, replay
from irtcat.prediction import betting as _betting

HERE = Path(__file__).parent
LENGTHS = (30, 60, 100, 200)
HALF_WIDTHS = (0.1, 0.075, 0.05)
LEVEL = 0.95
REAL = {
    "SWE-bench Verified": "agentic_coding/responses_swebench_verified.npz",
    "MMLU": "benchpred/responses_mmlu.npz",
    "IFEval": "benchpred/responses_ifeval.npz",
    "ARC-C": "benchpred/responses_arc_challenge.npz",
}
NODES = 61
"""Nodes of the ability, the same for all banks: the guarantee does not depend on them."""

PLAIN, PLAIN_DRAWS = 200, 400
"""Most replications and draws of plain sampling, which is only the measure of comparison."""

MODELS = 40
"""Most held-out models of a benchmark."""


def load(folder, path):
    """Distinct complete rows of a benchmark."""
    x = np.load(Path(folder) / path, allow_pickle=True)["X"].astype(float)
    x = np.where(x < 0, np.nan, x)
    return np.unique(x[~np.isnan(x).any(axis=1)], axis=0)


def held_out(x, split):
    """Calibration and new models."""
    if split == "similar":
        order = np.random.default_rng(0).permutation(len(x))
        return x[order[len(x) // 4 :]], x[order[: len(x) // 4][:MODELS]]
    order = np.argsort(x.mean(axis=1), kind="stable")
    return x[order[: len(x) // 2]], x[order[-int(0.3 * len(x)) :]][-MODELS:]


def hostile(x):
    """Calibrations and new models for which the bank is wrong."""
    calibration, new = held_out(x, "similar")
    rng, n = np.random.default_rng(0), x.shape[1]
    order = np.argsort(calibration.mean(axis=0), kind="stable")  # the hardest first
    yield "answers of the calibration inverted", 1 - calibration, new
    coins = (rng.random(calibration.shape) < 0.5).astype(float)
    yield "calibration of coin tosses", coins, new
    yield "items of the calibration shuffled", calibration[:, rng.permutation(n)], new
    flipped = np.where(rng.random(n) < 0.5, 1 - new, new)
    yield "drifted: half of the answers inverted", calibration, flipped
    only_hard = np.zeros(n)
    only_hard[order[: n // 2]] = 1
    yield "right on the harder half only", calibration, only_hard[None]
    easy_wrong = np.ones(n)
    easy_wrong[order[-n // 50 :]] = 0
    yield "wrong on the easiest 2 % only", calibration, easy_wrong[None]
    hard_right = np.zeros(n)
    hard_right[order[: n // 50]] = 1
    yield "right on the hardest 2 % only", calibration, hard_right[None]


def scenarios(folder):
    """Name, kind, calibration and new models."""
    for name, path in REAL.items():
        x = load(folder, path)
        for split in ("similar", "stronger"):
            yield (name, split, *held_out(x, split))
        if name == "SWE-bench Verified":
            for label, calibration, new in hostile(x):
                yield label, "hostile", calibration, new


def plain_draws(x, n_draws, rng):
    """Simple random samples without predictions: Z = S + (share left) x."""
    n_samples, n_items = x.shape
    order = rng.permuted(np.tile(np.arange(n_items), (n_samples, 1)), axis=1)[:, :n_draws]
    answers = np.take_along_axis(x, order, axis=1)
    before = np.cumsum(answers, axis=1) - answers
    left = (n_items - np.arange(n_draws)) / n_items
    guess = (before + 0.5) / (np.arange(n_draws) + 1)
    z, total = before / n_items + left * answers, before / n_items
    known = total + answers / n_items
    return _betting.Draw(
        chance=np.broadcast_to(1 / (n_items * left), z.shape),
        factor=np.broadcast_to(left, z.shape),
        raw=answers,
        answer=answers,
        counts=0 * z + 1,
        value=z,
        lower=z,
        upper=z,
        least=total,
        greatest=total + left,
        variance=left**2 * np.maximum(guess * (1 - guess), 0.02),
        left=np.broadcast_to(left, z.shape),
        known_lower=known,
        known_upper=known + left - 1 / n_items,
    ), answers


def wsr_2020(answers, n_items):
    """Empirical-Bernstein confidence sequence for sampling without replacement (theorem 3)."""
    n = answers.shape[1]
    k = np.arange(1, n + 1)
    total = np.cumsum(answers, axis=1) - answers
    mean = (0.5 + np.cumsum(answers, axis=1)) / (k + 1)
    before = np.concatenate([np.full((len(answers), 1), 0.5), mean[:, :-1]], axis=1)
    variance = (0.25 + np.cumsum((answers - mean) ** 2, axis=1)) / (k + 1)
    variance = np.concatenate([np.full((len(answers), 1), 0.25), variance[:, :-1]], axis=1)
    bet = np.minimum(np.sqrt(2 * np.log(2 / (1 - LEVEL)) / (variance * k * np.log(k + 1))), 0.5)
    weight = np.cumsum(bet * (1 + (k - 1) / (n_items - k + 1)), axis=1)
    centre = np.cumsum(bet * (answers + total / (n_items - k + 1)), axis=1) / weight
    penalty = np.cumsum((answers - before) ** 2 * (-np.log1p(-bet) - bet), axis=1)
    half = (np.log(2 / (1 - LEVEL)) + penalty) / weight
    known = total + answers
    lower = np.maximum(np.maximum.accumulate(centre - half, axis=1), known / n_items)
    upper = np.minimum(
        np.minimum.accumulate(centre + half, axis=1), (known + n_items - k) / n_items
    )
    return lower, upper


def reached(width, target):
    """Items until a falling mean width is at most the target; NaN where it is not reached."""
    below = np.flatnonzero(width <= target)
    return below[0] + 1 if len(below) else np.nan


def summary(name, lower, upper, score, truth, n):
    """Coverage, width and error at one number of items."""
    covered = (lower <= truth + 1e-9) & (upper >= truth - 1e-9)
    error = score - truth
    return {
        "method": name,
        "items": n,
        "replications": len(truth),
        "coverage": covered.mean(),
        "width": 100 * np.mean(upper - lower),
        "bias": 100 * error.mean(),
        "rmse": 100 * np.sqrt(np.mean(error**2)),
    }


def fixed_samples(calibration, new, replications):
    """The estimators of `predict` on samples and subsets of 100 items."""
    old, answers = responses_of(calibration, "c"), responses_of(new, "n")
    truth = new.mean(axis=1)
    jobs = [("random", "guaranteed"), ("random", "design-based"), ("neyman", "guaranteed")]
    for strategy, estimator in [*jobs, ("balanced", "auto")]:
        times = -(-replications // len(new)) if estimator != "auto" else AUTO_SAMPLES
        parts = []
        for seed in range(min(times, MOST_SAMPLES)):
            subset = irtcat.select(None, 100, strategy=strategy, calibration=old, seed=seed)
            p = irtcat.predict(old, subset, answers, estimator=estimator, level=LEVEL)
            parts.append(np.stack([p.lower, p.upper, p.score, truth]))
        lower, upper, score, true = np.concatenate(parts, axis=1)
        yield summary(f"predict: {strategy}, {estimator}", lower, upper, score, true, 100)


MOST_SAMPLES = 40
"""Most samples of a scenario with a fixed subset, each for all new models."""

AUTO_SAMPLES = 2
"""The same for "auto", whose subset hardly depends on the seed and which takes seconds."""


def responses_of(x, prefix):
    """Responses with ids."""
    ids = [f"{prefix}{i}" for i in range(len(x))]
    items = [f"i{j}" for j in range(x.shape[1])]
    return irtcat.Responses.from_array(x, ids, items, codes=(0, 1))


def sessions(calibration, new, replications, n_draws):
    """Rows of the two tables for one scenario."""
    n_items = new.shape[1]
    x = new[np.arange(replications) % len(new)]
    truth = x.mean(axis=1)
    bank = irtcat.fit(responses_of(calibration, "c"), "2pl", standard_errors="none").bank
    config = Config.guaranteed(n_draws, nodes=NODES)
    report = replay(bank, responses_of(x, "r"), config, seed=0, precision="float32")
    ours = report.intervals(bank, LEVEL)
    short = slice(None, min(replications, PLAIN))
    draws, answers = plain_draws(x[short], min(n_items, PLAIN_DRAWS), np.random.default_rng(1))
    cap, _betting.CAP = _betting.CAP, 0.5  # better without predictions
    plain = _betting.intervals_of(draws, LEVEL)
    _betting.CAP = cap
    wsr = wsr_2020(answers, n_items)
    plain_truth = truth[short]
    curves = [(plain.upper - plain.lower).mean(axis=0), (wsr[1] - wsr[0]).mean(axis=0)]
    our_width = (ours.upper - ours.lower).mean(axis=0)
    spread = x.var(axis=1)
    rows, stops = [], []
    for n in (length for length in LENGTHS if length <= n_draws):
        k = n - 1
        variance = np.mean(spread / n * (n_items - n) / (n_items - 1))
        score = ours.score[:, k]
        betting = summary("guaranteed", ours.lower[:, k], ours.upper[:, k], score, truth, n)
        ends = ours.normal_lower[:, k], ours.normal_upper[:, k]
        normal = summary("design-based", *ends, score, truth, n)
        plain_normal = (plain.normal_upper - plain.normal_lower).mean(axis=0)
        normal["ess"] = variance / np.mean((ours.score[:, k] - truth) ** 2)
        normal["ess_width"] = reached(plain_normal, normal["width"] / 100) / n
        same_bets, of_wsr = (reached(curve, our_width[k]) / n for curve in curves)
        betting |= {"ess": same_bets, "ess_wsr": of_wsr}
        rows += [betting, normal]
        rows.append(
            summary(
                "plain, same bets",
                plain.lower[:, k],
                plain.upper[:, k],
                plain.score[:, k],
                plain_truth,
                n,
            )
        )
        ends = plain.normal_lower[:, k], plain.normal_upper[:, k]
        rows.append(summary("plain, design-based", *ends, plain.score[:, k], plain_truth, n))
        rows.append(
            summary(
                "plain, WSR 2020", wsr[0][:, k], wsr[1][:, k], plain.score[:, k], plain_truth, n
            )
        )
    for half in HALF_WIDTHS:
        for method, ends, target in (
            ("guaranteed", ours, truth),
            ("plain, same bets", plain, plain_truth),
        ):
            is_short = ends.upper - ends.lower <= 2 * half
            is_over = is_short.any(axis=1)
            at = np.where(is_over, is_short.argmax(axis=1), is_short.shape[1] - 1)
            pick = np.arange(len(at)), at
            covered = (ends.lower[pick] <= target + 1e-9) & (ends.upper[pick] >= target - 1e-9)
            normal = (ends.normal_lower[pick] <= target) & (ends.normal_upper[pick] >= target)
            stops.append(
                {
                    "method": method,
                    "half_width": half,
                    "stopped": is_over.mean(),
                    "items": np.mean(at + 1),
                    "coverage": covered.mean(),
                    "normal_coverage": normal.mean(),
                }
            )
    return {"table": rows, "stopping": stops}


def main():
    """Run, print, save."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", required=True)
    parser.add_argument("--replications", type=int, default=2000)
    parser.add_argument("--draws", type=int, default=100)
    parser.add_argument("--only", default="", help="part of the name of a benchmark or its kind")
    parser.add_argument("--samples", action="store_true", help="fixed samples, not sessions")
    parser.add_argument("--out", default=str(HERE))
    arguments = parser.parse_args()
    command = ["git", "-C", str(HERE), "describe", "--always", "--dirty"]
    commit = subprocess.run(command, capture_output=True, text=True).stdout.strip()
    tables = {}
    for name, kind, calibration, new in scenarios(arguments.data):
        if arguments.only not in f"{name} {kind}":
            continue
        if arguments.samples:
            new_rows = {"samples": list(fixed_samples(calibration, new, arguments.replications))}
        else:
            new_rows = sessions(calibration, new, arguments.replications, arguments.draws)
        about = {"benchmark": name, "kind": kind, "n_items": new.shape[1], "models": len(new)}
        print(f"{name}, {kind}")
        for file, rows in new_rows.items():
            tables.setdefault(file, []).extend(about | row for row in rows)
            frame = pd.DataFrame(tables[file]).assign(commit=commit)
            frame.round(4).to_csv(Path(arguments.out) / f"{file}.csv", index=False)
            print(pd.DataFrame(rows).round(3).to_string(index=False))
        print(flush=True)


if __name__ == "__main__":
    main()
