"""Train a crowd of classifiers on handwritten digits and record who gets which image right.

Half of scikit-learn's ``load_digits`` (898 images, stratified by digit) is held out and is the
same for every classifier. The other half is the pool from which each classifier gets its own
training images, some of them with a wrong label. Rows are classifiers, columns are images.
"""

import argparse
import re
import time
import warnings
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from sklearn.base import BaseEstimator, clone
from sklearn.datasets import load_digits
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.ensemble import AdaBoostClassifier, RandomForestClassifier
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import train_test_split
from sklearn.naive_bayes import BernoulliNB, GaussianNB, MultinomialNB
from sklearn.neighbors import KNeighborsClassifier, NearestCentroid
from sklearn.neural_network import MLPClassifier
from sklearn.svm import SVC, LinearSVC
from sklearn.tree import DecisionTreeClassifier
from threadpoolctl import threadpool_limits

from irtcat import Responses

TEST_IMAGES = 898
LEAST_ACCURACY = 0.18  # guessing has 0.10; a classifier below this is drawn again
LARGEST_FILE = 150_000  # bytes; the matrix ships with the package

# How many training images, and what share of them gets a wrong label. The weights favour clean
# labels, so that the middle and the top of the scale are well filled; 899 is the whole pool.
SIZES = {20: 0.08, 50: 0.12, 100: 0.16, 200: 0.20, 400: 0.16, 700: 0.14, 899: 0.14}
NOISES = {0.0: 0.40, 0.1: 0.22, 0.2: 0.14, 0.3: 0.10, 0.4: 0.07, 0.5: 0.07}

# family -> (how many to train, {setting as written in the id: estimator}); settings take turns.
FAMILIES: dict[str, tuple[int, dict[str, BaseEstimator]]] = {
    "knn": (40, {f"k{k}": KNeighborsClassifier(k) for k in (1, 3, 5, 9, 15)}),
    "gnb": (24, {f"smooth{s:g}": GaussianNB(var_smoothing=s) for s in (1e-9, 1e-3, 0.03, 0.3)}),
    "mnb": (24, {f"alpha{a:g}": MultinomialNB(alpha=a) for a in (0.01, 0.1, 1.0, 10.0)}),
    "bnb": (24, {f"cut{c:g}": BernoulliNB(binarize=c) for c in (0.1, 0.3, 0.5, 0.8)}),
    "logit": (35, {f"C{c:g}": LogisticRegression(C=c) for c in (0.001, 0.01, 0.1, 1.0, 30.0)}),
    "tree": (30, {f"depth{d}": DecisionTreeClassifier(max_depth=d) for d in (1, 2, 3, 5, 8, 20)}),
    "forest": (
        40,
        {
            f"{trees}x{depth}": RandomForestClassifier(trees, max_depth=depth)
            for trees, depth in ((3, 4), (10, 3), (10, 10), (30, 6), (100, 20))
        },
    ),
    "linsvm": (28, {f"C{c:g}": LinearSVC(C=c) for c in (0.001, 0.01, 0.1, 1.0)}),
    "rbfsvm": (
        48,
        {f"C{c:g}-g{g:g}": SVC(C=c, gamma=g) for c in (1.0, 30.0) for g in (0.01, 0.1, 0.5)},
    ),
    "mlp": (
        49,
        {
            f"h{'x'.join(map(str, hidden))}-it{steps}": MLPClassifier(hidden, max_iter=steps)
            for hidden, steps in (
                ((4,), 100),
                ((8,), 200),
                ((32,), 30),
                ((32,), 200),
                ((128,), 60),
                ((64, 32), 150),
                ((256,), 150),
            )
        },
    ),
    "centroid": (
        18,
        {f"shrink{s:g}": NearestCentroid(shrink_threshold=s or None) for s in (0.0, 0.5, 2.0)},
    ),
    "lda": (
        28,
        {
            f"shrink{s:g}": LinearDiscriminantAnalysis(solver="lsqr", shrinkage=s)
            for s in (0.01, 0.1, 0.5, 0.9)
        },
    ),
    "adaboost": (
        24,
        {
            f"{rounds}xdepth{depth}": AdaBoostClassifier(
                DecisionTreeClassifier(max_depth=depth), n_estimators=rounds
            )
            for rounds, depth in ((5, 1), (30, 1), (10, 2), (30, 4))
        },
    ),
}


class Plan(NamedTuple):
    """One classifier to train."""

    name: str
    family: str
    setting: str
    model: BaseEstimator
    size: int
    noise: float


def draw_plan(family: str, number: int, rng: np.random.Generator) -> Plan:
    """Draw the size and the noise of a family's classifier; its setting goes by its number."""
    _, settings = FAMILIES[family]
    setting = list(settings)[number % len(settings)]
    size = int(rng.choice(list(SIZES), p=list(SIZES.values())))
    noise = float(rng.choice(list(NOISES), p=list(NOISES.values())))
    name = f"{family}-{setting}-n{size}-noise{noise:g}-{number + 1:02d}"
    return Plan(name, family, setting, settings[setting], size, noise)


def noisy_labels(y: np.ndarray, noise: float, rng: np.random.Generator) -> np.ndarray:
    """Replace each label by another digit, all nine equally likely, with probability ``noise``."""
    wrong = (y + rng.integers(1, 10, size=y.size)) % 10
    return np.where(rng.random(y.size) < noise, wrong, y)


def right_answers(
    plan: Plan, pool: tuple[Any, Any], test: tuple[Any, Any], rng: np.random.Generator
) -> np.ndarray:
    """Train one classifier; 1 for each test image that it gets right."""
    X, y = pool
    chosen = rng.choice(y.size, size=plan.size, replace=False)
    model = clone(plan.model)
    if "random_state" in model.get_params():
        model.set_params(random_state=int(rng.integers(2**31)))
    with warnings.catch_warnings():
        # Training that stops early is one of the ways in which the crowd is meant to differ.
        warnings.simplefilter("ignore", ConvergenceWarning)
        # Of 20 images a pixel can be blank in all, and a digit can occur once: still a classifier.
        for message in (".*zero standard deviation", "Only one sample available"):
            warnings.filterwarnings("ignore", message, category=UserWarning)
        model.fit(X[chosen], noisy_labels(y[chosen], plan.noise, rng))
    return (model.predict(test[0]) == test[1]).astype(np.int8)


def make_crowd(seed: int) -> tuple[np.ndarray, pd.DataFrame, pd.DataFrame]:
    """Return the matrix with the metadata of its rows (classifiers) and columns (images)."""
    digits = load_digits()
    images = digits.data / 16.0
    train, held_out = train_test_split(
        np.arange(len(images)), test_size=TEST_IMAGES, stratify=digits.target, random_state=seed
    )
    held_out = np.sort(held_out)
    pool = images[train], digits.target[train]
    test = images[held_out], digits.target[held_out]

    rows: dict[bytes, np.ndarray] = {}
    subjects = []
    for f, (family, (count, _)) in enumerate(FAMILIES.items()):
        for number in range(count):
            rng = np.random.default_rng([seed, f, number])
            # Two classifiers can be the same function (shallow trees; the whole pool with clean
            # labels), and some only guess: then size, noise and images are drawn again.
            while True:
                plan = draw_plan(family, number, rng)
                row = right_answers(plan, pool, test, rng)
                if row.tobytes() not in rows and row.mean() >= LEAST_ACCURACY:
                    break
            rows[row.tobytes()] = row
            text = re.sub(r"\s+", " ", repr(plan.model))
            subjects.append((plan.name, family, plan.setting, plan.size, plan.noise, text))

    people = pd.DataFrame(subjects, columns=["id", "family", "setting", "size", "noise", "model"])
    items = pd.DataFrame({"digit": digits.target[held_out], "image": held_out})
    items.index = pd.Index([f"digit{d}-{i:04d}" for d, i in zip(test[1], held_out, strict=True)])
    return np.stack(list(rows.values())), people.set_index("id"), items


def save(path: Path, X: np.ndarray, subjects: pd.DataFrame, items: pd.DataFrame) -> None:
    """Write the responses with the metadata of classifiers and images."""
    ids = {"subject_ids": subjects.index, "item_ids": items.index}
    Responses.from_array(X, **ids, subjects=subjects, items=items).save(path)
    if path.stat().st_size > LARGEST_FILE:
        raise SystemExit(f"{path} has {path.stat().st_size} bytes; at most {LARGEST_FILE} ship.")


def summarise(X: np.ndarray, subjects: pd.DataFrame) -> str:
    """Describe the accuracies by family, those of the whole crowd, and the images."""
    accuracy = pd.Series(X.mean(axis=1), index=subjects.index)
    by_family = accuracy.groupby(subjects["family"], sort=False)
    table = by_family.describe(percentiles=[0.25, 0.5, 0.75]).drop(columns="std")
    table.loc["all"] = accuracy.describe(percentiles=[0.25, 0.5, 0.75]).drop("std")
    table["count"] = table["count"].astype(int)
    bins = pd.cut(accuracy, np.linspace(0, 1, 11).tolist()).value_counts(sort=False)
    right = X.mean(axis=0)
    return "\n".join(
        [
            table.round(3).to_string(),
            "\nclassifiers by accuracy:",
            bins.to_string(),
            f"\nshare right by image: {right.min():.3f} to {right.max():.3f}, "
            f"median {np.median(right):.3f}",
        ]
    )


def main() -> None:
    """Parse the command line, train the crowd, save it and print the summary."""
    parser = argparse.ArgumentParser(description="Train a crowd of classifiers on digits.")
    parser.add_argument("--out", type=Path, default=Path("irtcat/data/digits_crowd.npz"))
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    started = time.perf_counter()
    with threadpool_limits(1):  # sums in a fixed order: the same file on every run
        X, subjects, items = make_crowd(args.seed)
    save(args.out, X, subjects, items)
    print(summarise(X, subjects))
    print(f"{len(subjects)} classifiers x {len(items)} images, {args.out.stat().st_size} bytes")
    print(f"{time.perf_counter() - started:.0f} s")


if __name__ == "__main__":
    main()
