"""Parameter expansion: mean and spread of the abilities, estimated and removed from the items."""

import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from irtcat._common.compilation import jit
from irtcat._common.types import BoolArray, FloatArray
from irtcat.fitting.em.m_step import Constraints, MStep, beyond_bounds, log_prior
from irtcat.fitting.em.problem import EMPoint, Problem
from irtcat.latent import Moments, PackedItems, rescaled_populations
from irtcat.models import ItemModel, pack, parameter_matrix, take, unpack

SCALE_STEPS = 8
"""Damped Newton steps for the latent mean and SD where they depend on priors."""


@jit
def _latent_under_priors(
    items: PackedItems, moments: Array, population: Array, constraints: Constraints, pull: Array
) -> tuple[Array, Array]:
    """Latent mean and log SD that are best for the abilities and for the priors.

    With priors on slopes or intercepts, removing a mean and an SD moves the items under their
    priors. So the two maximise ``E log N(theta; mean, sd^2) + log prior(items rescaled)`` given
    the items: a conditional maximisation in the expanded model, which raises the log-posterior
    as any other step of EM does. ``pull`` is subtracted from the gradient (see `_pull_of_bounds`).
    Groups have the populations N(mean + sd * m, (sd * s)^2), with m and log s in ``population``.
    """
    group_n, first, second = moments
    n, dtype = group_n.sum(), items.params.dtype
    model = items.model

    def objective(v: Array) -> Array:
        centre = v[0] + jnp.exp(v[1]) * population[:, 0]
        off = second - 2 * centre * first + group_n * centre**2
        squares = (off * jnp.exp(-2 * (v[1] + population[:, 1]))).sum()
        moved = pack(model.rescale(v[0], jnp.exp(v[1])))
        prior = (items.weights * log_prior(moved, constraints)).sum()
        return -n * v[1] - 0.5 * squares + prior - pull @ v

    scale = jnp.stack([n, 2 * n])

    def body(_: Array, state: tuple[Array, Array, Array]) -> tuple[Array, Array, Array]:
        v, value, damping = state
        curvature = -jax.hessian(objective)(v) + jnp.diag(damping * scale)
        a, b, d = curvature[0, 0], curvature[0, 1], curvature[1, 1]
        determinant = a * d - b**2
        gradient = jax.grad(objective)(v)
        newton = jnp.stack([d * gradient[0] - b * gradient[1], a * gradient[1] - b * gradient[0]])
        upward = (a > 0) & (determinant > 0)
        step = jnp.where(upward, newton / jnp.where(upward, determinant, 1.0), gradient / scale)
        new = v + jnp.clip(step, -0.5, 0.5)
        new_value = objective(new)
        up = new_value >= value
        v, value = jnp.where(up, new, v), jnp.where(up, new_value, value)
        return v, value, jnp.where(up, 0.1 * damping, jnp.maximum(10 * damping, 0.1))

    zero = jnp.zeros(2, dtype)
    start = (zero, objective(zero), jnp.zeros((), dtype))
    v = jax.lax.fori_loop(0, SCALE_STEPS, body, start)[0]
    return v[0], v[1]


@jit
def _pull_of_bounds(template: ItemModel, params: Array, multipliers: Array) -> Array:
    """Derivatives by the latent mean and log SD of what the items at bounds lose.

    In the expanded model (abilities N(mean, sd^2)) the bounds hold on the scale on which the
    abilities are N(0, 1). Where the scale moves, a parameter at its bound moves along on the
    expanded scale, and the expected log-posterior falls by its gradient (the multiplier of the
    bound). At the constrained maximum the abilities therefore do not have exactly the moments of
    N(0, 1), and removing these would lead away from it.
    """
    model = unpack(template, params)
    zero, one = jnp.zeros((), params.dtype), jnp.ones((), params.dtype)

    def rescaled(mean: Array, log_sd: Array) -> Array:
        return pack(model.rescale(mean, jnp.exp(log_sd)))

    changes = [jax.jvp(rescaled, (zero, zero), way)[1] for way in ((one, zero), (zero, one))]
    return jnp.stack([(multipliers * change).sum() for change in changes])


def _pooled_scale(
    problem: Problem, new: MStep, moments: Moments, numbers: FloatArray
) -> tuple[FloatArray, FloatArray, BoolArray]:
    """Mean and SD of all subjects that are best for the abilities, under priors and bounds.

    Also which parameters are at bounds, and stay there (see `_pull_of_bounds`).
    """
    fill, dtype = problem.fill, problem.dtype
    pull, c = np.zeros(2, dtype), problem.constraints
    bounded: Any = beyond_bounds(new.params, new.gradient, jax.tree.map(np.asarray, c))
    bounded = bounded & np.asarray(c.free)
    bounded[:, list(problem.tied)] = False
    bounded &= problem.population.n_groups == 1  # several take up any change of the scale
    if bounded.any():
        weights = np.asarray(problem.item_weights)[:, None]
        multipliers = fill.weights(weights * np.where(bounded, new.gradient, 0.0))
        template = problem.filled().template
        pull = np.asarray(_pull_of_bounds(template, fill.items(new.params), multipliers))
    n = moments.n.sum()
    sums = np.stack(
        [moments.n, moments.n * moments.mean[:, 0], moments.n * moments.second[:, 0, 0]]
    )
    is_known = problem.population.is_known
    if problem.step_rule.scaled or is_known:
        relative = numbers if is_known else np.zeros((1, 2))
        sums = sums if is_known else sums.sum(1, keepdims=True)
        tables = (array.astype(dtype) for array in (sums, relative))
        wide = problem.filled()
        items = wide.items(fill.items(new.params))
        mean, log_sd = map(float, _latent_under_priors(items, *tables, wide.constraints, pull))
    else:
        mean, square = sums[1:].sum(1) / n
        log_sd = 0.5 * math.log(max(square - mean**2, 1e-12))
        log_sd -= 0.5 * math.log(np.clip(1 + pull[1] / n, 0.5, 2.0))
        mean -= pull[0] * math.exp(2 * log_sd) / n
    return np.array([mean]), np.array([[math.exp(log_sd)]]), bounded


def removed_scale(
    problem: Problem, new: MStep, moments: Moments, numbers: FloatArray
) -> tuple[EMPoint, float]:
    """The image of EM with the mean and spread of abilities removed, and the size of the shift."""
    step_rule, specific = problem.step_rule, problem.specific
    bounded: BoolArray | bool = False
    if step_rule.pooled:
        mean, spread, bounded = _pooled_scale(problem, new, moments, numbers)
    else:
        mean, covariance = moments.mean[0], moments.covariance[0]
        spread = np.diag(np.sqrt(np.maximum(np.diagonal(covariance), 1e-8)))
        if step_rule.full:
            values, vectors = np.linalg.eigh(covariance)
            spread = (vectors * np.sqrt(np.maximum(values, 1e-8))) @ vectors.T
    template, c = jax.tree.map(np.asarray, (problem.template, problem.constraints))
    model, n_general = unpack(template, new.params), problem.rule.n_general
    if specific is None:
        scale = (mean[0], spread[0, 0]) if step_rule.pooled else (mean, spread)
        moved = parameter_matrix(model.rescale(*scale))
    else:  # every item has the general abilities and its own specific one
        moved = np.empty_like(new.params)
        for k in range(len(mean) - n_general):
            axes, own = [*range(n_general), n_general + k], np.asarray(specific) == k
            here = take(model, own).rescale(mean[axes], spread[np.ix_(axes, axes)])
            moved[own] = parameter_matrix(here)
    # Held parameters are rescaled as well: an unused category keeps its distance from the others.
    params = np.where(c.free, np.clip(moved, c.lower, c.upper), moved)
    params = np.where(bounded, new.params, params)
    shift = max(np.abs(mean).max(), np.sqrt(2.0) * np.abs(spread - np.eye(len(mean))).max())
    population = rescaled_populations(numbers, moments, problem.population, mean, spread)
    return EMPoint(params, population), shift
