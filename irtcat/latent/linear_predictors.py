"""The items of a model by link: linear predictors of several abilities, and their terms at points.

A *part* holds the items that share a link, as rows of coefficients: the predictors of all items at
any points are then one matrix product, and the derivatives by the item parameters follow from those
by the predictors with a chain that does not depend on the points. A mixed model has one part per
item model, each with all items and a mask of its own.

`logistic_terms` are those of the M-step for all two-parameter logistic items at once.
"""

import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from irtcat._common.compilation import SMALL, jit, namespace
from irtcat.models import ItemModel, member_columns, parameter_matrix, unpack
from irtcat.models.links import LinkTerms


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


class Part(NamedTuple):
    """The items of one link.

    Attributes:
        link: the link.
        rows: intercept and slopes of each predictor.
        gaps: differences of neighbouring predictors of a cumulative link.
        is_member: 1 for the items of this part, 0 for others; None where all are.
    """

    link: Any
    rows: Float[Any, "items predictors one_and_dims"]
    gaps: Float[Any, "items gaps"]
    is_member: Float[Any, " items"] | None

    @property
    def slopes(self) -> Float[Any, "items predictors dims"]:
        """The slopes of the predictors."""
        return self.rows[:, :, 1:]

    def predictors(self, theta: Float[Any, "*points dims"]) -> list[Any]:
        """Each predictor at points, points x items."""
        flat = theta.reshape(-1, theta.shape[-1])
        shape = (*theta.shape[:-1], -1)
        return [
            (flat @ self.rows[:, m, 1:].T + self.rows[:, m, 0]).reshape(shape)
            for m in range(self.rows.shape[1])
        ]


def _members(template: Any) -> list[tuple[Any, Any, Any]]:
    """The items as each model, the columns of its parameters, and the mask of its items."""
    if not template.members:
        return [(template, slice(None), None)]
    return [
        (items, np.array(member_columns(template, type(items))), template.kind == m)
        for m, items in enumerate(template.as_members())
    ]


def has_numpy_terms(template: ItemModel) -> bool:
    """Whether the terms of these items at points can be computed with arrays of numpy."""
    if template.closed_form not in ("logistic", "predictors"):
        return False
    return all(items.link.takes_numpy for items, *_ in _members(template))


def parts_of(model: ItemModel) -> list[Part]:
    """The parts of stacked items (traceable); in numpy for items of such arrays."""
    if all(isinstance(leaf, np.ndarray) for leaf in jax.tree.leaves(model)):
        return item_parts(model, parameter_matrix(model)).parts
    parts = []
    for items, _, mask in _members(model):
        rows, gaps = jax.vmap(lambda item: item.predictors())(items)
        is_member = None if mask is None else mask.astype(rows.dtype)
        parts.append(Part(items.link, rows, gaps, is_member))
    return parts


def chain_of(
    template: ItemModel, params: Float[Array, "items params"]
) -> list[Float[Array, "items predictors one_and_dims params"]]:
    """Derivatives of the rows of each part by the items' parameters (traceable)."""

    def rows(phi: Array, item: Any) -> Array:
        return unpack(item, phi).predictors()[0]

    chains = []
    for items, columns, mask in _members(template):
        chain = jax.vmap(jax.jacfwd(rows))(params[:, columns], items)
        if mask is not None:
            chain = chain * mask[:, None, None, None]
        full = jnp.zeros((*chain.shape[:3], params.shape[1]), params.dtype)
        chains.append(full.at[..., columns].set(chain))
    return chains


@functools.partial(jit, options=SMALL)
def predictor_bends(
    template: ItemModel, params: Array, scores: list[Array]
) -> Float[Array, "items params params"]:
    """Second derivatives of the rows of each part by the parameters, times these scores."""

    def value(phi: Array, item: Any, score: Array) -> Array:
        return (unpack(item, phi).predictors()[0] * score).sum()

    total = jnp.zeros((*params.shape, params.shape[1]), params.dtype)
    for (items, columns, _), score in zip(_members(template), scores, strict=True):
        bends = jax.vmap(jax.hessian(value))(params[:, columns], items, jnp.moveaxis(score, 2, 0))
        at = np.arange(params.shape[1])[columns]
        total = total.at[:, at[:, None], at].add(bends)
    return total


class ItemParts(NamedTuple):
    """`parts_of` items with these parameters, and `chain_of` them."""

    params: Float[Any, "items params"]
    parts: list[Part]
    chains: list[Any]

    def moved(self, params: Any) -> "ItemParts":
        """The same with other parameters, where the predictors are linear in them."""
        move = params - self.params
        parts = [
            part._replace(rows=part.rows + np.einsum("imap,ip->ima", chain, move))
            for part, chain in zip(self.parts, self.chains, strict=True)
        ]
        return ItemParts(params, parts, self.chains)


def item_parts(template: ItemModel, params: Any) -> ItemParts:
    """The parts and chains of items, in numpy for such arrays."""
    if namespace(params) is jnp:
        return ItemParts(params, parts_of(unpack(template, params)), chain_of(template, params))
    arrays, chains = jax.tree.map(np.asarray, _arrays_of_parts(template, params))
    links = [items.link for items, *_ in _members(template)]
    parts = [Part(link, *part) for link, part in zip(links, arrays, strict=True)]
    return ItemParts(params, parts, chains)


@functools.partial(jit, options=SMALL)
def _arrays_of_parts(template: ItemModel, params: Array) -> tuple[list[Any], list[Array]]:
    """Rows, gaps and members of each part, and the chains: of each item a few numbers."""
    return [part[1:] for part in parts_of(unpack(template, params))], chain_of(template, params)


def part_terms(
    part: Part,
    theta: Float[Any, "..."],
    statistics: Float[Any, "..."],
    mask: Float[Any, "..."],
    *,
    only_values: bool = False,
) -> LinkTerms:
    """The terms of all items at points, 0 for other parts' items.

    Args:
        part: the items.
        theta: the points, abilities last.
        statistics: responses as `ItemModel.sufficient_statistics`, contrasts first, items last, in
            shapes that broadcast with the points.
        mask: 1 where there is a response, else 0; without the axis of contrasts.
        only_values: leave out the derivatives.
    """
    arguments = _of_link(part, theta, statistics, mask)
    return part.link.terms(*arguments, only_values=only_values)


def part_observed(
    part: Part, theta: Float[Any, "..."], statistics: Float[Any, "..."], mask: Float[Any, "..."]
) -> dict[tuple[int, int], Any]:
    """The observed information in place of the expected one (see `part_terms`)."""
    return part.link.observed(*_of_link(part, theta, statistics, mask))


def _of_link(part: Part, theta: Any, statistics: Any, mask: Any) -> tuple[Any, ...]:
    """What a link takes: predictors, gaps, and the statistics and mask of its items."""
    gaps = [part.gaps[:, k] for k in range(part.gaps.shape[1])]
    if part.is_member is not None:
        statistics, mask = statistics * part.is_member, mask * part.is_member
    n_contrasts = part.rows.shape[1] if part.link.has_predictor_per_contrast else 1
    return part.predictors(theta), gaps, statistics[:n_contrasts], mask


def one_answer(template: ItemModel, dtype: np.dtype) -> tuple[np.ndarray, np.ndarray]:
    """Statistics and mask of the answers whose terms give those of all, which are linear in them.

    The first are no answer's statistics with a mask of 1, the others one category's without it.
    """
    n_contrasts = template.n_categories - 1
    statistics = np.eye(n_contrasts, n_contrasts + 1, 1, dtype)[:, :, None, None]
    return statistics, np.eye(1, n_contrasts + 1, dtype=dtype)[0, :, None, None]


def scores_of(
    parts: list[Part], terms: list[LinkTerms], chains: list[Array], theta: Float[Array, "... dims"]
) -> Float[Array, "... items params"]:
    """Derivative of each item's log-likelihood at points by its parameters."""
    basis = jnp.concatenate([jnp.ones_like(theta[..., :1]), theta], axis=-1)
    total: Any = 0.0
    for part_term, chain in zip(terms, chains, strict=True):
        for m, residual in enumerate(part_term.residual):
            if part_term.offset is not None:
                residual = residual + part_term.offset[:, None]
            by_params = jnp.einsum("...a,iap->...ip", basis, chain[:, m])
            total = total + residual[..., None] * by_params
    return total


def information_of(part: Part, weight: dict[tuple[int, int], Any]) -> Float[Any, "rows dims dims"]:
    """Expected information on the abilities, summed over items, from terms rows x items."""
    total: Any = 0.0
    dims = part.rows.shape[2] - 1
    for (m, n), table in weight.items():
        products = part.slopes[:, m, :, None] * part.slopes[:, n, None, :]
        if m != n:
            products = products + products.swapaxes(1, 2)
        total = total + (table @ products.reshape(-1, dims**2)).reshape(-1, dims, dims)
    return total


def chained(
    score: Float[Any, "predictors basis items"],
    sums: dict[tuple[int, int], Float[Any, "basis basis items"]],
    chain: Float[Any, "items predictors basis params"],
) -> tuple[Float[Any, "items params"], Float[Any, "items params params"]]:
    """Gradient and information by the parameters, from those by the predictors' coefficients.

    Args:
        score: sums of residuals times (1, theta) of each predictor.
        sums: sums of weights times products of (1, theta), of each pair of predictors.
        chain: derivatives of the coefficients by the parameters.
    """
    n_predictors, n_basis, n_items = score.shape
    xp, n = namespace(score), n_predictors * n_basis
    nothing = xp.zeros((n_basis, n_basis, n_items), score.dtype)
    rows = [
        xp.stack([sums.get((min(m, k), max(m, k)), nothing) for k in range(n_predictors)], axis=1)
        for m in range(n_predictors)
    ]
    # Products of a small matrix for each item: einsum takes ten times as long in numpy.
    full = xp.moveaxis(xp.stack(rows).reshape(n, n, n_items), -1, 0)
    slopes = chain.reshape(n_items, n, -1)
    by_item = slopes.swapaxes(1, 2)
    gradient = (by_item @ score.reshape(n, n_items).T[:, :, None])[:, :, 0]
    return gradient, by_item @ (full @ slopes)
