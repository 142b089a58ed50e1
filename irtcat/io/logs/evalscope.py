"""Reviews of EvalScope: JSON lines for each model and subset of a benchmark."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from irtcat._common.checks import InputError, shorten
from irtcat._files.reading import read_json
from irtcat.io.logs.format import LogFile, LogFormat, Request, Run
from irtcat.io.logs.values import (
    as_object,
    as_text,
    iso_date,
    json_lines,
    message_text,
    objects_in,
    part_of,
)

FOLDER, REPORTS = "reviews", "reports"
STAMP = re.compile(r"(\d{4})(\d\d)(\d\d)_(\d\d)(\d\d)(\d\d)")
ROUNDED = 1e-4
"""Reports have four decimals."""


def _is_log(file: LogFile) -> bool:
    """By its keys, or its folder if a long prompt fills the start of the file."""
    if file.suffix != ".jsonl":
        return False
    in_folder = file.path.parent.parent.name == FOLDER and "index" in file.keys
    return in_folder or "sample_score" in file.keys or {"review_id", "choices"} <= file.keys


def stamp_date(text: str) -> str:
    """The date of a time stamp such as 20250117_154119; "" if it is none.

    Example:
        >>> stamp_date("20250117_154119"), stamp_date("outputs")
        ('2025-01-17T15:41:19', '')
    """
    match = STAMP.fullmatch(text)
    return iso_date("{}-{}-{}T{}:{}:{}".format(*match.groups())) if match else ""


def _read(path: Path, request: Request) -> Iterator[Run]:
    """Read one file of reviews: of EvalScope 1, or of earlier versions.

    Repeats of a sample have its group id, and are trials of the item.

    Raises:
        InputError: naming the file and the line, or the report that has another mean.
    """
    run = Run(path.stem, path.parent.name, str(path), date=stamp_date(path.parents[2].name))
    run.name_source = "log" if path.parent.parent.name == FOLDER else "folder"
    run.session = str(path.parents[2]) if run.name_source == "log" else ""
    for location, record in json_lines(path):
        if "sample_score" in record:
            _add_sample(run, record, location)
        else:
            _add_review(run, record, location)
    if not run.items.all:
        raise InputError(f"{path}: expected a line per sample. Got an empty file.")
    _compare(run, path, request.max_bytes)
    yield run


def _add_sample(run: Run, record: dict[str, Any], location: str) -> None:
    """Add a line of EvalScope 1."""
    sample = as_object(record["sample_score"], location, "sample_score")
    score = as_object(sample.get("score"), location, "score")
    values = as_object(score.get("value") or {}, location, "score.value")
    group = sample.get("group_id")
    key = as_text(record.get("index") if group is None else group, location, "index")
    messages = objects_in(record.get("messages"))
    asked = [message for message in messages if message.get("role") != "assistant"]
    text = message_text(asked) or record.get("input")
    item = run.item(key, sample=key, trust=2, text=text, target=record.get("target"))
    trial, number = sample.get("generation_index"), run.next_trial(item)
    trial = trial if isinstance(trial, int) else number
    if all(value is None for value in values.values()):
        run.unscored.append((item, trial))
    for metric, value in values.items():
        run.add(item, value, metric, location=location, trial=trial)


def _add_review(run: Run, record: dict[str, Any], location: str) -> None:
    """Add a line of earlier versions: the choices are repeats."""
    key = as_text(record.get("index", len(run.items.all)), location, "index")
    source = record.get("raw_input")
    item = run.item(key, sample=key, trust=2, text=part_of(source, "question") or source)
    if run.next_trial(item):
        raise InputError(f"{location}: the index {shorten(key)} occurs twice.")
    choices = record.get("choices")
    if not isinstance(choices, list):
        raise InputError(f"{location}: expected choices to be a list. Got {shorten(choices)}.")
    for trial, choice in enumerate(choices):
        choice = as_object(choice, location, "a choice")
        result = as_object(choice.get("review") or {}, location, "review").get("result")
        for metric, value in (result if isinstance(result, dict) else {"acc": result}).items():
            run.add(item, value, str(metric), location=location, trial=trial)


def _compare(run: Run, path: Path, max_bytes: int) -> None:
    """Take the model's name from the report of the run; raise if its means are others."""
    folder = path.parents[2] / REPORTS / path.parent.name
    for file in sorted(folder.glob("*.json")) if path.parent.parent.name == FOLDER else ():
        report = as_object(read_json(file, max_bytes), str(file), "the report")
        prefix = f"{report.get('dataset_name') or file.stem}_"
        if not run.task.startswith(prefix):
            continue
        run.model = str(report.get("model_name") or run.model)
        for metric, subset in _subsets(report):
            column = ("", metric.removeprefix("mean_"))
            answers = run.columns.get(column)
            if answers is None or answers.flaw or subset.get("name") != run.task[len(prefix) :]:
                continue
            total, mean = subset.get("score"), float(answers.values.mean())
            if isinstance(total, (int, float)) and abs(mean - total) > ROUNDED:
                must = f"expected a mean {column[1]} of {total:g}, as stated in {file}"
                raise InputError(f"{path}: {must}. Got {mean:.4f}.")


def _subsets(report: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Metric and totals of each subset in a report."""
    for metric in objects_in(report.get("metrics")):
        for category in objects_in(metric.get("categories")):
            for subset in objects_in(category.get("subsets")):
                yield str(metric.get("name")), subset


EVALSCOPE = LogFormat(
    "evalscope",
    _is_log,
    _read,
    "reviews of EvalScope (``reviews/MODEL/*.jsonl``)",
    "https://evalscope.readthedocs.io",
    is_beside=lambda file: (
        file.path.parent.parent.name == REPORTS and {"dataset_name", "metrics"} <= file.keys
    ),
)
