"""States and statistics of the items, and the bank of a fit."""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from irtcat._common.types import BoolArray, FloatArray
from irtcat.bank import ItemBank, Population
from irtcat.bank.item_states import with_states
from irtcat.fitting.em.priors import PriorTable
from irtcat.fitting.em.shared_parameters import count_distinct
from irtcat.fitting.em.start import Start
from irtcat.fitting.outcome import Ending
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


class Latent(NamedTuple):
    """Mean and SD of the population on the scale of the items."""

    mean: float = 0.0
    sd: float = 1.0


def item_states(
    prior: PriorTable,
    start: Start,
    params: FloatArray,
    covariance: FloatArray | None,
    names: tuple[str, ...],
    slopes: tuple[int, ...],
    at_bound: BoolArray,
) -> dict[str, Any]:
    """The states of the items by name (see `irtcat.bank.item_states.STATES`)."""
    constant = start.counts.max(0) >= start.item_n
    states: dict[str, Any] = {
        "estimated": True,
        "unanswered": start.item_n == 0,
        "constant": constant & (start.item_n > 0),
        "weak_prior": prior.sparse,
        "at_bound": names_of_marks(at_bound, names),
    }
    if len(start.counts) > 2:
        states["unused"] = [tuple(np.flatnonzero(row).tolist()) for row in prior.empty.T]
    if len(slopes) == 1:
        states["negative_slope"] = params[:, slopes[0]] < 0
    if covariance is not None:
        free = np.asarray(prior.constraints.free)
        variance = np.diagonal(covariance, axis1=1, axis2=2)
        states["singular"] = (free & ~(variance > 0)).any(axis=1)
    return states


def names_of_marks(marks: BoolArray, names: tuple[str, ...]) -> list[tuple[str, ...]]:
    """For each item the names of its marked parameters.

    Example:
        >>> names_of_marks(np.array([[True, False], [True, True]]), ("a", "b"))
        [('a',), ('a', 'b')]
    """
    return [tuple(name for name, hit in zip(names, row, strict=True) if hit) for row in marks]


def n_parameters(prior: PriorTable, tied: tuple[int, ...]) -> int:
    """Number of parameters that some response informs; tied ones count once."""
    counted = np.asarray(prior.constraints.free) & prior.informed
    return count_distinct(counted, tied, prior.constraints.shared)


def item_statistics(
    responses: Responses | ResponseSource,
    categories: np.ndarray,
    start: Start,
    states: Mapping[str, Any],
) -> pd.DataFrame:
    """Statistics of each item's calibration data, and its states."""
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
    table = pd.DataFrame(columns, index=pd.Index(responses.item_ids, dtype=object))
    return with_states(table, states)


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
    ending: Ending,
    log_likelihood: float,
    precision: str,
    standard_errors: str,
    details: Mapping[str, Any] = MappingProxyType({}),
    notes: Iterable[str] = (),
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
        ending: how the iterations ended.
        log_likelihood: of the responses.
        precision: name of the working precision.
        standard_errors: how the covariance was computed.
        details: further entries of the provenance.
        notes: remarks; empty ones are left out.
        fields: the other fields of `Fit`.
    """
    likelihood = likelihood_notes(responses, cls)
    most = int(item_categories(bank.model).max())
    codes = responses.codes if isinstance(responses, Responses) else tuple(range(most))
    provenance = {
        "model": cls.key,
        "method": method,
        "n_subjects": n_subjects,
        "log_likelihood": log_likelihood,
        **details,
        "converged": ending.converged,
        "n_iterations": ending.n_iterations,
        "priors": {k: v if isinstance(v, str) else list(v) for k, v in prior.description.items()},
        "n_sparse": int(prior.sparse.sum()),
        "standard_errors": standard_errors,
        "precision": precision,
        **likelihood,
    }
    fields = {"latent_mean": np.nan, "latent_sd": np.nan} | fields
    return Fit(
        bank=replace(bank, provenance=provenance, codes=codes),
        responses=responses,
        log_likelihood=log_likelihood,
        converged=ending.converged,
        n_iterations=ending.n_iterations,
        message=" ".join([ending.message, *([QUASI] if QUASI in likelihood.values() else [])]),
        notes=tuple(filter(None, notes)),
        trace=ending.trace,
        priors=prior.description,
        n_sparse=int(prior.sparse.sum()),
        precision=precision,
        **fields,
    )
