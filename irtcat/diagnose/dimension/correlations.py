"""Correlations between items: of the latent responses, or of the answers.

Tetrachoric and polychoric correlations are of many pairs at once.
Two answers are modelled as two Normal latent responses with correlation r, cut at thresholds.
Thresholds come from the margins of the pair's two-way table, r from the table by maximum
likelihood: for right/wrong items this is the maximum over all three parameters, for more categories
the two-step estimator of Olsson (1979). All pairs are iterated together.
"""

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from scipy.special import ndtr, ndtri, owens_t

from irtcat._common.checks import InputError, argument_error, check_choice, is_number, shorten
from irtcat._common.types import BoolArray, FloatArray, IntArray
from irtcat.io.convert import ResponsesLike, as_responses_like
from irtcat.responses import Responses

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


KINDS = ("auto", "tetrachoric", "polychoric", "pearson")
FLOOR = 1e-6
"""Smallest eigenvalue of a smoothed matrix."""


@dataclass(frozen=True, eq=False)
class Correlations:
    """Correlations between items, with their standard errors.

    Attributes:
        matrix: items x items, positive definite if ``smoothed``; only items with a correlation
            with every other item.
        raw: the matrix before smoothing.
        se: standard errors of ``raw`` (with the thresholds' uncertainty); NaN for +-1.
        n_pairs: subjects who answered both items; on the diagonal, who answered the item.
        kind: "tetrachoric", "polychoric" or "pearson".
        smoothed: whether ``matrix`` differs from ``raw``.
        excluded: item id -> reason for its exclusion.
        pairs: one row per pair: n, r, se, flag ("half a subject added" if one cell of the
            two-way table was empty, "perfect" if r is +-1).
    """

    matrix: pd.DataFrame
    raw: pd.DataFrame
    se: pd.DataFrame
    n_pairs: pd.DataFrame
    kind: str
    smoothed: bool
    excluded: dict[str, str]
    pairs: pd.DataFrame

    @property
    def eigenvalues(self) -> FloatArray:
        """Eigenvalues of ``raw``, largest first (some are negative if it was smoothed)."""
        return np.linalg.eigvalsh(self.raw.to_numpy())[::-1]

    def to_frame(self) -> pd.DataFrame:
        """The pairs as a table, indexed by both items."""
        return self.pairs.copy()

    def __repr__(self) -> str:
        note = ", smoothed" if self.smoothed else ""
        out = f", {len(self.excluded)} excluded" if self.excluded else ""
        return f"Correlations({self.kind}, {len(self.raw)} items{out}{note})"


def nearest_correlation(matrix: Any, floor: float = FLOOR) -> FloatArray:
    """The correlation matrix nearest to a symmetric one, all eigenvalues at ``floor`` or above.

    Alternating projections, with Dykstra's correction, onto the positive semidefinite matrices and
    onto those with unit diagonal.

    Args:
        matrix: symmetric, finite, 1 on the diagonal.
        floor: smallest eigenvalue of the result, above 0 and below 1.

    Raises:
        InputError: for another matrix or floor.

    Example:
        >>> odd = np.array([[1, 0.9, 0.1], [0.9, 1, 0.9], [0.1, 0.9, 1]])
        >>> nearest_correlation(odd).round(3).tolist()
        [[1.0, 0.77, 0.185], [0.77, 1.0, 0.77], [0.185, 0.77, 1.0]]

    References:
        Higham (2002), IMA Journal of Numerical Analysis 22, 329-343.
    """
    try:
        nearest = np.array(matrix, float)
    except (TypeError, ValueError):
        nearest = np.zeros(0)
    is_square = nearest.ndim == 2 and nearest.shape == nearest.T.shape and nearest.size > 0
    is_usable = is_square and np.isfinite(nearest).all() and np.allclose(nearest, nearest.T)
    if not (is_usable and np.allclose(np.diagonal(nearest), 1)):
        must = "a symmetric matrix of finite numbers, 1 on the diagonal"
        raise argument_error("matrix", must, matrix)
    if not (is_number(floor) and 0 < floor < 1):
        raise argument_error("floor", "a number above 0 and below 1", floor)
    correction = np.zeros_like(nearest)
    for _ in range(200):
        shifted = nearest - correction
        clipped = _clipped(shifted, floor)
        correction, previous = clipped - shifted, nearest
        nearest = clipped.copy()
        np.fill_diagonal(nearest, 1.0)
        if np.abs(nearest - previous).max() < 1e-9:
            break
    # The last projection may leave an eigenvalue a little below the floor.
    out = _clipped(nearest, floor)
    scale = 1 / np.sqrt(np.diagonal(out))
    out = out * np.outer(scale, scale)
    np.fill_diagonal(out, 1.0)
    return (out + out.T) / 2


def _clipped(matrix: FloatArray, floor: float) -> FloatArray:
    """The nearest symmetric matrix with all eigenvalues at the floor or above."""
    values, vectors = np.linalg.eigh(matrix)
    return (vectors * np.maximum(values, floor)) @ vectors.T


def checked(responses: Any, kind: str = "auto") -> tuple[Responses, str]:
    """The responses, and the kind of correlation of their codes."""
    responses = as_responses_like(responses, "responses")
    check_choice("kind", kind, KINDS)
    if kind == "auto":
        kind = "tetrachoric" if responses.n_categories == 2 else "polychoric"
    if responses.is_fractional and kind != "pearson":
        raise argument_error("responses", "in categories", responses.kind, 'Use kind="pearson".')
    if kind == "tetrachoric" and responses.n_categories != 2:
        advice = 'Use kind="polychoric".'
        raise argument_error("responses", "right/wrong for tetrachorics", responses.kind, advice)
    return responses, kind


def _pearson(values: np.ndarray, rows: IntArray, columns: IntArray) -> PairCorrelations:
    """Pearson's correlation of the codes or fractions of each pair, over shared subjects."""
    observed = (values >= 0) if values.dtype.kind != "f" else ~np.isnan(values)
    mask = observed.astype(float)
    x = np.where(observed, values, 0).astype(float)
    centre = x.sum(axis=0) / np.maximum(mask.sum(axis=0), 1)
    x = np.where(observed, x - centre, 0.0)  # keeps the digits of sums of squares
    n = np.maximum(mask.T @ mask, 1)
    first, second = x.T @ mask / n, (x * x).T @ mask / n
    spread = second - first**2
    spread = np.where(spread > 1e-12 * np.maximum(second, 1e-300), spread, 0.0)
    product = x.T @ x / n - first * first.T
    scale = np.sqrt(spread * spread.T)
    with np.errstate(invalid="ignore", divide="ignore"):
        r = np.where(scale > 0, np.clip(product / scale, -1, 1), np.nan)[rows, columns]
    perfect = np.abs(r) > 1 - 1e-12
    se = np.where(perfect, np.nan, (1 - r**2) / np.sqrt(np.maximum(n[rows, columns] - 1, 1)))
    nothing, whole = np.zeros(len(r), bool), np.where(perfect, np.sign(r), r)
    return PairCorrelations(whole, se, np.isnan(r), nothing, perfect)


def correlate_codes(
    codes: np.ndarray, kind: str, n_categories: int, correction: float, errors: bool = True
) -> PairCorrelations:
    """Correlations of all pairs of columns, in the order of ``np.triu_indices(n, 1)``."""
    rows, columns = np.triu_indices(codes.shape[1], 1)
    if kind == "pearson":
        return _pearson(codes, rows, columns)
    return correlate_tables(pair_tables(codes, rows, columns, n_categories), correction, errors)


def square(values: FloatArray, n: int, diagonal: float = 1.0) -> FloatArray:
    """The symmetric matrix with these values above its diagonal."""
    out = np.full((n, n), diagonal)
    rows, columns = np.triu_indices(n, 1)
    out[rows, columns] = out[columns, rows] = values
    return out


def _complete(matrix: FloatArray, ids: np.ndarray) -> tuple[np.ndarray, dict[str, str]]:
    """Items with a correlation with every other; excludes those with most missing ones first."""
    kept = np.arange(len(ids))
    excluded: dict[str, str] = {}
    while True:
        n_missing = np.isnan(matrix[np.ix_(kept, kept)]).sum(axis=1)
        if not len(kept) or not n_missing.any():
            return kept, excluded
        worst = kept[int(n_missing.argmax())]
        reason = f"no correlation with {n_missing.max()} of {len(kept) - 1} items"
        excluded[str(ids[worst])] = reason
        kept = kept[kept != worst]


def correlations(
    responses: ResponsesLike, kind: str = "auto", *, correction: float = 0.5, smooth: bool = True
) -> Correlations:
    """Correlations of all pairs of items.

    Tetrachoric (right/wrong) and polychoric (categories) correlations are those of the Normal
    latent responses: thresholds from the margins of the pair's two-way table, then r by maximum
    likelihood, for all pairs at once.

    A pair's table counts the subjects who answered both; missing answers are left out. If one
    cell of a right/wrong table is empty, up to half a subject is moved into it, with fixed margins
    (r would be +-1); if two opposite cells are empty (equal items), r is +-1. Empty cells of larger
    tables stay. Items with only one answer, or without a correlation with some item (nobody
    answered both, or an item is constant among those who did), are left out and listed in
    ``excluded``. Pairwise correlations may be inconsistent: a matrix with an eigenvalue below 1e-6
    is replaced by the nearest correlation matrix (Higham 2002) and marked ``smoothed``.

    Args:
        responses: at least 2 items that are not constant.
        kind: "tetrachoric", "polychoric", "pearson" (of codes or fractions), or "auto" for one of
            the first two, by the responses.
        correction: share of a subject to move, from 0 (r is then +-1) to 0.5.
        smooth: whether to make the matrix positive definite.

    Returns:
        The correlations.

    Raises:
        InputError: for fractions (except with "pearson"), or fewer than two items to correlate.

    Example:
        >>> from irtcat.responses.datasets import load
        >>> correlations(load("lsat7")).matrix.round(2).iloc[0].tolist()
        [1.0, 0.23, 0.29, 0.3, 0.29]

    References:
        Olsson (1979), Psychometrika 44, 443-460; Brown & Benedetti (1977), Psychometrika 42,
        347-355 (empty cells).
    """
    responses, kind = checked(responses, kind)
    codes = responses.values
    if not is_number(correction) or not 0 <= correction <= 0.5:
        raise argument_error("correction", "a number from 0 to 0.5", correction)
    ids = responses.item_ids
    varying, excluded = _varying(responses)
    if len(varying) < 2:
        raise InputError(
            "The `responses` argument must have at least 2 items with different answers. "
            f"Got {len(varying)} ({shorten(list(excluded))} left out)."
        )
    estimates = correlate_codes(codes[:, varying], kind, responses.n_categories, correction)
    n = len(varying)
    raw, se = square(estimates.r, n), square(estimates.se, n, 0.0)
    observed = responses.observed[:, varying].astype(float)
    n_both = observed.T @ observed
    pairs = _pair_table(estimates, n_both, ids[varying])
    kept, incomplete = _complete(raw, ids[varying])
    if len(kept) < 2:
        advice = "Nobody answered two items of which both have different answers."
        raise argument_error("responses", "of 2 items that correlate", f"{len(kept)}", advice)
    raw, se, n_both = (m[np.ix_(kept, kept)] for m in (raw, se, n_both))
    smoothed = smooth and bool(np.linalg.eigvalsh(raw)[0] < FLOOR)
    names = ids[varying][kept]

    def frame(matrix: np.ndarray) -> pd.DataFrame:
        return pd.DataFrame(matrix, index=pd.Index(names, name="item"), columns=names)

    return Correlations(
        matrix=frame(nearest_correlation(raw) if smoothed else raw.copy()),
        raw=frame(raw),
        se=frame(se),
        n_pairs=frame(n_both.astype(int)),
        kind=kind,
        smoothed=smoothed,
        excluded={**excluded, **incomplete},
        pairs=pairs,
    )


def _varying(responses: Responses) -> tuple[np.ndarray, dict[str, str]]:
    """Positions of items with different answers, and reasons for excluding the others."""
    values = responses.to_numpy()
    low = np.fmin.reduce(values, axis=0, initial=np.inf)
    high = np.fmax.reduce(values, axis=0, initial=-np.inf)
    reason = np.where(low > high, "no answers", np.where(low == high, "constant", ""))
    reasons = {str(responses.item_ids[j]): str(reason[j]) for j in np.flatnonzero(reason != "")}
    return np.flatnonzero(reason == ""), reasons


def _pair_table(estimates: PairCorrelations, n: FloatArray, ids: np.ndarray) -> pd.DataFrame:
    """The pairs as a table."""
    rows, columns = np.triu_indices(len(ids), 1)
    flags = np.full(len(rows), "", dtype=object)
    flags[estimates.corrected] = "half a subject added"
    flags[estimates.perfect] = "perfect"
    flags[estimates.constant] = "an item is constant here"
    flags[n[rows, columns] == 0] = "nobody answered both"
    index = pd.MultiIndex.from_arrays([ids[rows], ids[columns]], names=["item", "other"])
    counts = n[rows, columns].astype(int)
    table = {"n": counts, "r": estimates.r, "se": estimates.se, "flag": flags}
    return pd.DataFrame(table, index=index)
