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

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from irtcat._common.compilation import FEW, jit
from irtcat.fitting.em.full_step import (
    Displacement,
    LatentInformation,
    Posteriors,
    full_step,
    item_scores,
)
from irtcat.fitting.em.iteration import EMPoint, EMState, EMUpdate, Problem, StepRule
from irtcat.fitting.em.m_step import (
    Constraints,
    MStep,
    log_prior,
    m_step,
    needs_no_program,
    prior_information,
    prior_slopes,
    step_within_bounds,
)
from irtcat.latent import (
    CorrelationTerms,
    EStep,
    ExpectedSums,
    Moments,
    PackedItems,
    PopulationDesign,
    RowBlock,
    population_step,
    populations_of,
    rescaled_populations,
    sums_of_block,
)
from irtcat.models import OnePL, ThreePL, TwoPL, parameter_matrix, take, unpack

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


def _lengthened(
    problem: Problem,
    point: EMPoint,
    plain: EMPoint,
    new: MStep,
    belief: EStep,
    n: float,
    terms: CorrelationTerms | None,
) -> EMPoint:
    """The EM step lengthened with the missing information (see `irtcat.fitting.em.full_step`)."""
    c, dims = jax.tree.map(np.asarray, problem.constraints), problem.population.dims
    (block,) = problem.blocks()  # only fits in memory are lengthened
    x = np.asarray(block.x)
    rows = slice(None, None, max(1, int(x.size // STEP_CELLS)))
    root: Any = populations_of(np.asarray(point.population, float), dims).root[0]
    weights = np.asarray(problem.weights, float)[rows]
    posteriors = Posteriors(
        np.asarray(belief.mean, float)[rows] @ root.T,
        root @ np.asarray(belief.covariance, float)[rows] @ root.T,
        weights * (n / weights.sum()),
    )
    x, params = x[rows], np.asarray(point.params, float)
    model: Any = unpack(problem.template, params)
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


def _removed_scale(problem: Problem, new: MStep, moments: Moments) -> tuple[EMPoint, float]:
    """The image of EM with the first group's mean and spread removed, and the size of the shift."""
    mean, covariance = moments.mean[0], moments.covariance[0]
    spread = np.diag(np.sqrt(np.maximum(np.diagonal(covariance), 1e-8)))
    if problem.step_rule.full:
        values, vectors = np.linalg.eigh(covariance)
        spread = (vectors * np.sqrt(np.maximum(values, 1e-8))) @ vectors.T
    template = jax.tree.map(np.asarray, problem.template)
    model, specific, n_general = (
        unpack(template, new.params),
        problem.specific,
        problem.rule.n_general,
    )
    if specific is None:
        moved = parameter_matrix(model.rescale(mean, spread))
    else:  # every item has the general abilities and its own specific one
        moved = np.empty_like(new.params)
        for k in range(len(mean) - n_general):
            axes, own = [*range(n_general), n_general + k], np.asarray(specific) == k
            here = take(model, own).rescale(mean[axes], spread[np.ix_(axes, axes)])
            moved[own] = parameter_matrix(here)
    c = jax.tree.map(np.asarray, problem.constraints)
    params = np.where(c.free, np.clip(moved, c.lower, c.upper), moved)
    shift = max(np.abs(mean).max(), np.sqrt(2.0) * np.abs(spread - np.eye(len(mean))).max())
    return EMPoint(params, rescaled_populations(moments, problem.population, mean, spread)), shift


def _item_update(
    items: PackedItems,
    sums: ExpectedSums,
    constraints: Constraints,
    n_steps: Any,
    *,
    design: PopulationDesign,
    step_rule: StepRule,
    n_general: int,
    tied: tuple[int, ...],
) -> tuple[MStep, Moments, Any]:
    """The M-step of the items, moments of the abilities, and the log-prior at the items."""
    template, params, item_weights = items
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


_compiled_update = jit(
    _item_update, static_argnames=("design", "step_rule", "n_general", "tied"), small_below=FEW
)


def multi_update(
    problem: Problem, point: EMPoint, sums: ExpectedSums, n_steps: int, expand: bool
) -> EMUpdate:
    """The M-step for items and populations, and the step defined by the problem's rule.

    At most the M-step of the items is a compiled program; the rest is of a few numbers.

    Returns:
        The update; its ``step`` is that of EM, in standard errors of the complete data.
    """
    rule, design = problem.step_rule, problem.population
    arguments = problem.items(point.params), sums, problem.constraints
    update = _compiled_update
    if sums.gradient is None and needs_no_program(problem.template, point.params):
        update, arguments = _item_update, jax.tree.map(np.asarray, arguments)
    new, moments, prior = update(
        *arguments,
        np.int32(n_steps),
        design=design,
        step_rule=rule,
        n_general=problem.rule.n_general,
        tied=problem.tied,
    )
    new = jax.tree.map(np.asarray, new)
    moments = jax.tree.map(lambda array: np.asarray(array, float), moments)
    numbers, n = np.asarray(point.population, float), float(moments.n.sum())
    population, terms = population_step(numbers, moments, design)
    point = EMPoint(np.asarray(point.params), numbers)
    plain, step = EMPoint(new.params, population), float(new.step)
    image = plain
    if rule.lengthen and expand:
        image = _lengthened(problem, point, plain, new, sums.belief, n, terms)
    elif rule.rescale and not rule.lengthen and expand:
        image, shift = _removed_scale(problem, new, moments)
        step = max(step, np.sqrt(n) * shift)
    if design.size:
        old, moved = (populations_of(v, design.dims) for v in (numbers, image.population))
        changes = (moved.mean - old.mean, moved.root - old.root)
        step = max(step, np.sqrt(n) * max(np.abs(change).max() for change in changes))
    metric = EMPoint(np.diagonal(new.information, axis1=1, axis2=2), np.full_like(numbers, n))

    def rounded(point: EMPoint) -> EMPoint:
        return EMPoint(*(np.asarray(array, problem.dtype) for array in point))

    return EMUpdate(
        point=rounded(image),
        plain=rounded(plain),
        step=step,
        gain=new.gain,
        metric=rounded(metric),
        log_prior=prior,
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
            problem.items(state.point.params),
            state.point.population,
            block,
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
