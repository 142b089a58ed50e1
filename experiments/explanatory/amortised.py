"""Difficulty of items that nobody has answered: linear in their features, or not?

    python experiments/explanatory/amortised.py [--data ../shared/data/agentic_coding]
                                                [--splits 10] [--out amortised.csv]

A fifth of the items is held out in each split; abilities and everything else come from the other
items. "linear" is `irtcat.fit(..., item_features=)`; "linear + random features" is the same fit
with cosines of random directions as a second block of columns (Rahimi & Recht 2007), which
approximates a Gaussian process; both predict cells by the curve that is expected over the item's
uncertainty. "network" is py-irt's idea of an amortised model: a network with one hidden layer gives
the difficulties, fitted to the responses by Adam and stopped early by a sixth of the training
items; "mean of 5 networks" of five starts. Needs scikit-learn. Without --data only the digits that
ship, with their pixels as features.
"""

import argparse
from functools import partial
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pandas as pd
from scipy.special import expit
from scipy.stats import spearmanr
from sklearn.datasets import load_digits
from sklearn.kernel_approximation import RBFSampler
from sklearn.metrics import log_loss, roc_auc_score

import irtcat

HERE = Path(__file__).parent
RANDOM_FEATURES, HIDDEN, STEPS, RATE, DECAY, STARTS = 400, 32, 400, 0.01, 0.01, 5


def data_sets(folder: Path | None) -> dict[str, tuple[irtcat.Responses, pd.DataFrame]]:
    """Responses, and features of the items."""
    digits = irtcat.datasets.load("digits_crowd")
    pixels = load_digits().data[digits.items["image"].to_numpy()] / 16.0
    table = pd.DataFrame(pixels[:, pixels.std(axis=0) > 0.05], index=digits.item_ids)
    found = {"digits (pixels)": (digits, table.add_prefix("p"))}
    if folder:
        r = irtcat.read_responses(folder / "responses_swebench_verified.npz")
        ratings = pd.read_csv(folder / "features_swebench_verified.csv").set_index("instance_id")
        found["SWE-bench Verified (ratings)"] = (r, ratings.loc[r.item_ids])
    return found


@partial(jax.jit, static_argnames="hidden")
def network(key, z, right, n, theta, is_fitted, z_new, hidden: int):
    """Difficulties of new items from the network that predicts the other items best.

    Of each training item there are the features z and the number of right answers, of n subjects
    with abilities theta. It is fitted to some of these items, and stopped by the others.
    """
    keys = jax.random.split(key, 2)
    params = {
        "in": jax.random.normal(keys[0], (z.shape[1], hidden)) / jnp.sqrt(z.shape[1]),
        "in_bias": jnp.zeros(hidden),
        "out": jax.random.normal(keys[1], hidden) / jnp.sqrt(hidden),
        "line": jnp.zeros(z.shape[1]),
        "bias": jnp.zeros(()),
    }

    def difficulty(p, z):
        return jnp.tanh(z @ p["in"] + p["in_bias"]) @ p["out"] + z @ p["line"] + p["bias"]

    def losses(p):
        """Mean log loss of each item, without what does not depend on the difficulty."""
        b = difficulty(p, z)
        softplus = jax.nn.softplus(theta[:, None] - b[None, :]).mean(axis=0)
        return softplus + b * right / n

    def loss(p):
        return jnp.sum(losses(p) * is_fitted) / is_fitted.sum()

    optimiser = optax.adamw(RATE, weight_decay=DECAY)

    def step(carry, _):
        p, state, best, best_loss = carry
        held_out = jnp.sum(losses(p) * (1 - is_fitted)) / (1 - is_fitted).sum()
        better = held_out < best_loss
        best = jax.tree.map(lambda new, old: jnp.where(better, new, old), p, best)
        updates, state = optimiser.update(jax.grad(loss)(p), state, p)
        best_loss = jnp.minimum(held_out, best_loss)
        return (optax.apply_updates(p, updates), state, best, best_loss), None

    start = (params, optimiser.init(params), params, jnp.inf)
    best = jax.lax.scan(step, start, length=STEPS)[0][2]
    return difficulty(best, z_new)


def predicted(
    r: irtcat.Responses, table: pd.DataFrame, train: np.ndarray, test: np.ndarray, seed: int
) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """Difficulties of the new items, and probabilities of their cells, by method."""
    known = r.subset(items=train)
    plain = irtcat.fit(known, "rasch", standard_errors="none")
    theta = irtcat.score(plain, known).theta
    b = plain.bank.to_frame()["b"].to_numpy()
    z = (table - table.loc[train].mean()) / table.loc[train].std()
    width = RBFSampler(gamma=1 / (2 * z.shape[1]), n_components=RANDOM_FEATURES, random_state=seed)
    cosines = pd.DataFrame(width.fit_transform(z), index=z.index).add_prefix("c")
    blocks = {
        "linear": {"features": table},
        "linear + random features": {"features": table, "random": cosines},
    }

    def with_cells(b: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        return b, expit(theta[:, None] - b)

    found = {"none": with_cells(np.full(len(test), b.mean()))}
    for name, tables in blocks.items():
        rows = [{key: t.loc[part] for key, t in tables.items()} for part in (train, test)]
        bank = irtcat.fit(known, "rasch", item_features=rows[0]).predict_items(rows[1])
        bank = bank.subset(test)
        cells = bank.expected_curves().probability(theta).T
        found[name] = bank.to_frame()["b"].to_numpy(), cells
    x = known.to_numpy()
    fitted = np.random.default_rng(seed).random(len(train)) > 1 / 6
    arguments = (z.loc[train].to_numpy(), x.sum(axis=0), float(len(x)), theta, fitted.astype(float))
    starts = [
        np.asarray(network(jax.random.key(start), *arguments, z.loc[test].to_numpy(), HIDDEN))
        for start in range(STARTS)
    ]
    found["network"] = with_cells(starts[0])
    found[f"mean of {STARTS} networks"] = with_cells(np.mean(starts, axis=0))
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path)
    parser.add_argument("--splits", type=int, default=8)
    parser.add_argument("--out", type=Path, default=HERE / "amortised.csv")
    options = parser.parse_args()
    rows = []
    for name, (r, table) in data_sets(options.data).items():
        truth = irtcat.fit(r, "rasch", standard_errors="none").bank.to_frame()["b"]
        for split in range(options.splits):
            order = np.random.default_rng(split).permutation(r.item_ids)
            n_test = r.n_items // 5
            test, train = order[:n_test], order[n_test:]
            found = predicted(r, table, train, test, split)
            x = r.subset(items=test).to_numpy()
            for method, (b, p) in found.items():
                rank = spearmanr(b, truth.loc[test])[0] if np.ptp(b) > 0 else np.nan
                error = float(np.sqrt(np.mean((b - truth.loc[test]) ** 2)))
                cells = log_loss(x.ravel(), p.ravel()), roc_auc_score(x.ravel(), p.ravel())
                rows.append((name, split, method, rank, error, *cells))
        print(f"{name}: done", flush=True)
    columns = ["data", "split", "method", "rank_correlation", "rmse_b", "log_loss", "auc"]
    each = pd.DataFrame(rows, columns=columns)
    base = each[each["method"] == "linear"].set_index(["data", "split"])["log_loss"]
    each["gain"] = base.loc[pd.MultiIndex.from_frame(each[["data", "split"]])].to_numpy()
    each["gain"] -= each["log_loss"]
    groups = each.drop(columns="split").groupby(["data", "method"], sort=False)
    means = groups.mean()
    means["gain_se"] = groups["gain"].std() / np.sqrt(options.splits)
    means["better_than_linear"] = groups["gain"].apply(lambda gain: (gain > 0).mean())
    means.reset_index().to_csv(options.out, index=False, float_format="%.4g")
    print(means.round(4).to_string())


if __name__ == "__main__":
    main()
