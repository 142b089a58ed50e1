"""Errors of estimates by true ability, from sessions of any origin."""

from typing import Any

import numpy as np
import pandas as pd

from irtcat._common.checks import argument_error, check_count, finite_vector
from irtcat._common.types import FloatArray, IntArray

BINS = 10


def mean_of_finite(values: FloatArray) -> float:
    """Mean of the finite values; NaN without any (the SE of an estimate at a bound is infinite)."""
    finite = values[np.isfinite(values)]
    return float(finite.mean()) if len(finite) else np.nan


def errors_by_ability(
    truth: FloatArray,
    theta: FloatArray,
    se: FloatArray,
    n_items: IntArray,
    at: Any = None,
    bins: int = BINS,
) -> pd.DataFrame:
    """The table of `conditional_errors` for estimates of any origin.

    Args:
        truth: true abilities.
        theta: their estimates.
        se: the stated standard errors.
        n_items: number of items of each estimate.
        at: as for `conditional_errors`.
        bins: as for `conditional_errors`.
    """
    check_count("bins", bins)
    if at is None:
        _, number, counts = np.unique(truth, return_inverse=True, return_counts=True)
        group = bins_of(truth, bins) if counts.min() == 1 else number.ravel()
    else:
        edges = finite_vector("at", at)
        if len(edges) < 2 or (np.diff(edges) <= 0).any():
            raise argument_error("at", "two or more edges in rising order", at)
        group = np.searchsorted(edges, truth, side="right") - 1
        group[truth == edges[-1]] = len(edges) - 2
        group = np.where(group < len(edges) - 1, group, -1)
    return errors_in_groups(truth, theta, se, n_items, group)


def bins_of(truth: FloatArray, bins: int) -> IntArray:
    """Number of each session's bin; the bins have equal numbers of sessions."""
    edges = np.unique(np.quantile(truth, np.linspace(0, 1, bins + 1)))
    last = max(len(edges) - 2, 0)
    return np.clip(np.searchsorted(edges, truth, side="right") - 1, 0, last)


def errors_in_groups(
    truth: FloatArray, theta: FloatArray, se: FloatArray, n_items: IntArray, group: IntArray
) -> pd.DataFrame:
    """One row for each group with sessions; those of group -1 are left out."""
    rows = []
    for number in np.unique(group[group >= 0]):
        at = group == number
        figures = figures_of(theta[at] - truth[at], se[at])
        rows.append({"theta": truth[at].mean(), **figures, "items": n_items[at].mean()})
    return pd.DataFrame(rows, columns=["theta", *FIGURES, "items"])


FIGURES = ("sessions", "bias", "csem", "rmse", "se")
"""What `figures_of` says of some sessions, in the order of the columns."""


def figures_of(error: FloatArray, se: FloatArray) -> dict[str, float]:
    """The `FIGURES` of some sessions: their number, errors, and mean finite SE."""
    csem = error.std(ddof=1) if len(error) > 1 else np.nan
    rmse = np.sqrt((error**2).mean())
    values = (len(error), error.mean(), csem, rmse, mean_of_finite(se))
    return dict(zip(FIGURES, values, strict=True))
