"""What does an adaptive evaluation cost if it counts what items cost?

Sessions run until the 95 % interval of the full score is short enough: chosen by the criterion
alone, and by the criterion for each unit of cost. "simulated": 2PL, 500 items, costs lognormal with
an SD of 1 of the log, independent of the items or correlated .5 with difficulty. "SWE-bench": bank
fitted to three quarters of the agents of SWE-bench Verified, the others replayed, the mean cost of
each item in dollars as published for mini-SWE-agent; left out without --data.

    python experiments/adaptive_evaluation/costs.py [--data FOLDER] [--draws 8] [--out costs.csv]

Prints the mean cost of a session as a share of the cost of all items, the ratio, the number of
items, and the coverage of the intervals. "equal cost": planned sessions (`plan_evaluation`) of 10,
30 and 100 items on SWE-bench, and those with the mean of their costs as the budget: mean absolute
errors of the predicted full score in points, and coverage of its 95 % intervals.

    python experiments/adaptive_evaluation/costs.py --data FOLDER --budgets ifeval,swebench

"Budgets": planned sessions of at most 100 items that stop on a budget, the mean cost of 10 items,
with lognormal costs (SD 1 of the log) and models as in `sessions.py` ("similar", seeds from 50 on).
"""

import argparse
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import sessions as draws

import irtcat
from irtcat.cat import Config, plan_evaluation, replay

CRITERIA = ("score-optimal", "mpwi")


def simulated(correlation, seed):
    """A bank with costs, and the answers of 200 subjects to all items."""
    rng = np.random.default_rng([seed, int(100 * correlation)])
    n = 500
    b = rng.normal(size=n)
    noise = np.sqrt(1 - correlation**2) * rng.normal(size=n)
    cost = np.exp(correlation * b + noise)
    bank = irtcat.ItemBank.from_parameters(a=rng.lognormal(0, 0.3, n), b=b)
    new = bank.simulate(rng.normal(size=200), seed=seed)
    return replace(bank, items=bank.items.assign(cost=cost)), new


def swebench(folder, seed):
    """The bank of calibrated models with the mean cost of each item, and the other models."""
    path = Path(folder) / "agentic_coding/responses_swebench_verified.npz"
    with np.load(path, allow_pickle=True) as file:
        responses = irtcat.Responses.from_array(file["X"], item_ids=file["items"].astype(str))
    table = pd.read_csv(Path(folder) / "swebench_verified_minisweagent/items.csv")
    cost = table.set_index("item_id")["mean_cost_usd"]
    responses = responses.without_duplicate_subjects()
    old, new = irtcat.leaderboard.split_subjects(responses, "random", seed)
    bank = irtcat.fit(old).bank
    return replace(bank, items=bank.items.assign(cost=cost[bank.item_ids].to_numpy())), new, old


def sessions(name, bank, new, width, seed):
    """A row for each criterion: both kinds of sessions."""
    cost, rows = bank.items["cost"].to_numpy(float), []
    truth = irtcat.leaderboard.full_scores(new)
    for criterion in CRITERIA:
        row = {"data": name, "width": width, "criterion": criterion, "seed": seed}
        for label, column in (("alone", None), ("for cost", "cost")):
            config = Config(
                criterion=criterion,
                stopping=f"score-width<{width}",
                max_items=bank.n_items,
                cost=column,
            )
            report = replay(bank, new, config, seed=seed)
            at = np.maximum(report.items, 0)
            spent = np.where(report.items >= 0, cost[at], 0).sum(axis=1)
            frame = report.to_frame()
            inside = np.abs(frame["score"] - truth) <= 1.96 * frame["score_sd"] + 1e-9
            row[f"cost, {label}"] = spent.mean() / cost.sum()
            row[f"items, {label}"] = report.n_items.mean()
            row[f"coverage, {label}"] = inside.mean()
        rows.append(row)
    return rows


def equal_cost(bank, new, old, seed):
    """A row for each length: planned sessions without and with costs."""
    cost, rows = bank.items["cost"].to_numpy(float), []
    truth = irtcat.leaderboard.full_scores(new)
    for k in (10, 30, 100):
        row, rules = {"items": k, "seed": seed}, {"max_items": k}
        for label in ("alone", "for cost"):
            plan = plan_evaluation(bank, old, seed=seed, **rules)
            report = replay(plan.bank, new, plan.config, seed=seed)
            at = np.maximum(report.items, 0)
            spent = np.where(report.items >= 0, cost[at], 0).sum(axis=1)
            found = report.predict(plan.bank, old, estimand="run")
            row[f"dollars, {label}"] = spent.mean()
            row[f"items, {label}"] = report.n_items.mean()
            row[f"MAE, {label}"] = 100 * np.abs(found.score - truth).mean()
            row[f"coverage, {label}"] = ((found.lower <= truth) & (truth <= found.upper)).mean()
            rules = {"max_items": min(3 * k, 250), "cost": "cost", "budget": spent.mean()}
        rows.append(row)
    return rows


def within_budget(folder, name, seed):
    """A row for each expectation: planned sessions that stop on a budget."""
    old, new = irtcat.leaderboard.split_subjects(draws.load(folder, name), "random", seed)
    rng = np.random.default_rng(seed)
    drawn = np.sort(rng.permutation(new.n_subjects)[: draws.HELD_OUT])
    new = new.subset(subjects=drawn)
    cost, truth = rng.lognormal(0, 1, old.n_items), irtcat.leaderboard.full_scores(new)
    bank = irtcat.fit(old, standard_errors="none").bank
    prices = pd.Series(cost, index=old.item_ids)[bank.item_ids].to_numpy()
    bank = replace(bank, items=bank.items.assign(cost=prices))
    rules = {"cost": "cost", "budget": 10 * cost.mean(), "nodes": draws.NODES}
    for expect in (None, "similar"):
        plan = plan_evaluation(bank, old, 100, expect, seed=seed, **rules)
        report = replay(plan.bank, new, plan.config, precision="float32")
        p = report.predict(plan.bank, old, estimand="run")
        yield {
            "data": name,
            "expect": str(expect),
            "draws": seed,
            "models": len(truth),
            "items": report.n_items.mean(),
            "MAE": 100 * np.abs(p.score - truth).mean(),
            "coverage": ((p.lower <= truth) & (truth <= p.upper)).mean(),
            "width": 100 * (p.upper - p.lower).mean(),
        }


def budgets(options):
    """Run the draws of sessions within a budget; print and save the means."""
    rows = []
    for seed in range(50, 50 + options.draws):
        for name in options.budgets.split(","):
            rows += within_budget(options.data, name, seed)
            print(f"seed {seed}, {name}", flush=True)
    of = dict.fromkeys(("items", "MAE", "coverage", "width"), "mean")
    table = pd.DataFrame(rows).groupby(["data", "expect"])
    table = table.agg({"draws": "nunique", "models": "sum", **of}).round(3)
    print(table.to_string())
    if options.out:
        table.to_csv(options.out)


def main():
    """Run all draws; print and save the means."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data")
    parser.add_argument("--draws", type=int, default=8)
    parser.add_argument("--budgets", help="sets of sessions within a budget, and nothing else")
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args()
    if arguments.budgets:
        budgets(arguments)
        return
    rows, equal = [], []
    for seed in range(arguments.draws):
        for correlation in (0.0, 0.5):
            name = f"simulated, correlation {correlation:g}"
            rows += sessions(name, *simulated(correlation, seed), 0.05, seed)
        if arguments.data:
            bank, new, old = swebench(arguments.data, seed)
            rows += sessions("SWE-bench Verified", bank, new, 0.05, seed)
            equal += equal_cost(bank, new, old, seed)
    table = pd.DataFrame(rows)
    mean = table.groupby(["data", "width", "criterion"], sort=False).mean().drop(columns="seed")
    ratio = table["cost, for cost"] / table["cost, alone"]
    log = np.log(ratio).groupby([table["data"], table["width"], table["criterion"]], sort=False)
    mean.insert(0, "ratio", np.exp(log.mean()))
    mean.insert(1, "worst draw", np.exp(log.max()))
    print(mean.round(3).to_string())
    if equal:
        equal = pd.DataFrame(equal).groupby("items").mean().drop(columns="seed")
        print(equal.round(3).to_string())
    if arguments.out:
        mean.round(4).to_csv(arguments.out)
        if len(equal):
            equal.round(4).to_csv(arguments.out.with_stem(f"{arguments.out.stem}_equal"))


if __name__ == "__main__":
    main()
