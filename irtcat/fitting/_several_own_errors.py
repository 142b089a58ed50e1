"""Subjects' scores by adaptive quadrature, for standard errors."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from irtcat._compile import jit
from irtcat.fitting._several_own import surface
from irtcat.models import ItemModel
from irtcat.scoring import AdaptiveQuadrature, Plane, adaptive_block, root_of

__all__ = ["adaptive_scores"]


def _by_pairs(theta: Array, root: Array) -> Array:
    """Score of standard Normal abilities by their correlations r_kl: u_k u_l - P_kl, u = P theta.

    P is the inverse of the correlation matrix; pairs are in the order of the lower triangle.
    """
    rows, columns = np.tril_indices(len(root), -1)
    inverse = jnp.linalg.inv(root @ root.T)
    u = theta @ inverse
    return u[..., rows] * u[..., columns] - inverse[rows, columns]


@functools.partial(jit, static_argnames=("has_missing", "full", "correlated"))
def adaptive_scores(
    params: Array,
    root: Array,
    template: ItemModel,
    x: Array,
    weights: Array,
    rule: AdaptiveQuadrature,
    mean: Array,
    covariance: Array,
    chunks: Array,
    *,
    has_missing: bool,
    full: bool,
    correlated: bool,
) -> tuple[Array, Array]:
    """Posterior covariance of the complete-data score, and the outer products of its mean.

    Args:
        params: the items' parameters, items x params.
        root: lower root of the abilities' correlations.
        template: the items.
        x: responses.
        weights: how many subjects each row stands for.
        rule: the nodes.
        mean: posterior means that place the nodes.
        covariance: posterior covariances, likewise.
        chunks: row numbers in blocks.
        has_missing: whether any response is missing.
        full: whether to compute the first (the missing information of Louis 1982).
        correlated: whether the correlations are parameters, after those of the items.

    Returns:
        Both summed over the subjects, of all parameters (the first empty unless ``full``).
    """
    n, n_items = x.shape
    dims, dtype = root.shape[0], params.dtype
    logit_lower = params[:, dims + 1] if params.shape[1] > dims + 1 else None
    items = Plane(params[:, :dims] @ root, params[:, dims], logit_lower)
    ones = jnp.ones(n_items, dtype)
    total = params.size + correlated * (dims * (dims - 1) // 2)

    def body(carry: tuple[Array, Array], rows: Array) -> tuple[tuple[Array, Array], None]:
        score_covariance, outer = carry
        safe = jnp.minimum(rows, n - 1)
        statistics, mask = template.sufficient_statistics(x[safe], 1, has_missing, dtype)
        right, row_weight = statistics[0], jnp.where(rows < n, weights[safe], 0)
        block = adaptive_block(
            items, right, mask, mean[safe], root_of(covariance[safe]), rule, ones
        )
        derivatives = surface(block.s, block.t, right, mask, logit_lower)
        residual = derivatives.residual
        if derivatives.lower is None:
            residual = residual + right[:, None]
        theta = block.z @ root.T
        table = jnp.concatenate([theta, jnp.ones_like(theta[:, :, :1])], axis=2)
        score = residual[..., None] * table[:, :, None, :]
        if derivatives.lower is not None:
            score = jnp.concatenate([score, derivatives.lower[0][..., None]], axis=3)
        score = score.reshape(*theta.shape[:2], -1)
        if correlated:
            score = jnp.concatenate([score, _by_pairs(theta, root)], axis=2)
        average = jnp.einsum("rq,rqp->rp", block.weight, score)
        products = average.T @ (row_weight[:, None] * average)
        if full:
            weight = (block.weight * row_weight[:, None]).reshape(-1, 1)
            flat = score.reshape(len(weight), -1)
            score_covariance = score_covariance + flat.T @ (weight * flat) - products
        return (score_covariance, outer + products), None

    size = total if full else 0
    empty = jnp.zeros((size, size), dtype), jnp.zeros((total, total), dtype)
    return jax.lax.scan(body, empty, chunks)[0]
