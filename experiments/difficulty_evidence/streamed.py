"""Examples that enter the training set late: mean loss against IRT difficulty.

An example that is first logged at a late epoch has a small mean loss because the learner is better
by then. Each draw follows a network on all of scikit-learn's digits that are trained on, masks each
example before an epoch of its own (uniform over the first two thirds), and compares both scores of
what remains, by rank, with the mean loss over all epochs of eight other runs.

    python experiments/difficulty_evidence/streamed.py [--draws 8]
"""

import argparse
from pathlib import Path

import data
import jax
import learners
import numpy as np
import pandas as pd
from run import log_probabilities
from scipy.stats import spearmanr

import irtcat
from irtcat.training import crowd

ITEMS = 120
REFERENCE = 8
"""Runs, of other seeds, that the reference is the mean of."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--draws", type=int, default=8)
    options = parser.parse_args()
    rows = []
    for draw in range(options.draws):
        d = data.load("digits", "clean", draw)
        keys = jax.random.split(jax.random.key(draw), REFERENCE + 1)
        logs = [
            log_probabilities(np.asarray(learners.follow(key, d.X, d.given, 10)), d.given)
            for key in keys
        ]
        truth = -np.mean(logs[1:], axis=(0, 1))[:ITEMS]
        seen = logs[0][:, :ITEMS].astype(float)
        first = np.random.default_rng(draw).integers(0, 2 * learners.EPOCHS // 3, ITEMS)
        late = np.arange(learners.EPOCHS)[:, None] < first
        row = {"draw": draw}
        for name, mask in (("all", np.zeros_like(late)), ("late", late)):
            checkpoints = crowd.from_checkpoints(np.where(mask, np.nan, seen), "log-likelihood")
            bank = irtcat.fit(
                checkpoints.responses(),
                "beta",
                irtcat.EM(tolerance=1e-2),
                equal=["slope"],
                standard_errors="none",
            ).bank
            loss = checkpoints.dynamics().table["loss"]
            row[f"loss, {name}"] = spearmanr(loss, truth)[0]
            row[f"IRT, {name}"] = spearmanr(bank.to_frame()["b"], truth)[0]
        rows.append(row)
        table = pd.DataFrame(rows)
        table.to_csv(Path(__file__).parent / "streamed.csv", index=False, float_format="%.3f")
        print(table.mean().round(3).to_dict(), flush=True)


if __name__ == "__main__":
    main()
