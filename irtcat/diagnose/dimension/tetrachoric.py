"""Tetrachoric and polychoric correlations of many pairs of items at once.

Two answers are modelled as two Normal latent responses with correlation r, cut at thresholds.
Thresholds come from the margins of the pair's two-way table, r from the table by maximum
likelihood: for right/wrong items this is the maximum over all three parameters, for more categories
the two-step estimator of Olsson (1979). All pairs are iterated together.
"""

from typing import NamedTuple

import numpy as np
from scipy.special import ndtr, ndtri, owens_t

from irtcat._common.types import BoolArray, FloatArray, IntArray

MAX_THRESHOLD = 9.0
"""Thresholds beyond it are treated as infinite: P = 1e-19."""
MAX_R = 1 - 1e-9
"""Largest |r| of the iterations; estimates at it become 1."""
MAX_STEPS = 100
TOLERANCE = 1e-10
BLOCK = 1 << 19
"""Cells of two-way tables per block, which limits memory."""


class PairCorrelations(NamedTuple):
    """Latent correlations of two-way tables, one entry per pair.

    Attributes:
        r: correlations; NaN if an item is constant in the table, or the table is empty.
        se: standard errors with the thresholds' uncertainty; NaN if r is NaN or +-1.
        constant: whether an item is constant in the table.
        corrected: whether half a subject was added to an empty cell (right/wrong items).
        perfect: whether r is +-1.
    """

    r: FloatArray
    se: FloatArray
    constant: BoolArray
    corrected: BoolArray
    perfect: BoolArray


def normal_pair_below(h: FloatArray, k: FloatArray, r: FloatArray) -> FloatArray:
    """P(X < h, Y < k) of standard Normal X and Y with correlation r, elementwise.

    By Owen's T function, to about 1e-15: ``(Phi(h) + Phi(k)) / 2 - T(h, a) - T(k, b) - 1/2 [h and
    k of opposite signs]``.

    Args:
        h: finite numbers.
        k: finite numbers.
        r: in (-1, 1).

    Example:
        >>> normal_pair_below(np.zeros(2), np.zeros(2), np.array([0.0, 0.5])).round(6).tolist()
        [0.25, 0.333333]

    References:
        Owen (1956), Annals of Mathematical Statistics 27, 1075-1090.
    """
    h, k = (np.where(np.abs(x) < 1e-100, 1e-100, x) for x in (h, k))
    root = np.sqrt((1 - r) * (1 + r))
    t = owens_t(h, (k / h - r) / root) + owens_t(k, (h / k - r) / root)
    opposite = np.where((h < 0) != (k < 0), 0.5, 0.0)
    return np.clip((ndtr(h) + ndtr(k)) / 2 - t - opposite, 0.0, 1.0)


def pair_tables(codes: IntArray, rows: IntArray, columns: IntArray, n_categories: int):
    """Two-way tables of counts of pairs of items, over the subjects who answered both.

    Args:
        codes: subjects x items, categories 0, 1, ...; -1 where missing.
        rows: first item of each pair.
        columns: second item.
        n_categories: K.

    Returns:
        Pairs x K x K.

    Example:
        >>> codes = np.array([[1, 1], [1, 0], [0, 0], [-1, 1]])
        >>> pair_tables(codes, np.array([0]), np.array([1]), 2)[0].tolist()
        [[1.0, 0.0], [1.0, 1.0]]
    """
    # Products of 0/1 matrices: float32 counts exactly up to 2^24 subjects.
    dtype = np.float32 if len(codes) < 2**24 else np.float64
    indicators = [(codes == k).astype(dtype) for k in range(n_categories)]
    out = np.empty((len(rows), n_categories, n_categories))
    for j, first in enumerate(indicators):
        for k, second in enumerate(indicators):
            out[:, j, k] = (first.T @ second)[rows, columns]
    return out


def _corrected(tables: FloatArray, correction: float) -> tuple[FloatArray, BoolArray]:
    """Move part of a subject into a single empty cell of right/wrong tables, with fixed margins."""
    empty = tables == 0
    single = (empty.sum(axis=(1, 2)) == 1) & (correction > 0)
    if tables.shape[1] != 2 or not single.any():
        return tables, np.zeros(len(tables), bool)
    diagonal = empty[:, 0, 0] | empty[:, 1, 1]
    smallest = np.where(empty, np.inf, tables).min(axis=(1, 2))
    move = np.where(diagonal, 1.0, -1.0) * np.minimum(correction, smallest / 2)
    moved = tables + move[:, None, None] * np.array([[1.0, -1.0], [-1.0, 1.0]])
    return np.where(single[:, None, None], moved, tables), single


def _thresholds(margin: FloatArray) -> FloatArray:
    """Thresholds of a standard Normal with these shares and the outer bounds, pairs x (K + 1)."""
    below = np.cumsum(margin, axis=1)
    cuts = np.clip(
        ndtri(np.clip(below[:, :-1] / below[:, -1:], 0, 1)), -MAX_THRESHOLD, MAX_THRESHOLD
    )
    ends = np.full((len(cuts), 1), MAX_THRESHOLD)
    return np.concatenate([-ends, cuts, ends], axis=1)


def _cells(corners: FloatArray) -> FloatArray:
    """Masses between the corners: pairs x (K + 1) x (K + 1) to pairs x K x K."""
    return np.diff(np.diff(corners, axis=1), axis=2)


def _probabilities(h: FloatArray, k: FloatArray, r: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Probabilities of the cells and their derivatives by r."""
    n, size = h.shape
    below = np.zeros((n, size, size))
    below[:, -1, 1:], below[:, 1:, -1] = ndtr(k[:, 1:]), ndtr(h[:, 1:])
    below[:, -1, -1] = 1.0
    slope = np.zeros_like(below)
    if size > 2:
        x, y, rho = h[:, 1:-1, None], k[:, None, 1:-1], r[:, None, None]
        x, y, rho = np.broadcast_arrays(x, y, rho)
        below[:, 1:-1, 1:-1] = normal_pair_below(x, y, rho)
        square = (1 - rho) * (1 + rho)
        power = (x * x - 2 * rho * x * y + y * y) / (2 * square)
        slope[:, 1:-1, 1:-1] = np.exp(-power) / (2 * np.pi * np.sqrt(square))
    return np.maximum(_cells(below), 1e-300), _cells(slope)


def _start(tables: FloatArray) -> FloatArray:
    """Pearson's correlation of the codes, transformed as for thresholds at the median."""
    share = tables / np.maximum(tables.sum(axis=(1, 2)), 1)[:, None, None]
    code = np.arange(tables.shape[1])
    first, second = share.sum(axis=2), share.sum(axis=1)
    mean_1, mean_2 = first @ code, second @ code
    spread = np.sqrt((first @ code**2 - mean_1**2) * (second @ code**2 - mean_2**2))
    covariance = np.einsum("pab,a,b->p", share, code, code) - mean_1 * mean_2
    phi = np.clip(covariance / np.where(spread > 0, spread, 1.0), -1, 1)
    return np.clip(np.sin(np.pi / 2 * phi), -0.95, 0.95)


def _solve(tables: FloatArray, h: FloatArray, k: FloatArray) -> FloatArray:
    """The maximum likelihood r, by Fisher scoring inside a bracket."""
    n = tables.sum(axis=(1, 2))
    low, high = np.full(len(n), -MAX_R), np.full(len(n), MAX_R)
    r = _start(tables)
    active = np.arange(len(n))
    for _ in range(MAX_STEPS):
        p, slope = _probabilities(h[active], k[active], r[active])
        score = (tables[active] * slope / p).sum(axis=(1, 2))
        information = n[active] * (slope**2 / p).sum(axis=(1, 2))
        low[active] = np.where(score > 0, r[active], low[active])
        high[active] = np.where(score > 0, high[active], r[active])
        step = score / np.maximum(information, 1e-300)
        new = r[active] + step
        inside = (new > low[active]) & (new < high[active])
        new = np.where(inside, new, (low[active] + high[active]) / 2)
        done = np.abs(new - r[active]) < TOLERANCE
        r[active] = new
        active = active[~done]
        if not len(active):
            break
    return r


def _errors(tables: FloatArray, h: FloatArray, k: FloatArray, r: FloatArray) -> FloatArray:
    """Standard errors of the two-step estimator, from the influence of each cell.

    psi(cell) = (d log p / dr - sum over thresholds of E[d log p / dr d log p / dt] x the cell's
    influence on t) / E[(d log p / dr)^2]; the thresholds' densities cancel.
    """
    p, slope = _probabilities(h, k, r)
    share = tables / tables.sum(axis=(1, 2), keepdims=True)
    # An unused category has probability 0: its score would be rounding error over rounding error.
    used = (share.sum(axis=2) > 0)[:, :, None] & (share.sum(axis=1) > 0)[:, None, :]
    score = np.where(used, slope / p, 0.0)
    information = (slope * score).sum(axis=(1, 2))
    root = np.sqrt((1 - r) * (1 + r))[:, None, None]
    influence = score
    for axis, thresholds, others in ((1, h, k), (2, k, h)):
        cut, edge = thresholds[:, 1:-1, None], others[:, None, :]
        band = np.diff(ndtr((edge - r[:, None, None] * cut) / root), axis=2)
        oriented = score if axis == 1 else score.transpose(0, 2, 1)
        mixed = (band * (oriented[:, :-1] - oriented[:, 1:])).sum(axis=2)
        below = np.cumsum(share.sum(axis=3 - axis), axis=1)[:, :-1]
        size = share.shape[1]
        is_below = np.arange(size)[None, :] <= np.arange(size - 1)[:, None]
        effect = (mixed[..., None] * (is_below[None] - below[..., None])).sum(axis=1)
        influence = influence - (effect[:, :, None] if axis == 1 else effect[:, None, :])
    spread = (share * influence**2).sum(axis=(1, 2)) / tables.sum(axis=(1, 2))
    return np.sqrt(spread) / information


def _block(tables: FloatArray, correction: float, errors: bool) -> PairCorrelations:
    """`correlate_tables` for one block of tables."""
    n = len(tables)
    r, se = np.full(n, np.nan), np.full(n, np.nan)
    first, second = tables.sum(axis=2), tables.sum(axis=1)
    constant = ((first > 0).sum(axis=1) < 2) | ((second > 0).sum(axis=1) < 2)
    tables, corrected = _corrected(tables, correction)
    perfect = np.zeros(n, bool)
    varying = np.flatnonzero(~constant)
    h, k = _thresholds(first[varying]), _thresholds(second[varying])
    estimates = np.zeros(len(varying))
    if tables.shape[1] == 2:
        t = tables[varying]
        positive = (t[:, 0, 1] == 0) | (t[:, 1, 0] == 0)
        negative = (t[:, 0, 0] == 0) | (t[:, 1, 1] == 0)
        estimates = np.where(positive, 1.0, np.where(negative, -1.0, 0.0))
    inner = estimates == 0
    estimates[inner] = _solve(tables[varying][inner], h[inner], k[inner])
    at_bound = np.abs(estimates) > 1 - 1e-7
    estimates[at_bound] = np.sign(estimates[at_bound])
    r[varying], perfect[varying] = estimates, at_bound
    inner = ~at_bound
    if errors and inner.any():
        se[varying[inner]] = _errors(tables[varying][inner], h[inner], k[inner], estimates[inner])
    return PairCorrelations(r, se, constant, corrected & ~constant, perfect)


def correlate_tables(
    tables: FloatArray, correction: float = 0.5, errors: bool = True
) -> PairCorrelations:
    """Tetrachoric or polychoric correlations of two-way tables of counts.

    Args:
        tables: pairs x K x K counts; may have unused categories.
        correction: share of a subject to move into a single empty cell of a right/wrong table (at
            most half the smallest other cell), with fixed margins. With 0, or two opposite empty
            cells, r is +-1.
        errors: whether to compute standard errors.

    Example:
        >>> result = correlate_tables(np.array([[[40, 10], [10, 40]]]))
        >>> round(float(result.r[0]), 4), round(float(np.sin(2 * np.pi * (0.4 - 0.25))), 4)
        (0.809, 0.809)

    References:
        Olsson (1979), Psychometrika 44, 443-460.
    """
    tables = np.asarray(tables, float)
    size = max(1, BLOCK // tables.shape[1] ** 2)
    starts = range(0, len(tables), size)
    blocks = [_block(tables[start : start + size], correction, errors) for start in starts]
    if not blocks:
        blocks = [_block(tables, correction, errors)]
    return PairCorrelations(*(np.concatenate(values) for values in zip(*blocks, strict=True)))
