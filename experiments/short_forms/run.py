"""Make the short forms that irtcat ships, and measure their errors on models held out.

For every benchmark and length: forms are made of some models and predict others,

- similar: a quarter of the models at random, 30 draws;
- stronger: the strongest 30 % from the weaker half, 10 draws of the items;
- date: the models of later months from all earlier ones, by months between them, 10 draws;
- other: models of another source, from all (30 draws of the items; the first is shipped);
- one by one (GSO, MMLU-Pro): each model from all others, 30 draws (GSO) or 5; stronger: the best 5
  from the other 10 (GSO), or as above.

The peer is the mean of a stratified sample of as many items, for the same models. Errors are mean
absolute errors in percent points of the full score; intervals are those of 95 %. The bounds of
coverage are exact (Clopper and Pearson, 95 %) for as many intervals as there are models: repeated
draws of one model are no further models.

    python experiments/short_forms/run.py --data FOLDER [--benchmark NAME] [--quick] [--write]

`--benchmark` replaces the rows of this one in the table. `--write` replaces the shipped files
(irtcat/data/short_forms) as well.
"""

import argparse
import json
import subprocess
from pathlib import Path

import numpy as np
import pandas as pd
from scipy.stats import beta

import irtcat
from irtcat import Responses, leaderboard

HERE = Path(__file__).parent
SHIPPED = HERE.parents[1] / "irtcat" / "data" / "short_forms"
VERIFIED = "agentic_coding/responses_swebench_verified.npz"
OTHER = "swebench_verified_minisweagent/responses.npz"
GSO = "agentic_coding/responses_gso.npz"
MMLU_PRO = "mmlu_pro/responses.npz"
CUTS = ("2024-11-01", "2025-02-01", "2025-05-01", "2025-08-01")
"""Forms are made of the models before these dates."""

MONTHS = (0, 3, 6, 12, 18)
"""Edges of the months between the cut and a later model."""


LEAST_COVERAGE = 0.93
"""Of the 95 % intervals of models held out, for a form that is shipped."""


def load(path):
    """Responses without repeated models."""
    archive = np.load(path)
    _, first = np.unique(archive["X"], axis=0, return_index=True)
    rows = np.sort(first)
    return Responses.from_array(
        archive["X"][rows], subject_ids=archive["subjects"][rows], item_ids=archive["items"]
    )


def compare(calibration, new, n_items, seed, expect=None, verify=True):
    """One row per new model: the errors of the form and of the peer, and its interval.

    With `verify` also how far the form is from the prediction with the calibration, which takes as
    long again.
    """
    subset = irtcat.select(None, n_items, calibration=calibration, seed=seed, expect=expect)
    predicted = irtcat.short_form(calibration, subset=subset).predict(new)
    with_calibration = irtcat.predict(calibration, subset, new) if verify else predicted
    sample = irtcat.select(None, n_items, strategy="stratified", calibration=calibration, seed=seed)
    mean = irtcat.predict(calibration, sample, new, estimator="weighted")
    truth = leaderboard.full_scores(new)
    return pd.DataFrame(
        {
            "model": new.subject_ids,
            "error": 100 * np.abs(predicted.score - truth),
            "peer": 100 * np.abs(mean.score - truth),
            "covered": (predicted.lower <= truth) & (truth <= predicted.upper),
            "width": 100 * (predicted.upper - predicted.lower),
            "difference": np.abs(predicted.score - with_calibration.score),
            "rank_error": np.abs(predicted.rank - with_calibration.rank),
            "seed": seed,
        }
    )


def similar(data, n_items, draws):
    """Models held out at random."""
    for seed in range(draws):
        rows = np.random.default_rng(seed).permutation(data.n_subjects)
        n_new = data.n_subjects // 4
        new, old = data.subset(subjects=rows[:n_new]), data.subset(subjects=rows[n_new:])
        yield compare(old, new, n_items, seed)


def stronger(data, n_items, draws, expect=None):
    """The strongest 30 % from the weaker half."""
    order = np.argsort(leaderboard.full_scores(data), kind="stable")
    n = data.n_subjects
    old, new = data.subset(subjects=order[: n // 2]), data.subset(subjects=order[int(0.7 * n) :])
    for seed in range(draws):
        yield compare(old, new, n_items, seed, expect)


def by_date(data, dates, n_items, draws):
    """Later models from earlier ones, with the months between the cut and the model."""
    for cut in pd.to_datetime(CUTS):
        old = data.subset(subjects=np.flatnonzero(dates < cut))
        later = np.flatnonzero(dates >= cut)
        months = (dates[later] - cut) / pd.Timedelta(days=30.44)
        for seed in range(draws):
            yield compare(old, data.subset(subjects=later), n_items, seed).assign(
                months=pd.cut(months, MONTHS, right=False).astype(str)
            )


def one_by_one(data, n_items, draws, verified):
    """Each model from all others; the first `verified` draws are compared with the calibration."""
    for held_out in range(data.n_subjects):
        old = data.subset(subjects=np.delete(np.arange(data.n_subjects), held_out))
        new = data.subset(subjects=[held_out])
        for seed in range(draws):
            yield compare(old, new, n_items, seed, verify=seed < verified)


def exact_bounds(coverage, n):
    """The bounds of Clopper and Pearson (95 %) of a share among n."""
    inside, outside = coverage * n, (1 - coverage) * n
    lower = beta.ppf(0.025, inside, outside + 1) if inside else 0.0
    upper = beta.ppf(0.975, inside + 1, outside) if outside else 1.0
    return float(lower), float(upper)


def row_of(split, parts):
    """The means of a split."""
    table = pd.concat(parts)
    columns = ["error", "peer", "covered", "width"]
    means = table[columns].mean()
    by_model = table.groupby("model")[columns].mean()
    lower, upper = exact_bounds(means["covered"], len(by_model))
    return {
        "split": split,
        "n_models": len(by_model),
        "n_predictions": len(table),
        "error": means["error"],
        "peer": means["peer"],
        "coverage": means["covered"],
        "coverage_lower": lower,
        "coverage_upper": upper,
        "width": means["width"],
        "greatest_difference": table["difference"].max(),
        "rank_error": table["rank_error"].mean(),
        "greatest_rank_error": table["rank_error"].max(),
    }


def errors_of(rows):
    """What a form says of its errors."""
    keys = ("error", "peer", "coverage", "coverage_lower", "coverage_upper", "width")
    shipped = ("similar", "stronger", "date", "other", "one by one")
    return {
        row["split"].replace("one by one", "similar"): {
            "n_models": row["n_models"],
            **{key: round(float(row[key]), 3) for key in keys},
        }
        for row in rows
        if row["split"] in shipped
    }


def commit():
    """The commit of the code."""
    command = ["git", "rev-parse", "--short", "HEAD"]
    return subprocess.run(command, capture_output=True, text=True, cwd=HERE).stdout.strip()


def verified(folder, quick):
    """Rows of the table for SWE-bench Verified, and the forms."""
    data, other = load(folder / VERIFIED), load(folder / OTHER)
    dates = pd.to_datetime(pd.Series(data.subject_ids).str[:8], format="%Y%m%d").to_numpy()
    dates = pd.DatetimeIndex(dates)
    draws = 3 if quick else 30
    few = max(2, draws // 3)
    rows, forms = [], []
    for n_items in (30, 60, 100):
        dated = pd.concat(by_date(data, dates, n_items, few))
        measured = [
            row_of("similar", similar(data, n_items, draws)),
            row_of("stronger", stronger(data, n_items, few)),
            row_of("stronger, expected", stronger(data, n_items, few, "stronger")),
            row_of("date", [dated]),
            *(row_of(f"date, months {name}", [part]) for name, part in dated.groupby("months")),
            row_of("other", [compare(data, other, n_items, seed) for seed in range(draws)]),
        ]
        rows += [{"benchmark": "swebench-verified", "n_items": n_items, **row} for row in measured]
        forms.append(
            irtcat.short_form(
                data,
                n_items,
                name=f"swebench-verified-{n_items}",
                renew="2027-06-15",
                about={
                    "benchmark": "SWE-bench Verified, share of the 500 tasks that are resolved",
                    "items": "the benchmark's instance_id",
                    "source": "134 agents, October 2023 to December 2025, as collected by Ge et "
                    "al. (2026) from the submissions to SWE-bench",
                    "licence": "MIT",
                    "made_by": "experiments/short_forms/run.py",
                    "errors": errors_of(measured),
                },
            )
        )
        print(pd.DataFrame(rows).tail(len(measured)).round(2).to_string(index=False), flush=True)
    return rows, forms


def gso(folder, quick):
    """Rows of the table for GSO, and the forms: each of 15 models from the other 14."""
    data = load(folder / GSO)
    rows, forms = [], []
    for n_items in (20, 40):
        draws = 2 if quick else 30
        few = range(2 if quick else 10)
        order = np.argsort(leaderboard.full_scores(data), kind="stable")
        old, new = data.subset(subjects=order[:10]), data.subset(subjects=order[10:])
        measured = [
            row_of("one by one", one_by_one(data, n_items, draws, draws)),
            row_of("stronger", [compare(old, new, n_items, seed) for seed in few]),
        ]
        rows += [{"benchmark": "gso", "n_items": n_items, **row} for row in measured]
        about = {
            "benchmark": "GSO, share of the 102 tasks that are resolved",
            "items": "the benchmark's instance_id",
            "source": "15 models, as collected by Ge et al. (2026)",
            "licence": "MIT",
            "made_by": "experiments/short_forms/run.py",
            "errors": errors_of(measured),
        }
        name = f"gso-{n_items}"
        forms.append(irtcat.short_form(data, n_items, name=name, renew="2027-06-15", about=about))
        print(pd.DataFrame(rows).tail(2).round(2).to_string(index=False), flush=True)
    # Shipped only if better than the peer at both lengths.
    beats = all(row["error"] < row["peer"] for row in rows if row["split"] == "one by one")
    return rows, forms if beats else []


def mmlu_pro(folder, quick):
    """Rows of the table for MMLU-Pro, and the forms: each model from all others."""
    data = load(folder / MMLU_PRO)
    missing = np.isnan(data.to_numpy()).mean(axis=1)
    data = data.subset(subjects=np.flatnonzero(missing < 0.01))
    draws = 1 if quick else 5
    rows, forms = [], []
    for n_items in (30, 60, 100):
        measured = [
            row_of("one by one", one_by_one(data, n_items, draws, 1)),
            row_of("stronger", stronger(data, n_items, draws)),
        ]
        rows += [{"benchmark": "mmlu-pro", "n_items": n_items, **row} for row in measured]
        print(pd.DataFrame(rows).tail(2).round(2).to_string(index=False), flush=True)
        if measured[0]["error"] >= measured[0]["peer"] or measured[0]["coverage"] < LEAST_COVERAGE:
            continue
        about = {
            "benchmark": "MMLU-Pro, share of the 12,032 test questions that are answered right "
            "(5-shot, chain of thought); no answer extracted counts as wrong",
            "items": "question_id of the data set TIGER-Lab/MMLU-Pro, test split",
            "source": f"{data.n_subjects} models to September 2024, eval_results of "
            "github.com/TIGER-AI-Lab/MMLU-Pro at f418b11 (Wang et al. 2024)",
            "licence": "Apache-2.0",
            "made_by": "experiments/short_forms/run.py",
            "errors": errors_of(measured),
        }
        name = f"mmlu-pro-{n_items}"
        forms.append(irtcat.short_form(data, n_items, name=name, renew="2026-03-24", about=about))
    return rows, forms


BENCHMARKS = {"swebench-verified": verified, "gso": gso, "mmlu-pro": mmlu_pro}


def main():
    """Run, print, save."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", required=True, type=Path)
    parser.add_argument("--benchmark", choices=list(BENCHMARKS))
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--out", type=Path, default=HERE / "table.csv")
    arguments = parser.parse_args()
    if not (arguments.data / VERIFIED).exists():
        print(f"{arguments.data / VERIFIED}: not there; nothing is measured.")
        return
    tables = []
    for name, measure in BENCHMARKS.items():
        if arguments.benchmark in (None, name):
            rows, forms = measure(arguments.data, arguments.quick)
            tables.append(pd.DataFrame(rows).assign(commit=commit()))
        else:
            saved, forms = pd.read_csv(HERE / "table.csv", dtype={"commit": str}), []
            tables.append(saved[saved["benchmark"] == name])
        if arguments.write:
            for form in forms:
                print(form.save(SHIPPED / f"{form.name}.json"), json.dumps(form.about["errors"]))
    pd.concat(tables).to_csv(arguments.out, index=False, float_format="%.4g")


if __name__ == "__main__":
    main()
