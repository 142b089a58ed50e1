"""What defines the scale of a fit of one ability, the populations on it, and steep items."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from irtcat._common.compilation import jit
from irtcat._common.types import FloatArray, IntArray
from irtcat.fitting.em.checkpoint import Checkpoint
from irtcat.fitting.em.covariance import Covariance
from irtcat.fitting.em.driver import Ended, Settings, run_em
from irtcat.fitting.em.iteration import em_step
from irtcat.fitting.em.m_step import Constraints, averaged
from irtcat.fitting.em.priors import FAMILIES, PriorTable, scale_columns, ties_fix_the_scale
from irtcat.fitting.em.problem import EMPoint, EMState, Problem
from irtcat.fitting.em.start import Start
from irtcat.fitting.outcome import Outcome
from irtcat.fitting.specification import Progress
from irtcat.latent import LIMIT, ScaleTransform, line_posteriors
from irtcat.models import ItemModel, parameter_matrix, steepest_slope, unpack
from irtcat.scoring import changes_too_fast, posterior

GRID_SDS, NARROWEST = 6.0, 0.3
"""SDs that the grid reaches on either side of a population, and the smallest SD used for it."""

MAX_PLACEMENTS = 5
"""Maximum number of times that the grid is moved and EM is run again."""

MAX_ROUNDS, CLOSE = 30, 1e-4
"""Maximum number of rounds for a population with the items held fixed, and its last step."""

NARROWEST_SD, FARTHEST = 0.05, 5.0
"""Smallest SD and largest mean of a population; beyond these almost all subjects answered alike."""

STEEP_ROWS = 2**14
"""Number of rows of steep items whose posteriors are in memory at a time."""

SAME_LIKELIHOOD = 1e-6
"""Relative difference below which two log-likelihoods count as equal."""


class Latent(NamedTuple):
    """Mean and SD of the population on the scale of the items."""

    mean: float = 0.0
    sd: float = 1.0


def _moved(problem: Problem, point: EMPoint, mean: float, sd: float) -> tuple[Problem, EMPoint]:
    """Items, populations and grid on the scale theta, from the grid's z = mean + sd * theta."""
    transform = _as_transform(-mean / sd, 1 / sd, problem.dtype)
    point = _rescaled(problem.template, point, _as_transform(mean, sd, problem.dtype))
    return problem._replace(rule=problem.rule._replace(transform=transform)), point


def _rescaled(template: ItemModel, point: EMPoint, by: ScaleTransform) -> EMPoint:
    """Items and populations on the scale theta, from the scale z = mean + sd * theta."""
    template, point, (mean, sd) = jax.tree.map(np.asarray, (template, point, by))
    params = parameter_matrix(unpack(template, point.params).rescale(mean, sd))
    means, log_sds = point.population.T
    return EMPoint(params, np.stack([(means - mean) / sd, log_sds - np.log(sd)], 1))


def _by_group(theta: FloatArray, weights: FloatArray, group: IntArray, n: int) -> FloatArray:
    """Mean and log SD of the first guesses in each group."""
    total = np.bincount(group, weights, n)
    mean = np.bincount(group, weights * theta, n) / total
    square = np.bincount(group, weights * theta**2, n) / total
    return np.stack([mean, 0.5 * np.log(np.maximum(square - mean**2, 0.04))], axis=1)


def _as_transform(mean: Any, sd: Any, dtype: np.dtype) -> ScaleTransform:
    return ScaleTransform(*(jax.device_put(np.asarray(value, dtype)) for value in (mean, sd)))


def recentred(problem: Problem, state: EMState, margin: float) -> tuple[Problem, EMState]:
    """Make the grid reach six SDs (times a margin) on either side of every population."""
    mean, log_sd = np.asarray(state.point.population, float).T
    reach = GRID_SDS * margin * np.maximum(np.exp(log_sd), NARROWEST)
    low, high = (mean - reach).min(), (mean + reach).max()
    centre, sd = (low + high) / 2, (high - low) / (2 * LIMIT)
    at, unit = problem.rule.place
    theta, spread = line_posteriors(state.mean, state.covariance)
    moved = EMState.on_line(state.point, (at + unit * theta - centre) / sd, unit * spread / sd)
    transform = _as_transform(centre, sd, problem.dtype)
    return problem._replace(rule=problem.rule._replace(transform=transform)), moved


def above_zero(params: FloatArray, constraints: Constraints) -> FloatArray:
    """First guesses, those of lognormal parameters made positive."""
    if constraints.family is None:
        return params
    lognormal = np.asarray(constraints.family) == FAMILIES.index("lognormal")
    return np.where(lognormal, np.maximum(params, 0.2), params)


def with_ties(params: FloatArray, tied: tuple[int, ...], constraints: Constraints) -> FloatArray:
    """First guesses, made positive where required, and equal where items share a parameter."""
    params = above_zero(params.copy(), constraints)
    return averaged(params, np.ones(params.shape, bool), tied, constraints.shared)


def fixes_the_scale(template: ItemModel, fixed: FloatArray, tied: tuple[int, ...]) -> bool:
    """Whether fixed or equal parameters fix the scale: no latent mean and SD can be removed."""
    known = ~np.isnan(fixed)
    if known.any() and known[:, list(scale_columns(template, np.nan_to_num(fixed)))].any():
        return True
    return ties_fix_the_scale(template, tied)


def is_covered(problem: Problem, point: EMPoint) -> bool:
    """Whether the grid reaches five SDs on either side of every population."""
    if problem.group is None:
        return True
    at, unit = problem.rule.place
    mean, log_sd = np.asarray(point.population, float).T
    ends = np.abs(np.stack([mean, mean]) + np.outer([-5, 5], np.exp(log_sd)) - at)
    return bool((ends <= LIMIT * unit).all())


def start_on_scale(
    problem: Problem,
    start: Start,
    fixed: FloatArray,
    free_scale: bool,
    known: tuple[float, float] | None,
) -> tuple[Problem, EMState]:
    """Problem and first state on the scale of the iterations.

    Args:
        problem: the problem, its grid not yet placed.
        start: first guesses, on the scale of the pooled subjects.
        fixed: parameters that are known; NaN for the others.
        free_scale: whether the scale is that of the pooled subjects until the end (parameter
            expansion); otherwise it is the reference group's, or the anchors'.
        known: mean and SD of the population on the anchors' scale; None without anchors.

    Returns:
        Problem and state; a problem without groups and anchors is unchanged.
    """
    first = np.where(np.isnan(fixed), start.params, fixed)
    if problem.group is None:
        return problem, EMState.on_line(problem.start(first), start.mean, start.sd)
    params = jax.device_put(first.astype(problem.dtype))
    weights, group = np.asarray(problem.weights, float), np.asarray(problem.group)
    population = _by_group(start.mean, weights, group, len(problem.held))
    point = EMPoint(params, jnp.asarray(population, problem.dtype))
    if free_scale:
        return problem, EMState.on_line(point, start.mean, start.sd)
    if known is None:
        problem, point = _with_standard_reference(problem, point)
    else:
        mean, sd = known
        problem, point = _moved(problem, point, -mean / sd, 1 / sd)
    values = np.nan_to_num(fixed).astype(problem.dtype)
    point = point._replace(params=jnp.where(np.isnan(fixed), point.params, values))
    return recentred(problem, EMState.on_line(point, start.mean, start.sd), 1.2)


def run_covered(
    problem: Problem,
    state: EMState,
    settings: Settings,
    progress: Progress | None,
    checkpoint: Checkpoint | None,
) -> tuple[Problem, Ended]:
    """Iterate to convergence on the reported scale, on a grid that reaches every population.

    Where the estimates lie beyond the grid, the grid is moved and EM continues.
    """
    ended = run_em(problem, state, settings, progress, checkpoint)
    if problem.group is not None and problem.rule.transform is None:
        # The scale was that of the pooled subjects: make the first group's population N(0, 1).
        problem, point = _with_standard_reference(problem, ended.point)
        ended = ended._replace(point=point)
    for _ in range(MAX_PLACEMENTS):
        if is_covered(problem, ended.point) or ended.ending.outcome is Outcome.INTERRUPTED:
            break
        problem, state = recentred(problem, EMState.of(ended.point, ended.belief), 1.1)
        continued = run_em(problem, state, settings._replace(expand=False), progress, None)
        used = ended.ending.n_iterations + continued.ending.n_iterations
        ended = continued._replace(ending=continued.ending._replace(n_iterations=used))
    return problem, ended


def _with_standard_reference(problem: Problem, point: EMPoint) -> tuple[Problem, EMPoint]:
    """The scale on which the first group has N(0, 1) by definition, without rounding."""
    mean, log_sd = map(float, np.asarray(point.population)[0])
    problem, point = _moved(problem, point, mean, float(np.exp(log_sd)))
    design = problem.population._replace(first_is_free=False)
    population = np.where(design.estimated, np.asarray(point.population), 0.0)
    return problem._replace(population=design), point._replace(population=population)


def best_latent(problem: Problem, ended: Ended, group: int = 0) -> tuple[float, float]:
    """Latent mean and SD that fit best with the items held fixed, by one Newton step each.

    With theta ~ N(0, s^2) and items fixed, d log L / d log s = sum E[theta^2] - n, and the
    observed information is 2 sum E[theta^2] - sum Var(theta^2) (Louis 1982). With groups, both
    refer to this group, in units of its SD.
    """
    weights = np.asarray(problem.weights, float)
    mean, sd = ended.belief.on_line()
    square_variance = np.asarray(ended.belief.square_variance, float)
    if problem.group is not None:
        at, unit = problem.rule.place
        centre, log_sd = np.asarray(ended.point.population, float)[group]
        mean = (at + unit * mean - centre) * np.exp(-log_sd)
        sd = unit * sd * np.exp(-log_sd)
        square_variance = 4 * mean**2 * sd**2 + 2 * sd**4  # if the posteriors were Normal
        weights = weights * (np.asarray(problem.group) == group)
    return latent_step(weights, mean, sd, square_variance)


def latent_step(
    weights: FloatArray, mean: FloatArray, sd: FloatArray, square_variance: FloatArray
) -> tuple[float, float]:
    """A Newton step from latent mean 0 and SD 1, by the posteriors of subjects.

    Args:
        weights: of the subjects.
        mean: posterior means.
        sd: posterior SDs.
        square_variance: posterior variances of the squares.
    """
    square = weights @ (mean**2 + sd**2)
    information = 2 * square - weights @ square_variance
    shift_information = weights.sum() - weights @ sd**2
    log_sd = (square - weights.sum()) / information if information > 0 else np.nan
    shift = weights @ mean / shift_information if shift_information > 0 else np.nan
    return float(shift), float(np.exp(log_sd))


def reflected(
    params: FloatArray, slopes: tuple[int, ...], covariance: Covariance
) -> tuple[FloatArray, Covariance]:
    """Items on the reversed scale (theta to -theta), with their covariance."""
    sign = np.ones(params.shape[1])
    sign[list(slopes)] = -1.0
    blocks, full, latent = covariance.blocks, covariance.full, covariance.latent
    if blocks is not None:
        blocks = blocks * np.outer(sign, sign)
    if full is not None:
        signs = np.tile(sign, len(params))
        full = full * np.outer(signs, signs)
    if latent is not None:
        n_groups = (len(latent) - len(sign)) // 2
        signs = np.concatenate([sign, np.tile([-1.0, 1.0], n_groups)])
        latent = latent * np.outer(signs, signs)
    return params * sign, covariance._replace(blocks=blocks, full=full, latent=latent)


def populations(
    point: EMPoint, sign: int, covariance: Covariance, common: int | None
) -> tuple[FloatArray, FloatArray]:
    """Mean and SD of each group on the reported scale, and their standard errors.

    Args:
        point: the estimates.
        sign: -1 where the scale is reversed.
        covariance: of the estimates.
        common: column of the slope that becomes 1 (Rasch), if any.

    Returns:
        Both two x groups; a standard error is NaN where the value is not estimated.
    """
    mean, log_sd = np.asarray(point.population, float).T
    factor = 1.0 if common is None else float(point.params[0, common])
    values = np.stack([sign * mean, np.exp(log_sd)], axis=1) * factor
    n_groups, size = len(mean), point.params.shape[1]
    if covariance.latent is None:
        return values.T, np.full_like(values.T, np.nan)
    slopes = np.zeros((2 * n_groups, size + 2 * n_groups))
    slopes[:, size:] = np.diag(np.column_stack([np.full(n_groups, factor), values[:, 1]]).ravel())
    if common is not None:
        slopes[:, common] = values.ravel() / factor
    estimated = np.isfinite(np.diagonal(covariance.latent))
    variance = np.einsum("ij,jk,ik->i", slopes, np.nan_to_num(covariance.latent), slopes)
    has_error = ((slopes != 0) & estimated).any(axis=1) & (variance > 0)
    return values.T, np.sqrt(np.where(has_error, variance, np.nan)).reshape(values.shape).T


def _population(problem: Problem, ended: Ended) -> tuple[Latent, Ended]:
    """Estimate the population where the priors fixed the scale.

    EM for the mean and SD of the abilities with the items held fixed: each round rescales the items
    to the current population. Also returns the E-step under that population.
    """
    latent, first = Latent(), ended
    model = unpack(problem.template, ended.point.params)
    state = EMState.of(ended.point, ended.belief)
    for _ in range(MAX_ROUNDS):
        mean, sd = (jnp.asarray(value, problem.dtype) for value in latent)
        moved = problem.start(parameter_matrix(model.rescale(mean, sd)))
        _, belief = em_step(problem, state._replace(point=moved), 0.1, 0, False)
        ended = ended._replace(belief=belief)
        state = EMState.of(moved, belief)
        new, moved_by = _next_latent(latent, *best_latent(problem, ended))
        if new is None:
            return Latent(), first
        latent = new
        if moved_by < CLOSE:
            break
    return latent, ended


def _group_populations(problem: Problem, ended: Ended) -> tuple[Problem, Ended]:
    """The same of several groups: the population of each, the reference's too."""
    first = problem, ended
    n_groups = problem.population.n_groups
    for _ in range(MAX_ROUNDS):
        mean, log_sd = np.asarray(ended.point.population, float).T
        steps = [
            _next_latent(Latent(m, s), *best_latent(problem, ended, group), np.exp(log_sd).max())
            for group, m, s in zip(range(n_groups), mean, np.exp(log_sd), strict=True)
        ]
        found = np.array([new for new, _ in steps if new is not None])
        if len(found) < n_groups:
            return first
        population = jnp.asarray(
            np.stack([found[:, 0], np.log(found[:, 1])], axis=1), problem.dtype
        )
        point = ended.point._replace(population=population)
        state = EMState.of(point, ended.belief)
        if not is_covered(problem, point):
            problem, state = recentred(problem, state, 1.1)
        update, belief = em_step(problem, state, 0.1, 0, False)
        ended = ended._replace(point=point, belief=belief, update=update)
        if max(moved_by for _, moved_by in steps) < CLOSE:
            break
    return problem, ended


def _next_latent(
    latent: Latent, shift: float, factor: float, widest: float = 1.0
) -> tuple[Latent | None, float]:
    """The population after a step, and its length; None where it is not determined.

    Nearly equal subjects do not determine a population, whose mean may be `FARTHEST` SDs of the
    widest one from 0.
    """
    factor = float(np.clip(factor, 0.5, 2.0))
    new = Latent(latent.mean + latent.sd * shift, latent.sd * factor)
    if not np.isfinite(new).all() or new.sd < NARROWEST_SD or abs(new.mean) > FARTHEST * widest:
        return None, np.inf
    return new, max(abs(shift), abs(factor - 1))


def with_population(
    problem: Problem, ended: Ended, prior: PriorTable, latent: Latent, fixes_scale: bool
) -> tuple[Problem, Ended, Latent]:
    """Count the items that were set aside, and estimate the population that priors have fixed."""
    scaled_by_priors = prior.scaled and (prior.sparse.any() or prior.few_subjects)
    if prior.aside.any():
        state = EMState.of(ended.point, ended.belief)
        update, belief = em_step(problem.of_all_items(), state, 0.1, 0, False)
        ended = ended._replace(belief=belief, update=update)
    elif scaled_by_priors and not fixes_scale and problem.group is None:
        latent, ended = _population(problem, ended)
    elif scaled_by_priors and not fixes_scale:
        problem, ended = _group_populations(problem, ended)
    means, log_sds = np.asarray(ended.point.population, float).T
    population = np.stack([means, np.exp(log_sds)])
    if problem.group is None:
        population = np.array([[latent.mean], [latent.sd]])
    return problem, steep_likelihood(problem, ended, population), latent


@jit
def _on_scale(model: ItemModel, mean: Array, sd: Array) -> ItemModel:
    return model.rescale(mean, sd)


def marginal_log_likelihoods(
    model: ItemModel, x: np.ndarray, has_missing: bool, dtype: np.dtype
) -> FloatArray:
    """Marginal log-likelihood of each row under N(0, 1), on a grid fine enough for the items."""
    starts = range(0, len(x), STEEP_ROWS)
    blocks = [posterior(model, x[at : at + STEEP_ROWS], has_missing, dtype).log_z for at in starts]
    return np.concatenate(blocks)


def steep_likelihood(problem: Problem, ended: Ended, population: FloatArray) -> Ended:
    """Recompute the log-likelihoods where items are steep, with a note where the total changes.

    The E-step interpolates between nodes that are close enough for ordinary items. Where items
    are steeper, the log-likelihoods are integrated once more on a finer grid.

    Args:
        problem: what was fitted, its responses in memory.
        ended: where the iterations stopped.
        population: mean and SD of the abilities that ``ended`` is for, two x groups.
    """
    model = unpack(problem.template, np.asarray(ended.point.params))
    if problem.x is None or not changes_too_fast(model):
        return ended
    x = np.asarray(problem.x)
    group = np.zeros(len(x), int) if problem.group is None else np.asarray(problem.group)
    before = np.asarray(ended.belief.log_z, float)
    after = before.copy()
    for number, (mean, sd) in enumerate(population.T):
        rows = np.flatnonzero(group == number)
        if len(rows):
            group_model = _on_scale(model, *np.asarray([mean, sd], problem.dtype))
            after[rows] = marginal_log_likelihoods(
                group_model, x[rows], problem.has_missing, problem.dtype
            )
    rough, exact = (float(np.asarray(problem.weights, float) @ log_z) for log_z in (before, after))
    ended = ended._replace(belief=ended.belief._replace(log_z=after))
    if abs(exact - rough) <= SAME_LIKELIHOOD * abs(exact):
        return ended
    note = (
        f"Slopes of up to {steepest_slope(model):.3g} are too steep for the grid of the "
        f"estimates: on a finer grid the log-likelihood is {exact:.3f}, not {rough:.3f}."
    )
    return ended._replace(note=note)
