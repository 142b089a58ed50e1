"""What a bank's uncertainty becomes: on another scale, as draws, of the published parameters."""

from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from irtcat._checks import argument_error
from irtcat._compile import jit
from irtcat._precision import precision
from irtcat._types import FloatArray
from irtcat.models import (
    MIXABLE,
    ItemModel,
    Rasch,
    as_mixed,
    column_names,
    design_of,
    filled,
    pack,
    unpack,
)

__all__ = ["drawn", "irt_values", "mixed_banks", "rescaled"]


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


def mixed_banks(one: Any, other: Any) -> tuple[Any, Any]:
    """Two banks of different models, each as part of one with room for the models of both.

    Raises:
        InputError: for models that cannot be in one bank, or codes that do not begin with 0.
    """
    banks = (one, other)
    keys = {key for bank in banks for key in bank.model.key.split("+")}
    if not keys <= set(MIXABLE):
        raise argument_error("other", f"a {one.model.key} bank", other.model.key)
    for bank in banks:
        codes = bank.provenance.get("codes", [0])
        if codes and codes[0] != 0:
            must = "with responses in codes from 0 on, as banks of several models need"
            raise argument_error("other", must, f"codes from {codes[0]} on")
    present = tuple(key for key in MIXABLE if key in keys)
    top = max(bank.model.n_categories for bank in banks)
    first, second = (_in_mixture(bank, present, top) for bank in banks)
    return first, second


def _in_mixture(bank: Any, keys: tuple[str, ...], top: int) -> Any:
    """The bank with its items as part of a mixture; what is new has no covariance (NaN)."""
    with precision("float64"):
        model, moves = as_mixed(bank.model, keys, top)
        n_params = pack(model).shape[1]
    covariance = None
    if bank.covariance is not None:
        covariance = np.full((bank.n_items, n_params, n_params), np.nan)
        for rows, source, target in moves:
            at, old, new = np.flatnonzero(rows), np.array(source), np.array(target)
            covariance[np.ix_(at, new, new)] = bank.covariance[np.ix_(at, old, old)]
    return replace(bank, model=model, covariance=covariance, full_covariance=None)


def with_room(bank: Any, top: int) -> Any:
    """The bank with room for items of ``top`` categories."""
    if bank.model.n_categories == top:
        return bank
    design = design_of(bank.model)
    blank = type(bank.model).blank(design._replace(top=top))
    names = column_names(blank)
    at = np.array([names.index(name) for name in column_names(bank.model)])
    params = np.zeros((bank.n_items, len(names)))
    params[:, at] = bank.parameters()
    covariance = None
    if bank.covariance is not None:
        covariance = np.full((bank.n_items, len(names), len(names)), np.nan)
        covariance[:, at[:, None], at] = bank.covariance
    model = unpack(blank, params)
    return replace(bank, model=model, covariance=covariance, full_covariance=None)


def common_codes(one: Any, other: Any) -> dict[str, list[int]]:
    """The codes of the responses that two banks of graded items are for together.

    Raises:
        InputError: where they do not begin alike.
    """
    codes = [list(b.provenance["codes"]) for b in (one, other) if b.provenance.get("codes")]
    if one.model.n_categories == 2 or not codes:
        return {}
    if codes[0][0] != codes[-1][0]:
        must = f"for responses in codes from {codes[0][0]} on, as this bank is"
        raise argument_error("other", must, f"codes from {codes[-1][0]} on")
    return {"codes": max(codes, key=len)}


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
