"""``irtcat import``."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

from irtcat.cli import _input
from irtcat.cli._command import Options, Output, command_of
from irtcat.cli._options import argument, check_target, option, output
from irtcat.cli._session import progress, warn

if TYPE_CHECKING:
    from irtcat.io import Logs

EXAMPLE = (
    "irtcat import logs --out responses.npz --report report.csv",
    "irtcat describe responses.npz",
)
SHOWN = 5
"""Skipped files that are listed in warnings."""


def _check_archive(path: Path) -> None:
    """Raise if responses cannot be saved to a file."""
    from irtcat._checks import argument_error

    check_target(path)
    if path.suffix != ".npz":
        raise argument_error("out", "a file name that ends in .npz", str(path))


@command_of(
    "irtcat.io.read_logs",
    argument("logs", of="path", type=Path,
             help="A log of lm-eval, Inspect, HELM or Every Eval Ever, or a folder of them."),
    output("out", "--out", "-o", writes=_check_archive, help="Save the responses here (.npz)."),
    option("tasks", parse=_input.split_texts, help="Only these tasks, comma-separated."),
    option("metric", parse=_input.split_texts,
           help="Metric; several, comma-separated, in order of preference."),
    option("filter", parse=_input.split_texts),
    option("scorer", parse=_input.split_texts),
    option("runs", choices="irtcat.io.logs.RUNS",
           help="For models run more than once: {names}."),
    option("incomplete", choices="irtcat.io.logs.INCOMPLETE",
           help="Logs of runs that did not end: {names}."),
    option("log_format", "--format", of="format",
           choices="auto irtcat.io.LOG_FORMATS"),
    output("report", help="Write a table of all files and why some are unused (CSV)."),
    compiles=False,
)  # fmt: skip
def command(o: Options) -> Output:
    """Read logs of evaluation harnesses into one response file."""
    with progress("reading logs") as show_progress:
        logs = o.call(progress=show_progress, max_bytes=_input.max_bytes())
    responses = logs.responses
    o.write("out", responses, "responses")
    o.write("report", logs.report.to_frame(), "report")
    document = {"out": o.out, "report": o.report}
    document |= {n: getattr(responses, n) for n in ("n_subjects", "n_items", "kind", "n_missing")}
    document |= logs.report.to_dict()
    return Output(document, [] if o.as_json else _text(logs))


def _text(logs: "Logs") -> list[Any]:
    """The runs and choices; skipped files are warnings."""
    report = logs.report
    for file in report.skipped[:SHOWN]:
        warn(f"skipped: {file.reason}")
    if len(report.skipped) > SHOWN:
        more = len(report.skipped) - SHOWN
        warn(f"{more} more files were skipped; --report lists all of them.")
    by_task = report.runs.groupby(["task", "metric"], sort=False)
    table = by_task.agg(
        runs=("file", "size"), responses=("responses", "sum"), mean=("mean", "mean")
    )
    lines = [f"Chosen: {choice}" for choice in report.choices if choice.others]
    lines += [f"Note: {note}" for note in report.notes]
    lines += [f"Not logs: {report.name_others()}"] if report.no_logs else []
    return [str(logs.responses.summary()), table.reset_index(), *lines]
