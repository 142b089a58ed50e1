"""Terms of the M-step for all two-parameter logistic items at once."""

from typing import Any

from jaxtyping import Float

from irtcat._common.compilation import namespace


def logistic_terms(
    params: Float[Any, "items params"],
    counts: Float[Any, "contrasts nodes items"],
    totals: Any,
    nodes: Float[Any, "nodes dims"],
) -> tuple[Any, Any, Any]:
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


def _line_terms(params: Any, counts: Any, totals: Any, nodes: Any) -> tuple[Any, Any, Any]:
    """`logistic_terms` of one ability.

    With a linear predictor every sum over the nodes is a product with (1, theta, theta^2), and only
    one exponential per item and node is evaluated.
    """
    xp = namespace(params)
    slope, intercept = xp.stack([params[:, 0], params[:, 1]])  # numpy is quick with whole rows
    right, softplus = _logistic(nodes[:, None] * slope + intercept)
    powers = xp.stack([xp.ones_like(nodes), nodes, nodes**2])
    spread = right * (1.0 - right)
    if totals.ndim == 1:  # the same for all items: a factor of the powers
        by_node = totals * powers
        of_base, expected, (h0, h1, h2) = totals @ softplus, by_node[:2] @ right, by_node @ spread
    else:
        of_base, expected = (totals * softplus).sum(0), powers[:2] @ (totals * right)
        h0, h1, h2 = powers @ (totals * spread)
    r0, r1 = powers[:2] @ counts[0]
    value = slope * r1 + intercept * r0 - of_base
    gradient = xp.stack([r1 - expected[1], r0 - expected[0]], -1)
    return value, gradient, xp.stack([h2, h1, h1, h0], -1).reshape(-1, 2, 2)


def _plane_terms(params: Any, counts: Any, totals: Any, nodes: Any) -> tuple[Any, Any, Any]:
    """`logistic_terms` of several abilities."""
    n, xp = params.shape[1], namespace(params)
    totals = totals[:, None] if totals.ndim == 1 else totals
    features = xp.concatenate([nodes, xp.ones_like(nodes[:, :1])], axis=1)
    z = features @ params.T
    right, softplus = _logistic(z)
    expected = totals * right
    weight = expected * (1.0 - right)
    value = (counts[0] * z - totals * softplus).sum(0)
    gradient = (counts[0] - expected).T @ features
    products = (features[:, :, None] * features[:, None, :]).reshape(len(nodes), n * n)
    return value, gradient, (weight.T @ products).reshape(-1, n, n)


def _logistic(z: Any) -> tuple[Any, Any]:
    """1 / (1 + exp -z) and log(1 + exp z), by one exponential."""
    xp = namespace(z)
    small = xp.exp(-xp.abs(z))
    total = 1.0 + small
    right = xp.where(z > 0, 1.0, small) / total
    # Not log1p, which takes three times as long in numpy: the error is that of adding the two.
    return right, xp.maximum(z, 0.0) + xp.log(total)
