"""Uncertainty of a bank: on another scale, as draws, of the published parameters, and as curves.

For one subject the likelihood of an answer to an item with uncertain parameters xi is the expected
curve, E[P(x | theta, xi)]: flatter than the curve at the mean parameters, the more so the less is
known. With a logistic item, eta = a theta + d is Normal with variance (theta, 1) C (theta, 1)',
and E[logistic(eta)] is again close to a logistic curve: the one with the smallest Kullback-Leibler
divergence over the population replaces it. Curves of graded items are expected over draws of
their parameters, and replaced by the nearest of their model in the same way.
"""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float
from scipy.special import expit

from irtcat._common.compilation import jit
from irtcat._common.precision import precision
from irtcat._common.types import BoolArray, FloatArray
from irtcat.bank._table import delta_errors
from irtcat.bank.population import Population
from irtcat.models import (
    MODELS,
    CategoricalModel,
    Design,
    ItemModel,
    column_names,
    field_columns,
    filled,
    pack,
    parameter_matrix,
    parameter_names,
    take,
    tied_parameters,
    unpack,
)

NODES = np.linspace(-5.0, 5.0, 41)
"""Abilities in SDs of the population at which the curves are compared."""

NEWTON_STEPS = 25

DRAWS = 1000
"""Draws of the parameters of graded items."""


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


def _fitted(
    slope: FloatArray, intercept: FloatArray, covariance: FloatArray, theta: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Slopes and intercepts of the logistic curves nearest to the expected ones."""
    points, weights = np.polynomial.hermite_e.hermegauss(31)
    weights = weights / weights.sum()
    basis = np.stack([theta, np.ones_like(theta)])
    eta = slope[:, None] * theta + intercept[:, None]
    sd = np.sqrt(np.maximum(np.einsum("an,jab,bn->jn", basis, covariance, basis), 0.0))
    expected = expit(eta[..., None] + sd[..., None] * points) @ weights
    density = np.exp(-0.5 * NODES**2)
    a, d = slope.copy(), intercept.copy()
    for _ in range(NEWTON_STEPS):
        p = expit(a[:, None] * theta + d[:, None])
        gradient = (density * (expected - p)) @ basis.T
        w = density * p * (1 - p)
        information = np.einsum("jn,an,bn->jab", w, basis, basis)
        information[:, [0, 1], [0, 1]] += 1e-9
        step = np.linalg.solve(information, gradient[..., None])[..., 0]
        size = np.abs(step).max(axis=1, keepdims=True)
        step = step * np.minimum(1.0, 1.0 / np.maximum(size, 1e-300))
        a, d = a + step[:, 0], d + step[:, 1]
        if size.max() < 1e-10:
            break
    return a, d


@jit
def _expected_probabilities(
    draws: CategoricalModel, theta: Float[Array, " nodes"]
) -> Float[Array, "items nodes categories"]:
    """Probabilities of the categories, averaged over draws of the parameters of items."""

    def of_item(item: CategoricalModel) -> Array:
        return jax.vmap(lambda t: jnp.exp(item.log_probs(t[None])))(theta)

    return jax.vmap(jax.vmap(of_item))(draws).mean(axis=0)


@jit
def _nearest(
    template: CategoricalModel,
    params: Float[Array, "items params"],
    expected: Float[Array, "items nodes categories"],
    theta: Float[Array, " nodes"],
    density: Float[Array, " nodes"],
) -> Float[Array, "items params"]:
    """Parameters of the items with the least Kullback-Leibler divergence, by Fisher scoring."""

    def of_item(item: CategoricalModel, start: Array, target: Array) -> Array:
        def log_p(row: Array) -> Array:
            filled = unpack(item, row)
            return jax.vmap(lambda t: filled.log_probs(t[None]))(theta)

        def step(_: Any, row: Array) -> Array:
            value, slopes = log_p(row), jax.jacfwd(log_p)(row)
            weight = density[:, None] * jnp.exp(value)
            # Categories that the item lacks have probability 0 and no derivatives.
            slopes = jnp.where((weight > 0)[..., None], slopes, 0.0)
            gradient = jnp.einsum("nk,nkp->p", density[:, None] * target, slopes)
            information = jnp.einsum("nk,nkp,nkq->pq", weight, slopes, slopes)
            ridge = 1e-9 * jnp.eye(len(row))
            move = jnp.linalg.solve(information + ridge, gradient)
            return row + move / jnp.maximum(1.0, jnp.abs(move).max())

        return jax.lax.fori_loop(0, NEWTON_STEPS, step, start)

    return jax.vmap(of_item)(template, params, expected)


def expected_graded(
    model: ItemModel,
    covariance: FloatArray,
    at: BoolArray,
    draws: ItemModel,
    population: Population,
) -> tuple[ItemModel, FloatArray]:
    """Items with several categories, some of them replaced by the nearest to the expected curves.

    Args:
        model: the items.
        covariance: of their parameters.
        at: which are replaced.
        draws: draws of the parameters of these items.
        population: over which curves are near.
    """
    theta = population.mean + population.sd * NODES
    density = np.exp(-0.5 * NODES**2)
    with precision("float64"):
        model, covariance = _with_own_slopes(model, covariance)
        params = parameter_matrix(model).astype(float)
        expected = _expected_probabilities(draws, theta)
        params[at] = _nearest(take(model, at), params[at], expected, theta, density)
    covariance = np.array(covariance)
    covariance[at] = 0.0
    return unpack(model, params), covariance


def _with_own_slopes(model: ItemModel, covariance: FloatArray) -> tuple[ItemModel, FloatArray]:
    """Rating scale items as items with slopes and steps of their own."""
    if model.untied() is model:
        return model, covariance

    def converted(params: FloatArray) -> ItemModel:
        return unpack(model, params).untied()

    params = parameter_matrix(model).astype(float)
    # The new parameters are linear functions of the old ones.
    zero, units = np.zeros((1, params.shape[1])), np.eye(params.shape[1])
    change = parameter_matrix(converted(units)) - parameter_matrix(converted(zero))
    return converted(params), np.einsum("ap,jab,bq->jpq", change, covariance, change)


def expected_logistic(
    model: ItemModel, covariance: FloatArray, at: BoolArray, population: Population
) -> tuple[ItemModel, FloatArray]:
    """Right/wrong items, some of them replaced by the nearest to the expected curves.

    Args:
        model: the items.
        covariance: of their parameters.
        at: which are replaced.
        population: over which curves are near.
    """
    names = column_names(model)
    slope_columns = field_columns(model, ["slope"])
    (column,) = field_columns(model, ["intercept"])
    params = parameter_matrix(model)
    slope = params[:, slope_columns[0]] if slope_columns else np.ones(len(params))
    block = np.zeros((int(at.sum()), 2, 2))
    known = np.nan_to_num(covariance[at])
    block[:, 1, 1] = known[:, column, column]
    if slope_columns:
        block[:, 0, 0] = known[:, slope_columns[0], slope_columns[0]]
        block[:, 0, 1] = block[:, 1, 0] = known[:, slope_columns[0], column]
    theta = population.mean + population.sd * NODES
    slope, intercept = slope.copy(), params[:, column].copy()
    slope[at], intercept[at] = _fitted(slope[at], intercept[at], block, theta)
    covariance = np.array(covariance)
    if slope_columns and "slope" not in tied_parameters(model):
        params = params.copy()
        params[:, slope_columns[0]], params[:, column] = slope, intercept
        covariance[at] = 0.0
        return unpack(model, params), covariance
    # Items with equal slopes have slopes of their own now.
    new = MODELS["2pl"].blank(Design(np.full(len(params), 2), 1, {}))
    order = {"slope": slope, "intercept": intercept}
    matrix = np.stack([order[name] for name in column_names(new)], axis=1)
    wide = np.zeros((len(params), 2, 2))
    for i, first in enumerate(column_names(new)):
        for j, second in enumerate(column_names(new)):
            if first in names and second in names:
                wide[:, i, j] = covariance[:, names.index(first), names.index(second)]
    wide[at] = 0.0
    return unpack(new, matrix), wide
