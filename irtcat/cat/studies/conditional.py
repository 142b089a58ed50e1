"""Errors of the estimates given the true ability, from simulated sessions."""

from typing import Any

import numpy as np
import pandas as pd

from irtcat._common.checks import argument_error, check_count, finite_vector
from irtcat._common.types import FloatArray, IntArray
from irtcat.cat.studies.report import Report, mean_of_finite

BINS = 10


def conditional_errors(report: Report, at: Any = None, *, bins: int = BINS) -> pd.DataFrame:
    """Bias and conditional standard error of the estimates by true ability.

    The conditional standard error (CSEM) is the SD of ``estimate - truth`` over sessions of the
    same true ability, with ``n - 1``; its own standard error is near ``CSEM / sqrt(2 (n - 1))``.
    The mean SE that the sessions state should agree with it. A Bayesian estimate (EAP, MAP) is
    biased towards the mean of the prior; the SE that it states is near ``rmse``, averaged over the
    population.

    Args:
        report: sessions simulated for one ability, best for a grid of abilities with many sessions
            each: `simulate` with ``theta=np.repeat(grid, 200)``.
        at: edges of bins of true ability, in rising order; sessions outside are left out. By
            default one row for each true ability that occurs at least twice if all do, else
            ``bins`` bins with equal numbers of sessions.
        bins: number of these bins.

    Returns:
        One row per ability or bin: ``theta`` (mean true ability), ``sessions``, ``bias``, ``csem``
        (NaN with one session), ``rmse``, ``se`` (mean of the stated finite SEs) and ``items`` (mean
        length).

    Raises:
        InputError: for sessions of several abilities, or edges out of order.

    Example:
        >>> from irtcat import ItemBank
        >>> from irtcat.cat import Config, simulate
        >>> bank = ItemBank.from_parameters(a=1.5, b=np.linspace(-2, 2, 40))
        >>> report = simulate(bank, np.repeat([-1.0, 0.0, 1.0], 50), Config(max_items=10), seed=1)
        >>> table = conditional_errors(report)
        >>> table.theta.tolist(), table.sessions.tolist(), bool((table.csem < 0.6).all())
        ([-1.0, 0.0, 1.0], [50, 50, 50], True)

    References:
        Weiss & Kingsbury (1984), Journal of Educational Measurement 21, 361-375; Green et al.
        (1984), the same 21, 347-360.
    """
    if not isinstance(report, Report):
        must = "a report of `simulate` or `replay`"
        raise argument_error("report", must, type(report).__name__)
    if report.truth.ndim != 1:
        raise argument_error("report", "a report of one ability", f"{report.truth.shape[1]}")
    return errors_by_ability(report.truth, report.theta, report.se, report.n_items, at, bins)


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
    group, n_groups = _groups(truth, at, bins)
    rows = []
    for number in range(n_groups):
        selected = group == number
        if not selected.any():
            continue
        error, errors = theta[selected] - truth[selected], se[selected]
        rows.append(
            {
                "theta": truth[selected].mean(),
                "sessions": int(selected.sum()),
                "bias": error.mean(),
                "csem": error.std(ddof=1) if len(error) > 1 else np.nan,
                "rmse": np.sqrt((error**2).mean()),
                "se": mean_of_finite(errors),
                "items": n_items[selected].mean(),
            }
        )
    columns = ["theta", "sessions", "bias", "csem", "rmse", "se", "items"]
    return pd.DataFrame(rows, columns=columns)


def _groups(truth: FloatArray, at: Any, bins: int) -> tuple[IntArray, int]:
    """Group of each session, -1 for none, and the number of groups."""
    check_count("bins", bins)
    if at is None:
        values, group, counts = np.unique(truth, return_inverse=True, return_counts=True)
        if counts.min() > 1:
            return group.ravel(), len(values)
        edges = np.unique(np.quantile(truth, np.linspace(0, 1, bins + 1)))
    else:
        edges = finite_vector("at", at)
        if len(edges) < 2 or (np.diff(edges) <= 0).any():
            raise argument_error("at", "two or more edges in rising order", at)
    if len(edges) == 1:
        return np.zeros(len(truth), int), 1
    group = np.searchsorted(edges, truth, side="right") - 1
    group[truth == edges[-1]] = len(edges) - 2
    return np.where(group < len(edges) - 1, group, -1), len(edges) - 1
