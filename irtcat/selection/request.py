"""Conversion of arguments to constraints and groups."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd

from irtcat._common.checks import argument_error, check_count, check_positive, is_whole
from irtcat._common.per_item import per_item
from irtcat._common.positions import positions_of_ids
from irtcat._common.types import BoolArray, FloatArray, IntArray
from irtcat.bank import ItemBank
from irtcat.responses import Responses
from irtcat.selection.constraints import Constraints

NO_GROUP = "(none)"


def read_allowed(item_ids: np.ndarray, allowed: Any) -> BoolArray:
    """Mask of the items that may be chosen, from ids or a mask."""
    if allowed is None:
        return np.ones(len(item_ids), bool)
    values = np.asarray(sorted(allowed) if isinstance(allowed, (set, frozenset)) else allowed)
    if values.ndim != 1 or values.size == 0:
        raise argument_error("allowed", "a list of ids, or a mask, of at least one item", allowed)
    if values.dtype == bool:
        if values.shape != item_ids.shape:
            raise argument_error("allowed", f"a mask of {len(item_ids)} items", values.shape)
        return values.copy()
    mask = np.zeros(len(item_ids), bool)
    mask[positions_of_ids("allowed", values, item_ids)] = True
    return mask


def item_values(
    name: str, value: Any, item_ids: np.ndarray, bank: ItemBank | None, responses: Responses | None
) -> np.ndarray:
    """One value per item (see `per_item`), a column being one of the responses or the bank."""
    tables = [holder.items for holder in (responses, bank) if holder is not None]
    return per_item(name, value, item_ids, tables)


def read_groups(values: np.ndarray) -> tuple[IntArray, list[str]]:
    """Number of each item's group, and the names; items without a group form one of their own."""
    text = np.where(pd.isna(values), NO_GROUP, values.astype(str))
    names, codes = np.unique(text, return_inverse=True)
    return codes, names.tolist()


def _limits(quotas: Any, names: list[str], sizes: IntArray) -> tuple[IntArray, IntArray]:
    """Fewest and most items of each group."""
    must = "a mapping from group to a number or to (fewest, most)"
    if not isinstance(quotas, Mapping):
        raise argument_error("quotas", must, quotas)
    lower, upper = np.zeros(len(names), int), sizes.copy()
    number_of = {name: number for number, name in enumerate(names)}
    for group, bounds in quotas.items():
        if str(group) not in number_of:
            raise argument_error("quotas", f"a mapping with the groups {', '.join(names)}", group)
        pair = bounds if isinstance(bounds, (tuple, list)) else (bounds, bounds)
        if len(pair) != 2 or not all(map(is_whole, pair)) or not 0 <= pair[0] <= pair[1]:
            raise argument_error("quotas", must, f"{bounds} for {group!r}")
        lower[number_of[str(group)]], upper[number_of[str(group)]] = pair
    return lower, upper


def _costs(values: np.ndarray) -> FloatArray:
    """Costs as finite, non-negative numbers."""
    must = "finite numbers of at least 0, one per item"
    try:
        costs = np.asarray(values, float)
    except (TypeError, ValueError):
        raise argument_error("costs", must, values) from None
    if not np.isfinite(costs).all() or (costs < 0).any():
        raise argument_error("costs", must, costs[~(costs >= 0) | np.isinf(costs)])
    return costs


def read_constraints(
    n_items: int,
    allowed: BoolArray,
    groups: tuple[IntArray, list[str]] | None,
    quotas: Any,
    costs: np.ndarray | None,
    budget: float | None,
) -> Constraints:
    """Combine the constraints and check that they are feasible.

    Raises:
        InputError: for quotas without groups, costs without a budget or vice versa, or infeasible
            constraints.
    """
    check_count("n_items", n_items, 1, int(allowed.sum()))
    if (costs is None) != (budget is None):
        name, got = ("budget", budget) if budget is None else ("costs", costs)
        raise argument_error(name, "given if costs or a budget are", got)
    if budget is not None:
        check_positive("budget", budget)
    names, group = ["all"], np.zeros(len(allowed), int)
    lower, upper = np.zeros(1, int), np.array([len(allowed)])
    if quotas is not None:
        if groups is None:
            raise argument_error("groups", "given if quotas are", None)
        group, names = groups
        lower, upper = _limits(quotas, names, np.bincount(group, minlength=len(names)))
    limits = Constraints(
        n_items=n_items, allowed=allowed, group=group, names=tuple(names), lower=lower, upper=upper
    )
    if costs is not None and budget is not None:
        limits = replace(limits, costs=_costs(costs), budget=float(budget))
    checked = limits.checked()
    if checked.n_items == 0:
        must = "wide enough for one affordable item"
        raise argument_error("quotas", must, "room for none")
    return checked


def as_range(value: Any) -> tuple[float, float] | None:
    """Lowest and highest ability, or None."""
    if value is None:
        return None
    must = "a pair of finite numbers, the lower one first"
    try:
        low, high = (float(v) for v in value)
    except (TypeError, ValueError):
        raise argument_error("theta_range", must, value) from None
    if not (np.isfinite([low, high]).all() and low < high):
        raise argument_error("theta_range", must, value)
    return low, high
