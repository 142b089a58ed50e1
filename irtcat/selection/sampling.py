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

Strata = Callable[[IntArray], list[IntArray]]
"""Cuts positions of items into strata, in an order in which neighbours are alike."""


def choose_at_random(task: Task) -> Choice:
    """A simple random sample; every allowed item has inclusion probability k / n."""
    return draw(task.limits, task.rng)


def choose_stratified(task: Task) -> Choice:
    """A sample proportional over ten strata of proportion correct.

    Items are sorted into strata, shuffled within each, and every (n / k)-th taken from a random
    start: each stratum gives its share rounded up or down, and every item has inclusion
    probability k / n. Items without any response form the last stratum.
    """
    return draw(task.limits, task.rng, difficulty_strata(task))


def choose_stratified_group(task: Task) -> Choice:
    """A sample proportional over the item groups: each gives its share rounded up or down."""
    return draw(task.limits, task.rng, _group_strata(task))


def choose_stratified_both(task: Task) -> Choice:
    """A sample proportional over the item groups, and over ten difficulty strata within each.

    Groups run from easy to hard and from hard to easy in turn, so that neighbours at the border of
    two groups are alike.
    """
    by_difficulty = difficulty_strata(task)

    def strata(items: IntArray) -> list[IntArray]:
        parts: list[IntArray] = []
        for number, members in enumerate(_group_strata(task)(items)):
            parts += by_difficulty(members)[:: 1 if number % 2 == 0 else -1]
        return parts

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
            "Give groups= a column of the items' metadata or a group for each item."
        )
    groups = task.groups
    return lambda items: [items[groups[items] == g] for g in np.unique(groups[items])]


def draw(limits: Constraints, rng: np.random.Generator, strata: Strata | None = None) -> Choice:
    """Draw a sample with known inclusion probabilities within the constraints.

    Under quotas the k places are first shared out over the groups in proportion to their size
    within the limits (`allocate`), randomly rounded (`round_at_random`), and each group is sampled
    on its own: ``f_g / n_g`` is exactly the inclusion probability of its items, and the weights
    are in proportion to its inverse. Under a cost
    budget items are ordered by cost within the strata, so that samples cost about the same, and
    the largest size is taken at which no possible sample costs more than the budget; the
    probabilities stay exact, and items that cost more than the whole budget are out of reach.

    Raises:
        InputError: where no sample within the constraints is certain to be affordable.
    """
    n_groups = len(limits.names)
    members = [np.flatnonzero(limits.allowed & (limits.group == g)) for g in range(n_groups)]
    orders = [_order(items, limits.costs, rng, strata) for items in members]
    k = limits.n_items if limits.costs is None else _affordable(limits, orders)
    shares = allocate(k, limits.sizes, limits.lower, limits.upper)
    shuffled = strata is None and limits.costs is None
    chosen, probabilities = [], []
    for order, n, share in zip(orders, round_at_random(shares, rng), shares, strict=True):
        chosen.append(order[:n] if shuffled else _every(order, n, rng))
        probabilities.append(np.full(n, share / max(len(order), 1)))
    found, chance = np.concatenate(chosen), np.concatenate(probabilities)
    # Equal weights stay equal to the last digit where nothing asks for others.
    weights = None if len(found) == 0 or np.ptp(chance) < 1e-12 else 1 / chance
    reach = sum(len(order) for order, share in zip(orders, shares, strict=True) if share > 0)
    return Choice(found, np.full(len(found), np.nan), chance, weights, reach)


def _order(
    items: IntArray, costs: FloatArray | None, rng: np.random.Generator, strata: Strata | None
) -> IntArray:
    """Items by stratum, shuffled within each and then, where they have costs, sorted by cost.

    Upwards and downwards in turn, so that where one stratum gives a dear item the next gives a
    cheap one.
    """
    parts = [rng.permutation(part) for part in (strata(items) if strata else [items])]
    if costs is not None:
        sorted_ = [part[np.argsort(costs[part], kind="stable")] for part in parts]
        parts = [part[:: 1 if number % 2 == 0 else -1] for number, part in enumerate(sorted_)]
    return np.concatenate(parts) if parts else items


def _every(order: IntArray, n: int, rng: np.random.Generator) -> IntArray:
    """Take n items at even distances from a random start."""
    if n == 0:
        return order[:0]
    at = (rng.random() + np.arange(n)) * len(order) / n
    return order[np.minimum(at.astype(int), len(order) - 1)]


def _affordable(limits: Constraints, orders: list[IntArray]) -> int:
    """The largest sample size at which the dearest possible sample keeps within the budget."""
    assert limits.costs is not None
    costs = [limits.costs[order] for order in orders]

    def dearest(k: int) -> float:
        shares = allocate(k, limits.sizes, limits.lower, limits.upper)
        most = np.ceil(np.round(shares, 9)).astype(int)
        return sum(_dearest(cost, n) for cost, n in zip(costs, most, strict=True))

    low, high = max(1, int(limits.lower.sum())) - 1, limits.n_items
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if dearest(middle) <= limits.budget else (low, middle - 1)
    if low < max(1, limits.lower.sum()):
        raise InputError(
            f"The budget of {limits.budget:g} does not pay for the dearest sample that could be "
            "drawn. Raise it, or leave dear items out with allowed=."
        )
    return low


def _dearest(costs: FloatArray, n: int) -> float:
    """What n items at even distances (`_every`) cost with the least lucky start.

    As the start moves up, one item after another gives way to the next in order: the costs of all
    the samples there are follow from the first by adding up these changes.
    """
    size = len(costs)
    if n == 0 or size == 0:
        return 0.0
    if n >= size:
        return float(costs.sum())
    follows = np.arange(1, size)
    place = np.ceil(follows * n / size - 1e-9).astype(int) - 1  # the place which passes on to it
    start = follows * n / size - place
    order = np.argsort(start, kind="stable")
    moves = follows[order]
    first = costs[np.minimum((np.arange(n) * size / n + 1e-9).astype(int), size - 1)].sum()
    change = costs[moves] - costs[moves - 1]
    start = start[order]
    settled = np.append(np.diff(start) > 1e-9, True) & (start < 1 - 1e-9)  # all of equal starts
    return float(first + np.cumsum(change)[settled].max(initial=0.0))
