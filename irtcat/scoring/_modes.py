"""Posterior modes in several dimensions, for all subjects at once."""

import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from irtcat._compile import jit
from irtcat.models import ItemModel
from irtcat.scoring._adaptive import Plane, plane_of

__all__ = ["Modes", "posterior_modes"]

STEPS = 40
"""Maximum number of scoring steps."""

SETTLED = 1e-9
"""The steps end when the largest slope of all log-posteriors is below this (float32: 1e-4)."""


class Modes(NamedTuple):
    """Posterior modes on the z scale, and the inverse curvature there.

    Attributes:
        mode: where the posterior is highest.
        covariance: inverse of the expected information there, the prior's included.
        gradient: largest remaining slope of the log-posterior.
    """

    mode: Float[Array, "subjects dims"]
    covariance: Float[Array, "subjects dims dims"]
    gradient: Float[Array, " subjects"]


def _terms(
    items: Plane, z: Float[Array, "rows dims"], right: Array, answered: Array
) -> tuple[Array, Array, Array]:
    """Log-posterior up to a constant, its gradient, and the expected information."""
    n, dims = z.shape
    eta = z @ items.slope.T + items.intercept
    s, t = jax.nn.sigmoid(eta), jax.nn.sigmoid(-eta)
    if items.logit_lower is None:
        value = (right * eta - answered * jax.nn.softplus(eta)).sum(1)
        by_eta, information = right - answered * s, answered * s * t
    else:
        # In logarithms: P of an item without guessing underflows far below its difficulty.
        log_s, log_t = jax.nn.log_sigmoid(eta), jax.nn.log_sigmoid(-eta)
        log_c, log_d = (jax.nn.log_sigmoid(sign * items.logit_lower) for sign in (1, -1))
        log_p, log_q = jnp.logaddexp(log_c, log_d + log_s), log_d + log_t
        wrong = answered - right
        value = (right * log_p + wrong * log_q).sum(1)
        k = jnp.exp(log_s - log_p)
        by_eta = right * jnp.exp(log_q) * k - wrong * s
        information = answered * jnp.exp(log_p + log_q) * k**2
    squares = (items.slope[:, :, None] * items.slope[:, None, :]).reshape(-1, dims**2)
    precision = (information @ squares).reshape(n, dims, dims) + jnp.eye(dims, dtype=z.dtype)
    return value - 0.5 * (z**2).sum(1), by_eta @ items.slope - z, precision


@functools.partial(jit, static_argnames=("has_missing",))
def posterior_modes(
    model: ItemModel, x: Array, chunks: Int[Array, "blocks rows"], unit: Array, *, has_missing: bool
) -> Modes:
    """Posterior modes under a standard Normal prior, by damped Fisher scoring.

    Args:
        model: stacked items on the z scale.
        x: responses.
        chunks: row numbers in blocks.
        unit: an array of the working precision (only its dtype is used).
        has_missing: whether any response is missing.

    Returns:
        The modes.
    """
    n = x.shape[0]
    dtype, dims = unit.dtype, model.dims
    items = plane_of(model)
    least = SETTLED if dtype == jnp.float64 else 1e-4

    def block(_: None, rows: Array) -> tuple[None, tuple[Array, ...]]:
        statistics, mask = model.sufficient_statistics(
            x[jnp.minimum(rows, n - 1)], 1, has_missing, dtype
        )
        right = statistics[0]
        answered = jnp.ones_like(right) if mask is None else mask

        def update(state: Any) -> Any:
            k, z, value, gradient, information, damping = state
            diagonal = jnp.diagonal(information, axis1=1, axis2=2) * damping[:, None]
            lifted = information + diagonal[..., None] * jnp.eye(dims, dtype=dtype)
            new = z + jnp.linalg.solve(lifted, gradient[..., None])[..., 0]
            there = _terms(items, new, right, answered)
            up = there[0] >= value - 1e-12
            wide = up[:, None]
            return (
                k + 1,
                jnp.where(wide, new, z),
                jnp.where(up, there[0], value),
                jnp.where(wide, there[1], gradient),
                jnp.where(wide[..., None], there[2], information),
                jnp.where(up, 0.2 * damping, 5 * damping + 0.5),
            )

        zero = jnp.zeros((len(rows), dims), dtype)
        start = (
            jnp.int32(0),
            zero,
            *_terms(items, zero, right, answered),
            jnp.zeros_like(zero[:, 0]),
        )
        _count, z, _value, gradient, information, _damping = jax.lax.while_loop(
            lambda state: (state[0] < STEPS) & (jnp.abs(state[3]).max() > least), update, start
        )
        return None, (z, jnp.linalg.inv(information), jnp.abs(gradient).max(1))

    mode, covariance, gradient = jax.lax.scan(block, None, chunks)[1]
    return Modes(
        mode.reshape(-1, dims)[:n],
        covariance.reshape(-1, dims, dims)[:n],
        gradient.reshape(-1)[:n],
    )
