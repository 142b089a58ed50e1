"""The E-step of EM by any quadrature: expected counts or sums of derivatives, and moments.

Sums are additive over blocks of rows. One ability is integrated on the scale of a common grid. Of
several, every group of subjects has a Normal population with mean m and covariance R R', and its
E-step runs on the scale z, where theta = m + R z and z is standard Normal, with the items rescaled
to it: one set of nodes then fits all groups.

Grids have the same nodes for all subjects, so that expected counts at the nodes are all that the
M-step needs. In adaptive quadrature every subject has its own nodes, so the gradient and
information of the M-step's Newton step are summed in the E-step instead, unless every item measures
one ability: then there are counts on a line of each.
"""

import functools
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from irtcat._common.compilation import jit, namespace
from irtcat.latent.adaptive import (
    AdaptiveQuadrature,
    adaptive_block,
    adaptive_line_step,
    moments_of,
    root_of,
)
from irtcat.latent.e_step import EStep, PackedItems, ResponseRows, all_placed
from irtcat.latent.grid import (
    GridQuadrature,
    TwoTierQuadrature,
    grid_step,
    row_chunks,
    two_tier_step,
)
from irtcat.latent.line import ScaleTransform, e_step, on_grid_scale, transformed_nodes
from irtcat.latent.linear_predictors import chain_of, chained, parts_of
from irtcat.latent.population import Moments, PopulationDesign, populations_of
from irtcat.latent.product import (
    ProductQuadrature,
    linear_grid_step,
    linear_two_tier_step,
    product_step,
)


class RowBlock(NamedTuple):
    """Rows of the responses that one call of an E-step passes over.

    Attributes:
        rows: their positions among all rows.
        x: the responses; rows after the last are empty.
        weights: how many subjects each row stands for.
        group: group of each row.
    """

    rows: slice
    x: Array
    weights: Array
    group: np.ndarray

    def in_chunks(self, n_groups: int, n_cells: int, has_missing: bool) -> ResponseRows:
        """The rows of each group in chunks (see `chunks_of`)."""
        chunks = jax.device_put(chunks_of(self.group, n_groups, n_cells))
        return ResponseRows(self.x, self.weights, chunks, has_missing=has_missing)


def chunks_of(group: np.ndarray, n_groups: int, n_cells: int) -> tuple[np.ndarray, ...]:
    """Row numbers of each group in chunks of equal size, filled up with the number of rows.

    Args:
        group: group of each row.
        n_groups: number of groups.
        n_cells: numbers that the E-step holds for each row, which limit the rows of a chunk.
    """
    chunks = []
    for number in range(n_groups):
        rows = np.flatnonzero(group == number)
        positions = row_chunks(max(len(rows), 1), n_cells)  # len(rows) stands for no row
        at = np.append(rows, len(group))[np.minimum(positions, len(rows))]
        chunks.append(at.astype(np.int32))
    return tuple(chunks)


class ExpectedSums(NamedTuple):
    """What the M-step needs from the E-step.

    Attributes:
        belief: the posteriors of all rows, on the scale of the line's grid, otherwise each on the
            z scale of its group.
        theta: the nodes of all groups on the scale of the items (empty for adaptive quadrature;
            with a line for each ability: its nodes in every coordinate, as items depend on one).
            On the line it is a vector.
        polynomials: sums of E[(1, theta) (1, theta)'] of each group (where there are no counts at
            joint nodes): its number of subjects, sums of theta and of squares and products.
        gradient: of the marginal log-likelihood by the items' parameters (adaptive quadrature).
        information: expected, of the complete data, of the same (adaptive quadrature).
    """

    belief: EStep
    theta: Array
    polynomials: Array | None = None
    gradient: Array | None = None
    information: Array | None = None

    def moments(self, design: PopulationDesign) -> Moments:
        """Moments of the groups' abilities, in numpy outside of compiled functions (traceable)."""
        xp: Any = jnp if isinstance(self.theta, jax.core.Tracer) else np
        if self.polynomials is not None:
            sums = xp.asarray(self.polynomials)
            n = sums[:, 0, 0]
            share = sums / xp.maximum(n, 1e-30)[:, None, None]  # a group may have no subjects
            return Moments(n, share[:, 0, 1:], share[:, 1:, 1:])
        mass, theta = xp.asarray(self.belief.mass), xp.asarray(self.theta)
        if mass.ndim == 1:
            mass = mass.reshape(design.n_groups, -1)
            theta = theta.reshape(design.n_groups, -1, design.dims)
            n = mass.sum(1)
            share = mass / xp.maximum(n, 1e-30)[:, None]
            second = theta.swapaxes(1, 2) @ (share[:, :, None] * theta)
            return Moments(n, xp.einsum("gn,gnd->gd", share, theta), second)
        # Two-tier: mass and theta are of pairs of a general node and a node of a specific ability.
        n, n_general = mass[0].sum(), theta.shape[1] - 1
        general, specific = theta[:, :n_general], theta[:, n_general]
        mean = xp.concatenate([mass[0] @ general / n, mass @ specific / n])
        within = general.T @ (mass[0][:, None] * general) / n
        # The abilities of different tiers, and different specific ones, are independent.
        second = mean[:, None] * mean
        squares = xp.concatenate([xp.diagonal(within), mass @ specific**2 / n])
        second = second + xp.diag(squares - xp.diagonal(second))
        is_within = np.arange(len(mean)) < n_general
        within = xp.pad(within, (0, len(mean) - n_general))
        second = xp.where(is_within[:, None] & is_within, within, second)
        dims = design.dims  # the group of items without a specific ability has none
        return Moments(n[None], mean[None, :dims], second[None, :dims, :dims])

    @property
    def by_row(self) -> tuple[Any, ...]:
        """The arrays with a number for each row."""
        belief = self.belief
        return belief.mean, belief.covariance, belief.log_z, belief.square_variance

    @property
    def added(self) -> tuple[Any, ...]:
        """The arrays that are sums over the rows."""
        belief = self.belief
        of_items = self.polynomials, self.gradient, self.information
        return belief.counts, belief.totals, belief.mass, *of_items

    def with_arrays(self, by_row: tuple[Any, ...], added: tuple[Any, ...]) -> "ExpectedSums":
        """The same with other arrays in the places of `by_row` and `added`."""
        belief = self.belief._replace(
            **dict(zip(("mean", "covariance", "log_z", "square_variance"), by_row, strict=True)),
            **dict(zip(("counts", "totals", "mass"), added[:3], strict=True)),
        )
        return ExpectedSums(belief, self.theta, *added[3:])


def over_blocks(blocks: Iterable[tuple[ExpectedSums, int]]) -> ExpectedSums:
    """The sums over several blocks, and the posteriors of their first rows, one after another."""
    parts: list[Any] = []
    total: Any = None
    for sums, n_rows in blocks:
        sums = jax.device_get(sums)
        parts.append([None if array is None else array[:n_rows] for array in sums.by_row])
        total = sums.added if total is None else jax.tree.map(np.add, total, sums.added)
    by_row = jax.tree.map(lambda *arrays: np.concatenate(arrays), *parts)
    return sums.with_arrays(tuple(by_row), total)


def _joined(beliefs: list[EStep]) -> EStep:
    """The E-steps of the groups as one, with the nodes of one group after those of the other.

    The posteriors are added, since each group's are 0 for the rows of the others.
    """
    if len(beliefs) == 1:
        return beliefs[0]
    xp = namespace(beliefs[0].counts)
    return EStep(
        mean=sum(belief.mean for belief in beliefs),  # type: ignore[arg-type]
        covariance=sum(belief.covariance for belief in beliefs),  # type: ignore[arg-type]
        log_z=sum(belief.log_z for belief in beliefs),  # type: ignore[arg-type]
        counts=xp.concatenate([belief.counts for belief in beliefs], axis=1),
        totals=xp.concatenate([belief.totals for belief in beliefs]),
        mass=xp.concatenate([belief.mass for belief in beliefs]),
    )


def _sums_by_group(values: Any, group: Any, n_groups: int) -> Any:
    """Sums of each row of numbers over the subjects of each group."""
    if group is None:
        return values.sum(1, keepdims=True)
    if namespace(values) is np:
        return np.stack([np.bincount(group, row, n_groups) for row in values]).astype(values.dtype)
    return jax.ops.segment_sum(values.T, group, n_groups).T


@functools.partial(jit, numpy_where=lambda items, _, rows, *__: rows.fits_numpy(items.template))
def line_sums(
    items: PackedItems, population: Any, rows: ResponseRows, transform: ScaleTransform | None
) -> ExpectedSums:
    """The E-step of one ability, of all groups, on a grid at this place."""
    everyone = None if rows.group is None else populations_of(population, 1)
    model, populations = on_grid_scale(items.model, everyone, transform)
    belief = e_step(model, rows, items.weights, populations, condense=True)
    mean, variance = belief.mean[:, 0], belief.covariance[:, 0, 0]
    if transform is not None:
        mean, variance = transform.mean + transform.sd * mean, transform.sd**2 * variance
    xp = namespace(mean)
    moments = rows.weights * xp.stack([xp.ones_like(mean), mean, mean, variance + mean**2])
    moments = _sums_by_group(moments, rows.group, len(population))
    nodes = transformed_nodes(transform, items.params.dtype, rows.layout.n_nodes)
    return ExpectedSums(belief, nodes, moments.T.reshape(-1, 2, 2))


@functools.partial(jit, static_argnames=("design", "by_factors"))
def grid_sums(
    items: PackedItems,
    population: Array,
    rows: ResponseRows,
    grid: GridQuadrature,
    *,
    design: PopulationDesign,
    by_factors: bool = False,
) -> ExpectedSums:
    """The E-step on a grid, of all groups (``by_factors``: see `is_separable`)."""
    populations = populations_of(population, design.dims)
    beliefs, nodes = [], []
    for group, own in enumerate(rows.by_group()):
        model = items.model.rescale(populations.mean[group], populations.root[group])
        step = linear_grid_step if by_factors else grid_step
        beliefs.append(step(model, own, items.weights, grid))
        nodes.append(populations.mean[group] + grid.nodes @ populations.root[group].T)
    return ExpectedSums(_joined(beliefs), jnp.concatenate(nodes))


def _sums_of_groups(
    step: Callable[..., tuple[EStep, Any]],
    rule: Any,
    line: Any,
    items: PackedItems,
    population: Any,
    rows: ResponseRows,
    design: PopulationDesign,
) -> ExpectedSums:
    """The E-step of all groups, with items on a line for each ability: theta = mean + SD u.

    Args:
        step: the E-step of a group, from its items on the scale u, the rows, the numbers of its
            own, the items' weights, the rule and the root of its correlations.
        rule: the nodes.
        line: those of an ability.
        items: the items.
        population: numbers of the populations.
        rows: the rows.
        design: what of the population is estimated.
    """
    populations = populations_of(population, design.dims)
    beliefs, nodes, polynomials = [], [], []
    xp = namespace(items.params)
    for group, own in enumerate(rows.by_group()):
        mean, root = populations.mean[group], populations.root[group]
        sd = xp.sqrt((root**2).sum(1))
        model = items.model.rescale(mean, xp.diag(sd))
        belief, sums = step(model, own, items.weights, rule, root / sd[:, None])
        beliefs.append(belief)
        nodes.append(mean + line * sd)
        one = xp.ones((1, 1), sd.dtype)
        to_theta = xp.block([[one, xp.zeros((1, len(sd)))], [mean[:, None], xp.diag(sd)]])
        to_theta = to_theta.astype(sd.dtype)
        polynomials.append(to_theta @ sums @ to_theta.T)
    return ExpectedSums(_joined(beliefs), xp.concatenate(nodes), xp.stack(polynomials))


@functools.partial(
    jit,
    static_argnames=("design",),
    numpy_where=lambda items, _, rows, rule, **__: rule.fits_numpy(items, rows),
)
def product_sums(
    items: PackedItems,
    population: Any,
    rows: ResponseRows,
    rule: ProductQuadrature,
    *,
    design: PopulationDesign,
) -> ExpectedSums:
    """The E-step on the product of a line for each ability, of all groups."""
    return _sums_of_groups(product_step, rule, rule.line.nodes, items, population, rows, design)


@functools.partial(jit, static_argnames=("design", "by_factors"))
def two_tier_sums(
    items: PackedItems,
    population: Array,
    rows: ResponseRows,
    rule: TwoTierQuadrature,
    *,
    design: PopulationDesign,
    by_factors: bool = False,
) -> ExpectedSums:
    """The E-step of a two-tier model; items have the general abilities and one specific one."""
    n_general = rule.general.nodes.shape[1]
    # Two-tier models have one group, of mean 0. General abilities may correlate; a specific one is
    # standard Normal and independent of them, so it needs no rescaling.
    general_root = populations_of(population, design.dims).root[0][:n_general, :n_general]
    pairs = rule.pairs
    theta = jnp.concatenate([pairs[:, :n_general] @ general_root.T, pairs[:, n_general:]], axis=1)
    root = jnp.eye(n_general + 1, dtype=general_root.dtype)
    root = root.at[:n_general, :n_general].set(general_root)
    mean = jnp.zeros(n_general + 1, root.dtype)
    model = items.model.rescale(mean, root)
    step = linear_two_tier_step if by_factors else two_tier_step
    (own,) = rows.by_group()
    return ExpectedSums(step(model, own, items.weights, rule), theta)


def _unfolded(upper: Array, size: int) -> Array:
    """Symmetric matrices from their upper triangles, (items, triangle) to (size, size, items)."""
    rows, columns = np.triu_indices(size)
    out = jnp.zeros((size, size, len(upper)), upper.dtype)
    return out.at[rows, columns].set(upper.T).at[columns, rows].set(upper.T)


@functools.partial(jit, static_argnames=("design",))
def adaptive_sums(
    items: PackedItems,
    population: Array,
    rows: ResponseRows,
    rule: AdaptiveQuadrature,
    *,
    design: PopulationDesign,
) -> ExpectedSums:
    """The adaptive E-step with gradient and information of the items' Newton step, in one pass.

    (With lines: with counts on them.)

    Gradient and information by the coefficients (intercept and slopes) of the items' linear
    predictors are sums over subjects and nodes of (a number per item) times (a polynomial in
    theta): products of a matrix nodes x items with a matrix nodes x polynomials. The number is a
    residual and the polynomials are (1, theta) for the gradient; it is a weight and they are the
    products of two of these for the information. The chain rule then gives those by the parameters.
    """
    if rule.lines is not None:
        line = rule.lines.line.nodes
        return _sums_of_groups(adaptive_line_step, rule, line, items, population, rows, design)
    template, params = items.template, items.params
    x, (mean, covariance) = rows.x, rows.nodes
    n, n_items = x.shape
    dims = design.dims
    dtype = params.dtype
    populations = populations_of(population, design.dims)
    chains = chain_of(template, params)
    # Products of two of (1, theta) are symmetric: only the upper triangle is summed.
    triangle_rows, triangle_columns = np.triu_indices(dims + 1)
    n_products = len(triangle_rows)

    def group_sums(group: int, posteriors: tuple[Array, ...]) -> tuple[Any, Any]:
        """Sums over the rows of a group, and the posteriors with those of its rows filled in."""
        centre, root = populations.mean[group], populations.root[group]
        parts = parts_of(items.model.rescale(centre, root))

        def body(carry: Any, at: Array) -> tuple[Any, None]:
            sums, moments, posteriors = carry
            safe, statistics, mask, row_weight = rows.answers(template, at)
            block = adaptive_block(
                parts, statistics, mask, mean[safe], root_of(covariance[safe]), rule, items.weights
            )
            new = (*moments_of(block.weight, block.z), block.log_z)
            posteriors = all_placed(posteriors, at, new)
            theta = (centre + block.z @ root.T).reshape(-1, dims)
            weight = (block.weight * row_weight[:, None]).reshape(-1, 1)
            basis = jnp.concatenate([jnp.ones_like(weight), theta], axis=1)
            weighted = basis * weight
            products = weighted[:, triangle_rows] * basis[:, triangle_columns]

            def summed(table: Array, polynomials: Array) -> Array:
                return table.reshape(len(weight), -1).T @ polynomials

            # An offset is the same at all nodes of a row, so the nodes are summed first.
            weighted_by_row = weighted.reshape(len(at), -1, dims + 1).sum(1)
            block_sums = []
            for terms in block.terms:
                scores = [summed(residual, weighted) for residual in terms.residual]
                if terms.offset is not None:
                    scores = [score + terms.offset.T @ weighted_by_row for score in scores]
                weights = {pair: summed(table, products) for pair, table in terms.weight.items()}
                block_sums.append((scores, weights))
            sums = jax.tree.map(jnp.add, sums, block_sums)
            return (sums, moments + products.sum(0), posteriors), None

        zeros = []
        for part in parts:
            n_predictors = part.rows.shape[1]
            scores = [jnp.zeros((n_items, dims + 1), dtype)] * n_predictors
            pairs = part.link.pairs(n_predictors)
            zeros.append((scores, dict.fromkeys(pairs, jnp.zeros((n_items, n_products), dtype))))
        carry = (zeros, jnp.zeros(n_products, dtype), posteriors)
        (sums, moments, posteriors), _ = jax.lax.scan(body, carry, rows.layout[group])
        return (sums, _unfolded(moments[None], dims + 1)[:, :, 0]), posteriors

    shapes = (n, dims), (n, dims, dims), (n,)
    posteriors: Any = tuple(jnp.zeros(shape, dtype) for shape in shapes)
    by_group, polynomials = [], []
    for group in range(design.n_groups):
        (sums, moments), posteriors = group_sums(group, posteriors)
        by_group.append(sums)
        polynomials.append(moments)
    sums = jax.tree.map(lambda *tables: sum(tables), *by_group)
    gradient: Any = 0.0
    information: Any = 0.0
    for (scores, weight_sums), chain in zip(sums, chains, strict=True):
        score = jnp.stack([table.T for table in scores])
        unfolded = {pair: _unfolded(table, dims + 1) for pair, table in weight_sums.items()}
        by_params = chained(score, unfolded, chain)
        gradient, information = gradient + by_params[0], information + by_params[1]
    no_nodes = jnp.zeros(0, dtype)  # no nodes that subjects share, hence no counts at them
    counts = jnp.zeros((1, 0, n_items), dtype)
    belief = EStep._make((*posteriors, counts, no_nodes, no_nodes, None))
    no_theta = jnp.zeros((0, dims), dtype)
    return ExpectedSums(belief, no_theta, jnp.stack(polynomials), gradient, information)
