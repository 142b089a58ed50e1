"""Uncertainty of a bank: on another scale, as draws, and of the published parameters."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from irtcat._common.compilation import jit
from irtcat._common.precision import precision
from irtcat._common.types import BoolArray, FloatArray
from irtcat.bank._table import delta_errors
from irtcat.models import (
    ItemModel,
    column_names,
    field_columns,
    filled,
    pack,
    parameter_matrix,
    parameter_names,
    unpack,
)


@jit
def _moved(model: ItemModel, mean: Array, sd: Array) -> tuple[Array, Array]:
    """`pack` of the items on another scale, and its derivatives (slopes of 1 stay so)."""

    def one(vector: Any, item: ItemModel) -> Any:
        new = unpack(item, vector).rescale(mean, sd)
        stacked = jax.tree.map(lambda leaf: jnp.asarray(leaf)[None], new)
        # A model with slopes of 1 gives one that has slopes.
        columns = field_columns(stacked, parameter_names(model))
        return pack(stacked)[0, jnp.array(columns)]

    matrix = pack(model)
    return jax.vmap(one)(matrix, model), jax.vmap(jax.jacfwd(one))(matrix, model)


def rescale_parameters(
    model: ItemModel,
    covariance: FloatArray | None,
    full: FloatArray | None,
    unit: float,
    shift: float,
) -> tuple[ItemModel, FloatArray | None, FloatArray | None]:
    """Items and covariances on the scale ``unit * theta + shift`` (1 where slopes are 1)."""
    with precision("float64"):
        moved = _moved(filled(model), np.asarray(-shift / unit), np.asarray(1 / unit))
    n_items = len(jax.tree.leaves(model)[0])
    params, slopes = (np.asarray(part)[:n_items] for part in moved)
    if covariance is not None:
        unknown = np.isnan(np.diagonal(covariance, axis1=1, axis2=2))
        covariance = slopes @ np.nan_to_num(covariance) @ slopes.transpose(0, 2, 1)
        covariance[unknown[:, :, None] | unknown[:, None, :]] = np.nan
    if full is not None:
        n, p = params.shape
        unknown = np.isnan(np.diagonal(full))
        known = np.nan_to_num(full).reshape(n, p, n, p)
        full = np.einsum("iab,ibjc,jdc->iajd", slopes, known, slopes, optimize=True)
        full = full.reshape(n * p, n * p)
        full[unknown] = full[:, unknown] = np.nan
    return unpack(model, params), covariance, full


def draw_parameters(
    model: ItemModel, covariance: FloatArray, full: FloatArray | None, n: int, seed: int
) -> ItemModel:
    """Parameters drawn around the estimates, with a leading axis of draws."""
    matrix = parameter_matrix(model)
    rng = np.random.default_rng(seed)
    if full is not None:
        noise = rng.standard_normal((n, matrix.size)) @ _root(full).T
    else:
        noise = np.einsum(
            "jab,njb->nja", _root(covariance), rng.standard_normal((n, *matrix.shape))
        )
    values = matrix + noise.reshape(n, *matrix.shape)
    flat = jax.tree.map(lambda leaf: np.concatenate([leaf] * n), model)
    new = unpack(flat, values.reshape(-1, matrix.shape[1]))
    return jax.tree.map(lambda leaf: leaf.reshape(n, -1, *leaf.shape[1:]), new)


def _root(covariance: FloatArray) -> FloatArray:
    """Square roots of covariances; unknown parameters (NaN) do not vary."""
    value, vector = np.linalg.eigh(np.nan_to_num(covariance))
    return vector * np.sqrt(np.maximum(value, 0))[..., None, :]


@jit
def _values_and_slopes(model: ItemModel) -> tuple[dict[str, Any], dict[str, Any]]:
    """The published parameters of all items, and their derivatives by the unconstrained ones."""

    def one(vector: Any, item: ItemModel) -> dict[str, Any]:
        return unpack(item, vector).irt_parameters()

    matrix = pack(model)
    return jax.vmap(one)(matrix, model), jax.vmap(jax.jacfwd(one))(matrix, model)


def has_fixed_slopes(model: ItemModel) -> bool:
    """Whether the items have no slopes to estimate.

    Example:
        >>> from irtcat.models import Rasch
        >>> has_fixed_slopes(Rasch(np.zeros(2)))
        True
    """
    return not any(name.startswith(("slope", "log_slope")) for name in column_names(model))


def published_parameters(
    model: ItemModel, covariance: FloatArray | None, unused: BoolArray
) -> tuple[dict[str, FloatArray], dict[str, FloatArray]]:
    """The published parameters of all items and their standard errors by the delta method.

    Args:
        model: the items.
        covariance: of their unconstrained parameters.
        unused: the categories that nobody used, items x categories; parameters that depend only on
            them are NaN.
    """
    with precision("float64"):
        values_and_slopes = _values_and_slopes(filled(model))
    n_items = len(jax.tree.leaves(model)[0])
    values, slopes = jax.tree.map(lambda part: np.asarray(part)[:n_items], values_and_slopes)
    if unused.any():
        values = model.drop_unused(values, unused)
        slopes = model.drop_unused(slopes, unused)
    slopes = {name: np.nan_to_num(part) for name, part in slopes.items()}
    return values, delta_errors(values, slopes, covariance)
