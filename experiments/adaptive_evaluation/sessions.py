"""Adaptive sessions against a fixed subset of the same length, and against published choices.

    python experiments/adaptive_evaluation/sessions.py --data DATA [--draws 8] [--out FILE]

Each draw calibrates some models and holds others out: a random quarter ("similar"), those with the
highest scores ("stronger"), whole families ("family", by the organisation in the id), or the latest
quarter ("date"). At most 16 of these are evaluated, drawn anew each time. Of sets with thousands of
models, 400 are drawn once.

- "session": `irtcat.cat.plan_evaluation`.
- "fixed": the subset of `irtcat.select` with the same length and expectation.
- "Fluid-like": the item of the greatest information of a 2PL bank at the MAP estimate (the first
  ``--peers`` draws).
- "ATLAS-like": the same of a 3PL bank at Warm's estimate (the first ``--atlas`` draws of "similar",
  which take long).

The scores of the last two are the answers, and the curves at the estimate for the other items.
Where sessions ask the fixed subset alone because stronger or weaker models are expected, or fewer
than 100 are calibrated, both are equal, which tests assert, and nothing is listed. Where replays of
calibrated models say so the cell is listed, with that prediction for both.

The table has mean absolute errors in percentage points; the ratio of sessions to the fixed subset
with a 95 % interval (models and draws resampled: Owen 2007, Annals of Applied Statistics 1); the
share of the 95 % intervals that contain the score, and whether it is below .90 by a one-sided
binomial test at 1 %.

The errors of all draws are kept in a file, after each of which a stopped run goes on.
"""

import argparse
import itertools
import pickle
import time
from pathlib import Path

import numpy as np
import pandas as pd
from joint_model import SETS
from scipy.stats import binom

import irtcat
from irtcat import leaderboard
from irtcat.cat import Config, plan_evaluation, replay
from irtcat.cat.engine.replays import FEWEST_SUBJECTS
from irtcat.prediction import factor_scores

LENGTHS = (10, 30, 100)
SPLITS = {
    "similar": "random",
    "stronger": "ability",
    "family": "metadata:family",
    "date": "before:date",
}
HELLASWAG = {"hellaswag": "metabench_openllm/responses_hellaswag_v1.npz"}  # 58 items: 10 alone
NAMES = ("digits", "swebench", "arc", "ifeval", "metabench", *HELLASWAG)
DATES = ("swebench",)  # of which 67 would be calibrated for "stronger"
FAMILIES = ("arc", "ifeval", "metabench", *HELLASWAG)
LARGE = ("metabench", *HELLASWAG)
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
    """Responses without duplicates, with families and dates; of large sets some complete rows."""
    if name == "digits":
        return irtcat.datasets.load("digits_crowd")
    with np.load(Path(folder) / (SETS | HELLASWAG)[name], allow_pickle=True) as file:
        x, names = file["X"], np.asarray(file["subjects"], str)
    rows = np.flatnonzero((x >= 0).all(axis=1))
    if name in LARGE:
        rows = np.sort(np.random.default_rng(0).permutation(rows)[:MOST])
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


def ways(old, new, seed, expects, peers):
    """Expectation, length, way, and the scores with their intervals."""
    bank = irtcat.fit(old, standard_errors="none").bank
    lengths = [k for k in LENGTHS if k <= old.n_items // 2]
    for expect, k in itertools.product(expects, lengths):
        plan = plan_evaluation(bank, old, k, expect, seed=seed, nodes=NODES)
        subset = irtcat.select(None, k, calibration=old, expect=expect, seed=seed)
        p = irtcat.predict(old, subset, new, expect=expect, pooled=False, estimand="run")
        yield expect, k, "fixed", p
        if plan.config.criterion != "sequential":
            report = replay(plan.bank, new, plan.config, precision="float32")
            p = report.predict(plan.bank, old, estimand="run")
        yield expect, k, "session", p
    for way in peers:
        own, method = bank, "map"
        if way == "ATLAS-like":
            own, method = irtcat.fit(old, "3pl", standard_errors="none").bank, "wle"
        config = Config(max_items=max(lengths), method=method, nodes=NODES)
        report = replay(own, new, config, precision="float32")
        for k in lengths:
            yield "-", k, way, at_estimate(own, report, new, k)


def results(data, split, seed, peers):
    """A row for each way: errors, and whether the intervals contain the score."""
    old, new = leaderboard.split_subjects(data, SPLITS[split], seed)
    assert old.n_subjects >= FEWEST_SUBJECTS
    drawn = np.random.default_rng(seed).permutation(new.n_subjects)[:HELD_OUT]
    new = new.subset(subjects=np.sort(drawn))
    truth = leaderboard.full_scores(new)
    expects = (None,) if split == "stronger" else (None, "similar")
    for expect, k, way, p in ways(old, new, seed, expects, peers):
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


def draws(options, rows):
    """Add the rows of the draws that they lack, and save them after each draw."""
    done = {(row["data"], row["split"], row["seed"]) for row in rows}
    matrices = {name: load(options.data, name) for name in options.sets.split(",")}
    for draw, (name, data) in itertools.product(range(options.draws), matrices.items()):
        has = {"family": name in FAMILIES, "date": name in DATES, "stronger": name not in DATES}
        for split in (one for one in options.splits.split(",") if has.get(one, True)):
            seed = options.first + draw
            if (name, split, seed) in done:
                continue
            has_peer = draw < options.peers, split == "similar" and draw < options.atlas
            peers = [way for way, has_it in zip(PEERS, has_peer, strict=True) if has_it]
            rows += [{"data": name, **row} for row in results(data, split, seed, peers)]
            part = options.errors.with_suffix(".part")
            part.write_bytes(pickle.dumps(rows))
            part.replace(options.errors)
            print(f"draw {seed}, {name}, {split}: {time.process_time():.0f} s", flush=True)
    return rows


def main():
    """Run, print, save."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--data", help="folder; without it the saved errors are reported")
    parser.add_argument("--sets", default=",".join(NAMES))
    parser.add_argument("--splits", default=",".join(SPLITS))
    parser.add_argument("--draws", type=int, default=8)
    parser.add_argument("--first", type=int, default=50, help="seed of the first draw")
    parser.add_argument("--peers", type=int, default=4, help="draws with the Fluid-like choice")
    parser.add_argument("--atlas", type=int, default=1, help="draws with the ATLAS-like choice")
    parser.add_argument("--errors", type=Path, default=Path("session_errors.pkl"))
    parser.add_argument("--out", default="sessions.csv")
    options = parser.parse_args()
    rows = pickle.loads(options.errors.read_bytes()) if options.errors.exists() else []
    if options.data:
        draws(options, rows)
    table, overall = summary(rows)
    table.to_csv(options.out)
    print(table.to_string(), overall.to_string(), sep="\n\n")


if __name__ == "__main__":
    main()
