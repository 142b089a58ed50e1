"""Which of a task's metrics, filters or scorers is taken: as asked, or by rule and said."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from irtcat._checks import InputError, argument_error, shorten
from irtcat.io._logs import Column, Run

__all__ = [
    "Choice",
    "Wanted",
    "Wish",
    "choose_columns",
    "group_name",
    "list_columns",
    "show_column",
]

FIRST = (
    "exact_match",
    "quasi_exact_match",
    "acc",
    "accuracy",
    "is_correct",
    "correct",
    "score",
    "em",
    "pass@1",
    "mc1",
)
"""Metrics of right or wrong that are taken before others."""

Wish = str | Sequence[str] | Mapping[str, str | Sequence[str]] | None


@dataclass(frozen=True)
class Choice:
    """A choice that was made among several.

    Attributes:
        task: the task it is about, and the format of its logs.
        what: "metric" (with its filter or scorer) or "runs".
        taken: what was taken.
        others: what else there was.
    """

    task: str
    what: str
    taken: str
    others: tuple[str, ...]

    def __str__(self) -> str:
        others = f" (not {', '.join(self.others)})" if self.others else ""
        return f"{self.task}: {self.what} {self.taken}{others}"


@dataclass(frozen=True)
class Wanted:
    """What the caller asked for: names, in order of preference, for all tasks or by task."""

    metric: Wish = None
    filter: Wish = None
    scorer: Wish = None

    def check(self, tasks: Iterable[str]) -> None:
        """Refuse a mapping that names a task which is not there."""
        known = set(tasks)
        for what in ("metric", "filter", "scorer"):
            wish = getattr(self, what)
            for task in wish if isinstance(wish, Mapping) else ():
                if task not in known:
                    must = f"a mapping of tasks in the logs ({shorten(sorted(known))}) to names"
                    raise argument_error(what, must, task)

    def names(self, what: str, task: str) -> tuple[str, ...]:
        """The names asked for in this task; none where the caller left it open."""
        wish = getattr(self, what)
        if isinstance(wish, Mapping):
            wish = wish.get(task)
        if wish is None:
            return ()
        names = (wish,) if isinstance(wish, str) else tuple(wish)
        if not names or not all(isinstance(name, str) and name for name in names):
            raise argument_error(what, "a name, several, or a mapping of task to names", wish)
        return names


def show_column(column: Column, format: str) -> str:
    """A column in words."""
    part, metric = column
    if format == "inspect":
        return f"{part}.{metric}" if metric else part
    return f"{metric} (filter {part})" if part else metric


def choose_columns(runs: list[Run], wanted: Wanted) -> tuple[dict[str, Column], list[Choice]]:
    """One column per task and format, the same in all of its runs; and what there was to choose.

    Keys are "task of format".

    Raises:
        InputError: what was asked for is not there, or nothing can be used.
    """
    taken: dict[str, Column] = {}
    choices = []
    groups: dict[str, list[Run]] = {}
    for run in runs:
        groups.setdefault(group_name(run), []).append(run)
    wanted.check(run.task for run in runs)
    for name, group in groups.items():
        counts: dict[Column, int] = {}
        for run in group:
            for column in run.columns:
                counts[column] = counts.get(column, 0) + 1
        column = _choose(group, counts, wanted)
        taken[name] = column
        shown = [show_column(each, group[0].format) for each in counts]
        mine = show_column(column, group[0].format)
        others = tuple(each for each in shown if each != mine)
        choices.append(Choice(name, "metric", mine, others))
    return taken, choices


def group_name(run: Run) -> str:
    """The runs of which one column is chosen: those of a task in logs of one format."""
    return f"{run.task} ({run.format})"


def list_columns(columns: Iterable[Column], format: str) -> str:
    """Columns in words, all of them up to a dozen."""
    shown = [show_column(each, format) for each in columns]
    more = f" and {len(shown) - 12} more" if len(shown) > 12 else ""
    return ", ".join(shown[:12]) + more


def _choose(group: list[Run], counts: dict[Column, int], wanted: Wanted) -> Column:
    """The column of a task: as asked, else the one most runs have, by name, by order."""
    task, format = group[0].task, group[0].format
    what = "scorer" if format == "inspect" else "filter"
    left = list(counts)
    for place, kind in ((0, what), (1, "metric")):
        names = wanted.names(kind, task)
        there = list(dict.fromkeys(column[place] for column in left if column[place]))
        if not names or not there:
            continue
        found = next((name for name in names if name in there), None)
        if found is None and kind == "filter" and len(there) == 1:
            continue  # of one filter there is nothing to choose
        if found is None:
            must = f"The `{kind}` argument must be in the logs of task {task}"
            advice = "Name one for each task, or several in order of preference."
            have = f"{must}, which have {list_columns(counts, format)}. Got {shorten(names)}."
            raise InputError(f"{have} {advice}")
        left = [column for column in left if column[place] == found]
    lower = set().union(*(run.lower_is_better for run in group))
    good = [column for column in left if column[1] not in lower]
    if not good:
        got = list_columns(left, format)
        raise InputError(f"Task {task}: less is better in all that its logs have ({got}).")
    known = [column for column in good if column[1] in FIRST or column[1] == ""]
    sound = [c for c in good if not any(c in r.columns and r.columns[c].flaw for r in group)]
    good = known or sound or good

    def rank(column: Column) -> tuple[int, int, bool, int]:
        by_name = FIRST.index(column[1]) if column[1] in FIRST else len(FIRST)
        values = [run.columns[column].values for run in group if column in run.columns]
        graded = any(bool(((v > 0) & (v < 1)).any()) for v in values)
        return -counts[column], by_name, graded, left.index(column)

    return min(good, key=rank)
