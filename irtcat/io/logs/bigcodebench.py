"""Results of BigCodeBench: solutions of each problem, and whether they pass its tests."""

from collections.abc import Iterator
from pathlib import Path

from irtcat._common.checks import InputError, shorten
from irtcat.io.logs.evalplus import METRIC, PASS, results_stem, solutions
from irtcat.io.logs.format import LogFile, LogFormat, Request, Run
from irtcat.io.logs.values import iso_date

TASK = "bigcodebench"
REVISIONS = ("", "main")
"""Revisions that are not written to the model's name."""


def _is_log(file: LogFile) -> bool:
    is_of_inspect = "run_id" in file.keys
    is_known = {"eval", "status", "solution"} <= file.keys and not is_of_inspect
    return file.suffix == ".json" and is_known


def _read(path: Path, request: Request) -> Iterator[Run]:
    """Read one file of results; the solutions of a problem are trials of an item.

    Its name says model, revision and part: MODEL--REVISION--bigcodebench-PART--….

    Raises:
        InputError: naming the file and the problem.
    """
    document, found = solutions(path, request.max_bytes)
    parts = results_stem(path).split("--")
    at = next((n for n, part in enumerate(parts) if part.startswith(TASK)), len(parts))
    names = [part for part in parts[:at] if part != "skip_prefill"]
    has_revision = len(names) > 1 and names[-1] in REVISIONS
    run = Run(
        parts[at] if at < len(parts) else TASK,
        "/".join(names[:-1] if has_revision else names),
        str(path),
        date=iso_date(document.get("date")),
    )
    for problem, location, entry in found:
        status = entry.get("status")
        if not isinstance(status, str):
            raise InputError(f"{location}: expected a status such as pass. Got {shorten(status)}.")
        item = run.item(problem, sample=problem, trust=2)
        run.add(item, status == PASS, METRIC, location=location, trial=run.next_trial(item))
    yield run


BIGCODEBENCH = LogFormat(
    "bigcodebench",
    _is_log,
    _read,
    "results of BigCodeBench (``*_eval_results.json``)",
    "https://github.com/bigcode-project/bigcodebench",
    samples="names",
)
