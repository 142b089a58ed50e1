"""Probability samples of items.

Random, stratified by difficulty, by group or by both, or with more of the items on which the
answers of new subjects vary most.
"""

from collections.abc import Callable

import numpy as np
from scipy.special import logit

from irtcat._common.checks import InputError
from irtcat._common.types import FloatArray, IntArray
from irtcat.responses._matrix import row_blocks
from irtcat.selection.constraints import SLACK, Constraints, allocate, round_at_random
from irtcat.selection.curves import SLOPE_MEAN, score_curves
from irtcat.selection.expectation import EDGE, ScoreSummary, expectation_of
from irtcat.selection.task import Choice, Task

N_STRATA = 10
"""Strata of proportion correct, as in `irtcat.selection.balanced`."""


LEAST_SHARE = 0.4
"""Least inclusion probability of an item, relative to the mean: the curves may be wrong about new
subjects. With .25 their errors were the same within 2 % (ten data sets, 30 draws)."""

GRID = np.linspace(-7, 7, 141)
"""Logits of full scores, from .001 to .999."""

LEAST_COST = 0.01
"""Least cost of an item, relative to the mean, in the allocation: some items may cost nothing."""

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
        advice = "Set groups= to a column of the items' metadata or a group for each item."
        raise task.lacking("groups of items", advice)
    groups = task.groups
    return lambda items: [items[groups[items] == g] for g in np.unique(groups[items])]


def choose_neyman(task: Task) -> Choice:
    """A sample in which items are the likelier, the more the answers of new subjects vary.

    The inclusion probability of item j is proportional to ``sd_j = sqrt(mean p_j (1 - p_j))``, with
    its curve p_j (`irtcat.selection.curves`) and the mean over the full scores that are
    expected (``expect=``; by default those of the calibrated subjects), and at least .4 times the
    mean. So the variance of the weighted mean is the least possible (Neyman allocation) if the
    curves are right, and it is unbiased in any case. Items are sorted by proportion correct and
    sampled systematically: each range of difficulty contributes its share. Under a cost budget the
    probabilities are proportional to ``sd_j / sqrt(cost_j)``, and there are ten strata.

    References:
        Neyman (1934), JRSS 97, 558-625; Cochran (1977), Sampling Techniques, sections 5.5, 9A.10.
    """
    x = np.clip(task.scores.centred + task.scores.means, 0, 1)
    expectation, scores = expectation_of(task.expect), x.mean(axis=1, dtype=float)
    if expectation is None:
        t = logit(np.clip(scores, EDGE, 1 - EDGE))
        probabilities = np.full(len(t), 1 / len(t))
    else:
        t, probabilities = GRID, expectation.prior(ScoreSummary.of(scores), GRID)
    curves = score_curves(x, slope_mean=SLOPE_MEAN)
    variance = np.empty(len(task.item_ids))
    for items in row_blocks((len(variance), len(t))):
        p = curves(t, items)
        variance[items] = (p * (1 - p)) @ probabilities
    measure = np.sqrt(variance)
    costs = task.limits.costs
    if costs is not None:
        measure /= np.sqrt(np.maximum(costs, max(LEAST_COST * costs.mean(), 1e-12)))
    measure = np.maximum(measure, LEAST_SHARE * measure.mean())

    def levels(items: IntArray) -> list[IntArray]:
        order = items[np.argsort(task.scores.means[items], kind="stable")]
        return np.split(order, np.flatnonzero(np.diff(task.scores.means[order])) + 1)

    strata = levels if costs is None else difficulty_strata(task)
    return draw(task.limits, task.rng, strata, measure)


def draw(
    limits: Constraints,
    rng: np.random.Generator,
    strata: Strata | None = None,
    measure: FloatArray | None = None,
) -> Choice:
    """Draw a sample with known inclusion probabilities within the constraints.

    Under quotas the k items are first allocated to the groups in proportion to their size within
    the limits (`allocate`) and randomly rounded (`round_at_random`); then each group is sampled
    separately. The inclusion probabilities of its items are equal, or proportional to ``measure``,
    with sum f_g, and the weights are proportional to their inverse. Under a cost budget items are
    ordered by cost within the strata, so that samples cost about the same; the sample size is the
    largest at which no possible sample exceeds the budget. The probabilities stay exact, and items
    that cost more than the whole budget cannot be drawn.

    Args:
        limits: number of items, and constraints.
        rng: source of randomness.
        strata: divides the items of a group; by default it is one stratum.
        measure: relative inclusion probability of each item, above 0; equal by default.

    Raises:
        InputError: if no sample size within the constraints is guaranteed to be affordable.
    """
    n_groups = len(limits.names)
    members = [np.flatnonzero(limits.allowed & (limits.group == g)) for g in range(n_groups)]
    orders = [_order(items, limits.costs, rng, strata) for items in members]
    measures = [np.ones(len(o)) if measure is None else measure[o] for o in orders]
    k = limits.n_items if limits.costs is None else _affordable(limits, orders, measures)
    shares = allocate(k, limits.sizes, limits.lower, limits.upper)
    is_simple = strata is None and limits.costs is None and measure is None
    chosen, probabilities = [], []
    counts = round_at_random(shares, rng)
    for order, size, n, share in zip(orders, measures, counts, shares, strict=True):
        at = np.arange(n) if is_simple else _systematic(_inclusion(size, n), rng)
        chosen.append(order[at])
        # The whole number n varies about the share of the group.
        whole, part = int(share), share - int(share)
        mean = _inclusion(size, whole)
        if part > 0:
            mean = (1 - part) * mean + part * _inclusion(size, whole + 1)
        probabilities.append(mean[at])
    positions, inclusion = np.concatenate(chosen), np.concatenate(probabilities)
    # None for equal probabilities, so that equal weights are exactly equal.
    weights = None if len(positions) == 0 or np.ptp(inclusion) < 1e-12 else 1 / inclusion
    return Choice(
        chosen=positions,
        criterion=np.full(len(positions), np.nan),
        probabilities=inclusion,
        weights=weights,
        reach=sum(len(order) for order, share in zip(orders, shares, strict=True) if share > 0),
        in_turn=is_simple and n_groups == 1,
    )


def _inclusion(measure: FloatArray, n: int) -> FloatArray:
    """Inclusion probabilities proportional to the measure, at most 1, that sum to n.

    Example:
        >>> _inclusion(np.array([1.0, 1.0, 2.0, 16.0]), 2)
        array([0.25, 0.25, 0.5 , 1.  ])
    """
    certain = np.zeros(len(measure), bool)
    while True:
        rest = measure[~certain].sum()
        scale = (n - certain.sum()) / rest if rest > 0 else 0.0
        now_certain = certain | (measure * scale >= 1)
        if now_certain.sum() == certain.sum():
            return np.where(certain, 1.0, measure * scale)
        certain = now_certain


def _order(
    items: IntArray, costs: FloatArray | None, rng: np.random.Generator, strata: Strata | None
) -> IntArray:
    """Items by stratum, shuffled within each and, if they have costs, sorted by cost.

    The direction alternates, so that an expensive item of one stratum goes with a cheap one of the
    next.
    """
    shuffled = [rng.permutation(stratum) for stratum in (strata(items) if strata else [items])]
    if costs is not None:
        shuffled = [stratum[np.argsort(costs[stratum], kind="stable")] for stratum in shuffled]
        shuffled[1::2] = [stratum[::-1] for stratum in shuffled[1::2]]
    return np.concatenate(shuffled) if shuffled else items


def _systematic(inclusion: FloatArray, rng: np.random.Generator) -> IntArray:
    """Positions of a systematic sample: one item for each unit of cumulated probability."""
    edges = np.cumsum(inclusion)
    n = round(float(edges[-1])) if len(edges) else 0
    if n == 0:
        return np.zeros(0, int)
    at = np.searchsorted(edges, rng.random() + np.arange(n), side="right")
    return np.minimum(at, len(edges) - 1)


def _affordable(limits: Constraints, orders: list[IntArray], measures: list[FloatArray]) -> int:
    """The largest sample size at which the most expensive possible sample is within the budget."""
    assert limits.costs is not None
    costs = [limits.costs[order] for order in orders]

    def greatest_cost(k: int) -> float:
        shares = allocate(k, limits.sizes, limits.lower, limits.upper)
        largest = np.ceil(np.round(shares, 9)).astype(int)
        return sum(
            _greatest_cost(cost, _inclusion(measure, n))
            for cost, measure, n in zip(costs, measures, largest, strict=True)
        )

    low, high = max(1, int(limits.lower.sum())) - 1, limits.n_items
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (
            (middle, high) if greatest_cost(middle) <= limits.budget + SLACK else (low, middle - 1)
        )
    if low < max(1, limits.lower.sum()):
        raise InputError(
            f"The budget of {limits.budget:g} does not cover the most expensive sample that could "
            "be drawn. Raise it, or exclude expensive items with allowed=."
        )
    return low


def _greatest_cost(costs: FloatArray, inclusion: FloatArray) -> float:
    """Greatest possible cost of a systematic sample (`_systematic`), over all starts.

    As the start increases, one item after another is replaced by the next in order: the costs of
    all possible samples follow from the first by cumulating these changes.
    """
    size = len(costs)
    edges = np.cumsum(inclusion)
    n = round(float(edges[-1])) if size else 0
    if n == 0:
        return 0.0
    if n >= size:
        return float(costs.sum())
    edge = edges[:-1]  # where the next item begins
    slot = np.ceil(edge - 1e-9).astype(int) - 1  # the slot that moves to it
    start = edge - slot
    order = np.argsort(start, kind="stable")
    first_items = np.searchsorted(edges, np.arange(n) + 1e-9, side="right")
    first = costs[np.minimum(first_items, size - 1)].sum()
    change = (costs[1:] - costs[:-1])[order]
    start = start[order]
    # After all changes at equal starts.
    settled = np.append(np.diff(start) > 1e-9, True) & (start < 1 - 1e-9)
    return float(first + np.cumsum(change)[settled].max(initial=0.0))
