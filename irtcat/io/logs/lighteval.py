"""Details files of lighteval, 0.11 and later (Parquet), with the results files of their runs."""

import os
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from irtcat._common.checks import InputError, brief, shorten
from irtcat._common.lazy import optional_module
from irtcat._files.reading import MOST_BYTES, read_json, too_large
from irtcat.io.logs.format import NEAR, Answers, LogFormat, Request, Run, Skipped
from irtcat.io.logs.lm_eval import STAMP, document_hash, is_results, spread_stamp
from irtcat.io.logs.values import (
    CutError,
    MissingExtraError,
    as_object,
    as_text,
    clip,
    model_arguments,
    objects_in,
    part_of,
    show_settings,
    version_text,
)
from irtcat.io.parquet import unpacked_bytes

DETAILS = re.compile(rf"details_(?P<task>.+)_(?P<stamp>{STAMP})\.parquet")
SETTINGS = (
    *("revision", "dtype", "quantization", "provider", "max_length", "max_model_length", "seed"),
    *("system_prompt", "override_chat_template", "add_special_tokens"),
    "multichoice_continuations_start_space",
)
ARGUMENTS = ("revision", "dtype", "quantization", "subfolder", "adapter_weights", "delta_weights")
"""Keys of the model's configuration that say which model it is."""
FIELDS = ("query", "choices", "gold_index", "id", "task_name")
COLUMNS = [*(f"doc.{name}" for name in FIELDS), "metric"]
BATCH_ROWS = 256
"""Rows converted to Python objects at once."""
MOST_ROWS = 2**22
"""Largest accepted number of rows of a details file."""


@dataclass(frozen=True)
class _SampleTotals:
    """The content of the results file of a run, which also wrote the details files.

    Attributes:
        file: its path.
        model: the model's name.
        tasks: the tasks that were run, as "name|shots".
        document: the full JSON document.
    """

    file: str
    model: str
    tasks: frozenset[str]
    document: dict[str, Any] = field(repr=False)

    @classmethod
    def read(cls, path: Path) -> "_SampleTotals":
        """Read and check a results file."""
        document = as_object(read_json(path), str(path), "the results")
        for name in ("config_general", "results"):
            if name not in document:
                raise InputError(f"{path}: expected the key {name}. Got {shorten(list(document))}.")
        for name in ("config_general", "results", "config_tasks"):
            as_object(document.get(name, {}), str(path), name)
        model = as_text(document["config_general"].get("model_name"), str(path), "model_name")
        averages = re.compile(r"all|.*:_average(\|.*)?")
        tasks = frozenset(name for name in document["results"] if not averages.fullmatch(name))
        return cls(str(path), model, tasks, document)

    def settings(self, task: str) -> dict[str, Any]:
        """Settings of the run that affect the scores."""
        pairs = [(name, self.model_config(name)) for name in SETTINGS]
        generation = self.model_config("generation_parameters")
        items = generation.items() if isinstance(generation, dict) else ()
        parameters = {name: value for name, value in items if value is not None}
        pairs.append(("generation_parameters", parameters))
        pairs.append(("max_samples", part_of(self.document, "config_general", "max_samples")))
        names = ("num_fewshots", "hf_repo", "hf_revision")
        pairs += [(name, self.config(task, name)) for name in names]
        pairs.append(("task_version", self.config(task, "version")))
        return show_settings(pairs)

    def num_fewshot(self, task: str) -> int | None:
        """Number of examples in the prompt."""
        number = self.config(task, "num_fewshots")
        return number if isinstance(number, int) else None

    def splits(self, task: str) -> int:
        """Number of splits of the documents (each split numbers its documents from 0)."""
        splits = self.config(task, "evaluation_splits")
        return len(splits) if isinstance(splits, list) else 1

    def averaged(self, task: str) -> set[str]:
        """Metrics whose total is the mean over the documents."""
        return {name for name, how, _ in self._metrics(task) if how == "mean"}

    def lower(self, task: str) -> set[str]:
        """Metrics for which lower is better."""
        return {name for name, _, up in self._metrics(task) if up is False}

    def config(self, task: str, name: str) -> Any:
        """An entry of the task's configuration."""
        return part_of(self.document, "config_tasks", task, name)

    def model_config(self, name: str) -> Any:
        """An entry of the model's configuration."""
        return part_of(self.document, "config_general", "model_config", name)

    def _metrics(self, task: str) -> Iterator[tuple[str, Any, Any]]:
        """Yield name, aggregation and whether higher is better, for each metric of a group."""
        for metric in objects_in(self.config(task, "metrics")):
            names, how, up = (
                metric.get(key) for key in ("metric_name", "corpus_level_fn", "higher_is_better")
            )
            for name in names if isinstance(names, list) else [names]:
                values = [v.get(name) if isinstance(v, dict) else v for v in (how, up)]
                yield str(name), values[0], values[1]


def _find_totals(details: Path, others: Iterable[Path] = ()) -> Path | None:
    """Find the results file of the same run as a details file, by their time stamp.

    It is searched where lighteval writes it (``results/MODEL`` beside ``details/MODEL``; on the
    Hub, the folder above), then among ``others``, the nearest first.
    """
    match = DETAILS.fullmatch(details.name)
    if match is None:
        return None
    name = f"results_{match['stamp']}.json"
    model = _model_folder(details)
    folders = [details.parent, model]
    folders += [
        folder.with_name("results") / model.relative_to(folder)
        for folder in (model, *model.parents)
        if folder.name == "details"
    ]
    for folder in folders:
        if (folder / name).is_file():
            return folder / name
    named = [other for other in others if other.name == name]
    return max(named, key=lambda other: len(_common_folder(other, details)), default=None)


def _common_folder(one: Path, other: Path) -> str:
    """The deepest folder that contains both."""
    return os.path.commonpath([one.absolute(), other.absolute()])


def _model_folder(details: Path) -> Path:
    """The folder of the model, which has a subfolder named by the time stamp for each run."""
    folder = details.absolute().parent
    return folder.parent if re.fullmatch(STAMP, folder.name) else folder


def _model_by_folder(details: Path) -> str:
    """The model's name, from the folders above a details file.

    Example:
        >>> stamp = "2026-11-22T09-17-04.056740"
        >>> _model_by_folder(Path(f"out/details/org/model/{stamp}/details_quiz|0_{stamp}.parquet"))
        'org/model'
    """
    folder = _model_folder(details)
    root = next((parent for parent in folder.parents if parent.name == "details"), folder.parent)
    return folder.relative_to(root).as_posix()


@dataclass(slots=True)
class _Row:
    """One document, scored by the metrics of one request type."""

    number: int
    task: str
    id: str
    hash: str
    text: str | None
    target: str | None
    scores: dict[str, Any]


def _alone(paths: list[Path], logs: list[Path] | None) -> Iterator[Skipped]:
    paired = {totals.absolute() for log in logs or () if (totals := _find_totals(log, paths))}
    advice = "there are no details of its run. Run lighteval with --save-details"
    if logs is None:
        advice = "a results file of lighteval holds totals only. Give the folder with its details"
    for path in paths:
        if path.absolute() not in paired:
            yield Skipped(str(path), f"{path}: {advice}.")


def _read(path: Path, request: Request) -> Iterator[Run]:
    """Read one details file; only the columns of documents and scores are read into memory.

    Documents are distinguished by their numbers, which count from 0 in each split: if a task has
    several splits, by number and content. A task with two request types (generation and
    likelihood) has two rows per document, each with the metrics of its type. The metrics avg@n,
    and pass@k if k is 1, are shares of n answers: these become n trials of the item.

    Raises:
        InputError: pyarrow is not installed, or naming the file and the invalid row.
    """
    match = DETAILS.fullmatch(path.name)
    file = _find_totals(path, request.beside)
    totals = None if file is None else request.results(path, file, _SampleTotals.read)
    if totals is not None:
        remaining = request.listed.setdefault(totals.file, set(totals.tasks))
        remaining.discard(match["task"] if match else "")  # it exists, even if it cannot be read
    rows = list(_rows(path))
    if not rows:
        raise InputError(f"{path}: expected a row per document. Got none.")
    tasks = sorted({row.task for row in rows})
    if len(tasks) > 1:
        raise InputError(f"{path}: expected rows of one task. Got {shorten(tasks)}.")
    stamp = match["stamp"] if match else ""
    run = Run(tasks[0], "", str(path), date=spread_stamp(stamp), session=stamp)
    by_hash = len({row.id for row in rows}) < len({(row.id, row.hash) for row in rows})
    by_hash = by_hash or (totals is not None and totals.splits(run.task) > 1)
    _add_rows(run, rows, by_hash)
    if totals is None:
        run.lacks_results = True
        run.model = _model_by_folder(path)  # lighteval writes to details/MODEL/DATE
    else:
        run.model, run.settings = totals.model, totals.settings(run.task)
        run.arguments = model_arguments({name: totals.model_config(name) for name in ARGUMENTS})
        run.num_fewshot = totals.num_fewshot(run.task)
        run.task_version = version_text(totals.config(run.task, "version"))
        run.lower_is_better = totals.lower(run.task)
        remaining.discard(run.task)
        for metric in totals.averaged(run.task):
            total = part_of(totals.document, "results", run.task, metric)
            if message := run.wrong_mean(("", metric), total, metric, totals.file):
                raise InputError(message)
    for column, answers in run.columns.items():
        run.columns[column] = _as_trials(answers, _n_answers(column[1]))
    yield run


def _add_rows(run: Run, rows: list[_Row], by_hash: bool) -> None:
    """Add the scores of all rows."""
    for row in rows:
        about: dict[str, Any] = {"text": row.text, "target": row.target}
        about |= {"hash": row.hash} if by_hash else {"sample": row.id, "trust": 2}
        key = row.hash if by_hash else row.id
        location = f"{run.file}, row {row.number}"
        item = run.item(key, **about)
        if all(value is None for value in row.scores.values()):
            run.unscored.append((item, 0))
        for metric, value in row.scores.items():
            if value is None:  # a metric of the other request type
                continue
            if run.next_trial(item, metric):
                raise InputError(f"{location}: document {brief(row.id)} occurs twice.")
            run.add(item, value, metric, location=location)
    if not run.columns:
        raise InputError(f"{run.file}: expected a metric. Got none with values.")


def _rows(path: Path) -> Iterator[_Row]:
    """Yield the rows, checked."""
    for number, record in enumerate(_records(path), start=1):
        location = f"{path}, row {number}"
        doc = as_object(record.get("doc"), location, "doc")
        scores = as_object(record.get("metric"), location, "metric")
        yield _Row(
            number=number,
            task=as_text(doc.get("task_name"), location, "doc.task_name"),
            id=as_text(doc.get("id"), location, "doc.id"),
            hash=document_hash({field: doc.get(field) for field in FIELDS[:-1]}),
            text=clip(doc.get("query")),
            target=clip(_target(doc.get("choices"), doc.get("gold_index"))),
            scores=scores,
        )


def _records(path: Path) -> Iterator[dict[str, Any]]:
    """Yield the rows as objects, a few hundred at a time."""
    advice = "Install it: pip install 'irtcat[parquet]'."
    missing = f"{path}: reading lighteval's details needs pyarrow. {advice}"
    pa = optional_module("pyarrow", missing, MissingExtraError)
    parquet = optional_module("pyarrow.parquet", missing, MissingExtraError)
    with path.open("rb") as stream:
        if stream.read(4) != b"PAR1" or stream.seek(0, 2) < 12:
            raise InputError(f"{path}: expected a Parquet file. Got something else.")
        stream.seek(-4, 2)
        if stream.read(4) != b"PAR1":
            raise CutError(f"{path}: the file is truncated.")
        try:
            file = parquet.ParquetFile(stream)
            names, rows = set(file.schema_arrow.names), file.metadata.num_rows
            mismatch = _mismatch(names, rows)
            for group in range(0 if mismatch else file.num_row_groups):  # one in memory at a time
                size = unpacked_bytes(file.metadata, [group], COLUMNS, MOST_BYTES)
                if size > MOST_BYTES:
                    raise too_large(f"{path}, row group {group + 1}", MOST_BYTES)
                # Rows may share a value, which can be as long as the group: to_pylist copies it.
                n_rows = max(1, min(BATCH_ROWS, MOST_BYTES // max(1, size)))
                for batch in file.iter_batches(n_rows, [group], COLUMNS, use_threads=False):
                    yield from batch.to_pylist()
        except InputError:
            raise
        except (pa.ArrowException, OSError, ValueError, LookupError, TypeError, OverflowError):
            raise InputError(f"{path}: the Parquet file is damaged.") from None
    if mismatch:
        raise InputError(f"{path}: {mismatch}")


def _mismatch(names: set[str], rows: int) -> str:
    """Why a table cannot be the details of a task; empty if it can."""
    if not {"doc", "metric"} <= names:
        got = shorten(sorted(names))
        return f"expected the columns doc and metric of lighteval 0.11 and later. Got {got}."
    return f"expected at most {MOST_ROWS} rows. Got {rows}." if rows > MOST_ROWS else ""


def _target(choices: Any, gold: Any) -> Any:
    """The correct choice; a list if there are several; None if it is not recorded."""
    indices = gold if isinstance(gold, list) else [gold]
    if not isinstance(choices, list):
        return None
    right = [choices[g] for g in indices if isinstance(g, int) and 0 <= g < len(choices)]
    return right[0] if len(right) == 1 else right or None


def _n_answers(metric: str) -> int:
    """Number of answers to a document of which a metric is the share; 1 for other metrics.

    Example:
        >>> [_n_answers(m) for m in ("em", "avg@n:n=4", "pass@k:k=1&n=8", "pass@k:k=2&n=8")]
        [1, 4, 8, 1]
    """
    name, _, arguments = metric.partition(":")
    settings = dict(pair.split("=", 1) for pair in arguments.split("&") if "=" in pair)
    share = re.fullmatch(r"(\w+_)?avg@n", name) is not None
    share = share or (re.fullmatch(r"(\w+_)?pass@k", name) is not None and settings.get("k") == "1")
    n = settings.get("n", "")
    return int(n) if share and re.fullmatch(r"[1-9]\d{0,2}", n) else 1


def _as_trials(answers: Answers, n: int) -> Answers:
    """Expand shares of n answers to n answers each; other values are returned unchanged."""
    right = np.rint(answers.values * n)
    if n == 1 or answers.flaw or not (np.abs(answers.values * n - right) < NEAR).all():
        return answers
    values = (np.arange(n) < right[:, None]).ravel().astype(float)
    return Answers(np.repeat(answers.items, n), values, None)


LIGHTEVAL = LogFormat(
    "lighteval",
    lambda file: DETAILS.fullmatch(file.path.name) is not None,
    _read,
    "details of lighteval 0.11 and later, run with ``--save-details`` (needs pyarrow)",
    "https://huggingface.co/docs/lighteval",
    is_beside=lambda file: is_results(file) and '"config_general"' in file.head,
    alone=_alone,
    unit="details",
)
