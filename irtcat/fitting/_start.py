"""First guesses of abilities and item parameters, from sums over the response matrix."""

import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array
from scipy.special import ndtri
from scipy.stats import norm, rankdata

from irtcat._types import FloatArray
from irtcat.models import ItemModel, pack
from irtcat.scoring import response_channels

__all__ = ["Start", "Sums", "cross_sums", "starting_point"]


class Sums(NamedTuple):
    """Products of the responses and of the mask with two vectors on either side.

    ``by_item`` and ``mask_by_item`` are (two, items), the others (subjects, two).
    """

    by_item: Any
    mask_by_item: Any
    by_subject: Any
    mask_by_subject: Any


class Start(NamedTuple):
    """Where a fit begins, and the counts it needs to decide on priors.

    Attributes:
        params: unconstrained item parameters.
        mean: first guess of each subject's ability (standardised scale).
        sd: first guess of its posterior SD.
        item_right: sum of each item's responses (number right).
        item_n: number of responses of each item.
        subject_n: number of responses of each subject.
    """

    params: FloatArray
    mean: FloatArray
    sd: FloatArray
    item_right: FloatArray
    item_n: FloatArray
    subject_n: FloatArray


@functools.partial(jax.jit, static_argnames=("gaps",))
def cross_sums(x: Array, rows: Array, left: Array, right: Array, gaps: bool) -> Sums:
    """Multiply responses and mask by ``left`` (two, subjects) and ``right`` (items, two)."""
    n_subjects, n_items = x.shape
    dtype = left.dtype

    def body(carry: Sums, rows: Array) -> tuple[Sums, None]:
        safe = jnp.minimum(rows, n_subjects - 1)
        hot, mask = response_channels(x[safe], 1, gaps, dtype)
        seen = jnp.ones_like(hot[0]) if mask is None else mask
        weight = jnp.where(rows < n_subjects, left[:, safe], 0)
        return Sums(
            carry.by_item + weight @ hot[0],
            carry.mask_by_item + weight @ seen,
            carry.by_subject.at[rows].set(hot[0] @ right, mode="drop"),
            carry.mask_by_subject.at[rows].set(seen @ right, mode="drop"),
        ), None

    per_item, per_subject = jnp.zeros((2, n_items), dtype), jnp.zeros((n_subjects, 2), dtype)
    empty = Sums(per_item, per_item, per_subject, per_subject)
    return jax.lax.scan(body, empty, rows)[0]


def _biserial_slopes(
    cross: FloatArray, mean: FloatArray, variance: FloatArray, share: FloatArray
) -> FloatArray:
    """Slope of a logistic curve from the biserial correlation of responses with abilities."""
    share = np.clip(share, 0.002, 0.998)
    point = (cross - share * mean) / np.sqrt(np.maximum(variance * share * (1 - share), 1e-12))
    height = norm.pdf(ndtri(share))
    biserial = np.clip(point * np.sqrt(share * (1 - share)) / height, -0.92, 0.92)
    slope = 1.7 * biserial / np.sqrt(1 - biserial**2)
    return np.where(np.abs(slope) < 0.2, np.where(slope < 0, -0.2, 0.2), slope)


@functools.partial(jax.jit, static_argnames=("cls",))
def _start_params(share: Array, slope: Array, *, cls: type[ItemModel]) -> Array:
    """The model's own starting values, compiled as one."""
    return pack(cls.start(share, slope))


def starting_point(
    cls: type[ItemModel],
    x: Array,
    weights: FloatArray,
    rows: Array,
    gaps: bool,
    dtype: np.dtype,
    positive: bool,
) -> Start:
    """Guess abilities by the rank of the score corrected for the items answered, then items.

    Args:
        cls: the item model's class.
        x: responses of right/wrong items (subjects x items).
        weights: how many subjects each row stands for.
        rows: row numbers in blocks, as in `irtcat.scoring.Blocks`.
        gaps: whether any response is missing.
        dtype: working precision.
        positive: start all slopes above 0.

    Returns:
        The starting point, in float64.
    """

    def sums(left: FloatArray, right: FloatArray) -> Sums:
        out = cross_sums(x, rows, jnp.asarray(left, dtype), jnp.asarray(right, dtype), gaps=gaps)
        return Sums(*(np.asarray(part, np.float64) for part in out))

    n_items = x.shape[1]
    first = sums(np.stack([weights, weights]), np.ones((n_items, 2)))
    item_right, item_n = first.by_item[0], first.mask_by_item[0]
    share = (item_right + 0.5) / (item_n + 1)
    spread = share * (1 - share)
    second = sums(np.stack([weights, weights]), np.stack([share, spread], -1))
    expected, variance = second.mask_by_subject.T
    score = (first.by_subject[:, 0] - expected) / np.sqrt(np.maximum(variance, 1e-6))
    rank = rankdata(score)
    theta = ndtri((rank - 0.5) / len(rank))
    third = sums(np.stack([weights * theta, weights * theta**2]), np.stack([spread, spread], -1))
    n = np.maximum(item_n, 1)
    mean = third.mask_by_item[0] / n
    ability_variance = third.mask_by_item[1] / n - mean**2
    slope = _biserial_slopes(third.by_item[0] / n, mean, ability_variance, share)
    if positive:
        slope = np.maximum(slope, 0.2)
    params = _start_params(jnp.asarray(share, dtype), jnp.asarray(slope, dtype), cls=cls)
    information = third.mask_by_subject[:, 0] * float(np.clip(np.median(slope) ** 2, 0.2, 4.0))
    return Start(
        np.asarray(params, np.float64),
        theta,
        1 / np.sqrt(1 + information),
        item_right,
        item_n,
        first.mask_by_subject[:, 0],
    )
