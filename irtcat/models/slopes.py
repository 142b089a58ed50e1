"""Slopes on one ability (a number for each item) or on several (a vector for each item)."""

from collections.abc import Callable, Mapping
from typing import Any

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from irtcat._common.compilation import namespace
from irtcat.models.base import Param, Parameter

Slopes = Float[Array | np.ndarray, "*items_and_dims"]
"""One number per item, or one per item and ability."""

SLOPE = Parameter(-25.0, 25.0, weak_prior=(1.0, 1.0))
INTERCEPT = Parameter(-75.0, 75.0, weak_prior=(0.0, 3.0))
"""Bounds far beyond any estimate of real items, and the weak priors of sparse ones."""


def along(slope: Slopes, theta: Float[Array, " dims"]) -> Array:
    """``slope . theta`` of one item at one ability."""
    # Not a matrix product: accelerators would round it to fewer digits.
    return jnp.sum(slope * theta)


def predictor_row(intercept: Param, slope: Slopes) -> Float[Array, " one_and_dims"]:
    """Intercept and slopes of a predictor of one item, as one row."""
    return jnp.concatenate([jnp.atleast_1d(intercept), jnp.atleast_1d(slope)])


def slope_length(slope: Slopes, dims: int) -> Param:
    """The change of the predictor per unit of ability, in the direction where it changes most."""
    if dims == 1:
        return slope
    xp, squared = namespace(slope), (slope**2).sum(-1)
    # The square root has no derivative at 0.
    return xp.where(squared > 0, xp.sqrt(xp.where(squared > 0, squared, 1.0)), 0.0)


def rescaled_slope(slope: Slopes, dims: int, mean: Any, sd: Any) -> tuple[Slopes, Param]:
    """The slope on the scale z, theta = mean + sd z, and the shift of the intercept.

    With several abilities ``mean`` is a vector and ``sd`` a square matrix.
    """
    if dims == 1:
        mean, sd = one_scale(mean, sd)
        return slope * sd, slope * mean
    return slope @ sd, slope @ mean


def one_scale(mean: Any, sd: Any) -> tuple[Any, Any]:
    """Mean and SD of one ability, also where they are given as a vector and a matrix."""
    return (mean[0], sd[0, 0]) if np.ndim(sd) == 2 else (mean, sd)


def standard_scale(dims: int) -> tuple[Any, Any]:
    """Mean 0 and SD 1 of one ability; a vector and a square matrix of several."""
    return (0.0, 1.0) if dims == 1 else (np.zeros(dims), np.eye(dims))


def common_slope(slope: Slopes) -> Slopes:
    """For each ability the mean of the slopes that are not 0, for all of these items."""
    on = slope != 0
    mean = (slope * on).sum(0) / np.maximum(on.sum(0), 1)
    return np.where(on, mean, 0.0)


def published_on_axes(
    slope: Slopes,
    dims: int,
    intercepts: Mapping[str, Param],
    by_length: Callable[[Param], dict[str, Param]],
) -> dict[str, Param]:
    """Published parameters: those of one ability, or Reckase's of several.

    With several abilities: the slopes ``a_1``, ``a_2``, ...; the intercepts; the length of the
    slopes ``mdisc``; and in place of each ``b`` the signed distance ``mdiff`` from the origin along
    the direction of the slopes. Asymptotes are the same.

    Args:
        slope: the slopes.
        dims: number of abilities.
        intercepts: name -> intercept.
        by_length: from the slope (the length of the slopes) to the parameters of one ability.

    References:
        Reckase (2009), Multidimensional Item Response Theory, sections 5.1-5.2.
    """
    table = by_length(slope_length(slope, dims))
    if dims == 1:
        return table
    by_axis = {f"a_{i + 1}": slope[..., i] for i in range(dims)}
    moved = {"a": "mdisc"} | {name: "mdiff" + name[1:] for name in table if name[0] == "b"}
    rest = {name: value for name, value in table.items() if name not in moved}
    reckase = {moved[name]: value for name, value in table.items() if name in moved}
    return {**by_axis, **intercepts, **rest, **reckase}
