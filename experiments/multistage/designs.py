"""Multistage panels beside item-level adaptive tests and a fixed form of the same length.

    python experiments/multistage/designs.py [--sessions 500] [--figure FILE]

A bank of 300 2PL items (slopes lognormal with SD .3, difficulties N(0, 1)), 30 items a subject.
Panels are assembled with their default targets. EAP from all answers; ``sessions`` simulated
subjects at each ability. Bias, SD of the estimates (csem) and root mean squared error by ability go
to designs.csv, the csem of three of them as a figure to FILE.
"""

import argparse
from pathlib import Path

import numpy as np
import pandas as pd

from irtcat import ItemBank, plot, score
from irtcat.cat import (
    Config,
    assemble,
    assemble_panel,
    conditional_errors,
    errors_by_ability,
    simulate,
)

GRID = np.linspace(-2.5, 2.5, 11)


def main() -> None:
    """Run all designs."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sessions", type=int, default=500)
    parser.add_argument("--figure")
    options = parser.parse_args()
    theta = np.repeat(GRID, options.sessions)
    rng = np.random.default_rng(0)
    bank = ItemBank.from_parameters(a=rng.lognormal(0, 0.3, 300), b=rng.normal(size=300))
    tables = {}
    form = bank.subset(assemble(bank, 30).item_ids[0])
    abilities = score(form, form.simulate(theta, seed=1))
    length = np.full(len(theta), 30)
    tables["fixed form"] = errors_by_ability(theta, abilities.theta, abilities.se, length)
    for shape, sizes in (((1, 3), (15, 15)), ((1, 2, 3), (10, 10, 10)), ((1, 3, 3), (10, 10, 10))):
        for routing in ("sum-score", "information"):
            test = assemble_panel(bank, sizes, shape, routing=routing)
            name = f"panel {'-'.join(map(str, shape))}, {routing}"
            tables[name] = test.simulate(theta, seed=1).errors()
    report = simulate(bank, theta, Config(max_items=30), seed=1)
    tables["item-level adaptive"] = conditional_errors(report)
    out = pd.concat(tables, names=["design"]).reset_index("design")
    out.round(4).to_csv(Path(__file__).with_suffix(".csv"), index=False)
    shown = ("fixed form", "panel 1-3-3, sum-score", "item-level adaptive")
    if options.figure:
        plot.save(plot.error_curves({name: tables[name] for name in shown}), options.figure)
    weights = np.exp(-(GRID**2) / 2)
    mean = out.groupby("design", sort=False)["rmse"].agg(
        lambda rmse: np.sqrt(np.average(rmse**2, weights=weights))
    )
    print(mean.round(3).to_string())
    print(out.pivot_table("csem", "theta", "design", sort=False).round(3).to_string())


if __name__ == "__main__":
    main()
