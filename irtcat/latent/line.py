"""The E-step: every subject's posterior and the expected counts, as matrix products.

The log-likelihood of a response row at the nodes of one common grid is a product of the
one-hot responses with the items' log-probabilities. For short tests the grid itself is the
quadrature, with as few nodes as the posteriors and the items need (`LayoutPlan.resolve`). For long
tests the posterior is narrower than the spacing of the finest grid; but the log-likelihood is still
as smooth as the items' curves, so it is *interpolated* (Lagrange, degree 7) from the few grid nodes
around the subject to local nodes, placed by the mode and width of its posterior. The transpose of
the same interpolation spreads the posterior back on the grid as expected counts. Subjects sorted by
ability share a window of the grid, so the products keep their form: (rows x items) @ (items x
window).

The scale is standardised: the population (of all groups together) has mean 0 and SD 1.
"""

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import logsumexp
from jaxtyping import Float, Int

from irtcat._common.compilation import jit, namespace
from irtcat.latent.e_step import FEW_CELLS, FEW_RESPONSES, EStep, ResponseRows, fold_rows, placed
from irtcat.latent.likelihood import (
    LIMIT,
    N_NODES,
    SPACING,
    Lines,
    grid_likelihood,
    grid_points,
    weighted_curves,
    window_likelihood,
)
from irtcat.latent.linear_predictors import has_numpy_terms
from irtcat.latent.population import Populations
from irtcat.models import ItemModel
from irtcat.models.base import Mask, Statistics

STENCIL = 8
"""Nodes of an interpolation (Lagrange, degree 7)."""

Z_NODES = np.linspace(-6.0, 6.0, 25)
"""Local nodes, in posterior SDs around the mean."""

PAIR_DISTANCE = 0.15
"""Distance, as a share of the grid, of the two nodes that represent all where the M-step needs only
sums and first moments."""

LOG_2PI = float(np.log(2 * np.pi))


class Blocks(NamedTuple):
    """Rows of the response matrix that are processed together.

    Attributes:
        rows: row numbers; the number of subjects stands for "no row".
        first: the first grid node of each block's window.
    """

    rows: Int[Any, "blocks rows"]
    first: Int[Any, " blocks"]


@functools.partial(
    jax.tree_util.register_dataclass,
    data_fields=("wide", "narrow"),
    meta_fields=("window", "n_nodes"),
)
@dataclass(frozen=True)
class Layout:
    """The blocks of all rows.

    Attributes:
        wide: blocks integrated on the grid itself.
        narrow: blocks integrated on their subjects' local nodes; None unless the grid has all of
            its nodes.
        window: number of grid nodes in a narrow block's window (static).
        n_nodes: number of nodes of the grid (static).
    """

    wide: Blocks | None
    narrow: Blocks | None
    window: int
    n_nodes: int = N_NODES

    def fits_numpy(self, model: ItemModel, shape: tuple[int, int], dtype: np.dtype) -> bool:
        """Whether passes over these rows and items are computed in numpy."""
        (n_rows, n_items), is_wide = shape, self.narrow is None and dtype == np.float64
        is_small = n_rows * n_items <= FEW_RESPONSES
        is_small &= n_rows * self.n_nodes * model.n_categories <= FEW_CELLS
        return is_wide and is_small and has_numpy_terms(model)

    def scan(self, carry: Any, n_subjects: int, work: Callable[..., Any]) -> Any:
        """Fold ``work(carry, rows, first, local)`` over the blocks that have rows."""
        if self.wide is not None and namespace(self.wide.rows) is np:
            first = np.int32(0)
            return fold_rows(
                lambda carry, rows: (work(carry, rows, first, False), None),
                carry,
                self.wide.rows,
                n_subjects,
                self.n_nodes,
            )

        def body(local: bool, carry: Any, block: tuple[Any, Any]) -> tuple[Any, None]:
            rows, first = block
            used = rows[0] < n_subjects
            return jax.lax.cond(
                used, lambda c: work(c, rows, first, local), lambda c: c, carry
            ), None

        for blocks, local in ((self.wide, False), (self.narrow, True)):
            if blocks is not None:
                carry = jax.lax.scan(functools.partial(body, local), carry, tuple(blocks))[0]
        return carry


class Prior(NamedTuple):
    """Normal distribution of ability for each row of a block, one for all, or a mixture for all.

    Attributes:
        mean: means of the rows, or of the groups.
        log_sd: logarithms of their SDs.
        log_share: logarithms of the shares of a mixture's parts.
        group: group of each row, where the distributions are those of groups.
    """

    mean: Any = 0.0
    log_sd: Any = 0.0
    log_share: Any = None
    group: Any = None

    def log_density(self, theta: Float[Any, "*own nodes"]) -> Float[Any, "*rows nodes"]:
        """Log-density at the nodes, in each row's own population."""
        if isinstance(self.mean, float):
            return -0.5 * (theta**2 + LOG_2PI)
        if self.log_share is not None:
            return _mixture(theta, self.mean, self.log_sd, self.log_share)
        mean, log_sd = self.mean[:, None], self.log_sd[:, None]
        by_row = self.group is not None and theta.ndim > 1
        if by_row:
            mean, log_sd = mean[self.group], log_sd[self.group]
        z = (theta - mean) * namespace(log_sd).exp(-log_sd)
        out = -0.5 * (z**2 + LOG_2PI) - log_sd
        return out if by_row or self.group is None else out[self.group]


STANDARD = Prior()


def mixture_log_density(
    theta: Float[Any, "*points"], components: Float[Any, "3 parts"]
) -> Float[Any, "*points"]:
    """Log-density of a mixture, from the means, SDs and shares of its Normal distributions."""
    mean, sd, share = components
    return _mixture(theta, mean, jnp.log(sd), jnp.log(share))


def _mixture(theta: Any, mean: Any, log_sd: Any, log_share: Any) -> Any:
    z = (theta[..., None] - mean) * jnp.exp(-log_sd)
    return logsumexp(-0.5 * (z**2 + LOG_2PI) - log_sd + log_share, axis=-1)


class ScaleTransform(NamedTuple):
    """Transform from the standardised scale to another: theta = mean + sd * z."""

    mean: Float[Any, ""]
    sd: Float[Any, ""]


def row_priors(populations: Populations | None, group: Any, rows: Int[Any, " rows"]) -> Prior:
    """The priors of the subjects in ``rows``: of their groups' populations, or N(0, 1)."""
    if populations is None or group is None:
        return STANDARD
    root = populations.root[:, 0, 0]
    mean, log_sd = populations.mean[:, 0], namespace(root).log(root)
    return Prior(mean, log_sd, group=group[rows])


def transformed_nodes(
    transform: ScaleTransform | None, dtype: np.dtype, n_nodes: int
) -> Float[Any, " nodes"]:
    """The common grid on the scale of the parameters."""
    if transform is None:
        return grid_points(dtype, n_nodes)
    return transform.mean + transform.sd * grid_points(dtype, n_nodes)


def on_grid_scale(
    model: ItemModel, populations: Populations | None, transform: ScaleTransform | None
) -> tuple[ItemModel, Populations | None]:
    """Items and populations on the standardised scale of the grid."""
    if transform is None:
        return model, populations
    model = model.rescale(transform.mean, transform.sd)
    if populations is not None:
        mean = (populations.mean - transform.mean) / transform.sd
        populations = Populations(mean, populations.root / transform.sd)
    return model, populations


def _lagrange(v: Float[Any, "*points"]) -> Float[Any, "*points stencil"]:
    """Weights of the nodes 0..7 that interpolate at ``v``."""
    k = np.arange(STENCIL)
    scale = np.array([1 / np.prod([i - j for j in k if j != i]) for i in k])
    gap = v[..., None] - k.astype(v.dtype)
    columns = [
        functools.reduce(jnp.multiply, [gap[..., j] for j in k if j != i])
        * scale[i].astype(v.dtype)
        for i in k
    ]
    return jnp.stack(columns, axis=-1)


def _mode(
    log_lik: Float[Any, "rows window"], left: Float[Any, ""], prior: Prior
) -> tuple[Float[Any, " rows"], Float[Any, " rows"]]:
    """Mode and width of each row's posterior, by the parabola through its best three nodes."""
    window = log_lik.shape[1]
    nodes = left + SPACING * jnp.arange(window, dtype=log_lik.dtype)
    log_post = log_lik + prior.log_density(nodes)
    best = jnp.clip(jnp.argmax(log_post, axis=1), 1, window - 2)
    row = jnp.arange(len(best))
    below, top, above = (log_post[row, best + d] for d in (-1, 0, 1))
    curvature = jnp.maximum((2 * top - below - above) / SPACING**2, 0.25)
    shift = jnp.clip((above - below) / (2 * SPACING * curvature), -SPACING, SPACING)
    return nodes[best] + shift, 1 / jnp.sqrt(curvature)


def place_locally(
    log_lik: Float[Any, "rows window"], left: Float[Any, ""], rounds: int, prior: Prior
) -> tuple[Float[Any, " rows"], Float[Any, " rows"]]:
    """Middle and unit (an SD) of each row's nodes at the last of several placements.

    Args:
        log_lik: log-likelihood on the window's grid nodes.
        left: ability at the first of them.
        rounds: number of placements of the nodes: first by the curvature at the mode, then by the
            posterior moments.
        prior: each row's population.
    """
    z = jnp.asarray(Z_NODES, log_lik.dtype)
    mean, sd = _mode(log_lik, left, prior)
    for _ in range(rounds - 1):
        theta, weight, *_ = integrate_locally(log_lik, left, mean, sd, z, prior)
        mean = (weight * theta).sum(1)
        spread = jnp.sqrt((weight * (theta - mean[:, None]) ** 2).sum(1))
        sd = jnp.maximum(spread, 0.3 * sd)
    return mean, sd


def integrate_locally(
    log_lik: Float[Any, "rows window"],
    left: Float[Any, ""],
    mean: Float[Any, " rows"],
    sd: Float[Any, " rows"],
    z: Float[Any, " points"],
    prior: Prior = STANDARD,
) -> tuple[Float[Any, "rows points"], Float[Any, "rows points"], Any, Any, Any]:
    """Integrate each row's posterior on the nodes ``mean + sd * z`` (see `place_locally`).

    Returns:
        Nodes, posterior weights, the log of the normaliser, and for the transpose of the
        interpolation the stencils' nodes and weights.
    """
    window = log_lik.shape[1]
    theta = mean[:, None] + sd[:, None] * z
    theta = jnp.clip(theta, left, left + (window - 1) * SPACING)
    u = (theta - left) / SPACING
    # The compiler may evaluate `first` twice and round u differently: the shift keeps the jump of
    # the floor away from nodes on the grid, where the two values would differ.
    first = jnp.clip(jnp.floor(u + 0.2929).astype(jnp.int32) - 3, 0, window - STENCIL)
    stencil = _lagrange(u - first)
    index = first[..., None] + jnp.arange(STENCIL, dtype=jnp.int32)
    rows = jnp.arange(log_lik.shape[0], dtype=jnp.int32)[:, None, None]
    value = (log_lik[rows, index] * stencil).sum(-1)
    log_post = value + prior.log_density(theta) + jnp.log((z[1] - z[0]) * sd)[:, None]
    log_z = logsumexp(log_post, axis=1)
    weight = jnp.exp(log_post - log_z[:, None])
    return theta, weight, log_z, index, stencil


def _moments(theta: Any, weight: Any) -> tuple[Any, Any, Any]:
    """Mean, variance and the variance of the square under normalised weights."""
    mean = (weight * theta).sum(-1)
    centred = theta - mean[..., None]
    variance = (weight * centred**2).sum(-1)
    square = (weight * theta**2).sum(-1)
    square_variance = (weight * (theta**2 - square[..., None]) ** 2).sum(-1)
    return mean, variance, square_variance


class _Totals(NamedTuple):
    """The carry of the scan over blocks."""

    stats: Float[Any, "four subjects"]
    counts: Float[Any, "contrasts nodes items"]
    totals: Float[Any, " nodes"] | Float[Any, "nodes items"]


def _add_counts(
    carry: _Totals, post: Any, weight: Any, pair: Any, statistics: Any, mask: Any, first: Any
) -> _Totals:
    """Add the expected counts of rows with these weights, to a pair of nodes if there is one."""

    def add(array: Any, mass: Any, first: Any = first) -> Any:
        if array.shape == mass.shape:
            return array + mass
        zero = jnp.int32(0)
        at = (first,) if array.ndim == 1 else (zero,) * (array.ndim - 2) + (first, zero)
        old = jax.lax.dynamic_slice(array, at, mass.shape)
        return jax.lax.dynamic_update_slice(array, old + mass, at)

    at_nodes = post * weight[:, None] if pair is None else pair
    counts = add(carry.counts, namespace(post).stack([at_nodes.T @ h for h in statistics]))
    mass = weight @ post if mask is None else post.T @ (mask * weight[:, None])
    return carry._replace(counts=counts, totals=add(carry.totals, mass))


def _pair(n_nodes: int) -> tuple[int, int]:
    """Numbers of the two nodes that represent all (see `PAIR_DISTANCE`)."""
    low = round((0.5 - PAIR_DISTANCE / 2) * (n_nodes - 1))
    return low, n_nodes - 1 - low


def _on_pair(mean: Any, weight: Any, nodes: Any) -> Float[Any, "rows two"]:
    """Weights of the two nodes of `_pair` with each row's weight and posterior mean."""
    low, high = (nodes[i] for i in _pair(len(nodes)))
    upper = weight * ((mean - low) / (high - low))
    return namespace(upper).stack([weight - upper, upper], axis=1)


def _grid_block(statistics, mask, curves, nodes, prior):
    """Posterior of a block on the grid itself."""
    log_prior = prior.log_density(nodes) + np.log(2 * LIMIT / (len(nodes) - 1))
    log_lik = grid_likelihood(statistics, mask, curves, nodes)
    if namespace(log_lik) is np:
        return _numpy_posterior(log_lik, log_prior, nodes)
    log_post = log_lik + log_prior
    log_z = logsumexp(log_post, axis=1)
    post = jnp.exp(log_post - log_z[:, None])
    return post, jnp.stack([*_moments(nodes, post), log_z])


def _numpy_posterior(post, log_prior, nodes):
    """The posterior in the place of the log-likelihood: a new array takes as long as a product."""
    post += log_prior
    top = post.max(1, keepdims=True)
    post -= top
    np.exp(post, out=post)
    total, mean, square, fourth = (
        np.stack([np.ones_like(nodes), nodes, nodes**2, nodes**4]) @ post.T
    )
    scale = 1 / total
    post *= scale[:, None]  # quicker than a division of each number
    mean, square, fourth = mean * scale, square * scale, fourth * scale
    stats = [mean, square - mean**2, fourth - square**2, np.log(total) + top[:, 0]]
    return post, np.stack(stats)


def _window_block(statistics, mask, curves, first, window, prior):
    """Posterior of a block on its subjects' local nodes, spread back to the window."""
    log_lik, at_middle = window_likelihood(statistics, mask, curves, first, window)
    left = (first * SPACING - LIMIT).astype(log_lik.dtype)
    mean, sd = place_locally(log_lik, left, rounds=2, prior=prior)
    z = jnp.asarray(Z_NODES, log_lik.dtype)
    theta, weight, log_z, index, stencil = integrate_locally(log_lik, left, mean, sd, z, prior)
    rows = jnp.arange(log_lik.shape[0], dtype=jnp.int32)[:, None, None]
    post = jnp.zeros_like(log_lik).at[rows, index].add(weight[..., None] * stencil)
    return post, jnp.stack([*_moments(theta, weight), log_z + at_middle])


def posterior_on_grid(
    model: ItemModel,
    statistics: Statistics,
    mask: Mask,
    first: Int[Any, ""],
    layout: Layout,
    local: bool,
    item_weights: Float[Any, " items"],
    prior: Prior = STANDARD,
) -> Float[Any, "rows nodes"]:
    """Weights on the grid that integrate any smooth function under each row's posterior.

    With ``local`` on the window of the grid that begins at node ``first``.
    """
    nodes = namespace(statistics).asarray(grid_points(statistics.dtype, layout.n_nodes))
    curves = weighted_curves(model, nodes, item_weights)
    if local:
        return _window_block(statistics, mask, curves, first, layout.window, prior)[0]
    return _grid_block(statistics, mask, curves, nodes, prior)[0]


@functools.partial(
    jit,
    static_argnames=("condense",),
    numpy_where=lambda model, rows, *_, **__: rows.fits_numpy(model),
)
def e_step(
    model: ItemModel,
    rows: ResponseRows,
    item_weights: Float[Any, " items"],
    populations: Populations | None = None,
    condense: bool = False,
) -> EStep:
    """Posterior moments and expected counts for all subjects.

    Args:
        model: stacked items on the standardised scale.
        rows: the responses, with a `Layout`.
        item_weights: 1 for items that inform on ability, 0 for those that are only counted.
        populations: distribution of ability in the rows' groups; N(0, 1) if None.
        condense: give the counts of items with a canonical link by two nodes only, with the same
            sum and first moment: all that the M-step needs, at a fraction of the cost.

    Returns:
        The moments in the order of the rows, and the counts.
    """
    layout, dtype, xp = rows.layout, rows.weights.dtype, namespace(rows.weights)
    n_nodes = layout.n_nodes
    nodes = xp.asarray(grid_points(dtype, n_nodes))
    curves = weighted_curves(model, nodes, item_weights)
    n_subjects, n_items = rows.x.shape
    n_contrasts = len(curves.slope if isinstance(curves, Lines) else curves.contrast)
    condense = condense and isinstance(curves, Lines)

    def block(carry: _Totals, at: Any, first: Any, local: bool) -> _Totals:
        safe, statistics, mask, row_weight = rows.answers(model, at)
        prior = row_priors(populations, rows.group, safe)
        if local:
            post, stats = _window_block(statistics, mask, curves, first, layout.window, prior)
        else:
            post, stats = _grid_block(statistics, mask, curves, nodes, prior)
        pair = _on_pair(stats[0], row_weight, nodes) if condense else None
        carry = _add_counts(carry, post, row_weight, pair, statistics, mask, first)
        return carry._replace(stats=placed(carry.stats, at, stats, axis=1))

    totals_shape = (n_nodes, n_items) if rows.has_missing else (n_nodes,)
    carry = _Totals(
        xp.zeros((4, n_subjects), dtype),
        xp.zeros((n_contrasts, 2 if condense else n_nodes, n_items), dtype),
        xp.zeros(totals_shape, dtype),
    )
    carry = layout.scan(carry, n_subjects, block)
    counts = carry.counts
    if condense:
        at_all_nodes = xp.zeros((n_contrasts, n_nodes, n_items), dtype)
        counts = placed(at_all_nodes, np.array(_pair(n_nodes)), counts, axis=1)
    mean, variance, square_variance, log_z = carry.stats
    return EStep(
        mean=mean[:, None],
        covariance=variance[:, None, None],
        log_z=log_z,
        counts=counts,
        totals=carry.totals,
        square_variance=square_variance,
    )
