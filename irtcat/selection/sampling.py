"""Probability samples of items: random, and stratified by difficulty, by group or by both."""

from collections.abc import Callable

import numpy as np

from irtcat._checks import InputError
from irtcat._types import FloatArray, IntArray
from irtcat.selection._constraints import Constraints, allocate, round_at_random
from irtcat.selection._task import Choice, Task

__all__ = [
    "N_STRATA",
    "choose_at_random",
    "choose_stratified",
    "choose_stratified_both",
    "choose_stratified_group",
    "difficulty_strata",
    "draw",
]

N_STRATA = 10
"""Strata of proportion correct, as in `irtcat.selection.balanced`."""


Strata = Callable[[IntArray], list[IntArray]]
"""Divides positions of items into strata, ordered so that neighbours are similar."""


def choose_at_random(task: Task) -> Choice:
    """A simple random sample; every allowed item has inclusion probability k / n."""
    return draw(task.limits, task.rng)


def choose_stratified(task: Task) -> Choice:
    """A sample proportional over ten strata of proportion correct.

    Items are sorted into strata and shuffled within each; from a random start every (n / k)-th item
    is taken. Each stratum contributes its share rounded up or down, and every item has inclusion
    probability k / n. Items without any response form the last stratum.
    """
    return draw(task.limits, task.rng, difficulty_strata(task))


def choose_stratified_group(task: Task) -> Choice:
    """A sample proportional over the item groups; each contributes its share rounded up or down."""
    return draw(task.limits, task.rng, _group_strata(task))


def choose_stratified_both(task: Task) -> Choice:
    """A sample proportional over the item groups, and over ten difficulty strata within each.

    The order alternates between easy to hard and hard to easy, so that neighbours at the border of
    two groups are similar.
    """
    by_difficulty = difficulty_strata(task)

    def strata(items: IntArray) -> list[IntArray]:
        ordered_strata: list[IntArray] = []
        for number, members in enumerate(_group_strata(task)(items)):
            ordered_strata += by_difficulty(members)[:: 1 if number % 2 == 0 else -1]
        return ordered_strata

    return draw(task.limits, task.rng, strata)


def difficulty_strata(task: Task) -> Strata:
    """Ten strata of equal size by proportion correct."""

    def strata(items: IntArray) -> list[IntArray]:
        order = items[np.argsort(task.proportion_correct[items], kind="stable")]
        return np.array_split(order, max(1, min(N_STRATA, len(order))))

    return strata


def _group_strata(task: Task) -> Strata:
    if task.groups is None:
        raise InputError(
            f"The {task.strategy} strategy needs groups of items. Got none. "
            "Set groups= to a column of the items' metadata or a group for each item."
        )
    groups = task.groups
    return lambda items: [items[groups[items] == g] for g in np.unique(groups[items])]


def draw(limits: Constraints, rng: np.random.Generator, strata: Strata | None = None) -> Choice:
    """Draw a sample with known inclusion probabilities within the constraints.

    Under quotas the k items are first allocated to the groups in proportion to their size within
    the limits (`allocate`) and randomly rounded (`round_at_random`); then each group is sampled
    separately. ``f_g / n_g`` is exactly the inclusion probability of its items, and the weights are
    proportional to its inverse. Under a cost budget items are ordered by cost within the strata, so
    that samples cost about the same; the sample size is the largest at which no possible sample
    exceeds the budget. The probabilities stay exact, and items that cost more than the whole budget
    cannot be drawn.

    Raises:
        InputError: if no sample size within the constraints is guaranteed to be affordable.
    """
    n_groups = len(limits.names)
    members = [np.flatnonzero(limits.allowed & (limits.group == g)) for g in range(n_groups)]
    orders = [_order(items, limits.costs, rng, strata) for items in members]
    k = limits.n_items if limits.costs is None else _affordable(limits, orders)
    shares = allocate(k, limits.sizes, limits.lower, limits.upper)
    shuffled = strata is None and limits.costs is None
    chosen, probabilities = [], []
    for order, n, share in zip(orders, round_at_random(shares, rng), shares, strict=True):
        chosen.append(order[:n] if shuffled else _equally_spaced(order, n, rng))
        probabilities.append(np.full(n, share / max(len(order), 1)))
    positions, inclusion = np.concatenate(chosen), np.concatenate(probabilities)
    # None for equal probabilities, so that equal weights are exactly equal.
    weights = None if len(positions) == 0 or np.ptp(inclusion) < 1e-12 else 1 / inclusion
    reach = sum(len(order) for order, share in zip(orders, shares, strict=True) if share > 0)
    return Choice(positions, np.full(len(positions), np.nan), inclusion, weights, reach)


def _order(
    items: IntArray, costs: FloatArray | None, rng: np.random.Generator, strata: Strata | None
) -> IntArray:
    """Items by stratum, shuffled within each and, if they have costs, sorted by cost.

    The direction alternates, so that an expensive item of one stratum goes with a cheap one of the
    next.
    """
    shuffled = [rng.permutation(stratum) for stratum in (strata(items) if strata else [items])]
    if costs is not None:
        sorted_ = [stratum[np.argsort(costs[stratum], kind="stable")] for stratum in shuffled]
        shuffled = [
            stratum[:: 1 if number % 2 == 0 else -1] for number, stratum in enumerate(sorted_)
        ]
    return np.concatenate(shuffled) if shuffled else items


def _equally_spaced(order: IntArray, n: int, rng: np.random.Generator) -> IntArray:
    """Take n equally spaced items from a random start."""
    if n == 0:
        return order[:0]
    indices = (rng.random() + np.arange(n)) * len(order) / n
    return order[np.minimum(indices.astype(int), len(order) - 1)]


def _affordable(limits: Constraints, orders: list[IntArray]) -> int:
    """The largest sample size at which the most expensive possible sample is within the budget."""
    assert limits.costs is not None
    costs = [limits.costs[order] for order in orders]

    def greatest_cost(k: int) -> float:
        shares = allocate(k, limits.sizes, limits.lower, limits.upper)
        largest = np.ceil(np.round(shares, 9)).astype(int)
        return sum(_greatest_cost(cost, n) for cost, n in zip(costs, largest, strict=True))

    low, high = max(1, int(limits.lower.sum())) - 1, limits.n_items
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if greatest_cost(middle) <= limits.budget else (low, middle - 1)
    if low < max(1, limits.lower.sum()):
        raise InputError(
            f"The budget of {limits.budget:g} does not cover the most expensive sample that could "
            "be drawn. Raise it, or exclude expensive items with allowed=."
        )
    return low


def _greatest_cost(costs: FloatArray, n: int) -> float:
    """Greatest possible cost of n equally spaced items (`_equally_spaced`), over all starts.

    As the start increases, one item after another is replaced by the next in order: the costs of
    all possible samples follow from the first by cumulating these changes.
    """
    size = len(costs)
    if n == 0 or size == 0:
        return 0.0
    if n >= size:
        return float(costs.sum())
    successor = np.arange(1, size)
    slot = np.ceil(successor * n / size - 1e-9).astype(int) - 1  # the slot that moves to it
    start = successor * n / size - slot
    order = np.argsort(start, kind="stable")
    changed = successor[order]
    first = costs[np.minimum((np.arange(n) * size / n + 1e-9).astype(int), size - 1)].sum()
    change = costs[changed] - costs[changed - 1]
    start = start[order]
    settled = np.append(np.diff(start) > 1e-9, True) & (
        start < 1 - 1e-9
    )  # after all changes at equal starts
    return float(first + np.cumsum(change)[settled].max(initial=0.0))
