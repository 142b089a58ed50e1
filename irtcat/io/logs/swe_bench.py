"""Reports of SWE-bench runs, and lists of resolved instances of other benchmarks of agents."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from irtcat._common.checks import InputError, shorten
from irtcat._files.reading import read_json
from irtcat.io.logs.format import LogFile, LogFormat, Request, Run
from irtcat.io.logs.values import as_object, as_text

METRIC = "resolved"
RIGHT = ("resolved_ids", "resolved")
WRONG = ("unresolved_ids", "empty_patch_ids", "error_ids", "no_generation", "no_logs", "failed_ids")
"""Lists of instances that are not resolved: the benchmark counts a patch that is empty, or that
cannot be applied, as such."""

ALL = ("submitted_ids", "completed_ids")
NOT_RUN = "incomplete_ids"
FAILED = ("error_ids", "infra_failure_ids")
INSTANCE = re.compile(r"[\w.-]+__[\w.-]+-\d+")
SPLITS = ("lite", "verified", "test", "multimodal")
SUBMISSION = "results"
"""The folder in which a submission to SWE-bench has its ``results.json``."""


def _is_log(file: LogFile) -> bool:
    if file.suffix != ".json" or not file.head.lstrip().startswith("{"):
        return False
    known = (
        {"resolved_ids"},
        {"resolved_instances", "completed_ids"},
        {"resolved", "no_generation"},
    )
    return any(keys <= file.keys for keys in known)


def _read(path: Path, request: Request) -> Iterator[Run]:
    """Read one report: a run of a model.

    Where only resolved instances are listed, those that other runs of the task list are not.

    Raises:
        InputError: an instance is in lists that contradict each other.
    """
    document = as_object(read_json(path, request.max_bytes), str(path), "the report")
    right = _ids(document, RIGHT, path)
    wrong = {name: ids for name in WRONG if (ids := _ids(document, (name,), path))}
    not_run = _ids(document, (NOT_RUN,), path)
    several = set(right) & {name for ids in wrong.values() for name in ids}
    if several:
        raise InputError(f"{path}: {shorten(sorted(several))} is resolved and not resolved.")
    names = {*right, *not_run, *(name for ids in wrong.values() for name in ids)}
    names |= {name for key in ALL for name in _ids(document, (key,), path)}
    if not names:
        raise InputError(f"{path}: expected ids of instances. Got empty lists.")
    is_swe = all(INSTANCE.fullmatch(name) for name in names)
    task = _task(path) if is_swe else path.parent.name or "agent"
    run = Run(task, str(document.get("model") or _model(path)), str(path))
    for name in sorted(names - set(not_run)):
        run.add(run.item(name, sample=name, trust=2), float(name in right), METRIC)
    run.unscored = [(run.item(name, sample=name, trust=2), 0) for name in sorted(not_run)]
    run.lists_right_only = not {"unresolved_ids", *ALL} & document.keys()
    if failed := {name for key in FAILED for name in _ids(document, (key,), path)} - set(right):
        n = f"{len(failed)} instances that ended in an error"
        run.notes = (f"{path}: {n} are not resolved, as the benchmark counts them.",)
    yield run


def _ids(document: dict[str, Any], names: tuple[str, ...], path: Path) -> list[str]:
    """The ids in the first of these lists that is there."""
    ids: Any = next((document[name] for name in names if name in document), [])
    if not isinstance(ids, list):
        raise InputError(f"{path}: expected {names[0]} to be a list of ids. Got {shorten(ids)}.")
    return [as_text(name, str(path), "an id") for name in ids]


def _is_submission(path: Path) -> bool:
    return path.parent.name == SUBMISSION and path.stem == SUBMISSION


def _task(path: Path) -> str:
    """The benchmark: submissions are in folders ``SPLIT/RUN/results``."""
    split = path.parents[2].name if _is_submission(path) else ""
    return f"swe-bench-{split}" if split in SPLITS else "swe-bench"


def _model(path: Path) -> str:
    """The model, in the name of the file (MODEL.RUN.json) or of the submission's folder."""
    if _is_submission(path):
        return path.parents[1].name
    if path.stem in ("report", "results"):
        return path.parent.name
    return (path.stem.rpartition(".")[0] or path.stem).replace("__", "/")


SWE_BENCH = LogFormat(
    "swe-bench",
    _is_log,
    _read,
    "reports of SWE-bench (MODEL.RUN.json, ``results/results.json``) and others with resolved_ids",
    "https://www.swebench.com",
    samples="names",
)
