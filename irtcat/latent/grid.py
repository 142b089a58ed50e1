"""The E-step in several dimensions: grid, bifactor and adaptive quadrature.

The scale z has independent N(0, 1) abilities in the population;
with correlated abilities theta = root z, and the items are rescaled by that root.

- Up to three dimensions: one grid of rectangular cells for all, fine relative to the posteriors'
width, without its corners; log-likelihoods and counts are matrix products as in one dimension.
- The same where every item measures one ability: products of lines (`irtcat.latent.product`).
- Bifactor: the specific abilities are independent given the general one, so that each is integrated
separately on a grid of two dimensions (Gibbons & Hedeker 1992).
- Otherwise: nodes mean + root z for each subject (`irtcat.latent.adaptive`).
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import logsumexp
from jaxtyping import Array, Float, Int

from irtcat._common.compilation import jit
from irtcat.latent.e_step import EStep, ResponseRows, all_placed
from irtcat.latent.layout import block_bytes
from irtcat.latent.likelihood import Curves, item_curves, log_likelihood
from irtcat.models import ItemModel
from irtcat.models.base import Mask, Statistics

REACH = 6.0
"""The grid reaches this many SDs of the population in every direction."""

COARSEST = 0.5
"""Largest spacing of a grid."""

FINEST = {2: 0.1, 3: 0.3}
"""Smallest spacing of a grid by number of dimensions; there is none in more."""

LOG_2PI = float(np.log(2 * np.pi))


class GridQuadrature(NamedTuple):
    """Nodes on the z scale with the logarithm of their prior probability.

    Attributes:
        nodes: the nodes.
        log_prior: log of their probabilities.
        line: the nodes of an axis; None for nodes that are not of equal cells.
        cells: position of each node among the products of these lines, the last axis innermost.
    """

    nodes: Float[Any, "nodes dims"]
    log_prior: Float[Any, " nodes"]
    line: Float[Any, " line"] | None = None
    cells: Int[Any, " nodes"] | None = None

    @classmethod
    def standard(cls, nodes: np.ndarray) -> "GridQuadrature":
        """Nodes of equal cells under the standard Normal; their probabilities sum to 1."""
        log_prior = -0.5 * (nodes**2).sum(axis=1)
        return cls(nodes, log_prior - np.log(np.exp(log_prior).sum()))

    @property
    def spacing(self) -> float:
        """Distance of neighbouring nodes."""
        line = np.unique(np.asarray(self.nodes, float)[:, 0].round(6))
        return float(line[1] - line[0])

    def shifted(self) -> "GridQuadrature":
        """The grid moved by half of its spacing along every axis: as many nodes, others."""
        half, dtype = self.spacing / 2, self.nodes.dtype
        moved = GridQuadrature.standard(np.asarray(self.nodes, float) + half)
        nodes, log_prior = (jnp.asarray(array, dtype) for array in moved[:2])
        line = (
            None if self.line is None else jnp.asarray(np.asarray(self.line, float) + half, dtype)
        )
        return GridQuadrature(nodes, log_prior, line, self.cells)


class TwoTierQuadrature(NamedTuple):
    """The items of each specific factor, padded to the same number, and the nodes.

    Attributes:
        members: item numbers, groups x most items.
        valid: 1 for a member, 0 for padding.
        general: nodes of the general abilities, with their log-prior.
        specific: the same of a specific one.
    """

    members: Int[Any, "groups most"]
    valid: Float[Any, "groups most"]
    general: GridQuadrature
    specific: GridQuadrature

    @property
    def n_general(self) -> int:
        """Number of general abilities."""
        return int(self.general.nodes.shape[1])

    @property
    def spacing(self) -> float:
        """Distance of neighbouring nodes."""
        return self.specific.spacing

    def shifted(self) -> "TwoTierQuadrature":
        """The nodes moved by half of their spacing along every axis."""
        return self._replace(general=self.general.shifted(), specific=self.specific.shifted())

    @property
    def pairs(self) -> Float[Array, "pairs one_more_than_general"]:
        """All pairs of a general and a specific node, general outer."""
        n_g, n_s = len(self.general.nodes), len(self.specific.nodes)
        general = jnp.repeat(jnp.asarray(self.general.nodes), n_s, axis=0)
        return jnp.concatenate([general, jnp.tile(jnp.asarray(self.specific.nodes), (n_g, 1))], 1)


def spacing_for(finest: float, narrowest: float, steepest: float) -> float | None:
    """Spacing of a grid that integrates posteriors of this SD and items of this slope.

    The error of the rectangle rule on a Normal is exp(-2 pi^2 (SD / spacing)^2), on a logistic
    curve exp(-2 pi^2 / (slope * spacing)): at most 1e-8 and 2e-6 of each term.

    Returns:
        The spacing; None where the posteriors need one below ``finest``.
    """
    wanted = min(COARSEST, narrowest)
    if wanted < finest:
        return None
    return max(min(wanted, 1.5 / max(steepest, 1e-9)), finest)


def line_rule(spacing: float) -> GridQuadrature:
    """Nodes in one dimension."""
    half = int(np.ceil(REACH / spacing))
    line = spacing * np.arange(-half, half + 1)
    cells = np.arange(len(line), dtype=np.int32)
    return GridQuadrature.standard(line[:, None])._replace(line=line, cells=cells)


def grid_rule(dims: int, spacing: float) -> GridQuadrature:
    """Nodes in several dimensions, without the corners, where the density is negligible.

    The prior's probabilities sum to 1: the cut-off mass (1e-7) is spread over the rest.
    """
    line = line_rule(spacing).nodes[:, 0]
    mesh = np.stack(np.meshgrid(*[line] * dims, indexing="ij"), axis=-1).reshape(-1, dims)
    cells = np.flatnonzero((mesh**2).sum(axis=1) <= REACH**2 + 1e-9)
    grid = GridQuadrature.standard(mesh[cells])
    return grid._replace(line=line, cells=cells.astype(np.int32))


def row_chunks(n_rows: int, n_nodes: int) -> np.ndarray:
    """Row numbers in blocks; the number of rows stands for "no row"."""
    most_cells = block_bytes() // 8  # of float64
    size = int(min(n_rows, max(16, most_cells // max(1, n_nodes))))
    n_blocks = -(-n_rows // size)
    return np.minimum(np.arange(n_blocks * size), n_rows).reshape(n_blocks, size).astype(np.int32)


def _weighted_curves(model: ItemModel, nodes: Array, item_weights: Array) -> Curves:
    curves = item_curves(model, nodes)
    return jax.tree.map(lambda leaf: leaf * item_weights, curves)


def grid_posterior(
    statistics: Statistics, mask: Mask, curves: Curves, log_prior: Float[Array, " nodes"]
) -> tuple[Float[Array, "rows nodes"], Float[Array, " rows"]]:
    """Posterior weights of the nodes and the log of the normaliser."""
    log_post = log_likelihood(statistics, mask, curves) + log_prior
    log_z = logsumexp(log_post, axis=1)
    return jnp.exp(log_post - log_z[:, None]), log_z


@jit
def grid_step(
    model: ItemModel, rows: ResponseRows, item_weights: Float[Array, " items"], grid: GridQuadrature
) -> EStep:
    """Posterior moments and expected counts on one grid for all subjects.

    Args:
        model: stacked items on the z scale.
        rows: the responses.
        item_weights: 1 for items that inform on ability, 0 for those that are only counted.
        grid: the nodes.

    Returns:
        The moments in the order of the rows, and the counts.
    """
    n, n_items = rows.x.shape
    dtype, (n_nodes, dims) = rows.weights.dtype, grid.nodes.shape
    curves = _weighted_curves(model, grid.nodes, item_weights)
    n_contrasts = curves.contrast.shape[0]
    products = grid.nodes[:, :, None] * grid.nodes[:, None, :]
    table = jnp.concatenate([grid.nodes, products.reshape(n_nodes, -1)], axis=1)

    def body(carry: tuple[Array, ...], numbers: Array) -> tuple[tuple[Array, ...], None]:
        _, statistics, mask, weight = rows.answers(model, numbers)
        post, normaliser = grid_posterior(statistics, mask, curves, grid.log_prior)
        tables = all_placed(carry[:2], numbers, (post @ table, normaliser))
        counts, totals, mass = carry[2:]
        post = post * weight[:, None]
        counts = counts + jnp.stack([post.T @ h for h in statistics])
        totals = totals if mask is None else totals + post.T @ mask
        return (*tables, counts, totals, mass + post.sum(0)), None

    empty = (
        jnp.zeros((n, dims + dims**2), dtype),
        jnp.zeros(n, dtype),
        jnp.zeros((n_contrasts, n_nodes, n_items), dtype),
        jnp.zeros((n_nodes, n_items) if rows.has_missing else (0,), dtype),
        jnp.zeros(n_nodes, dtype),
    )
    moments, log_z, counts, totals, mass = jax.lax.scan(body, empty, rows.layout)[0]  # type: ignore[arg-type]
    mean = moments[:, :dims]
    square = moments[:, dims:].reshape(n, dims, dims)
    return EStep(
        mean=mean,
        covariance=square - mean[:, :, None] * mean[:, None, :],
        log_z=log_z,
        counts=counts,
        totals=totals if rows.has_missing else mass,
        mass=mass,
    )


def group_items(pattern: np.ndarray, n_general: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Specific factor of each item (the last group: none), padded members, and their mask."""
    marks = np.asarray(pattern)[:, n_general:] != 0
    n_specific = marks.shape[1]
    group = np.where(marks.any(1), marks.argmax(1), n_specific)
    n_groups = n_specific + int((group == n_specific).any())
    most = int(np.bincount(group, minlength=n_groups).max())
    members = np.zeros((n_groups, most), np.int32)
    valid = np.zeros((n_groups, most))
    for k in range(n_groups):
        items = np.flatnonzero(group == k)
        members[k, : len(items)], valid[k, : len(items)] = items, 1.0
    return group, members, valid


def count_general(pattern: np.ndarray, correlations: np.ndarray | None) -> int:
    """The smallest number of first abilities, at least 1, that leaves the others specific.

    Specific abilities are uncorrelated with all others, and no item measures two of them.
    """
    marks = np.asarray(pattern) != 0
    dims = marks.shape[1]
    free = np.eye(dims, dtype=bool) if correlations is None else np.asarray(correlations) != 0
    for n_general in range(1, dims):
        off = free[:, n_general:] & ~np.eye(dims, dtype=bool)[:, n_general:]
        if not off.any() and (marks[:, n_general:].sum(1) <= 1).all():
            return n_general
    return dims


@jit
def two_tier_step(
    model: ItemModel,
    rows: ResponseRows,
    item_weights: Float[Array, " items"],
    rule: TwoTierQuadrature,
) -> EStep:
    """The E-step of a two-tier model by dimension reduction.

    Args:
        model: stacked items, each with the general abilities and its specific one.
        rows: the responses.
        item_weights: see `grid_step`.
        rule: the items of each specific factor, and the nodes.

    Returns:
        Moments (general abilities first, then one a group) and counts of pairs of nodes (general
        outer, specific inner).

    References:
        Gibbons & Hedeker (1992), Psychometrika 57, 423-436. Cai (2010), Psychometrika 75, 581-612.
    """
    n, n_items = rows.x.shape
    dtype = rows.weights.dtype
    general, specific = rule.general.nodes, rule.specific.nodes[:, 0]
    n_g, n_s, n_groups = len(general), len(specific), len(rule.members)
    dims = general.shape[1] + n_groups
    curves = _weighted_curves(model, rule.pairs, item_weights)
    n_contrasts = curves.contrast.shape[0]
    all_groups = (rule.members, rule.valid)

    def body(carry: tuple[Array, ...], numbers: Array) -> tuple[tuple[Array, ...], None]:
        _, statistics, mask, weight = rows.answers(model, numbers)

        def conditional_of(_: None, group: tuple[Array, Array]) -> tuple[None, tuple[Array, ...]]:
            """Posterior of a group's ability given the general ones, and its normaliser."""
            members, valid = group
            group_mask = jnp.broadcast_to(valid, (len(numbers), len(valid)))
            group_mask = group_mask if mask is None else mask[:, members] * valid
            group_curves = Curves(curves.base[:, members], curves.contrast[:, :, members])
            log_lik = log_likelihood(statistics[:, :, members] * valid, group_mask, group_curves)
            log_post = log_lik.reshape(-1, n_g, n_s) + rule.specific.log_prior
            top = log_post.max(2, keepdims=True)
            post = jnp.exp(log_post - top)
            total = post.sum(2, keepdims=True)
            return None, (post / total, (top + jnp.log(total))[:, :, 0])

        _, (conditionals, by_group) = jax.lax.scan(conditional_of, None, all_groups)
        joint = by_group.sum(0) + rule.general.log_prior
        log_z = logsumexp(joint, axis=1)
        post = jnp.exp(joint - log_z[:, None])
        weighted = (post * weight[:, None])[:, :, None]

        def outer(carry: tuple[Array, Array], group: tuple[Any, ...]) -> tuple[Any, Any]:
            counts, totals = carry
            members, valid, conditional = group
            pair_post = (conditional * weighted).reshape(-1, n_g * n_s)
            mass = pair_post.sum(0)
            counts = counts.at[:, :, members].add(
                jnp.stack([pair_post.T @ (h[:, members] * valid) for h in statistics])
            )
            here = (
                mass[:, None] * valid if mask is None else pair_post.T @ (mask[:, members] * valid)
            )
            totals = totals.at[:, members].add(here)
            return (counts, totals), (conditional @ specific, conditional @ specific**2, mass)

        counts, totals = carry[3:5]
        (counts, totals), (first, second, mass) = jax.lax.scan(
            outer, (counts, totals), (*all_groups, conditionals)
        )
        mean, covariance = two_tier_moments(post, general, first, second)
        tables = all_placed(carry[:3], numbers, (mean, covariance, log_z))
        return (*tables, counts, totals, carry[5] + mass), None

    empty = (
        jnp.zeros((n, dims), dtype),
        jnp.zeros((n, dims, dims), dtype),
        jnp.zeros(n, dtype),
        jnp.zeros((n_contrasts, n_g * n_s, n_items), dtype),
        jnp.zeros((n_g * n_s, n_items), dtype),
        jnp.zeros((n_groups, n_g * n_s), dtype),
    )
    return EStep(*jax.lax.scan(body, empty, rows.layout)[0])  # type: ignore[arg-type]


def two_tier_moments(
    post: Float[Array, "rows nodes"],
    general: Float[Array, "nodes general"],
    first: Float[Array, "groups rows nodes"],
    second: Float[Array, "groups rows nodes"],
) -> tuple[Float[Array, "rows dims"], Float[Array, "rows dims dims"]]:
    """Mean and covariance of the general and the specific abilities of each row.

    Given the general ones the specific abilities are independent: their covariance is that of
    their conditional means (``first``).
    """
    shape = (general.shape[1], *post.shape)
    means = jnp.concatenate([jnp.broadcast_to(general.T[:, None], shape), first])
    mean = jnp.einsum("rg,krg->rk", post, means)
    centred = means - mean.T[:, :, None]
    covariance = jnp.einsum("rg,krg,lrg->rkl", post, centred, centred)
    within = jnp.einsum("rg,krg->rk", post, second - first**2)
    general_part = jnp.zeros((len(post), general.shape[1]), within.dtype)
    diagonal = jnp.concatenate([general_part, within], axis=1)
    return mean, covariance + diagonal[:, :, None] * jnp.eye(mean.shape[1], dtype=mean.dtype)
