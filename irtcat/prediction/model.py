"""Estimators that trust the item response model: p-IRT."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float
from scipy.special import ndtr

from irtcat._precision import precision
from irtcat._types import BoolArray, FloatArray
from irtcat.bank import ItemBank
from irtcat.models import ItemModel, expected_responses, response_variances, take
from irtcat.prediction._task import Estimate, Task
from irtcat.scoring import LIMIT, score

__all__ = ["mixture_quantile", "predict_irt"]

N_GRID = 257
GRID = np.linspace(-LIMIT, LIMIT, N_GRID)
"""Abilities, in population SDs, at which curves are tabulated: the range the posterior has."""

ITEMS_AT_ONCE = 4096
BISECTIONS = 40


class Curves(NamedTuple):
    """Expected value and variance of scores (0 to 1) on the grid; rows are items or subjects."""

    mean: FloatArray
    variance: FloatArray


def predict_irt(task: Task) -> Estimate:
    """p-IRT: the observed answers, and the model's expectation for all other items.

    ``score = (sum_{j in O} x_j + E[T(theta) | x]) / N`` with ``T(theta) = sum_{j not in O}
    E[x_j | theta]``: the ability is integrated over its posterior, not plugged in. The interval is
    that of the posterior predictive, in which ``N score - sum_O x`` given theta is Normal with mean
    T(theta) and the variance of a sum of independent responses. It knows the uncertainty of the
    ability and of the answers not seen, not that of the items' parameters nor of the model.
    """
    bank, answers = task.bank, task.answers
    chosen = bank.positions(np.asarray(answers.item_ids, dtype=str))
    belief = score(bank.subset(chosen), answers)
    assert belief.nodes is not None  # eap always gives its posterior
    assert belief.weights is not None
    rest = _rest_curves(bank, chosen, ~np.isnan(task.x))
    theta = (belief.nodes - bank.population_mean) / bank.population_sd
    seen_total = np.nansum(task.x, axis=1)[:, None]
    mean = (seen_total + _interpolate(rest.mean, theta)) / task.n_items
    sd = np.sqrt(np.maximum(_interpolate(rest.variance, theta), 0)) / task.n_items
    expected = (belief.weights * mean).sum(axis=1)
    tail = (1 - task.interval) / 2
    lower, upper = (mixture_quantile(belief.weights, mean, sd, q) for q in (tail, 1 - tail))
    # A short interval of a skewed distribution may miss its mean.
    return Estimate(expected, np.minimum(lower, expected), np.maximum(upper, expected))


@jax.jit
def _score_moments(
    model: ItemModel, nodes: Float[Array, " nodes"]
) -> tuple[Float[Array, "items nodes"], Float[Array, "items nodes"]]:
    """Expected score, 0 to 1, and its variance, of each item at each ability."""
    top = max(model.n_categories - 1, 1)
    return expected_responses(model, nodes) / top, response_variances(model, nodes) / top**2


def _item_curves(bank: ItemBank, at: np.ndarray | slice) -> Curves:
    """Curves of some items on the grid, items x nodes."""
    nodes = bank.population_mean + bank.population_sd * GRID
    with precision("float64"):
        mean, variance = _score_moments(take(bank.model, at), jnp.asarray(nodes))
        return Curves(np.asarray(mean), np.asarray(variance))


def _rest_curves(bank: ItemBank, chosen: np.ndarray, seen: BoolArray) -> Curves:
    """Curves of the sum of all unobserved items: one row for all subjects, or one for each.

    The sum over all items less the observed ones; with gaps the latter is a matrix product.
    """
    total = [np.zeros(N_GRID), np.zeros(N_GRID)]
    for start in range(0, bank.n_items, ITEMS_AT_ONCE):
        part = _item_curves(bank, slice(start, start + ITEMS_AT_ONCE))
        total = [whole + curve.sum(axis=0) for whole, curve in zip(total, part, strict=True)]
    run = _item_curves(bank, chosen)
    rows = seen[:1] if seen.all() else seen
    return Curves(*(whole - rows @ curve for whole, curve in zip(total, run, strict=True)))


def _interpolate(curves: FloatArray, theta: FloatArray) -> FloatArray:
    """Cubic interpolation of tabulated curves; one curve serves all rows of ``theta``."""
    u = (theta + LIMIT) / (GRID[1] - GRID[0])
    first = np.clip(np.floor(u).astype(np.intp) - 1, 0, N_GRID - 4)
    t = u - first
    rows = np.arange(len(curves))[:, None]
    below, above = t * (t - 1), (t - 2) * (t - 3)
    return (
        curves[rows, first] * (-(t - 1) * above / 6)
        + curves[rows, first + 1] * (t * above / 2)
        + curves[rows, first + 2] * (-below * (t - 3) / 2)
        + curves[rows, first + 3] * (below * (t - 2) / 6)
    )


def mixture_quantile(
    weights: FloatArray, mean: FloatArray, sd: FloatArray, probability: float
) -> FloatArray:
    """Quantile of a mixture of Normals, for every row, by bisection on [-1, 2].

    Args:
        weights: probabilities of the components, subjects x nodes; rows sum to 1.
        mean: their means, within [0, 1].
        sd: their SDs, at least 0 (0 is a point mass).
        probability: between 0 and 1.

    Returns:
        One number per row, within [-1, 2], to 3e-12.

    Example:
        >>> half = np.array([[0.5, 0.5]])
        >>> mixture_quantile(half, np.array([[0.2, 0.8]]), np.array([[0.1, 0.1]]), 0.5).round(6)
        array([0.5])
    """
    low, high = np.full(len(weights), -1.0), np.full(len(weights), 2.0)
    inverse = 1 / np.maximum(sd, 1e-9)  # a point mass is a very narrow Normal
    for _ in range(BISECTIONS):
        middle = (low + high) / 2
        below = (weights * ndtr((middle[:, None] - mean) * inverse)).sum(axis=1) < probability
        low, high = np.where(below, middle, low), np.where(below, high, middle)
    return (low + high) / 2
