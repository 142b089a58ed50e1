"""A curriculum around scikit-learn's partial_fit.

python experiments/curriculum/sklearn_example.py [--epochs 20] [--seed 0]
"""

import argparse
import time

import digits
import numpy as np
import pandas as pd
from sklearn.linear_model import SGDClassifier

import irtcat
from irtcat.training.curriculum import AbilityMatched, Curriculum


def train(curriculum: Curriculum, data: digits.Digits, epochs: int, seed: int) -> pd.DataFrame:
    """Train a logistic regression by epochs; per epoch its accuracy, and where the time went."""
    model = SGDClassifier(loss="log_loss", alpha=1e-4, random_state=seed)
    classes, rows = np.arange(10), []
    for epoch in range(epochs):
        # Before the first epoch there is no learner to ask: theta is the prior's mean.
        estimate, probe = 0.0, curriculum.probe
        if epoch and len(probe):
            correct = model.predict(data.images[probe]) == data.given[probe]
            started = time.perf_counter()
            curriculum.update(correct, probe)
            estimate = time.perf_counter() - started
        started = time.perf_counter()
        indices = curriculum.next()
        model.partial_fit(data.images[indices], data.given[indices], classes=classes)
        steps = time.perf_counter() - started
        accuracy = 100 * (model.predict(data.test_images) == data.test_labels).mean()
        rows.append({"accuracy": accuracy, "estimate": estimate, "steps": steps})
    return pd.concat(
        [curriculum.history, pd.DataFrame(rows, index=curriculum.history.index)], axis=1
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epochs", type=int, default=20)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    data = digits.load(options.seed)
    responses = digits.crowd(data, 70, options.seed).responses()
    bank = irtcat.fit(responses, "rasch", standard_errors="none").bank
    table = train(AbilityMatched(bank, min_length=100), data, options.epochs, options.seed)
    columns = ["theta", "se", "n", "accuracy", "estimate", "steps"]
    print(table[columns].round(6).to_string())
    times = table[["estimate", "steps"]].iloc[1:].median()
    print(f"\nThe estimate takes {100 * times['estimate'] / times['steps']:.2f} % of partial_fit.")


if __name__ == "__main__":
    main()
