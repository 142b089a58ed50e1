"""Which parameters of a bank were estimated, and how many they are."""

from typing import NamedTuple

import numpy as np

from irtcat._bank_moves import unused_categories
from irtcat._checks import check_choice
from irtcat._types import BoolArray, FloatArray, IntArray
from irtcat.bank import ItemBank
from irtcat.models import column_names, field_columns, free_parameters

__all__ = ["ESTIMATED", "Free", "free_of"]

ESTIMATED = ("auto", "all", "none")
UNINFORMED = {"constant", "no responses"}
"""Flags of items that no response informs."""

WITH_FREE_SD = ("rasch", "pcm", "rsm")


class Free(NamedTuple):
    """The estimated parameters.

    Attributes:
        own: items x params, whether the parameter was estimated.
        shared: params, whether it is one and the same for all items that have it.
        sd: whether the population's SD was estimated.
        n_correlations: number of correlations of abilities that were estimated.
        n_turns: how many of the slopes are no parameters, since the axes may turn.
    """

    own: BoolArray
    shared: BoolArray
    sd: bool
    n_correlations: int
    n_turns: int

    @property
    def n_population(self) -> int:
        """Estimated parameters of the population."""
        return int(self.sd) + self.n_correlations

    @property
    def by_item(self) -> IntArray:
        """Estimated parameters of each item, shared ones included."""
        return self.own.sum(axis=1)

    @property
    def total(self) -> int:
        """Number of distinct estimated parameters."""
        each = self.own.sum(axis=0)
        items = np.where(self.shared, np.minimum(each, 1), each).sum()
        return int(items) + self.n_population - self.n_turns

    def spread(self) -> FloatArray:
        """Matrix (items * params) x distinct that takes distinct item parameters to all."""
        columns = []
        for c in range(self.own.shape[1]):
            rows = np.flatnonzero(self.own[:, c])
            each = [rows] if self.shared[c] and len(rows) else rows[:, None]
            for own in each:
                column = np.zeros(self.own.shape)
                column[own, c] = 1.0
                columns.append(column.ravel())
        return np.stack(columns, axis=1) if columns else np.zeros((self.own.size, 0))


def free_of(bank: ItemBank, estimated: str = "auto") -> Free:
    """The parameters of the bank that count as estimated from the responses at hand.

    Args:
        bank: the items.
        estimated: "auto": what the bank's covariance says was estimated; all the model's
            parameters where the bank was fitted without standard errors; none where it was not
            fitted but built from known parameters. "all" or "none" say so.

    Raises:
        InputError: for another ``estimated``.
    """
    check_choice("estimated", estimated, ESTIMATED)
    has = _possible(bank)
    fitted = "method" in bank.provenance
    any_free = estimated == "all" or (estimated == "auto" and (fitted or _has_errors(bank)))
    if not any_free:
        return Free(np.zeros_like(has), np.zeros(has.shape[1], bool), False, 0, 0)
    own = has if estimated == "all" else has & _with_errors(bank)
    dims = bank.model.dims
    turns = dims > 1 and bank.correlations is None and bool(_slopes(bank, own).all())
    return Free(
        own,
        _shared(bank, own),
        bank.model.key in WITH_FREE_SD,
        0 if bank.correlations is None else dims * (dims - 1) // 2,
        dims * (dims - 1) // 2 if turns else 0,
    )


def _possible(bank: ItemBank) -> BoolArray:
    """Parameters that some response informs, as `irtcat.Fit.n_parameters` counts them.

    Not those of categories that nobody used, and of items that nobody answered or all answered
    alike.
    """
    has = np.array(free_parameters(bank.model))
    if "method" in bank.provenance and "flags" in bank.statistics:
        flags = bank.statistics["flags"].astype(str).str.split("; ")
        has[[bool(UNINFORMED & set(texts)) for texts in flags]] = False
    unused = unused_categories(bank)
    if unused.any():
        has &= ~bank.model.hold_unused(unused)[1]
    pattern = getattr(bank.model, "pattern", None)
    if pattern is not None:
        has[:, list(field_columns(bank.model, ["slope"]))] &= np.asarray(pattern) != 0
    return has


def _slopes(bank: ItemBank, own: BoolArray) -> BoolArray:
    return own[:, list(field_columns(bank.model, ["slope"]))]


def _has_errors(bank: ItemBank) -> bool:
    return bank.covariance is not None


def _with_errors(bank: ItemBank) -> BoolArray:
    """Parameters with a standard error, and all of items whose errors could not be had."""
    if bank.covariance is None:
        return np.ones((bank.n_items, len(column_names(bank.model))), bool)
    known = ~np.isnan(np.diagonal(np.asarray(bank.covariance), axis1=1, axis2=2))
    flags = bank.statistics.get("flags")
    if flags is not None:
        lost = flags.astype(str).str.contains("no standard error").to_numpy()
        known[lost] = True
    return known


def _shared(bank: ItemBank, own: BoolArray) -> BoolArray:
    """Parameters that all items share: by the model, or as `irtcat.fit` was told by ``equal``.

    The latter are known by their values, which are the same to the last digit.
    """
    by_model = np.zeros(own.shape[1], bool)
    by_model[list(field_columns(bank.model, bank.model.tied))] = True
    values = bank.parameters()
    variances = None
    if bank.covariance is not None:
        variances = np.diagonal(np.asarray(bank.covariance), axis1=1, axis2=2)
    equal = np.zeros(own.shape[1], bool)
    fitted = "method" in bank.provenance
    for c in range(own.shape[1]):
        rows = own[:, c]
        if not fitted or rows.sum() < 2:
            continue
        same = np.ptp(values[rows, c]) == 0
        if same and variances is not None:
            same = bool(np.allclose(variances[rows, c], variances[rows, c][0], rtol=1e-6))
        equal[c] = same
    return by_model | equal
