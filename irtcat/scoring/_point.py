"""Point estimates of ability: ML, MAP and Warm's WLE, the global optimum on a grid, then polished.

Likelihoods of items with asymptotes can have several maxima, and a root finder started anywhere
finds any of them. So the objective is evaluated on a grid over the whole range first; the
neighbours of its best node bracket the global optimum, which safeguarded Newton steps then
find to machine precision.
"""

import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from irtcat._compile import jit
from irtcat._types import FloatArray
from irtcat.models import CategoricalModel, ItemModel, in_precision
from irtcat.scoring._posterior import row_blocks

__all__ = ["PointEstimate", "point_estimates"]

GRID = 241
NEWTON_STEPS = 14


class PointEstimate(NamedTuple):
    """Point estimates of all rows.

    Attributes:
        theta: the estimate, within the bounds.
        information: curvature of the maximised objective at it (prior or weight included).
        expected: expected information of the answered items at it.
        objective: log-likelihood (or log-posterior) on the grid, rows x grid.
    """

    theta: FloatArray
    information: FloatArray
    expected: FloatArray
    objective: FloatArray


def _item_terms(item: ItemModel, theta: Array) -> tuple[Array, Array, Array, Array]:
    """Natural curves of one item, their derivative, Fisher information and Warm's J.

    With contrasts eta and their statistics' covariance V, I = eta' V eta'. Warm's
    J = sum P' P'' / P is I' - eta' V eta'': for an exponential family the derivative of I holds
    the third moment that J is made of.
    """
    if isinstance(item, CategoricalModel):
        return _category_terms(item, theta)

    def curve(t: Array) -> Array:
        return item.natural(t[None])

    def information(t: Array) -> Array:
        slope = jax.jacfwd(curve)(t)[1:]
        return slope @ item.variance(t[None]) @ slope

    first = jax.jacfwd(curve)
    d1, d2 = first(theta), jax.jacfwd(first)(theta)
    warm = jax.jacfwd(information)(theta) - d1[1:] @ item.variance(theta[None]) @ d2[1:]
    return curve(theta), d1, information(theta), warm


def _category_terms(item: CategoricalModel, theta: Array) -> tuple[Array, Array, Array, Array]:
    """The same for categories, where P'' / P = (log P)'' + (log P)'^2 spares a derivative."""

    def curve(t: Array) -> Array:
        return item.log_probs(t[None])

    first = jax.jacfwd(curve)
    log_p, d1, d2 = curve(theta), first(theta), jax.jacfwd(first)(theta)
    p = jnp.exp(log_p)
    natural, slope = (jnp.concatenate([v[:1], v[1:] - v[0]]) for v in (log_p, d1))
    return natural, slope, (p * d1**2).sum(), (p * d1 * (d2 + d1**2)).sum()


def _channels(
    model: ItemModel, x: Array, n_contrasts: int, dtype: np.dtype
) -> Float[Array, "rows items channels"]:
    """1 and the statistics of each response; all zero where missing."""
    hot, mask = model.channels(x, n_contrasts, True, dtype)
    assert mask is not None  # asked for gaps
    return jnp.moveaxis(jnp.concatenate([mask[None], hot]), 0, -1)


@functools.partial(jit, static_argnames=("kind",))
def _estimate(
    model: ItemModel,
    x: Array,
    rows: Array,
    bounds: Float[Array, " two"],
    prior: Float[Array, " two"],
    kind: str,
) -> tuple[Array, Array, Array, Array]:
    """Estimates of all rows, block by block."""
    dtype = bounds.dtype
    grid = jnp.linspace(bounds[0], bounds[1], GRID)
    step = grid[1] - grid[0]
    curves, d1, info, warm = jax.vmap(jax.vmap(_item_terms, (None, 0)), (0, None))(model, grid)
    n_contrasts = curves.shape[-1] - 1

    def penalty(theta: Array) -> Array:
        return -0.5 * ((theta - prior[0]) / prior[1]) ** 2 if kind == "map" else 0.0 * theta

    def gradient(theta: Array, hot: Array) -> Array:
        """Derivative of the objective of one row at its own ability."""
        _, slope, item_info, item_warm = jax.vmap(_item_terms, (0, None))(model, theta)
        seen = hot[..., 0]
        score = (hot * slope).sum() + jax.grad(penalty)(theta)
        if kind != "wle":
            return score
        return score + (seen * item_warm).sum() / (2 * (seen * item_info).sum() + 1e-300)

    def observed(theta: Array, hot: Array) -> Array:
        return -jax.grad(gradient)(theta, hot)

    def expected(theta: Array, hot: Array) -> Array:
        _, _, item_info, _ = jax.vmap(_item_terms, (0, None))(model, theta)
        return (hot[..., 0] * item_info).sum()

    def polish(theta: Array, low: Array, high: Array, hot: Array) -> Array:
        """Newton steps kept inside a bracket that shrinks with every evaluation."""

        def body(_: Array, state: tuple[Array, Array, Array]) -> tuple[Array, Array, Array]:
            theta, low, high = state
            g, slope = jax.jvp(lambda t: gradient(t, hot), (theta,), (jnp.ones_like(theta),))
            low, high = jnp.where(g > 0, theta, low), jnp.where(g > 0, high, theta)
            new = theta - g / jnp.where(slope < 0, slope, -1e-30)
            inside = (new >= low) & (new <= high) & (slope < 0)
            return jnp.where(inside, new, 0.5 * (low + high)), low, high

        return jax.lax.fori_loop(0, NEWTON_STEPS, body, (theta, low, high))[0]

    def block(rows: Array) -> tuple[Array, Array, Array, Array]:
        safe = jnp.minimum(rows, x.shape[0] - 1)
        hot = _channels(model, x[safe], n_contrasts, dtype)
        objective = jnp.einsum("rjk,jgk->rg", hot, curves) + penalty(grid)
        if kind == "wle":
            seen = hot[..., 0]
            slope = jnp.einsum("rjk,jgk->rg", hot, d1)
            slope = slope + (seen @ warm) / (2 * (seen @ info) + 1e-300)
            cells = 0.5 * step * (slope[:, 1:] + slope[:, :-1])
            objective = jnp.concatenate([jnp.zeros_like(cells[:, :1]), jnp.cumsum(cells, 1)], 1)
        best = jnp.argmax(objective, axis=1)
        low, high = grid[jnp.maximum(best - 1, 0)], grid[jnp.minimum(best + 1, GRID - 1)]
        theta = jax.vmap(polish)(grid[best], low, high, hot)
        g_low = jax.vmap(gradient, (None, 0))(grid[0], hot)
        g_high = jax.vmap(gradient, (None, 0))(grid[-1], hot)
        theta = jnp.where((best == 0) & (g_low <= 0), grid[0], theta)
        theta = jnp.where((best == GRID - 1) & (g_high >= 0), grid[-1], theta)
        fisher = jax.vmap(expected)(theta, hot)
        information = jax.vmap(observed)(theta, hot)
        return theta, information, fisher, objective

    out = jax.lax.map(block, rows)
    return tuple(part.reshape(-1, *part.shape[2:]) for part in out)


def point_estimates(
    model: ItemModel,
    x: np.ndarray,
    kind: str,
    bounds: tuple[float, float],
    prior: tuple[float, float],
    dtype: np.dtype,
) -> PointEstimate:
    """ML, MAP or WLE of every row.

    Args:
        model: stacked items on the bank's scale.
        x: responses.
        kind: "ml", "map" or "wle".
        bounds: range of the estimates.
        prior: population mean and SD (used by "map").
        dtype: working precision (must match the precision context).

    Returns:
        The estimates, in float64.
    """
    n_rows, n_items = x.shape
    model = in_precision(model, dtype)
    rows = jnp.asarray(row_blocks(n_rows, 8 * n_items, dtype.itemsize))
    out = _estimate(
        model,
        jnp.asarray(x),
        rows,
        jnp.asarray(bounds, dtype),
        jnp.asarray(prior, dtype),
        kind=kind,
    )
    return PointEstimate(*(np.asarray(part, float)[:n_rows] for part in out))
