"""False alarms of the tests of fit where groups of subjects have populations of their own.

    python experiments/diagnostics/groups.py [--replications 40] [--out groups.csv]

S-X2 is tested by group with three numbers of degrees of freedom for the same statistic: those here
(`irtcat.diagnose.s_x2`), cells less the item's parameters in every group, and mirt's, which are
less the group's mean and SD too. The items are estimated in the same run.
"""

import argparse
from pathlib import Path

import numpy as np
import pandas as pd
from scipy.stats import chi2

from irtcat import ItemBank, fit
from irtcat.diagnose import infit_outfit, ld_statistics, model_fit, s_x2

N_ITEMS = 12
CASES = {
    "2pl, means 0 and 2": ("2pl", (1000, 1000), (0, 2), (1, 1)),
    "2pl, means 0 and 1, SDs 1 and 1.3": ("2pl", (1000, 300), (0, 1), (1, 1.3)),
    "2pl, three groups": ("2pl", (800, 400, 200), (0, 1, -0.6), (1, 1.3, 0.7)),
    "graded, means 0 and 1": ("graded", (600, 600), (0, 1), (1, 1)),
}


def rates(model: str, sizes: tuple, means: tuple, sds: tuple, rng: np.random.Generator) -> dict:
    a, b = rng.lognormal(0.1, 0.3, N_ITEMS), np.linspace(-1, 2, N_ITEMS)
    if model == "graded":
        bank = ItemBank.from_thresholds(a, np.stack([b - 1, b + 0.5], axis=1))
    else:
        bank = ItemBank.from_parameters(a, b)
    groups = np.repeat([f"g{k}" for k in range(len(sizes))], sizes)
    theta = np.concatenate([rng.normal(m, s, n) for n, m, s in zip(sizes, means, sds, strict=True)])
    r = bank.simulate(theta, seed=int(rng.integers(2**31)))
    found = fit(r, model, groups=groups, standard_errors="none").bank
    ours = s_x2(found, r, groups=groups)
    cells = s_x2(found, r, estimated="none", groups=groups)["df"]
    n_params = 3 if model == "graded" else 2
    is_first = ours.index.get_level_values("group") == "g0"
    fewer = {"own parameters in each group": n_params, "mirt": n_params + np.where(is_first, 0, 2)}
    return {
        "S-X2": (ours["p"] < 0.05).mean(),
        **{
            f"S-X2, df less {name}": (chi2.sf(ours["s_x2"], cells - k) < 0.05).mean()
            for name, k in fewer.items()
        },
        "LD-X2": (ld_statistics(found, r, groups=groups).table["p"] < 0.05).mean(),
        "M2 or C2": float(model_fit(found, r, groups=groups).p < 0.05),
        "infit, |z| > 2": (infit_outfit(found, r, groups=groups)["infit_z"].abs() > 2).mean(),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--replications", type=int, default=40)
    parser.add_argument("--out", type=Path, default=Path(__file__).with_name("groups.csv"))
    arguments = parser.parse_args()
    rows = []
    for number, (name, case) in enumerate(CASES.items()):
        found = pd.DataFrame(
            [
                rates(*case, np.random.default_rng([number, k]))
                for k in range(arguments.replications)
            ]
        )
        error = found.std() / np.sqrt(len(found))
        for statistic in found:
            rows.append((name, statistic, len(found), found[statistic].mean(), error[statistic]))
    table = pd.DataFrame(rows, columns=["case", "statistic", "data_sets", "rate", "se"])
    table.round(4).to_csv(arguments.out, index=False)
    print(table.round(3).to_string(index=False))


if __name__ == "__main__":
    main()
