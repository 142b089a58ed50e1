"""Start rules: one table, each a function that values the items while a session starts.

A rule is given a `Context`, the criterion's values (minus infinity where an item may not be asked)
and its own options, and gives the values that the first items are chosen by. Items that are
always first (`Config.first`) come before.
"""

from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
from jaxtyping import Array

from irtcat._checks import argument_error, check_count
from irtcat.cat._state import Context

__all__ = ["START", "given_theta"]


def criterion(context: Context, values: Array, *, theta: float | None = None) -> Array:
    """By the criterion from the first item on, at the prior's mean or a given ``theta``."""
    return values


def random(context: Context, values: Array, *, n: int = 1, theta: float | None = None) -> Array:
    """The first ``n`` items at random."""
    check_count("n", n)
    drawn = jnp.where(values > -jnp.inf, context.noise, -jnp.inf)
    return jnp.where(context.state.given.sum() < n, drawn, values)


def spread(
    context: Context,
    values: Array,
    *,
    thetas: tuple[float, ...] = (-1.0, 0.0, 1.0),
    theta: float | None = None,
) -> Array:
    """The first items each nearest in difficulty to one of several abilities, in their order."""
    if not isinstance(thetas, tuple) or not thetas:
        raise argument_error("thetas", "several abilities", thetas)
    points = jnp.asarray(thetas, values.dtype)
    n = context.state.given.sum()
    near = -jnp.abs(context.pool.b - points[jnp.minimum(n, len(thetas) - 1)])
    near = jnp.where(values > -jnp.inf, near, -jnp.inf)
    return jnp.where(n < len(thetas), near, values)


START: dict[str, Callable[..., Array]] = {
    "criterion": criterion,
    "random": random,
    "spread": spread,
}
"""Start rules by name; to add one, write a function and add a row."""


def given_theta(options: dict[str, Any]) -> float | None:
    """The ability that a start rule begins at; None for the prior's mean."""
    theta = options.get("theta")
    if theta is not None and not isinstance(theta, (int, float)):
        raise argument_error("theta", "a number, or None for the prior's mean", theta)
    return theta
