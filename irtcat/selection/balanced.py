"""The default: score-optimal within cells that mirror the whole benchmark."""

import numpy as np
import pandas as pd

from irtcat._types import FloatArray, IntArray
from irtcat.responses import Responses
from irtcat.selection._constraints import Constraints, allocate, round_at_random
from irtcat.selection._dense import centred_scores
from irtcat.selection._greedy import grow
from irtcat.selection._task import Choice, Task
from irtcat.selection.curves import score_curves
from irtcat.selection.gaussian import by_score, choose_robust

__all__ = ["balanced_weights", "choose_balanced"]

STRATA, ITEMS_A_STRATUM = 10, 3
HALVES_FROM = 100
ALL_ELIGIBLE_BELOW = 20
ELIGIBLE, SUBJECTS_FOR_HALF, SPARE = 0.7, 30, 1.5
ENOUGH, MORE_PLACES = 0.9, 6
"""More places are tried, so many times at most, until so much of a budget is spent."""


def eligible_share(k: int, n_subjects: int) -> float:
    """Share of the items, drawn at random, from which the best are picked.

    All below 20 items; else .7, and less with few subjects (n / (n + 30)), on whom the best items
    are best by chance; and less still (times n / k) where items are more than subjects: there a
    regression has little to gain from the choice, and a new kind of subject much to lose.
    """
    if k < ALL_ELIGIBLE_BELOW:
        return 1.0
    share = min(ELIGIBLE, n_subjects / (n_subjects + SUBJECTS_FOR_HALF))
    return share * min(1.0, n_subjects / k)


def choose_balanced(task: Task) -> Choice:
    """Score-optimal within cells of difficulty that are represented as in the benchmark.

    The allowed items are cut into cells: ``min(10, k // 3)`` strata of proportion correct, from 100
    items on five strata, each with a flat and a steep half by the slope of its `score_curves`. Each
    cell gets its share of the k places, and in each a part drawn at random is eligible (see
    `eligible_share`). Of these the items are picked that most reduce the variance of the full score
    ("score-optimal"). Weights restore the cells' shares. So picking costs little where a
    new subject resembles the calibrated ones, and leaves a fair picture of one that does not,
    for whom freely picked items are all too easy or too hard. The criterion is that of
    "score-optimal".

    Places are shared out over quota groups first, and in each over the items that at least half of
    the subjects answered and the others, as these are in it. Under a cost budget there are as many
    places as items of mean cost that it buys (fewer where even the cheapest of the cells' eligible
    items cost more), and the greedy choice is the better of two, by gain and by gain per cost.
    Where that leaves more than a tenth of the budget, more places are tried and the best kept.
    """
    limits = task.limits
    if limits.costs is None or not np.isfinite(limits.budget):
        cell, inner = _laid_out(task, limits.n_items)
        return _picked(task, cell, inner)[0]
    fewest = int(limits.lower.sum())
    each = float(limits.costs[limits.allowed].mean())
    n = int(min(limits.n_items, max(limits.budget / max(each, 1e-12), fewest, 1)))
    cell, inner = _laid_out(task, n)
    while inner.open().reserve > limits.budget:
        if n <= fewest + 1:  # no room for cells: the quotas alone take the budget
            return choose_robust(task)
        n = max(int(0.9 * n), fewest + 1)
        cell, inner = _laid_out(task, n)
    best, spent = _picked(task, cell, inner)
    for _ in range(MORE_PLACES):
        if spent > ENOUGH * limits.budget or n == limits.n_items:
            break
        n = min(limits.n_items, int(np.ceil(n * min(limits.budget / max(spent, 1e-12), 1.5))))
        cell, inner = _laid_out(task, n)
        if inner.open().reserve > limits.budget:
            break
        other, spent = _picked(task, cell, inner)
        best = max(best, other, key=lambda choice: choice.criterion.sum())
    return best


def _picked(task: Task, cell: IntArray, inner: Constraints) -> tuple[Choice, float]:
    """The score-optimal items within the cells, and what they cost."""
    filler = task.rng.permutation(len(cell))
    ledger, gains = grow(lambda: by_score(task), inner, filler)
    chosen = np.array(ledger.chosen, int)
    n_cells = len(inner.names)
    size, used = (np.bincount(at, minlength=n_cells) for at in (cell[cell >= 0], cell[chosen]))
    weights = (size / np.maximum(used, 1))[cell[chosen]]
    return Choice(chosen, gains, None, weights), ledger.spent


def _laid_out(task: Task, n: int) -> tuple[IntArray, Constraints]:
    """Cell of each item, and what n items in the cells' proportions have to keep to."""
    cell, places = _cells(task, n)
    n_cells = len(places)
    share = eligible_share(n, len(task.scores.centred))
    allowed = np.zeros(len(cell), bool)
    for c in range(n_cells):
        items = np.flatnonzero(cell == c)
        some = max(np.ceil(share * len(items)), np.ceil(SPARE * places[c]))
        allowed[task.rng.permutation(items)[: int(some)]] = True
    costs = task.limits.costs
    least = np.zeros(n_cells, int) if costs is None else places
    return cell, Constraints(
        int(places.sum()), allowed, np.maximum(cell, 0), tuple(map(str, range(n_cells))),
        least, places, costs, task.limits.budget,
    )  # fmt: skip


def layout(n: int) -> tuple[int, int]:
    """Strata of difficulty, and parts of each by slope, for n places."""
    if n >= HALVES_FROM:
        return STRATA // 2, 2
    return max(1, min(STRATA, n // ITEMS_A_STRATUM)), 1


def balanced_weights(responses: Responses, item_ids: np.ndarray) -> FloatArray:
    """Weights, summing to 1, that give every stratum of proportion correct its share.

    As many strata as `choose_balanced` has; those without a chosen item leave their share to the
    others.
    """
    index = pd.Index(np.asarray(responses.item_ids, dtype=str))
    at = index.get_indexer(pd.Index(item_ids))
    order = np.argsort(centred_scores(responses).means, kind="stable")
    stratum = np.empty(len(order), int)
    n_strata = layout(len(at))[0]
    for number, part in enumerate(np.array_split(order, n_strata)):
        stratum[part] = number
    used = np.bincount(stratum[at], minlength=n_strata)
    weights = (np.bincount(stratum) / np.maximum(used, 1))[stratum[at]]
    return weights / weights.sum()


def _cells(task: Task, n_places: int) -> tuple[IntArray, IntArray]:
    """Cell of each item (-1: not allowed), and the places of each cell."""
    limits = task.limits
    scores = task.scores
    slope: FloatArray = np.ones(len(task.item_ids))
    if n_places >= HALVES_FROM:
        slope = score_curves(np.clip(scores.centred + scores.means, 0, 1), 1.0).slope
    shares = allocate(n_places, limits.sizes, limits.lower, limits.upper)
    # Items that few subjects answered tell little, so they are seldom picked; but they may be
    # another kind of item (newer ones, say), and each kind gets its share.
    rare = scores.answers < len(scores.centred) / 2
    cell = np.full(len(task.item_ids), -1)
    places: list[int] = []
    kinds = []
    for g, n in enumerate(round_at_random(shares, task.rng)):
        own = limits.allowed & (limits.group == g)
        sizes = np.array([(own & ~rare).sum(), (own & rare).sum()])
        each = np.array([n, 0])
        if sizes[1] > 0:
            each = round_at_random(n * sizes / sizes.sum(), task.rng)
        kinds += [(own & ~rare, int(each[0])), (own & rare, int(each[1]))]
    for kind, n in kinds:
        items = np.flatnonzero(kind)
        if not len(items) or n == 0:
            continue
        tie = task.rng.random(len(items))
        order = items[np.lexsort((tie, scores.means[items]))]
        n_strata, n_parts = layout(n)
        parts = np.array_split(order, min(n_strata, len(order)))
        if n_parts > 1:
            parts = [
                half for part in parts
                for half in np.array_split(part[np.argsort(slope[part], kind="stable")], n_parts)
            ]  # fmt: skip
        sizes = np.array([len(part) for part in parts])
        for part, m in zip(parts, _rounded(n * sizes / sizes.sum()), strict=True):
            cell[part] = len(places)
            places.append(int(m))
    return cell, np.array(places, int)


def _rounded(shares: FloatArray) -> IntArray:
    """Whole numbers near the shares with their sum."""
    edges = np.floor(np.cumsum(shares) + 0.5 + 1e-9)
    return np.diff(edges, prepend=0.0).astype(int)
