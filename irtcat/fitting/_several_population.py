"""The multidimensional population: its correlations, its scale, and the length of the step.

Completes the M-step of the items to an EM map: it estimates the correlations; then the step is
lengthened with the missing information (`irtcat.fitting._several_step`), or the scale of the
abilities is removed (parameter expansion), or the step is unchanged.
"""

import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from irtcat._compile import jit
from irtcat.fitting._mstep import Constraints, log_prior
from irtcat.fitting._several_step import Displacement, full_step, item_scores
from irtcat.fitting.em import EMPoint, EMUpdate
from irtcat.models import ItemModel, pack, unpack

__all__ = [
    "Image",
    "ObservedData",
    "StepRule",
    "correlation_root",
    "finish",
    "free_correlations",
]

NEAR = 1.0
"""Steps of items with a lower asymptote are lengthened below this size (standard errors)."""

STEP_CELLS = 4e6
"""Maximum number of responses for the missing information: beyond it, every k-th row is used."""


@functools.partial(jit, static_argnames=("dims",))
def correlation_root(free: Float[Array, " pairs"], dims: int) -> Float[Array, "dims dims"]:
    """Lower root of a correlation matrix: rows of (free numbers, 1), scaled to length 1."""
    rows, columns = np.tril_indices(dims, -1)
    lower = jnp.eye(dims, dtype=free.dtype)
    if free.shape[0]:
        lower = lower.at[rows, columns].set(free)
    return lower / jnp.sqrt((lower**2).sum(1, keepdims=True))


@jit
def free_correlations(correlations: Float[Array, "dims dims"]) -> Float[Array, " pairs"]:
    """Undo `correlation_root`: any free numbers give a correlation matrix."""
    root = jnp.linalg.cholesky(correlations)
    rows, columns = np.tril_indices(correlations.shape[0], -1)
    return (root / jnp.diagonal(root)[:, None])[rows, columns]


def _symmetric_root(matrix: Float[Array, "dims dims"]) -> Float[Array, "dims dims"]:
    values, vectors = jnp.linalg.eigh(matrix)
    return (vectors * jnp.sqrt(jnp.maximum(values, 1e-8))) @ vectors.T


def _agreement(free: Float[Array, " pairs"], second: Float[Array, "dims dims"]) -> Array:
    """Mean log-density of abilities with these second moments (mean 0, SD 1), up to a constant."""
    root = correlation_root(free, second.shape[0])
    half = jax.scipy.linalg.solve_triangular(root, second, lower=True)
    standardised = jax.scipy.linalg.solve_triangular(root, half.T, lower=True)
    return -jnp.log(jnp.diagonal(root)).sum() - 0.5 * jnp.trace(standardised)


def _positive(matrix: Float[Array, "n n"]) -> tuple[Array, Array]:
    """Eigenvalues, made positive, and eigenvectors."""
    values, vectors = jnp.linalg.eigh(matrix)
    return jnp.maximum(jnp.abs(values), 0.05), vectors


def _best_correlations(
    free: Float[Array, " pairs"], second: Float[Array, "dims dims"]
) -> Float[Array, " pairs"]:
    """A step towards the correlations that fit the second moments best, with mean 0 and SD 1."""
    for _ in range(3):
        values, vectors = _positive(-jax.hessian(_agreement)(free, second))
        move = vectors @ ((vectors.T @ jax.grad(_agreement)(free, second)) / values)
        lengths = jnp.array([1.0, 0.5, 0.2, 0.05, 0.0], free.dtype)
        tries = free + lengths[:, None] * move
        scores = jax.vmap(_agreement, (0, None))(tries, second)
        free = tries[jnp.argmax(scores)]
    return free


class Image(NamedTuple):
    """The M-step of the items: new parameters, and the size of the step."""

    params: Array
    step: Array
    gain: Array
    information: Array


class ObservedData(NamedTuple):
    """The responses of an E-step, and the posterior moments of the subjects.

    Attributes:
        x: responses.
        weights: how many subjects each row stands for.
        item_weights: 1 for the items that abilities are estimated from, 0 for the others.
        mean: posterior means on the z scale.
        covariance: posterior covariances.
        moments: number of subjects, mean of E[theta], mean of E[theta theta'].
    """

    x: Array
    weights: Array
    item_weights: Array
    mean: Array
    covariance: Array
    moments: tuple[Array, Array, Array]


class StepRule(NamedTuple):
    """How the next point follows from a step of EM (static).

    Attributes:
        lengthen: whether the step is lengthened with the missing information.
        rescale: otherwise, whether the latent scale is removed.
        full: whether this removes the full covariance (no loading pattern).
        correlated: whether the abilities' correlations are estimated.
        has_missing: whether any response is missing.
    """

    lengthen: bool
    rescale: bool
    full: bool
    correlated: bool
    has_missing: bool


def _lengthened(
    point: EMPoint,
    plain: EMPoint,
    information: Array,
    template: ItemModel,
    observed: ObservedData,
    constraints: Constraints,
    step_rule: StepRule,
) -> EMPoint:
    """The step of EM from ``point`` to ``plain``, lengthened with the missing information."""
    n, _, second = observed.moments
    n_rows, n_items = observed.x.shape
    # The length of a step needs no more than a sample of the rows.
    pick = slice(None, None, max(1, int(n_rows * n_items / STEP_CELLS)))
    weights = observed.weights[pick]
    weights = weights * (n / weights.sum())
    dims = second.shape[0]
    root = correlation_root(point.population, dims)
    mean = observed.mean[pick] @ root.T
    covariance = root @ observed.covariance[pick] @ root.T
    statistics, mask = template.sufficient_statistics(
        observed.x[pick], 1, step_rule.has_missing, weights.dtype
    )
    counted = observed.item_weights if mask is None else mask * observed.item_weights
    slopes, intercept = point.params[:, :dims], point.params[:, dims]
    lower = point.params[:, -1] if point.params.shape[1] > dims + 1 else None
    scores = item_scores(slopes, intercept, lower, mean, covariance, statistics[0], counted)
    by_free = jnp.zeros((0, dims, dims), root.dtype)
    information_free = jnp.zeros((0, 0), root.dtype)
    if step_rule.correlated:

        def precision_of(free: Array) -> Array:
            other = correlation_root(free, dims)
            return jnp.linalg.inv(other @ other.T)

        by_free = jnp.moveaxis(jax.jacfwd(precision_of)(point.population), -1, 0)
        values, vectors = _positive(-jax.hessian(_agreement)(point.population, second))
        information_free = n * (vectors * values) @ vectors.T
    inside = (plain.params > constraints.lower) & (plain.params < constraints.upper)
    active = constraints.free & inside
    step = Displacement(
        plain.params - point.params, (plain.population - point.population)[: len(by_free)]
    )
    long_step = full_step(
        step, information, information_free, active, scores, slopes, mean, covariance, weights,
        by_free,
    )  # fmt: skip
    params = jnp.clip(point.params + long_step.params, constraints.lower, constraints.upper)
    free = point.population + long_step.free if step_rule.correlated else plain.population
    return EMPoint(jnp.where(active, params, plain.params), free)


def finish(
    point: EMPoint,
    new: Any,
    template: ItemModel,
    observed: ObservedData,
    constraints: Constraints,
    expand: Array,
    step_rule: StepRule,
) -> EMUpdate:
    """Estimate the correlations, and take the step defined by ``step_rule``.

    Args:
        point: the point of the E-step.
        new: the M-step of the items.
        template: the items.
        observed: the E-step.
        constraints: priors, fixed parameters, bounds.
        expand: whether to apply ``step_rule`` instead of the plain step.
        step_rule: how to step.

    Returns:
        The update; its ``step`` is that of EM, in standard errors of the complete data.
    """
    n, mean, second = observed.moments
    dims = mean.shape[0]
    root_n = jnp.sqrt(n)
    plain_free = point.population
    if step_rule.correlated:
        plain_free = _best_correlations(point.population, second)
    plain = EMPoint(new.params, plain_free)
    image, step, free = plain, new.step, plain_free
    if step_rule.lengthen:
        image = _lengthened(
            point, plain, new.information, template, observed, constraints, step_rule
        )
        if point.params.shape[1] > dims + 1:  # with c, steps far from the maximum are too long
            near = new.step < NEAR
            image = jax.tree.map(lambda a, b: jnp.where(near, a, b), image, plain)
    elif step_rule.rescale:
        eye = jnp.eye(dims, dtype=mean.dtype)
        covariance = second - jnp.outer(mean, mean)
        sd = jnp.sqrt(jnp.diagonal(covariance))
        spread = _symmetric_root(covariance) if step_rule.full else jnp.diag(sd)
        params = pack(unpack(template, new.params).rescale(mean, spread))
        params = jnp.clip(params, constraints.lower, constraints.upper)
        if step_rule.correlated:
            free = free_correlations(covariance / jnp.outer(sd, sd))
        image = EMPoint(params, free)
        shift = jnp.maximum(jnp.abs(mean).max(), jnp.sqrt(2.0) * jnp.abs(spread - eye).max())
        step = jnp.where(expand, jnp.maximum(step, root_n * shift), step)
    if step_rule.correlated:
        free = jnp.where(expand, free, plain_free)
        moved = correlation_root(free, dims) - correlation_root(point.population, dims)
        step = jnp.maximum(step, root_n * jnp.abs(moved).max())
    image = jax.tree.map(lambda a, b: jnp.where(expand, a, b), image, plain)
    metric = EMPoint(
        jnp.diagonal(new.information, axis1=1, axis2=2), jnp.full_like(point.population, n)
    )
    prior = (observed.item_weights * log_prior(point.params, constraints)).sum()
    return EMUpdate(
        point=image, plain=plain, step=step, gain=new.gain, metric=metric, log_prior=prior
    )
