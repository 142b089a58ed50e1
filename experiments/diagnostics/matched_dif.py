"""Error rates of Mantel-Haenszel with and without impact, and with DIF in one item of ten.

    python experiments/diagnostics/matched_dif.py [--replications 200]

Two groups of 500; the second is ``impact`` SDs less able. With ``shift`` every tenth item is
harder for it by that much. ``false`` is the share of the other items with p < .05, ``found`` that
of the items with DIF, each without and with purification; ``b`` and ``c`` are the shares of the
other items in the classes of ETS (purified). Rates go to matched_dif.csv.
"""

import argparse
import itertools
from pathlib import Path

import numpy as np
import pandas as pd

from irtcat.diagnose import mantel_haenszel

N = 500
MODELS = ("rasch", "2pl", "graded")


def simulated(rng, model, n_items, impact, shift):
    """Answers and the items that differ."""
    a = np.ones(n_items) if model == "rasch" else rng.lognormal(0.1, 0.4, n_items)
    cuts = rng.normal(0, 1, n_items)[:, None]
    if model == "graded":
        cuts = cuts + np.array([-1.0, 0.0, 1.0])
    theta = np.r_[rng.normal(size=N), rng.normal(size=N) - impact]
    differs = np.arange(n_items) % 10 == 0 if shift else np.zeros(n_items, bool)
    hard = shift * differs * (np.arange(2 * N) >= N)[:, None]
    z = a[:, None] * (theta[:, None, None] - hard[:, :, None] - cuts)
    u = rng.random((2 * N, n_items, 1))
    return (u < 1 / (1 + np.exp(-z))).sum(axis=2), differs


def main() -> None:
    """Run all conditions."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--replications", type=int, default=200)
    replications = parser.parse_args().replications
    groups = np.repeat(["reference", "focal"], N)
    rows = []
    for model, n_items, impact, shift in itertools.product(MODELS, (20, 40), (0, 1), (0, 0.6)):
        if (impact == 0 or n_items == 40) and (shift or n_items > 20 * (1 + impact)):
            continue
        sums = []
        for replication in range(replications):
            rng = np.random.default_rng([replication, n_items, impact])
            x, differs = simulated(rng, model, n_items, impact, shift)
            dif = mantel_haenszel(x, groups, reference="reference")
            first = pure = dif.table
            if dif.n_rounds > 1:
                first = mantel_haenszel(x, groups, reference="reference", purify=False).table
            ets = pure["ets"][~differs].str[0]
            row = {"b": (ets == "B").mean(), "c": (ets == "C").mean()}
            for name, table in (("", first), ("_purified", pure)):
                significant = table["p"] < 0.05
                row["false" + name] = significant[~differs].mean()
                row["found" + name] = significant[differs].mean() if shift else np.nan
            sums.append(row)
        mean = pd.DataFrame(sums).mean().round(4)
        condition = {"model": model, "n_items": n_items, "impact": impact, "shift": shift}
        rows.append({**condition, **mean})
        print(rows[-1], flush=True)
    pd.DataFrame(rows).to_csv(Path(__file__).with_suffix(".csv"), index=False)


if __name__ == "__main__":
    main()
