"""Observed and expected answers to an item at each total score, and merging of sparse cells."""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from irtcat._common.types import FloatArray, IntArray

RARE = 0.05
"""Columns with expected counts in a smaller share of the rows are merged."""


class ItemByScore(NamedTuple):
    """Answers to one item by total score.

    Attributes:
        scores: lowest total score of each row.
        observed: rows x categories, counts.
        expected: counts under the model; 0 marks a merged cell.
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
        """Number of cells minus rows, whose sums are fixed."""
        return self.n_cells - len(self.scores)

    @property
    def statistic(self) -> float:
        """Pearson's chi-square."""
        cell = self.expected > 0
        difference = self.observed[cell] - self.expected[cell]
        return float((difference**2 / self.expected[cell]).sum())


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

    Recursive halving needs n log n additions of an item instead of n^2, and never divides by a
    probability.
    """
    if len(items) == 1:
        yield items[0], dist
        return
    half = len(items) // 2
    for part, others in ((items[:half], items[half:]), (items[half:], items[:half])):
        yield from _rest_scores(part, _with_items(dist, others, p, top), p, top)


def expected_shares(p: FloatArray, weights: FloatArray, categories: IntArray) -> list[FloatArray]:
    """Share of each category of an item among those with a total score, for all items.

    ``E_ik(s) = sum_q w_q P_ik(q) S^(-i)_{s-k}(q) / sum_q w_q S_s(q)``, S^(-i) the distribution of
    the score on the other items (recursion of Lord & Wingersky).

    Args:
        p: items x nodes x categories.
        weights: of the nodes.
        categories: number of categories of each item.

    Returns:
        For each item scores x its categories; NaN for a category that is impossible at the score.
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


def score_information(
    values: np.ndarray, p: FloatArray, slopes: FloatArray, weights: FloatArray, categories: IntArray
) -> FloatArray:
    """Information of the tables by total score on the parameters of their own item.

    ``H_i = sum_s n_s sum_k E'_ik(s) E'_ik(s)' / E_ik(s)``, E the expected shares (see
    `expected_shares`), E' their derivatives by the parameters of item i.

    Args:
        values: complete answers, subjects x items.
        p: items x nodes x categories.
        slopes: derivatives of p, items x params x nodes x categories.
        weights: of the nodes.
        categories: number of categories of each item.

    Returns:
        Items x params x params.
    """
    top = categories - 1
    n_with = np.bincount(values.sum(axis=1, dtype=np.int64), minlength=int(top.sum()) + 1)
    n_params = slopes.shape[1]
    out = np.zeros((len(p), n_params, n_params))
    start = np.ones((1, p.shape[1]))
    for i, rest in _rest_scores(list(range(len(p))), start, p, top):
        joint = np.zeros((len(n_with), categories[i], 1 + n_params))
        for k in range(categories[i]):
            terms = np.column_stack([p[i, :, k], slopes[i, :, :, k].T])
            joint[k : k + len(rest), k] = rest @ (weights[:, None] * terms)
        total = np.maximum(joint[:, :, 0].sum(axis=1), np.finfo(float).tiny)[:, None]
        share = joint[:, :, 0] / total
        slope = joint[:, :, 1:] - share[:, :, None] * joint[:, :, 1:].sum(axis=1, keepdims=True)
        slope = (slope / total[:, None])[1:-1]
        inner = share[1:-1]
        weight = np.where(inner > 0, n_with[1:-1, None] / np.where(inner > 0, inner, 1.0), 0.0)
        out[i] = np.einsum("skp,sk,skq->pq", slope, weight, slope)
    return out


def score_tables(
    values: np.ndarray, shares: list[FloatArray], categories: IntArray
) -> list[ItemByScore]:
    """Each item's table before merging: all scores except the lowest and highest possible."""
    total = values.sum(axis=1, dtype=np.int64)
    top = int((categories - 1).sum())
    n_with = np.bincount(total, minlength=top + 1)[:, None]
    tables = []
    for i, n_categories in enumerate(categories):
        cell = total * n_categories + values[:, i]
        counts = np.bincount(cell, minlength=(top + 1) * n_categories)
        observed = counts.reshape(top + 1, n_categories).astype(float)
        inner = slice(1, top)
        tables.append(ItemByScore(np.arange(1, top), observed[inner], (shares[i] * n_with)[inner]))
    return tables


def merged(table: ItemByScore, least: float) -> ItemByScore | None:
    """The table with sparse cells merged, in mirt's order; None if no row is left.

    Scores at which some categories are impossible join the nearest score at which all are possible;
    scores without subjects are left out, scores of one subject join the next. Then categories of a
    row are merged while more than two are left and one has an expected count below ``least``, then
    rare categories of the whole table, and finally neighbouring scores.
    """
    rows = _full_rows(table)
    if rows is None:
        return None
    scores, observed, expected = _shared_scores(*rows)
    if len(scores) == 0:
        return None
    if observed.shape[1] > 2:
        for row in range(len(scores)):
            if (expected[row] < least).any():
                _merge_categories(observed[row], expected[row], least)
        observed, expected = _without_rare(observed, expected, least)
    return _merge_scores(scores, observed, expected, least)


Rows = tuple[IntArray, FloatArray, FloatArray]


def _full_rows(table: ItemByScore) -> Rows | None:
    """Rows at the ends, where some categories are impossible, added to the nearest full row."""
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


def _shared_scores(scores: IntArray, observed: FloatArray, expected: FloatArray) -> Rows:
    """Drop scores without subjects; add scores of one subject to the next."""
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
    """Merge a row's category with the lowest expected count into its smaller neighbour, in place.

    The remaining cells move to the first columns; 0 marks the columns without a cell.
    """
    o, e = observed.tolist(), expected.tolist()
    while len(e) > 2:
        lowest = min(e)
        source = max(k for k, value in enumerate(e) if value == lowest)
        target = _smaller_neighbour(e, source)
        e[target] += e[source]
        o[target] += o[source]
        del e[source], o[source]
        if min(e) >= least:
            break
    observed[:], expected[:] = 0.0, 0.0
    observed[: len(o)], expected[: len(e)] = o, e


def _smaller_neighbour(sizes: list[float], position: int) -> int:
    """Position of the smaller neighbour in a list; the previous one if equal."""
    if position == 0:
        return 1
    if position == len(sizes) - 1:
        return position - 1
    return position - 1 if sizes[position - 1] <= sizes[position + 1] else position + 1


def _without_rare(
    observed: FloatArray, expected: FloatArray, least: float
) -> tuple[FloatArray, FloatArray]:
    """Merge columns that are rare in the whole table into the previous column."""
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
) -> ItemByScore:
    """Merge the first score with a sparse cell into the neighbour with fewer subjects."""
    s, o, e = scores.tolist(), list(observed), list(expected)
    sparse = [bool(((row < least) & (row != 0)).any()) for row in e]
    size = [float(row.sum()) for row in o]
    while any(sparse) and len(s) > 1:
        source = sparse.index(True)
        target = _smaller_neighbour(size, source)
        o[target], e[target] = o[target] + o[source], e[target] + e[source]
        size[target] += size[source]
        s[target] = min(s[target], s[source])
        sparse[target] = bool(((e[target] < least) & (e[target] != 0)).any())
        for values in (s, o, e, sparse, size):
            del values[source]
    return ItemByScore(np.array(s), np.array(o), np.array(e))
