"""Flags and statistics of the items, and the bank of a fit."""

from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from irtcat._common.types import BoolArray, FloatArray
from irtcat.bank import ItemBank, Population
from irtcat.bank._uncertainty import NEVER_USED
from irtcat.fitting.em.priors import PriorTable
from irtcat.fitting.em.shared_parameters import count_distinct
from irtcat.fitting.em.start import Start
from irtcat.fitting.problem.uncategorised import QUASI, likelihood_notes
from irtcat.fitting.result import Fit
from irtcat.io.source import ResponseSource
from irtcat.models import (
    STANDARD_FORM,
    ItemModel,
    design_of,
    field_columns,
    item_categories,
    unpack,
)
from irtcat.responses import Responses

AT_BOUND = "{} at its bound"
"""Flag of an item with a parameter at its bound."""


class Latent(NamedTuple):
    """Mean and SD of the population on the scale of the items."""

    mean: float = 0.0
    sd: float = 1.0


def item_flags(
    prior: PriorTable,
    start: Start,
    params: FloatArray,
    covariance: FloatArray | None,
    names: tuple[str, ...],
    slopes: tuple[int, ...],
    at_bound: BoolArray,
) -> list[str]:
    """The flags of each item."""
    flags: list[list[str]] = [[] for _ in params]

    def mark(which: Any, text: str) -> None:
        for j in np.flatnonzero(which):
            flags[j].append(text)

    constant = start.counts.max(0) >= start.item_n
    mark(start.item_n == 0, "no responses")
    mark(constant & (start.item_n > 0), "constant")
    mark(prior.sparse, "weak prior")
    if len(start.counts) > 2:
        for category in range(len(start.counts)):
            mark(prior.empty[category], NEVER_USED.format(category + 1))
    free = np.asarray(prior.constraints.free)
    for column, name in enumerate(names):
        mark(at_bound[:, column], AT_BOUND.format(name))
    if len(slopes) == 1:
        mark(params[:, slopes[0]] < 0, "negative slope")
    if covariance is not None:
        variance = np.diagonal(covariance, axis1=1, axis2=2)
        mark((free & ~(variance > 0)).any(axis=1), "no standard error: its information is singular")
    return ["; ".join(texts) for texts in flags]


def n_parameters(prior: PriorTable, tied: tuple[int, ...]) -> int:
    """Number of parameters that some response informs; tied ones count once."""
    counted = np.asarray(prior.constraints.free) & prior.informed
    return count_distinct(counted, tied, prior.constraints.shared)


def item_statistics(
    responses: Responses | ResponseSource,
    categories: np.ndarray,
    start: Start,
    flags: list[str],
) -> pd.DataFrame:
    """Statistics of each item's calibration data."""
    share = np.full(len(start.item_n), np.nan)
    np.divide(start.item_right, start.item_n, out=share, where=start.item_n > 0)
    columns: dict[str, Any] = {
        "n_responses": start.item_n.round().astype(int),
        "proportion_correct": share,
    }
    if isinstance(responses, Responses) and responses.trials is not None:
        columns["n_responses"] = responses.observed.sum(axis=0)
        columns["n_trials"] = responses.trials.sum(axis=0, dtype=np.int64)
    if (categories > 2).any():
        columns["n_categories"] = categories
    columns["flag"] = flags
    return pd.DataFrame(columns, index=pd.Index(responses.item_ids, dtype=object))


def bank_of(
    responses: Responses | ResponseSource,
    cls: type[ItemModel],
    blank: ItemModel,
    params: FloatArray,
    covariance: FloatArray | None,
    full: FloatArray | None,
    latent: Latent,
    statistics: pd.DataFrame,
) -> ItemBank:
    """The items on the bank's scale; a Rasch bank takes the common slope into its population."""
    mean, sd, keep = latent.mean, latent.sd, list(range(params.shape[1]))
    if cls in STANDARD_FORM:
        slope = field_columns(blank, ["slope"])
        factor = float(params[:, slope].mean())
        mean, sd, keep = mean * factor, sd * factor, [p for p in keep if p not in slope]
        blank = cls.blank(design_of(blank))
    if covariance is not None:
        covariance = covariance[:, keep][:, :, keep]
    if full is not None:
        columns = (np.arange(len(params))[:, None] * params.shape[1] + keep).ravel()
        full = full[np.ix_(columns, columns)]
    return ItemBank(
        model=unpack(blank, params[:, keep]),
        item_ids=np.asarray(responses.item_ids, dtype=str),
        populations=Population(mean, sd),
        covariance=covariance,
        items=responses.items,
        statistics=statistics,
        full_covariance=full,
    )


def fit_of(
    responses: Responses | ResponseSource,
    cls: type[ItemModel],
    bank: ItemBank,
    prior: PriorTable,
    *,
    method: str,
    n_subjects: int,
    converged: bool,
    n_iterations: int,
    log_likelihood: float,
    message: str,
    precision: str,
    standard_errors: str,
    details: Mapping[str, Any] = MappingProxyType({}),
    **fields: Any,
) -> Fit:
    """The `Fit`, with the provenance of its bank.

    Args:
        responses: what the items were calibrated on.
        cls: the requested model.
        bank: the calibrated items.
        prior: their priors.
        method: how they were estimated.
        n_subjects: number of subjects with a response.
        converged: whether the iterations converged.
        n_iterations: number of iterations.
        log_likelihood: of the responses.
        message: how the iterations ended.
        precision: name of the working precision.
        standard_errors: how the covariance was computed.
        details: further entries of the provenance.
        fields: the other fields of `Fit`.
    """
    notes = likelihood_notes(responses, cls)
    most = int(item_categories(bank.model).max())
    provenance = {
        "model": cls.key,
        "method": method,
        "n_subjects": n_subjects,
        "log_likelihood": log_likelihood,
        **details,
        "converged": converged,
        "n_iterations": n_iterations,
        "priors": {k: v if isinstance(v, str) else list(v) for k, v in prior.description.items()},
        "n_sparse": int(prior.sparse.sum()),
        "standard_errors": standard_errors,
        "precision": precision,
        "codes": list(getattr(responses, "codes", range(most))),
        **notes,
    }
    fields = {"latent_mean": np.nan, "latent_sd": np.nan} | fields
    return Fit(
        bank=replace(bank, provenance=provenance),
        responses=responses,
        log_likelihood=log_likelihood,
        converged=converged,
        n_iterations=n_iterations,
        message=" ".join([message, *([QUASI] if QUASI in notes.values() else [])]),
        priors=prior.description,
        n_sparse=int(prior.sparse.sum()),
        precision=precision,
        **fields,
    )
