"""Which order of `labels.rank` finds wrong labels in training data, by what data are given.

Labels are flipped at random; a crowd of learners, each trained on a part of the flipped data,
answers out of sample. For every setting, share of flipped labels and draw, the share of flipped
labels among as many at the top of each order (precision at n, chance: the share flipped), in %.
Needs scikit-learn.

    python experiments/label_detectors/run.py [--settings clouds,digits-networks,...]
        [--flipped .05,.2] [--draws 8] [--out FOLDER]
"""

import argparse
import warnings
from pathlib import Path

import numpy as np
import pandas as pd
from sklearn.datasets import load_breast_cancer, load_digits
from sklearn.linear_model import LogisticRegression
from sklearn.naive_bayes import GaussianNB
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import PolynomialFeatures, StandardScaler

from irtcat import Responses
from irtcat.diagnose import labels
from irtcat.training import crowd, dynamics

FLIPPED = (0.05, 0.1, 0.2)
CENTRES = np.array([[0.0, 0.0], [3.4, 0.0], [1.7, 2.9]])
N = 500


def clouds(rng):
    """The trainer's notebook: three clouds of points, softmax regression on quadratic features."""
    y = rng.integers(0, 3, N)
    return CENTRES[y] + rng.normal(size=(N, 2)), y


def some(data, rng):
    X, y = data(return_X_y=True)
    at = rng.permutation(len(y))[:N]
    return X[at], y[at]


SETTINGS = {
    "clouds": (clouds, make_pipeline(PolynomialFeatures(2), LogisticRegression(C=10.0))),
    "digits-networks": (
        lambda rng: some(load_digits, rng),
        make_pipeline(StandardScaler(), MLPClassifier((16,), max_iter=60)),
    ),
    "digits-bayes": (lambda rng: some(load_digits, rng), GaussianNB(var_smoothing=1e-2)),
    "cancer-logistic": (
        lambda rng: some(load_breast_cancer, rng),
        make_pipeline(StandardScaler(), LogisticRegression(C=0.3)),
    ),
}


def flip(y, share, rng):
    """The labels with a share of them changed to another class, and which ones."""
    n_classes, given = y.max() + 1, y.copy()
    wrong = rng.choice(len(y), round(share * len(y)), replace=False)
    given[wrong] = (given[wrong] + rng.integers(1, n_classes, len(wrong))) % n_classes
    return given, np.isin(np.arange(len(y)), wrong)


def crowd_row(setting, share, draw):
    """Precision at n of all orders in a crowd of learners."""
    rng = np.random.default_rng([draw, round(100 * share)])
    make, learner = SETTINGS[setting]
    X, y = make(rng)
    given, wrong = flip(y, share, rng)
    members = crowd.build(
        learner, (X, given), 60, size=(0.05, 0.5), label_noise=(0.0, 0.3), seed=draw
    )
    seen = dynamics.from_probabilities(members.confidences(), item_ids=members.item_ids)
    return orders(members.responses(), wrong, seen)


def simulated_row(kind, share, draw):
    """The same without learners: answers by the Rasch model, with wrong keys or coin flips."""
    rng = np.random.default_rng([draw, round(100 * share), 7])
    theta, b = rng.uniform(-3, 3, 60), rng.uniform(-3, 3, N)
    p = 1 / (1 + np.exp(b - theta[:, None]))
    wrong = rng.permutation(N) < round(share * N)
    X = (rng.random(p.shape) < p).astype(int)
    X = np.where(wrong, 1 - X if kind == "wrong-keys" else rng.integers(0, 2, X.shape), X)
    return orders(Responses.from_array(X), wrong, None)


def orders(responses, wrong, seen):
    """Precision at n of every order."""
    table = labels.rank(responses, dynamics=seen).table.reindex(responses.item_ids)
    keys = {
        "answers": -table["log_odds"],
        "wrong-key": -table["log_odds_wrong_key"],
        "discrimination": table["a"],
        "share": table["share"],
    }
    if seen is not None:
        keys["confidence"] = table["confidence"]
    n = int(wrong.sum())
    return {
        name: 100 * wrong[np.argsort(key.to_numpy(), kind="stable")[:n]].mean()
        for name, key in keys.items()
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--settings", default=",".join([*SETTINGS, "wrong-keys", "coin-flips"]))
    parser.add_argument("--flipped", default=",".join(map(str, FLIPPED)))
    parser.add_argument("--draws", type=int, default=8)
    parser.add_argument("--out", type=Path, default=Path(__file__).parent)
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    path = options.out / "found.csv"
    for setting in options.settings.split(","):
        row_of = crowd_row if setting in SETTINGS else simulated_row
        for share in map(float, options.flipped.split(",")):
            rows = [row_of(setting, share, draw) for draw in range(options.draws)]
            about = pd.DataFrame(rows).agg(["mean", "sem"]).T.rename_axis("order").reset_index()
            about.insert(0, "setting", setting)
            about.insert(1, "flipped", share)
            done = pd.read_csv(path) if path.exists() else about[:0]
            same = (done["setting"] == setting) & (done["flipped"] == share)
            pd.concat([done[~same], about]).to_csv(path, index=False, float_format="%.4g")
            print(about.round(1).to_string(index=False), flush=True)


if __name__ == "__main__":
    main()
