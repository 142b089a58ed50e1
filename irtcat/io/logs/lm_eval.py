"""Samples files of lm-evaluation-harness, 0.4.3 and later, and the results files beside them.

A run writes a samples file for each task (a line per document and filter, with the scores) and one
results file (the model, the settings, the totals). The samples are the responses; the results file
names the model and is used to check that the samples are complete.
"""

import hashlib
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import zip_longest
from pathlib import Path
from typing import Any

import numpy as np

from irtcat._common.checks import InputError, shorten
from irtcat._files.reading import read_json
from irtcat.io.logs.format import NEAR, Answers, LogFile, LogFormat, Request, Run, Skipped
from irtcat.io.logs.values import (
    CutError,
    as_object,
    as_text,
    iso_date,
    json_lines,
    model_arguments,
    objects_in,
    part_of,
    score_number,
    show_settings,
    version_text,
)

# The time of the run, in the names of its files.
STAMP = r"\d{4}-\d{2}-\d{2}T\d{2}-\d{2}-\d{2}(?:\.\d+)?"
SAMPLES = re.compile(rf"samples_(?P<task>.+)_(?P<stamp>{STAMP})\.jsonl")
UNDATED = re.compile(r"samples_(?P<task>.+)\.jsonl")
RESULTS = re.compile(rf"(?P<stem>.+)_(?P<stamp>{STAMP})\.json")
RANDOM_NAME = re.compile(r"[a-z0-9]{8}")
"""A name that the harness draws for a model without one, from a fixed seed: always the same."""

HASH = re.compile(r"\w{16,128}")

NOT_METRICS = {
    *("doc_id", "doc", "target", "arguments", "resps", "filtered_resps", "filter", "metrics"),
    *("doc_hash", "prompt_hash", "target_hash", "schema", "task", "task_name", "model"),
    "scores_per_repeat",
}
"""Keys of a line that are not metrics, for logs that do not list their metrics."""

TEXTS = (
    *("question", "query", "problem", "prompt", "input", "instruction", "goal", "ctx", "sentence"),
    *("text", "passage", "premise", "context", "sentence1", "inputs"),
)
"""Keys of a document that may hold the text of the item; the first one that is there is used."""

SETTINGS = (
    *("model", "model_args", "model_revision", "model_dtype", "limit", "gen_kwargs"),
    *("random_seed", "numpy_seed", "torch_seed", "fewshot_seed"),
)
"""Keys of the results file's "config" that affect the scores."""

UNVERSIONED = "Yaml"

MAX_PROCESSES = 256
"""More runs of increasing document numbers are not taken for the outputs of parallel processes."""

UNORDERED, INTERLEAVED, INCREASING = 0, 1, 2
"""How reliable document numbers are (see `_keys_of`)."""


def _split_name(path: Path) -> tuple[str, str]:
    """Task and time stamp of a samples file, by its name.

    Example:
        >>> _split_name(Path("samples_arc_easy_2026-11-21T00-00-43.298874.jsonl"))
        ('arc_easy', '2026-11-21T00-00-43.298874')
        >>> _split_name(Path("samples_arc_easy.jsonl"))
        ('arc_easy', '')
    """
    if match := SAMPLES.fullmatch(path.name):
        return match["task"], match["stamp"]
    undated = UNDATED.fullmatch(path.name)  # as written by `irtcat evaluate`
    return (undated["task"] if undated else path.stem), ""


def _is_log(file: LogFile) -> bool:
    """Whether a file is a samples file, by its name or its keys."""
    if SAMPLES.fullmatch(file.path.name):
        return True
    # Every Eval Ever's instance files have an evaluation_id.
    if file.suffix not in (".jsonl", ".ndjson") or "evaluation_id" in file.keys:
        return False
    return "doc_id" in file.keys and not file.keys.isdisjoint(("resps", "doc"))


def is_results(file: LogFile) -> bool:
    """Whether a file is a results file of this harness, or of lighteval, which names it so too."""
    name = file.path.name
    is_named = RESULTS.fullmatch(name) is not None
    return is_named and (name.startswith("results_") or "results" in file.keys)


def _alone(paths: list[Path], logs: list[Path] | None) -> Iterator[Skipped]:
    """Results files without a samples file of their run (see `LogFormat.alone`)."""
    stamps = {(log.parent, _split_name(log)[1]) for log in logs or ()}
    advice = "there are no samples files beside it. Run lm-eval with --log_samples"
    if logs is None:
        advice = "a results file of lm-eval holds totals only. Give the folder with its samples"
    for path in paths:
        match = RESULTS.fullmatch(path.name)
        stamp = match["stamp"] if match else ""
        if (path.parent, stamp) in stamps:
            continue
        compressed = next(path.parent.glob(f"samples_*_{stamp}.jsonl.*"), None)
        if compressed is not None and stamp:
            reason = f"{path}: the samples of its run are compressed ({compressed.name})."
            yield Skipped(str(path), f"{reason} Unpack them.")
        else:
            yield Skipped(str(path), f"{path}: {advice}.")


def _find_results(path: Path) -> Path | None:
    """The results file of the same run as a samples file: same folder, same time stamp."""
    stamp = _split_name(path)[1]
    if not stamp:
        return None
    usual = path.with_name(f"results_{stamp}.json")
    if usual.is_file():
        return usual
    others = sorted(path.parent.glob(f"*_{stamp}.json"))
    return next((other for other in others if RESULTS.fullmatch(other.name)), None)


@dataclass(frozen=True)
class _Results:
    """The content of the results file of a run, which also wrote the samples files.

    Attributes:
        file: its path.
        model: the model's name as passed to the harness, not as the folder spells it.
        name_source: "log"; or "made up": by the harness (all models without a name get the same),
            or the name of the folder if the file has none.
        document: the full JSON document.
    """

    file: str
    model: str
    name_source: str
    document: dict[str, Any] = field(repr=False)

    @classmethod
    def read(cls, path: Path) -> "_Results":
        """Read and check a results file."""
        document = as_object(read_json(path), str(path), "the results")
        for key in ("results", "configs", "n-samples", "config", "higher_is_better", "versions"):
            as_object(document.get(key, {}), str(path), key)
        if "results" not in document:
            raise InputError(f"{path}: expected the key results. Got {shorten(list(document))}.")
        config = document.get("config", {})
        name = document.get("model_name")
        if name is None or name == "":
            name = _model_in_arguments(config)
        model = as_text(
            path.parent.resolve().name if name is None else name, str(path), "model_name"
        )
        has_random_name = not config.get("model_args") and RANDOM_NAME.fullmatch(model)
        source = "made up" if has_random_name or name is None else "log"
        return cls(str(path), model, source, document)

    def entry(self, section: str, task: str) -> dict[str, Any]:
        """The task's entry in a section, or an empty dict."""
        entry = self.document.get(section, {}).get(task, {})
        return entry if isinstance(entry, dict) else {}

    def config(self, task: str, name: str) -> Any:
        """An entry of the task's configuration."""
        return part_of(self.document, "configs", task, name)

    def settings(self, task: str) -> dict[str, Any]:
        """Settings of the run that affect the scores."""
        config = self.document.get("config", {})
        keys = ("chat_template_sha", "system_instruction_sha", "fewshot_as_multiturn")
        pairs = [(name, config.get(name)) for name in SETTINGS]
        pairs += [(name, self.document.get(name)) for name in keys]
        pairs.append(("num_fewshot", self.num_fewshot(task)))
        pairs.append(("task_version", self.version(task)))
        return show_settings(pairs)

    def arguments(self) -> dict[str, str]:
        """Arguments of the model, with the revision that the harness logs even by default."""
        config = self.document.get("config", {})
        revision = model_arguments({"revision": config.get("model_revision")})
        return {**revision, **model_arguments(config.get("model_args"))}

    def num_fewshot(self, task: str) -> int | None:
        """Number of examples in the prompt."""
        number = part_of(self.document, "n-shot", task)
        number = self.config(task, "num_fewshot") if number is None else number
        return number if isinstance(number, int) else None

    def version(self, task: str) -> Any:
        """Version of the task."""
        return part_of(self.document, "versions", task)

    def filters(self, task: str, metrics: list[str]) -> list[str]:
        """Names of the task's filters, in the order of the log."""
        # Keys of the totals are METRIC,FILTER.
        pairs = (key.split(",", 1) for key in self.entry("results", task) if "," in key)
        names = (filter_name for metric, filter_name in pairs if metric in metrics)
        return list(dict.fromkeys(names))

    def sizes(self, task: str) -> tuple[int | None, bool]:
        """The number of documents that were run, and whether that number is reliable.

        ``sample_len`` is the number of scores in the totals. Files without it have ``effective``,
        which the harness computes from --limit alone.
        """
        n = self.entry("results", task).get("sample_len")
        if isinstance(n, int):
            return n, True
        n = self.entry("n-samples", task).get("effective")
        return (n, False) if isinstance(n, int) else (None, False)

    def mean_metrics(self, task: str) -> set[str]:
        """Metrics whose total is the mean over the samples."""
        metrics = objects_in(self.config(task, "metric_list"))
        return {str(m.get("metric")) for m in metrics if m.get("aggregation") == "mean"}

    def lower_is_better(self, task: str) -> set[str]:
        """Metrics for which lower is better."""
        higher_is_better = self.entry("higher_is_better", task)
        return {name for name, is_higher in higher_is_better.items() if is_higher is False}


def task_version(version: Any) -> str:
    """A task's version as text; empty for a task that has none, which lm-eval calls "Yaml"."""
    return "" if version == UNVERSIONED else version_text(version)


def _model_in_arguments(config: dict[str, Any]) -> str | None:
    """The model in the command-line arguments, for results files that do not name it."""
    arguments = model_arguments(config.get("model_args"))
    # An adapter (peft, delta) comes first: the model that it was trained for is not the subject.
    names = ("peft", "delta", "pretrained", "model", "path", "engine")
    return next((arguments[name] for name in names if name in arguments), None)


@dataclass(slots=True)
class _LogLine:
    """One line of a samples file: a document, with its scores under one filter.

    Attributes:
        location: file and line, for messages.
        doc_id: number of the document; None if the log has none.
        hash: hash of the document; "" if the log has neither it nor the document.
        filter: name of the filter; "" if the log has none.
        scores: values by metric.
        repeats: values of each repeat by metric, where the document was run several times.
        content: document, target and arguments, from which the item's metadata are taken.
    """

    location: str
    doc_id: int | None
    hash: str
    filter: str
    scores: dict[str, Any]
    repeats: dict[str, list[float]]
    content: tuple[Any, Any, Any] = field(repr=False)


def _read(path: Path, request: Request) -> Iterator[Run]:
    """Read one samples file.

    Documents are distinguished by the hash of their content (computed if an older log lacks
    it), because the harness logs wrong numbers for unsorted ``--samples``; by number only
    if the document is not in the log either.

    Raises:
        InputError: naming the file and the invalid line.
    """
    task, stamp = _split_name(path)
    if request.tasks and task not in request.tasks:
        yield Run(task, "")  # only reports that the task exists
        return
    file = _find_results(path)
    results = None if file is None else request.results(path, file, _Results.read)
    lines, cut_reason = _read_lines(path, request.keep)
    _name_filters(task, lines, results)
    _drop_repeats(lines)
    run = Run(task, "", str(path), date=iso_date(stamp) or spread_stamp(stamp), session=stamp)
    numbers: list[int] = []
    keys, trust = _keys_of(lines)
    if trust == UNORDERED and not all(line.hash for line in lines):
        reason = "the document numbers are not in order, and there are no hashes of documents"
        raise InputError(f"{path}: {reason}. Run lm-eval again with sorted --samples.")
    positions: dict[str, int] = {}
    for key, line in zip(keys, lines, strict=True):
        position = positions.get(key)
        if position is None:
            position = positions[key] = _add_item(run, key, line, trust)
        numbers.append(position)
        for metric, value in line.scores.items():
            run.add(position, value, metric, source=line.filter, location=line.location)
    if trust == UNORDERED and lines[0].doc_id is not None:
        run.notes = (
            f"{path}: the document numbers are not in order, as for a run in batches, or as "
            "lm-eval logs them for unsorted or repeated --samples; the documents' hashes were used "
            "instead.",
        )
    if results is None:
        run.model, run.name_source = path.parent.resolve().name, "folder"
        run.cut, run.lacks_results = cut_reason, True
    else:
        run.model, run.name_source = results.model, results.name_source
        run.session, run.copied_session = f"{path.parent}/{stamp}", stamp
        run.date = iso_date(results.document.get("date")) or run.date
        run.version = str(results.document.get("lm_eval_version") or "")
        run.settings, run.arguments = results.settings(task), results.arguments()
        run.num_fewshot = results.num_fewshot(task)
        filters = objects_in(results.config(task, "filter_list"))
        run.order = tuple(str(entry.get("name")) for entry in filters)
        run.task_version = task_version(results.version(task))
        run.lower_is_better = results.lower_is_better(task)
        run.cut = cut_reason or _compare(path, run, results)
    _by_repeat(run, lines, numbers)
    yield run


def spread_stamp(stamp: str) -> str:
    """Convert the time stamp in a file name to a date."""
    day, _, time = stamp.partition("T")
    return iso_date(f"{day}T{time.replace('-', ':')}") if time else ""


def _read_lines(path: Path, keep: bool) -> tuple[list[_LogLine], str]:
    """Read all lines; if the last is truncated and ``keep`` is true, also a sentence about it."""
    lines: list[_LogLine] = []
    try:
        for location, record in json_lines(path):
            lines.append(_line(record, location))
    except CutError as error:
        if not keep or not lines:
            raise
        return lines, str(error)
    if not lines:
        raise CutError(f"{path}: expected a line per document. Got an empty file.")
    return lines, ""


def _line(record: dict[str, Any], location: str) -> _LogLine:
    """Check and extract the fields of a line."""
    doc_id = record.get("doc_id")
    # Programs that read JSON numbers as floats have exact integers up to 2**53.
    is_count = isinstance(doc_id, int) and not isinstance(doc_id, bool) and 0 <= doc_id < 2**53
    if doc_id is not None and not is_count:
        must = "expected doc_id to be a number from 0"
        raise InputError(f"{location}: {must}. Got {shorten(doc_id)}.")
    digest = record.get("doc_hash")
    if digest is None and isinstance(record.get("doc"), dict):
        digest = document_hash(record["doc"])
    if digest is not None and (not isinstance(digest, str) or not HASH.fullmatch(digest)):
        raise InputError(f"{location}: expected doc_hash to be a hash. Got {shorten(digest)}.")
    if digest is None and doc_id is None:
        must = "expected doc_hash, doc or doc_id"
        raise InputError(f"{location}: {must}. Got {shorten(list(record))}.")
    name = record.get("filter", "")
    if not isinstance(name, str):
        raise InputError(f"{location}: expected filter to be a name. Got {shorten(name)}.")
    return _LogLine(
        location=location,
        doc_id=doc_id,
        hash=digest or "",
        filter=name,
        scores=_scores(record, location),
        repeats=_repeats(record, location),
        content=(record.get("doc"), record.get("target"), record.get("arguments")),
    )


def document_hash(doc: dict[str, Any]) -> str:
    """The hash of a document, computed as in lm-eval."""
    text = json.dumps(doc, indent=2, ensure_ascii=False)
    return hashlib.sha256(text.encode("utf-8")).hexdigest()


def _scores(record: dict[str, Any], location: str) -> dict[str, Any]:
    """Values by metric: those listed, or in older logs every score that is not in `NOT_METRICS`."""
    names = record.get("metrics")
    if names is None:
        others = {name: value for name, value in record.items() if name not in NOT_METRICS}
        scores = {name: v for name, v in others.items() if v is None or score_number(v) is not None}
    elif not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise InputError(f"{location}: expected metrics to be names. Got {shorten(names)}.")
    else:
        lacking = [name for name in names if name not in record]
        if lacking:
            raise InputError(f"{location}: expected the metric {lacking[0]}, which is in metrics.")
        scores = {name: record[name] for name in names}
    if not scores:
        raise InputError(f"{location}: expected a metric. Got {shorten(list(record))}.")
    return scores


def _repeats(record: dict[str, Any], location: str) -> dict[str, list[float]]:
    """Values of each repeat by metric, as lm-eval 0.5 logs them; empty for a single run."""
    out: dict[str, list[float]] = {}
    repeats = as_object(record.get("scores_per_repeat") or {}, location, "repeats")
    for name, values in repeats.items():
        numbers = [score_number(value) for value in values] if isinstance(values, list) else [None]
        if None in numbers:
            raise InputError(f"{location}: expected the repeats of {name} to be numbers.")
        out[name] = [number for number in numbers if number is not None]
    return out


def _by_repeat(run: Run, lines: list[_LogLine], positions: list[int]) -> None:
    """Replace the scores of documents by those of their repeats, where they are of single repeats.

    The harness reduces repeats to one score: to the first or the mean, whose repeats are trials of
    the item, or to another value (the majority's, pass@k), which is used as it is.
    """
    for column, answers in run.columns.items():
        own = [
            (at, line)
            for at, line in zip(positions, lines, strict=True)
            if line.filter == column[0] and column[1] in line.scores
        ]
        repeats = [line.repeats.get(column[1], []) for _, line in own]
        if answers.flaw or not all(repeats) or len(own) != len(answers.values):
            continue
        firsts = np.array([values[0] for values in repeats])
        means = np.array([np.mean(values) for values in repeats])
        of_first = bool((np.abs(answers.values - firsts) < NEAR).all())
        if not (of_first or (np.abs(answers.values - means) < NEAR).all()):
            continue
        values = np.concatenate(repeats)
        if ((values < 0) | (values > 1)).any():
            continue
        lengths = [len(values) for values in repeats]
        trials = np.concatenate([np.arange(n) for n in lengths])
        run.columns[column] = Answers(np.repeat(answers.items, lengths), values, trials)
        if of_first and not (np.abs(means - firsts) < NEAR).all():
            totals = "the harness's totals are of the first repeat"
            note = f"{run.file}: {totals}, the responses of all."
            run.notes = (*(other for other in run.notes if other != note), note)


def _name_filters(task: str, lines: list[_LogLine], results: _Results | None) -> None:
    """Name the filters of a log without names, in place, from the totals in the results file.

    Each document occurs once per filter: its first line is that of the first filter, and so on.

    Raises:
        InputError: documents occur several times, but not once for each filter of the totals.
    """
    if any(line.filter for line in lines):
        return
    counts: dict[tuple[str, int | None], int] = {}
    indices = []  # of the filter of each line
    for line in lines:
        indices.append(counts.get((line.hash, line.doc_id), 0))
        counts[line.hash, line.doc_id] = indices[-1] + 1
    metrics = sorted({metric for line in lines for metric in line.scores})
    names = results.filters(task, metrics) if results else []
    if max(indices) == 0:
        if len(names) == 1:
            for line in lines:
                line.filter = names[0]
        return
    if len(names) != max(indices) + 1 or set(counts.values()) != {len(names)}:
        repeat = lines[next(i for i, index in enumerate(indices) if index)]
        advice = "Give the results file, whose totals name the filters."
        reason = f"document {repeat.doc_id} occurs again, and no filter is named. {advice}"
        raise InputError(f"{repeat.location}: {reason}")
    for line, index in zip(lines, indices, strict=True):
        line.filter = names[index]


def _drop_repeats(lines: list[_LogLine]) -> None:
    """Drop lines that repeat an earlier one, in place; raise if their scores differ."""
    earlier: dict[tuple[str, int | None, str], _LogLine] = {}
    for line in lines:
        first = earlier.setdefault((line.hash, line.doc_id, line.filter), line)
        if first is line:
            continue
        scores = [json.dumps(one.scores, sort_keys=True) for one in (first, line)]
        if scores[0] != scores[1]:  # as text, so that NaN equals NaN
            line_number = first.location.rpartition(", ")[2]
            conflict = f"document {line.doc_id} is in {line_number} with other scores"
            raise InputError(f"{line.location}: {conflict}.")
    lines[:] = earlier.values()


def _keys_of(lines: list[_LogLine]) -> tuple[list[str], int]:
    """Each line's key within the task, and how reliable the document numbers are.

    The key is the full hash; equal documents are numbered in the order of their ids. The numbers
    are `INCREASING`, or `INTERLEAVED` if they increase once the outputs of several processes are
    interleaved, or else `UNORDERED`.
    """
    trust = min(
        _trust([line.doc_id for line in lines if line.filter == name])
        for name in {line.filter for line in lines}
    )
    documents = [(line.hash, -1 if line.doc_id is None else line.doc_id) for line in lines]
    counts: dict[str, int] = {}
    keys: dict[tuple[str, int], str] = {}
    for digest, number in sorted(set(documents)):
        counts[digest] = counts.get(digest, 0) + 1
        suffix = f"#{counts[digest]}" if counts[digest] > 1 else ""
        keys[digest, number] = f"{digest}{suffix}" if digest else f"doc{number}"
    return [keys[document] for document in documents], trust


def _trust(ids: list[int | None]) -> int:
    """How reliable the document numbers of one filter are, in the order of the log.

    Of n parallel processes, process r runs the documents r, r + n, r + 2n, ..., and the harness
    logs the output of one after that of the other. The first documents of all processes, then the
    second ones, and so on, are then in order.
    """
    if any(number is None for number in ids):
        return UNORDERED
    steps = np.diff(np.array(ids, dtype=np.int64))
    if (steps > 0).all():
        return INCREASING
    outputs = np.split(np.array(ids), np.flatnonzero(steps <= 0) + 1)  # of each process
    longest = max(len(output) for output in outputs)
    if len(outputs) > MAX_PROCESSES or longest - min(len(output) for output in outputs) > 1:
        return UNORDERED
    rounds = np.array(list(zip_longest(*outputs, fillvalue=-1))).ravel()
    interleaved = rounds[rounds >= 0]
    return INTERLEAVED if (np.diff(interleaved) > 0).all() else UNORDERED


def _add_item(run: Run, key: str, line: _LogLine, trust: int) -> int:
    """Add a line's document to the items of the run; its position."""
    doc, target, arguments = line.content
    text = next((doc[n] for n in TEXTS if doc.get(n)), None) if isinstance(doc, dict) else None
    text = text or _prompt(arguments) or doc
    sample = str(line.doc_id) if trust != UNORDERED or not line.hash else None
    return run.item(key, sample=sample, trust=trust, hash=line.hash, text=text, target=target)


def _prompt(arguments: Any) -> str | None:
    """The prompt, in the two layouts that the harness has used."""
    first = arguments
    for name in ("gen_args_0", "arg_0"):
        if isinstance(first, dict):
            first = first.get(name)
        elif isinstance(first, list) and first:
            first = first[0]
        else:
            return None
    return first if isinstance(first, str) else None


def _compare(path: Path, run: Run, results: _Results) -> str:
    """Compare the lines with the results file; why the run is incomplete, or "".

    A number of documents that is not reliable counts only if a mean differs from its total too.

    Raises:
        InputError: a mean differs from its total although all documents are there.
    """
    totals, mean_metrics = results.entry("results", run.task), results.mean_metrics(run.task)
    wrong_mean = ""
    for filter_name, metric in run.columns:
        if metric in mean_metrics and not wrong_mean:
            total, label = totals.get(f"{metric},{filter_name}"), f"{metric} ({filter_name})"
            wrong_mean = run.wrong_mean((filter_name, metric), total, label, results.file)
    n_documents, is_reliable = results.sizes(run.task)
    sizes = [len(np.unique(answers.items)) for answers in run.columns.values()]
    most, least = max(sizes), min(sizes)
    differs = n_documents is not None and (most != n_documents or least != n_documents)
    if differs and (is_reliable or wrong_mean):
        got = least if least != n_documents else most
        return f"{path}: expected {n_documents} documents, as stated in {results.file}. Got {got}."
    if wrong_mean:
        raise InputError(wrong_mean)
    return ""


LM_EVAL = LogFormat(
    "lm-eval",
    _is_log,
    _read,
    "samples files of lm-evaluation-harness 0.4.3 and later, with the results files beside them",
    "https://github.com/EleutherAI/lm-evaluation-harness",
    # Only lighteval's results files have the key config_general.
    is_beside=lambda file: is_results(file) and '"config_general"' not in file.head,
    alone=_alone,
    order=lambda path: _split_name(path)[::-1],
    samples="documents",
    unit="samples",
)
