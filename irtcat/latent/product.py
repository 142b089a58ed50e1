"""The E-step where every item measures one of two or three abilities (simple structure).

On the scale u of abilities with mean 0 and SD 1, which may correlate, each ability has a line of
nodes, and the likelihood of a row of responses is a product of one factor an ability:

    L(u) = L_1(u_1) ... L_D(u_D),        Z = sum_k W(u_k) prod_d phi(u_kd) L_d(u_kd),

W the density of the population over that of independent abilities. So the items are evaluated on
the lines only, with rows x nodes of a line exponentials, and the sums over all nodes of the grid
are products of the factors with the table W. The M-step of an item needs the posterior of its own
ability: expected counts are those on the lines.
"""

import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import logsumexp
from jaxtyping import Array, Float, Int

from irtcat._common.compilation import jit
from irtcat.latent.e_step import EStep
from irtcat.latent.grid import GridQuadrature, grid_rule
from irtcat.latent.likelihood import Curves, item_curves, log_likelihood
from irtcat.models import ItemModel

FINEST_PRODUCT, COARSEST_PRODUCT = {2: 0.1, 3: 0.2}, {2: 0.4, 3: 0.5}
"""Smallest and largest spacing by number of abilities. In four the sums over the grid cost more
than nodes of each subject's own; in two they are a small part of an iteration."""


class ProductQuadrature(NamedTuple):
    """A grid that is the product of one line of nodes with itself.

    Attributes:
        line: the nodes of an ability, under N(0, 1).
        members: abilities x items, 1 where the item measures the ability, else 0.
    """

    line: GridQuadrature
    members: Float[Any, "dims items"]

    @property
    def is_adaptive(self) -> bool:
        """Whether the nodes are placed by the posteriors."""
        return False

    @property
    def has_lines(self) -> bool:
        """Whether each ability has a line of nodes of its own."""
        return True

    @property
    def n_general(self) -> int:
        """Number of general abilities; 0 without tiers."""
        return 0

    @property
    def kind(self) -> str:
        """What the nodes are."""
        return "a line for each ability"

    @property
    def spacing(self) -> float:
        """Distance of neighbouring nodes."""
        return self.line.spacing

    def shifted(self) -> "ProductQuadrature":
        """The nodes moved by half of their spacing along every axis."""
        return self._replace(line=self.line.shifted())

    def on_one_grid(self) -> GridQuadrature:
        """Nodes of all abilities together on the z scale, of the same spacing."""
        rule = grid_rule(len(self.members), self.spacing)
        return GridQuadrature(*(jnp.asarray(array, self.line.nodes.dtype) for array in rule))

    def points(self, dims: int) -> Float[Array, "grid dims"]:
        """The nodes of the grid of so many of the abilities, the last one innermost."""
        line = jnp.asarray(self.line.nodes)[:, 0]
        mesh = jnp.meshgrid(*[line] * dims, indexing="ij")
        return jnp.stack(mesh, axis=-1).reshape(-1, dims)


def density_ratio(
    rule: ProductQuadrature, root: Float[Array, "dims dims"]
) -> Float[Array, "outer line"]:
    """Density of abilities with this root of their correlations over that of independent ones.

    It is scaled so that the probabilities of the nodes sum to 1. Without that, correlations that
    are almost singular along a line of nodes would raise the likelihood without bound.

    Returns:
        The table W: the nodes of all but the last ability, by those of the last.
    """
    points = rule.points(len(rule.members))
    z = jax.scipy.linalg.solve_triangular(root, points.T, lower=True)
    squares = (z**2).sum(0)
    log_total = logsumexp(-0.5 * squares) - len(rule.members) * logsumexp(
        -0.5 * jnp.asarray(rule.line.nodes)[:, 0] ** 2
    )
    log_ratio = 0.5 * ((points**2).sum(1) - squares) - log_total
    return jnp.exp(log_ratio).reshape(-1, len(rule.line.nodes))


def item_factors(
    model: ItemModel, rule: ProductQuadrature, item_weights: Float[Array, " items"]
) -> Curves:
    """The items' curves on the lines, the lines of all abilities after each other.

    An item does not depend on the abilities that it does not measure: its curve on the diagonal of
    the grid is that on its line. On the lines of other abilities it is 0.
    """
    diagonal = jnp.tile(jnp.asarray(rule.line.nodes), (1, len(rule.members)))
    curves = item_curves(model, diagonal)
    by_ability = jnp.asarray(rule.members * item_weights)[:, None]
    n_items = by_ability.shape[2]
    base = (curves.base * by_ability).reshape(-1, n_items)
    contrast = (curves.contrast[:, None] * by_ability).reshape(len(curves.contrast), -1, n_items)
    return Curves(base, contrast)


def line_factors(
    statistics: Float[Array, "contrasts rows items"],
    mask: Float[Array, "rows items"] | None,
    curves: Curves,
    rule: ProductQuadrature,
) -> tuple[Float[Array, "dims rows line"], Float[Array, " rows"]]:
    """Likelihood times N(0, 1) density on each line, its maximum 1, and the log of the maxima."""
    dims = len(rule.members)
    log_factor = log_likelihood(statistics, mask, curves)
    log_factor = log_factor.reshape(len(log_factor), dims, -1) + rule.line.log_prior
    top = log_factor.max(2, keepdims=True)
    return jnp.moveaxis(jnp.exp(log_factor - top), 1, 0), top.sum((1, 2))


def outer(factors: Float[Array, "some rows line"]) -> Float[Array, "rows grid"]:
    """Products of the factors of some abilities on their grid, the last one innermost."""

    def times(left: Array, right: Array) -> Array:
        return (left[:, :, None] * right[:, None, :]).reshape(len(left), -1)

    return functools.reduce(times, factors)


def cells_of_row(rule: ProductQuadrature) -> int:
    """Numbers that an E-step holds for each row: on the lines, and on the grid of all but one."""
    dims, size = len(rule.members), len(rule.line.nodes)
    return 4 * (dims * size + size ** (dims - 1))


class _Posterior(NamedTuple):
    """Of each row: posterior on the lines, E[u], E[u u'], and the sum over the grid."""

    lines: Float[Array, "rows dims line"]
    mean: Float[Array, "rows dims"]
    square: Float[Array, "rows dims dims"]
    total: Float[Array, " rows"]


def _posterior(
    factors: Float[Array, "dims rows line"], ratio: Float[Array, "outer line"], line: Array
) -> _Posterior:
    """The posteriors: three products of rows x outer x line, and sums over the outer grid."""
    dims, n, size = factors.shape
    first, last = outer(factors[:-1]), factors[-1]
    joint = first * (last @ ratio.T)
    scale = 1 / joint.sum(1)
    cross = first * ((last * line) @ ratio.T)  # times the last ability, summed over it

    def along(table: Array, axis: int) -> Float[Array, "rows line"]:
        """Sums over the other axes of the outer grid."""
        others = [other + 1 for other in range(dims - 1) if other != axis]
        return table.reshape(n, *[size] * (dims - 1)).sum(others) * scale[:, None]

    lines = [along(joint, axis) for axis in range(dims - 1)]
    post = jnp.stack([*lines, last * (first @ ratio) * scale[:, None]], 1)
    square = jax.vmap(jnp.diag)(post @ line**2)
    for axis in range(dims - 1):
        product = along(cross, axis) @ line
        square = square.at[:, axis, -1].set(product).at[:, -1, axis].set(product)
    if dims == 3:
        product = ((joint.reshape(n, size, size) @ line) @ line) * scale
        square = square.at[:, 0, 1].set(product).at[:, 1, 0].set(product)
    return _Posterior(post, post @ line, square, 1 / scale)


def line_covariance(
    factors: Float[Array, "dims rows line"],
    ratio: Float[Array, "outer line"],
    line: Float[Array, " line"],
    tables: Float[Array, "dims rows line numbers"],
    weights: Float[Array, " rows"],
) -> Float[Array, "dims numbers dims numbers"]:
    """Posterior covariances of numbers that each depend on one ability, summed over rows.

    Args:
        factors: see `line_factors`.
        ratio: see `density_ratio`.
        line: the nodes.
        tables: the numbers of each ability at its nodes.
        weights: how many subjects each row stands for.
    """
    dims, n, size = factors.shape
    here = _posterior(factors, ratio, line)
    grid = ratio.reshape([size] * dims)
    mean = jnp.einsum("rdk,drkf->drf", here.lines, tables)
    total = -jnp.einsum("r,drf,erg->dfeg", weights, mean, mean)
    for a in range(dims):
        by_node = (here.lines[:, a] * weights[:, None])[:, :, None] * tables[a]
        total = total.at[a, :, a].add(jnp.einsum("rkf,rkg->fg", by_node, tables[a]))
        for b in range(a + 1, dims):
            left = (factors[a] * (weights / here.total)[:, None])[:, :, None] * tables[a]
            right = factors[b][:, :, None] * tables[b]
            others = [c for c in range(dims) if c not in (a, b)]
            if others:  # three abilities: the third is summed over
                third = jnp.moveaxis(grid, others[0], 0).reshape(size, -1)
                pairs = (factors[others[0]] @ third).reshape(n, size, size)
                given = jnp.einsum("rkl,rlf->rkf", pairs, right)
            else:
                given = jnp.einsum("kl,rlf->rkf", grid, right)
            block = jnp.einsum("rkf,rkg->fg", left, given)
            total = total.at[a, :, b].add(block).at[b, :, a].add(block.T)
    return total


@functools.partial(jit, static_argnames=("has_missing",))
def product_step(
    model: ItemModel,
    x: Array,
    weights: Float[Array, " subjects"],
    item_weights: Float[Array, " items"],
    rule: ProductQuadrature,
    root: Float[Array, "dims dims"],
    chunks: Int[Array, "blocks rows"],
    *,
    has_missing: bool,
) -> tuple[EStep, Float[Array, "one_more one_more"]]:
    """Posterior moments and expected counts on the lines.

    Args:
        model: stacked items on the scale u.
        x: responses, subjects x items.
        weights: how many subjects each row stands for.
        item_weights: see `grid_step`.
        rule: the nodes.
        root: lower root of the abilities' correlations.
        chunks: row numbers in blocks.
        has_missing: whether any response is missing.

    Returns:
        Moments on the scale z = root^-1 u, and counts on the line of each item's ability; sums
        over the subjects of E[(1, u) (1, u)'].
    """
    n, n_items = x.shape
    dtype, dims = weights.dtype, len(rule.members)
    line = jnp.asarray(rule.line.nodes)[:, 0]
    members = jnp.asarray(rule.members)[:, None]
    curves = item_factors(model, rule, item_weights)
    ratio = density_ratio(rule, root)
    n_contrasts = curves.contrast.shape[0]

    def on_lines(post: Array, table: Array) -> Array:
        """Sums over rows of posterior times table, on the line of each item's ability."""
        by_ability = post.reshape(len(post), -1).T @ table
        return (by_ability.reshape(dims, -1, n_items) * members).sum(0)

    def body(carry: tuple[Array, ...], rows: Array) -> tuple[tuple[Array, ...], None]:
        safe = jnp.minimum(rows, n - 1)
        statistics, mask = model.sufficient_statistics(x[safe], n_contrasts, has_missing, dtype)
        factors, top = line_factors(statistics, mask, curves, rule)
        here = _posterior(factors, ratio, line)
        weight = jnp.where(rows < n, weights[safe], 0)
        post = here.lines * weight[:, None, None]
        if mask is None:
            totals = (post.sum(0)[:, :, None] * members).sum(0)
        else:
            totals = on_lines(post, mask)
        sums = jnp.zeros((dims + 1, dims + 1), dtype).at[0, 0].set(weight.sum())
        first = weight @ here.mean
        sums = sums.at[0, 1:].set(first).at[1:, 0].set(first)
        sums = sums.at[1:, 1:].set(jnp.tensordot(weight, here.square, 1))
        new = here.mean, here.square, jnp.log(here.total) + top
        tables = [
            table.at[rows].set(value, mode="drop")
            for table, value in zip(carry[:3], new, strict=True)
        ]
        counts = jnp.stack([on_lines(post, h) for h in statistics])
        return (*tables, carry[3] + counts, carry[4] + totals, carry[5] + sums), None

    empty = (
        jnp.zeros((n, dims), dtype),
        jnp.zeros((n, dims, dims), dtype),
        jnp.zeros(n, dtype),
        jnp.zeros((n_contrasts, len(line), n_items), dtype),
        jnp.zeros((len(line), n_items), dtype),
        jnp.zeros((dims + 1, dims + 1), dtype),
    )
    mean, square, log_z, counts, totals, sums = jax.lax.scan(body, empty, chunks)[0]  # type: ignore[arg-type]
    inverse = jax.scipy.linalg.solve_triangular(root, jnp.eye(dims, dtype=dtype), lower=True)
    covariance = square - mean[:, :, None] * mean[:, None, :]
    belief = EStep(
        mean=mean @ inverse.T,
        covariance=inverse @ covariance @ inverse.T,
        log_z=log_z,
        counts=counts,
        totals=totals,
        mass=jnp.zeros(0, dtype),
    )
    return belief, sums


def product_rule(
    line: GridQuadrature, pattern: np.ndarray, dtype: np.dtype | type = float
) -> ProductQuadrature:
    """The product of a line for items of this pattern (items of no ability count to the first)."""
    members = np.eye(pattern.shape[1])[np.argmax(pattern != 0, axis=1)]
    return ProductQuadrature(line, members.T.astype(dtype))
