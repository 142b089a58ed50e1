"""Adaptive evaluation of held-out models on real matrices, against fixed subsets of equal length.

    python experiments/cat/evaluation.py --data FOLDER [--sets arc,ifeval,metabench,mmlu_pro]
                                         [--seeds 2] [--models 30] [--out evaluation.csv]
    python experiments/cat/evaluation.py --join PART.csv ...   # several runs in one

A 2PL is fitted to the calibrated models; the held-out ones are replayed, each answering as it did,
and after 10, 30, 60 and 100 items the full score is told: "irt" reads it off the session's
ability, "curves" is `Report.predict`. Fixed subsets of the same lengths with `irtcat.predict`.
*interp*: a quarter of the models held out at random; *extrap*: calibrated on the bottom half, the
top 30 % predicted. Of more than ``--models`` held-out models so many are drawn. The seed is that of
the split (interp), of the models drawn, of sampled items and of fixed subsets.
"""

import argparse
from pathlib import Path

import numpy as np
import pandas as pd

import irtcat
from irtcat import agreement
from irtcat.cat import Config, replay

HERE = Path(__file__).parent
SETS = {
    "arc": "benchpred/responses_arc_challenge.npz",
    "ifeval": "benchpred/responses_ifeval.npz",
    "metabench": "metabench_openllm/responses.npz",
    "mmlu_pro": "mmlu_pro/responses.npz",
}
LENGTHS = (10, 30, 60, 100)
CALIBRATED = 500
ADAPTIVE = {
    "half drawn (for_evaluation)": (Config.for_evaluation(max(LENGTHS)), ("irt", "curves")),
    "half drawn, batches of 10": (Config.for_evaluation(max(LENGTHS), batch=10), ("curves",)),
    "score-optimal": (Config("score-optimal", max_items=max(LENGTHS)), ("irt", "curves")),
    "mfi": (Config("mfi", max_items=max(LENGTHS)), ("irt", "curves")),
}
FIXED = (("balanced", "auto"), ("fisher", "irt"), ("random", "mean"), ("stratified", "mean"))
SHOWN = {
    "adaptive half drawn (for_evaluation) + curves": ("C3", "o-"),
    "adaptive score-optimal + curves": ("C1", "o-"),
    "adaptive mfi + irt": ("C1", "s:"),
    "fixed balanced + auto": ("C0", "o-"),
    "fixed fisher + irt": ("C0", "s:"),
    "fixed stratified + mean": ("0.5", "o-"),
}


def load(folder, name):
    """The responses without duplicates; of metabench the complete rows."""
    with np.load(Path(folder) / SETS[name], allow_pickle=True) as file:
        x = file["X"]
    if name in ("metabench", "mmlu_pro"):
        x = x[(x >= 0).all(axis=1)]
    return irtcat.Responses.from_array(x).without_duplicate_subjects()


def split(data, kind, seed, models):
    """Positions of calibrated and held-out models, at most so many of each."""
    n = data.n_subjects
    if kind == "interp":
        order = np.random.default_rng(seed).permutation(n)
        known, held = order[n // 4 :], order[: n // 4]
    else:
        order = np.argsort(data.to_numpy().mean(axis=1), kind="stable")
        known, held = order[: n // 2], order[-int(0.3 * n) :]
    rng = np.random.default_rng(seed)
    return rng.permutation(known)[:CALIBRATED], rng.permutation(held)[:models]


def figures(score, full, lower=None, upper=None):
    """Error, ranks, and how often and how closely the 90 % intervals hold the score."""
    out = {
        "mae": 100 * np.abs(score - full).mean(),
        "bias": 100 * (score - full).mean(),
        "tau": agreement.kendall_tau_b(score, full),
    }
    if lower is not None:
        out["coverage"] = ((lower <= full) & (full <= upper)).mean()
        out["width"] = 100 * (upper - lower).mean()
    return out


def one(data, kind, seed, models):
    """All ways at all lengths on one split."""
    known, held = (data.subset(subjects=rows) for rows in split(data, kind, seed, models))
    bank = irtcat.fit(known, "2pl", standard_errors="none").bank
    full = held.to_numpy().mean(axis=1)
    for name, (config, estimators) in ADAPTIVE.items():
        report = replay(bank, held, config, seed, precision="float32")
        scores = report.scores(bank)
        for k in LENGTHS:
            for estimator in estimators:
                found = figures(scores[:, k - 1], full)
                if estimator != "irt":
                    told = report.predict(bank, known, k, estimator, 0.9)
                    found = figures(told.score, full, told.lower, told.upper)
                yield {"k": k, "way": f"adaptive {name} + {estimator}", **found}
    for strategy, estimator in FIXED:
        for k in LENGTHS:
            subset = irtcat.select(bank, k, strategy=strategy, calibration=known, seed=seed)
            answers = held.subset(items=subset.item_ids)
            told = irtcat.predict(known, subset, answers, bank=bank, estimator=estimator, level=0.9)
            found = figures(told.score, full, told.lower, told.upper)
            yield {"k": k, "way": f"fixed {strategy} + {estimator}", **found}


def draw(table, path):
    """Error and tau-b against length; a column for each data set and split."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    panels = list(table.groupby(["data", "split"], sort=False))
    fig, axes = plt.subplots(2, len(panels), figsize=(2.9 * len(panels), 6), squeeze=False)
    for column, ((name, kind), part) in enumerate(panels):
        for way, (colour, style) in SHOWN.items():
            own = part[part["way"] == way]
            for axis, figure in zip(axes[:, column], ("mae", "tau"), strict=True):
                axis.plot(own["k"], own[figure], style, color=colour, label=way, markersize=3)
                axis.set(xscale="log", xticks=LENGTHS, xticklabels=LENGTHS)
                axis.minorticks_off()
        axes[0, column].set(title=f"{name}, {kind}", ylim=(0, 15))
        axes[1, column].set_xlabel("items answered")
    axes[0, 0].set_ylabel("error of the full score (points)")
    axes[1, 0].set_ylabel("tau-b")
    handles, labels = axes[0, 0].get_legend_handles_labels()
    fig.legend(handles, labels, loc="lower center", ncol=3, fontsize=9)
    fig.tight_layout(rect=(0, 0.09, 1, 1))
    fig.savefig(path, dpi=80)


def main():
    """Run, print, save; or join what was run."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--data")
    parser.add_argument("--sets", default=",".join(SETS))
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--models", type=int, default=30)
    parser.add_argument("--out", default=str(HERE / "evaluation.csv"))
    parser.add_argument("--join", nargs="*", default=[])
    options = parser.parse_args()
    parts = [pd.read_csv(path) for path in options.join]
    keys = ["data", "split", "k", "way"]
    for name in options.sets.split(",") if not parts else []:
        data = load(options.data, name)
        for kind in ("interp", "extrap"):
            rows = []
            for seed in range(options.seeds):
                rows += one(data, kind, seed, options.models)
            part = pd.DataFrame(rows).groupby(["way", "k"], sort=False, as_index=False).mean()
            part.insert(0, "split", kind)
            part.insert(0, "data", name)
            part["seeds"] = options.seeds
            parts.append(part)
            columns = ["mae", "tau", "coverage"]
            print(
                name,
                kind,
                part.pivot_table(index="way", columns="k", values=columns, sort=False)
                .round(2)
                .to_string(),
                sep="\n",
                flush=True,
            )
            pd.concat(parts)[[*keys, *part.columns.drop(keys)]].round(3).to_csv(
                options.out, index=False
            )
    table = pd.concat(parts)
    table.round(3).to_csv(options.out, index=False)
    draw(table, Path(options.out).with_suffix(".png"))


if __name__ == "__main__":
    main()
