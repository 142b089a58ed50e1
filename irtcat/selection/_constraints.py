"""Which items may be chosen: allowed items, quotas of groups, costs within a budget."""

from dataclasses import dataclass, replace

import numpy as np

from irtcat._checks import InputError, argument_error
from irtcat._types import BoolArray, FloatArray, IntArray

__all__ = ["Constraints", "Ledger", "allocate", "round_at_random"]

SLACK = 1e-9


@dataclass(frozen=True, eq=False)
class Constraints:
    """What every strategy has to keep to; the one place that knows.

    Strategies that add items one by one open a `Ledger` and ask it for the `candidates` at every
    step: it holds back the places, and the money, that unfilled minima still need, so that
    nothing runs into a dead end. Samplers `allocate` first and draw within groups.

    Attributes:
        n_items: how many items; the most of them where there is a budget.
        allowed: mask of the items that may be chosen.
        group: number of each item's quota group; all 0 where there are no quotas.
        names: names of the groups.
        lower: fewest items of each group.
        upper: most items of each group.
        costs: cost of each item, or None.
        budget: what the items may cost together; inf without costs.
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
        """No restriction but the list of allowed items."""
        one = np.zeros(1, int)
        return Constraints(k, allowed, np.zeros(len(allowed), int), ("all",), one, one + k)

    @property
    def free(self) -> bool:
        """Whether nothing but the list of allowed items restricts the choice."""
        return self.costs is None and len(self.names) == 1

    @property
    def sizes(self) -> IntArray:
        """How many items each group offers."""
        return np.bincount(self.group[self.allowed], minlength=len(self.names))

    def within(self, mask: BoolArray) -> "Constraints":
        """The same with fewer items allowed, checked anew."""
        return replace(self, allowed=self.allowed & mask).checked()

    def checked(self) -> "Constraints":
        """Itself, with k lowered to what a budget leaves possible, or a sentence on what clashes.

        Raises:
            InputError: the quotas ask for more than k, than a group has or than the budget pays
                for, or leave fewer than k.
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
        short = np.flatnonzero(self.lower > sizes)
        if len(short):
            g = short[0]
            got = f"{self.lower[g]} of group {self.names[g]!r}, which has {sizes[g]} to choose from"
            raise argument_error("quotas", "no more than each group has", got)
        if self.lower.sum() > self.n_items:
            raise argument_error(
                "quotas", f"at most k = {self.n_items} in all", int(self.lower.sum())
            )
        room = int(np.minimum(self.upper, sizes).sum())
        if room < self.n_items and self.costs is None:
            raise argument_error(
                "quotas", f"wide enough for k = {self.n_items} items", f"room for {room}"
            )
        found = replace(self, n_items=min(self.n_items, room))
        if found.open().reserve > self.budget + SLACK:
            must = f"enough for the quotas' fewest items, which cost {found.open().reserve:g}"
            raise argument_error("budget", must, f"{self.budget:g}")
        return found

    def capped(self, upper: IntArray) -> "Constraints":
        """The same with lower upper limits for a first part of the items; not checked."""
        return replace(self, upper=np.minimum(self.upper, upper))

    def after(self, chosen: IntArray) -> "Constraints | None":
        """What is left to do once some items are chosen; None where nothing is."""
        allowed = self.allowed.copy()
        allowed[chosen] = False
        counts = np.bincount(self.group[chosen], minlength=len(self.names))
        lower, upper = np.maximum(self.lower - counts, 0), self.upper - counts
        spent = 0.0 if self.costs is None else float(self.costs[chosen].sum())
        k = self.n_items - len(chosen)
        if k == 0 or not allowed.any():
            return None
        rest = replace(self, n_items=k, allowed=allowed, lower=lower, upper=upper)
        return replace(rest, budget=self.budget - spent).checked()

    def open(self) -> "Ledger":
        """An account with nothing chosen yet."""
        return Ledger(self)


class Ledger:
    """What has been chosen so far, and hence what still may be.

    Attributes:
        chosen: the items so far, in order.
        spent: what they cost.
    """

    def __init__(self, limits: Constraints):
        self.limits = limits
        self.chosen: list[int] = []
        self.spent = 0.0
        self._counts = np.zeros(len(limits.names), int)
        self._left = limits.allowed.copy()

    @property
    def unmet(self) -> IntArray:
        """How many items each group still lacks."""
        return np.maximum(self.limits.lower - self._counts, 0)

    @property
    def full(self) -> bool:
        """Whether k items are chosen."""
        return len(self.chosen) >= self.limits.n_items

    def _dear(self) -> FloatArray:
        """The dearest of the cheapest items that would fill each group's minimum; 0 where full."""
        return np.array([costs.max(initial=0.0) for costs in self._cheapest()])

    @property
    def reserve(self) -> float:
        """What the cheapest items that fill all minima cost."""
        return float(sum(costs.sum() for costs in self._cheapest()))

    def _cheapest(self) -> list[FloatArray]:
        """Costs of the cheapest items left that fill each group's minimum."""
        limits = self.limits
        if limits.costs is None:
            return [np.zeros(0)]
        out = []
        for g, lacking in enumerate(self.unmet):
            costs = limits.costs[self._left & (limits.group == g)] if lacking else np.zeros(0)
            out.append(np.sort(costs)[:lacking])
        return out

    def candidates(self) -> IntArray:
        """Positions of the items that may come next; none when full or out of money."""
        limits, unmet = self.limits, self.unmet
        if self.full:
            return np.zeros(0, int)
        open_ = self._counts < limits.upper
        if limits.n_items - len(self.chosen) <= unmet.sum():
            open_ &= unmet > 0
        may = self._left & open_[limits.group]
        if limits.costs is not None:
            saved = np.minimum(limits.costs, self._dear()[limits.group])
            spare = limits.budget - self.spent - self.reserve
            may &= limits.costs - saved <= spare + SLACK
        return np.flatnonzero(may)

    def add(self, item: int) -> None:
        """Choose an item."""
        self.chosen.append(int(item))
        self._left[item] = False
        self._counts[self.limits.group[item]] += 1
        if self.limits.costs is not None:
            self.spent += float(self.limits.costs[item])

    def replacements(self, item: int) -> IntArray:
        """Positions of the items that may take a chosen one's place: of its group, affordable."""
        limits = self.limits
        may = self._left & (limits.group == limits.group[item])
        if limits.costs is not None:
            may &= self.spent - limits.costs[item] + limits.costs <= limits.budget + SLACK
        return np.flatnonzero(may)

    def replace(self, position: int, item: int) -> None:
        """Put an item in the place of the one chosen at ``position``."""
        out = self.chosen[position]
        self.chosen[position] = int(item)
        self._left[out], self._left[item] = True, False
        if self.limits.costs is not None:
            self.spent += float(self.limits.costs[item] - self.limits.costs[out])


def allocate(k: int, sizes: IntArray, lower: IntArray, upper: IntArray) -> FloatArray:
    """Share k places out over groups in proportion to their sizes, within their limits.

    ``f_g = min(max(s n_g, lower_g), upper_g)`` with the one s for which they
    sum to k. Not whole numbers: see `round_at_random`.

    Example:
        >>> allocate(6, np.array([80, 10, 10]), np.array([0, 2, 0]), np.array([9, 9, 9])).round(2)
        array([3.56, 2.  , 0.44])
    """
    most = np.minimum(upper, sizes)
    if most.sum() < k or lower.sum() > k:
        raise InputError(f"The quotas leave room for {lower.sum()} to {most.sum()} items, not {k}.")
    # The sum is linear in s between the values at which a group reaches a limit.
    size = np.maximum(sizes, 1)
    knots = np.sort(np.concatenate([[0.0], lower / size, most / size]))
    totals = np.clip(knots[:, None] * sizes, lower, most).sum(axis=1)
    return np.clip(np.interp(k, totals, knots) * sizes, lower, most)


def round_at_random(shares: FloatArray, rng: np.random.Generator) -> IntArray:
    """Whole numbers with the given means, each its share rounded up or down, with the same sum.

    Systematic sampling on the cumulated shares; nothing is drawn where there is but one share.

    Example:
        >>> rng = np.random.default_rng(0)
        >>> np.mean([round_at_random(np.array([0.25, 1.75]), rng) for _ in range(4000)], 0).round(1)
        array([0.2, 1.8])
    """
    start = rng.random() if len(shares) > 1 else 0.5
    edges = np.floor(np.round(np.cumsum(shares), 9) + start)
    return np.diff(edges, prepend=0.0).astype(int)
