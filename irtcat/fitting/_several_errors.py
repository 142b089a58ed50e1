"""Standard errors in several dimensions.

The observed information of all parameters together (item parameters and correlations of the
abilities) is the complete-data information less the posterior covariance of the score (Louis 1982).
In the bifactor model, and with adaptive quadrature where items have a lower asymptote, it is the
derivative of the score, by central differences. On tests too long for either, each item's block
comes from the outer products of the subjects' expected scores.

The sandwich is ``I^-1 (sum_i s_i s_i') I^-1``, s_i the subject's expected score (White 1982).
"""

import functools

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from irtcat._compile import jit
from irtcat._types import FloatArray
from irtcat.fitting._mstep import Constraints, penalised_terms, prior_slopes
from irtcat.fitting._several import MultiProblem, pairs_of
from irtcat.fitting._several_own import AdaptiveSums, adaptive_sums
from irtcat.fitting._several_own_errors import adaptive_scores
from irtcat.fitting._several_population import correlation_root
from irtcat.fitting.em import EMPoint
from irtcat.models import PLANES, ItemModel, as_points, unpack
from irtcat.scoring import (
    AdaptiveQuadrature,
    BifactorQuadrature,
    GridQuadrature,
    MultiEStep,
    bifactor_step,
    grid_posterior,
    item_curves,
    row_chunks,
)

__all__ = ["multi_covariance"]

FULL_WORK = 3e10
"""Maximum number of operations for the full matrix with "auto" (about a second)."""

STEP = 1e-4
"""Step of the central differences."""


def _log_density(pairs: Array, theta: Array) -> Array:
    """Log-density at each node of standard Normal abilities with these correlations."""
    dims = theta.shape[1]
    rows, columns = np.tril_indices(dims, -1)
    matrix = jnp.eye(dims, dtype=theta.dtype).at[rows, columns].set(pairs)
    matrix = matrix.at[columns, rows].set(pairs)
    root = jnp.linalg.cholesky(matrix)
    z = jax.scipy.linalg.solve_triangular(root, theta.T, lower=True)
    return -0.5 * (z**2).sum(0) - jnp.log(jnp.diagonal(root)).sum()


@jit
def _density_slopes(pairs: Array, theta: Array) -> Float[Array, "nodes pairs"]:
    """Derivative of `_log_density` by the correlations."""
    return jax.jacfwd(_log_density)(pairs, theta)


@jit
def _density_curvature(pairs: Array, theta: Array, mass: Array) -> Float[Array, "pairs pairs"]:
    """Second derivative of the expected `_log_density` by the correlations."""
    return jax.hessian(lambda r: mass @ _log_density(r, theta))(pairs)


def _derivatives(
    template: ItemModel, params: Array, theta: Array
) -> Float[Array, "nodes items params"]:
    """Derivative of the logit curve of all items by their parameters."""

    def logit(phi: Array, item: ItemModel, at: Array) -> Array:
        return unpack(item, phi).natural(at)[1]

    over = jax.vmap(jax.vmap(jax.grad(logit), (0, 0, None)), (None, None, 0))
    return over(params, template, theta)


@jit
def _complete(
    template: ItemModel, params: Array, belief: MultiEStep, constraints: Constraints, theta: Array
) -> Float[Array, "items params params"]:
    """-E[second derivative] of each item's complete-data log-posterior."""
    if isinstance(template, PLANES):
        return penalised_terms(template, params, belief.counts, belief.totals, constraints, theta)[
            2
        ]

    def objective(phi: Array, item: ItemModel, counts: Array, totals: Array) -> Array:
        natural = jax.vmap(unpack(item, phi).natural)(as_points(theta))
        return (jnp.concatenate([totals[None], counts]).T * natural).sum()

    in_axes = (0, 0, -1, None if belief.totals.ndim == 1 else -1)
    hessian = jax.vmap(jax.hessian(objective), in_axes)(
        params, template, belief.counts, belief.totals
    )
    eye = jnp.eye(params.shape[1], dtype=params.dtype)
    return -hessian + constraints.prior_precision[..., None] * eye


@functools.partial(jit, static_argnames=("has_missing", "full"))
def _score_covariance(
    point_params: Array,
    root: Array,
    score_r: Float[Array, "nodes pairs"],
    template: ItemModel,
    x: Array,
    weights: Array,
    grid: GridQuadrature,
    chunks: Array,
    *,
    has_missing: bool,
    full: bool,
) -> tuple[Array, Array]:
    """Posterior covariance of the score, and outer products of its mean, summed over subjects.

    The second is of all parameters if ``full``, else of each item's on their own.
    """
    params = point_params
    n, n_items = x.shape
    n_params, dtype = params.shape[1], params.dtype
    theta = grid.nodes @ root.T
    curves = item_curves(unpack(template, params), theta)
    right = jnp.exp(curves.base + curves.contrast[0])
    slopes = _derivatives(template, params, theta)
    total = n_items * n_params + score_r.shape[1]

    def body(carry: tuple[Array, Array], rows: Array) -> tuple[tuple[Array, Array], None]:
        covariance, cross = carry
        safe = jnp.minimum(rows, n - 1)
        statistics, mask = template.sufficient_statistics(x[safe], 1, has_missing, dtype)
        answered = jnp.ones_like(statistics[0]) if mask is None else mask
        post = grid_posterior(statistics, mask, curves, grid.log_prior)[0]
        row_weight = jnp.where(rows < n, weights[safe], 0)
        mean = [
            statistics[0] * (post @ slopes[:, :, p]) - answered * (post @ (right * slopes[:, :, p]))
            for p in range(n_params)
        ]
        average = jnp.stack(mean, -1)
        if not full:
            weighted = average * row_weight[:, None, None]
            return (covariance, cross + jnp.einsum("rjp,rjq->jpq", weighted, average)), None

        def node(carry: Array, at: tuple[Array, ...]) -> tuple[Array, None]:
            p, mu, slope, r = at
            residual = statistics[0] - answered * mu
            scaled = residual * (p * row_weight)[:, None]
            gram = scaled.T @ residual
            items = (slope[:, :, None, None] * gram[:, None, :, None] * slope).reshape(
                n_items * n_params, -1
            )
            side = (scaled.sum(0)[:, None] * slope).reshape(-1, 1) * r
            corner = (p @ row_weight) * jnp.outer(r, r)
            return carry + jnp.block([[items, side], [side.T, corner]]), None

        covariance = jax.lax.scan(node, covariance, (post.T, right, slopes, score_r))[0]
        everything = jnp.concatenate([average.reshape(len(rows), -1), post @ score_r], axis=1)
        products = everything.T @ (row_weight[:, None] * everything)
        return (covariance - products, cross + products), None

    size = total if full else 0
    cross_shape = (total, total) if full else (n_items, n_params, n_params)
    empty = jnp.zeros((size, size), dtype), jnp.zeros(cross_shape, dtype)
    return jax.lax.scan(body, empty, chunks)[0]


def _adaptive_information(
    problem: MultiProblem, point: EMPoint, belief: MultiEStep, free: np.ndarray, full: bool
) -> tuple[FloatArray | None, FloatArray]:
    """Observed information (None unless ``full``), and the outer products of the scores."""
    dims, params = problem.template.dims, point.params
    root = correlation_root(point.population, dims)
    n_rows = len(problem.x)
    assert isinstance(problem.rule, AdaptiveQuadrature)
    cells = len(problem.rule.points) * len(free)
    plane = isinstance(problem.template, PLANES)
    score_covariance, outer = adaptive_scores(
        params, root, problem.template, problem.x, problem.weights, problem.rule, belief.mean,
        belief.covariance, jnp.asarray(row_chunks(n_rows, cells)), has_missing=problem.has_missing,
        full=full and plane, correlated=problem.correlated,
    )  # fmt: skip
    if not full:
        return None, np.asarray(outer, float)
    if not plane:
        return _differenced_information(problem, point, belief, free), np.asarray(outer, float)
    sums = _adaptive_sums_at(problem, params, root, belief)
    prior = prior_slopes(params, problem.constraints)[1]
    information = -np.asarray(score_covariance, float)
    _add_blocks(
        information, np.asarray(sums.information, float) + _diagonals(np.asarray(prior, float))
    )
    if problem.correlated:
        pairs = (root @ root.T)[np.tril_indices(dims, -1)]
        information[params.size :, params.size :] += _pair_information(
            pairs, sums.second, float(problem.weights.sum())
        )
    return information, np.asarray(outer, float)


def _pair_information(pairs: Array, second: Array, n: float) -> FloatArray:
    """Complete-data information of the correlations."""
    dims = second.shape[0]

    def value(at: Array) -> Array:
        rows, columns = np.tril_indices(dims, -1)
        matrix = jnp.eye(dims, dtype=second.dtype).at[rows, columns].set(at)
        inverse = jnp.linalg.inv(matrix.at[columns, rows].set(at))
        return 0.5 * n * jnp.linalg.slogdet(inverse)[1] - 0.5 * (inverse * second).sum()

    return -np.asarray(jax.hessian(value)(pairs), float)


def _diagonals(values: FloatArray) -> FloatArray:
    """Diagonal matrices from rows of numbers."""
    return values[..., None] * np.eye(values.shape[1])


def _add_blocks(matrix: FloatArray, blocks: FloatArray) -> None:
    """Add the items' blocks on the diagonal, in place."""
    size = blocks.shape[1]
    for j, block in enumerate(blocks):
        at = slice(j * size, (j + 1) * size)
        matrix[at, at] += block


def _grid_information(
    problem: MultiProblem, point: EMPoint, belief: MultiEStep, full: bool
) -> tuple[FloatArray | None, FloatArray]:
    """Observed information (None unless ``full``), and the outer products of the scores."""
    rule = problem.rule
    assert isinstance(rule, GridQuadrature)
    dims = rule.nodes.shape[1]
    root = correlation_root(point.population, dims)
    theta = rule.nodes @ root.T
    pairs = (root @ root.T)[np.tril_indices(dims, -1)]
    n_pairs = len(pairs) if problem.correlated else 0
    score_r = jnp.zeros((len(theta), 0), theta.dtype)
    if n_pairs:
        score_r = _density_slopes(pairs, theta)
    score_covariance, cross = _score_covariance(
        point.params, root, score_r, problem.template, problem.x, problem.weights,
        rule, problem.chunks, has_missing=problem.has_missing, full=full,
    )  # fmt: skip
    if not full:
        return None, np.asarray(cross, float)
    complete = np.asarray(
        _complete(problem.template, point.params, belief, problem.constraints, theta), float
    )
    information = -np.asarray(score_covariance, float)
    _add_blocks(information, complete)
    if n_pairs:
        hessian = _density_curvature(pairs, theta, belief.mass)
        information[-n_pairs:, -n_pairs:] -= np.asarray(hessian, float)
    return information, np.asarray(cross, float)


@functools.partial(jit, static_argnames=("has_missing",))
def _bifactor_score(
    params: Array,
    template: ItemModel,
    x: Array,
    weights: Array,
    item_weights: Array,
    groups: BifactorQuadrature,
    chunks: Array,
    constraints: Constraints,
    *,
    has_missing: bool,
) -> Array:
    """Gradient of the marginal log-posterior of the bifactor model."""
    belief = bifactor_step(
        unpack(template, params), x, weights, item_weights, groups, chunks, has_missing=has_missing
    )
    return penalised_terms(
        template, params, belief.counts, belief.totals, constraints, pairs_of(groups)
    )[1]


def _score(
    problem: MultiProblem, params: Array, pairs: FloatArray, belief: MultiEStep
) -> FloatArray:
    """Gradient of the marginal log-posterior by all parameters, correlations last."""
    if isinstance(problem.rule, BifactorQuadrature):
        gradient = _bifactor_score(
            params, problem.template, problem.x, problem.weights,
            jnp.ones_like(problem.item_weights), problem.rule, problem.chunks,
            problem.constraints, has_missing=problem.has_missing,
        )  # fmt: skip
        return np.asarray(gradient, float).ravel()
    dims = problem.template.dims
    matrix = _correlation_matrix(pairs, dims)
    root = jnp.asarray(np.linalg.cholesky(matrix), params.dtype)
    sums = _adaptive_sums_at(problem, params, root, belief)
    gradient = sums.gradient + prior_slopes(params, problem.constraints)[0]
    gradients = [np.asarray(gradient, float).ravel()]
    if problem.correlated:
        inverse = np.linalg.inv(matrix)
        n = float(problem.weights.sum())
        by_entry = inverse @ np.asarray(sums.second, float) @ inverse - n * inverse
        gradients.append(by_entry[np.tril_indices(dims, -1)])
    return np.concatenate(gradients)


def _adaptive_sums_at(
    problem: MultiProblem, params: Array, root: Array, belief: MultiEStep
) -> AdaptiveSums:
    """The sums of an E-step with all items, on nodes placed by ``belief``."""
    assert isinstance(problem.rule, AdaptiveQuadrature)
    return adaptive_sums(
        params, root, problem.template, problem.x, problem.weights,
        jnp.ones_like(problem.item_weights), problem.rule, belief.mean, belief.covariance,
        problem.chunks, has_missing=problem.has_missing,
    )  # fmt: skip


def _correlation_matrix(pairs: FloatArray, dims: int) -> FloatArray:
    matrix = np.eye(dims)
    if len(pairs):
        matrix[np.tril_indices(dims, -1)] = pairs
        matrix += np.tril(matrix, -1).T
    return matrix


def _differenced_information(
    problem: MultiProblem, point: EMPoint, belief: MultiEStep, free: np.ndarray
) -> FloatArray:
    """Minus the derivative of the score; 0 for parameters that are not free."""
    params = np.asarray(point.params, float)
    root = np.asarray(correlation_root(point.population, problem.template.dims), float)
    pairs = np.zeros(0)
    if problem.correlated:
        pairs = (root @ root.T)[np.tril_indices(len(root), -1)]
    total = params.size + len(pairs)
    information = np.zeros((total, total))
    for k in np.flatnonzero(free):
        ends = []
        for sign in (1.0, -1.0):
            moved = np.concatenate([params.ravel(), pairs])
            moved[k] += sign * STEP
            vector = jnp.asarray(moved[: params.size].reshape(params.shape), point.params.dtype)
            ends.append(_score(problem, vector, moved[params.size :], belief))
        information[k] = -(ends[0] - ends[1]) / (2 * STEP)
    return (information + information.T) / 2


def _inverse(information: FloatArray, free: np.ndarray) -> FloatArray | None:
    """Covariance of the free parameters (NaN for others); None if not positive definite."""
    at = np.flatnonzero(free)
    inner = information[np.ix_(at, at)]
    try:
        np.linalg.cholesky(inner)
    except np.linalg.LinAlgError:
        return None
    out = np.full(information.shape, np.nan)
    out[np.ix_(at, at)] = np.linalg.inv(inner)
    return out


def _work(problem: MultiProblem, n_free: int) -> float:
    """Approximate number of operations for the full matrix."""
    n_rows, n_items = problem.x.shape
    if isinstance(problem.rule, GridQuadrature):
        n_params = problem.constraints.lower.shape[0]
        return float(len(problem.rule.nodes)) * (
            2 * n_rows * n_items**2 + 3 * (n_items * n_params) ** 2
        )
    if isinstance(problem.rule, BifactorQuadrature):
        n_nodes = len(problem.rule.general.nodes) * len(problem.rule.specific.nodes)
        return 2.0 * n_free * 8 * n_rows * n_nodes * n_items
    if isinstance(problem.template, PLANES):
        return 2.0 * n_rows * len(problem.rule.points) * n_free**2
    return 2.0 * n_free * 60 * n_rows * len(problem.rule.points) * n_items


def multi_covariance(
    problem: MultiProblem, point: EMPoint, belief: MultiEStep, free: np.ndarray, which: str
) -> tuple[FloatArray | None, FloatArray | None, str]:
    """Covariance of each item's parameters and of the correlations.

    Args:
        problem: what was fitted.
        point: the estimates.
        belief: the E-step at the estimates.
        free: items x params, the parameters that are identified.
        which: "auto", "full", "block", "sandwich" or "none".

    Returns:
        items x params x params (NaN where not free), the standard errors of the correlations (dims
        x dims, None where not estimated), and how they were computed.
    """
    if which == "none":
        return None, None, "none"
    n_items, n_params = free.shape
    dims = problem.template.dims
    n_pairs = dims * (dims - 1) // 2 if problem.correlated else 0
    all_free = np.concatenate([free.ravel(), np.ones(n_pairs, bool)])
    exact = isinstance(problem.rule, GridQuadrature) or point.params.dtype == np.float64
    full = exact and (
        which in ("full", "sandwich")
        or (which == "auto" and _work(problem, int(all_free.sum())) <= FULL_WORK)
    )
    outer: FloatArray | None = None
    information: FloatArray | None = None
    if isinstance(problem.rule, GridQuadrature):
        information, outer = _grid_information(problem, point, belief, full)
    elif isinstance(problem.rule, AdaptiveQuadrature):
        information, outer = _adaptive_information(problem, point, belief, all_free, full)
    elif full:
        information = _differenced_information(problem, point, belief, all_free)
    at = np.arange(n_items * n_params).reshape(n_items, n_params)
    if information is not None:
        covariance = _inverse(information, all_free)
        if covariance is not None:
            if which == "sandwich" and outer is not None:
                inner = np.where(np.outer(all_free, all_free), covariance, 0.0)
                covariance = np.where(np.isnan(covariance), np.nan, inner @ outer @ inner)
            items = covariance[at[:, :, None], at[:, None, :]]
            errors = None
            if n_pairs:
                variance = np.diagonal(covariance)[-n_pairs:]
                errors = _correlation_matrix(np.sqrt(variance), dims) - np.eye(dims)
            return items, errors, "full sandwich" if which == "sandwich" else "full"
    if outer is None:
        return None, None, "none"
    blocks = outer if outer.ndim == 3 else outer[at[:, :, None], at[:, None, :]]
    blocks = blocks + _diagonals(np.asarray(problem.constraints.prior_precision, float))
    out = np.full_like(blocks, np.nan)
    for j, block in enumerate(blocks):
        inverse = _inverse(block, free[j])
        if inverse is not None:
            out[j] = inverse
    return out, None, "block"
