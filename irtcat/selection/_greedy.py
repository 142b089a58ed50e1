"""Choosing items one by one by what each adds, within the constraints."""

from collections.abc import Callable
from typing import Protocol

import numpy as np

from irtcat._types import FloatArray, IntArray
from irtcat.selection._constraints import Constraints, Ledger

__all__ = ["Criterion", "Fixed", "grow", "run"]


LEVEL = 1e-6
"""Gains that differ by less, relatively, are equal."""


class Criterion(Protocol):
    """What is to be made great: gains that depend on the items chosen so far."""

    def best(self, items: IntArray, costs: FloatArray | None) -> tuple[int, float]:
        """The item with the greatest gain (per cost where given); its gain."""
        ...

    def add(self, item: int) -> None:
        """Take an item as chosen."""
        ...


class Fixed:
    """A criterion that does not depend on what was chosen: the items' own values."""

    def __init__(self, values: FloatArray):
        self.values = values

    def best(self, items: IntArray, costs: FloatArray | None) -> tuple[int, float]:
        """See `Criterion`."""
        return argbest(self.values[items], items, costs)

    def add(self, item: int) -> None:
        """See `Criterion`."""


def argbest(gains: FloatArray, items: IntArray, costs: FloatArray | None) -> tuple[int, float]:
    """The item with the greatest gain, or gain per cost; free items come first by their gain."""
    at = int(np.argmax(gains if costs is None else gains / np.maximum(costs[items], 1e-12)))
    return int(items[at]), float(gains[at])


def argbest_anywhere(
    gains: FloatArray, items: IntArray, costs: FloatArray | None
) -> tuple[int, float]:
    """The same, but of equals no place in the table is favoured.

    Tables are often sorted by date or topic, and items that few subjects answered are often equal.
    """
    value = gains if costs is None else gains / np.maximum(costs[items], 1e-12)
    best = value.max()
    equal = np.flatnonzero(value >= best - LEVEL * abs(best))
    mixed = (items[equal].astype(np.uint64) + np.uint64(1)) * np.uint64(0x9E3779B97F4A7C15)
    at = int(equal[np.argmin(mixed)])
    return int(items[at]), float(gains[at])


def run(
    criterion: Criterion,
    ledger: Ledger,
    n: int,
    by_cost: bool = False,
    filler: IntArray | None = None,
    purse: float = np.inf,
) -> FloatArray:
    """Add up to n items to the ledger, the best of the candidates each time.

    Args:
        criterion: says which is the best.
        ledger: says which may come, and keeps the account.
        n: how many.
        by_cost: judge gain per cost.
        filler: rank of each item, in which they are taken once nothing has a gain any more.
        purse: what the items may cost together, beside the ledger's budget.

    Returns:
        The gain of each item at the time it was chosen.
    """
    costs = ledger.limits.costs
    gains: list[float] = []
    while len(gains) < n:
        items = ledger.candidates()
        if costs is not None:
            items = items[ledger.spent + costs[items] <= purse + 1e-9]
        if not len(items):
            break
        item, gain = criterion.best(items, costs if by_cost else None)
        if filler is not None and gain <= 0:
            item, gain = int(items[np.argmin(filler[items])]), 0.0
        ledger.add(item)
        criterion.add(item)
        gains.append(gain)
    return np.array(gains)


def grow(
    make: Callable[[], Criterion],
    limits: Constraints,
    filler: IntArray | None = None,
    purse: float = np.inf,
    n: int | None = None,
) -> tuple[Ledger, FloatArray]:
    """The greedy choice; under a cost budget the better of two.

    With costs, once by gain and once by gain per cost (both skip what is no longer affordable);
    the one with the greater sum of gains is kept. For criteria with diminishing returns that sum
    is at least (1 - 1/e) / 2 of the best one that the budget buys, where the budget binds before
    k does; either rule alone can be arbitrarily bad.

    Returns:
        The ledger and the gain of each item when it was chosen.

    References:
        Leskovec et al. (2007), Cost-effective outbreak detection in networks, section 3.2 (CEF).
    """
    n = limits.n_items if n is None else n
    tries = []
    for by_cost in (False, True)[: 1 if limits.costs is None else 2]:
        ledger = limits.open()
        tries.append((ledger, run(make(), ledger, n, by_cost, filler, purse)))
    return max(tries, key=lambda found: found[1].sum())
