"""EM for several abilities: one iteration by grid, two-tier or adaptive quadrature.

Every group of subjects has a Normal population; its E-step runs on the scale z on which that
population is standard Normal, with the items rescaled to it, and the M-step takes the nodes of all
groups on the scale of the items.

The steps of EM are lengthened with the missing information (`irtcat.fitting._full_step`), or
parameter expansion (Liu, Rubin & Wu 1998) is used instead: the mean and the spread of the first
group's abilities are estimated in each iteration and immediately removed by rescaling the items,
where the model is invariant to it. Without a loading pattern the spread is the full covariance;
with one it is each ability's SD (correlations are parameters).
"""

import functools
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from irtcat._compile import jit
from irtcat.fitting._blocks import RowBlock
from irtcat.fitting._full_step import Displacement, full_step, item_scores
from irtcat.fitting._mstep import (
    Constraints,
    MStep,
    direction,
    log_prior,
    m_step,
    prior_information,
    prior_slopes,
)
from irtcat.fitting._terms import LINEAR, chained
from irtcat.fitting.em import EMPoint, EMState, EMUpdate
from irtcat.latent import (
    AdaptiveQuadrature,
    GridQuadrature,
    Moments,
    MultiEStep,
    PopulationDesign,
    Populations,
    Quadrature,
    TwoTierQuadrature,
    adaptive_block,
    chain_of,
    correlation_curvature,
    correlation_root,
    grid_step,
    moments_of,
    n_nodes,
    parts_of,
    population_step,
    populations_of,
    rescaled_populations,
    root_of,
    row_chunks,
    two_tier_step,
)
from irtcat.models import ItemModel, ThreePL, pack, unpack

__all__ = [
    "CAN_BE_LENGTHENED",
    "MultiProblem",
    "MultiSums",
    "StepRule",
    "adaptive_sums",
    "filled",
    "grid_sums",
    "run_multi_e_step",
    "sums_at",
    "two_tier_sums",
]

CAN_BE_LENGTHENED = (*LINEAR, ThreePL)
"""Models whose steps are lengthened with the missing information: see `_full_step`."""

NEAR = 1.0
"""Steps of items with a lower asymptote are lengthened below this size (standard errors): far from
the maximum the lengthened steps of asymptotes overshoot."""

STEP_CELLS = 4e6
"""Maximum number of responses for the missing information: beyond it, every k-th row is used."""


class StepRule(NamedTuple):
    """How the next point follows from a step of EM (static).

    Attributes:
        lengthen: whether the step is lengthened with the missing information.
        rescale: otherwise, whether the latent scale is removed.
        full: whether this removes the full covariance (no loading pattern).
        has_missing: whether any response is missing.
        tied: columns of the parameters that items share.
    """

    lengthen: bool
    rescale: bool
    full: bool
    has_missing: bool
    tied: tuple[int, ...]


class MultiProblem(NamedTuple):
    """Everything that is constant over the iterations.

    Attributes:
        template: the items (two-tier: with the general abilities and one specific each).
        blocks: gives the rows in blocks, once for every pass.
        weights: how many subjects each row stands for.
        item_weights: 1 for the items that abilities are estimated from, 0 for the others.
        has_missing: whether any response is missing.
        constraints: priors, fixed parameters, bounds.
        rule: the quadrature.
        population: what of the population is estimated.
        step_rule: how the next point follows from the step of EM.
        specific: specific factor of each item (two-tier).
    """

    template: ItemModel
    blocks: Callable[[], Iterable[RowBlock]]
    weights: Float[Array, " rows"]
    item_weights: Float[Array, " items"]
    has_missing: bool
    constraints: Constraints
    rule: Quadrature
    population: PopulationDesign
    step_rule: StepRule
    specific: Array | None

    @property
    def n_general(self) -> int:
        """Number of general abilities of a two-tier quadrature, else 0."""
        is_two_tier = isinstance(self.rule, TwoTierQuadrature)
        return self.rule.general.nodes.shape[1] if is_two_tier else 0  # type: ignore[union-attr]

    def chunks(self, block: RowBlock, n_cells: int) -> tuple[Array, ...]:
        """Row numbers of each group of a block, in chunks for this many cells a row."""
        return tuple(
            jnp.asarray(_chunks_of(np.flatnonzero(block.group == group), len(block.x), n_cells))
            for group in range(self.population.n_groups)
        )


def _chunks_of(rows: np.ndarray, none: int, n_cells: int) -> np.ndarray:
    """These row numbers in chunks; ``none`` stands for no row."""
    at = row_chunks(max(len(rows), 1), n_cells)
    return np.append(rows, none)[np.minimum(at, len(rows))].astype(np.int32)


class MultiSums(NamedTuple):
    """What the M-step needs from the E-step.

    Attributes:
        belief: the posteriors of all rows, each on the z scale of its group.
        theta: the nodes of all groups on the scale of the items (empty for adaptive quadrature).
        polynomials: sums of E[(1, theta) (1, theta)'] of each group (adaptive quadrature).
        gradient: of the marginal log-likelihood (adaptive quadrature).
        information: expected, of the complete data (adaptive quadrature).
    """

    belief: MultiEStep
    theta: Array
    polynomials: Array | None = None
    gradient: Array | None = None
    information: Array | None = None

    def moments(self, design: PopulationDesign, n_general: int) -> Moments:
        """Moments of the groups' abilities (traceable)."""
        if self.polynomials is not None:
            total = jnp.maximum(self.polynomials[:, 0, 0], 1e-30)
            means = self.polynomials[:, 0, 1:] / total[:, None]
            return Moments(total, means, self.polynomials[:, 1:, 1:] / total[:, None, None])
        mass, theta = self.belief.mass, self.theta
        if not n_general:
            mass = mass.reshape(design.n_groups, -1)
            theta = theta.reshape(design.n_groups, -1, design.dims)
            n = mass.sum(1)
            share = mass / jnp.maximum(n, 1e-30)[:, None]
            second = jnp.einsum("gn,gnd,gne->gde", share, theta, theta)
            return Moments(n, jnp.einsum("gn,gnd->gd", share, theta), second)
        n = mass[0].sum()
        general, specific = theta[:, :n_general], theta[:, n_general]
        mean = jnp.concatenate([mass[0] @ general / n, mass @ specific / n])
        within = general.T @ (mass[0][:, None] * general) / n
        # The abilities of different tiers, and different specific ones, are independent.
        second = mean[:, None] * mean
        squares = jnp.concatenate([jnp.diagonal(within), mass @ specific**2 / n])
        second = second + jnp.diag(squares - jnp.diagonal(second))
        second = second.at[:n_general, :n_general].set(within)
        dims = design.dims  # the group of items without a specific ability has none
        return Moments(n[None], mean[None, :dims], second[None, :dims, :dims])

    def __add__(self, other: Any) -> "MultiSums":
        """The sums over the rows of both; the posteriors of one after those of the other."""
        a, b = self.belief, other.belief
        rows: Any = [np.concatenate([x, y]) for x, y in zip(a[:3], b[:3], strict=True)]
        totals: Any = [x + y for x, y in zip(a[3:], b[3:], strict=True)]
        belief = MultiEStep(*rows, *totals)
        rest = (None if x is None else x + y for x, y in zip(self[2:], other[2:], strict=True))
        return MultiSums(belief, self.theta, *rest)


def _joined(beliefs: list[MultiEStep]) -> MultiEStep:
    """The E-steps of the groups as one: each is 0 for the rows of the others."""
    if len(beliefs) == 1:
        return beliefs[0]
    rows: Any = [sum(values) for values in zip(*(belief[:3] for belief in beliefs), strict=True)]
    counts = jnp.concatenate([belief.counts for belief in beliefs], axis=1)
    nodes: Any = [jnp.concatenate([belief[i] for belief in beliefs]) for i in (4, 5)]
    parts: Any = [*rows, counts, *nodes]
    return MultiEStep(*parts)


def _rescaled(template: ItemModel, params: Array, populations: Populations, group: int):
    """The items on the z scale of a group."""
    return unpack(template, params).rescale(populations.mean[group], populations.root[group])


@functools.partial(jit, static_argnames=("design", "has_missing"))
def grid_sums(
    point: EMPoint,
    template: ItemModel,
    x: Array,
    weights: Array,
    item_weights: Array,
    grid: GridQuadrature,
    chunks: tuple[Array, ...],
    *,
    design: PopulationDesign,
    has_missing: bool,
) -> MultiSums:
    """The E-step on a grid, of all groups."""
    populations = populations_of(point.population, design)
    beliefs, nodes = [], []
    for group, rows in enumerate(chunks):
        model = _rescaled(template, point.params, populations, group)
        belief = grid_step(model, x, weights, item_weights, grid, rows, has_missing=has_missing)
        beliefs.append(belief)
        nodes.append(populations.mean[group] + grid.nodes @ populations.root[group].T)
    return MultiSums(_joined(beliefs), jnp.concatenate(nodes))


@functools.partial(jit, static_argnames=("design", "has_missing"))
def two_tier_sums(
    point: EMPoint,
    template: ItemModel,
    x: Array,
    weights: Array,
    item_weights: Array,
    rule: TwoTierQuadrature,
    chunks: tuple[Array, ...],
    *,
    design: PopulationDesign,
    has_missing: bool,
) -> MultiSums:
    """The E-step of a two-tier model; items have the general abilities and one specific ability."""
    n_general = rule.general.nodes.shape[1]
    root = populations_of(point.population, design).root[0][:n_general, :n_general]
    pairs = rule.pairs
    theta = jnp.concatenate([pairs[:, :n_general] @ root.T, pairs[:, n_general:]], axis=1)
    wide = jnp.eye(n_general + 1, dtype=root.dtype).at[:n_general, :n_general].set(root)
    zero = jnp.zeros(n_general + 1, root.dtype)
    model = unpack(template, point.params).rescale(zero, wide)
    belief = two_tier_step(
        model, x, weights, item_weights, rule, chunks[0], has_missing=has_missing
    )
    return MultiSums(belief, theta)


def _unfolded(upper: Array, size: int) -> Array:
    """Symmetric matrices from their upper triangles, (items, triangle) to (size, size, items)."""
    rows, columns = np.triu_indices(size)
    out = jnp.zeros((size, size, len(upper)), upper.dtype)
    return out.at[rows, columns].set(upper.T).at[columns, rows].set(upper.T)


@functools.partial(jit, static_argnames=("design", "has_missing"))
def adaptive_sums(
    point: EMPoint,
    template: ItemModel,
    x: Array,
    weights: Array,
    item_weights: Array,
    rule: AdaptiveQuadrature,
    mean: Array,
    covariance: Array,
    chunks: tuple[Array, ...],
    *,
    design: PopulationDesign,
    has_missing: bool,
) -> MultiSums:
    """The adaptive E-step with gradient and information of the items' Newton step, in one pass.

    Gradient and information are sums over subjects and nodes of (a number per item) times (a
    polynomial in theta): products of a matrix nodes x items with a matrix nodes x polynomials.
    """
    n, n_items = x.shape
    params, dims = point.params, design.dims
    dtype, n_contrasts = params.dtype, template.n_categories - 1
    populations = populations_of(point.population, design)
    chains = chain_of(template, params)
    rows_of, columns_of = np.triu_indices(dims + 1)

    def group_sums(group: int, posteriors: tuple[Array, ...]) -> tuple[Any, Any]:
        parts = parts_of(_rescaled(template, params, populations, group))
        centre, root = populations.mean[group], populations.root[group]

        def body(carry: Any, rows: Array) -> tuple[Any, None]:
            sums, moments, posteriors = carry
            safe = jnp.minimum(rows, n - 1)
            statistics, mask = template.sufficient_statistics(
                x[safe], n_contrasts, has_missing, dtype
            )
            row_weight = jnp.where(rows < n, weights[safe], 0)
            block = adaptive_block(
                parts, statistics, mask, mean[safe], root_of(covariance[safe]), rule, item_weights
            )
            new = (*moments_of(block.weight, block.z), block.log_z)
            posteriors = tuple(
                table.at[rows].set(value, mode="drop")
                for table, value in zip(posteriors, new, strict=True)
            )
            theta = (centre + block.z @ root.T).reshape(-1, dims)
            weight = (block.weight * row_weight[:, None]).reshape(-1, 1)
            basis = jnp.concatenate([jnp.ones_like(weight), theta], axis=1)
            weighted = basis * weight
            squares = weighted[:, rows_of] * basis[:, columns_of]

            def over(cells: Array, features: Array) -> Array:
                return cells.reshape(len(weight), -1).T @ features

            here = [
                (
                    [over(residual, weighted) for residual in terms.residual],
                    {pair: over(table, squares) for pair, table in terms.weight.items()},
                )
                for terms in block.terms
            ]
            return (
                jax.tree.map(jnp.add, sums, here), moments + squares.sum(0), posteriors
            ), None  # fmt: skip

        empty = []
        for part in parts:
            n_predictors = part.rows.shape[1]
            pairs = part.link.pairs(n_predictors)
            empty.append(
                (
                    [jnp.zeros((n_items, dims + 1), dtype) for _ in range(n_predictors)],
                    {pair: jnp.zeros((n_items, len(rows_of)), dtype) for pair in pairs},
                )
            )
        carry = (empty, jnp.zeros(len(rows_of), dtype), posteriors)
        (sums, squares, posteriors), _ = jax.lax.scan(body, carry, chunks[group])
        return (sums, _unfolded(squares[None], dims + 1)[:, :, 0]), posteriors

    posteriors: Any = (jnp.zeros((n, dims), dtype), jnp.zeros((n, dims, dims), dtype))
    posteriors = (*posteriors, jnp.zeros(n, dtype))
    by_group, polynomials = [], []
    for group in range(design.n_groups):
        (sums, squares), posteriors = group_sums(group, posteriors)
        by_group.append(sums)
        polynomials.append(squares)
    sums = jax.tree.map(lambda *tables: sum(tables), *by_group)
    gradient: Any = 0.0
    information: Any = 0.0
    for (scores, weight_sums), chain in zip(sums, chains, strict=True):
        score = jnp.stack([table.T for table in scores])
        unfolded = {pair: _unfolded(table, dims + 1) for pair, table in weight_sums.items()}
        by_params = chained(score, unfolded, chain)
        gradient, information = gradient + by_params[0], information + by_params[1]
    none = jnp.zeros((1, 0, n_items), dtype)
    belief = MultiEStep(
        mean=posteriors[0],
        covariance=posteriors[1],
        log_z=posteriors[2],
        counts=none,
        totals=none[0, :, 0],
        mass=none[0, :, 0],
    )
    empty_nodes = jnp.zeros((0, dims), dtype)
    return MultiSums(belief, empty_nodes, jnp.stack(polynomials), gradient, information)


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
    sums: MultiSums,
    dims: int,
    item_weights: Array,
    constraints: Constraints,
    damping: Array,
    step_rule: StepRule,
) -> MStep:
    """One Newton step for the items (EM gradient: Lange 1995)."""
    assert sums.gradient is not None
    assert sums.information is not None
    gradient = sums.gradient + prior_slopes(params, constraints)[0]
    if step_rule.full and step_rule.lengthen:
        gradient = _without_turning(gradient, params[:, :dims], item_weights)
    eye = jnp.eye(params.shape[1], dtype=params.dtype)
    information = sums.information + prior_information(params, constraints)[..., None] * eye
    at_low = (params <= constraints.lower) & (gradient < 0)
    at_high = (params >= constraints.upper) & (gradient > 0)
    active = constraints.free & ~at_low & ~at_high
    damp = jnp.full(len(gradient), damping)
    move = direction(
        gradient, information, damp, active, step_rule.tied, item_weights, constraints.shared
    )
    moved = jnp.clip(params + move, constraints.lower, constraints.upper)
    moved = jnp.where(constraints.free, moved, params)
    squared = jnp.einsum("ji,jik,jk->j", move, information, move)
    return MStep(moved, jnp.sqrt(squared.max()), 0.5 * squared.sum(), information)


def _lengthened(
    point: EMPoint,
    plain: EMPoint,
    new: MStep,
    template: ItemModel,
    x: Array,
    weights: Array,
    belief: MultiEStep,
    moments: Moments,
    constraints: Constraints,
    design: PopulationDesign,
    step_rule: StepRule,
) -> EMPoint:
    """The EM step lengthened with the missing information (see `irtcat.fitting._full_step`)."""
    dims = design.dims
    every = max(1, int(x.size // STEP_CELLS))
    rows = slice(None, None, every)
    n = moments.n[0]
    root = populations_of(point.population, design).root[0]
    mean = belief.mean[rows] @ root.T
    covariance = root @ belief.covariance[rows] @ root.T
    weights = weights[rows]
    weights = weights * (n / weights.sum())
    statistics, mask = template.sufficient_statistics(
        x[rows], 1, step_rule.has_missing, point.params.dtype
    )
    answered = jnp.ones_like(statistics[0]) if mask is None else mask
    model: Any = unpack(template, point.params)
    lower = getattr(model, "logit_lower", None)
    scores = item_scores(
        model.slope, model.intercept, lower, mean, covariance, statistics[0], answered
    )
    by_free = jnp.zeros((0, dims, dims), root.dtype)
    information_free = jnp.zeros((0, 0), root.dtype)
    if design.size:

        def precision_of(free: Array) -> Array:
            other = correlation_root(free, dims)
            return jnp.linalg.inv(other @ other.T)

        by_free = jnp.moveaxis(jax.jacfwd(precision_of)(point.population), -1, 0)
        values, vectors = correlation_curvature(point.population, moments.second[0])
        information_free = n * (vectors * values) @ vectors.T
    inside = (plain.params > constraints.lower) & (plain.params < constraints.upper)
    active = constraints.free & inside
    step = Displacement(
        plain.params - point.params, (plain.population - point.population)[: len(by_free)]
    )
    long_step = full_step(
        step, new.information, information_free, active, scores, model.slope, mean, covariance,
        weights, by_free,
    )  # fmt: skip
    params = jnp.clip(point.params + long_step.params, constraints.lower, constraints.upper)
    free = point.population + long_step.free if design.size else plain.population
    image = EMPoint(jnp.where(active, params, plain.params), free)
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
    vector = rescaled_populations(moments, design, mean, spread)
    return EMPoint(params, vector), shift


@functools.partial(jit, static_argnames=("design", "step_rule", "n_general"))
def multi_update(
    point: EMPoint,
    sums: MultiSums,
    template: ItemModel,
    x: Array | None,
    weights: Array,
    item_weights: Array,
    constraints: Constraints,
    specific: Array | None,
    n_steps: Array,
    expand: Array,
    *,
    design: PopulationDesign,
    step_rule: StepRule,
    n_general: int,
) -> EMUpdate:
    """The M-step for items and populations, and the step defined by ``step_rule``.

    Returns:
        The update; its ``step`` is that of EM, in standard errors of the complete data.
    """
    if sums.gradient is None:
        belief = sums.belief
        new = m_step(
            template, point.params, belief.counts, belief.totals, constraints, item_weights,
            step_rule.tied, n_steps, sums.theta,
        )  # fmt: skip
    else:
        damping = jnp.where(n_steps > 2, 1.0, 0.0).astype(point.params.dtype)
        new = _newton_step(
            point.params, sums, design.dims, item_weights, constraints, damping, step_rule
        )
    moments = sums.moments(design, n_general)
    n = moments.n.sum()
    plain = EMPoint(new.params, population_step(point.population, moments, design))
    image, step = plain, new.step
    if step_rule.lengthen:
        assert x is not None
        image = _lengthened(
            point, plain, new, template, x, weights, sums.belief, moments, constraints, design,
            step_rule,
        )  # fmt: skip
    elif step_rule.rescale:
        image, shift = _removed_scale(
            new, template, moments, constraints, design, step_rule, specific, n_general
        )
        step = jnp.where(expand, jnp.maximum(step, jnp.sqrt(n) * shift), step)
    image = jax.tree.map(lambda a, b: jnp.where(expand, a, b), image, plain)
    if design.size:
        old, moved = (populations_of(v, design) for v in (point.population, image.population))
        change = jnp.maximum(
            jnp.abs(moved.mean - old.mean).max(), jnp.abs(moved.root - old.root).max()
        )
        step = jnp.maximum(step, jnp.sqrt(n) * change)
    metric = EMPoint(
        jnp.diagonal(new.information, axis1=1, axis2=2), jnp.full_like(point.population, n)
    )
    prior = (item_weights * log_prior(point.params, constraints)).sum()
    return EMUpdate(
        point=image, plain=plain, step=step, gain=new.gain, metric=metric, log_prior=prior
    )


def sums_at(problem: MultiProblem, state: EMState) -> MultiSums:
    """The E-step of the problem's rule at a point: one pass over the rows."""
    n_cells = n_nodes(problem.rule)
    kernel: Any = grid_sums
    if isinstance(problem.rule, AdaptiveQuadrature):
        kernel, n_predictors = adaptive_sums, problem.template.n_categories - 1
        n_cells *= len(problem.item_weights) * 4 * n_predictors  # curves at each subject's nodes
    elif isinstance(problem.rule, TwoTierQuadrature):
        kernel = two_tier_sums
    dtype, running = problem.weights.dtype, []
    for block in problem.blocks():
        nodes: Any = ()
        if isinstance(problem.rule, AdaptiveQuadrature):
            nodes = (filled(array, block, dtype) for array in (state.mean, state.sd))
        sums = kernel(
            state.point, problem.template, block.x, block.weights, problem.item_weights,
            problem.rule, *nodes, problem.chunks(block, n_cells), design=problem.population,
            has_missing=problem.has_missing,
        )  # fmt: skip
        running.append((sums, block.rows.stop - block.rows.start))
    if len(running) == 1:
        return running[0][0]
    total: Any = None
    for sums, n_rows in running:  # the blocks of several devices run at the same time until here
        rows: Any = [np.asarray(array)[:n_rows] for array in sums.belief[:3]]
        rest: Any = [np.asarray(array) for array in sums.belief[3:]]
        here = jax.device_get(sums)._replace(belief=MultiEStep(*rows, *rest))
        total = here if total is None else total + here
    return total


def filled(array: Any, block: RowBlock, dtype: np.dtype) -> np.ndarray:
    """The block's rows of an array of all rows, 0 after the last."""
    rows = np.asarray(array, dtype)[block.rows]
    missing = len(block.x) - len(rows)
    return np.pad(rows, [(0, missing), *[(0, 0)] * (rows.ndim - 1)]) if missing else rows


def run_multi_e_step(
    problem: MultiProblem, state: EMState, slack: float, n_steps: int, expand: bool
) -> tuple[EMUpdate, MultiEStep]:
    """Apply the EM map of the problem's rule (``slack`` is for layouts in one dimension)."""
    del slack
    sums = sums_at(problem, state)
    x = None
    if problem.step_rule.lengthen:
        (block,) = problem.blocks()  # only fits in memory are lengthened
        x = block.x
    update = multi_update(
        state.point, sums, problem.template, x, problem.weights, problem.item_weights,
        problem.constraints, problem.specific, jnp.int32(n_steps), jnp.asarray(expand),
        design=problem.population, step_rule=problem.step_rule, n_general=problem.n_general,
    )  # fmt: skip
    return update, sums.belief
