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
    score_number,
    show_settings,
    when,
)

__all__ = ["read_every_eval_ever"]

NEAR = 1e-9


def read_every_eval_ever(path: Path, items: Items, keep: bool = False) -> list[Run]:
    """Read one file of samples, with the evaluation's own file beside it where there is one.

    Args:
        path: the ``.jsonl`` file; ``X_samples.jsonl`` belongs to ``X.json``.
        items: the items of all runs, added to.
        keep: take what is there of a file that was cut off.

    Returns:
        A run per evaluation in the file (usually one).

    Raises:
        InputError: naming the file and line at fault.
    """
    whole = _evaluation(path)
    runs: dict[str, Run] = {}
    rows: dict[str, Rows] = {}
    seen: dict[tuple[Any, ...], Any] = {}
    count, cut = 0, ""
    for number, raw, ended in numbered_lines(path):
        place = f"{path}, line {number}"
        try:
            record = as_object(parse_json(raw, place), place, "a line")
        except InputError as error:
            if ended:
                raise error from None
            cut = f"{place}: the file is cut off in the middle of this line."
            if keep and runs:
                break
            raise CutError(cut) from None
        count += 1
        name = as_text(record.get("evaluation_id"), place, "evaluation_id")
        if name not in runs:
            runs[name] = _run(path, name, record, place, whole.get(name, {}))
            rows[name] = Rows()
        _add_row(runs[name], rows[name], record, place, items, seen, number)
    if not runs:
        raise CutError(f"{path}: expected a line per sample and metric. Got an empty file.")
    for name, run in runs.items():
        run.columns = rows[name].columns()
        run.cut = cut or _compare(run, whole.get(name, {}), count if len(runs) == 1 else None)
        if run.cut and not keep:
            raise CutError(run.cut)
    return list(runs.values())


def _evaluation(path: Path) -> dict[str, dict[str, Any]]:
    """The document about the evaluation, by its id; nothing where there is none."""
    beside = path.with_name(re.sub(r"(_samples)?\.jsonl$", "", path.name) + ".json")
    if not beside.is_file():
        return {}
    document = as_object(read_json(beside), str(beside), "the document")
    name = as_text(document.get("evaluation_id"), str(beside), "evaluation_id")
    results = document.get("evaluation_results", [])
    if not isinstance(results, list) or not all(isinstance(each, dict) for each in results):
        raise InputError(f"{beside}: expected evaluation_results to be a list of objects.")
    for key in ("eval_library", "model_info", "detailed_evaluation_results"):
        as_object(document.get(key) or {}, str(beside), key)
    return {name: document}


def _run(path: Path, name: str, record: dict[str, Any], place: str, whole: dict[str, Any]) -> Run:
    """The run that an evaluation is."""
    model = as_text(record.get("model_id"), place, "model_id")
    results = whole.get("evaluation_results", [])
    task = name.split(f"/{model}/", 1)[0] if f"/{model}/" in name else ""
    source = results[0].get("source_data") if results else None
    if isinstance(source, dict) and isinstance(source.get("dataset_name"), str) and not task:
        task = source["dataset_name"]
    task = task or as_text(record.get("evaluation_name"), place, "evaluation_name")
    library = whole.get("eval_library") or {}
    run = Run(str(path), "every-eval-ever", task, model, session=name)
    run.date = when(whole.get("evaluation_timestamp") or whole.get("retrieved_timestamp"))
    run.version = f"{library.get('name', '')} {library.get('version', '')}".strip()
    run.settings = show_settings((("generation_config", _generation(results)),))
    for each in results:
        config = each.get("metric_config")
        if isinstance(config, dict) and config.get("lower_is_better") is True:
            run.lower_is_better.add(_column(each.get("evaluation_result_id"), each)[1])
    return run


def _generation(results: list[dict[str, Any]]) -> Any:
    """Settings of the generation, which each result repeats."""
    return next(
        (each["generation_config"] for each in results if "generation_config" in each), None
    )


def _column(result: Any, record: dict[str, Any]) -> tuple[str, str]:
    """Filter and metric of a row: its result id is "metric" or "metric:filter"."""
    if not isinstance(result, str) or not result:
        result = str(record.get("evaluation_name") or "")
    metric, _, part = result.partition(":")
    metadata = record.get("metadata")
    if not part and isinstance(metadata, dict) and isinstance(metadata.get("filter"), str):
        part = metadata["filter"]
    return part, metric


def _add_row(
    run: Run,
    rows: Rows,
    record: dict[str, Any],
    place: str,
    items: Items,
    seen: dict[tuple[Any, ...], Any],
    number: int,
) -> None:
    """One row: a sample's score by one metric."""
    if (model := record.get("model_id")) != run.model:
        raise InputError(f"{place}: expected model_id {shorten(run.model)}. Got {shorten(model)}.")
    sample = as_text(record.get("sample_id"), place, "sample_id")
    column = _column(record.get("evaluation_result_id"), record)
    evaluation = as_object(record.get("evaluation"), place, "evaluation")
    score = evaluation.get("score", evaluation.get("is_correct"))
    digest = _hash(record)
    pair = (run.session, column, sample, digest)
    if pair in seen and seen[pair][1] == score:
        return
    if pair in seen:
        what = f"sample {shorten(sample)} has another score in line {seen[pair][0]}"
        raise InputError(f"{place}: {what}.")
    seen[pair] = (number, score)
    if record.get("error") is not None:
        note = f"{run.file}: samples that ended in an error have the score that the log gives them."
        run.notes = (note,)
    given = record.get("input")
    given = given if isinstance(given, dict) else {}
    reference = given.get("reference")
    if isinstance(reference, list) and len(reference) == 1:
        reference = reference[0]
    key = f"{digest}{_again(seen, run, digest, sample)}" if digest else sample
    about = About(run.task, key, run.format, digest, sample, 1)
    about.text, about.target = clip(given.get("raw")), clip(reference)
    rows.add(column, items.place(about), score, place)


def _again(seen: dict[tuple[Any, ...], Any], run: Run, digest: str, sample: str) -> str:
    """What tells equal documents apart: nothing for the first sample, then #2, #3, …."""
    samples = seen.setdefault((run.session, digest), {})
    turn = samples.setdefault(sample, len(samples) + 1)
    return f"#{turn}" if turn > 1 else ""


def _hash(record: dict[str, Any]) -> str:
    """The document's hash of lm-eval, where the row was made of such a log."""
    metadata = record.get("metadata")
    found = metadata.get("doc_hash") if isinstance(metadata, dict) else None
    return found if isinstance(found, str) and re.fullmatch(r"[0-9a-f]{32,128}", found) else ""


def _compare(run: Run, whole: dict[str, Any], count: int | None) -> str:
    """A sentence where the rows are not those that the evaluation's file counts; else empty."""
    said = (whole.get("detailed_evaluation_results") or {}).get("total_rows")
    if isinstance(said, int) and count is not None and said != count:
        return f"{run.file}: expected {said} rows, as the evaluation's file says. Got {count}."
    for each in whole.get("evaluation_results", []):
        details, config = each.get("score_details"), each.get("metric_config")
        total = score_number(details.get("score")) if isinstance(details, dict) else None
        mean = isinstance(config, dict) and config.get("metric_kind") == "accuracy"
        result = each.get("evaluation_result_id")
        same = [c for c in run.columns if result in (c[1], f"{c[1]}:{c[0]}")]
        if total is None or not mean or len(same) != 1:
            continue
        answers = run.columns[same[0]]
        if answers.flaw or np.isnan(answers.values).any() or np.isnan(total):
            continue
        if abs(float(np.mean(answers.values)) - total) > NEAR:
            got = f"{float(np.mean(answers.values)):.6g}"
            raise InputError(
                f"{run.file}: expected a mean {json.dumps(result)} of {total:.6g}, as the "
                f"evaluation's file says. Got {got}."
            )
    return ""
