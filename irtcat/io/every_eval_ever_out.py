"""Writing responses as Every Eval Ever: one file per evaluation and one of its samples."""

import hashlib
import json
import os
import re
import time
import uuid
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from irtcat._common.checks import argument_error
from irtcat._files.folders import make_folder
from irtcat._files.writing import replacing
from irtcat.responses import Responses
from irtcat.responses._conditions import condition_text

SCHEMA = "0.3.0"


def write_every_eval_ever(
    responses: Responses,
    folder: str | os.PathLike[str],
    *,
    task: str = "responses",
    metric: str | None = None,
    organization: str = "unknown",
    timestamp: float | None = None,
) -> list[Path]:
    """Write responses in the format Every Eval Ever, version 0.3.0.

    For each subject and task ``FOLDER/task/developer/model/ID.json`` (model, task, mean score)
    and ``ID_samples.jsonl`` (a row per response). `irtcat.io.read_logs` reads them back.
    `Responses` does not contain the models' answers: ``output.raw`` is empty.

    Args:
        responses: right/wrong or fractions; tasks, texts, targets, hashes and sample ids are
            taken from the items' metadata if present (as `read_logs` stores them).
        folder: created if necessary.
        task: name of the task of items without the metadata "task".
        metric: name of the score; by default that of the items' metadata, with its filter, or
            "score" if they have none.
        organization: who ran the evaluation.
        timestamp: seconds since 1970 written as the time of retrieval; now by default.

    Returns:
        The files written, each evaluation's file before that of its samples.

    Raises:
        InputError: the responses are neither right/wrong nor fractions, or cannot be written.

    Example:
        >>> import tempfile
        >>> r = Responses.from_array([[1, 0, 1]], subject_ids=["org/model"])
        >>> files = write_every_eval_ever(r, tempfile.mkdtemp(), task="quiz")
        >>> files[1].name.endswith("_samples.jsonl")
        True
        >>> from irtcat.io import read_logs
        >>> read_logs(files[1]).responses.values.tolist()
        [[1, 0, 1]]
    """
    if not (responses.is_binary or responses.is_fractional):
        raise argument_error("responses", "right/wrong or fractions", responses.kind)
    now = time.time() if timestamp is None else float(timestamp)
    root = Path(folder)
    tasks = _column(responses.items, "task", task)
    values = responses.to_numpy()
    written: list[Path] = []
    for row, subject in enumerate(responses.subject_ids.tolist()):
        for name in dict.fromkeys(tasks):
            mask = ~np.isnan(values[row]) & np.array([task == name for task in tasks])
            if mask.any():
                columns = np.flatnonzero(mask)
                about = {"task": name, "model": subject, "now": f"{now:.6f}"}
                about |= {"organization": organization, "values": values[row]}
                about |= _conditions(responses.items.iloc[columns], metric)
                written += _write(responses, row, columns, root, about)
    return written


def _conditions(items: pd.DataFrame, metric: str | None) -> dict[str, Any]:
    """The metric, its id with the filter, and the number of examples, if all items agree."""

    def agreed(name: str) -> Any:
        values = {value for value in _column(items, name, None) if value is not None}
        return values.pop() if len(values) == 1 else None

    known = metric is None and agreed("metric")
    name = str(known or metric or "score")
    source = agreed("filter") if known else None
    shots = agreed("num_fewshot")
    return {
        "metric": name,
        "result": f"{name}:{source}" if source is not None else name,
        "shots": None if shots is None else condition_text(shots),
    }


def _column(frame: pd.DataFrame, name: str, default: Any) -> list[Any]:
    """A column of metadata, with a default for missing values."""
    if name not in frame:
        return [default] * len(frame)
    return [default if pd.isna(value) else value for value in frame[name].tolist()]


def _safe(name: str) -> str:
    """Convert a name to a valid folder name."""
    return re.sub(r'[\\/:*?"<>|\s]+', "_", name).strip(".") or "_"


def _write(
    responses: Responses, row: int, columns: np.ndarray, root: Path, about: dict[str, Any]
) -> list[Path]:
    """Write the two files of one subject and task."""
    model, task = about["model"], about["task"]
    developer = model.split("/", 1)[0] if "/" in model else "unknown"
    evaluation = f"{task}/{model}/{about['now']}"
    name = str(uuid.UUID(bytes=hashlib.sha256(evaluation.encode()).digest()[:16], version=4))
    rows = _rows(responses, columns, evaluation, about)
    text = "".join(json.dumps(record, ensure_ascii=False) + "\n" for record in rows).encode()
    target = root / _safe(task) / _safe(developer) / _safe(model.removeprefix(f"{developer}/"))
    make_folder(target)
    files = [target / f"{name}.json", target / f"{name}_samples.jsonl"]
    document = _document(evaluation, developer, responses, row, about)
    document["evaluation_results"][0]["score_details"] = {
        "score": float(np.mean(about["values"][columns])),
        "uncertainty": {"num_samples": len(columns)},
    }
    document["detailed_evaluation_results"] = {
        "format": "jsonl",
        "file_path": f"data/{files[1].relative_to(root).as_posix()}",
        "hash_algorithm": "sha256",
        "checksum": hashlib.sha256(text).hexdigest(),
        "total_rows": len(rows),
    }
    contents = (json.dumps(document, indent=2, ensure_ascii=False).encode(), text)
    for path, content in zip(files, contents, strict=True):
        with replacing(path) as file:
            file.write(content)
    return files


def _document(
    evaluation: str, developer: str, responses: Responses, row: int, about: dict[str, Any]
) -> dict[str, Any]:
    """The JSON document about the evaluation."""
    harness, version = (
        str(_column(responses.subjects, name, "unknown")[row]) for name in ("harness", "version")
    )
    model = about["model"]
    config = {
        "evaluation_description": about["metric"],
        "metric_name": about["metric"],
        "metric_kind": "accuracy",
        "metric_unit": "proportion",
        "lower_is_better": False,
        "score_type": "continuous" if responses.is_fractional else "binary",
        "min_score": 0.0,
        "max_score": 1.0,
    }
    result = {
        "evaluation_result_id": about["result"],
        "evaluation_name": about["task"],
        "source_data": {"dataset_name": about["task"], "source_type": "other"},
        "metric_config": config,
    }
    if about["shots"] is not None:
        result["generation_config"] = {"additional_details": {"num_fewshot": about["shots"]}}
    return {
        "schema_version": SCHEMA,
        "evaluation_id": evaluation,
        "retrieved_timestamp": about["now"],
        "source_metadata": {
            "source_name": "irtcat",
            "source_type": "evaluation_run",
            "source_organization_name": about["organization"],
            "evaluator_relationship": "other",
        },
        "eval_library": {"name": harness, "version": version},
        "model_info": {
            "name": model,
            "id": model,
            "developer": developer,
            "additional_details": {"deployment_type": "unknown", "model_availability": "unknown"},
        },
        "evaluation_results": [result],
    }


def _rows(
    responses: Responses, columns: np.ndarray, evaluation: str, about: dict[str, Any]
) -> list[dict[str, Any]]:
    """The rows of the samples file, one per response."""
    items = responses.items
    texts, targets = _column(items, "text", ""), _column(items, "target", None)
    samples, hashes = _column(items, "sample", None), _column(items, "hash", None)
    out = []
    for column in columns.tolist():
        score = float(about["values"][column])
        item = str(responses.item_ids[column]).removeprefix(f"{about['task']}/")
        reference = [] if targets[column] is None else [str(targets[column])]
        known = "".join([str(texts[column]), *reference]) or item
        metadata = {"irtcat_item": str(responses.item_ids[column])}
        if hashes[column] is not None:
            metadata["doc_hash"] = str(hashes[column])
        out.append(
            {
                "schema_version": SCHEMA,
                "evaluation_id": evaluation,
                "model_id": about["model"],
                "evaluation_name": about["task"],
                "evaluation_result_id": about["result"],
                "sample_id": item if samples[column] is None else str(samples[column]),
                "sample_hash": hashlib.sha256(known.encode("utf-8", "replace")).hexdigest(),
                "interaction_type": "single_turn",
                "input": {"raw": str(texts[column]), "reference": reference},
                "output": {"raw": []},
                "answer_attribution": [],
                "evaluation": {"score": score, "is_correct": score == 1.0},
                "metadata": metadata,
            }
        )
    return out
