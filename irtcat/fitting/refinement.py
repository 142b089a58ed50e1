"""Iterations of several abilities: the first quadrature, and finer ones where it is too coarse."""

import jax
import jax.numpy as jnp
import numpy as np
import scipy

from irtcat._common.types import BoolArray, FloatArray
from irtcat.fitting.em.driver import Ended, checkpoint_of, loop_settings, named_settings, run_em
from irtcat.fitting.em.iteration import em_step
from irtcat.fitting.em.problem import EMPoint, EMState, Problem, sums_at
from irtcat.fitting.outcome import Outcome
from irtcat.fitting.workspace import Workspace, modes_of, slopes_by_item
from irtcat.latent import (
    AdaptiveQuadrature,
    Populations,
    Quadrature,
    adaptive_quadrature,
    is_adaptive,
    n_nodes,
    narrowest_sd,
    population_numbers,
    populations_of,
)
from irtcat.models import ItemModel, field_columns

REFINEMENTS = 4
"""Maximum number of quadratures: EM is run again where the nodes prove too coarse."""

ROOM = 1.15
"""Lines of nodes that were fine enough at the start stay, where the last posteriors are narrower by
up to this factor, as abilities correlate (the error is then 3e-7 of a likelihood), or slopes are
steeper than the first ones: other nodes would take another program, and many iterations."""

AHEAD = 0.6
"""Where the population becomes as narrow as the spacing of the lines, the next ones are made for a
population narrower by this factor."""

ADAPTIVE_NOISE = 5e-6
"""Adaptive nodes move with the posteriors, and the objective changes by their error (relative)."""


def _steepest(template: ItemModel, params: FloatArray) -> float:
    slopes = slopes_by_item(template, params)
    if slopes.shape[2] > 1:
        slopes = np.diff(slopes, axis=2, prepend=0.0)
    return float(np.quantile(np.abs(slopes).max(axis=(1, 2)), 0.9))


def _first_quadrature(
    work: Workspace, params: FloatArray, population: FloatArray
) -> tuple[float | AdaptiveQuadrature, FloatArray, FloatArray]:
    """The first quadrature (or its spacing), and the posteriors that it was chosen for."""
    dims, chosen = work.design.dims, None
    work.integrate_by_lines(params)
    if work.specification.solver.nodes is not None:
        chosen = work.choose(1.0, 1.0)
    if isinstance(chosen, float):  # the spacing of a given grid does not depend on the posteriors
        return chosen, np.zeros((0, dims)), np.zeros((0, dims, dims))
    mean, covariance = modes_of(work, params)
    steepest = _steepest(work.full_template, params) * (ROOM if work.is_product else 1.0)
    chosen = work.choose(work.narrowest(covariance, population), steepest)
    if work.is_reduced and not isinstance(chosen, float):
        work.integrate_together()
    work.is_product &= isinstance(chosen, float)
    return chosen, mean, covariance


def _next_quadrature(
    work: Workspace, rule: Quadrature, ended: Ended, is_first: bool
) -> tuple[float | AdaptiveQuadrature, bool]:
    """The quadrature for the posteriors at the end of the iterations; whether ``rule`` will do."""
    stopped, population = ended.ending.outcome is Outcome.TOO_COARSE, ended.point.population
    spread = work.narrowest(np.asarray(ended.belief.covariance, float), population)
    if work.is_product:
        narrowest = work.narrowest_population(population)
        spread = min(ROOM * spread, narrowest * AHEAD) if stopped else ROOM * spread
    params = work.widen(np.asarray(ended.point.params, float))
    steepest = _steepest(work.full_template, params)
    finer = work.choose(spread, steepest)
    fails = not isinstance(finer, float) or (stopped and (not is_first or finer >= rule.spacing))
    if work.is_product and fails:
        # Abilities are correlated too strongly: narrow on their own scales, not on scale z.
        work.is_product = False
        return work.choose(narrowest_sd(np.asarray(ended.belief.covariance)), steepest), False
    if is_adaptive(rule):
        return finer, True
    if not isinstance(finer, float):
        return finer, work.is_reduced  # the iterated items have no other quadrature
    return finer, n_nodes(work.rule(finer)) <= n_nodes(rule)


def iterate(work: Workspace, params: FloatArray, population: FloatArray) -> tuple[Problem, Ended]:
    """Run EM; refine the quadrature and continue where it proves too coarse for the posteriors.

    Each quadrature is a separate turn for the checkpoint, which records the turn.
    """
    solver = work.specification.solver
    chosen, mean, covariance = _first_quadrature(work, params, population)
    point = EMPoint(
        jnp.asarray(work.shrink(params), work.dtype), jnp.asarray(population, work.dtype)
    )
    start = state = EMState(point, mean, covariance)
    step_rule = work.step_rule
    first, used = 0, 0
    problem = work.problem(work.rule(chosen), step_rule)
    checkpoint = checkpoint_of(problem, work.rows, solver, {}, work.design.pattern)
    saved = {} if checkpoint is None or not checkpoint.saved else checkpoint.saved[0]["settings"]
    if "turn" in saved:
        first, used, work.is_product = saved["turn"], saved["used"], saved["lines"]
        chosen = saved["spacing"] or adaptive_quadrature(work.design.dims, solver.nodes)
    for turn in range(first, REFINEMENTS):
        rule = work.rule(chosen)
        problem = work.problem(rule, step_rule)
        settings = loop_settings(
            solver,
            str(work.dtype),
            step_rule.lengthen or step_rule.rescale,
            ADAPTIVE_NOISE if is_adaptive(rule) else 0.0,
        )
        left = settings._replace(max_iterations=max(1, settings.max_iterations - used))
        if checkpoint is not None:
            named = (
                step_rule._asdict()
                | work.population._asdict()
                | {
                    "model": work.template.key,
                    "tied": list(problem.tied),
                    "turn": turn,
                    "used": used,
                    "nodes": solver.nodes,
                    "lines": work.is_product,
                    "spacing": chosen if isinstance(chosen, float) else None,
                }
            )
            named = named_settings(problem, settings, **named)
            checkpoint.identity = checkpoint.identity._replace(settings=named)
        ended = run_em(problem, state, left, work.specification.progress, checkpoint)
        used += ended.ending.n_iterations
        if checkpoint is not None:
            checkpoint.saved = None  # the next turn starts from its own state
        outcome = ended.ending.outcome
        chosen, good = _next_quadrature(work, rule, ended, turn == 0)
        good |= turn + 1 == REFINEMENTS or outcome is Outcome.INTERRUPTED
        if good or used >= solver.max_iterations:
            break
        stopped = outcome is Outcome.TOO_COARSE
        state = start if stopped else EMState.of(ended.point, ended.belief)
    return problem, ended._replace(ending=ended.ending._replace(n_iterations=used))


CHECK_WORK = 4e9
"""Maximum of adaptive nodes x responses for the finer ones that estimate the integration error."""


def finer_log_likelihood(work: Workspace, problem: Problem, ended: Ended) -> float:
    """The log-likelihood by twice as many nodes (NaN where that would be slow).

    The other half of the nodes of a grid is the same grid moved by half of its spacing along every
    axis, where the leading errors have the other sign; it takes the same program as the iterations.
    """
    rule, weights = problem.rule, work.rows.weights
    state, everyone = EMState.of(ended.point, ended.belief), problem.of_all_items()
    if not is_adaptive(rule):
        moved = sums_at(everyone._replace(rule=rule.shifted()), state).belief
        both = np.logaddexp(*(np.asarray(at.log_z, float) for at in (ended.belief, moved)))
        return float(weights @ (both - np.log(2)))
    nodes = work.specification.solver.nodes
    fine = work.rule(adaptive_quadrature(work.design.dims, nodes, finer=True))
    if float(n_nodes(fine)) * np.prod(work.rows.shape) > CHECK_WORK:
        return np.nan
    belief = sums_at(everyone._replace(rule=fine), state).belief
    return float(weights @ np.asarray(belief.log_z, float))


def identified(
    work: Workspace, params: FloatArray, populations: Populations
) -> tuple[FloatArray, Populations, BoolArray]:
    """Identified axes: echelon form without a pattern, directed towards more right answers.

    Without a pattern the axes are rotated so that one item has slope 0 on all but the first, a
    second one on all but the first two, and so on; the items are the most informative ones (pivoted
    QR), so that the constraint costs no precision.

    Returns:
        Parameters, populations, and the mask of the slopes that are not held at 0.
    """
    template = work.full_template
    columns = list(field_columns(template, ["slope"]))
    slopes = slopes_by_item(template, params)
    dims, n_steps = slopes.shape[1:]
    pattern = np.repeat(work.design.pattern[:, :, None] != 0, n_steps, axis=2)
    mean, covariance = (
        np.asarray(part, float) for part in (populations.mean, populations.covariance)
    )
    turn = np.eye(dims)
    if work.design.exploratory:
        by_row = np.moveaxis(slopes, 1, 2).reshape(-1, dims)
        turn, _, pivots = scipy.linalg.qr(by_row.T, pivoting=True, mode="economic")
        for k in range(dims):
            item, step = divmod(int(pivots[k]), n_steps)
            pattern[item, k + 1 :, step] = False
    slopes = np.where(pattern, np.einsum("jds,de->jes", slopes, turn), 0.0)
    sign = np.where(slopes.sum(axis=(0, 2)) < 0, -1.0, 1.0)
    sign = sign if work.setup.has_free_scale else np.ones(dims)
    turn = turn * sign
    params = params.copy()
    params[:, columns] = (slopes * sign[:, None]).reshape(len(params), -1)
    mean, covariance = mean @ turn, turn.T @ covariance @ turn
    root = np.linalg.cholesky(covariance)  # numpy: used outside of the precision too
    return (params, Populations(mean, root), pattern.reshape(len(params), -1))


def at_identified(
    work: Workspace, problem: Problem, params: FloatArray, populations: Populations, ended: Ended
) -> Ended:
    """The E-step at the identified parameters with all items, including those set aside."""
    dtype = problem.weights.dtype
    mean, covariance = (
        np.asarray(part, dtype) for part in (populations.mean, populations.covariance)
    )
    numbers = population_numbers(mean, covariance, work.population)
    everyone = problem.of_all_items()
    state = EMState.of(EMPoint(jnp.asarray(params, dtype), numbers), ended.belief)
    if is_adaptive(problem.rule):
        # The axes may have been rotated: place the nodes again.
        numpy = jax.tree.map(np.asarray, populations_of(numbers, work.design.dims))
        state = EMState(state.point, *modes_of(work, params, numpy))
        state = EMState.of(state.point, sums_at(everyone, state).belief)
    update, belief = em_step(everyone, state, 0.0, 0, False)
    return ended._replace(point=state.point, update=update, belief=belief)
