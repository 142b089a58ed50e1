"""Every Eval Ever: JSON lines of one row per model, sample and metric."""

import json
import re
from pathlib import Path
from typing import Any

import numpy as np

from irtcat._checks import InputError, shorten
from irtcat._reading import numbered_lines, parse_json, read_json
from irtcat.io._logs import (
    About,
    CutError,
    Items,
    Rows,
    Run,
    as_object,
    as_text,
    clip,
    iso_date,
    score_number,
    show_settings,
)

__all__ = ["read_every_eval_ever"]

NEAR = 1e-9
"""Largest accepted difference of a mean from the log's own (rounding of long sums)."""


def read_every_eval_ever(path: Path, items: Items, keep: bool = False) -> list[Run]:
    """Read one file of samples, and the file about the evaluation beside it if there is one.

    Args:
        path: the ``.jsonl`` file; ``X_samples.jsonl`` belongs to ``X.json``.
        items: the items of all runs, which are added to.
        keep: read the complete lines of a truncated file.

    Returns:
        A run per evaluation in the file (usually one).

    Raises:
        InputError: naming the file and the invalid line.
    """
    evaluations = _evaluation(path)
    runs: dict[str, Run] = {}
    rows: dict[str, Rows] = {}
    earlier: dict[tuple[Any, ...], Any] = {}
    count, cut = 0, ""
    for number, raw, ended in numbered_lines(path):
        location = f"{path}, line {number}"
        try:
            record = as_object(parse_json(raw, location), location, "a line")
        except InputError as error:
            if ended:
                raise error from None
            cut = f"{location}: the file is cut off in the middle of this line."
            if keep and runs:
                break
            raise CutError(cut) from None
        count += 1
        name = as_text(record.get("evaluation_id"), location, "evaluation_id")
        if name not in runs:
            runs[name] = _run(path, name, record, location, evaluations.get(name, {}))
            rows[name] = Rows()
        _add_row(runs[name], rows[name], record, location, items, earlier, number)
    if not runs:
        raise CutError(f"{path}: expected a line per sample and metric. Got an empty file.")
    for name, run in runs.items():
        run.columns = rows[name].columns()
        run.cut = cut or _compare(run, evaluations.get(name, {}), count if len(runs) == 1 else None)
        if run.cut and not keep:
            raise CutError(run.cut)
    return list(runs.values())


def _evaluation(path: Path) -> dict[str, dict[str, Any]]:
    """The document about the evaluation by its id; empty if there is none."""
    beside = path.with_name(re.sub(r"(_samples)?\.jsonl$", "", path.name) + ".json")
    if not beside.is_file():
        return {}
    document = as_object(read_json(beside), str(beside), "the document")
    name = as_text(document.get("evaluation_id"), str(beside), "evaluation_id")
    results = document.get("evaluation_results", [])
    if not isinstance(results, list) or not all(isinstance(result, dict) for result in results):
        raise InputError(f"{beside}: expected evaluation_results to be a list of objects.")
    for key in ("eval_library", "model_info", "detailed_evaluation_results"):
        as_object(document.get(key) or {}, str(beside), key)
    return {name: document}


def _run(
    path: Path, name: str, record: dict[str, Any], location: str, evaluation: dict[str, Any]
) -> Run:
    """Create the run of an evaluation."""
    model = as_text(record.get("model_id"), location, "model_id")
    results = evaluation.get("evaluation_results", [])
    task = name.split(f"/{model}/", 1)[0] if f"/{model}/" in name else ""
    source = results[0].get("source_data") if results else None
    if isinstance(source, dict) and isinstance(source.get("dataset_name"), str) and not task:
        task = source["dataset_name"]
    task = task or as_text(record.get("evaluation_name"), location, "evaluation_name")
    library = evaluation.get("eval_library") or {}
    run = Run(file=str(path), format="every-eval-ever", task=task, model=model, session=name)
    run.date = iso_date(
        evaluation.get("evaluation_timestamp") or evaluation.get("retrieved_timestamp")
    )
    run.version = f"{library.get('name', '')} {library.get('version', '')}".strip()
    run.settings = show_settings((("generation_config", _generation(results)),))
    for result in results:
        config = result.get("metric_config")
        if isinstance(config, dict) and config.get("lower_is_better") is True:
            run.lower_is_better.add(_column(result.get("evaluation_result_id"), result)[1])
    return run


def _generation(results: list[dict[str, Any]]) -> Any:
    """Settings of the generation, which every result repeats."""
    configs = (r["generation_config"] for r in results if "generation_config" in r)
    return next(configs, None)


def _column(result: Any, record: dict[str, Any]) -> tuple[str, str]:
    """Filter and metric of a row: its result id is "metric" or "metric:filter"."""
    if not isinstance(result, str) or not result:
        result = str(record.get("evaluation_name") or "")
    metric, _, filter_name = result.partition(":")
    metadata = record.get("metadata")
    if not filter_name and isinstance(metadata, dict) and isinstance(metadata.get("filter"), str):
        filter_name = metadata["filter"]
    return filter_name, metric


def _add_row(
    run: Run,
    rows: Rows,
    record: dict[str, Any],
    location: str,
    items: Items,
    earlier: dict[tuple[Any, ...], Any],
    number: int,
) -> None:
    """Add one row: a sample's score by one metric."""
    if (model := record.get("model_id")) != run.model:
        raise InputError(
            f"{location}: expected model_id {shorten(run.model)}. Got {shorten(model)}."
        )
    sample = as_text(record.get("sample_id"), location, "sample_id")
    column = _column(record.get("evaluation_result_id"), record)
    evaluation = as_object(record.get("evaluation"), location, "evaluation")
    score = evaluation.get("score", evaluation.get("is_correct"))
    digest = _hash(record)
    pair = (run.session, column, sample, digest)
    if pair in earlier and earlier[pair][1] == score:
        return
    if pair in earlier:
        conflict = f"sample {shorten(sample)} has another score in line {earlier[pair][0]}"
        raise InputError(f"{location}: {conflict}.")
    earlier[pair] = (number, score)
    if record.get("error") is not None:
        note = f"{run.file}: samples that ended in an error have the score given in the log."
        run.notes = (note,)
    source = record.get("input")
    source = source if isinstance(source, dict) else {}
    reference = source.get("reference")
    if isinstance(reference, list) and len(reference) == 1:
        reference = reference[0]
    key = f"{digest}{_repeat_suffix(earlier, run, digest, sample)}" if digest else sample
    about = About(task=run.task, key=key, format=run.format, hash=digest, sample=sample, trust=1)
    about.text, about.target = clip(source.get("raw")), clip(reference)
    rows.add(column, items.add(about), score, location)


def _repeat_suffix(earlier: dict[tuple[Any, ...], Any], run: Run, digest: str, sample: str) -> str:
    """Distinguishes equal documents: empty for the first sample, then #2, #3, …."""
    samples = earlier.setdefault((run.session, digest), {})
    number = samples.setdefault(sample, len(samples) + 1)
    return f"#{number}" if number > 1 else ""


def _hash(record: dict[str, Any]) -> str:
    """The document's hash, if the row was converted from a log of lm-eval; else empty."""
    metadata = record.get("metadata")
    digest = metadata.get("doc_hash") if isinstance(metadata, dict) else None
    return digest if isinstance(digest, str) and re.fullmatch(r"[0-9a-f]{32,128}", digest) else ""


def _compare(run: Run, evaluation: dict[str, Any], count: int | None) -> str:
    """Compare the rows with the evaluation's file; a sentence if their number differs, else ""."""
    total_rows = (evaluation.get("detailed_evaluation_results") or {}).get("total_rows")
    if isinstance(total_rows, int) and count is not None and total_rows != count:
        return (
            f"{run.file}: expected {total_rows} rows, as stated in the evaluation's file. "
            f"Got {count}."
        )
    for row in evaluation.get("evaluation_results", []):
        details, config = row.get("score_details"), row.get("metric_config")
        total = score_number(details.get("score")) if isinstance(details, dict) else None
        mean = isinstance(config, dict) and config.get("metric_kind") == "accuracy"
        result = row.get("evaluation_result_id")
        columns = [c for c in run.columns if result in (c[1], f"{c[1]}:{c[0]}")]
        if total is None or not mean or len(columns) != 1:
            continue
        answers = run.columns[columns[0]]
        if answers.flaw or np.isnan(answers.values).any() or np.isnan(total):
            continue
        if abs(float(np.mean(answers.values)) - total) > NEAR:
            got = f"{float(np.mean(answers.values)):.6g}"
            raise InputError(
                f"{run.file}: expected a mean {json.dumps(result)} of {total:.6g}, as stated "
                f"in the evaluation's file. Got {got}."
            )
    return ""
