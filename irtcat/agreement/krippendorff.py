"""Krippendorff's alpha: any number of raters, missing ratings, four levels of measurement."""

from collections.abc import Callable
from typing import Any

import numpy as np

from irtcat._checks import InputError, argument_error, check_choice
from irtcat._types import FloatArray
from irtcat.agreement._labels import has_natural_order, read_counts

__all__ = ["MEASUREMENTS", "krippendorff_alpha"]


def krippendorff_alpha(
    ratings: Any = None, measurement: str = "nominal", *, counts: Any = None, labels: Any = None
) -> float:
    """Krippendorff's alpha: 1 - observed disagreement / disagreement expected by chance.

    Each unit with m >= 2 ratings pairs all of them, each pair with weight 1 / (m - 1): the
    coincidences ``o_ck``, with margins n_c and total n. ``alpha = 1 - (n - 1) sum o_ck d_ck / sum
    n_c n_k d_ck`` with the squared distance d of two values: 1 for different ones (nominal);
    ``(sum of n_g for g from c to k, less (n_c + n_k) / 2)^2`` (ordinal); ``(c - k)^2`` (interval);
    ``((c - k) / (c + k))^2`` (ratio). Units with one rating are ignored.

    Args:
        ratings: a row of labels per unit, with a column per rater; None and NaN are missing; or
            one list of labels per unit, of any lengths. (Other programs have raters in rows.)
        measurement: ``"nominal"``, ``"ordinal"``, ``"interval"`` or ``"ratio"``.
        counts: instead of ratings: units x labels, how many raters gave the label.
        labels: the labels in order; by default those that occur, sorted. Labels that are not
            numbers must be put in order here for ``"ordinal"``; interval and ratio need numbers.

    Returns:
        1 for perfect agreement, 0 for chance agreement, possibly negative.

    Raises:
        InputError: if no unit has two ratings; all pairable ratings are the same (0 / 0); or
            labels are not valid for the measurement (ratio: at least 0).

    Example:
        Twelve units, one to four ratings each, from the first reference:

        >>> units = [[1, 1, 1], [2, 2, 3, 2], [3, 3, 3, 3], [3, 3, 3, 3], [2, 2, 2, 2]]
        >>> units += [[1, 2, 3, 4], [4, 4, 4, 4], [1, 1, 2, 1], [2, 2, 2, 2], [5, 5, 5]]
        >>> units += [[1, 1], [3]]
        >>> for level in ("nominal", "ordinal", "interval", "ratio"):
        ...     print(level, round(krippendorff_alpha(units, level), 3))
        nominal 0.743
        ordinal 0.815
        interval 0.849
        ratio 0.797

    References:
        Krippendorff (2011), Computing Krippendorff's Alpha-Reliability; Hayes & Krippendorff
        (2007), Communication Methods and Measures 1, 77-89.
    """
    check_choice("measurement", measurement, MEASUREMENTS)
    table, order, _ = read_counts(ratings, counts, labels)
    values = _values(order, measurement, stated=labels is not None or counts is not None)
    size = table.sum(axis=1)
    table = table[size >= 2]
    if len(table) == 0:
        must = "a table with two ratings of some unit"
        raise argument_error("ratings", must, "at most one rating per unit")
    share = table / (table.sum(axis=1) - 1)[:, None]
    coincidences = table.T @ share - np.diag(share.sum(axis=0))
    margin = coincidences.sum(axis=1)
    d = MEASUREMENTS[measurement](values, margin)
    expected = margin @ d @ margin
    if not expected > 0:
        raise InputError("Krippendorff's alpha is 0 / 0: all ratings that can be paired are equal.")
    return float(1.0 - (margin.sum() - 1.0) * (coincidences * d).sum() / expected)


def _values(order: list[Any], measurement: str, stated: bool) -> FloatArray:
    """The labels as numbers if the measurement needs them; requires an order if it needs one."""
    if measurement in ("interval", "ratio"):
        if not has_natural_order(order):
            raise argument_error("ratings", f'numbers for measurement="{measurement}"', order)
        values = np.array(order, dtype=np.float64)
        if not np.isfinite(values).all():
            raise argument_error("ratings", "finite numbers", order)
        if measurement == "ratio" and (values < 0).any():
            raise argument_error("ratings", 'at least 0 for measurement="ratio"', values.min())
        return values
    if measurement == "ordinal" and not (stated or has_natural_order(order)):
        must = 'given in order for measurement="ordinal", since the labels are not numbers'
        raise argument_error("labels", must, None)
    return np.arange(len(order), dtype=np.float64)


def _nominal(values: FloatArray, margin: FloatArray) -> FloatArray:
    return 1.0 - np.eye(len(values))


def _ordinal(values: FloatArray, margin: FloatArray) -> FloatArray:
    """Squared number of ratings between the middles of two labels."""
    middle = np.cumsum(margin) - margin / 2
    return (middle[:, None] - middle) ** 2


def _interval(values: FloatArray, margin: FloatArray) -> FloatArray:
    return (values[:, None] - values) ** 2


def _ratio(values: FloatArray, margin: FloatArray) -> FloatArray:
    total = values[:, None] + values
    difference = values[:, None] - values
    zeros = np.zeros_like(difference)
    return np.divide(difference, total, out=zeros, where=total > 0) ** 2


MEASUREMENTS: dict[str, Callable[[FloatArray, FloatArray], FloatArray]] = {
    "nominal": _nominal,
    "ordinal": _ordinal,
    "interval": _interval,
    "ratio": _ratio,
}
"""Squared distance of every two labels by level of measurement."""
