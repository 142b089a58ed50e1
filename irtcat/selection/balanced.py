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
HALVES_FROM = 200
MOST_SAMPLED, SAMPLED_FROM = 0.2, 20


def sampled_share(k: int) -> float:
    """Share of the items that is drawn: none below 20 items, a fifth from 100 on.

    The bias of a picked sample does not shrink with k as its sampling error does.
    """
    return 0.0 if k < SAMPLED_FROM else MOST_SAMPLED * min(1.0, float(np.sqrt(k / 100)))


def choose_balanced(task: Task) -> Choice:
    """Score-optimal within cells of difficulty that are represented as in the benchmark.

    The allowed items are cut into ``min(10, k // 3)`` strata of proportion correct (from 200 items
    on each into a flat and a steep half by the slope of its `score_curves`), and each cell gets its
    share of the k places. All but a fifth (see `sampled_share`) go to the items that most reduce
    the variance of the full score ("score-optimal"); the rest is drawn within the cells. Weights
    restore the cells' shares. Picking in cells costs little where a new subject resembles the
    calibrated ones, and leaves a fair sample for one that does not, where freely picked items
    are all too easy or too hard. The criterion is that of "score-optimal", NaN for drawn items.

    Places are shared out over quota groups first. Under costs this is "robust".
    """
    if task.limits.costs is not None:
        return choose_robust(task)
    cell, places = _cells(task)
    n_cells = len(places)
    share = sampled_share(task.limits.k)
    drawn = np.zeros(n_cells, int)
    if share > 0:
        drawn = np.minimum(round_at_random(places * share, task.rng), places)
    picked = places - drawn
    allowed = task.limits.allowed & (cell >= 0)
    first = Constraints(
        int(picked.sum()), allowed, np.maximum(cell, 0), tuple(map(str, range(n_cells))),
        np.zeros(n_cells, int), picked,
    )  # fmt: skip
    filler = task.rng.permutation(len(cell))
    ledger, gains = grow(lambda: by_score(task), first, filler)
    chosen, criterion = np.array(ledger.chosen, int), gains
    left = allowed.copy()
    left[chosen] = False
    sample = [
        task.rng.permutation(np.flatnonzero(left & (cell == c)))[: drawn[c]] for c in range(n_cells)
    ]
    chosen = np.concatenate([chosen, *sample]).astype(int)
    criterion = np.concatenate([criterion, np.full(drawn.sum(), np.nan)])
    size, used = (np.bincount(cell[at], minlength=n_cells) for at in (allowed, chosen))
    return Choice(chosen, criterion, None, (size / np.maximum(used, 1))[cell[chosen]])


def balanced_weights(responses: Responses, item_ids: np.ndarray) -> FloatArray:
    """Weights, summing to 1, that give every stratum of proportion correct its share.

    As many strata as `choose_balanced` has; those without a chosen item leave their share to the
    others.
    """
    index = pd.Index(np.asarray(responses.item_ids, dtype=str))
    at = index.get_indexer(pd.Index(item_ids))
    order = np.argsort(centred_scores(responses).means, kind="stable")
    stratum = np.empty(len(order), int)
    n_strata = max(1, min(STRATA, len(at) // ITEMS_A_STRATUM))
    for number, part in enumerate(np.array_split(order, n_strata)):
        stratum[part] = number
    used = np.bincount(stratum[at], minlength=n_strata)
    weights = (np.bincount(stratum) / np.maximum(used, 1))[stratum[at]]
    return weights / weights.sum()


def _cells(task: Task) -> tuple[IntArray, IntArray]:
    """Cell of each item (-1: not allowed), and the places of each cell."""
    limits = task.limits
    scores = task.scores
    slope: FloatArray = np.ones(len(task.item_ids))
    if limits.k >= HALVES_FROM:
        slope = score_curves(np.clip(scores.centred + scores.means, 0, 1), 1.0).slope
    shares = allocate(limits.k, limits.sizes, limits.lower, limits.upper)
    cell = np.full(len(task.item_ids), -1)
    places: list[int] = []
    for g, n in enumerate(round_at_random(shares, task.rng)):
        items = np.flatnonzero(limits.allowed & (limits.group == g))
        if not len(items) or n == 0:
            continue
        tie = task.rng.random(len(items))
        order = items[np.lexsort((tie, scores.means[items]))]
        parts = np.array_split(order, max(1, min(STRATA, n // ITEMS_A_STRATUM, len(order))))
        if n >= HALVES_FROM:
            parts = [
                half for part in parts
                for half in np.array_split(part[np.argsort(slope[part], kind="stable")], 2)
            ]  # fmt: skip
        sizes = np.array([len(part) for part in parts])
        for part, own in zip(parts, _rounded(n * sizes / sizes.sum()), strict=True):
            cell[part] = len(places)
            places.append(own)
    return cell, np.array(places, int)


def _rounded(shares: FloatArray) -> IntArray:
    """Whole numbers near the shares with their sum."""
    edges = np.floor(np.cumsum(shares) + 0.5 + 1e-9)
    return np.diff(edges, prepend=0.0).astype(int)
