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
            help="Banks, tables, folders and stores written by the other commands.",
        ),
    ],
    out: Annotated[Path, typer.Option("--out", "-o", help="File to write (.html).")],
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
    """Write a report of results as one HTML file.

    With --responses (of the full benchmark) the report compares predicted with true scores and
    checks the data.
    """
    from irtcat import report
    from irtcat._files import check_target
    from irtcat.cat import Store

    check_target(out)
    use_compilation_cache()
    loaded = [report.read(path) for path in results]
    key = read_key(key_file)
    if key is not None:
        loaded = [
            replace(result, value=Store(result.value, create=False, key=key))
            if result.kind == "sessions" else result
            for result in loaded
        ]  # fmt: skip
    options = arguments.Reading.of(locals())
    full_responses = None if responses is None else arguments.read(responses, options)
    report.write(loaded, out, title=title, responses=full_responses)
    size = out.stat().st_size
    if as_json:
        kinds = [{"name": r.name, "kind": r.kind, "path": r.path} for r in loaded]
        emit_json({"out": out, "bytes": size, "results": kinds})
        return
    for result in loaded:
        say(f"{result.path}: {report.KINDS[result.kind]}")
    say(f"Wrote the report to {out} ({size / 1000:,.0f} kB)")
