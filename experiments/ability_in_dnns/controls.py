"""Simple classifiers and recurrent networks beside the networks of `run.py`, on digits and texts.

    python experiments/ability_in_dnns/controls.py [--seeds 3] [--out FOLDER]

Naive Bayes, k nearest neighbours and logistic regression with scikit-learn's settings, as in the
paper, and a gated recurrent unit that reads a digit row by row. On text: first sentences of
docstrings of five packages, of which the package is to be recognised; the population is a crowd
made by `irtcat.training.crowd`. Needs scikit-learn and matplotlib.
"""

import argparse
import sys
import time
import warnings
from collections import Counter
from pathlib import Path
from typing import NamedTuple

import networks
import numpy as np
import pandas as pd
from run import NOISES, SCALES, SIZES, abilities, calibrate, means, regressions
from sklearn.ensemble import ExtraTreesClassifier
from sklearn.exceptions import ConvergenceWarning
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression, RidgeClassifier
from sklearn.naive_bayes import BernoulliNB, ComplementNB, GaussianNB, MultinomialNB
from sklearn.neighbors import KNeighborsClassifier, NearestCentroid
from sklearn.tree import DecisionTreeClassifier

import irtcat
from irtcat import agreement, datasets
from irtcat.training import crowd

HERE = Path(__file__).parent
sys.path.append(str(HERE.parent / "difficulty_evidence"))
from data import PACKAGES, first_sentences  # noqa: E402

PER_PACKAGE, LONGEST = 300, 24
MEMBERS = 300
STEPS = 300

CONTROLS = {"neighbours": KNeighborsClassifier, "logistic": LogisticRegression}


class Task(NamedTuple):
    """What systems are trained on (features and sequences) and asked, and the scales."""

    vectors: np.ndarray
    test_vectors: np.ndarray
    sequences: networks.Words
    n_words: int
    naive_bayes: type
    networks: tuple[str, ...]
    names: list[str]
    banks: dict[str, irtcat.ItemBank]
    crowd: irtcat.Responses


def digits() -> Task:
    """The digits and scales of `run.py`; a sequence is an image's eight rows."""
    population = datasets.load("digits_crowd")
    data = networks.load(population.items["image"].to_numpy())
    rows = (data.images.reshape(-1, 8, 8), data.test_images.reshape(-1, 8, 8))
    return Task(
        data.images,
        data.test_images,
        networks.Words(rows[0], data.labels, rows[1], data.test_labels),
        0,
        GaussianNB,
        ("gru",),
        [str(digit) for digit in range(10)],
        calibrate(population, SCALES, "digit"),
        population,
    )


def texts() -> Task:
    """Half of the sentences of each package for training, half for the scale."""
    rng = np.random.default_rng(0)
    sentences, labels = [], []
    for code, package in enumerate(PACKAGES):
        found = sorted(set(first_sentences(package)))
        sentences += [found[k] for k in rng.choice(len(found), PER_PACKAGE, replace=False)]
        labels += [code] * PER_PACKAGE
    y = np.array(labels)
    weights = TfidfVectorizer(min_df=2, sublinear_tf=True)
    X = weights.fit_transform(sentences).toarray().astype(np.float32)
    asked = np.concatenate(
        [rng.permutation(np.flatnonzero(y == code))[: PER_PACKAGE // 2] for code in range(5)]
    )
    pool = np.setdiff1d(np.arange(len(y)), asked)
    words = [weights.build_analyzer()(sentence)[:LONGEST] for sentence in sentences]
    counts = Counter(word for k in pool for word in words[k])
    number = {word: 2 + i for i, (word, n) in enumerate(sorted(counts.items())) if n > 1}
    table = np.zeros((len(y), LONGEST), int)
    for row, sentence in zip(table, words, strict=True):
        row[: len(sentence)] = [number.get(word, 1) for word in sentence]
    learners = [
        BernoulliNB(),
        MultinomialNB(alpha=0.1),
        ComplementNB(),
        RidgeClassifier(),
        KNeighborsClassifier(1),
        KNeighborsClassifier(15),
        NearestCentroid(),
        DecisionTreeClassifier(max_depth=20),
        ExtraTreesClassifier(10),
    ]
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", module="sklearn")  # of words that a class lacks
        built = crowd.build(
            learners,
            (X, y),
            MEMBERS,
            size=(0.02, 0.8),
            label_noise=(0.0, 0.5),
            probabilities="none",
        )
    everyone = built.responses()
    ids = [f"text{k}" for k in asked]
    population = irtcat.Responses.from_array(
        everyone.to_numpy()[:, asked],
        item_ids=ids,
        items=pd.DataFrame({"package": [PACKAGES[code] for code in y[asked]]}, index=ids),
    )
    return Task(
        X[pool],
        X[asked],
        networks.Words(table[pool], y[pool], table[asked], y[asked]),
        int(table.max()) + 1,
        MultinomialNB,
        networks.SEQUENCES,
        list(PACKAGES),
        calibrate(population, {"docstrings": PACKAGES}, "package"),
        population,
    )


def predictions(task: Task, name: str, size: int, noise: float, seed: int) -> np.ndarray:
    """The classes that one system gives what is asked."""
    if name in networks.SEQUENCES:
        return networks.sequence_predictions(
            task.sequences, name, size, noise, seed, STEPS, task.n_words
        )
    rows, labels = networks.training_sets(task.sequences, size, noise, range(seed, seed + 1))
    learner = (CONTROLS | {"naive Bayes": task.naive_bayes})[name]()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        return learner.fit(task.vectors[rows[0]], labels[0]).predict(task.test_vectors)


def by_label(task: Task, systems: pd.DataFrame, found: np.ndarray) -> pd.DataFrame:
    """By label: share right of what has it (recall) and of what is given it (precision)."""
    y, rows = task.sequences.test_labels, []
    for (name, size), group in systems[systems["noise"] == 0].groupby(
        ["network", "size"], sort=False
    ):
        of_group = found[group.index]
        for code, label in enumerate(task.names):
            right = (of_group == code) & (y == code)
            given = (of_group == code).sum()
            recall = right.sum() / ((y == code).sum() * len(of_group))
            rows.append((name, size, label, recall, right.sum() / given if given else np.nan))
    return pd.DataFrame(rows, columns=["network", "size", "label", "recall", "precision"])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--out", type=Path, default=HERE)
    options = parser.parse_args()
    tables: dict[str, list[pd.DataFrame]] = {}
    for name, make, category in (("digits", digits, "digit"), ("text", texts, "package")):
        clock = time.process_time()
        task = make()
        largest = len(task.sequences.labels)
        jobs = [(min(size, largest), 0.0) for size in SIZES] + [(largest, n) for n in NOISES]
        systems = pd.DataFrame(
            [
                (system, size, noise, seed)
                for system in ("naive Bayes", *CONTROLS, *task.networks)
                for size, noise in jobs
                for seed in range(options.seeds)
            ],
            columns=["network", "size", "noise", "seed"],
        )
        found = np.stack([predictions(task, *row) for row in systems.itertuples(index=False)])
        answers = irtcat.Responses.from_array(
            (found == task.sequences.test_labels).astype(np.int8),
            item_ids=task.crowd.item_ids,
            items=task.crowd.items,
        )
        each = abilities(task.banks, task.crowd, answers, systems)
        scores = each[[f"percentile_{scale}" for scale in task.banks] + ["accuracy"]]
        matrix = agreement.correlation_matrix(scores, "spearman").to_frame()
        for kind, table in (
            ("ability", means(each)),
            ("regression", regressions(task.banks, answers, systems)),
            ("categories", regressions(task.banks, answers, systems, category)),
            ("labels", by_label(task, systems, found)),
            ("correlations", matrix),
        ):
            table = table.assign(data=name)
            tables.setdefault(kind, []).append(table[["data", *table.columns.drop("data")]])
            print(table.round(3).to_string(index=False), flush=True)
        print(f"{name}: {time.process_time() - clock:.0f} s of processor time", flush=True)
    for kind, parts in tables.items():
        path = options.out / f"controls_{kind}.csv"
        pd.concat(parts).to_csv(path, index=False, float_format="%.4g")


if __name__ == "__main__":
    main()
