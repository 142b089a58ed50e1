"""Marginal maximum likelihood by EM (Bock & Aitkin 1981), with parameter expansion.

In each iteration the latent mean and SD are estimated with the items and immediately removed by
rescaling the items (parameter expansion: Liu, Rubin & Wu 1998). This reduces the number of
iterations from 50-100 to about five on long tests. Where priors on slopes or intercepts depend on
the scale, the two are chosen under these priors. The parameters are also extrapolated (Anderson
acceleration, see `irtcat.fitting.em.extrapolation`) as long as the objective does not fall.
"""

import math
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from irtcat._common.compilation import FEW, jit, namespace
from irtcat._common.types import BoolArray, FloatArray
from irtcat.fitting.em.m_step import (
    Constraints,
    MStep,
    beyond_bounds,
    log_prior,
    m_step,
    needs_no_program,
)
from irtcat.latent import (
    EStep,
    Layout,
    PackedItems,
    PopulationDesign,
    ResponseRows,
    RowBlock,
    ScaleTransform,
    e_step,
    line_posteriors,
    on_grid_scale,
    populations_of,
    transformed_nodes,
)
from irtcat.models import ItemModel, pack, parameter_matrix, unpack


class EMPoint(NamedTuple):
    """The parameters that EM estimates; between the iterations as arrays of numpy.

    Attributes:
        params: unconstrained item parameters, items x params.
        population: numbers of the population of each group of subjects (see
            `irtcat.latent.population`); all 0 where there is one group, which defines the scale.
    """

    params: Float[Any, "items params"]
    population: Float[Any, "groups numbers"]


class StepRule(NamedTuple):
    """How the next point follows from a step of EM (static).

    Attributes:
        lengthen: whether the step is lengthened with the missing information.
        rescale: otherwise, whether the latent scale is removed (one ability: where the driver asks
            for it).
        full: whether this removes the full covariance (no loading pattern).
        scaled: whether the latent mean and SD that are removed depend on priors (one ability).
    """

    lengthen: bool = False
    rescale: bool = False
    full: bool = False
    scaled: bool = False


class Problem(NamedTuple):
    """Everything that is constant over the iterations.

    Attributes:
        template: the items that are iterated (a Rasch model is fitted as its 1PL; two-tier: with
            the general abilities and one specific each).
        blocks: gives the rows in blocks, once for every pass.
        weights: how many subjects each row stands for.
        item_weights: 1 for the items that abilities are estimated from, 0 for the others.
        has_missing: whether any response is missing.
        constraints: priors, fixed parameters, bounds.
        tied: columns of the parameters that items share.
        rule: the quadrature.
        population: what of the populations is estimated.
        step_rule: how the next point follows from the step of EM.
        group: group of each row; None where the one population is N(0, 1) by definition.
        x: the responses, where they are in the memory of one device.
        fill: fills the items up to a round number, where the rows are in memory (one ability).
        engine: runs the passes over the responses where they are not; otherwise None.
        specific: specific factor of each item (two-tier).
        is_too_coarse: whether the quadrature does not resolve populations of these numbers; None
            where it resolves all.
        squares: sums of the squared survey weights of each row's subjects; None without weights.
    """

    template: ItemModel
    blocks: Callable[[], Iterable[RowBlock]]
    weights: Float[Array, " rows"]
    item_weights: Float[Array, " items"]
    has_missing: bool
    constraints: Constraints
    tied: tuple[int, ...]
    rule: Any
    population: PopulationDesign
    step_rule: StepRule
    group: Array | None = None
    x: Any = None
    fill: Any = None
    engine: Any = None
    specific: Array | None = None
    is_too_coarse: Callable[[Array], bool] | None = None
    squares: Float[Array, " rows"] | None = None

    @property
    def dtype(self) -> np.dtype:
        """Working precision."""
        return self.weights.dtype

    @property
    def held(self) -> BoolArray:
        """Groups whose mean and SD are not estimated (unless the scale is expanded)."""
        return ~self.population.estimated[:, 0]

    def of_all_items(self) -> "Problem":
        """The problem in which abilities are estimated from all items."""
        return self._replace(item_weights=jax.device_put(np.ones_like(self.item_weights)))

    def squared(self) -> "Problem":
        """The problem in which subjects count by their squared survey weights, for the sandwich."""
        squares, engine = self.squares, self.engine
        if squares is None:
            return self
        if engine is not None:
            engine = engine.reweighted(np.asarray(squares, float))
            return self._replace(
                weights=squares, engine=engine, blocks=lambda: engine.row_blocks(self.dtype)
            )

        def blocks() -> Iterable[RowBlock]:
            return (block._replace(weights=squares[block.rows]) for block in self.blocks())

        return self._replace(weights=squares, blocks=blocks)

    def items(self, params: FloatArray | Array) -> PackedItems:
        """The items with these parameters."""
        return PackedItems(self.template, params, self.item_weights)

    def laid_out(self, mean: FloatArray, sd: FloatArray) -> Iterable[ResponseRows]:
        """The rows in blocks, each with the layout for posteriors of one ability."""
        layouts: Iterable[Layout] = [self.rule.plan.layout(mean, sd)]
        if self.engine is not None:
            layouts = self.engine.layouts(self, mean, sd)
        for block, layout in zip(self.blocks(), layouts, strict=True):
            yield ResponseRows(block.x, block.weights, layout, self.group, self.has_missing)

    def start(self, params: FloatArray | Array) -> EMPoint:
        """The point with these item parameters and standard populations."""
        values: Any = np.asarray(params, self.dtype)
        zero: Any = np.zeros(self.population.estimated.shape, self.dtype)
        return EMPoint(values, zero)


class EMState(NamedTuple):
    """What the next iteration needs.

    Attributes:
        point: where the objective is evaluated next.
        mean: each row's last posterior mean (places the local nodes).
        covariance: each row's last posterior covariance.
    """

    point: EMPoint
    mean: FloatArray
    covariance: FloatArray

    @classmethod
    def of(cls, point: EMPoint, belief: Any) -> "EMState":
        """The state at a point, with the posteriors of an E-step."""
        return cls(point, np.asarray(belief.mean, float), np.asarray(belief.covariance, float))

    @classmethod
    def on_line(cls, point: EMPoint, mean: FloatArray, sd: FloatArray) -> "EMState":
        """The state with these posterior means and SDs of one ability."""
        return cls(point, np.asarray(mean)[:, None], np.asarray(sd)[:, None, None] ** 2)

    def posteriors(self) -> tuple[FloatArray, FloatArray]:
        """Posterior mean and SD of each row, where there is one ability."""
        return line_posteriors(self.mean, self.covariance)


class StepControl(NamedTuple):
    """What an iteration asks of the M-step.

    Attributes:
        held: groups whose mean and SD are not estimated.
        n_steps: Newton steps for the items.
        expand: whether to estimate and remove the latent mean and SD (parameter expansion).
    """

    held: Any
    n_steps: Any
    expand: Any

    @classmethod
    def of(cls, problem: Problem, n_steps: int, expand: bool) -> "StepControl":
        """The request of this problem."""
        return cls(problem.held, np.int32(n_steps), np.bool_(expand))


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


class Sums(NamedTuple):
    """What the M-step needs from the E-step; additive over subsets of the subjects.

    Attributes:
        counts: see `irtcat.latent.EStep`.
        totals: likewise.
        moments: number of subjects, sum of E[theta] and of E[theta^2], three x groups.
    """

    counts: Array
    totals: Array
    moments: Array


def sums_of(
    belief: EStep,
    weights: Array,
    group: Array | None,
    n_groups: int,
    transform: ScaleTransform | None = None,
) -> Sums:
    """Sum an E-step over its subjects; the moments on the scale of the parameters."""
    mean, variance = belief.mean[:, 0], belief.covariance[:, 0, 0]
    if transform is not None:
        mean, variance = transform.mean + transform.sd * mean, transform.sd**2 * variance
    row_moments = jnp.stack([weights, weights * mean, weights * (variance + mean**2)])
    if group is None:
        moments = row_moments.sum(1, keepdims=True)
    else:
        moments = jax.ops.segment_sum(row_moments.T, group, n_groups).T
    return Sums(belief.counts, belief.totals, moments)


def _latent(moments: Any) -> tuple[Any, Any]:
    """Mean and log SD from the three sums."""
    xp = namespace(moments)
    n = xp.maximum(moments[0], 1e-30)
    mean = moments[1] / n
    return mean, 0.5 * xp.log(xp.maximum(moments[2] / n - mean**2, 1e-12))


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


def _at_active_bounds(new: MStep, constraints: Constraints, tied: tuple[int, ...]) -> Any:
    """Which parameters of single items are at a bound beyond which the objective still rises."""
    own = np.array([column not in tied for column in range(new.params.shape[1])])
    return beyond_bounds(new.params, new.gradient, constraints) & constraints.free & own


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


def _latent_at_bounds(moments: Any, pull: Any) -> tuple[Any, Any]:
    """Latent mean and log SD from the pooled moments (see `_pull_of_bounds`)."""
    n, xp = moments[0], namespace(moments)
    mean, log_sd = _latent(moments)
    log_sd = log_sd - 0.5 * xp.log(xp.clip(1 + pull[1] / n, 0.5, 2.0))
    return mean - pull[0] * xp.exp(2 * log_sd) / n, log_sd


def em_update(
    items: PackedItems,
    population: Any,
    sums: Sums,
    constraints: Constraints,
    control: StepControl,
    transform: ScaleTransform | None = None,
    *,
    tied: tuple[int, ...],
    scaled: bool = False,
    stated: bool = False,
) -> EMUpdate:
    """The M-step for items and populations, and the latent scale removed (traceable).

    Args:
        items: the items at the point to which EM is applied.
        population: numbers of the populations there.
        sums: those of `line_sums` at the point.
        constraints: priors, fixed parameters, bounds.
        control: steps, expansion, and the groups that are held.
        transform: position of the grid on the scale of the parameters.
        tied: columns all items share.
        scaled: whether the latent mean and SD depend on priors.
        stated: whether all populations are stated.
    """
    template, held, expand = items.template, control.held, control.expand
    xp, dtype = namespace(items.params), items.params.dtype
    nodes = None if transform is None else transformed_nodes(transform, dtype)
    new = m_step(
        template,
        items.params,
        sums.counts,
        sums.totals,
        constraints,
        items.weights,
        tied,
        control.n_steps,
        nodes,
    )
    mean, log_sd = _latent(sums.moments)
    present = sums.moments[0] > 0
    pooled_moments = sums.moments.sum(1)
    bounded = _at_active_bounds(new, constraints, tied)
    bounded &= len(held) == 1  # the populations of several groups take up any change of the scale
    pull = xp.zeros(2, dtype)
    if xp is jnp or bounded.any():
        multipliers = items.weights[:, None] * xp.where(bounded, new.gradient, 0.0)
        pull = xp.asarray(_pull_of_bounds(template, new.params, multipliers))
    if scaled or stated:
        moments, relative = pooled_moments[:, None], xp.zeros_like(population[:1])
        if stated:
            moments, relative = sums.moments, population
        moved_items = items._replace(params=new.params)
        pooled = _latent_under_priors(moved_items, moments, relative, constraints, pull)
    else:
        pooled = _latent_at_bounds(pooled_moments, pull)
    centre, log_spread = (xp.where(expand, xp.asarray(value), 0.0) for value in pooled)
    populations, present, held = xp.stack([mean, log_sd], 1), present[:, None], held[:, None]
    plain = EMPoint(new.params, xp.where(present & ~held, populations, population))
    packed = pack if xp is jnp else parameter_matrix
    image = packed(unpack(template, new.params).rescale(centre, xp.exp(log_spread)))
    # Held parameters are rescaled as well: an unused category keeps its distance from the others.
    clipped = xp.clip(image, constraints.lower, constraints.upper)
    image = xp.where(constraints.free, clipped, image)
    image = xp.where(bounded, new.params, image)
    free = xp.where(present & (expand | ~held), populations, population)
    moved = xp.stack([(free[:, 0] - centre) * xp.exp(-log_spread), free[:, 1] - log_spread], 1)
    # A single population stays N(0, 1): its mean and SD are removed.
    moved = xp.where(expand & (len(held) == 1), 0.0, moved)
    if stated:
        moved = population
    unit = xp.stack([xp.exp(-population[:, 1]), xp.full_like(log_sd, math.sqrt(2.0))], 1)
    in_errors = xp.sqrt(sums.moments[0])[:, None] * unit
    shift = xp.maximum(xp.abs(centre), math.sqrt(2) * xp.abs(log_spread)) * xp.sqrt(
        pooled_moments[0]
    )
    step = xp.maximum(new.step, shift)
    step = xp.maximum(step, (in_errors * xp.abs(moved - population)).max())
    metric = EMPoint(xp.diagonal(new.information, axis1=1, axis2=2), in_errors**2)
    prior = (items.weights * log_prior(items.params, constraints)).sum()
    return EMUpdate(
        point=EMPoint(image, moved),
        plain=plain,
        step=step,
        gain=new.gain,
        metric=metric,
        log_prior=prior,
    )


_compiled_update = jit(em_update, static_argnames=("tied", "scaled", "stated"), small_below=FEW)


def updated(
    items: PackedItems,
    population: Any,
    sums: Sums,
    constraints: Constraints,
    control: StepControl,
    n_responses: int,
    **options: Any,
) -> EMUpdate:
    """`em_update`, in numpy or as a program (see `needs_no_program`)."""
    arguments = items, population, sums, constraints, control
    if not needs_no_program(items.template, items.params, n_responses):
        return _compiled_update(*arguments, **options)
    options["transform"] = jax.tree.map(np.asarray, options.get("transform"))
    update, dtype = em_update(*jax.tree.map(np.asarray, arguments), **options), items.params.dtype
    return jax.tree.map(lambda leaf: np.asarray(leaf, dtype), update)


@jit
def line_sums(
    items: PackedItems,
    population: Array,
    rows: ResponseRows,
    transform: ScaleTransform | None = None,
) -> tuple[Sums, Float[Array, "four rows"]]:
    """The E-step of rows: its sums, and the moments of each row's posterior.

    A program of its own, as an M-step of few items needs none (see `updated`).

    Args:
        items: the items.
        population: numbers of the populations, groups x numbers.
        rows: the responses, with a `Layout`.
        transform: position of the grid on the scale of the parameters.
    """
    everyone = None if rows.group is None else populations_of(population, 1)
    model, populations = on_grid_scale(items.model, everyone, transform)
    belief = e_step(model, rows, items.weights, populations, condense=True)
    sums = sums_of(belief, rows.weights, rows.group, len(population), transform)
    return sums, belief.line_moments()


def run_e_step(problem: Problem, state: EMState, slack: float, n_steps: int, expand: bool):
    """Lay out the subjects by their last posteriors; an E-step and an M-step."""
    if problem.engine is not None:
        return problem.engine.em_map(problem, state, slack, n_steps, expand)
    layout = problem.rule.plan.layout(*state.posteriors(), slack)
    fill, population, transform = problem.fill, state.point.population, problem.rule.transform
    template, x, item_weights, constraints = fill.constants(
        problem.template, problem.x, problem.item_weights, problem.constraints
    )
    items = PackedItems(template, fill.items(state.point.params), item_weights)
    rows = ResponseRows(x, problem.weights, layout, problem.group, problem.has_missing)
    sums, moments = line_sums(items, population, rows, transform)
    update = updated(
        items,
        population,
        sums,
        constraints,
        StepControl.of(problem, n_steps, expand),
        x.size,
        transform=transform,
        tied=problem.tied,
        scaled=problem.step_rule.scaled,
        stated=problem.population.is_known,
    )
    points = {
        name: getattr(update, name)._replace(params=fill.cut(getattr(update, name).params))
        for name in ("point", "plain", "metric")
    }
    totals = sums.totals if sums.totals.ndim == 1 else fill.cut(sums.totals, axis=1)
    belief = EStep.of_line(np.asarray(moments), fill.cut(sums.counts, axis=2), totals)
    return update._replace(**points), belief
