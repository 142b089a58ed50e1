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

DRAWINGS = {
    "bank": ("curves", "information"),
    "scores": ("ranked",),
    "predictions": ("ranked",),
    "board": ("ranking",),
    "gaps": ("gaps",),
    "headroom": ("headroom",),
    "scale": ("information", "curves", "retained", "removed", "abilities"),
}
"""What there is to draw of each kind of result; the first by default."""

OPTIONS = {
    "items": ("curves", "information", "retained", "removed"),
    "metric": ("ranking",),
    "estimator": ("ranking", "gaps"),
    "scale": ("scale",),
}
"""What the options are for: drawings, or a kind of result."""


def command(
    result: Annotated[
        str,
        typer.Argument(
            metavar="RESULT",
            help="A bank, a table of irtcat score, predict, leaderboard or headroom, or a folder "
            "of irtcat scale.",
        ),
    ],
    out: Annotated[Path, typer.Option("--out", "-o", help="Draw here (.png, .svg or .pdf).")],
    what: Annotated[
        str | None,
        typer.Option(
            help="Of a bank curves or information; of scales information, curves, retained, "
            "removed or abilities; ranked, ranking, gaps and headroom of their tables."
        ),
    ] = None,
    items: Annotated[
        str | None, typer.Option(help="Draw these items only: ids with commas between.")
    ] = None,
    metric: Annotated[
        str | None,
        typer.Option(
            help="What is drawn against k: a column of irtcat leaderboard's table; by default "
            "kendall."
        ),
    ] = None,
    estimator: Annotated[str | None, typer.Option(help="Draw this estimator only.")] = None,
    scale: Annotated[
        str | None, typer.Option(help="Which scale of the folder; the first by default.")
    ] = None,
    as_json: arguments.Json = False,
) -> None:
    """Draw a saved result as a figure."""
    from irtcat import plot, report
    from irtcat._checks import InputError

    plot.check_figure_path(out)
    use_compilation_cache()
    read = report.read(result)
    if read.kind not in DRAWINGS:
        known = ", ".join(report.KINDS[kind] for kind in DRAWINGS)
        raise InputError(f"{result}: {report.KINDS[read.kind]}; figures are of {known}.")
    chosen = DRAWINGS[read.kind][0] if what is None else what
    arguments.choose("--what", chosen, DRAWINGS[read.kind])
    given = {"items": items, "metric": metric, "estimator": estimator, "scale": scale}
    for name, value in given.items():
        if value is not None and not {chosen, read.kind} & set(OPTIONS[name]):
            raise typer.BadParameter(
                f"it is not for {chosen} of {report.KINDS[read.kind]}.", param_hint=f"--{name}"
            )
    wanted = None if items is None else [name.strip() for name in items.split(",")]
    if read.kind == "scale":
        figure = _of_scale(read, chosen, wanted, scale)
    elif read.kind == "bank":
        figure = _of_bank(read.value, chosen, wanted)
    elif chosen == "ranked":
        figure = plot.ranked(read.value)
    elif chosen == "ranking":
        figure = plot.rank_correlation(read.value, metric or "kendall", estimator)
    elif chosen == "gaps":
        keys = ["strategy", "estimator", "n_items"]
        figure = plot.reliable_gaps(read.value.set_index(keys), estimator)
    else:
        figure = plot.headroom(read.value.set_index(read.value.columns[0]))
    plot.save(figure, out)
    if as_json:
        emit_json({"out": out, "kind": read.kind, "what": chosen})
        return
    say(f"Drew {chosen} of {report.KINDS[read.kind]} to {out}")


def _of_bank(bank: Any, what: str, items: list[str] | None) -> Any:
    """A bank's figure."""
    from irtcat import plot

    if what == "curves":
        return plot.item_curves(bank, items)
    return plot.information_curve(bank if items is None else bank.subset(items))


def _of_scale(read: "Result", what: str, items: list[str] | None, name: str | None) -> Any:
    """A figure of one scale of a folder."""
    from irtcat import plot
    from irtcat._checks import InputError

    banks, tables = read.value["banks"], read.value["tables"]
    if not banks:
        raise InputError(f"{read.path}: no scale could be made; there is nothing to draw.")
    stem = next(iter(banks)) if name is None else name
    arguments.choose("--scale", stem, banks)
    if what in ("information", "curves"):
        return _of_bank(banks[stem], what, items)
    table = tables.get(f"{stem}_{'abilities' if what == 'abilities' else 'curves'}")
    if table is None:
        raise InputError(f"{read.path}: no table {stem}_curves.csv or {stem}_abilities.csv in it.")
    if what == "abilities":
        return plot.ability_against_correct(table)
    own = table[table["status"] == what]
    if not len(own):
        raise InputError(f"{read.path}: no item of {stem} was {what}.")
    return plot.empirical_curves(own, items)
