"""Read logs of evaluation harnesses, one file or a folder tree, to responses and a report."""

import json
import os
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from irtcat._common.checks import InputError, argument_error, check_choice, check_count, shorten
from irtcat._common.progress import ProgressOption, with_progress
from irtcat._common.registry import documented
from irtcat._files.reading import MOST_BYTES, check_path
from irtcat.io.logs.assemble import RUNS, UNSCORED, assemble
from irtcat.io.logs.choose import OptionChoice, Preference, Preferences, ScoreScales
from irtcat.io.logs.find import LOG_FORMATS, find_logs
from irtcat.io.logs.format import Items, LogFormat, Request, Run, Skipped, by_group
from irtcat.io.logs.values import CutError, MissingExtraError
from irtcat.responses import Responses
from irtcat.responses._conditions import MISMATCH


@dataclass
class RunsOfTree:
    """The runs in the files of a tree, read one after another.

    Attributes:
        names: the tasks to read; all if empty.
        requests: what to read of the logs of each format.
        refuse: whether a damaged or incomplete file is an error, rather than skipped.
        skipped: the files that are skipped, to which these are added.
        items: the items of all runs.
        runs: the runs.
        unread_tasks: tasks in the files that are not read.
    """

    names: Collection[str]
    requests: Mapping[LogFormat, Request]
    refuse: bool
    skipped: list[Skipped]
    items: Items = field(default_factory=Items)
    runs: list[Run] = field(default_factory=list)
    unread_tasks: set[str] = field(default_factory=set)

    def add(self, file: Path, row: LogFormat) -> None:
        """Add the runs of a file, or skip it."""
        try:
            self.runs += self._read(file, row)
        except MissingExtraError:
            raise
        except OSError as error:
            reason = f"{file}: cannot be opened ({error.strerror or error})."
            self.skipped.append(Skipped(str(file), reason))
        except InputError as error:
            if self.refuse:
                raise
            self.skipped.append(Skipped(str(file), str(error), isinstance(error, CutError)))

    def _read(self, file: Path, row: LogFormat) -> list[Run]:
        request = self.requests[row]
        found = list(row.read(file, request))
        wanted = [run for run in found if not self.names or run.task in self.names]
        if self.names:
            self.unread_tasks |= {run.task for run in found} - set(self.names)
        if not request.keep and (cut := [run.cut for run in found if run.cut]):
            raise CutError(cut[0])
        if not found or any(not run.columns for run in wanted):
            raise CutError(f"{file}: no sample has a score.")
        return [_with_positions(run, file, row, self.items) for run in wanted]


def _with_positions(run: Run, file: Path, row: LogFormat, items: Items) -> Run:
    """The run with its items' positions among those of all runs, to which they are added."""
    run.file, run.format = run.file or str(file), row
    for item in run.items.all:
        item.format = row
    compare = row.samples != "documents"  # texts are prompts, which depend on the settings
    positions = np.array([items.add(item, compare) for item in run.items.all], np.int32)
    for answers in run.columns.values():
        answers.items = positions[answers.items]
    run.unscored = [(int(positions[item]), trial) for item, trial in run.unscored]
    run.items = Items()
    return run


def complete_lists(runs: list[Run]) -> list[str]:
    """Add what lists of right items leave out: the items that other logs of the task name.

    Returns:
        Notes that say so.

    Raises:
        InputError: no other log names an item that a list leaves out.
    """
    notes = []
    for name, group in by_group(runs).items():
        lists = [run for run in group if run.lists_right_only]
        if not lists:
            continue
        named = np.unique(np.concatenate([a.items for run in group for a in run.columns.values()]))
        for run in lists:
            for column, answers in run.columns.items():
                others = np.setdiff1d(named, answers.items).astype(np.int32)
                run.columns[column] = answers.with_wrong(others, np.zeros_like(others))
        if all((answers.values == 1).all() for run in group for answers in run.columns.values()):
            advice = "Give the lists of several runs, or reports with the others too"
            raise InputError(f"{group[0].file}: only resolved items are listed. {advice}.")
        notes.append(
            f"{name}: the logs list resolved items. The others of the {len(named)} items that some "
            "log names count as wrong; items that no log names are not there, so that all means "
            "are of these."
        )
    return notes


def without_copies(runs: list[Run], skipped: list[Skipped]) -> list[Run]:
    """Remove repeated runs: a log that was copied or converted by Inspect counts once."""
    unique: dict[tuple[str, ...], Run] = {}
    for run in runs:
        session = run.copied_session or run.session or run.file
        arguments = json.dumps(run.arguments, sort_keys=True)
        key: tuple[str, ...] = (run.format.name, session, run.task, run.model, run.date, arguments)
        if key in unique and _same_answers(unique[key], run):
            skipped.append(Skipped(run.file, f"{run.file}: a copy of {unique[key].file}."))
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


@dataclass(frozen=True, eq=False)
class ImportReport:
    """What was read, what was skipped, and what was chosen.

    Attributes:
        runs: a row per run that was used: file, format, model, subject, task, metric, date,
            version, responses, mean, unscored (samples without a score), incomplete (the reason,
            or None).
        skipped: files that were not read or not used.
        choices: the options selected where there were several.
        notes: further remarks.
        no_logs: files of the tree that are not logs (hidden ones included).
    """

    runs: pd.DataFrame
    skipped: tuple[Skipped, ...]
    choices: tuple[OptionChoice, ...]
    notes: tuple[str, ...]
    no_logs: tuple[str, ...] = ()

    @property
    def others(self) -> int:
        """Number of files in the tree that are not logs."""
        return len(self.no_logs)

    def __str__(self) -> str:
        files = self.runs["file"].nunique()
        lines = [f"{files} log files read, {len(self.skipped)} skipped, {self.others} are not logs"]
        lines += [f"not logs: {self.name_others()}"] if self.no_logs else []
        lines += [f"chosen: {choice}" for choice in self.choices if choice.others]
        lines += [f"note: {note}" for note in self.notes]
        lines += [f"skipped: {file.reason}" for file in self.skipped]
        return "\n".join(lines)

    def name_others(self, most: int = 5) -> str:
        """The names of up to ``most`` files that are not logs."""
        names = ", ".join(Path(path).name for path in self.no_logs[:most])
        more = len(self.no_logs) - most
        return f"{names} and {more} more" if more > 0 else names

    def to_frame(self) -> pd.DataFrame:
        """One table of the runs used and all other files, with a column of reasons."""
        unused = [{"file": file.file, "skipped": file.reason} for file in self.skipped]
        unused += [{"file": path, "skipped": f"{path}: not a log."} for path in self.no_logs]
        # Nullable integers: the rows of unused files have no counts.
        table = self.runs.astype({"responses": "Int64", "unscored": "Int64"})
        if not unused:
            return table.assign(skipped=None)
        return pd.concat([table, pd.DataFrame(unused)], ignore_index=True)

    def to_dict(self) -> dict[str, Any]:
        """The report as JSON types."""
        runs = self.runs.astype(object).where(self.runs.notna(), None)
        return {
            "runs": runs.to_dict("records"),
            "skipped": [vars(file) for file in self.skipped],
            "choices": [{**vars(c), "others": list(c.others)} for c in self.choices],
            "notes": list(self.notes),
            "others": self.others,
            "no_logs": list(self.no_logs),
        }


INCOMPLETE = ("skip", "keep", "refuse")


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


@documented(LOG_FORMATS)
@with_progress("Reading logs")
def read_logs(
    path: str | os.PathLike[str],
    format: str = "auto",
    *,
    tasks: Any = None,
    metric: Preference = None,
    filter: Preference = None,
    scorer: Preference = None,
    num_fewshot: Any = None,
    runs: str = "latest",
    incomplete: str = "skip",
    mismatch: str = "refuse",
    unscored: str = "missing",
    ranges: Mapping[str, tuple[float, float]] | None = None,
    lower_is_better: str | Collection[str] | None = None,
    graded: bool | None = None,
    progress: ProgressOption = None,
    max_bytes: int = MOST_BYTES,
) -> Logs:
    r"""Read who answered what from logs of evaluation harnesses.

    {table}

    A tree may contain several tasks, filters, runs, models and formats. Files are read one after
    another, and only their scores are stored. If a log contains the harness's totals, its scores
    must reproduce them. An installed package may add formats (see `LogFormat`).

    Args:
        path: a log file, or a folder of them at any depth.
        format: "auto", or the name of a format to read only its logs.
        tasks: names of the tasks to read (lighteval's as "name|shots"); all by default.
        metric: the metric to read: a name, several in order of preference, or {task: name}. By
            default right or wrong (exact_match, acc, …) before others, and of those the one that
            most runs have; the report lists the selected metric and the others.
        filter: filter of lm-eval (split of HELM), in the same way, if a task has several.
        scorer: scorer of Inspect, in the same way; ``metric`` then names an entry of a score that
            has several.
        num_fewshot: read only runs with this number of examples in the prompt: a number, or
            {task: number}. By default see ``mismatch``.
        runs: for a model that was run more than once on a task: "latest" (for each item the
            latest answer), "mean" (all answers, as repeated trials) or "separate" (subjects
            "model@date"). Models that lm-eval gave one made-up name are always separate.
        incomplete: logs of runs that failed, were cancelled or have not ended, and truncated
            files: "skip" and report, "keep" the complete part, or "refuse" with an error
            (which also refuses every damaged file).
        mismatch: runs that answer the same items under other conditions (metric, filter, number of
            examples, version of the task) than most runs: "refuse" skips and reports them, "accept"
            reads all together.
        unscored: samples without a score, such as those that ended in an error, are "missing", or
            "wrong": they count 0. A model that crashes on hard samples looks better without them.
        ranges: lowest and highest score of metrics or scorers whose scores are not from 0 to 1, by
            name or for one task by TASK:NAME: with {"bleu": (0, 100)} a score x becomes
            (x - 0) / (100 - 0).
        lower_is_better: metrics or scorers whose scores are reversed, x to 1 - x (after
            ``ranges``), such as "wer". Without it tasks that have only such metrics are skipped.
        graded: whether whole scores in ranges are categories (of a graded model), such as a judge's
            1 to 10, and not fractions. All tasks read must then have the same range. By default
            where they have a range that their format states (MT-bench, WildBench), and all scores
            are whole.
        progress: True to show the time left on stderr, or a function that is called with files
            done, number of files and the current file.
        max_bytes: how many bytes of a file are parsed as one document (256 MiB by default; for
            the members of an archive, a quarter of that).

    Returns:
        The responses and the report. Subjects are models, and their revisions and other arguments
        where runs of one model differ in them ("org/model@revision=step100"). Repeated
        trials are trials of the responses: by number (``Responses.trial_values``) Inspect's epochs,
        the repeats of lm-eval 0.5, HELM's train trials, and several runs with ``runs="mean"``; by
        their count alone the n answers of lighteval's avg@n. Metadata: of subjects model, date,
        harness, version, runs, unscored (samples without a score), settings (JSON by task); of
        items task, format, sample (the harness's number or id; None if it is not reliable), hash,
        text, target, and as far as known the conditions of the answers: metric, filter or scorer,
        num_fewshot, version (of the task), text_hash (where the harness logs no hash).

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
    check_choice("mismatch", mismatch, MISMATCH)
    check_choice("unscored", unscored, UNSCORED)
    scales = ScoreScales.of(ranges, lower_is_better, graded)
    preferences = Preferences(metric, filter, scorer, num_fewshot, scales=scales, unscored=unscored)
    check_count("max_bytes", max_bytes)
    root = check_path(path)
    names = _task_names(tasks)
    logs, beside, skipped, no_logs, notes = find_logs(root, format)
    incomplete_logs = [log for log in skipped if log.incomplete]
    if incomplete_logs and incomplete == "refuse":
        raise InputError(incomplete_logs[0].reason)
    requests = {
        row: Request(
            keep=incomplete == "keep",
            max_bytes=max_bytes,
            tasks=names,
            beside=beside.get(row.name, []),
        )
        for row in dict.fromkeys(row for _, row in logs)
    }
    refuse = incomplete == "refuse" or root.is_file()
    tree = RunsOfTree(names, requests, refuse, skipped)
    for done, (file, row) in enumerate(logs):
        if progress is not None:
            progress(done, len(logs), file.name)
        tree.add(file, row)
    if progress is not None:
        progress(len(logs), len(logs), "matrix")
    all_runs = without_copies(tree.runs, skipped)
    if not all_runs:
        raise InputError(_failure(root, tree, notes))
    scales.convert(all_runs)
    notes += complete_lists(all_runs)
    for row, request in requests.items():
        lacking = [run.file for run in all_runs if run.format is row and run.lacks_results]
        notes += _lacking(row, lacking, request.listed if root.is_dir() else {}, names)
    responses, assembly = assemble(all_runs, tree.items, preferences, runs, mismatch)
    unused = [Skipped(run.file, reason) for run, reason in assembly["skipped"]]
    if unused and root.is_file():
        raise InputError(unused[0].reason)
    report = ImportReport(
        runs=assembly["runs"],
        skipped=(*skipped, *unused),
        choices=tuple(assembly["choices"]),
        notes=tuple(dict.fromkeys([*notes, *assembly["notes"]])),
        no_logs=tuple(no_logs),
    )
    return Logs(responses, report)


def _lacking(
    row: LogFormat, files: list[str], listed: dict[str, set[str]], names: Collection[str]
) -> list[str]:
    """Notes about logs without results files, and about results files without some logs."""
    notes = []
    if files:
        subject = f"{row.unit} file has" if len(files) == 1 else f"{row.unit} files have"
        effect = "their models are named after their folders, and totals were not compared"
        notes.append(f"{len(files)} {subject} no results file ({files[0]} first): {effect}.")
    for file, tasks in listed.items():
        if lacking := sorted(task for task in tasks if not names or task in names):
            notes.append(f"{file}: there are no {row.unit} of {shorten(lacking)}, only totals.")
    return notes


def _task_names(tasks: Any) -> frozenset[str]:
    """The requested tasks; empty for all."""
    if tasks is None:
        return frozenset()
    names = frozenset([tasks] if isinstance(tasks, str) else tasks)
    if not names or not all(isinstance(name, str) and name for name in names):
        raise argument_error("tasks", "names of tasks", tasks)
    return names


def _failure(root: Path, tree: RunsOfTree, notes: list[str]) -> str:
    """The message if no log can be used."""
    skipped = tree.skipped
    reasons = " ".join(file.reason for file in skipped[:3])
    more = f" {len(skipped) - 3} more files were skipped." if len(skipped) > 3 else ""
    if tree.unread_tasks:
        requested, got = ", ".join(sorted(tree.names)), shorten(sorted(tree.unread_tasks))
        message = f"{root}: no log is of the tasks {requested}. Got {got}."
        return f"{message} Skipped: {reasons}{more}" if skipped else message
    if skipped:
        return f"{root}: no log can be used. {reasons}{more}"
    advice = " ".join(notes) or "Run lm-eval with --log_samples, or give Inspect's log folder."
    if root.is_file():
        other = "Name the path of the records of other JSON with records="
        advice = f"A table of responses needs no import: every command reads it. {other}. {advice}"
    return f"{root}: expected logs of one of {', '.join(LOG_FORMATS)}. Got none. {advice}"
