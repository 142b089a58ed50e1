"""EM in several dimensions: one iteration by grid, bifactor or adaptive quadrature.

The steps of EM are lengthened with the missing information (`irtcat.fitting._several_step`). In the
bifactor model, or where acceleration is off, parameter expansion (Liu, Rubin & Wu 1998) is used
instead: the mean and the spread of the abilities are estimated in each iteration and immediately
removed by rescaling the items, where the model is invariant to it. Without a loading pattern the
spread is the full covariance; with one, and in the bifactor model, it is each ability's SD
(correlations are parameters).
"""

import functools
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from irtcat._compile import jit
from irtcat.fitting._mstep import Constraints, log_prior, m_step
from irtcat.fitting._several_own import adaptive_map
from irtcat.fitting._several_population import ObservedData, StepRule, correlation_root, finish
from irtcat.fitting.em import EMPoint, EMState, EMUpdate
from irtcat.models import ItemModel, MTwoPL, unpack
from irtcat.scoring import (
    AdaptiveQuadrature,
    BifactorQuadrature,
    GridQuadrature,
    MultiEStep,
    bifactor_step,
    grid_step,
)

__all__ = [
    "MultiProblem",
    "run_multi_e_step",
]


class MultiProblem(NamedTuple):
    """Everything that is constant over the iterations.

    Attributes:
        template: the items (bifactor: with two dimensions each).
        x: responses, rows x items.
        weights: how many subjects each row stands for.
        item_weights: 1 for the items that abilities are estimated from, 0 for the others.
        has_missing: whether any response is missing.
        constraints: priors, fixed parameters, bounds.
        rule: the quadrature.
        chunks: row numbers in blocks.
        step_rule: how the next point follows from the step of EM.
        group: specific factor of each item (bifactor).
    """

    template: ItemModel
    x: Array
    weights: Float[Array, " rows"]
    item_weights: Float[Array, " items"]
    has_missing: bool
    constraints: Constraints
    rule: GridQuadrature | BifactorQuadrature | AdaptiveQuadrature
    chunks: Array
    step_rule: StepRule
    group: Array | None

    @property
    def correlated(self) -> bool:
        """Whether the abilities' correlations are estimated."""
        return self.step_rule.correlated


@functools.partial(jit, static_argnames=("step_rule",))
def grid_map(
    point: EMPoint,
    template: ItemModel,
    x: Array,
    weights: Array,
    item_weights: Array,
    grid: GridQuadrature,
    chunks: Array,
    constraints: Constraints,
    n_steps: Array,
    expand: Array,
    *,
    step_rule: StepRule,
) -> tuple[EMUpdate, MultiEStep]:
    """One EM iteration on a grid (see `irtcat.fitting.em.em_map`)."""
    dims = grid.nodes.shape[1]
    root = correlation_root(point.population, dims)
    model = unpack(template, point.params).rescale(jnp.zeros(dims, root.dtype), root)
    belief = grid_step(
        model, x, weights, item_weights, grid, chunks, has_missing=step_rule.has_missing
    )
    theta = grid.nodes @ root.T
    new = m_step(
        template, point.params, belief.counts, belief.totals, constraints, item_weights, (),
        n_steps, theta,
    )  # fmt: skip
    n = belief.mass.sum()
    moments = n, belief.mass @ theta / n, theta.T @ (belief.mass[:, None] * theta) / n
    observed = ObservedData(
        x=x,
        weights=weights,
        item_weights=item_weights,
        mean=belief.mean,
        covariance=belief.covariance,
        moments=moments,
    )
    return finish(point, new, template, observed, constraints, expand, step_rule), belief


def pairs_of(groups: BifactorQuadrature) -> Float[Array, "pairs two"]:
    """All pairs of a general and a specific node, general outer."""
    mesh = jnp.meshgrid(groups.general.nodes[:, 0], groups.specific.nodes[:, 0], indexing="ij")
    return jnp.stack(mesh, -1).reshape(-1, 2)


@functools.partial(jit, static_argnames=("has_missing",))
def bifactor_map(
    point: EMPoint,
    template: ItemModel,
    x: Array,
    weights: Array,
    item_weights: Array,
    groups: BifactorQuadrature,
    chunks: Array,
    constraints: Constraints,
    group: Array,
    n_steps: Array,
    expand: Array,
    *,
    has_missing: bool,
) -> tuple[EMUpdate, MultiEStep]:
    """One EM iteration of the bifactor model; items have a general and a specific ability."""
    model = unpack(template, point.params)
    belief = bifactor_step(model, x, weights, item_weights, groups, chunks, has_missing=has_missing)
    pairs = pairs_of(groups)
    new = m_step(
        template, point.params, belief.counts, belief.totals, constraints, item_weights, (),
        n_steps, pairs,
    )  # fmt: skip
    n = belief.mass[0].sum()
    mean = belief.mass @ pairs / n
    sd = jnp.sqrt(belief.mass @ pairs**2 / n - mean**2)
    mean = jnp.where(expand, mean.at[:, 0].set(mean[0, 0]), 0.0)
    sd = jnp.where(expand, sd.at[:, 0].set(sd[0, 0]), 1.0)
    slopes, intercept = new.params[:, :2], new.params[:, 2]
    image = jnp.column_stack([slopes * sd[group], intercept + (slopes * mean[group]).sum(1)])
    image = jnp.clip(image, constraints.lower, constraints.upper)
    used = jnp.zeros(len(mean), bool).at[group].set((point.params[:, 1] != 0) | (group < 0))
    far = jnp.maximum(jnp.abs(mean), jnp.sqrt(2.0) * jnp.abs(sd - 1))
    far = jnp.maximum(far[:, 0].max(), jnp.where(used, far[:, 1], 0).max())
    metric = EMPoint(jnp.diagonal(new.information, axis1=1, axis2=2), point.population)
    prior = (item_weights * log_prior(point.params, constraints)).sum()
    update = EMUpdate(
        point=EMPoint(image, point.population),
        plain=EMPoint(new.params, point.population),
        step=jnp.maximum(new.step, jnp.sqrt(n) * far),
        gain=new.gain,
        metric=metric,
        log_prior=prior,
    )
    return update, belief


def run_multi_e_step(
    problem: MultiProblem, state: EMState, slack: float, n_steps: int, expand: bool
) -> tuple[EMUpdate, MultiEStep]:
    """Apply the EM map of the problem's rule (``slack`` is for layouts in one dimension)."""
    del slack
    if isinstance(problem.rule, AdaptiveQuadrature):
        return adaptive_map(problem, state, n_steps, expand)
    common: Any = (
        state.point, problem.template, problem.x, problem.weights, problem.item_weights,
        problem.rule, problem.chunks, problem.constraints,
    )  # fmt: skip
    steps = jnp.int32(n_steps), jnp.asarray(expand)
    if isinstance(problem.rule, BifactorQuadrature):
        return bifactor_map(*common, problem.group, *steps, has_missing=problem.has_missing)
    return grid_map(*common, *steps, step_rule=problem.step_rule)


def pair_template(template: ItemModel, pattern: np.ndarray, group: np.ndarray) -> MTwoPL:
    """The items of a bifactor model with two dimensions each: general and specific."""
    specific = (np.asarray(pattern)[:, 1:] != 0).any(1)
    dtype = jnp.asarray(template.intercept).dtype  # type: ignore[attr-defined]
    marks = jnp.asarray(np.column_stack([np.ones(len(group)), specific]), dtype)
    return MTwoPL(jnp.zeros_like(marks), jnp.zeros(len(group), dtype), marks)
