"""What does money buy? Error of the full score against the share of SWE-bench's cost.

Twenty-five models, 500 tasks with the mean cost of a run in dollars. A quarter of the models is
held out at random; items are chosen within 5, 10, 20 and 40 % of the cost of all, by several
strategies, and the held-out models' full scores are predicted by `auto` (and by the weighted mean).
"cheapest": as many of the cheapest items as the budget buys.

    python experiments/subset_selection/costs.py --data FOLDER [--seeds 20]
"""

import argparse
from pathlib import Path

import numpy as np
import pandas as pd
from run import HERE, load

import irtcat
from irtcat import agreement, leaderboard

STRATEGIES = ("random", "stratified", "balanced", "score-optimal", "robust", "cheapest")
SHARES = (0.05, 0.1, 0.2, 0.4)
FOLDER = "swebench_verified_minisweagent"


def choose(strategy, calibration, costs, budget, seed):
    """The subset that the budget buys."""
    n = calibration.n_items
    if strategy == "cheapest":
        k = int((np.cumsum(np.sort(costs)) <= budget).sum())
        allowed = calibration.item_ids[np.argsort(costs, kind="stable")[:k]]
        return irtcat.select(
            None, k, strategy="random", calibration=calibration, seed=seed, allowed=allowed
        )
    return irtcat.select(
        None, n, strategy=strategy, calibration=calibration, seed=seed, costs=costs, budget=budget
    )


def main():
    """Run, print, save."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", required=True)
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--out", default=str(HERE / "costs.csv"))
    arguments = parser.parse_args()
    data = load(arguments.data, "swebench")
    items = pd.read_csv(Path(arguments.data) / FOLDER / "items.csv")
    costs = items["mean_cost_usd"].to_numpy()
    rows = []
    for seed in range(arguments.seeds):
        calibration, new = leaderboard.split_subjects(data, "random", seed)
        truth = leaderboard.full_scores(new)
        for share in SHARES:
            for strategy in STRATEGIES:
                subset = choose(strategy, calibration, costs, share * costs.sum(), seed)
                at = np.isin(data.item_ids, subset.item_ids)
                answers = new.subset(items=subset.item_ids)
                for estimator in ("auto", "weighted"):
                    told = irtcat.predict(
                        calibration, subset, answers, estimator=estimator, level=0.9
                    )
                    rows.append(
                        {
                            "share": share,
                            "strategy": strategy,
                            "estimator": estimator,
                            "items": len(subset),
                            "spent": costs[at].sum() / costs.sum(),
                            "mae": 100 * np.abs(told.score - truth).mean(),
                            "kendall": agreement.kendall_tau_b(told.score, truth),
                            "coverage": ((told.lower <= truth) & (truth <= told.upper)).mean(),
                        }
                    )
    table = pd.DataFrame(rows).groupby(["share", "strategy", "estimator"], sort=False).mean()
    print(table.round(3).to_string())
    table.round(4).to_csv(arguments.out)


if __name__ == "__main__":
    main()
