"""One iteration of marginal maximum likelihood by EM (Bock & Aitkin 1981).

`sums_at` is the E-step by the problem's quadrature, `em_update` the M-step for items and
populations, and the step that follows from it:

- Parameter expansion (Liu, Rubin & Wu 1998): the mean and the spread of the abilities are estimated
  in each iteration and immediately removed by rescaling the items, where the model is invariant to
  it. This reduces the number of iterations from 50-100 to about five on long tests. Of several
  abilities they are the first group's: without a loading pattern the full covariance, with one each
  ability's SD (correlations are parameters). Of one ability they are those of all subjects, and are
  chosen under the priors and the bounds of the items.
- Or the step is lengthened with the missing information (`irtcat.fitting.em.full_step`).

The parameters are also extrapolated (Anderson acceleration, see `irtcat.fitting.em.extrapolation`)
as long as the objective does not fall.
"""

import math
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from irtcat._common.compilation import FEW, jit
from irtcat._common.types import BoolArray, FloatArray
from irtcat.fitting.em.full_step import (
    Displacement,
    LatentInformation,
    Posteriors,
    full_step,
    item_scores,
)
from irtcat.fitting.em.m_step import (
    Constraints,
    MStep,
    beyond_bounds,
    log_prior,
    m_step,
    needs_no_program,
    prior_information,
    prior_slopes,
    step_within_bounds,
)
from irtcat.fitting.em.padding import ItemFill
from irtcat.latent import (
    CorrelationTerms,
    EStep,
    EStepProgram,
    ExpectedSums,
    Moments,
    PackedItems,
    PopulationDesign,
    ResponseRows,
    RowBlock,
    e_step_program,
    line_posteriors,
    over_blocks,
    population_distance,
    population_metric,
    population_step,
    populations_of,
    rescaled_populations,
)
from irtcat.models import ItemModel, OnePL, ThreePL, TwoPL, pack, parameter_matrix, take, unpack

CAN_BE_LENGTHENED = (OnePL, TwoPL, ThreePL)
"""Models whose steps are lengthened with the missing information: see `fitting.em.full_step`."""

NEAR = 1.0
"""Steps of items with a lower asymptote are lengthened below this size (standard errors): far from
the maximum the lengthened steps of asymptotes overshoot."""

STEP_CELLS = 1e5
"""Maximum number of responses for the missing information: beyond it, every k-th row is used."""

OF_ITEMS = ("params", "information", "gradient")
"""Fields of an `MStep` with a row for each item."""


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
        rescale: otherwise, whether the latent scale is removed, where the driver asks for it.
        full: whether this removes the full covariance (no loading pattern).
        pooled: whether it is the scale of all subjects, chosen under bounds (one ability).
        scaled: whether it also depends on priors.
    """

    lengthen: bool = False
    rescale: bool = False
    full: bool = False
    pooled: bool = False
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
        fill: fills the items up to a round number in programs (one ability, rows in memory).
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
    fill: ItemFill = ItemFill(0, math.inf)
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

    @property
    def ranges(self) -> list[slice]:
        """The rows of each block."""
        return [slice(0, len(self.weights))] if self.engine is None else self.engine.ranges

    def filled(self) -> "Problem":
        """The problem with items added, as programs take it."""
        if not self.fill.more:
            return self
        (block,) = self.blocks()
        template, x, item_weights, constraints = self.fill.constants(
            self.template, block.x, self.item_weights, self.constraints
        )
        return self._replace(
            template=template,
            blocks=lambda: [block._replace(x=x)],
            item_weights=item_weights,
            constraints=constraints,
        )

    def items(self, params: FloatArray | Array) -> PackedItems:
        """The items with these parameters."""
        return PackedItems(self.template, params, self.item_weights)

    def laid_out(self, mean: FloatArray, sd: FloatArray) -> Iterable[ResponseRows]:
        """The rows in blocks, each with the layout for posteriors of one ability."""
        ranges = self.ranges
        layouts = self.rule.plan.layouts([(mean[rows], sd[rows]) for rows in ranges])
        for block in self.blocks():
            layout = layouts[ranges.index(block.rows)]
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


def sums_of_blocks(
    problem: Problem, program: EStepProgram, items: PackedItems, population: Any, layouts: list[Any]
) -> ExpectedSums:
    """The E-step of one block of rows after another."""

    def parts() -> Iterable[tuple[ExpectedSums, int]]:
        for block, (layout, nodes) in zip(problem.blocks(), layouts, strict=True):
            rows = ResponseRows(
                x=block.x,
                weights=block.weights,
                layout=layout,
                group=problem.group,
                has_missing=problem.has_missing,
                nodes=nodes,
            )
            yield program(items, population, rows), block.rows.stop - block.rows.start

    if len(layouts) > 1:
        return over_blocks(parts())
    ((sums, _),) = parts()  # stays on its device
    return sums


def sums_at(problem: Problem, state: EMState, slack: float = 0.0) -> ExpectedSums:
    """The E-step at a point: one pass over the rows (``slack``: see `LayoutPlan.layout`)."""
    wide, fill, engine = problem.filled(), problem.fill, problem.engine
    items, population = wide.items(fill.items(state.point.params)), state.point.population
    program = e_step_program(
        problem.rule, items, population, problem.population, problem.has_missing
    )
    posteriors = [(state.mean[rows], state.covariance[rows]) for rows in problem.ranges]
    if engine is None:
        groups = [block.group for block in problem.blocks()]
    else:
        groups = [np.zeros(engine.block_rows, np.int32)] * len(posteriors)
    layouts = program.layouts(groups, posteriors, slack)
    over_rows = sums_of_blocks if engine is None else engine.sums
    return fill.cut_sums(over_rows(wide, program, items, population, layouts))


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


def _pooled_scale(
    problem: Problem, new: MStep, moments: Moments, numbers: FloatArray
) -> tuple[FloatArray, FloatArray, BoolArray]:
    """Mean and SD of all subjects that are best for the abilities, under priors and bounds.

    Also which parameters are at bounds, and stay there (see `_pull_of_bounds`).
    """
    fill, wide, dtype = problem.fill, problem.filled(), problem.dtype
    params, pull, c = fill.items(new.params), np.zeros(2, dtype), problem.constraints
    bounded: Any = beyond_bounds(new.params, new.gradient, jax.tree.map(np.asarray, c))
    bounded = bounded & np.asarray(c.free)
    bounded[:, list(problem.tied)] = False
    bounded &= problem.population.n_groups == 1  # several take up any change of the scale
    if bounded.any():
        weights = np.asarray(problem.item_weights)[:, None]
        multipliers = fill.weights(weights * np.where(bounded, new.gradient, 0.0))
        pull = np.asarray(_pull_of_bounds(wide.template, params, multipliers))
    n = moments.n.sum()
    sums = np.stack(
        [moments.n, moments.n * moments.mean[:, 0], moments.n * moments.second[:, 0, 0]]
    )
    is_known = problem.population.is_known
    if problem.step_rule.scaled or is_known:
        relative = numbers if is_known else np.zeros((1, 2))
        sums = sums if is_known else sums.sum(1, keepdims=True)
        tables = (array.astype(dtype) for array in (sums, relative))
        items = wide.items(params)
        mean, log_sd = map(float, _latent_under_priors(items, *tables, wide.constraints, pull))
    else:
        mean, square = sums[1:].sum(1) / n
        log_sd = 0.5 * math.log(max(square - mean**2, 1e-12))
        log_sd -= 0.5 * math.log(np.clip(1 + pull[1] / n, 0.5, 2.0))
        mean -= pull[0] * math.exp(2 * log_sd) / n
    return np.array([mean]), np.array([[math.exp(log_sd)]]), bounded


def _removed_scale(
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


def _item_update(
    items: PackedItems,
    sums: ExpectedSums,
    constraints: Constraints,
    n_steps: Any,
    *,
    dims: int,
    step_rule: StepRule,
    tied: tuple[int, ...],
) -> tuple[MStep, Any]:
    """The M-step of the items, and the log-prior at the items."""
    template, params, item_weights = items
    if sums.gradient is None:
        counts, totals, theta = sums.belief.counts, sums.belief.totals, sums.theta
        new = m_step(
            template, params, counts, totals, constraints, item_weights, tied, n_steps, theta
        )
    else:
        damping = jnp.where(n_steps > 2, 1.0, 0.0).astype(params.dtype)
        new = _newton_step(params, sums, dims, item_weights, constraints, damping, step_rule, tied)
    return new, (item_weights * log_prior(params, constraints)).sum()


STATIC = ("dims", "step_rule", "tied")
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
    static: Any = {"dims": design.dims, "step_rule": rule, "tied": problem.tied}
    n_responses = len(problem.weights) * len(problem.item_weights)
    by_item = sums.without_rows()
    if sums.gradient is None and needs_no_program(problem.template, point.params, n_responses):
        arguments: Any = problem.items(point.params), by_item, problem.constraints
        inputs: Any = *jax.tree.map(np.asarray, arguments), np.int32(n_steps)
        new, prior = _item_update(*inputs, **static)
    else:
        wide = problem.filled()
        arguments = wide.items(fill.items(point.params)), fill.sums(by_item), wide.constraints
        new, prior = _compiled_update[rule.pooled](*arguments, np.int32(n_steps), **static)
        new = jax.tree.map(np.asarray, new)
        new = new._replace(**{name: fill.cut(getattr(new, name)) for name in OF_ITEMS})
    numbers = np.asarray(point.population, float)
    moments = Moments(
        *(np.asarray(array, float) for array in sums.moments(design, problem.rule.n_general))
    )
    population, terms = population_step(numbers, moments, design)
    point = EMPoint(np.asarray(point.params), numbers)
    plain, step, n = EMPoint(new.params, population), float(new.step), float(moments.n.sum())
    image = plain
    if rule.lengthen and expand:
        image = _lengthened(problem, point, plain, new, sums.belief, n, terms)
    elif rule.rescale and expand:
        image, shift = _removed_scale(problem, new, moments, numbers)
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
