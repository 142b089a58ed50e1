"""What a log format is, and what its reader yields."""

import re
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from irtcat._common.checks import InputError, check_choice, shorten
from irtcat._files.reading import MOST_BYTES
from irtcat.io.logs.values import clip, score_number

Column = tuple[str, str]
"""A filter or scorer, and a metric; either may be empty."""

HEAD = 2**16
"""Bytes read from the start of a file to recognise its format."""

NEAR = 1e-9
"""Largest accepted difference of a mean from the harness's own (rounding of long sums)."""

Parsed = TypeVar("Parsed")


@dataclass(frozen=True)
class Skipped:
    """A file that was not read, and why.

    Attributes:
        file: its path.
        reason: a sentence that names the file and, if possible, the invalid line.
        incomplete: whether it is the log of a run that did not end (see ``incomplete=``).
    """

    file: str
    reason: str
    incomplete: bool = False


class LogFile:
    """A file whose format is to be recognised.

    Attributes:
        path: the file.
        suffix: extension of its name, in lower case.
    """

    def __init__(self, path: Path) -> None:
        self.path, self.suffix = path, path.suffix.lower()

    @cached_property
    def head(self) -> str:
        """The first 64 KiB as text."""
        with self.path.open("rb") as file:
            return file.read(HEAD).decode("utf-8", "replace")

    @cached_property
    def keys(self) -> set[str]:
        """Keys of the JSON objects in `head`, at any depth."""
        return set(re.findall(r'"(\w+)"\s*:', self.head))


def json_with(*names: str) -> Callable[[LogFile], bool]:
    """A test whether a file is JSON that has these keys."""
    keys = set(names)
    return lambda file: file.suffix == ".json" and keys <= file.keys


@dataclass
class Request:
    """What is asked of a reader for all files of its format, and what it reports besides runs.

    Attributes:
        keep: read the complete part of logs of runs that did not end, instead of raising.
        max_bytes: how many bytes of a file may be parsed as one document.
        tasks: the tasks to read, which a reader may use to leave out others; empty for all.
        beside: the files that belong to logs of this format, such as results files.
        listed: for a results file, the tasks with totals for which no log was read so far.
    """

    keep: bool = False
    max_bytes: int = MOST_BYTES
    tasks: frozenset[str] = frozenset()
    beside: list[Path] = field(default_factory=list)
    listed: dict[str, set[str]] = field(default_factory=dict)
    _last: tuple[Path | None, Any] = (None, None)

    def results(self, log: Path, path: Path, parse: Callable[[Path], Parsed]) -> Parsed:
        """Parse the results file of a log; the last one is kept for the other logs of its run.

        Raises:
            InputError: naming the log and what is wrong with its results file.
        """
        if self._last[0] != path:
            try:
                self._last = (path, parse(path))
            except InputError as error:
                self._last = (path, error)
        if isinstance(self._last[1], InputError):
            raise InputError(f"{log}: its results file cannot be used. {self._last[1]}")
        return self._last[1]


@dataclass
class Answers:
    """The values of one metric in one run.

    Attributes:
        items: positions of the items, one per value; an item occurs once per trial.
        values: the scores, NaN where missing.
        trials: number of the trial of each value, which is the same run for all items; None if
            only the numbers of right answers of the trials are known.
        flaw: why they are invalid, with file and line; empty if they are valid.
        are_numbers: whether all of them are numbers, if perhaps not from 0 to 1.
    """

    items: np.ndarray
    values: np.ndarray
    trials: np.ndarray | None
    flaw: str = ""
    are_numbers: bool = True

    def with_wrong(self, items: np.ndarray, trials: np.ndarray) -> "Answers":
        """The answers, and 0 for trials of further items."""
        return replace(
            self,
            items=np.concatenate([self.items, items]),
            values=np.concatenate([self.values, np.zeros(len(items))]),
            trials=None if self.trials is None else np.concatenate([self.trials, trials]),
        )


@dataclass(slots=True)
class Item:
    """Metadata of an item.

    Attributes:
        task: its task.
        key: its id within the task, the same in all logs.
        format: the format of the log in which it occurs first, filled in.
        sample: the harness's number or name of it, or None if it is not reliable.
        trust: how reliable the sample is, from -1; the most reliable one is used.
        hash: hash of its content, or "".
        text: its text, truncated, or None.
        target: the correct answer, truncated, or None.
        differs: whether logs have different texts of it.
    """

    task: str
    key: str
    format: "LogFormat" = field(init=False)
    sample: str | None = None
    trust: int = -1
    hash: str = ""
    text: str | None = None
    target: str | None = None
    differs: bool = False


class Items:
    """Items without repeats, in order of first appearance."""

    def __init__(self) -> None:
        self.all: list[Item] = []
        self._positions: dict[tuple[str, str], int] = {}

    def add(self, item: Item, compare_texts: bool = True) -> int:
        """Add an item, or complete the metadata of the existing one; returns its position."""
        position = self._positions.setdefault((item.task, item.key), len(self.all))
        if position == len(self.all):
            self.all.append(item)
            return position
        known = self.all[position]
        if item.trust > known.trust:
            known.sample, known.trust = item.sample, item.trust
        if known.text is None:
            known.text, known.target = item.text, item.target
        elif item.text is not None and item.text != known.text:
            known.differs |= compare_texts and not known.hash
        known.differs |= item.differs
        return position


@dataclass
class Run:
    """One model's answers to one task in one file.

    Attributes:
        task: the task.
        model: the model's name, a subject.
        file: path of the log, filled in if a reader leaves it out.
        format: the format, filled in.
        date: ISO text in UTC, or "".
        session: id of the run of the harness, the same in its other logs, or "".
        copied_session: the part of that id that copies of the log have in common, if not all.
        version: version of the harness, or "".
        settings: what affects the scores, as `show_settings` gives it.
        arguments: what says which model it is, such as a revision, as `model_arguments` gives it.
        num_fewshot: number of examples in the prompt, or None.
        task_version: version of the task or its data, or "".
        order: filters or scorers in the order in which the task names them, as far as known.
        lower_is_better: metrics that are not used as responses.
        ranges: lowest and highest score of metrics that are not from 0 to 1.
        name_source: where the model's name comes from: "log"; "made up", if every model
            without a name gets the same; or "folder", if no log contains it.
        lacks_results: whether the harness's results file, which names the model, was not there.
        lists_right_only: whether the log names the right items alone: those that other logs of the
            task name are then wrong.
        unscored: item and trial of each sample without any score.
        n_unscored: number of samples without a score by the selected metric, filled in.
        cut: why the run is incomplete, or "".
        notes: further remarks.
        items: the items.
    """

    task: str
    model: str
    file: str = ""
    format: "LogFormat" = field(init=False, repr=False)
    date: str = ""
    session: str = ""
    copied_session: str = ""
    version: str = ""
    settings: dict[str, Any] = field(default_factory=dict)
    arguments: dict[str, str] = field(default_factory=dict)
    num_fewshot: int | None = None
    task_version: str = ""
    order: tuple[str, ...] = ()
    lower_is_better: set[str] = field(default_factory=set)
    ranges: dict[str, tuple[float, float]] = field(default_factory=dict)
    lists_right_only: bool = False
    name_source: str = "log"
    lacks_results: bool = False
    unscored: list[tuple[int, int]] = field(default_factory=list, repr=False)
    n_unscored: int = 0
    cut: str = ""
    notes: tuple[str, ...] = ()
    items: Items = field(default_factory=Items, repr=False)
    _cells: dict[Column, tuple[list[int], list[float], list[int]]] = field(
        default_factory=dict, repr=False
    )
    _flaws: dict[Column, str] = field(default_factory=dict, repr=False)
    _texts: set[Column] = field(default_factory=set, repr=False)
    _trials: Counter[tuple[Any, ...]] = field(default_factory=Counter, repr=False)

    @property
    def group(self) -> str:
        """The key of the runs that share one column: task and log format."""
        return f"{self.task} ({self.format.name})"

    def item(
        self,
        key: str,
        *,
        sample: str | None = None,
        trust: int = 0,
        hash: str = "",
        text: Any = None,
        target: Any = None,
    ) -> int:
        """The number of an item in this run, which is added if it is new (see `Item`)."""
        item = Item(
            task=self.task,
            key=key,
            sample=sample,
            trust=-1 if sample is None else trust,
            hash=hash,
            text=clip(text),
            target=clip(target),
        )
        return self.items.add(item)

    def next_trial(self, *key: Any) -> int:
        """The number of the next trial of an item, from 0, or of an item and a judge."""
        self._trials[key] += 1
        return self._trials[key] - 1

    def add_answer(
        self, item: int, value: Any, metric: str, *, trial: int = 0, **place: str
    ) -> None:
        """Add the only score of a sample, which is unscored without one (None)."""
        if value is None:
            self.unscored.append((item, trial))
        else:
            self.add(item, value, metric, trial=trial, **place)

    def add(
        self,
        item: int,
        value: Any,
        metric: str = "score",
        *,
        source: str = "",
        location: str = "",
        trial: int = 0,
    ) -> None:
        """Add a score from 0 to 1, or None; anything else makes its column invalid.

        Numbers in other ranges are kept, for a caller who gives the range (see `read_logs`).

        Args:
            item: the number that `item` returns.
            value: the score.
            metric: its metric.
            source: the filter or scorer that it comes from.
            location: file and line, for messages.
            trial: number of the epoch or repeat, where an item has several scores.
        """
        column = (source, metric)
        cells = self._cells.get(column)
        if cells is None:
            cells = self._cells[column] = [], [], []
        number = score_number(value)
        if number is None or not (number != number or 0.0 <= number <= 1.0):
            if column not in self._flaws:
                must = f"expected {metric or source} to be a score from 0 to 1"
                got = f"Got {shorten(value)}."
                advice = "" if number is None else " Give other ranges in `ranges`."
                self._flaws[column] = f"{location or self.file}: {must}. {got}{advice}"
            if number is None:
                self._texts.add(column)
                number = np.nan
        cells[0].append(item)
        cells[1].append(number)
        cells[2].append(trial)

    @cached_property
    def columns(self) -> dict[Column, Answers]:
        """The scores by column, once all have been added."""
        columns = {
            column: Answers(
                np.array(items, np.int32),
                np.array(values),
                np.array(trials, np.int32),
                self._flaws.get(column, ""),
                column not in self._texts,
            )
            for column, (items, values, trials) in self._cells.items()
        }
        self._cells.clear()
        self._trials.clear()
        return columns

    def wrong_mean(self, column: Column, total: Any, name: str, source: str) -> str:
        """A sentence if the scores of a column do not reproduce the harness's mean, else ""."""
        answers, number = self.columns.get(column), score_number(total)
        if answers is None or answers.flaw or number is None:
            return ""
        mean = float(np.mean(answers.values))
        if not abs(mean - number) > NEAR:  # NaN: a score or the total is missing
            return ""
        expected = f"a mean {name} of {number:.6g}, as stated in {source}"
        return f"{self.file}: expected {expected}. Got {mean:.6g}."


def by_group(runs: Iterable[Run]) -> dict[str, list[Run]]:
    """Runs by `Run.group`, in order of first appearance."""
    groups: dict[str, list[Run]] = {}
    for run in runs:
        groups.setdefault(run.group, []).append(run)
    return groups


@dataclass(frozen=True)
class LogFormat:
    """A format of logs: a row of `LOG_FORMATS`.

    Attributes:
        name: the name that users give.
        is_log: whether a file is a log of this format. A log that is a folder is recognised by one
            of its files.
        read: the runs in a log. It raises an `InputError` that names file and line, and a
            `CutError` if the run did not end.
        summary: which logs it reads, in one line.
        reference: where the format is described.
        is_beside: whether a file that is no log belongs to one, such as a results file.
        alone: of files that belong to logs, those without their logs, given all logs of the
            format, or None for a file that the user named. With an empty reason it is no log.
        order: sort key of a log within its folder; logs of a run are read one after another.
        column: what distinguishes values of one metric, "filter" or "scorer" (see `read_logs`).
        samples: what samples are called by: "names" (items stay in the order of the log), "numbers"
            (they are sorted by them), or "documents" (numbers that also identify items without
            hashes in other logs).
        unit: what the files are called in messages about results files.
    """

    name: str
    is_log: Callable[[LogFile], bool]
    read: Callable[[Path, Request], Iterable[Run]]
    summary: str
    reference: str = ""
    is_beside: Callable[[LogFile], bool] = lambda file: False
    alone: Callable[[list[Path], list[Path] | None], Iterable[Skipped]] = lambda paths, logs: ()
    order: Callable[[Path], tuple[str, str]] = lambda path: ("", path.stem)
    column: str = "filter"
    samples: str = "numbers"
    unit: str = "log"

    def __post_init__(self) -> None:
        """Check the choices.

        Raises:
            InputError: for another value of ``column`` or ``samples``.
        """
        check_choice("column", self.column, ("filter", "scorer"))
        check_choice("samples", self.samples, ("names", "numbers", "documents"))

    @property
    def cells(self) -> tuple[str, str]:
        """Summary and reference."""
        return self.summary, self.reference
