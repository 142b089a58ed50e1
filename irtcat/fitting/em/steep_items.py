"""The log-likelihood of items that are too steep for the grid of the estimation."""

import numpy as np
from jaxtyping import Array

from irtcat._common.compilation import jit
from irtcat._common.types import FloatArray
from irtcat.fitting.em.driver import Ended
from irtcat.fitting.em.iteration import Problem
from irtcat.models import ItemModel, steepest_slope, unpack
from irtcat.scoring import changes_too_fast, posterior

ROWS = 2**14
"""Number of rows whose posteriors are in memory at a time."""

SAME = 1e-6
"""Relative difference below which two log-likelihoods count as equal."""


@jit
def _rescaled(model: ItemModel, mean: Array, sd: Array) -> ItemModel:
    return model.rescale(mean, sd)


def marginal_log_likelihoods(
    model: ItemModel, x: np.ndarray, has_missing: bool, dtype: np.dtype
) -> FloatArray:
    """Marginal log-likelihood of each row under N(0, 1), on a grid fine enough for the items."""
    starts = range(0, len(x), ROWS)
    blocks = [posterior(model, x[at : at + ROWS], has_missing, dtype).log_z for at in starts]
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
            group_model = _rescaled(model, *np.asarray([mean, sd], problem.dtype))
            after[rows] = marginal_log_likelihoods(
                group_model, x[rows], problem.has_missing, problem.dtype
            )
    rough, exact = (float(np.asarray(problem.weights, float) @ log_z) for log_z in (before, after))
    ended = ended._replace(belief=ended.belief._replace(log_z=after))
    if abs(exact - rough) <= SAME * abs(exact):
        return ended
    note = (
        f"Slopes of up to {steepest_slope(model):.3g} are too steep for the grid of the "
        f"estimates: on a finer grid the log-likelihood is {exact:.3f}, not {rough:.3f}."
    )
    return ended._replace(note=note)
