"""What a bank's uncertainty becomes: on another scale, as draws, of the published parameters."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from irtcat._compile import jit
from irtcat._precision import precision
from irtcat._types import FloatArray
from irtcat.models import ItemModel, Rasch, filled, pack, unpack

__all__ = ["drawn", "irt_values", "rescaled"]


def rescaled(
    model: ItemModel,
    covariance: FloatArray | None,
    full: FloatArray | None,
    unit: float,
    shift: float,
) -> tuple[ItemModel, FloatArray | None, FloatArray | None]:
    """Items and covariances on the scale ``unit * theta + shift`` (Rasch items: ``unit`` is 1)."""
    rasch = isinstance(model, Rasch)

    def moved(vector: Any, item: ItemModel) -> Any:
        new = unpack(item, vector).rescale(jnp.asarray(-shift / unit), jnp.asarray(1 / unit))
        row = pack(jax.tree.map(lambda leaf: jnp.asarray(leaf)[None], new))[0]
        return row[1:] if rasch else row

    with precision("float64"):
        matrix = pack(model)
        params = np.asarray(jax.vmap(moved)(matrix, model))
        slopes = np.asarray(jax.vmap(jax.jacfwd(moved))(matrix, model))
    if covariance is not None:
        lost = np.isnan(np.diagonal(covariance, axis1=1, axis2=2))
        covariance = slopes @ np.nan_to_num(covariance) @ slopes.transpose(0, 2, 1)
        covariance[lost[:, :, None] | lost[:, None, :]] = np.nan
    if full is not None:
        n, p = params.shape
        lost = np.isnan(np.diagonal(full))
        known = np.nan_to_num(full).reshape(n, p, n, p)
        full = np.einsum("iab,ibjc,jdc->iajd", slopes, known, slopes, optimize=True)
        full = full.reshape(n * p, n * p)
        full[lost] = full[:, lost] = np.nan
    return unpack(model, params), covariance, full


def drawn(
    model: ItemModel, covariance: FloatArray, full: FloatArray | None, n: int, seed: int
) -> ItemModel:
    """Parameters drawn around the estimates, with a leading axis of draws."""
    with precision("float64"):
        matrix = np.asarray(pack(model))
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
    """Square roots of covariances; what is not known (NaN) does not move."""
    value, vector = np.linalg.eigh(np.nan_to_num(covariance))
    return vector * np.sqrt(np.maximum(value, 0))[..., None, :]


@jit
def _values_and_slopes(model: ItemModel) -> tuple[dict[str, Any], dict[str, Any]]:
    """The published parameters of all items, and their slopes in the unconstrained ones."""

    def one(vector: Any, item: ItemModel) -> dict[str, Any]:
        return unpack(item, vector).irt_parameters()

    matrix = pack(model)
    return jax.vmap(one)(matrix, model), jax.vmap(jax.jacfwd(one))(matrix, model)


def irt_values(
    model: ItemModel, covariance: FloatArray | None
) -> tuple[dict[str, FloatArray], dict[str, FloatArray]]:
    """a, b, c, d of all items and their standard errors by the delta method."""
    with precision("float64"):
        found = _values_and_slopes(filled(model))
    n_items = len(jax.tree.leaves(model)[0])
    values, slopes = jax.tree.map(lambda part: np.asarray(part)[:n_items], found)
    errors = {}
    for name, slope in slopes.items():
        used = (slope != 0).any(axis=1)
        if covariance is None or not used.any():
            errors[name] = np.full(n_items, np.nan)
            continue
        # A parameter that is held (NaN) is known: the rest of its item still has errors.
        estimated = ~np.isnan(np.diagonal(covariance, axis1=1, axis2=2))
        variance = np.einsum("ji,jik,jk->j", slope, np.nan_to_num(covariance), slope)
        told = ((slope != 0) & estimated).any(axis=1) & (variance >= 0) & ~np.isnan(values[name])
        errors[name] = np.sqrt(np.where(told, variance, np.nan))
    return values, errors
