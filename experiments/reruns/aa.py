"""Does a verdict of `irtcat.compare` survive a rerun? A/A and A/B tests on simulated models.

A/A: two runs of one model, so that every verdict but "cannot tell" is false. At most 5 % may be,
in no cell more by an exact binomial test with Holm's correction. A/B: the new model is worse by a
given number of points; power and width beside tests that are in use.

Models answer a 2PL bank of 898 items (digits_crowd); a pair has one ability. `icc`, the correlation
of two runs over the items at ability 0, sets by how much the slopes of its answers are multiplied,
and `rate` the ability, by its mean score. One factor is changed at a time from k items by a random
draw, one trial and the slopes of the bank; then follow 40 cells in which all factors are drawn.

A cell that is in the table is not run again: an interrupted run goes on where it was.

    python experiments/reruns/aa.py [--quick] [--pairs 2000] [--out experiments/reruns]
"""

import argparse
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
from scipy import optimize, stats
from scipy.special import expit, logit

import irtcat
from irtcat.cat import Config, replay
from irtcat.leaderboard import compare
from irtcat.responses import Responses
from irtcat.selection import Subset, select

KS = (30, 100, 300, 600, 898)
LEVEL = 0.05
SIZES = (1, 2, 3, 5, 8, 12, 20, 40)
"""Sizes of clusters, in turn."""

DEFAULTS = {
    "k": 300,
    "trials": 1,
    "numbered": False,
    "subset": "random",
    "known": False,
    "rate": None,
    "icc": None,
    "clusters": 0,
    "shared": 0.0,
    "run_sd": 0.0,
    "reruns": "",
    "estimand": "model",
    "margin": 0.0,
    "points": 0.0,
    "item_sd": 0.0,
}
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

    def sharpness(self, icc):
        """The factor of the slopes at which two runs of a model of ability 0 correlate so."""
        if icc is None:
            return 1.0
        return 2 ** optimize.brentq(lambda x: icc_of(self.p(0.0, 2**x)[0]) - icc, -6, 8)

    def theta(self, rate, sharpness):
        """The ability of a mean score."""
        return optimize.brentq(lambda x: self.p(x, sharpness).mean() - rate, -60, 60)

    def subsets(self, cell, made, seed):
        """The items of each pair: drawn, chosen once, or those of the old models' sessions."""
        kind, k = cell["subset"], cell["k"]
        rng = np.random.default_rng(seed)
        if kind == "random":
            return [self.random_subset(rng, k) for _ in made]
        if kind == "adaptive":
            first = np.array([pair[0, :, 0] for pair in made]).astype(np.int8)
            answers = Responses.from_array(first, item_ids=self.ids)
            config = Config(max_items=k, min_items=k)
            return list(self.ids[replay(self.bank, answers, config).items])
        seeds = range(len(made)) if kind == "neyman" else [0]
        chosen = [
            select(self.bank, k, strategy=kind, calibration=self.calibration, seed=s) for s in seeds
        ]
        return chosen if kind == "neyman" else chosen * len(made)

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


def icc_of(p):
    """The correlation over items of two runs with these probabilities."""
    return p.var() / (p.var() + (p * (1 - p)).mean())


def draw_pair(rng, world, c, groups):
    """Probabilities of both models, and their answers: 2 x items x trials."""
    sharpness = world.sharpness(c["icc"])
    theta = rng.normal() if c["rate"] is None else world.theta(c["rate"], sharpness)
    if c["points"]:
        theta = np.clip(theta, -1.5, 1.5)
    p_old = p_new = world.p(theta, sharpness)[0]
    if c["points"]:
        p_new = world.p(world.lower(theta, c["points"], sharpness), sharpness)[0]
    if c["item_sd"]:  # the models differ by item, and not in the mean
        p_new = expit(logit(p_new) + rng.normal(0, c["item_sd"], world.n))
    made = [draw(rng, p, c["trials"], c["shared"], groups, c["run_sd"]) for p in (p_old, p_new)]
    return (p_old, p_new), np.array(made)


def run_cell(world, cell, pairs, seed):
    """One row: verdicts of all pairs of a cell."""
    rng = np.random.default_rng(seed)
    c = {**DEFAULTS, **cell}
    groups_of = world.clusters(c["clusters"]) if c["clusters"] else None
    groups = np.array([groups_of[i] for i in world.ids]) if groups_of else np.zeros(world.n, int)
    drawn = [draw_pair(rng, world, c, groups) for _ in range(pairs)]
    subsets = world.subsets(c, [made for _, made in drawn], seed)
    rows = []
    for ((p_old, p_new), made), subset in zip(drawn, subsets, strict=True):
        at = np.isin(world.ids, getattr(subset, "item_ids", subset))
        responses = world.responses(made, None if c["known"] else at, c["numbered"])
        reruns = None
        if c["reruns"] == "second":
            again = draw(rng, p_old, 1, c["shared"], groups)[:, 0]
            again = np.where(at, again, np.nan)[None]
            reruns = Responses.from_array(again, ["old"], world.ids)
        elif c["reruns"] == "icc":
            reruns = float(icc_of(p_old))
        result = compare(
            world.calibration,
            subset,
            responses,
            "new",
            "old",
            clusters=groups_of,
            reruns=reruns,
            estimand=c["estimand"],
            margin=c["margin"],
        )
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
        if same and c["estimand"] != "run"
        else np.nan,
        "coverage": numbers[:, 0].mean(),
        "p_covers": stats.binomtest(int(numbers[:, 0].sum()), pairs, 1 - LEVEL, "less").pvalue
        if c["estimand"] != "run"
        else np.nan,
        "width": 100 * numbers[:, 1].mean(),
        "p_rerun": numbers[:, 2].mean(),
        "unpaired_z": (2 * stats.norm.sf(numbers[:, 3]) < LEVEL).mean(),
        "paired_t": (2 * stats.t.sf(numbers[:, 4], c["k"] - 1) < LEVEL).mean(),
        "mcnemar": (2 * stats.binom.cdf(numbers[:, 5], numbers[:, 6], 0.5) < LEVEL).mean(),
    }


TRIALS = (1, 3, 5, 10)
RATES = (0.01, 0.05, 0.2, 0.8, 0.95, 0.99)
ICCS = (0.1, 0.3, 0.5, 0.7, 0.95)
RANDOM_CELLS = 40


def cells():
    """All cells: one factor at a time, then combinations."""
    out = [{"k": k, "trials": trials} for k in KS for trials in TRIALS]
    out += [{"k": k, "known": True, "trials": t} for k in KS for t in (1, 3)]
    out += [
        {"k": k, "subset": s, "trials": t}
        for s in ("balanced", "neyman", "adaptive")
        for k in (30, 100, 300)
        for t in (1, 3)
    ]
    out += [
        {"k": k, "subset": s, "known": True} for s in ("balanced", "neyman") for k in (100, 300)
    ]
    out += [{"k": k, "icc": i, "trials": t} for k in (100, 898) for i in ICCS for t in (1, 3)]
    out += [{"k": k, "rate": x, "trials": t} for k in (30, 300) for x in RATES for t in (1, 3)]
    out += [
        {"k": k, "clusters": g, "trials": t, "shared": s}
        for k in (300, 898)
        for g in (8, 20)
        for t, s in ((1, 0.0), (1, 0.8), (3, 0.0))
    ]
    out += [{"k": k, "reruns": r} for k in (30, 300, 898) for r in ("second", "icc")]
    out += [{"k": k, "estimand": "domain", "known": x} for k in (300, 898) for x in (False, True)]
    out += [
        {"k": k, "trials": t, "numbered": True, "run_sd": x}
        for k in (100, 898)
        for t in (3, 5, 10)
        for x in (0.0, 0.1, 0.5)
    ]
    out += [
        {"k": k, "trials": 3, "numbered": True, "clusters": 20, "shared": 0.8} for k in (300, 898)
    ]
    out += [{"k": k, "estimand": "run"} for k in (100, 600, 898)]
    out += [
        {"k": k, "trials": t, "points": x}
        for k in (100, 300, 898)
        for t in (1, 5)
        for x in (2.0, 4.0)
    ]
    out += [{"k": k, "known": True, "points": 4.0, "trials": t} for k in (300, 600) for t in (1, 5)]
    out += [{"k": k, "trials": t, "item_sd": 1.0} for k in (100, 300, 898) for t in (1, 5)]
    return out + combinations(RANDOM_CELLS)


def combinations(n, seed=0):
    """Cells in which every factor is drawn, as far as what it asks for can be known.

    Effects of whole runs and noise that clusters share need numbered trials (or one trial); what a
    rerun would repeat is asked for with one trial only.
    """
    rng = np.random.default_rng(seed)

    def one(*values):
        return values[rng.integers(len(values))]

    out = []
    for _ in range(n):
        trials = one(*TRIALS)
        numbered = trials > 1 and one(True, False)
        clusters = one(0, 0, 8, 20)
        k = one(*(KS if not clusters else (300, 600, 898)))
        out.append(
            {
                "k": k,
                "trials": trials,
                "numbered": numbered,
                "clusters": clusters,
                "subset": one("random", "random", "balanced", "neyman", "adaptive")
                if k <= 300
                else "random",
                "known": one(True, False),
                "rate": one(None, None, *RATES),
                "icc": one(None, *ICCS),
                "shared": one(0.0, 0.8) if clusters and (numbered or trials == 1) else 0.0,
                "run_sd": one(0.0, 0.3) if numbered and trials > 2 else 0.0,
                "reruns": one("", "second", "icc") if trials == 1 and not clusters else "",
                "estimand": one("model", "model", "domain"),
            }
        )
    return out


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pairs", type=int, default=2000)
    parser.add_argument("--quick", action="store_true", help="a tenth of the pairs, every 3rd cell")
    parser.add_argument("--out", type=Path, default=Path(__file__).parent)
    options = parser.parse_args()
    world, began = World(make_bank()), time.time()
    chosen = list(enumerate(cells()))[:: 3 if options.quick else 1]
    pairs = max(options.pairs // 10, 50) if options.quick else options.pairs
    path = options.out / ("quick.csv" if options.quick else "aa.csv")
    table = pd.read_csv(path) if path.exists() else pd.DataFrame({"cell": []})
    for number, cell in chosen:
        if number in set(table["cell"]):
            continue
        row = {"cell": number, **run_cell(world, cell, pairs, number)}
        shown = {name: round(row[name], 3) for name in ("decided", "coverage", "width")}
        print(f"{time.time() - began:5.0f} s", number, cell, shown, flush=True)
        table = with_holm(pd.concat([table, pd.DataFrame([row]).round(4)], ignore_index=True))
        table.to_csv(path, index=False)
    for p, what in (
        ("p_holm", "false verdicts above 5 %"),
        ("p_covers_holm", "coverage below .95"),
    ):
        tested = table[table[p].notna()]
        most, least = tested["decided"].max(), tested["coverage"].min()
        print(f"{what} in {(tested[p] < LEVEL).sum()} of {len(tested)} cells of {pairs} pairs")
        print(f"verdicts in at most {most:.3f} of the pairs, coverage at least {least:.3f}")


def with_holm(table):
    """The table with Holm's p-values over the cells."""
    out = {}
    for p, name in (("p_binomial", "p_holm"), ("p_covers", "p_covers_holm")):
        ordered = table[p].dropna().sort_values()
        adjusted = (ordered * np.arange(len(ordered), 0, -1)).cummax().clip(upper=1)
        out[name] = adjusted.reindex(table.index).round(4)
    return table.assign(**out)


if __name__ == "__main__":
    main()
