"""EM with several abilities: one iteration on a grid, on bifactor pairs, or on subjects' own nodes.

The scale of each ability is its own in every iteration (parameter expansion: Liu, Rubin & Wu
1998): the mean and the spread of the abilities are estimated and at once removed by rescaling the
items, where the model does not mind. Without a loading pattern that is the whole covariance, with
one it is each ability's SD (correlations are parameters), in the bifactor model likewise.
"""

import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from irtcat._compile import jit
from irtcat.fitting._mstep import Constraints, _direction, log_prior, m_step
from irtcat.fitting.em import EMPoint, EMState, EMUpdate
from irtcat.models import ItemModel, MTwoPL, pack, unpack
from irtcat.scoring import Grid, Groups, Own, Several, grid_step, group_step, own_block, root_of

__all__ = [
    "SeveralProblem",
    "correlation_root",
    "free_correlations",
    "own_sums",
    "run_several",
]


class SeveralProblem(NamedTuple):
    """All that stays the same from one iteration to the next.

    Attributes:
        template: the items (bifactor: with two abilities each).
        x: responses, rows x items.
        weights: how many subjects each row stands for.
        item_weights: 1 for the items that abilities are estimated from, 0 for the others.
        gaps: whether any response is missing.
        constraints: priors, fixed parameters, bounds.
        rule: where the abilities are integrated.
        chunks: row numbers in blocks.
        full: whether the whole covariance is removed by expansion (no loading pattern).
        correlated: whether the abilities' correlations are estimated.
        group: specific factor of each item (bifactor).
    """

    template: ItemModel
    x: Array
    weights: Float[Array, " rows"]
    item_weights: Float[Array, " items"]
    gaps: bool
    constraints: Constraints
    rule: Grid | Groups | Own
    chunks: Array
    full: bool
    correlated: bool
    group: Array | None


def correlation_root(free: Float[Array, " pairs"], dims: int) -> Float[Array, "dims dims"]:
    """Lower root of a correlation matrix: rows of (free numbers, 1), made of length 1."""
    rows, columns = np.tril_indices(dims, -1)
    lower = jnp.eye(dims, dtype=free.dtype)
    if free.shape[0]:
        lower = lower.at[rows, columns].set(free)
    return lower / jnp.sqrt((lower**2).sum(1, keepdims=True))


def free_correlations(correlations: Float[Array, "dims dims"]) -> Float[Array, " pairs"]:
    """Undo `correlation_root`: any numbers make a correlation matrix."""
    root = jnp.linalg.cholesky(correlations)
    rows, columns = np.tril_indices(correlations.shape[0], -1)
    return (root / jnp.diagonal(root)[:, None])[rows, columns]


def _symmetric_root(matrix: Float[Array, "dims dims"]) -> Float[Array, "dims dims"]:
    values, vectors = jnp.linalg.eigh(matrix)
    return (vectors * jnp.sqrt(jnp.maximum(values, 1e-8))) @ vectors.T


def _best_correlations(
    free: Float[Array, " pairs"], second: Float[Array, "dims dims"]
) -> Float[Array, " pairs"]:
    """A step towards the correlations that fit second moments best, with mean 0 and SD 1 held."""
    dims = second.shape[0]

    def value(at: Array) -> Array:
        root = correlation_root(at, dims)
        half = jax.scipy.linalg.solve_triangular(root, second, lower=True)
        whole = jax.scipy.linalg.solve_triangular(root, half.T, lower=True)
        return -jnp.log(jnp.diagonal(root)).sum() - 0.5 * jnp.trace(whole)

    for _ in range(3):
        hessian = -jax.hessian(value)(free)
        values, vectors = jnp.linalg.eigh(hessian)
        move = vectors @ ((vectors.T @ jax.grad(value)(free)) / jnp.maximum(jnp.abs(values), 0.05))
        lengths = jnp.array([1.0, 0.5, 0.2, 0.05, 0.0], free.dtype)
        tries = free + lengths[:, None] * move
        free = tries[jnp.argmax(jax.vmap(value)(tries))]
    return free


class _Image(NamedTuple):
    """What the M-step gives for the items: new parameters, and how far they moved."""

    params: Array
    step: Array
    gain: Array
    information: Array


def _finish(
    point: EMPoint,
    new: Any,
    template: ItemModel,
    moments: tuple[Array, Array, Array],
    constraints: Constraints,
    item_weights: Array,
    expand: Array,
    full: bool,
    correlated: bool,
) -> EMUpdate:
    """Estimate the population and remove its scale."""
    n, mean, second = moments
    dims = mean.shape[0]
    eye = jnp.eye(dims, dtype=mean.dtype)
    covariance = second - jnp.outer(mean, mean)
    centre = jnp.where(expand, mean, 0.0)
    plain_free = point.population
    if full:
        scale = jnp.where(expand, _symmetric_root(covariance), eye)
        free = plain_free
    else:
        sd = jnp.sqrt(jnp.diagonal(covariance))
        scale = jnp.where(expand, jnp.diag(sd), eye)
        free = plain_free
        if correlated:
            plain_free = _best_correlations(point.population, second)
            found = free_correlations(covariance / jnp.outer(sd, sd))
            free = jnp.where(expand, found, plain_free)
    image = pack(unpack(template, new.params).rescale(centre, scale))
    image = jnp.clip(image, constraints.lower, constraints.upper)
    root_n = jnp.sqrt(n)
    shift = root_n * jnp.maximum(jnp.abs(centre).max(), jnp.sqrt(2.0) * jnp.abs(scale - eye).max())
    step = jnp.maximum(new.step, shift)
    if correlated:
        moved = correlation_root(free, dims) - correlation_root(point.population, dims)
        step = jnp.maximum(step, root_n * jnp.abs(moved).max())
    metric = EMPoint(
        jnp.diagonal(new.information, axis1=1, axis2=2), jnp.full_like(point.population, n)
    )
    prior = (item_weights * log_prior(point.params, constraints)).sum()
    return EMUpdate(
        EMPoint(image, free), EMPoint(new.params, plain_free), step, new.gain, metric, prior
    )


@functools.partial(jit, static_argnames=("gaps", "full", "correlated"))
def grid_map(
    point: EMPoint,
    template: ItemModel,
    x: Array,
    weights: Array,
    item_weights: Array,
    grid: Grid,
    chunks: Array,
    constraints: Constraints,
    n_steps: Array,
    expand: Array,
    *,
    gaps: bool,
    full: bool,
    correlated: bool,
) -> tuple[EMUpdate, Several]:
    """One EM iteration on a grid (see `irtcat.fitting.em.em_map`)."""
    dims = grid.nodes.shape[1]
    root = correlation_root(point.population, dims)
    model = unpack(template, point.params).rescale(jnp.zeros(dims, root.dtype), root)
    belief = grid_step(model, x, weights, item_weights, grid, chunks, gaps=gaps)
    theta = grid.nodes @ root.T
    new = m_step(
        template, point.params, belief.counts, belief.totals, constraints, item_weights, (),
        n_steps, theta,
    )  # fmt: skip
    n = belief.mass.sum()
    moments = n, belief.mass @ theta / n, theta.T @ (belief.mass[:, None] * theta) / n
    update = _finish(
        point, new, template, moments, constraints, item_weights, expand, full, correlated
    )
    return update, belief


def pairs_of(groups: Groups) -> Float[Array, "pairs two"]:
    """All pairs of a general and a specific node, general outer."""
    mesh = jnp.meshgrid(groups.general.nodes[:, 0], groups.specific.nodes[:, 0], indexing="ij")
    return jnp.stack(mesh, -1).reshape(-1, 2)


@functools.partial(jit, static_argnames=("gaps",))
def group_map(
    point: EMPoint,
    template: ItemModel,
    x: Array,
    weights: Array,
    item_weights: Array,
    groups: Groups,
    chunks: Array,
    constraints: Constraints,
    group: Array,
    n_steps: Array,
    expand: Array,
    *,
    gaps: bool,
) -> tuple[EMUpdate, Several]:
    """One EM iteration of the bifactor model; each item has the general and its own ability."""
    model = unpack(template, point.params)
    belief = group_step(model, x, weights, item_weights, groups, chunks, gaps=gaps)
    pairs = pairs_of(groups)
    new = m_step(
        template, point.params, belief.counts, belief.totals, constraints, item_weights, (),
        n_steps, pairs,
    )  # fmt: skip
    n = belief.mass[0].sum()
    mean = belief.mass @ pairs / n
    sd = jnp.sqrt(belief.mass @ pairs**2 / n - mean**2)
    mean = jnp.where(expand, mean.at[:, 0].set(mean[0, 0]), 0.0)
    sd = jnp.where(expand, sd.at[:, 0].set(sd[0, 0]), 1.0)
    slopes, intercept = new.params[:, :2], new.params[:, 2]
    image = jnp.column_stack([slopes * sd[group], intercept + (slopes * mean[group]).sum(1)])
    image = jnp.clip(image, constraints.lower, constraints.upper)
    used = jnp.zeros(len(mean), bool).at[group].set((point.params[:, 1] != 0) | (group < 0))
    far = jnp.maximum(jnp.abs(mean), jnp.sqrt(2.0) * jnp.abs(sd - 1))
    far = jnp.maximum(far[:, 0].max(), jnp.where(used, far[:, 1], 0).max())
    metric = EMPoint(jnp.diagonal(new.information, axis1=1, axis2=2), point.population)
    prior = (item_weights * log_prior(point.params, constraints)).sum()
    update = EMUpdate(
        EMPoint(image, point.population),
        EMPoint(new.params, point.population),
        jnp.maximum(new.step, jnp.sqrt(n) * far),
        new.gain,
        metric,
        prior,
    )
    return update, belief


class OwnSums(NamedTuple):
    """Sums over subjects and their own points, at the current parameters.

    Attributes:
        belief: posterior moments (counts, totals and mass are empty).
        gradient: of the marginal log-likelihood, items x params.
        information: of the complete data.
        second: sum of E[theta theta'].
        first: sum of E[theta].
        cross: sum over subjects of the outer product of each item's expected score.
    """

    belief: Several
    gradient: Array
    information: Array
    second: Array
    first: Array
    cross: Array


def _plane_pieces(
    template: ItemModel, params: Array, eta: Array
) -> tuple[Array, Array, Array, Array | None]:
    """P(right), its variance, and the derivatives of logit P by eta and by logit c.

    With P = c + (1 - c) s, s = sigmoid(eta): d logit P / d eta = s / P, d logit P / d logit c =
    c / P.
    """
    s = jax.nn.sigmoid(eta)
    if params.shape[1] == template.dims + 1:
        return s, s * (1 - s), jnp.ones_like(s), None
    c = jax.nn.sigmoid(params[:, -1])
    p = c + (1 - c) * s
    return p, p * (1 - c) * jax.nn.sigmoid(-eta), s / p, c / p


@functools.partial(jit, static_argnames=("gaps",))
def own_sums(
    params: Array,
    root: Array,
    template: ItemModel,
    x: Array,
    weights: Array,
    item_weights: Array,
    rule: Own,
    mean: Array,
    covariance: Array,
    chunks: Array,
    *,
    gaps: bool,
) -> OwnSums:
    """E-step on own nodes, with what one Newton step of the items needs, in one pass."""
    n, n_items = x.shape
    dims, n_params = root.shape[0], params.shape[1]
    dtype = params.dtype
    model = unpack(template, params).rescale(jnp.zeros(dims, dtype), root)

    def features(theta: Array, kappa: Array, lam: Array | None) -> list[Array]:
        columns = [theta[..., d, None] * kappa for d in range(dims)] + [kappa]
        return columns if lam is None else [*columns, lam]

    def body(carry: tuple[Array, ...], rows: Array) -> tuple[tuple[Array, ...], tuple]:
        gradient, information, first, second, cross = carry
        safe = jnp.minimum(rows, n - 1)
        hot, mask = model.channels(x[safe], 1, gaps, dtype)
        seen = jnp.ones_like(hot[0]) if mask is None else mask
        z, post, log_z = own_block(
            model, hot, mask, mean[safe], root_of(covariance[safe]), rule, item_weights
        )
        row_weight = jnp.where(rows < n, weights[safe], 0)
        theta = z @ root.T
        eta = theta @ params[:, :dims].T + params[:, dims]
        p, variance, kappa, lam = _plane_pieces(template, params, eta)
        weight = (post * row_weight[:, None])[:, :, None]
        table = features(theta, kappa, lam)
        scores = (hot[0][:, None] - p) * seen[:, None]
        own = [(post[:, :, None] * scores * f).sum(1) for f in table]
        spread = variance * seen[:, None] * weight
        info = [[(spread * f * g).sum((0, 1)) for g in table] for f in table]
        stacked = jnp.stack(own, -1)
        weighted = stacked * row_weight[:, None, None]
        new_mean = jnp.einsum("rq,rqd->rd", post, z)
        centred = z - new_mean[:, None]
        new_cov = jnp.einsum("rq,rqd,rqe->rde", post, centred, centred)
        flat = theta.reshape(-1, dims)
        flat_weight = weight.reshape(-1)
        carry = (
            gradient + weighted.sum(0),
            information + jnp.stack([jnp.stack(row, -1) for row in info], -2),
            first + flat_weight @ flat,
            second + flat.T @ (flat_weight[:, None] * flat),
            cross + jnp.einsum("rjp,rjq->jpq", weighted, stacked),
        )
        return carry, (new_mean, new_cov, log_z)

    empty = (
        jnp.zeros((n_items, n_params), dtype),
        jnp.zeros((n_items, n_params, n_params), dtype),
        jnp.zeros(dims, dtype),
        jnp.zeros((dims, dims), dtype),
        jnp.zeros((n_items, n_params, n_params), dtype),
    )
    carry, rows = jax.lax.scan(body, empty, chunks)  # type: ignore[arg-type]
    gradient, information, first, second, cross = carry
    none = jnp.zeros((1, 0, n_items), dtype)
    belief = Several(
        rows[0].reshape(-1, dims)[:n],
        rows[1].reshape(-1, dims, dims)[:n],
        rows[2].reshape(-1)[:n],
        none,
        none[0, :, 0],
        none[0, :, 0],
    )
    return OwnSums(belief, gradient, information, second, first, cross)


@functools.partial(jit, static_argnames=("full", "correlated"))
def _own_update(
    point: EMPoint,
    sums: OwnSums,
    template: ItemModel,
    weights: Array,
    item_weights: Array,
    constraints: Constraints,
    damping: Array,
    expand: Array,
    *,
    full: bool,
    correlated: bool,
) -> EMUpdate:
    """One Newton step for the items (EM gradient: Lange 1995), and the population."""
    precision = constraints.prior_precision
    gradient = sums.gradient - precision * (point.params - constraints.prior_mean)
    eye = jnp.eye(precision.shape[1], dtype=precision.dtype)
    information = sums.information + precision[..., None] * eye
    at_low = (point.params <= constraints.lower) & (gradient < 0)
    at_high = (point.params >= constraints.upper) & (gradient > 0)
    active = constraints.free & ~at_low & ~at_high
    damp = jnp.full(len(gradient), damping)
    move = _direction(gradient, information, damp, active, (), item_weights)
    moved = jnp.clip(point.params + move, constraints.lower, constraints.upper)
    squared = jnp.einsum("ji,jik,jk->j", move, information, move)
    new = _Image(moved, jnp.sqrt(squared.max()), 0.5 * squared.sum(), information)
    n = weights.sum()
    moments = n, sums.first / n, sums.second / n
    return _finish(
        point, new, template, moments, constraints, item_weights, expand, full, correlated
    )


def _own_map(problem: SeveralProblem, state: EMState, n_steps: int, expand: bool):
    """One iteration on subjects' own nodes, placed by their posteriors as last seen."""
    dtype = problem.weights.dtype
    root = correlation_root(state.point.population, state.mean.shape[1])
    sums = own_sums(
        state.point.params, root, problem.template, problem.x, problem.weights,
        problem.item_weights, problem.rule, jnp.asarray(state.mean, dtype),
        jnp.asarray(state.sd, dtype), problem.chunks, gaps=problem.gaps,
    )  # fmt: skip
    update = _own_update(
        state.point, sums, problem.template, problem.weights, problem.item_weights,
        problem.constraints, jnp.asarray(1.0 if n_steps > 2 else 0.0, dtype),
        jnp.asarray(expand), full=problem.full, correlated=problem.correlated,
    )  # fmt: skip
    return update, sums.belief


def run_several(
    problem: SeveralProblem, state: EMState, slack: float, n_steps: int, expand: bool
) -> tuple[EMUpdate, Several]:
    """Apply the EM map of the problem's rule (``slack`` is for layouts in one dimension)."""
    del slack
    if isinstance(problem.rule, Own):
        return _own_map(problem, state, n_steps, expand)
    common: Any = (
        state.point, problem.template, problem.x, problem.weights, problem.item_weights,
        problem.rule, problem.chunks, problem.constraints,
    )  # fmt: skip
    steps = jnp.int32(n_steps), jnp.asarray(expand)
    if isinstance(problem.rule, Groups):
        return group_map(*common, problem.group, *steps, gaps=problem.gaps)
    return grid_map(
        *common, *steps, gaps=problem.gaps, full=problem.full, correlated=problem.correlated
    )


def pair_template(template: ItemModel, pattern: np.ndarray, group: np.ndarray) -> MTwoPL:
    """The items of a bifactor model with two abilities each: general and own."""
    specific = (np.asarray(pattern)[:, 1:] != 0).any(1)
    dtype = jnp.asarray(template.intercept).dtype  # type: ignore[attr-defined]
    marks = jnp.asarray(np.column_stack([np.ones(len(group)), specific]), dtype)
    return MTwoPL(jnp.zeros_like(marks), jnp.zeros(len(group), dtype), marks)
