"""The items of a filter, and how many of each class it keeps."""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd

from irtcat._common.checks import InputError, argument_error, shorten
from irtcat._common.id_index import first_repeated
from irtcat._common.types import BoolArray, FloatArray, IntArray
from irtcat.bank import ItemBank, check_needs, ranking
from irtcat.responses import Responses
from irtcat.selection.filters import Band, Rule
from irtcat.selection.request import item_values, read_groups
from irtcat.selection.task import share_right

SHARE_COLUMNS = ("pc", "proportion_correct", "share", "pass_rate", "solve_rate")
ALL = "all"


@dataclass(frozen=True, eq=False)
class Items:
    """Items with the value that the rule compares (NaN: missing) and their classes.

    Attributes:
        ids: unique ids of the items.
        value: |b|, b or pc, or the column that the user named.
        codes: code of each item's class.
        classes: names of the classes.
    """

    ids: pd.Index
    value: FloatArray
    codes: IntArray
    classes: list[str]


def read_items(items: Any, rule: Rule | Band | None, name: str, column: str | None) -> Items:
    """The items with the rule's value.

    Args:
        items: see `irtcat.training.filters.apply`.
        rule: None for a random sample.
        name: the rule's name, for messages.
        column: the column to compare; None for that of the rule.

    Raises:
        InputError: if they do not have it, or an id repeats.
    """
    ids: Any
    if isinstance(items, ItemBank):
        ids, value = items.item_ids, None if rule is None else _of_bank(items, rule, name, column)
    elif isinstance(items, Responses):
        ids = items.item_ids
        value = None if rule is None else _of_responses(items, rule, name, column)
    elif isinstance(items, pd.DataFrame):
        frame = items.set_index("item") if "item" in items.columns else items
        ids, value = frame.index, None if rule is None else _of_frame(frame, rule, name, column)
    else:
        must = "an ItemBank, Responses or a table"
        raise argument_error("items", must, type(items).__name__)
    index = pd.Index(ids, name="item")
    if index.dtype.kind in "US":
        index = index.astype(object)
    if not len(index) or index.hasnans:
        raise argument_error("items", "items, each with an id", "none" if not len(index) else "NaN")
    if (repeated := first_repeated(index)) is not None:
        raise argument_error("items", "items with unique ids", f"{repeated!r} twice")
    if value is None or rule is None:
        value = np.full(len(index), np.nan)
    else:
        _check_values(value, rule, index, column)
        value = rule.statistic_of(value)
    return Items(index, value, np.zeros(len(index), int), [ALL])


def _of_bank(bank: ItemBank, rule: Rule | Band, name: str, column: str | None) -> FloatArray:
    if column not in (None, "b"):
        return _numbers(bank.to_frame(), column)
    check_needs(bank.model, ["one ability"], f"the filter {name}", "items")
    if column is None and rule.statistic == "pc":
        if "proportion_correct" not in bank.statistics:
            raise argument_error(
                "items",
                "a bank that records proportions correct",
                "one without",
                "Pass the responses instead.",
            )
        return bank.statistics["proportion_correct"].to_numpy(float)
    if "b" not in bank.to_frame():
        raise argument_error("items", "a bank whose items have a difficulty b", bank.model.key)
    return ranking(bank).b


def _of_responses(
    responses: Responses, rule: Rule | Band, name: str, column: str | None
) -> FloatArray:
    if column is not None:
        return _numbers(responses.items, column)
    if rule.statistic != "pc":
        raise argument_error(
            "items",
            f"a bank or a table with b for the filter {name}",
            "Responses",
            "Calibrate them with irtcat.fit(responses).bank.",
        )
    return share_right(responses)


def _of_frame(frame: pd.DataFrame, rule: Rule | Band, name: str, column: str | None) -> FloatArray:
    if column is not None:
        return _numbers(frame, column)
    columns = SHARE_COLUMNS if rule.statistic == "pc" else ("b",)
    if len(repeated := frame.columns[frame.columns.duplicated()].intersection(list(columns))):
        raise argument_error("items", "a table with distinct columns", f"{repeated[0]} twice")
    present = [label for label in columns if label in frame.columns]
    if not present:
        have = ", ".join(map(str, frame.columns)) or "none"
        must = f"a table with a column {' or '.join(columns)} for the filter {name}"
        advice = "Name another one with `column`."
        raise argument_error("items", must, f"columns {have}", advice)
    if len(present) > 1:
        names = " and ".join(present)
        raise InputError(f"The columns {names} could all be the share right. Choose with `column`.")
    return _numbers(frame, present[0])


def _numbers(frame: pd.DataFrame, column: str | None) -> FloatArray:
    """The numbers of a column; NaN where missing."""
    if column not in frame.columns:
        have = ", ".join(map(str, frame.columns)) or "none"
        raise argument_error("column", f"a column of the items ({have})", column)
    if isinstance(frame[column], pd.DataFrame):
        raise argument_error("items", "a table with distinct columns", f"{column} twice")
    numbers = pd.to_numeric(frame[column], errors="coerce")
    if len(invalid := frame.index[(numbers.isna() & frame[column].notna()).to_numpy()]):
        first = invalid[0]
        got = f"{shorten(frame.loc[first, column])} in column {column} of item {shorten(first)}"
        raise InputError(f"The `items` argument must be a table of numbers. Got {got}.")
    return numbers.to_numpy(float)


def _check_values(value: FloatArray, rule: Rule | Band, ids: pd.Index, column: str | None) -> None:
    """Raise for infinite values and for shares outside [0, 1]."""
    invalid, must = np.isinf(value), "finite values" if column else "finite difficulties"
    if column is None and rule.statistic == "pc":
        invalid, must = (value < 0) | (value > 1), "shares right from 0 to 1"
    if invalid.any():
        first = int(np.argmax(invalid))
        raise argument_error("items", must, f"{value[first]:g} for item {ids[first]!r}")


def read_classes(items: Items, source: Any, balanced_by: Any) -> Items:
    """The items with their classes, if the filter is balanced."""
    if balanced_by is None:
        return items
    if isinstance(balanced_by, str) and isinstance(source, pd.DataFrame):
        if balanced_by not in source.columns:
            have = shorten(list(source.columns))
            raise argument_error("balanced_by", f"a column of the table ({have})", balanced_by)
        values = source[balanced_by].to_numpy()
    else:
        bank = source if isinstance(source, ItemBank) else None
        responses = source if isinstance(source, Responses) else None
        ids = items.ids.to_numpy() if bank is None else bank.item_ids
        values = item_values("balanced_by", balanced_by, ids, bank, responses)
    codes, classes = read_groups(values)
    return replace(items, codes=codes, classes=classes)


def quotas_of(items: Items, pool: BoolArray, n: int) -> IntArray:
    """Number of items per class: as equal as class sizes allow, the first classes one more."""
    sizes = np.bincount(items.codes[pool], minlength=len(items.classes))
    quotas = np.zeros(len(sizes), int)
    remaining = n
    while remaining:
        unfilled = np.flatnonzero(quotas < sizes)
        quotient, remainder = divmod(remaining, len(unfilled))
        wanted = quotient + (np.arange(len(unfilled)) < remainder)
        added = np.minimum(wanted, (sizes - quotas)[unfilled])
        quotas[unfilled] += added
        remaining -= int(added.sum())
    return quotas


def _class_positions(items: Items) -> list[IntArray]:
    """Positions of each class's items, ascending; in one pass, as there may be many classes."""
    order = np.argsort(items.codes, kind="stable")
    ends = np.cumsum(np.bincount(items.codes, minlength=len(items.classes)))
    return np.split(order, ends[:-1])


def lowest_cost(items: Items, pool: BoolArray, cost: FloatArray, quotas: IntArray) -> IntArray:
    """Positions of the items of lowest cost of each class; ties go to the earlier item."""
    chosen = []
    for positions, quota in zip(_class_positions(items), quotas, strict=True):
        positions = positions[pool[positions]]
        if quota == len(positions):
            chosen.append(positions)
            continue
        # Only items up to the highest chosen cost need sorting.
        highest = np.partition(cost[positions], max(quota - 1, 0))[max(quota - 1, 0)]
        positions = positions[cost[positions] <= highest]
        chosen.append(positions[np.argsort(cost[positions], kind="stable")[:quota]])
    return np.concatenate(chosen)


def bounds_of(
    items: Items, usable: BoolArray, chosen: IntArray, rule: Rule | None, tau: float | None
) -> pd.DataFrame:
    """The bound of each class: the first value left out is the equivalent threshold."""
    kept = np.zeros(len(usable), bool)
    kept[chosen] = True
    rows = []
    for name, positions in zip(items.classes, _class_positions(items), strict=True):
        positions = positions[usable[positions]]
        is_kept = kept[positions]
        row = {"class": name, "n": len(positions), "kept": int(is_kept.sum())}
        inside, outside = items.value[positions[is_kept]], items.value[positions[~is_kept]]
        rows.append(row | _bound(inside, outside, rule, tau))
    return pd.DataFrame(rows).set_index("class")


def _bound(
    inside: FloatArray, outside: FloatArray, rule: Rule | None, tau: float | None
) -> dict[str, Any]:
    """Threshold of one class, and how many items left out tie with the last one kept."""
    if rule is None:
        return {"tau": np.nan, "tied": 0}
    farthest = rule.cost(inside).max(initial=-np.inf)
    tied = int((rule.cost(outside) == farthest).sum())
    nearest = rule.cost(outside).min(initial=np.inf)
    if tau is not None:
        nearest = min(nearest, float(rule.cost(np.asarray(tau, float))))
    return {"tau": float(rule.cost(np.asarray(nearest))), "tied": tied}
