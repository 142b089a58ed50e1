"""Which score chooses training examples best: random, losses, training dynamics or IRT?

Each seed draws a split, the wrong labels, a crowd, networks whose training is followed, random
samples and the learners' start. Partial results are saved; the same call resumes.

    python experiments/difficulty_evidence/run.py [--seeds 10] [--minutes 45] [--cache FOLDER]

Needs scikit-learn and mlxtend. `summarise.py` makes the tables from the cache.
"""

import argparse
import time
import warnings
from pathlib import Path

import data
import jax
import learners
import numpy as np
import pandas as pd
from sklearn.linear_model import LogisticRegression
from sklearn.naive_bayes import GaussianNB
from sklearn.neighbors import KNeighborsClassifier
from sklearn.tree import DecisionTreeClassifier

import irtcat
from irtcat.training import crowd, dynamics, filters

SHARES = (0.05, 0.1, 0.25, 0.5)
BOOSTED = (0.25,)
"""Shares at which gradient boosting is trained: it takes five times as long as the others."""

ENDS = {"easy": "ub", "middle": "avi", "hard": "lb"}
"""Which examples are kept, and the filter on difficulties that keeps them."""

RANDOM_SAMPLES = 3
"""Their mean is the baseline of a seed: one sample would add its luck to every difference."""

THIN = 5
"""Every fifth of 30 epochs of each run is a subject: fits take a fifth of the memory and less time,
and the checkpoints depend less on each other."""

QUICK = {
    "standard_errors": "none",
    "solver": irtcat.EM(tolerance=2e-2, max_iterations=12, precision="float32"),
}
COMPARED = (0, "symmetric 10")
"""Seed and noise for which further models are fitted, for rank correlations: a fit that has to be
compiled takes five times as long as all training of the cell."""

MEMBERS = 40
CROWD = (
    LogisticRegression(C=0.1, max_iter=100),
    KNeighborsClassifier(5),
    GaussianNB(var_smoothing=0.03),
    DecisionTreeClassifier(max_depth=8),
)


def scores(d: data.Data, seed: int, compared: bool) -> pd.DataFrame:
    """Difficulty of each training example by each score, the higher the harder.

    Args:
        d: the data.
        seed: of networks and crowd.
        compared: whether to fit the models that are compared by rank only.
    """
    n_classes = int(d.labels.max()) + 1
    keys = jax.random.split(jax.random.key(seed), learners.RUNS)
    runs = [np.asarray(learners.follow(key, d.X, d.given, n_classes), float) for key in keys]
    early = max(1, learners.EPOCHS // 10)
    by_run = [dynamics.from_logits(run, d.given, early=early) for run in runs]
    seen = dynamics.average(by_run).table
    logs = np.concatenate([log_probabilities(run, d.given) for run in runs])
    checkpoints = crowd.from_checkpoints(
        logs, "log-likelihood", runs=np.repeat(np.arange(learners.RUNS), learners.EPOCHS)
    ).thin(THIN)
    continuous = checkpoints.responses()
    of_checkpoints = irtcat.fit(continuous, "beta", positive=True, **QUICK).bank
    members = crowd.build(
        CROWD,
        (d.X, d.given),
        MEMBERS,
        size=(0.05, 0.5),
        label_noise=(0.0, 0.3),
        seed=seed,
        probabilities="gold",
    )
    responses = members.responses()
    columns = {
        "loss": seen["loss"],
        "confidence": -seen["confidence"],
        "variability": seen["variability"],
        "aum": -seen["aum"],
        "forgetting": seen["forgotten"],
        "el2n": seen["el2n"],
        "irt checkpoints": of_checkpoints.to_frame()["b"],
        "share correct": -np.nanmean(responses.to_numpy(), axis=0),
        "crowd confidence": -np.nanmean(members.confidences(), axis=0),
        "wrong": (d.given != d.labels).astype(float),
    }
    if compared:
        one_slope = irtcat.fit(continuous, "beta", equal=["slope"], **QUICK).bank
        columns["one slope checkpoints"] = one_slope.to_frame()["b"]
        for model in ("rasch", "2pl"):
            bank = irtcat.fit(responses, model, positive=True, **QUICK).bank
            columns[f"{model} crowd"] = bank.to_frame()["b"]
    return pd.DataFrame({name: np.asarray(values, float) for name, values in columns.items()})


TRAINED = ("loss", "variability", "aum", "forgetting", "el2n", "irt checkpoints", "share correct")
"""Scores that learners are trained by; other columns are compared with them by rank only."""


def log_probabilities(logits: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """Epochs x items: log-probability of each label."""
    shifted = logits - logits.max(axis=2, keepdims=True)
    logs = shifted - np.log(np.exp(shifted).sum(axis=2, keepdims=True))
    return logs[:, np.arange(len(labels)), labels]


def subsets(
    table: pd.DataFrame, given: np.ndarray, share: float, seed: int
) -> dict[tuple[str, str], np.ndarray]:
    """Positions that each score and end keep, in equal numbers of each class."""
    rng = np.random.default_rng([seed, 2])
    n = len(given)
    classes = [str(label) for label in given]
    out = {}
    for sample in range(RANDOM_SAMPLES):
        items = pd.DataFrame({"b": rng.normal(size=n)})
        out["random", str(sample)] = filters.apply(
            items, "ub", keep=share, balanced_by=classes
        ).indices
    for name in TRAINED:
        # Ranks within a class, ties in random order: the middle is the median of each class.
        order = np.lexsort((rng.random(n), table[name].to_numpy()))
        rank = pd.Series(np.arange(n), index=order).sort_index()
        place = rank.groupby(given).rank(pct=True) - 0.5
        items = pd.DataFrame({"b": place.to_numpy()})
        for end, rule in ENDS.items():
            out[name, end] = filters.apply(items, rule, keep=share, balanced_by=classes).indices
    return out


def cell(d: data.Data, table: pd.DataFrame, seed: int) -> pd.DataFrame:
    """Accuracies of the learners on each subset."""
    n_classes = int(d.labels.max()) + 1
    rows = []
    for share in (*SHARES, 1.0):
        kept = {("all", ""): np.arange(len(d.given))}
        if share < 1:
            kept = subsets(table, d.given, share, seed)
        found: dict[str, list[float]] = {}
        sklearn = ("logistic", "boosting") if share in (*BOOSTED, 1.0) else ("logistic",)
        for learner in sklearn:
            found[learner] = [
                learners.sklearn_accuracy(learner, d.X[at], d.given[at], d.X_test, d.y_test)
                for at in kept.values()
            ]
        at = np.stack(list(kept.values()))
        found["network"] = learners.network_accuracies(
            jax.random.key(seed), d.X[at], d.given[at], d.X_test, d.y_test, n_classes
        ).tolist()
        for k, ((score, end), chosen) in enumerate(kept.items()):
            wrong = 100 * float((d.given != d.labels)[chosen].mean())
            about = {"share": share, "score": score, "end": end, "wrong": wrong}
            rows += [{**about, "learner": x, "accuracy": 100 * v[k]} for x, v in found.items()]
    return pd.DataFrame(rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--minutes", type=float, default=np.inf, help="stop after so many")
    parser.add_argument("--cache", type=Path, default=Path(__file__).parent / "cache")
    options = parser.parse_args()
    warnings.simplefilter("ignore")  # learners on few examples do not always converge
    options.cache.mkdir(exist_ok=True)
    start = time.monotonic()
    for seed in range(options.seeds):
        for noise in data.NOISES:
            for name in data.NAMES:
                key = f"{seed:02d} {noise} {name}"
                path = options.cache / f"{key}.csv"
                if path.exists():
                    continue
                if time.monotonic() - start > 60 * options.minutes:
                    return
                d = data.load(name, noise, seed)
                scored = options.cache / f"{key}.scores"
                if not scored.exists():
                    save(scores(d, seed, (seed, noise) == COMPARED), scored)
                accuracies = cell(d, pd.read_csv(scored), seed)
                save(accuracies.assign(data=name, noise=noise, seed=seed), path)
                print(f"{time.monotonic() - start:.0f} s: {path.stem}", flush=True)


def save(table: pd.DataFrame, path: Path) -> None:
    """Write a table whole, or not at all."""
    partial = path.with_suffix(".partial")
    table.to_csv(partial, index=False, float_format="%.6g")
    partial.rename(path)


if __name__ == "__main__":
    main()
