"""The first of the greatest values, by vectorised passes: argmax is not vectorised on the CPU."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int


def first_best(values: Float[Array, "*rows n"]) -> Int[Array, "*rows"]:
    """Position of the greatest value in the last axis; the first if several are equal.

    The values must not be NaN, and their type must represent all integers up to n.
    """
    n = values.shape[-1]
    ranks = jnp.arange(n, 0, -1).astype(values.dtype)
    is_best = values == values.max(axis=-1, keepdims=True)
    # Computed once: XLA may compute them anew in the maximum.
    ranks_of_best = jax.lax.optimization_barrier(jnp.where(is_best, ranks, 0))
    return jnp.int32(n) - ranks_of_best.max(axis=-1).astype(jnp.int32)
