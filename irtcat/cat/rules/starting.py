"""Start rules: one table of functions that value the items at the start of a session.

A rule takes a `Context`, the criterion's values (minus infinity where an item may not be asked) and
its own options, and returns the values used to choose the first items. The items of `Config.first`
are asked before.
"""

from typing import Any

import jax.numpy as jnp
from jaxtyping import Array

from irtcat._common.checks import argument_error, check_count
from irtcat._common.registry import Registry
from irtcat.cat.belief.state import Context
from irtcat.cat.rows import GROUP, StartRule


def criterion(context: Context, values: Array, *, theta: float | None = None) -> Array:
    """By the criterion from the first item on, at the prior's mean or a given ``theta``."""
    return values


def random(context: Context, values: Array, *, n: int = 1, theta: float | None = None) -> Array:
    """The first ``n`` items at random."""
    check_count("n", n)
    drawn = jnp.where(values > -jnp.inf, context.noise, -jnp.inf)
    return jnp.where(context.state.administered.sum() < n, drawn, values)


def spread(
    context: Context,
    values: Array,
    *,
    thetas: tuple[float, ...] = (-1.0, 0.0, 1.0),
    theta: float | None = None,
) -> Array:
    """The first items are those nearest in difficulty to the abilities ``thetas``, in order."""
    if not isinstance(thetas, tuple) or not thetas:
        raise argument_error("thetas", "several abilities", thetas)
    points = jnp.asarray(thetas, values.dtype)
    n = context.state.administered.sum()
    closeness = -jnp.abs(context.pool.b - points[jnp.minimum(n, len(thetas) - 1)])
    closeness = jnp.where(values > -jnp.inf, closeness, -jnp.inf)
    return jnp.where(n < len(thetas), closeness, values)


START: Registry[StartRule] = Registry(
    GROUP,
    StartRule,
    ("start rule", "first items", "several abilities"),
    [
        StartRule("criterion", criterion, multidimensional=True),
        StartRule("random", random, multidimensional=True),
        StartRule("spread", spread),
    ],
)
"""Start rules by name; to add one, write a function and add a row."""


def start_theta_of(options: dict[str, Any]) -> float | None:
    """The initial ability of a start rule; None for the prior's mean."""
    theta = options.get("theta")
    if theta is not None and not isinstance(theta, (int, float)):
        raise argument_error("theta", "a number, or None for the prior's mean", theta)
    return theta
