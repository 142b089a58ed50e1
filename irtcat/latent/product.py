"""E-steps where the posterior is a product of one factor an ability and a table of all rows.

Simple structure: every item measures one of two or three abilities. On the scale u of abilities
with mean 0 and SD 1, which may correlate, each ability has a line of nodes, and the likelihood of a
row of responses is a product of one factor an ability:

    L(u) = L_1(u_1) ... L_D(u_D),        Z = sum_k W(u_k) prod_d phi(u_kd) L_d(u_kd),

W the density of the population over that of independent abilities. So the items are evaluated on
the lines only, with rows x nodes of a line exponentials, and the sums over all nodes of the grid
are products of the factors with the table W. The M-step of an item needs the posterior of its own
ability: expected counts are those on the lines.

Complete right/wrong answers of logistic items, on a grid or in two tiers: with a linear predictor

    sum_j x_j eta_j - log(1 + exp eta_j) = sum_j (x_j - 1/2) eta_j - log(2 cosh(eta_j / 2)),

of which the first term is linear in the abilities: a factor exp(t_d u_d) for each, t the row's sum
of slopes; the second is a table of the nodes for all rows. Here too rows x nodes of a line
exponentials are enough. Such items need no expected counts at the nodes, only their sums and first
moments, which are sums of answers times posterior means.
"""

import functools
from collections.abc import Callable
from typing import Any, NamedTuple, cast

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import logsumexp
from jaxtyping import Float, Int

from irtcat._common.compilation import jit, namespace
from irtcat.latent.e_step import (
    FEW_CELLS,
    FEW_RESPONSES,
    Answers,
    EStep,
    PackedItems,
    ResponseRows,
    all_placed,
    fold_rows,
)
from irtcat.latent.grid import REACH, GridQuadrature, TwoTierQuadrature, grid_rule, two_tier_moments
from irtcat.latent.likelihood import Curves, careful_sum, item_curves, log_likelihood
from irtcat.latent.linear_predictors import has_numpy_terms
from irtcat.latent.population import solve_lower
from irtcat.models import ItemModel
from irtcat.models.base import Mask, Statistics

FINEST_PRODUCT, COARSEST_PRODUCT = {2: 0.1, 3: 0.2}, {2: 0.4, 3: 0.5}
"""Smallest and largest spacing by number of abilities. In four the sums over the grid cost more
than nodes of each subject's own; in two they are a small part of an iteration."""


Factors = Float[Any, "dims rows line"]
"""Likelihood times density of each row on the line of each ability."""

Ratio = Float[Any, "outer line"]
"""See `density_ratio`."""


class ProductQuadrature(NamedTuple):
    """A grid that is the product of one line of nodes with itself.

    Attributes:
        line: the nodes of an ability, under N(0, 1).
        members: abilities x items, 1 where the item measures the ability, else 0.
    """

    line: GridQuadrature
    members: Float[Any, "dims items"]

    @property
    def spacing(self) -> float:
        """Distance of neighbouring nodes."""
        return self.line.spacing

    def fits_numpy(self, items: PackedItems, rows: ResponseRows) -> bool:
        """Whether passes over these rows and items are computed in numpy."""
        n_rows, n_items = rows.x.shape
        n_cells = n_rows * cells_of_row(self) // 4 * items.template.n_categories
        is_small = n_rows * n_items <= FEW_RESPONSES and n_cells <= FEW_CELLS
        return is_small and rows.weights.dtype == np.float64 and has_numpy_terms(items.template)

    def shifted(self) -> "ProductQuadrature":
        """The nodes moved by half of their spacing along every axis."""
        return self._replace(line=self.line.shifted())

    def on_one_grid(self) -> GridQuadrature:
        """Nodes of all abilities together on the z scale, of the same spacing."""
        rule = grid_rule(len(self.members), self.spacing)
        nodes, log_prior = (jnp.asarray(array, self.line.nodes.dtype) for array in rule[:2])
        return GridQuadrature(nodes, log_prior)

    def points(self, dims: int) -> Float[Any, "grid dims"]:
        """The nodes of the grid of so many of the abilities, the last one innermost."""
        line, xp = self.line.nodes[:, 0], namespace(self.line.nodes)
        return xp.stack(xp.meshgrid(*[line] * dims, indexing="ij"), axis=-1).reshape(-1, dims)


def density_ratio(rule: ProductQuadrature, root: Float[Any, "dims dims"]) -> Ratio:
    """Density of abilities with this root of their correlations over that of independent ones.

    It is scaled so that the probabilities of the nodes sum to 1. Without that, correlations that
    are almost singular along a line of nodes would raise the likelihood without bound.

    Returns:
        The table W: the nodes of all but the last ability, by those of the last.
    """
    xp, points, line = namespace(root), rule.points(len(rule.members)), rule.line.nodes[:, 0]
    squares = (solve_lower(root, points.T) ** 2).sum(0)
    log_total = _log_sum(-0.5 * squares) - len(rule.members) * _log_sum(-0.5 * line**2)
    log_ratio = 0.5 * ((points**2).sum(1) - squares) - log_total
    return xp.exp(log_ratio).reshape(-1, len(line))


def _log_sum(exponents: Any) -> Any:
    """The logarithm of the sum of exponentials."""
    xp, top = namespace(exponents), exponents.max()
    return top + xp.log(xp.exp(exponents - top).sum())


def item_factors(
    model: ItemModel, rule: ProductQuadrature, item_weights: Float[Any, " items"]
) -> Curves:
    """The items' curves on the lines, the lines of all abilities after each other.

    An item does not depend on the abilities that it does not measure: its curve on the diagonal of
    the grid is that on its line. On the lines of other abilities it is 0.
    """
    xp = namespace(item_weights)
    diagonal = xp.tile(xp.asarray(rule.line.nodes), (1, len(rule.members)))
    curves = item_curves(model, diagonal)
    by_ability = xp.asarray(rule.members * item_weights)[:, None]
    n_items = by_ability.shape[2]
    base = (curves.base * by_ability).reshape(-1, n_items)
    contrast = (curves.contrast[:, None] * by_ability).reshape(len(curves.contrast), -1, n_items)
    return Curves(base, contrast)


def line_factors(
    statistics: Statistics, mask: Mask, curves: Curves, rule: ProductQuadrature
) -> tuple[Factors, Float[Any, " rows"]]:
    """Likelihood times N(0, 1) density on each line, its maximum 1, and the log of the maxima."""
    dims = len(rule.members)
    log_factor = log_likelihood(statistics, mask, curves)
    log_factor = log_factor.reshape(len(log_factor), dims, -1)
    log_factor += rule.line.log_prior
    top, xp = log_factor.max(2, keepdims=True), namespace(log_factor)
    log_factor -= top
    return xp.moveaxis(xp.exp(log_factor), 1, 0), top.sum((1, 2))


def outer(factors: Float[Any, "some rows line"]) -> Float[Any, "rows grid"]:
    """Products of the factors of some abilities on their grid, the last one innermost."""

    def times(left: Any, right: Any) -> Any:
        return (left[:, :, None] * right[:, None, :]).reshape(len(left), -1)

    return functools.reduce(times, factors)


def cells_of_row(rule: ProductQuadrature) -> int:
    """Numbers that an E-step holds for each row: on the lines, and on the grid of all but one."""
    dims, size = len(rule.members), len(rule.line.nodes)
    return 4 * (dims * size + size ** (dims - 1))


class LinePosterior(NamedTuple):
    """Of each row: posterior on the lines, E[u], E[u u'], and the log of the sum over all nodes."""

    lines: Float[Any, "rows dims line"]
    mean: Float[Any, "rows dims"]
    square: Float[Any, "rows dims dims"]
    log_z: Float[Any, " rows"]


def line_posterior(factors: Factors, ratio: Ratio, line: Any) -> LinePosterior:
    """The posteriors: three products of rows x outer x line, and sums over the outer grid."""
    dims, n, size = factors.shape
    first, last = outer(factors[:-1]), factors[-1]
    joint = first * (last @ ratio.T)
    scale = 1 / joint.sum(1)
    cross = first * ((last * line) @ ratio.T)  # times the last ability, summed over it

    def along(table: Any, axis: int) -> Float[Any, "rows line"]:
        """Sums over the other axes of the outer grid."""
        others = tuple(other + 1 for other in range(dims - 1) if other != axis)
        table = table.reshape(n, *[size] * (dims - 1)).sum(others) if others else table
        return table * scale[:, None]

    lines = [along(joint, axis) for axis in range(dims - 1)]
    xp = namespace(joint)
    post = xp.stack([*lines, last * (first @ ratio) * scale[:, None]], 1)
    squares = post @ line**2
    products = {(axis, axis): squares[:, axis] for axis in range(dims)}
    products |= {(axis, dims - 1): along(cross, axis) @ line for axis in range(dims - 1)}
    if dims == 3:
        products[0, 1] = ((joint.reshape(n, size, size) @ line) @ line) * scale
    cells = [products[min(a, b), max(a, b)] for a in range(dims) for b in range(dims)]
    square = xp.stack(cells, 1).reshape(n, dims, dims)
    return LinePosterior(post, post @ line, square, -xp.log(scale))


def sums_on_lines(
    posterior_of: Callable[[Answers], LinePosterior],
    model: ItemModel,
    rows: ResponseRows,
    rule: ProductQuadrature,
    root: Float[Any, "dims dims"],
) -> tuple[EStep, Float[Any, "one_more one_more"]]:
    """Posterior moments of all rows and expected counts on the lines (traceable).

    Args:
        posterior_of: the posteriors of some rows.
        model: stacked items on the scale u.
        rows: the responses.
        rule: the lines.
        root: lower root of the abilities' correlations.

    Returns:
        Moments on the scale z = root^-1 u, and counts on the line of each item's ability; sums
        over the subjects of E[(1, u) (1, u)'].
    """
    (n, n_items), n_contrasts = rows.x.shape, model.n_categories - 1
    dtype, (dims, _), size = rows.weights.dtype, rule.members.shape, len(rule.line.nodes)
    xp = namespace(rows.weights)
    members = xp.asarray(rule.members)

    def on_lines(post: Any, table: Any) -> Any:
        """Sums over rows of posterior times table, on the line of each item's ability."""
        return ((post.transpose(1, 2, 0) @ table) * members[:, None]).sum(0)

    def body(carry: tuple[Any, ...], numbers: Any) -> tuple[tuple[Any, ...], None]:
        answers = rows.answers(model, numbers)
        here = posterior_of(answers)
        _, statistics, mask, weight = answers
        post = here.lines * weight[:, None, None]
        if mask is None:
            totals = (post.sum(0)[:, :, None] * members[:, None]).sum(0)
        else:
            totals = on_lines(post, mask)
        first, second = weight @ here.mean, xp.tensordot(weight, here.square, 1)
        sums = xp.block([[weight.sum(keepdims=True), first], [first[:, None], second]])
        tables = all_placed(carry[:3], numbers, here[1:])
        counts = xp.stack([on_lines(post, h) for h in statistics])
        return (*tables, carry[3] + counts, carry[4] + totals, carry[5] + sums), None

    empty = (
        xp.zeros((n, dims), dtype),
        xp.zeros((n, dims, dims), dtype),
        xp.zeros(n, dtype),
        xp.zeros((n_contrasts, size, n_items), dtype),
        xp.zeros((size, n_items), dtype),
        xp.zeros((dims + 1, dims + 1), dtype),
    )
    cells = max(dims * size, size ** (dims - 1))
    mean, square, log_z, counts, totals, sums = fold_rows(body, empty, rows.layout, n, cells)
    inverse = solve_lower(root, xp.eye(dims, dtype=dtype))
    covariance = square - mean[:, :, None] * mean[:, None, :]
    belief = EStep(
        mean=mean @ inverse.T,
        covariance=inverse @ covariance @ inverse.T,
        log_z=log_z,
        counts=counts,
        totals=totals,
        mass=xp.zeros(0, dtype),
    )
    return belief, sums


def product_step(
    model: ItemModel,
    rows: ResponseRows,
    item_weights: Float[Any, " items"],
    rule: ProductQuadrature,
    root: Float[Any, "dims dims"],
) -> tuple[EStep, Float[Any, "one_more one_more"]]:
    """`sums_on_lines` of the posteriors on the product of the lines (traceable)."""
    line = namespace(root).asarray(rule.line.nodes)[:, 0]
    curves = item_factors(model, rule, item_weights)
    ratio = density_ratio(rule, root)

    def posterior_of(answers: Answers) -> LinePosterior:
        factors, top = line_factors(answers.statistics, answers.mask, curves, rule)
        here = line_posterior(factors, ratio, line)
        return here._replace(log_z=here.log_z + top)

    return sums_on_lines(posterior_of, model, rows, rule, root)


def product_rule(line: GridQuadrature, pattern: np.ndarray) -> ProductQuadrature:
    """The product of a line for items of this pattern (items of no ability count to the first)."""
    members = np.eye(pattern.shape[1])[np.argmax(pattern != 0, axis=1)]
    return ProductQuadrature(line, members.T)


LARGEST_RANGE = {"float64": 640.0, "float32": 65.0}
"""Largest range of the logarithms of factors and tables. What underflows is then below exp(-60),
or exp(-20) in float32, of the sum that it belongs to."""


def is_separable(
    slopes: np.ndarray,
    intercepts: np.ndarray,
    item_weights: np.ndarray,
    rule: GridQuadrature | TwoTierQuadrature,
) -> bool:
    """Whether factors and tables of complete right/wrong answers stay within the range of numbers.

    Against the largest product of a factor and the table's largest value, that at the middle is at
    least exp(-3 sum |slopes| - sum |intercepts| / 2); two-tier: of the items of a specific factor.

    Args:
        slopes: of logistic items on the z scale.
        intercepts: likewise.
        item_weights: see `grid_step`.
        rule: the nodes.
    """
    by_item = item_weights * (REACH * np.abs(slopes).sum(1) + np.abs(intercepts)) / 2
    widest = by_item.sum()
    if isinstance(rule, TwoTierQuadrature):
        widest = (by_item[np.asarray(rule.members)] * np.asarray(rule.valid)).sum(1).max()
    return bool(widest <= LARGEST_RANGE[str(item_weights.dtype)])


CACHE_SHARE = 16
"""A chunk of an E-step by factors has this share of the usual size: with two abilities and 2,000
rows .8 ms in place of 2.3, bifactor 8 of 13 (64-bit, 1 MB of second-level cache)."""


def cells_by_factors(rule: GridQuadrature | TwoTierQuadrature) -> int:
    """Numbers that an E-step by factors holds for each row, for chunks that stay in the cache."""
    if isinstance(rule, TwoTierQuadrature):
        n_groups, n_g, n_s = len(rule.members), len(rule.general.nodes), len(rule.specific.nodes)
        return CACHE_SHARE * n_groups * (8 * n_g + 2 * n_s)
    assert rule.line is not None
    dims, size = rule.nodes.shape[1], len(rule.line)
    return CACHE_SHARE * 4 * (dims * size + size ** (dims - 1))


def _shared_table(model: ItemModel, nodes: Any, item_weights: Any) -> Float[Any, "nodes items"]:
    """The part of the log-likelihoods at the nodes that is the same for all complete rows."""
    curves = item_curves(model, nodes)
    return (curves.base + 0.5 * curves.contrast[0]) * item_weights


def _tilted(tilt: Float[Any, "*rows"], line: Any) -> tuple[Any, Any]:
    """The factors exp(tilt u) on a line of nodes, their maximum 1, and the log of the maxima."""
    top = jnp.maximum(tilt * line[0], tilt * line[-1])
    return jnp.exp(tilt[..., None] * line - top[..., None]), top


def _axis_nodes(grid: GridQuadrature) -> tuple[Int[Any, " one_more"], Any]:
    """A node in the middle and one on each axis, and the latter's distance from it."""
    assert grid.line is not None
    assert grid.cells is not None
    dims, size = grid.nodes.shape[1], len(grid.line)
    middle, away = size // 2, max(1, size // 4)
    strides = size ** np.arange(dims)[::-1]
    targets = middle * strides.sum() + away * np.append(0, strides)
    return jnp.argmax(grid.cells == targets[:, None], axis=1), (
        grid.line[middle + away] - grid.line[middle]
    )


def _on_axes(
    sums: Float[Any, "items one_more"],
    middle: Float[Any, " dims"],
    distance: Any,
    at: Any,
    n_nodes: int,
) -> Float[Any, "one nodes items"]:
    """Counts with these sums and first moments, at a node in the middle and one on each axis."""
    on_axis = (sums[:, 1:] - sums[:, :1] * middle) / distance
    in_middle = sums[:, :1] - on_axis.sum(1, keepdims=True)
    counts = jnp.zeros((n_nodes, len(sums)), sums.dtype)
    return counts.at[at].add(jnp.concatenate([in_middle, on_axis], axis=1).T)[None]


@jit
def linear_grid_step(
    model: ItemModel, rows: ResponseRows, item_weights: Float[Any, " items"], grid: GridQuadrature
) -> EStep:
    """`grid_step` of complete right/wrong answers to logistic items, by factors of each ability.

    The counts are at a few nodes only, with the same sums and first moments.
    """
    n, n_items = rows.x.shape
    dtype, (n_nodes, dims) = rows.weights.dtype, grid.nodes.shape
    line: Any = grid.line
    size, logits = len(line), cast(Any, model)
    log_table = careful_sum(_shared_table(model, grid.nodes, item_weights)) + grid.log_prior
    top = log_table.max()
    table = jnp.zeros(size**dims, dtype).at[grid.cells].set(jnp.exp(log_table - top))
    table = table.reshape(-1, size)

    def body(carry: tuple[Any, ...], numbers: Any) -> tuple[tuple[Any, ...], None]:
        _, (right,), _, weight = rows.answers(model, numbers)
        centred = (right - 0.5) * item_weights
        factors, high = _tilted((centred @ logits.slope).T, line)
        here = line_posterior(factors, table, line)
        normaliser = here.log_z + high.sum(0) + centred @ logits.intercept + top
        per_cell = outer(factors[:-1]).T @ (factors[-1] * (weight * jnp.exp(-here.log_z))[:, None])
        polynomials = jnp.concatenate([weight[:, None], here.mean * weight[:, None]], axis=1)
        tables = all_placed(carry[:3], numbers, (here.mean, here.square, normaliser))
        return (*tables, carry[3] + right.T @ polynomials, carry[4] + per_cell), None

    empty = (
        jnp.zeros((n, dims), dtype),
        jnp.zeros((n, dims, dims), dtype),
        jnp.zeros(n, dtype),
        jnp.zeros((n_items, 1 + dims), dtype),
        jnp.zeros_like(table),
    )
    mean, square, log_z, sums, mass = jax.lax.scan(body, empty, rows.layout)[0]
    mass = (mass * table).reshape(-1)[grid.cells]
    at, distance = _axis_nodes(grid)
    return EStep(
        mean=mean,
        covariance=square - mean[:, :, None] * mean[:, None, :],
        log_z=log_z,
        counts=_on_axes(sums, grid.nodes[at[0]], distance, at, n_nodes),
        totals=mass,
        mass=mass,
    )


@jit
def linear_two_tier_step(
    model: ItemModel,
    rows: ResponseRows,
    item_weights: Float[Any, " items"],
    rule: TwoTierQuadrature,
) -> EStep:
    """`two_tier_step` of complete right/wrong answers to logistic items, by factors.

    Given the general abilities, the sum over a specific one is a product of its factor, rows x
    nodes, with a table of the nodes of both. The counts are at a few pairs of nodes only, with the
    same sums and first moments.
    """
    n, n_items = rows.x.shape
    dtype = rows.weights.dtype
    general, line = rule.general.nodes, rule.specific.nodes[:, 0]
    n_g, n_s, n_groups, n_general = len(general), len(line), len(rule.members), general.shape[1]
    logits: Any = model
    slope = logits.slope[rule.members]  # those of padding meet answers of 0
    marks = jnp.zeros((n_groups, n_items), dtype)
    marks = marks.at[jnp.arange(n_groups)[:, None], rule.members].add(rule.valid)
    by_item = _shared_table(model, rule.pairs, item_weights)
    members = jnp.moveaxis(by_item[:, rule.members] * rule.valid, 1, 0)
    log_table = jax.vmap(careful_sum)(members).reshape(n_groups, n_g, n_s)
    log_table = log_table + rule.specific.log_prior
    top = log_table.max(2, keepdims=True)
    table = jnp.exp(log_table - top)
    powers = jnp.stack([table, table * line, table * line**2], 1).reshape(n_groups, -1, n_s)

    def body(carry: tuple[Any, ...], numbers: Any) -> tuple[tuple[Any, ...], None]:
        _, (right,), _, weight = rows.answers(model, numbers)
        centred = (right - 0.5) * item_weights
        by_group = jnp.moveaxis(centred[:, rule.members] * rule.valid, 1, 0)
        tilt = by_group @ slope
        factor, high = _tilted(tilt[:, :, -1], line)
        sums = (factor @ powers.swapaxes(1, 2)).reshape(n_groups, len(numbers), 3, n_g)
        total = sums[:, :, 0]
        first, second = sums[:, :, 1] / total, sums[:, :, 2] / total
        joint = (jnp.log(total) + top.swapaxes(1, 2)).sum(0) + rule.general.log_prior
        joint = joint + tilt[:, :, :-1].sum(0) @ general.T
        joint = joint + (high.sum(0) + centred @ logits.intercept)[:, None]
        log_z = logsumexp(joint, axis=1)
        post = jnp.exp(joint - log_z[:, None])
        weight = weight[:, None]
        per_pair = ((post * weight) / total).swapaxes(1, 2) @ factor
        mean, covariance = two_tier_moments(post, general, first, second)
        polynomials = right.T @ jnp.concatenate([weight, mean * weight], axis=1)
        tables = all_placed(carry[:3], numbers, (mean, covariance, log_z))
        return (*tables, carry[3] + polynomials, carry[4] + per_pair), None

    dims = n_general + n_groups
    empty = (
        jnp.zeros((n, dims), dtype),
        jnp.zeros((n, dims, dims), dtype),
        jnp.zeros(n, dtype),
        jnp.zeros((n_items, 1 + dims), dtype),
        jnp.zeros((n_groups, n_g, n_s), dtype),
    )
    mean, covariance, log_z, sums, mass = jax.lax.scan(body, empty, rows.layout)[0]
    mass = (mass * table).reshape(n_groups, -1)
    own = (sums[:, 1 + n_general :] * marks.T).sum(1, keepdims=True)
    sums = jnp.concatenate([sums[:, : 1 + n_general], own], axis=1)
    at, distance = _axis_nodes(rule.general)
    at_line, specific_distance = _axis_nodes(rule.specific)
    distances = jnp.append(jnp.broadcast_to(distance, n_general), specific_distance)
    pairs = jnp.append(at * n_s + at_line[0], at[0] * n_s + at_line[1])
    middle = jnp.append(general[at[0]], line[at_line[0]])
    counts = _on_axes(sums, middle, distances, pairs, n_g * n_s)
    return EStep(mean, covariance, log_z, counts, totals=mass.T @ marks, mass=mass)
