"""EM with a latent density that is estimated: one ability, on a grid."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd

from irtcat._common.types import FloatArray
from irtcat.fitting.em.driver import Ended, checkpoint_of, loop_settings, named_settings, run_em
from irtcat.fitting.em.iteration import EMUpdate, em_step
from irtcat.fitting.em.problem import EMPoint, EMState, Problem
from irtcat.fitting.workspace import Workspace
from irtcat.latent import Density, EStep, GridQuadrature, log_likelihoods
from irtcat.models import pack, parameter_matrix, take, unpack

HISTOGRAM_TOLERANCE = 0.005
"""Default tolerance with an empirical histogram, in standard errors: hundreds of further iterations
raise the log-likelihood by less than .2 (1,200 subjects, 15 items, two modes), by spikes."""

INNER_STEPS = 50
"""Steps of a histogram's probabilities in each iteration."""

LEVEL_GAP = 1.0
"""A histogram is at its maximum, given the items, within this log-likelihood (a bound)."""


def with_density(problem: Problem, density: Density, free: Any) -> Problem:
    """The problem with the nodes' probabilities at these free numbers."""
    log_prior = density.log_probabilities(np.asarray(free, float))
    dtype = problem.weights.dtype
    nodes = jnp.asarray(density.nodes[:, None], dtype)
    return problem._replace(rule=GridQuadrature(nodes, jnp.asarray(log_prior, dtype)))


def density_map(density: Density, tolerance: float) -> Any:
    """The EM map of items and density, for `irtcat.fitting.em.driver.run_em`.

    The point's population holds the free numbers of the density.
    """

    def step_map(
        problem: Problem, state: EMState, slack: float, n_steps: int, expand: bool
    ) -> tuple[EMUpdate, EStep]:
        free = np.asarray(state.point.population, float)
        here = with_density(problem, density, free)
        standard = np.zeros((1, 2), problem.weights.dtype)
        items = state._replace(point=state.point._replace(population=standard))
        update, belief = em_step(here, items, slack, n_steps, expand)
        mass = np.asarray(belief.mass, float)
        if not density.degree:
            mass = _settled(here, items, mass)
        new, mean, sd = density.fitted(free, mass, False)
        step = _density_step(density, free, new, mass, tolerance)
        dtype = problem.weights.dtype
        plain = EMPoint(update.plain.params, np.asarray(new, dtype))
        image = plain
        if expand and density.degree:
            new, mean, sd = density.fitted(new, mass, True)
            template, c = jax.tree.map(np.asarray, (problem.template, problem.constraints))
            model = unpack(template, update.plain.params)
            moved = parameter_matrix(model.rescale(dtype.type(mean), dtype.type(sd)))
            params = np.where(c.free, np.clip(moved, c.lower, c.upper), moved)
            image = EMPoint(params, np.asarray(new, dtype))
            step = max(step, float(np.sqrt(mass.sum())) * max(abs(mean), abs(sd - 1)))
        metric = np.full_like(plain.population, mass.sum() if density.degree else 0.0)
        return EMUpdate(
            point=image,
            plain=plain,
            step=max(update.step, step),
            gain=update.gain,
            metric=EMPoint(update.metric.params, metric),
            log_prior=update.log_prior,
        ), belief

    return step_map


def _settled(problem: Problem, state: EMState, mass: FloatArray) -> FloatArray:
    """Expected numbers of subjects after further EM steps of the nodes' probabilities alone.

    These converge slowly, and cost little: products with the likelihoods at the nodes.
    """
    nodes: Any = problem.rule.nodes
    # As in the E-step, items that were set aside say nothing of the abilities.
    counting = np.flatnonzero(np.asarray(problem.item_weights))
    model = take(unpack(problem.template, state.point.params), counting)
    n, held = mass.sum(), mass > 0  # a node without subjects stays without any
    blocks = []
    for block in problem.blocks():
        x = block.x[:, counting]
        log_lik = np.asarray(log_likelihoods(model, x, nodes, problem.has_missing), float)
        log_lik = log_lik[:, held]
        likelihood = np.exp(log_lik - log_lik.max(axis=1, keepdims=True))
        blocks.append((likelihood, np.asarray(block.weights, float)))
    p = mass[held] / n
    for _ in range(INNER_STEPS):
        total = sum(p * ((w / (likelihood @ p)) @ likelihood) for likelihood, w in blocks)
        p = total / n
    settled = np.zeros(len(mass))
    settled[held] = n * p
    return settled


def _density_step(
    density: Density, free: FloatArray, new: FloatArray, mass: FloatArray, tolerance: float
) -> float:
    """Size of the step of the density, on the scale where items step in standard errors.

    Of a Davidian curve from the gain of the expected log-density, of a histogram from the bound of
    the log-likelihood's distance from its maximum given the items (it is concave in the
    probabilities).
    """
    n = mass.sum()
    old = density.log_probabilities(free)
    if density.degree:
        gain = float(mass @ (density.log_probabilities(new) - old))
        return float(np.sqrt(2 * max(gain, 0.0)))
    held = mass > 0  # nodes whose probability underflows to 0 have no subjects
    gap = n * max(float(np.expm1(np.log(mass[held] / n) - old[held]).max()), 0.0)
    return tolerance * gap / LEVEL_GAP


def iterate_density(work: Workspace, density: Density, params: FloatArray) -> tuple[Problem, Ended]:
    """Run EM of the items and of a density on its fixed nodes."""
    solver, name = work.specification.solver, work.specification.density
    step_rule = work.step_rule._replace(lengthen=False, rescale=False)
    start = density.start()
    problem = with_density(work.problem(work.rule(1.0), step_rule), density, start)
    settings = loop_settings(solver, str(work.dtype), work.expands)
    if solver.tolerance is None and not density.degree:
        settings = settings._replace(tolerance=HISTOGRAM_TOLERANCE)
    named = {"model": work.template.key, "density": name, "nodes": len(density.nodes)}
    named = named_settings(problem, settings, **named)
    checkpoint = checkpoint_of(problem, work.rows, solver, named, work.design.pattern)
    point = EMPoint(jnp.asarray(params, work.dtype), jnp.asarray(start, work.dtype))
    n_rows = work.rows.shape[0]
    state = EMState(point, np.zeros((n_rows, 1)), np.ones((n_rows, 1, 1)))
    step_map = density_map(density, settings.tolerance)
    ended = run_em(problem, state, settings, work.specification.progress, checkpoint, step_map)
    return with_density(problem, density, np.asarray(ended.point.population)), ended


def at_standardised(
    problem: Problem, density: Density, ended: Ended, free_scale: bool
) -> tuple[Problem, Ended, pd.DataFrame]:
    """The E-step with the items and the density on the scale where its mean is 0 and its SD 1.

    Where fixed or equal parameters or priors fix the scale it stays, as they would not hold.
    """
    free = np.asarray(ended.point.population, float)
    mean, sd = density.standardised(free) if free_scale else (0.0, 1.0)
    p = np.exp(density.log_probabilities(free))
    curve = pd.DataFrame({"theta": (density.nodes - mean) / sd, "probability": p})
    dtype = problem.weights.dtype
    nodes = jnp.asarray(curve["theta"].to_numpy()[:, None], dtype)
    rule = GridQuadrature(nodes, problem.rule.log_prior)
    model = unpack(problem.template, ended.point.params)
    params = pack(model.rescale(jnp.asarray(mean, dtype), jnp.asarray(sd, dtype)))
    everyone = problem.of_all_items()._replace(rule=rule)
    point = EMPoint(params, jnp.zeros((1, 2), dtype))
    update, belief = em_step(everyone, EMState.of(point, ended.belief), 0.0, 0, False)
    return everyone, ended._replace(point=point, update=update, belief=belief), curve
