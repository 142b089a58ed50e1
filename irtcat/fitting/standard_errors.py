"""Standard errors from the observed information (Louis 1982), and the sandwich.

The information in the observed responses is that of complete data less the missing information, as
abilities are not observed:

    I = E[-d2 l / d phi2] - sum_i Var_i(score_i),

expectations under each subject's posterior. Where the matrix of all parameters has a moderate size
it is formed and inverted ("full"), including the groups' means and log SDs. On longer tests the
missing information is small and of known form, and each item's block is inverted separately
("block"): the item's missing information by a first-order expansion around the posterior mean, plus
the uncertainty of the latent mean and SD (variances 1/n and 1/(2n) of the population that defines
the scale), which all items share.

The sandwich ``I^-1 (sum_i s_i s_i') I^-1``, s_i the subject's expected score, is valid also where
the model is wrong (White 1982): for all parameters where affordable, else block by block.
"""

import functools

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from irtcat._compile import jit
from irtcat._types import FloatArray
from irtcat.fitting._covariance import Covariance, inverse_of_all
from irtcat.fitting._mstep import Constraints, penalised_terms, prior_information, prior_slopes
from irtcat.fitting._terms import LINEAR
from irtcat.fitting._ties import spread_of
from irtcat.fitting.em import EMPoint, EMProblem
from irtcat.latent import (
    Blocks,
    EStep,
    Population,
    ScaleTransform,
    grid_nodes,
    on_grid_scale,
    posterior_on_grid,
    row_priors,
    transformed_nodes,
)
from irtcat.models import ItemModel, as_points, unpack

__all__ = [
    "FULL_WORK",
    "complete_information",
    "full_covariance",
    "is_affordable",
    "missing_information",
    "score_curves",
]

FULL_WORK = 3e10
"""Maximum of rows x nodes x params^2 for the full matrix (about a second)."""


def is_affordable(n_rows: int, n_params: int) -> bool:
    """Whether the full information matrix takes about a second at most."""
    return n_rows * grid_nodes(np.dtype("float32")).shape[0] * float(n_params) ** 2 <= FULL_WORK


@jit
def complete_information(
    template: ItemModel,
    params: Array,
    counts: Array,
    totals: Array,
    constraints: Constraints,
    transform: ScaleTransform | None,
    line: Array | None = None,
) -> Float[Array, "items params params"]:
    """-E[second derivative] of each item's complete-data log-posterior.

    Counts and totals belong to the nodes ``line``, by default to those of the grid.
    """
    line = transformed_nodes(transform, params.dtype) if line is None else line
    eye = jnp.eye(params.shape[1], dtype=params.dtype)
    curvature = prior_slopes(params, constraints)[1]
    if isinstance(template, LINEAR):
        information = penalised_terms(template, params, counts, totals, constraints, line)[2]
        return information + (curvature - prior_information(params, constraints))[..., None] * eye
    nodes = as_points(line)

    def objective(phi: Array, item: ItemModel, counts: Array, totals: Array) -> Array:
        natural = jax.vmap(unpack(item, phi).natural)(nodes)
        return (jnp.concatenate([totals[None], counts]).T * natural).sum()

    in_axes = (0, 0, -1, None if totals.ndim == 1 else -1)
    hessian = jax.vmap(jax.hessian(objective), in_axes)(params, template, counts, totals)
    return -hessian + curvature[..., None] * eye


def score_curves(
    template: ItemModel, params: Array, nodes: Array
) -> Float[Array, "nodes items one_and_contrasts params"]:
    """Derivative of the natural curves of all items at the nodes."""

    def curve(phi: Array, item: ItemModel) -> Array:
        return jax.vmap(unpack(item, phi).natural)(as_points(nodes))

    return jnp.moveaxis(jax.vmap(jax.jacfwd(curve))(params, template), 0, 1)


def _population_scores(population: Population, rows: Array, theta: Array) -> Array:
    """Derivatives of each row's log population density by all groups' means and log SDs."""
    group = population.group[rows]
    z = (theta - population.mean[group]) * jnp.exp(-population.log_sd[group])
    membership = jax.nn.one_hot(group, len(population.mean), dtype=z.dtype)
    by_mean = z * jnp.exp(-population.log_sd[group])
    return jnp.concatenate(
        [membership * by_mean[:, None], membership * (z**2 - 1)[:, None]], axis=1
    )


@functools.partial(jit, static_argnames=("window", "has_missing"))
def missing_information(
    template: ItemModel,
    params: Array,
    x: Array,
    weights: Array,
    wide: Blocks | None,
    narrow: Blocks | None,
    population: Population | None,
    transform: ScaleTransform | None,
    *,
    window: int,
    has_missing: bool,
) -> tuple[Float[Array, "all all"], Float[Array, "all all"]]:
    """Sums over subjects of the posterior covariance of the score, and of its mean's square.

    All parameters together: those of the items, then the groups' means and log SDs.
    """
    n_subjects, n_items = x.shape
    n_params = params.shape[1]
    total = n_items * n_params + (0 if population is None else 2 * len(population.mean))
    model, prior_of = on_grid_scale(unpack(template, params), population, transform)
    nodes = transformed_nodes(transform, params.dtype)
    curves = score_curves(template, params, nodes)
    n_nodes = curves.shape[0]

    def rows_scores(
        statistics: Array, mask: Array | None, safe: Array, at: Array, theta: Array
    ) -> Array:
        first = at[:, 0] if mask is None else mask[..., None] * at[:, 0]
        score = first + sum(h[..., None] * at[:, k + 1] for k, h in enumerate(statistics))
        flat = jnp.broadcast_to(score, (*statistics[0].shape, n_params)).reshape(len(safe), -1)
        if population is None:
            return flat
        return jnp.concatenate([flat, _population_scores(population, safe, theta)], axis=1)

    def block(
        carry: tuple[Array, Array], rows: Array, first: Array, local: bool
    ) -> tuple[Array, Array]:
        safe = jnp.minimum(rows, n_subjects - 1)
        statistics, mask = model.sufficient_statistics(
            x[safe], curves.shape[2] - 1, has_missing, params.dtype
        )
        prior = row_priors(prior_of, safe)
        post = posterior_on_grid(model, statistics, mask, first, window, local, prior)
        row_weight = jnp.where(rows < n_subjects, weights[safe], 0)

        def node(state: tuple[Array, Array], g: Array) -> tuple[tuple[Array, Array], None]:
            gram, average = state
            at = jnp.minimum(first + g, n_nodes - 1)
            score = rows_scores(statistics, mask, safe, curves[at], nodes[at])
            p = post[:, g]
            return (
                gram + score.T @ ((row_weight * p)[:, None] * score),
                average + p[:, None] * score,
            ), None

        start = (carry[0], jnp.zeros((rows.shape[0], total), params.dtype))
        steps = jnp.arange(post.shape[1], dtype=jnp.int32)
        (gram, average), _ = jax.lax.scan(node, start, steps)
        outer = average.T @ (row_weight[:, None] * average)
        return gram - outer, carry[1] + outer

    zero = jnp.zeros((total, total), params.dtype)
    out = (zero, zero)
    for blocks, local in ((wide, False), (narrow, True)):
        if blocks is None:
            continue

        def body(carry: tuple[Array, Array], block_: tuple[Array, Array], local: bool = local):
            rows, first = block_
            used = rows[0] < n_subjects
            return jax.lax.cond(
                used, lambda c: block(c, rows, first, local), lambda c: c, carry
            ), None

        out = jax.lax.scan(body, out, (blocks.rows, blocks.first))[0]
    return out


def _distinct(problem: EMProblem, n_latent: int) -> FloatArray:
    """`spread_of` with the population's parameters appended, for estimated parameters only."""
    free = np.asarray(problem.constraints.free)
    spread = spread_of(free, problem.tied, problem.constraints.shared)
    if n_latent == 0:
        return spread
    estimated = np.eye(n_latent)[:, np.tile(~np.asarray(problem.held), 2)]
    lower = np.concatenate([np.zeros((n_latent, spread.shape[1])), estimated], axis=1)
    upper = np.concatenate([spread, np.zeros((len(spread), estimated.shape[1]))], axis=1)
    return np.concatenate([upper, lower])


def _population_information(problem: EMProblem, point: EMPoint, belief: EStep) -> FloatArray:
    """Complete-data information of the groups' means and log SDs."""
    mean, log_sd = np.asarray(point.population, float)
    theta, sd = np.asarray(belief.mean, float), np.asarray(belief.sd, float)
    if problem.transform is not None:
        at, unit = (float(value) for value in problem.transform)
        theta, sd = at + unit * theta, unit * sd
    group, weights = np.asarray(problem.group), np.asarray(problem.weights, float)
    z = (theta - mean[group]) * np.exp(-log_sd[group])
    square = z**2 + (sd * np.exp(-log_sd[group])) ** 2
    n, first, second = (
        np.bincount(group, weights * value, len(mean)) for value in (np.ones_like(z), z, square)
    )
    precision = np.exp(-log_sd)
    cross = np.diag(2 * first * precision)
    return np.block([[np.diag(n * precision**2), cross], [cross, np.diag(2 * second)]])


def full_covariance(
    problem: EMProblem, point: EMPoint, belief: EStep, sandwich: bool = False
) -> Covariance | None:
    """Covariance of all parameters together.

    Args:
        problem: the fitted problem.
        point: the estimates.
        belief: the E-step at the estimates.
        sandwich: whether to use the sandwich, which is robust to a wrong model.

    Returns:
        The covariances; None if the information is not positive definite.
    """
    params = point.params
    mean, sd = np.asarray(belief.mean, float), np.asarray(belief.sd, float)
    population = None
    if problem.group is not None:
        population = Population(point.population[0], point.population[1], problem.group)
    if problem.engine is None:
        layout = problem.plan.layout(mean, sd)
        score_covariance, outer = missing_information(
            problem.template,
            params,
            problem.x,
            problem.weights,
            layout.wide,
            layout.narrow,
            population,
            problem.transform,
            window=layout.window,
            has_missing=problem.has_missing,
        )
    else:
        score_covariance, outer = problem.engine.missing_information(problem, params, mean, sd)
    blocks = np.asarray(
        complete_information(
            problem.template, params, belief.counts, belief.totals, problem.constraints,
            problem.transform,
        ),
        float,
    )  # fmt: skip
    n_items, n_params = params.shape
    information = -np.asarray(score_covariance, float)
    for j, block in enumerate(blocks):
        columns = slice(j * n_params, (j + 1) * n_params)
        information[columns, columns] += block
    size = n_items * n_params
    if population is not None:
        information[size:, size:] += _population_information(problem, point, belief)
    spread = _distinct(problem, len(information) - size)
    full = inverse_of_all(information, spread, np.asarray(outer, float) if sandwich else None)
    if full is None:
        return None
    at = np.arange(size).reshape(n_items, n_params)
    blocks = full[at[:, :, None], at[:, None, :]]
    latent_columns = np.r_[at[0], size : len(full)]
    latent = None if population is None else full[np.ix_(latent_columns, latent_columns)]
    how = "full sandwich" if sandwich else "full"
    return Covariance(blocks=blocks, full=full[:size, :size], latent=latent, how=how)
