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
        typer.Argument(metavar="SUBSET", help="Output of irtcat select, or a CSV with item."),
    ],
    to: Annotated[str, typer.Option(help=f"{EXPORTS_HELP}.")] = "ids",
    responses: Annotated[
        str | None,
        typer.Option(
            "--responses", help="Output of irtcat import, with tasks and samples of items."
        ),
    ] = None,
    bank: Annotated[
        str | None, typer.Option(help="A bank fitted to such responses, instead of them.")
    ] = None,
    items: Annotated[
        Path | None,
        typer.Option(help="CSV table of the items (ids first) with task and sample_id or doc_id."),
    ] = None,
    task: Annotated[
        str | None, typer.Option(help="The task of all items; for Inspect also FILE or FILE@NAME.")
    ] = None,
    model: Annotated[str, typer.Option(help="The model named in the printed command.")] = "MODEL",
    out: Annotated[Path | None, typer.Option("--out", "-o", help="Write to this file.")] = None,
    as_json: arguments.Json = False,
) -> None:
    """Write a subset in a format that a harness can run.

    Also prints the command that runs only these items.
    """
    from irtcat._files import check_target
    from irtcat.harness import EXPORTS, export

    arguments.choose("--to", to, EXPORTS)
    if out is not None:
        check_target(out)
    sources = arguments.item_sources(responses, bank, items)
    exported = export(arguments.read_subset(subset), to, sources, task)
    commands = exported.commands(out, model)
    if out is not None:
        exported.write(out)
    if as_json:
        table: Any = exported.to_frame()
        emit_json({"to": to, "out": out, "tasks": exported.tasks, "text": exported.text,
                   "commands": commands, "items": records(table)})  # fmt: skip
        return
    if out is None:
        end = "" if exported.text.endswith("\n") else "\n"
        if to_terminal():
            say(exported.text, end=end)
        else:  # unchanged into a file or a pipe
            print(exported.text, end=end)
    else:
        say(f"{exported}; wrote them to {out}")
    for line in commands:
        say(line)
    if to == "inspect" and "[" in exported.text:
        say("Inspect may warn that ids with brackets are not found; as patterns they are.")
