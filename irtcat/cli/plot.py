"""``irtcat plot``."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import typer

import irtcat
from irtcat import plot, report
from irtcat._common.errors import InputError
from irtcat.cli._command import Options, Output, command_of
from irtcat.cli._input import split_texts
from irtcat.cli._options import argument, check_figure, own, result

EXAMPLE = (
    "irtcat fit dataset:lsat7",
    "irtcat plot bank.npz --what information --out information.svg",
)

FIGURES = {
    "bank": ("curves", "information"),
    "scores": ("ranked",),
    "predictions": ("ranked",),
    "groups": ("ranked",),
    "board": ("ranking",),
    "gaps": ("gaps",),
    "headroom": ("headroom",),
    "options": ("options",),
    "scale": ("information", "curves", "retained", "removed", "abilities"),
}
"""The figures of each kind of result; the first is the default."""

APPLIES_TO = {
    "items": ("curves", "information", "retained", "removed", "options"),
    "metric": ("ranking",),
    "estimator": ("ranking", "gaps"),
    "scale": ("scale",),
}
"""The figures, or kinds of results, to which each option applies; others refuse it."""


@command_of(
    None,
    argument(
        "result",
        read=lambda path: report.read(path),  # imported then, so that --help is fast
        help="A bank, a table of irtcat score, predict, groups, leaderboard or headroom or of "
        "diagnose.distractors, or a folder of irtcat scale.",
    ),
    result(
        default=Path("figure.svg"), writes=check_figure, help="File to write (.png, .svg or .pdf)."
    ),
    own(
        "what",
        help="For a bank curves or information; for scales information, curves, retained, "
        "removed or abilities; for tables ranked, ranking, gaps, headroom or options.",
    ),
    own("items", parse=split_texts, help="Plot only these items: comma-separated ids."),
    own(
        "metric",
        help="Metric to plot against k: a column of irtcat leaderboard's table; by default "
        "kendall.",
    ),
    own("estimator", help="Plot only this estimator."),
    own("scale", help="Scale of the folder to plot; by default the first."),
    csv=False,
)
def command(o: Options) -> Output:
    """Plot a saved result."""
    saved = o.result
    description = report.KINDS[saved.kind]
    if saved.kind not in FIGURES:
        known = ", ".join(report.KINDS[kind] for kind in FIGURES)
        raise InputError(f"{saved.path}: {description}; figures exist for {known}.")
    figure_name = o.what or FIGURES[saved.kind][0]
    _check_choice("--what", figure_name, FIGURES[saved.kind])
    for option_name, applies_to in APPLIES_TO.items():
        applies = figure_name in applies_to or saved.kind in applies_to
        if getattr(o, option_name) is not None and not applies:
            raise o.usage_error(option_name, f"does not apply to {figure_name} of {description}.")
    if saved.kind == "scale":
        figure = _scale_figure(saved, figure_name, o.items, o.scale)
    elif saved.kind == "bank":
        figure = _bank_figure(saved.value, figure_name, o.items)
    elif figure_name == "ranked":
        figure = plot.ranked(saved.value)
    elif figure_name == "ranking":
        figure = plot.rank_correlation(saved.value, o.metric or "kendall", o.estimator)
    elif figure_name == "gaps":
        keys = ["strategy", "estimator", "n_items"]
        figure = plot.reliable_gaps(saved.value.set_index(keys), o.estimator)
    elif figure_name == "options":
        figure = plot.option_curves(saved.value, o.items)
    else:  # headroom, indexed by test set: the first column of the file
        figure = plot.headroom(saved.value.set_index(saved.value.columns[0]))
    o.write("out", figure)
    line = f"Drew {figure_name} of {description} to {o.out}"
    return Output(
        {"out": o.out, "kind": saved.kind, "what": figure_name}, [line], next=("report", saved.path)
    )


def _check_choice(option: str, name: str, known: Iterable[str]) -> None:
    """Raise a usage error for an unknown name."""
    if name not in (names := list(known)):
        raise typer.BadParameter(f"{name!r} is not one of {', '.join(names)}.", param_hint=option)


def _bank_figure(bank: "irtcat.ItemBank", figure_name: str, items: list[str] | None) -> Any:
    """Plot the curves or the information of a bank, of all items if ``items`` is None."""
    if figure_name == "curves":
        return plot.item_curves(bank, items)
    return plot.information_curve(bank if items is None else bank.subset(items))


def _scale_figure(
    saved: "report.Result", figure_name: str, items: list[str] | None, scale: str | None
) -> Any:
    """Plot one scale of a folder of irtcat scale, the first if ``scale`` is None."""
    banks, tables = saved.value["banks"], saved.value["tables"]
    if not banks:
        raise InputError(f"{saved.path}: no scale could be built, so there is nothing to plot.")
    if scale is None:
        scale = next(iter(banks))
    _check_choice("--scale", scale, banks)
    if figure_name in ("information", "curves"):
        return _bank_figure(banks[scale], figure_name, items)
    table = tables.get(f"{scale}_{'abilities' if figure_name == 'abilities' else 'curves'}")
    if table is None:
        tables_needed = f"{scale}_curves.csv or {scale}_abilities.csv"
        raise InputError(f"{saved.path}: no table {tables_needed} in it.")
    if figure_name == "abilities":
        return plot.ability_against_correct(table)
    rows = table[table["status"] == figure_name]  # "retained" or "removed", the empirical curves
    if not len(rows):
        raise InputError(f"{saved.path}: no item of {scale} was {figure_name}.")
    return plot.empirical_curves(rows, items)
