"""Selection of a task's metric and filter or scorer, as requested or by a rule, and its scale."""

import sys
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from irtcat._common.checks import InputError, argument_error, check_count, shorten
from irtcat.io.logs.format import Answers, Column, LogFormat, Run, by_group

MOST_CATEGORIES = 100
"""Greatest number of categories of a graded score."""

Range = tuple[float, float]


@dataclass(frozen=True)
class ScoreScales:
    """How scores are converted to 0 to 1, by metric, scorer, or either of one task.

    Attributes:
        ranges: the lowest and the highest possible score.
        lower_is_better: names of those whose scores are reversed.
        graded: whether scores in ranges are categories; None if all are whole.
    """

    ranges: Mapping[str, Range] = field(default_factory=dict)
    lower_is_better: frozenset[str] = frozenset()
    graded: bool | None = None

    @classmethod
    def of(cls, ranges: Any, lower_is_better: Any, graded: bool | None) -> "ScoreScales":
        """Check the arguments of `read_logs`."""
        if ranges is not None and not isinstance(ranges, Mapping):
            raise argument_error("ranges", "a mapping from names to (lowest, highest)", ranges)
        known: dict[str, Range] = {}
        for name, ends in (ranges or {}).items():
            try:
                low, high = map(float, ends)
            except (TypeError, ValueError):
                low = high = np.nan
            if not -np.inf < low < high < np.inf:
                must = f"two rising numbers for {name}, the lowest and the highest score"
                raise argument_error("ranges", must, ends)
            known[str(name)] = low, high
        names = [lower_is_better] if isinstance(lower_is_better, str) else lower_is_better or ()
        if not all(isinstance(name, str) and name for name in names):
            raise argument_error("lower_is_better", "names of metrics", lower_is_better)
        for low, high in known.values() if graded else ():
            n = high - low + 1
            if low < 0 or low != int(low) or high != int(high) or n > MOST_CATEGORIES:
                must = f"whole numbers of 0 or more, at most {MOST_CATEGORIES}, with graded=True"
                raise argument_error("ranges", must, f"{low:g} to {high:g}")
        return cls(known, frozenset(names), graded)

    def range_of(self, run: Run, column: Column) -> Range | None:
        """The range that was given for a column of a run, or its format's; None for 0 to 1."""
        given = next((self.ranges[n] for n in _names(run, column) if n in self.ranges), None)
        return given or run.ranges.get(column[1])

    def convert(self, runs: Iterable[Run]) -> None:
        """Convert the scores of all runs, in place.

        Raises:
            InputError: a name is neither a metric nor a scorer in the logs.
        """
        known: set[str] = set()
        for run in runs:
            for column, answers in run.columns.items():
                names = _names(run, column)
                known |= set(names)
                ends = self.range_of(run, column)
                is_reversed = not self.lower_is_better.isdisjoint(names)
                if ends is not None:
                    answers = _rescaled(run, column, answers, ends, self.graded is True)
                if is_reversed and not answers.flaw:
                    answers = replace(answers, values=1.0 - answers.values)
                if is_reversed:
                    run.lower_is_better.discard(column[1])
                run.columns[column] = answers
        given = {"ranges": self.ranges, "lower_is_better": sorted(self.lower_is_better)}
        for argument, requested in given.items():
            for name in requested:
                if name not in known:
                    plain = sorted(label for label in known if ":" not in label)
                    must = f"metrics or scorers in the logs ({shorten(plain)})"
                    raise argument_error(argument, must, name)


def _names(run: Run, column: Column) -> list[str]:
    """What a column can be called: TASK:METRIC, TASK:SCORER, its metric or its scorer."""
    source = column[0] if run.format.column == "scorer" else ""
    names = [name for name in (column[1], source) if name]
    return [*(f"{run.task}:{name}" for name in names), *names]


def _rescaled(run: Run, column: Column, answers: Answers, ends: Range, graded: bool) -> Answers:
    """Scores from 0 to 1; with a flaw if one is outside of the range, or no category."""
    if answers.flaw and not answers.are_numbers:
        return answers
    low, high = ends
    values = answers.values
    with np.errstate(invalid="ignore"):
        is_wrong = (values < low) | (values > high)
        if graded:
            is_wrong |= ~np.isnan(values) & (values != np.rint(values))
    if is_wrong.any():
        first = int(np.argmax(is_wrong))
        kind = "a whole number" if graded else "a score"
        must = f"expected {column[1] or column[0]} to be {kind} from {low:g} to {high:g}"
        where = f"{run.file}, answer {first + 1}"
        return replace(answers, flaw=f"{where}: {must}. Got {values[first]:g}.")
    return replace(answers, values=(values - low) / (high - low), flaw="")


FIRST = (
    *("exact_match", "quasi_exact_match", "acc", "accuracy", "is_correct", "correct", "score"),
    *("em", "pass@1", "mc1"),
)
"""Metrics of right or wrong, which are preferred to others."""

FIRST_FILTERS = ("none", "", "strict-match", "strict")
"""Filters that are preferred to others, where no log names those of the task in their order."""

Preference = str | Sequence[str] | Mapping[str, str | Sequence[str]] | None


@dataclass(frozen=True)
class OptionChoice:
    """A choice among several options.

    Attributes:
        task: the task, and the format of its logs.
        what: "metric" (with its filter or scorer), "num_fewshot", "version" or "runs".
        taken: the selected option.
        others: the other options.
    """

    task: str
    what: str
    taken: str
    others: tuple[str, ...]

    def __str__(self) -> str:
        others = f" (not {', '.join(self.others)})" if self.others else ""
        return f"{self.task}: {self.what} {self.taken}{others}"


@dataclass(frozen=True)
class Preferences:
    """The names requested by the caller, in order of preference, for all tasks or by task.

    Attributes:
        metric: names of metrics.
        filter: names of filters.
        scorer: names of scorers.
        scales: ranges and directions of scores.
        unscored: what samples without a score count as.
    """

    metric: Preference = None
    filter: Preference = None
    scorer: Preference = None
    num_fewshot: int | Mapping[str, int] | None = None
    scales: ScoreScales = field(default_factory=ScoreScales)
    unscored: str = "missing"

    def check(self, tasks: Iterable[str]) -> None:
        """Raise if a mapping names a task that is not in the logs."""
        known = set(tasks)
        for argument in ("metric", "filter", "scorer", "num_fewshot"):
            preference = getattr(self, argument)
            for task in preference if isinstance(preference, Mapping) else ():
                if task not in known:
                    must = f"a mapping of tasks in the logs ({shorten(sorted(known))}) to names"
                    raise argument_error(argument, must, task)

    def names(self, argument: str, task: str) -> tuple[str, ...]:
        """The names requested for a task; empty if the caller requested none."""
        preference = getattr(self, argument)
        if isinstance(preference, Mapping):
            preference = preference.get(task)
        if preference is None:
            return ()
        names = (preference,) if isinstance(preference, str) else tuple(preference)
        if not names or not all(isinstance(name, str) and name for name in names):
            must = "a name, several names, or a mapping of task to names"
            raise argument_error(argument, must, preference)
        return names

    def shots(self, task: str) -> int | None:
        """The number of examples requested for a task; None if the caller requested none."""
        number = self.num_fewshot
        if isinstance(number, Mapping):
            number = number.get(task)
        if number is not None:
            check_count("num_fewshot", number, 0)
        return number


def show_column(column: Column, format: LogFormat) -> str:
    """Format a column for a message."""
    source, metric = column
    if format.column == "scorer":
        return f"{source}.{metric}" if metric else source
    return f"{metric} (filter {source})" if source else metric


def choose_columns(
    runs: list[Run], preferences: Preferences
) -> tuple[dict[str, Column], list[OptionChoice]]:
    """Choose one column per task and format, the same in all of its runs.

    Returns:
        The columns by `Run.group`, without tasks in whose logs lower is better for all metrics,
        and the choices that were made.

    Raises:
        InputError: a requested name does not exist.
    """
    columns: dict[str, Column] = {}
    choices = []
    preferences.check(run.task for run in runs)
    for name, group in by_group(runs).items():
        counts = Counter(column for run in group for column in run.columns)
        chosen = _choose(group, counts, preferences)
        if chosen is None:  # `without_column` says why
            continue
        columns[name] = chosen
        labels = [show_column(option, group[0].format) for option in counts]
        selected = show_column(chosen, group[0].format)
        others = tuple(label for label in labels if label != selected)
        choices.append(OptionChoice(name, "metric", selected, others))
    return columns, choices


def list_columns(columns: Iterable[Column], format: LogFormat) -> str:
    """Format up to twelve columns for a message."""
    labels = [show_column(column, format) for column in columns]
    more = f" and {len(labels) - 12} more" if len(labels) > 12 else ""
    return ", ".join(labels[:12]) + more


def without_column(run: Run) -> str:
    """Why a run of a task for which no column was chosen is not used."""
    got = list_columns(run.columns, run.format)
    reason = f"{run.file}: lower is better for all metrics of task {run.task} ({got})"
    advice = "Leave the task out with `tasks`, or name the metric in `lower_is_better`"
    return f"{reason}. {advice}, and its range in `ranges` if that is not 0 to 1."


def _choose(group: list[Run], counts: Counter[Column], preferences: Preferences) -> Column | None:
    """The column of a task: as requested, else by number of runs, name and the task's order."""
    candidates = _requested(group, counts, preferences)
    lower = set().union(*(run.lower_is_better for run in group))
    usable = [column for column in candidates if column[1] not in lower]
    if not usable:
        return None
    known = [column for column in usable if column[1] in FIRST or column[1] == ""]
    valid = [c for c in usable if not any(c in r.columns and r.columns[c].flaw for r in group)]
    return min(known or valid or usable, key=lambda column: _rank(column, group, counts))


def _requested(group: list[Run], counts: Counter[Column], preferences: Preferences) -> list[Column]:
    """The columns with the filter or scorer and the metric that were asked for."""
    task, format = group[0].task, group[0].format
    candidates = list(counts)
    for index, argument in ((0, format.column), (1, "metric")):
        names = preferences.names(argument, task)
        available = list(dict.fromkeys(c[index] for c in candidates if c[index]))
        if not names or not available:
            continue
        selected = next((name for name in names if name in available), None)
        if selected is None and argument == "filter" and len(available) == 1:
            continue  # a single filter leaves no choice
        if selected is None:
            must = f"The `{argument}` argument must be in the logs of task {task}"
            advice = "Name one for each task, or several in order of preference."
            message = f"{must}, which have {list_columns(counts, format)}. Got {shorten(names)}."
            raise InputError(f"{message} {advice}")
        candidates = [column for column in candidates if column[index] == selected]
    return candidates


def _rank(column: Column, group: list[Run], counts: Counter[Column]) -> tuple[Any, ...]:
    """The order in which columns are preferred: number of runs, name, and the task's order."""
    source, metric = column
    by_name = FIRST.index(metric) if metric in FIRST else len(FIRST)
    values = [run.columns[column].values for run in group if column in run.columns]
    graded = any(bool(((v > 0) & (v < 1)).any()) for v in values)
    places = [run.order.index(source) for run in group if source in run.order]
    place = min(places, default=sys.maxsize)  # among the task's filters or scorers
    first = FIRST_FILTERS.index(source) if source in FIRST_FILTERS else len(FIRST_FILTERS)
    # No order of lines: logs may be shuffled.
    return -counts[column], by_name, graded, place, first, column
