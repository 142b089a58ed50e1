"""Last stage of all methods except EM: evaluate the items by an E-step, build bank and `Fit`."""

from collections.abc import Mapping
from typing import Any, NamedTuple

import jax
import numpy as np

from irtcat._common.precision import precision
from irtcat._common.types import BoolArray, FloatArray
from irtcat.fitting.assembly import (
    Latent,
    bank_of,
    fit_of,
    item_states,
    item_statistics,
    n_parameters,
)
from irtcat.fitting.em.priors import prior_table
from irtcat.fitting.em.start import Start
from irtcat.fitting.em.steep_items import marginal_log_likelihoods
from irtcat.fitting.result import Fit
from irtcat.latent import LayoutPlan, e_step
from irtcat.models import (
    Design,
    ItemModel,
    column_names,
    field_columns,
    tied_parameters,
    unpack,
)
from irtcat.responses import Responses
from irtcat.scoring import changes_too_fast

NARROWEST = 0.02
"""Smallest posterior SD that places a subject's local nodes."""


class Calibrated(NamedTuple):
    """Items on the standardised scale, as estimated by a method.

    Attributes:
        params: unconstrained parameters of the working model (slope and intercept among them).
        covariance: of each item's parameters, or None.
        mean: abilities as estimated by the method.
        sd: their posterior SDs.
    """

    params: FloatArray
    covariance: FloatArray | None
    mean: FloatArray
    sd: FloatArray


def used_rows(responses: Responses) -> tuple[np.ndarray, bool]:
    """Rows of the subjects with a response, and whether any response among them is missing."""
    observed = responses.observed
    used = observed.any(axis=1)
    x = responses.values if used.all() else responses.values[used]
    return x, bool(not observed[used].all())


def _marginal(
    template: ItemModel, calibrated: Calibrated, x: np.ndarray, has_missing: bool, name: str
) -> tuple[float, float, float]:
    """Marginal log-likelihood, and the latent mean and SD that fit best (one Newton step)."""
    with precision(name) as dtype:
        model = jax.tree.map(
            lambda leaf: np.asarray(leaf, dtype), unpack(template, np.asarray(calibrated.params))
        )
        ones = np.ones(len(x), dtype), np.ones(x.shape[1], dtype)
        plan = LayoutPlan(len(x), x.shape[1], dtype.itemsize)
        mean, sd = calibrated.mean, np.maximum(calibrated.sd, NARROWEST)
        for _ in range(2):  # the second layout uses the posteriors of the first
            layout = plan.layout(mean, sd, 0.3)
            belief = e_step(
                model,
                x,
                *ones,
                layout.wide,
                layout.narrow,
                window=layout.window,
                has_missing=has_missing,
            )
            mean, sd = belief.on_line()
        log_z = np.asarray(belief.log_z, float)
        if changes_too_fast(model):
            log_z = marginal_log_likelihoods(model, x, has_missing, dtype)
        square_variance = np.asarray(belief.square_variance, float)
    square = (mean**2 + sd**2).sum()
    information, shift_information = 2 * square - square_variance.sum(), len(x) - (sd**2).sum()
    log_sd = (square - len(x)) / information if information > 0 else np.nan
    shift = mean.sum() / shift_information if shift_information > 0 else np.nan
    return float(log_z.sum()), float(shift), float(np.exp(log_sd))


def _oriented(calibrated: Calibrated, template: ItemModel, score: FloatArray) -> Calibrated:
    """The same with higher ability meaning more right answers."""
    if (calibrated.mean - calibrated.mean.mean()) @ (score - score.mean()) >= 0:
        return calibrated
    signs = np.ones(calibrated.params.shape[1])
    signs[list(field_columns(template, ["slope"]))] = -1.0
    covariance = (
        None if calibrated.covariance is None else calibrated.covariance * np.outer(signs, signs)
    )
    return Calibrated(calibrated.params * signs, covariance, -calibrated.mean, calibrated.sd)


def finish(
    responses: Responses,
    x: np.ndarray,
    has_missing: bool,
    cls: type[ItemModel],
    template: ItemModel,
    start: Start,
    calibrated: Calibrated,
    name: str,
    *,
    positive: bool,
    priors: Mapping[str, Any],
    at_bound: BoolArray | None = None,
    **outcome: Any,
) -> Fit:
    """Evaluate the items by an E-step and build the `Fit`.

    Args:
        responses: what was calibrated on.
        x: the rows used.
        has_missing: whether any of them is missing.
        cls: the requested model (a Rasch model is fitted as its 1PL).
        template: the working items.
        start: counts and scores of the data.
        calibrated: the estimated items and abilities.
        name: precision.
        positive: whether slopes are above 0.
        priors: the priors as stated in the result.
        at_bound: which parameters ended at their bounds.
        outcome: further arguments of `irtcat.fitting.assembly.fit_of`.
    """
    calibrated = _oriented(calibrated, template, start.mean)
    log_likelihood, latent_mean, latent_sd = _marginal(template, calibrated, x, has_missing, name)
    params, covariance = calibrated.params, calibrated.covariance
    with precision(name) as dtype:
        prior = prior_table(template, start.counts, start.item_n, {}, False, positive, dtype)
    prior = prior._replace(description=dict(priors))
    names, slopes = column_names(template), field_columns(template, ["slope"])
    bounds = np.zeros(params.shape, bool) if at_bound is None else at_bound
    states = item_states(prior, start, params, covariance, names, slopes, bounds)
    statistics = item_statistics(responses, np.full(len(params), 2), start, states)
    blank = type(template).blank(Design(np.full(len(params), 2)))
    bank = bank_of(responses, cls, blank, params, covariance, None, Latent(), statistics)
    return fit_of(
        responses,
        cls,
        bank,
        prior,
        n_subjects=len(x),
        log_likelihood=log_likelihood,
        n_parameters=n_parameters(prior, field_columns(template, tied_parameters(template))),
        latent_mean=latent_mean,
        latent_sd=latent_sd,
        precision=name,
        **outcome,
    )
