"""What a filter is applied to, and how many of each class it keeps."""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd

from irtcat._checks import InputError, argument_error, shorten
from irtcat._rules import Rule
from irtcat._types import BoolArray, FloatArray, IntArray
from irtcat.bank import ItemBank, one_ability
from irtcat.responses import Responses
from irtcat.selection._request import item_values, read_groups
from irtcat.selection._task import share_right

__all__ = ["Items", "bounds_of", "in_order", "quotas_of", "read_classes", "read_items"]

SHARE_COLUMNS = ("pc", "proportion_correct", "share")
ALL = "all"


@dataclass(frozen=True, eq=False)
class Items:
    """Items with the number that the rule looks at (NaN: none) and their classes.

    Attributes:
        ids: the items, unique.
        value: |b|, b or pc.
        codes: number of each item's class.
        classes: names of the classes.
    """

    ids: pd.Index
    value: FloatArray
    codes: IntArray
    classes: list[str]


def read_items(items: Any, rule: Rule | None, name: str) -> Items:
    """The items with the rule's number.

    Raises:
        InputError: where they do not have it, or an id repeats.
    """
    ids: Any
    if isinstance(items, ItemBank):
        ids, value = items.item_ids, None if rule is None else _of_bank(items, rule, name)
    elif isinstance(items, Responses):
        ids, value = items.item_ids, None if rule is None else _of_responses(items, rule, name)
    elif isinstance(items, pd.DataFrame):
        frame = items.set_index("item") if "item" in items.columns else items
        ids, value = frame.index, None if rule is None else _of_frame(frame, rule, name)
    else:
        must = "an ItemBank, Responses or a pandas DataFrame"
        raise argument_error("items", must, type(items).__name__)
    index = pd.Index(ids, name="item")
    if index.dtype.kind in "US":
        index = index.astype(object)
    if not len(index) or index.hasnans:
        raise argument_error("items", "items, each with an id", "none" if not len(index) else "NaN")
    if not index.is_unique:
        repeated = index[index.duplicated()][0]
        raise argument_error("items", "items with unique ids", f"{repeated!r} twice")
    if value is None or rule is None:
        value = np.full(len(index), np.nan)
    else:
        _check_values(value, rule, index)
        value = rule.statistic_of(value)
    return Items(index, value, np.zeros(len(index), int), [ALL])


def _of_bank(bank: ItemBank, rule: Rule, name: str) -> FloatArray:
    one_ability(bank, f"the filter {name}")
    if rule.statistic == "pc":
        if "proportion_correct" not in bank.statistics:
            raise argument_error(
                "items", "a bank that records proportions correct", "one without",
                "Give the responses instead.",
            )  # fmt: skip
        return bank.statistics["proportion_correct"].to_numpy(float)
    frame = bank.to_frame()
    if "b" not in frame:
        raise argument_error("items", "a bank whose items have a difficulty b", bank.model.key)
    return frame["b"].to_numpy(float)


def _of_responses(responses: Responses, rule: Rule, name: str) -> FloatArray:
    if rule.statistic != "pc":
        raise argument_error(
            "items", f"a bank or a table with b for the filter {name}", "Responses",
            "Calibrate them with irtcat.fit(responses).bank.",
        )  # fmt: skip
    return share_right(responses)


def _of_frame(frame: pd.DataFrame, rule: Rule, name: str) -> FloatArray:
    wanted = SHARE_COLUMNS if rule.statistic == "pc" else ("b",)
    if len(twice := frame.columns[frame.columns.duplicated()].intersection(list(wanted))):
        raise argument_error("items", "a table whose columns differ", f"{twice[0]} twice")
    column = next((each for each in wanted if each in frame.columns), None)
    if column is None:
        have = ", ".join(map(str, frame.columns)) or "none"
        must = f"a table with a column {' or '.join(wanted)} for the filter {name}"
        raise argument_error("items", must, f"columns {have}")
    numbers = pd.to_numeric(frame[column], errors="coerce")
    if len(bad := frame.index[(numbers.isna() & frame[column].notna()).to_numpy()]):
        got = f"{shorten(frame.loc[bad[0], column])} in column {column} of item {shorten(bad[0])}"
        raise InputError(f"The `items` argument must be a table of numbers. Got {got}.")
    return numbers.to_numpy(float)


def _check_values(value: FloatArray, rule: Rule, ids: pd.Index) -> None:
    """Raise for infinite values and for shares that are none."""
    bad, must = np.isinf(value), "finite difficulties"
    if rule.statistic == "pc":
        bad, must = (value < 0) | (value > 1), "shares right from 0 to 1"
    if bad.any():
        at = int(np.argmax(bad))
        raise argument_error("items", must, f"{value[at]:g} for item {ids[at]!r}")


def read_classes(items: Items, given: Any, balanced_by: Any) -> Items:
    """The items with their classes, where the filter is to be balanced."""
    if balanced_by is None:
        return items
    if isinstance(balanced_by, str) and isinstance(given, pd.DataFrame):
        if balanced_by not in given.columns:
            have = shorten(list(given.columns))
            raise argument_error("balanced_by", f"a column of the table ({have})", balanced_by)
        values = given[balanced_by].to_numpy()
    else:
        bank = given if isinstance(given, ItemBank) else None
        responses = given if isinstance(given, Responses) else None
        ids = items.ids.to_numpy() if bank is None else bank.item_ids
        values = item_values("balanced_by", balanced_by, ids, bank, responses)
    codes, classes = read_groups(values)
    return replace(items, codes=codes, classes=classes)


def quotas_of(items: Items, pool: BoolArray, n: int) -> IntArray:
    """Places for each class: as equal as their sizes allow, the first classes one more."""
    room = np.bincount(items.codes[pool], minlength=len(items.classes))
    quotas = np.zeros(len(room), int)
    left = n
    while left:
        open_ = np.flatnonzero(quotas < room)
        each, more = divmod(left, len(open_))
        wanted = each + (np.arange(len(open_)) < more)
        given = np.minimum(wanted, (room - quotas)[open_])
        quotas[open_] += given
        left -= int(given.sum())
    return quotas


def _places(items: Items) -> list[IntArray]:
    """Positions of each class's items, ascending; in one pass, since classes may be thousands."""
    order = np.argsort(items.codes, kind="stable")
    ends = np.cumsum(np.bincount(items.codes, minlength=len(items.classes)))
    return np.split(order, ends[:-1])


def in_order(items: Items, pool: BoolArray, cost: FloatArray, quotas: IntArray) -> IntArray:
    """Positions of the cheapest items of each class, of equal ones the earlier."""
    chosen = []
    for at, quota in zip(_places(items), quotas, strict=True):
        at = at[pool[at]]
        if quota == len(at):
            chosen.append(at)
            continue
        # Only those up to the last one's cost need sorting.
        last = np.partition(cost[at], max(quota - 1, 0))[max(quota - 1, 0)]
        at = at[cost[at] <= last]
        chosen.append(at[np.argsort(cost[at], kind="stable")[:quota]])
    return np.concatenate(chosen)


def bounds_of(
    items: Items, usable: BoolArray, chosen: IntArray, rule: Rule | None, tau: float | None
) -> pd.DataFrame:
    """How far each class was taken: the first value left out is the threshold that would do it."""
    kept = np.zeros(len(usable), bool)
    kept[chosen] = True
    rows = []
    for name, at in zip(items.classes, _places(items), strict=True):
        at = at[usable[at]]
        stays = kept[at]
        row = {"class": name, "n": len(at), "kept": int(stays.sum())}
        rows.append(row | _bound(items.value[at[stays]], items.value[at[~stays]], rule, tau))
    return pd.DataFrame(rows).set_index("class")


def _bound(
    inside: FloatArray, outside: FloatArray, rule: Rule | None, tau: float | None
) -> dict[str, Any]:
    """Threshold of one class, and how many left out are equal to the last one kept."""
    if rule is None:
        return {"tau": np.nan, "tied": 0}
    farthest = rule.cost(inside).max(initial=-np.inf)
    tied = int((rule.cost(outside) == farthest).sum())
    nearest = rule.cost(outside).min(initial=np.inf)
    if tau is not None:
        nearest = min(nearest, float(rule.cost(np.asarray(tau, float))))
    return {"tau": float(rule.cost(np.asarray(nearest))), "tied": tied}
