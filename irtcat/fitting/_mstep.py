"""The M-step: Fisher scoring on all items at once over the grid, with priors and constraints.

Each item's expected log-likelihood is maximised by a few damped Newton steps with the expected
information (positive semi-definite for every model, so that a step always points uphill).
A step that does not increase the item's objective is taken back and damped further
(Levenberg-Marquardt), so the objective never goes down.
"""

import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from irtcat.models import ItemModel, OnePL, TwoPL, unpack
from irtcat.scoring._kernel import grid_nodes

__all__ = ["Constraints", "MStep", "log_prior", "m_step", "penalised_terms"]

RIDGE = 1e-10

BELOW_ALL = 1e30
"""Stands for minus infinity, which times a weight of 0 would be NaN."""

MOST_TURNS = 12
"""Evaluations at most, where steps are refused and damped again."""

LINEAR = (OnePL, TwoPL)
"""Models whose parameters are (slope, intercept) of a logistic curve: see `_linear_terms`."""


class Constraints(NamedTuple):
    """Priors, fixed parameters and bounds of every item's unconstrained parameters.

    Attributes:
        prior_mean: mean of the Normal prior.
        prior_precision: 1 / variance of it; 0 where there is no prior.
        free: whether the parameter is estimated.
        lower: lower bounds, one per parameter.
        upper: upper bounds, one per parameter.
    """

    prior_mean: Float[Array, "items params"]
    prior_precision: Float[Array, "items params"]
    free: Bool[Array, "items params"]
    lower: Float[Array, " params"]
    upper: Float[Array, " params"]


class MStep(NamedTuple):
    """New parameters and how far they moved.

    Attributes:
        params: the new unconstrained parameters.
        step: largest first Newton step over the items, in standard errors of the complete data.
        gain: what the first Newton step is predicted to add to the expected log-posterior.
        information: expected information of the complete data at the last accepted point.
    """

    params: Float[Array, "items params"]
    step: Float[Array, ""]
    gain: Float[Array, ""]
    information: Float[Array, "items params params"]


def log_prior(params: Array, constraints: Constraints) -> Float[Array, " items"]:
    """Log-density of the priors up to the Normal's own constant, an item a number."""
    off = params - constraints.prior_mean
    precision = constraints.prior_precision
    log_scale = jnp.where(precision > 0, jnp.log(jnp.maximum(precision, 1e-30)), 0.0)
    normaliser = jnp.where(precision > 0, 0.5 * (log_scale - jnp.log(2 * jnp.pi)), 0.0)
    return (-0.5 * precision * off**2 + normaliser).sum(-1)


def _item_terms(cls: type[ItemModel], nodes: Array, phi: Array, counts: Array, totals: Array):
    """Objective, gradient and expected information of one item."""

    def curve(vector: Array) -> Array:
        item = unpack(cls, vector)
        return jax.vmap(lambda theta: item.log_probs(theta[None]))(nodes)

    log_p, slopes = curve(phi), jax.jacfwd(curve)(phi)
    rest = totals - counts.sum(0)
    table = jnp.concatenate([rest[None], counts]).T
    expected = jnp.exp(log_p) * totals[:, None]
    value = (table * log_p).sum()
    gradient = (table[..., None] * slopes).sum((0, 1))
    n = phi.shape[0]
    information = [
        [(expected * slopes[..., i] * slopes[..., j]).sum() for j in range(n)] for i in range(n)
    ]
    return value, gradient, jnp.array(information)


def _linear_terms(params: Array, counts: Array, totals: Array, nodes: Array):
    """The same terms for all two-parameter logistic items at once.

    With a linear predictor every sum over the nodes is a product with (1, theta, theta^2), and
    one exponential an item and node is all there is to evaluate: ten times quicker than the
    general route, which gives the same numbers (a test holds them together).
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


def penalised_terms(
    cls: type[ItemModel],
    params: Float[Array, "items params"],
    counts: Float[Array, "contrasts nodes items"],
    totals: Array,
    constraints: Constraints,
) -> tuple[
    Float[Array, " items"], Float[Array, "items params"], Float[Array, "items params params"]
]:
    """Expected log-posterior of each item, its gradient and its expected information."""
    nodes = grid_nodes(params.dtype)
    if cls in LINEAR:
        value, gradient, information = _linear_terms(params, counts, totals, nodes)
    else:
        terms = functools.partial(_item_terms, cls, nodes)
        in_axes = (0, -1, None if totals.ndim == 1 else -1)
        value, gradient, information = jax.vmap(terms, in_axes)(params, counts, totals)
    precision = constraints.prior_precision
    value = value + log_prior(params, constraints)
    gradient = gradient - precision * (params - constraints.prior_mean)
    return (
        value,
        gradient,
        information + precision[..., None] * jnp.eye(params.shape[1], dtype=params.dtype),
    )


def _solve(matrix: Array, vector: Array) -> Array:
    """Solve many small positive-definite systems by an unrolled Cholesky factorisation.

    ``matrix`` is (..., n, n) and ``vector`` (..., n), n at most a handful: elementwise over the
    leading axes, which is far quicker than one library call an item.
    """
    n = matrix.shape[-1]
    low: list[list[Any]] = [[None] * n for _ in range(n)]
    for i in range(n):
        for j in range(i + 1):
            rest = matrix[..., i, j] - sum(low[i][k] * low[j][k] for k in range(j))
            low[i][j] = jnp.sqrt(jnp.maximum(rest, RIDGE)) if i == j else rest / low[j][j]
    y: list[Any] = []
    for i in range(n):
        y.append((vector[..., i] - sum(low[i][k] * y[k] for k in range(i))) / low[i][i])
    x: list[Any] = [None] * n
    for i in reversed(range(n)):
        x[i] = (y[i] - sum(low[k][i] * x[k] for k in range(i + 1, n))) / low[i][i]
    return jnp.stack(x, axis=-1)


def _direction(
    gradient: Array,
    information: Array,
    damping: Array,
    active: Array,
    tied: tuple[int, ...],
    item_weights: Array,
) -> Array:
    """The damped Newton step; tied parameters move together, inactive ones not at all."""
    n = gradient.shape[-1]
    eye = jnp.eye(n, dtype=gradient.dtype)
    both = active[..., None] & active[..., None, :]
    scaled = information * (1 + damping[:, None, None] * eye)
    matrix = jnp.where(both, scaled, 0) + jnp.where(active, RIDGE, 1.0)[..., None] * eye
    vector = jnp.where(active, gradient, 0)
    if not tied:
        return _solve(matrix, vector)
    own = [i for i in range(n) if i not in tied]
    t, o = jnp.array(tied), jnp.array(own)
    cross = matrix[:, o][:, :, t]
    block = matrix[:, o][:, :, o]
    solved = jnp.stack([_solve(block, cross[..., i]) for i in range(len(tied))], -1)
    solved_gradient = _solve(block, vector[:, o])
    schur = matrix[:, t][:, :, t] - jnp.einsum("jot,jos->jts", cross, solved)
    right = vector[:, t] - jnp.einsum("jot,jo->jt", cross, solved_gradient)
    weight = item_weights[:, None]
    shared = _solve((weight[..., None] * schur).sum(0), (weight * right).sum(0))
    step_own = solved_gradient - jnp.einsum("jot,t->jo", solved, shared)
    out = jnp.zeros_like(gradient).at[:, o].set(step_own)
    return out.at[:, t].set(shared)


class _State(NamedTuple):
    """The best point so far, its terms, the candidate to be tried next, the first move's length.

    ``stuck`` marks items none of whose steps has been accepted yet.
    """

    best: Array
    value: Array
    gradient: Array
    information: Array
    damping: Array
    candidate: Array
    squared: Array
    stuck: Array


def m_step(
    cls: type[ItemModel],
    params: Float[Array, "items params"],
    counts: Float[Array, "contrasts nodes items"],
    totals: Array,
    constraints: Constraints,
    item_weights: Float[Array, " items"],
    tied: tuple[int, ...],
    n_steps: int | Array,
) -> MStep:
    """Maximise the expected log-posterior of all items by ``n_steps`` damped Newton steps.

    Args:
        cls: the item model's class.
        params: where to start.
        counts: expected counts of categories 1, 2, ... on the grid.
        totals: the same over all categories, (nodes,) or (nodes, items).
        constraints: priors, fixed parameters, bounds.
        item_weights: 1 for items that tied parameters are estimated from, 0 for the others.
        tied: columns of ``params`` that all items share.
        n_steps: number of steps.

    Returns:
        The new parameters; no item's objective is below that of ``params`` (for tied
        parameters: the sum over the items of weight 1).
    """

    def propose(best: Array, gradient: Array, information: Array, damping: Array) -> Array:
        at_low = (best <= constraints.lower) & (gradient < 0)
        at_high = (best >= constraints.upper) & (gradient > 0)
        active = constraints.free & ~at_low & ~at_high
        move = _direction(gradient, information, damping, active, tied, item_weights)
        return jnp.clip(best + move, constraints.lower, constraints.upper)

    def better(new: Array, old: Array) -> Array:
        if tied:
            new, old = (jnp.full_like(v, (item_weights * v).sum()) for v in (new, old))
        return new >= old - 64 * jnp.finfo(old.dtype).eps * jnp.abs(old)

    def body(turn: Array, state: _State) -> _State:
        value, gradient, information = penalised_terms(
            cls, state.candidate, counts, totals, constraints
        )
        up = better(value, state.value)
        best = jnp.where(up[:, None], state.candidate, state.best)
        value = jnp.where(up, value, state.value)
        gradient = jnp.where(up[:, None], gradient, state.gradient)
        information = jnp.where(up[:, None, None], information, state.information)
        damping = jnp.where(up, 0.3 * state.damping, jnp.maximum(10 * state.damping, 0.1))
        candidate = propose(best, gradient, information, damping)
        move = candidate - best
        squared = jnp.einsum("ji,jik,jk->j", move, information, move)
        squared = jnp.where(turn == 0, squared, state.squared)
        stuck = jnp.where(turn == 0, True, state.stuck & ~up)
        return _State(best, value, gradient, information, damping, candidate, squared, stuck)

    # The first turn evaluates the starting point itself: anything is better than nothing.
    nothing = jnp.zeros_like(params[:, 0])
    state = _State(
        params,
        nothing - BELOW_ALL,
        jnp.zeros_like(params),
        jnp.zeros((*params.shape, params.shape[1]), params.dtype),
        nothing,
        params,
        nothing,
        nothing == 0,
    )
    turns, state = jax.lax.while_loop(
        lambda carry: (carry[0] <= n_steps) | (carry[1].stuck.any() & (carry[0] < MOST_TURNS)),
        lambda carry: (carry[0] + 1, body(*carry)),
        (jnp.int32(0), state),
    )
    del turns
    step, gain = jnp.sqrt(state.squared.max()), 0.5 * state.squared.sum()
    return MStep(state.best, step, gain, state.information)
