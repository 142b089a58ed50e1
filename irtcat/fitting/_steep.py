"""The log-likelihood of items steeper than the grid that they were estimated on is fine."""

import numpy as np
from jaxtyping import Array

from irtcat._compile import jit
from irtcat._types import FloatArray
from irtcat.fitting._loop import Ended
from irtcat.fitting.em import EMProblem
from irtcat.models import ItemModel, steepest_slope, unpack
from irtcat.scoring import changes_too_fast, posterior

__all__ = ["marginal_log_likelihoods", "steep_likelihood"]

ROWS = 2**14
"""Rows whose posteriors are held at a time."""

SAME = 1e-6
"""Relative difference of two log-likelihoods that is none."""


@jit
def _rescaled(model: ItemModel, mean: Array, sd: Array) -> ItemModel:
    return model.rescale(mean, sd)


def marginal_log_likelihoods(
    model: ItemModel, x: np.ndarray, has_missing: bool, dtype: np.dtype
) -> FloatArray:
    """Marginal log-likelihood of each row under N(0, 1), on a grid as fine as the items need."""
    starts = range(0, len(x), ROWS)
    blocks = [posterior(model, x[at : at + ROWS], has_missing, dtype).log_z for at in starts]
    return np.concatenate(blocks)


def steep_likelihood(problem: EMProblem, ended: Ended, population: FloatArray) -> Ended:
    """The end of a fit with the log-likelihoods of steep items, and a note where they differ.

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
        f"Slopes of up to {steepest_slope(model):.3g} change faster than the grid of the "
        f"estimates is fine: on a finer one the log-likelihood is {exact:.3f}, not {rough:.3f}."
    )
    return ended._replace(message=f"{ended.message} {note}")
