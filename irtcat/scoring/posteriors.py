"""The posterior of every subject on local nodes, for scoring with a calibrated bank.

By default the log-likelihood is interpolated from the common grid. This requires items that change
slowly relative to its spacing, and a posterior within its range. Otherwise each row is integrated
on a grid that is finer, or wider, by factors of two.
"""

import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import logsumexp
from jaxtyping import Array, Bool, Float

from irtcat._common.compilation import BEST, jit
from irtcat._common.types import FloatArray
from irtcat.bank import ItemBank
from irtcat.latent import grid_nodes, round_up
from irtcat.latent.layout import WIDE_SD, block_bytes
from irtcat.latent.likelihood import item_curves, log_likelihood
from irtcat.latent.line import (
    LIMIT,
    N_NODES,
    SPACING,
    STANDARD,
    Prior,
    integrate_locally,
    place_locally,
)
from irtcat.models import ItemModel, filled, in_precision, steepest_slope
from irtcat.responses._matrix import row_blocks as slices

FINE_NODES = np.linspace(-6.0, 6.0, 121)
"""Nodes of the reported posterior, in SDs: fine enough for quantiles and draws."""

NEGLIGIBLE = 30.0
"""Fall of the log-posterior from its maximum beyond which its mass is negligible."""

CUT_OFF = 7.0
"""A posterior that has fallen by less at an end of the grid is cut off there."""

STEP_CELLS = 0.6
"""Maximum change of an item's log-odds within a cell of the grid."""

STEEP_CELLS = 10.0
"""Minimum posterior SD in cells, where items change faster than that."""

MOST_CELLS, FARTHEST = 2**13, LIMIT * 2**10
"""Maximum number of cells, and maximum range, of a grid."""


class Posterior(NamedTuple):
    """Posterior of each subject on the standardised scale.

    Attributes:
        nodes: abilities, subjects x nodes.
        weights: their probabilities; rows sum to 1.
        log_z: marginal log-likelihood of the subject's responses.
        mean: posterior mean.
        sd: posterior SD.
        beyond: whether the posterior is cut off by the grid.
        coarse: whether it is too narrow for the spacing of the grid.
    """

    nodes: Float[Any, "rows nodes"]
    weights: Float[Any, "rows nodes"]
    log_z: Float[Any, " rows"]
    mean: Float[Any, " rows"]
    sd: Float[Any, " rows"]
    beyond: Bool[Any, " rows"]
    coarse: Bool[Any, " rows"]


def row_blocks(n_rows: int, n_items: int, itemsize: int) -> np.ndarray:
    """Row numbers in blocks of equal size; ``n_rows`` stands for "no row"."""
    size = int(min(n_rows, max(16, block_bytes() // max(1, n_items * itemsize))))
    n_blocks = -(-n_rows // size)
    rows = np.full(n_blocks * size, n_rows, np.int32)
    rows[:n_rows] = np.arange(n_rows)
    return rows.reshape(n_blocks, size)


def _support(log_lik: Array, nodes: Array, prior: Prior) -> tuple[Array, Array, Array]:
    """The range of each row's posterior, where it is wide enough for the grid.

    Short tests can leave a posterior skewed or with two modes, whose tails reach beyond six SDs.

    Returns:
        Middle and a twelfth of the width of the range that holds its mass, and whether its SD
        is at least `WIDE_SD`.
    """
    log_post = log_lik + prior.log_density(nodes)
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


QUANTILE_CELLS = 2**18
"""Cells of the posteriors of which quantiles are computed at a time, so that they stay in cache."""

SMALL = 2**20
"""Up to this many responses items and rows are padded."""


FEWEST_ROWS = 8
"""Smallest number of rows of a program."""


def padded(model: ItemModel, x: np.ndarray) -> tuple[ItemModel, np.ndarray]:
    """Items and responses filled up to few distinct sizes, so that compiled programs are reused.

    Items are repeats of the last one without responses, and rows repeats of the last row. Large
    matrices stay as they are: they take longer to score than their program to compile.
    """
    if x.size > SMALL or x.dtype == np.int32 or not len(x):
        return model, x
    model = filled(model)
    n_items = len(jax.tree.leaves(model)[0]) - x.shape[1]
    n_rows = round_up(len(x), FEWEST_ROWS) - len(x)
    none = np.nan if x.dtype.kind == "f" else -1
    x = np.pad(x, ((0, 0), (0, n_items)), constant_values=none)
    return model, np.pad(x, ((0, n_rows), (0, 0)), mode="edge")


def prior_of(prior: tuple[Array, ...] | None, rows: Array) -> Prior:
    """The priors of these rows, N(0, 1) if there are none; a mixture is the prior of all."""
    if prior is None:
        return STANDARD
    return Prior(*prior) if len(prior) == MIXTURE else Prior(prior[0][rows], prior[1][rows])


MIXTURE = 3
"""A prior of as many arrays is a mixture: means, log SDs and log shares of its parts."""


def _is_cut_off(log_post: Float[Array, "rows nodes"]) -> Array:
    """Whether the posterior is cut off at an end of the grid."""
    ends = jnp.maximum(log_post[:, 0], log_post[:, -1])
    return ends > log_post.max(axis=1) - CUT_OFF


def _moments(nodes: Array, weights: Array) -> tuple[Array, Array]:
    """Mean and SD under normalised weights."""
    mean = (weights * nodes).sum(1)
    return mean, jnp.sqrt((weights * (nodes - mean[:, None]) ** 2).sum(1))


@functools.partial(jit, static_argnames=("has_missing",), options=BEST)  # a quarter faster
def _posterior(
    model: ItemModel,
    x: Array,
    rows: Array,
    has_missing: bool,
    like: Float[Array, ""],
    prior: tuple[Array, ...] | None = None,
) -> Posterior:
    """The posterior of all rows, block by block."""
    nodes = grid_nodes(like.dtype)
    curves = item_curves(model, nodes)
    left = -jnp.asarray(LIMIT, like.dtype)

    def block(rows: Array) -> Posterior:
        safe, n_contrasts = jnp.minimum(rows, x.shape[0] - 1), curves.contrast.shape[0]
        parts = model.sufficient_statistics(x[safe], n_contrasts, has_missing, like.dtype)
        log_lik = log_likelihood(*parts, curves)
        row_prior = prior_of(prior, safe)
        narrow = place_locally(log_lik, left, rounds=3, prior=row_prior)
        *wide, is_wide = _support(log_lik, nodes, row_prior)
        mean, sd = (jnp.where(is_wide, w, n) for w, n in zip(wide, narrow, strict=True))
        points = jnp.asarray(FINE_NODES, like.dtype)
        theta, weights, log_z, *_ = integrate_locally(log_lik, left, mean, sd, points, row_prior)
        beyond = _is_cut_off(log_lik + row_prior.log_density(nodes))
        coarse = jnp.zeros_like(beyond)
        return Posterior(
            theta, weights, log_z, *_moments(theta, weights), beyond=beyond, coarse=coarse
        )

    return jax.tree.map(jnp.concatenate, jax.lax.map(block, rows))


CURVE_CELLS = 2**22
"""Nodes times items whose curves are in memory at a time."""


def _log_likelihood_in_parts(
    model: ItemModel, x: Array, nodes: Float[Array, " nodes"], has_missing: bool
) -> Float[Array, "rows nodes"]:
    """Log-likelihood of each row (rows x items) at each node, summed over parts of the items.

    The curves of all items on a fine grid would take gigabytes.
    """

    def of_part(part: tuple[ItemModel, Array]) -> Array:
        items, answers = part
        curves = item_curves(items, nodes)
        n_contrasts = curves.contrast.shape[0]
        found = items.sufficient_statistics(answers.T, n_contrasts, has_missing, nodes.dtype)
        return log_likelihood(*found, curves)

    parts, size = (model, x.T), max(1, CURVE_CELLS // len(nodes))
    n = x.shape[1] // size * size
    if n == 0:
        return of_part(parts)
    whole = jax.tree.map(lambda leaf: leaf[:n].reshape(-1, size, *leaf.shape[1:]), parts)
    zero = jnp.zeros((len(x), len(nodes)), nodes.dtype)
    total = jax.lax.scan(lambda total, part: (total + of_part(part), None), zero, whole)[0]
    if n == x.shape[1]:
        return total
    return total + of_part(jax.tree.map(lambda leaf: leaf[n:], parts))


@functools.partial(jit, static_argnames=("has_missing",))
def _summed(
    model: ItemModel,
    x: Array,
    rows: Array,
    has_missing: bool,
    nodes: Float[Array, " nodes"],
    least_sd: Float[Array, ""],
    prior: tuple[Array, ...] | None = None,
) -> Posterior:
    """The same by sums over an evenly spaced grid, returned on as many nodes as `posterior` does.

    The sum is exact to rounding where the items change slowly within a cell; the edge of a steeper
    one is off by half a cell at most. Posteriors narrower than ``least_sd`` are marked as coarse.
    """
    step = nodes[1] - nodes[0]

    def block(rows: Array) -> Posterior:
        safe = jnp.minimum(rows, x.shape[0] - 1)
        log_post = _log_likelihood_in_parts(model, x[safe], nodes, has_missing) + jnp.log(step)
        log_post = log_post + prior_of(prior, safe).log_density(nodes)
        log_z = logsumexp(log_post, axis=1)
        fine = jnp.exp(log_post - log_z[:, None])
        mean, sd = _moments(nodes, fine)
        inside = fine > fine.max(axis=1, keepdims=True) * np.exp(-NEGLIGIBLE)
        low = jnp.where(inside, nodes, nodes[-1]).min(axis=1, keepdims=True) - step
        high = jnp.where(inside, nodes, nodes[0]).max(axis=1, keepdims=True) + step
        few = jnp.linspace(0.0, 1.0, len(FINE_NODES), dtype=nodes.dtype)
        # Each node shares its weight between the two reported ones next to it: the mean stays.
        at = jnp.clip((nodes - low) / (high - low), 0.0, 1.0) * (len(few) - 1)
        first = jnp.minimum(at.astype(jnp.int32), len(few) - 2)
        row = jnp.arange(len(fine))[:, None]
        upper = fine * (at - first)
        weights = jnp.zeros((len(fine), len(few)), nodes.dtype)
        weights = weights.at[row, first].add(fine - upper).at[row, first + 1].add(upper)
        theta = low + (high - low) * few
        beyond, coarse = _is_cut_off(log_post), sd < least_sd
        return Posterior(theta, weights, log_z, mean, sd, beyond=beyond, coarse=coarse)

    return jax.tree.map(jnp.concatenate, jax.lax.map(block, rows))


def standardised(bank: ItemBank) -> ItemModel:
    """The bank's items on the scale where its population is N(0, 1)."""
    if bank.population.mean == 0 and bank.population.sd == 1:
        return bank.model
    return bank.model.rescale(jnp.asarray(bank.population.mean), jnp.asarray(bank.population.sd))


def changes_too_fast(model: ItemModel) -> bool:
    """Whether items change too fast for the spacing of the common grid."""
    return steepest_slope(model) * SPACING > STEP_CELLS


def n_cells_for(model: ItemModel) -> int:
    """Cells of a grid from -`LIMIT` to `LIMIT` on which the items change slowly enough."""
    change = steepest_slope(model) * SPACING / STEP_CELLS
    finer = 2 ** int(np.ceil(np.log2(max(change, 1.0))))
    return int(min((N_NODES - 1) * finer, MOST_CELLS))


def least_sd_for(model: ItemModel, step: float) -> float:
    """SD of the narrowest posterior that a grid with this spacing integrates accurately."""
    return step if steepest_slope(model) * step <= STEP_CELLS else STEEP_CELLS * step


def posterior(
    model: ItemModel,
    x: np.ndarray,
    has_missing: bool,
    dtype: np.dtype,
    prior: tuple[FloatArray, ...] | None = None,
) -> Posterior:
    """Posterior of each row under a N(0, 1) population, or under a prior of its own.

    Args:
        model: stacked items on the standardised scale.
        x: responses (int8 codes, -1 missing; or floats, NaN missing).
        has_missing: whether any response is missing.
        dtype: working precision (must match the precision context).
        prior: mean and log SD of each row's prior, on the standardised scale; or means, log SDs and
            log shares of a mixture, the prior of all rows.

    Returns:
        The posterior, in float64.
    """
    n_cells, steep = n_cells_for(model), changes_too_fast(model)
    n_rows, n_items = x.shape
    model, x = padded(model, x)
    has_missing = has_missing or x.shape[1] > n_items
    no_row, n_items = x.shape
    items, answers = in_precision(model, dtype), jax.device_put(x)
    priors = None
    if prior is not None:
        priors = tuple(np.asarray(part, dtype) for part in prior)
        if len(prior) != MIXTURE:
            priors = tuple(np.pad(part, (0, no_row - n_rows), mode="edge") for part in priors)

    def summed(which: np.ndarray, limit: float, n_cells: int) -> Posterior:
        """Integrate rows on a grid; where it is too narrow or too coarse, on the next one."""
        nodes = np.linspace(-limit, limit, n_cells + 1, dtype=dtype)
        least = np.asarray(least_sd_for(model, 2 * limit / n_cells), dtype)
        rows = np.full(2 ** int(np.ceil(np.log2(len(which)))) + 1, no_row, np.int32)
        rows[: len(which)] = which  # few distinct lengths, so that compiled programs are reused
        width = max(min(n_items, CURVE_CELLS // n_cells), n_cells)
        blocks = rows[row_blocks(len(rows) - 1, width, dtype.itemsize)]
        grid = {"nodes": nodes, "least_sd": least, "prior": priors}
        out = _summed(items, answers, jax.device_put(blocks), has_missing=has_missing, **grid)
        result = Posterior(*(np.array(array)[: len(which)] for array in out))
        more = min(2 * n_cells, MOST_CELLS)
        for unresolved, next_limit in (
            (result.beyond & (limit < FARTHEST), 2 * limit),
            (result.coarse & ~result.beyond & (n_cells < MOST_CELLS), limit),
        ):
            if unresolved.any():
                _assign_rows(result, unresolved, summed(which[unresolved], next_limit, more))
        return result

    if steep:
        out = summed(np.arange(n_rows), LIMIT, n_cells)
    else:
        rows = jax.device_put(row_blocks(no_row, max(n_items, N_NODES), dtype.itemsize))
        result = _posterior(
            items, answers, rows, has_missing=has_missing, like=np.zeros((), dtype), prior=priors
        )
        out = Posterior(*(np.array(array)[:n_rows] for array in result))
        if out.beyond.any():
            which = np.flatnonzero(out.beyond)
            _assign_rows(out, which, summed(which, 2 * LIMIT, 2 * n_cells))
    numbers = [np.asarray(array, float) for array in out[:5]]
    return Posterior(*(*numbers, out.beyond, out.coarse))


def _assign_rows(into: Posterior, at: np.ndarray, rows: Posterior) -> None:
    """Write rows into a posterior at the given indices."""
    for array, new in zip(into, rows, strict=True):
        array[at] = new


def quantile(post: Posterior, probability: float | FloatArray) -> FloatArray:
    """Quantile of each subject's posterior, with a density that is linear between nodes.

    ``probability`` is one number, or a column with one for each subject.
    """
    probability = np.broadcast_to(probability, (len(post.nodes), 1))
    parts = [
        _quantile(post.nodes[rows], post.weights[rows], probability[rows])
        for rows in slices(post.nodes.shape, QUANTILE_CELLS)
    ]
    return np.concatenate([np.empty(0), *parts])


def _quantile(nodes: FloatArray, weights: FloatArray, probability: FloatArray) -> FloatArray:
    step = nodes[:, 1:] - nodes[:, :-1]
    width = step.max(axis=1, keepdims=True)  # some steps are 0: nodes stop at the grid's end
    density = weights / width
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
    return nodes[row, at] + np.clip(move, 0, h)
