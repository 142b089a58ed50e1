"""Results of LiveCodeBench, ``*_eval_all.json``: the graded answers to each question."""

import re
from collections.abc import Iterator
from pathlib import Path

from irtcat._common.checks import InputError, shorten
from irtcat.io.logs.format import LogFile, LogFormat, Request, Run
from irtcat.io.logs.values import as_text, json_rows, show_settings

TASK, METRIC = "livecodebench", "pass@1"
NAME = re.compile(
    r"(?:Scenario\.)?(?P<scenario>[a-z]+)_(?P<n>\d+)_(?P<temperature>[\d.]+)(?P<cot>_cot)?_eval_all"
)
NEAR = 1e-6


def _is_log(file: LogFile) -> bool:
    is_graded = "graded_list" in file.keys and "question_id" in file.keys
    named = file.path.name.endswith("_eval_all.json") and "question_id" in file.keys
    return file.suffix == ".json" and (is_graded or named)


def _read(path: Path, request: Request) -> Iterator[Run]:
    """Read one file ``output/MODEL/SCENARIO_N_TEMPERATURE_eval_all.json``.

    The answers to a question are trials of an item.

    Raises:
        InputError: naming the file and the question; or that its pass@1 is another.
    """
    match = NAME.fullmatch(path.stem)
    run = Run(f"{TASK}-{match['scenario']}" if match else TASK, path.parent.name, str(path))
    if match:
        run.settings = show_settings((name, match[name]) for name in ("temperature", "cot"))
    for location, row in json_rows(path, request.max_bytes, "a question"):
        key = as_text(row.get("question_id"), location, "question_id")
        if row.get("test_id") is not None:
            key = f"{key}/{row['test_id']}"
        item = run.item(key, sample=key, trust=2, text=row.get("question_content"))
        if run.next_trial(item):
            raise InputError(f"{location}: the question {shorten(key)} occurs twice.")
        graded = row.get("graded_list")
        if not isinstance(graded, list) or not graded:
            raise InputError(f"{location}: expected graded_list to be a list. Got {graded!r}.")
        total = row.get(METRIC)
        if isinstance(total, float) and abs(graded.count(True) / len(graded) - total) > NEAR:
            got = f"{graded.count(True)} of {len(graded)} are right"
            raise InputError(f"{location}: expected {METRIC} to be {total:g}. But {got}.")
        for trial, value in enumerate(graded):
            run.add(item, value, METRIC, location=location, trial=trial)
    yield run


LIVECODEBENCH = LogFormat(
    "livecodebench",
    _is_log,
    _read,
    "results of LiveCodeBench (``MODEL/*_eval_all.json``)",
    "https://livecodebench.github.io",
    samples="names",
)
