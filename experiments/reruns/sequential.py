"""Does a sequential comparison keep its error, and how many answers does it need?

`irtcat.leaderboard.compare_sequential` looks after every item. A/A (two runs of one model, or two
models with one expected score): at most 2.5 % may be called worse, and the intervals hold at all
times together in at least 95 %, by exact binomial tests in each cell with Holm's correction. A/B:
a new model is worse by some points, and a futility stop may give it up in at most 20 %. Items are
counted beside those of the fixed paired test that finds a loss of `detect` with power .8 (cells
that prove equivalence: two one-sided tests with power .8).

A bank of 10,000 items is drawn with replacement from the 2PL of digits_crowd; `n` is the number
of items that the benchmark has. Cells without `closing` leave nothing of the error for the interval
of all items.

The bets of all runs of a cell are computed at once; the first ones are checked against
`compare_sequential`, and cells with effects of whole runs (`run_sd`) are computed by it.

A cell that is in the table is not run again: an interrupted run goes on where it was.

    python experiments/reruns/sequential.py [--quick] [--runs 2000] [--out experiments/reruns]
"""

import argparse
import time
from pathlib import Path
from typing import NamedTuple
from unittest.mock import patch

import numpy as np
import pandas as pd
from aa import World, draw, make_bank, with_holm
from scipy import stats
from scipy.special import expit, logit

import irtcat
from irtcat.leaderboard import compare_sequential, sequential
from irtcat.responses import Responses

ERROR, FUTILITY = 0.025, 0.2
N_BANK = 10_000
Z = stats.norm.ppf
DEFAULTS = {
    "n": N_BANK,
    "points": 0.0,
    "aim": "worse",
    "margin": 0.0,
    "futility": FUTILITY,
    "trials": 1,
    "theta": None,
    "item_sd": 0.0,
    "sharpness": 1.0,
    "run_sd": 0.0,
    "closing": True,
}
"""A cell: items, how much worse the new model is, what is settled, and what the models are like."""

CHECKED = 5
"""Runs of each cell in which `compare_sequential` must say the same."""

WIDTHS_TO = 1000
"""Widths are computed up to so many items, within 2^(1 - BISECTIONS)."""

BISECTIONS, BLOCK = 16, 2_000_000

NO_CLOSING = 1e-9
"""Share of the error that is left for the interval of all items in cells without `closing`."""

MAIN = [{}, {"points": 2.0}, {"points": 4.0}, {"points": 10.0}, {"aim": "verdict", "margin": 0.02}]
"""The cells of the goals: A/A, losses, and equivalence of equal models."""


def cells():
    """All cells: those of the goals, false "worse" without a futility stop, and what closing saves.

    Effects of whole runs (`run_sd`) come with numbered trials.
    """
    none = {"futility": 0.0}
    out = [*MAIN, {"trials": 3}, {"points": 4.0, "trials": 3}]
    out += [none | {"n": n, "trials": t} for n in (100, 300, 1000) for t in (1, 3, 5)]
    out += [none | {"n": 300, "theta": x} for x in (-4.0, 4.0)]
    out += [
        none | {"n": n, "trials": t, "item_sd": x}
        for n in (300, 1000)
        for t in (1, 5)
        for x in (1.0, 3.0)
    ]
    nearly_deterministic = {"item_sd": 3.0, "sharpness": 30.0}
    out += [
        none | {"n": n, "trials": t} | nearly_deterministic for n in (300, 1000) for t in (1, 5)
    ]
    out += [none | {"n": 1000, "margin": 0.03, "points": 3.0}]  # at the border of "worse"
    out += [
        {"n": n, "trials": t, "points": 4.0, "item_sd": x, "closing": closing}
        for n in (300, 1000)
        for t, x in ((1, 0.0), (5, 0.0), (5, 1.0))
        for closing in (True, False)
    ]
    out += [none, *({"trials": 5} | cell for cell in (MAIN[1], MAIN[4]))]
    return out + [
        none | {"n": n, "trials": t, "run_sd": x}
        for n in (300, 1000)
        for t, x in ((3, 0.1), (3, 0.3), (10, 0.3))
    ]


class Pairs(NamedTuple):
    """Two models in each of several runs, items in their random order."""

    counts: np.ndarray
    """Right answers, runs x 2 x items."""
    true: np.ndarray
    """The difference of the expected scores."""
    variance: np.ndarray
    """Variance of an item's difference."""


def probabilities(rng, world, c):
    """Those of the old and the new model, items in random order."""
    theta = np.clip(rng.normal(), -1.5, 1.5) if c["theta"] is None else c["theta"]
    items = rng.permutation(world.n)[: c["n"]]
    p_old = p_new = world.p(theta, c["sharpness"])[0]
    if c["points"]:
        p_new = world.p(world.lower(theta, c["points"], c["sharpness"]), c["sharpness"])[0]
    p_old, p_new = p_old[items], p_new[items]
    if c["item_sd"] and c["points"]:
        logits = logit(np.clip(p_new, 1e-9, 1 - 1e-9))
        p_new = expit(logits + rng.normal(0, c["item_sd"], c["n"]))
    elif c["item_sd"]:  # the models differ by item, and not in the mean
        half = np.clip(p_old[: c["n"] // 2], 1e-9, 1 - 1e-9)
        other = expit(logit(half) + rng.normal(0, c["item_sd"], len(half)))
        p_old, p_new = np.concatenate([half, other]), np.concatenate([other, half])
        order = rng.permutation(len(p_old))
        p_old, p_new = p_old[order], p_new[order]
    return np.array([p_old, p_new])


def simulated(rng, world, c, runs):
    """Counts of some runs, and what is true."""
    p = np.array([probabilities(rng, world, c) for _ in range(runs)])
    counts = rng.binomial(c["trials"], p).astype(np.int16)
    d = p[:, 1] - p[:, 0]
    noise = (p * (1 - p)).sum(axis=1).mean(axis=1) / c["trials"]
    return Pairs(counts, d.mean(axis=1), noise + d.var(axis=1))


class Bets(NamedTuple):
    """The bets of `compare_sequential` on the differences of all runs at once."""

    d: np.ndarray
    variances: np.ndarray
    distance: float
    used: np.ndarray | None = None
    """Whether a step is before the end."""

    def reached(self, m, side, capital):
        """The number of steps after which a capital is reached first; infinite if never."""
        m = np.broadcast_to(np.asarray(m, float), len(self.d))[:, None]
        gains = side * (self.d - m)
        most = sequential.CAP / np.maximum(1 + side * m, 1e-12)
        doublings = int(np.ceil(np.log2(sequential.MAX_DISTANCE / self.distance)))
        shares = 0.5 ** (np.arange(max(doublings, 0) + 1) + 1)
        total = np.zeros_like(self.d)
        for power, share in enumerate(shares / shares.sum()):
            bets = np.minimum(self.distance * 2.0**power / self.variances, most)
            with np.errstate(over="ignore"):  # an infinite capital is reached too
                total += share * np.cumprod(1 + bets * gains, axis=1)
        passed = total >= capital
        if self.used is not None:
            passed &= self.used
        return np.where(passed.any(axis=1), passed.argmax(axis=1) + 1.0, np.inf)

    def end(self, side, capital):
        """Lower (1) or upper (-1) ends of the sequences."""
        rejected, possible = np.full(len(self.d), -1.0 * side), np.full(len(self.d), 1.0 * side)
        for _ in range(BISECTIONS):
            middle = (rejected + possible) / 2
            is_rejected = np.isfinite(self.reached(middle, side, capital))
            rejected = np.where(is_rejected, middle, rejected)
            possible = np.where(is_rejected, possible, middle)
        return rejected


def bets_of(d, distance):
    """The bets, with the variances of the earlier differences."""
    n = np.arange(d.shape[1])
    sums, squares = np.cumsum(d, axis=1) - d, np.cumsum(d**2, axis=1) - d**2
    spread = np.maximum(squares - sums**2 / np.maximum(n, 1), 0)
    prior = sequential.PRIOR_STEPS
    return Bets(d, (prior * sequential.PRIOR_VARIANCE + spread) / (prior + n), distance)


def closing_of(counts, r, final):
    """Ends of the interval of `compare` for all items, with a share of the error."""
    x = counts / r
    n = x.shape[2]
    d = x[:, 1] - x[:, 0]
    if r == 1:  # one more item on either side, which moves the centre towards 0
        value, df = d.var(axis=1, ddof=1) / n, np.full(len(d), n - 1.0)
        value = (n**2 * value + 2) / (n + 2) ** 2
        centre = d.mean(axis=1) * n / (n + 2)
    else:  # an odd trial of each model
        terms = (x * (1 - x)).sum(axis=1) / (r - 1) / n**2
        terms = np.concatenate([terms, np.full((len(d), 2), 1 / (n * r) ** 2)], axis=1)
        value, centre = terms.sum(axis=1), d.mean(axis=1)
        spread = terms.shape[1] * terms.var(axis=1, ddof=1)
        with np.errstate(divide="ignore", invalid="ignore"):
            df = np.where(spread > 0, 2 * value**2 / spread, np.inf)
    df = np.maximum(df, 1.0)
    q = np.where(np.isinf(df), Z(1 - final * ERROR), stats.t.ppf(1 - final * ERROR, df))
    return centre - q * np.sqrt(value), centre + q * np.sqrt(value)


def ended(pairs, c, final):
    """A row a run: verdict, outcome, items, whether the interval holds, and its width."""
    r, n, margin = c["trials"], c["n"], c["margin"]
    d = (pairs.counts[:, 1] - pairs.counts[:, 0]) / r
    detect = margin + sequential.DEFAULT_GAP
    distance = min(detect - margin, margin) if c["aim"] == "verdict" and margin else detect - margin
    bets, capital = bets_of(d, distance), 1 / ((1 - final) * ERROR)
    worse, better = bets.reached(-margin, -1, capital), bets.reached(margin, 1, capital)
    above, below = bets.reached(-margin, 1, capital), bets.reached(margin, -1, capital)
    equal = np.maximum(above, below) if margin else np.full(len(d), np.inf)
    settled, given_up = np.minimum(np.minimum(worse, better), equal), np.full(len(d), np.inf)
    if c["aim"] == "worse":
        futile = bets.reached(-detect, 1, 1 / c["futility"]) if c["futility"] else above
        settled, given_up = worse, np.minimum(futile, above)
    stop = np.minimum(np.minimum(settled, given_up), n)
    outcome = np.select([settled <= stop, given_up <= stop], ["settled", "futile"], "all items")
    verdict = np.select(
        [worse <= stop, better <= stop, equal <= stop],
        ["worse", "better", "equivalent"],
        "cannot tell",
    )
    lower, upper = closing_of(pairs.counts, r, final)
    last = outcome == "all items"
    over, under = (above <= n) | (lower > -margin), (below <= n) | (upper < margin)
    closed = np.select(
        [lower > margin, upper < -margin, over & under & (margin > 0)],
        ["better", "worse", "equivalent"],
        "cannot tell",
    )
    verdict = np.where(last, closed, verdict)
    inside = (
        np.minimum(bets.reached(pairs.true, 1, capital), bets.reached(pairs.true, -1, capital))
        > stop
    )
    inside &= ~last | ((lower <= pairs.true) & (pairs.true <= upper))
    outcome = np.where(last & (closed != "cannot tell"), "settled", outcome)
    width = np.nan
    if n <= WIDTHS_TO:
        bets = bets._replace(used=np.arange(n) < stop[:, None])
        ends = np.array([bets.end(1, capital), bets.end(-1, capital)])
        ends = np.where(last, [np.maximum(ends[0], lower), np.minimum(ends[1], upper)], ends)
        width = ends[1] - ends[0]
    return pd.DataFrame(
        {
            "verdict": verdict,
            "outcome": outcome,
            "items": stop.astype(int),
            "inside": inside,
            "width": width,
        }
    )


def by_library(responses, c, final, true, **order):
    """The same for one run by `compare_sequential`."""
    with patch.object(sequential, "FINAL", final):
        found = compare_sequential(
            None,
            None,
            responses,
            "new",
            "old",
            aim=c["aim"],
            margin=c["margin"],
            futility=c["futility"],
            **order,
        )
    inside = found.lower - 1e-9 <= true <= found.upper + 1e-9
    return found.verdict, found.outcome, found.n_items, inside, found.upper - found.lower


def check(pairs, c, final, frame):
    """Raise unless `compare_sequential` says the same of the first runs."""
    n = c["n"]
    ids = np.array([f"i{k}" for k in np.random.default_rng(0).permutation(n)])
    for run in range(min(CHECKED, len(frame))):
        trials = np.full((2, n), c["trials"])
        responses = Responses.from_counts(
            pairs.counts[run], trials, subject_ids=["old", "new"], item_ids=ids
        )
        found = by_library(responses, c, final, pairs.true[run], order=ids)
        row = frame.iloc[run]
        same = tuple(row[["verdict", "outcome", "items", "inside"]]) == found[:4]
        if not same or abs(row["width"] - found[4]) > 4 * 2.0**-BISECTIONS:
            raise ValueError(f"run {run} of {c}: {tuple(row)} instead of {found}")


def with_run_effects(rng, world, c, runs, final):
    """Rows of runs with numbered trials whose whole runs differ, by the library."""
    rows, true, variance, none = [], np.zeros(runs), np.empty(runs), np.zeros(c["n"], int)
    for run in range(runs):
        p = probabilities(rng, world, c)
        made = [draw(rng, model, c["trials"], 0.0, none, c["run_sd"]) for model in p]
        responses = Responses.from_trials(np.array(made), ["old", "new"])
        rows.append(by_library(responses, c, final, 0.0, seed=run))
        variance[run] = (p * (1 - p)).sum(axis=0).mean() / c["trials"]
    names = ["verdict", "outcome", "items", "inside", "width"]
    return pd.DataFrame(rows, columns=names), true, variance


def run_cell(world, c, runs, seed):
    """One row: verdicts and items of all runs of a cell."""
    rng, final = np.random.default_rng(seed), sequential.FINAL if c["closing"] else NO_CLOSING
    if c["run_sd"]:
        frame, true, variance = with_run_effects(rng, world, c, runs, final)
    else:
        parts, size = [], max(BLOCK // c["n"], 1)
        for first in range(0, runs, size):
            pairs = simulated(rng, world, c, min(size, runs - first))
            frame = ended(pairs, c, final)
            if first == 0:
                check(pairs, c, final, frame)
            parts.append((frame, pairs.true, pairs.variance))
        frames, trues, variances = zip(*parts, strict=True)
        frame, true, variance = (
            pd.concat(frames, ignore_index=True),
            np.concatenate(trues),
            np.concatenate(variances),
        )
    power = Z(0.9) if c["aim"] == "verdict" else Z(0.8)
    fixed = (variance * ((Z(0.975) + power) / 0.02) ** 2).mean()
    null = frame[true >= -c["margin"] - 1e-9]
    false, items = int((null["verdict"] == "worse").sum()), frame["items"].mean()
    row = {name: (frame["verdict"] == name).mean() for name in ("worse", "better", "equivalent")}
    return {
        **c,
        "runs": runs,
        **row,
        "false_worse": false / max(len(null), 1),
        "futile": (frame["outcome"] == "futile").mean(),
        "items": items,
        "fixed": fixed,
        "ratio": items / fixed,
        "ratio_all": items / c["n"],
        "coverage": frame["inside"].mean(),
        "width": 100 * frame["width"].mean(),
        "p_binomial": stats.binomtest(false, len(null), ERROR, "greater").pvalue
        if len(null)
        else np.nan,
        "p_covers": stats.binomtest(int(frame["inside"].sum()), runs, 0.95, "less").pvalue,
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=2000)
    parser.add_argument("--quick", action="store_true", help="a tenth of the runs but in A/A")
    parser.add_argument("--out", type=Path, default=Path(__file__).parent)
    options = parser.parse_args()
    frame = make_bank().to_frame()
    chosen = np.random.default_rng(0).integers(0, len(frame), N_BANK)
    a, b = (
        np.nan_to_num(frame[name].to_numpy(), nan=x)[chosen] for name, x in (("a", 1), ("b", -8))
    )
    world, began = World(irtcat.ItemBank.from_parameters(a=a, b=b)), time.time()
    path = options.out / ("sequential_quick.csv" if options.quick else "sequential.csv")
    table = pd.read_csv(path) if path.exists() else pd.DataFrame({"cell": []})
    for number, cell in enumerate(cells()):
        c = DEFAULTS | cell
        if options.quick and cell not in MAIN and c["n"] * c["trials"] > 1000:
            continue
        if number in set(table["cell"]):
            continue
        runs = max(options.runs // 10, 50) if options.quick and cell else options.runs
        row = {"cell": number, **run_cell(world, c, runs, number)}
        names = ("worse", "false_worse", "equivalent", "futile", "items", "ratio", "coverage")
        shown = {name: round(float(row[name]), 3) for name in names}
        print(f"{time.time() - began:5.0f} s", number, cell, shown, flush=True)
        table = with_holm(pd.concat([table, pd.DataFrame([row]).round(4)], ignore_index=True))
        table.to_csv(path, index=False)
    for p, name in (("p_holm", "false_worse"), ("p_covers_holm", "coverage")):
        tested = table[table[p].notna()]
        ends = f"{tested[name].min():.4f} to {tested[name].max():.4f}"
        failed = (tested[p] < 0.05).sum()
        print(f"{name} {ends} in {len(tested)} cells; {failed} of them beyond the nominal error")


if __name__ == "__main__":
    main()
