"""Figures of `run.py`: learning curves, the regression's surface, the correlation matrix."""

from pathlib import Path

import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator
from networks import NETWORKS

from irtcat import ItemBank, plot
from irtcat.agreement import CorrelationMatrix

TICKS = (20, 100, 899)
STYLE = dict(zip(NETWORKS, ("o-", "s--", "^:"), strict=True))


def curves(table: pd.DataFrame, scales: list[str], path: Path) -> None:
    """Ability percentile on each scale, and accuracy, by training size and by wrong labels."""
    figure = Figure(figsize=(3.1 * (len(scales) + 1), 6), layout="constrained")
    panels = figure.subplots(2, len(scales) + 1, sharey=True)
    names = [f"percentile_{scale}" for scale in scales] + ["accuracy"]
    clean, full = table["noise"] == 0, table["size"] == table["size"].max()
    for row, (x, chosen, label) in enumerate(
        (("size", clean, "training images"), ("noise", full, "share of wrong labels"))
    ):
        for axes, name in zip(panels[row], names, strict=True):
            for network, style in STYLE.items():
                some = table[chosen & (table["network"] == network)].sort_values(x)
                axes.plot(some[x], some[name], style, label=network)
            axes.set_xlabel(label)
            if x == "size":
                axes.set_xscale("log")
                axes.set_title(name.replace("percentile_", "ability, ").replace("_", " "))
        panels[row][0].set_ylabel("percentile, or per cent right")
    panels[0][0].legend()
    plot.save(figure, path, dpi=100)


def surface(
    regression: pd.DataFrame,
    banks: dict[str, ItemBank],
    path: Path,
    network: str = "deep",
    smallest: int = 20,
    largest: int = 899,
) -> None:
    """The regression's probability of a right answer by training size and difficulty."""
    figure = Figure(figsize=(4.2 * len(banks), 4.2))
    for i, (scale, bank) in enumerate(banks.items()):
        chosen = (regression["scale"] == scale) & (regression["network"] == network)
        b = regression[chosen].set_index("term")["estimate"]
        difficulty = bank.to_frame()["b"].to_numpy()
        ends = np.quantile(difficulty, [0.02, 0.98])
        size = np.linspace(np.log(smallest / largest), 0, 30)
        x, y = np.meshgrid(size, np.linspace(*ends, 30) - difficulty.mean())
        logit = b["intercept"] + b["log_size"] * x + b["difficulty"] * y
        p = 1 / (1 + np.exp(-logit - b["log_size x difficulty"] * x * y))
        axes = figure.add_subplot(1, len(banks), i + 1, projection="3d")
        axes.plot_surface(x, y + difficulty.mean(), p, cmap="viridis", vmin=0, vmax=1)
        axes.set_xticks(np.log(np.array(TICKS) / largest), [str(n) for n in TICKS])
        axes.set(xlabel="training images", ylabel="difficulty b", zlim=(0, 1))
        axes.yaxis.set_major_locator(MaxNLocator(4))
        axes.view_init(elev=24, azim=55)
        axes.set_title(f"{network}, {scale}: P(right)", y=0.98)
    figure.subplots_adjust(left=0.01, right=0.97, bottom=0.08, top=0.95, wspace=0.08)
    plot.save(figure, path, dpi=100)


def correlations(matrix: CorrelationMatrix, path: Path) -> None:
    """The matrix with its values; pairs that are not significant are crossed out."""
    plot.save(plot.correlation_matrix(matrix), path, dpi=100)
