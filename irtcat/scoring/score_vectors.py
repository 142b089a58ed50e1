"""Scores on multidimensional banks: posterior means and modes as vectors."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from scipy.special import logsumexp, ndtri

from irtcat._common.checks import argument_error
from irtcat._common.precision import precision
from irtcat._common.types import FloatArray
from irtcat.bank import ItemBank
from irtcat.bank.needs import row_for
from irtcat.bank.population import NORMAL_MIXTURE
from irtcat.latent import (
    ResponseRows,
    adaptive_posterior,
    as_rule,
    choose_nodes,
    count_general,
    grid_step,
    group_items,
    is_adaptive,
    n_nodes,
    narrowest_sd,
    posterior_modes,
    row_chunks,
    two_tier_step,
)
from irtcat.models import ItemModel, measured, restricted, steepest_slopes
from irtcat.responses import Responses
from irtcat.scoring.estimators import METHODS, AbilityEstimate, ScoringTask

MULTI_METHODS = ("eap", "map")


class VectorPosterior(NamedTuple):
    """Posterior moments of each subject on the bank's scale."""

    mean: FloatArray
    covariance: FloatArray
    log_z: FloatArray


def _modes(model: ItemModel, responses: Responses, dtype: np.dtype) -> Any:
    """Posterior modes of all subjects, in chunks that fit the memory of a block."""
    cells = responses.n_items * (model.dims + 2) ** 2 * (model.n_categories - 1)
    chunks = jnp.asarray(row_chunks(responses.n_subjects, cells))
    x = jnp.asarray(responses.values)
    return posterior_modes(
        model, x, chunks, jnp.zeros((), dtype), has_missing=responses.has_missing
    )


def vector_posterior(bank: ItemBank, responses: Responses, dtype_name: str) -> VectorPosterior:
    """Posterior mean and covariance of every subject, and its marginal log-likelihood.

    Under a mixture of populations the posterior is that of the parts, weighted by the shares times
    the marginal likelihoods of the subject's responses.
    """
    population = bank.population
    if population.parts:
        alone = [
            vector_posterior(replace(bank, populations=part), responses, dtype_name)
            for part in population.parts
        ]
        return _mixed(alone, population.shares)
    centre, spread = population.mean, population.covariance
    root, dims = np.linalg.cholesky(spread), len(centre)
    has_missing = responses.has_missing
    marks = measured(bank.model)
    n_general = count_general(marks, spread)
    with precision(dtype_name) as dtype:
        model = bank.model.rescale(jnp.asarray(centre), jnp.asarray(root))
        modes = _modes(model, responses, dtype)
        steepest = float(np.quantile(steepest_slopes(model), 0.9))
        n_gridded = dims if n_general == dims else n_general + 1
        narrowest = narrowest_sd(np.asarray(modes.covariance))
        chosen = choose_nodes(n_gridded, dims, narrowest, steepest, None)
        rule = as_rule(chosen, marks, n_general, dtype)
        cells = n_nodes(rule)
        if is_adaptive(rule):
            cells *= responses.n_items * 2 * (model.n_categories - 1)
        chunks = jnp.asarray(row_chunks(responses.n_subjects, cells))
        x = jnp.asarray(responses.values)
        ones = jnp.ones(responses.n_items, dtype)
        rows = ResponseRows(
            x, jnp.ones(responses.n_subjects, dtype), chunks, has_missing=has_missing
        )
        if is_adaptive(rule):
            first = adaptive_posterior(model, rows, modes.mode, modes.covariance, rule)
            out = adaptive_posterior(model, rows, *first[:2], rule)
        elif n_general < dims:
            specific = np.minimum(n_general + group_items(marks, n_general)[0], dims - 1)
            general = np.tile(np.arange(n_general), (len(specific), 1))
            reduced = restricted(model, np.column_stack([general, specific]))
            belief = two_tier_step(reduced, rows, ones, rule)
            # The group of items without a specific ability has no meaning.
            out = belief.mean[:, :dims], belief.covariance[:, :dims, :dims], belief.log_z
        else:
            belief = grid_step(model, rows, ones, rule)
            out = belief.mean, belief.covariance, belief.log_z
    mean, covariance, log_z = (np.asarray(array, float) for array in out)
    return VectorPosterior(centre + mean @ root.T, root @ covariance @ root.T, log_z)


def _mixed(parts: list[VectorPosterior], shares: FloatArray) -> VectorPosterior:
    """The posterior under a mixture from those under its parts."""
    log_z = np.stack([part.log_z for part in parts]) + np.log(shares)[:, None]
    total = logsumexp(log_z, axis=0)
    weights = np.exp(log_z - total)
    mean = sum(w[:, None] * part.mean for w, part in zip(weights, parts, strict=True))
    covariance = 0.0
    for w, part in zip(weights, parts, strict=True):
        off = part.mean - mean
        covariance += w[:, None, None] * (part.covariance + off[:, :, None] * off[:, None, :])
    return VectorPosterior(np.asarray(mean), np.asarray(covariance), np.asarray(total))


def _map(bank: ItemBank, responses: Responses, dtype_name: str) -> VectorPosterior:
    """Posterior mode and the inverse of the expected information there.

    A mixture counts as the Normal with its mean and covariance, as `Ability.note` says.
    """
    centre, spread = bank.population.mean, bank.population.covariance
    root = np.linalg.cholesky(spread)
    with precision(dtype_name) as dtype:
        model = bank.model.rescale(jnp.asarray(centre), jnp.asarray(root))
        modes = _modes(model, responses, dtype)
        mode, covariance = np.asarray(modes.mode, float), np.asarray(modes.covariance, float)
    nothing = np.full(len(mode), np.nan)
    return VectorPosterior(centre + mode @ root.T, root @ covariance @ root.T, nothing)


def ability_estimate(task: ScoringTask, method: str) -> AbilityEstimate:
    """Abilities on any bank, by a method (see `score`)."""
    return row_for(task.bank.model, ESTIMATORS)(task, method)


def _vector_estimate(task: ScoringTask, method: str) -> AbilityEstimate:
    """Abilities on a multidimensional bank."""
    if method not in MULTI_METHODS:
        must = f"eap or map for a bank of {task.bank.model.dims} abilities"
        raise argument_error("method", must, method)
    estimator = vector_posterior if method == "eap" else _map
    theta, covariance, _ = estimator(task.bank, task.responses, task.dtype)
    se = np.sqrt(np.einsum("idd->id", covariance))
    half = ndtri(0.5 + task.level / 2) * se
    flags, note = np.full(len(theta), "", dtype=object), NORMAL_MIXTURE if method == "map" else ""
    ends = theta - half, theta + half
    return AbilityEstimate(theta, se, *ends, flags, covariance=covariance, note=note)


ESTIMATORS: dict[str, Callable[[ScoringTask, str], AbilityEstimate]] = {
    "one ability": lambda task, method: METHODS[method](task),
    "several abilities": _vector_estimate,
}
"""How abilities are estimated, by what it needs of the bank."""
