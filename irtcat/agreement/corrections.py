"""Multiple testing: Holm's and Benjamini and Hochberg's adjusted p-values."""

from typing import Any

import numpy as np

from irtcat._common.checks import argument_error, check_choice, float_array
from irtcat._common.types import FloatArray


def holm(p: Any) -> FloatArray:
    """Holm's step-down p-values, which bound the chance of any false rejection.

    With the m p-values in increasing order, ``adjusted_(i) = max over j <= i of min(1, (m + 1 - j)
    p_(j))``. Valid whatever the dependence between the tests.

    Args:
        p: p-values in [0, 1], of any shape; NaN where there was no test (NaN stays and does not
            count in m).

    Returns:
        Adjusted p-values in the same shape.

    Raises:
        InputError: for a value outside [0, 1].

    Example:
        >>> holm([0.01, 0.04, float("nan"), 0.03]).round(3).tolist()
        [0.03, 0.06, nan, 0.06]

    References:
        Holm (1979), Scandinavian Journal of Statistics 6, 65-70.
    """
    adjusted = _p_values(p)
    order = np.flatnonzero(~np.isnan(adjusted))
    order = order[np.argsort(adjusted.flat[order], kind="stable")]
    steps = np.arange(len(order), 0, -1) * adjusted.flat[order]
    adjusted.flat[order] = np.minimum(np.maximum.accumulate(steps), 1.0)
    return adjusted


def benjamini_hochberg(p: Any) -> FloatArray:
    """Benjamini and Hochberg's p-values, which bound the share of false rejections.

    With the m p-values in increasing order, ``adjusted_(i) = min over j >= i of
    min(1, m p_(j) / j)``. Valid for tests that are independent or positively dependent.

    Args:
        p: p-values in [0, 1], of any shape; NaN where there was no test (NaN stays and does not
            count in m).

    Returns:
        Adjusted p-values in the same shape.

    Raises:
        InputError: for a value outside [0, 1].

    Example:
        >>> benjamini_hochberg([0.01, 0.04, float("nan"), 0.03]).round(3).tolist()
        [0.03, 0.04, nan, 0.04]

    References:
        Benjamini & Hochberg (1995), Journal of the Royal Statistical Society B 57, 289-300.
    """
    from scipy.stats import false_discovery_control  # scipy.stats is slow to import

    adjusted = _p_values(p)
    tested = ~np.isnan(adjusted)
    adjusted[tested] = false_discovery_control(adjusted[tested])
    return adjusted


def adjust(p: Any, correction: str) -> FloatArray:
    """P-values adjusted by ``correction``, one of `CORRECTIONS`."""
    check_choice("correction", correction, CORRECTIONS)
    return CORRECTIONS[correction](p)


def _p_values(p: Any) -> FloatArray:
    """A copy of the p-values, checked."""
    values = float_array("p", "p-values", p).copy()
    invalid = (values < 0) | (values > 1)
    if invalid.any():
        raise argument_error("p", "p-values between 0 and 1", values[invalid][0])
    return values


CORRECTIONS = {
    "none": _p_values,
    "holm": holm,
    "benjamini-hochberg": benjamini_hochberg,
    "bh": benjamini_hochberg,
}
"""Corrections by name, wherever p-values are adjusted for multiple testing."""
