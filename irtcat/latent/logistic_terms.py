"""Terms of the M-step for all two-parameter logistic items at once."""

import jax.numpy as jnp
from jaxtyping import Array, Float


def logistic_terms(
    params: Float[Array, "items params"],
    counts: Float[Array, "contrasts nodes items"],
    totals: Array,
    nodes: Float[Array, "nodes dims"],
) -> tuple[Array, Array, Array]:
    """Expected log-likelihood of each item, its gradient and its expected information.

    Args:
        params: the slopes, then the intercept of each item.
        counts: expected number of right answers at each node.
        totals: expected number of answers at each node, nodes or nodes x items.
        nodes: abilities.
    """
    if nodes.shape[1] == 1:
        return _line_terms(params, counts, totals, nodes[:, 0])
    return _plane_terms(params, counts, totals, nodes)


def _line_terms(
    params: Array, counts: Array, totals: Array, nodes: Array
) -> tuple[Array, Array, Array]:
    """`logistic_terms` of one ability.

    With a linear predictor every sum over the nodes is a product with (1, theta, theta^2), and only
    one exponential per item and node is evaluated.
    """
    totals = totals[:, None] if totals.ndim == 1 else totals
    z = nodes[:, None] * params[:, 0] + params[:, 1]
    small = jnp.exp(-jnp.abs(z))
    right = jnp.where(z > 0, 1.0, small) / (1.0 + small)
    residual = counts[0] - totals * right
    weight = totals * right * (1.0 - right)
    loss = totals * (jnp.maximum(z, 0.0) + jnp.log1p(small))
    powers = jnp.stack([jnp.ones_like(nodes), nodes, nodes**2])
    r0, r1 = powers[:2] @ counts[0]
    g0, g1 = powers[:2] @ residual
    h0, h1, h2 = powers @ weight
    value = params[:, 0] * r1 + params[:, 1] * r0 - powers[0] @ loss
    gradient = jnp.stack([g1, g0], -1)
    information = jnp.stack([jnp.stack([h2, h1], -1), jnp.stack([h1, h0], -1)], -2)
    return value, gradient, information


def _plane_terms(
    params: Array, counts: Array, totals: Array, nodes: Array
) -> tuple[Array, Array, Array]:
    """`logistic_terms` of several abilities."""
    totals = totals[:, None] if totals.ndim == 1 else totals
    n = params.shape[1]
    features = jnp.concatenate([nodes, jnp.ones_like(nodes[:, :1])], axis=1)
    z = features @ params.T
    small = jnp.exp(-jnp.abs(z))
    right = jnp.where(z > 0, 1.0, small) / (1.0 + small)
    weight = totals * right * (1.0 - right)
    loss = totals * (jnp.maximum(z, 0.0) + jnp.log1p(small))
    value = (counts[0] * z - loss).sum(0)
    gradient = (counts[0] - totals * right).T @ features
    products = (features[:, :, None] * features[:, None, :]).reshape(len(nodes), n * n)
    return value, gradient, (weight.T @ products).reshape(-1, n, n)
