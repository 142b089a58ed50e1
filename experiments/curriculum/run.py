"""Does a curriculum help? Ability-matched data against schedules, controls, and all of the data.

Each seed draws a split of scikit-learn's digits, wrong labels (in the second setting), a crowd, and
the learner's start. Needs scikit-learn.

    python experiments/curriculum/run.py [--seeds 10] [--epochs 30] [--quick] [--out FOLDER]
"""

import argparse
from collections.abc import Callable
from pathlib import Path

import digits
import jax_example
import numpy as np
import pandas as pd
import sklearn_example
from matplotlib.figure import Figure

import irtcat
from irtcat import plot
from irtcat.training.curriculum import AbilityMatched, Competency, Curriculum

NOISES = (0.0, 0.2)
LEARNERS = {"network": jax_example.train, "logistic": sklearn_example.train}
SHOWN = (1, 2, 3, 5, 10, 20, 30)
"""Epochs in the table."""
BUDGETS = (1, 2, 5, 10, 15)
"""Examples seen, as multiples of the training set."""


def curricula(bank: irtcat.ItemBank, epochs: int, seed: int) -> dict[str, Curriculum]:
    """All that are compared; those that grow have all examples half-way."""
    grow = {"epochs_to_all": epochs / 2, "start": 0.08, "seed": seed}
    matched = {"min_length": 100, "seed": seed}
    luck = np.random.default_rng([seed, 3]).random(bank.n_items)
    return {
        "none": Competency(bank, epochs_to_all=1, start=1.0, seed=seed),
        "ddaclae": AbilityMatched(bank, **matched),
        "ddaclae, at least 1/3": AbilityMatched(bank, min_length=bank.n_items // 3, seed=seed),
        "ddaclae, success .8": AbilityMatched(bank, success=0.8, **matched),
        "ddaclae, lower -2": AbilityMatched(bank, lower=-2.0, short="nearest", **matched),
        "linear": Competency(bank, schedule="linear", **grow),
        "root": Competency(bank, schedule="root", **grow),
        "linear, hardest first": Competency(bank, order="hardest", **grow),
        "linear, random order": Competency(luck, **grow),
    }


def run(seeds: range, epochs: int) -> pd.DataFrame:
    """A row per noise, learner, curriculum, seed and epoch."""
    tables = []
    for noise in NOISES:
        for seed in seeds:
            data = digits.load(seed, noise)
            responses = digits.crowd(data, 70, seed).responses()
            bank = irtcat.fit(responses, "rasch", standard_errors="none").bank
            for learner, train in LEARNERS.items():
                for name, curriculum in curricula(bank, epochs, seed).items():
                    table = train(curriculum, data, epochs, seed).reset_index()
                    keys = {"noise": noise, "learner": learner, "curriculum": name, "seed": seed}
                    tables.append(table.assign(**keys))
        print(f"{100 * noise:g} % wrong labels: done", flush=True)
    return pd.concat(tables, ignore_index=True)


KEYS = ["noise", "learner", "curriculum"]


def summarise(each: pd.DataFrame, of: str, at: Callable[[pd.DataFrame], pd.Series]) -> pd.DataFrame:
    """Mean accuracies over seeds at some points, and the difference from no curriculum, paired."""
    points = each.groupby([*KEYS, "seed"], sort=False)[["epoch", "seen", "accuracy"]].apply(at)
    long = points.melt(var_name=of, value_name="accuracy", ignore_index=False).dropna()
    long = long.reset_index()
    base = long[long["curriculum"] == "none"].set_index(["noise", "learner", "seed", of])
    known = long.set_index(["noise", "learner", "seed", of]).index
    long["less_none"] = long["accuracy"] - base["accuracy"].reindex(known).to_numpy()
    groups = long.groupby([*KEYS, of], sort=False)
    spread = groups[["accuracy", "less_none"]].agg(digits.level)
    table = groups[["accuracy", "less_none"]].mean()
    table.insert(1, "accuracy_half", spread["accuracy"])
    table = table.assign(less_none_half=spread["less_none"], seeds=groups.size()).reset_index()
    return table[table["seeds"] == table["seeds"].max()]  # budgets that every seed came to


def at_epochs(table: pd.DataFrame) -> pd.Series:
    shown = table.set_index("epoch")["accuracy"]
    return shown.reindex([e for e in SHOWN if e in shown.index])


def at_budgets(table: pd.DataFrame, n: int) -> pd.Series:
    """Accuracy after so many examples, between epochs by linear interpolation."""
    seen = table["seen"].to_numpy(float) / n
    budgets = [k for k in BUDGETS if seen[0] <= k <= seen[-1]]
    values = np.interp(budgets, seen, table["accuracy"].to_numpy(float))
    return pd.Series(values, index=budgets).reindex(list(BUDGETS))


def draw(by_epoch: pd.DataFrame, by_examples: pd.DataFrame, path: Path) -> None:
    """Accuracy against epochs (left) and against examples seen (right)."""
    figure = Figure(figsize=(11, 12), layout="constrained")
    axes = figure.subplots(4, 2, sharey="row", sharex="col")
    panels = [(noise, learner) for noise in NOISES for learner in LEARNERS]
    for row, (noise, learner) in zip(axes, panels, strict=True):
        for ax, table, x in zip(row, (by_epoch, by_examples), ("epochs", "times_all"), strict=True):
            part = table[(table["noise"] == noise) & (table["learner"] == learner)]
            for k, (name, one) in enumerate(part.groupby("curriculum", sort=False)):
                style = {"color": "black" if name == "none" else f"C{k}", "capsize": 2}
                ax.errorbar(one[x], one["accuracy"], one["accuracy_half"], label=name, **style)
            ax.set_xscale("log")
            ax.set_xticks(ticks := sorted(table[x].unique()), [f"{k:g}" for k in ticks])
            ax.minorticks_off()
        row[0].set_ylim(40, 100)
        row[0].set_ylabel(f"{learner}, {100 * noise:g} % wrong labels\nheld-out accuracy, %")
    axes[-1, 0].set_xlabel("epochs")
    axes[-1, 1].set_xlabel("examples seen, multiples of the training set")
    axes[0, 0].legend(fontsize=7)
    plot.save(figure, path, dpi=90)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--epochs", type=int, default=30)
    parser.add_argument("--quick", action="store_true", help="two seeds, ten epochs")
    parser.add_argument("--out", type=Path, default=Path(__file__).parent)
    options = parser.parse_args()
    seeds, epochs = (2, 10) if options.quick else (options.seeds, options.epochs)
    each = run(range(seeds), epochs)
    n = 1797 - digits.TEST
    epochs_table = summarise(each, "epochs", at_epochs)
    budgets_table = summarise(each, "times_all", lambda table: at_budgets(table, n))
    for name, table in (("epochs", epochs_table), ("examples", budgets_table)):
        table.to_csv(options.out / f"{name}.csv", index=False, float_format="%.4g")
        print(table.round(2).to_string(index=False))
    matched = each[each["curriculum"].str.startswith("ddaclae")]
    path = matched.groupby([*KEYS, "epoch"], sort=False)[["theta", "n", "seen"]].mean()
    path.to_csv(options.out / "ability.csv", float_format="%.4g")
    draw(epochs_table, budgets_table, options.out / "curves.png")


if __name__ == "__main__":
    main()
