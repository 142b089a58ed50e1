"""Samples files of lmms-eval, whose metrics may be objects with a score."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from irtcat._common.checks import InputError, shorten
from irtcat._files.reading import read_json
from irtcat.io.logs.evalscope import stamp_date
from irtcat.io.logs.format import LogFile, LogFormat, Request, Run
from irtcat.io.logs.lm_eval import NOT_METRICS
from irtcat.io.logs.values import (
    as_object,
    as_text,
    json_lines,
    model_arguments,
    part_of,
    score_number,
)

SAMPLES = re.compile(r"(?P<stamp>\d{8}_\d{6})_samples_(?P<task>.+)\.jsonl")
RESULTS = re.compile(r"\d{8}_\d{6}_results\.json")

SCORES = (
    *("score", "acc", "accuracy", "correct", "is_correct", "true_false", "exact_match"),
    "overall",
)
"""Entries of a metric that may be its score; others are ids, categories, answers."""

OTHER_KEYS = {*NOT_METRICS, "input", "input_media", "token_counts", "submission", "metadata"}


def _is_log(file: LogFile) -> bool:
    return SAMPLES.fullmatch(file.path.name) is not None


def _read(path: Path, request: Request) -> Iterator[Run]:
    """Read one file ``DATE_samples_TASK.jsonl``; the results file beside it names the model.

    Raises:
        InputError: naming the file and the line; or what metrics without a score hold.
    """
    match = SAMPLES.fullmatch(path.name)
    task, stamp = (match["task"], match["stamp"]) if match else (path.stem, "")
    run = Run(task, path.parent.name, str(path), date=stamp_date(stamp), session=stamp)
    run.name_source = "folder"
    results = path.with_name(f"{stamp}_results.json")
    if results.is_file():
        _add_results(run, request.results(path, results, _document))
    else:
        run.lacks_results = True
    without: dict[str, Any] = {}
    for location, record in json_lines(path):
        number = as_text(record.get("doc_id"), location, "doc_id")
        # The hashes of documents with images differ by run: the numbers distinguish documents.
        text, target = record.get("input"), record.get("target")
        item = run.item(f"doc{number}", sample=number, trust=2, text=text, target=target)
        if run.next_trial(item):
            raise InputError(f"{location}: document {number} occurs twice, and no filter is named.")
        is_scored = False
        for metric, value in record.items():
            if metric in OTHER_KEYS:
                continue
            score = _score(value)
            if score is None:
                without.setdefault(metric, value)
                continue
            run.add(item, score, metric, location=location)
            is_scored = True
        if not is_scored:
            run.unscored.append((item, 0))
    if not run.columns:
        found = "; ".join(
            f"{metric} has {shorten(list(value) if isinstance(value, dict) else value)}"
            for metric, value in without.items()
        )
        must = f"expected a metric with a number, or one of {', '.join(SCORES)} in it"
        raise InputError(f"{path}: {must}. Got {found or 'no metric'}.")
    yield run


def _score(value: Any) -> float | None:
    """The score in the value of a metric; None if it has none."""
    if isinstance(value, dict):
        value = next((value[name] for name in SCORES if name in value), None)
    return score_number(value) if isinstance(value, (bool, int, float)) else None


def _document(path: Path) -> dict[str, Any]:
    return as_object(read_json(path), str(path), "the results")


def _add_results(run: Run, document: dict[str, Any]) -> None:
    """Take the model and what is known of the task from the results file."""
    if name := document.get("model_name"):
        run.model, run.name_source = str(name), "log"
    run.arguments = model_arguments(part_of(document, "config", "model_args"))
    shots, higher = (part_of(document, key, run.task) for key in ("n-shot", "higher_is_better"))
    run.num_fewshot = shots if isinstance(shots, int) else None
    if isinstance(higher, dict):
        run.lower_is_better = {metric for metric, up in higher.items() if up is False}


LMMS_EVAL = LogFormat(
    "lmms-eval",
    _is_log,
    _read,
    "samples files of lmms-eval, run with ``--log_samples``",
    "https://github.com/EvolvingLMMs-Lab/lmms-eval",
    is_beside=lambda file: RESULTS.fullmatch(file.path.name) is not None,
    unit="samples",
)
