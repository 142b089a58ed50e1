"""The posterior of every subject on nodes of its own, for scoring with a calibrated bank."""

import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from irtcat._compile import jit
from irtcat._types import FloatArray
from irtcat.models import ItemModel, filled, in_precision
from irtcat.scoring._kernel import (
    LIMIT,
    SPACING,
    grid_nodes,
    item_curves,
    local_quadrature,
    log_likelihood,
    place_nodes,
)
from irtcat.scoring._layout import BLOCK_BYTES, WIDE_SD

__all__ = ["FINE_NODES", "Posterior", "posterior", "row_blocks"]

FINE_NODES = np.linspace(-6.0, 6.0, 121)
"""Nodes of the reported posterior, in SDs: fine enough for quantiles and draws."""

NEGLIGIBLE = 30.0
"""Fall of the log-posterior from its top beyond which nothing is left to integrate."""


class Posterior(NamedTuple):
    """Posterior of each subject on the standardised scale.

    Attributes:
        nodes: abilities, subjects x nodes.
        weights: their probabilities; rows sum to 1.
        log_z: marginal log-likelihood of the subject's responses.
    """

    nodes: FloatArray
    weights: FloatArray
    log_z: FloatArray


def row_blocks(n_rows: int, n_items: int, itemsize: int) -> np.ndarray:
    """Row numbers in blocks of equal size; ``n_rows`` stands for "no row"."""
    size = int(min(n_rows, max(16, BLOCK_BYTES // max(1, n_items * itemsize))))
    n_blocks = -(-n_rows // size)
    rows = np.full(n_blocks * size, n_rows, np.int32)
    rows[:n_rows] = np.arange(n_rows)
    return rows.reshape(n_blocks, size)


def _support(log_lik: Array, nodes: Array) -> tuple[Array, Array, Array]:
    """Where each row's posterior lives, for those wide enough to be seen on the grid.

    Short tests can leave a posterior skewed or with two modes, whose tails reach beyond six SDs.

    Returns:
        Middle and a twelfth of the width of the range that holds all of it, and whether its SD
        is at least `WIDE_SD`.
    """
    log_post = log_lik - 0.5 * nodes**2
    fall = log_post.max(axis=1, keepdims=True) - log_post
    weight = jnp.exp(-fall)
    weight = weight / weight.sum(axis=1, keepdims=True)
    mean = weight @ nodes
    sd = jnp.sqrt((weight * (nodes - mean[:, None]) ** 2).sum(1))
    inside = fall < NEGLIGIBLE
    low = jnp.where(inside, nodes, LIMIT).min(axis=1) - SPACING
    high = jnp.where(inside, nodes, -LIMIT).max(axis=1) + SPACING
    low, high = jnp.maximum(low, -LIMIT), jnp.minimum(high, LIMIT)
    return (low + high) / 2, (high - low) / 12, sd >= WIDE_SD


SMALL = 2**20
"""Up to so many responses items are filled up, so that one program serves similar banks."""


@functools.partial(jit, static_argnames=("gaps",))
def _posterior(
    model: ItemModel, x: Array, rows: Array, gaps: bool, like: Float[Array, ""]
) -> tuple[Array, Array, Array]:
    """Nodes, weights and log-normaliser of all rows, block by block."""
    nodes = grid_nodes(like.dtype)
    curves = item_curves(model, nodes)
    left = -jnp.asarray(LIMIT, like.dtype)

    def block(rows: Array) -> tuple[Array, Array, Array]:
        safe = jnp.minimum(rows, x.shape[0] - 1)
        hot, mask = model.channels(x[safe], curves.contrast.shape[0], gaps, like.dtype)
        log_lik = log_likelihood(hot, mask, curves)
        narrow = local_quadrature(log_lik, left, rounds=3, points=FINE_NODES)
        mean, sd, is_wide = _support(log_lik, nodes)
        wide = place_nodes(log_lik, left, mean, sd, jnp.asarray(FINE_NODES, like.dtype))
        column = is_wide[:, None]
        theta = jnp.where(column, wide[0], narrow[0])
        return theta, jnp.where(column, wide[1], narrow[1]), jnp.where(is_wide, wide[2], narrow[2])

    out = jax.lax.map(block, rows)
    return tuple(part.reshape(-1, *part.shape[2:]) for part in out)


def posterior(model: ItemModel, x: np.ndarray, gaps: bool, dtype: np.dtype) -> Posterior:
    """Posterior of each row under a N(0, 1) population.

    Args:
        model: stacked items on the standardised scale.
        x: responses (int8 codes, -1 missing; or floats, NaN missing).
        gaps: whether any response is missing.
        dtype: working precision (must match the precision context).

    Returns:
        The posterior, in float64.
    """
    if x.size <= SMALL and x.dtype != np.int32:
        model = filled(model)
        n_more = len(jax.tree.leaves(model)[0]) - x.shape[1]
        none = np.nan if x.dtype.kind == "f" else -1
        if n_more:
            x, gaps = np.pad(x, ((0, 0), (0, n_more)), constant_values=none), True
    n_rows, n_items = x.shape
    model = in_precision(model, dtype)
    rows = jnp.asarray(row_blocks(n_rows, n_items, dtype.itemsize))
    nodes, weights, log_z = _posterior(
        model, jnp.asarray(x), rows, gaps=gaps, like=jnp.zeros((), dtype)
    )
    return Posterior(*(np.asarray(part, float)[:n_rows] for part in (nodes, weights, log_z)))


def quantile(post: Posterior, probability: float | FloatArray) -> FloatArray:
    """Quantile of each subject's posterior, its density taken as linear between nodes.

    ``probability`` is one number, or a column with one for each subject.
    """
    probability = np.broadcast_to(probability, (len(post.nodes), 1))
    step = post.nodes[:, 1:] - post.nodes[:, :-1]
    width = step.max(axis=1, keepdims=True)  # some steps are 0: nodes stop at the grid's end
    density = post.weights / width
    cell = 0.5 * (density[:, 1:] + density[:, :-1]) * step
    cumulative = np.concatenate([np.zeros((len(cell), 1)), np.cumsum(cell, axis=1)], axis=1)
    cumulative /= cumulative[:, -1:]
    at = np.clip((cumulative <= probability).sum(1) - 1, 0, cell.shape[1] - 1)
    row = np.arange(len(at))
    rest = (probability[:, 0] - cumulative[row, at]) * cell.sum(1)
    f0, f1, h = density[row, at], density[row, at + 1], step[row, at]
    slope = np.divide(f1 - f0, h, out=np.zeros_like(h), where=h > 0)
    root = np.sqrt(np.maximum(f0**2 + 2 * slope * rest, 0))
    move = 2 * rest / np.maximum(f0 + root, 1e-300)
    return post.nodes[row, at] + np.clip(move, 0, h)
