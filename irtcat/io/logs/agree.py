"""Conditions of answers: runs that agree in them where they answer the same items."""

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from irtcat._common.checks import InputError, shorten
from irtcat._common.types import BoolArray
from irtcat.io.logs.choose import OptionChoice, Preferences, group_name
from irtcat.io.logs.format import Answers, Column, Item, Run
from irtcat.responses._conditions import text_hash

Used = list[tuple[Run, Answers]]

NAMES = ("metric", "filter", "scorer", "num_fewshot", "version")


class _Unit(NamedTuple):
    """Runs of one task and format under the same conditions, and the items that they answer."""

    name: str
    conditions: dict[str, str]
    pairs: Used
    items: BoolArray


def _conditions(run: Run, columns: Mapping[str, Column]) -> dict[str, str]:
    """The known conditions of a run's answers."""
    source, metric = columns[group_name(run)]
    shots = "" if run.num_fewshot is None else str(run.num_fewshot)
    known = {"metric": metric, run.format.column: source, "num_fewshot": shots}
    known["version"] = run.task_version
    return {name: known[name] for name in NAMES if known.get(name)}


def _units(used: Used, columns: Mapping[str, Column], mapping: np.ndarray) -> list[_Unit]:
    """Runs by conditions: those of most runs first, then those of the latest one."""
    units: dict[tuple[Any, ...], _Unit] = {}
    for run, answers in used:
        name, conditions = group_name(run), _conditions(run, columns)
        key = (name, *conditions.items())
        unit = units.setdefault(key, _Unit(name, conditions, [], np.zeros(len(mapping), bool)))
        unit.pairs.append((run, answers))
        unit.items[mapping[answers.items]] = True

    def weight(key: tuple[Any, ...]) -> tuple[Any, ...]:
        return len(units[key].pairs), max(run.date for run, _ in units[key].pairs), key

    return [units[key] for key in sorted(units, key=weight, reverse=True)]


def agreeing(
    used: Used,
    columns: Mapping[str, Column],
    mapping: np.ndarray,
    preferences: Preferences,
    mismatch: str,
) -> tuple[Used, list[tuple[Run, str]], list[OptionChoice]]:
    """The runs that agree in the conditions of their answers to the same items.

    Of runs that do not, those under the conditions of most runs are used, and if several have as
    many, those of the latest run.

    Args:
        used: the runs, with their answers in the chosen columns.
        columns: the chosen columns by `group_name`.
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
    used: Used, columns: Mapping[str, Column], mapping: np.ndarray, items: list[Item]
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
