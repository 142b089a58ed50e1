"""Terms of the M-step for every item: expected log-likelihood, gradient, expected information.

Three methods give the same numbers (tests compare them); the more special the model, the faster: a
logistic curve with two parameters; links of linear predictors; any model, by automatic
differentiation.
"""

from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from irtcat.latent import chain_of, chained, logistic_terms, part_terms, parts_of
from irtcat.models import ItemModel, as_points, unpack

Terms = tuple[Float[Any, " items"], Float[Any, "items params"], Float[Any, "items params params"]]


def item_terms(
    template: ItemModel,
    params: Float[Any, "items params"],
    counts: Float[Any, "contrasts nodes items"],
    totals: Any,
    nodes: Float[Any, "nodes *dims"],
) -> Terms:
    """Expected log-likelihood of each item, its gradient and its expected information."""
    if template.closed_form == "logistic":
        return logistic_terms(params, counts, totals, as_points(nodes))
    if template.closed_form == "logistic trials":  # the same curve in numbers of trials
        trials = template.trials  # type: ignore[attr-defined]
        totals = (totals[:, None] if totals.ndim == 1 else totals) * trials
        return logistic_terms(params, counts * trials, totals, as_points(nodes))
    if template.closed_form:
        return part_sums(template, params, counts, totals, as_points(nodes))
    in_axes = (0, 0, -1, None if totals.ndim == 1 else -1, None)
    return jax.vmap(general_terms, in_axes)(template, params, counts, totals, as_points(nodes))


def general_terms(
    template: ItemModel, phi: Array, counts: Array, totals: Array, nodes: Array
) -> tuple[Array, Array, Array]:
    """Objective, gradient and expected information of one item of any model.

    With natural curves (base, eta) the objective is ``totals . base + counts . eta`` and the
    information ``sum_g totals_g (d eta / d phi)' V (d eta / d phi)``.
    """

    def curve(vector: Array) -> Array:
        item = unpack(template, vector)
        return jax.vmap(item.natural)(nodes)

    natural, slopes = curve(phi), jax.jacfwd(curve)(phi)
    table = jnp.concatenate([totals[None], counts]).T
    value = (table * natural).sum()
    gradient = (table[..., None] * slopes).sum((0, 1))
    eta = slopes[:, 1:]
    variance = jax.vmap(unpack(template, phi).variance)(nodes)
    weighted = jnp.einsum("gcd,gdp->gcp", variance, eta) * totals[:, None, None]
    return value, gradient, jnp.einsum("gcp,gcq->pq", eta, weighted)


def part_sums(
    template: ItemModel, params: Array, counts: Array, totals: Array, nodes: Array
) -> Terms:
    """The same terms for all items of a link of linear predictors at once, or of several links.

    Only the link is evaluated at every item and node, with the items last; sums over the nodes are
    products with 1, theta and theta^2; the derivatives of the predictors by the parameters do not
    depend on the nodes.
    """
    basis = jnp.concatenate([jnp.ones_like(nodes[:, :1]), nodes], axis=1)
    n_basis = basis.shape[1]
    squares = (basis[:, :, None] * basis[:, None, :]).reshape(len(basis), -1)
    totals = totals[:, None] if totals.ndim == 1 else totals
    value: Any = 0.0
    gradient: Any = 0.0
    information: Any = 0.0
    chains = chain_of(template, params)
    for part, chain in zip(parts_of(unpack(template, params)), chains, strict=True):
        terms = part_terms(part, nodes, counts, totals)
        score = jnp.stack([basis.T @ table for table in terms.residual])
        sums = {
            pair: (squares.T @ table).reshape(n_basis, n_basis, -1)
            for pair, table in terms.weight.items()
        }
        by_params = chained(score, sums, chain)
        value = value + terms.value.sum(0)
        gradient, information = gradient + by_params[0], information + by_params[1]
    return value, gradient, information
