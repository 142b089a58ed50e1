"""Standard errors item by item, for tests too long for one matrix of all parameters."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from irtcat._checks import argument_error
from irtcat._compile import jit
from irtcat._types import FloatArray
from irtcat.fitting._covariance import Covariance, inverse_blocks
from irtcat.fitting.em import EMPoint, EMProblem
from irtcat.fitting.standard_errors import (
    complete_information,
    score_curves,
)
from irtcat.latent import (
    Blocks,
    EStep,
    Population,
    ScaleTransform,
    on_grid_scale,
    posterior_on_grid,
    row_priors,
    transformed_nodes,
)
from irtcat.models import ItemModel, pack, unpack

__all__ = ["block_covariance"]


@jit
def _item_loss(
    template: ItemModel,
    params: Array,
    totals: Array,
    share: Array,
    transform: ScaleTransform | None,
) -> Float[Array, "items params params"]:
    """First-order loss of each item, sum of sd^2 E[(d2 log f / d theta d phi)^2] over the grid.

    With natural curves (base, eta) the mixed derivative of log f(x) has mean
    -(d eta / d theta)' V (d eta / d phi) and covariance M' V M, M = d2 eta / d theta d phi.
    """
    nodes = transformed_nodes(transform, params.dtype)

    def contrasts(phi: Array, theta: Array, item: ItemModel) -> Array:
        return unpack(item, phi).natural(theta[None])[1:]

    def information(phi: Array, item: ItemModel, theta: Array) -> Array:
        slope = jax.jacfwd(contrasts, 1)(phi, theta, item)
        return slope @ unpack(item, phi).variance(theta[None]) @ slope

    def total_information(theta: Array) -> Array:
        return jax.vmap(information, (0, 0, None))(params, template, theta).sum()

    prior_precision = 1.0 if transform is None else transform.sd**-2
    variance = 1 / (prior_precision + share * jax.lax.map(total_information, nodes))

    def squares(phi: Array, item: ItemModel, theta: Array) -> Array:
        v = unpack(item, phi).variance(theta[None])
        slope = jax.jacfwd(contrasts, 1)(phi, theta, item)
        by_phi = jax.jacfwd(contrasts, 0)(phi, theta, item)
        mixed = jax.jacfwd(jax.jacfwd(contrasts, 1), 0)(phi, theta, item)
        mean = slope @ v @ by_phi
        return jnp.outer(mean, mean) + mixed.T @ v @ mixed

    def one(phi: Array, item: ItemModel, totals: Array) -> Array:
        at_nodes = jax.vmap(squares, (None, None, 0))(phi, item, nodes)
        return jnp.einsum("g,gpq->pq", totals * variance, at_nodes)

    if totals.ndim == 1:
        totals = jnp.broadcast_to(totals[:, None], (len(nodes), params.shape[0]))
    work = (params, template, totals.T)
    return jax.lax.map(lambda item: one(*item), work, batch_size=512)


def block_covariance(
    problem: EMProblem, point: EMPoint, belief: EStep, share: float, sandwich: bool = False
) -> Covariance:
    """Covariance of each item's parameters, item by item.

    Args:
        problem: what was fitted.
        point: the estimates.
        belief: the E-step at the estimates.
        share: share of the responses that are observed.
        sandwich: robust to a wrong model.

    Returns:
        The covariances; NaN for an item whose information is not positive definite.
    """
    params, transform = point.params, problem.transform
    complete = complete_information(
        problem.template, params, belief.counts, belief.totals, problem.constraints, transform
    )
    loss = _item_loss(
        problem.template, params, belief.totals, jnp.asarray(share, params.dtype), transform
    )
    information = np.asarray(complete, float) - np.asarray(loss, float)
    free = np.asarray(problem.constraints.free)
    covariance = inverse_blocks(
        information, free, problem.tied if problem.constraints.shared is None else ()
    )
    if sandwich:
        covariance = covariance @ _item_squares_of(problem, point, belief) @ covariance
    covariance = covariance + _scale_uncertainty(problem, params)
    fixed = ~free
    covariance[fixed[:, :, None] | fixed[:, None, :]] = np.nan
    latent = None if problem.group is None else _latent(problem, point, belief, covariance[0])
    how = "block sandwich" if sandwich else "block"
    return Covariance(blocks=covariance, latent=latent, how=how)


def _n_defining(problem: EMProblem) -> float:
    """Number of subjects in the population that defines the scale; 0 where items do."""
    weights = np.asarray(problem.weights, float)
    if problem.group is None:
        return float(weights.sum())
    return float(weights[np.asarray(problem.held)[np.asarray(problem.group)]].sum())


def _scale_uncertainty(problem: EMProblem, params: Array) -> FloatArray:
    """Covariance from the estimated mean and log SD of the defining population."""
    n = _n_defining(problem)
    if n == 0:
        return np.zeros((*params.shape, params.shape[1]))

    def moved(latent: Array) -> Array:
        return pack(unpack(problem.template, params).rescale(latent[0], jnp.exp(latent[1])))

    directions = np.asarray(jax.jacfwd(moved)(jnp.zeros(2, params.dtype)), float)
    return np.einsum("jal,l,jbl->jab", directions, [1 / n, 0.5 / n], directions)


def _latent(problem: EMProblem, point: EMPoint, belief: EStep, first: FloatArray) -> FloatArray:
    """Covariance of the groups' means and log SDs with the items treated as known.

    Each group's information (Louis 1982, with Normal posteriors), and the uncertainty of the
    population that defines the scale.
    """
    mean, log_sd = np.asarray(point.population, float)
    theta, sd = np.asarray(belief.mean, float), np.asarray(belief.sd, float)
    if problem.transform is not None:
        at, unit = (float(value) for value in problem.transform)
        theta, sd = at + unit * theta, unit * sd
    group, weights = np.asarray(problem.group), np.asarray(problem.weights, float)
    z = (theta - mean[group]) * np.exp(-log_sd[group])
    v = (sd * np.exp(-log_sd[group])) ** 2
    by_mean = np.bincount(group, weights * (1 - v), len(mean)) * np.exp(-2 * log_sd)
    by_sd = np.bincount(group, weights * (2 * (z**2 + v) - 4 * z**2 * v - 2 * v**2), len(mean))
    n = _n_defining(problem)
    shared = 1 / n if n else 0.0
    size, n_groups = len(first), len(mean)
    out = np.full((size + 2 * n_groups,) * 2, 0.0)
    out[:size, :size] = first
    with np.errstate(divide="ignore"):
        group_variance = np.concatenate([1 / np.maximum(by_mean, 0), 1 / np.maximum(by_sd, 0)])
    out[size:, size:] = np.diag(group_variance)
    direction = np.stack(
        [np.r_[np.ones(n_groups), np.zeros(n_groups)], np.r_[mean, np.ones(n_groups)]]
    )
    out[size:, size:] += direction.T @ np.diag([shared, 0.5 * shared]) @ direction
    held = np.r_[np.zeros(size, bool), np.tile(np.asarray(problem.held), 2)]
    out[held] = out[:, held] = np.nan
    return out


@functools.partial(jit, static_argnames=("window", "has_missing"))
def _item_squares(
    template: ItemModel,
    params: Array,
    x: Array,
    weights: Array,
    wide: Blocks | None,
    narrow: Blocks | None,
    population: Population | None,
    transform: ScaleTransform | None,
    *,
    window: int,
    has_missing: bool,
) -> Float[Array, "items params params"]:
    """Sum over subjects of the square of the expected score, each item on its own."""
    n_subjects, n_params = x.shape[0], params.shape[1]
    model, prior_of = on_grid_scale(unpack(template, params), population, transform)
    curves = score_curves(template, params, transformed_nodes(transform, params.dtype))

    def block(carry: Array, rows: Array, first: Array, local: bool) -> Array:
        safe = jnp.minimum(rows, n_subjects - 1)
        statistics, mask = model.sufficient_statistics(
            x[safe], curves.shape[2] - 1, has_missing, params.dtype
        )
        post = posterior_on_grid(
            model, statistics, mask, first, window, local, row_priors(prior_of, safe)
        )
        size = (post.shape[1], *curves.shape[1:])
        zero = jnp.int32(0)
        at = jax.lax.dynamic_slice(curves, (first if local else zero, zero, zero, zero), size)
        base = jnp.einsum("rg,gjp->rjp", post, at[:, :, 0])
        score = base if mask is None else mask[..., None] * base
        for k, h in enumerate(statistics):
            score = score + h[..., None] * jnp.einsum("rg,gjp->rjp", post, at[:, :, k + 1])
        row_weight = jnp.where(rows < n_subjects, weights[safe], 0)
        return carry + jnp.einsum("rjp,r,rjq->jpq", score, row_weight, score)

    out = jnp.zeros((x.shape[1], n_params, n_params), params.dtype)
    for blocks, local in ((wide, False), (narrow, True)):
        if blocks is None:
            continue

        def body(carry: Array, block_: tuple[Array, Array], local: bool = local):
            rows, first = block_
            used = rows[0] < n_subjects
            return jax.lax.cond(
                used, lambda c: block(c, rows, first, local), lambda c: c, carry
            ), None

        out = jax.lax.scan(body, out, (blocks.rows, blocks.first))[0]
    return out


def _item_squares_of(problem: EMProblem, point: EMPoint, belief: EStep) -> FloatArray:
    """`_item_squares` at the estimates."""
    if problem.engine is not None:
        raise argument_error(
            "standard_errors", "other than sandwich on several devices", "sandwich"
        )
    layout = problem.plan.layout(np.asarray(belief.mean, float), np.asarray(belief.sd, float))
    population = (
        None
        if problem.group is None
        else Population(point.population[0], point.population[1], problem.group)
    )
    squares = _item_squares(
        problem.template,
        point.params,
        problem.x,
        problem.weights,
        layout.wide,
        layout.narrow,
        population,
        problem.transform,
        window=layout.window,
        has_missing=problem.has_missing,
    )
    return np.asarray(squares, float)
