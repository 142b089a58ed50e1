"""``irtcat report``."""

from dataclasses import replace
from typing import Any

from irtcat import cat, plot, report
from irtcat.cli._command import Options, Output, command_of
from irtcat.cli._input import read_key
from irtcat.cli._options import ESTIMAND, KEY_FILE, MISMATCH, RESPONSES_OPTION, argument, result
from irtcat.cli._output import fields_of
from irtcat.cli.plot import FIGURES

EXAMPLE = (
    "irtcat fit dataset:lsat7",
    "irtcat score bank.npz dataset:lsat7",
    "irtcat report bank.npz scores.csv --responses dataset:lsat7",
)


def _read(paths: list[str]) -> list[Any]:
    """Read the results."""
    return [report.read(path) for path in paths]


@command_of(
    "irtcat.report.write",
    argument(
        "results",
        "RESULTS...",
        type=list[str],
        read=_read,
        help="Banks, tables, folders and stores written by the other commands.",
    ),
    result("report.html", help="File to write (.html)."),
    "title",
    RESPONSES_OPTION,
    MISMATCH,
    replace(
        ESTIMAND,
        help="Whose scores those of sessions, and the groups of the responses, are: {names}; by "
        "default the models' over reruns where models are evaluated, else on items like these.",
    ),
    KEY_FILE,
    csv=False,
)
def command(o: Options) -> Output:
    """Write a report of results as one HTML file.

    With --responses (of the full benchmark) the report compares predicted with true scores, checks
    the data, and predicts the scores of adaptive sessions from them.
    """
    if o.out is None:  # under --json no file has a default
        raise o.usage_error("out", "give the file to write.")
    results, key = o.results, read_key(o.key_file)
    if key is not None:
        results = [
            replace(result, value=cat.Store(result.value, create=False, key=key))
            if result.kind == "sessions"
            else result
            for result in results
        ]
    values = fields_of(o, "title", "responses", "mismatch", "estimand", "progress")
    report.write(results, o.out, **values)
    size = o.out.stat().st_size
    kinds = [{"name": r.name, "kind": r.kind, "path": r.path} for r in results]
    lines = [f"{result.path}: {report.KINDS[result.kind]}" for result in results]
    lines += [f"Wrote the report to {o.out} ({size / 1000:,.0f} kB); open it in a browser"]
    drawn = next((r.path for r in o.results if r.kind in FIGURES and r.path is not None), None)
    after = () if drawn is None or not plot.can_draw() else ("plot", drawn)
    return Output({"out": o.out, "bytes": size, "results": kinds}, lines, next=after)
