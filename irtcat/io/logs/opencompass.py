"""Result files of OpenCompass with details, a file for each model and dataset."""

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from irtcat._common.checks import InputError, shorten
from irtcat._files.reading import read_json
from irtcat.io.logs.evalscope import stamp_date
from irtcat.io.logs.format import LogFile, LogFormat, Request, Run
from irtcat.io.logs.values import as_object, score_number

CORRECT = ("correct", "is_correct", "cascade_correct")
"""Keys of a detail that say whether it is right; with several runs of the dataset, in a list."""

TARGETS, TEXTS = ("references", "answer", "gold"), ("prompt", "question")
ROUNDED = 0.01
"""Accuracies are percentages, some of two decimals."""


def _is_log(file: LogFile) -> bool:
    if file.suffix != ".json" or "details" not in file.keys or "eval" in file.keys:
        return False
    return file.path.parent.parent.name == "results" or not file.keys.isdisjoint(CORRECT)


def _read(path: Path, request: Request) -> Iterator[Run]:
    """Read one file ``results/MODEL/DATASET.json``.

    Raises:
        InputError: naming the file and the detail, or the accuracy that the details do not have.
    """
    document = as_object(read_json(path, request.max_bytes), str(path), "the results")
    date = stamp_date(path.parents[2].name)
    run = Run(path.stem, path.parent.name, str(path), date=date, session=str(path.parents[2]))
    seen: set[str] = set()
    for key, detail in _details(document.get("details"), path):
        location = f"{path}, details {key}"
        detail = as_object(detail, location, "the detail")
        seen |= set(detail)
        text, target = (
            next((detail[n] for n in names if detail.get(n)), None) for names in (TEXTS, TARGETS)
        )
        item = run.item(key, sample=key, trust=2, text=text, target=target)
        found = next((detail[name] for name in CORRECT if name in detail), None)
        for trial, value in enumerate(found if isinstance(found, list) else [found]):
            run.add_answer(item, value, "accuracy", location=location, trial=trial)
    if not run.columns:
        must = f"expected details with {', '.join(CORRECT)}"
        raise InputError(f"{path}: {must}. Got {shorten(sorted(seen))}.")
    total = score_number(document.get("accuracy"))
    answers = run.columns["", "accuracy"]
    if total is not None and total == total and not answers.flaw and not run.unscored:
        mean = 100 * float(answers.values.mean())
        if abs(mean - total) > ROUNDED:
            raise InputError(f"{path}: expected an accuracy of {total:g}, as stated. Got {mean:g}.")
    yield run


def _details(details: Any, path: Path) -> Iterable[tuple[str, Any]]:
    """The details with their keys: numbers, or the name that a list of them has."""
    if isinstance(details, dict):
        return [(key, value) for key, value in details.items() if key != "type"]
    if not isinstance(details, list):
        advice = "Run OpenCompass with --dump-eval-details"
        got = shorten(details)
        raise InputError(f"{path}: expected details of each sample. Got {got}. {advice}.")
    named = (d.get("example_abbr") if isinstance(d, dict) else None for d in details)
    return [(str(name or n), d) for n, (name, d) in enumerate(zip(named, details, strict=True))]


OPENCOMPASS = LogFormat(
    "opencompass",
    _is_log,
    _read,
    "results of OpenCompass, run with ``--dump-eval-details`` (``results/MODEL/DATASET.json``)",
    "https://opencompass.readthedocs.io",
)
