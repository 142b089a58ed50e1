"""Figures of sessions and of policies in training.

Errors along the scale, scores, one session or the steps of a policy one by one, its prompts.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from irtcat._common.checks import argument_error
from irtcat.plot.style import (
    COLOURS,
    GREY,
    Z,
    check_columns,
    finished,
    line_style,
    new_figure,
    one_panel,
    plain,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

MOST_POINTS = 20_000
"""Prompts without rollouts that are drawn; more of them hide the others."""


def score_errors(table: pd.DataFrame) -> "Figure":
    """Bias and standard errors along the reported scale.

    Args:
        table: columns ``score``, ``bias_score``, ``csem_score`` and ``se_score``, such as the table
            "errors" of a publishing report.

    Returns:
        The figure: the SD of the estimates at each score (line), the standard error that the
        estimates report (dashed) and the bias (dotted).

    Example:
        >>> table = pd.DataFrame({
        ...     "score": [400, 500, 600], "bias_score": [4, 0, -4],
        ...     "csem_score": [35, 30, 36], "se_score": [34, 31, 34],
        ... })
        >>> [line.get_label() for line in score_errors(table).axes[0].lines[:3]]
        ['standard error (simulated)', 'standard error (reported)', 'bias']
    """
    columns = {
        "csem_score": "standard error (simulated)",
        "se_score": "standard error (reported)",
        "bias_score": "bias",
    }
    check_columns(table, ("score", *columns))
    figure, axes = one_panel(7.4, 3.8)
    scores = table["score"].to_numpy(float)
    for (name, label), marker, dashes, colour in zip(
        columns.items(), "os^", ("-", "--", ":"), COLOURS, strict=False
    ):
        values = table[name].to_numpy(float)
        axes.plot(scores, values, dashes, marker=marker, markersize=4, color=colour, label=label)
    axes.axhline(0, color=GREY, linewidth=0.8)
    axes.set(xlabel="Score", ylabel="Points")
    axes.legend(frameon=False, fontsize=9)
    return finished(figure, "Errors along the scale", axes)


def error_curves(tables: Mapping[str, pd.DataFrame], column: str = "csem") -> "Figure":
    """Errors of several tests along the ability scale, one line each.

    Args:
        tables: by the name of the test, its errors by ability: of `irtcat.cat.conditional_errors`,
            `Panel.exact_errors` or `PanelSessions.errors`; theta is a column or the index.
        column: what is plotted: "csem" (SD of the estimates), "rmse", "bias" or "se".

    Returns:
        The figure.

    Example:
        >>> import irtcat
        >>> bank = irtcat.ItemBank.from_parameters(a=1.5, b=np.linspace(-2, 2, 40))
        >>> test = irtcat.cat.assemble_panel(bank, (6, 6), (1, 2))
        >>> figure = error_curves({"panel": test.exact_errors([-1, 0, 1])})
        >>> [line.get_label() for line in figure.axes[0].lines]
        ['panel']
    """
    labels = {
        "csem": "SD of the estimates",
        "rmse": "Root mean squared error",
        "bias": "Bias",
        "se": "Standard error (reported)",
    }
    if column not in labels:
        raise argument_error("column", f"one of {', '.join(labels)}", column)
    figure, axes = one_panel(7.4, 3.8)
    for number, (name, table) in enumerate(tables.items()):
        rows = table if "theta" in table.columns else table.reset_index()
        if not {"theta", column} <= set(rows.columns):
            raise argument_error("tables", f"tables of theta and {column}", list(rows.columns))
        axes.plot(rows["theta"], rows[column], label=plain(name), **line_style(number))
    axes.set(xlabel="Ability θ", ylabel=labels[column])
    if column != "bias":
        axes.set_ylim(bottom=0)
    axes.legend(frameon=False, fontsize=9)
    return finished(figure, "Errors along the scale", axes)


def score_distribution(scores: pd.Series, cuts: Mapping[str, float] | None = None) -> "Figure":
    """A histogram of reported scores, with the cut scores.

    Args:
        scores: one score for each subject; NaN is left out.
        cuts: lowest score of each level, by its label.

    Returns:
        The figure.

    Example:
        >>> figure = score_distribution(pd.Series([410.0, 480.0, 520.0]), {"Basic": 450})
        >>> figure.axes[0].get_ylabel()
        'Number of attempts'
    """
    values = np.asarray(scores, float)
    values = values[np.isfinite(values)]
    figure, axes = one_panel(7.4, 3.8)
    bins = min(max(round(2 * np.sqrt(len(values))), 5), 40)
    axes.hist(values, bins=bins, color=COLOURS[0], edgecolor="white")
    if cuts:
        axes.margins(y=0.35)  # names of levels stand above the bars
    for label, score in (cuts or {}).items():
        axes.axvline(score, color="#333333", linewidth=1, linestyle="--")
        axes.annotate(
            plain(label),
            (score, 1),
            xycoords=("data", "axes fraction"),
            xytext=(3, -2),
            textcoords="offset points",
            va="top",
            rotation=90,
            fontsize=8,
        )
    axes.locator_params(axis="y", integer=True)
    axes.set(xlabel="Score", ylabel="Number of attempts")
    return finished(figure, f"Scores of {len(values):,} attempts", axes)


def session_path(table: pd.DataFrame) -> "Figure":
    """The estimate of ability after each answer of a session, with its 95 % interval.

    Args:
        table: columns ``theta`` and ``se`` in the order of the answers, such as
            `irtcat.cat.Session.to_frame`.

    Returns:
        The figure; the interval is theta ± 1.96 se.

    Example:
        >>> table = pd.DataFrame({"theta": [0.4, 0.1], "se": [0.8, 0.6]})
        >>> session_path(table).axes[0].get_xlabel()
        'Answers'
    """
    if not isinstance(table, pd.DataFrame) or not {"theta", "se"} <= set(table.columns):
        raise argument_error("table", "one with the columns theta and se", table)
    theta, se = table["theta"].to_numpy(float), table["se"].to_numpy(float)
    known = np.isfinite(theta)  # in a batch only after its last item; gaps would cut line and band
    number, theta, se = np.flatnonzero(known) + 1, theta[known], se[known]
    figure, axes = one_panel(7.4, 3.4)
    _draw_ability(axes, number, theta, se, marker="o", markersize=4)
    axes.locator_params(axis="x", integer=True)
    axes.set(xlabel="Answers")
    return finished(figure, "Estimate after each answer, with its 95 % interval", axes)


def _draw_ability(
    axes: "Axes", at: np.ndarray, theta: np.ndarray, se: np.ndarray, **style: Any
) -> None:
    """Plot estimates of ability with their 95 % intervals."""
    axes.fill_between(at, theta - Z * se, theta + Z * se, color=COLOURS[0], alpha=0.18)
    axes.plot(at, theta, color=COLOURS[0], **style)
    axes.set(ylabel="Ability θ")


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
    _draw_ability(panels[0], step, theta, se)
    if has_scores:
        for name, colour, dashes in (("score", COLOURS[1], "-"), ("predicted", GREY, "--")):
            panels[1].plot(step, table[name].to_numpy(float), dashes, color=colour, label=name)
        panels[1].set(ylabel="Mean score of the step", ylim=(-0.02, 1.02))
        panels[1].legend(frameon=False, fontsize=9)
    panels[-1].set(xlabel="Step")
    panels[-1].locator_params(axis="x", integer=True)
    return finished(figure, "Ability of the policy, with its 95 % interval", *panels)


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
    figure, axes = one_panel(7.4, 4.2)
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
    return finished(figure, f"Usefulness of {len(table):,} prompts in the coming step", axes)
