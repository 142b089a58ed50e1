"""Does a verdict of `irtcat.compare` survive a rerun? A/A and A/B tests on simulated models.

A/A: two runs of one model, so that every verdict but "cannot tell" is false. At most 5 % may be,
in no cell more by an exact binomial test with Holm's correction. A/B: the new model is worse by a
given number of points; power and width beside tests that are in use.

Models answer a 2PL bank of 898 items (digits_crowd); a pair has one ability, and `sharpness`
multiplies the slopes of its answers, which sets the correlation of two runs (ICC). One factor is
changed at a time from k items by a random draw, one trial, sharpness 1.

    python experiments/reruns/aa.py [--quick] [--pairs 1000] [--out experiments/reruns]
"""

import argparse
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
from scipy import stats
from scipy.special import expit, logit

import irtcat
from irtcat.leaderboard import compare
from irtcat.responses import Responses
from irtcat.selection import Subset, select

KS = (30, 100, 300, 600, 898)
LEVEL = 0.05
SIZES = (1, 2, 3, 5, 8, 12, 20, 40)
"""Sizes of clusters, in turn."""

DEFAULTS = {
    "k": 300, "trials": 1, "numbered": False, "subset": "random", "known": False, "theta": None,
    "sharpness": 1.0, "clusters": 0, "shared": 0.0, "run_sd": 0.0, "reruns": "",
    "estimand": "model", "margin": 0.0, "points": 0.0, "item_sd": 0.0,
}  # fmt: skip
"""A cell: the items run, what the models and their runs are like, and how they are compared."""


def make_bank():
    """The items: a 2PL of the responses that are shipped."""
    return irtcat.fit(irtcat.datasets.load("digits_crowd"), "2pl", standard_errors="none").bank


class World:
    """Items, calibrated models, and pairs of new ones."""

    def __init__(self, bank, n_models=20, seed=0):
        frame = bank.to_frame()
        self.a, self.b = frame["a"].to_numpy(), frame["b"].to_numpy()
        self.a, self.b = np.nan_to_num(self.a, nan=1.0), np.nan_to_num(self.b, nan=-8.0)
        self.ids = np.asarray(bank.item_ids, str)
        self.n = len(self.ids)
        rng = np.random.default_rng(seed)
        answers = rng.random((n_models, self.n)) < self.p(rng.normal(size=n_models))
        self.calibration = Responses.from_array(answers.astype(int), item_ids=self.ids)
        self.pair = Responses.from_array(
            np.array([[0, 1] * (self.n // 2)] * 2), ["old", "new"], self.ids
        )
        self.bank = bank
        self.scores = {}

    def random_subset(self, rng, k):
        """A simple random sample, as `select` draws it."""
        ids = self.ids[rng.permutation(self.n)[:k]]
        equal, none = np.full(k, 1 / k), np.zeros(k)
        return Subset(ids, equal, np.full(k, k / self.n), none, "random", 0, reach=self.n)

    def responses(self, made, at, numbered):
        """Responses of the two models: right/wrong, counts, or numbered trials."""
        r = made.shape[2]
        missing = np.zeros(self.n, bool) if at is None else ~at
        if numbered:
            made = np.where(missing[:, None], np.nan, made)
            return Responses.from_trials(made, ["old", "new"], self.ids)
        counts = made.sum(axis=2)
        if r == 1:
            return replace(self.pair, values=np.where(missing, -1, counts).astype(np.int8))
        shares = np.where(missing, np.nan, counts / r).astype(np.float32)
        trials = np.broadcast_to(np.where(missing, 0, r).astype(np.int16), counts.shape)
        return replace(self.pair, values=shares, trials=trials)

    def p(self, theta, sharpness=1.0):
        """Probabilities of right answers, one row for each ability."""
        return expit(sharpness * self.a * (np.atleast_1d(theta)[:, None] - self.b))

    def lower(self, theta, points, sharpness):
        """The ability at which the expected score is lower by so many points."""
        grid = np.linspace(-8, 8, 1601)
        if sharpness not in self.scores:
            self.scores[sharpness] = self.p(grid, sharpness).mean(axis=1)
        scores = self.scores[sharpness]
        return np.interp(np.interp(theta, grid, scores) - points / 100, scores, grid)

    def clusters(self, n_clusters):
        """A group for each item: sizes that differ, in the order of difficulty."""
        sizes = np.resize(SIZES, n_clusters).astype(float)
        bounds = np.cumsum(sizes / sizes.sum()) * self.n
        groups = np.empty(self.n, int)
        groups[np.argsort(self.b)] = np.minimum(
            np.searchsorted(bounds, np.arange(self.n) + 0.5), n_clusters - 1
        )
        return dict(zip(self.ids, groups.tolist(), strict=True))


def draw(rng, p, trials, shared, groups, run_sd=0.0):
    """Right answers in each trial, items x trials.

    A share of the noise is one draw per group; effects of whole runs have an SD in logits.
    """
    u = rng.random((len(p), trials))
    if shared:
        common = rng.random((groups.max() + 1, trials))[groups]
        u = np.where(rng.random((len(p), 1)) < shared, common, u)
    moves = rng.normal(0, run_sd, trials) if run_sd else np.zeros(trials)
    return (u < expit(logit(p)[:, None] + moves)).astype(np.float32)


def run_cell(world, cell, pairs, seed):
    """One row: verdicts of all pairs of a cell."""
    rng = np.random.default_rng(seed)
    c = {**DEFAULTS, **cell}
    groups_of = world.clusters(c["clusters"]) if c["clusters"] else None
    groups = np.array([groups_of[i] for i in world.ids]) if groups_of else np.zeros(world.n, int)
    fixed = None
    if c["subset"] != "random":
        fixed = select(world.bank, c["k"], strategy=c["subset"], calibration=world.calibration)
    rows = []
    for _ in range(pairs):
        theta = rng.normal() if c["theta"] is None else c["theta"]
        if c["points"]:
            theta = np.clip(theta, -1.5, 1.5)
        p_old = world.p(theta, c["sharpness"])[0]
        p_new = p_old
        if c["points"]:
            lower = world.lower(theta, c["points"], c["sharpness"])
            p_new = world.p(lower, c["sharpness"])[0]
        if c["item_sd"]:  # the models differ by item, and not in the mean
            move = rng.normal(0, c["item_sd"], world.n)
            p_new = expit(logit(p_new) + move)
        made = np.array([draw(rng, p, c["trials"], c["shared"], groups, c["run_sd"])
                         for p in (p_old, p_new)])  # fmt: skip
        subset = fixed or world.random_subset(rng, c["k"])
        at = np.isin(world.ids, subset.item_ids)
        responses = world.responses(made, None if c["known"] else at, c["numbered"])
        reruns = None
        if c["reruns"] == "second":
            again = draw(rng, p_old, 1, c["shared"], groups)[:, 0]
            again = np.where(at, again, np.nan)[None]
            reruns = Responses.from_array(again, ["old"], world.ids)
        elif c["reruns"] == "icc":
            v = (p_old * (1 - p_old)).mean()
            reruns = float(1 - v / (v + p_old.var()))
        result = compare(
            world.calibration, subset, responses, "new", "old", clusters=groups_of,
            reruns=reruns, estimand=c["estimand"], margin=c["margin"],
        )  # fmt: skip
        true = (p_new - p_old).mean()
        inside, width = result.lower <= true <= result.upper, result.upper - result.lower
        rows.append((result.verdict, inside, width, result.p_rerun, *figures(made[:, at])))
    return row_of(c, pairs, rows)


def figures(made):
    """What tests in use need: z and t of the means, and the discordant items of a first run."""
    k, means = made.shape[1], made.mean(axis=2)
    d = means[1] - means[0]
    unpaired = np.sqrt(means.var(axis=1, ddof=1).sum() / k)
    paired = d.std(ddof=1) / np.sqrt(k)
    gap = abs(d.mean())
    better, worse = ((made[i, :, 0] > made[1 - i, :, 0]).sum() for i in (1, 0))
    return gap / (unpaired or np.inf), gap / (paired or np.inf), min(better, worse), better + worse


def row_of(c, pairs, rows):
    """Shares of a cell."""
    verdicts = np.array([row[0] for row in rows])
    numbers = np.array([row[1:] for row in rows], float)
    decided = np.isin(verdicts, ["better", "worse"])
    same = c["points"] == 0 and c["item_sd"] == 0
    return {
        **c,
        "pairs": pairs,
        "decided": decided.mean(),
        "worse": (verdicts == "worse").mean(),
        "p_binomial": stats.binomtest(int(decided.sum()), pairs, LEVEL, "greater").pvalue
        if same and c["estimand"] != "run" else np.nan,
        "coverage": numbers[:, 0].mean(),
        "width": 100 * numbers[:, 1].mean(),
        "p_rerun": numbers[:, 2].mean(),
        "unpaired_z": (2 * stats.norm.sf(numbers[:, 3]) < LEVEL).mean(),
        "paired_t": (2 * stats.t.sf(numbers[:, 4], c["k"] - 1) < LEVEL).mean(),
        "mcnemar": (2 * stats.binom.cdf(numbers[:, 5], numbers[:, 6], 0.5) < LEVEL).mean(),
    }  # fmt: skip


def cells():
    """All cells: one factor at a time."""
    out = [{"k": k, "trials": trials} for k in KS for trials in (1, 3, 5)]
    out += [{"k": k, "known": True} for k in KS]
    out += [{"k": k, "known": True, "trials": 3} for k in KS]
    out += [{"k": k, "subset": "balanced", "trials": t} for k in (30, 100, 300) for t in (1, 3)]
    out += [{"k": k, "subset": "balanced", "known": True} for k in (100, 300)]
    out += [{"k": 898, "sharpness": s, "trials": t} for s in (0.2, 3.0) for t in (1, 3)]
    out += [{"k": k, "theta": x, "trials": t}
            for k in (30, 300) for x in (-4.0, 4.0) for t in (1, 3)]  # fmt: skip
    out += [{"k": k, "clusters": g, "trials": t, "shared": s}
            for k in (300, 898) for g in (8, 20)
            for t, s in ((1, 0.0), (1, 0.8), (3, 0.0))]  # fmt: skip
    out += [{"k": k, "reruns": r} for k in (30, 300, 898) for r in ("second", "icc")]
    out += [{"k": k, "estimand": "domain", "known": x} for k in (300, 898) for x in (False, True)]
    out += [{"k": k, "estimand": "run"} for k in (100, 600, 898)]
    out += [{"k": k, "trials": t, "points": x} for k in (100, 300, 898) for t in (1, 5)
            for x in (2.0, 4.0)]  # fmt: skip
    out += [{"k": k, "known": True, "points": 4.0, "trials": t} for k in (300, 600) for t in (1, 5)]
    out += [{"k": k, "trials": t, "item_sd": 1.0} for k in (100, 300, 898) for t in (1, 5)]
    if hasattr(Responses, "from_trials"):
        out += [{"k": k, "trials": t, "numbered": True, "run_sd": x}
                for k in (100, 898) for t in (3, 5) for x in (0.0, 0.1, 0.5)]  # fmt: skip
        out += [{"k": k, "trials": 3, "numbered": True, "clusters": 20, "shared": 0.8}
                for k in (300, 898)]  # fmt: skip
    return out


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pairs", type=int, default=1000)
    parser.add_argument("--quick", action="store_true", help="a tenth of the pairs, every 3rd cell")
    parser.add_argument("--out", type=Path, default=Path(__file__).parent)
    options = parser.parse_args()
    world, began = World(make_bank()), time.time()
    chosen = cells()[::3] if options.quick else cells()
    pairs = max(options.pairs // 10, 50) if options.quick else options.pairs
    path = options.out / ("quick.csv" if options.quick else "aa.csv")
    rows = []
    for number, cell in enumerate(chosen):
        rows.append(run_cell(world, cell, pairs, number))
        shown = {name: round(rows[-1][name], 3) for name in ("decided", "coverage", "width")}
        print(f"{time.time() - began:5.0f} s", cell, shown, flush=True)
        table = with_holm(pd.DataFrame(rows))
        table.round(4).to_csv(path, index=False)
    tested = table["p_holm"].notna()
    failed = int((table["p_holm"] < LEVEL).sum())
    most = table.loc[tested, "decided"].max()
    print(f"{tested.sum()} A/A cells of {pairs} pairs: false verdicts in at most {most:.3f} of the "
          f"pairs of a cell; {failed} cells above {LEVEL:.0%}")  # fmt: skip


def with_holm(table):
    """The table with Holm's p-values over the A/A cells."""
    p = table["p_binomial"].dropna().sort_values()
    adjusted = (p * np.arange(len(p), 0, -1)).cummax().clip(upper=1)
    return table.assign(p_holm=adjusted.reindex(table.index))


if __name__ == "__main__":
    main()
