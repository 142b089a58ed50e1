"""Five benchmarks from 60 items in all, and each benchmark from the others' items.

    python experiments/several_benchmarks/items.py --data DATA [--draws 8] [--out items.csv]

Data: metabench's Open LLM Leaderboard (the 2,001 models that ran all five). In each draw 600 models
are calibrated and 200 others predicted: drawn at random, or the calibrated ones from the weaker
70 % and the predicted ones from the best 20 %. 12 items of each benchmark are chosen (balanced);
"left out" predicts each benchmark from the 48 items of the others. Error is the mean absolute error
of a benchmark's score in points, over benchmarks, models and draws; with 95 % intervals.

Methods: `auto` with a bank or calibration of each benchmark alone; `auto` on all answers
(``groups=``); a ridge regression of the score on all answers (penalty by 5 folds, no interval); the
bank of `irtcat.fit_benchmarks` (estimator irt); banks of each benchmark alone (2PL, estimator irt).
"""

import argparse
import time
import warnings
from pathlib import Path

import numpy as np
import pandas as pd

import irtcat

N_CALIBRATED, N_NEW, N_ITEMS = 600, 200, 12
PENALTIES = np.geomspace(1e-2, 1e3, 21)


def read(folder: Path) -> irtcat.Responses:
    """The models that ran all benchmarks, with the benchmark of each item."""
    r = irtcat.read_responses(folder / "metabench_openllm" / "responses.npz")
    benchmark = [str(item).partition(".")[0] for item in r.item_ids]
    x = r.to_numpy()
    complete = ~np.isnan(x).any(axis=1)
    items = pd.DataFrame({"benchmark": benchmark}, index=r.item_ids)
    return irtcat.Responses.from_array(
        x[complete], r.subject_ids[complete], r.item_ids, items=items
    )


def split(r: irtcat.Responses, kind: str, seed: int) -> tuple[irtcat.Responses, irtcat.Responses]:
    """Calibrated and new models."""
    rng = np.random.default_rng(seed)
    if kind == "random":
        drawn = rng.permutation(r.n_subjects)
        parts = drawn[:N_CALIBRATED], drawn[N_CALIBRATED : N_CALIBRATED + N_NEW]
    else:
        order = np.argsort(r.to_numpy().mean(axis=1) + 1e-9 * rng.normal(size=r.n_subjects))
        weaker, best = order[: int(0.7 * len(order))], order[int(0.8 * len(order)) :]
        parts = (
            rng.choice(part, size, replace=False)
            for part, size in ((weaker, N_CALIBRATED), (best, N_NEW))
        )
    calibrated, new = (r.subset(subjects=np.sort(part)) for part in parts)
    return calibrated, new


def ridge(z: np.ndarray, y: np.ndarray, new: np.ndarray) -> np.ndarray:
    """Ridge regression with the penalty of the least error in five folds."""
    fold = np.arange(len(y)) % 5

    def fitted(z: np.ndarray, y: np.ndarray, new: np.ndarray, penalty: float) -> np.ndarray:
        centre = z.mean(axis=0)
        gram = (z - centre).T @ (z - centre) + penalty * np.eye(z.shape[1])
        return y.mean() + (new - centre) @ np.linalg.solve(gram, (z - centre).T @ (y - y.mean()))

    def error(penalty: float) -> float:
        return sum(
            ((fitted(z[fold != k], y[fold != k], z[fold == k], penalty) - y[fold == k]) ** 2).sum()
            for k in range(5)
        )

    return fitted(z, y, new, min(PENALTIES, key=error))


def rows_of(r: irtcat.Responses, kind: str, seed: int) -> list[dict]:
    """Errors of one draw."""
    calibrated, new = split(r, kind, seed)
    benchmark = r.items["benchmark"].to_numpy()
    names = list(pd.unique(benchmark))
    truth = {b: new.to_numpy()[:, benchmark == b].mean(axis=1) for b in names}
    alone = {b: calibrated.subset(items=benchmark == b) for b in names}
    chosen = {
        b: irtcat.select(None, N_ITEMS, strategy="balanced", calibration=alone[b]) for b in names
    }
    items = np.concatenate([chosen[b].item_ids for b in names])
    banks = {b: irtcat.fit(alone[b], "2pl", standard_errors="none").bank for b in names}
    start = time.perf_counter()
    joint = irtcat.fit_benchmarks(calibrated, standard_errors="none")
    seconds = time.perf_counter() - start
    out: list[dict] = []

    def add(task: str, method: str, b: str, score, lower=np.nan, upper=np.nan) -> None:
        score, t = np.asarray(score), truth[b]
        inside = (np.asarray(lower) <= t) & (t <= np.asarray(upper))
        has_interval = bool(np.isfinite(lower).all())
        out.append(
            {
                "split": kind,
                "task": task,
                "method": method,
                "benchmark": b,
                "draw": seed,
                "error": 100 * np.abs(score - t).mean(),
                "coverage": inside.mean() if has_interval else np.nan,
                "width": 100 * np.mean(np.subtract(upper, lower)) if has_interval else np.nan,
                "structure": joint.structure,
                "fit_s": seconds,
            }
        )

    def add_group(task: str, method: str, b: str, table: pd.DataFrame, label: str) -> None:
        part = table[table["group"] == label]
        add(task, method, b, part["score"], part["lower"], part["upper"])

    for b in names:
        p = irtcat.predict(alone[b], chosen[b], new)
        add("60 items", "auto, each alone", b, p.score, p.lower, p.upper)
        p = irtcat.predict(alone[b], chosen[b], new, bank=banks[b], estimator="irt")
        add("60 items", "irt, bank of each alone", b, p.score, p.lower, p.upper)
    for method, options in {
        "auto, all answers": {},
        "irt, fit_benchmarks": {"bank": joint.bank, "estimator": "irt"},
    }.items():
        table = irtcat.predict(calibrated, items, new, groups="benchmark", **options).groups
        for b in names:
            add_group("60 items", method, b, table, b)
            others = [item for c in names if c != b for item in chosen[c].item_ids]
            weights = pd.Series((benchmark == b) * 1.0, r.item_ids)
            p = irtcat.predict(calibrated, others, new, weights=weights, **options)
            add("left out", method, b, p.score, p.lower, p.upper)
    frame, new_frame = calibrated.to_frame(), new.to_frame()
    for b in names:
        y = alone[b].to_numpy().mean(axis=1)
        others = [item for c in names if c != b for item in chosen[c].item_ids]
        for task, used in (("60 items", list(items)), ("left out", others)):
            z, z_new = frame[used].to_numpy(), new_frame[used].to_numpy()
            add(task, "ridge, all answers", b, ridge(z, y, z_new))
        add("left out", "mean of the calibrated", b, np.full(new.n_subjects, y.mean()))
    return out


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--draws", type=int, default=8)
    parser.add_argument("--out")
    options = parser.parse_args()
    warnings.simplefilter("ignore", UserWarning)
    r = read(options.data)
    rows: list[dict] = []
    for kind in ("random", "stronger"):
        for seed in range(options.draws):
            rows += rows_of(r, kind, seed)
            print(f"{kind}, draw {seed + 1}", flush=True)
    table = pd.DataFrame(rows)
    numbers = ["error", "coverage", "width"]
    means = table.groupby(["split", "task", "method"])[numbers].mean().round(3)
    print(means.to_string())
    print(table.groupby("split")["structure"].value_counts().to_string())
    print(f"fit_benchmarks: {table['fit_s'].median():.1f} s")
    if options.out:
        keys = ["split", "task", "method", "benchmark"]
        table.groupby(keys)[numbers].mean().round(4).to_csv(options.out)


if __name__ == "__main__":
    main()
