"""How the next point follows from a step of EM: by parameter expansion, or by a longer step.

A longer step is Aitken's acceleration with the missing information. Near the maximum an EM step d
covers only a share of the distance, as the responses hold less information than complete data. The
full step y solves

    (I_complete - I_missing) y = I_complete d                                (Louis 1982, section 5)

where I_missing is the posterior covariance of the complete-data score, summed over the subjects.
It follows without further integrals from the posterior means m and covariances S, with posteriors
treated as Normal: a score s(theta) with average slope D and curvature H has the variance

    D' S D + tr(H S H S) / 2 + ...                   (Hermite series; all terms are nonnegative).

As the score of item j is ``g(eta_j) theta`` with ``eta_j = slope_j . theta + intercept_j``, the
product of I_missing and a vector takes a few matrix products of subjects x items; the system is
solved by conjugate gradients without forming the matrix. Only the length of the step is
approximate: it is 0 if and only if that of EM is.

All of it is numpy: of at most 1e5 responses it takes about as long as compiled programs would, and
nothing has to be compiled. The sums over rows are float32, which takes half of the time: the length
is approximate anyway.
"""

import math
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float
from scipy.special import expit

from irtcat._common.compilation import jit
from irtcat._common.types import BoolArray, FloatArray
from irtcat.fitting.em.m_step import RIDGE, Constraints, MStep, beyond_bounds, log_prior
from irtcat.fitting.em.problem import EMPoint, Problem
from irtcat.latent import (
    CorrelationTerms,
    EStep,
    Moments,
    PackedItems,
    populations_of,
    rescaled_populations,
)
from irtcat.models import ItemModel, OnePL, ThreePL, TwoPL, pack, parameter_matrix, take, unpack

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
    model = unpack(template, new.params)
    if specific is None:
        scale = (mean[0], spread[0, 0]) if step_rule.pooled else (mean, spread)
        moved = parameter_matrix(model.rescale(*scale))
    else:  # every item has the general abilities and its own specific one
        moved, n_general = np.empty_like(new.params), problem.rule.n_general
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


NODES, WEIGHTS = np.polynomial.hermite_e.hermegauss(5)
"""Gauss-Hermite nodes over each eta, and their weights."""

MAX_STEPS = 30
"""Maximum number of conjugate gradient steps."""

SMALL = 1e-3
"""Tolerance of the system, relative to EM's step."""

CHUNK = 2**13
"""Responses whose scores are computed together, for arrays that stay in the cache: 2.6 ms in place
of 4.4 for 2000 x 20."""

MOST_MISSING = 0.97
"""Conjugate gradients stop at a direction with a larger share of missing information."""


class Displacement(NamedTuple):
    """A change of all estimates: item parameters, and the free numbers of the correlations."""

    params: Float[Any, "items params"]
    free: Float[Any, " pairs"]


class Scores(NamedTuple):
    """Posterior expectations of the scores of each item and subject, and their derivatives.

    The score by slopes and intercept is ``g(eta) * (theta, 1)``, that by logit c is ``h(eta)``.
    The fields are the expectations of g and its first three derivatives, and of the first two of h
    (empty without c), each rows x items; all 0 where a response is missing, or the item does not
    inform on ability.
    """

    g: tuple[Any, ...]
    h: tuple[Any, ...]


class Posteriors(NamedTuple):
    """Posterior means and covariances of rows on the scale of the slopes, and their weights."""

    mean: Float[Any, "rows dims"]
    covariance: Float[Any, "rows dims dims"]
    weights: Float[Any, " rows"]


class LatentInformation(NamedTuple):
    """What the lengthened step needs of the correlations, by their free numbers.

    Attributes:
        precision: derivative of the abilities' precision matrix.
        information: of the complete data.
        inverse: its inverse.
    """

    precision: Float[np.ndarray, "pairs dims dims"]
    information: Float[np.ndarray, "pairs pairs"]
    inverse: Float[np.ndarray, "pairs pairs"]


def _score_derivatives(
    eta: Float[np.ndarray, "rows items"],
    right: Bool[np.ndarray, "rows items"],
    logit_lower: Float[np.ndarray, " items"] | None,
) -> tuple[FloatArray, ...]:
    """Return g and three derivatives by eta; with c also two of h."""
    s = expit(eta)
    v = s * (1 - s)
    v1 = v * (1 - 2 * s)
    v2 = v * (1 - 6 * v)
    if logit_lower is None:
        return right - s, -v, -v1, -v2
    # A wrong answer has log(1 - c) + log(1 - s): -s by eta, and nothing of eta by logit c. A right
    # one has log P = log(c + (1 - c) s): k by eta, l = c (1 - c) (1 - s) / P by logit c. The
    # derivatives follow from those of the logarithms, log k' = 1 - 2 s - k and log l' = -s - k.
    c = expit(logit_lower)
    tilt = 1 - 2 * s
    p = c + (1 - c) * s
    k = (1 - c) * v / p
    k1 = k * (tilt - k)
    k2 = k1 * (tilt - k) - k * (2 * v + k1)
    k3 = k2 * (tilt - k) - 2 * k1 * (2 * v + k1) - k * (2 * v1 + k2)
    low = c * (1 - c) * (1 - s) / p
    low1 = low * (-s - k)
    low2 = low1 * (-s - k) - low * (v + k1)
    wrong = ~right
    by_eta = (right * a - wrong * b for a, b in ((k, s), (k1, v), (k2, v1), (k3, v2)))
    return (*by_eta, right * low1, right * low2)


def _products(a: FloatArray, b: FloatArray) -> Float[np.ndarray, "items dims_and_dims"]:
    """Products of all components of each row of ``a`` with all of the same row of ``b``."""
    return (a[:, :, None] * b[:, None, :]).reshape(len(a), -1)


def item_scores(
    slopes: Float[np.ndarray, "items dims"],
    intercept: Float[np.ndarray, " items"],
    logit_lower: Float[np.ndarray, " items"] | None,
    posteriors: Posteriors,
    right: Bool[np.ndarray, "rows items"],
    answered: Bool[np.ndarray, "rows items"] | None,
) -> Scores:
    """The expectations of `Scores`, by Gauss-Hermite over eta; ``answered`` is None for all."""
    n, n_items = right.shape
    variance = posteriors.covariance.reshape(n, -1) @ _products(slopes, slopes).T
    sd = np.sqrt(np.maximum(variance, 0.0))
    at = posteriors.mean @ slopes.T + intercept
    total = np.zeros((4 if logit_lower is None else 6, n, n_items), at.dtype)
    nodes, weights = NODES.astype(at.dtype), (WEIGHTS / WEIGHTS.sum()).astype(at.dtype)
    for first in range(0, n, max(1, CHUNK // n_items)):
        rows = slice(first, first + max(1, CHUNK // n_items))
        for node, weight in zip(nodes, weights, strict=True):
            here = _score_derivatives(at[rows] + node * sd[rows], right[rows], logit_lower)
            for sums, values in zip(total[:, rows], here, strict=True):
                sums += weight * values
    if answered is not None:
        total *= answered
    return Scores(tuple(total[:4]), tuple(total[4:]))


def missing_information(
    move: Displacement,
    scores: Scores,
    slopes: Float[np.ndarray, "items dims"],
    posteriors: Posteriors,
    precision: Float[np.ndarray, "pairs dims dims"],
) -> Displacement:
    """``I_missing move``: the gradient of half of the quadratic form ``move' I_missing move``.

    The form is linear in the subjects' average slope D and curvature H of ``move' score`` (see the
    module docstring), which are linear in ``move``.
    """
    mean, covariance, weights = posteriors
    n, dims = mean.shape
    flat, squares = covariance.reshape(n, -1), _products(slopes, slopes)
    by_slope = move.params[:, :dims]
    along = mean @ by_slope.T + move.params[:, dims]
    aside = flat @ _products(slopes, by_slope).T
    g, g1, g2, g3 = scores.g
    first, second = g1 * along + g2 * aside, g2 * along + g3 * aside
    if scores.h:
        first += scores.h[0] * move.params[:, -1]
        second += scores.h[1] * move.params[:, -1]
    by_correlations = (move.free[:, None, None] * precision).sum(0)
    slope = first @ slopes + g @ by_slope - mean @ by_correlations
    cross = _products(slopes, by_slope) + _products(by_slope, slopes)
    curvature = (second @ squares + g1 @ cross).reshape(n, dims, dims) - by_correlations
    of_slope = (covariance @ slope[:, :, None])[:, :, 0] * weights[:, None]
    bent = 0.5 * weights[:, None, None] * (covariance @ curvature @ covariance)
    of_curvature = bent.reshape(n, -1)
    of_first, of_second = of_slope @ slopes.T, of_curvature @ squares.T
    of_along = g1 * of_first + g2 * of_second
    of_aside = g2 * of_first + g3 * of_second
    # Of `aside` and `cross` by the change of the slopes: a matrix of each item times its slopes.
    matrices = (of_aside.T @ flat + 2 * (g1.T @ of_curvature)).reshape(-1, dims, dims)
    of_slopes = of_along.T @ mean + g.T @ of_slope + (matrices * slopes[:, None, :]).sum(2)
    columns = [of_slopes, of_along.sum(0)[:, None]]
    if scores.h:
        of_logit = (scores.h[0] * of_first + scores.h[1] * of_second).sum(0)
        columns.append(of_logit[:, None])
    of_correlations = -(mean.T @ of_slope) - bent.sum(0)
    return Displacement(np.concatenate(columns, axis=1), (precision * of_correlations).sum((1, 2)))


def full_step(
    step: Displacement,
    information: Float[np.ndarray, "items params params"],
    latent: LatentInformation,
    active: Float[np.ndarray, "items params"] | BoolArray,
    scores: Scores,
    slopes: Float[np.ndarray, "items dims"],
    posteriors: Posteriors,
) -> Displacement:
    """Lengthen a step of EM (see the module docstring).

    Conjugate gradients start at the step itself, with I_complete as preconditioner; they end early
    where the responses hold almost no information on a direction.

    Args:
        step: the EM step; 0 where a parameter is held.
        information: of the complete data by the items' parameters, priors included.
        latent: the same by the free numbers of the correlations.
        active: items x params, the parameters that may change.
        scores: at the posterior means.
        slopes: of the items, as parameterised.
        posteriors: of the rows, on the scale of the slopes.

    Returns:
        The step to take.
    """
    both = active[..., None] & active[..., None, :]
    eye = np.eye(information.shape[1])
    complete = np.where(both, information, 0) + np.where(active, RIDGE, 1.0)[..., None] * eye
    precision = latent.precision.astype(slopes.dtype)
    values, vectors = np.linalg.eigh(complete)
    inverse = (vectors / np.maximum(values, RIDGE)[:, None]) @ vectors.swapaxes(1, 2)

    def times(matrices: FloatArray, of_free: FloatArray, x: Displacement) -> Displacement:
        return Displacement((matrices @ x.params[..., None])[..., 0], of_free @ x.free)

    def missing(x: Displacement) -> Displacement:
        move = Displacement(*(array.astype(slopes.dtype) for array in x))
        by = missing_information(move, scores, slopes, posteriors, precision)
        return Displacement(np.where(active, by.params, 0).astype(float), by.free.astype(float))

    def inner(x: Displacement, y: Displacement) -> float:
        return float((x.params * y.params).sum() + (x.free * y.free).sum())

    def plus(x: Displacement, factor: float, y: Displacement) -> Displacement:
        return Displacement(x.params + factor * y.params, x.free + factor * y.free)

    step = Displacement(np.where(active, step.params, 0), step.free)
    least = SMALL**2 * inner(step, times(complete, latent.information, step))
    if least <= 0:
        return step
    # The residual of the step itself: I_complete d - (I_complete - I_missing) d.
    residual = missing(step)
    direction = times(inverse, latent.inverse, residual)
    size = inner(residual, direction)
    for _ in range(MAX_STEPS):
        if size <= least:
            break
        preconditioned = times(complete, latent.information, direction)
        image = plus(preconditioned, -1.0, missing(direction))
        curvature, largest = inner(direction, image), inner(direction, preconditioned)
        if curvature <= (1 - MOST_MISSING) * largest:
            break
        step = plus(step, size / curvature, direction)
        residual = plus(residual, -size / curvature, image)
        smooth = times(inverse, latent.inverse, residual)
        last, size = size, inner(residual, smooth)
        direction = plus(smooth, size / last, direction)
    return step


CAN_BE_LENGTHENED = (OnePL, TwoPL, ThreePL)
"""Models whose steps are lengthened with the missing information: see `fitting.em.steps`."""

NEAR = 1.0
"""Steps of items with a lower asymptote are lengthened below this size (standard errors): far from
the maximum the lengthened steps of asymptotes overshoot."""

STEP_CELLS = 1e5
"""Maximum number of responses for the missing information: beyond it, every k-th row is used."""


def lengthened(
    problem: Problem,
    point: EMPoint,
    plain: EMPoint,
    new: MStep,
    belief: EStep,
    n: float,
    terms: CorrelationTerms | None,
) -> EMPoint:
    """The EM step lengthened with the missing information (see `irtcat.fitting.em.steps`)."""
    c, dims = jax.tree.map(np.asarray, problem.constraints), problem.population.dims
    (block,) = problem.blocks()  # only fits in memory are lengthened
    x = np.asarray(block.x)
    rows = slice(None, None, max(1, int(x.size // STEP_CELLS)))
    root: Any = populations_of(np.asarray(point.population, float), dims).root[0]
    weights = np.asarray(problem.weights, float)[rows]
    of_rows = (
        np.asarray(belief.mean, float)[rows] @ root.T,
        root @ np.asarray(belief.covariance, float)[rows] @ root.T,
        weights * (n / weights.sum()),
    )
    posteriors = Posteriors(*(array.astype(np.float32) for array in of_rows))
    x, params = x[rows], np.asarray(point.params, float)
    model: Any = unpack(problem.template, params.astype(np.float32))
    lower = getattr(model, "logit_lower", None)
    answered = x >= 0 if problem.has_missing else None
    arguments = model.slope, model.intercept, lower, posteriors, x == 1, answered
    scores = item_scores(*arguments)
    inside = (plain.params > c.lower) & (plain.params < c.upper)
    active = c.free & inside
    nothing = np.zeros((0, 0))
    latent = LatentInformation(np.zeros((0, dims, dims)), nothing, nothing)
    if terms is not None:
        vectors, values = terms.vectors, n * terms.values
        information, inverse = ((vectors * by) @ vectors.T for by in (values, 1 / values))
        latent = LatentInformation(terms.precision, information, inverse)
    pairs = slice(2 * dims, 2 * dims + len(latent.precision))
    free = (plain.population - point.population)[0, pairs]
    step = Displacement(np.asarray(plain.params - params, float), np.asarray(free, float))
    information = np.asarray(new.information, float)
    long_step = full_step(step, information, latent, active, scores, model.slope, posteriors)
    moved = np.where(active, np.clip(params + long_step.params, c.lower, c.upper), plain.params)
    population = plain.population.copy()
    population[0, pairs] = point.population[0, pairs] + long_step.free
    near = lower is None or float(new.step) < NEAR
    return EMPoint(moved, population) if near else plain
