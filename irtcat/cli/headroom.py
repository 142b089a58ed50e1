"""``irtcat headroom``."""

from pathlib import Path
from typing import Annotated

import typer

from irtcat.cli import _input as arguments
from irtcat.cli._output import emit_json, records, say, show, write_csv
from irtcat.cli._session import use_compilation_cache

EXAMPLE = (
    "irtcat fit dataset:lsat7 --out bank.npz",
    "irtcat headroom bank.npz --responses dataset:lsat7 --out headroom.csv",
)


def command(
    bank: Annotated[str, typer.Argument(metavar="BANK", help="Bank written by irtcat fit.")],
    groups: Annotated[
        str | None, typer.Option(help="Column of the items' metadata that names the test set.")
    ] = None,
    items: Annotated[
        Path | None, typer.Option(help="CSV of the items, ids first, with that column.")
    ] = None,
    responses: arguments.ResponsesOption = None,
    theta: Annotated[
        float | None,
        typer.Option(help="Ability of the best subject, instead of --responses."),
    ] = None,
    out: arguments.Out = None,
    figure: Annotated[
        Path | None, typer.Option(help="Draw the test sets here (.png, .svg, .pdf).")
    ] = None,
    as_json: arguments.Json = False,
    format: arguments.Format = None,
    subject: arguments.SubjectColumn = "subject",
    item: arguments.ItemColumn = "item",
    response: arguments.ResponseColumn = "response",
    duplicates: arguments.Duplicates = "refuse",
    trials: arguments.Trials = None,
) -> None:
    """Show which test sets still distinguish the strongest subjects."""
    from irtcat import leaderboard, plot
    from irtcat._files import check_target

    if (responses is None) == (theta is None):
        raise typer.BadParameter("give --responses or --theta.", param_hint="--responses")
    if items is not None and groups is None:
        raise typer.BadParameter("name the column of --items.", param_hint="--groups")
    if out is not None:
        check_target(out)
    if figure is not None:
        plot.check_figure_path(figure)
    use_compilation_cache()
    options = arguments.Reading.of(locals())
    loaded = arguments.read_bank(bank)
    data = None if responses is None else arguments.read(responses, options)
    labels: str | list[object] | None = groups
    if items is not None and groups is not None:
        column = arguments.table_column(items, groups, "items")
        labels = column[~column.index.duplicated()].reindex(loaded.item_ids).tolist()
    table = leaderboard.headroom(loaded, labels, theta=theta, abilities=data)
    if out is not None:
        write_csv(table, out)
    if figure is not None:
        plot.save(plot.headroom(table), figure)
    if as_json:
        emit_json({"out": out, "figure": figure, "test_sets": records(table)})
        return
    show(table)
    for kind, path in (("table", out), ("figure", figure)):
        if path is not None:
            say(f"Wrote the {kind} to {path}")
