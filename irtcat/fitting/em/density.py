"""EM with a latent density that is estimated: one ability, on a grid."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd

from irtcat._common.types import FloatArray
from irtcat.fitting.em.iteration import EMUpdate, em_step
from irtcat.fitting.em.problem import EMPoint, EMState, Problem
from irtcat.latent import Density, EStep, GridQuadrature, log_likelihoods
from irtcat.models import parameter_matrix, take, unpack

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


def density_table(
    density: Density, free: FloatArray, free_scale: bool
) -> tuple[pd.DataFrame, float, float]:
    """The density on the scale where its mean is 0 and its SD 1; and both on the former scale.

    Where the scale is not free, the density stays where it is.
    """
    mean, sd = density.standardised(free) if free_scale else (0.0, 1.0)
    p = np.exp(density.log_probabilities(free))
    return pd.DataFrame({"theta": (density.nodes - mean) / sd, "probability": p}), mean, sd
