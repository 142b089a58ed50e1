"""Missing benchmark scores: `leaderboard.complete` and `probe` against other methods.

Data: the public scores of 84 models on 133 benchmarks of Zeng & Papailiopoulos (2026), with five
seeds of their folds. Three protocols: cells at random (their folds), new models by date, and new
models of which five benchmarks are known, chosen on other models. Prints tables and saves them.

    python experiments/several_benchmarks/score_matrix.py --data DATA/benchmark_scores
"""

import argparse
import json
import subprocess
import time
from pathlib import Path

import numpy as np
import pandas as pd
import peers

from irtcat.leaderboard import complete, completion, probe, score_factors

HERE = Path(__file__).parent
UNITS = {
    "chatbot_arena_elo": "elo",
    "codeforces_rating": "elo",
    "gdpval_aa_elo": "elo",
    "swelancer_freelance_dollars": "dollars",
    "vending_bench_2": "dollars",
    "aa_intelligence_index": "index",
    "omnidocbench": "distance",
}
"""Columns that are not in percent: reported apart."""
PUBLISHED_PROBES = ["gpqa_diamond", "hle", "codeforces_rating", "mmlu_pro", "arc_agi_1"]
"""Their five probes, chosen on all models: for reference, not held out."""
FIRST, LAST, MOST_NEW = "2025-01-20", "2025-11-13", 20
"""Their rule for new releases: dates, and more than so many scores."""
N_PROBES, N_MODEL_FOLDS = 5, 5


class Data:
    """Scores, features of the models, and folds."""

    def __init__(self, folder):
        self.scores = pd.read_csv(folder / "scores.csv", index_col=0)
        models = pd.read_csv(folder / "models.csv", index_col=0).loc[self.scores.index]
        self.dates = pd.to_datetime(models["release_date"].astype(str), format="mixed")
        self.features = models[["provider", "reasoning"]].assign(release=self.dates)
        self.folds = json.loads((folder / "folds.json").read_text())["folds"]


def usable(scores):
    """The benchmarks that can be modelled: with a score, and two values in other units."""
    values = scores.nunique()
    keep = [name for name in scores if values[name] > (1 if name in UNITS else 0)]
    return scores[keep], {name: unit for name, unit in UNITS.items() if name in keep}


def tables_of(made, scores):
    """Score, lower and upper end as tables with the columns of ``scores``."""
    tables = (made.score, made.lower, made.upper)
    frames = [pd.DataFrame(table, made.models, made.benchmarks) for table in tables]
    return [frame.reindex(columns=scores.columns) for frame in frames]


def ours(features):
    """`complete`, with or without features of the models."""

    def predict(scores, level=0.9):
        known, units = usable(scores)
        about = None if features is None else features.loc[scores.index]
        return tables_of(complete(known, level, units=units, model_features=about), scores)

    return predict


def peer(function):
    """Another method, on the same logits; it has no intervals."""

    def predict(scores):
        known, units = usable(scores)
        table = completion.score_table(known, units)
        completed = pd.DataFrame(
            table.restored(function(table.modelled())), scores.index, known.columns
        )
        return [completed.reindex(columns=scores.columns)]

    return predict


def benchpress_scale(table):
    """Their scale, logits of scores clipped to .5 and 99.5 or other units, and its inverse."""
    share = np.clip(table.values / 100, 0.005, 0.995)
    y = np.where(table.bounded, np.log(share / (1 - share)), table.values)

    def restored(y):
        return np.where(table.bounded, 100 / (1 + np.exp(-np.clip(y, -30, 30))), y)

    return y, restored


def benchpress(scores):
    """The published method, rebuilt, on its own scale."""
    known, units = usable(scores)
    y, restored = benchpress_scale(completion.score_table(known, units))
    completed = pd.DataFrame(restored(peers.benchpress(y)), scores.index, known.columns)
    return [completed.reindex(columns=scores.columns)]


def methods(data):
    """The methods by name."""
    return {
        "complete, with features": ours(data.features),
        "complete": ours(None),
        "BenchPress, rebuilt": benchpress,
        "factor analysis, rank 1": peer(lambda y: peers.factor_analysis(y, 1)),
        "factor analysis, rank 2": peer(lambda y: peers.factor_analysis(y, 2)),
        "factor analysis, rank 3": peer(lambda y: peers.factor_analysis(y, 3)),
        "ridge regression": peer(peers.ridge_regression),
        "levels of models and benchmarks": peer(peers.additive),
        "mean of the benchmark": peer(peers.benchmark_mean),
    }


def cells(prediction, truth, hidden):
    """One row for each hidden cell: error, whether it is in percent, and whether it is covered."""
    rows, columns = np.nonzero(hidden.to_numpy())
    names = truth.columns.to_numpy()[columns]
    value = truth.to_numpy()[rows, columns]
    sds = truth.std().reindex(names).to_numpy()
    out = pd.DataFrame({"percent": ~np.isin(names, list(UNITS)), "benchmark": names})
    error = np.abs(prediction[0].to_numpy()[rows, columns] - value)
    out["raw"] = error
    out["error"] = np.where(out["percent"], error, error / sds)
    if len(prediction) > 1:
        low, high = (table.to_numpy()[rows, columns] for table in prediction[1:])
        out["covered"] = ((value >= low) & (value <= high)).astype(float)
        out["width"] = np.where(out["percent"], high - low, (high - low) / sds)
    return out.dropna(subset=["error"])


def constant_intervals(folds):
    """Intervals of a method without any: as wide as 90 % of the errors in the other folds."""
    for i, fold in enumerate(folds):
        others = pd.concat([other for k, other in enumerate(folds) if k != i])
        for kind in (True, False):
            half = others.loc[others["percent"] == kind, "error"].quantile(0.9)
            at = fold["percent"] == kind
            fold.loc[at, "covered"] = (fold.loc[at, "error"] <= half).astype(float)
            fold.loc[at, "width"] = 2 * half
    return folds


def summary(folds, units):
    """Figures over folds: in percent, in other units (errors in SDs of a benchmark), or in all.

    The published figures are of all cells: 96 % in percent, the others in points, dollars, ...
    """
    parts = [fold.assign(error=fold["raw"]) for fold in folds]
    if units != "all":
        parts = [fold[fold["percent"] == (units == "percent")] for fold in folds]
    pooled = pd.concat(parts)
    covered = [part["covered"].mean() for part in parts]
    return {
        "cells": len(pooled),
        "median_error": pooled["error"].median(),
        "median_by_fold": np.mean([part["error"].median() for part in parts]),
        "mean_error": pooled["error"].mean(),
        "within_5": (pooled["error"] <= 5).mean() if units != "other" else np.nan,
        "coverage": pooled["covered"].mean(),
        "coverage_least": np.min(covered),
        "coverage_most": np.max(covered),
        "median_width": pooled["width"].median(),
    }


def random_cells(data, n_seeds):
    """Cells held out at random, by the published folds."""
    seeds = sorted({fold["seed"] for fold in data.folds})[:n_seeds]
    rows = []
    for name, predict in methods(data).items():
        folds = []
        for fold in data.folds:
            if fold["seed"] not in seeds:
                continue
            hidden = np.zeros(data.scores.shape, bool)
            hidden[tuple(np.array(fold["test_cells"]).T)] = True
            prediction = predict(data.scores.mask(hidden))
            folds.append(cells(prediction, data.scores, pd.DataFrame(hidden)))
        if "covered" not in folds[0]:
            folds = constant_intervals(folds)
        for units in ("percent", "all", "other"):
            rows.append(
                {
                    "protocol": "cells at random",
                    "method": name,
                    "units": units,
                    "seeds": f"{seeds[0]}-{seeds[-1]}",
                    **summary(folds, units),
                }
            )
        print(
            pd.DataFrame(rows[-3:-1])[["method", "units", "median_error", "within_5", "coverage"]]
        )
    return rows


def new_model(data, train, model, known, predict):
    """Cells of a model that is predicted from models in ``train`` and its ``known`` benchmarks."""
    truth = data.scores.loc[[model]]
    row = truth[[name for name in truth if name in known]].reindex(columns=truth.columns)
    table = pd.concat([data.scores.loc[train], row])
    prediction = [part.loc[[model]] for part in predict(table)]
    hidden = truth.notna() & row.isna() & prediction[0].notna()
    about = pd.concat([data.scores.drop(model), truth])  # for the SDs of other units
    made = cells(
        [p.reindex(about.index) for p in prediction],
        about,
        hidden.reindex(about.index, fill_value=False),
    )
    n_percent = (row.notna() & ~row.columns.isin(list(UNITS))).to_numpy().sum()
    return made, int(n_percent)


def of_new_models(name, protocol, seeds, parts):
    """A row of the table for new models: hidden cells, and with the known ones as errors of 0."""
    made = pd.concat([part for part, _ in parts])
    made = made[made["percent"]]
    known = sum(n for _, n in parts)
    row = {"protocol": protocol, "method": name, "units": "percent", "seeds": seeds}
    row |= {"cells": len(made), "median_error": made["error"].median()}
    row["median_with_known"] = np.median(np.r_[made["error"], np.zeros(known)])
    row |= {"mean_error": made["error"].mean(), "within_5": (made["error"] <= 5).mean()}
    if "covered" in made:
        row |= {"coverage": made["covered"].mean(), "median_width": made["width"].median()}
    print(pd.DataFrame([row])[["protocol", "method", "median_error", "median_with_known"]])
    return row


def by_date(data, n_seeds):
    """New releases: only earlier models, and k scores of the new one at random."""
    days, counts = data.dates, data.scores.notna().sum(axis=1)
    targets = days.index[(days >= FIRST) & (days <= LAST) & (counts > MOST_NEW)]
    some = ["complete, with features", "complete", "BenchPress, rebuilt", "factor analysis, rank 2"]
    rows = []
    for k in (1, 5, 10):
        for name in some:
            predict, parts = methods(data)[name], []
            for seed in range(n_seeds):
                for model in targets:
                    rng = np.random.default_rng([seed, data.scores.index.get_loc(model)])
                    has = data.scores.columns[data.scores.loc[model].notna()]
                    known = rng.permutation(has)[:k]
                    train = days.index[days < days[model]]
                    parts.append(new_model(data, train, model, known, predict))
            protocol = f"new releases, {k} known"
            rows.append(of_new_models(name, protocol, f"0-{n_seeds - 1}", parts))
    return rows


def choose_probes(data, train, least_share):
    """Probes by `probe`, of benchmarks that this share of the models has been run on."""
    known, units = usable(data.scores.loc[train])
    candidates = list(known.columns[known.notna().mean() >= least_share])
    about = data.features.loc[train]
    plan = probe(known, N_PROBES, candidates=candidates, units=units, model_features=about)
    return plan.benchmarks


def choose_by_error(data, train):
    """Probes as published: greedily, by the median error of the models at hand, probes count 0.

    The published search fits anew for each candidate and model; here the benchmarks' factors are
    fitted once to these models, and the models' factors from the probes.
    """
    known, units = usable(data.scores.loc[train])
    table = completion.score_table(known, units)
    y, restored = benchpress_scale(table)
    fit, observed = peers.BenchPress(y), known.notna().to_numpy()
    in_percent = ~known.columns.isin(list(UNITS))
    chosen = []
    for _ in range(N_PROBES):
        errors = {}
        for j in range(known.shape[1]):
            if j in chosen:
                continue
            probes = [*chosen, j]
            error = np.abs(restored(fit.from_probes(probes)) - known.to_numpy())
            error[:, probes] = 0.0
            errors[j] = np.median(error[observed & in_percent])
        chosen.append(min(errors, key=errors.get))
    return list(known.columns[chosen])


def probes(data, n_seeds):
    """Five known benchmarks of new models, chosen on the other folds of models."""
    scores = data.scores
    plain, with_features = ours(None), ours(data.features)

    def at_random(train, rng):
        known = usable(scores.loc[train])[0]
        return list(rng.permutation(known.columns[known.notna().mean() >= 1 / 3])[:N_PROBES])

    variants = {
        "probe, a third run; complete with features": (
            lambda train, rng: choose_probes(data, train, 1 / 3),
            with_features,
        ),
        "probe, a third run; complete": (
            lambda train, rng: choose_probes(data, train, 1 / 3),
            plain,
        ),
        "probe, half run; complete with features": (
            lambda train, rng: choose_probes(data, train, 1 / 2),
            with_features,
        ),
        "probe, any; complete with features": (
            lambda train, rng: choose_probes(data, train, 0),
            with_features,
        ),
        "BenchPress, rebuilt": (lambda train, rng: choose_by_error(data, train), benchpress),
        "probes of BenchPress; complete with features": (
            lambda train, rng: choose_by_error(data, train),
            with_features,
        ),
        "at random, a third run; complete with features": (at_random, with_features),
        "published probes (not held out); BenchPress, rebuilt": (
            lambda train, rng: PUBLISHED_PROBES,
            benchpress,
        ),
        "published probes (not held out); complete with features": (
            lambda train, rng: PUBLISHED_PROBES,
            with_features,
        ),
    }
    rows = []
    for name, (choose, predict) in variants.items():
        parts = []
        for seed in range(n_seeds):
            order = np.random.default_rng(seed).permutation(len(scores))
            for fold in range(N_MODEL_FOLDS):
                held = order[fold::N_MODEL_FOLDS]
                train = scores.index.delete(held)
                known = choose(train, np.random.default_rng([seed, fold]))
                print(f"  seed {seed}, fold {fold}: {', '.join(known)}", flush=True)
                parts += [new_model(data, train, scores.index[m], known, predict) for m in held]
        rows.append(of_new_models(name, "new models, five probes", f"0-{n_seeds - 1}", parts))
    return rows


def settings(data, n_seeds):
    """The constants of the model, by the folds of the first seeds."""
    seeds = sorted({fold["seed"] for fold in data.folds})[:n_seeds]
    variants = [("as it is", "", None)]
    variants += [(f"rank {r}", "rank", r) for r in (1, 2, 3, 6)]
    variants += [(f"df {df:g}", "DF", df) for df in (3.0, 8.0, 30.0)]
    variants += [(f"offset {o:g}", "OFFSET", o) for o in (0.002, 0.02)]
    rows = []
    for name, what, value in variants:
        folds = []
        before = (score_factors.DF, completion.OFFSET)
        if what == "DF":
            score_factors.DF = completion.DF = value
        if what == "OFFSET":
            completion.OFFSET = value
        for fold in (f for f in data.folds if f["seed"] in seeds):
            hidden = np.zeros(data.scores.shape, bool)
            hidden[tuple(np.array(fold["test_cells"]).T)] = True
            known, units = usable(data.scores.mask(hidden))
            rank = {"rank": value} if what == "rank" else {}
            made = complete(known, units=units, model_features=data.features, **rank)
            folds.append(cells(tables_of(made, data.scores), data.scores, pd.DataFrame(hidden)))
        score_factors.DF, completion.OFFSET = before
        completion.DF = score_factors.DF
        rows.append(
            {"setting": name, "seeds": f"{seeds[0]}-{seeds[-1]}", **summary(folds, "percent")}
        )
        print(pd.DataFrame(rows[-1:])[["setting", "median_error", "within_5", "coverage"]])
    return rows


def save(rows, path):
    """Write a table with the commit that made it."""
    commit = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"],
        cwd=HERE,
        capture_output=True,
        text=True,
        check=True,
    ).stdout.strip()
    frame = pd.DataFrame(rows).round(4).assign(commit=commit)
    frame.to_csv(path, index=False)
    print(frame.drop(columns="commit").to_string(index=False), f"\n-> {path}")


def main():
    """Run everything."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--data", type=Path, required=True, help="folder with scores.csv")
    parser.add_argument("--out", type=Path, default=HERE)
    parser.add_argument("--seeds", type=int, default=5, help="of the folds and of the releases")
    parser.add_argument("--model-seeds", type=int, default=3, help="of the folds over models")
    parser.add_argument("--only", choices=("random", "date", "probes", "settings"))
    options = parser.parse_args()
    if not (options.data / "scores.csv").exists():
        print(f"Skipped: {options.data} has no scores.csv.")
        return
    data = Data(options.data)
    start = time.perf_counter()
    ours(data.features)(data.scores)
    print(f"84 x 133 with intervals: {time.perf_counter() - start:.2f} s")
    parts = {
        "random": (random_cells, options.seeds, "random_cells.csv"),
        "date": (by_date, options.seeds, "new_releases.csv"),
        "probes": (probes, options.model_seeds, "probes.csv"),
        "settings": (settings, options.seeds, "settings.csv"),
    }
    for name, (run, n_seeds, file) in parts.items():
        if options.only in (None, name):
            save(run(data, n_seeds), options.out / file)


if __name__ == "__main__":
    main()
