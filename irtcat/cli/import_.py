"""``irtcat import``."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from irtcat.cli import _input as arguments
from irtcat.cli._output import emit_json, say, show, write_csv
from irtcat.cli._session import progress, warn

if TYPE_CHECKING:
    from irtcat.io import Logs

EXAMPLE = (
    "irtcat import logs --out responses.npz --report report.csv",
    "irtcat describe responses.npz",
)
SHOWN = 5
"""Skipped files that are listed in warnings."""


def command(
    logs: Annotated[
        Path,
        typer.Argument(
            metavar="LOGS",
            help="A log of an evaluation harness, or a folder of them (see --format).",
        ),
    ],
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="Save the responses here (.npz).")
    ] = None,
    tasks: Annotated[str | None, typer.Option(help="Only these tasks, comma-separated.")] = None,
    metric: Annotated[
        str | None, typer.Option(help="Metric; several, comma-separated, in order of preference.")
    ] = None,
    filter: Annotated[
        str | None, typer.Option(help="Filter of lm-eval (split of HELM), in the same way.")
    ] = None,
    scorer: Annotated[str | None, typer.Option(help="Scorer of Inspect, in the same way.")] = None,
    runs: Annotated[
        str, typer.Option(help="For models run more than once: latest, mean or separate.")
    ] = "latest",
    incomplete: Annotated[
        str, typer.Option(help="Logs of runs that did not end: skip, keep or refuse.")
    ] = "skip",
    log_format: Annotated[
        str,
        typer.Option(
            "--format",
            help="auto, lm-eval, inspect, every-eval-ever, helm, lighteval, or one of a package.",
        ),
    ] = "auto",
    report: Annotated[
        Path | None, typer.Option(help="Write a table of all files and why some are unused (CSV).")
    ] = None,
    as_json: arguments.Json = False,
) -> None:
    """Read logs of evaluation harnesses into one response file."""
    from irtcat._checks import argument_error
    from irtcat._files import check_target
    from irtcat.io.logs import INCOMPLETE, LOG_FORMATS, RUNS, read_logs

    arguments.choose("--runs", runs, RUNS)
    arguments.choose("--incomplete", incomplete, INCOMPLETE)
    arguments.choose("--format", log_format, ("auto", *LOG_FORMATS))
    for target in (out, report):
        if target is not None:
            check_target(target)
    if out is not None and out.suffix != ".npz":
        raise argument_error("out", "a file name that ends in .npz", str(out))
    with progress("reading logs") as show_progress:
        imported = read_logs(
            logs,
            log_format,
            tasks=_names(tasks),
            metric=_names(metric),
            filter=_names(filter),
            scorer=_names(scorer),
            runs=runs,
            incomplete=incomplete,
            progress=show_progress,
            max_bytes=arguments.max_bytes(),
        )
    if out is not None:
        imported.responses.save(out)
    if report is not None:
        write_csv(imported.report.to_frame(), report)
    if as_json:
        responses = imported.responses
        size = {
            "n_subjects": responses.n_subjects,
            "n_items": responses.n_items,
            "kind": responses.kind,
        }
        size |= {"n_missing": responses.n_missing}
        emit_json({"out": out, "report": report, **size, **imported.report.to_dict()})
        return
    _print(imported)
    for kind, path in (("responses", out), ("report", report)):
        if path is not None:
            say(f"Wrote the {kind} to {path}")


def _names(text: str | None) -> list[str] | None:
    """Parse a comma-separated list of names."""
    return None if text is None else [name.strip() for name in text.split(",")]


def _print(imported: "Logs") -> None:
    """Print the runs and choices, and warn about skipped files."""
    say(imported.responses.summary())
    by_task = imported.report.runs.groupby(["task", "metric"], sort=False)
    table = by_task.agg(
        runs=("file", "size"), responses=("responses", "sum"), mean=("mean", "mean")
    )
    show(table.reset_index())
    for choice in imported.report.choices:
        if choice.others:
            say(f"Chosen: {choice}")
    for note in imported.report.notes:
        say(f"Note: {note}")
    if imported.report.no_logs:
        say(f"Not logs: {imported.report.name_others()}")
    for file in imported.report.skipped[:SHOWN]:
        warn(f"skipped: {file.reason}")
    if len(imported.report.skipped) > SHOWN:
        more = len(imported.report.skipped) - SHOWN
        warn(f"{more} more files were skipped; --report lists all of them.")
