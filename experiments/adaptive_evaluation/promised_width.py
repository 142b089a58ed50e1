"""Intervals by replayed sessions, and sessions that stop at the width of the printed interval.

    python experiments/adaptive_evaluation/promised_width.py --data DATA [--draws 8] [--out FILE]

Draws as in `sessions.py` ("similar": a random quarter of the models is held out, 16 are evaluated;
seeds from 50 on tuned nothing). Sessions are those of `irtcat.cat.plan_evaluation`, chosen in
NumPy, which needs no bank (tests assert that the engine chooses and stops alike).

- "length": sessions of 10, 30 and 100 items. Ways: "replayed", with penalty, weight of the factor
  model and intervals from replays of calibrated models; "nearest", with those of the nearest
  quarter of the calibrated models. Cells in which the plan is the fixed subset are left out.
- "width": sessions of at most 100 items with the stopping rule "predicted-width", which may end
  in the first items of the fixed subset, and the same two ways for the items that they asked.
"""

import argparse
import time
from dataclasses import replace

import numpy as np
import pandas as pd
import sessions

import irtcat
from irtcat import leaderboard
from irtcat.cat import plan_evaluation
from irtcat.cat.engine.reading import factors_of
from irtcat.prediction.factor_scores import FactorModel
from irtcat.prediction.task import ReplayedLength, SessionItems

LENGTHS, LONGEST = (10, 30, 100), 100
WIDTHS = (0.12, 0.2)
EXPECT = "similar"


def order_and_stop(plan, x, width=None):
    """The items of each session in order, and how many of them it asks."""
    table, fixed = factors_of(plan.bank), plan.config.fixed
    model = FactorModel(table[:, 0], table[:, 1:])
    core = plan.bank.positions(list(fixed.items[: fixed.n_core]))
    items = model.session_items(x, core, plan.config.max_items)
    n = np.full(len(x), plan.config.max_items)
    for k in range(plan.config.max_items - 1, 0, -1) if width else ():
        asked = np.zeros(x.shape, bool)
        np.put_along_axis(asked, items[:, :k], True, axis=1)
        half = ReplayedLength.at(k, fixed.replayed).scale * model.score_sds(x, asked)
        n = np.where(2 * half <= width, k, n)
    return items, n


def predictions(plan, old, new, subset, items, n):
    """By way, the predicted scores with intervals."""
    values = np.full(new.shape, -1, np.int8)
    for row, (order, length) in enumerate(zip(items, n, strict=True)):
        values[row, order[:length]] = new.values[row, order[:length]]
    answers, ids = replace(new, values=values), np.asarray(old.item_ids)
    for way, replayed in (("nearest", ()), ("replayed", plan.config.fixed.replayed)):
        asked = SessionItems(ids, subset, replayed)
        p = irtcat.predict(old, asked, answers, expect=EXPECT, pooled=False, estimand="run")
        yield way, p


def results(data, seed, lengths, widths):
    """Rows with the errors and intervals of each model."""
    old, new = leaderboard.split_subjects(data, "random", seed)
    drawn = np.random.default_rng(seed).permutation(new.n_subjects)[: sessions.HELD_OUT]
    new = new.subset(subjects=np.sort(drawn), items=old.item_ids)
    bank = irtcat.ItemBank.from_parameters(b=np.zeros(old.n_items), item_ids=old.item_ids)
    x, truth = new.to_numpy().astype(float), leaderboard.full_scores(new)
    for kind, value in [("length", k) for k in lengths] + [("width", w) for w in widths]:
        k = value if kind == "length" else LONGEST
        # Only sessions that may end early have replays; a width of 1e-9 ends none.
        rules = {"stopping": f"predicted-width<{1e-9 if kind == 'length' else value}"}
        plan = plan_evaluation(bank, old, k, EXPECT, seed=seed, nodes=sessions.NODES, **rules)
        if kind == "length" and plan.config.criterion == "sequential":
            continue
        items, n = order_and_stop(plan, x, value if kind == "width" else None)
        subset = irtcat.select(None, k, calibration=old, expect=EXPECT, seed=seed)
        for way, p in predictions(plan, old, new, subset, items, n):
            yield {
                "kind": kind,
                "value": value,
                "seed": seed,
                "way": way,
                "n_core": plan.config.fixed.n_core,
                "n": n,
                "error": 100 * np.abs(p.score - truth),
                "width": 100 * (p.upper - p.lower),
                "covered": (p.lower <= truth) & (truth <= p.upper),
            }


def summary(rows):
    """One row for each set, kind and value."""
    table = []
    for key, part in pd.DataFrame(rows).groupby(["data", "kind", "value"]):
        joined = {
            way: {
                name: np.concatenate(of[name].tolist())
                for name in ("n", "error", "width", "covered")
            }
            for way, of in part.groupby("way")
        }
        new, old = joined["replayed"], joined["nearest"]
        row = dict(zip(("data", "kind", "value"), key, strict=True))
        row |= {"draws": part["seed"].nunique(), "models": len(new["n"]), "items": new["n"].mean()}
        if key[1] == "width":
            stopped, promised = new["n"] < LONGEST, 100 * key[2]
            row["stopped"] = stopped.mean()
            row["width / promised"] = (new["width"][stopped] / promised).mean()
            row["at most 1.05"] = (new["width"][stopped] <= 1.05 * promised).mean()
            row["coverage, stopped"] = new["covered"][stopped].mean()
        row |= {f"error, {way}": joined[way]["error"].mean() for way in joined}
        row |= {f"coverage, {way}": joined[way]["covered"].mean() for way in joined}
        row |= {"width, nearest": old["width"].mean(), "width, replayed": new["width"].mean()}
        table.append(row)
    return pd.DataFrame(table).round(3)


def main():
    """Run, print, save."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--data")
    parser.add_argument("--sets", default="digits,ifeval")
    parser.add_argument("--draws", type=int, default=8)
    parser.add_argument("--first", type=int, default=50, help="seed of the first draw")
    parser.add_argument("--lengths", type=int, nargs="*", default=LENGTHS)
    parser.add_argument("--widths", type=float, nargs="*", default=WIDTHS)
    parser.add_argument("--report", nargs="+", help="only report these saved results")
    parser.add_argument("--out", default="promised_width.csv")
    options = parser.parse_args()
    rows = []
    for path in options.report or ():
        rows += pd.read_pickle(path)
    n_draws = 0 if options.report else options.draws
    for seed in range(options.first, options.first + n_draws):
        for name in options.sets.split(","):
            data = sessions.load(options.data, name)
            new = results(data, seed, options.lengths, options.widths)
            rows += [{"data": name, **row} for row in new]
            pd.to_pickle(rows, options.out + ".pkl")
            print(f"seed {seed}, {name}: {time.process_time():.0f} s", flush=True)
    table = summary(rows)
    table.to_csv(options.out, index=False)
    print(table.to_string())


if __name__ == "__main__":
    main()
