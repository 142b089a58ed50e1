"""Finding wrong labels in training data, and what mending them is worth.

Each seed draws a split of scikit-learn's digits, which labels are flipped, a crowd trained on the
flipped labels, and the learners' start. Needs scikit-learn.

    python experiments/wrong_labels_training/run.py [--seeds 6] [--quick] [--detect] [--out FOLDER]
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
from sklearn.metrics import average_precision_score

import irtcat
from irtcat import plot
from irtcat.training import dynamics, labels
from irtcat.training.crowd import Crowd

sys.path.append(str(Path(__file__).parents[1] / "curriculum"))
import digits

NOISES = (0.05, 0.1)
EPOCHS = 12
"""Of the network whose training dynamics are followed."""
STEPS = 300
ABLE = "feasibility, P at theta 2"
"""The same model's probability that an able subject is right; detection only."""

SLOPE = {"slope": (1.0, 1.0)}
"""Normal prior of the slopes: with 70 members slopes would run off; negative ones are allowed."""


def cartography(data: digits.Digits, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Mean probability of each given label over a network's epochs, and the likeliest digits."""
    params = digits.initial(jax.random.key(seed))
    state = digits.optimiser.init(params)
    seen, total = dynamics.Accumulator(len(data.given)), np.zeros((len(data.given), 10))
    rng = np.random.default_rng([seed, 4])
    for _ in range(EPOCHS):
        for batch, weight in digits.batches(rng.permutation(len(data.given))):
            x, y = data.images[batch], data.given[batch]
            params, state = digits.step(params, state, x, y, weight)
        scores = np.asarray(digits.logits(params, data.images), float)
        scores = np.exp(scores - scores.max(axis=1, keepdims=True))
        p = scores / scores.sum(axis=1, keepdims=True)
        seen.add(p, labels=data.given)
        total += p
    return seen.result().table["confidence"].to_numpy(), total.argmax(axis=1)


def vote(crowd: Crowd) -> np.ndarray:
    """The digit that most members say who were not trained on the image."""
    said = np.where(crowd.in_sample(), -1, crowd.predictions)
    counts = np.stack([(said == k).sum(axis=0) for k in range(10)])
    return crowd.classes[counts.argmax(axis=0)]


def suspicions(data: digits.Digits, crowd: Crowd, seed: int) -> dict[str, np.ndarray]:
    """How suspect each label is, by method; the larger the more."""
    responses = crowd.responses()
    bank = irtcat.fit(responses, "2pl", priors=SLOPE, standard_errors="none").bank
    ceiling = irtcat.fit(
        responses, "feasibility", irtcat.EM(max_iterations=40), priors=SLOPE, standard_errors="none"
    ).bank
    ranking = labels.rank(responses, bank, by="answers").table
    return {
        "labels.rank": ranking["log_odds"].reindex(bank.item_ids).to_numpy(),
        "discrimination": -bank.to_frame()["a"].to_numpy(),
        "feasibility": -ceiling.to_frame()["d"].to_numpy(),
        ABLE: -ceiling.probability([2.0]).ravel(),
        "proportion wrong": 1 - np.nanmean(responses.to_numpy(), axis=0),
        "cartography": -cartography(data, seed)[0],
        "random": np.random.default_rng([seed, 5]).random(len(data.given)),
    }


def detection(flipped: np.ndarray, suspicion: np.ndarray) -> dict[str, float]:
    """Precision and recall among the first n and 2n, n the number of flipped labels."""
    order, n = np.argsort(-suspicion, kind="stable"), int(flipped.sum())
    hits, twice = flipped[order[:n]].sum(), flipped[order[: 2 * n]].sum()
    return {
        "precision_n": 100 * hits / n,
        "precision_2n": 100 * twice / (2 * n),
        "recall_2n": 100 * twice / n,
        "average_precision": 100 * average_precision_score(flipped, suspicion),
    }


def treatments(
    data: digits.Digits, found: dict[str, np.ndarray], crowd: Crowd, seed: int
) -> dict[tuple[str, str], tuple[np.ndarray, np.ndarray]]:
    """Training sets (positions and labels): the n most suspect labels dropped or changed."""
    everything, n = np.arange(len(data.given)), int(data.flipped.sum())
    by_crowd, by_network = vote(crowd), cartography(data, seed)[1]
    out = {
        ("none", "as given"): (everything, data.given),
        ("none", "right labels"): (everything, data.labels),
    }
    for method, suspicion in found.items():
        if method == ABLE:
            continue
        order = np.argsort(-suspicion, kind="stable")
        rest = np.sort(order[n:])
        out[method, "dropped"] = rest, data.given[rest]
        said = by_network if method == "cartography" else by_crowd
        changed = data.given.copy()
        changed[order[:n]] = said[order[:n]]
        out[method, "relabelled"] = everything, changed
    return out


def accuracies(data: digits.Digits, sets: dict, seed: int, steps: int) -> Iterator[dict]:
    """Held-out accuracy of both learners on each training set."""
    for size in {len(at) for at, _ in sets.values()}:
        part = {key: value for key, value in sets.items() if len(value[0]) == size}
        keys = jnp.stack([jax.random.key(seed)] * len(part))
        x = np.stack([data.images[at] for at, _ in part.values()])
        y = np.stack([labels_ for _, labels_ in part.values()])
        params = digits.train_whole(keys, x, y, steps)
        said = np.asarray(digits.predict_each(params, data.test_images))
        right = 100 * (said == data.test_labels).mean(axis=1)
        for k, (method, treatment) in enumerate(part):
            common = {"method": method, "treatment": treatment}
            yield {**common, "learner": "network", "accuracy": right[k]}
            model = LogisticRegression(C=1.0, max_iter=300).fit(x[k], y[k])
            score = 100 * model.score(data.test_images, data.test_labels)
            yield {**common, "learner": "logistic", "accuracy": score}


def run(seeds: range, steps: int, train: bool) -> Iterator[tuple[pd.DataFrame, pd.DataFrame]]:
    """After each seed, the detections and accuracies so far."""
    detected, trained = [], []
    for seed in seeds:
        for noise in NOISES:
            data = digits.load(seed, noise)
            crowd = digits.crowd(data, 70, seed)
            found = suspicions(data, crowd, seed)
            keys = {"noise": noise, "seed": seed}
            for method, suspicion in found.items():
                row = detection(data.flipped, suspicion)
                detected.append({**keys, "method": method, **row})
            if not train:
                continue
            sets = treatments(data, found, crowd, seed)
            trained += [{**keys, **row} for row in accuracies(data, sets, seed, steps)]
        print(f"seed {seed}: done", flush=True)
        yield pd.DataFrame(detected), pd.DataFrame(trained)


def with_intervals(table: pd.DataFrame, keys: list[str], values: list[str]) -> pd.DataFrame:
    """Means over seeds, each with half of its 95 % interval."""
    groups = table.groupby(keys, sort=False)
    columns = {}
    for name in values:
        columns[name] = groups[name].mean()
        columns[f"{name}_half"] = groups[name].agg(digits.level)
    return pd.DataFrame(columns).assign(seeds=groups.size()).reset_index()


def summarise(trained: pd.DataFrame) -> pd.DataFrame:
    """Mean accuracies, and the paired difference from training on the labels as given."""
    keys = ["noise", "learner", "seed"]
    base = trained[trained["treatment"] == "as given"].set_index(keys)["accuracy"]
    own = base.reindex(pd.MultiIndex.from_frame(trained[keys])).to_numpy()
    table = trained.assign(less_given=trained["accuracy"].to_numpy() - own)
    by = ["noise", "learner", "method", "treatment"]
    return with_intervals(table, by, ["accuracy", "less_given"]).sort_values(
        ["noise", "learner"], kind="stable"
    )


def draw(found: pd.DataFrame, cleaned: pd.DataFrame | None, path: Path) -> None:
    """Precision at n; and accuracy gained by dropping and by relabelling, if it was measured."""
    width = 1 if cleaned is None else 3
    figure = Figure(figsize=(2 + 3 * width, 7), layout="constrained")
    axes = figure.subplots(2, width, squeeze=False)
    for row, noise in zip(axes, NOISES, strict=True):
        part = found[found["noise"] == noise]
        row[0].barh(part["method"], part["precision_n"], xerr=part["precision_n_half"])
        row[0].set_title(f"{100 * noise:g} % flipped: precision at n, %", fontsize=10)
        row[0].invert_yaxis()
        if cleaned is None:
            continue
        for ax, learner in zip(row[1:], ("network", "logistic"), strict=True):
            here = cleaned[(cleaned["noise"] == noise) & (cleaned["learner"] == learner)]
            best = here[here["treatment"] == "right labels"]["less_given"].iloc[0]
            for k, treatment in enumerate(("dropped", "relabelled")):
                one = here[here["treatment"] == treatment]
                y = np.arange(len(one)) + 0.35 * (k - 0.5)
                ax.barh(y, one["less_given"], 0.33, xerr=one["less_given_half"], label=treatment)
            ax.axvline(best, color="black", linestyle=":", linewidth=1)
            ax.set_yticks(np.arange(len(one)), one["method"] if learner == "network" else [])
            ax.invert_yaxis()
            ax.set_title(f"{learner}: accuracy gained, points", fontsize=10)
    if cleaned is not None:
        axes[0, 1].legend(fontsize=8, loc="lower right")
        axes[1, 1].set_xlabel("dotted: all labels right")
    plot.save(figure, path, dpi=90)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=6)
    parser.add_argument("--quick", action="store_true", help="two seeds, short training")
    parser.add_argument("--out", type=Path, default=Path(__file__).parent)
    parser.add_argument("--detect", action="store_true", help="train nobody; accuracy.csv stays")
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    path = options.out / "accuracy.csv"
    seeds, steps = (2, 60) if options.quick else (options.seeds, STEPS)
    values = ["precision_n", "precision_2n", "recall_2n", "average_precision"]
    for detected, trained in run(range(seeds), steps, not options.detect):
        found = with_intervals(detected, ["noise", "method"], values)
        found.to_csv(options.out / "found.csv", index=False, float_format="%.4g")
        if not options.detect:
            cleaned = summarise(trained)
            cleaned.to_csv(path, index=False, float_format="%.4g")
    if options.detect:
        cleaned = pd.read_csv(path) if path.exists() else None
    print(found.sort_values("noise", kind="stable").round(1).to_string(index=False))
    if cleaned is not None:
        print(cleaned.round(2).to_string(index=False))
    draw(found, cleaned, options.out / "found.png")


if __name__ == "__main__":
    main()
