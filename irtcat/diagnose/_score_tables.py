"""Observed and expected answers to an item at each total score, and how sparse cells are merged."""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from irtcat._types import FloatArray, IntArray

__all__ = ["ScoreTable", "expected_shares", "merged", "score_tables"]

RARE = 0.05
"""Columns of categories with any expected count in fewer rows than this are merged away."""


class ScoreTable(NamedTuple):
    """Answers to one item by total score.

    Attributes:
        scores: lowest total score of each row.
        observed: rows x categories, counts.
        expected: the same under the model; 0 marks a cell that is none.
    """

    scores: IntArray
    observed: FloatArray
    expected: FloatArray

    @property
    def n_cells(self) -> int:
        """Number of cells."""
        return int((self.expected > 0).sum())

    @property
    def df(self) -> int:
        """Cells less rows, whose sums are given."""
        return self.n_cells - len(self.scores)

    @property
    def statistic(self) -> float:
        """Pearson's chi-square."""
        cell = self.expected > 0
        gap = self.observed[cell] - self.expected[cell]
        return float((gap**2 / self.expected[cell]).sum())


def _with_items(dist: FloatArray, items: list[int], p: FloatArray, top: IntArray) -> FloatArray:
    """Score distributions (scores x nodes) after adding items, one at a time."""
    for i in items:
        new = np.zeros((len(dist) + top[i], dist.shape[1]))
        for k in range(top[i] + 1):
            new[k : k + len(dist)] += dist * p[i, :, k]
        dist = new
    return dist


def _rest_scores(
    items: list[int], dist: FloatArray, p: FloatArray, top: IntArray
) -> Iterator[tuple[int, FloatArray]]:
    """For each item the distribution of the score on all others.

    Halving the items makes n log n additions of an item of the n^2 that leaving out each in turn
    would take, and never divides by a probability.
    """
    if len(items) == 1:
        yield items[0], dist
        return
    half = len(items) // 2
    for own, others in ((items[:half], items[half:]), (items[half:], items[:half])):
        yield from _rest_scores(own, _with_items(dist, others, p, top), p, top)


def expected_shares(p: FloatArray, weights: FloatArray, categories: IntArray) -> list[FloatArray]:
    """Share of each category of an item among those with a total score, for all items.

    ``E_ik(s) = sum_q w_q P_ik(q) S^(-i)_{s-k}(q) / sum_q w_q S_s(q)``, S^(-i) the distribution of
    the score on the other items (recursion of Lord & Wingersky).

    Args:
        p: items x nodes x categories.
        weights: of the nodes.
        categories: number of categories of each item.

    Returns:
        For each item scores x its categories; NaN for a category that does not go with the score.
    """
    top = categories - 1
    n_scores = int(top.sum()) + 1
    start = np.ones((1, p.shape[1]))
    out: list[FloatArray] = [np.zeros(0)] * len(p)
    for i, rest in _rest_scores(list(range(len(p))), start, p, top):
        joint = np.full((n_scores, categories[i]), np.nan)
        for k in range(categories[i]):
            joint[k : k + len(rest), k] = rest @ (weights * p[i, :, k])
        total = np.nansum(joint, axis=1, keepdims=True)
        out[i] = joint / np.maximum(total, np.finfo(float).tiny)
    return out


def score_tables(
    values: np.ndarray, shares: list[FloatArray], categories: IntArray
) -> list[ScoreTable]:
    """Each item's table before merging: all scores but the lowest and the highest possible."""
    total = values.sum(axis=1, dtype=np.int64)
    top = int((categories - 1).sum())
    n_with = np.bincount(total, minlength=top + 1)[:, None]
    tables = []
    for i, n_categories in enumerate(categories):
        cell = total * n_categories + values[:, i]
        counts = np.bincount(cell, minlength=(top + 1) * n_categories)
        observed = counts.reshape(top + 1, n_categories).astype(float)
        inner = slice(1, top)
        tables.append(ScoreTable(np.arange(1, top), observed[inner], (shares[i] * n_with)[inner]))
    return tables


def merged(table: ScoreTable, least: float) -> ScoreTable | None:
    """The table with sparse cells merged, in mirt's order; None where no row is left.

    Scores with which not all categories go join the nearest with which they do; scores nobody
    has are left out, scores one subject has join the next. Then categories of a row are merged
    while more than two are left and one is expected fewer than ``least`` times, categories that
    are rare in the whole table are merged, and last neighbouring scores.
    """
    parts = _full_rows(table)
    if parts is None:
        return None
    scores, observed, expected = _shared_scores(*parts)
    if len(scores) == 0:
        return None
    if observed.shape[1] > 2:
        for row in range(len(scores)):
            if (expected[row] < least).any():
                _merge_categories(observed[row], expected[row], least)
        observed, expected = _without_rare(observed, expected, least)
    return _merge_scores(scores, observed, expected, least)


Parts = tuple[IntArray, FloatArray, FloatArray]


def _full_rows(table: ScoreTable) -> Parts | None:
    """Rows at the ends, where some categories cannot be, added to the nearest full row."""
    full = np.flatnonzero(~np.isnan(table.expected).any(axis=1))
    if len(full) == 0:
        return None
    observed, expected = table.observed.copy(), np.nan_to_num(table.expected)
    first, last = full[0], full[-1]
    for counts in (observed, expected):
        counts[first] += counts[:first].sum(axis=0)
        counts[last] += counts[last + 1 :].sum(axis=0)
    keep = slice(first, last + 1)
    return table.scores[keep], observed[keep], expected[keep]


def _shared_scores(scores: IntArray, observed: FloatArray, expected: FloatArray) -> Parts:
    """Without scores that nobody has; those of one subject added to the next."""
    used = observed.sum(axis=1) > 0
    scores, observed, expected = scores[used], observed[used], expected[used]
    keep = np.ones(len(scores), bool)
    for row in range(len(scores) - 1):
        if observed[row].sum() == 1:
            keep[row] = False
            observed[row + 1] += observed[row]
            expected[row + 1] += expected[row]
    scores, observed, expected = scores[keep], observed[keep], expected[keep]
    if len(scores) > 1 and observed[-1].sum() == 1:
        observed[-2] += observed[-1]
        expected[-2] += expected[-1]
        scores, observed, expected = scores[:-1], observed[:-1], expected[:-1]
    return scores, observed, expected


def _merge_categories(observed: FloatArray, expected: FloatArray, least: float) -> None:
    """Merge the least expected category of a row with the lesser neighbour, in place.

    What is left moves to the first columns; 0 marks the columns without a cell.
    """
    o, e = observed.tolist(), expected.tolist()
    while len(e) > 2:
        lowest = min(e)
        at = max(k for k, value in enumerate(e) if value == lowest)
        if at == 0:
            to = 1
        elif at == len(e) - 1:
            to = at - 1
        else:
            to = at - 1 if e[at - 1] <= e[at + 1] else at + 1
        e[to] += e[at]
        o[to] += o[at]
        del e[at], o[at]
        if min(e) >= least:
            break
    observed[:], expected[:] = 0.0, 0.0
    observed[: len(o)], expected[: len(e)] = o, e


def _without_rare(
    observed: FloatArray, expected: FloatArray, least: float
) -> tuple[FloatArray, FloatArray]:
    """Merge columns that are rare in the whole table into the column before."""
    enough = least * np.ceil(0.1 * len(expected))
    while expected.shape[1] > 2 and expected[:, -1].sum() < enough:
        observed, expected = _last_into_previous(observed), _last_into_previous(expected)
    keep = np.ones(expected.shape[1], bool)
    observed, expected = observed.copy(), expected.copy()
    for column in range(expected.shape[1] - 1, 0, -1):
        if (expected[:, column] > 0).mean() < RARE:
            keep[column] = False
            observed[:, column - 1] += observed[:, column]
            expected[:, column - 1] += expected[:, column]
    return observed[:, keep], expected[:, keep]


def _last_into_previous(counts: FloatArray) -> FloatArray:
    counts = counts.copy()
    counts[:, -2] += counts[:, -1]
    return counts[:, :-1]


def _merge_scores(
    scores: IntArray, observed: FloatArray, expected: FloatArray, least: float
) -> ScoreTable:
    """Merge the first score with a sparse cell into the neighbour with fewer subjects."""
    s, o, e = scores.tolist(), list(observed), list(expected)
    sparse = [bool(((row < least) & (row != 0)).any()) for row in e]
    size = [float(row.sum()) for row in o]
    while any(sparse) and len(s) > 1:
        at = sparse.index(True)
        if at == 0:
            to = 1
        elif at == len(s) - 1:
            to = at - 1
        else:
            to = at - 1 if size[at - 1] <= size[at + 1] else at + 1
        o[to], e[to] = o[to] + o[at], e[to] + e[at]
        size[to] += size[at]
        s[to] = min(s[to], s[at])
        sparse[to] = bool(((e[to] < least) & (e[to] != 0)).any())
        for part in (s, o, e, sparse, size):
            del part[at]
    return ScoreTable(np.array(s), np.array(o), np.array(e))
