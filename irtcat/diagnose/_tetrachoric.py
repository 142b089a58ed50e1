"""Tetrachoric and polychoric correlations of many pairs of items at once.

Two answers are seen as two Normal tendencies with correlation r, cut at thresholds. Thresholds
come from the margins of the pair's own two-way table, r from the table by maximum likelihood: for
right/wrong items that is the maximum over all three parameters, for more categories the two-step
estimator of Olsson (1979). All pairs are iterated together.
"""

from typing import NamedTuple

import numpy as np
from scipy.special import ndtr, ndtri, owens_t

from irtcat._types import BoolArray, FloatArray, IntArray

__all__ = ["PairCorrelations", "correlate_tables", "normal_pair_below", "pair_tables"]

FAR = 9.0
"""Thresholds beyond this are as good as infinite: P = 1e-19."""
BOUND = 1 - 1e-9
"""Largest |r| that is iterated to; tables that want more are given 1."""
STEPS = 100
CLOSE = 1e-10
BLOCK = 1 << 19
"""Cells of two-way tables that are worked on at a time."""


class PairCorrelations(NamedTuple):
    """What two-way tables say of the correlation beneath them, a pair an entry.

    Attributes:
        r: correlations; NaN where one of the items is constant in the table, or it is empty.
        se: standard errors, thresholds' uncertainty included; NaN where r is NaN or +-1.
        constant: whether an item is constant in the table.
        corrected: whether half a subject was put into an empty cell (right/wrong items).
        perfect: whether r is +-1, since the table is as regular as if it were.
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
        k: the same.
        r: in (-1, 1).

    Example:
        >>> normal_pair_below(np.zeros(2), np.zeros(2), np.array([0.0, 0.5])).round(6).tolist()
        [0.25, 0.333333]

    References:
        Owen (1956), Annals of Mathematical Statistics 27, 1075-1090.
    """
    h, k = (np.where(np.abs(x) < 1e-100, 1e-100, x) for x in (h, k))
    root = np.sqrt((1 - r) * (1 + r))
    parts = owens_t(h, (k / h - r) / root) + owens_t(k, (h / k - r) / root)
    opposite = np.where((h < 0) != (k < 0), 0.5, 0.0)
    return np.clip((ndtr(h) + ndtr(k)) / 2 - parts - opposite, 0.0, 1.0)


def pair_tables(codes: IntArray, rows: IntArray, columns: IntArray, n_categories: int):
    """Two-way tables of counts of pairs of items, over the subjects who answered both.

    Args:
        codes: subjects x items, categories 0, 1, ...; -1 where missing.
        rows: an item of each pair.
        columns: the other.
        n_categories: K.

    Returns:
        Pairs x K x K.

    Example:
        >>> codes = np.array([[1, 1], [1, 0], [0, 0], [-1, 1]])
        >>> pair_tables(codes, np.array([0]), np.array([1]), 2)[0].tolist()
        [[1.0, 0.0], [1.0, 1.0]]
    """
    # Products of 0/1 matrices: single precision counts exactly up to 2^24 subjects.
    dtype = np.float32 if len(codes) < 2**24 else np.float64
    hot = [(codes == k).astype(dtype) for k in range(n_categories)]
    out = np.empty((len(rows), n_categories, n_categories))
    for a, one in enumerate(hot):
        for b, other in enumerate(hot):
            out[:, a, b] = (one.T @ other)[rows, columns]
    return out


def _corrected(tables: FloatArray, correction: float) -> tuple[FloatArray, BoolArray]:
    """Right/wrong tables with one empty cell: part of a subject moved in, margins kept."""
    empty = tables == 0
    lone = (empty.sum(axis=(1, 2)) == 1) & (correction > 0)
    if tables.shape[1] != 2 or not lone.any():
        return tables, np.zeros(len(tables), bool)
    diagonal = empty[:, 0, 0] | empty[:, 1, 1]
    smallest = np.where(empty, np.inf, tables).min(axis=(1, 2))
    move = np.where(diagonal, 1.0, -1.0) * np.minimum(correction, smallest / 2)
    moved = tables + move[:, None, None] * np.array([[1.0, -1.0], [-1.0, 1.0]])
    return np.where(lone[:, None, None], moved, tables), lone


def _thresholds(margin: FloatArray) -> FloatArray:
    """Cuts of a standard Normal that give these shares, pairs x (K + 1), the outer ones far off."""
    below = np.cumsum(margin, axis=1)
    cuts = np.clip(ndtri(np.clip(below[:, :-1] / below[:, -1:], 0, 1)), -FAR, FAR)
    ends = np.full((len(cuts), 1), FAR)
    return np.concatenate([-ends, cuts, ends], axis=1)


def _cells(corners: FloatArray) -> FloatArray:
    """What is between the corners: pairs x (K + 1) x (K + 1) to pairs x K x K."""
    return np.diff(np.diff(corners, axis=1), axis=2)


def _probabilities(h: FloatArray, k: FloatArray, r: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Probabilities of the cells and their slopes in r."""
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
    """Pearson's correlation of the codes, strengthened as at the middle of the Normal."""
    share = tables / np.maximum(tables.sum(axis=(1, 2)), 1)[:, None, None]
    code = np.arange(tables.shape[1])
    one, two = share.sum(axis=2), share.sum(axis=1)
    mean, other = one @ code, two @ code
    spread = np.sqrt((one @ code**2 - mean**2) * (two @ code**2 - other**2))
    product = np.einsum("pab,a,b->p", share, code, code) - mean * other
    phi = np.clip(product / np.where(spread > 0, spread, 1.0), -1, 1)
    return np.clip(np.sin(np.pi / 2 * phi), -0.95, 0.95)


def _solve(tables: FloatArray, h: FloatArray, k: FloatArray) -> FloatArray:
    """The r at which the likelihood's slope turns negative: Fisher's scoring between bounds."""
    n = tables.sum(axis=(1, 2))
    low, high = np.full(len(n), -BOUND), np.full(len(n), BOUND)
    r = _start(tables)
    left = np.arange(len(n))
    for _ in range(STEPS):
        p, slope = _probabilities(h[left], k[left], r[left])
        score = (tables[left] * slope / p).sum(axis=(1, 2))
        information = n[left] * (slope**2 / p).sum(axis=(1, 2))
        low[left] = np.where(score > 0, r[left], low[left])
        high[left] = np.where(score > 0, high[left], r[left])
        step = score / np.maximum(information, 1e-300)
        new = r[left] + step
        inside = (new > low[left]) & (new < high[left])
        new = np.where(inside, new, (low[left] + high[left]) / 2)
        done = np.abs(new - r[left]) < CLOSE
        r[left] = new
        left = left[~done]
        if not len(left):
            break
    return r


def _errors(tables: FloatArray, h: FloatArray, k: FloatArray, r: FloatArray) -> FloatArray:
    """Standard errors of the two-step estimator, from each cell's influence on it.

    psi(cell) = (d log p / dr - sum over thresholds of E[d log p / dr d log p / dt] x the cell's
    influence on t) / E[(d log p / dr)^2]; the thresholds' densities cancel.
    """
    p, slope = _probabilities(h, k, r)
    share = tables / tables.sum(axis=(1, 2), keepdims=True)
    # A category that does not occur has no width: its score would be rounding over rounding.
    used = (share.sum(axis=2) > 0)[:, :, None] & (share.sum(axis=1) > 0)[:, None, :]
    score = np.where(used, slope / p, 0.0)
    information = (slope * score).sum(axis=(1, 2))
    root = np.sqrt((1 - r) * (1 + r))[:, None, None]
    influence = score
    for axis, own, other in ((1, h, k), (2, k, h)):
        cut, edge = own[:, 1:-1, None], other[:, None, :]
        band = np.diff(ndtr((edge - r[:, None, None] * cut) / root), axis=2)
        turned = score if axis == 1 else score.transpose(0, 2, 1)
        mixed = (band * (turned[:, :-1] - turned[:, 1:])).sum(axis=2)
        below = np.cumsum(share.sum(axis=3 - axis), axis=1)[:, :-1]
        size = share.shape[1]
        reach = (np.arange(size)[None, :] <= np.arange(size - 1)[:, None])[None] - below[..., None]
        along = (mixed[..., None] * reach).sum(axis=1)
        influence = influence - (along[:, :, None] if axis == 1 else along[:, None, :])
    spread = (share * influence**2).sum(axis=(1, 2)) / tables.sum(axis=(1, 2))
    return np.sqrt(spread) / information


def _block(tables: FloatArray, correction: float, errors: bool) -> PairCorrelations:
    """`correlate_tables` of as many tables as fit."""
    n = len(tables)
    r, se = np.full(n, np.nan), np.full(n, np.nan)
    one, two = tables.sum(axis=2), tables.sum(axis=1)
    constant = ((one > 0).sum(axis=1) < 2) | ((two > 0).sum(axis=1) < 2)
    tables, corrected = _corrected(tables, correction)
    perfect = np.zeros(n, bool)
    at = np.flatnonzero(~constant)
    h, k = _thresholds(one[at]), _thresholds(two[at])
    if tables.shape[1] == 2:
        tau = tables[at]
        same = (tau[:, 0, 1] == 0) | (tau[:, 1, 0] == 0)
        other = (tau[:, 0, 0] == 0) | (tau[:, 1, 1] == 0)
        ends = np.where(same, 1.0, np.where(other, -1.0, 0.0))
    else:
        ends = np.zeros(len(at))
    open_ = ends == 0
    found = ends.copy()
    found[open_] = _solve(tables[at][open_], h[open_], k[open_])
    whole = np.abs(found) > 1 - 1e-7
    found[whole] = np.sign(found[whole])
    r[at], perfect[at] = found, whole
    if errors and (~whole).any():
        se[at[~whole]] = _errors(tables[at][~whole], h[~whole], k[~whole], found[~whole])
    return PairCorrelations(r, se, constant, corrected & ~constant, perfect)


def correlate_tables(
    tables: FloatArray, correction: float = 0.5, errors: bool = True
) -> PairCorrelations:
    """Tetrachoric or polychoric correlations of two-way tables of counts.

    Args:
        tables: pairs x K x K counts; categories that do not occur may be among them.
        correction: how much of a subject is moved into the one empty cell of a right/wrong table
            (half the smallest other cell at most), the margins kept. Where two opposite cells are
            empty, or with 0, r is +-1.
        errors: whether standard errors are wanted.

    Example:
        >>> found = correlate_tables(np.array([[[40, 10], [10, 40]]]))
        >>> round(float(found.r[0]), 4), round(float(np.sin(2 * np.pi * (0.4 - 0.25))), 4)
        (0.809, 0.809)

    References:
        Olsson (1979), Psychometrika 44, 443-460.
    """
    tables = np.asarray(tables, float)
    size = max(1, BLOCK // tables.shape[1] ** 2)
    starts = range(0, len(tables), size)
    parts = [_block(tables[at : at + size], correction, errors) for at in starts]
    if not parts:
        parts = [_block(tables, correction, errors)]
    return PairCorrelations(*(np.concatenate(values) for values in zip(*parts, strict=True)))
