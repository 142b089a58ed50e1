"""Constraints on the choice (allowed items, quotas, costs), and greedy choice within them."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from irtcat._common.checks import argument_error
from irtcat._common.types import BoolArray, FloatArray, IntArray

SLACK = 1e-9
"""Tolerance of sums of costs, against rounding."""


@dataclass(frozen=True, eq=False)
class Constraints:
    """The constraints on every strategy.

    Strategies that choose item by item ask for the `candidates` before every step: they leave the
    items and the budget that unfilled minima require, so that a choice never becomes infeasible.
    Samplers `allocate` first and draw within groups.

    Attributes:
        n_items: number of items; the maximum number with a budget.
        allowed: mask of the items that may be chosen.
        group: number of each item's quota group; 0 without quotas.
        names: names of the groups.
        lower: fewest items of each group.
        upper: most items of each group.
        costs: cost of each item, or None.
        budget: maximum total cost; inf without costs.
    """

    n_items: int
    allowed: BoolArray
    group: IntArray
    names: tuple[str, ...]
    lower: IntArray
    upper: IntArray
    costs: FloatArray | None = None
    budget: float = np.inf

    @staticmethod
    def plain(k: int, allowed: BoolArray) -> "Constraints":
        """Constraints with only a list of allowed items."""
        return Constraints(
            n_items=k,
            allowed=allowed,
            group=np.zeros(len(allowed), int),
            names=("all",),
            lower=np.zeros(1, int),
            upper=np.full(1, k),
        )

    @property
    def sizes(self) -> IntArray:
        """Number of allowed items in each group."""
        return np.bincount(self.group[self.allowed], minlength=len(self.names))

    @property
    def reserve(self) -> float:
        """Total cost of the cheapest items that fill all minima."""
        return sum(float(costs.sum()) for costs in self._cheapest(self.allowed, self.lower))

    def checked(self) -> "Constraints":
        """Check the constraints; return them with k reduced to what a budget allows.

        Raises:
            InputError: if the quotas require more than k items, more than a group has or more than
                the budget, or allow fewer than k.
        """
        if self.costs is not None:
            affordable = self.allowed & (self.costs <= self.budget + SLACK)
            if not affordable.any():
                cheapest = self.costs[self.allowed].min(initial=np.inf)
                advice = f"The cheapest allowed item costs {cheapest:g}."
                raise argument_error("budget", "enough for one item", f"{self.budget:g}", advice)
            if not np.array_equal(affordable, self.allowed):
                return replace(self, allowed=affordable).checked()
        sizes, n_fewest = self.sizes, int(self.lower.sum())
        if (self.lower > sizes).any():
            g = int(np.argmax(self.lower > sizes))
            got = f"{self.lower[g]} of group {self.names[g]!r}, which has {sizes[g]} to choose from"
            raise argument_error("quotas", "at most the size of each group", got)
        if n_fewest > self.n_items:
            raise argument_error("quotas", f"at most k = {self.n_items} in all", n_fewest)
        capacity = int(np.minimum(self.upper, sizes).sum())
        if capacity < self.n_items and self.costs is None:
            must = f"wide enough for k = {self.n_items} items"
            raise argument_error("quotas", must, f"room for {capacity}")
        if self.reserve > self.budget + SLACK:
            must = f"enough for the quotas' fewest items, which cost {self.reserve:g}"
            raise argument_error("budget", must, f"{self.budget:g}")
        return replace(self, n_items=min(self.n_items, capacity))

    def after(self, chosen: IntArray) -> "Constraints | None":
        """The constraints for the rest after some items are chosen; None if nothing is left."""
        allowed = self.allowed.copy()
        allowed[chosen] = False
        if len(chosen) == self.n_items or not allowed.any():
            return None
        counts = np.bincount(self.group[chosen], minlength=len(self.names))
        return replace(
            self,
            n_items=self.n_items - len(chosen),
            allowed=allowed,
            lower=np.maximum(self.lower - counts, 0),
            upper=self.upper - counts,
            budget=self.budget - self.cost(chosen),
        ).checked()

    def cost(self, chosen: IntArray) -> float:
        """Total cost of the chosen items; 0 without costs."""
        return 0.0 if self.costs is None else float(self.costs[chosen].sum())

    def candidates(self, chosen: Sequence[int] = (), max_cost: float = np.inf) -> IntArray:
        """Positions of the items that may be chosen next; empty if no item or budget is left.

        Args:
            chosen: positions of the items chosen so far.
            max_cost: maximum total cost with the next item, where that is less than the budget.
        """
        items = np.asarray(chosen, int)
        remaining = self.allowed.copy()
        remaining[items] = False
        n_left = self.n_items - len(items)
        counts = np.bincount(self.group[items], minlength=len(self.names))
        n_lacking = np.maximum(self.lower - counts, 0)
        is_open = (counts < self.upper) & (n_left > 0)
        if n_left <= n_lacking.sum():
            is_open &= n_lacking > 0
        mask = remaining & is_open[self.group]
        if self.costs is not None:
            cheapest = self._cheapest(remaining, n_lacking)
            # An item of a group below its minimum sets free what was reserved for a dearer one.
            dearest = np.array([costs.max(initial=0.0) for costs in cheapest])
            released = np.minimum(self.costs, dearest[self.group])
            spent, reserve = self.cost(items), sum(costs.sum() for costs in cheapest)
            mask &= self.costs - released <= self.budget - spent - reserve + SLACK
            mask &= spent + self.costs <= max_cost + SLACK
        return np.flatnonzero(mask)

    def _cheapest(self, remaining: BoolArray, n_lacking: IntArray) -> list[FloatArray]:
        """Costs of the cheapest remaining items that fill each group's minimum."""
        if self.costs is None:
            return []
        return [
            np.sort(self.costs[remaining & (self.group == g)])[:n] if n else np.zeros(0)
            for g, n in enumerate(n_lacking)
        ]

    def replacements(self, chosen: IntArray, position: int) -> IntArray:
        """Positions of the affordable items of the same group that may replace a chosen one."""
        item = chosen[position]
        mask = self.allowed & (self.group == self.group[item])
        mask[chosen] = False
        if self.costs is not None:
            mask &= self.cost(chosen) - self.costs[item] + self.costs <= self.budget + SLACK
        return np.flatnonzero(mask)


def allocate(k: int, sizes: IntArray, lower: IntArray, upper: IntArray) -> FloatArray:
    """Allocate k items to groups in proportion to their sizes, within their limits.

    ``f_g = min(max(s n_g, lower_g), upper_g)`` with the s for which they sum to k. The numbers are
    not rounded: see `round_at_random`.

    Example:
        >>> allocate(6, np.array([80, 10, 10]), np.array([0, 2, 0]), np.array([9, 9, 9])).round(2)
        array([3.56, 2.  , 0.44])
    """
    most = np.minimum(upper, sizes)
    # The sum is linear in s between the values at which a group reaches a limit.
    size = np.maximum(sizes, 1)
    knots = np.sort(np.concatenate([lower / size, most / size]))
    totals = np.clip(knots[:, None] * sizes, lower, most).sum(axis=1)
    return np.clip(np.interp(k, totals, knots) * sizes, lower, most)


def round_at_random(shares: FloatArray, rng: np.random.Generator) -> IntArray:
    """Random whole numbers with means ``shares``, rounded up or down, with the same sum.

    Systematic sampling on the cumulated shares; a single share needs no random number.

    Example:
        >>> rng = np.random.default_rng(0)
        >>> np.mean([round_at_random(np.array([0.25, 1.75]), rng) for _ in range(4000)], 0).round(1)
        array([0.2, 1.8])
    """
    start = rng.random() if len(shares) > 1 else 0.5
    edges = np.floor(np.round(np.cumsum(shares), 9) + start)
    return np.diff(edges, prepend=0.0).astype(int)


Gain = Callable[[IntArray, list[int]], FloatArray]
"""Gains of candidates, given the items chosen so far (a step each)."""

Picks = tuple[IntArray, FloatArray]
"""Positions of the chosen items in order, and the gain of each when it was chosen."""

FREE = 1e-12
"""Cost of items without cost in gains per cost: they come first, by gain."""


def greedy_picks(gain: Gain, limits: Constraints, by_cost: bool = False) -> Picks:
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


def better_picks(choose: Callable[[bool], Picks], limits: Constraints) -> Picks:
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
