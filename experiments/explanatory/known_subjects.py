"""What features of new models take off the error and the width of predicted scores.

    python experiments/explanatory/known_subjects.py --data ../shared/data [--draws 8]
                                                     [--out known_subjects.csv]

Models are calibrated on a 2PL with and without features; a new one answers k items of a balanced
subset, and its full score is predicted by ``auto`` and by ``irt``, with and without the prior that
its features give. ``date``: the newest fifth is new; ``strong``: the best fifth; ``random``: a
fifth drawn at random (so many draws; the other two splits have one). Features: SWE-bench Verified
release date and scaffold; livecodebench release date; metabench (ARC items) size, architecture and
score on GSM8K. Errors in points; coverage of 95 % intervals.
"""

import argparse
import itertools
from pathlib import Path

import numpy as np
import pandas as pd

import irtcat

SIZES = (0, 10, 30)
MOST_MODELS = 600


def swebench(folder: Path) -> tuple[np.ndarray, pd.DataFrame, pd.Series]:
    """Responses, features and dates."""
    packed = np.load(folder / "agentic_coding" / "responses_swebench_verified.npz")
    names = packed["subjects"].astype(str)
    date = pd.to_datetime([name.split("_")[0] for name in names])
    scaffold = pd.Series([name.split("_")[1] for name in names])
    common = scaffold.map(scaffold.value_counts()) >= 2
    features = pd.DataFrame({"date": date, "scaffold": scaffold.where(common, "other")})
    return packed["X"].astype(float), features, pd.Series(date)


def livecodebench(folder: Path) -> tuple[np.ndarray, pd.DataFrame, pd.Series]:
    packed = np.load(folder / "livecodebench" / "responses.npz")
    table = pd.read_csv(folder / "livecodebench" / "subjects.csv")
    column = next(name for name in table if "date" in name.lower())
    table = table.set_index(table.columns[0]).reindex(packed["subjects"].astype(str))
    date = pd.to_datetime(table[column], unit=None).reset_index(drop=True)
    return packed["X"].astype(float), pd.DataFrame({"date": date}), date


def metabench(folder: Path) -> tuple[np.ndarray, pd.DataFrame, pd.Series]:
    packed = np.load(folder / "metabench_openllm" / "responses.npz")
    items = packed["items"].astype(str)
    x = packed["X"][:, np.char.startswith(items, "arc")].astype(float)
    table = pd.read_csv(folder / "metabench_openllm" / "subjects.csv").set_index("model")
    table = table.reindex(packed["subjects"].astype(str))
    use = (x >= 0).all(axis=1) & table["lb_size"].notna().to_numpy() & (table["lb_size"] > 0)
    use &= table["full_score_gsm8k"].notna().to_numpy()
    some = np.flatnonzero(use)
    some = np.random.default_rng(0).choice(some, min(MOST_MODELS, len(some)), replace=False)
    table = table.iloc[some].reset_index(drop=True)
    arch = table["lb_arch"].fillna("unknown")
    features = pd.DataFrame(
        {
            "size": np.log(table["lb_size"]),
            "architecture": arch.where(arch.map(arch.value_counts()) >= 5, "other"),
            "gsm8k": table["full_score_gsm8k"],
        }
    )
    return x[some], features, pd.Series(pd.NaT, index=features.index)


DATA = {"swebench": swebench, "livecodebench": livecodebench, "metabench": metabench}


def splits_of(score: np.ndarray, date: pd.Series, n_draws: int) -> list[tuple[str, np.ndarray]]:
    """Names of the splits, and which models are new."""
    n, k = len(score), len(score) // 5
    splits = [("strong", np.isin(np.arange(n), np.argsort(score)[-k:]))]
    if date.notna().all():
        splits.append(("date", np.isin(np.arange(n), np.argsort(date.to_numpy())[-k:])))
    for seed in range(n_draws):
        new = np.random.default_rng(seed).permutation(n)[:k]
        splits.append(("random", np.isin(np.arange(n), new)))
    return splits


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--draws", type=int, default=8)
    parser.add_argument("--out")
    options = parser.parse_args()
    rows = []
    for name, read in DATA.items():
        x, features, date = read(options.data)
        x = np.where(x < 0, np.nan, x)
        ids = np.array([f"m{i}" for i in range(len(x))])
        features.index = ids
        r = irtcat.Responses.from_array(x, subject_ids=ids)
        truth = np.nanmean(x, axis=1)
        for split, new in splits_of(truth, date, options.draws):
            old = r.subset(subjects=ids[~new])
            fits = {
                "without": irtcat.fit(old, "2pl", standard_errors="none"),
                "with": irtcat.fit(
                    old, "2pl", subject_features=features[~new], standard_errors="none"
                ),
            }
            prior = fits["with"].predict_subjects(features[new])
            prior.loc["added"] = 0.0, 1.0
            for k in SIZES:
                subset = irtcat.select(None, max(k, 1), calibration=old)
                few = r.subset(subjects=ids[new], items=subset.item_ids).to_numpy().astype(float)
                # Without answers a row that has one makes it a matrix of responses.
                few = np.vstack([few if k else np.full_like(few, np.nan), np.ones(len(subset))])
                answers = irtcat.Responses.from_array(
                    few, item_ids=subset.item_ids, subject_ids=[*ids[new], "added"]
                )
                for estimator, (kind, fit) in itertools.product(("auto", "irt"), fits.items()):
                    p = irtcat.predict(
                        fit,
                        subset,
                        answers,
                        estimator=estimator,
                        prior=prior if kind == "with" else None,
                    )
                    score, lower, upper = (a[:-1] for a in (p.score, p.lower, p.upper))
                    inside = (lower <= truth[new]) & (truth[new] <= upper)
                    rows.append(
                        {
                            "data": name,
                            "split": split,
                            "k": k,
                            "estimator": estimator,
                            "features": kind,
                            "error": 100 * np.abs(score - truth[new]).mean(),
                            "width": 100 * (upper - lower).mean(),
                            "coverage": inside.mean(),
                        }
                    )
        table = pd.DataFrame(rows)
    order = ["data", "split", "k", "estimator", "features"]
    result = table.groupby(order, sort=False).mean().round(3).reset_index()
    print(result.to_string(index=False))
    if options.out:
        result.to_csv(options.out, index=False)


if __name__ == "__main__":
    main()
