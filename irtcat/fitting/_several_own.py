"""EM by adaptive quadrature: all sums over subjects x nodes x items are matrix products."""

import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array

from irtcat._compile import jit
from irtcat.fitting._mstep import Constraints, _direction, prior_information, prior_slopes
from irtcat.fitting._several_population import (
    Image,
    ObservedData,
    StepRule,
    correlation_root,
    finish,
)
from irtcat.fitting.em import EMPoint, EMState, EMUpdate
from irtcat.models import ItemModel
from irtcat.scoring import (
    AdaptiveQuadrature,
    MultiEStep,
    Plane,
    adaptive_block,
    moments_of,
    root_of,
)

__all__ = ["AdaptiveSums", "adaptive_map", "adaptive_sums", "surface"]


class AdaptiveSums(NamedTuple):
    """Sums over subjects and their nodes, at the current parameters.

    Attributes:
        belief: posterior moments (counts, totals and mass are empty).
        gradient: of the marginal log-likelihood, items x params.
        information: expected, of the complete data.
        first: sum of E[theta].
        second: sum of E[theta theta'].
    """

    belief: MultiEStep
    gradient: Array
    information: Array
    first: Array
    second: Array


class Surface(NamedTuple):
    """P(right) of subjects' responses at their nodes, in the form needed by the sums.

    With P = c + (1 - c) s, s = sigmoid(eta): d logit P / d eta = s / P =: kappa, d logit P / d
    logit c = c / P =: lam. All are 0 where a response is missing.

    Attributes:
        residual: (right - P) kappa, or -P kappa where c = 0 (the other term does not depend on the
            nodes).
        spread: P (1 - P) kappa^2.
        lower: (right - P) lam, P (1 - P) kappa lam and P (1 - P) lam^2; None where c = 0.
    """

    residual: Array
    spread: Array
    lower: tuple[Array, Array, Array] | None


def surface(
    s: Array, t: Array, right: Array, mask: Array | None, logit_lower: Array | None
) -> Surface:
    """See `Surface`; ``s`` and ``t`` are rows x points x items."""
    wide = None if mask is None else mask[:, None]
    if logit_lower is None:
        at_nodes = s if wide is None else s * wide
        return Surface(-at_nodes, at_nodes * t, None)
    c = jax.nn.sigmoid(logit_lower)
    p, q = c + (1 - c) * s, (1 - c) * t
    kappa, lam = s / p, c / p
    gap, variance = right[:, None] - p, p * q
    if wide is not None:
        gap, variance = gap * wide, variance * wide
    both = variance * kappa
    return Surface(gap * kappa, both * kappa, (gap * lam, both * lam, variance * lam**2))


def _unfold(upper: Array, size: int) -> Array:
    """Symmetric matrices from their upper triangles, (items, pairs)."""
    rows, columns = jnp.triu_indices(size)
    out = jnp.zeros((len(upper), size, size), upper.dtype)
    return out.at[:, rows, columns].set(upper).at[:, columns, rows].set(upper)


@functools.partial(jit, static_argnames=("has_missing",))
def adaptive_sums(
    params: Array,
    root: Array,
    template: ItemModel,
    x: Array,
    weights: Array,
    item_weights: Array,
    rule: AdaptiveQuadrature,
    mean: Array,
    covariance: Array,
    chunks: Array,
    *,
    has_missing: bool,
) -> AdaptiveSums:
    """The adaptive E-step with gradient and information of the items' Newton step, in one pass.

    Gradient and information are sums over subjects and nodes of (a number per item) times (a
    polynomial in theta): products of a matrix nodes x items with a matrix nodes x polynomials.
    """
    n = x.shape[0]
    dims, dtype = root.shape[0], params.dtype
    logit_lower = params[:, dims + 1] if params.shape[1] > dims + 1 else None
    items = Plane(params[:, :dims] @ root, params[:, dims], logit_lower)
    rows_of, columns_of = jnp.triu_indices(dims + 1)

    def body(carry: Any, rows: Array) -> tuple[Any, tuple[Array, ...]]:
        safe = jnp.minimum(rows, n - 1)
        statistics, mask = template.sufficient_statistics(x[safe], 1, has_missing, dtype)
        right, row_weight = statistics[0], jnp.where(rows < n, weights[safe], 0)
        block = adaptive_block(
            items, right, mask, mean[safe], root_of(covariance[safe]), rule, item_weights
        )
        moments = moments_of(block.weight, block.z)
        derivatives = surface(block.s, block.t, right, mask, logit_lower)
        theta = (block.z @ root.T).reshape(-1, dims)
        weight = (block.weight * row_weight[:, None]).reshape(-1, 1)
        table = jnp.concatenate([theta, jnp.ones_like(weight)], axis=1)
        weighted = table * weight
        squares = weighted[:, rows_of] * table[:, columns_of]

        def over(cells: Array, features: Array) -> Array:
            return cells.reshape(len(weight), -1).T @ features

        gradient = over(derivatives.residual, weighted)
        if logit_lower is None:
            centre = jnp.concatenate([moments[0] @ root.T, jnp.ones_like(right[:, :1])], axis=1)
            gradient = gradient + right.T @ (centre * row_weight[:, None])
        sums = [gradient, over(derivatives.spread, squares), squares.sum(0)]
        if derivatives.lower is not None:
            sums += [over(derivatives.lower[0], weight), over(derivatives.lower[1], weighted)]
            sums += [over(derivatives.lower[2], weight)]
        carry = [a + b for a, b in zip(carry, sums, strict=True)]
        return carry, (*moments, block.log_z)

    n_items, n_pairs = x.shape[1], len(rows_of)
    sizes = [(n_items, dims + 1), (n_items, n_pairs), (n_pairs,)]
    if logit_lower is not None:
        sizes += [(n_items, 1), (n_items, dims + 1), (n_items, 1)]
    empty = [jnp.zeros(size, dtype) for size in sizes]
    carry, posteriors = jax.lax.scan(body, empty, chunks)
    gradient, information = carry[0], _unfold(carry[1], dims + 1)
    if logit_lower is not None:
        side, corner = carry[4], carry[5][:, :, None]
        gradient = jnp.concatenate([gradient, carry[3]], axis=1)
        side_and_corner = jnp.concatenate([side[:, :, None], corner], axis=1)
        information = jnp.concatenate([information, side[:, None, :]], axis=1)
        information = jnp.concatenate([information, side_and_corner], axis=2)
    polynomials = _unfold(carry[2][None], dims + 1)[0]
    none = jnp.zeros((1, 0, n_items), dtype)
    belief = MultiEStep(
        mean=posteriors[0].reshape(-1, dims)[:n],
        covariance=posteriors[1].reshape(-1, dims, dims)[:n],
        log_z=posteriors[2].reshape(-1)[:n],
        counts=none,
        totals=none[0, :, 0],
        mass=none[0, :, 0],
    )
    return AdaptiveSums(
        belief, gradient, information, polynomials[:dims, dims], polynomials[:dims, :dims]
    )


def _without_turning(gradient: Array, slopes: Array, item_weights: Array) -> Array:
    """Remove from the gradient the rotation of the axes, which the likelihood does not identify.

    A rotation moves the slopes A to A W with W antisymmetric; the antisymmetric part of A' gradient
    is 0 except for the integration error, which would make the axes drift. It is removed along A Y,
    with Y antisymmetric and ``S Y + Y S`` twice that part, S = A' A.
    """
    dims = slopes.shape[1]
    inner = slopes.T @ (item_weights[:, None] * gradient[:, :dims])
    values, vectors = jnp.linalg.eigh(slopes.T @ (item_weights[:, None] * slopes))
    target = vectors.T @ (inner - inner.T) @ vectors
    total = values[:, None] + values[None, :]
    rotation = vectors @ (target / jnp.maximum(total, 1e-6 * values[-1] + 1e-30)) @ vectors.T
    along = item_weights[:, None] * (slopes @ rotation)
    return gradient.at[:, :dims].add(-along)


@functools.partial(jit, static_argnames=("step_rule",))
def _adaptive_update(
    point: EMPoint,
    sums: AdaptiveSums,
    template: ItemModel,
    x: Array,
    weights: Array,
    item_weights: Array,
    constraints: Constraints,
    damping: Array,
    expand: Array,
    *,
    step_rule: StepRule,
) -> EMUpdate:
    """One Newton step for the items (EM gradient: Lange 1995), and the population."""
    params = point.params
    gradient = sums.gradient + prior_slopes(params, constraints)[0]
    if step_rule.full:
        dims = sums.first.shape[0]
        gradient = _without_turning(gradient, params[:, :dims], item_weights)
    eye = jnp.eye(params.shape[1], dtype=params.dtype)
    information = sums.information + prior_information(params, constraints)[..., None] * eye
    at_low = (params <= constraints.lower) & (gradient < 0)
    at_high = (params >= constraints.upper) & (gradient > 0)
    active = constraints.free & ~at_low & ~at_high
    damp = jnp.full(len(gradient), damping)
    move = _direction(gradient, information, damp, active, (), item_weights)
    moved = jnp.clip(params + move, constraints.lower, constraints.upper)
    squared = jnp.einsum("ji,jik,jk->j", move, information, move)
    new = Image(moved, jnp.sqrt(squared.max()), 0.5 * squared.sum(), information)
    n = weights.sum()
    belief = sums.belief
    moments = n, sums.first / n, sums.second / n
    observed = ObservedData(
        x=x,
        weights=weights,
        item_weights=item_weights,
        mean=belief.mean,
        covariance=belief.covariance,
        moments=moments,
    )
    return finish(point, new, template, observed, constraints, expand, step_rule)


def adaptive_map(
    problem: Any, state: EMState, n_steps: int, expand: bool
) -> tuple[EMUpdate, MultiEStep]:
    """One iteration by adaptive quadrature, on nodes placed by the last posteriors."""
    dtype = problem.weights.dtype
    root = correlation_root(state.point.population, state.mean.shape[1])
    sums = adaptive_sums(
        state.point.params, root, problem.template, problem.x, problem.weights,
        problem.item_weights, problem.rule, jnp.asarray(state.mean, dtype),
        jnp.asarray(state.sd, dtype), problem.chunks, has_missing=problem.has_missing,
    )  # fmt: skip
    update = _adaptive_update(
        state.point, sums, problem.template, problem.x, problem.weights, problem.item_weights,
        problem.constraints, jnp.asarray(1.0 if n_steps > 2 else 0.0, dtype),
        jnp.asarray(expand), step_rule=problem.step_rule,
    )  # fmt: skip
    return update, sums.belief
