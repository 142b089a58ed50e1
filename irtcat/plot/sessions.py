"""Figures of tests that people take: errors along the scale, scores, one session step by step."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from irtcat._common.checks import argument_error
from irtcat.plot.style import COLOURS, GREY, add_title, line_style, new_figure, plain, tidy

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Z = 1.959964
"""Half the width of a 95 % interval, in standard errors."""


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
    required = {"score", *columns}
    if not isinstance(table, pd.DataFrame) or not required <= set(table.columns):
        raise argument_error("table", f"one with the columns {', '.join(sorted(required))}", table)
    figure = new_figure(7.4, 3.8)
    axes = figure.subplots()
    scores = table["score"].to_numpy(float)
    for (name, label), marker, dashes, colour in zip(
        columns.items(), "os^", ("-", "--", ":"), COLOURS, strict=False
    ):
        values = table[name].to_numpy(float)
        axes.plot(scores, values, dashes, marker=marker, markersize=4, color=colour, label=label)
    axes.axhline(0, color=GREY, linewidth=0.8)
    axes.set(xlabel="Score", ylabel="Points")
    axes.legend(frameon=False, fontsize=9)
    add_title(figure, "Errors along the scale")
    tidy(axes)
    return figure


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
    figure = new_figure(7.4, 3.8)
    axes = figure.subplots()
    for number, (name, table) in enumerate(tables.items()):
        rows = table if "theta" in table.columns else table.reset_index()
        if not {"theta", column} <= set(rows.columns):
            raise argument_error("tables", f"tables of theta and {column}", list(rows.columns))
        axes.plot(rows["theta"], rows[column], label=plain(name), **line_style(number))
    axes.set(xlabel="Ability θ", ylabel=labels[column])
    if column != "bias":
        axes.set_ylim(bottom=0)
    axes.legend(frameon=False, fontsize=9)
    add_title(figure, "Errors along the scale")
    tidy(axes)
    return figure


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
    figure = new_figure(7.4, 3.8)
    axes = figure.subplots()
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
    add_title(figure, f"Scores of {len(values):,} attempts")
    tidy(axes)
    return figure


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
    figure = new_figure(7.4, 3.4)
    axes = figure.subplots()
    axes.fill_between(number, theta - Z * se, theta + Z * se, color=COLOURS[0], alpha=0.18)
    axes.plot(number, theta, "o-", markersize=4, color=COLOURS[0])
    axes.locator_params(axis="x", integer=True)
    axes.set(xlabel="Answers", ylabel="Ability θ")
    add_title(figure, "Estimate after each answer, with its 95 % interval")
    tidy(axes)
    return figure
