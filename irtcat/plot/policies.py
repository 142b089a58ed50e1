"""Figures of online selection: the ability of a policy in training, and its prompts."""

from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from irtcat._common.checks import argument_error
from irtcat.plot.style import COLOURS, GREY, add_title, new_figure, tidy

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Z = 1.959964
"""Half the width of a 95 % interval, in standard errors."""

MOST_POINTS = 20_000
"""Prompts without rollouts that are drawn; more of them hide the others."""


def _table(data: Any, attribute: str, columns: set[str]) -> pd.DataFrame:
    """The table of a selector, or a table with its columns."""
    table = data
    if not isinstance(table, pd.DataFrame):
        table = getattr(data, attribute, None)
        table = table() if callable(table) else table
    if not isinstance(table, pd.DataFrame) or not columns <= set(table.columns):
        must = f"a Selector, or a table with the columns {', '.join(sorted(columns))}"
        raise argument_error("selector", must, type(data).__name__)
    return table


def policy_ability(selector: Any) -> "Figure":
    """The ability of a policy after each step, with its 95 % interval.

    Below, if the table has them, the mean score of each step and what was predicted.

    Args:
        selector: an `irtcat.training.online.Selector`, or its ``history``: columns ``step``,
            ``theta``, ``se``, and optionally ``score`` and ``predicted``.

    Returns:
        The figure; the interval is theta ± 1.96 se.

    Example:
        >>> history = pd.DataFrame({"step": [1, 2], "theta": [0.1, 0.4], "se": [0.5, 0.3]})
        >>> policy_ability(history).axes[0].get_ylabel()
        'Ability θ'
    """
    table = _table(selector, "history", {"step", "theta", "se"})
    step = table["step"].to_numpy(float)
    theta, se = table["theta"].to_numpy(float), table["se"].to_numpy(float)
    has_scores = {"score", "predicted"} <= set(table.columns)
    figure = new_figure(7.4, 5.2 if has_scores else 3.4)
    panels = figure.subplots(1 + has_scores, 1, sharex=True, squeeze=False)[:, 0]
    panels[0].fill_between(step, theta - Z * se, theta + Z * se, color=COLOURS[0], alpha=0.18)
    panels[0].plot(step, theta, color=COLOURS[0])
    panels[0].set(ylabel="Ability θ")
    if has_scores:
        for name, colour, dashes in (("score", COLOURS[1], "-"), ("predicted", GREY, "--")):
            panels[1].plot(step, table[name].to_numpy(float), dashes, color=colour, label=name)
        panels[1].set(ylabel="Mean score of the step", ylim=(-0.02, 1.02))
        panels[1].legend(frameon=False, fontsize=9)
    panels[-1].set(xlabel="Step")
    panels[-1].locator_params(axis="x", integer=True)
    add_title(figure, "Ability of the policy, with its 95 % interval")
    for axes in panels:
        tidy(axes)
    return figure


def prompt_usefulness(selector: Any) -> "Figure":
    """Expected usefulness of the prompts in the coming step, against their difficulty.

    Args:
        selector: an `irtcat.training.online.Selector`, or its ``to_frame()``: columns ``b``,
            ``usefulness`` and ``visits``.

    Returns:
        The figure: prompts with rollouts coloured by the number of their steps, those without in
        grey.

    Example:
        >>> table = pd.DataFrame({"b": [-1, 0.2], "usefulness": [0.1, 0.2], "visits": [0, 3]})
        >>> len(prompt_usefulness(table).axes[0].collections)
        2
    """
    table = _table(selector, "to_frame", {"b", "usefulness", "visits"})
    b, useful = table["b"].to_numpy(float), table["usefulness"].to_numpy(float)
    visits = table["visits"].to_numpy(int)
    figure = new_figure(7.4, 4.2)
    axes = figure.subplots()
    new = np.flatnonzero(visits == 0)
    shown = new[:: -(-len(new) // MOST_POINTS) or 1]
    axes.scatter(
        b[shown], useful[shown], s=9, color="#BBBBBB", linewidth=0, label="no rollouts yet"
    )
    tried = np.flatnonzero(visits > 0)
    if len(tried):
        tried = tried[np.argsort(visits[tried], kind="stable")]
        points = axes.scatter(
            b[tried], useful[tried], s=11, c=visits[tried], cmap="viridis", linewidth=0
        )
        figure.colorbar(points, ax=axes, label="Steps with rollouts")
    if len(shown):
        axes.legend(frameon=False, fontsize=9)
    axes.set(xlabel="Difficulty b", ylabel="Expected usefulness")
    axes.set_ylim(bottom=0)
    add_title(figure, f"Usefulness of {len(table):,} prompts in the coming step")
    tidy(axes)
    return figure
