"""First and last stage of all methods except EM: first guesses, and the items' evaluation."""

from collections.abc import Mapping
from typing import Any, NamedTuple

import jax
import numpy as np

from irtcat._common.precision import choose_precision, precision
from irtcat._common.types import FloatArray
from irtcat.fitting.assembly import Estimates, Latent, fit_of
from irtcat.fitting.em.covariance import Covariance
from irtcat.fitting.em.identification import latent_step, marginal_log_likelihoods, reflected
from irtcat.fitting.em.priors import prior_table
from irtcat.fitting.em.start import Start, further_start, starting_point
from irtcat.fitting.outcome import Ending
from irtcat.fitting.result import Fit
from irtcat.fitting.specification import Specification
from irtcat.latent import LayoutPlan, ResponseRows, e_step, rows_on_device
from irtcat.models import Design, ItemModel, field_columns, fitted_form, in_precision, unpack
from irtcat.responses import Responses
from irtcat.scoring import changes_too_fast, row_blocks

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


class Prepared(NamedTuple):
    """Responses and first guesses, in the working precision.

    Attributes:
        responses: what is calibrated on.
        cls: the requested model.
        rows: responses of the subjects with one.
        x: the same on the device.
        blocks: row numbers in blocks.
        has_missing: whether any of them is missing.
        template: the items that are fitted (a Rasch model is fitted as its 1PL).
        tied: columns of the parameters that items share.
        start: counts, scores and first guesses.
        positive: whether slopes are above 0, as a slope of all items is.
        precision: name of the working precision.
    """

    responses: Responses
    cls: type[ItemModel]
    rows: np.ndarray
    x: jax.Array
    blocks: jax.Array
    has_missing: bool
    template: ItemModel
    tied: tuple[int, ...]
    start: Start
    positive: bool
    precision: str


def prepare(
    responses: Responses, cls: type[ItemModel], specification: Specification[Any]
) -> Prepared:
    """The rows of the subjects with a response, and first guesses from them."""
    used = responses.answered
    counted = responses if used.all() else responses.subset(subjects=used)
    rows, has_missing = counted.values, counted.has_missing
    name = choose_precision(specification.solver.precision, rows.size)
    two = np.full(rows.shape[1], 2)
    form, shared = fitted_form(cls)
    positive = specification.positive or "slope" in shared
    with precision(name) as dtype:
        template = in_precision(form.blank(Design(two)), dtype)
        x = rows_on_device(rows)
        blocks = jax.device_put(row_blocks(len(rows), rows.shape[1], dtype.itemsize))
        data = ResponseRows(x, np.ones(len(rows)), blocks, has_missing=has_missing)
        start = starting_point(template, data, dtype, positive, two)
        return Prepared(
            responses=responses,
            cls=cls,
            rows=rows,
            x=x,
            blocks=blocks,
            has_missing=has_missing,
            template=template,
            tied=field_columns(template, shared),
            start=further_start(start, template, specification),
            positive=positive,
            precision=name,
        )


def _marginal(prepared: Prepared, calibrated: Calibrated) -> tuple[float, float, float]:
    """Marginal log-likelihood, and the latent mean and SD that fit best (one Newton step)."""
    x, has_missing = prepared.rows, prepared.has_missing
    with precision(prepared.precision) as dtype:
        model = jax.tree.map(
            lambda leaf: np.asarray(leaf, dtype), unpack(prepared.template, calibrated.params)
        )
        ones = np.ones(len(x), dtype), np.ones(x.shape[1], dtype)
        plan = LayoutPlan(len(x), x.shape[1], dtype.itemsize)
        mean, sd = calibrated.mean, np.maximum(calibrated.sd, NARROWEST)
        for _ in range(2):  # the second layout uses the posteriors of the first
            rows = ResponseRows(x, ones[0], plan.layout(mean, sd, 0.3), has_missing=has_missing)
            belief = e_step(model, rows, ones[1])
            mean, sd = belief.on_line()
        log_z = np.asarray(belief.log_z, float)
        if changes_too_fast(model):
            log_z = marginal_log_likelihoods(model, x, has_missing, dtype)
        square_variance = np.asarray(belief.square_variance, float)
    return float(log_z.sum()), *latent_step(np.ones(len(x)), mean, sd, square_variance)


def _oriented(calibrated: Calibrated, template: ItemModel, score: FloatArray) -> Calibrated:
    """The same with higher ability meaning more right answers."""
    if (calibrated.mean - calibrated.mean.mean()) @ (score - score.mean()) >= 0:
        return calibrated
    slopes, covariance = field_columns(template, ["slope"]), Covariance(calibrated.covariance)
    params, turned = reflected(calibrated.params, slopes, covariance)
    return Calibrated(params, turned.blocks, -calibrated.mean, calibrated.sd)


def finish(
    prepared: Prepared,
    calibrated: Calibrated,
    *,
    priors: Mapping[str, Any],
    ending: Ending,
    log_posterior: float,
    method: str,
    standard_errors: str,
    at_bound: Any = False,
    **outcome: Any,
) -> Fit:
    """Evaluate the items by an E-step and build the `Fit`.

    Args:
        prepared: what was fitted.
        calibrated: the estimated items and abilities.
        priors: the priors as stated in the result.
        ending: how the iterations ended.
        log_posterior: what was maximised.
        method: name of the solver.
        standard_errors: how the covariance was computed.
        at_bound: which parameters ended at their bounds.
        outcome: further arguments of `irtcat.fitting.assembly.fit_of`.
    """
    template, start = prepared.template, prepared.start
    calibrated = _oriented(calibrated, template, start.mean)
    log_likelihood, latent_mean, latent_sd = _marginal(prepared, calibrated)
    with precision(prepared.precision) as dtype:
        prior = prior_table(template, start, {}, False, prepared.positive, dtype)
    params, categories = calibrated.params, np.full(len(calibrated.params), 2)
    estimates = Estimates(
        blank=type(template).blank(Design(categories)),
        categories=categories,
        params=params,
        covariance=Covariance(blocks=calibrated.covariance, how=standard_errors),
        start=start,
        prior=prior._replace(description=dict(priors)),
        tied=prepared.tied,
        at_bound=np.broadcast_to(at_bound, params.shape),
        ending=ending,
        log_likelihood=log_likelihood,
        log_posterior=log_posterior,
        n_subjects=len(prepared.rows),
        method=method,
    )
    return fit_of(
        prepared.responses,
        prepared.cls,
        estimates,
        precision=prepared.precision,
        latent=Latent(),
        latent_mean=latent_mean,
        latent_sd=latent_sd,
        **outcome,
    )
