"""Anchor items: which parameters are fixed, the scale that they define, and their bank's rows."""

from dataclasses import dataclass, replace
from typing import Any

import jax.numpy as jnp
import numpy as np
import pandas as pd

from irtcat._common.checks import argument_error
from irtcat._common.positions import places_of
from irtcat._common.types import BoolArray, FloatArray, IntArray
from irtcat.bank import ItemBank
from irtcat.bank.item_states import with_states
from irtcat.models import ItemModel, column_names, item_categories, tied_parameters, unpack
from irtcat.responses import Responses
from irtcat.scoring import match, posterior, standardised

SAMPLE = 4_000_000
"""Maximum number of responses (minimum 100 subjects) used to guess the first population."""


@dataclass(frozen=True)
class Anchors:
    """Items whose parameters are fixed.

    Attributes:
        bank: the anchor items that occur in the responses.
        params: their unconstrained parameters, NaN in the rows of the other items.
    """

    bank: ItemBank
    params: FloatArray

    @property
    def known(self) -> BoolArray:
        """Which parameters are known."""
        return ~np.isnan(self.params)

    def first_population(self, responses: Any, dtype: np.dtype) -> tuple[float, float]:
        """Population mean and SD on the scale of the anchors, by EM on a sample of subjects."""
        bank, matched = match(self.bank, responses)
        rows = np.flatnonzero(matched.answered)
        if len(rows) == 0:
            return bank.population.mean, bank.population.sd
        most = max(100, SAMPLE // matched.n_items)
        x = matched.values[rows[:: -(-len(rows) // most)]]
        mean, sd = bank.population.mean, bank.population.sd
        model = standardised(bank)
        at, unit = mean, sd
        for _ in range(20):
            moved = model.rescale(jnp.asarray((mean - at) / unit), jnp.asarray(sd / unit))
            post = posterior(moved, x, True, dtype)
            centre = (post.weights * post.nodes).sum(1)
            variance = (post.weights * (post.nodes - centre[:, None]) ** 2).sum(1)
            shift, factor = centre.mean(), float(np.sqrt(centre.var() + variance.mean()))
            mean, sd = mean + sd * shift, max(sd * factor, 1e-3)
            if abs(shift) < 0.02 and abs(factor - 1) < 0.02:
                break
        return float(mean), float(sd)


def check_anchors(bank: ItemBank, responses: Responses, cls: type[ItemModel]) -> ItemBank:
    """Anchor items that occur in the responses, in the arrays of the model.

    Raises:
        InputError: for a model whose items share their steps, other codes, or no item in common.
    """
    if "step" in tied_parameters(cls):
        advice = "Calibrate the items together, or link the banks afterwards."
        must = "left out for a model whose items share their steps"
        raise argument_error("anchors", must, f"a {cls.key} model", advice)
    codes = bank.codes or responses.codes
    if bank.model.n_categories > 2 and codes[0] != responses.codes[0]:
        must = f"in codes from {codes[0]} on, as the anchors are"
        advice = "Pass codes= to Responses.from_array."
        raise argument_error("responses", must, f"codes from {responses.codes[0]} on", advice)
    shared = np.isin(bank.item_ids, np.asarray(responses.item_ids, str))
    if shared.any():
        bank = bank.subset(shared)
        bank = bank.in_form_of(cls, int(item_categories(bank.model).max()))
    return match(bank, responses)[0]


def known_categories(
    bank: ItemBank, responses: Responses, observed_categories: IntArray
) -> IntArray:
    """Number of categories of each item; anchor items take theirs from the bank."""
    categories = observed_categories.copy()
    at = places_of(bank.item_ids, responses.item_ids)
    categories[at] = item_categories(bank.model)
    return categories


def anchor_items(
    bank: ItemBank, responses: Responses, template: ItemModel, tied: tuple[int, ...]
) -> Anchors:
    """Parameters of the anchor items, in the rows of the responses' items."""
    names = list(column_names(template))
    params = np.full((responses.n_items, len(names)), np.nan)
    at = places_of(bank.item_ids, responses.item_ids)
    anchor_params = bank.parameters()
    columns = [names.index(name) for name in column_names(bank.model)]
    params[np.ix_(at, np.array(columns))] = (
        np.clip(anchor_params, -30.0, 30.0) if anchor_params.size else anchor_params
    )
    if tied:  # all items share the bank's slope
        unit = column_names(bank.model) != column_names(template)
        shared = [columns.index(column) for column in tied if column in columns]
        params[:, list(tied)] = 1.0 if unit else anchor_params[:, shared].mean()
    return Anchors(bank, params)


def with_anchors(bank: ItemBank, anchors: Anchors) -> ItemBank:
    """The bank with its anchor items unchanged, covariance included, and marked."""
    at = bank.positions(anchors.bank.item_ids)
    names = list(column_names(bank.model))
    columns = np.array([names.index(name) for name in column_names(anchors.bank.model)])
    params = bank.parameters().copy()
    params[np.ix_(at, columns)] = anchors.bank.parameters()
    covariance = bank.covariance
    if covariance is not None:
        covariance = np.array(covariance)
        covariance[at] = np.nan
        if anchors.bank.covariance is not None:
            covariance[np.ix_(at, columns, columns)] = anchors.bank.covariance
    # Which categories have no estimate is a property of the anchors, not of these responses.
    unused = bank.statistics.get("unused", pd.Series([()] * bank.n_items)).tolist()
    for j, row in zip(at, anchors.bank.unused_categories, strict=True):
        unused[j] = tuple(np.flatnonzero(row).tolist())
    anchored = np.isin(np.arange(bank.n_items), at)
    return replace(
        bank,
        model=unpack(bank.model, params),
        covariance=covariance,
        full_covariance=None,
        statistics=with_states(bank.statistics, {"anchored": anchored, "unused": unused}),
    )
