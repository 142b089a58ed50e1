"""What it is worth to say what one expects of new models: `expect`, against published methods.

Splits: *interp*, a quarter of the models held out at random; *stronger*, the top 30 % predicted
from the bottom half; *weaker*, the bottom 30 % from the top half; *date*, the latest quarter from
the earlier ones, where dates are known. Items are chosen again in every draw (and in interp the
models held out). MAE in points, tau-b and coverage of the 95 % intervals.
With `--papers` also mRMR with kernel ridge and SparseEval, which take most of the time.

    python experiments/subset_selection/expectations.py --data FOLDER [--sets arc] [--draws 8]

`expectations.csv` has a row per data set, split, number of items and method; `ratios.csv` the
geometric means of the ratios to the baselines. Errors are saved after each draw: a stopped run goes
on, and without `--data` the tables are made from them.
"""

import argparse
import functools
import itertools
import pickle
import time
from pathlib import Path

import numpy as np
import pandas as pd
from baselines import kernel_ridge, mrmr, sparse_eval
from run import SETS as MATRICES

import irtcat
from irtcat import agreement, leaderboard
from irtcat.selection import centred_scores

HERE = Path(__file__).parent
KS = (10, 30, 100)
MATRICES = {name: path for name, (path, _) in MATRICES.items()}
MATRICES["swe_agents"] = "agentic_coding/responses_swebench_verified.npz"
DATES = {"livecodebench": "release_date", "swebench": "date"}
BASELINES = (
    ("random", "mean"),
    ("stratified", "mean"),
    ("stratified", "aipw"),
    ("score-optimal", "ridge"),
    ("kmeans-correctness", "ridge"),
)
OURS = {
    "interp": (None, "similar"),
    "stronger": (None, "stronger"),
    "weaker": (None, "weaker"),
    "date": (None, "similar", "stronger"),
}
REGRESSIONS = (
    ("score-optimal", "ridge"),
    ("kmeans-correctness", "ridge"),
    ("mRMR", "kernel ridge"),
    ("SparseEval", "SparseEval"),
)


def load(folder, name):
    """The responses without duplicates, with dates where they are known."""
    with np.load(Path(folder) / MATRICES[name], allow_pickle=True) as file:
        x, subjects = file["X"], file.get("subjects")
    dates = None
    if name == "swe_agents":
        dates = [int(str(subject)[:8]) for subject in subjects]
    elif name in DATES:
        table = pd.read_csv((Path(folder) / MATRICES[name]).with_name("subjects.csv"))
        dates = pd.to_datetime(table[DATES[name]]).astype(np.int64).tolist()
    if name == "metabench":
        x = x[(x >= 0).all(axis=1)]
    if x.dtype.kind == "f":
        x = np.clip(x, 0, 1)
    ids = [f"s{i + 1}" for i in range(len(x))]
    frame = None if dates is None else pd.DataFrame({"date": dates}, index=ids)
    return irtcat.Responses.from_array(x, subjects=frame).without_duplicate_subjects()


def split(responses, kind, seed):
    """Calibrated and held-out responses."""
    if kind == "interp":
        return leaderboard.split_subjects(responses, "random", seed)
    if kind == "stronger":
        return leaderboard.split_subjects(responses, "ability")
    if kind == "date":
        return leaderboard.split_subjects(responses, "before:date")
    order = np.argsort(leaderboard.full_scores(responses), kind="stable")
    n = len(order)
    weak, strong = np.sort(order[: int(0.3 * n)]), np.sort(order[n // 2 :])
    return responses.subset(subjects=strong), responses.subset(subjects=weak)


def scores_on(responses, items, means):
    """Scores on some items, 0 to 1; missing ones are the calibrated means."""
    x = responses.to_numpy()[:, items] / max(responses.n_categories - 1, 1)
    return np.where(np.isnan(x), means[items], x)


def draw(folder, name, kind, seed, with_papers):
    """Errors and coverage of every method in one draw."""
    calibration, new = split(load(folder, name), kind, seed)
    truth = leaderboard.full_scores(new)
    scores = centred_scores(calibration)
    x = np.clip(scores.centred + scores.means, 0, 1).astype(float)
    y, rows = leaderboard.full_scores(calibration), []

    def record(k, strategy, estimator, expect, score, interval=None):
        # A mean of answers has nothing but the others' scores where none of the items is answered.
        score = np.where(np.isnan(score), y.mean(), score)
        covered = None if interval is None else (interval[0] <= truth) & (truth <= interval[1])
        width = np.nan if interval is None else 100 * np.nanmean(interval[1] - interval[0])
        rows.append(
            {
                "data": name,
                "split": kind,
                "n_items": k,
                "strategy": strategy,
                "estimator": estimator,
                "expect": expect or "-",
                "seed": seed,
                "error": 100 * np.abs(score - truth),
                "tau": agreement.kendall_tau_b(score, truth),
                "covered": covered,
                "width": width,
                "subjects": np.asarray(new.subject_ids, str),
            }
        )

    for k in KS:
        if k > calibration.n_items // 2:
            continue
        for expect in OURS[kind]:
            subset = irtcat.select(None, k, calibration=calibration, expect=expect, seed=seed)
            p = irtcat.predict(calibration, subset, new)
            name_of = "balanced" if expect is None else "default"
            record(k, name_of, "auto", expect, p.score, (p.lower, p.upper))
            if expect is None:  # each model as if it were the only one
                p = irtcat.predict(calibration, subset, new, pooled=False)
                record(k, name_of, "auto, alone", expect, p.score, (p.lower, p.upper))
        for strategy, pairs in itertools.groupby(BASELINES, lambda pair: pair[0]):
            subset = irtcat.select(None, k, strategy=strategy, calibration=calibration, seed=seed)
            for _, estimator in pairs:
                p = irtcat.predict(calibration, subset, new, estimator=estimator)
                record(k, strategy, estimator, None, p.score, (p.lower, p.upper))
        if not with_papers:
            continue
        items = mrmr(x, y, k)
        answers = scores_on(new, items, scores.means)
        record(k, "mRMR", "kernel ridge", None, kernel_ridge(x[:, items], y, answers, seed))
        on = functools.partial(scores_on, new, means=scores.means)
        record(k, "SparseEval", "SparseEval", None, sparse_eval(x, y, on, k, seed))
    return rows


def summarised(rows):
    """One row per cell and method: errors, coverage, and a test that the coverage is below .90."""
    table = pd.DataFrame(rows)
    keys = ["split", "data", "n_items", "strategy", "estimator", "expect"]
    out = []
    for key, group in table.groupby(keys, sort=False):
        errors = np.concatenate(group["error"].tolist())
        row = dict(zip(keys, key, strict=True))
        row |= {
            "draws": len(group),
            "mae": np.nanmean(errors),
            "tau": group["tau"].mean(),
            "width": group["width"].mean(),
        }
        if group["covered"].iloc[0] is not None:
            covered = np.concatenate(group["covered"].tolist())
            subjects = np.concatenate(group["subjects"].tolist())
            by_subject = pd.Series(covered.astype(float)).groupby(subjects).mean()
            error = by_subject.std() / np.sqrt(len(by_subject))
            row |= {
                "coverage": covered.mean(),
                "n_subjects": len(by_subject),
                "below_.90": by_subject.mean() + 2.326 * error < 0.9,
            }
        out.append(row)
    return pd.DataFrame(out)


def bootstrapped(rows, ours, others, n=400):
    """Ratio of mean errors to the best of some methods, with draws and models resampled (95 %).

    With them the mean tau-b of both, and the number of draws.
    """
    rng, out = np.random.default_rng(0), []
    for key, cell in pd.DataFrame(rows).groupby(["split", "data", "n_items"], sort=False):
        method = list(zip(cell["strategy"], cell["estimator"], cell["expect"], strict=True))
        grouped = cell.groupby(pd.Series(method, cell.index))
        parts = {name: part.set_index("seed") for name, part in grouped}
        have = [parts[other] for other in others if other in parts]
        if ours not in parts or not have:
            continue
        mine, best = parts[ours], min(have, key=lambda part: np.nanmean(np.hstack(part["error"])))
        a, b = (np.concatenate([part["error"][s] for s in mine.index]) for part in (mine, best))
        draw = np.repeat(np.arange(len(mine)), mine["error"].map(len))
        _, model = np.unique(np.concatenate(mine["subjects"].tolist()), return_inverse=True)
        weights = 1.0
        for index in (draw, model):
            size = index.max() + 1
            weights = weights * rng.multinomial(size, np.full(size, 1 / size), n)[:, index]
        use = np.isfinite(a) & np.isfinite(b)
        ratios = (weights[:, use] @ a[use]) / np.maximum(weights[:, use] @ b[use], 1e-12)
        low, high = np.quantile(ratios, [0.025, 0.975])
        taus = mine["tau"].mean(), best["tau"].mean()
        out.append([*key, a[use].mean() / b[use].mean(), low, high, *taus, len(mine)])
    columns = ["split", "data", "n_items", "ratio", "low", "high", "tau", "tau_against", "draws"]
    return pd.DataFrame(out, columns=columns)


GOALS = (
    ("interp", None, (("score-optimal", "ridge"),), 1.0),
    ("stronger", None, (("stratified", "mean"),), 1.0),
    ("weaker", None, (("stratified", "mean"),), 1.0),
    ("interp", "similar", (("stratified", "mean"), *REGRESSIONS), 1.03),
    ("stronger", "stronger", (("stratified", "mean"),), 0.93),
    ("weaker", "weaker", (("stratified", "mean"),), 0.93),
    ("date", None, (("stratified", "mean"),), 1.0),
    ("date", "stronger", (("stratified", "mean"),), 1.0),
    ("date", "similar", (("stratified", "mean"), *REGRESSIONS), 1.03),
)


def report(rows, out):
    """Print and save the tables."""
    table = summarised(rows).round(4)
    table.to_csv(out / "expectations.csv", index=False)
    ratios = []
    for kind, expect, others, goal in GOALS:
        ours = ("balanced" if expect is None else "default", "auto", expect or "-")
        cells = bootstrapped(rows, ours, [(*other, "-") for other in others])
        cells = cells[cells["split"] == kind]
        mine = table[(table["split"] == kind) & (table["expect"] == ours[2])]
        mine = mine[mine["estimator"] == "auto"]
        for n_items, part in [*cells.groupby("n_items"), ("all", cells)]:
            of = mine if n_items == "all" else mine[mine["n_items"] == n_items]
            against = "the best" if len(others) > 1 else " + ".join(others[0])
            ratios.append(
                {
                    "split": kind,
                    "expect": ours[2],
                    "against": against,
                    "n_items": n_items,
                    "cells": len(part),
                    "ratio": np.exp(np.log(part["ratio"]).mean()),
                    "goal": goal,
                    "draws": part["draws"].min(),
                    "worst": part["ratio"].max(),
                    "tau": part["tau"].mean(),
                    "tau_against": part["tau_against"].mean(),
                    "above_1.15": int((part["low"] > 1.15).sum()),
                    "coverage": of["coverage"].mean(),
                    "least_coverage": of["coverage"].min(),
                    "below_.90": int(of["below_.90"].sum()),
                }
            )
    ratios = pd.DataFrame(ratios).round(3)
    ratios.to_csv(out / "ratios.csv", index=False)
    print(ratios.to_string(index=False))


def main():
    """Run what is missing, and report."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--data")
    parser.add_argument("--sets", default=",".join(MATRICES))
    parser.add_argument("--splits", default=",".join(OURS))
    parser.add_argument("--draws", type=int, default=8)
    parser.add_argument("--first", type=int, default=0, help="seed of the first draw")
    parser.add_argument("--papers", action="store_true", help="mRMR and SparseEval, too")
    parser.add_argument("--errors", type=Path, default=Path("errors.pkl"))
    parser.add_argument("--out", type=Path, default=HERE)
    options = parser.parse_args()
    rows = pickle.loads(options.errors.read_bytes()) if options.errors.exists() else []
    done = {(row["data"], row["split"], row["seed"]) for row in rows}
    seeds = range(options.first, options.first + options.draws) if options.data else ()
    tasks = itertools.product(seeds, options.splits.split(","), options.sets.split(","))
    for seed, kind, name in tasks:
        if (name, kind, seed) in done or (kind == "date" and name not in {"swe_agents", *DATES}):
            continue
        rows += draw(options.data, name, kind, seed, options.papers)
        options.errors.write_bytes(pickle.dumps(rows))
        print(f"seed {seed}, {kind}, {name}: {time.process_time():.0f} s", flush=True)
    report(rows, options.out)


if __name__ == "__main__":
    main()
