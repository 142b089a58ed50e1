"""A curriculum in a JAX/optax training loop, and what the ability estimate costs.

python experiments/curriculum/jax_example.py [--epochs 30] [--seed 0]
"""

import argparse
import time
from typing import Any

import digits
import jax
import numpy as np
import pandas as pd

import irtcat
from irtcat.training.curriculum import AbilityMatched, Curriculum

TIMES = ["probe", "estimate", "choice", "steps"]
"""Answers to the probe; the ability; the epoch's examples; training."""


def train(
    curriculum: Curriculum,
    data: digits.Digits,
    epochs: int,
    seed: int,
    hidden: tuple[int, ...] = (digits.HIDDEN,),
) -> pd.DataFrame:
    """Train a network for some epochs; per epoch its accuracy, and where the time went."""
    params: Any = digits.initial(jax.random.key(seed), hidden)
    state = digits.optimiser.init(params)
    rows = []
    for _ in range(epochs):
        started = time.perf_counter()
        probe = curriculum.probe
        if len(probe):
            correct = np.asarray(digits.predict(params, data.images))[probe] == data.given[probe]
        else:
            correct = np.zeros(0, bool)
        answered = time.perf_counter()
        curriculum.update(correct, probe)
        estimated = time.perf_counter()
        indices = curriculum.next()
        chosen = time.perf_counter()
        for batch, weight in digits.batches(indices):
            x, y = data.images[batch], data.given[batch]
            params, state = digits.step(params, state, x, y, weight)
        jax.block_until_ready(params)
        ended = time.perf_counter()
        found = np.asarray(digits.predict(params, data.test_images))
        accuracy = 100 * (found == data.test_labels).mean()
        seconds = {
            "probe": answered - started,
            "estimate": estimated - answered,
            "choice": chosen - estimated,
            "steps": ended - chosen,
        }
        rows.append({"accuracy": accuracy, **seconds})
    return pd.concat(
        [curriculum.history, pd.DataFrame(rows, index=curriculum.history.index)], axis=1
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epochs", type=int, default=30)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    data = digits.load(options.seed)
    responses = digits.crowd(data, 70, options.seed).responses()
    bank = irtcat.fit(responses, "rasch", standard_errors="none").bank
    for hidden in ((digits.HIDDEN,), (256, 128), (512, 256)):
        train(AbilityMatched(bank, min_length=100), data, 2, options.seed, hidden)  # compiles
        curriculum = AbilityMatched(bank, min_length=100)
        table = train(curriculum, data, options.epochs, options.seed, hidden)
        columns = ["theta", "se", "n", "accuracy", *TIMES]
        print(f"\nHidden units {hidden}; times in seconds\n")
        print(table[columns].iloc[[0, 1, 2, 4, 9, -1]].round(6).to_string())
        large = table["n"] > 0.9 * curriculum.n_items
        for name, part in (
            ("all epochs", table),
            ("epochs of over 90 % of the data", table[large]),
        ):
            share = 100 * part[TIMES].sum() / part[TIMES].to_numpy().sum()
            text = ", ".join(f"{key} {value:.2f}" for key, value in share.items())
            print(f"Per cent of {name}: {text}")


if __name__ == "__main__":
    main()
