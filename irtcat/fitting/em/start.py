"""First guesses of abilities and item parameters, from sums over the response matrix."""

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array
from scipy.special import ndtri

from irtcat._common.compilation import jit
from irtcat._common.types import BoolArray, FloatArray
from irtcat.fitting.specification import Specification
from irtcat.latent import ResponseRows
from irtcat.models import (
    ItemModel,
    field_columns,
    free_parameters,
    parameter_matrix,
    tied_parameters,
    unpack_counts,
)

JITTER, SIGN_CHANGES = 0.7, 0.1
"""SD of the random changes of a further start, and the share of slopes that change their sign."""

ROUNDING = 1e-9
"""Relative difference of sums that is only rounding."""

SMALL = 2**21
"""Up to this many responses the sums are computed on the host."""


class Sums(NamedTuple):
    """Products of the responses and of the mask with two vectors from the left and from the right.

    ``by_item`` and ``mask_by_item`` are (two, items), the others (subjects, two).
    """

    by_item: Any
    mask_by_item: Any
    by_subject: Any
    mask_by_subject: Any


class Start(NamedTuple):
    """Starting values of a fit, and the counts that its priors depend on.

    Attributes:
        params: unconstrained item parameters.
        mean: first guess of each subject's ability (standardised scale).
        sd: first guess of its posterior SD.
        item_right: sum of each item's points (number right).
        item_n: number of responses of each item (of trials, where those are counted).
        subject_n: number of responses of each subject.
        counts: number of responses in each category, categories x items; of fractions, of the
            scores below, equal to and above the median.
    """

    params: FloatArray
    mean: FloatArray
    sd: FloatArray
    item_right: FloatArray
    item_n: FloatArray
    subject_n: FloatArray
    counts: FloatArray

    @property
    def constant(self) -> BoolArray:
        """Items without responses, or with equal ones (survey weights have sums with rounding)."""
        return self.counts.max(0) >= self.item_n * (1 - ROUNDING)


@functools.partial(jit, static_argnames=("has_missing",))
def cross_sums(
    x: Array, top: Array, rows: Array, left: Array, right: Array, has_missing: bool
) -> Sums:
    """Multiply points and mask by ``left`` (two, subjects) and ``right`` (items, two).

    Points are the responses as shares of the highest of each item (``top``).
    """
    n_subjects, n_items = x.shape
    dtype = left.dtype
    scaled = right / top[:, None]

    def body(carry: Sums, rows: Array) -> tuple[Sums, None]:
        safe = jnp.minimum(rows, n_subjects - 1)
        points, mask = _points(x[safe], has_missing, dtype)
        weight = jnp.where(rows < n_subjects, left[:, safe], 0)
        if mask is None:  # nothing is missing: the sums of the mask need no products
            by_item, by_subject = weight.sum(1)[:, None], right.sum(0)
        else:
            by_item, by_subject = weight @ mask, mask @ right
        return Sums(
            carry.by_item + weight @ points,
            carry.mask_by_item + by_item,
            carry.by_subject.at[rows].set(points @ scaled, mode="drop"),
            carry.mask_by_subject.at[rows].set(by_subject, mode="drop"),
        ), None

    per_item, per_subject = jnp.zeros((2, n_items), dtype), jnp.zeros((n_subjects, 2), dtype)
    empty = Sums(per_item, per_item, per_subject, per_subject)
    out = jax.lax.scan(body, empty, rows)[0]
    return out._replace(by_item=out.by_item / top)


def points_of(x: np.ndarray, categories: np.ndarray) -> tuple[FloatArray, FloatArray]:
    """Responses as shares of each item's highest (0 where missing), and the mask of responses.

    Counts are numbers of right trials and of all trials.
    """
    if x.dtype == np.int32:
        points, mask = (array.astype(float) for array in unpack_counts(x))
        return points, mask
    observed = ~np.isnan(x) if x.dtype.kind == "f" else x >= 0
    if observed.all():
        return x / (categories - 1.0), np.broadcast_to(1.0, x.shape)
    return np.where(observed, x, 0) / (categories - 1.0), observed.astype(float)


def _host_sums(
    x: np.ndarray, categories: np.ndarray, has_missing: bool
) -> Callable[[FloatArray, FloatArray], Sums]:
    """`cross_sums` in numpy: on small data compilation would take longer than all other work."""
    points, mask = points_of(x, categories)

    def sums(left: FloatArray, right: FloatArray) -> Sums:
        if has_missing:
            return Sums(left @ points, left @ mask, points @ right, mask @ right)
        by_item = np.repeat(left.sum(1)[:, None], x.shape[1], axis=1)
        by_subject = np.repeat(right.sum(0)[None], len(x), axis=0)
        return Sums(left @ points, by_item, points @ right, by_subject)

    return sums


def _points(x: Array, has_missing: bool, dtype: np.dtype) -> tuple[Array, Array | None]:
    """Responses as numbers (0 where missing), and the mask of responses (None: complete).

    Counts are numbers of right trials and of all trials.
    """
    if x.dtype == jnp.int32:
        k, n = unpack_counts(x)
        return k.astype(dtype), n.astype(dtype)
    if jnp.issubdtype(x.dtype, jnp.floating):
        mask = ~jnp.isnan(x)
        return jnp.where(mask, x, 0).astype(dtype), mask.astype(dtype) if has_missing else None
    if not has_missing:
        return x.astype(dtype), None
    return jnp.maximum(x, 0).astype(dtype), (x >= 0).astype(dtype)


@functools.partial(jit, static_argnames=("n_categories",))
def category_counts(x: Array, weights: Array, rows: Array, n_categories: int) -> Array:
    """Number of subjects in each category, categories x items."""
    n_subjects, n_items = x.shape

    def body(carry: Array, rows: Array) -> tuple[Array, None]:
        block = x[jnp.minimum(rows, n_subjects - 1)]
        weight = jnp.where(rows < n_subjects, weights[jnp.minimum(rows, n_subjects - 1)], 0)
        statistics = [weight @ (block == k).astype(weights.dtype) for k in range(n_categories)]
        return carry + jnp.stack(statistics), None

    return jax.lax.scan(body, jnp.zeros((n_categories, n_items), weights.dtype), rows)[0]


def _biserial_slopes(
    cross: FloatArray, mean: FloatArray, variance: FloatArray, share: FloatArray
) -> FloatArray:
    """Slope of a logistic curve from the biserial correlation of responses with abilities."""
    share = np.clip(share, 0.002, 0.998)
    point = (cross - share * mean) / np.sqrt(np.maximum(variance * share * (1 - share), 1e-12))
    height = np.exp(-0.5 * ndtri(share) ** 2) / np.sqrt(2 * np.pi)
    biserial = np.clip(point * np.sqrt(share * (1 - share)) / height, -0.92, 0.92)
    slope = 1.7 * biserial / np.sqrt(1 - biserial**2)
    return np.where(np.abs(slope) < 0.2, np.where(slope < 0, -0.2, 0.2), slope)


def starting_point(
    template: ItemModel,
    rows: ResponseRows,
    dtype: np.dtype,
    positive: bool,
    categories: np.ndarray,
    engine: Any = None,
    direction: FloatArray | None = None,
    pattern: FloatArray | None = None,
) -> Start:
    """Guess abilities by the rank of the score, corrected for the items answered; then the items.

    Args:
        template: the items.
        rows: the responses, with row numbers in blocks; without both where ``engine`` has them.
        dtype: working precision.
        positive: whether all slopes start above 0.
        categories: number of categories of each item.
        engine: runs the passes over the responses, where they are not in memory.
        direction: weight of each item in that score; 1 by default.
        pattern: items x abilities, 1 where an item measures an ability, where there are several.

    Returns:
        The starting point, in float64.
    """
    top = np.asarray(categories - 1, dtype)
    x, weights, has_missing = rows.x, np.asarray(rows.weights), rows.has_missing
    host = None
    if x is not None and x.size <= SMALL:
        is_masked = has_missing or x.dtype == np.int32  # counts have numbers of trials
        host = _host_sums(np.asarray(x), categories, is_masked)

    def sums(left: FloatArray, right: FloatArray) -> Sums:
        if host is not None:
            return host(left, right)
        vectors = np.asarray(left, dtype), np.asarray(right, dtype)
        if engine is None:
            out = cross_sums(x, top, rows.layout, *vectors, has_missing=has_missing)
        else:
            out = engine.cross_sums(top, *vectors)
        return Sums(*(np.asarray(array, np.float64) for array in out))

    n_items = len(categories)
    item_weights = np.ones(n_items) if direction is None else direction
    first = sums(np.stack([weights, weights]), np.stack([np.ones(n_items), item_weights], -1))
    item_right, item_n = first.by_item[0], first.mask_by_item[0]
    share = (item_right + 0.5) / (item_n + 1)
    spread = share * (1 - share)
    if has_missing or "trials" in template.fixed:
        shares = np.stack([item_weights * share, item_weights**2 * spread], -1)
        second = sums(np.stack([weights, weights]), shares)
        expected, variance = second.mask_by_subject.T
    else:
        expected, variance = (item_weights * share).sum(), (item_weights**2 * spread).sum()
    score = (first.by_subject[:, 1] - expected) / np.sqrt(np.maximum(variance, 1e-6))
    used = weights > 0
    theta = np.zeros(len(score))
    _, rank, count = np.unique(score[used], return_inverse=True, return_counts=True)
    middle = np.cumsum(count) - 0.5 * count  # of the ranks that equal scores share, less 1/2
    theta[used] = ndtri(middle[rank] / used.sum())
    third = sums(np.stack([weights * theta, weights * theta**2]), np.stack([spread, spread], -1))
    n = np.maximum(item_n, 1)
    mean = third.mask_by_item[0] / n
    ability_variance = third.mask_by_item[1] / n - mean**2
    slope = _biserial_slopes(third.by_item[0] / n, mean, ability_variance, share)
    if positive:
        slope = np.maximum(slope, 0.2)
    if template.is_density:
        counts, square = _fraction_counts(np.asarray(x))
        shares = np.stack([1 - share, share, square])
    else:
        counts = _counts(rows, dtype, categories, item_right, item_n, engine)
        used = np.arange(len(counts))[:, None] < categories
        shares = np.where(used, counts + 1 / categories, 0) / (item_n + 1)
    slopes = slope
    if pattern is not None:
        slopes = slope[:, None] * pattern / np.sqrt(np.maximum(pattern.sum(1, keepdims=True), 1))
    params = parameter_matrix(template.start(shares.T, slopes))
    # A subject's sum of p (1 - p) is below its number right, and below its number wrong.
    right, n_answered = first.by_subject[:, 0], first.mask_by_subject[:, 0]
    spreads = np.minimum(third.mask_by_subject[:, 0], np.minimum(right, n_answered - right))
    information = np.maximum(spreads, 0) * float(np.clip(np.median(slope) ** 2, 0.2, 4.0))
    return Start(
        params=np.asarray(params, np.float64),
        mean=theta,
        sd=1 / np.sqrt(1 + information),
        item_right=item_right,
        item_n=item_n,
        subject_n=first.mask_by_subject[:, 0],
        counts=counts,
    )


def jittered(
    params: FloatArray, template: ItemModel, specification: Specification[Any]
) -> FloatArray:
    """First guesses with random changes by seed and number of the start; start 0 is unchanged.

    Slopes are multiplied by a lognormal factor, some change their sign where allowed, and a Normal
    number is added to every other parameter of an item.
    """
    if specification.start == 0:
        return params
    rng = np.random.default_rng([specification.solver.seed, specification.start])
    factor = np.exp(JITTER * rng.standard_normal(params.shape))
    sign_change = rng.random(params.shape) < SIGN_CHANGES
    move = np.where(free_parameters(template), JITTER * rng.standard_normal(params.shape), 0.0)
    slopes = list(field_columns(template, ["slope"]))
    moved = params + move
    moved[:, slopes] = params[:, slopes] * factor[:, slopes]
    if not specification.positive:
        moved[:, slopes] *= np.where(sign_change[:, slopes], -1.0, 1.0)
    tied = field_columns(template, tied_parameters(template))
    moved[:, list(tied)] = params[:, list(tied)] * factor[0, list(tied)]
    return moved


def further_start(start: Start, template: ItemModel, specification: Specification[Any]) -> Start:
    """The start with this number: other parameters, and abilities with SD 1."""
    if specification.start == 0:
        return start
    params = jittered(start.params, template, specification)
    return start._replace(params=params, sd=np.ones_like(start.sd))


def _fraction_counts(x: np.ndarray) -> tuple[FloatArray, FloatArray]:
    """Scores below, equal to and above the median, three x items; and the mean square.

    Where almost all scores are equal, the median is that score.
    """
    n_items = x.shape[1]
    counts, square = np.zeros((3, n_items)), np.zeros(n_items)
    width = max(1, 4_000_000 // len(x))
    for start in range(0, n_items, width):
        scores = np.sort(x[:, start : start + width], axis=0)  # NaN comes last
        n = (~np.isnan(scores)).sum(axis=0)
        middle = np.take_along_axis(scores, np.maximum(n - 1, 0)[None] // 2, axis=0)
        at = slice(start, start + width)
        counts[:, at] = [
            (scores < middle).sum(0),
            (scores == middle).sum(0),
            (scores > middle).sum(0),
        ]
        total = np.nansum(scores.astype(np.float64) ** 2, axis=0)
        square[at] = total / np.maximum(n, 1)
    return counts, square


def _counts(
    rows: ResponseRows,
    dtype: np.dtype,
    categories: np.ndarray,
    right: FloatArray,
    n: FloatArray,
    engine: Any,
) -> FloatArray:
    """Number of responses in each category, categories x items; fractions count partially."""
    n_categories, x, weights = int(categories.max()), rows.x, np.asarray(rows.weights)
    if n_categories == 2:
        return np.stack([n - right, right])
    if x is not None and x.size <= SMALL:
        codes = np.asarray(x)
        return np.stack([weights @ (codes == k) for k in range(n_categories)])
    row_weights = jax.device_put(weights.astype(dtype))
    if engine is None:
        out = category_counts(x, row_weights, rows.layout, n_categories=n_categories)
    else:
        out = engine.category_counts(row_weights, n_categories)
    return np.asarray(out, np.float64)


def factor_slopes(x: np.ndarray, weights: FloatArray, categories: Any, dims: int) -> FloatArray:
    """Slopes from principal factors of the items' (pairwise) correlations."""
    points, answered = points_of(x, categories)
    w = weights[:, None]
    n = np.maximum((w * answered).T @ answered, 1.0)
    both = (w * points).T @ points / n
    first = (w * points).T @ answered / n
    square = (w * points**2).T @ answered / n
    spread = np.sqrt(np.maximum(square - first**2, 1e-4))
    phi = np.clip((both - first * first.T) / (spread * spread.T), -0.95, 0.95)
    # Dichotomising attenuates a correlation: about by this factor at the middle, more towards the
    # ends; with more categories less.
    rough = np.where(categories > 2, phi, np.sin(np.pi / 2 * phi))
    rough = np.clip((rough + rough.T) / 2, -0.95, 0.95)
    h2 = np.clip(np.abs(rough - np.diag(np.diagonal(rough))).max(axis=1), 0.05, 0.9)
    for _ in range(20):
        matrix = rough.copy()
        np.fill_diagonal(matrix, h2)
        values_, vectors = np.linalg.eigh(matrix)
        loadings = vectors[:, -dims:] * np.sqrt(np.maximum(values_[-dims:], 1e-3))
        h2 = np.clip((loadings**2).sum(axis=1), 0.01, 0.85)
    shrink = np.sqrt(np.minimum(1.0, 0.85 / np.maximum((loadings**2).sum(axis=1), 1e-9)))
    loadings = loadings * shrink[:, None]
    return 1.702 * loadings / np.sqrt(1 - (loadings**2).sum(axis=1, keepdims=True))
