"""Does a sequential comparison keep its error, and how many answers does it need?

`irtcat.leaderboard.compare_sequential` looks after every item. A/A (two runs of one model, or two
models with one expected score): at most 2.5 % may be called worse, by an exact binomial test in
each cell with Holm's correction. A/B: a new model is worse by some points, and a futility stop may
give it up in at most 20 %. Items are counted beside those of the fixed paired test that finds a
loss of `detect` with power .8 (cells that prove equivalence: two one-sided tests with power .8).

A bank of 10,000 items is drawn with replacement from the 2PL of digits_crowd; `n` is the number
of items that the benchmark has.

    python experiments/reruns/sequential.py [--quick] [--runs 2000] [--out experiments/reruns]
"""

import argparse
import time
from pathlib import Path

import numpy as np
import pandas as pd
from aa import World, draw, make_bank, with_holm
from scipy import stats
from scipy.special import expit, logit

import irtcat
from irtcat.leaderboard import compare_sequential
from irtcat.responses import Responses

ERROR, FUTILITY = 0.025, 0.2
N_BANK = 10_000
Z = stats.norm.ppf
DEFAULTS = {
    "n": N_BANK, "points": 0.0, "aim": "worse", "margin": 0.0, "futility": FUTILITY, "trials": 1,
    "theta": None, "item_sd": 0.0, "sharpness": 1.0,
}  # fmt: skip
"""A cell: items, how much worse the new model is, what is settled, and what the models are like."""

MAIN = [
    {},
    {"points": 2.0},
    {"points": 4.0},
    {"points": 10.0},
    {"aim": "verdict", "margin": 0.02},
]
"""The cells of the goals: A/A, losses, and equivalence of equal models."""


def cells():
    """All cells: those of the goals, then false "worse" without a futility stop."""
    none = {"futility": 0.0}
    out = [*MAIN, {"points": 4.0, "trials": 3}, {"trials": 3}]
    out += [none | {"n": n} for n in (100, 300, 1000, N_BANK)]
    out += [none | {"n": 300, "theta": x} for x in (-4.0, 4.0)]
    out += [none | {"n": 300, "item_sd": x} for x in (1.0, 3.0)]
    out += [none | {"n": 300, "item_sd": 3.0, "sharpness": 30.0}]  # nearly deterministic
    out += [none | {"n": n, "trials": 5} for n in (300, 1000)]
    out += [none | {"n": 1000, "margin": 0.03, "points": 3.0}]  # at the border of "worse"
    return out


def run_cell(world, c, runs, seed):
    """One row: verdicts and items of all runs of a cell."""
    rng = np.random.default_rng(seed)
    groups, rows = np.zeros(world.n, int), []
    for run in range(runs):
        theta = rng.normal() if c["theta"] is None else c["theta"]
        theta = np.clip(theta, -1.5, 1.5) if c["theta"] is None else theta
        items = rng.permutation(world.n)[: c["n"]]
        p_old = world.p(theta, c["sharpness"])[0]
        p_new = p_old
        if c["points"]:
            p_new = world.p(world.lower(theta, c["points"], c["sharpness"]), c["sharpness"])[0]
        p_old, p_new = p_old[items], p_new[items]
        if c["item_sd"]:  # the models differ by item, and not in the mean
            half = np.clip(p_old[: c["n"] // 2], 1e-9, 1 - 1e-9)
            other = expit(logit(half) + rng.normal(0, c["item_sd"], len(half)))
            p_old, p_new = np.concatenate([half, other]), np.concatenate([other, half])
        made = [draw(rng, p, c["trials"], 0.0, groups).sum(axis=1) for p in (p_old, p_new)]
        responses = Responses.from_counts(
            np.array(made), np.full((2, c["n"]), c["trials"]), subject_ids=["old", "new"]
        )
        found = compare_sequential(
            None, None, responses, "new", "old", aim=c["aim"], margin=c["margin"],
            futility=c["futility"], seed=run,
        )  # fmt: skip
        noise = (p_old * (1 - p_old) + p_new * (1 - p_new)).mean() / c["trials"]
        true, variance = (p_new - p_old).mean(), noise + (p_new - p_old).var()
        power = Z(0.9) if c["aim"] == "verdict" else Z(0.8)
        fixed = variance * ((Z(0.975) + power) / 0.02) ** 2
        inside = found.lower - 1e-9 <= true <= found.upper + 1e-9
        is_null = true >= -c["margin"] - 1e-9
        rows.append((found.verdict, found.outcome, found.n_items, fixed, inside, is_null))
    frame = pd.DataFrame(rows, columns=["verdict", "outcome", "items", "fixed", "inside", "null"])
    null = frame[frame["null"]]
    false = int((null["verdict"] == "worse").sum())
    row = {name: (frame["verdict"] == name).mean() for name in ("worse", "better", "equivalent")}
    return {
        **c, "runs": runs, **row, "false_worse": false / max(len(null), 1),
        "futile": (frame["outcome"] == "futile").mean(), "items": frame["items"].mean(),
        "fixed": frame["fixed"].mean(), "ratio": frame["items"].mean() / frame["fixed"].mean(),
        "ratio_all": frame["items"].mean() / c["n"], "coverage": frame["inside"].mean(),
        "p_binomial": stats.binomtest(false, len(null), ERROR, "greater").pvalue
        if len(null) else np.nan,
    }  # fmt: skip


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=2000)
    parser.add_argument("--quick", action="store_true", help="a tenth of the runs but in A/A")
    parser.add_argument("--out", type=Path, default=Path(__file__).parent)
    options = parser.parse_args()
    frame = make_bank().to_frame()
    chosen = np.random.default_rng(0).integers(0, len(frame), N_BANK)
    a, b = (
        np.nan_to_num(frame[name].to_numpy(), nan=x)[chosen] for name, x in (("a", 1), ("b", -8))
    )
    world, began, rows = World(irtcat.ItemBank.from_parameters(a=a, b=b)), time.time(), []
    name = "sequential_quick.csv" if options.quick else "sequential.csv"
    for number, cell in enumerate(cells()):
        c = DEFAULTS | cell
        if options.quick and cell not in MAIN and c["n"] * c["trials"] > 1000:
            continue
        runs = max(options.runs // 10, 50) if options.quick and cell else options.runs
        rows.append(run_cell(world, c, runs, number))
        names = ("worse", "false_worse", "equivalent", "futile", "items", "ratio", "coverage")
        shown = {name: round(float(rows[-1][name]), 3) for name in names}
        print(f"{time.time() - began:5.0f} s", cell, shown, flush=True)
        table = with_holm(pd.DataFrame(rows))
        table.round(4).to_csv(options.out / name, index=False)
    tested = table[table["p_holm"].notna()]
    failed = int((tested["p_holm"] < 0.05).sum())
    most = tested["false_worse"].max()
    print(f"{len(tested)} cells without a loss: false verdicts of worse in at most {most:.4f} of "
          f"the runs; {failed} cells above {ERROR:.1%}")  # fmt: skip


if __name__ == "__main__":
    main()
