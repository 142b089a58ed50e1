"""Do right and wrong answers help to find wrong labels where a crowd has few members?

Digits with 10 % of the labels flipped (to any class, or to the next one), predicted by
cross-validation of one to nine learners. The share of flipped labels among as many at the top of
the order that `labels.rank` chooses, as it is ("auto") and if answers counted as for a larger crowd
("with answers"), and of each order.

    python experiments/label_detectors/few_members.py [--out FILE]
"""

import argparse

import numpy as np
import pandas as pd
from sklearn.datasets import load_digits
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import cross_val_predict
from sklearn.naive_bayes import GaussianNB
from sklearn.neighbors import KNeighborsClassifier
from sklearn.tree import DecisionTreeClassifier

from irtcat.diagnose import labels
from irtcat.diagnose.labels import inputs
from irtcat.diagnose.labels.orders import order_keys
from irtcat.training import crowd

LEARNERS = (
    LogisticRegression(max_iter=200),
    GaussianNB(),
    KNeighborsClassifier(9),
    DecisionTreeClassifier(max_depth=8, random_state=0),
    LinearDiscriminantAnalysis(),
    KNeighborsClassifier(30),
    DecisionTreeClassifier(max_depth=5, random_state=1),
    LogisticRegression(C=0.01, max_iter=200),
    KNeighborsClassifier(3),
)


def found(table, key, wrong):
    order = np.argsort(key, kind="stable")[: len(wrong)]
    return np.isin(table.index[order].astype(int), wrong).mean()


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", default="few_members.csv")
    arguments = parser.parse_args()
    X, right = load_digits(return_X_y=True)
    rows, least = [], inputs.MIN_MEMBERS
    for draw in range(2):
        rng = np.random.default_rng(draw)
        for noise in ("symmetric", "class"):
            wrong = rng.choice(len(right), len(right) // 10, replace=False)
            y = right.copy()
            shift = rng.integers(1, 10, len(wrong)) if noise == "symmetric" else 1
            y[wrong] = (right[wrong] + shift) % 10
            p = [
                cross_val_predict(learner, X / 16, y, cv=5, method="predict_proba")
                for learner in LEARNERS
            ]
            for n in (1, 2, 5, 9):
                members = crowd.from_predictions(p[:n], y, item_ids=range(len(y)))
                row = {"draw": draw, "noise": noise, "members": n}
                ranking = labels.rank(members)
                row["auto"] = ranking.by
                row["found auto"] = found(ranking.table, np.arange(len(y)), wrong)
                if n > 1:
                    inputs.MIN_MEMBERS = 1
                    ranking = labels.rank(members)
                    inputs.MIN_MEMBERS = least
                    row["with answers"] = ranking.by
                    row["found with answers"] = found(ranking.table, np.arange(len(y)), wrong)
                keys = order_keys(ranking.table)
                row |= {by: found(ranking.table, key, wrong) for by, key in keys.items()}
                rows.append(row)
                print(row, flush=True)
    table = pd.DataFrame(rows)
    table.round(3).to_csv(arguments.out, index=False)
    print(table.groupby("members")[["found auto", "found with answers", "classes"]].mean().round(3))


if __name__ == "__main__":
    main()
