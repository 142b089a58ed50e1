"""Quotas and budgets against their definitions, item by item."""

import numpy as np
import pytest

from irtcat.selection.constraints import Constraints, allocate, round_at_random

SEEDS = range(40)


def _drawn(seed):
    """Random constraints that can be met, with small whole costs, so that sums tie with budgets."""
    rng = np.random.default_rng(seed)
    n, n_groups = 12, 3
    group = np.concatenate([np.arange(n_groups), rng.integers(0, n_groups, n - n_groups)])
    sizes = np.bincount(group)
    lower = rng.integers(0, np.minimum(sizes, 2) + 1)
    upper = np.minimum(lower + rng.integers(1, 3, n_groups), sizes)
    costs = rng.integers(1, 6, n).astype(float)
    dearest_minimum = sum(np.sort(costs[group == g])[: lower[g]].sum() for g in range(n_groups))
    return rng, Constraints(
        n_items=int(rng.integers(max(1, lower.sum()), upper.sum() + 1)),
        allowed=np.ones(n, bool),
        group=group,
        lower=lower,
        upper=upper,
        names=np.array(["g0", "g1", "g2"]),
        costs=costs,
        budget=float(max(dearest_minimum, costs.min()) + rng.integers(0, 12)),
    ).checked()


def _may_follow(limits, chosen, item):
    """Whether the minima can still be met, within the number of items and the budget."""
    taken = [*chosen, item]
    if item in chosen or not limits.allowed[item] or len(taken) > limits.n_items:
        return False
    counts = np.bincount(limits.group[taken], minlength=len(limits.names))
    lacking = np.maximum(limits.lower - counts, 0)
    left = [i for i in np.flatnonzero(limits.allowed) if i not in taken]
    cost = limits.costs[taken].sum()
    for g, number in enumerate(lacking):
        cost += np.sort([limits.costs[i] for i in left if limits.group[i] == g])[:number].sum()
    is_within = (counts <= limits.upper).all() and cost <= limits.budget
    return is_within and len(taken) + lacking.sum() <= limits.n_items


@pytest.mark.parametrize("seed", SEEDS)
def test_candidates_are_the_items_after_which_the_minima_can_be_met(seed):
    rng, limits = _drawn(seed)
    chosen: list[int] = []
    while True:
        expected = [i for i in range(len(limits.group)) if _may_follow(limits, chosen, i)]
        assert limits.candidates(chosen).tolist() == expected, chosen
        most = float(limits.costs[chosen].sum() + 3)
        cheap = [i for i in expected if limits.costs[[*chosen, i]].sum() <= most]
        assert limits.candidates(chosen, max_cost=most).tolist() == cheap
        if not expected:
            break
        rest = limits.after(np.array(chosen, int))
        assert rest is not None
        assert rest.candidates().tolist() == expected
        chosen.append(int(rng.choice(expected)))
    counts = np.bincount(limits.group[chosen], minlength=3)
    assert (counts >= limits.lower).all()
    assert limits.cost(np.array(chosen)) <= limits.budget


@pytest.mark.parametrize("seed", SEEDS)
def test_replacements_are_the_affordable_items_of_the_same_group(seed):
    rng, limits = _drawn(seed)
    chosen: list[int] = []
    while len(candidates := limits.candidates(chosen)):
        chosen.append(int(rng.choice(candidates)))
    for position, item in enumerate(chosen):
        others = [other for other in chosen if other != item]
        expected = [
            i
            for i in range(len(limits.group))
            if i not in chosen
            and limits.group[i] == limits.group[item]
            and limits.costs[[*others, i]].sum() <= limits.budget
        ]
        assert limits.replacements(np.array(chosen), position).tolist() == expected


@pytest.mark.parametrize("seed", SEEDS)
def test_allocation_is_proportional_within_the_limits(seed):
    rng = np.random.default_rng(seed)
    sizes = rng.integers(1, 60 if seed % 2 else 4, 5)
    lower = np.minimum(rng.integers(0, 6, 5) * rng.integers(0, 2, 5), sizes)
    upper = np.minimum(lower + rng.integers(0, 30, 5), sizes)
    ks = lower.sum(), upper.sum(), rng.integers(lower.sum(), upper.sum() + 1)
    k = int(ks[seed % 3])
    shares = allocate(k, sizes, lower, upper)
    assert shares.sum() == pytest.approx(k, abs=1e-9)
    assert (shares >= lower - 1e-9).all()
    assert (shares <= upper + 1e-9).all()
    # One rate s for all groups: a group at its minimum would get less with it, one at its maximum
    # more. A group whose minimum is its maximum says nothing of s.
    rate, is_free = shares / sizes, lower < upper
    at_lower, at_upper = shares <= lower + 1e-9, shares >= upper - 1e-9
    most = rate[is_free & ~at_upper].min(initial=np.inf)
    least = rate[is_free & ~at_lower].max(initial=-np.inf)
    assert least <= most + 1e-9


def test_one_share_needs_no_random_number():
    rng, same = np.random.default_rng(0), np.random.default_rng(0)
    assert round_at_random(np.array([7.0]), rng).tolist() == [7]
    assert rng.random() == same.random()


def test_a_group_of_one_item_is_allocated_it():
    none = np.zeros(2, int)
    assert allocate(3, np.array([1, 10]), none, np.array([1, 2])).tolist() == [1, 2]
