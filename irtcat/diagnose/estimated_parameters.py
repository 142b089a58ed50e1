"""Which parameters of a bank were estimated, and their number."""

import math
from typing import NamedTuple

import numpy as np

from irtcat._common.checks import check_choice
from irtcat._common.types import BoolArray, FloatArray, IntArray
from irtcat.bank import ItemBank
from irtcat.models import column_names, field_columns, free_parameters, tied_parameters

ESTIMATED = ("auto", "all", "none")


class Free(NamedTuple):
    """The estimated parameters.

    Attributes:
        mask: items x params, whether the parameter was estimated.
        shared: params, whether all items that have it share it.
        sd: whether the population's SD was estimated.
        n_correlations: number of estimated correlations between dimensions.
        n_rotations: number of slopes that are not identified, due to rotation of the axes.
        groups: further populations whose mean, SD and correlations were estimated.
    """

    mask: BoolArray
    shared: BoolArray
    sd: bool
    n_correlations: int
    n_rotations: int
    groups: tuple[str, ...] = ()

    @property
    def n_population(self) -> int:
        """Number of estimated parameters of the population."""
        return int(self.sd) + self.n_correlations

    @property
    def by_item(self) -> IntArray:
        """Number of estimated parameters of each item, including shared ones."""
        return self.mask.sum(axis=1)

    @property
    def total(self) -> int:
        """Number of distinct estimated parameters."""
        counts = self.mask.sum(axis=0)
        distinct = np.where(self.shared, np.minimum(counts, 1), counts).sum()
        return int(distinct) + self.n_population - self.n_rotations

    def design(self) -> FloatArray:
        """Matrix (items * params) x distinct that maps distinct item parameters to all."""
        columns = []
        for c in range(self.mask.shape[1]):
            rows = np.flatnonzero(self.mask[:, c])
            groups = [rows] if self.shared[c] and len(rows) else rows[:, None]
            for group in groups:
                column = np.zeros(self.mask.shape)
                column[group, c] = 1.0
                columns.append(column.ravel())
        return np.stack(columns, axis=1) if columns else np.zeros((self.mask.size, 0))


def free_of(bank: ItemBank, estimated: str = "auto") -> Free:
    """The parameters of the bank that count as estimated from the responses.

    Args:
        bank: the items.
        estimated: "auto": those with a variance in the bank's covariance; all parameters of the
            model if the bank was fitted without standard errors; none if it was built from known
            parameters. Or "all" or "none".

    Raises:
        InputError: for another ``estimated``.
    """
    check_choice("estimated", estimated, ESTIMATED)
    possible = _possible(bank)
    is_free = bank.covariance is not None or bank.has("estimated").any()
    any_free = estimated == "all" or (estimated == "auto" and is_free)
    if not any_free:
        return Free(np.zeros_like(possible), np.zeros(possible.shape[1], bool), False, 0, 0)
    mask = possible if estimated == "all" else possible & _with_errors(bank)
    n_pairs = math.comb(bank.model.dims, 2)
    n_correlations = 0 if bank.reference.correlations is None else n_pairs
    rotates = n_pairs > n_correlations
    if rotates:
        rotates = bool(mask[:, list(field_columns(bank.model, ["slope"]))].all())
    n_rotations, groups = n_pairs if rotates else 0, tuple(bank.populations)[1:]
    sd, shared = bank.model.has_fixed_unit, _shared(bank, mask)
    return Free(mask, shared, sd, n_correlations, n_rotations, groups=groups)


def _possible(bank: ItemBank) -> BoolArray:
    """Parameters with information in the responses, as counted by `irtcat.Fit.n_parameters`.

    Excludes those of unused categories, and of items without answers or with equal answers.
    """
    possible = np.array(free_parameters(bank.model))
    possible[bank.has("unanswered") | bank.has("constant")] = False
    unused = bank.unused_categories
    if unused.any():
        possible &= ~bank.model.hold_unused(unused)[1]
    # Slopes of 0 are not estimated: the item does not measure the ability.
    slopes = list(field_columns(bank.model, ["slope"]))
    possible[:, slopes] &= bank.parameters()[:, slopes] != 0
    return possible


def _with_errors(bank: ItemBank) -> BoolArray:
    """Parameters with a standard error, and all parameters of items whose errors are missing."""
    if bank.covariance is None:
        return np.tile(bank.has("estimated")[:, None], len(column_names(bank.model)))
    known = ~np.isnan(np.diagonal(np.asarray(bank.covariance), axis1=1, axis2=2))
    known[bank.has("singular")] = True
    return known


def _shared(bank: ItemBank, mask: BoolArray) -> BoolArray:
    """Parameters that all items share: by the model, or by ``equal`` of `irtcat.fit`.

    The latter are detected by their values, which are exactly equal.
    """
    by_model = np.zeros(mask.shape[1], bool)
    by_model[list(field_columns(bank.model, tied_parameters(bank.model)))] = True
    values = bank.parameters()
    variances = None
    if bank.covariance is not None:
        variances = np.diagonal(np.asarray(bank.covariance), axis1=1, axis2=2)
    equal = np.zeros(mask.shape[1], bool)
    estimated = bank.has("estimated")
    for c in range(mask.shape[1]):
        rows = mask[:, c] & estimated
        if rows.sum() < 2:
            continue
        same = np.ptp(values[rows, c]) == 0
        if same and variances is not None:
            same = bool(np.allclose(variances[rows, c], variances[rows, c][0], rtol=1e-6))
        equal[c] = same
    return by_model | equal
