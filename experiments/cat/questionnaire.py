"""An adaptive questionnaire of graded items: theta after 1, 2, ... items against theta from all.

    python experiments/cat/questionnaire.py --data FOLDER

On Science (392 x 4, four categories; graded model fitted to it) and on a simulated bank of 30
graded items with 1,000 subjects. Items chosen adaptively (expected posterior variance), at random,
and in one fixed order, best first by information over the population.
"""

import argparse
from pathlib import Path

import numpy as np
import pandas as pd

import irtcat
from irtcat import ItemBank
from irtcat.bank import fisher_information
from irtcat.cat import Config, replay

HERE = Path(__file__).parent


def fixed_order(bank):
    """Positions by mean information over the population."""
    nodes = bank.population.mean + bank.population.sd * np.linspace(-3, 3, 61)
    weights = np.exp(-0.5 * np.linspace(-3, 3, 61) ** 2)
    return np.argsort(-fisher_information(bank, nodes) @ weights, kind="stable")


def compare(bank, responses, length, name):
    """RMSE to the estimate from all items, and correlation with it, after each item."""
    rows = []
    ordered = bank.subset(fixed_order(bank))
    ways = {
        "adaptive": (bank, Config(criterion="mepv", max_items=length)),
        "fixed best order": (ordered, Config(criterion="sequential", max_items=length)),
        "random": (bank, Config(criterion="random", max_items=length)),
    }
    for way, (own, config) in ways.items():
        report = replay(own, responses, config, precision="float64")
        for k in range(length):
            theta = report.thetas[:, k]
            rows.append(
                {
                    "data": name,
                    "way": way,
                    "items": k + 1,
                    "rmse": np.sqrt(((theta - report.truth) ** 2).mean()),
                    "r": np.corrcoef(theta, report.truth)[0, 1],
                }
            )
    return rows


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--data", required=True)
    folder = Path(parser.parse_args().data) / "human_psychometrics"
    with np.load(folder / "responses_Science4.npz", allow_pickle=True) as file:
        science = irtcat.Responses.from_array(file["X"])
    bank = irtcat.fit(science, "graded", standard_errors="none").bank
    rows = compare(bank, science, 4, "science")
    rng = np.random.default_rng(0)
    made = ItemBank.from_thresholds(
        rng.uniform(0.8, 2.5, 30),
        np.sort(rng.normal(0, 1.2, (30, 4)) + rng.normal(0, 0.8, (30, 1)), axis=1),
    )
    simulated = made.simulate(rng.normal(size=1000), seed=1)
    rows += compare(made, simulated, 30, "simulated")
    table = pd.DataFrame(rows).round(4)
    table.to_csv(HERE / "questionnaire.csv", index=False)
    print(table[table["items"].isin([1, 2, 3, 4, 5, 10, 15, 20, 30])].to_string())
    draw(table)


def draw(table):
    from matplotlib.figure import Figure

    figure = Figure((8, 3.2), layout="constrained")
    for axes, (name, part) in zip(figure.subplots(1, 2), table.groupby("data"), strict=True):
        styles = zip(part.groupby("way", sort=False), "os^", ("#0072B2", "#D55E00", "#666666"))  # noqa: B905
        for (way, each), marker, colour in styles:
            axes.plot(each["items"], each["rmse"], marker=marker, color=colour, ms=3, label=way)
        axes.set(title=name, xlabel="items answered", ylabel="RMSE to theta from all items")
        axes.legend(frameon=False)
    figure.savefig(HERE / "questionnaire.png", dpi=110)


if __name__ == "__main__":
    main()
