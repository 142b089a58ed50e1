"""The estimators of one ability: a row each."""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from scipy.special import ndtri

from irtcat._common.checks import argument_error
from irtcat._common.precision import precision
from irtcat._common.types import BoolArray, FloatArray
from irtcat.bank import ItemBank, Population
from irtcat.latent import cells_of, log_likelihoods
from irtcat.models import in_precision
from irtcat.responses import Responses
from irtcat.scoring.points import point_estimates
from irtcat.scoring.posteriors import Posterior, posterior, quantile, standardised
from irtcat.scoring.sum_scores import check_has_sum_scores, sum_scores


class ScoringTask(NamedTuple):
    """The inputs of an estimator."""

    bank: ItemBank
    responses: Responses
    level: float
    theta_bounds: tuple[float, float]
    dtype: str
    prior: tuple[FloatArray, FloatArray] | None = None
    """Mean and SD of each subject's prior; the population for all if None."""


class AbilityEstimate(NamedTuple):
    """The result of an estimator; flags are empty strings where nothing is flagged."""

    theta: FloatArray
    se: FloatArray
    lower: FloatArray
    upper: FloatArray
    flag: np.ndarray
    post: Posterior | None = None
    at_bound: BoolArray | None = None
    covariance: FloatArray | None = None
    note: str = ""
    """What to know of it under a mixture of populations."""


def bank_posterior(task: ScoringTask) -> Posterior:
    """Posterior of each subject on the bank's scale."""
    population = task.bank.population
    if task.prior is None and population.nodes is not None:
        return _density_posterior(task, population)
    with precision(task.dtype) as dtype:
        model = standardised(task.bank)
        mean, sd = population.mean, population.sd
        prior: tuple[FloatArray, ...] | None = None
        if task.prior is not None:
            prior = (task.prior[0] - mean) / sd, np.log(task.prior[1] / sd)
        elif population.parts:
            prior = _standardised_parts(population)
        post = posterior(model, *cells_of(model, task.responses), dtype, prior)
    return post._replace(nodes=mean + sd * post.nodes, mean=mean + sd * post.mean, sd=sd * post.sd)


def _standardised_parts(population: Population) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Means, log SDs and log shares of a mixture, on the scale where its mean is 0 and its SD 1."""
    if not all(part.is_normal for part in population.parts):
        must = "given for a bank of several populations with densities"
        raise argument_error("groups", must, None)
    means, sds = (
        np.array([getattr(part, name) for part in population.parts]) for name in ("mean", "sd")
    )
    standard = (means - population.mean) / population.sd
    return standard, np.log(sds / population.sd), np.log(population.shares)


def _density_posterior(task: ScoringTask, population: Population) -> Posterior:
    """Posterior of each subject under a density, which has mass at its nodes alone."""
    assert population.nodes is not None
    assert population.weights is not None
    nodes = population.nodes
    with np.errstate(divide="ignore"):
        log_prior = np.log(population.weights)
    with precision(task.dtype) as dtype:
        model = in_precision(task.bank.model, dtype)
        x, has_missing = cells_of(task.bank.model, task.responses)
        log_lik = log_likelihoods(model, x, nodes.astype(dtype), has_missing)
    log_post = np.asarray(log_lik, float) + log_prior
    top = log_post.max(axis=1, keepdims=True)
    weights = np.exp(log_post - top)
    total = weights.sum(axis=1, keepdims=True)
    weights /= total
    mean = weights @ nodes
    sd = np.sqrt(np.maximum(weights @ nodes**2 - mean**2, 0.0))
    log_z, beyond = (top + np.log(total))[:, 0], np.zeros(len(mean), bool)
    coarse = sd < np.diff(nodes).max()
    nodes = np.broadcast_to(nodes, weights.shape)
    return Posterior(nodes, weights, log_z, mean, sd, beyond=beyond, coarse=coarse)


def _eap(task: ScoringTask) -> AbilityEstimate:
    """Posterior mean, SD and quantiles."""
    post = bank_posterior(task)
    tail = (1 - task.level) / 2
    lower, upper = quantile(post, tail), quantile(post, 1 - tail)
    flags = _grid_flags(post.beyond, post.coarse)
    return AbilityEstimate(post.mean, post.sd, lower, upper, flags, post=post)


def _grid_flags(beyond: BoolArray, coarse: BoolArray) -> np.ndarray:
    """Flags of posteriors beyond the range or resolution of all grids."""
    texts = ["posterior beyond the grid", "posterior narrower than the grid"]
    return np.select([beyond, coarse], texts, "").astype(object)


def _point(task: ScoringTask, kind: str) -> AbilityEstimate:
    """A point estimate with its Wald interval.

    At a bound, and where the objective is flat, the curvature says nothing of the uncertainty: the
    interval is then the likelihood-ratio one, and the SE infinite.
    """
    population = task.bank.population
    prior = np.array([population.mean, population.sd])
    if kind == "map" and not population.is_normal:
        prior = np.stack(population.components)
    z = ndtri(0.5 + task.level / 2)
    drop = z**2 / 2  # half the chi-squared quantile, df = 1
    with precision(task.dtype) as dtype:
        x, _ = cells_of(task.bank.model, task.responses)
        out = point_estimates(task.bank.model, x, kind, task.theta_bounds, prior, drop, dtype)
    information = np.where(out.information > 0, out.information, out.expected)
    with np.errstate(divide="ignore"):
        se = np.where(information > 0, 1 / np.sqrt(np.maximum(information, 0)), np.inf)
    low, high = task.theta_bounds
    theta = out.theta
    at_low, at_high = theta <= low, theta >= high
    flat = ~at_low & ~at_high & (np.isinf(se) | (out.tied & (se > high - low)))
    by_fall = at_low | at_high | flat
    open_low = at_low | out.flat | (out.lower <= low)
    open_high = at_high | out.flat | (out.upper >= high)
    lower = np.where(by_fall, np.where(open_low, -np.inf, out.lower), theta - z * se)
    upper = np.where(by_fall, np.where(open_high, np.inf, out.upper), theta + z * se)
    se = np.where(by_fall, np.inf, se)
    texts = ["flat likelihood", "at the upper bound", "at the lower bound"]
    flags = np.select([flat, at_high, at_low], texts, "").astype(object)
    return AbilityEstimate(theta, se, lower, upper, flags, at_bound=at_low | at_high)


def _likelihood_only(task: ScoringTask, kind: str) -> AbilityEstimate:
    """ML or WLE; NaN for subjects without responses."""
    estimate = _point(task, kind)
    none = ~task.responses.answered
    columns = zip((np.nan, np.nan, -np.inf, np.inf), estimate[:4], strict=True)
    theta, se, lower, upper = (np.where(none, value, column) for value, column in columns)
    return estimate._replace(theta=theta, se=se, lower=lower, upper=upper)


def _eapsum(task: ScoringTask) -> AbilityEstimate:
    """EAP from the sum score, with one table for each pattern of answered items."""
    if task.responses.is_fractional:
        raise argument_error("method", "other than eapsum for fractional responses", "eapsum")
    check_has_sum_scores(task.bank)
    values = task.responses.values
    observed = values >= 0
    points = np.where(observed, values, 0).sum(axis=1, dtype=int)
    n = len(values)
    columns: dict[str, Any] = {name: np.empty(n) for name in ("theta", "se", "lower", "upper")}
    columns |= {name: np.zeros(n, bool) for name in ("beyond", "coarse")}
    patterns, which = np.unique(observed, axis=0, return_inverse=True)
    for number, pattern in enumerate(patterns):
        rows = np.flatnonzero(which.ravel() == number)
        if pattern.any():
            table = sum_scores(task.bank.subset(pattern), level=task.level)
        else:
            population = task.bank.population
            lower, upper = _interval(population, task.level)
            ends = (population.mean, population.sd, lower, upper, False, False)
            table = {name: np.array([end]) for name, end in zip(columns, ends, strict=True)}
        for name, column in columns.items():
            column[rows] = table[name][points[rows]]
    flags = _grid_flags(columns.pop("beyond"), columns.pop("coarse"))
    return AbilityEstimate(**columns, flag=flags)


def _interval(population: Population, level: float) -> tuple[float, float]:
    """The interval of a population with equal tails."""
    if population.is_normal:
        half = ndtri(0.5 + level / 2) * population.sd
        return population.mean - half, population.mean + half
    nodes, weights = population.quadrature(0)
    order = np.argsort(nodes[:, 0])
    below = np.cumsum(weights[order]) - 0.5 * weights[order]
    lower, upper = np.interp([(1 - level) / 2, (1 + level) / 2], below, nodes[order, 0])
    return float(lower), float(upper)


METHODS: dict[str, Callable[[ScoringTask], AbilityEstimate]] = {
    "eap": _eap,
    "map": partial(_point, kind="map"),  # SE from the curvature of the log-posterior
    "ml": partial(_likelihood_only, kind="ml"),
    "wle": partial(_likelihood_only, kind="wle"),  # Warm's
    "eapsum": _eapsum,
}
"""Ability estimators by name; to add one, add a row."""
