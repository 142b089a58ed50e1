"""Scores on multidimensional banks: posterior means and modes as vectors."""

from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from scipy.special import ndtri

from irtcat._checks import argument_error
from irtcat._precision import precision
from irtcat._types import FloatArray
from irtcat.bank import ItemBank
from irtcat.models import ItemModel, MTwoPL
from irtcat.responses import Responses
from irtcat.scoring._adaptive import adaptive_posterior
from irtcat.scoring._modes import posterior_modes
from irtcat.scoring._rules import as_rule, choose_nodes, n_nodes, narrowest_sd
from irtcat.scoring._several import (
    BifactorQuadrature,
    GridQuadrature,
    bifactor_step,
    grid_step,
    group_items,
    row_chunks,
)
from irtcat.scoring.ability import Ability, population_percentile

__all__ = ["MULTI_METHODS", "score_multidimensional", "vector_posterior"]

MULTI_METHODS = ("eap", "map")


class VectorPosterior(NamedTuple):
    """Posterior moments of each subject on the bank's scale."""

    mean: FloatArray
    covariance: FloatArray
    log_z: FloatArray


def _root(bank: ItemBank) -> FloatArray:
    """Lower root of the abilities' correlations."""
    if bank.correlations is None:
        return np.eye(bank.model.dims)
    return np.linalg.cholesky(bank.correlations)


def _pairs(bank: ItemBank, dtype: np.dtype) -> MTwoPL:
    """Items of a bifactor bank with two dimensions each: general and specific."""
    slope = bank.parameters()[:, : bank.model.dims]
    pattern = np.asarray(bank.model.pattern)  # type: ignore[attr-defined]
    group = group_items(pattern)[0]
    specific = np.take_along_axis(slope, np.minimum(group + 1, slope.shape[1] - 1)[:, None], 1)[
        :, 0
    ]
    two = np.column_stack([slope[:, 0], specific * (pattern[:, 1:] != 0).any(1)])
    intercept = jnp.asarray(bank.model.intercept, dtype)  # type: ignore[attr-defined]
    return MTwoPL(jnp.asarray(two, dtype), intercept, jnp.ones(two.shape, dtype))


def _modes(model: ItemModel, responses: Responses, dtype: np.dtype):
    cells = responses.n_items * (model.dims + 2) ** 2
    chunks = jnp.asarray(row_chunks(responses.n_subjects, cells))
    x = jnp.asarray(responses.values)
    return posterior_modes(
        model, x, chunks, jnp.zeros((), dtype), has_missing=responses.has_missing
    )


def vector_posterior(bank: ItemBank, responses: Responses, dtype_name: str) -> VectorPosterior:
    """Posterior mean and covariance of every subject, and its marginal log-likelihood."""
    root = _root(bank)
    bifactor = bank.model.key == "bifactor"
    has_missing = responses.has_missing
    with precision(dtype_name) as dtype:
        model = bank.model.rescale(jnp.zeros(len(root)), jnp.asarray(root))
        modes = _modes(model, responses, dtype)
        slope = np.asarray(model.slope)  # type: ignore[attr-defined]
        pattern = np.asarray(model.pattern)  # type: ignore[attr-defined]
        steepest = float(np.quantile(np.abs(slope).max(axis=1), 0.9))
        spread = narrowest_sd(np.asarray(modes.covariance))
        chosen = choose_nodes(len(root), bifactor, spread, steepest, None)
        rule = as_rule(chosen, pattern, bifactor, dtype)
        cells = n_nodes(rule)
        if not isinstance(rule, (GridQuadrature, BifactorQuadrature)):
            cells *= responses.n_items * 2
        chunks = jnp.asarray(row_chunks(responses.n_subjects, cells))
        x = jnp.asarray(responses.values)
        ones = jnp.ones(responses.n_subjects, dtype), jnp.ones(responses.n_items, dtype)
        if isinstance(rule, GridQuadrature):
            belief = grid_step(model, x, *ones, rule, chunks, has_missing=has_missing)
            out = belief.mean, belief.covariance, belief.log_z
        elif isinstance(rule, BifactorQuadrature):
            belief = bifactor_step(
                _pairs(bank, dtype), x, *ones, rule, chunks, has_missing=has_missing
            )
            d = len(root)  # the group of items without a specific factor has no meaning
            out = belief.mean[:, :d], belief.covariance[:, :d, :d], belief.log_z
        else:
            first = adaptive_posterior(
                model, x, modes.mode, modes.covariance, rule, chunks, has_missing=has_missing
            )
            out = adaptive_posterior(model, x, *first[:2], rule, chunks, has_missing=has_missing)
    mean, covariance, log_z = (np.asarray(array, float) for array in out)
    return VectorPosterior(mean @ root.T, root @ covariance @ root.T, log_z)


def _map(bank: ItemBank, responses: Responses, dtype_name: str) -> VectorPosterior:
    """Posterior mode and the inverse of the expected information there."""
    root = _root(bank)
    with precision(dtype_name) as dtype:
        model = bank.model.rescale(jnp.zeros(len(root)), jnp.asarray(root))
        modes = _modes(model, responses, dtype)
        mode, covariance = np.asarray(modes.mode, float), np.asarray(modes.covariance, float)
    nothing = np.full(len(mode), np.nan)
    return VectorPosterior(mode @ root.T, root @ covariance @ root.T, nothing)


def score_multidimensional(
    bank: ItemBank, responses: Responses, method: str, level: float, dtype_name: str
) -> Ability:
    """Abilities on a multidimensional bank (see `score`)."""
    if method not in MULTI_METHODS:
        raise argument_error(
            "method", f"eap or map for a bank of {bank.model.dims} abilities", method
        )
    estimate = (vector_posterior if method == "eap" else _map)(bank, responses, dtype_name)
    theta = estimate.mean
    se = np.sqrt(np.einsum("idd->id", estimate.covariance))
    half = ndtri(0.5 + level / 2) * se
    n_items = responses.observed.sum(axis=1)
    flags = np.where(n_items == 0, "no responses", np.full(len(theta), "", dtype=object))
    return Ability(
        subject_ids=responses.subject_ids,
        theta=theta,
        se=se,
        lower=theta - half,
        upper=theta + half,
        percentile=population_percentile(theta, 0.0, 1.0),
        n_items=n_items,
        flags=flags,
        method=method,
        level=level,
        covariance=estimate.covariance,
    )
