"""Estimators based on the item response model: p-IRT."""

from dataclasses import replace
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float
from scipy.special import ndtri

from irtcat._common.compilation import jit
from irtcat._common.precision import precision
from irtcat._common.types import BoolArray, FloatArray
from irtcat.bank import ItemBank
from irtcat.latent import LIMIT
from irtcat.models import ItemModel, expected_responses, response_variances, take
from irtcat.prediction.intervals import mixture_quantile
from irtcat.prediction.regression import predict_weighted
from irtcat.prediction.result import Estimate
from irtcat.prediction.task import Task
from irtcat.responses._matrix import row_blocks
from irtcat.scoring import score

N_GRID = 257
GRID = np.linspace(-LIMIT, LIMIT, N_GRID)
"""Abilities, in population SDs, at which curves are tabulated: the range of the posterior."""

ITEMS_AT_ONCE = 4096
"""Bounds the memory of the curves of all items at all abilities."""

N_DRAWS = 256
"""Quasi-random draws from a multidimensional posterior; a power of 2, as Sobol points need."""


class Posterior(NamedTuple):
    """Abilities, subjects x nodes (x abilities), and their posterior probabilities."""

    theta: FloatArray
    weights: FloatArray


def predict_irt(task: Task) -> Estimate:
    """p-IRT: the observed answers, and the model's expectation for all other items.

    ``score = sum_{j in O} t_j x_j + E[T(theta) | x]`` with ``T(theta) = sum_{j not in O}
    t_j E[x_j | theta]`` and t = 1/N: the ability is integrated over its posterior, not plugged in
    (several abilities by 256 quasi-random draws from the Normal posterior). The interval is that of
    the posterior predictive, in which ``score - sum_O t_j x_j`` given theta is Normal with mean
    T(theta) and the variance of a sum of independent responses. It includes the uncertainty of the
    ability and of the unobserved answers, but not that of the item parameters or of the model.
    """
    posterior = _posterior(task)
    mean, sd = _moments(task, posterior)
    expected = (posterior.weights * mean).sum(axis=1)
    tail = (1 - task.level) / 2
    lower, upper = (mixture_quantile(posterior.weights, mean, sd, q) for q in (tail, 1 - tail))
    # A short interval of a skewed distribution may miss its mean.
    return Estimate(expected, np.minimum(lower, expected), np.maximum(upper, expected))


def predict_pirt(task: Task) -> Estimate:
    """p-IRT as published: the posterior mean ability plugged into all curves.

    The interval is Normal, with only the variance of the unobserved answers at that ability: too
    short, which a flag says ("irt" integrates over the ability).

    References:
        Maia Polo et al. (2024), tinyBenchmarks, section 4.
    """
    posterior = _posterior(task)
    weights = posterior.weights if posterior.theta.ndim == 2 else posterior.weights[..., None]
    theta = (weights * posterior.theta).sum(axis=1, keepdims=True)
    mean, sd = _moments(task, Posterior(theta, np.ones(theta.shape[:2])))
    score, half = mean[:, 0], ndtri(0.5 + task.level / 2) * sd[:, 0]
    flag = task.note("interval too short: without the uncertainty of the ability")
    return Estimate(score, score - half, score + half, flag)


def predict_gpirt(task: Task) -> Estimate:
    """gp-IRT: a mixture of the (weighted) mean and p-IRT, by their estimated errors.

    ``lambda mean + (1 - lambda) p-IRT`` with ``lambda = b^2 / (b^2 + v)``: b^2 is the mean squared
    error of p-IRT for the calibrated subjects on the same items, v the sampling variance of the
    subject's mean. The interval is Normal with variance ``lambda^2 v + (1 - lambda)^2 b^2``: too
    short, with a flag, where the calibrated responses chose the items.

    References:
        Maia Polo et al. (2024), tinyBenchmarks, section 4.
    """
    pirt, mean = predict_pirt(task).score, predict_weighted(task).score
    calibrated = replace(task, answers=task.calibration.subset(items=task.chosen))
    bias = float(np.mean((predict_pirt(calibrated).score[task.usable] - task.targets) ** 2))
    is_observed = ~np.isnan(task.x)
    m = is_observed.sum(axis=1)
    weights = np.where(is_observed, task.weights * task.weights_of_chosen, 0)
    total = weights.sum(axis=1, keepdims=True)
    share = np.divide(weights, total, out=np.zeros_like(weights), where=total > 0)
    spread = (share**2 * np.where(is_observed, task.x - mean[:, None], 0) ** 2).sum(axis=1)
    # All answers right show no variance.
    floor = (share**2).sum(axis=1) * 0.25 / np.maximum(m + 2, 1)
    unanswered = np.maximum(1 - is_observed @ task.weights_of_chosen, 0)
    v = np.maximum(spread, floor) * unanswered
    mean_share = np.where(np.isnan(mean), 0.0, bias / np.maximum(bias + v, 1e-12))
    score = mean_share * np.nan_to_num(mean) + (1 - mean_share) * pirt
    half = ndtri(0.5 + task.level / 2) * np.sqrt(mean_share**2 * v + (1 - mean_share) ** 2 * bias)
    return Estimate(score, score - half, score + half, task.note_of_choice())


def _posterior(task: Task) -> Posterior:
    """The posterior of the ability; of several abilities quasi-random draws from its Normal."""
    ability = score(task.bank.subset(task.chosen), task.answers, prior=task.prior)
    if ability.nodes is not None:  # eap of one ability returns its posterior
        assert ability.weights is not None
        return Posterior(ability.nodes, ability.weights)
    mean, covariance = np.asarray(ability.theta), np.asarray(ability.covariance)
    from scipy.stats import qmc  # slow to import

    sobol = qmc.Sobol(mean.shape[1], scramble=True, seed=task.seed).random(N_DRAWS)
    values, vectors = np.linalg.eigh(covariance)
    root = vectors * np.sqrt(np.maximum(values, 0))[:, None, :]
    theta = mean[:, None] + np.einsum("nde,qe->nqd", root, ndtri(np.clip(sobol, 1e-9, 1 - 1e-9)))
    return Posterior(theta, np.full((len(mean), N_DRAWS), 1 / N_DRAWS))


def _moments(task: Task, points: Posterior) -> tuple[FloatArray, FloatArray]:
    """Expected score at each ability, including the observed answers, and its SD."""
    is_observed = ~np.isnan(task.x)
    observed_score = (np.where(is_observed, task.x, 0) @ task.weights_of_chosen)[:, None]
    if points.theta.ndim == 2:
        population = task.bank.population
        rest_curves = _rest_curves(task.bank, task.chosen, is_observed, task.item_weights)
        theta = (points.theta - population.mean) / population.sd
        mean, variance = (_interpolate(curve, theta) for curve in rest_curves)
    else:
        mean, variance = _rest_at(task, points.theta, is_observed)
    return observed_score + mean, np.sqrt(np.maximum(variance, 0))


def _rest_curves(
    bank: ItemBank, chosen: np.ndarray, is_observed: BoolArray, weights: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """As `_rest_at` on the grid, in one row for all subjects or one each.

    The sum over all items minus that over the observed ones, a matrix product.
    """
    nodes = bank.population.mean + bank.population.sd * GRID
    mean, variance = weighted_moments(bank, weights, nodes)
    with precision("float64"):
        run = _score_moments(take(bank.model, chosen), jnp.asarray(nodes))
    rows = (is_observed[:1] if is_observed.all() else is_observed) * weights[chosen]
    return mean - rows @ np.asarray(run[0]), variance - rows**2 @ np.asarray(run[1])


def _rest_at(
    task: Task, theta: FloatArray, is_observed: BoolArray
) -> tuple[FloatArray, FloatArray]:
    """Weighted sums of mean and variance over the unobserved items, subjects x nodes."""
    # Items without weight, such as those of other benchmarks, have no curves to compute.
    counted = np.flatnonzero(task.item_weights)
    bank, t = task.bank.subset(counted), task.item_weights[counted]
    flat = theta.reshape(-1, theta.shape[2])
    mean, variance = weighted_moments(bank, t, flat)
    with precision("float64"):
        run = np.flatnonzero(task.weights_of_chosen)
        run_moments = _score_moments(take(task.bank.model, task.chosen[run]), jnp.asarray(flat))
    shape = theta.shape[:2]
    run_weights = (is_observed * task.weights_of_chosen)[:, run]
    run_mean, run_variance = (np.asarray(m).reshape(len(run), *shape) for m in run_moments)
    run_mean = np.einsum("nj,jnq->nq", run_weights, run_mean)
    run_variance = np.einsum("nj,jnq->nq", run_weights**2, run_variance)
    return mean.reshape(shape) - run_mean, variance.reshape(shape) - run_variance


@jit
def _score_moments(
    model: ItemModel, nodes: Float[Array, " nodes"]
) -> tuple[Float[Array, "items nodes"], Float[Array, "items nodes"]]:
    """Expected score (0 to 1) and its variance, for each item at each ability."""
    top = max(model.n_categories - 1, 1)
    return expected_responses(model, nodes) / top, response_variances(model, nodes) / top**2


def weighted_moments(
    bank: ItemBank, weights: FloatArray, theta: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Mean and variance of the weighted score (0 to 1) at each ability, some of each at a time."""
    mean, variance = np.zeros((2, len(theta)))
    with precision("float64"):
        for points in row_blocks((len(theta), min(bank.n_items, ITEMS_AT_ONCE))):
            for start in range(0, bank.n_items, ITEMS_AT_ONCE):
                block = slice(start, start + ITEMS_AT_ONCE)
                moments = _score_moments(take(bank.model, block), jnp.asarray(theta[points]))
                mean[points] += weights[block] @ np.asarray(moments[0])
                variance[points] += weights[block] ** 2 @ np.asarray(moments[1])
    return mean, variance


def _interpolate(curves: FloatArray, theta: FloatArray) -> FloatArray:
    """Cubic interpolation of tabulated curves; a single curve is used for all rows of ``theta``."""
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
