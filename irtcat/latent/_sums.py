"""The E-step of several abilities for EM: expected counts or sums of derivatives, and moments.

Every group of subjects has a Normal population; its E-step runs on the scale z on which that
population is standard Normal, with the items rescaled to it. Sums are additive over blocks of rows.
"""

import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from irtcat._compile import jit
from irtcat.latent._adaptive import AdaptiveQuadrature, adaptive_block, moments_of, root_of
from irtcat.latent._grid import (
    GridQuadrature,
    MultiEStep,
    TwoTierQuadrature,
    grid_step,
    row_chunks,
    two_tier_step,
)
from irtcat.latent._parts import chain_of, chained, parts_of
from irtcat.latent._population import Moments, PopulationDesign, Populations, populations_of
from irtcat.latent._rules import Quadrature, n_nodes
from irtcat.models import ItemModel, unpack

__all__ = ["MultiSums", "RowBlock", "group_chunks", "sums_of_block"]


class RowBlock(NamedTuple):
    """Rows of the responses that one call of an E-step passes over.

    Attributes:
        rows: their place among all rows.
        x: the responses; rows after the last are empty.
        weights: how many subjects each row stands for.
        group: group of each row.
    """

    rows: slice
    x: Array
    weights: Array
    group: np.ndarray


def group_chunks(block: RowBlock, n_groups: int, n_cells: int) -> tuple[Array, ...]:
    """Row numbers of each group of a block, in chunks for this many cells a row."""
    return tuple(
        jnp.asarray(_chunks_of(np.flatnonzero(block.group == group), len(block.x), n_cells))
        for group in range(n_groups)
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
    params: Array,
    population: Array,
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
    populations = populations_of(population, design)
    beliefs, nodes = [], []
    for group, rows in enumerate(chunks):
        model = _rescaled(template, params, populations, group)
        belief = grid_step(model, x, weights, item_weights, grid, rows, has_missing=has_missing)
        beliefs.append(belief)
        nodes.append(populations.mean[group] + grid.nodes @ populations.root[group].T)
    return MultiSums(_joined(beliefs), jnp.concatenate(nodes))


@functools.partial(jit, static_argnames=("design", "has_missing"))
def two_tier_sums(
    params: Array,
    population: Array,
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
    root = populations_of(population, design).root[0][:n_general, :n_general]
    pairs = rule.pairs
    theta = jnp.concatenate([pairs[:, :n_general] @ root.T, pairs[:, n_general:]], axis=1)
    wide = jnp.eye(n_general + 1, dtype=root.dtype).at[:n_general, :n_general].set(root)
    zero = jnp.zeros(n_general + 1, root.dtype)
    model = unpack(template, params).rescale(zero, wide)
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
    params: Array,
    population: Array,
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
    dims = design.dims
    dtype, n_contrasts = params.dtype, template.n_categories - 1
    populations = populations_of(population, design)
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

            by_row = weighted.reshape(len(rows), -1, dims + 1).sum(1)
            here = [
                (
                    [
                        over(residual, weighted)
                        if terms.offset is None
                        else over(residual, weighted) + terms.offset.T @ by_row
                        for residual in terms.residual
                    ],
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


def sums_of_block(
    rule: Quadrature,
    params: Array,
    population: Array,
    template: ItemModel,
    block: RowBlock,
    item_weights: Array,
    nodes: tuple[Any, ...],
    design: PopulationDesign,
    has_missing: bool,
) -> MultiSums:
    """The E-step of the rows of a block.

    Args:
        rule: the quadrature.
        params: the items' parameters.
        population: free numbers of the populations.
        template: the items.
        block: the rows.
        item_weights: 1 for the items that abilities are estimated from, 0 for the others.
        nodes: means and covariances that place the nodes of adaptive quadrature, of the block's
            rows.
        design: what of the population is estimated.
        has_missing: whether any response is missing.
    """
    n_cells, kernel = n_nodes(rule), _KERNELS[type(rule)]
    places: tuple[Any, ...] = ()
    if rule.is_adaptive:
        # Curves of all items at the nodes of every subject.
        n_cells *= len(item_weights) * 4 * (template.n_categories - 1)
        places = nodes
    return kernel(
        params, population, template, block.x, block.weights, item_weights, rule, *places,
        group_chunks(block, design.n_groups, n_cells), design=design, has_missing=has_missing,
    )  # fmt: skip


_KERNELS: dict[Any, Any] = {
    GridQuadrature: grid_sums,
    TwoTierQuadrature: two_tier_sums,
    AdaptiveQuadrature: adaptive_sums,
}
