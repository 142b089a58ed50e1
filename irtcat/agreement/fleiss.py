"""Fleiss' kappa of many raters, overall and by category."""

from typing import Any

import numpy as np
import pandas as pd

from irtcat._checks import InputError, argument_error, check_interval
from irtcat._types import FloatArray
from irtcat.agreement._labels import read_counts

__all__ = ["fleiss_kappa", "fleiss_kappa_test"]


def fleiss_kappa(ratings: Any = None, *, counts: Any = None, labels: Any = None) -> float:
    """Fleiss' kappa: agreement of many raters beyond chance, whoever they are.

    With n_ij of the n_i raters of unit i giving label j: the agreement of unit i is ``P_i = sum_j
    n_ij (n_ij - 1) / (n_i (n_i - 1))``, a label's share is the mean over units of ``n_ij / n_i``,
    and ``kappa = (mean P_i - sum_j share_j^2) / (1 - sum_j share_j^2)``. Every unit has the
    same weight whatever its number of ratings; a unit with a single rating counts in the shares
    but not in the agreement, one without ratings is ignored. With equal numbers of ratings it is
    Fleiss's (1971).

    Args:
        ratings: a row of labels per unit, with a column per rater; None and NaN are missing; or
            one list of labels per unit, of any lengths. Raters may differ between units.
        counts: instead of ratings: units x labels, how many raters gave the label.
        labels: the labels in order; by default those that occur, sorted.

    Returns:
        1 for perfect agreement, 0 for chance agreement, possibly negative.

    Raises:
        InputError: if no unit has two ratings, all ratings are the same (0 / 0), or a label is
            not in ``labels``.

    Example:
        >>> round(fleiss_kappa([["a", "a", "a"], ["a", "b", "b"], ["b", "b", "b"]]), 4)
        0.55
        >>> round(fleiss_kappa(counts=[[3, 0], [1, 2], [0, 2]]), 4)
        0.55

    References:
        Fleiss (1971), Psychological Bulletin 76, 378-382. Gwet (2014), Handbook of Inter-Rater
        Reliability, 4th ed., chapter 2: unequal numbers of ratings.
    """
    table, _, _ = read_counts(ratings, counts, labels)
    return _kappa_errors(table)[0]


def fleiss_kappa_test(
    ratings: Any = None, *, counts: Any = None, labels: Any = None, level: float = 0.95
) -> pd.DataFrame:
    """Fleiss' kappa overall and by category, with standard errors, tests and intervals.

    A category's kappa is that of the category against all others. There are two standard
    errors. ``null_se`` holds if raters label at random (Fleiss, Nee & Landis 1979): ``2 / (N n
    (n - 1)) * (s^2 - sum p_j q_j (q_j - p_j)) / s^2`` with ``s = sum p_j q_j``, for N units with n
    ratings each; it gives z and the p-value of kappa = 0. ``se`` is that of units drawn from a
    population, by linearisation, and gives the interval; it is Gwet's (2014) if numbers of
    ratings are equal.

    Args:
        ratings: as in `fleiss_kappa`.
        counts: as in `fleiss_kappa`.
        labels: the labels in order.
        level: probability of the normal interval.

    Returns:
        A row ``overall`` and one per label: kappa, share (of the label's ratings; NaN overall),
        se, lower, upper, null_se, z, p_value, units (with two ratings or more). NaN: null_se,
        z and p_value if numbers of ratings differ; se, lower and upper if there is only one
        unit; and all but the share of a label that is never or always used.

    Raises:
        InputError: as `fleiss_kappa`.

    Example:
        >>> table = fleiss_kappa_test([["a", "a", "a"], ["a", "b", "b"], ["b", "b", "b"]])
        >>> table[["kappa", "null_se", "z"]].round(3)
                 kappa  null_se     z
        overall   0.55    0.333  1.65
        a         0.55    0.333  1.65
        b         0.55    0.333  1.65

    References:
        Fleiss (1971), Psychological Bulletin 76, 378-382; Fleiss, Nee & Landis (1979),
        Psychological Bulletin 86, 974-977 (the variance of 1971 was wrong). Gwet (2014), Handbook
        of Inter-Rater Reliability, 4th ed., chapter 5.
    """
    from scipy.special import ndtr, ndtri

    check_interval("level", level)
    table, order, _ = read_counts(ratings, counts, labels)
    shares = _shares(table)
    rows = [(np.nan, *_kappa_errors(table))]
    for j, share in enumerate(shares):
        against = np.column_stack([table[:, j], table.sum(axis=1) - table[:, j]])
        defined = 0 < share < 1 and bool(against.any(axis=0).all())
        rows.append((share, *(_kappa_errors(against) if defined else (np.nan,) * 3)))
    index = pd.Index(["overall", *order], tupleize_cols=False)
    out = pd.DataFrame(rows, index, columns=["share", "kappa", "se", "null_se"])
    half_width = float(ndtri(0.5 + level / 2)) * out["se"]
    out["lower"] = (out["kappa"] - half_width).clip(lower=-1)
    out["upper"] = (out["kappa"] + half_width).clip(upper=1)
    out["z"] = out["kappa"] / out["null_se"]
    out["p_value"] = 2 * ndtr(-out["z"].abs())
    out["units"] = int((table.sum(axis=1) >= 2).sum())
    columns = ["kappa", "share", "se", "lower", "upper", "null_se", "z", "p_value", "units"]
    return out[columns]


def _shares(table: FloatArray) -> FloatArray:
    """Mean share of each label over the units that have ratings."""
    size = table.sum(axis=1)
    return (table[size > 0] / size[size > 0, None]).mean(axis=0)


def _kappa_errors(table: FloatArray) -> tuple[float, float, float]:
    """Kappa, its standard error over units, and the one under random labelling."""
    size = table.sum(axis=1)
    table, size = table[size > 0], size[size > 0]
    paired = size >= 2
    if not paired.any():
        must = "a table with two ratings of some unit"
        raise argument_error("ratings", must, "at most one rating per unit")
    n = size[paired]
    agreement = (table[paired] * (table[paired] - 1)).sum(axis=1) / (n * (n - 1))
    shares = _shares(table)
    scale = float((shares * (1 - shares)).sum())  # 1 - expected agreement
    if np.count_nonzero(table.any(axis=0)) < 2:
        raise InputError("Fleiss' kappa is 0 / 0: all ratings are the same label.")
    observed = agreement.mean()
    kappa = (observed - (1 - scale)) / scale
    # Influence of each unit on kappa: via the expected, then the observed agreement.
    influence = -2 * (1 - kappa) * ((table / size[:, None]) @ shares - (1 - scale)) / scale
    influence[paired] += (agreement - observed) / paired.mean() / scale
    n_units = len(influence)
    se = float(np.sqrt(influence.var(ddof=1) / n_units)) if n_units > 1 else float("nan")
    return float(kappa), se, _null_error(shares, size)


def _null_error(shares: FloatArray, size: FloatArray) -> float:
    """Standard error of kappa if raters label at random; NaN if their numbers differ."""
    if (size != size[0]).any():
        return float("nan")
    n, s = size[0], (shares * (1 - shares)).sum()
    skew = (shares * (1 - shares) * (1 - 2 * shares)).sum()
    return float(np.sqrt(2 * (s**2 - skew) / (len(size) * n * (n - 1))) / s)
