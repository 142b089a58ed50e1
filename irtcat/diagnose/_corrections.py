"""P-values made right for many tests at once."""

from typing import Any

import numpy as np

from irtcat._checks import argument_error
from irtcat._types import FloatArray

__all__ = ["benjamini_hochberg", "holm"]


def holm(p: Any) -> FloatArray:
    """Holm's adjusted p-values, which hold the chance of any false alarm.

    With the p-values in rising order, ``p_(i)' = max_{j <= i} min(1, (m - j + 1) p_(j))``.

    Args:
        p: p-values in [0, 1], of any shape; NaN is no test: it stays NaN and is not counted.

    Returns:
        Adjusted p-values of the same shape: those below alpha are significant together.

    Raises:
        InputError: for values outside [0, 1].

    Example:
        >>> holm([0.01, 0.04, float("nan"), 0.03]).round(2).tolist()
        [0.03, 0.06, nan, 0.06]

    References:
        Holm (1979), Scandinavian Journal of Statistics 6, 65-70.
    """
    values, tested = _checked(p)
    sorted_p, order = _sorted(values[tested])
    factor = len(sorted_p) - np.arange(len(sorted_p))
    return _placed(values, tested, order, np.maximum.accumulate(factor * sorted_p))


def benjamini_hochberg(p: Any) -> FloatArray:
    """Benjamini and Hochberg's adjusted p-values, which hold the share of false alarms.

    With the p-values in rising order, ``p_(i)' = min_{j >= i} min(1, m p_(j) / j)``.

    Args:
        p: p-values in [0, 1], of any shape; NaN is no test: it stays NaN and is not counted.

    Returns:
        Adjusted p-values of the same shape. Of those below alpha a share of alpha at most is
        expected to be false alarms (for independent or positively dependent tests).

    Raises:
        InputError: for values outside [0, 1].

    Example:
        >>> benjamini_hochberg([0.01, 0.04, float("nan"), 0.03]).round(2).tolist()
        [0.03, 0.04, nan, 0.04]

    References:
        Benjamini & Hochberg (1995), Journal of the Royal Statistical Society B 57, 289-300.
    """
    values, tested = _checked(p)
    sorted_p, order = _sorted(values[tested])
    scaled = sorted_p * len(sorted_p) / np.arange(1, len(sorted_p) + 1)
    return _placed(values, tested, order, np.minimum.accumulate(scaled[::-1])[::-1])


def _checked(p: Any) -> tuple[FloatArray, np.ndarray]:
    """The p-values, and which of them are tests."""
    try:
        values = np.asarray(p, float)
    except (TypeError, ValueError):
        raise argument_error("p", "p-values in [0, 1]", p) from None
    tested = ~np.isnan(values)
    outside = values[tested & ~((values >= 0) & (values <= 1))]
    if len(outside):
        raise argument_error("p", "p-values in [0, 1], or NaN for no test", outside[0])
    return values, tested


def _sorted(p: FloatArray) -> tuple[FloatArray, np.ndarray]:
    order = np.argsort(p, kind="stable")
    return p[order], order


def _placed(
    values: FloatArray, tested: np.ndarray, order: np.ndarray, adjusted: FloatArray
) -> FloatArray:
    """Adjusted values back where they were."""
    back = np.empty(len(order))
    back[order] = np.minimum(adjusted, 1.0)
    out = np.full(values.shape, np.nan)
    out[tested] = back
    return out
