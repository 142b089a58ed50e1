"""From the runs that logs hold to one matrix: which metric, which run, who and what."""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from irtcat._checks import InputError, argument_error, shorten
from irtcat.io._logs import Answers, Column, Items, Run
from irtcat.responses import Responses

__all__ = ["RUNS", "Choice", "Wanted", "Wish", "assemble", "group_name", "show_column"]

RUNS = ("latest", "mean", "separate")

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


def _list(columns: Iterable[Column], format: str) -> str:
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
        if not names or (place == 0 and len(there) < 2 and what == "filter") or not there:
            continue
        found = next((name for name in names if name in there), None)
        if found is None:
            must = f"The `{kind}` argument must be in the logs of task {task}"
            advice = "Name one for each task, or several in order of preference."
            have = f"{must}, which have {_list(counts, format)}. Got {shorten(names)}."
            raise InputError(f"{have} {advice}")
        left = [column for column in left if column[place] == found]
    lower = set().union(*(run.lower_is_better for run in group))
    good = [column for column in left if column[1] not in lower]
    if not good:
        got = _list(left, format)
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


def _settle(runs: list[Run], taken: dict[str, Column]) -> tuple[list[tuple[Run, Answers]], list]:
    """The runs with the chosen column, and those that lack it or whose values are unusable."""
    used, skipped = [], []
    for run in runs:
        answers = run.columns.get(taken[group_name(run)])
        if answers is None:
            has = _list(run.columns, run.format)
            name = show_column(taken[group_name(run)], run.format)
            skipped.append((run, f"{run.file}: expected the metric {name}. Got {has}."))
        elif answers.flaw:
            skipped.append((run, answers.flaw))
        elif np.isnan(answers.values).all():
            skipped.append((run, f"{run.file}: no answer has a score."))
        else:
            used.append((run, answers))
    return used, skipped


def _subjects(used: list[tuple[Run, Answers]], how: str) -> dict[str, list[tuple[Run, Answers]]]:
    """Runs by subject, oldest first; a run without a model's name is a subject of its own."""
    by_model: dict[str, list[tuple[Run, Answers]]] = {}
    for pair in used:
        by_model.setdefault(pair[0].model, []).append(pair)
    out: dict[str, list[tuple[Run, Answers]]] = {}
    for model, pairs in by_model.items():
        pairs.sort(key=lambda pair: (pair[0].date, pair[0].file))
        tasks = [group_name(run) for run, _ in pairs]
        nameless = any(run.nameless for run, _ in pairs)
        several = nameless and len({run.session for run, _ in pairs}) > 1
        if how == "separate":
            several = several or len(set(tasks)) < len(tasks)
        if not several:
            out[model] = pairs
            continue
        names: dict[str, str] = {}
        for run, answers in pairs:
            key = run.session or run.file
            name = names.setdefault(key, _unique(f"{model}@{run.date or len(names) + 1}", out))
            out.setdefault(name, []).append((run, answers))
    return out


def _unique(name: str, taken: Mapping[str, Any]) -> str:
    """The name, or with #2, #3, … where it is taken."""
    again = 2
    unique = name
    while unique in taken:
        unique, again = f"{name}#{again}", again + 1
    return unique


def _same_documents(items: Items) -> tuple[np.ndarray, int]:
    """Where an item without a hash is one with: that of the same task and number, if only one."""
    numbers: dict[tuple[str, str], list[int]] = {}
    for place, about in enumerate(items.all):
        if about.hash and about.trust > 0 and about.sample is not None:
            numbers.setdefault((about.task, about.sample), []).append(place)
    where = np.arange(len(items.all))
    for place, about in enumerate(items.all):
        found = numbers.get((about.task, about.sample or ""), [])
        if about.format == "lm-eval" and not about.hash and len(found) == 1:
            where[place] = found[0]
    return where, int((where != np.arange(len(where))).sum())


def assemble(
    runs: list[Run], items: Items, wanted: Wanted, how: str
) -> tuple[Responses, dict[str, Any]]:
    """Responses from runs, and what is to be reported of how they came about.

    Raises:
        InputError: nothing can be used, or what was asked for is not there.
    """
    taken, choices = choose_columns(runs, wanted)
    used, skipped = _settle(runs, taken)
    if not used:
        reasons = " ".join(reason for _, reason in skipped[:3])
        raise InputError(f"No log can be used. {reasons}")
    where, moved = _same_documents(items)
    notes = [note for run, _ in used for note in run.notes]
    if moved:
        notes.append(f"{moved} documents without a hash were found by their numbers.")
    subjects = _subjects(used, how)
    _note_runs(subjects, how, choices, notes)
    columns = _order(used, where, items)
    place = np.full(len(items.all), -1)
    place[columns] = np.arange(len(columns))
    k, n = _fill(subjects, place[where], how, len(columns))
    ids = _item_ids([items.all[c] for c in columns], notes)
    whole = all(_is_whole(answers.values) for _, answers in used)
    responses = _responses(k, n, whole, list(subjects), ids, notes, {
        "subjects": _about_subjects(subjects),
        "items": _about_items([items.all[c] for c in columns], ids),
    })  # fmt: skip
    told = {"choices": choices, "notes": notes, "skipped": skipped, "used": used, "taken": taken}
    return responses, told


def _order(used: list[tuple[Run, Answers]], where: np.ndarray, items: Items) -> list[int]:
    """Positions of the items that were used: by task as met, by document number, as met."""
    seen = np.zeros(len(where), bool)
    tasks: dict[str, int] = {}
    for run, answers in used:
        seen[where[answers.items]] = True
        tasks.setdefault(run.task, len(tasks))

    def key(place: int) -> tuple[int, float, int]:
        about = items.all[place]
        sample = about.sample if about.format != "inspect" else None
        number = float(sample) if sample is not None and sample.isdecimal() else np.inf
        return tasks[about.task], number, place

    return sorted(np.flatnonzero(seen).tolist(), key=key)


def _fill(
    subjects: dict[str, list[tuple[Run, Answers]]], place: np.ndarray, how: str, width: int
) -> tuple[np.ndarray, np.ndarray | None]:
    """Sums of the scores, NaN where there is none, and numbers of trials (None: one each)."""
    sums = np.full((len(subjects), width), np.nan, np.float32)
    most, trials = 1, np.zeros((1, 1), np.int16)
    for row, pairs in enumerate(subjects.values()):
        total, count = np.zeros(width), np.zeros(width, np.int64)
        for _, answers in pairs:
            there = ~np.isnan(answers.values)
            spots = place[answers.items[there]]
            k = np.bincount(spots, answers.values[there], width)
            n = np.bincount(spots, minlength=width)
            if how != "mean":  # each item's latest run counts
                total[n > 0], count[n > 0] = 0.0, 0
            total, count = total + k, count + n
        if count.max() > 1 and most == 1:
            trials = np.zeros(sums.shape, np.int16)
            trials[:row] = ~np.isnan(sums[:row])
        most = max(most, int(count.max()))
        if most > 1:
            trials[row] = np.minimum(count, 2**15 - 1)
        sums[row, count > 0] = total[count > 0]
    return sums, trials if most > 1 else None


def _responses(
    sums: np.ndarray,
    n: np.ndarray | None,
    whole: bool,
    subject_ids: list[str],
    item_ids: list[str],
    notes: list[str],
    tables: dict[str, pd.DataFrame],
) -> Responses:
    """Right/wrong where all scores are, shares of trials where they count, else fractions."""
    ids: dict[str, Any] = {"subject_ids": subject_ids, "item_ids": item_ids, **tables}
    if n is None and whole:
        values = np.where(np.isnan(sums), -1, sums).astype(np.int8)
        return Responses.from_array(values, codes=(0, 1), **ids)
    if n is None:
        return Responses.from_array(sums, **ids)
    if whole:
        return Responses.from_counts(sums, n, **ids)
    notes.append(
        "Scores between 0 and 1 were averaged over trials; the numbers of trials are lost."
    )
    np.divide(sums, n, out=sums, where=n > 0)
    return Responses.from_array(np.clip(sums, 0, 1), **ids)


def _is_whole(values: np.ndarray) -> bool:
    """Whether each score is 0, 1 or missing."""
    return bool((np.isnan(values) | (values == 0) | (values == 1)).all())


def _item_ids(abouts: list[Any], notes: list[str]) -> list[str]:
    """Ids as "task/key": the same whatever else is imported."""
    differ = [about for about in abouts if about.differs]
    if differ:
        first = f"{differ[0].task}/{differ[0].key}"
        what = "have another text in other logs: is it the same data set?"
        notes.append(f"{len(differ)} items, {first} first, {what}")
    return [f"{about.task}/{about.key}" for about in abouts]


def _about_items(abouts: list[Any], ids: list[str]) -> pd.DataFrame:
    """Metadata of the items."""
    names = ("task", "format", "sample", "hash", "text", "target")
    table = {name: [getattr(about, name) or None for about in abouts] for name in names}
    return pd.DataFrame(table, index=pd.Index(ids, dtype=object))


def _about_subjects(subjects: dict[str, list[tuple[Run, Answers]]]) -> pd.DataFrame:
    """Metadata of the subjects: of the latest run, with the settings of each task."""
    rows = []
    for pairs in subjects.values():
        last = pairs[-1][0]
        settings: dict[str, Any] = {}
        for run, _ in pairs:
            settings[run.task] = run.settings
        rows.append(
            {
                "model": last.model,
                "date": last.date or None,
                "harness": last.format,
                "version": last.version or None,
                "runs": len({run.session or run.file for run, _ in pairs}),
                "settings": json.dumps(settings, ensure_ascii=False, sort_keys=True),
            }
        )
    return pd.DataFrame(rows, index=pd.Index(list(subjects), dtype=object))


def _note_runs(
    subjects: dict[str, list[tuple[Run, Answers]]],
    how: str,
    choices: list[Choice],
    notes: list[str],
) -> None:
    """Say which models were run more than once, and what was made of it."""
    nameless = {run.model for pairs in subjects.values() for run, _ in pairs if run.nameless}
    for model in sorted(nameless):
        runs = sum(any(run.model == model for run, _ in pairs) for pairs in subjects.values())
        what = f"lm-eval made up the model name {model!r}, the same for every model without one"
        notes.append(f"{what}; its {runs} runs are kept apart as subjects of their own.")
    several = []
    for name, pairs in subjects.items():
        by_task: dict[str, list[Run]] = {}
        for run, _ in pairs:
            by_task.setdefault(group_name(run), []).append(run)
        if any(len(group) > 1 for group in by_task.values()):
            several.append(name)
        for group in by_task.values():
            settings = {json.dumps([r.settings, r.version], sort_keys=True) for r in group}
            if len(settings) > 1:
                notes.append(f"{name}, task {group[0].task}: runs differ in their settings.")
    again = {n.rsplit("@", 1)[0] for n in subjects if "@" in n} if how == "separate" else set()
    if several or again:
        names = shorten(several or sorted(again))
        others = tuple(each for each in RUNS if each != how)
        choices.append(Choice("models run more than once", f"runs ({names})", how, others))
