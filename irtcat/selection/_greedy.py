"""Greedy choice of items by their gain, within the constraints."""

from collections.abc import Callable
from typing import Protocol

import numpy as np

from irtcat._types import FloatArray, IntArray
from irtcat.selection._constraints import Constraints, Ledger

__all__ = ["Criterion", "Fixed", "grow", "run"]


LEVEL = 1e-6
"""Gains with a smaller relative difference are treated as ties."""


class Criterion(Protocol):
    """Objective of a greedy choice: gains that depend on the items chosen so far."""

    def best(self, items: IntArray, costs: FloatArray | None) -> tuple[int, float]:
        """The item with the greatest gain (per cost if costs are given), and its gain."""
        ...

    def add(self, item: int) -> None:
        """Add an item to those chosen."""
        ...


class Fixed:
    """A criterion that does not depend on the items chosen: fixed values."""

    def __init__(self, values: FloatArray):
        self.values = values

    def best(self, items: IntArray, costs: FloatArray | None) -> tuple[int, float]:
        """See `Criterion`."""
        return argbest(self.values[items], items, costs)

    def add(self, item: int) -> None:
        """See `Criterion`."""


def argbest(gains: FloatArray, items: IntArray, costs: FloatArray | None) -> tuple[int, float]:
    """The item with the greatest gain, or gain per cost; items without cost come first, by gain."""
    index = int(np.argmax(gains if costs is None else gains / np.maximum(costs[items], 1e-12)))
    return int(items[index]), float(gains[index])


def argbest_anywhere(
    gains: FloatArray, items: IntArray, costs: FloatArray | None
) -> tuple[int, float]:
    """The same, but ties are broken by a hash, not by the position in the table.

    Tables are often sorted by date or topic, and items that few subjects answered are often tied.
    """
    value = gains if costs is None else gains / np.maximum(costs[items], 1e-12)
    best = value.max()
    ties = np.flatnonzero(value >= best - LEVEL * abs(best))
    hashes = (items[ties].astype(np.uint64) + np.uint64(1)) * np.uint64(0x9E3779B97F4A7C15)
    index = int(ties[np.argmin(hashes)])
    return int(items[index]), float(gains[index])


def run(
    criterion: Criterion,
    ledger: Ledger,
    n: int,
    by_cost: bool = False,
    filler: IntArray | None = None,
    max_cost: float = np.inf,
) -> FloatArray:
    """Add up to n items to the ledger, at each step the best candidate.

    Args:
        criterion: defines the best candidate.
        ledger: the items chosen so far, and the candidates.
        n: maximum number of items.
        by_cost: compare gains per cost.
        filler: rank of each item; the order in which items are taken once no item has a gain.
        max_cost: maximum total cost, in addition to the ledger's budget.

    Returns:
        The gain of each item at the time it was chosen.
    """
    costs = ledger.limits.costs
    gains: list[float] = []
    while len(gains) < n:
        items = ledger.candidates()
        if costs is not None:
            items = items[ledger.spent + costs[items] <= max_cost + 1e-9]
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
    max_cost: float = np.inf,
    n: int | None = None,
) -> tuple[Ledger, FloatArray]:
    """The greedy choice; under a cost budget the better of two.

    With costs, it runs by gain and by gain per cost (both skip items that are not affordable), and
    keeps the result with the greater sum of gains. For criteria with diminishing returns that sum
    is at least (1 - 1/e) / 2 of the optimum under the budget, if the budget binds before k does;
    either rule alone can be arbitrarily bad.

    Returns:
        The ledger and the gain of each item when it was chosen.

    References:
        Leskovec et al. (2007), Cost-effective outbreak detection in networks, section 3.2 (CEF).
    """
    n = limits.n_items if n is None else n
    attempts = []
    for by_cost in (False, True)[: 1 if limits.costs is None else 2]:
        ledger = limits.open()
        attempts.append((ledger, run(make(), ledger, n, by_cost, filler, max_cost)))
    return max(attempts, key=lambda attempt: attempt[1].sum())
