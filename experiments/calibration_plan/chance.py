"""By how much do pilots of five items miss the errors of the whole calibration by chance alone?

    python experiments/calibration_plan/chance.py [--replications 100]

LSAT6 is simulated from its own 2PL fit, which then holds, 1,000 subjects each time. As in
predicted.py a random half is the pilot; its errors are scaled to all subjects by the root of a
half, which is what a plan does but for its expected information. ``a`` and ``b``: predicted /
realised SE, median over items, the geometric mean over both halves; quantiles over data sets, and
the share of data sets in which it is within 10 %. ``one pilot`` is the same of single halves.
"""

import argparse
from pathlib import Path

import numpy as np
import pandas as pd

import irtcat


def ratios(bank, seed, n):
    """Predicted / realised of both halves, halves x (a, b)."""
    rng = np.random.default_rng(seed)
    responses = bank.simulate(rng.normal(size=n), seed=seed)
    parts = [np.arange(n), np.arange(0, n, 2), np.arange(1, n, 2)]
    errors = [
        irtcat.fit(responses.subset(subjects=rows), "2pl", standard_errors="full")
        .bank.to_frame()[["se_a", "se_b"]]
        .to_numpy(float)
        for rows in parts
    ]
    return [np.nanmedian(half * np.sqrt(0.5) / errors[0], axis=0) for half in errors[1:]]


def main():
    """The table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--replications", type=int, default=100)
    options = parser.parse_args()
    data = irtcat.datasets.load("lsat6")
    bank = irtcat.fit(data, "2pl").bank
    logs = np.log([ratios(bank, seed, data.n_subjects) for seed in range(options.replications)])
    rows = []
    for name, values in (("both halves", logs.mean(axis=1)), ("one pilot", np.concatenate(logs))):
        for k, parameter in enumerate("ab"):
            ratio = np.exp(values[:, k])
            low, median, high = np.quantile(ratio, [0.05, 0.5, 0.95])
            row = {"pilots": name, "parameter": parameter, "5 %": low, "median": median}
            rows.append(row | {"95 %": high, "within 10 %": (np.abs(ratio - 1) <= 0.1).mean()})
    table = pd.DataFrame(rows).round(3)
    table.to_csv(Path(__file__).with_suffix(".csv"), index=False)
    print(table.to_string(index=False))


if __name__ == "__main__":
    main()
