"""Difficulty from an artificial crowd on digits, against the share of the crowd that is wrong.

    python experiments/crowd_difficulty/run.py [--members 600] [--draws 5] [--workers 2]

Needs scikit-learn beside the `plot` extra. A crowd of simple classifiers is built on all 1,797
digits by `irtcat.training.crowd`, each on a random part with wrong labels, out of sample. Of each
number of members random halves without a member in common are drawn; the rank correlation between
the two halves' difficulties says how stable they are, that with the rest of the crowd how near.
"""

import argparse
import time
import warnings
from pathlib import Path

import numpy as np
import pandas as pd
from sklearn.datasets import load_digits
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.linear_model import RidgeClassifier
from sklearn.naive_bayes import BernoulliNB, GaussianNB, MultinomialNB
from sklearn.neighbors import KNeighborsClassifier, NearestCentroid
from sklearn.tree import DecisionTreeClassifier, ExtraTreeClassifier

import irtcat
from irtcat.selection.task import share_right
from irtcat.training import crowd

HERE = Path(__file__).parent


def centroid(X_train, y_train, X, seed):
    """The nearest class mean; pixels that are blank throughout a class are no reason to warn."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        return NearestCentroid().fit(X_train, y_train).predict(X)


LEARNERS = {
    "gaussian": GaussianNB(var_smoothing=0.01),
    "tree": DecisionTreeClassifier(),
    "knn": KNeighborsClassifier(5),
    "multinomial": MultinomialNB(),
    "stump": DecisionTreeClassifier(max_depth=4),
    "ridge": RidgeClassifier(),
    "bernoulli": BernoulliNB(binarize=7.0),
    "lda": LinearDiscriminantAnalysis(solver="lsqr", shrinkage=0.1),
    "extra": ExtraTreeClassifier(),
    "centroid": centroid,
}
MODELS = ("rasch", "2pl")


def spearman(x: np.ndarray, y: np.ndarray) -> float:
    """Rank correlation over the items that have both."""
    return float(pd.Series(x).corr(pd.Series(y), method="spearman"))


def difficulties(responses: irtcat.Responses, models=MODELS) -> dict[str, np.ndarray]:
    """Share wrong, and b of each model."""
    found = {"share wrong": 1 - share_right(responses)}
    for model in models:
        found[model] = (
            irtcat.fit(responses, model, standard_errors="none").bank.to_frame()["b"].to_numpy()
        )
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--members", type=int, default=600)
    parser.add_argument("--draws", type=int, default=5)
    parser.add_argument("--counts", type=int, nargs="+", default=[10, 30, 100, 300])
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--folder", help="keep the members here, to go on from")
    parser.add_argument("--out", type=Path, default=HERE)
    given = parser.parse_args()
    warnings.filterwarnings("ignore", module="sklearn")
    X, y = load_digits(return_X_y=True)
    clock = time.perf_counter()
    built = crowd.build(
        LEARNERS,
        (X, y),
        given.members,
        size=(0.05, 0.8),
        label_noise=(0.0, 0.5),
        seed=0,
        probabilities="none",
        workers=given.workers,
        folder=given.folder,
        progress=True,
    )
    print(f"{built} in {time.perf_counter() - clock:.0f} s")
    responses = built.responses()
    whole = difficulties(responses, ["rasch"])
    rows: list[dict] = []
    for n in [n for n in given.counts if 2 * n <= given.members]:
        for draw in range(given.draws):
            rows += stability(responses, n, draw)
        table = (
            pd.DataFrame(rows)
            .groupby(["members", "measure"], sort=False)
            .agg(
                draws=("halves", "size"),
                between_halves=("halves", "mean"),
                sd=("halves", "std"),
                with_the_rest=("rest", "mean"),
                never_wrong=("never_wrong", "mean"),
            )
        )
        table.round(4).to_csv(given.out / "stability.csv")
        draw_figure(whole, table.reset_index(), given.out / "stability.png")
        print(f"{n} members done after {time.perf_counter() - clock:.0f} s", flush=True)
    answers = {"out of sample": responses, "in sample": built.responses(in_sample=True)}
    agreement = agreement_table({name: difficulties(each) for name, each in answers.items()})
    agreement.to_csv(given.out / "agreement.csv", index=False)


def agreement_table(whole: dict[str, dict[str, np.ndarray]]) -> pd.DataFrame:
    """Rank correlations between the measures of the whole crowd."""
    out, inside = whole["out of sample"], whole["in sample"]
    rows = [
        {"measure": one, "with": other, "rank_correlation": spearman(out[one], out[other])}
        for one, other in (("rasch", "share wrong"), ("2pl", "share wrong"), ("rasch", "2pl"))
    ]
    rows += [
        {
            "measure": name,
            "with": f"{name}, in sample",
            "rank_correlation": spearman(out[name], inside[name]),
        }
        for name in out
    ]
    return pd.DataFrame(rows).round(4)


def stability(responses: irtcat.Responses, n: int, draw: int) -> list[dict]:
    """Two disjoint samples of n members, compared with each other; the first with all others."""
    order = np.random.default_rng([n, draw]).permutation(responses.n_subjects)
    one, two = (difficulties(responses.subset(order[at : at + n]), ["rasch"]) for at in (0, n))
    rest = 1 - share_right(responses.subset(order[n:]))
    never = float((one["share wrong"] == 0).mean())
    return [
        {
            "members": n,
            "draw": draw,
            "measure": name,
            "halves": spearman(one[name], two[name]),
            "rest": spearman(one[name], rest),
            "never_wrong": never,
        }
        for name in one
    ]


def draw_figure(whole: dict[str, np.ndarray], table: pd.DataFrame, path: Path) -> None:
    """Difficulty against share wrong, and stability against the number of members."""
    from irtcat.plot.style import COLOURS, MARKERS, new_figure, save, tidy

    figure = new_figure(9, 3.8)
    left, right = figure.subplots(1, 2)
    for axes in (left, right):
        tidy(axes)
    left.plot(whole["share wrong"], whole["rasch"], ".", color=COLOURS[0], markersize=3)
    left.set(xlabel="share of the crowd that is wrong", ylabel="difficulty b (Rasch)")
    for i, (name, mine) in enumerate(table.groupby("measure", sort=False)):
        right.errorbar(
            mine["members"],
            mine["between_halves"],
            mine["sd"],
            label=str(name),
            color=COLOURS[i],
            marker=MARKERS[i],
            markersize=4,
            capsize=2,
        )
    right.set(xscale="log", xlabel="members", ylabel="rank correlation between two crowds")
    right.legend(frameon=False)
    save(figure, path)


if __name__ == "__main__":
    main()
