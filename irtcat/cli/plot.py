"""``irtcat plot``."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from irtcat.cli import _input as arguments
from irtcat.cli._output import emit_json, say
from irtcat.cli._session import use_compilation_cache

if TYPE_CHECKING:
    from irtcat.report import Result

EXAMPLE = (
    "irtcat fit dataset:lsat7 --out bank.npz",
    "irtcat plot bank.npz --what information --out information.svg",
)

FIGURES = {
    "bank": ("curves", "information"),
    "scores": ("ranked",),
    "predictions": ("ranked",),
    "board": ("ranking",),
    "gaps": ("gaps",),
    "headroom": ("headroom",),
    "scale": ("information", "curves", "retained", "removed", "abilities"),
}
"""The figures of each kind of result; the first is the default."""

OPTIONS = {
    "items": ("curves", "information", "retained", "removed"),
    "metric": ("ranking",),
    "estimator": ("ranking", "gaps"),
    "scale": ("scale",),
}
"""The figures, or kinds of results, to which each option applies."""


def command(
    result: Annotated[
        str,
        typer.Argument(
            metavar="RESULT",
            help="A bank, a table of irtcat score, predict, leaderboard or headroom, or a folder "
            "of irtcat scale.",
        ),
    ],
    out: Annotated[Path, typer.Option("--out", "-o", help="File to write (.png, .svg or .pdf).")],
    what: Annotated[
        str | None,
        typer.Option(
            help="For a bank curves or information; for scales information, curves, retained, "
            "removed or abilities; for tables ranked, ranking, gaps or headroom."
        ),
    ] = None,
    items: Annotated[
        str | None, typer.Option(help="Plot only these items: comma-separated ids.")
    ] = None,
    metric: Annotated[
        str | None,
        typer.Option(
            help="Metric to plot against k: a column of irtcat leaderboard's table; by default "
            "kendall."
        ),
    ] = None,
    estimator: Annotated[str | None, typer.Option(help="Plot only this estimator.")] = None,
    scale: Annotated[
        str | None, typer.Option(help="Scale of the folder to plot; by default the first.")
    ] = None,
    as_json: arguments.Json = False,
) -> None:
    """Plot a saved result."""
    from irtcat import plot, report
    from irtcat._checks import InputError

    plot.check_figure_path(out)
    use_compilation_cache()
    saved = report.read(result)
    if saved.kind not in FIGURES:
        known = ", ".join(report.KINDS[kind] for kind in FIGURES)
        raise InputError(f"{result}: {report.KINDS[saved.kind]}; figures exist for {known}.")
    figure_name = FIGURES[saved.kind][0] if what is None else what
    arguments.choose("--what", figure_name, FIGURES[saved.kind])
    options = {"items": items, "metric": metric, "estimator": estimator, "scale": scale}
    for name, value in options.items():
        if value is not None and not {figure_name, saved.kind} & set(OPTIONS[name]):
            raise typer.BadParameter(
                f"does not apply to {figure_name} of {report.KINDS[saved.kind]}.",
                param_hint=f"--{name}",
            )
    item_ids = None if items is None else [name.strip() for name in items.split(",")]
    if saved.kind == "scale":
        figure = _scale_figure(saved, figure_name, item_ids, scale)
    elif saved.kind == "bank":
        figure = _bank_figure(saved.value, figure_name, item_ids)
    elif figure_name == "ranked":
        figure = plot.ranked(saved.value)
    elif figure_name == "ranking":
        figure = plot.rank_correlation(saved.value, metric or "kendall", estimator)
    elif figure_name == "gaps":
        keys = ["strategy", "estimator", "n_items"]
        figure = plot.reliable_gaps(saved.value.set_index(keys), estimator)
    else:
        figure = plot.headroom(saved.value.set_index(saved.value.columns[0]))
    plot.save(figure, out)
    if as_json:
        emit_json({"out": out, "kind": saved.kind, "what": figure_name})
        return
    say(f"Drew {figure_name} of {report.KINDS[saved.kind]} to {out}")


def _bank_figure(bank: Any, figure_name: str, items: list[str] | None) -> Any:
    """Plot a bank."""
    from irtcat import plot

    if figure_name == "curves":
        return plot.item_curves(bank, items)
    return plot.information_curve(bank if items is None else bank.subset(items))


def _scale_figure(
    saved: "Result", figure_name: str, items: list[str] | None, name: str | None
) -> Any:
    """Plot one scale of a folder."""
    from irtcat import plot
    from irtcat._checks import InputError

    banks, tables = saved.value["banks"], saved.value["tables"]
    if not banks:
        raise InputError(f"{saved.path}: no scale could be built, so there is nothing to plot.")
    stem = next(iter(banks)) if name is None else name
    arguments.choose("--scale", stem, banks)
    if figure_name in ("information", "curves"):
        return _bank_figure(banks[stem], figure_name, items)
    table = tables.get(f"{stem}_{'abilities' if figure_name == 'abilities' else 'curves'}")
    if table is None:
        raise InputError(f"{saved.path}: no table {stem}_curves.csv or {stem}_abilities.csv in it.")
    if figure_name == "abilities":
        return plot.ability_against_correct(table)
    rows = table[table["status"] == figure_name]
    if not len(rows):
        raise InputError(f"{saved.path}: no item of {stem} was {figure_name}.")
    return plot.empirical_curves(rows, items)
