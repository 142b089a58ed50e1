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

FIELDS = ("query", "choices", "gold_index", "id", "task_name")
COLUMNS = [*(f"doc.{name}" for name in FIELDS), "metric"]
BATCH_ROWS = 256
"""Rows converted to Python objects at once."""
MOST_ROWS = 2**22
"""Largest accepted number of rows of a details file."""
NEAR = 1e-9
"""Largest accepted difference of a mean from lighteval's own (rounding of long sums)."""


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


def read_details(path: Path, totals: Totals | None, items: Items) -> Run:
    """Read one details file; only the columns of documents and scores are read into memory.

    Documents are distinguished by their numbers, which count from 0 in each split: if a task has
    several splits, by number and content. A task with two request types (generation and
    likelihood) has two rows per document, each with the metrics of its type. The metrics avg@n,
    and pass@k if k is 1, are shares of n answers: these become n trials of the item.

    Args:
        path: the details file.
        totals: the content of its results file, if any.
        items: the items of all runs, which are added to.

    Raises:
        InputError: pyarrow is not installed, or naming the file and the invalid row.
    """
    rows = list(_rows(path))
    if not rows:
        raise InputError(f"{path}: expected a row per document. Got none.")
    tasks = sorted({row.task for row in rows})
    if len(tasks) > 1:
        raise InputError(f"{path}: expected rows of one task. Got {shorten(tasks)}.")
    match = DETAILS.fullmatch(path.name)
    stamp = match["stamp"] if match else ""
    run = Run(
        file=str(path),
        format="lighteval",
        task=tasks[0],
        model="",
        date=spread_stamp(stamp),
        session=stamp,
    )
    by_hash = len({row.id for row in rows}) < len({(row.id, row.hash) for row in rows})
    by_hash = by_hash or (totals is not None and totals.splits(run.task) > 1)
    run.columns = _columns(path, rows, by_hash, items)
    if totals is None:
        run.model = model_by_folder(path)  # lighteval writes to details/MODEL/DATE
    else:
        run.model, run.settings = totals.model, totals.settings(run.task)
        run.lower_is_better = totals.lower(run.task)
        _compare(run, totals)
    for column, answers in run.columns.items():
        run.columns[column] = _as_trials(answers, _n_answers(column[1]))
    return run


def _columns(
    path: Path, rows: list[_Row], by_hash: bool, items: Items
) -> dict[tuple[str, str], Answers]:
    """The values by metric."""
    collected = Rows()
    scored: set[tuple[str, str]] = set()
    for row in rows:
        key = row.hash if by_hash else row.id
        about = About(row.task, key, "lighteval", text=row.text, target=row.target)
        if by_hash:
            about.hash = row.hash
        else:
            about.sample, about.trust = row.id, 2
        location = f"{path}, row {row.number}"
        item = items.add(about)
        for metric, value in row.scores.items():
            if value is None:  # a metric of the other request type
                continue
            if (key, metric) in scored:
                raise InputError(f"{location}: document {brief(row.id)} occurs twice.")
            scored.add((key, metric))
            collected.add(("", metric), item, value, location)
    columns = collected.columns()
    if not columns:
        raise InputError(f"{path}: expected a metric. Got none with values.")
    return columns


def _rows(path: Path) -> Iterator[_Row]:
    """Yield the rows, checked."""
    for number, record in enumerate(_records(path), start=1):
        location = f"{path}, row {number}"
        doc = as_object(record.get("doc"), location, "doc")
        scores = as_object(record.get("metric"), location, "metric")
        task = as_text(doc.get("task_name"), location, "doc.task_name")
        name = as_text(doc.get("id"), location, "doc.id")
        digest = document_hash({field: doc.get(field) for field in FIELDS[:-1]})
        yield _Row(
            number=number,
            task=task,
            id=name,
            hash=digest,
            text=clip(doc.get("query")),
            target=clip(_target(doc.get("choices"), doc.get("gold_index"))),
            scores=scores,
        )


def _records(path: Path) -> Iterator[dict[str, Any]]:
    """Yield the rows as objects, a few hundred at a time."""
    try:
        import pyarrow as pa
        from pyarrow import parquet
    except ImportError:
        advice = "Install it: pip install 'irtcat[parquet]'."
        requirement = "reading lighteval's details needs pyarrow"
        raise MissingExtraError(f"{path}: {requirement}. {advice}") from None
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


def _compare(run: Run, totals: Totals) -> None:
    """Raise if the rows do not reproduce the run's own means."""
    for metric in totals.averaged(run.task):
        answers = run.columns.get(("", metric))
        total = score_number(totals.total(run.task, metric))
        if answers is None or answers.flaw or total is None or np.isnan(total):
            continue
        mean = float(np.mean(answers.values))
        if not np.isnan(mean) and abs(mean - total) > NEAR:
            expected = f"a mean {metric} of {total:.6g}, as stated in {totals.file}"
            raise InputError(f"{run.file}: expected {expected}. Got {mean:.6g}.")


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
    return Answers(np.repeat(answers.items, n), values)
