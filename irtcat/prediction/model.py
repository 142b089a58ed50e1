"""Estimators that trust the item response model: p-IRT."""

from dataclasses import replace
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float
from scipy.special import ndtr, ndtri

from irtcat._compile import jit
from irtcat._matrix import row_blocks
from irtcat._precision import precision
from irtcat._types import BoolArray, FloatArray
from irtcat.bank import ItemBank
from irtcat.models import ItemModel, expected_responses, response_variances, take
from irtcat.prediction._task import Estimate, Task
from irtcat.prediction.design import predict_weighted
from irtcat.scoring import LIMIT, score

__all__ = ["mixture_quantile", "predict_gpirt", "predict_irt", "predict_pirt"]

N_GRID = 257
GRID = np.linspace(-LIMIT, LIMIT, N_GRID)
"""Abilities, in population SDs, at which curves are tabulated: the range the posterior has."""

ITEMS_AT_ONCE = 4096
BISECTIONS = 40
N_DRAWS = 256
"""Draws from the posterior of several abilities."""


class Curves(NamedTuple):
    """Expected value and variance of scores (0 to 1) on the grid; rows are items or subjects."""

    mean: FloatArray
    variance: FloatArray


class Belief(NamedTuple):
    """What is believed of each subject's ability, and of the score at each ability.

    Attributes:
        weights: posterior probabilities of the abilities, subjects x nodes.
        mean: expected score at each of them, the answers seen included.
        sd: its standard deviation, from the answers that were not seen.
    """

    weights: FloatArray
    mean: FloatArray
    sd: FloatArray


def predict_irt(task: Task) -> Estimate:
    """p-IRT: the observed answers, and the model's expectation for all other items.

    ``score = sum_{j in O} t_j x_j + E[T(theta) | x]`` with ``T(theta) = sum_{j not in O}
    t_j E[x_j | theta]`` and t = 1/N: the ability is integrated over its posterior, not plugged in
    (several abilities by 256 quasi-random draws from the Normal posterior). The interval is
    that of the posterior predictive, in which ``score - sum_O t_j x_j`` given theta is Normal with
    mean T(theta) and the variance of a sum of independent responses. It knows the uncertainty of
    the ability and of the answers not seen, not that of the items' parameters nor of the model.
    """
    belief = _belief(task)
    expected = (belief.weights * belief.mean).sum(axis=1)
    tail = (1 - task.level) / 2
    lower, upper = (mixture_quantile(*belief, q) for q in (tail, 1 - tail))
    # A short interval of a skewed distribution may miss its mean.
    return Estimate(expected, np.minimum(lower, expected), np.maximum(upper, expected))


def predict_pirt(task: Task) -> Estimate:
    """p-IRT as published: the mean ability of the posterior plugged into all curves.

    The interval is Normal, with the variance of the unseen answers at that ability only.

    References:
        Maia Polo et al. (2024), tinyBenchmarks, section 4.
    """
    score, sd = _plugged_in(task, _several(task) if task.bank.model.dims > 1 else _single(task))
    z = ndtri(0.5 + task.level / 2)
    return Estimate(score, score - z * sd, score + z * sd)


def predict_gpirt(task: Task) -> Estimate:
    """gp-IRT: a mixture of the (weighted) mean and of p-IRT by their estimated errors.

    ``lambda mean + (1 - lambda) p-IRT`` with ``lambda = b^2 / (b^2 + v)``: b^2 is the mean squared
    error of p-IRT for the calibrated subjects on the same items, v the sampling variance of the
    subject's mean. The interval is Normal with variance ``lambda^2 v + (1 - lambda)^2 b^2``.

    References:
        Maia Polo et al. (2024), tinyBenchmarks, section 4.
    """
    pirt, mean = predict_pirt(task).score, predict_weighted(task).score
    calibrated = replace(task, answers=task.calibration.subset(items=task.chosen))
    told = predict_pirt(calibrated).score[task.usable]
    bias = float(np.mean((told - task.targets) ** 2))
    seen = ~np.isnan(task.x)
    m = seen.sum(axis=1)
    weights = np.where(seen, task.weights * task.weights_of_chosen, 0)
    total = weights.sum(axis=1, keepdims=True)
    share = np.divide(weights, total, out=np.zeros_like(weights), where=total > 0)
    spread = (share**2 * np.where(seen, task.x - mean[:, None], 0) ** 2).sum(axis=1)
    floor = (share**2).sum(axis=1) * 0.25 / np.maximum(m + 2, 1)  # all right tells of no variance
    unseen = np.maximum(1 - seen @ task.weights_of_chosen, 0)
    v = np.maximum(spread, floor) * unseen
    part = np.where(np.isnan(mean), 0.0, bias / np.maximum(bias + v, 1e-12))
    score = part * np.nan_to_num(mean) + (1 - part) * pirt
    half = ndtri(0.5 + task.level / 2) * np.sqrt(part**2 * v + (1 - part) ** 2 * bias)
    return Estimate(score, score - half, score + half)


def _belief(task: Task) -> Belief:
    points = _several(task) if task.bank.model.dims > 1 else _single(task)
    return Belief(points.weights, *_moments(task, points))


class Points(NamedTuple):
    """Abilities, subjects x nodes (x abilities), and their posterior probabilities."""

    theta: FloatArray
    weights: FloatArray


def _single(task: Task) -> Points:
    """The posterior of one ability."""
    belief = score(task.bank.subset(task.chosen), task.answers)
    assert belief.nodes is not None  # eap always gives its posterior
    assert belief.weights is not None
    return Points(belief.nodes, belief.weights)


def _several(task: Task) -> Points:
    """Quasi-random draws from the Normal posterior of several abilities."""
    belief = score(task.bank.subset(task.chosen), task.answers)
    mean, covariance = np.asarray(belief.theta), np.asarray(belief.covariance)
    from scipy.stats import qmc  # slow to import

    sobol = qmc.Sobol(mean.shape[1], scramble=True, seed=task.seed).random(N_DRAWS)
    values, vectors = np.linalg.eigh(covariance)
    root = vectors * np.sqrt(np.maximum(values, 0))[:, None, :]
    theta = mean[:, None] + np.einsum("nde,qe->nqd", root, ndtri(np.clip(sobol, 1e-9, 1 - 1e-9)))
    return Points(theta, np.full((len(mean), N_DRAWS), 1 / N_DRAWS))


def _moments(task: Task, points: Points) -> tuple[FloatArray, FloatArray]:
    """Expected score at each ability with the answers seen, and its SD."""
    seen = ~np.isnan(task.x)
    known = (np.where(seen, task.x, 0) @ task.weights_of_chosen)[:, None]
    if points.theta.ndim == 2:
        bank = task.bank
        rest = _rest_curves(bank, task.chosen, seen, task.item_weights)
        theta = (points.theta - bank.population_mean) / bank.population_sd
        mean, variance = (_interpolate(curve, theta) for curve in rest)
    else:
        mean, variance = _rest_at(task, points.theta, seen)
    return known + mean, np.sqrt(np.maximum(variance, 0))


def _plugged_in(task: Task, points: Points) -> tuple[FloatArray, FloatArray]:
    """The score at the mean ability, and the SD of the answers not seen."""
    weights = points.weights if points.theta.ndim == 2 else points.weights[..., None]
    theta = (weights * points.theta).sum(axis=1, keepdims=True)
    mean, sd = _moments(task, Points(theta, np.ones(theta.shape[:2])))
    return mean[:, 0], sd[:, 0]


def _rest_at(task: Task, theta: FloatArray, seen: BoolArray) -> tuple[FloatArray, FloatArray]:
    """Weighted sums of mean and variance over the unseen items, subjects x nodes."""
    bank, t = task.bank, task.item_weights
    flat = theta.reshape(-1, theta.shape[2])
    mean, variance = np.zeros(len(flat)), np.zeros(len(flat))
    with precision("float64"):
        for points in row_blocks((len(flat), min(bank.n_items, ITEMS_AT_ONCE))):
            for start in range(0, bank.n_items, ITEMS_AT_ONCE):
                at = slice(start, start + ITEMS_AT_ONCE)
                part = _score_moments(take(bank.model, at), jnp.asarray(flat[points]))
                mean[points] += t[at] @ np.asarray(part[0])
                variance[points] += t[at] ** 2 @ np.asarray(part[1])
        run = _score_moments(take(bank.model, task.chosen), jnp.asarray(flat))
    shape = theta.shape[:2]
    own = seen * task.weights_of_chosen
    less = np.einsum("nj,jnq->nq", own, np.asarray(run[0]).reshape(-1, *shape))
    narrower = np.einsum("nj,jnq->nq", own**2, np.asarray(run[1]).reshape(-1, *shape))
    return mean.reshape(shape) - less, variance.reshape(shape) - narrower


@jit
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


def _rest_curves(
    bank: ItemBank, chosen: np.ndarray, seen: BoolArray, weights: FloatArray
) -> Curves:
    """Curves of the weighted sum of all unobserved items: one row for all subjects, or for each.

    The sum over all items less the observed ones; with gaps the latter is a matrix product.
    """
    total = [np.zeros(N_GRID), np.zeros(N_GRID)]
    for start in range(0, bank.n_items, ITEMS_AT_ONCE):
        at = slice(start, start + ITEMS_AT_ONCE)
        part = _item_curves(bank, at)
        total = [
            whole + weights[at] ** power @ curve
            for whole, curve, power in zip(total, part, (1, 2), strict=True)
        ]
    run = _item_curves(bank, chosen)
    rows = (seen[:1] if seen.all() else seen) * weights[chosen]
    return Curves(total[0] - rows @ run.mean, total[1] - rows**2 @ run.variance)


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
