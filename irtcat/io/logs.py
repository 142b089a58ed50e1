"""Read logs of evaluation harnesses, one file or a folder tree, to responses and a report."""

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import pandas as pd

from irtcat._checks import InputError, argument_error, check_choice, check_count, shorten
from irtcat._progress import Progress
from irtcat._reading import MOST_BYTES, check_path
from irtcat.io._assemble import RUNS, assemble
from irtcat.io._choose import Preference, Preferences, group_name, show_column
from irtcat.io._find import LOG_FORMATS, LogFile, find_logs
from irtcat.io._lighteval_results import DETAILS, Totals
from irtcat.io._lm_eval_results import Results
from irtcat.io._logs import CutError, Items, Run
from irtcat.io._report import ImportReport, Skipped
from irtcat.io.every_eval_ever import read_every_eval_ever
from irtcat.io.helm import read_helm
from irtcat.io.inspect_log import MissingExtraError, read_inspect
from irtcat.io.lighteval import read_details
from irtcat.io.lm_eval import find_results, read_samples, split_name
from irtcat.responses import Responses

__all__ = ["INCOMPLETE", "Logs", "read_logs"]

INCOMPLETE = ("skip", "keep", "refuse")


Kind = TypeVar("Kind", Results, Totals)


@dataclass(frozen=True, eq=False)
class Logs:
    """Responses from logs, with a report of the import.

    Attributes:
        responses: subjects are models, items are documents or samples ("task/key").
        report: what was read, skipped and chosen.
    """

    responses: Responses
    report: ImportReport

    def __repr__(self) -> str:
        return f"Logs({self.responses!r}, {len(self.report.skipped)} files skipped)"


def read_logs(
    path: str | os.PathLike[str],
    format: str = "auto",
    *,
    tasks: Any = None,
    metric: Preference = None,
    filter: Preference = None,
    scorer: Preference = None,
    runs: str = "latest",
    incomplete: str = "skip",
    progress: Progress | None = None,
    max_bytes: int = MOST_BYTES,
) -> Logs:
    r"""Read who answered what from logs of evaluation harnesses.

    Formats: lm-evaluation-harness samples files (0.4.3 and later; with the results files beside
    them), Inspect AI's ``.eval`` and ``.json``, Every Eval Ever's JSON lines, HELM's run folders,
    and lighteval's details (0.11 and later, run with ``--save-details``; needs pyarrow). A tree
    may contain several tasks, filters, runs, models and formats. Files are read one after another,
    and only their scores are stored. If a log contains the harness's totals, its scores must
    reproduce them.

    Args:
        path: a log file, or a folder of them at any depth.
        format: "auto", or one of "lm-eval", "inspect", "every-eval-ever", "helm", "lighteval" to
            read only those.
        tasks: names of the tasks to read (lighteval's as "name|shots"); all by default.
        metric: the metric to read: a name, several in order of preference, or {task: name}. By
            default right or wrong (exact_match, acc, …) before others, and of those the one that
            most runs have; the report lists the selected metric and the others.
        filter: filter of lm-eval (split of HELM), in the same way, if a task has several.
        scorer: scorer of Inspect, in the same way; ``metric`` then names an entry of a score that
            has several.
        runs: for a model that was run more than once on a task: "latest" (for each item the
            latest answer), "mean" (all answers, as repeated trials) or "separate" (subjects
            "model@date"). Models that lm-eval gave one made-up name are always separate.
        incomplete: logs of runs that failed, were cancelled or have not ended, and truncated
            files: "skip" and report, "keep" the complete part, or "refuse" with an error
            (which also refuses every damaged file).
        progress: called with files done, number of files and the current file.
        max_bytes: how many bytes of a file are parsed as one document (256 MiB by default; for
            the members of an archive, a quarter of that).

    Returns:
        The responses and the report. Repeated trials (Inspect's epochs, the n answers of
        lighteval's avg@n) of right or wrong are shares of trials. Metadata: of
        subjects model, date, harness, version, runs, settings (JSON by task); of items task,
        format, sample (the harness's number or id; None if it is not reliable), hash,
        text, target.

    Raises:
        InputError: no file can be read, the only file is damaged, or a requested task or metric
            does not exist; naming file and line.

    Example:
        >>> import json, tempfile
        >>> folder = Path(tempfile.mkdtemp()) / "org__model"
        >>> folder.mkdir()
        >>> lines = [json.dumps({"doc_id": i, "doc": {"q": i}, "acc": i % 2}) for i in range(4)]
        >>> file = folder / "samples_quiz_2026-11-21T00-00-43.298874.jsonl"
        >>> size = file.write_text("\n".join(lines))
        >>> logs = read_logs(folder)
        >>> logs.responses
        Responses(1 subjects x 4 items, right/wrong)
        >>> "no results file" in logs.report.notes[0]
        True
    """
    check_choice("format", format, ("auto", *LOG_FORMATS))
    check_choice("runs", runs, RUNS)
    check_choice("incomplete", incomplete, INCOMPLETE)
    preferences = Preferences(metric, filter, scorer)
    check_count("max_bytes", max_bytes)
    root = check_path(path)
    names = _task_names(tasks)
    logs, skipped, no_logs, notes = find_logs(root, format)
    incomplete_logs = [log for log in skipped if log.incomplete]
    if incomplete_logs and incomplete == "refuse":
        raise InputError(incomplete_logs[0].reason)
    items = Items()
    all_runs: list[Run] = []
    unread_tasks: set[str] = set()
    reader = _Reader(items, incomplete == "keep", notes, max_bytes)
    for done, log in enumerate(logs):
        if progress is not None:
            progress(done, len(logs), log.path.name)
        if names and log.kind == "lm-eval" and split_name(log.path)[0] not in names:
            unread_tasks.add(split_name(log.path)[0])
            continue
        try:
            log_runs = reader.read(log)
            unread_tasks |= {run.task for run in log_runs if names and run.task not in names}
            all_runs += [run for run in log_runs if not names or run.task in names]
        except MissingExtraError:
            raise
        except OSError as error:
            reason = f"{log.path}: cannot be opened ({error.strerror or error})."
            skipped.append(Skipped(str(log.path), reason))
        except InputError as error:
            if incomplete == "refuse" or root.is_file():
                raise
            skipped.append(Skipped(str(log.path), str(error), isinstance(error, CutError)))
    if progress is not None:
        progress(len(logs), len(logs), "matrix")
    all_runs = _without_copies(all_runs, skipped)
    if not all_runs:
        raise InputError(_failure(root, names, skipped, unread_tasks, notes))
    notes += reader.unpaired() + (reader.undetailed(names) if root.is_dir() else [])
    return _finish(all_runs, items, preferences, runs, skipped, notes, no_logs, root)


def _task_names(tasks: Any) -> set[str]:
    """The requested tasks; empty for all."""
    if tasks is None:
        return set()
    names = {tasks} if isinstance(tasks, str) else set(tasks)
    if not names or not all(isinstance(name, str) and name for name in names):
        raise argument_error("tasks", "names of tasks", tasks)
    return names


def _failure(
    root: Path, names: set[str], skipped: list[Skipped], unread_tasks: set[str], notes: list[str]
) -> str:
    """The message if no log can be used."""
    reasons = " ".join(file.reason for file in skipped[:3])
    more = f" {len(skipped) - 3} more files were skipped." if len(skipped) > 3 else ""
    if names and unread_tasks:
        requested = ", ".join(sorted(names))
        message = (
            f"{root}: no log is of the tasks {requested}. Got {shorten(sorted(unread_tasks))}."
        )
        return f"{message} Skipped: {reasons}{more}" if skipped else message
    if skipped:
        return f"{root}: no log can be used. {reasons}{more}"
    advice = " ".join(notes) or "Run lm-eval with --log_samples, or give Inspect's log folder."
    if root.is_file():
        advice = f"A table of responses needs no import: every command reads it. {advice}"
    kinds = "lm-eval, Inspect, HELM, lighteval or Every Eval Ever"
    return f"{root}: expected logs of {kinds}. Got none. {advice}"


def _finish(
    runs: list[Run],
    items: Items,
    preferences: Preferences,
    how: str,
    skipped: list[Skipped],
    notes: list[str],
    no_logs: list[str],
    root: Path,
) -> Logs:
    """Assemble the responses and the report."""
    responses, assembly = assemble(runs, items, preferences, how)
    unused = [Skipped(run.file, reason) for run, reason in assembly["skipped"]]
    if unused and root.is_file():
        raise InputError(unused[0].reason)
    rows = []
    for run, answers in assembly["used"]:
        rows.append(
            {
                "file": run.file,
                "format": run.format,
                "model": run.model,
                "task": run.task,
                "metric": show_column(assembly["columns"][group_name(run)], run.format),
                "date": run.date or None,
                "version": run.version or None,
                "responses": int((~np.isnan(answers.values)).sum()),
                "mean": float(np.nanmean(answers.values)),
                "unscored": int(np.isnan(answers.values).sum()) + run.unscored,
                "incomplete": run.cut or None,
            }
        )
    notes = [*dict.fromkeys([*notes, *assembly["notes"]])]
    frame = pd.DataFrame(rows)
    return Logs(
        responses,
        ImportReport(
            frame, (*skipped, *unused), tuple(assembly["choices"]), tuple(notes), tuple(no_logs)
        ),
    )


class _Reader:
    """Reads one file after another; keeps the last results file, which several files may share."""

    def __init__(self, items: Items, keep: bool, notes: list[str], max_bytes: int) -> None:
        self.items, self.keep, self.notes, self.max_bytes = items, keep, notes, max_bytes
        self._last: tuple[Path | None, Results | Totals | InputError | None] = (None, None)
        self._without: dict[str, list[str]] = {"samples": [], "details": []}
        self._undetailed: dict[str, set[str]] = {}

    def read(self, log: LogFile) -> list[Run]:
        """Read the runs in a file."""
        if log.kind == "inspect":
            return [read_inspect(log.path, self.items, self.keep, self.max_bytes)]
        if log.kind == "helm":
            return [read_helm(log.path, self.items, self.max_bytes)]
        if log.kind == "every-eval-ever":
            return read_every_eval_ever(log.path, self.items, self.keep)
        if log.kind == "lighteval":
            return [self._details(log)]
        results = self._results(log.path, find_results(log.path), Results)
        run = read_samples(log.path, results, self.items, self.keep)
        if results is None:
            if run.cut and not self.keep:
                raise CutError(run.cut)
            self._without["samples"].append(str(log.path))
        return [run]

    def _details(self, log: LogFile) -> Run:
        """Read a details file of lighteval."""
        totals = self._results(log.path, log.totals, Totals)
        if totals is None:
            self._without["details"].append(str(log.path))
            return read_details(log.path, None, self.items)
        remaining = self._undetailed.setdefault(totals.file, set(totals.tasks))
        if match := DETAILS.fullmatch(log.path.name):
            remaining.discard(match["task"])  # it exists, even if it cannot be read
        run = read_details(log.path, totals, self.items)
        remaining.discard(run.task)
        return run

    def _results(self, log: Path, path: Path | None, kind: type[Kind]) -> Kind | None:
        """Read the results file of a log, if there is one."""
        if path is None:
            return None
        if self._last[0] != path:
            try:
                self._last = (path, kind.read(path))
            except InputError as error:
                self._last = (path, error)
        if not isinstance(self._last[1], kind):
            raise InputError(f"{log}: its results file cannot be used. {self._last[1]}")
        return self._last[1]

    def unpaired(self) -> list[str]:
        """Notes about files without a results file."""
        notes = []
        for kind, files in self._without.items():
            if files:
                subject = f"{kind} file has" if len(files) == 1 else f"{kind} files have"
                effect = "their models are named after their folders, and totals were not compared"
                notes.append(
                    f"{len(files)} {subject} no results file ({files[0]} first): {effect}."
                )
        return notes

    def undetailed(self, names: set[str]) -> list[str]:
        """Notes about lighteval's results with totals of tasks without details."""
        notes = []
        for file, tasks in self._undetailed.items():
            lacking = sorted(tasks & names if names else tasks)
            if lacking:
                notes.append(f"{file}: there are no details of {shorten(lacking)}, only totals.")
        return notes


def _without_copies(runs: list[Run], skipped: list[Skipped]) -> list[Run]:
    """Remove repeated runs: a log that was copied or converted by Inspect counts once."""
    unique: dict[tuple[str, ...], Run] = {}
    for run in runs:
        if not run.session:
            unique[run.file, run.task] = run
            continue
        session = Path(run.session).name if run.format == "lm-eval" else run.session
        key: tuple[str, ...] = (run.format, session, run.task, run.model, run.date)
        if key in unique and _same_answers(unique[key], run):
            reason = f"{run.file}: a copy of {unique[key].file}."
            skipped.append(Skipped(run.file, reason))
            continue
        while key in unique:
            key = (*key, run.file)
        unique[key] = run
    return list(unique.values())


def _same_answers(one: Run, other: Run) -> bool:
    """Whether two runs have the same answers."""
    return one.columns.keys() == other.columns.keys() and all(
        np.array_equal(one.columns[c].items, other.columns[c].items)
        and np.array_equal(one.columns[c].values, other.columns[c].values, equal_nan=True)
        for c in one.columns
    )
