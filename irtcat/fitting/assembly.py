"""From what a solver reached to the `Fit`: states and statistics of the items, the bank."""

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd

from irtcat._common.precision import precision as working_precision
from irtcat._common.types import BoolArray, FloatArray, IntArray
from irtcat.bank import ItemBank, Population
from irtcat.bank.item_states import with_states
from irtcat.fitting.em.anchors import Anchors, with_anchors
from irtcat.fitting.em.covariance import Covariance
from irtcat.fitting.em.driver import Ended
from irtcat.fitting.em.identification import Latent
from irtcat.fitting.em.m_step import count_distinct
from irtcat.fitting.em.priors import PriorTable
from irtcat.fitting.em.setup import FitSetup
from irtcat.fitting.em.start import Start
from irtcat.fitting.outcome import Ending
from irtcat.fitting.problem.item_models import likelihood_notes, share_at_edge
from irtcat.fitting.result import Fit
from irtcat.io.source import ResponseSource
from irtcat.models import (
    STANDARD_FORM,
    ItemModel,
    column_names,
    design_of,
    field_columns,
    item_categories,
    pack,
    unpack,
)
from irtcat.responses import Responses


class Estimates(NamedTuple):
    """What a solver reached, on the scale of the bank.

    Attributes:
        blank: the fitted items, without parameters.
        categories: number of categories of each item.
        params: unconstrained parameters of the items.
        covariance: of the estimates.
        start: counts and scores of the data.
        prior: priors of the items, and which of their parameters are estimated.
        tied: columns of the parameters that items share.
        at_bound: which parameters ended at a bound.
        ending: how the iterations ended.
        log_likelihood: of the responses.
        log_posterior: what was maximised.
        n_subjects: number of subjects with a response.
        n_further: number of estimated parameters that are not the items'.
        method: name of the solver.
    """

    blank: ItemModel
    categories: IntArray
    params: FloatArray
    covariance: Covariance
    start: Start
    prior: PriorTable
    tied: tuple[int, ...]
    at_bound: BoolArray
    ending: Ending
    log_likelihood: float
    log_posterior: float
    n_subjects: int
    n_further: int = 0
    method: str = "em"

    @property
    def n_parameters(self) -> int:
        """Number of parameters that some response informs; tied ones count once."""
        constraints = self.prior.constraints
        counted = np.asarray(constraints.free) & self.prior.informed
        return count_distinct(counted, self.tied, constraints.shared) + self.n_further


def estimates_of_em(
    setup: FitSetup, ended: Ended, covariance: Covariance, **fields: Any
) -> Estimates:
    """What EM reached, with those of the fields that depend on the end of the iterations."""
    data = setup.data
    log_likelihood = ended.log_likelihood(data.rows.weights)
    return Estimates(
        blank=setup.blank,
        categories=data.categories,
        covariance=covariance,
        tied=setup.tied,
        log_likelihood=log_likelihood,
        log_posterior=log_likelihood + float(ended.update.log_prior),
        n_subjects=data.rows.n_subjects,
        **fields,
    )


def _item_states(estimates: Estimates, responses: Responses | ResponseSource) -> dict[str, Any]:
    """The states of the items by name (see `irtcat.bank.item_states.STATES`)."""
    start, prior, params = estimates.start, estimates.prior, estimates.params
    slopes = field_columns(estimates.blank, ["slope"])
    states: dict[str, Any] = {
        "estimated": True,
        "unanswered": start.item_n == 0,
        "constant": start.constant & (start.item_n > 0),
        "weak_prior": prior.sparse,
        "at_bound": names_of_marks(estimates.at_bound, column_names(estimates.blank)),
    }
    if len(start.counts) > 2:
        states["unused"] = [tuple(np.flatnonzero(row).tolist()) for row in prior.empty.T]
    if len(slopes) == 1:
        states["negative_slope"] = params[:, slopes[0]] < 0
    if estimates.covariance.blocks is not None:
        free = np.asarray(prior.constraints.free)
        variance = np.diagonal(estimates.covariance.blocks, axis1=1, axis2=2)
        states["singular"] = (free & ~(variance > 0)).any(axis=1)
    if "edge" in estimates.blank.fixed and isinstance(responses, Responses):
        edge: Any = estimates.blank.edge  # type: ignore[attr-defined]
        states["at_edge"] = share_at_edge(responses.values, edge)
    return states


def names_of_marks(marks: BoolArray, names: tuple[str, ...]) -> list[tuple[str, ...]]:
    """For each item the names of its marked parameters.

    Example:
        >>> names_of_marks(np.array([[True, False], [True, True]]), ("a", "b"))
        [('a',), ('a', 'b')]
    """
    out: list[tuple[str, ...]] = [()] * len(marks)
    for j in np.flatnonzero(marks.any(axis=1)):  # few of thousands
        out[j] = tuple(name for name, hit in zip(names, marks[j], strict=True) if hit)
    return out


def _item_statistics(responses: Responses | ResponseSource, estimates: Estimates) -> pd.DataFrame:
    """Statistics of each item's calibration data, and its states."""
    start, categories = estimates.start, estimates.categories
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
    return with_states(table, _item_states(estimates, responses))


def _standard_form(
    cls: type[ItemModel], estimates: Estimates, latent: Latent
) -> tuple[ItemModel, dict[str, Any]]:
    """The items, and the fields of the bank; a Rasch bank takes the slope into its population."""
    blank, params = estimates.blank, estimates.params
    covariance, full = estimates.covariance.blocks, estimates.covariance.full
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
    return unpack(blank, params[:, keep]), {
        "covariance": covariance,
        "full_covariance": full,
        "populations": Population(mean, sd),
    }


def _general_form(estimates: Estimates) -> tuple[ItemModel, dict[str, Any]]:
    """The items, and the fields of the bank; rating scale items become partial credit items."""
    blank, params, covariance = estimates.blank, estimates.params, estimates.covariance.blocks
    model = unpack(blank, params)
    if blank.has_fixed_unit or model.untied() is model:
        return model, {"covariance": covariance}

    def one(vector: Any, item: Any) -> Any:
        new = unpack(item, vector).untied()
        return pack(jax.tree.map(lambda leaf: jnp.asarray(leaf)[None], new))[0]

    with working_precision("float64"):
        model = jax.tree.map(np.asarray, model.untied())
        slopes = np.asarray(jax.vmap(jax.jacfwd(one))(jnp.asarray(params), blank))
    if covariance is None:
        return model, {}
    known = np.isnan(np.diagonal(covariance, axis1=1, axis2=2))
    out = slopes @ np.nan_to_num(covariance) @ slopes.transpose(0, 2, 1)
    depends = np.einsum("jqp,jp->jq", slopes != 0, ~known) > 0
    return model, {"covariance": np.where(depends[:, :, None] & depends[:, None, :], out, np.nan)}


def fit_of(
    responses: Responses | ResponseSource,
    cls: type[ItemModel],
    estimates: Estimates,
    *,
    precision: str,
    latent: Latent | None = None,
    bank: Mapping[str, Any] = MappingProxyType({}),
    anchors: Anchors | None = None,
    details: Mapping[str, Any] = MappingProxyType({}),
    notes: Iterable[str] = (),
    **fields: Any,
) -> Fit:
    """The `Fit`, with the provenance of its bank.

    Args:
        responses: what the items were calibrated on.
        cls: the requested model.
        estimates: what the solver reached.
        precision: name of the working precision.
        latent: the population of a bank of one ability, in which equal slopes are 1; None where
            ``bank`` has the populations, and slopes are as they are.
        bank: further fields of the bank.
        anchors: items that keep their parameters.
        details: further entries of the provenance.
        notes: remarks; empty ones are left out.
        fields: the other fields of `Fit`.
    """
    prior, ending = estimates.prior, estimates.ending
    model, made = (
        _general_form(estimates) if latent is None else _standard_form(cls, estimates, latent)
    )
    likelihood, quasi = likelihood_notes(responses, cls)
    most = int(item_categories(model).max())
    codes = responses.codes if isinstance(responses, Responses) else tuple(range(most))
    provenance = {
        "model": cls.key,
        "method": estimates.method,
        "n_subjects": estimates.n_subjects,
        "log_likelihood": estimates.log_likelihood,
        **details,
        "converged": ending.converged,
        "n_iterations": ending.n_iterations,
        "priors": {k: v if isinstance(v, str) else list(v) for k, v in prior.description.items()},
        "n_sparse": int(prior.sparse.sum()),
        "standard_errors": estimates.covariance.how,
        "precision": precision,
        **likelihood,
    }
    items = ItemBank(
        model=model,
        item_ids=np.asarray(responses.item_ids, dtype=str),
        items=responses.items,
        statistics=_item_statistics(responses, estimates),
        provenance=provenance,
        codes=codes,
        **{**made, **bank},
    )
    if anchors is not None:
        items = with_anchors(items, anchors)
    fields = {"latent_mean": np.nan, "latent_sd": np.nan} | fields
    return Fit(
        bank=items,
        responses=responses,
        log_likelihood=estimates.log_likelihood,
        log_posterior=estimates.log_posterior,
        converged=ending.converged,
        n_iterations=ending.n_iterations,
        n_parameters=estimates.n_parameters,
        message=" ".join(filter(None, [ending.message, quasi])),
        notes=tuple(filter(None, notes)),
        trace=ending.trace,
        priors=prior.description,
        n_sparse=int(prior.sparse.sum()),
        precision=precision,
        **fields,
    )
