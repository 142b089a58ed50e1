"""Adaptive sessions against a fixed subset of the same length, and against published choices.

    python experiments/adaptive_evaluation/sessions.py --data DATA [--draws 8] [--out FILE]

Each draw calibrates some models and holds others out: a random quarter ("similar"), those with the
highest scores ("stronger"), whole families ("family", by the organisation in the id), or the latest
quarter ("date"). At most 16 of these are evaluated, drawn anew each time.

- "session": `irtcat.cat.plan_evaluation`.
- "fixed": the subset of `irtcat.select` with the same length and expectation.
- "Fluid-like": the item of the greatest information of a 2PL bank at the MAP estimate.
- "ATLAS-like": the same of a 3PL bank at Warm's estimate (the first draws of "similar" only).

The scores of the last two are the answers, and the curves at the estimate for the other items.
Where sessions ask the fixed subset alone because stronger or weaker models are expected, or fewer
than 100 are calibrated, both are equal, which tests assert, and nothing is listed. Where replays of
calibrated models say so the cell is listed, with that prediction for both.

The table has mean absolute errors in percentage points; the ratio of sessions to the fixed subset
with a 95 % interval (models and draws resampled: Owen 2007, Annals of Applied Statistics 1); the
share of the 95 % intervals that contain the score, and whether it is below .90 by a one-sided
binomial test at 1 %.
"""

import argparse
import itertools
import pickle
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
from joint_model import SETS
from scipy.stats import binom

import irtcat
from irtcat import leaderboard
from irtcat.cat import Config, plan_evaluation, replay
from irtcat.cat.engine.columns import factors_of
from irtcat.cat.engine.evaluation_plan import FEWEST_SUBJECTS
from irtcat.prediction import factor_scores
from irtcat.prediction.task import SessionItems

LENGTHS = (10, 30, 100)
SPLITS = {
    "similar": "random",
    "stronger": "ability",
    "family": "metadata:family",
    "date": "before:date",
}
NAMES = ("digits", "swebench", "arc", "ifeval", "metabench")
FAMILIES, DATES = ("arc", "ifeval", "metabench"), ("swebench",)  # the latter has 67 for "stronger"
HELD_OUT, MOST = 16, 400
NODES = 121  # of every bank, so that programs are compiled once
KEY = ["data", "split", "expect", "k"]
PEERS = ("Fluid-like", "ATLAS-like")


def once(fit):
    """A function of an array that remembers its results: sessions of a draw share their fits."""
    results = {}

    def remembered(x, *rest):
        key = x.tobytes(), *rest
        if key not in results:
            if len(results) >= 16:
                results.clear()
            results[key] = fit(x, *rest)
        return results[key]

    return staticmethod(remembered)


factor_scores.FactorModel.fit = once(factor_scores.FactorModel.fit)


def load(folder, name):
    """Responses without duplicates, with families and dates; of metabench some complete rows."""
    if name == "digits":
        return irtcat.datasets.load("digits_crowd")
    with np.load(Path(folder) / SETS[name], allow_pickle=True) as file:
        x, names = file["X"], np.asarray(file["subjects"], str)
    rows = np.flatnonzero((x >= 0).all(axis=1))
    rows = (
        np.sort(np.random.default_rng(0).permutation(rows)[:MOST]) if name == "metabench" else rows
    )
    x, names = x[rows], names[rows]
    columns = {}
    if name in FAMILIES:
        columns["family"] = [one.split("/")[0] for one in names]
    if name in DATES:
        columns["date"] = [int(one[:8]) for one in names]
    frame = pd.DataFrame(columns, index=[f"s{i + 1}" for i in range(len(x))])
    return irtcat.Responses.from_array(x, subjects=frame).without_duplicate_subjects()


def at_estimate(bank, report, new, k):
    """Full scores by the curves at the estimate after k items, and the answers to these."""
    p = bank.category_probabilities(report.thetas[:, k - 1])[..., 1].T
    asked = np.zeros(p.shape, bool)
    np.put_along_axis(asked, report.items[:, :k], True, axis=1)
    order = [list(map(str, new.item_ids)).index(item) for item in map(str, bank.item_ids)]
    return np.where(asked, new.to_numpy()[:, order], p).mean(axis=1)


def ways(old, new, seed, expects, has_atlas):
    """Expectation, length, way, and the scores with their intervals."""
    bank = irtcat.fit(old, standard_errors="none").bank
    for expect in expects:
        for k in LENGTHS:
            plan = plan_evaluation(bank, old, k, expect, seed=seed, nodes=NODES)
            subset = irtcat.select(None, k, calibration=old, expect=expect, seed=seed)
            p = irtcat.predict(old, subset, new, expect=expect, pooled=False, estimand="run")
            yield expect, k, "fixed", p
            if plan.config.criterion != "sequential":
                report = replay(plan.bank, new, plan.config, precision="float32")
                p = report.predict(plan.bank, old, estimand="run")
            yield expect, k, "session", p
    banks = {"Fluid-like": (bank, "map")}
    if has_atlas:
        banks["ATLAS-like"] = irtcat.fit(old, "3pl", standard_errors="none").bank, "wle"
    for way, (own, method) in banks.items():
        config = Config(max_items=max(LENGTHS), method=method, nodes=NODES)
        report = replay(own, new, config, precision="float32")
        for k in LENGTHS:
            yield "-", k, way, at_estimate(own, report, new, k)


def quick_ways(old, new, seed):
    """The same for "similar" without fits and compiled programs.

    The choice by factors, which needs no bank, is made in NumPy; a test asserts that sessions
    choose the same items.
    """
    bank = irtcat.ItemBank.from_parameters(b=np.zeros(old.n_items), item_ids=old.item_ids)
    new = new.subset(items=old.item_ids)
    for k in LENGTHS:
        plan = plan_evaluation(bank, old, k, "similar", seed=seed)
        subset = irtcat.select(None, k, calibration=old, expect="similar", seed=seed)
        p = irtcat.predict(old, subset, new, expect="similar", pooled=False, estimand="run")
        yield "similar", k, "fixed", p
        if plan.config.criterion != "sequential":
            table = factors_of(plan.bank)
            model = factor_scores.FactorModel(table[:, 0], table[:, 1:])
            core = bank.positions(list(plan.config.fixed.items[: plan.config.fixed.n_core]))
            asked = model.session(new.to_numpy().astype(float), core, k)
            answers = replace(new, values=np.where(asked, new.values, -1).astype(np.int8))
            items = SessionItems(np.asarray(old.item_ids), None)
            p = irtcat.predict(old, items, answers, expect="similar", pooled=False, estimand="run")
        yield "similar", k, "session", p


def results(data, split, seed, has_atlas, is_quick):
    """A row for each way: errors, and whether the intervals contain the score."""
    old, new = leaderboard.split_subjects(data, SPLITS[split], seed)
    assert old.n_subjects >= FEWEST_SUBJECTS
    drawn = np.random.default_rng(seed).permutation(new.n_subjects)[:HELD_OUT]
    new = new.subset(subjects=np.sort(drawn))
    truth = leaderboard.full_scores(new)
    expects = (None,) if split == "stronger" else (None, "similar")
    found = quick_ways(old, new, seed) if is_quick else ways(old, new, seed, expects, has_atlas)
    for expect, k, way, p in found:
        row = {"split": split, "expect": str(expect), "k": k, "seed": seed, "way": way}
        row["subjects"] = np.asarray(new.subject_ids, str)
        row["error"] = 100 * np.abs((p if way in PEERS else p.score) - truth)
        if way not in PEERS:
            row["covered"] = (p.lower <= truth) & (truth <= p.upper)
            row["width"] = 100 * (p.upper - p.lower)
        yield row


def resampled(groups, n=1000):
    """Ratios of weighted sums of errors with draws and models resampled.

    Args:
        groups: errors of two ways and ids of the models, of each draw.
        n: number of ratios.
    """
    rng = np.random.default_rng(0)
    names, index = np.unique(np.concatenate([ids for *_, ids in groups]), return_inverse=True)
    draw = np.repeat(np.arange(len(groups)), [len(ids) for *_, ids in groups])
    a, b = (np.concatenate([group[i] for group in groups]) for i in (0, 1))
    of_draws = rng.multinomial(len(groups), np.full(len(groups), 1 / len(groups)), n)
    of_models = rng.multinomial(len(names), np.full(len(names), 1 / len(names)), n)
    weight = of_draws[:, draw] * of_models[:, index]
    return (weight @ a) / np.maximum(weight @ b, 1e-12)


def cell(rows):
    """One row of the table: sessions and the fixed subset in all draws."""
    parts = {way: part.set_index("seed") for way, part in rows.groupby("way")}
    session, fixed = parts["session"], parts["fixed"]
    groups = [
        (session["error"][s], fixed["error"][s], session["subjects"][s]) for s in session.index
    ]
    low, high = np.quantile(resampled(groups), [0.025, 0.975])
    joined = {
        way: {name: np.concatenate(parts[way][name].tolist()) for name in ("covered", "width")}
        for way in ("session", "fixed")
    }
    errors = {way: np.concatenate(part["error"].tolist()).mean() for way, part in parts.items()}
    covered = joined["session"]["covered"]
    return {
        "fixed": errors["fixed"],
        "session": errors["session"],
        "ratio": errors["session"] / errors["fixed"],
        "low": low,
        "high": high,
        "coverage": covered.mean(),
        "below .90": binom.cdf(covered.sum(), len(covered), 0.9) < 0.01,
        "coverage, fixed": joined["fixed"]["covered"].mean(),
        "width": joined["session"]["width"].mean() / joined["fixed"]["width"].mean(),
        "draws": len(session),
        "models": len(covered),
    }


def summary(rows):
    """The cells, and their geometric means by split and expectation."""
    rows = pd.DataFrame(rows)
    is_peer = rows["way"].isin(PEERS)
    table = pd.DataFrame({key: cell(part) for key, part in rows[~is_peer].groupby(KEY)}).T
    table = table.rename_axis(KEY).infer_objects()
    peers = [way for way in PEERS if (rows["way"] == way).any()]
    for way in peers:
        mean = rows[rows["way"] == way].set_index(["data", "split", "k", "seed"])["error"]
        mean = mean.map(np.mean)
        session = rows[rows["way"] == "session"].set_index(["data", "split", "k", "seed"])
        both = session[["expect", "error"]].join(mean.rename("peer"), how="inner")
        both = both.assign(session=both["error"].map(np.mean)).reset_index()
        sums = both.groupby(KEY)[["session", "peer"]].mean()
        table[f"over {way}"] = sums["session"] / sums["peer"]
    table["above 1.10"] = table["low"] > 1.10
    groups = table.reset_index().groupby(["split", "expect"])
    logs = groups[["ratio", *(f"over {way}" for way in peers)]]
    overall = logs.agg(lambda column: np.exp(np.log(column.astype(float)).mean()))
    overall = overall.join(groups[["coverage", "coverage, fixed", "width"]].mean())
    overall = overall.join(groups[["above 1.10", "below .90"]].sum()).assign(cells=groups.size())
    return table.round(3), overall.astype(float).round(3)


def main():
    """Run, print, save."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--data")
    parser.add_argument("--sets", default=",".join(NAMES))
    parser.add_argument("--splits", default=",".join(SPLITS))
    parser.add_argument("--draws", type=int, default=8)
    parser.add_argument("--first", type=int, default=0, help="seed of the first draw")
    parser.add_argument("--atlas", type=int, default=3, help="draws with the ATLAS-like choice")
    parser.add_argument("--quick", action="store_true", help='"similar" alone, without peers')
    parser.add_argument("--errors", default="session_errors.pkl", help="errors of all draws")
    parser.add_argument("--report", nargs="+", help="only report these saved errors")
    parser.add_argument("--out", default="sessions.csv")
    options = parser.parse_args()
    rows = []
    for path in options.report or ():
        rows += pickle.loads(Path(path).read_bytes())
    names = [] if options.report else options.sets.split(",")
    matrices = {name: load(options.data, name) for name in names}
    for draw, (name, data) in itertools.product(range(options.draws), matrices.items()):
        has = {"family": name in FAMILIES, "date": name in DATES, "stronger": name not in DATES}
        for split in (one for one in options.splits.split(",") if has.get(one, True)):
            has_atlas = split == "similar" and draw < options.atlas
            new = results(data, split, options.first + draw, has_atlas, options.quick)
            rows += [{"data": name, **row} for row in new]
            Path(options.errors).write_bytes(pickle.dumps(rows))
            print(f"draw {draw + 1}, {name}, {split}: {time.process_time():.0f} s", flush=True)
    table, overall = summary(rows)
    table.to_csv(options.out)
    print(table.to_string(), overall.to_string(), sep="\n\n")


if __name__ == "__main__":
    main()
