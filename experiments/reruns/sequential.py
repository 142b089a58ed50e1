"""Does a sequential comparison keep its error, and how many answers does it need?

`irtcat.leaderboard.compare_sequential` looks after every item. A/A (two runs of one model, or two
models with one expected score): at most 2.5 % may be called worse, and the intervals hold at all
times together in at least 95 %, by exact binomial tests in each cell with Holm's correction. A/B:
a new model is worse by some points, and a futility stop may give it up in at most 20 %. Items are
counted beside those of the fixed paired test that finds a loss of `detect` with power .8 (cells
that prove equivalence: two one-sided tests with power .8).

A bank of 10,000 items is drawn with replacement from the 2PL of digits_crowd; `n` is the number
of items that the benchmark has. Cells without `closing` leave nothing of the error for the interval
of all items.

A cell that is in the table is not run again: an interrupted run goes on where it was.

    python experiments/reruns/sequential.py [--quick] [--runs 2000] [--out experiments/reruns]
"""

import argparse
import time
from pathlib import Path
from unittest.mock import patch

import numpy as np
import pandas as pd
from aa import World, draw, make_bank, with_holm
from scipy import stats
from scipy.special import expit, logit

import irtcat
from irtcat.leaderboard import compare_sequential, sequential
from irtcat.responses import Responses

ERROR, FUTILITY = 0.025, 0.2
N_BANK = 10_000
Z = stats.norm.ppf
DEFAULTS = {
    "n": N_BANK, "points": 0.0, "aim": "worse", "margin": 0.0, "futility": FUTILITY, "trials": 1,
    "theta": None, "item_sd": 0.0, "sharpness": 1.0, "run_sd": 0.0, "closing": True,
}  # fmt: skip
"""A cell: items, how much worse the new model is, what is settled, and what the models are like."""

NO_CLOSING = 1e-9
"""Share of the error that is left for the interval of all items in cells without `closing`."""

MAIN = [
    {},
    {"points": 2.0},
    {"points": 4.0},
    {"points": 10.0},
    {"aim": "verdict", "margin": 0.02},
]
"""The cells of the goals: A/A, losses, and equivalence of equal models."""


def cells():
    """All cells: those of the goals, false "worse" without a futility stop, and what closing saves.

    Effects of whole runs (`run_sd`) come with numbered trials.
    """
    none = {"futility": 0.0}
    out = [*MAIN, {"trials": 3}, {"points": 4.0, "trials": 3}]
    out += [none | {"n": n, "trials": t} for n in (100, 300, 1000) for t in (1, 3, 5)]
    out += [none | {"n": 300, "theta": x} for x in (-4.0, 4.0)]
    out += [
        none | {"n": n, "trials": t, "item_sd": x}
        for n in (300, 1000)
        for t in (1, 5)
        for x in (1.0, 3.0)
    ]
    nearly_deterministic = {"item_sd": 3.0, "sharpness": 30.0}
    out += [
        none | {"n": n, "trials": t} | nearly_deterministic for n in (300, 1000) for t in (1, 5)
    ]
    out += [none | {"n": 1000, "margin": 0.03, "points": 3.0}]  # at the border of "worse"
    out += [
        {"n": n, "trials": t, "points": 4.0, "item_sd": x, "closing": closing}
        for n in (300, 1000)
        for t, x in ((1, 0.0), (5, 0.0), (5, 1.0))
        for closing in (True, False)
    ]
    out += [none, *({"trials": 5} | cell for cell in (MAIN[1], MAIN[4]))]
    return out + [
        none | {"n": n, "trials": t, "run_sd": x}
        for n in (300, 1000)
        for t, x in ((3, 0.1), (3, 0.3), (10, 0.3))
    ]


def run_cell(world, c, runs, seed):
    """One row: verdicts and items of all runs of a cell."""
    rng = np.random.default_rng(seed)
    groups, rows = np.zeros(world.n, int), []
    final = sequential.FINAL if c["closing"] else NO_CLOSING
    for run in range(runs):
        theta = rng.normal() if c["theta"] is None else c["theta"]
        theta = np.clip(theta, -1.5, 1.5) if c["theta"] is None else theta
        items = rng.permutation(world.n)[: c["n"]]
        p_old = world.p(theta, c["sharpness"])[0]
        p_new = p_old
        if c["points"]:
            p_new = world.p(world.lower(theta, c["points"], c["sharpness"]), c["sharpness"])[0]
        p_old, p_new = p_old[items], p_new[items]
        if c["item_sd"] and c["points"]:
            logits = logit(np.clip(p_new, 1e-9, 1 - 1e-9))
            p_new = expit(logits + rng.normal(0, c["item_sd"], c["n"]))
        elif c["item_sd"]:  # the models differ by item, and not in the mean
            half = np.clip(p_old[: c["n"] // 2], 1e-9, 1 - 1e-9)
            other = expit(logit(half) + rng.normal(0, c["item_sd"], len(half)))
            p_old, p_new = np.concatenate([half, other]), np.concatenate([other, half])
        made = np.array([draw(rng, p, c["trials"], 0.0, groups, c["run_sd"])
                         for p in (p_old, p_new)])  # fmt: skip
        if c["run_sd"]:
            responses = Responses.from_trials(made, ["old", "new"])
        else:
            counts = made.sum(axis=2)
            responses = Responses.from_counts(
                counts, np.full(counts.shape, c["trials"]), subject_ids=["old", "new"]
            )
        with patch.object(sequential, "FINAL", final):
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
        width = found.upper - found.lower
        rows.append((found.verdict, found.outcome, found.n_items, fixed, inside, width, is_null))
    columns = ["verdict", "outcome", "items", "fixed", "inside", "width", "null"]
    frame = pd.DataFrame(rows, columns=columns)
    null = frame[frame["null"]]
    false = int((null["verdict"] == "worse").sum())
    row = {name: (frame["verdict"] == name).mean() for name in ("worse", "better", "equivalent")}
    return {
        **c, "runs": runs, **row, "false_worse": false / max(len(null), 1),
        "futile": (frame["outcome"] == "futile").mean(), "items": frame["items"].mean(),
        "fixed": frame["fixed"].mean(), "ratio": frame["items"].mean() / frame["fixed"].mean(),
        "ratio_all": frame["items"].mean() / c["n"], "coverage": frame["inside"].mean(),
        "width": 100 * frame["width"].mean(),
        "p_binomial": stats.binomtest(false, len(null), ERROR, "greater").pvalue
        if len(null) else np.nan,
        "p_covers": stats.binomtest(int(frame["inside"].sum()), runs, 0.95, "less").pvalue,
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
    world, began = World(irtcat.ItemBank.from_parameters(a=a, b=b)), time.time()
    path = options.out / ("sequential_quick.csv" if options.quick else "sequential.csv")
    table = pd.read_csv(path) if path.exists() else pd.DataFrame({"cell": []})
    for number, cell in enumerate(cells()):
        c = DEFAULTS | cell
        if options.quick and cell not in MAIN and c["n"] * c["trials"] > 1000:
            continue
        if number in set(table["cell"]):
            continue
        runs = max(options.runs // 10, 50) if options.quick and cell else options.runs
        row = {"cell": number, **run_cell(world, c, runs, number)}
        names = ("worse", "false_worse", "equivalent", "futile", "items", "ratio", "coverage")
        shown = {name: round(float(row[name]), 3) for name in names}
        print(f"{time.time() - began:5.0f} s", number, cell, shown, flush=True)
        table = with_holm(pd.concat([table, pd.DataFrame([row]).round(4)], ignore_index=True))
        table.to_csv(path, index=False)
    for p, name in (("p_holm", "false_worse"), ("p_covers_holm", "coverage")):
        tested = table[table[p].notna()]
        ends = f"{tested[name].min():.4f} to {tested[name].max():.4f}"
        failed = (tested[p] < 0.05).sum()
        print(f"{name} {ends} in {len(tested)} cells; {failed} of them beyond the nominal error")


if __name__ == "__main__":
    main()
