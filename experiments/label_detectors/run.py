"""Which order of `labels.rank` finds wrong labels, next to cleanlab's on the same predictions.

Reads the crowds that `crowds.py` has saved. For every setting, kind of noise, share of flipped
labels and draw: the share of flipped labels among as many at the top of each order (precision at
n), in %; the order that the self-check chooses; and the probabilities of suspicion in ten bins with
the share of flipped labels in each. The evidence of right and wrong answers (a 2PL, its hypotheses)
takes most of the time and enters with --answers only; --no-check leaves out the planted labels.

    python experiments/label_detectors/run.py --folder FOLDER [--draws 0-7] [--out FOLDER]
    python experiments/label_detectors/run.py --folder FOLDER --draws 0-1 --flipped 0,.1 --answers
"""

import argparse
import subprocess
import warnings
from dataclasses import replace
from itertools import product
from pathlib import Path

import numpy as np
import pandas as pd
from cleanlab.filter import find_label_issues
from cleanlab.rank import get_label_quality_scores
from crowds import NOISES, SETTINGS, path_of

from irtcat.diagnose import labels
from irtcat.diagnose.labels.orders import order_keys
from irtcat.diagnose.labels.plants import check_by_planting, choose, posterior, share_wrong
from irtcat.diagnose.labels.predictions import fit_classes, read_crowd
from irtcat.training import crowd

SCORES = ("self_confidence", "normalized_margin", "confidence_weighted_entropy")
FILTERS = ("prune_by_noise_rate", "prune_by_class", "both", "confident_learning")
BINS = 10


def read(path):
    """The crowd, and which labels are flipped."""
    arrays = np.load(path)
    p = arrays["probabilities"].astype(np.float32)
    p /= p.sum(axis=2, keepdims=True)
    trained = np.unpackbits(arrays["trained_on"], axis=1, count=p.shape[1]).astype(bool)
    found = crowd.from_predictions(p, arrays["labels"], trained_on=trained)
    return replace(found, members=found.members.assign(noise=arrays["noise"])), arrays["wrong"]


def precision(key, wrong):
    n = int(wrong.sum())
    return 100 * wrong[np.argsort(key, kind="stable")[:n]].mean() if n else np.nan


def share_of(responses):
    X = responses.to_numpy()
    n = (~np.isnan(X)).sum(axis=0)
    share = np.nansum(X, axis=0) / np.where(n > 0, n, np.nan)
    return pd.DataFrame({"share": share}, index=responses.item_ids)


def without_answers(found, seed, no_check):
    """The check and suspicion of a crowd by its predictions and shares right alone."""
    predictions, responses = read_crowd(found), found.responses()
    model = fit_classes(predictions.mean, predictions.labels)
    table = share_of(responses).assign(**predictions.columns(model))
    orders = list(order_keys(table))
    if no_check:
        return table, None, None
    check = check_by_planting(
        share_of,
        responses,
        table["p_other_class"].to_numpy(),
        orders,
        predictions=predictions,
        model=model,
        prior=(1.0, 0.0),
        alternatives=None,
        seed=seed,
    )
    by, checks = choose(check, "classes", float(table["p_other_class"].mean()))
    return table, by, checks


def from_shares(found, seed):
    """Suspicion if only right and wrong are known."""
    responses = found.responses()
    table = share_of(responses)
    check = check_by_planting(
        share_of,
        responses,
        np.zeros(len(table)),
        ["share"],
        predictions=None,
        model=None,
        prior=(1.0, 0.0),
        alternatives=len(found.classes),
        seed=seed,
    )
    at = check.position["share"].to_numpy()
    rank = (table["share"].rank().to_numpy() - 0.5) / len(table)
    return posterior(at, len(table), rank), share_wrong(at, len(table))


def bins_of(suspicion, wrong):
    """Items, mean suspicion and flipped labels in every bin."""
    group = np.minimum((suspicion * BINS).astype(int), BINS - 1)
    for k in np.unique(group):
        mine = group == k
        yield {
            "bin": k / BINS,
            "n": mine.sum(),
            "sum": suspicion[mine].sum(),
            "wrong": wrong[mine].sum(),
        }


def case(path, draw, with_answers, no_check):
    """Precision of all orders, the check's choice, and bins of suspicion."""
    found, wrong = read(path)
    if with_answers:
        ranking = labels.rank(found, seed=draw)
        table, by, checks = ranking.table.loc[found.item_ids], ranking.by, ranking.checks
        answers = labels.rank(found.responses(), seed=draw)
        by_answers = answers.table.loc[found.item_ids]
        shares, share = by_answers["suspicion"].to_numpy(), answers.share_wrong
        bayes = 1 / (1 + np.exp(-by_answers["log_odds"].to_numpy()))
    else:
        table, by, checks = without_answers(found, draw, no_check)
        shares, share = (None, np.nan) if no_check else from_shares(found, draw)
        bayes = None
    keys = order_keys(table)
    row = {name: precision(key, wrong) for name, key in keys.items()}
    if by is not None:
        row |= {"auto": row[by], "chosen": by, "estimated": 100 * checks.loc[by, "found"]}
        row |= {"low": 100 * checks.loc[by, "low"], "high": 100 * checks.loc[by, "high"]}
    row["share_wrong"] = 100 * table["p_other_class"].mean()
    if with_answers:
        row["auto, right/wrong only"] = precision(order_keys(by_answers)[answers.by], wrong)
        row["chosen, right/wrong only"] = answers.by
    suspicions = {"classes": table["p_other_class"].to_numpy(), "planted": shares, "answers": bayes}
    reliability = [
        {"source": source, **b}
        for source, s in suspicions.items()
        if s is not None
        for b in bins_of(s, wrong)
    ]
    row["share_wrong, right/wrong only"] = 100 * share
    p, y = read_crowd(found).mean, found.labels
    for score in SCORES:
        row[f"cleanlab {score}"] = precision(get_label_quality_scores(y, p, method=score), wrong)
    for name in FILTERS:
        issues = find_label_issues(y, p, filter_by=name, n_jobs=1)
        hits, n = wrong[issues].sum(), max(1, issues.sum())
        row |= {f"{name} n": issues.sum(), f"{name} precision": 100 * hits / n}
        row[f"{name} recall"] = 100 * hits / max(1, wrong.sum())
    above = table["p_other_class"].to_numpy() > 0.5
    row |= {
        "above .5 n": above.sum(),
        "above .5 precision": 100 * wrong[above].sum() / max(1, above.sum()),
    }
    row["above .5 recall"] = 100 * wrong[above].sum() / max(1, wrong.sum())
    return row, reliability


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--settings", default=",".join(SETTINGS))
    parser.add_argument("--draws", default="0-7")
    parser.add_argument("--no-check", action="store_true")
    parser.add_argument("--flipped", default="0,.05,.1,.2")
    parser.add_argument("--answers", action="store_true")
    parser.add_argument("--out", type=Path, default=Path(__file__).parent)
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    command = ["git", "rev-parse", "--short", "HEAD"]
    commit = subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip()
    name = "answers_" if options.answers else "" if options.no_check else "check_"
    low, high = map(int, options.draws.split("-"))
    shares = [float(share) for share in options.flipped.split(",")]
    noises = [(kind, share) for kind, share in NOISES if share in shares]
    rows, reliability = [], []
    for draw, setting, (kind, share) in product(
        range(low, high + 1), options.settings.split(","), noises
    ):
        path = path_of(options.folder, setting, kind, share, draw)
        if not path.exists():
            continue
        about = {"setting": setting, "noise": kind, "flipped": share, "draw": draw}
        row, bins = case(path, draw, options.answers, options.no_check)
        rows.append(about | row | {"commit": commit})
        reliability += [about | line for line in bins]
        if len(rows) % 10 == 0:
            write(options.out, name, rows, reliability)
            print(len(rows), path.stem, flush=True)
    write(options.out, name, rows, reliability)


def write(folder, name, rows, reliability):
    """Save the cases so far, and the bins over draws."""
    pd.DataFrame(rows).to_csv(folder / f"{name}found.csv", index=False, float_format="%.4g")
    by = ["setting", "noise", "flipped", "source", "bin"]
    bins = pd.DataFrame(reliability).groupby(by)[["n", "sum", "wrong"]].sum().reset_index()
    bins = bins.assign(commit=rows[-1]["commit"])
    bins.to_csv(folder / f"{name}reliability.csv", index=False, float_format="%.5g")


if __name__ == "__main__":
    main()
