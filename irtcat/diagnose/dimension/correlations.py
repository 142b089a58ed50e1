"""Correlations between items: of the latent responses, or of the answers."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from irtcat._common.checks import InputError, argument_error, check_choice, is_number, shorten
from irtcat._common.types import FloatArray, IntArray
from irtcat.diagnose.dimension.tetrachoric import PairCorrelations, correlate_tables, pair_tables
from irtcat.io.convert import ResponsesLike, as_responses_like
from irtcat.responses import Responses

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
    return PairCorrelations(
        r=np.where(perfect, np.sign(r), r),
        se=se,
        constant=np.isnan(r),
        corrected=np.zeros(len(r), bool),
        perfect=perfect,
    )


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
    excluded = np.flatnonzero(reason != "")
    reasons = {str(responses.item_ids[j]): str(reason[j]) for j in excluded}
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
