"""What subjects' own nodes tell of the estimates' errors: their scores, and how these vary."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from irtcat._compile import jit
from irtcat.fitting._several_own import surface
from irtcat.models import ItemModel
from irtcat.scoring import Own, Plane, own_block, root_of

__all__ = ["own_scores"]


def _by_pairs(theta: Array, root: Array) -> Array:
    """Score of standard Normal abilities by their correlations r_kl: u_k u_l - P_kl, u = P theta.

    P is the inverse of the correlation matrix; pairs as the lower triangle has them.
    """
    rows, columns = np.tril_indices(len(root), -1)
    inverse = jnp.linalg.inv(root @ root.T)
    u = theta @ inverse
    return u[..., rows] * u[..., columns] - inverse[rows, columns]


@functools.partial(jit, static_argnames=("has_missing", "whole", "correlated"))
def own_scores(
    params: Array,
    root: Array,
    template: ItemModel,
    x: Array,
    weights: Array,
    rule: Own,
    mean: Array,
    covariance: Array,
    chunks: Array,
    *,
    has_missing: bool,
    whole: bool,
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
        mean: posterior means that they are placed by.
        covariance: posterior covariances, likewise.
        chunks: row numbers in blocks.
        has_missing: whether any response is missing.
        whole: whether the first is wanted (Louis 1982: what complete data would tell more).
        correlated: whether the correlations are parameters, after those of the items.

    Returns:
        Both summed over the subjects, of all parameters (the first empty unless ``whole``).
    """
    n, n_items = x.shape
    dims, dtype = root.shape[0], params.dtype
    logit_lower = params[:, dims + 1] if params.shape[1] > dims + 1 else None
    items = Plane(params[:, :dims] @ root, params[:, dims], logit_lower)
    ones = jnp.ones(n_items, dtype)
    total = params.size + correlated * (dims * (dims - 1) // 2)

    def body(carry: tuple[Array, Array], rows: Array) -> tuple[tuple[Array, Array], None]:
        lost, outer = carry
        safe = jnp.minimum(rows, n - 1)
        statistics, mask = template.sufficient_statistics(x[safe], 1, has_missing, dtype)
        right, row_weight = statistics[0], jnp.where(rows < n, weights[safe], 0)
        block = own_block(items, right, mask, mean[safe], root_of(covariance[safe]), rule, ones)
        part = surface(block.s, block.t, right, mask, logit_lower)
        residual = part.residual
        if part.lower is None:
            residual = residual + right[:, None]
        theta = block.z @ root.T
        table = jnp.concatenate([theta, jnp.ones_like(theta[:, :, :1])], axis=2)
        score = residual[..., None] * table[:, :, None, :]
        if part.lower is not None:
            score = jnp.concatenate([score, part.lower[0][..., None]], axis=3)
        score = score.reshape(*theta.shape[:2], -1)
        if correlated:
            score = jnp.concatenate([score, _by_pairs(theta, root)], axis=2)
        average = jnp.einsum("rq,rqp->rp", block.weight, score)
        products = average.T @ (row_weight[:, None] * average)
        if whole:
            weight = (block.weight * row_weight[:, None]).reshape(-1, 1)
            flat = score.reshape(len(weight), -1)
            lost = lost + flat.T @ (weight * flat) - products
        return (lost, outer + products), None

    size = total if whole else 0
    empty = jnp.zeros((size, size), dtype), jnp.zeros((total, total), dtype)
    return jax.lax.scan(body, empty, chunks)[0]
