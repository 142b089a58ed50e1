"""Items in their harness: task, document, sample."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from irtcat._common.checks import InputError, argument_error, brief, shorten
from irtcat._common.numbers import whole_number_in
from irtcat._common.positions import first_repeated
from irtcat.responses._conditions import CONDITION_COLUMNS, HARNESS_COLUMNS

COLUMNS = {
    **HARNESS_COLUMNS,
    "text": ("text", "input", "question", "prompt"),
    "target": ("target", "answer", "reference"),
}
"""Columns of each field of the metadata; the first one that exists is used."""


@dataclass(frozen=True)
class Item:
    """One item, as passed to a model.

    Attributes:
        id: its id in the bank.
        task: its task; empty if unknown.
        sample: its id within the task (lm-eval: the document's number, as text); by default its id.
        hash: lm-eval's hash of the document; empty if unknown.
        text: the question; None if unknown.
        target: the right answer; None if unknown.
    """

    id: str
    task: str = ""
    sample: str = ""
    hash: str = ""
    text: str | None = None
    target: str | None = None

    @property
    def index(self) -> int:
        """The document's number within the task.

        Raises:
            InputError: if it is not a number.
        """
        number = whole_number_in(self.sample)
        if number is None or number < 0:
            advice = "Give the items' table with a column doc_id (irtcat import keeps it)."
            got = f"{shorten(self.sample)} for item {brief(self.id)}"
            must = f"the number of a document. Got {got}. {advice}"
            raise InputError(f"The `sample` of every item must be {must}")
        return number

    def to_json(self) -> dict[str, Any]:
        """The known fields, as a JSON document."""
        fields: dict[str, Any] = {"item": self.id, "task": self.task, "sample": self.sample}
        fields |= {"text": self.text, "target": self.target}
        return {name: value for name, value in fields.items() if value not in (None, "")}


def read_ids(subset: Any, items: Any = None) -> list[str]:
    """Unique ids of a `Subset` or of a list.

    Args:
        subset: the ids.
        items: a table that must have a row for each (see `read_items`), or None.

    Raises:
        InputError: for no items, duplicate items, or items that ``items`` lacks.
    """
    values = getattr(subset, "item_ids", subset)
    if isinstance(values, str) or not isinstance(values, Iterable):
        raise argument_error("subset", "a Subset or a list of item ids", subset)
    ids = _ids(values, "subset")
    if not ids:
        raise argument_error("subset", "at least one item", "none")
    _check_ids(ids, metadata_of(items))
    index = pd.Index(ids, dtype=object)
    duplicates = list(dict.fromkeys(index[index.duplicated(keep=False)]))
    if duplicates:
        got = f"{shorten(duplicates)} twice or more"
        raise argument_error("subset", "a list of different items", got)
    return ids


def _check_ids(ids: list[str], table: pd.DataFrame) -> None:
    """Raise if the table (unless it is empty) lacks some of the ids."""
    lacking = [name for name in dict.fromkeys(ids) if name not in table.index]
    if len(table.index) and lacking:
        must = "a table with a row for every item"
        raise argument_error("items", must, f"none for {shorten(lacking)}")


def metadata_of(items: Any) -> pd.DataFrame:
    """The item metadata of responses or a bank, or the table itself, indexed by ids as text."""
    table = getattr(items, "items", items) if not isinstance(items, pd.DataFrame) else items
    if table is None:
        return pd.DataFrame()
    if not isinstance(table, pd.DataFrame):
        raise argument_error("items", "a table by item id, Responses or an ItemBank", items)
    table = table.set_axis(pd.Index(_ids(table.index, "items"), dtype=object), axis=0)
    if (repeated := first_repeated(table.index)) is not None:
        raise argument_error("items", "a table with one row per item", f"{repeated} twice")
    return table


def read_items(ids: Iterable[str], items: Any = None, task: str | None = None) -> list[Item]:
    """The items with these ids, with their metadata.

    Args:
        ids: ids of the items.
        items: a table by item id, `Responses` or an `ItemBank` (their metadata): the columns task,
            sample_id (or sample, doc_id), doc_hash (or hash), text and target are used.
        task: the task of all items; by default from the metadata.

    Raises:
        InputError: for an item that the table lacks, or two items with the same sample of a task.
    """
    ids, table = _ids(ids, "ids"), metadata_of(items)
    _check_ids(ids, table)
    fields = ("task", "sample", "hash", "text", "target")
    cells = zip(*(_cells(table, COLUMNS[field], ids) for field in fields), strict=True)
    out = [
        Item(
            id=name,
            task=own or "" if task is None else task,
            sample=sample or name,
            hash=digest or "",
            text=text,
            target=target,
        )
        for name, (own, sample, digest, text, target) in zip(ids, cells, strict=True)
    ]
    item_of: dict[tuple[str, str], str] = {}
    for item in out:  # two with the same sample would run once and be indistinguishable
        first = item_of.setdefault((item.task, item.sample), item.id)
        if first != item.id:
            sample = f"sample {item.sample}" + (f" of task {item.task}" if item.task else "")
            must = "a table with a different sample for every item"
            raise argument_error("items", must, f"{sample} for both {first} and {item.id}")
    return out


def known_conditions(bank_items: pd.DataFrame, items: Mapping[str, Item]) -> pd.DataFrame:
    """The conditions under which the items of a bank were calibrated, as far as known.

    Args:
        bank_items: the metadata of the bank.
        items: the items to run, whose tasks and hashes are used.

    Returns:
        A row for each item: task, hash, and those of `CONDITION_COLUMNS` that the bank has.
    """
    table = metadata_of(bank_items).reindex(list(items))
    table = table[[name for name in CONDITION_COLUMNS if name in table]]
    tasks = np.array([item.task or None for item in items.values()], object)
    hashes = np.array([item.hash or None for item in items.values()], object)
    return table.assign(task=tasks, hash=hashes)


def common_condition(conditions: pd.DataFrame, name: str, task: str | None = None) -> str | None:
    """The value of a condition that all items have (of a task, "" for those without one) or lack.

    None if there are several values or none.
    """
    if name not in conditions:
        return None
    of_task = slice(None) if task is None else conditions["task"].fillna("") == task
    values = conditions.loc[of_task, name].dropna().unique()
    return str(values[0]) if len(values) == 1 else None


def _cells(table: pd.DataFrame, columns: tuple[str, ...], ids: list[str]) -> list[str | None]:
    """The first of these columns that the table has, as text; None for missing cells."""
    name = next((column for column in columns if column in table), None)
    if name is None:
        return [None] * len(ids)
    return [_text(value) for value in table[name].reindex(ids)]


def _ids(values: Iterable[Any], argument: str) -> list[str]:
    """Ids as text; raise for a missing one."""
    ids = [_text(value) for value in values]
    if None in ids:
        raise argument_error(argument, "without missing ids", f"none at position {ids.index(None)}")
    return [name for name in ids if name is not None]


def _text(value: Any) -> str | None:
    """A cell as text; whole numbers without a point, even if missing cells made them floats."""
    if value is None or (pd.api.types.is_scalar(value) and pd.isna(value)):
        return None
    if isinstance(value, (float, np.floating)) and float(value).is_integer():
        return str(int(value))
    return str(value)
