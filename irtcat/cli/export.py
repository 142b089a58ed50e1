"""``irtcat export``."""

from pathlib import Path
from typing import Annotated, Any

import typer

from irtcat.cli import _input as arguments
from irtcat.cli._output import emit_json, records, say, to_terminal

EXAMPLE = (
    "irtcat select -k 3 --responses dataset:lsat7 --out items.csv",
    "irtcat export items.csv --to ids --out ids.txt",
    "irtcat export items.csv --to inspect --task quiz.py",
)

EXPORTS_HELP = "lm-eval, inspect, ids or every-eval-ever"


def command(
    subset: Annotated[
        str,
        typer.Argument(metavar="SUBSET", help="What irtcat select wrote, or a CSV with item."),
    ],
    to: Annotated[str, typer.Option(help=f"{EXPORTS_HELP}.")] = "ids",
    responses: Annotated[
        str | None,
        typer.Option("--responses", help="What irtcat import wrote: the items' tasks and samples."),
    ] = None,
    bank: Annotated[
        str | None, typer.Option(help="A bank fitted to them, which has the same.")
    ] = None,
    items: Annotated[
        Path | None,
        typer.Option(help="CSV table of the items (ids first) with task and sample_id or doc_id."),
    ] = None,
    task: Annotated[
        str | None, typer.Option(help="The task of all items; of Inspect also FILE or FILE@NAME.")
    ] = None,
    model: Annotated[str, typer.Option(help="The model named in the printed command.")] = "MODEL",
    out: Annotated[Path | None, typer.Option("--out", "-o", help="Write to this file.")] = None,
    as_json: arguments.Json = False,
) -> None:
    """Write a subset for a harness to run.

    The command that runs just these items is printed.
    """
    from irtcat._files import check_target
    from irtcat.harness import EXPORTS, export

    arguments.choose("--to", to, EXPORTS)
    if out is not None:
        check_target(out)
    places = arguments.item_places(responses, bank, items)
    made = export(arguments.read_subset(subset), to, places, task)
    commands = made.commands(out, model)
    if out is not None:
        made.write(out)
    if as_json:
        table: Any = made.to_frame()
        emit_json({"to": to, "out": out, "tasks": made.tasks, "text": made.text,
                   "commands": commands, "items": records(table)})  # fmt: skip
        return
    if out is None:
        end = "" if made.text.endswith("\n") else "\n"
        if to_terminal():
            say(made.text, end=end)
        else:  # into a file or a pipe, exactly
            print(made.text, end=end)
    else:
        say(f"{made}; wrote them to {out}")
    for line in commands:
        say(line)
    if to == "inspect" and "[" in made.text:
        say("Inspect may warn that ids with brackets are not found: they are patterns, and are.")
