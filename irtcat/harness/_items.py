"""Where an item is found in the harness it came from: task, document, sample."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from irtcat._checks import InputError, argument_error, brief, shorten
from irtcat._numbers import whole_number_in

__all__ = ["Item", "metadata_of", "read_ids", "read_items"]

COLUMNS = {
    "task": ("task", "task_name", "evaluation_name"),
    "sample": ("sample_id", "sample", "doc_id", "doc_index"),
    "hash": ("doc_hash", "hash"),
    "text": ("text", "input", "question", "prompt"),
    "target": ("target", "answer", "reference"),
}
"""Metadata by the columns it may stand in, the first one found counts."""


@dataclass(frozen=True)
class Item:
    """One item, as whoever answers it is told of it.

    Attributes:
        id: its id in the bank.
        task: the task it belongs to; empty where that is not known.
        sample: its id within the task (lm-eval: the document's number, as text); by default its id.
        hash: lm-eval's hash of the document, where it is known.
        text: what is asked, where it is known.
        target: the right answer, where it is known.
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
            InputError: where it is no number.
        """
        number = whole_number_in(self.sample)
        if number is None or number < 0:
            advice = "Give the items' table with a column doc_id (irtcat import keeps it)."
            got = f"{shorten(self.sample)} for item {brief(self.id)}"
            must = f"the number of a document. Got {got}. {advice}"
            raise InputError(f"The `sample` of every item must be {must}")
        return number

    def told(self) -> dict[str, Any]:
        """What is known of it, in types that JSON knows."""
        known: dict[str, Any] = {"item": self.id, "task": self.task, "sample": self.sample}
        known |= {"text": self.text, "target": self.target}
        return {name: value for name, value in known.items() if value not in (None, "")}


def read_ids(subset: Any, items: Any = None) -> list[str]:
    """Ids of a `Subset`, or of a list, each once.

    Args:
        subset: the ids.
        items: what must have a row for each (see `read_items`), where that is known.

    Raises:
        InputError: for no items, some that are there twice, or some that ``items`` lacks.
    """
    given = getattr(subset, "item_ids", subset)
    if isinstance(given, str) or not isinstance(given, Iterable):
        raise argument_error("subset", "a Subset or a list of item ids", subset)
    ids = [str(each) for each in given]
    if not ids:
        raise argument_error("subset", "at least one item", "none")
    _check_there(ids, metadata_of(items))
    index = pd.Index(ids, dtype=object)
    twice = list(dict.fromkeys(index[index.duplicated(keep=False)]))
    if twice:
        raise argument_error("subset", "items, each once", f"{shorten(twice)} twice or more")
    return ids


def _check_there(ids: list[str], table: pd.DataFrame) -> None:
    """Raise unless the table, where there is one, has all ids; those it lacks are named once."""
    lacking = [each for each in dict.fromkeys(ids) if each not in table.index]
    if len(table.index) and lacking:
        must = "a table with a row for every item"
        raise argument_error("items", must, f"none for {shorten(lacking)}")


def metadata_of(items: Any) -> pd.DataFrame:
    """The items' table of responses, of a bank, or as it is given, by the ids as text."""
    table = getattr(items, "items", items) if not isinstance(items, pd.DataFrame) else items
    if table is None:
        return pd.DataFrame()
    if not isinstance(table, pd.DataFrame):
        raise argument_error("items", "a table by item id, Responses or an ItemBank", items)
    table = table.set_axis(pd.Index([str(each) for each in table.index], dtype=object), axis=0)
    if not table.index.is_unique:
        twice = table.index[table.index.duplicated()][0]
        raise argument_error("items", "a table with every item once", f"{twice} twice")
    return table


def read_items(ids: Iterable[str], items: Any = None, task: str | None = None) -> list[Item]:
    """The items of these ids, with what the metadata say of them.

    Args:
        ids: which.
        items: a table by item id, `Responses` or an `ItemBank` (their metadata): the columns task,
            sample_id (or sample, doc_id), doc_hash (or hash), text and target are used.
        task: the task of all items; by default that of the metadata.

    Raises:
        InputError: for an item that the table lacks, or two items with one place in a task.
    """
    ids = [str(each) for each in ids]
    table = metadata_of(items)
    _check_there(ids, table)
    found = {name: _cells(table, columns, ids) for name, columns in COLUMNS.items()}
    out = []
    for place, each in enumerate(ids):
        cell = {name: values[place] for name, values in found.items()}
        out.append(Item(
            each, cell["task"] or "" if task is None else task, cell["sample"] or each,
            cell["hash"] or "", cell["text"], cell["target"],
        ))  # fmt: skip
    _check_places(out)
    return out


def _cells(table: pd.DataFrame, columns: tuple[str, ...], ids: list[str]) -> list[str | None]:
    """The first of these columns that the table has, as text; None where nothing stands."""
    name = next((column for column in columns if column in table), None)
    if name is None:
        return [None] * len(ids)
    return [_text(value) for value in table[name].reindex(ids)]


def _text(value: Any) -> str | None:
    """A cell as text; whole numbers without a point, also where gaps made them floats."""
    if value is None or (pd.api.types.is_scalar(value) and pd.isna(value)):
        return None
    if isinstance(value, (float, np.floating)) and float(value).is_integer():
        return str(int(value))
    return str(value)


def _check_places(items: list[Item]) -> None:
    """Two items in one place would be run once and told apart by nothing."""
    seen: dict[tuple[str, str], str] = {}
    for item in items:
        first = seen.setdefault((item.task, item.sample), item.id)
        if first != item.id:
            where = f"sample {item.sample}" + (f" of task {item.task}" if item.task else "")
            raise argument_error("items", "a place of its own for every item",
                                 f"{where} for both {first} and {item.id}")  # fmt: skip
