"""Which examples to train on, where only a few can be: the difficulty filters against chance.

Each seed draws a split of scikit-learn's digits, wrong labels (in the second setting), a crowd, a
random sample and the learners' start. Needs scikit-learn.

    python experiments/training_filters/run.py [--seeds 6] [--quick] [--out FOLDER]
"""

import argparse
import sys
from collections.abc import Iterator
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from sklearn.linear_model import LogisticRegression

import irtcat
from irtcat import plot
from irtcat.training import filters

sys.path.append(str(Path(__file__).parents[1] / "curriculum"))
import digits

RULES = ("random", "avi", "ub", "pcub", "avo", "lb", "pclb")
SHARES = (0.05, 0.1, 0.25, 0.5, 1.0)
NOISES = (0.0, 0.1)
STEPS = 200
KEYS = ["noise", "learner", "balanced", "share", "n", "rule"]


def subsets(
    given: np.ndarray, responses: irtcat.Responses, bank: irtcat.ItemBank, share: float, seed: int
) -> dict[tuple[bool, str], np.ndarray]:
    """The examples that each rule keeps, as they come and with digits in equal numbers."""
    if share == 1:
        return {(False, "all"): np.arange(len(given))}
    classes = pd.Series(given.astype(str), index=bank.item_ids)
    out = {}
    for rule in RULES:
        source = responses if rule.startswith("pc") else bank
        for balanced in (False, True):
            found = filters.apply(
                source, rule, keep=share, balanced_by=classes if balanced else None, seed=seed
            )
            out[balanced, rule] = found.indices
    return out


def networks(data: digits.Digits, chosen: list[np.ndarray], seed: int, steps: int) -> np.ndarray:
    """Held-out accuracies of networks trained on sets of one size."""
    at = np.stack(chosen)
    keys = jnp.stack([jax.random.key(seed)] * len(chosen))
    params = digits.train_whole(keys, data.images[at], data.given[at], steps)
    found = np.asarray(digits.predict_each(params, data.test_images))
    return 100 * (found == data.test_labels).mean(axis=1)


def regression(data: digits.Digits, chosen: np.ndarray) -> float:
    """Held-out accuracy of logistic regression; of a single digit where there is but one."""
    y = data.given[chosen]
    if len(np.unique(y)) == 1:
        return float(100 * (data.test_labels == y[0]).mean())
    model = LogisticRegression(C=1.0, max_iter=500).fit(data.images[chosen], y)
    return float(100 * model.score(data.test_images, data.test_labels))


def run(seeds: range, steps: int) -> Iterator[pd.DataFrame]:
    """After each seed, a row per setting, learner, rule and seed so far."""
    tables = []
    for seed in seeds:
        for noise in NOISES:
            data = digits.load(seed, noise)
            responses = digits.crowd(data, 70, seed).responses()
            bank = irtcat.fit(responses, "rasch", standard_errors="none").bank
            for share in SHARES:
                kept = subsets(data.given, responses, bank, share, seed)
                tables.append(accuracies(data, kept, share, noise, seed, steps))
        print(f"seed {seed}: done", flush=True)
        yield pd.concat(tables, ignore_index=True)


def accuracies(
    data: digits.Digits, kept: dict, share: float, noise: float, seed: int, steps: int
) -> pd.DataFrame:
    """A row per learner and subset; all subsets are of one size."""
    rows = []
    by_network = networks(data, list(kept.values()), seed, steps)
    for ((balanced, rule), at), accuracy in zip(kept.items(), by_network, strict=True):
        wrong = 100 * data.flipped[at].mean()
        about = {"digits": len(np.unique(data.given[at])), "wrong": wrong, "seed": seed}
        found = {"network": accuracy, "logistic": regression(data, at)}
        for learner, value in found.items():
            key = (noise, learner, balanced, share, len(at), rule)
            rows.append({**dict(zip(KEYS, key, strict=True)), **about, "accuracy": value})
    return pd.DataFrame(rows)


def summarise(each: pd.DataFrame) -> pd.DataFrame:
    """Means over seeds with 95 % intervals, and paired differences from random of equal size."""
    keys = [key for key in KEYS if key != "rule"] + ["seed"]
    base = each[each["rule"] == "random"].set_index(keys)["accuracy"]
    index = pd.MultiIndex.from_frame(each[keys])
    each = each.assign(less_random=each["accuracy"].to_numpy() - base.reindex(index).to_numpy())
    groups = each.groupby(KEYS, sort=False)
    table = groups[["accuracy", "less_random", "digits", "wrong"]].mean()
    table.insert(1, "accuracy_half", groups["accuracy"].agg(digits.level))
    table.insert(3, "less_random_half", groups["less_random"].agg(digits.level))
    return table.assign(seeds=groups.size()).reset_index()


def draw(table: pd.DataFrame, path: Path) -> None:
    """Accuracy against the share of the data."""
    figure = Figure(figsize=(11, 12), layout="constrained")
    axes = figure.subplots(4, 2, sharex=True)
    panels = [(noise, learner) for noise in NOISES for learner in ("network", "logistic")]
    for row, (noise, learner) in zip(axes, panels, strict=True):
        part = table[(table["noise"] == noise) & (table["learner"] == learner)]
        whole = part.loc[part["rule"] == "all", "accuracy"].iloc[0]
        for ax, balanced in zip(row, (False, True), strict=True):
            for k, rule in enumerate(RULES):
                one = part[(part["rule"] == rule) & (part["balanced"] == balanced)]
                colour = "black" if rule == "random" else f"C{k}"
                style = {"color": colour, "marker": "o", "markersize": 3, "capsize": 2}
                x = 100 * one["share"] * (1 + 0.012 * (k - 3))
                ax.errorbar(x, one["accuracy"], one["accuracy_half"], label=rule, **style)
            ax.axhline(whole, color="grey", linestyle=":", linewidth=1)
            ax.set_xscale("log")
            ax.set_xticks([5, 10, 25, 50], ["5", "10", "25", "50"])
            ax.minorticks_off()
            ax.set_title(f"{learner}, {100 * noise:g} % wrong labels" + ", balanced" * balanced)
        row[0].set_ylabel("held-out accuracy, %")
    for ax in axes[-1]:
        ax.set_xlabel("share of the data, % (dotted: all of it)")
    axes[0, 0].legend(fontsize=7)
    plot.save(figure, path, dpi=90)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=6)
    parser.add_argument("--quick", action="store_true", help="two seeds, short training")
    parser.add_argument("--out", type=Path, default=Path(__file__).parent)
    options = parser.parse_args()
    seeds, steps = (2, 100) if options.quick else (options.seeds, STEPS)
    for each in run(range(seeds), steps):
        table = summarise(each)
        table.to_csv(options.out / "accuracy.csv", index=False, float_format="%.4g")
    print(table.round(2).to_string(index=False))
    draw(table, options.out / "accuracy.png")


if __name__ == "__main__":
    main()
