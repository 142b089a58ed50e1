"""Greedy choice of items by their gain, within the constraints."""

from collections.abc import Callable

import numpy as np

from irtcat._common.types import FloatArray, IntArray
from irtcat.selection.constraints import Constraints

Gain = Callable[[IntArray, list[int]], FloatArray]
"""Gains of candidates, given the items chosen so far (a step each)."""

Picks = tuple[IntArray, FloatArray]
"""Positions of the chosen items in order, and the gain of each when it was chosen."""

FREE = 1e-12
"""Cost of items without cost in gains per cost: they come first, by gain."""


def run(gain: Gain, limits: Constraints, by_cost: bool = False) -> Picks:
    """Choose the candidate with the greatest gain (per cost) until no item or budget is left."""
    chosen: list[int] = []
    gains: list[float] = []
    while len(items := limits.candidates(chosen)):
        value = gain(items, chosen)
        per_cost = value
        if by_cost and limits.costs is not None:
            per_cost = value / np.maximum(limits.costs[items], FREE)
        best = int(np.argmax(per_cost))
        chosen.append(int(items[best]))
        gains.append(float(value[best]))
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
