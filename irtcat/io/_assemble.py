"""From the runs that logs hold to one matrix: which metric, which run, who and what."""

import json
from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd

from irtcat._checks import InputError, shorten
from irtcat.io._choose import (
    Choice,
    Wanted,
    choose_columns,
    group_name,
    list_columns,
    show_column,
)
from irtcat.io._logs import Answers, Column, Items, Run
from irtcat.responses import Responses

__all__ = ["RUNS", "assemble"]

HASH_SHOWN = 16
"""Characters of a document's hash in the id of its item."""

RUNS = ("latest", "mean", "separate")


def _settle(runs: list[Run], taken: dict[str, Column]) -> tuple[list[tuple[Run, Answers]], list]:
    """The runs with the chosen column, and those that lack it or whose values are unusable."""
    used, skipped = [], []
    for run in runs:
        answers = run.columns.get(taken[group_name(run)])
        if answers is None:
            has = list_columns(run.columns, run.format)
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
    """Runs by subject, oldest first; a run without a model's name is a subject of its own.

    Runs whose model is named after their folder are taken together as long as no task comes twice:
    then they may be of different models.
    """
    by_model: dict[str, list[tuple[Run, Answers]]] = {}
    for pair in used:
        by_model.setdefault(pair[0].model, []).append(pair)
    out: dict[str, list[tuple[Run, Answers]]] = {}
    for model, pairs in by_model.items():
        pairs.sort(key=lambda pair: (pair[0].date, pair[0].file))
        tasks = [group_name(run) for run, _ in pairs]
        sources = {run.name_source for run, _ in pairs}
        several = "made up" in sources and len({run.session for run, _ in pairs}) > 1
        several = several or ("folder" in sources and len(set(tasks)) < len(tasks))
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
    """Ids as "task/key", of a hash its first characters: the same whatever else is imported.

    Documents whose hashes begin alike have their whole hashes in their ids.
    """
    differ = [about for about in abouts if about.differs]
    if differ:
        first = f"{differ[0].task}/{differ[0].key}"
        what = "have another text in other logs: is it the same data set?"
        notes.append(f"{len(differ)} items, {first} first, {what}")
    hashes: dict[tuple[str, str], set[str]] = {}
    for about in abouts:
        hashes.setdefault((about.task, about.hash[:HASH_SHOWN]), set()).add(about.hash)
    ids = []
    for about in abouts:
        start = about.hash[:HASH_SHOWN]
        alone = len(hashes[about.task, start]) == 1
        key = about.key.replace(about.hash, start, 1) if about.hash and alone else about.key
        ids.append(f"{about.task}/{key}")
    if alike := [both for both in hashes.values() if len(both) > 1]:
        what = f"{sum(map(len, alike))} documents, {min(alike[0])} first, have hashes that begin"
        notes.append(f"{what} alike: their ids have the whole hashes.")
    return ids


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
    sources = {
        run.model: run.name_source
        for pairs in subjects.values()
        for run, _ in pairs
        if run.name_source != "log"
    }
    for model, source in sorted(sources.items()):
        runs = sum(any(run.model == model for run, _ in pairs) for pairs in subjects.values())
        if source == "made up":
            what = f"The harness made up the model name {model!r}, the same for all without one"
            notes.append(f"{what}; its {runs} runs are kept apart as subjects of their own.")
        elif runs > 1:
            what = f"No log names the model of the {runs} runs in the folder {model!r}"
            advice = "Give their results files, or a folder for each model"
            notes.append(f"{what}; they are kept apart as subjects of their own. {advice}.")
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
