"""The E-step: what the responses say of every subject's ability, as matrix products.

The log-likelihood of a response row at the nodes of one common grid is a product of the
one-hot responses with the items' log-probabilities. For short tests the grid itself is the
quadrature. For long tests the posterior is narrower than the grid is fine; but the
log-likelihood is still as smooth as the items' curves, so it is *interpolated* (Lagrange,
degree 7) from the few grid nodes around the subject to nodes of its own, placed by its own
posterior mode and width. The transpose of the same interpolation spreads the posterior back on
the grid as expected counts. Subjects sorted by ability share a window of the grid, so the
products keep their form: (rows x items) @ (items x window).

All of it happens on the standardised scale, where the population is N(0, 1).
"""

import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import logsumexp
from jaxtyping import Array, Float, Int

from irtcat.models import ItemModel, log_probabilities

__all__ = [
    "LIMIT",
    "N_NODES",
    "SPACING",
    "Blocks",
    "Curves",
    "EStep",
    "e_step",
    "grid_nodes",
    "item_curves",
    "local_quadrature",
    "log_likelihood",
    "place_nodes",
    "posterior_on_grid",
    "response_channels",
]

SPACING = 0.1
LIMIT = 6.4
N_NODES = 129
STENCIL = 8
Z_NODES = np.linspace(-6.0, 6.0, 25)
LOG_2PI = float(np.log(2 * np.pi))


class Blocks(NamedTuple):
    """Rows of the response matrix that are worked on together.

    Attributes:
        rows: row numbers; the number of subjects stands for "no row".
        first: the first grid node of each block's window.
    """

    rows: Int[Array, "blocks rows"]
    first: Int[Array, " blocks"]


class Curves(NamedTuple):
    """The items' log-probabilities on the grid, category 0 apart from the contrasts to it."""

    base: Float[Array, "nodes items"]
    contrast: Float[Array, "contrasts nodes items"]


class EStep(NamedTuple):
    """Posterior moments of each subject and the expected counts on the grid.

    Attributes:
        mean: posterior mean.
        sd: posterior SD.
        square_variance: posterior variance of theta squared (for the latent-scale check).
        log_z: marginal log-likelihood of the subject's responses.
        counts: expected number of subjects at each node who gave category 1, 2, ...
        totals: the same over all categories; per item when there are gaps.
    """

    mean: Float[Array, " subjects"]
    sd: Float[Array, " subjects"]
    square_variance: Float[Array, " subjects"]
    log_z: Float[Array, " subjects"]
    counts: Float[Array, "contrasts nodes items"]
    totals: Float[Array, " nodes"] | Float[Array, "nodes items"]


def grid_nodes(dtype: np.dtype) -> Float[Array, " nodes"]:
    """The common grid on the standardised scale."""
    return jnp.linspace(-LIMIT, LIMIT, N_NODES, dtype=dtype)


def item_curves(model: ItemModel, nodes: Float[Array, " nodes"]) -> Curves:
    """Evaluate the items on the grid, nodes first."""
    log_p = log_probabilities(model, nodes)
    base = log_p[..., 0]
    contrast = jnp.moveaxis(log_p[..., 1:] - base[..., None], (0, 1, 2), (2, 1, 0))
    return Curves(base.T, contrast)


def response_channels(
    x: Array, n_contrasts: int, gaps: bool, dtype: np.dtype
) -> tuple[Float[Array, "contrasts rows items"], Float[Array, "rows items"] | None]:
    """One-hot responses of a block (category 0 left out), and the mask where there are gaps."""
    if jnp.issubdtype(x.dtype, jnp.floating):
        mask = ~jnp.isnan(x)
        return jnp.where(mask, x, 0).astype(dtype)[None], mask.astype(dtype) if gaps else None
    if n_contrasts == 1 and not gaps:
        return x.astype(dtype)[None], None
    hot = jnp.stack([(x == k).astype(dtype) for k in range(1, n_contrasts + 1)])
    return hot, (x >= 0).astype(dtype) if gaps else None


def log_likelihood(
    hot: Float[Array, "contrasts rows items"],
    mask: Float[Array, "rows items"] | None,
    curves: Curves,
) -> Float[Array, "rows nodes"]:
    """Log-likelihood of each row at each node of the curves."""
    out = sum(h @ c.T for h, c in zip(hot, curves.contrast, strict=True))
    if mask is None:
        return out + _careful_sum(curves.base)
    return out + mask @ curves.base.T


def _careful_sum(array: Float[Array, "nodes items"]) -> Float[Array, " nodes"]:
    """Sum over the items in two levels.

    One long float32 sum is off by the same amount for all subjects, which adds up in the
    log-likelihood.
    """
    n_nodes, n_items = array.shape
    part = max(1, int(n_items**0.5))
    padded = jnp.pad(array, ((0, 0), (0, -n_items % part)))
    return padded.reshape(n_nodes, -1, part).sum(2).sum(1)


def _careful_log_likelihood(
    hot: Float[Array, "contrasts rows items"], mask: Float[Array, "rows items"] | None, at: Curves
) -> Float[Array, " rows"]:
    """Log-likelihood of each row at one node, each sum over the items in two levels."""
    n_items = hot.shape[-1]
    part = max(1, int(n_items**0.5))
    whole = n_items - n_items % part

    def two_level(x: Array, f: Array) -> Array:
        inner = jnp.einsum(
            "rcj,cj->rc", x[:, :whole].reshape(len(x), -1, part), f[:whole].reshape(-1, part)
        )
        return inner.sum(1) + x[:, whole:] @ f[whole:]

    out = sum(two_level(h, c[0]) for h, c in zip(hot, at.contrast, strict=True))
    return out + (_careful_sum(at.base)[0] if mask is None else two_level(mask, at.base[0]))


def _lagrange(v: Float[Array, "*points"]) -> Float[Array, "*points stencil"]:
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
    log_lik: Float[Array, "rows window"], left: Float[Array, ""]
) -> tuple[Float[Array, " rows"], Float[Array, " rows"]]:
    """Mode and width of each row's posterior, by the parabola through its best three nodes."""
    window = log_lik.shape[1]
    nodes = left + SPACING * jnp.arange(window, dtype=log_lik.dtype)
    log_post = log_lik - 0.5 * nodes**2
    best = jnp.clip(jnp.argmax(log_post, axis=1), 1, window - 2)
    row = jnp.arange(len(best))
    below, top, above = (log_post[row, best + d] for d in (-1, 0, 1))
    curvature = jnp.maximum((2 * top - below - above) / SPACING**2, 0.25)
    shift = jnp.clip((above - below) / (2 * SPACING * curvature), -SPACING, SPACING)
    return nodes[best] + shift, 1 / jnp.sqrt(curvature)


def local_quadrature(
    log_lik: Float[Array, "rows window"],
    left: Float[Array, ""],
    rounds: int,
    points: np.ndarray = Z_NODES,
) -> tuple[Float[Array, "rows points"], Float[Array, "rows points"], Array, Array, Array]:
    """Integrate each row's posterior on nodes of its own.

    Args:
        log_lik: log-likelihood on the window's grid nodes.
        left: ability at the first of them.
        rounds: how often the nodes are placed: first by the curvature at the mode, then by the
            moments found.
        points: nodes in SDs around the mean, equally spaced.

    Returns:
        Nodes, posterior weights, the log of the normaliser, and for the transpose of the
        interpolation the first stencil node and the stencil's weights.
    """
    z = jnp.asarray(points, log_lik.dtype)
    mean, sd = _mode(log_lik, left)
    for turn in range(rounds):
        out = place_nodes(log_lik, left, mean, sd, z)
        if turn + 1 < rounds:
            theta, weight = out[:2]
            mean = (weight * theta).sum(1)
            spread = jnp.sqrt((weight * (theta - mean[:, None]) ** 2).sum(1))
            sd = jnp.maximum(spread, 0.3 * sd)
    return out


def place_nodes(
    log_lik: Float[Array, "rows window"],
    left: Float[Array, ""],
    mean: Float[Array, " rows"],
    sd: Float[Array, " rows"],
    z: Float[Array, " points"],
) -> tuple[Float[Array, "rows points"], Float[Array, "rows points"], Array, Array, Array]:
    """Integrate each row's posterior on the nodes ``mean + sd * z`` (see `local_quadrature`)."""
    window = log_lik.shape[1]
    theta = mean[:, None] + sd[:, None] * z
    theta = jnp.clip(theta, left, left + (window - 1) * SPACING)
    u = (theta - left) / SPACING
    # The compiler may evaluate `first` twice, rounding u differently: the shift keeps the step of
    # the floor away from nodes that fall on the grid, where the two would not agree.
    first = jnp.clip(jnp.floor(u + 0.2929).astype(jnp.int32) - 3, 0, window - STENCIL)
    stencil = _lagrange(u - first)
    index = first[..., None] + jnp.arange(STENCIL, dtype=jnp.int32)
    rows = jnp.arange(log_lik.shape[0], dtype=jnp.int32)[:, None, None]
    value = (log_lik[rows, index] * stencil).sum(-1)
    log_post = value - 0.5 * (theta**2 + LOG_2PI) + jnp.log((z[1] - z[0]) * sd)[:, None]
    log_z = logsumexp(log_post, axis=1)
    weight = jnp.exp(log_post - log_z[:, None])
    return theta, weight, log_z, index, stencil


def _moments(theta: Array, weight: Array) -> tuple[Array, Array, Array]:
    """Mean, SD and the variance of the square under normalised weights."""
    mean = (weight * theta).sum(-1)
    centred = theta - mean[..., None]
    variance = (weight * centred**2).sum(-1)
    square = (weight * theta**2).sum(-1)
    square_variance = (weight * (theta**2 - square[..., None]) ** 2).sum(-1)
    return mean, jnp.sqrt(variance), square_variance


class _Totals(NamedTuple):
    """What the scan over blocks carries along."""

    stats: Float[Array, "four subjects"]
    counts: Float[Array, "contrasts nodes items"]
    totals: Float[Array, " nodes"] | Float[Array, "nodes items"]


def _add_counts(
    carry: _Totals, post: Array, hot: Array, mask: Array | None, first: Array
) -> _Totals:
    """Add a block's expected counts to the nodes from ``first`` on."""

    def add(array: Array, part: Array) -> Array:
        zero = jnp.int32(0)
        at = (first,) if array.ndim == 1 else (zero,) * (array.ndim - 2) + (first, zero)
        old = jax.lax.dynamic_slice(array, at, part.shape)
        return jax.lax.dynamic_update_slice(array, old + part, at)

    counts = add(carry.counts, jnp.stack([post.T @ h for h in hot]))
    part = post.sum(0) if mask is None else post.T @ mask
    return carry._replace(counts=counts, totals=add(carry.totals, part))


def _grid_block(hot, mask, curves, log_prior, nodes):
    """Posterior of a block on the grid itself."""
    log_post = log_likelihood(hot, mask, curves) + log_prior
    log_z = logsumexp(log_post, axis=1)
    post = jnp.exp(log_post - log_z[:, None])
    return post, jnp.stack([*_moments(nodes, post), log_z])


def _window_block(hot, mask, curves, first, window):
    """Posterior of a block on its subjects' own nodes, spread back on the window."""
    n_items = curves.base.shape[1]
    zero = jnp.int32(0)
    base = jax.lax.dynamic_slice(curves.base, (first, zero), (window, n_items))
    shape = (curves.contrast.shape[0], window, n_items)
    contrast = jax.lax.dynamic_slice(curves.contrast, (zero, first, zero), shape)
    # Differences to the window's middle are small numbers: what is lost in float32 is then
    # only a constant of each row, which the posterior does not see.
    centre = window // 2
    middle = Curves(base[centre : centre + 1], contrast[:, centre : centre + 1])
    relative = Curves(base - middle.base, contrast - middle.contrast)
    log_lik = log_likelihood(hot, mask, relative)
    left = first * SPACING - LIMIT
    theta, weight, log_z, index, stencil = local_quadrature(
        log_lik, left.astype(log_lik.dtype), rounds=2
    )
    rows = jnp.arange(log_lik.shape[0], dtype=jnp.int32)[:, None, None]
    post = jnp.zeros_like(log_lik).at[rows, index].add(weight[..., None] * stencil)
    log_z = log_z + _careful_log_likelihood(hot, mask, middle)
    return post, jnp.stack([*_moments(theta, weight), log_z])


def posterior_on_grid(
    model: ItemModel,
    hot: Float[Array, "contrasts rows items"],
    mask: Float[Array, "rows items"] | None,
    first: Int[Array, ""],
    window: int,
    local: bool,
) -> Float[Array, "rows nodes"]:
    """Weights on the grid that integrate any smooth function under each row's posterior.

    With ``local`` on the window of the grid that begins at node ``first``.
    """
    nodes = grid_nodes(hot.dtype)
    curves = item_curves(model, nodes)
    if local:
        return _window_block(hot, mask, curves, first, window)[0]
    log_prior = -0.5 * (nodes**2 + LOG_2PI) + np.log(SPACING)
    return _grid_block(hot, mask, curves, log_prior, nodes)[0]


@functools.partial(jax.jit, static_argnames=("window", "gaps"))
def e_step(
    model: ItemModel,
    x: Array,
    subject_weights: Float[Array, " subjects"],
    item_weights: Float[Array, " items"],
    wide: Blocks | None,
    narrow: Blocks | None,
    window: int,
    gaps: bool,
) -> EStep:
    """Posterior moments and expected counts for all subjects.

    Args:
        model: stacked items on the standardised scale.
        x: responses, subjects x items: int8 codes (-1 missing) or floats (NaN missing).
        subject_weights: how many subjects each row stands for.
        item_weights: 1 for items that inform on ability, 0 for those that are only counted.
        wide: blocks integrated on the grid itself.
        narrow: blocks integrated on their subjects' own nodes.
        window: number of grid nodes in a narrow block's window.
        gaps: whether any response is missing.

    Returns:
        The moments in the order of the rows, and the counts.
    """
    dtype = subject_weights.dtype
    nodes = grid_nodes(dtype)
    curves = jax.tree.map(lambda leaf: leaf * item_weights, item_curves(model, nodes))
    n_subjects, n_items = x.shape
    n_contrasts = curves.contrast.shape[0]
    log_prior = -0.5 * (nodes**2 + LOG_2PI) + np.log(SPACING)

    def block(carry: _Totals, rows: Array, first: Array, local: bool) -> _Totals:
        safe = jnp.minimum(rows, n_subjects - 1)
        hot, mask = response_channels(x[safe], n_contrasts, gaps, dtype)
        if local:
            post, stats = _window_block(hot, mask, curves, first, window)
        else:
            post, stats = _grid_block(hot, mask, curves, log_prior, nodes)
        row_weight = jnp.where(rows < n_subjects, subject_weights[safe], 0)
        carry = _add_counts(carry, post * row_weight[:, None], hot, mask, first)
        return carry._replace(stats=carry.stats.at[:, rows].set(stats, mode="drop"))

    totals_shape = (N_NODES, n_items) if gaps else (N_NODES,)
    carry = _Totals(
        jnp.zeros((4, n_subjects), dtype),
        jnp.zeros((n_contrasts, N_NODES, n_items), dtype),
        jnp.zeros(totals_shape, dtype),
    )
    for blocks, local in ((wide, False), (narrow, True)):
        if blocks is not None:
            carry = _scan_blocks(carry, blocks, n_subjects, functools.partial(block, local=local))
    mean_, sd_, square, log_z = carry.stats
    return EStep(mean_, sd_, square, log_z, carry.counts, carry.totals)


def _scan_blocks(carry: _Totals, blocks: Blocks, n_subjects: int, work) -> _Totals:
    """Fold ``work`` over the blocks; those without a row are skipped."""

    def body(carry: _Totals, block: tuple[Array, Array]) -> tuple[_Totals, None]:
        rows, first = block
        used = rows[0] < n_subjects
        return jax.lax.cond(used, lambda c: work(c, rows, first), lambda c: c, carry), None

    return jax.lax.scan(body, carry, (blocks.rows, blocks.first))[0]
