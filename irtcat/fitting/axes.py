"""Identified axes of several abilities, and the standard scale of a density."""

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
import scipy

from irtcat._common.types import BoolArray, FloatArray
from irtcat.fitting.em.density import density_table
from irtcat.fitting.em.driver import Ended
from irtcat.fitting.em.iteration import em_step
from irtcat.fitting.em.problem import EMPoint, EMState, Problem, sums_at
from irtcat.fitting.workspace import Workspace, modes_of, slopes_by_item
from irtcat.latent import Density, GridQuadrature, Populations, population_numbers, populations_of
from irtcat.models import field_columns, pack, unpack


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
    if problem.rule.is_adaptive:
        # The axes may have been rotated: place the nodes again.
        numpy = jax.tree.map(np.asarray, populations_of(numbers, work.design.dims))
        state = EMState(state.point, *modes_of(work, params, numpy))
        state = EMState.of(state.point, sums_at(everyone, state).belief)
    update, belief = em_step(everyone, state, 0.0, 0, False)
    return ended._replace(point=state.point, update=update, belief=belief)


def at_standardised(
    problem: Problem, density: Density, ended: Ended, free_scale: bool
) -> tuple[Problem, Ended, pd.DataFrame]:
    """The E-step with the items and the density on the scale where its mean is 0 and its SD 1.

    Where fixed or equal parameters or priors fix the scale it stays, as they would not hold.
    """
    free = np.asarray(ended.point.population, float)
    curve, mean, sd = density_table(density, free, free_scale)
    dtype = problem.weights.dtype
    nodes = jnp.asarray(curve["theta"].to_numpy()[:, None], dtype)
    rule = GridQuadrature(nodes, problem.rule.log_prior)
    model = unpack(problem.template, ended.point.params)
    params = pack(model.rescale(jnp.asarray(mean, dtype), jnp.asarray(sd, dtype)))
    everyone = problem.of_all_items()._replace(rule=rule)
    point = EMPoint(params, jnp.zeros((1, 2), dtype))
    state = EMState.of(point, ended.belief)
    update, belief = em_step(everyone, state, 0.0, 0, False)
    return everyone, ended._replace(point=point, update=update, belief=belief), curve
