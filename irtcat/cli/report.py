"""``irtcat report``."""

from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from irtcat.cli import _input as arguments
from irtcat.cli._output import emit_json, say
from irtcat.cli._session import read_key, use_compilation_cache

EXAMPLE = (
    "irtcat fit dataset:lsat7 --out bank.npz",
    "irtcat score bank.npz dataset:lsat7 --out scores.csv",
    "irtcat report bank.npz scores.csv --responses dataset:lsat7 --out report.html",
)


def command(
    results: Annotated[
        list[str],
        typer.Argument(
            metavar="RESULTS...",
            help="Banks, tables, folders and stores that the other commands wrote; detected.",
        ),
    ],
    out: Annotated[Path, typer.Option("--out", "-o", help="Write the page here (.html).")],
    title: Annotated[str, typer.Option(help="Heading of the page.")] = "Evaluation report",
    responses: arguments.ResponsesOption = None,
    key_file: Annotated[
        Path | None,
        typer.Option(help="File with the key of the stores; or set IRTCAT_STORE_KEY to the key."),
    ] = None,
    as_json: arguments.Json = False,
    format: arguments.Format = None,
    subject: arguments.SubjectColumn = "subject",
    item: arguments.ItemColumn = "item",
    response: arguments.ResponseColumn = "response",
    duplicates: arguments.Duplicates = "refuse",
    trials: arguments.Trials = None,
) -> None:
    """Show results on one page, a file for any browser.

    With --responses (the whole benchmark's) true scores stand beside predicted ones, and the data
    are checked.
    """
    from irtcat import report
    from irtcat._files import check_target
    from irtcat.cat import Store

    check_target(out)
    use_compilation_cache()
    read = [report.read(each) for each in results]
    key = read_key(key_file)
    if key is not None:
        read = [
            replace(each, value=Store(each.value, create=False, key=key))
            if each.kind == "sessions" else each
            for each in read
        ]  # fmt: skip
    how = arguments.Reading(format, subject, item, response, duplicates, trials)
    known = None if responses is None else arguments.read(responses, how)
    report.write(read, out, title=title, responses=known)
    size = out.stat().st_size
    if as_json:
        kinds = [{"name": each.name, "kind": each.kind, "path": each.path} for each in read]
        emit_json({"out": out, "bytes": size, "results": kinds})
        return
    for each in read:
        say(f"{each.path}: {report.KINDS[each.kind]}")
    say(f"Wrote the report to {out} ({size / 1000:,.0f} kB)")
