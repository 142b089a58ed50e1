"""Greedy choice of items by their gain, within the constraints."""

from collections.abc import Callable
from typing import Protocol

import numpy as np

from irtcat._types import FloatArray, IntArray
from irtcat.selection._constraints import Constraints

__all__ = ["Criterion", "Fixed", "argbest", "better", "run"]

Picks = tuple[IntArray, FloatArray]
"""Positions of the chosen items in order, and the gain of each when it was chosen."""


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


def run(criterion: Criterion, limits: Constraints, by_cost: bool = False) -> Picks:
    """Choose the best candidate (per cost with ``by_cost``) until no item or budget is left."""
    chosen: list[int] = []
    gains: list[float] = []
    while len(items := limits.candidates(chosen)):
        item, gain = criterion.best(items, limits.costs if by_cost else None)
        criterion.add(item)
        chosen.append(item)
        gains.append(gain)
    return np.array(chosen, int), np.array(gains)


def better(choose: Callable[[bool], Picks], limits: Constraints) -> Picks:
    """The greedy choice; under a cost budget the better of two.

    With costs, ``choose`` runs by gain and by gain per cost (both skip items that are not
    affordable), and the result with the greater sum of gains is kept. For criteria with diminishing
    returns that sum is at least (1 - 1/e) / 2 of the optimum under the budget, if the budget binds
    before k does; either rule alone can be arbitrarily bad.

    References:
        Leskovec et al. (2007), Cost-effective outbreak detection in networks, section 3.2 (CEF).
    """
    picks = choose(False)
    if limits.costs is None:
        return picks
    by_cost = choose(True)
    return by_cost if by_cost[1].sum() > picks[1].sum() else picks
