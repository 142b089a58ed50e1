"""The runs in the files of a tree: read one after another, without copies, with complete lists."""

import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np

from irtcat._common.checks import InputError
from irtcat.io.logs.choose import group_name
from irtcat.io.logs.format import Answers, Items, LogFormat, Request, Run, Skipped
from irtcat.io.logs.values import CutError, MissingExtraError


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
    groups: dict[str, list[Run]] = {}
    for run in runs:
        groups.setdefault(group_name(run), []).append(run)
    for name, group in groups.items():
        lists = [run for run in group if run.lists_right_only]
        if not lists:
            continue
        named = np.unique(np.concatenate([a.items for run in group for a in run.columns.values()]))
        for run in lists:
            for column, answers in run.columns.items():
                run.columns[column] = _with_others_wrong(answers, named)
        if all((answers.values == 1).all() for run in group for answers in run.columns.values()):
            advice = "Give the lists of several runs, or reports with the others too"
            raise InputError(f"{group[0].file}: only resolved items are listed. {advice}.")
        notes.append(
            f"{name}: the logs list resolved items. The others of the {len(named)} items that some "
            "log names count as wrong; items that no log names are not there, so that all means "
            "are of these."
        )
    return notes


def _with_others_wrong(answers: Answers, named: np.ndarray) -> Answers:
    """The answers, with 0 for each other item that is named."""
    others = np.setdiff1d(named, answers.items).astype(np.int32)
    values = np.concatenate([answers.values, np.zeros(len(others))])
    items = np.concatenate([answers.items, others])
    return replace(answers, items=items, values=values, trials=np.zeros(len(items), np.int32))


def without_copies(runs: list[Run], skipped: list[Skipped]) -> list[Run]:
    """Remove repeated runs: a log that was copied or converted by Inspect counts once."""
    unique: dict[tuple[str, ...], Run] = {}
    for run in runs:
        session = run.copied_session or run.session or run.file
        arguments = json.dumps(run.arguments, sort_keys=True)
        key: tuple[str, ...] = (
            *(run.format.name, session, run.task, run.model, run.date, arguments),
        )
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
