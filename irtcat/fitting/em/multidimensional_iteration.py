"""EM for several abilities: one iteration by grid, two-tier or adaptive quadrature.

Every group of subjects has a Normal population; its E-step runs on the scale z on which that
population is standard Normal, with the items rescaled to it, and the M-step takes the nodes of all
groups on the scale of the items.

The steps of EM are lengthened with the missing information (`irtcat.fitting.em.full_step`), or
parameter expansion (Liu, Rubin & Wu 1998) is used instead: the mean and the spread of the first
group's abilities are estimated in each iteration and immediately removed by rescaling the items,
where the model is invariant to it. Without a loading pattern the spread is the full covariance;
with one it is each ability's SD (correlations are parameters).
"""

import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from irtcat._common.compilation import FEW, SMALL, jit
from irtcat.fitting.em.full_step import Displacement, full_step, item_scores
from irtcat.fitting.em.iteration import EMPoint, EMState, EMUpdate, Problem, StepRule
from irtcat.fitting.em.m_step import (
    Constraints,
    MStep,
    log_prior,
    m_step,
    prior_information,
    prior_slopes,
    step_within_bounds,
)
from irtcat.latent import (
    EStep,
    ExpectedSums,
    Moments,
    PopulationDesign,
    RowBlock,
    population_step,
    populations_of,
    rescaled_populations,
    sums_of_block,
)
from irtcat.models import ItemModel, OnePL, ThreePL, TwoPL, pack, unpack

CAN_BE_LENGTHENED = (OnePL, TwoPL, ThreePL)
"""Models whose steps are lengthened with the missing information: see `fitting.em.full_step`."""

NEAR = 1.0
"""Steps of items with a lower asymptote are lengthened below this size (standard errors): far from
the maximum the lengthened steps of asymptotes overshoot."""

STEP_CELLS = 1e5
"""Maximum number of responses for the missing information: beyond it, every k-th row is used."""


def _without_turning(gradient: Array, slopes: Array, item_weights: Array) -> Array:
    """Remove from the gradient the rotation of the axes, which the likelihood does not identify.

    A rotation moves the slopes A to A W with W antisymmetric; the antisymmetric part of A' gradient
    is 0 except for the integration error, which would make the axes drift. It is removed along A Y,
    with Y antisymmetric and ``S Y + Y S`` twice that part, S = A' A.
    """
    dims = slopes.shape[1]
    inner = slopes.T @ (item_weights[:, None] * gradient[:, :dims])
    values, vectors = jnp.linalg.eigh(slopes.T @ (item_weights[:, None] * slopes))
    target = vectors.T @ (inner - inner.T) @ vectors
    total = values[:, None] + values[None, :]
    rotation = vectors @ (target / jnp.maximum(total, 1e-6 * values[-1] + 1e-30)) @ vectors.T
    along = item_weights[:, None] * (slopes @ rotation)
    return gradient.at[:, :dims].add(-along)


def _newton_step(
    params: Array,
    sums: ExpectedSums,
    dims: int,
    item_weights: Array,
    constraints: Constraints,
    damping: Array,
    step_rule: StepRule,
    tied: tuple[int, ...],
) -> MStep:
    """One Newton step for the items (EM gradient: Lange 1995)."""
    assert sums.gradient is not None
    assert sums.information is not None
    gradient = sums.gradient + prior_slopes(params, constraints)[0]
    if step_rule.full and step_rule.lengthen:
        gradient = _without_turning(gradient, params[:, :dims], item_weights)
    eye = jnp.eye(params.shape[1], dtype=params.dtype)
    information = sums.information + prior_information(params, constraints)[..., None] * eye
    damp = jnp.full(len(gradient), damping)
    moved = step_within_bounds(params, gradient, information, damp, constraints, tied, item_weights)
    move = moved - params
    squared = jnp.einsum("ji,jik,jk->j", move, information, move)
    return MStep(moved, jnp.sqrt(squared.max()), 0.5 * squared.sum(), information, gradient)


class LatentInformation(NamedTuple):
    """What the lengthened step needs of the population.

    Attributes:
        root: lower root of the abilities' covariance.
        by_free: derivative of their precision matrix by the free numbers of the correlations.
        information: of the complete data on these numbers, and its inverse.
        inverse: likewise.
    """

    root: Float[Array, "dims dims"]
    by_free: Float[Array, "pairs dims dims"]
    information: Float[Array, "pairs pairs"]
    inverse: Float[Array, "pairs pairs"]


@functools.partial(jit, static_argnames=("design", "lengthen"), options=SMALL)
def _population_update(
    population: Array, moments: Moments, *, design: PopulationDesign, lengthen: bool
) -> tuple[Array, LatentInformation | None]:
    """The M-step of the populations, and what a lengthened step needs of the first one."""
    new, terms = population_step(population, moments, design)
    if not lengthen:
        return new, None
    dims = design.dims
    root = populations_of(population, dims).root[0]
    if terms is None:
        none = jnp.zeros((0, 0), root.dtype)
        return new, LatentInformation(root, jnp.zeros((0, dims, dims), root.dtype), none, none)
    n, vectors = moments.n[0], terms.vectors  # one group, whose correlations are estimated
    information = (vectors * (n * terms.values)) @ vectors.T
    inverse = (vectors / (n * terms.values)) @ vectors.T
    return new, LatentInformation(root, terms.precision, information, inverse)


@functools.partial(jit, static_argnames=("has_missing",))
def _lengthened(
    point: EMPoint,
    plain: EMPoint,
    new: MStep,
    template: ItemModel,
    x: Array,
    weights: Array,
    belief: tuple[Array, Array],
    n: Array,
    latent: LatentInformation,
    constraints: Constraints,
    *,
    has_missing: bool,
) -> EMPoint:
    """The EM step lengthened with the missing information (see `irtcat.fitting.em.full_step`)."""
    root, dims = latent.root, len(latent.root)
    every = max(1, int(x.size // STEP_CELLS))
    rows = slice(None, None, every)
    mean, covariance = belief
    mean, covariance = mean[rows] @ root.T, root @ covariance[rows] @ root.T
    weights = weights[rows]
    weights = weights * (n[0] / weights.sum())
    statistics, mask = template.sufficient_statistics(x[rows], 1, has_missing, point.params.dtype)
    answered = jnp.ones_like(statistics[0]) if mask is None else mask
    model: Any = unpack(template, point.params)
    lower = getattr(model, "logit_lower", None)
    scores = item_scores(
        model.slope, model.intercept, lower, mean, covariance, statistics[0], answered
    )
    inside = (plain.params > constraints.lower) & (plain.params < constraints.upper)
    active = constraints.free & inside
    pairs = slice(2 * dims, None)
    step = Displacement(
        plain.params - point.params,
        (plain.population - point.population)[0, pairs][: len(latent.by_free)],
    )
    long_step = full_step(
        step,
        new.information,
        (latent.information, latent.inverse),
        active,
        scores,
        model.slope,
        mean,
        covariance,
        weights,
        latent.by_free,
    )
    params = jnp.clip(point.params + long_step.params, constraints.lower, constraints.upper)
    population = plain.population
    if len(latent.by_free):
        population = point.population.at[0, pairs].add(long_step.free)
    image = EMPoint(jnp.where(active, params, plain.params), population)
    if lower is None:
        return image
    near = new.step < NEAR
    return jax.tree.map(lambda a, b: jnp.where(near, a, b), image, plain)


def _symmetric_root(matrix: Float[Array, "dims dims"]) -> Float[Array, "dims dims"]:
    values, vectors = jnp.linalg.eigh(matrix)
    return (vectors * jnp.sqrt(jnp.maximum(values, 1e-8))) @ vectors.T


def _removed_scale(
    new: MStep,
    template: ItemModel,
    moments: Moments,
    constraints: Constraints,
    design: PopulationDesign,
    step_rule: StepRule,
    specific: Array | None,
    n_general: int,
) -> tuple[EMPoint, Array]:
    """The image of EM with the first group's mean and spread removed, and the size of the shift."""
    mean, covariance = moments.mean[0], moments.covariance[0]
    sd = jnp.sqrt(jnp.maximum(jnp.diagonal(covariance), 1e-8))
    spread = _symmetric_root(covariance) if step_rule.full else jnp.diag(sd)
    model = unpack(template, new.params)
    if specific is None:
        moved = model.rescale(mean, spread)
    else:  # every item has the general abilities and its own specific one
        columns = jnp.column_stack(
            [*(jnp.full_like(specific, k) for k in range(n_general)), n_general + specific]
        )
        by_item = jax.vmap(lambda item, m, s: item.rescale(m, jnp.diag(s)))
        moved = by_item(model, mean[columns], sd[columns])
    params = jnp.clip(pack(moved), constraints.lower, constraints.upper)
    params = jnp.where(constraints.free, params, pack(moved))
    eye = jnp.eye(len(mean), dtype=mean.dtype)
    shift = jnp.maximum(jnp.abs(mean).max(), jnp.sqrt(2.0) * jnp.abs(spread - eye).max())
    population = rescaled_populations(moments, design, mean, spread)
    return EMPoint(params, population), shift


@functools.partial(
    jit, static_argnames=("design", "step_rule", "n_general", "tied"), small_below=FEW
)
def _item_update(
    params: Array,
    sums: ExpectedSums,
    template: ItemModel,
    item_weights: Array,
    constraints: Constraints,
    n_steps: Array,
    *,
    design: PopulationDesign,
    step_rule: StepRule,
    n_general: int,
    tied: tuple[int, ...],
) -> tuple[MStep, Moments, Array]:
    """The M-step of the items, moments of the abilities, and the log-prior at ``params``."""
    if sums.gradient is None:
        counts, totals, theta = sums.belief.counts, sums.belief.totals, sums.theta
        new = m_step(
            template, params, counts, totals, constraints, item_weights, tied, n_steps, theta
        )
    else:
        damping = jnp.where(n_steps > 2, 1.0, 0.0).astype(params.dtype)
        new = _newton_step(
            params, sums, design.dims, item_weights, constraints, damping, step_rule, tied
        )
    prior = (item_weights * log_prior(params, constraints)).sum()
    return new, sums.moments(design, n_general), prior


@functools.partial(jit, static_argnames=("design", "step_rule", "n_general"), options=SMALL)
def _update_of(
    point: EMPoint,
    new: MStep,
    population: Array,
    image: EMPoint | None,
    moments: Moments,
    template: ItemModel,
    constraints: Constraints,
    specific: Array | None,
    prior: Array,
    expand: Array,
    *,
    design: PopulationDesign,
    step_rule: StepRule,
    n_general: int,
) -> EMUpdate:
    """The step defined by ``step_rule``, and its size; ``image`` is a lengthened step."""
    n = moments.n.sum()
    plain, step = EMPoint(new.params, population), new.step
    if image is None and step_rule.rescale and not step_rule.lengthen:
        image, shift = _removed_scale(
            new, template, moments, constraints, design, step_rule, specific, n_general
        )
        step = jnp.where(expand, jnp.maximum(step, jnp.sqrt(n) * shift), step)
        image = jax.tree.map(lambda a, b: jnp.where(expand, a, b), image, plain)
    image = plain if image is None else image
    if design.size:
        old, moved = (populations_of(v, design.dims) for v in (point.population, image.population))
        change = jnp.maximum(
            jnp.abs(moved.mean - old.mean).max(), jnp.abs(moved.root - old.root).max()
        )
        step = jnp.maximum(step, jnp.sqrt(n) * change)
    metric = EMPoint(
        jnp.diagonal(new.information, axis1=1, axis2=2), jnp.full_like(point.population, n)
    )
    return EMUpdate(
        point=image, plain=plain, step=step, gain=new.gain, metric=metric, log_prior=prior
    )


def multi_update(
    problem: Problem, point: EMPoint, sums: ExpectedSums, n_steps: int, expand: bool
) -> EMUpdate:
    """The M-step for items and populations, and the step defined by the problem's rule.

    Several programs: those of the nodes are compiled again where the quadrature is refined, those
    of the rows, of the items and of the population are not.

    Returns:
        The update; its ``step`` is that of EM, in standard errors of the complete data.
    """
    rule, design, n_general = problem.step_rule, problem.population, problem.rule.n_general
    template, constraints = problem.template, problem.constraints
    new, moments, prior = _item_update(
        point.params,
        sums,
        template,
        problem.item_weights,
        constraints,
        np.int32(n_steps),
        design=design,
        step_rule=rule,
        n_general=n_general,
        tied=problem.tied,
    )
    population, latent = _population_update(
        point.population, moments, design=design, lengthen=rule.lengthen
    )
    image = EMPoint(new.params, population) if rule.lengthen else None
    if rule.lengthen and expand:
        assert latent is not None
        (block,) = problem.blocks()  # only fits in memory are lengthened
        image = _lengthened(
            point,
            EMPoint(new.params, population),
            new,
            template,
            block.x,
            problem.weights,
            (sums.belief.mean, sums.belief.covariance),
            moments.n,
            latent,
            constraints,
            has_missing=problem.has_missing,
        )
    return _update_of(
        point,
        new,
        population,
        image,
        moments,
        template,
        constraints,
        problem.specific,
        prior,
        np.bool_(expand),
        design=design,
        step_rule=rule,
        n_general=n_general,
    )


def sums_at(problem: Problem, state: EMState) -> ExpectedSums:
    """The E-step of the problem's rule at a point: one pass over the rows."""
    dtype, running = problem.weights.dtype, []
    for block in problem.blocks():
        nodes: Any = ()
        if problem.rule.is_adaptive:
            nodes = tuple(filled(array, block, dtype) for array in (state.mean, state.covariance))
        sums = sums_of_block(
            problem.rule,
            state.point.params,
            state.point.population,
            problem.template,
            block,
            problem.item_weights,
            nodes,
            problem.population,
            problem.has_missing,
        )
        running.append((sums, block.rows.stop - block.rows.start))
    if len(running) == 1:
        return running[0][0]
    total: Any = None
    for sums, n_rows in running:  # the blocks of several devices run at the same time until here
        rows: Any = [np.asarray(array)[:n_rows] for array in sums.belief[:3]]
        rest: Any = [np.asarray(array) for array in sums.belief[3:6]]
        here = jax.device_get(sums)._replace(belief=EStep(*rows, *rest))
        total = here if total is None else total + here
    return total


def filled(array: Any, block: RowBlock, dtype: np.dtype) -> np.ndarray:
    """The block's rows of an array of all rows, 0 after the last."""
    rows = np.asarray(array, dtype)[block.rows]
    missing = len(block.x) - len(rows)
    return np.pad(rows, [(0, missing), *[(0, 0)] * (rows.ndim - 1)]) if missing else rows


def run_multi_e_step(
    problem: Problem, state: EMState, slack: float, n_steps: int, expand: bool
) -> tuple[EMUpdate, EStep]:
    """Apply the EM map of the problem's rule (``slack`` is for layouts in one dimension)."""
    del slack
    sums = sums_at(problem, state)
    return multi_update(problem, state.point, sums, n_steps, expand), sums.belief
