"""Constraints on the choice: allowed items, quotas of groups, costs within a budget."""

from dataclasses import dataclass, replace

import numpy as np

from irtcat._checks import InputError, argument_error
from irtcat._types import BoolArray, FloatArray, IntArray

__all__ = ["Constraints", "Ledger", "allocate", "round_at_random"]

SLACK = 1e-9
"""Tolerance of sums of costs, against rounding."""


@dataclass(frozen=True, eq=False)
class Constraints:
    """The constraints on every strategy.

    Strategies that add items one by one open a `Ledger` and use its `candidates` at every step: it
    reserves the items and the budget that unfilled minima require, so that a choice never becomes
    infeasible. Samplers `allocate` first and draw within groups.

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
    def free(self) -> bool:
        """Whether only the list of allowed items restricts the choice."""
        return self.costs is None and len(self.names) == 1

    @property
    def sizes(self) -> IntArray:
        """Number of allowed items in each group."""
        return np.bincount(self.group[self.allowed], minlength=len(self.names))

    def within(self, mask: BoolArray) -> "Constraints":
        """The same with fewer allowed items, checked again."""
        return replace(self, allowed=self.allowed & mask).checked()

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
        sizes = self.sizes
        lacking = np.flatnonzero(self.lower > sizes)
        if len(lacking):
            g = lacking[0]
            got = f"{self.lower[g]} of group {self.names[g]!r}, which has {sizes[g]} to choose from"
            raise argument_error("quotas", "at most the size of each group", got)
        if self.lower.sum() > self.n_items:
            raise argument_error(
                "quotas", f"at most k = {self.n_items} in all", int(self.lower.sum())
            )
        capacity = int(np.minimum(self.upper, sizes).sum())
        if capacity < self.n_items and self.costs is None:
            raise argument_error(
                "quotas", f"wide enough for k = {self.n_items} items", f"room for {capacity}"
            )
        constraints = replace(self, n_items=min(self.n_items, capacity))
        if constraints.open().reserve > self.budget + SLACK:
            must = f"enough for the quotas' fewest items, which cost {constraints.open().reserve:g}"
            raise argument_error("budget", must, f"{self.budget:g}")
        return constraints

    def capped(self, upper: IntArray) -> "Constraints":
        """The same with smaller upper limits, for a first part of the items; not checked."""
        return replace(self, upper=np.minimum(self.upper, upper))

    def after(self, chosen: IntArray) -> "Constraints | None":
        """The constraints for the rest after some items are chosen; None if nothing is left."""
        allowed = self.allowed.copy()
        allowed[chosen] = False
        counts = np.bincount(self.group[chosen], minlength=len(self.names))
        lower, upper = np.maximum(self.lower - counts, 0), self.upper - counts
        spent = 0.0 if self.costs is None else float(self.costs[chosen].sum())
        k = self.n_items - len(chosen)
        if k == 0 or not allowed.any():
            return None
        remaining = replace(self, n_items=k, allowed=allowed, lower=lower, upper=upper)
        return replace(remaining, budget=self.budget - spent).checked()

    def open(self) -> "Ledger":
        """A ledger without chosen items."""
        return Ledger(self)


class Ledger:
    """The items chosen so far, and the remaining candidates.

    Attributes:
        chosen: the items so far, in order.
        spent: their total cost.
    """

    def __init__(self, limits: Constraints):
        self.limits = limits
        self.chosen: list[int] = []
        self.spent = 0.0
        self._counts = np.zeros(len(limits.names), int)
        self._remaining = limits.allowed.copy()

    @property
    def unmet(self) -> IntArray:
        """Number of items that each group lacks to its minimum."""
        return np.maximum(self.limits.lower - self._counts, 0)

    @property
    def full(self) -> bool:
        """Whether k items are chosen."""
        return len(self.chosen) >= self.limits.n_items

    def _expensive(self) -> FloatArray:
        """Greatest cost of the cheapest items that fill each group's minimum; 0 if it is filled."""
        return np.array([costs.max(initial=0.0) for costs in self._cheapest()])

    @property
    def reserve(self) -> float:
        """Total cost of the cheapest items that fill all minima."""
        return float(sum(costs.sum() for costs in self._cheapest()))

    def _cheapest(self) -> list[FloatArray]:
        """Costs of the cheapest remaining items that fill each group's minimum."""
        limits = self.limits
        if limits.costs is None:
            return [np.zeros(0)]
        out = []
        for g, n_lacking in enumerate(self.unmet):
            costs = (
                limits.costs[self._remaining & (limits.group == g)] if n_lacking else np.zeros(0)
            )
            out.append(np.sort(costs)[:n_lacking])
        return out

    def candidates(self) -> IntArray:
        """Positions of the items that may be chosen next; empty if no item or budget is left."""
        limits, unmet = self.limits, self.unmet
        if self.full:
            return np.zeros(0, int)
        open_ = self._counts < limits.upper
        if limits.n_items - len(self.chosen) <= unmet.sum():
            open_ &= unmet > 0
        mask = self._remaining & open_[limits.group]
        if limits.costs is not None:
            released = np.minimum(limits.costs, self._expensive()[limits.group])
            spare = limits.budget - self.spent - self.reserve
            mask &= limits.costs - released <= spare + SLACK
        return np.flatnonzero(mask)

    def add(self, item: int) -> None:
        """Choose an item."""
        self.chosen.append(int(item))
        self._remaining[item] = False
        self._counts[self.limits.group[item]] += 1
        if self.limits.costs is not None:
            self.spent += float(self.limits.costs[item])

    def replacements(self, item: int) -> IntArray:
        """Positions of the affordable items of the same group that may replace a chosen one."""
        limits = self.limits
        mask = self._remaining & (limits.group == limits.group[item])
        if limits.costs is not None:
            mask &= self.spent - limits.costs[item] + limits.costs <= limits.budget + SLACK
        return np.flatnonzero(mask)

    def replace(self, position: int, item: int) -> None:
        """Replace the item chosen at ``position``."""
        removed = self.chosen[position]
        self.chosen[position] = int(item)
        self._remaining[removed], self._remaining[item] = True, False
        if self.limits.costs is not None:
            self.spent += float(self.limits.costs[item] - self.limits.costs[removed])


def allocate(k: int, sizes: IntArray, lower: IntArray, upper: IntArray) -> FloatArray:
    """Allocate k items to groups in proportion to their sizes, within their limits.

    ``f_g = min(max(s n_g, lower_g), upper_g)`` with the s for which they sum to k. The numbers are
    not rounded: see `round_at_random`.

    Example:
        >>> allocate(6, np.array([80, 10, 10]), np.array([0, 2, 0]), np.array([9, 9, 9])).round(2)
        array([3.56, 2.  , 0.44])
    """
    most = np.minimum(upper, sizes)
    if most.sum() < k or lower.sum() > k:
        raise InputError(f"The quotas allow {lower.sum()} to {most.sum()} items, not {k}.")
    # The sum is linear in s between the values at which a group reaches a limit.
    size = np.maximum(sizes, 1)
    knots = np.sort(np.concatenate([[0.0], lower / size, most / size]))
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
