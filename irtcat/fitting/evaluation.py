"""Last stage of all methods except EM: evaluate the items by an E-step, build bank and `Fit`."""

from collections.abc import Mapping
from typing import Any, NamedTuple

import jax
import numpy as np
import pandas as pd

from irtcat._common.precision import precision
from irtcat._common.types import BoolArray, FloatArray
from irtcat.bank import ItemBank, Population
from irtcat.bank.item_states import with_states
from irtcat.fitting.assembly import names_of_marks
from irtcat.fitting.em.start import Start
from irtcat.fitting.em.steep_items import marginal_log_likelihoods
from irtcat.fitting.result import Fit
from irtcat.latent import LayoutPlan, e_step
from irtcat.models import Design, ItemModel, Rasch, field_columns, tied_parameters, unpack
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
            mean, sd = np.asarray(belief.mean, float), np.asarray(belief.sd, float)
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


def _statistics(
    responses: Responses,
    start: Start,
    slopes: FloatArray,
    covariance: FloatArray | None,
    at_bound: Mapping[str, BoolArray],
) -> pd.DataFrame:
    """Statistics of each item's calibration data, and its states."""
    share = np.full(len(start.item_n), np.nan)
    np.divide(start.item_right, start.item_n, out=share, where=start.item_n > 0)
    constant = (start.item_n > 0) & ((share == 0) | (share == 1))
    bounds = np.stack([np.zeros(len(share), bool), *at_bound.values()], axis=1)
    states: dict[str, Any] = {
        "estimated": True,
        "unanswered": start.item_n == 0,
        "constant": constant,
        "at_bound": names_of_marks(bounds, ("", *at_bound)),
        "negative_slope": slopes < 0,
    }
    if covariance is not None:
        variance = np.diagonal(covariance, axis1=1, axis2=2)
        states["singular"] = ~(variance > 0).all(axis=1)
    columns = {
        "n_responses": start.item_n.round().astype(int),
        "proportion_correct": share,
    }
    table = pd.DataFrame(columns, index=pd.Index(responses.item_ids, dtype=object))
    return with_states(table, states)


def finish(
    responses: Responses,
    x: np.ndarray,
    has_missing: bool,
    cls: type[ItemModel],
    template: ItemModel,
    start: Start,
    calibrated: Calibrated,
    name: str,
    provenance: Mapping[str, Any],
    outcome: Mapping[str, Any],
    at_bound: Mapping[str, BoolArray] | None = None,
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
        provenance: provenance of the bank beyond the common figures.
        outcome: fields of `Fit` that depend on the method.
        at_bound: parameter name -> items where it ended at its bound.
    """
    calibrated = _oriented(calibrated, template, start.mean)
    log_likelihood, latent_mean, latent_sd = _marginal(template, calibrated, x, has_missing, name)
    slopes = calibrated.params[:, field_columns(template, ["slope"])[0]]
    statistics = _statistics(responses, start, slopes, calibrated.covariance, at_bound or {})
    params, covariance, sd = calibrated.params, calibrated.covariance, 1.0
    informed = (start.item_n > 0) & (start.counts.max(0) < start.item_n)
    tied = field_columns(template, tied_parameters(template))
    n_parameters = int(informed.sum()) * (params.shape[1] - len(tied)) + len(tied)
    blank = cls.blank(Design(np.full(len(params), 2)))
    if cls is Rasch:
        sd = float(slopes.mean())
        params = params[:, 1:]
        covariance = None if covariance is None else covariance[:, 1:, 1:]
    record = {
        "model": cls.key,
        "n_subjects": len(x),
        "log_likelihood": log_likelihood,
        "converged": outcome["converged"],
        "n_iterations": outcome["n_iterations"],
        "precision": name,
        **provenance,
    }
    bank = ItemBank(
        model=unpack(blank, params),
        item_ids=np.asarray(responses.item_ids, dtype=str),
        populations=Population(0.0, sd),
        covariance=covariance,
        items=responses.items,
        statistics=statistics,
        provenance=record,
        codes=responses.codes,
    )
    return Fit(
        bank=bank,
        responses=responses,
        log_likelihood=log_likelihood,
        n_parameters=n_parameters,
        latent_mean=latent_mean,
        latent_sd=latent_sd,
        n_sparse=0,
        precision=name,
        **outcome,
    )
