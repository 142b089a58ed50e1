"""Details files of lighteval, 0.11 and later (Parquet), with the results files of their runs."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from irtcat._checks import InputError, brief, shorten
from irtcat._reading import MOST_BYTES, too_large
from irtcat.io._lighteval_results import DETAILS, Totals, model_by_folder
from irtcat.io._logs import (
    About,
    Answers,
    CutError,
    Items,
    Rows,
    Run,
    as_object,
    as_text,
    clip,
    score_number,
)
from irtcat.io.inspect_log import MissingExtraError
from irtcat.io.lm_eval import document_hash, spread_stamp
from irtcat.io.parquet import unpacked_bytes

__all__ = ["read_details"]

PARTS = ("query", "choices", "gold_index", "id", "task_name")
COLUMNS = [*(f"doc.{name}" for name in PARTS), "metric"]
AT_ONCE = 256
MOST_ROWS = 2**22
NEAR = 1e-9
"""How far a mean of the rows may be from lighteval's own (rounding of long sums)."""


@dataclass(slots=True)
class _Row:
    """One document, scored by the metrics of one way of asking."""

    number: int
    task: str
    id: str
    hash: str
    text: str | None
    target: str | None
    scores: dict[str, Any]


def read_details(path: Path, totals: Totals | None, items: Items) -> Run:
    """Read one details file; of its columns only documents and scores are taken into memory.

    Documents are told apart by their numbers, which count from 0 in each split: where a task is
    of several splits, by number and content. A task that is asked in two ways (by generation and
    by likelihood) has two rows per document, each with the metrics of its way. The metrics avg@n,
    and pass@k where k is 1, are shares of n answers: these become n trials of the item.

    Args:
        path: the details file.
        totals: what its results file says; None where there is none.
        items: the items of all runs, added to.

    Raises:
        InputError: pyarrow is not installed, or naming the file and row at fault.
    """
    read = list(_rows(path))
    if not read:
        raise InputError(f"{path}: expected a row per document. Got none.")
    tasks = sorted({row.task for row in read})
    if len(tasks) > 1:
        raise InputError(f"{path}: expected rows of one task. Got {shorten(tasks)}.")
    found = DETAILS.fullmatch(path.name)
    stamp = found["stamp"] if found else ""
    run = Run(str(path), "lighteval", tasks[0], "", spread_stamp(stamp), stamp)
    several = len({row.id for row in read}) < len({(row.id, row.hash) for row in read})
    several = several or (totals is not None and totals.splits(run.task) > 1)
    run.columns = _columns(path, read, several, items)
    if totals is None:
        run.model = model_by_folder(path)  # details/MODEL/DATE: lighteval names it after the model
    else:
        run.model, run.settings = totals.model, totals.settings(run.task)
        run.lower_is_better = totals.lower(run.task)
        _compare(run, totals)
    for (part, metric), answers in run.columns.items():
        run.columns[part, metric] = _as_trials(answers, _answers_each(metric))
    return run


def _columns(
    path: Path, read: list[_Row], several: bool, items: Items
) -> dict[tuple[str, str], Answers]:
    """The values by metric."""
    rows = Rows()
    seen: set[tuple[str, str]] = set()
    for row in read:
        key = row.hash if several else row.id
        about = About(row.task, key, "lighteval", text=row.text, target=row.target)
        if several:
            about.hash = row.hash
        else:
            about.sample, about.trust = row.id, 2
        place = f"{path}, row {row.number}"
        item = items.place(about)
        for metric, value in row.scores.items():
            if value is None:  # a metric of the other way of asking
                continue
            if (key, metric) in seen:
                raise InputError(f"{place}: document {brief(row.id)} comes twice.")
            seen.add((key, metric))
            rows.add(("", metric), item, value, place)
    columns = rows.columns()
    if not columns:
        raise InputError(f"{path}: expected a metric. Got none that has values.")
    return columns


def _rows(path: Path) -> Iterator[_Row]:
    """The rows, checked."""
    for number, record in enumerate(_records(path), start=1):
        place = f"{path}, row {number}"
        doc = as_object(record.get("doc"), place, "doc")
        scores = as_object(record.get("metric"), place, "metric")
        task = as_text(doc.get("task_name"), place, "doc.task_name")
        name = as_text(doc.get("id"), place, "doc.id")
        digest = document_hash({part: doc.get(part) for part in PARTS[:-1]})
        target = clip(_target(doc.get("choices"), doc.get("gold_index")))
        yield _Row(number, task, name, digest, clip(doc.get("query")), target, scores)


def _records(path: Path) -> Iterator[dict[str, Any]]:
    """The rows as they are, a few hundred at a time."""
    try:
        import pyarrow as pa
        from pyarrow import parquet
    except ImportError:
        advice = "Install it: pip install 'irtcat[parquet]'."
        what = "reading lighteval's details needs pyarrow"
        raise MissingExtraError(f"{path}: {what}. {advice}") from None
    with path.open("rb") as stream:
        if stream.read(4) != b"PAR1" or stream.seek(0, 2) < 12:
            raise InputError(f"{path}: expected a Parquet file. Got something else.")
        stream.seek(-4, 2)
        if stream.read(4) != b"PAR1":
            raise CutError(f"{path}: the file is cut off.")
        try:
            file = parquet.ParquetFile(stream)
            names, rows = set(file.schema_arrow.names), file.metadata.num_rows
            wrong = _wrong(names, rows)
            for group in range(0 if wrong else file.num_row_groups):  # one in memory at a time
                size = unpacked_bytes(file.metadata, [group], COLUMNS, MOST_BYTES)
                if size > MOST_BYTES:
                    raise too_large(f"{path}, row group {group + 1}", MOST_BYTES)
                # no value is longer than the group, however many rows share it
                at_once = max(1, min(AT_ONCE, MOST_BYTES // max(1, size)))
                parts = file.iter_batches(at_once, [group], COLUMNS, use_threads=False)
                for part in parts:
                    yield from part.to_pylist()
        except InputError:
            raise
        except (pa.ArrowException, OSError, ValueError, LookupError, TypeError, OverflowError):
            raise InputError(f"{path}: the Parquet file is damaged.") from None
    if wrong:
        raise InputError(f"{path}: {wrong}")


def _wrong(names: set[str], rows: int) -> str:
    """Why a table cannot be the details of a task; empty where it can."""
    if not {"doc", "metric"} <= names:
        got = shorten(sorted(names))
        return f"expected the columns doc and metric of lighteval 0.11 and later. Got {got}."
    return f"expected at most {MOST_ROWS} rows. Got {rows}." if rows > MOST_ROWS else ""


def _target(choices: Any, gold: Any) -> Any:
    """The right choice; a list where there are several; None where it is not told."""
    places = gold if isinstance(gold, list) else [gold]
    if not isinstance(choices, list):
        return None
    right = [choices[g] for g in places if isinstance(g, int) and 0 <= g < len(choices)]
    return right[0] if len(right) == 1 else right or None


def _compare(run: Run, totals: Totals) -> None:
    """Refuse rows that do not give the run's own means."""
    for metric in totals.averaged(run.task):
        answers, said = run.columns.get(("", metric)), totals.total(run.task, metric)
        total = score_number(said)
        if answers is None or answers.flaw or total is None or np.isnan(total):
            continue
        mean = float(np.mean(answers.values))
        if not np.isnan(mean) and abs(mean - total) > NEAR:
            text = f"a mean {metric} of {total:.6g}, as {totals.file} says"
            raise InputError(f"{run.file}: expected {text}. Got {mean:.6g}.")


def _answers_each(metric: str) -> int:
    """How many answers to a document the value of a metric is the share of; 1 where of none.

    Example:
        >>> [_answers_each(m) for m in ("em", "avg@n:n=4", "pass@k:k=1&n=8", "pass@k:k=2&n=8")]
        [1, 4, 8, 1]
    """
    name, _, given = metric.partition(":")
    settings = dict(part.split("=", 1) for part in given.split("&") if "=" in part)
    share = re.fullmatch(r"(\w+_)?avg@n", name) is not None
    share = share or (re.fullmatch(r"(\w+_)?pass@k", name) is not None and settings.get("k") == "1")
    n = settings.get("n", "")
    return int(n) if share and re.fullmatch(r"[1-9]\d{0,2}", n) else 1


def _as_trials(answers: Answers, n: int) -> Answers:
    """Shares of n answers as n answers each; as they are where they are no such shares."""
    right = np.rint(answers.values * n)
    if n == 1 or answers.flaw or not (np.abs(answers.values * n - right) < NEAR).all():
        return answers
    values = (np.arange(n) < right[:, None]).ravel().astype(float)
    return Answers(np.repeat(answers.items, n), values)
