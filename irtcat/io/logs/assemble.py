"""Assemble the runs of logs into one matrix: select metrics and runs, name subjects and items.

Runs must agree in the conditions of their answers where they answer the same items.
"""

import json
from collections.abc import Mapping
from dataclasses import replace
from itertools import chain, count
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from irtcat._common.checks import InputError, argument_error, shorten
from irtcat._common.types import BoolArray
from irtcat.io.logs.choose import (
    OptionChoice,
    Preferences,
    ScoreScales,
    choose_columns,
    list_columns,
    show_column,
    without_column,
)
from irtcat.io.logs.format import Answers, Column, Item, Items, Run, by_group
from irtcat.responses import Responses
from irtcat.responses._conditions import text_hash
from irtcat.responses._summary import RANGE_COLUMNS
from irtcat.responses.long import SPARSE, SPARSE_CELLS

Used = list[tuple[Run, Answers]]
Columns = Mapping[str, Column]
"""The chosen columns by `Run.group`."""

NAMES = ("metric", "filter", "scorer", "num_fewshot", "version")


class _Unit(NamedTuple):
    """Runs of one task and format under the same conditions, and the items that they answer."""

    name: str
    conditions: dict[str, str]
    pairs: Used
    items: BoolArray


def _conditions(run: Run, columns: Columns) -> dict[str, str]:
    """The known conditions of a run's answers."""
    source, metric = columns[run.group]
    shots = "" if run.num_fewshot is None else str(run.num_fewshot)
    known = {"metric": metric, run.format.column: source, "num_fewshot": shots}
    known["version"] = run.task_version
    return {name: known[name] for name in NAMES if known.get(name)}


def _units(used: Used, columns: Columns, mapping: np.ndarray) -> list[_Unit]:
    """Runs by conditions: those of most runs first, then those of the latest one."""
    units: dict[tuple[Any, ...], _Unit] = {}
    for run, answers in used:
        name, conditions = run.group, _conditions(run, columns)
        key = (name, *conditions.items())
        unit = units.setdefault(key, _Unit(name, conditions, [], np.zeros(len(mapping), bool)))
        unit.pairs.append((run, answers))
        unit.items[mapping[answers.items]] = True

    def weight(key: tuple[Any, ...]) -> tuple[Any, ...]:
        return len(units[key].pairs), max(run.date for run, _ in units[key].pairs), key

    return [units[key] for key in sorted(units, key=weight, reverse=True)]


def agreeing(
    used: Used, columns: Columns, mapping: np.ndarray, preferences: Preferences, mismatch: str
) -> tuple[Used, list[tuple[Run, str]], list[OptionChoice]]:
    """The runs that agree in the conditions of their answers to the same items.

    Of runs that do not, those under the conditions of most runs are used, and if several have as
    many, those of the latest run.

    Args:
        used: the runs, with their answers in the chosen columns.
        columns: the chosen columns by `Run.group`.
        mapping: position of each item.
        preferences: what the caller requested.
        mismatch: "refuse" these runs, or "accept" them.

    Returns:
        The runs that are used, the others and why they are not, and the choices that were made.

    Raises:
        InputError: no run has the requested number of examples.
    """
    used, skipped = _requested(used, preferences)
    kept: list[_Unit] = []
    others: dict[tuple[str, str, str], set[str]] = {}
    for unit in _units(used, columns, mapping) if mismatch == "refuse" else []:
        found = next(filter(None, (_difference(unit, other) for other in kept)), None)
        if found is None:
            kept.append(unit)
            continue
        name, value, taken = found
        others.setdefault((unit.name, name, taken), set()).add(value)
        instead = f"num_fewshot={value} to read such runs, or " if name == "num_fewshot" else ""
        advice = f'Pass {instead}mismatch="accept" to read all together.'
        got = f"expected {name} {taken}, as other runs with these items have. Got {value}. {advice}"
        skipped += [(run, f"{run.file}: {got}") for run, _ in unit.pairs]
    unused = {id(run) for run, _ in skipped}
    choices = [
        OptionChoice(task, name, taken, tuple(sorted(values)))
        for (task, name, taken), values in others.items()
    ]
    return [pair for pair in used if id(pair[0]) not in unused], skipped, choices


def _difference(unit: _Unit, other: _Unit) -> tuple[str, str, str] | None:
    """A condition of shared items that differs, with both values; None if all agree."""
    for name, value in unit.conditions.items():
        known = other.conditions.get(name, value)
        if known != value and (unit.items & other.items).any():
            return name, value, known
    return None


def _requested(used: Used, preferences: Preferences) -> tuple[Used, list[tuple[Run, str]]]:
    """The runs with the requested number of examples, and the others with a reason."""
    known: dict[str, set[int]] = {}
    for run, _ in used:
        if run.num_fewshot is not None:
            known.setdefault(run.task, set()).add(run.num_fewshot)
    out, skipped = [], []
    for pair in used:
        run = pair[0]
        wanted = preferences.shots(run.task)
        if wanted is None or run.num_fewshot is None or run.num_fewshot == wanted:
            out.append(pair)
        elif wanted in known[run.task]:
            reason = f"{run.file}: expected num_fewshot {wanted}. Got {run.num_fewshot}."
            skipped.append((run, reason))
        else:
            must = f"The `num_fewshot` argument must be in the logs of task {run.task}"
            got = f"which have {shorten(sorted(known[run.task]))}. Got {wanted}"
            raise InputError(f"{must}, {got}.")
    return out, skipped


def item_conditions(
    used: Used, columns: Columns, mapping: np.ndarray, items: list[Item]
) -> tuple[dict[str, np.ndarray], dict[str, BoolArray]]:
    """The conditions of each item, None where they are unknown or differ.

    Returns:
        A column of each condition that is known of some item, and which items have several values.
    """
    cells = {name: np.full(len(mapping), None, object) for name in NAMES}
    several = {name: np.zeros(len(mapping), bool) for name in NAMES}
    for unit in _units(used, columns, mapping):
        for name, text in unit.conditions.items():
            column, value = cells[name], int(text) if name == "num_fewshot" else text
            several[name] |= unit.items & (column != None) & (column != value)  # noqa: E711
            column[unit.items] = value
    for name, mixed in several.items():
        cells[name][mixed] = None
    cells["text_hash"] = np.array([_text_hash(item) for item in items], object)
    return {name: column for name, column in cells.items() if any(column != None)}, several  # noqa: E711


def _text_hash(item: Item) -> str | None:
    """Hash of text and target, where the harness logs no hash and its texts are no prompts."""
    if item.hash or item.text is None or item.differs or item.format.samples == "documents":
        return None
    return text_hash(item.text, item.target)


HASH_SHOWN = 16
"""Number of characters of a document's hash in the id of its item."""

RUNS = ("latest", "mean", "separate")
UNSCORED = ("missing", "wrong")


WEIGHTS = ("revision", "peft", "delta", "subfolder", "adapter_weights", "delta_weights")
"""Arguments that always make another model: checkpoints and adapters."""


def _select_runs(runs: list[Run], selected_columns: Columns) -> tuple[Used, list[tuple[Run, str]]]:
    """The runs with the selected column, and those that lack it or have invalid values."""
    selected: Used = []
    skipped = []
    for run in runs:
        if run.group not in selected_columns:
            skipped.append((run, without_column(run)))
            continue
        answers = run.columns.get(selected_columns[run.group])
        if answers is None:
            has = list_columns(run.columns, run.format)
            name = show_column(selected_columns[run.group], run.format)
            skipped.append((run, f"{run.file}: expected the metric {name}. Got {has}."))
        elif answers.flaw:
            skipped.append((run, answers.flaw))
        elif np.isnan(answers.values).all():
            skipped.append((run, f"{run.file}: no answer has a score."))
        else:
            selected.append((run, answers))
    return selected, skipped


def _by_model(selected: Used) -> dict[str, Used]:
    """Runs by model: arguments are added to its name where they tell its runs apart.

    A revision or an adapter makes another model, other arguments only where runs of the same task
    differ in them.
    """
    groups: dict[str, Used] = {}
    for pair in selected:
        groups.setdefault(pair[0].model, []).append(pair)
    out: dict[str, Used] = {}
    for model, pairs in groups.items():
        needed = _telling([run for run, _ in pairs])
        for pair in pairs:
            known = pair[0].arguments
            parts = [f"{name}={known[name]}" for name in needed if name in known]
            out.setdefault(f"{model}@{','.join(parts)}" if parts else model, []).append(pair)
    return out


def _telling(runs: list[Run]) -> list[str]:
    """Names of the arguments that tell runs of one model apart."""

    def differs(name: str, some: list[Run]) -> bool:
        return len({run.arguments.get(name) for run in some}) > 1

    return [
        name
        for name in sorted({name for run in runs for name in run.arguments})
        if differs(name, runs)
        and (name in WEIGHTS or any(differs(name, some) for some in by_group(runs).values()))
    ]


def _count_unscored(used: Used, counted: str) -> Used:
    """Count the samples without a score of each run, which are wrong if ``counted`` says so."""
    for run, answers in used:
        run.n_unscored = int(np.isnan(answers.values).sum()) + len(run.unscored)
    if counted == "wrong":
        return [(run, _with_wrong(run, answers)) for run, answers in used]
    return used


def _note_unscored(subjects: dict[str, Used], counted: str) -> list[str]:
    """A note for each task with samples without a score."""
    by_task: dict[str, list[tuple[int, str]]] = {}
    for name, pairs in subjects.items():
        for run, answers in pairs:
            total = len(answers.values) + (0 if counted == "wrong" else len(run.unscored))
            if n := run.n_unscored:
                by_task.setdefault(run.group, []).append((n, f"{name}: {n} of {total}"))
    notes = []
    for task, found in by_task.items():
        found.sort(key=lambda entry: -entry[0])
        more = f" and {len(found) - 3} more" if len(found) > 3 else ""
        which = "; ".join(text for _, text in found[:3]) + more
        n = sum(n for n, _ in found)
        effect = "count as wrong" if counted == "wrong" else "are missing from the scores"
        advice = "" if counted == "wrong" else ' With unscored="wrong" they count as wrong.'
        subject = "1 sample has" if n == 1 else f"{n} samples have"
        notes.append(
            f"{task}: {subject} no score, such as after an error, and {effect} ({which}).{advice}"
        )
    return notes


def _note_documents(subjects: dict[str, Used], items: Items) -> list[str]:
    """A note for each task whose documents of one number have different hashes in its logs.

    They are different items: the data or the template of the documents has changed.
    """
    names: dict[int, dict[str, None]] = {}
    for name, pairs in subjects.items():
        positions = [answers.items for _, answers in pairs]
        for position in np.unique(np.concatenate(positions)).tolist():
            about = items.all[position]
            if about.hash and about.trust > 0 and about.format.samples == "documents":
                names.setdefault(position, {})[name] = None
    numbers: dict[str, dict[str, list[int]]] = {}
    for position in names:
        about = items.all[position]
        if about.sample is not None:
            numbers.setdefault(about.task, {}).setdefault(about.sample, []).append(position)
    notes = []
    for task, by_number in numbers.items():
        changed = {number: at for number, at in by_number.items() if len(at) > 1}
        if not changed:
            continue
        number, at = next(iter(changed.items()))
        shown = ", and of ".join(shorten(list(names[position])) for position in at[:3])
        count = "1 document differs" if len(changed) == 1 else f"{len(changed)} documents differ"
        notes.append(
            f"Task {task}: {count} between logs, number {number} first (logs of {shown}): another "
            "version of the data or of the task. They are different items; leave the logs of one "
            "version out."
        )
    return notes


def _with_wrong(run: Run, answers: Answers) -> Answers:
    """The answers with 0 for every sample without a score."""
    scored = replace(answers, values=np.nan_to_num(answers.values, nan=0.0))
    return scored.with_wrong(*np.array(run.unscored, np.int32).reshape(-1, 2).T)


def _grades(used: Used, columns: Columns, preferences: Preferences) -> tuple[int, int] | None:
    """The lowest and highest category of graded scores; None for other scores.

    By default scores are graded if their format states their range and all are whole.

    Raises:
        InputError: the tasks have different categories.
    """
    scales = preferences.scales
    if scales.graded is None and not all(
        _is_whole(run, columns, answers, scales) for run, answers in used
    ):
        return None
    if scales.graded is False:
        return None
    found: dict[tuple[float, float] | None, str] = {}
    for run, _ in used:
        name = run.group
        found.setdefault(scales.range_of(run, columns[name]), name)
    if len(found) > 1 and scales.graded is None:
        return None
    if scales.graded and None in found and len(found) == 1:
        raise argument_error("ranges", "given with graded=True", "no range")
    if len(found) > 1:
        shown = ", ".join(
            f"{name} {'0 to 1' if ends is None else f'{ends[0]:g} to {ends[1]:g}'}"
            for ends, name in found.items()
        )
        must = "the same for all tasks with graded=True; name those of one range in `tasks`"
        raise argument_error("ranges", must, shown)
    ends = next(iter(found))
    return None if ends is None else (int(ends[0]), int(ends[1]))


def _is_whole(run: Run, columns: Columns, answers: Answers, scales: ScoreScales) -> bool:
    """Whether the scores have a range that their format states, and are whole numbers in it."""
    column = columns[run.group]
    ends = run.ranges.get(column[1])
    if (
        ends is None
        or ends != scales.range_of(run, column)
        or answers.trials is None
        or (answers.trials > 0).any()
    ):
        return False
    scores = answers.values[~np.isnan(answers.values)] * (ends[1] - ends[0])
    return bool(np.allclose(scores, np.rint(scores)))


def _range_columns(
    used: Used, columns: Columns, mapping: np.ndarray, scales: ScoreScales
) -> dict[str, np.ndarray]:
    """The lowest and the highest score of each item; none if all scores are from 0 to 1."""
    ends = np.full((2, len(mapping)), np.nan)
    for run, answers in used:
        known = scales.range_of(run, columns[run.group])
        if known is not None:
            ends[:, mapping[answers.items]] = np.array(known)[:, None]
    if np.isnan(ends).all():
        return {}
    return dict(zip(RANGE_COLUMNS, np.where(np.isnan(ends), [[0.0], [1.0]], ends), strict=True))


def _subjects(selected: Used, how: str) -> tuple[dict[str, Used], dict[str, str]]:
    """Runs by subject, oldest first; a run without a model's name is a separate subject.

    Runs whose model is named after their folder are combined unless a task occurs twice, because
    they may then be runs of different models.

    Returns:
        The runs by subject, and the model of each subject.
    """
    by_model = _by_model(selected)
    out: dict[str, Used] = {}
    models: dict[str, str] = {}
    for model, pairs in by_model.items():
        pairs.sort(key=lambda pair: (pair[0].date, pair[0].file))
        tasks = [run.group for run, _ in pairs]
        sources = {run.name_source for run, _ in pairs}
        separate = "made up" in sources and len({run.session for run, _ in pairs}) > 1
        separate = separate or ("folder" in sources and len(set(tasks)) < len(tasks))
        if how == "separate":
            separate = separate or len(set(tasks)) < len(tasks)
        if not separate:
            out[model], models[model] = pairs, model
            continue
        names: dict[str, str] = {}
        for run, answers in pairs:
            key = run.session or run.file
            name = names.setdefault(key, _unique(f"{model}@{run.date or len(names) + 1}", out))
            out.setdefault(name, []).append((run, answers))
            models[name] = model
    return out, models


def _unique(name: str, used_names: Mapping[str, Any]) -> str:
    """The name, with #2, #3, … appended if it is already used."""
    further = (f"{name}#{number}" for number in count(2))
    return next(unique for unique in chain([name], further) if unique not in used_names)


def _same_documents(items: Items) -> tuple[np.ndarray, int]:
    """Map each item without a hash to the one with a hash of the same task and number, if unique.

    Returns:
        The position of each item after the mapping, and how many items were mapped.
    """
    numbers: dict[tuple[str, str], list[int]] = {}
    for position, about in enumerate(items.all):
        if about.hash and about.trust > 0 and about.sample is not None:
            numbers.setdefault((about.task, about.sample), []).append(position)
    mapping = np.arange(len(items.all))
    for position, about in enumerate(items.all):
        matches = numbers.get((about.task, about.sample or ""), [])
        if about.format.samples == "documents" and not about.hash and len(matches) == 1:
            mapping[position] = matches[0]
    return mapping, int((mapping != np.arange(len(mapping))).sum())


def assemble(
    runs: list[Run], items: Items, preferences: Preferences, how: str, mismatch: str
) -> tuple[Responses, dict[str, Any]]:
    """Assemble responses from runs.

    Returns:
        The responses, and the contents of the report: choices, notes, skipped runs and a table of
        the used ones.

    Raises:
        InputError: no run can be used, or a requested metric does not exist.
    """
    columns, choices = choose_columns(runs, preferences)
    used, skipped = _select_runs(runs, columns)
    if not used:
        reasons = " ".join(reason for _, reason in skipped[:3])
        raise InputError(f"No log can be used. {reasons}")
    mapping, n_mapped = _same_documents(items)
    used, unlike, more = agreeing(used, columns, mapping, preferences, mismatch)
    skipped += unlike
    choices += more
    grades = _grades(used, columns, preferences)
    notes = [note for run, _ in used for note in run.notes]
    used = _count_unscored(used, preferences.unscored)
    if n_mapped:
        notes.append(f"{n_mapped} documents without a hash were identified by their numbers.")
    subjects, models = _subjects(used, how)
    notes += _note_unscored(subjects, preferences.unscored)
    notes += _note_documents(subjects, items)
    _note_runs(subjects, models, how, choices, notes)
    order = _order(used, mapping, items)
    position = np.full(len(items.all), -1)
    position[order] = np.arange(len(order))
    k, n = _fill(subjects, position[mapping], how, len(order))
    scores = None if n is None else _by_trial(subjects, position[mapping], how, n)
    ids = _item_ids([items.all[c] for c in order], notes)
    if preferences.scales.graded is None and n is not None:
        grades = None
    conditions, several = item_conditions(used, columns, mapping, items.all)
    conditions |= _range_columns(used, columns, mapping, preferences.scales)
    for name, mixed in several.items():
        if mixed[order].any():
            first = ids[int(np.argmax(mixed[order]))]
            notes.append(
                f"{mixed[order].sum()} items, {first} first, have several values of {name}."
            )
    columns_of_scores = [answers.values for _, answers in used]
    binary = all((np.isnan(x) | (x == 0) | (x == 1)).all() for x in columns_of_scores)
    chosen = [items.all[c] for c in order]
    known = {name: cells[order] for name, cells in conditions.items()}
    tables = {"subject_ids": list(subjects), "subjects": _about_subjects(subjects)}
    tables |= {"item_ids": ids, "items": _about_items(chosen, ids, known)}
    responses = _responses(k, n, scores, binary, grades, notes, tables)
    table = _run_table(used, columns, subjects)
    return responses, {"choices": choices, "notes": notes, "skipped": skipped, "runs": table}


def _run_table(used: Used, columns: Columns, subjects: dict[str, Used]) -> pd.DataFrame:
    """The runs that are used, a row for each (see `irtcat.io.logs.ImportReport`)."""
    subject_of = {id(run): name for name, pairs in subjects.items() for run, _ in pairs}
    rows = [
        {
            "file": run.file,
            "format": run.format.name,
            "model": run.model,
            "subject": subject_of[id(run)],
            "task": run.task,
            "metric": show_column(columns[run.group], run.format),
            "date": run.date or None,
            "version": run.version or None,
            "responses": int((~np.isnan(answers.values)).sum()),
            "mean": float(np.nanmean(answers.values)),
            "unscored": run.n_unscored,
            "incomplete": run.cut or None,
        }
        for run, answers in used
    ]
    return pd.DataFrame(rows)


def _order(used: Used, mapping: np.ndarray, items: Items) -> list[int]:
    """Positions of the items used, sorted by task (first appearance), number, first appearance."""
    is_used = np.zeros(len(mapping), bool)
    tasks: dict[str, int] = {}
    for run, answers in used:
        is_used[mapping[answers.items]] = True
        tasks.setdefault(run.task, len(tasks))

    def key(position: int) -> tuple[int, float, int]:
        about = items.all[position]
        sample = about.sample if about.format.samples != "names" else None
        number = float(sample) if sample is not None and sample.isdecimal() else np.inf
        return tasks[about.task], number, position

    return sorted(np.flatnonzero(is_used).tolist(), key=key)


def _fill(
    subjects: dict[str, Used], position: np.ndarray, how: str, width: int
) -> tuple[np.ndarray, np.ndarray | None]:
    """Sums of the scores, NaN where missing, and numbers of trials (None: all are 1)."""
    sums = np.full((len(subjects), width), np.nan, np.float32)
    most, trials = 1, np.zeros((1, 1), np.int16)
    for row, pairs in enumerate(subjects.values()):
        total, count = np.zeros(width), np.zeros(width, np.int64)
        for _, answers in pairs:
            scored = ~np.isnan(answers.values)
            columns = position[answers.items[scored]]
            k = np.bincount(columns, answers.values[scored], width)
            n = np.bincount(columns, minlength=width)
            if how != "mean":  # the latest run of each item replaces earlier ones
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


def _by_trial(
    subjects: dict[str, Used], position: np.ndarray, how: str, n: np.ndarray
) -> np.ndarray | None:
    """The scores by number of the trial; None if a log has only counts of its trials.

    Trials are numbered within each subject: those of its first run on a task, then of the next one.
    None too if there are more numbers than trials by far, or two scores of one trial.
    """
    rows = []
    for pairs in subjects.values():
        first: dict[str, int] = {}
        items, values, trials = [], [], []
        latest = np.full(n.shape[1], -1)
        for run, answers in pairs:
            if answers.trials is None:
                return None
            scored = ~np.isnan(answers.values)
            items.append(position[answers.items[scored]])
            values.append(answers.values[scored])
            number = answers.trials[scored] + first.get(run.group, 0)
            trials.append(number)
            first[run.group] = int(number.max(initial=-1)) + 1
            latest[items[-1]] = len(items) - 1
        run_of = np.repeat(np.arange(len(items)), [len(part) for part in items])
        columns = np.concatenate(items)
        used = np.full(len(columns), True) if how == "mean" else run_of == latest[columns]
        numbers = np.unique(np.concatenate(trials)[used], return_inverse=True)[1]
        rows.append((columns[used], numbers, np.concatenate(values)[used]))
    shape = (*n.shape, 1 + max(int(numbers.max(initial=0)) for _, numbers, _ in rows))
    if np.prod(shape) > max(SPARSE_CELLS, SPARSE * int(n.sum(dtype=np.int64))):
        return None
    cube = np.full(shape, np.nan, np.float32)
    for row, (columns, numbers, values) in enumerate(rows):
        cube[row, columns, numbers] = values
    is_complete = np.array_equal(np.count_nonzero(~np.isnan(cube), axis=2), n)
    return cube if is_complete else None


def _responses(
    sums: np.ndarray,
    n: np.ndarray | None,
    scores: np.ndarray | None,
    binary: bool,
    grades: tuple[int, int] | None,
    notes: list[str],
    tables: dict[str, Any],
) -> Responses:
    """Right/wrong if all scores are 0 or 1, shares if they count trials, else fractions.

    ``scores`` by number of the trial, where these are known, are used instead of the sums. With
    ``grades``, the lowest and the highest category, scores are these. ``tables`` has ids and
    metadata.
    """
    if grades is not None:
        if n is not None:
            got = "several trials of an item, such as epochs, whose mean is none"
            raise argument_error("graded", "False for scores that are averaged", got)
        top = grades[1] - grades[0]
        codes = np.where(np.isnan(sums), -1, np.rint(sums * top) + grades[0]).astype(np.int16)
        return Responses.from_array(codes, codes=tuple(range(grades[0], grades[1] + 1)), **tables)
    if n is None and binary:
        values = np.where(np.isnan(sums), -1, sums).astype(np.int8)
        return Responses.from_array(values, codes=(0, 1), **tables)
    if n is None:
        return Responses.from_array(sums, **tables)
    if scores is not None:
        return Responses.from_trials(scores, **tables)
    if binary:
        return Responses.from_counts(sums, n, **tables)
    notes.append(
        "Scores between 0 and 1 were averaged over trials; the numbers of trials are not kept."
    )
    np.divide(sums, n, out=sums, where=n > 0)
    return Responses.from_array(np.clip(sums, 0, 1), **tables)


def _item_ids(abouts: list[Item], notes: list[str]) -> list[str]:
    """Ids "task/key", with the first characters of a hash, independent of other imported logs.

    Documents whose hashes begin with the same characters get the full hash in their ids.
    """
    differ = [about for about in abouts if about.differs]
    if differ:
        first = f"{differ[0].task}/{differ[0].key}"
        problem = "have a different text in other logs: is it the same data set?"
        notes.append(f"{len(differ)} items, {first} first, {problem}")
    hashes: dict[tuple[str, str], set[str]] = {}
    for about in abouts:
        hashes.setdefault((about.task, about.hash[:HASH_SHOWN]), set()).add(about.hash)
    ids = []
    for about in abouts:
        start = about.hash[:HASH_SHOWN]
        unique = len(hashes[about.task, start]) == 1
        key = about.key.replace(about.hash, start, 1) if about.hash and unique else about.key
        ids.append(f"{about.task}/{key}")
    if collisions := [group for group in hashes.values() if len(group) > 1]:
        n_documents = sum(map(len, collisions))
        notes.append(
            f"{n_documents} documents, {min(collisions[0])} first, have hashes with the same first "
            "characters: their ids have the full hashes."
        )
    return ids


def _about_items(
    abouts: list[Item], ids: list[str], conditions: dict[str, np.ndarray]
) -> pd.DataFrame:
    """Metadata of the items."""
    names = ("sample", "hash", "text", "target")
    table = {
        "task": [about.task for about in abouts],
        "format": [about.format.name for about in abouts],
        **{name: [getattr(about, name) or None for about in abouts] for name in names},
        **{name: cells.tolist() for name, cells in conditions.items()},
    }
    return pd.DataFrame(table, index=pd.Index(ids, dtype=object))


def _about_subjects(subjects: dict[str, Used]) -> pd.DataFrame:
    """Metadata of the subjects: of the latest run, with the settings of each task."""
    rows = []
    for pairs in subjects.values():
        last = pairs[-1][0]
        settings = {run.task: run.settings for run, _ in pairs}
        rows.append(
            {
                "model": last.model,
                "date": last.date or None,
                "harness": last.format.name,
                "version": last.version or None,
                "runs": len({run.session or run.file for run, _ in pairs}),
                "unscored": sum(run.n_unscored for run, _ in pairs),
                "settings": json.dumps(settings, ensure_ascii=False, sort_keys=True),
            }
        )
    return pd.DataFrame(rows, index=pd.Index(list(subjects), dtype=object))


def _note_runs(
    subjects: dict[str, Used],
    models: dict[str, str],
    how: str,
    choices: list[OptionChoice],
    notes: list[str],
) -> None:
    """Report models that were run more than once, and how their runs were combined."""
    _note_unnamed(subjects, notes)
    repeated = []
    for name, pairs in subjects.items():
        groups = by_group(run for run, _ in pairs).values()
        if any(len(group) > 1 for group in groups):
            repeated.append(name)
        for group in groups:
            settings = {json.dumps([r.settings, r.version], sort_keys=True) for r in group}
            if len(settings) > 1:
                notes.append(f"{name}, task {group[0].task}: runs differ in their settings.")
    split = {model for name, model in models.items() if name != model and how == "separate"}
    if repeated or split:
        names = shorten(repeated or sorted(split))
        others = tuple(option for option in RUNS if option != how)
        choices.append(OptionChoice("models run more than once", f"runs ({names})", how, others))


def _note_unnamed(subjects: dict[str, Used], notes: list[str]) -> None:
    """Report models that their logs do not name."""
    sources = {
        run.model: run.name_source
        for pairs in subjects.values()
        for run, _ in pairs
        if run.name_source != "log"
    }
    for model, source in sorted(sources.items()):
        runs = sum(any(run.model == model for run, _ in pairs) for pairs in subjects.values())
        if source == "made up":
            reason = f"The harness made up the model name {model!r}, the same for all without one"
            notes.append(f"{reason}; its {runs} runs are separate subjects.")
        elif runs > 1:
            reason = f"No log names the model of the {runs} runs in the folder {model!r}"
            advice = "Give their results files, or a folder for each model"
            notes.append(f"{reason}; they are separate subjects. {advice}.")
