"""Results of EvalPlus (HumanEval+, MBPP+): several solutions of each problem, and their tests."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from irtcat._common.checks import InputError, shorten
from irtcat._files.reading import read_json
from irtcat.io.logs.format import LogFormat, Request, Run, json_with
from irtcat.io.logs.values import as_object, iso_date, show_settings

METRIC, PASS = "pass@1", "pass"
NAME = re.compile(r"(?P<stem>.*?)[._]?eval_results")
BACKEND = re.compile(r"(?P<model>.+)_(?P<backend>[a-z]+)_temp_(?P<temperature>[\d.]+)")
TASKS = {"HumanEval": "humaneval", "Mbpp": "mbpp"}


def results_stem(path: Path) -> str:
    """The name of the results without its ending: of the samples, or of their folder.

    Example:
        >>> results_stem(Path("humaneval/org--m_vllm_temp_0.0.eval_results.json"))
        'org--m_vllm_temp_0.0'
        >>> results_stem(Path("org--m/eval_results.json"))
        'org--m'
    """
    match = NAME.fullmatch(path.stem)
    return (match["stem"] if match else path.stem) or path.parent.name


def solutions(path: Path, max_bytes: int) -> tuple[dict[str, Any], list[tuple[str, str, Any]]]:
    """The document of results, and of each solution its problem, its location and what it holds.

    Raises:
        InputError: naming the file and the problem.
    """
    document = as_object(read_json(path, max_bytes), str(path), "the results")
    found = []
    for problem, entries in as_object(document.get("eval"), str(path), "eval").items():
        location = f"{path}, {problem}"
        if not isinstance(entries, list):
            raise InputError(f"{location}: expected a list of solutions. Got {shorten(entries)}.")
        found += [(problem, location, as_object(e, location, "a solution")) for e in entries]
    if not found:
        raise InputError(f"{path}: expected solutions of problems. Got none.")
    return document, found


def _read(path: Path, request: Request) -> Iterator[Run]:
    """Read one file of results; the solutions of a problem are trials of an item.

    The filter is "plus" (all tests) or "base" (those of the original benchmark alone).

    Raises:
        InputError: naming the file and the problem.
    """
    document, found = solutions(path, request.max_bytes)
    match = BACKEND.fullmatch(results_stem(path))
    run = Run(
        TASKS.get(found[0][0].split("/")[0], "evalplus"),
        (match["model"] if match else results_stem(path)).replace("--", "/"),
        str(path),
        date=iso_date(document.get("date")),
        settings=show_settings(match.groupdict().items()) if match else {},
        task_version=str(document.get("hash") or ""),
        order=("plus", "base"),
    )
    run.settings.pop("model", None)
    for problem, location, entry in found:
        item = run.item(problem, sample=problem, trust=2)
        trial = run.next_trial(item)
        base, plus = (_passed(entry.get(f"{tests}_status"), location) for tests in ("base", "plus"))
        run.add(item, base, METRIC, source="base", location=location, trial=trial)
        if plus is not None:
            run.add(item, base and plus, METRIC, source="plus", location=location, trial=trial)
    yield run


def _passed(status: Any, location: str) -> bool | None:
    """Whether a solution passed; None if it was not tested."""
    if status is not None and not isinstance(status, str):
        raise InputError(f"{location}: expected a status such as pass. Got {shorten(status)}.")
    return None if status is None else status == PASS


EVALPLUS = LogFormat(
    "evalplus",
    json_with("eval", "base_status"),
    _read,
    "results of EvalPlus (``*eval_results.json``)",
    "https://github.com/evalplus/evalplus",
    samples="names",
)
