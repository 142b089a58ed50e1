"""One iteration of marginal maximum likelihood by EM (Bock & Aitkin 1981).

`sums_at` is the E-step by the problem's quadrature, `em_update` the M-step for items and
populations, and the step that follows from it:

- Parameter expansion (Liu, Rubin & Wu 1998): the mean and the spread of the abilities are estimated
  in each iteration and immediately removed by rescaling the items, where the model is invariant to
  it. This reduces the number of iterations from 50-100 to about five on long tests. Of several
  abilities they are the first group's: without a loading pattern the full covariance, with one each
  ability's SD (correlations are parameters). Of one ability they are those of all subjects, and are
  chosen under the priors and the bounds of the items.
- Or the step is lengthened with the missing information (`irtcat.fitting.em.steps`).

The parameters are also extrapolated (Anderson acceleration, see `irtcat.fitting.em.driver`)
as long as the objective does not fall.
"""

import math
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from irtcat._common.compilation import FEW, jit
from irtcat.fitting.em.m_step import (
    CompleteData,
    Constraints,
    MStep,
    log_prior,
    m_step,
    needs_no_program,
    plus_diagonal,
    prior_information,
    prior_slopes,
    step_within_bounds,
)
from irtcat.fitting.em.problem import EMPoint, EMState, Problem, StepRule, of_items, sums_at
from irtcat.fitting.em.steps import lengthened, removed_scale
from irtcat.latent import (
    EStep,
    ExpectedSums,
    PackedItems,
    population_distance,
    population_metric,
    population_step,
)

OF_ITEMS = ("params", "information", "gradient")
"""Fields of an `MStep` with a row for each item."""


class EMUpdate(NamedTuple):
    """One application of the EM map.

    Attributes:
        point: the image.
        plain: the image without parameter expansion.
        step: size of the step, in standard errors of the complete data (items, groups, and
            the latent mean and SD that were removed).
        gain: predicted increase of the log-posterior by the Newton step.
        metric: weight of each parameter in the extrapolation's norm.
        log_prior: log-density of the priors at the parameters the map was applied to (items of
            weight 1).
    """

    point: EMPoint
    plain: EMPoint
    step: Any
    gain: Array
    metric: EMPoint
    log_prior: Array


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
    items: PackedItems,
    sums: ExpectedSums,
    constraints: Constraints,
    damping: Array,
    step_rule: StepRule,
    tied: tuple[int, ...],
) -> MStep:
    """One Newton step for the items (EM gradient: Lange 1995)."""
    assert sums.gradient is not None
    assert sums.information is not None
    template, params, item_weights = items
    gradient = sums.gradient + prior_slopes(params, constraints)[0]
    if step_rule.full and step_rule.lengthen:
        gradient = _without_turning(gradient, params[:, : template.dims], item_weights)
    information = plus_diagonal(sums.information, prior_information(params, constraints))
    damp = jnp.full(len(gradient), damping)
    moved = step_within_bounds(params, gradient, information, damp, constraints, tied, item_weights)
    move = moved - params
    squared = jnp.einsum("ji,jik,jk->j", move, information, move)
    return MStep(moved, jnp.sqrt(squared.max()), 0.5 * squared.sum(), information, gradient)


def _item_update(
    items: PackedItems,
    sums: ExpectedSums,
    constraints: Constraints,
    n_steps: Any,
    *,
    step_rule: StepRule,
    tied: tuple[int, ...],
) -> tuple[MStep, Any]:
    """The M-step of the items, and the log-prior at the items."""
    template, params, item_weights = items
    if sums.gradient is None:
        counts, totals = sums.belief.counts, sums.belief.totals
        data = CompleteData(template, params, counts, totals, constraints, nodes=sums.theta)
        new = m_step(data, item_weights, tied, n_steps)
    else:
        damping = jnp.where(n_steps > 2, 1.0, 0.0).astype(params.dtype)
        new = _newton_step(items, sums, constraints, damping, step_rule, tied)
    return new, (item_weights * log_prior(params, constraints)).sum()


STATIC = ("step_rule", "tied")
_compiled_update = {
    pooled: jit(_item_update, static_argnames=STATIC, small_below=0 if pooled else FEW)
    for pooled in (True, False)
}
"""Programs by `StepRule.pooled`. For one ability LLVM's quickest level saves .3 to .5 s of a first
fit, and costs .02 to .04 s of every fit (3PL, graded, GPCM, 2000 x 50), also of later ones."""


def em_update(
    problem: Problem, point: EMPoint, sums: ExpectedSums, n_steps: int, expand: bool
) -> EMUpdate:
    """The M-step for items and populations, and the step defined by the problem's rule.

    At most the M-step of the items is a compiled program; the rest is of a few numbers.

    Returns:
        The update; its ``step`` is that of EM, in standard errors of the complete data.
    """
    rule, design, fill = problem.step_rule, problem.population, problem.fill
    static: Any = {"step_rule": rule, "tied": problem.tied}
    n_responses = len(problem.weights) * len(problem.item_weights)
    by_item = sums.with_arrays((None,) * 4, sums.added)  # of a shape that rows do not change
    is_numpy = needs_no_program(problem.template, point.params, sums.belief.counts, n_responses)
    if sums.gradient is None and is_numpy:
        arguments: Any = problem.items(point.params), by_item, problem.constraints
        inputs: Any = *jax.tree.map(np.asarray, arguments), np.int32(n_steps)
        new, prior = _item_update(*inputs, **static)
    else:
        wide = problem.filled()
        by_item = of_items(by_item, fill.items)
        arguments = wide.items(fill.items(point.params)), by_item, wide.constraints
        new, prior = _compiled_update[rule.pooled](*arguments, np.int32(n_steps), **static)
        new = jax.tree.map(np.asarray, new)
        new = new._replace(**{name: fill.cut(getattr(new, name)) for name in OF_ITEMS})
    numbers = np.asarray(point.population, float)
    moments = sums.moments(design)
    moments = jax.tree.map(lambda array: np.asarray(array, float), moments)
    population, terms = population_step(numbers, moments, design)
    point = EMPoint(np.asarray(point.params), numbers)
    plain, step, n = EMPoint(new.params, population), float(new.step), float(moments.n.sum())
    image = plain
    if rule.lengthen and expand:
        image = lengthened(problem, point, plain, new, sums.belief, n, terms)
    elif rule.rescale and expand:
        image, shift = removed_scale(problem, new, moments, numbers)
        step = max(step, math.sqrt(n) * shift)
    if design.size:
        change = population_distance(numbers, image.population, moments.n, design.dims)
        step = max(step, change)
    of_params = np.diagonal(new.information, axis1=1, axis2=2)
    metric = EMPoint(of_params, population_metric(numbers, moments.n, design.dims))

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


def em_step(
    problem: Problem, state: EMState, slack: float, n_steps: int, expand: bool
) -> tuple[EMUpdate, EStep]:
    """An E-step, with subjects laid out by their last posteriors, and an M-step."""
    sums = sums_at(problem, state, slack)
    return em_update(problem, state.point, sums, n_steps, expand), sums.belief
