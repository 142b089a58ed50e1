"""Conditions under which items were answered: columns of their metadata, and one check of them.

The same question scored by another metric, or asked with another number of examples, is another
item. Logs of harnesses know these conditions; they stay with the items in responses, banks and
short forms.
"""

import hashlib
import json
from typing import Any

import numpy as np
import pandas as pd

from irtcat._common.checks import InputError, brief, check_choice
from irtcat._common.numbers import number_in

HARNESS_COLUMNS = {
    "task": ("task", "task_name", "evaluation_name"),
    "sample": ("sample_id", "sample", "doc_id", "doc_index"),
    "hash": ("doc_hash", "hash"),
}
"""Columns of metadata by which harnesses know an item; the first one that exists is used."""

_NAMES = ("task", "metric", "filter", "scorer", "num_fewshot", "version", "hash", "text_hash")
CONDITIONS = {name: HARNESS_COLUMNS.get(name, (name,)) for name in _NAMES}
"""Columns of metadata of each condition; the first one that exists is used."""

CONDITION_COLUMNS = ("metric", "filter", "scorer", "num_fewshot", "version", "text_hash")
"""Columns of the conditions that harnesses do not need to find an item."""

MISMATCH = ("refuse", "accept")

SAFE_TEXT = 1000
"""Characters of a text in its hash: harnesses cut longer ones in some of their logs."""

HASH_SHOWN = 12
"""Number of characters of a hash in a message."""

ADVICE = (
    "Use answers with the same settings (irtcat import --filter, --metric and --num-fewshot choose "
    "among those in logs)"
)

LABELS = {"hash": "hash of the data", "text_hash": "hash of the text"}
"""What messages call a condition, where it is not its name."""

SHOWN = 4
"""Number of differences in a message."""


def check_conditions(
    known: pd.DataFrame,
    new: pd.DataFrame,
    mismatch: str = "refuse",
    *,
    name: str = "responses",
    source: str = "calibration",
    items: Any = None,
    advice: str = ADVICE,
) -> None:
    """Raise where items were answered under conditions that differ from the known ones.

    Only items and conditions that both tables have are compared: data without metadata agree with
    everything.

    Args:
        known: the items' metadata, by item id.
        new: those of the answers that are used with them.
        mismatch: "refuse", or "accept" to compare nothing.
        name: the argument with the new answers, for the message.
        source: what the known conditions are those of.
        items: ids of the items to compare; by default all.
        advice: how to get answers that match.

    Raises:
        InputError: naming task, condition and both values.

    Example:
        >>> known = pd.DataFrame({"task": "quiz", "num_fewshot": [0, 0]}, index=["x", "y"])
        >>> check_conditions(known, known.assign(num_fewshot=["0", None]))
        >>> check_conditions(known, known.assign(num_fewshot=2))
        Traceback (most recent call last):
        ...
        irtcat._common.errors.InputError: The `responses` argument must be answers under the \
conditions \
of the calibration. Got num_fewshot 2 instead of 0 in task quiz (2 items, x first). Use answers \
with the same settings (irtcat import --filter, --metric and --num-fewshot choose among those in \
logs), or pass mismatch="accept".
    """
    check_choice("mismatch", mismatch, MISMATCH)
    if mismatch == "accept" or not len(known.columns) or not len(new.columns):
        return
    pairs = {
        condition: (_column(known, names), _column(new, names))
        for condition, names in CONDITIONS.items()
    }
    pairs = {condition: pair for condition, pair in pairs.items() if None not in pair}
    if not pairs:
        return
    before, after = (table.set_axis(table.index.map(str), axis=0) for table in (known, new))
    shared = before.index.intersection(after.index, sort=False)
    if items is not None:
        shared = shared.intersection(pd.Index([str(item) for item in items]), sort=False)
    before, after = before.loc[shared], after.loc[shared]
    differences = [
        text
        for condition, (one, other) in pairs.items()
        for text in _differences(condition, before[one], after[other], after)
    ]
    if differences:
        more = len(differences) - SHOWN
        got = "; ".join(differences[:SHOWN]) + (f"; and {more} more" if more > 0 else "")
        must = f"The `{name}` argument must be answers under the conditions of the {source}"
        raise InputError(f'{must}. Got {got}. {advice}, or pass mismatch="accept".')


def _column(table: pd.DataFrame, names: tuple[str, ...]) -> str | None:
    """The first of these columns that a table has."""
    return next((name for name in names if name in table), None)


def _differences(
    condition: str, before: pd.Series, after: pd.Series, table: pd.DataFrame
) -> list[str]:
    """A phrase for each task whose items differ in a condition."""
    known, got = before.to_numpy(object), after.to_numpy(object)
    rows = np.flatnonzero((before.notna() & after.notna()).to_numpy())  # NA has no truth value
    rows = rows[known[rows] != got[rows]]
    rows = np.array([r for r in rows if condition_text(known[r]) != condition_text(got[r])], int)
    task = _column(table, CONDITIONS["task"])
    tasks = np.full(len(table), "") if task is None else table[task].astype(str).to_numpy(object)
    out = []
    for name in pd.unique(tasks[rows]):
        of_task = rows[tasks[rows] == name]
        first, n = of_task[0], len(of_task)
        values = f"{_shown(condition, got[first])} instead of {_shown(condition, known[first])}"
        where = f" in task {brief(name)}" if name and condition != "task" else ""
        item = brief(table.index[first])
        count = item if n == 1 else f"{n} items, {item} first"
        out.append(f"{LABELS.get(condition, condition)} {values}{where} ({count})")
    return out


def text_hash(text: str, target: str | None) -> str:
    """The hash of an item's text and right answer, where a harness logs no hash of its data.

    Example:
        >>> text_hash("What is 1 + 1?", "2")[:12]
        'adf563bff0d2'
    """
    known = json.dumps([text[:SAFE_TEXT], None if target is None else target[:SAFE_TEXT]])
    return hashlib.sha256(known.encode("utf-8")).hexdigest()


def condition_text(value: Any) -> str:
    """A condition as text; whole numbers are the same with and without a point.

    Example:
        >>> [condition_text(value) for value in (0, 1.0, "1.0", "2b")]
        ['0', '1', '1', '2b']
    """
    text = str(value).strip()
    number = number_in(text)
    return str(int(number)) if number is not None and number == int(number) else text


def _shown(condition: str, value: Any) -> str:
    """A condition in a message."""
    text = condition_text(value)
    return text[:HASH_SHOWN] if condition.endswith("hash") else brief(text)
