"""The tables and the figure of the README, from the saved results.

python experiments/online_selection/tables.py
"""

import argparse
from pathlib import Path

import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from scipy.stats import t as student

HERE = Path(__file__).parent
PREDICTED = ["MoPPS", "irtcat"]


def interval(values: np.ndarray) -> str:
    """Mean and 95 % interval over seeds."""
    values = np.asarray(values, float)
    if len(values) == 1:
        return f"{values[0]:.3f}"
    half = student.ppf(0.975, len(values) - 1) * values.std(ddof=1) / np.sqrt(len(values))
    return f"{values.mean():.3f} ± {half:.3f}"


def crossing(curve: pd.DataFrame, goal: float) -> float:
    """Rollouts at which a curve first reaches a reward (linear in between), inf for never."""
    x, y = curve["rollouts"].to_numpy(float), curve["reward"].to_numpy()
    above = np.flatnonzero(y >= goal)
    if not len(above):
        return np.inf
    i = above[0]
    if i == 0:
        return 0.0
    return x[i - 1] + (goal - y[i - 1]) / (y[i] - y[i - 1]) * (x[i] - x[i - 1])


def median_range(values: pd.Series) -> str:
    """Median, least and greatest over seeds; > 1 where the goal was not reached."""

    def text(value: float) -> str:
        return f"{value:.2f}" if np.isfinite(value) else "> 1"

    low = np.sort(values.to_numpy())
    middle = (low[(len(low) - 1) // 2], low[len(low) // 2])
    median = np.mean(middle) if np.isfinite(middle[1]) else np.inf
    return f"{text(median)} ({text(low[0])} to {text(low[-1])})"


def grpo() -> None:
    """Final rewards and rollouts to the reward of others."""
    curves = pd.read_csv(HERE / "grpo_curves.csv")
    useful = pd.read_csv(HERE / "grpo_groups.csv")
    for task, one in curves.groupby("task", sort=False):
        by = {k: c.sort_values("rollouts") for k, c in one.groupby(["method", "seed"])}
        methods = list(dict.fromkeys(one["method"]))
        seeds = sorted(set.intersection(*(set(one.loc[one.method == m, "seed"]) for m in methods)))
        final = pd.DataFrame({m: [by[m, s]["reward"].iloc[-1] for s in seeds] for m in methods})
        anchors = [m for m in methods if not m.startswith("irtcat")]
        best = final[anchors].mean().idxmax()
        budget = one["rollouts"].max()
        print(f"\n{task}: {len(seeds)} seeds, best anchor {best}\n")
        print(
            "| method | final reward | minus uniform | useful groups | to uniform's | to best's |"
        )
        print("|---|---|---|---|---|---|")
        groups = useful[(useful["task"] == task) & useful["seed"].isin(seeds)]
        for m in methods:
            shares = []
            for goal in ("uniform", best):
                reached = [crossing(by[m, s], by[goal, s]["reward"].iloc[-1]) for s in seeds]
                base = [crossing(by[goal, s], by[goal, s]["reward"].iloc[-1]) for s in seeds]
                shares.append(median_range(pd.Series(np.divide(reached, base))))
            share = groups.loc[groups["method"] == m, "useful"].mean()
            gain = "" if m == "uniform" else interval(final[m] - final["uniform"])
            print(
                f"| {m} | {interval(final[m])} | {gain} | {100 * share:.0f} % | {shares[0]}"
                f" | {shares[1]} |"
            )
        print(f"(budget {budget} rollouts)")
    figure = Figure(figsize=(9, 3.6), layout="constrained")
    axes = figure.subplots(1, curves["task"].nunique())
    for ax, (task, one) in zip(axes, curves.groupby("task", sort=False), strict=True):
        methods = one.groupby("method")["seed"].unique()
        one = one[one["seed"].isin(set.intersection(*map(set, methods)))]
        grid = np.linspace(0, one["rollouts"].max(), 60)
        for m, rows in one.groupby("method", sort=False):
            lines = [
                np.interp(grid, c["rollouts"], c["reward"])
                for _, c in rows.sort_values("rollouts").groupby("seed")
            ]
            thick = 2.2 if m.startswith("irtcat") else 1.1
            ax.plot(grid / 1000, np.mean(lines, 0), label=m, linewidth=thick)
        ax.set(title=task, xlabel="rollouts (thousands)", ylabel="held-out reward")
    axes[0].legend(frameon=False, fontsize=8)
    figure.savefig(HERE / "grpo_curves.png", dpi=80)


def simulated(kind: str) -> None:
    """Log loss, useful groups and rollouts to an ability, by scenario."""
    rows = pd.read_csv(HERE / f"simulated_{kind}.csv")
    reached = pd.read_csv(HERE / f"rollouts_{kind}.csv")
    print(f"\n{kind}: predicted success, on a uniform sample of prompts\n")
    print(
        "| scenario | seeds | log loss MoPPS | irtcat | tenths lower | Spearman MoPPS | irtcat"
        " | equal batches MoPPS | irtcat | tenths lower |"
    )
    print("|---|---|---|---|---|---|---|---|---|---|")

    def by_tenth(one: pd.DataFrame, method: str, column: str) -> pd.Series:
        return one.loc[one["method"] == method].groupby("tenth")[column].mean()

    for scenario, one in rows.groupby("scenario", sort=False):
        cells = [scenario, str(one["seed"].nunique())]
        for suffix, column in (("", "log_loss"), (" on uniform batches", "batch_log_loss")):
            pair = [by_tenth(one, m + suffix, column) for m in PREDICTED]
            cells += [f"{x.mean():.3f}" for x in pair]
            cells.append(f"{int((pair[1] < pair[0]).sum())} of 10")
            if not suffix:
                cells += [f"{by_tenth(one, m, 'spearman').mean():.2f}" for m in PREDICTED]
        print("| " + " | ".join(cells) + " |")
    print(f"\n{kind}: useful groups in %, in the first tenth and after the first pass\n")
    methods = [m for m in dict.fromkeys(rows["method"]) if "uniform batches" not in m]
    print("| scenario | prompts with .1 < p < .9 (irtcat) | " + " | ".join(methods) + " |")
    print("|---|---|" + "---|" * len(methods))
    for scenario, one in rows.groupby("scenario", sort=False):
        cells = []
        for m in methods:
            mine = by_tenth(one, m, "useful")
            if mine.empty:
                cells.append("")
                continue
            later = mine[mine.index >= first_pass(scenario)]
            cells.append(f"{100 * mine.iloc[0]:.0f}, {100 * later.mean():.0f}")
        inside = by_tenth(one, "irtcat", "inside")
        print(f"| {scenario} | {100 * inside.min():.0f} to {100 * inside.max():.0f} % | ", end="")
        print(" | ".join(cells) + " |")
    learning = [s for s in dict.fromkeys(rows["scenario"]) if learns(s)]
    print(f"\n{kind}: rollouts to the ability uniform ends with, share of uniform's\n")
    print("| scenario | " + " | ".join(methods[1:]) + " |")
    print("|---|" + "---|" * len(methods[1:]))
    for scenario in learning:
        one = reached[reached["scenario"] == scenario]
        cells = [
            median_range(one.loc[one["method"] == m, "share"]) if (one["method"] == m).any() else ""
            for m in methods[1:]
        ]
        print(f"| {scenario} | " + " | ".join(cells) + " |")


def table() -> dict:
    """Scenarios by name."""
    from scenarios import HOLD_OUT, SCENARIOS

    return {s.name: s for s in (*SCENARIOS, *HOLD_OUT)}


def first_pass(scenario: str) -> int:
    """The first tenth after as many groups as there are prompts."""
    s = table()[scenario]
    return int(np.ceil(10 * s.n_prompts / (s.batch * s.steps)))


def learns(scenario: str) -> bool:
    """Whether the choice of prompts moves the ability."""
    return table()[scenario].policy not in ("trend", "plateau", "walk")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.parse_args()
    grpo()
    simulated("all")
    simulated("hold_out")


if __name__ == "__main__":
    main()
