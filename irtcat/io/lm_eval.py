"""Samples files of lm-evaluation-harness, 0.4.3 and later, with the results files beside them."""

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
    score_number,
    when,
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
"""How far a mean of the lines may be from the harness's own (rounding of long sums)."""


def split_name(path: Path) -> tuple[str, str]:
    """Task and time stamp of a samples file, by its name.

    Example:
        >>> split_name(Path("samples_arc_easy_2026-11-21T00-00-43.298874.jsonl"))
        ('arc_easy', '2026-11-21T00-00-43.298874')
        >>> split_name(Path("samples_arc_easy.jsonl"))
        ('arc_easy', '')
    """
    found = SAMPLES.fullmatch(path.name)
    if found:
        return found["task"], found["stamp"]
    undated = UNDATED.fullmatch(path.name)  # as `irtcat evaluate` keeps them
    return (undated["task"] if undated else path.stem), ""


def find_results(path: Path) -> Path | None:
    """The results file of the same run as a samples file: same folder, same time stamp."""
    stamp = split_name(path)[1]
    if not stamp:
        return None
    named = path.with_name(f"results_{stamp}.json")
    if named.is_file():
        return named
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

    Documents are told apart by the hash of their content (computed where an older log lacks
    it), because the harness logs wrong numbers for unsorted ``--samples``; by number only
    where the document is not in the log either.

    Args:
        path: the samples file.
        results: what its results file says; None where there is none.
        items: the items of all runs, added to.
        keep: take what is there of a file that was cut off.

    Raises:
        InputError: naming the file and line at fault.
    """
    task, stamp = split_name(path)
    lines, cut = _read_lines(path, keep)
    _name_passes(path, task, lines, results)
    _drop_repeats(path, lines)
    run = Run(str(path), "lm-eval", task, "", when(stamp) or spread_stamp(stamp), stamp)
    keys, trust = _keys_of(lines)
    if trust == 0 and not all(line.hash for line in lines):
        what = "the document numbers are out of order and there are no hashes to tell documents by"
        raise InputError(f"{path}: {what}. Run lm-eval anew with sorted --samples.")
    places, rows = {}, Rows()
    for key, line in zip(keys, lines, strict=True):
        if key not in places:
            places[key] = items.place(_about(task, key, line, trust, items))
        for metric, value in line.scores.items():
            rows.add((line.filter, metric), places[key], value, f"{path}, line {line.number}")
    run.columns = rows.columns()
    if any(not answers.flaw for answers in run.columns.values()):
        run.unscored = min(int(np.isnan(a.values).sum()) for a in run.columns.values())
    run.notes = (_wrong_ids(path),) if trust == 0 and lines[0].doc_id is not None else ()
    if results is None:
        run.model, run.name_source = path.parent.resolve().name, "folder"
        run.cut = cut
        return run
    run.model, run.name_source = results.model, results.name_source
    run.session = f"{path.parent}/{stamp}"
    run.date = when(results.document.get("date")) or run.date
    run.version = str(results.document.get("lm_eval_version") or "")
    run.settings = results.settings(task)
    run.lower_is_better = results.lower(task)
    run.cut = cut or _compare(path, run, results)
    if run.cut and not keep:
        raise CutError(run.cut)
    return run


def _wrong_ids(path: Path) -> str:
    return (
        f"{path}: the document numbers are out of order, as of a run in batches, or as lm-eval "
        "logs them for unsorted or repeated --samples; the documents' hashes were used instead."
    )


def spread_stamp(stamp: str) -> str:
    """A time stamp of a file name as a date."""
    day, _, time = stamp.partition("T")
    return when(f"{day}T{time.replace('-', ':')}") if time else ""


def _read_lines(path: Path, keep: bool) -> tuple[list[_Line], str]:
    """All lines; and, where the last is cut off and that is bearable, a sentence about it."""
    lines: list[_Line] = []
    for number, raw, ended in numbered_lines(path):
        place = f"{path}, line {number}"
        try:
            record = parse_json(raw, place)
        except InputError as error:
            if ended:
                raise error from None
            cut = f"{place}: the file is cut off in the middle of this line."
            if keep and lines:
                return lines, cut
            raise CutError(cut) from None
        lines.append(_line(as_object(record, place, "a line"), number, place))
    if not lines:
        raise CutError(f"{path}: expected a line per document. Got an empty file.")
    return lines, ""


def _line(record: dict[str, Any], number: int, place: str) -> _Line:
    """The parts of a line, checked."""
    doc_id = record.get("doc_id")
    whole = isinstance(doc_id, int) and not isinstance(doc_id, bool) and 0 <= doc_id < 2**53
    if doc_id is not None and not whole:
        raise InputError(f"{place}: expected doc_id to be a number from 0. Got {shorten(doc_id)}.")
    found = record.get("doc_hash")
    if found is None and isinstance(record.get("doc"), dict):
        found = document_hash(record["doc"])
    if found is not None and (not isinstance(found, str) or not re.fullmatch(r"\w{16,128}", found)):
        raise InputError(f"{place}: expected doc_hash to be a hash. Got {shorten(found)}.")
    if found is None and doc_id is None:
        raise InputError(f"{place}: expected doc_hash, doc or doc_id. Got {shorten(list(record))}.")
    name = record.get("filter", "")
    if not isinstance(name, str):
        raise InputError(f"{place}: expected filter to be a name. Got {shorten(name)}.")
    small = {name: record.get(name) for name in ("doc", "target", "arguments")}
    return _Line(number, doc_id, found or "", name, _scores(record, place), small)


def document_hash(doc: dict[str, Any]) -> str:
    """The hash of a document, as lm-eval computes it."""
    text = json.dumps(doc, indent=2, ensure_ascii=False)
    return hashlib.sha256(text.encode("utf-8")).hexdigest()


def _scores(record: dict[str, Any], place: str) -> dict[str, Any]:
    """Values by metric: those named, or in older logs every key that is none of the usual."""
    names = record.get("metrics")
    if names is None:
        found = {name: value for name, value in record.items() if name not in FIXED}
        scores = {name: v for name, v in found.items() if v is None or score_number(v) is not None}
    elif not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise InputError(f"{place}: expected metrics to be names. Got {shorten(names)}.")
    else:
        lacking = [name for name in names if name not in record]
        if lacking:
            raise InputError(f"{place}: expected the metric {lacking[0]}, which metrics names.")
        scores = {name: record[name] for name in names}
    if not scores:
        raise InputError(f"{place}: expected a metric. Got {shorten(list(record))}.")
    return scores


def _name_passes(path: Path, task: str, lines: list[_Line], results: Results | None) -> None:
    """Name the filters of a log that does not: each document comes once per filter, in order."""
    if any(line.filter for line in lines):
        return
    seen: dict[tuple[str, int | None], int] = {}
    turns = []
    for line in lines:
        turns.append(seen.get((line.hash, line.doc_id), 0))
        seen[line.hash, line.doc_id] = turns[-1] + 1
    metrics = sorted({metric for line in lines for metric in line.scores})
    names = results.filters(task, metrics) if results else []
    if len(names) == 1 and max(turns) == 0:
        for line in lines:
            line.filter = names[0]
    if max(turns) == 0:
        return
    if len(names) != max(turns) + 1 or set(seen.values()) != {len(names)}:
        again = lines[next(i for i, turn in enumerate(turns) if turn)]
        advice = "Give the results file, whose totals name the filters."
        what = f"document {again.doc_id} comes again, and no filter is named. {advice}"
        raise InputError(f"{path}, line {again.number}: {what}")
    for line, turn in zip(lines, turns, strict=True):
        line.filter = names[turn]


def _drop_repeats(path: Path, lines: list[_Line]) -> None:
    """Drop lines that say again what an earlier one says; refuse those that say otherwise."""
    seen: dict[tuple[str, int | None, str], _Line] = {}
    for line in lines:
        first = seen.setdefault((line.hash, line.doc_id, line.filter), line)
        if first is not line and not _same(first.scores, line.scores):
            what = f"document {line.doc_id} stands in line {first.number} with other scores"
            raise InputError(f"{path}, line {line.number}: {what}.")
    lines[:] = seen.values()


def _same(one: dict[str, Any], other: dict[str, Any]) -> bool:
    """Whether two lines have the same scores (NaN is like NaN)."""
    return json.dumps(one, sort_keys=True) == json.dumps(other, sort_keys=True)


def _keys_of(lines: list[_Line]) -> tuple[list[str], int]:
    """Each line's key within the task, and how far the document numbers can be trusted.

    The key is the whole hash; equal documents are numbered in the order of their ids.
    Trust is 2 where numbers rise, 1 where they rise once the parts of several processes are
    put together, 0 where they do not.
    """
    trust = min(_trust([ln.doc_id for ln in lines if ln.filter == name])
                for name in {line.filter for line in lines})  # fmt: skip
    documents = sorted({(ln.hash, -1 if ln.doc_id is None else ln.doc_id) for ln in lines})
    turn: dict[str, int] = {}
    names: dict[tuple[str, int], str] = {}
    for digest, number in documents:
        turn[digest] = turn.get(digest, 0) + 1
        again = f"#{turn[digest]}" if turn[digest] > 1 else ""
        names[digest, number] = f"{digest}{again}" if digest else f"doc{number}"
    return [names[ln.hash, -1 if ln.doc_id is None else ln.doc_id] for ln in lines], trust


def _trust(ids: list[int | None]) -> int:
    """See `_keys_of`."""
    if any(number is None for number in ids):
        return 0
    steps = np.diff(np.array(ids, dtype=np.int64))
    if (steps > 0).all():
        return 2
    parts = np.split(np.array(ids), np.flatnonzero(steps <= 0) + 1)
    longest = max(len(part) for part in parts)
    if len(parts) > 256 or longest - min(len(part) for part in parts) > 1:
        return 0
    grid = np.full((longest, len(parts)), -1)
    for column, part in enumerate(parts):
        grid[: len(part), column] = part
    together = grid.ravel()
    together = together[together >= 0]
    return int((np.diff(together) > 0).all())


def _about(task: str, key: str, line: _Line, trust: int, items: Items) -> About:
    """What a line says of its document; the texts only where they are news."""
    sample = str(line.doc_id) if trust > 0 or not line.hash else None
    known = items.find(task, key)
    if known is not None and known.text is not None:
        return About(task, key, "lm-eval", line.hash, sample, trust)
    doc, target = line.record["doc"], line.record["target"]
    text = next((doc[n] for n in TEXTS if doc.get(n)), None) if isinstance(doc, dict) else None
    text = text or _prompt(line.record["arguments"]) or doc
    about = About(task, key, "lm-eval", line.hash, sample, trust, clip(text), clip(target))
    return about


def _prompt(arguments: Any) -> str | None:
    """The prompt, in the two spellings that the harness has had."""
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
    """A sentence where the lines do not give what the results file says; else empty."""
    means = {}
    for (name, metric), answers in run.columns.items():
        total = score_number(results.of("results", run.task).get(f"{metric},{name}"))
        if total is None or answers.flaw or np.isnan(answers.values).any() or np.isnan(total):
            continue
        if metric in results.averaged(run.task):
            means[name, metric] = (float(np.mean(answers.values)), total)
    wrong = [each for each in means.items() if abs(each[1][0] - each[1][1]) > NEAR]
    said, sure = results.sizes(run.task)
    most = max(len(np.unique(answers.items)) for answers in run.columns.values())
    least = min(len(np.unique(answers.items)) for answers in run.columns.values())
    if said is not None and (most != said or least != said) and (sure or wrong):
        got = least if least != said else most
        return f"{path}: expected {said} documents, as {results.file} says. Got {got}."
    if wrong:
        (name, metric), (mean, total) = wrong[0]
        text = f"a mean {metric} ({name}) of {total:.6g}, as {results.file} says"
        raise InputError(f"{path}: expected {text}. Got {mean:.6g}.")
    return ""
