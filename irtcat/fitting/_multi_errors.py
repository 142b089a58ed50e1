"""Standard errors of models of several abilities.

The observed information of all parameters together (of the items and of the population) is the
complete-data information less the posterior covariance of the score (Louis 1982). Where that is not
at hand (two-tier models, several groups, adaptive quadrature of curves whose observed and expected
information differ) it is the derivative of the score, by central differences. On tests too long for
either, each item's block comes from the outer products of the subjects' expected scores.

The sandwich is ``I^-1 (sum_i s_i s_i') I^-1``, s_i the subject's expected score (White 1982).
"""

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from irtcat._compile import jit
from irtcat._types import BoolArray, FloatArray
from irtcat.fitting._covariance import Covariance, inverse_blocks, inverse_of_all
from irtcat.fitting._mstep import penalised_terms, prior_slopes
from irtcat.fitting._multi_em import MultiProblem, filled, sums_at
from irtcat.fitting._terms import LINEAR
from irtcat.fitting._ties import spread_of
from irtcat.fitting.em import EMPoint, EMState
from irtcat.fitting.standard_errors import complete_information, score_curves
from irtcat.latent import (
    AdaptiveQuadrature,
    GridQuadrature,
    MultiEStep,
    MultiSums,
    PopulationDesign,
    adaptive_block,
    chain_of,
    grid_posterior,
    item_curves,
    n_nodes,
    part_terms,
    parts_of,
    population_log_density,
    populations_of,
    root_of,
    scores_of,
)
from irtcat.models import ItemModel, unpack

__all__ = ["multi_covariance"]

FULL_WORK = 3e10
"""Maximum number of operations for the full matrix with "auto" (about a second)."""

STEP = 1e-4
"""Step of the central differences."""


def _density_scores(
    vector: Array, theta: Array, design: PopulationDesign
) -> Float[Array, "nodes free"]:
    """Derivative of the log-density at each node by the free numbers of the population."""

    def log_density(free: Array, at: Array) -> Array:
        populations = populations_of(free, design)
        root = populations.root[0]
        z = jax.scipy.linalg.solve_triangular(root, at - populations.mean[0], lower=True)
        return -0.5 * (z**2).sum() - jnp.log(jnp.diagonal(root)).sum()

    return jax.vmap(jax.grad(log_density), (None, 0))(vector, theta)


@functools.partial(jit, static_argnames=("design", "has_missing", "full"))
def _grid_scores(
    point: EMPoint,
    template: ItemModel,
    x: Array,
    weights: Array,
    grid: GridQuadrature,
    chunks: tuple[Array, ...],
    *,
    design: PopulationDesign,
    has_missing: bool,
    full: bool,
) -> tuple[Array, Array]:
    """Posterior covariance of the score, and outer products of its mean, summed over subjects.

    The second is of all parameters if ``full``, else of each item's on their own.
    """
    params = point.params
    n, n_items = x.shape
    n_params, dtype = params.shape[1], params.dtype
    model, n_contrasts = unpack(template, params), template.n_categories - 1
    populations = populations_of(point.population, design)
    chains = chain_of(template, params)
    size = params.size + design.size
    cross_shape = (size, size) if full else (n_items, n_params, n_params)
    carry: Any = jnp.zeros((size, size) if full else (0, 0), dtype), jnp.zeros(cross_shape, dtype)
    for group, rows_of_group in enumerate(chunks):
        theta = populations.mean[group] + grid.nodes @ populations.root[group].T
        curves = item_curves(model, theta)
        slopes = score_curves(template, params, theta)
        by_population = jnp.zeros((len(theta), 0), dtype)
        if full and design.size:
            by_population = _density_scores(point.population, theta, design)

        def body(carry: tuple[Array, Array], rows: Array, node_tables: Any = None) -> Any:
            theta, curves, slopes, by_population = node_tables
            covariance, cross = carry
            safe = jnp.minimum(rows, n - 1)
            statistics, mask = template.sufficient_statistics(
                x[safe], n_contrasts, has_missing, dtype
            )
            answered = jnp.ones_like(statistics[0]) if mask is None else mask
            post = grid_posterior(statistics, mask, curves, grid.log_prior)[0]
            row_weight = jnp.where(rows < n, weights[safe], 0)
            table = jnp.concatenate([answered[None], statistics])
            average = jnp.stack(
                [
                    sum(t * (post @ slopes[:, :, c, p]) for c, t in enumerate(table))
                    for p in range(n_params)
                ],
                -1,
            )
            if not full:
                weighted = average * row_weight[:, None, None]
                return (covariance, cross + jnp.einsum("rjp,rjq->jpq", weighted, average)), None

            def node(carry: Array, at: tuple[Array, ...]) -> tuple[Array, None]:
                p, place, r = at
                basis = jnp.concatenate([jnp.ones_like(place[:1]), place])
                residuals, by_params = [], []
                for part, chain in zip(parts_of(model), chains, strict=True):
                    terms = part_terms(part, place[None], statistics, answered)
                    residuals += terms.residual
                    by_params += [
                        jnp.einsum("a,iap->ip", basis, chain[:, m])
                        for m in range(len(terms.residual))
                    ]
                residual, slope = jnp.stack(residuals, 1), jnp.stack(by_params)
                scaled = residual * (p * row_weight)[:, None, None]
                flat = (len(rows), -1)
                gram = scaled.reshape(flat).T @ residual.reshape(flat)
                gram = gram.reshape(*residual.shape[1:], *residual.shape[1:])
                if len(slope) == 1:
                    items = slope[0][:, :, None, None] * gram[0, :, None, 0, :, None] * slope[0]
                else:
                    half = jnp.einsum("minj,njq->mijq", gram, slope)
                    items = jnp.einsum("mip,mijq->ipjq", slope, half)
                items = items.reshape(params.size, params.size)
                side = jnp.einsum("mi,mip->ip", scaled.sum(0), slope).reshape(-1, 1) * r
                corner = (p @ row_weight) * jnp.outer(r, r)
                return carry + jnp.block([[items, side], [side.T, corner]]), None

            covariance = jax.lax.scan(node, covariance, (post.T, theta, by_population))[0]
            everything = jnp.concatenate(
                [average.reshape(len(rows), -1), post @ by_population], axis=1
            )
            products = everything.T @ (row_weight[:, None] * everything)
            return (covariance - products, cross + products), None

        tables = theta, curves, slopes, by_population
        carry = jax.lax.scan(
            functools.partial(body, node_tables=tables), carry, rows_of_group
        )[0]  # fmt: skip
    return carry


@functools.partial(jit, static_argnames=("design", "has_missing", "full"))
def _adaptive_scores(
    point: EMPoint,
    template: ItemModel,
    x: Array,
    weights: Array,
    rule: AdaptiveQuadrature,
    mean: Array,
    covariance: Array,
    chunks: tuple[Array, ...],
    *,
    design: PopulationDesign,
    has_missing: bool,
    full: bool,
) -> tuple[Array, Array]:
    """`_grid_scores` on adaptive nodes; the second is of all parameters."""
    n, n_items = x.shape
    params, n_contrasts = point.params, template.n_categories - 1
    dtype = params.dtype
    populations = populations_of(point.population, design)
    chains = chain_of(template, params)
    ones = jnp.ones(n_items, dtype)
    n_population = design.size if design.n_groups == 1 else 0
    total = params.size + n_population
    carry: Any = (
        jnp.zeros((total, total) if full else (0, 0), dtype),
        jnp.zeros((total, total), dtype),
    )
    for group, rows_of_group in enumerate(chunks):
        centre, root = populations.mean[group], populations.root[group]
        parts = parts_of(unpack(template, params).rescale(centre, root))

        def body(carry: tuple[Array, Array], rows: Array, tables: Any = None) -> Any:
            parts, centre, root = tables
            score_covariance, outer = carry
            safe = jnp.minimum(rows, n - 1)
            statistics, mask = template.sufficient_statistics(
                x[safe], n_contrasts, has_missing, dtype
            )
            row_weight = jnp.where(rows < n, weights[safe], 0)
            block = adaptive_block(
                parts, statistics, mask, mean[safe], root_of(covariance[safe]), rule, ones
            )
            theta = centre + block.z @ root.T
            score = scores_of(parts, block.terms, chains, theta).reshape(*theta.shape[:2], -1)
            if n_population:
                by_population = _density_scores(
                    point.population, theta.reshape(-1, design.dims), design
                )
                by_population = by_population.reshape(*theta.shape[:2], -1)
                score = jnp.concatenate([score, by_population], axis=2)
            average = jnp.einsum("rq,rqp->rp", block.weight, score)
            products = average.T @ (row_weight[:, None] * average)
            if full:
                weight = (block.weight * row_weight[:, None]).reshape(-1, 1)
                flat = score.reshape(len(weight), -1)
                score_covariance = score_covariance + flat.T @ (weight * flat) - products
            return (score_covariance, outer + products), None

        carry = jax.lax.scan(
            functools.partial(body, tables=(parts, centre, root)), carry, rows_of_group
        )[0]  # fmt: skip
    return carry


def _scores_of_all(
    problem: MultiProblem, point: EMPoint, belief: MultiEStep, full: bool
) -> tuple[Any, Any]:
    """`_grid_scores` or `_adaptive_scores`, summed over the blocks of rows."""
    rule, total = problem.rule, None
    for block in problem.blocks():
        common: Any = point, problem.template, block.x, block.weights, rule
        static: Any = {
            "design": problem.population, "has_missing": problem.has_missing, "full": full,
        }  # fmt: skip
        if rule.is_adaptive:
            n_cells = n_nodes(rule) * point.params.size
            nodes = (filled(array, block, point.params.dtype) for array in belief[:2])
            here = _adaptive_scores(*common, *nodes, problem.chunks(block, n_cells), **static)
        else:
            here = _grid_scores(*common, problem.chunks(block, n_nodes(rule)), **static)
        here = jax.tree.map(np.asarray, here)
        total = here if total is None else jax.tree.map(np.add, total, here)
    assert total is not None
    return total


def _diagonals(values: FloatArray) -> FloatArray:
    """Diagonal matrices from rows of numbers."""
    return values[..., None] * np.eye(values.shape[1])


def _add_blocks(matrix: FloatArray, blocks: FloatArray) -> None:
    """Add the items' blocks on the diagonal, in place."""
    size = blocks.shape[1]
    for j, block in enumerate(blocks):
        at = slice(j * size, (j + 1) * size)
        matrix[at, at] += block


def _population_information(
    problem: MultiProblem, point: EMPoint, sums: MultiSums
) -> Float[np.ndarray, "free free"]:
    """Complete-data information of the free numbers of the population."""
    design = problem.population
    moments = sums.moments(design, problem.rule.n_general)
    hessian = jax.hessian(population_log_density)(point.population, moments, design)
    return -np.asarray(hessian, float)


def _complete(problem: MultiProblem, point: EMPoint, sums: MultiSums) -> FloatArray:
    """Complete-data information of each item's parameters, priors included."""
    if sums.information is not None:
        prior = prior_slopes(point.params, problem.constraints)[1]
        return np.asarray(sums.information, float) + _diagonals(np.asarray(prior, float))
    information = complete_information(
        problem.template, point.params, sums.belief.counts, sums.belief.totals,
        problem.constraints, None, sums.theta,
    )  # fmt: skip
    return np.asarray(information, float)


def _louis(
    problem: MultiProblem, point: EMPoint, sums: MultiSums, score_covariance: FloatArray
) -> FloatArray:
    """Observed information: that of the complete data less the covariance of the score."""
    information = -np.asarray(score_covariance, float)
    _add_blocks(information, _complete(problem, point, sums))
    if problem.population.size:
        n_items = point.params.size
        information[n_items:, n_items:] += _population_information(problem, point, sums)
    return information


def _score(problem: MultiProblem, vector: FloatArray, belief: MultiEStep) -> FloatArray:
    """Gradient of the marginal log-posterior by all parameters, those of the population last."""
    like = problem.constraints.prior_mean
    params = jnp.asarray(vector[: like.size].reshape(like.shape), like.dtype)
    population = jnp.asarray(vector[like.size :], like.dtype)
    mean, covariance = (np.asarray(array, float) for array in (belief.mean, belief.covariance))
    sums = sums_at(problem, EMState(EMPoint(params, population), mean, covariance))
    if sums.gradient is None:
        gradient = penalised_terms(
            problem.template, params, sums.belief.counts, sums.belief.totals, problem.constraints,
            sums.theta,
        )[1]  # fmt: skip
    else:
        gradient = sums.gradient + prior_slopes(params, problem.constraints)[0]
    moments = sums.moments(problem.population, problem.rule.n_general)
    by_population = jax.grad(population_log_density)(population, moments, problem.population)
    return np.concatenate([np.asarray(gradient, float).ravel(), np.asarray(by_population, float)])


def _differenced(
    problem: MultiProblem, point: EMPoint, belief: MultiEStep, free: BoolArray
) -> FloatArray:
    """Minus the derivative of the score; 0 for parameters that are not free."""
    at = np.concatenate(
        [np.asarray(point.params, float).ravel(), np.asarray(point.population, float)]
    )
    information = np.zeros((len(at), len(at)))
    for k in np.flatnonzero(free):
        ends = []
        for sign in (1.0, -1.0):
            moved = at.copy()
            moved[k] += sign * STEP
            ends.append(_score(problem, moved, belief))
        information[k] = -(ends[0] - ends[1]) / (2 * STEP)
    return (information + information.T) / 2


def _work(problem: MultiProblem, n_free: int, by_differences: bool) -> float:
    """Approximate number of operations for the full matrix."""
    n_rows, n_items = len(problem.weights), len(problem.item_weights)
    n_predictors = problem.template.n_categories - 1
    nodes = float(n_nodes(problem.rule)) * problem.population.n_groups
    if problem.rule.is_adaptive:
        if by_differences:
            return 2.0 * n_free * 60 * n_rows * nodes * n_items * n_predictors
        return 2.0 * n_rows * nodes * n_free**2
    if by_differences:
        return 2.0 * n_free * 8 * n_rows * nodes * n_items * n_predictors
    n_params = problem.constraints.lower.shape[0]
    return nodes * (2 * n_rows * (n_items * n_predictors) ** 2 + 3 * (n_items * n_params) ** 2)


def multi_covariance(
    problem: MultiProblem, point: EMPoint, belief: MultiEStep, free: BoolArray, which: str
) -> Covariance:
    """Covariance of each item's parameters and of the population's.

    Args:
        problem: what was fitted.
        point: the estimates.
        belief: the E-step at the estimates.
        free: items x params, the parameters that are identified.
        which: "auto", "full", "block", "sandwich" or "none".
    """
    if which == "none":
        return Covariance()
    rule, design = problem.rule, problem.population
    everyone = problem._replace(item_weights=jnp.ones_like(problem.item_weights))
    shared = problem.constraints.shared
    spread = spread_of(free, problem.step_rule.tied, shared, design.size)
    is_adaptive, two_tier = rule.is_adaptive, rule.n_general > 0
    on_grid = not is_adaptive and not two_tier
    # Observed and expected information of the complete data are equal for these.
    canonical = isinstance(problem.template, LINEAR)
    by_differences = two_tier or design.n_groups > 1 or (is_adaptive and not canonical)
    exact = on_grid or point.params.dtype == np.float64
    work = _work(problem, spread.shape[1], by_differences)
    full = exact and (which in ("full", "sandwich") or (which == "auto" and work <= FULL_WORK))
    louis = full and not by_differences
    scores: Any = None
    if is_adaptive or (on_grid and not (full and by_differences)):
        scores = _scores_of_all(problem, point, belief, louis)
    outer = None if scores is None else np.asarray(scores[1], float)
    information = None
    if louis:
        state = EMState.of(point, belief)
        information = _louis(everyone, point, sums_at(everyone, state), scores[0])
    elif full:
        all_free = np.concatenate([free.ravel(), np.ones(design.size, bool)])
        information = _differenced(everyone, point, belief, all_free)
    n_cells = free.size
    at = np.arange(n_cells).reshape(free.shape)
    meat = None if outer is None or outer.ndim == 3 else outer
    if information is not None and not (which == "sandwich" and meat is None):
        covariance = inverse_of_all(information, spread, meat if which == "sandwich" else None)
        if covariance is not None:
            return Covariance(
                blocks=covariance[at[:, :, None], at[:, None, :]],
                latent=covariance[n_cells:, n_cells:],
                how="full sandwich" if which == "sandwich" else "full",
            )
    if outer is None:
        return Covariance()
    blocks = outer if outer.ndim == 3 else outer[at[:, :, None], at[:, None, :]]
    blocks = blocks + _diagonals(np.asarray(problem.constraints.prior_precision, float))
    covariance = inverse_blocks(blocks, free, ())
    covariance[~free[:, :, None] | ~free[:, None, :]] = np.nan
    return Covariance(blocks=covariance, how="block")
