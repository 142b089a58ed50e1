"""Samples files of lm-evaluation-harness, 0.4.3 and later, and the results files beside them."""

import hashlib
import json
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from irtcat._checks import InputError, shorten
from irtcat._reading import numbered_lines, parse_json
from irtcat.io._lm_eval_results import Results
from irtcat.io._logs import (
    About,
    CutError,
    Items,
    Rows,
    Run,
    as_object,
    clip,
    iso_date,
    score_number,
)

__all__ = ["find_results", "read_samples", "split_name", "spread_stamp"]

STAMP = r"\d{4}-\d{2}-\d{2}T\d{2}-\d{2}-\d{2}(?:\.\d+)?"
SAMPLES = re.compile(rf"samples_(?P<task>.+)_(?P<stamp>{STAMP})\.jsonl")
UNDATED = re.compile(r"samples_(?P<task>.+)\.jsonl")
RESULTS = re.compile(rf"(?P<stem>.+)_(?P<stamp>{STAMP})\.json")
FIXED = {
    *("doc_id", "doc", "target", "arguments", "resps", "filtered_resps", "filter", "metrics"),
    *("doc_hash", "prompt_hash", "target_hash", "schema", "task", "task_name", "model"),
}
TEXTS = (
    *("question", "query", "problem", "prompt", "input", "instruction", "goal", "ctx", "sentence"),
    *("text", "passage", "premise", "context", "sentence1", "inputs"),
)
NEAR = 1e-9
"""Largest accepted difference of a mean from the harness's own (rounding of long sums)."""


def split_name(path: Path) -> tuple[str, str]:
    """Task and time stamp of a samples file, by its name.

    Example:
        >>> split_name(Path("samples_arc_easy_2026-11-21T00-00-43.298874.jsonl"))
        ('arc_easy', '2026-11-21T00-00-43.298874')
        >>> split_name(Path("samples_arc_easy.jsonl"))
        ('arc_easy', '')
    """
    match = SAMPLES.fullmatch(path.name)
    if match:
        return match["task"], match["stamp"]
    undated = UNDATED.fullmatch(path.name)  # as written by `irtcat evaluate`
    return (undated["task"] if undated else path.stem), ""


def find_results(path: Path) -> Path | None:
    """The results file of the same run as a samples file: same folder, same time stamp."""
    stamp = split_name(path)[1]
    if not stamp:
        return None
    usual = path.with_name(f"results_{stamp}.json")
    if usual.is_file():
        return usual
    others = sorted(path.parent.glob(f"*_{stamp}.json"))
    return next((other for other in others if RESULTS.fullmatch(other.name)), None)


@dataclass
class _Line:
    """One line of a samples file."""

    number: int
    doc_id: int | None
    hash: str
    filter: str
    scores: dict[str, Any]
    record: dict[str, Any] = field(repr=False)


def read_samples(path: Path, results: Results | None, items: Items, keep: bool = False) -> Run:
    """Read one samples file.

    Documents are distinguished by the hash of their content (computed if an older log lacks
    it), because the harness logs wrong numbers for unsorted ``--samples``; by number only
    if the document is not in the log either.

    Args:
        path: the samples file.
        results: the content of its results file, if any.
        items: the items of all runs, which are added to.
        keep: read the complete lines of a truncated file.

    Raises:
        InputError: naming the file and the invalid line.
    """
    task, stamp = split_name(path)
    lines, cut = _read_lines(path, keep)
    _name_filters(path, task, lines, results)
    _drop_repeats(path, lines)
    run = Run(
        file=str(path),
        format="lm-eval",
        task=task,
        model="",
        date=iso_date(stamp) or spread_stamp(stamp),
        session=stamp,
    )
    keys, trust = _keys_of(lines)
    if trust == 0 and not all(line.hash for line in lines):
        reason = "the document numbers are not in order, and there are no hashes of documents"
        raise InputError(f"{path}: {reason}. Run lm-eval again with sorted --samples.")
    positions, rows = {}, Rows()
    for key, line in zip(keys, lines, strict=True):
        if key not in positions:
            positions[key] = items.add(_about(task, key, line, trust, items))
        for metric, value in line.scores.items():
            rows.add((line.filter, metric), positions[key], value, f"{path}, line {line.number}")
    run.columns = rows.columns()
    if any(not answers.flaw for answers in run.columns.values()):
        run.unscored = min(int(np.isnan(a.values).sum()) for a in run.columns.values())
    run.notes = (_order_note(path),) if trust == 0 and lines[0].doc_id is not None else ()
    if results is None:
        run.model, run.name_source = path.parent.resolve().name, "folder"
        run.cut = cut
        return run
    run.model, run.name_source = results.model, results.name_source
    run.session = f"{path.parent}/{stamp}"
    run.date = iso_date(results.document.get("date")) or run.date
    run.version = str(results.document.get("lm_eval_version") or "")
    run.settings = results.settings(task)
    run.lower_is_better = results.lower(task)
    run.cut = cut or _compare(path, run, results)
    if run.cut and not keep:
        raise CutError(run.cut)
    return run


def _order_note(path: Path) -> str:
    return (
        f"{path}: the document numbers are not in order, as for a run in batches, or as lm-eval "
        "logs them for unsorted or repeated --samples; the documents' hashes were used instead."
    )


def spread_stamp(stamp: str) -> str:
    """Convert the time stamp in a file name to a date."""
    day, _, time = stamp.partition("T")
    return iso_date(f"{day}T{time.replace('-', ':')}") if time else ""


def _read_lines(path: Path, keep: bool) -> tuple[list[_Line], str]:
    """Read all lines; if the last is truncated and ``keep`` is true, also a sentence about it."""
    lines: list[_Line] = []
    for number, raw, ended in numbered_lines(path):
        location = f"{path}, line {number}"
        try:
            record = parse_json(raw, location)
        except InputError as error:
            if ended:
                raise error from None
            cut = f"{location}: the file is cut off in the middle of this line."
            if keep and lines:
                return lines, cut
            raise CutError(cut) from None
        lines.append(_line(as_object(record, location, "a line"), number, location))
    if not lines:
        raise CutError(f"{path}: expected a line per document. Got an empty file.")
    return lines, ""


def _line(record: dict[str, Any], number: int, location: str) -> _Line:
    """Check and extract the fields of a line."""
    doc_id = record.get("doc_id")
    is_count = isinstance(doc_id, int) and not isinstance(doc_id, bool) and 0 <= doc_id < 2**53
    if doc_id is not None and not is_count:
        raise InputError(
            f"{location}: expected doc_id to be a number from 0. Got {shorten(doc_id)}."
        )
    digest = record.get("doc_hash")
    if digest is None and isinstance(record.get("doc"), dict):
        digest = document_hash(record["doc"])
    if digest is not None and (
        not isinstance(digest, str) or not re.fullmatch(r"\w{16,128}", digest)
    ):
        raise InputError(f"{location}: expected doc_hash to be a hash. Got {shorten(digest)}.")
    if digest is None and doc_id is None:
        raise InputError(
            f"{location}: expected doc_hash, doc or doc_id. Got {shorten(list(record))}."
        )
    name = record.get("filter", "")
    if not isinstance(name, str):
        raise InputError(f"{location}: expected filter to be a name. Got {shorten(name)}.")
    content = {key: record.get(key) for key in ("doc", "target", "arguments")}
    return _Line(
        number=number,
        doc_id=doc_id,
        hash=digest or "",
        filter=name,
        scores=_scores(record, location),
        record=content,
    )


def document_hash(doc: dict[str, Any]) -> str:
    """The hash of a document, computed as in lm-eval."""
    text = json.dumps(doc, indent=2, ensure_ascii=False)
    return hashlib.sha256(text.encode("utf-8")).hexdigest()


def _scores(record: dict[str, Any], location: str) -> dict[str, Any]:
    """Values by metric: those listed, or in older logs every key that is not a fixed one."""
    names = record.get("metrics")
    if names is None:
        others = {name: value for name, value in record.items() if name not in FIXED}
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


def _name_filters(path: Path, task: str, lines: list[_Line], results: Results | None) -> None:
    """Name the filters of a log without names: each document occurs once per filter, in order."""
    if any(line.filter for line in lines):
        return
    counts: dict[tuple[str, int | None], int] = {}
    indices = []
    for line in lines:
        indices.append(counts.get((line.hash, line.doc_id), 0))
        counts[line.hash, line.doc_id] = indices[-1] + 1
    metrics = sorted({metric for line in lines for metric in line.scores})
    names = results.filters(task, metrics) if results else []
    if len(names) == 1 and max(indices) == 0:
        for line in lines:
            line.filter = names[0]
    if max(indices) == 0:
        return
    if len(names) != max(indices) + 1 or set(counts.values()) != {len(names)}:
        repeat = lines[next(i for i, index in enumerate(indices) if index)]
        advice = "Give the results file, whose totals name the filters."
        reason = f"document {repeat.doc_id} occurs again, and no filter is named. {advice}"
        raise InputError(f"{path}, line {repeat.number}: {reason}")
    for line, index in zip(lines, indices, strict=True):
        line.filter = names[index]


def _drop_repeats(path: Path, lines: list[_Line]) -> None:
    """Drop lines that repeat an earlier one; raise if their scores differ."""
    earlier: dict[tuple[str, int | None, str], _Line] = {}
    for line in lines:
        first = earlier.setdefault((line.hash, line.doc_id, line.filter), line)
        if first is not line and not _same(first.scores, line.scores):
            conflict = f"document {line.doc_id} is in line {first.number} with other scores"
            raise InputError(f"{path}, line {line.number}: {conflict}.")
    lines[:] = earlier.values()


def _same(one: dict[str, Any], other: dict[str, Any]) -> bool:
    """Whether two lines have the same scores (NaN equals NaN)."""
    return json.dumps(one, sort_keys=True) == json.dumps(other, sort_keys=True)


def _keys_of(lines: list[_Line]) -> tuple[list[str], int]:
    """Each line's key within the task, and how reliable the document numbers are.

    The key is the full hash; equal documents are numbered in the order of their ids.
    Trust is 2 if the numbers increase, 1 if they increase once the outputs of several processes
    are interleaved, 0 otherwise.
    """
    trust = min(_trust([ln.doc_id for ln in lines if ln.filter == name])
                for name in {line.filter for line in lines})  # fmt: skip
    documents = sorted({(ln.hash, -1 if ln.doc_id is None else ln.doc_id) for ln in lines})
    counts: dict[str, int] = {}
    names: dict[tuple[str, int], str] = {}
    for digest, number in documents:
        counts[digest] = counts.get(digest, 0) + 1
        suffix = f"#{counts[digest]}" if counts[digest] > 1 else ""
        names[digest, number] = f"{digest}{suffix}" if digest else f"doc{number}"
    return [names[ln.hash, -1 if ln.doc_id is None else ln.doc_id] for ln in lines], trust


def _trust(ids: list[int | None]) -> int:
    """The trust of document numbers (see `_keys_of`)."""
    if any(number is None for number in ids):
        return 0
    steps = np.diff(np.array(ids, dtype=np.int64))
    if (steps > 0).all():
        return 2
    runs = np.split(np.array(ids), np.flatnonzero(steps <= 0) + 1)
    longest = max(len(run) for run in runs)
    if len(runs) > 256 or longest - min(len(run) for run in runs) > 1:
        return 0
    grid = np.full((longest, len(runs)), -1)
    for column, run in enumerate(runs):
        grid[: len(run), column] = run
    interleaved = grid.ravel()
    interleaved = interleaved[interleaved >= 0]
    return int((np.diff(interleaved) > 0).all())


def _about(task: str, key: str, line: _Line, trust: int, items: Items) -> About:
    """The metadata of a line's document; its texts only if they are not known yet."""
    sample = str(line.doc_id) if trust > 0 or not line.hash else None
    known = items.find(task, key)
    if known is not None and known.text is not None:
        return About(
            task=task, key=key, format="lm-eval", hash=line.hash, sample=sample, trust=trust
        )
    doc, target = line.record["doc"], line.record["target"]
    text = next((doc[n] for n in TEXTS if doc.get(n)), None) if isinstance(doc, dict) else None
    text = text or _prompt(line.record["arguments"]) or doc
    return About(
        task=task,
        key=key,
        format="lm-eval",
        hash=line.hash,
        sample=sample,
        trust=trust,
        text=clip(text),
        target=clip(target),
    )


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


def _compare(path: Path, run: Run, results: Results) -> str:
    """Compare the lines with the results file; a sentence if their number differs, else ""."""
    means = {}
    for (name, metric), answers in run.columns.items():
        total = score_number(results.of("results", run.task).get(f"{metric},{name}"))
        if total is None or answers.flaw or np.isnan(answers.values).any() or np.isnan(total):
            continue
        if metric in results.averaged(run.task):
            means[name, metric] = (float(np.mean(answers.values)), total)
    wrong = [item for item in means.items() if abs(item[1][0] - item[1][1]) > NEAR]
    n_documents, reliable = results.sizes(run.task)
    most = max(len(np.unique(answers.items)) for answers in run.columns.values())
    least = min(len(np.unique(answers.items)) for answers in run.columns.values())
    differs = n_documents is not None and (most != n_documents or least != n_documents)
    if differs and (reliable or wrong):
        got = least if least != n_documents else most
        return f"{path}: expected {n_documents} documents, as stated in {results.file}. Got {got}."
    if wrong:
        (name, metric), (mean, total) = wrong[0]
        expected = f"a mean {metric} ({name}) of {total:.6g}, as stated in {results.file}"
        raise InputError(f"{path}: expected {expected}. Got {mean:.6g}.")
    return ""
