"""Integration on nodes of each subject's own, where one grid for all would be too large.

The nodes are ``mean + root x``, with the mean and a root of the covariance of the subject's
posterior as last known, and x from a rule for the standard Normal: a product of Gauss-Hermite
rules, or quasi-random points (Sobol) in many dimensions. The weights correct for what the posterior
differs from that Normal (importance sampling), so that where the nodes lie changes the accuracy
and not the answer.
"""

import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import logsumexp
from jaxtyping import Array, Float, Int
from scipy.special import ndtri

from irtcat._compile import jit
from irtcat.models import ItemModel
from irtcat.scoring._kernel import item_curves

__all__ = ["Modes", "Own", "own_block", "own_posterior", "own_rule", "posterior_modes", "root_of"]

MOST_POINTS = 1100
"""Points of a product rule at most; past that, or below 3 a dimension, quasi-random ones."""

SOBOL_POINTS = 1024
FEWEST, MOST = 3, 15
STEPS = 40
LOG_2PI = float(np.log(2 * np.pi))


class Own(NamedTuple):
    """A rule for the standard Normal.

    Attributes:
        points: the points x.
        log_weight: log of (probability of the point / standard Normal density there).
    """

    points: Float[Any, "points dims"]
    log_weight: Float[Any, " points"]


def own_rule(dims: int, n: int | None = None, seed: int = 0) -> Own:
    """Choose the points.

    Args:
        dims: number of abilities.
        n: points a dimension of the product rule (past six dimensions: quasi-random points in
            all); as many as is affordable by default.
        seed: of the scrambling.

    Returns:
        The rule.
    """
    product = dims <= 6
    if product:
        each = n or int(np.clip(MOST_POINTS ** (1 / dims) + 1e-9, FEWEST, MOST))
        x, w = np.polynomial.hermite_e.hermegauss(each)
        points = np.stack(np.meshgrid(*[x] * dims, indexing="ij"), -1).reshape(-1, dims)
        logs = np.log(w / w.sum())
        log_p = np.stack(np.meshgrid(*[logs] * dims, indexing="ij")).sum(0).ravel()
        keep = log_p > log_p.max() - 30
        points, log_p = points[keep], log_p[keep]
    else:
        half = 2 ** max(4, int(np.ceil(np.log2((n or SOBOL_POINTS) / 2))))
        from scipy.stats import qmc  # slow to import

        draw = ndtri(qmc.Sobol(dims, seed=seed).random(half) * (1 - 2e-9) + 1e-9)
        points = np.concatenate([draw, -draw])  # odd moments vanish as they should
        log_p = np.full(len(points), -np.log(len(points)))
    density = -0.5 * ((points**2).sum(1) + dims * LOG_2PI)
    return Own(points, log_p - density)


def root_of(covariance: Float[Array, "*rows dims dims"]) -> Float[Array, "*rows dims dims"]:
    """Lower root of posterior covariances, kept away from singular ones."""
    dims = covariance.shape[-1]
    return jnp.linalg.cholesky(covariance + 1e-6 * jnp.eye(dims, dtype=covariance.dtype))


def own_block(
    model: ItemModel,
    hot: Float[Array, "contrasts rows items"],
    mask: Float[Array, "rows items"] | None,
    mean: Float[Array, "rows dims"],
    root: Float[Array, "rows dims dims"],
    rule: Own,
    item_weights: Float[Array, " items"],
) -> tuple[Float[Array, "rows points dims"], Float[Array, "rows points"], Float[Array, " rows"]]:
    """Points (z scale), posterior weights and the log of the normaliser of each row."""
    n_rows, dims = mean.shape
    z = mean[:, None] + jnp.einsum("rde,qe->rqd", root, rule.points)
    curves = item_curves(model, z.reshape(-1, dims))
    shape = (n_rows, -1, curves.base.shape[1])
    base = (curves.base * item_weights).reshape(shape)
    log_lik = base.sum(2) if mask is None else jnp.einsum("rqj,rj->rq", base, mask)
    for part, h in zip(curves.contrast, hot, strict=True):
        log_lik = log_lik + jnp.einsum("rqj,rj->rq", part.reshape(shape), h * item_weights)
    log_det = jnp.log(jnp.diagonal(root, axis1=1, axis2=2)).sum(1)
    log_density = -0.5 * ((z**2).sum(2) + dims * LOG_2PI)
    log_post = log_lik + log_density + rule.log_weight + log_det[:, None]
    log_z = logsumexp(log_post, axis=1)
    return z, jnp.exp(log_post - log_z[:, None]), log_z


@functools.partial(jit, static_argnames=("gaps",))
def own_posterior(
    model: ItemModel,
    x: Array,
    mean: Float[Array, "subjects dims"],
    covariance: Float[Array, "subjects dims dims"],
    rule: Own,
    chunks: Int[Array, "blocks rows"],
    *,
    gaps: bool,
) -> tuple[
    Float[Array, "subjects dims"], Float[Array, "subjects dims dims"], Float[Array, " subjects"]
]:
    """Posterior mean and covariance and marginal log-likelihood of each subject (z scale)."""
    n, n_items = x.shape
    ones = jnp.ones(n_items, mean.dtype)
    n_contrasts = model.n_categories - 1

    def body(carry: None, rows: Array) -> tuple[None, tuple[Array, ...]]:
        safe = jnp.minimum(rows, n - 1)
        hot, mask = model.channels(x[safe], n_contrasts, gaps, mean.dtype)
        root = root_of(covariance[safe])
        z, weight, log_z = own_block(model, hot, mask, mean[safe], root, rule, ones)
        new = jnp.einsum("rq,rqd->rd", weight, z)
        centred = z - new[:, None]
        return None, (new, jnp.einsum("rq,rqd,rqe->rde", weight, centred, centred), log_z)

    new, spread, log_z = jax.lax.scan(body, None, chunks)[1]
    dims = mean.shape[1]
    return (
        new.reshape(-1, dims)[:n],
        spread.reshape(-1, dims, dims)[:n],
        log_z.reshape(-1)[:n],
    )


class Modes(NamedTuple):
    """Posterior modes on the z scale, and the inverse curvature there.

    Attributes:
        mode: where the posterior is highest.
        covariance: inverse of the expected information there, the prior's included.
        gradient: largest slope of the log-posterior left.
    """

    mode: Float[Array, "subjects dims"]
    covariance: Float[Array, "subjects dims dims"]
    gradient: Float[Array, " subjects"]


@functools.partial(jit, static_argnames=("gaps",))
def posterior_modes(
    model: ItemModel, x: Array, chunks: Int[Array, "blocks rows"], unit: Array, *, gaps: bool
) -> Modes:
    """Posterior modes under a standard Normal prior, by damped Fisher scoring.

    Args:
        model: stacked items on the z scale.
        x: responses.
        chunks: row numbers in blocks.
        unit: an array of the working precision (says which it is).
        gaps: whether any response is missing.

    Returns:
        The modes.
    """
    n = x.shape[0]
    dtype, dims = unit.dtype, model.dims
    eye = jnp.eye(dims, dtype=dtype)

    def natural(item: ItemModel, z: Array) -> Array:
        return item.natural(z)

    over_items = functools.partial(jax.vmap, in_axes=(0, None))

    def terms(z: Array, hot: Array, seen: Array) -> tuple[Array, Array, Array]:
        curve = over_items(natural)(model, z)
        slope = over_items(jax.jacfwd(natural, 1))(model, z)
        table = jnp.concatenate([seen[:, None], hot], axis=1)
        variance = over_items(lambda item, at: item.variance(at))(model, z)
        information = jnp.einsum("jcd,jce,jef,j->df", slope[:, 1:], variance, slope[:, 1:], seen)
        value = (table * curve).sum() - 0.5 * z @ z
        return value, jnp.einsum("jc,jcd->d", table, slope) - z, information + eye

    def one(hot: Array, seen: Array) -> tuple[Array, Array, Array]:
        def body(_: Array, state: tuple[Array, ...]) -> tuple[Array, ...]:
            z, value, gradient, information, damping = state
            lifted = information + damping * jnp.diag(jnp.diagonal(information))
            new = z + jnp.linalg.solve(lifted, gradient)
            there = terms(new, hot, seen)
            up = there[0] >= value - 1e-12
            keep = [jnp.where(up, a, b) for a, b in zip((new, *there), state[:4], strict=True)]
            return (*keep, jnp.where(up, 0.2 * damping, 5 * damping + 0.5))

        zero = jnp.zeros(dims, dtype)
        start = (zero, *terms(zero, hot, seen), jnp.zeros((), dtype))
        z, _, gradient, information, _ = jax.lax.fori_loop(0, STEPS, body, start)
        return z, jnp.linalg.inv(information), jnp.abs(gradient).max()

    def block(_: None, rows: Array) -> tuple[None, tuple[Array, ...]]:
        safe = jnp.minimum(rows, n - 1)
        hot, mask = model.channels(x[safe], model.n_categories - 1, gaps, dtype)
        seen = jnp.ones_like(hot[0]) if mask is None else mask
        return None, jax.vmap(one)(jnp.moveaxis(hot, 0, 2), seen)

    mode, covariance, gradient = jax.lax.scan(block, None, chunks)[1]
    return Modes(
        mode.reshape(-1, dims)[:n],
        covariance.reshape(-1, dims, dims)[:n],
        gradient.reshape(-1)[:n],
    )
