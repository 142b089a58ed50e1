"""False alarms of S-X2, infit and outfit for PCM items of three categories (1,129 x 25, fitted).

    python experiments/diagnostics/pcm.py [--replications 60]

Also with other degrees of freedom for the same statistic, as other rules of merging give.
"""

import argparse

import numpy as np
import pandas as pd
from scipy.stats import chi2

from irtcat import Responses, fit
from irtcat.diagnose import infit_outfit, s_x2

N, N_ITEMS = 1129, 25
OTHER_DF = (-6, -4, -2, 0, 1)


def simulated(rng: np.random.Generator) -> Responses:
    steps = np.array([-0.6, 0.6]) * rng.uniform(0.6, 1.4, (N_ITEMS, 1))
    b = rng.normal(0, 0.7, (N_ITEMS, 1)) + steps
    theta = 1.1 * rng.normal(size=(N, 1))
    terms = np.stack([0 * (theta - b[:, 0]), theta - b[:, 0], 2 * theta - b.sum(axis=1)], axis=-1)
    p = np.exp(terms - terms.max(axis=-1, keepdims=True))
    p /= p.sum(axis=-1, keepdims=True)
    x = (rng.random((N, N_ITEMS, 1)) > p.cumsum(axis=-1)[..., :2]).sum(axis=-1)
    return Responses.from_array(x, codes=(0, 1, 2))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--replications", type=int, default=60)
    rows = []
    for replication in range(parser.parse_args().replications):
        responses = simulated(np.random.default_rng([replication, 25]))
        bank = fit(responses, "pcm").bank
        table, squares = s_x2(bank, responses), infit_outfit(bank, responses)
        rates = {
            f"S-X2, df {k:+d}": (chi2.sf(table["s_x2"], table["df"] + k) < 0.05).mean()
            for k in OTHER_DF
        }
        rates |= {kind: (squares[f"{kind}_z"].abs() > 2).mean() for kind in ("infit", "outfit")}
        rows.append(rates)
    found = pd.DataFrame(rows)
    print(pd.DataFrame({"rate": found.mean(), "se": found.sem()}).round(4).to_string())


if __name__ == "__main__":
    main()
