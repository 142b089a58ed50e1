"""Every Eval Ever: JSON lines of one row per model, sample and metric."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from irtcat._common.checks import InputError, shorten
from irtcat._common.numbers import whole_number_in
from irtcat._files.reading import read_json
from irtcat.io.logs.format import LogFile, LogFormat, Request, Run, Skipped, json_with
from irtcat.io.logs.values import (
    CutError,
    as_object,
    as_text,
    iso_date,
    json_lines,
    model_arguments,
    part_of,
    show_settings,
)


def _is_log(file: LogFile) -> bool:
    if file.suffix not in (".jsonl", ".ndjson") or not file.head.strip():
        return False
    return {"evaluation_id", "sample_id"} <= file.keys or file.path.name.endswith("_samples.jsonl")


def _alone(paths: list[Path], logs: list[Path] | None) -> Iterator[Skipped]:
    for path in paths:
        names = (f"{path.stem}_samples.jsonl", f"{path.stem}.jsonl")
        if not any(path.with_name(name).is_file() for name in names):
            reason = f"{path}: there are totals only, no {names[0]} beside it."
            yield Skipped(str(path), reason)


def _read(path: Path, request: Request) -> Iterator[Run]:
    """Read one file of samples, and the file about the evaluation beside it if there is one.

    ``X_samples.jsonl`` belongs to ``X.json``. There is a run per evaluation (usually one).

    Raises:
        InputError: naming the file and the invalid line.
    """
    evaluations = _evaluation(path)
    runs: dict[str, Run] = {}
    earlier: dict[tuple[Any, ...], Any] = {}
    count, cut = 0, ""
    try:
        for location, record in json_lines(path):
            count += 1
            name = as_text(record.get("evaluation_id"), location, "evaluation_id")
            if name not in runs:
                runs[name] = _run(path, name, record, location, evaluations.get(name, {}))
            _add_row(runs[name], record, location, earlier)
    except CutError as error:
        if not request.keep or not runs:
            raise
        cut = str(error)
    if not runs:
        raise CutError(f"{path}: expected a line per sample and metric. Got an empty file.")
    for name, run in runs.items():
        run.cut = cut or _compare(run, evaluations.get(name, {}), count if len(runs) == 1 else None)
    yield from runs.values()


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
    name_of_data = part_of(results[0], "source_data", "dataset_name") if results else None
    if isinstance(name_of_data, str) and not task:
        task = name_of_data
    task = task or as_text(record.get("evaluation_name"), location, "evaluation_name")
    library = evaluation.get("eval_library") or {}
    run = Run(task, model, str(path), session=name)
    stamp = evaluation.get("evaluation_timestamp") or evaluation.get("retrieved_timestamp")
    run.date = iso_date(stamp)
    run.version = f"{library.get('name', '')} {library.get('version', '')}".strip()
    # Every result repeats the settings; converters note the number of examples as text.
    configs = (r["generation_config"] for r in results if "generation_config" in r)
    generation = next(configs, None)
    run.settings = show_settings((("generation_config", generation),))
    shots = part_of(generation, "additional_details", "num_fewshot")
    run.num_fewshot = whole_number_in(str(shots))
    run.arguments = _arguments(evaluation.get("model_info") or {})
    for result in results:
        if part_of(result, "metric_config", "lower_is_better") is True:
            run.lower_is_better.add(_column(result.get("evaluation_result_id"), result)[1])
    return run


def _arguments(model: dict[str, Any]) -> dict[str, str]:
    """Arguments of the model among its further details, where a converter keeps them."""
    details = model.get("additional_details")
    named = {name: part_of(details, name) for name in ("revision", "dtype", "peft")}
    return {**model_arguments(part_of(details, "model_args")), **model_arguments(named)}


def _column(result: Any, record: dict[str, Any]) -> tuple[str, str]:
    """Filter and metric of a row: its result id is "metric" or "metric:filter"."""
    if not isinstance(result, str) or not result:
        result = str(record.get("evaluation_name") or "")
    metric, _, filter_name = result.partition(":")
    other = part_of(record, "metadata", "filter")
    return filter_name or (other if isinstance(other, str) else ""), metric


def _add_row(
    run: Run, record: dict[str, Any], location: str, earlier: dict[tuple[Any, ...], Any]
) -> None:
    """Add one row: a sample's score by one metric."""
    if (model := record.get("model_id")) != run.model:
        must = f"expected model_id {shorten(run.model)}"
        raise InputError(f"{location}: {must}. Got {shorten(model)}.")
    sample = as_text(record.get("sample_id"), location, "sample_id")
    column = _column(record.get("evaluation_result_id"), record)
    evaluation = as_object(record.get("evaluation"), location, "evaluation")
    score = evaluation.get("score", evaluation.get("is_correct"))
    digest = _hash(record)
    pair = (run.session, column, sample, digest)
    if pair in earlier and earlier[pair][1] == score:
        return
    if pair in earlier:
        first = earlier[pair][0].rpartition(", ")[2]
        conflict = f"sample {shorten(sample)} has another score in {first}"
        raise InputError(f"{location}: {conflict}.")
    earlier[pair] = (location, score)
    if record.get("error") is not None:
        note = f"{run.file}: samples that ended in an error have the score given in the log."
        run.notes = (note,)
    text, reference = (part_of(record, "input", name) for name in ("raw", "reference"))
    if isinstance(reference, list) and len(reference) == 1:
        reference = reference[0]
    key = f"{digest}{_repeat_suffix(earlier, run, digest, sample)}" if digest else sample
    item = run.item(key, sample=sample, trust=1, hash=digest, text=text, target=reference)
    run.add(item, score, column[1], source=column[0], location=location)


def _repeat_suffix(earlier: dict[tuple[Any, ...], Any], run: Run, digest: str, sample: str) -> str:
    """Distinguishes equal documents: empty for the first sample, then #2, #3, …."""
    samples = earlier.setdefault((run.session, digest), {})
    number = samples.setdefault(sample, len(samples) + 1)
    return f"#{number}" if number > 1 else ""


def _hash(record: dict[str, Any]) -> str:
    """The document's hash, if the row was converted from a log of lm-eval; else empty."""
    digest = part_of(record, "metadata", "doc_hash")
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
        total, result = part_of(row, "score_details", "score"), row.get("evaluation_result_id")
        columns = [c for c in run.columns if result in (c[1], f"{c[1]}:{c[0]}")]
        if part_of(row, "metric_config", "metric_kind") != "accuracy" or len(columns) != 1:
            continue
        source = "the evaluation's file"
        if message := run.wrong_mean(columns[0], total, json.dumps(result), source):
            raise InputError(message)
    return ""


EVERY_EVAL_EVER = LogFormat(
    "every-eval-ever",
    _is_log,
    _read,
    "JSON lines of Every Eval Ever, one per model, sample and metric",
    "https://github.com/evaleval/every_eval_ever",
    is_beside=json_with("evaluation_id", "evaluation_results"),
    alone=_alone,
)
