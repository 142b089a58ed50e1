"""The default strategy: score-optimal within cells that represent the whole benchmark."""

import numpy as np

from irtcat._common.positions import places_of
from irtcat._common.types import FloatArray, IntArray
from irtcat.responses import Responses
from irtcat.selection.constraints import SLACK, Constraints, allocate, round_at_random
from irtcat.selection.curves import score_curves
from irtcat.selection.dense import centred_scores
from irtcat.selection.gaussian import GaussianCovariance, choose_robust, greedy
from irtcat.selection.task import Choice, Task

STRATA, ITEMS_A_STRATUM = 10, 3
"""Most strata of difficulty, and the fewest items of each: one or two leave no choice of items that
complement each other."""

HALVES_FROM = 100
"""From so many items half as many strata, each in two halves by slope: there are enough items for
the cells to represent how steep items are, too."""

ALL_ELIGIBLE_BELOW = 20
"""With fewer items all are eligible: few items must be good ones."""

ELIGIBLE, SUBJECTS_FOR_HALF = 0.7, 30
"""Greatest share of eligible items, and the subjects with whom it is a half. From .5 to .9 neither
the errors within nor those beyond the calibrated range change by more than chance; at .1 those
within are 10 to 15 % greater (`experiments/subset_selection/frontier.py`)."""

SPARE = 1.5
"""Fewest eligible items of a cell for each item to choose, so that there is a choice."""

ENOUGH, MOST_ENLARGEMENTS = 0.9, 6
"""Under a budget larger sizes are tried, at most this often, until `ENOUGH` of it is spent."""


def eligible_share(k: int, n_subjects: int) -> float:
    """Share of the items, drawn at random, from which the best are chosen.

    All items below k = 20. Else .7, and less with few subjects (n / (n + 30)), for whom the best
    items are best by chance; and less again (times n / k) if there are more items than subjects:
    then a regression gains little from the choice, and predictions for a new kind of subject may
    lose much.
    """
    if k < ALL_ELIGIBLE_BELOW:
        return 1.0
    share = min(ELIGIBLE, n_subjects / (n_subjects + SUBJECTS_FOR_HALF))
    return share * min(1.0, n_subjects / k)


def choose_balanced(task: Task) -> Choice:
    """Score-optimal within cells of difficulty, in the proportions of the benchmark.

    The allowed items are divided into cells: ``min(10, k // 3)`` strata of proportion correct; from
    100 items on five strata, each with a flat and a steep half by the slope of its `score_curves`.
    Each cell gets its share of the k items, and in each a random part is eligible (see
    `eligible_share`). Of these, the items that most reduce the variance of the full score
    ("score-optimal") are chosen. Weights restore the shares of the cells. The restriction costs
    little accuracy for new subjects like the calibrated ones, and gives a representative subset for
    other subjects, for whom freely chosen items are all too easy or too hard. The criterion is that
    of "score-optimal".

    The items are first allocated to quota groups, and within each in proportion to the items that
    at least half of the subjects answered and the other items. Under a cost budget the size is the
    budget over the mean cost (less if even the cheapest eligible items of the cells cost more), and
    the greedy choice is the better of two, by gain and by gain per cost. If more than a tenth of
    the budget is left, larger sizes are tried and the best is kept.
    """
    limits = task.limits
    if limits.costs is None or not np.isfinite(limits.budget):
        return _chosen_in_cells(task, *_cell_constraints(task, limits.n_items))
    fewest = int(limits.lower.sum())
    mean_cost = float(limits.costs[limits.allowed].mean())
    n = int(min(limits.n_items, max(limits.budget / max(mean_cost, 1e-12) + SLACK, fewest, 1)))
    cell, cells_limits = _cell_constraints(task, n)
    while cells_limits.reserve > limits.budget + SLACK:
        if n <= fewest + 1:  # the quotas alone use the budget
            return choose_robust(task)
        n = max(int(0.9 * n), fewest + 1)
        cell, cells_limits = _cell_constraints(task, n)
    choice = best = _chosen_in_cells(task, cell, cells_limits)
    for _ in range(MOST_ENLARGEMENTS):
        cost = limits.cost(choice.chosen)
        if cost > ENOUGH * limits.budget or n == limits.n_items:
            break
        n = min(limits.n_items, int(np.ceil(n * min(limits.budget / max(cost, 1e-12), 1.5))))
        cell, cells_limits = _cell_constraints(task, n)
        if cells_limits.reserve > limits.budget + SLACK:
            break
        choice = _chosen_in_cells(task, cell, cells_limits)
        best = max(best, choice, key=lambda option: option.criterion.sum())
    return best


def _chosen_in_cells(task: Task, cell: IntArray, limits: Constraints) -> Choice:
    """The score-optimal items within the cells."""
    sigma = GaussianCovariance(task.scores, task.scores.variances)
    chosen, gains = greedy(sigma, limits, task.rng.permutation(len(cell)), progress=task.progress)
    size = np.bincount(cell[cell >= 0], minlength=len(limits.names))
    n_chosen = np.bincount(cell[chosen], minlength=len(limits.names))
    return Choice(chosen, gains, None, (size / np.maximum(n_chosen, 1))[cell[chosen]])


def _cell_constraints(task: Task, n: int) -> tuple[IntArray, Constraints]:
    """Cell of each item, and the constraints for n items in the proportions of the cells."""
    cell, cell_sizes = _cells(task, n)
    n_cells = len(cell_sizes)
    share = eligible_share(n, len(task.scores.centred))
    allowed = np.zeros(len(cell), bool)
    for c in range(n_cells):
        items = np.flatnonzero(cell == c)
        n_eligible = max(np.ceil(share * len(items)), np.ceil(SPARE * cell_sizes[c]))
        allowed[task.rng.permutation(items)[: int(n_eligible)]] = True
    costs = task.limits.costs
    least = np.zeros(n_cells, int) if costs is None else cell_sizes
    return cell, Constraints(
        n_items=int(cell_sizes.sum()),
        allowed=allowed,
        group=np.maximum(cell, 0),
        names=tuple(map(str, range(n_cells))),
        lower=least,
        upper=cell_sizes,
        costs=costs,
        budget=task.limits.budget,
    )


def layout(n: int) -> tuple[int, int]:
    """Number of strata of difficulty, and of parts of each by slope, for n items."""
    if n >= HALVES_FROM:
        return STRATA // 2, 2
    return max(1, min(STRATA, n // ITEMS_A_STRATUM)), 1


def balanced_weights(responses: Responses, item_ids: np.ndarray) -> FloatArray:
    """Weights that sum to 1 and give every stratum of proportion correct its share.

    The number of strata is that of `choose_balanced`; strata without a chosen item are ignored.
    """
    positions = places_of(item_ids, responses.item_ids)
    order = np.argsort(centred_scores(responses).means, kind="stable")
    stratum = np.empty(len(order), int)
    n_strata = layout(len(positions))[0]
    for number, members in enumerate(np.array_split(order, n_strata)):
        stratum[members] = number
    used = np.bincount(stratum[positions], minlength=n_strata)
    weights = (np.bincount(stratum) / np.maximum(used, 1))[stratum[positions]]
    return weights / weights.sum()


def _cells(task: Task, n_items: int) -> tuple[IntArray, IntArray]:
    """Cell of each item (-1: not allowed), and the number of items to choose in each cell."""
    limits = task.limits
    scores = task.scores
    slope: FloatArray = np.ones(len(task.item_ids))
    if n_items >= HALVES_FROM:
        slope = score_curves(np.clip(scores.centred + scores.means, 0, 1), 1.0).slope
    shares = allocate(n_items, limits.sizes, limits.lower, limits.upper)
    # Items that few subjects answered give little information and are seldom chosen; but they may
    # be another kind of item (for example, newer ones), so each kind gets its share.
    rarely_answered = scores.answers < len(scores.centred) / 2
    cell = np.full(len(task.item_ids), -1)
    cell_sizes: list[int] = []
    kinds: list[tuple[IntArray, int]] = []
    for g, n in enumerate(round_at_random(shares, task.rng)):
        in_group = limits.allowed & (limits.group == g)
        common = np.flatnonzero(in_group & ~rarely_answered)
        rare = np.flatnonzero(in_group & rarely_answered)
        n_rare = 0
        if len(rare):
            sizes = np.array([len(common), len(rare)])
            n, n_rare = round_at_random(n * sizes / sizes.sum(), task.rng)
        kinds += [(common, int(n)), (rare, int(n_rare))]
    for items, n in kinds:
        if not len(items) or n == 0:
            continue
        order = items[np.lexsort((task.rng.random(len(items)), scores.means[items]))]
        n_strata, n_parts = layout(n)
        pieces = np.array_split(order, min(n_strata, len(order)))
        if n_parts > 1:
            pieces = [
                half
                for piece in pieces
                for half in np.array_split(piece[np.argsort(slope[piece], kind="stable")], n_parts)
            ]
        sizes = np.array([len(piece) for piece in pieces])
        # Whole numbers near the shares of the pieces, with the same sum.
        edges = np.floor(np.cumsum(n * sizes / sizes.sum()) + 0.5 + 1e-9)
        for piece, m in zip(pieces, np.diff(edges, prepend=0.0), strict=True):
            cell[piece] = len(cell_sizes)
            cell_sizes.append(int(m))
    return cell, np.array(cell_sizes, int)
