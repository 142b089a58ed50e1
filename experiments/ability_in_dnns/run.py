"""How does the ability of networks grow with training data, and fall with wrong labels?

The questions of Lalor, Wu, Munkhdalai & Yu (2018), An Analysis of Ability in Deep Neural Networks,
on data that ship: scales of handwritten digits are calibrated on a crowd of 412 classifiers
(`digits_crowd`), and networks trained here are scored on them. Needs scikit-learn.

    python experiments/ability_in_dnns/run.py [--seeds 5] [--quick] [--out FOLDER]
"""

import argparse
from pathlib import Path

import figures
import networks
import numpy as np
import pandas as pd

import irtcat
from irtcat import agreement, datasets
from irtcat.training import learning_regression

SCALES = {"round": (0, 6, 8, 9), "straight": (1, 4, 7), "open": (2, 3, 5)}
"""Digits by shape; each is a scale of its own, as labels are in the paper."""

SIZES = (20, 50, 100, 200, 400, 899)
NOISES = (0.05, 0.2, 0.35, 0.5)
FLATTEST = 0.5
"""Items of a smaller slope tell the able from others hardly or wrongly: dropped, and refitted."""


def calibrate(
    crowd: irtcat.Responses, scales: dict[str, tuple], column: str
) -> dict[str, irtcat.ItemBank]:
    """A bank of each scale, by the crowd; a scale is the items with some values of a column."""
    banks = {}
    for scale, values in scales.items():
        keep = crowd.items[column].isin(values).to_numpy()
        items = list(crowd.item_ids[keep])
        first, n = len(items), 0
        while len(items) != n:
            n = len(items)
            fit = irtcat.fit(crowd.subset(items=items), "2pl")
            table = fit.bank.to_frame()
            items = list(fit.bank.item_ids[table["a"].to_numpy() >= FLATTEST])
        banks[scale] = fit.bank
        b = table["b"]
        print(
            f"{scale}: {n} of {first} items, b from {b.min():.2f} to {b.max():.2f}, {fit.message}"
        )
    return banks


def train_all(data: networks.Digits, seeds: range, steps: int) -> tuple[np.ndarray, pd.DataFrame]:
    """The answers of all networks, and what each was trained on."""
    largest = len(data.labels)
    jobs = [(min(size, largest), 0.0) for size in SIZES] + [(largest, noise) for noise in NOISES]
    answers, systems = [], []
    for network in networks.NETWORKS:
        for size, noise in jobs:
            answers.append(networks.right_answers(data, network, size, noise, seeds, steps))
            systems += [(network, size, noise, seed) for seed in seeds]
        print(f"{network}: trained", flush=True)
    columns = ["network", "size", "noise", "seed"]
    return np.concatenate(answers), pd.DataFrame(systems, columns=columns)


def abilities(
    banks: dict[str, irtcat.ItemBank],
    crowd: irtcat.Responses,
    answers: irtcat.Responses,
    systems: pd.DataFrame,
) -> pd.DataFrame:
    """A row per network: accuracy on all images, and per scale theta and its percentiles."""
    out = systems.assign(accuracy=100 * np.nanmean(answers.values, axis=1))
    for scale, bank in banks.items():
        found = irtcat.score(bank, answers)
        population = np.sort(irtcat.score(bank, crowd).theta)
        out[f"theta_{scale}"] = found.theta
        out[f"percentile_{scale}"] = found.percentile
        share = np.searchsorted(population, found.theta) / len(population)
        out[f"above_{scale}"] = 100 * share
    return out


def regressions(
    banks: dict[str, irtcat.ItemBank],
    answers: irtcat.Responses,
    systems: pd.DataFrame,
    categories: str | None = None,
) -> pd.DataFrame:
    """Right or wrong on log training size (largest = 0), difficulty (mean = 0), their product.

    Standard errors as if all answers were independent, as in the paper, and again with the answers
    to one image (or text) as a cluster.
    """
    clean = systems["noise"].to_numpy() == 0
    trained = systems[clean]
    some = answers.subset(np.flatnonzero(clean))
    tables = []
    for scale, bank in banks.items():
        plain, by_item = (
            learning_regression(
                bank,
                some,
                trained["size"].to_numpy(),
                systems=trained["network"].to_numpy(),
                categories=categories,
                errors=errors,
            ).table
            for errors in ("independent", "items")
        )
        plain = plain.rename(columns={"system": "network", "n_answers": "n"})
        plain["se_by_item"], plain["p_by_item"] = by_item["se"], by_item["p"]
        plain.insert(0, "scale", scale)
        tables.append(plain.drop(columns=["z", "n_items", "n_subjects", "mean_difficulty"]))
    return pd.concat(tables, ignore_index=True)


def means(table: pd.DataFrame) -> pd.DataFrame:
    """Mean over seeds of each design, with the standard deviation of the accuracy."""
    groups = table.drop(columns="seed").groupby(["network", "size", "noise"], sort=False)
    out = groups.mean()
    out.insert(1, "accuracy_sd", groups["accuracy"].std())
    return out.reset_index()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--quick", action="store_true", help="two seeds, short training")
    parser.add_argument("--out", type=Path, default=Path(__file__).parent)
    options = parser.parse_args()
    seeds, steps = range(options.seeds), networks.STEPS
    if options.quick:
        seeds, steps = range(2), 200
    crowd = datasets.load("digits_crowd")
    banks = calibrate(crowd, SCALES, "digit")
    X, systems = train_all(networks.load(crowd.items["image"].to_numpy()), seeds, steps)
    answers = irtcat.Responses.from_array(X, item_ids=crowd.item_ids)
    each = abilities(banks, crowd, answers, systems)
    table = means(each)
    regression = regressions(banks, answers, systems)
    scores = each[[f"percentile_{scale}" for scale in SCALES] + ["accuracy"]]
    scores = scores.set_axis([*SCALES, "accuracy"], axis=1)
    matrix = agreement.correlation_matrix(scores, "spearman")
    for name, saved in (("ability", table), ("regression", regression)):
        saved.round(4).to_csv(options.out / f"{name}.csv", index=False, float_format="%.4g")
        print(saved.round(3).to_string(index=False), flush=True)
    matrix.to_frame().to_csv(options.out / "correlations.csv", index=False, float_format="%.4g")
    print(matrix.to_frame().round(3).to_string(index=False))
    figures.curves(table, list(SCALES), options.out / "curves.png")
    figures.surface(regression, banks, options.out / "surface.png")
    figures.correlations(matrix, options.out / "correlations.png")


if __name__ == "__main__":
    main()
