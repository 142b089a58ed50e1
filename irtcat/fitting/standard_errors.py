"""Standard errors from the observed information (Louis 1982).

The information in the observed responses is what complete data would hold less what is lost
because abilities are not observed:

    I = E[-d2 l / d phi2] - sum_i Var_i(score_i),

expectations under each subject's posterior. Where all parameters together make a matrix of
moderate size it is formed whole and inverted ("full"). On longer tests the loss is small and of
known form, and each item's block is inverted on its own ("block"): the item's own loss by a
first-order expansion around the posterior mean, plus the uncertainty of the latent mean and SD
(variances 1/n and 1/(2n)), which all items share.
"""

import functools

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from irtcat._types import FloatArray
from irtcat.fitting._mstep import LINEAR, Constraints, penalised_terms
from irtcat.fitting.em import EMProblem
from irtcat.models import ItemModel, pack, unpack
from irtcat.scoring import (
    Blocks,
    EStep,
    grid_nodes,
    posterior_on_grid,
    response_channels,
)

__all__ = ["FULL_WORK", "block_covariance", "full_covariance", "is_affordable"]

FULL_WORK = 3e10
"""The full matrix is formed when rows x nodes x params^2 is at most this (about a second)."""


def is_affordable(n_rows: int, n_params: int) -> bool:
    """Whether the full information matrix takes about a second at most."""
    return n_rows * grid_nodes(np.dtype("float32")).shape[0] * float(n_params) ** 2 <= FULL_WORK


@functools.partial(jax.jit, static_argnames=("cls",))
def _complete_information(
    cls: type[ItemModel], params: Array, counts: Array, totals: Array, constraints: Constraints
) -> Float[Array, "items params params"]:
    """-E[second derivative] of each item's complete-data log-posterior."""
    if cls in LINEAR:
        return penalised_terms(cls, params, counts, totals, constraints)[2]
    nodes = grid_nodes(params.dtype)

    def objective(phi: Array, counts: Array, totals: Array) -> Array:
        item = unpack(cls, phi)
        log_p = jax.vmap(lambda theta: item.log_probs(theta[None]))(nodes)
        table = jnp.concatenate([(totals - counts.sum(0))[None], counts])
        return (table.T * log_p).sum()

    in_axes = (0, -1, None if totals.ndim == 1 else -1)
    hessian = jax.vmap(jax.hessian(objective), in_axes)(params, counts, totals)
    eye = jnp.eye(params.shape[1], dtype=params.dtype)
    return -hessian + constraints.prior_precision[..., None] * eye


def _score_curves(
    cls: type[ItemModel], params: Array
) -> Float[Array, "nodes items categories params"]:
    """D log P / d phi of all items at the grid's nodes."""
    nodes = grid_nodes(params.dtype)

    def curve(phi: Array) -> Array:
        item = unpack(cls, phi)
        return jax.vmap(lambda theta: item.log_probs(theta[None]))(nodes)

    return jnp.moveaxis(jax.vmap(jax.jacfwd(curve))(params), 0, 1)


@functools.partial(jax.jit, static_argnames=("cls", "window", "gaps"))
def _lost_information(
    params: Array,
    x: Array,
    weights: Array,
    wide: Blocks | None,
    narrow: Blocks | None,
    *,
    cls: type[ItemModel],
    window: int,
    gaps: bool,
) -> Float[Array, "all all"]:
    """Sum over subjects of the posterior covariance of the score, all parameters together."""
    n_subjects, n_items = x.shape
    n_params = params.shape[1]
    total = n_items * n_params
    model = unpack(cls, params)
    curves = _score_curves(cls, params)
    n_nodes = curves.shape[0]

    def rows_scores(hot: Array, mask: Array | None, at: Array) -> Array:
        first = at[:, 0] if mask is None else mask[..., None] * at[:, 0]
        score = first + sum(h[..., None] * (at[:, k + 1] - at[:, 0]) for k, h in enumerate(hot))
        return jnp.broadcast_to(score, (*hot[0].shape, n_params)).reshape(-1, total)

    def block(carry: Array, rows: Array, first: Array, local: bool) -> Array:
        safe = jnp.minimum(rows, n_subjects - 1)
        hot, mask = response_channels(x[safe], curves.shape[2] - 1, gaps, params.dtype)
        post = posterior_on_grid(model, hot, mask, first, window, local)
        row_weight = jnp.where(rows < n_subjects, weights[safe], 0)

        def node(state: tuple[Array, Array], g: Array) -> tuple[tuple[Array, Array], None]:
            gram, average = state
            score = rows_scores(hot, mask, curves[jnp.minimum(first + g, n_nodes - 1)])
            p = post[:, g]
            return (
                gram + score.T @ ((row_weight * p)[:, None] * score),
                average + p[:, None] * score,
            ), None

        start = (carry, jnp.zeros((rows.shape[0], total), params.dtype))
        steps = jnp.arange(post.shape[1], dtype=jnp.int32)
        (gram, average), _ = jax.lax.scan(node, start, steps)
        return gram - average.T @ (row_weight[:, None] * average)

    out = jnp.zeros((total, total), params.dtype)
    for blocks, local in ((wide, False), (narrow, True)):
        if blocks is None:
            continue

        def body(carry: Array, block_: tuple[Array, Array], local: bool = local):
            rows, first = block_
            used = rows[0] < n_subjects
            return jax.lax.cond(
                used, lambda c: block(c, rows, first, local), lambda c: c, carry
            ), None

        out = jax.lax.scan(body, out, (blocks.rows, blocks.first))[0]
    return out


def _spread(n_items: int, n_params: int, tied: tuple[int, ...]) -> FloatArray:
    """Matrix that takes the distinct parameters to all of them (tied ones are one)."""
    columns: list[FloatArray] = []
    for p in range(n_params):
        unit = np.zeros((n_items, n_params))
        unit[:, p] = 1.0
        if p in tied:
            columns.append(unit.reshape(-1, 1))
        else:
            columns.append(np.eye(n_items * n_params)[:, p::n_params])
    return np.concatenate(columns, axis=1)


def full_covariance(problem: EMProblem, params: Array, belief: EStep) -> FloatArray | None:
    """Covariance of all parameters together.

    Args:
        problem: what was fitted.
        params: the estimates, items x params.
        belief: the E-step at the estimates.

    Returns:
        (items * params) square, item by item; None if the information is not positive definite.
    """
    mean, sd = np.asarray(belief.mean, float), np.asarray(belief.sd, float)
    layout = problem.plan.layout(mean, sd)
    lost = _lost_information(
        params,
        problem.x,
        problem.weights,
        layout.wide,
        layout.narrow,
        cls=problem.cls,
        window=layout.window,
        gaps=problem.gaps,
    )
    blocks = np.asarray(
        _complete_information(
            problem.cls, params, belief.counts, belief.totals, problem.constraints
        ),
        float,
    )
    n_items, n_params = params.shape
    information = -np.asarray(lost, float)
    for j, block in enumerate(blocks):
        at = slice(j * n_params, (j + 1) * n_params)
        information[at, at] += block
    spread = _spread(n_items, n_params, problem.tied) if problem.tied else np.eye(len(information))
    reduced = spread.T @ information @ spread
    try:
        np.linalg.cholesky(reduced)
    except np.linalg.LinAlgError:
        return None
    return spread @ np.linalg.inv(reduced) @ spread.T


@functools.partial(jax.jit, static_argnames=("cls",))
def _own_loss(
    cls: type[ItemModel], params: Array, counts: Array, totals: Array, share: Array
) -> Float[Array, "items params params"]:
    """First-order loss of each item: sum of sd^2 (d2 log P / d theta d phi)^2 over the grid."""
    nodes = grid_nodes(params.dtype)

    def mixed(phi: Array, theta: Array) -> Array:
        def score(t: Array) -> Array:
            return jax.jacfwd(lambda v: unpack(cls, v).log_probs(t[None]))(phi)

        return jax.jacfwd(score)(theta)

    def information(phi: Array, theta: Array) -> Array:
        log_p = unpack(cls, phi).log_probs(theta[None])
        slope = jax.jacfwd(lambda t: unpack(cls, phi).log_probs(t[None]))(theta)
        return (jnp.exp(log_p) * slope**2).sum()

    def total_information(theta: Array) -> Array:
        return jax.vmap(information, (0, None))(params, theta).sum()

    variance = 1 / (1 + share * jax.lax.map(total_information, nodes))

    def one(phi: Array, counts: Array, totals: Array) -> Array:
        table = jnp.concatenate([(totals - counts.sum(0))[None], counts]).T
        slopes = jax.vmap(mixed, (None, 0))(phi, nodes)
        weight = table * variance[:, None]
        n = phi.shape[0]
        rows = [
            [(weight * slopes[..., i] * slopes[..., j]).sum() for j in range(n)] for i in range(n)
        ]
        return jnp.array(rows)

    if totals.ndim == 1:
        totals = jnp.broadcast_to(totals[:, None], counts.shape[1:])
    work = (params, jnp.moveaxis(counts, -1, 0), totals.T)
    return jax.lax.map(lambda item: one(*item), work, batch_size=512)


def block_covariance(problem: EMProblem, params: Array, belief: EStep, share: float) -> FloatArray:
    """Covariance of each item's parameters, items apart.

    Args:
        problem: what was fitted.
        params: the estimates, items x params.
        belief: the E-step at the estimates.
        share: share of the responses that are observed.

    Returns:
        items x params x params; NaN for an item whose information is not positive definite.
    """
    complete = _complete_information(
        problem.cls, params, belief.counts, belief.totals, problem.constraints
    )
    loss = _own_loss(
        problem.cls, params, belief.counts, belief.totals, jnp.asarray(share, params.dtype)
    )
    information = np.asarray(complete, float) - np.asarray(loss, float)
    covariance = (
        _arrow_inverse(information, problem.tied) if problem.tied else _inverse(information)
    )
    n = float(np.asarray(problem.weights, float).sum())

    def moved(latent: Array) -> Array:
        return pack(unpack(problem.cls, params).rescale(latent[0], jnp.exp(latent[1])))

    directions = np.asarray(jax.jacfwd(moved)(jnp.zeros(2, params.dtype)), float)
    return covariance + np.einsum("jal,l,jbl->jab", directions, [1 / n, 0.5 / n], directions)


def _inverse(information: FloatArray) -> FloatArray:
    """Invert each block; NaN where it is not positive definite."""
    good = np.isfinite(information).all((1, 2)) & (
        np.linalg.eigvalsh(np.nan_to_num(information))[:, 0] > 0
    )
    out = np.full_like(information, np.nan)
    out[good] = np.linalg.inv(information[good])
    return out


def _arrow_inverse(information: FloatArray, tied: tuple[int, ...]) -> FloatArray:
    """Blocks of the inverse when the ``tied`` parameters are shared by all items."""
    n_params = information.shape[1]
    own = [p for p in range(n_params) if p not in tied]
    t, o = list(tied), own
    inverse = _inverse(information[:, o][:, :, o])
    cross = information[:, t][:, :, o]
    transfer = np.einsum("jto,jop->jtp", cross, inverse)
    schur = (information[:, t][:, :, t] - np.einsum("jtp,jsp->jts", transfer, cross)).sum(0)
    shared = np.linalg.inv(schur)
    out = np.zeros_like(information)
    tt, oo, to = np.ix_(t, t), np.ix_(o, o), np.ix_(t, o)
    for j in range(len(information)):
        out[j][tt] = shared
        out[j][to] = -shared @ transfer[j]
        out[j][np.ix_(o, t)] = out[j][to].T
        out[j][oo] = inverse[j] + transfer[j].T @ shared @ transfer[j]
    return out
