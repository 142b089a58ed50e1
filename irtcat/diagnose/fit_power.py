"""How many subjects a test of model fit needs: power by RMSEA."""

import math
from typing import Any

from scipy.special import chndtr, chndtrix

from irtcat._common.checks import argument_error, check_count, is_number

CLOSE, POOR = 0.05, 0.08
"""RMSEA of a close and of a mediocre fit (Browne & Cudeck 1993)."""

LARGEST = 10**9
"""Most subjects that are looked for."""


def rmsea_power(
    df: int, n: int, *, null: float = CLOSE, alternative: float = POOR, alpha: float = 0.05
) -> float:
    """Power of a test of fit with n subjects, by the RMSEA of the null and of the alternative.

    The statistic (such as M2 of `model_fit`) is noncentral chi-square with df degrees of freedom
    and noncentrality ``(n - 1) df rmsea^2``. With ``alternative`` above ``null`` the null, that the
    fit is as close, is rejected for large statistics (test of close fit; of exact fit with a null
    of 0); with ``alternative`` below it for small ones (test of not-close fit).

    Args:
        df: degrees of freedom of the statistic.
        n: number of subjects.
        null: RMSEA under the null.
        alternative: RMSEA that is to be found.
        alpha: level of the test.

    Returns:
        The probability of rejecting the null.

    Raises:
        InputError: for numbers out of range, or equal ``null`` and ``alternative``.

    Example:
        >>> round(rmsea_power(50, 200), 3)
        0.769
        >>> round(rmsea_power(50, 200, alternative=0.01), 3)
        0.608

    References:
        MacCallum, Browne & Sugawara (1996), Psychological Methods 1, 130-149 (the three tests).
    """
    check_count("n", n, 2)
    _check(df, null, alternative, alpha)
    return _power(df, n, null, alternative, alpha)


def rmsea_sample_size(
    df: int,
    power: float = 0.8,
    *,
    null: float = CLOSE,
    alternative: float = POOR,
    alpha: float = 0.05,
) -> int:
    """The smallest number of subjects with which a test of fit has this power.

    Args:
        df: degrees of freedom of the statistic; those of M2 are n (n + 1) / 2 less the number of
            parameters, for n right/wrong items.
        power: wanted power, above ``alpha`` and below 1.
        null: RMSEA under the null, as in `rmsea_power`.
        alternative: RMSEA that is to be found.
        alpha: level of the test.

    Returns:
        The number of subjects.

    Raises:
        InputError: for numbers out of range, or if a billion subjects are too few.

    Example:
        >>> rmsea_sample_size(100), rmsea_sample_size(100, alternative=0.01)
        (132, 178)
        >>> n_items = 20  # M2 of a 2PL
        >>> rmsea_sample_size(n_items * (n_items + 1) // 2 - 2 * n_items)
        94

    References:
        MacCallum, Browne & Sugawara (1996), Psychological Methods 1, 130-149.
    """
    _check(df, null, alternative, alpha)
    if not is_number(power) or not alpha < power < 1:
        raise argument_error("power", "a probability above alpha and below 1", power)
    low, high = 1, 2
    while _power(df, high, null, alternative, alpha) < power:
        low, high = high, 2 * high
        if high > LARGEST:
            must = "farther from the null: a billion subjects would not separate them"
            raise argument_error("alternative", must, alternative)
    while high - low > 1:
        middle = (low + high) // 2
        enough = _power(df, middle, null, alternative, alpha) >= power
        low, high = (low, middle) if enough else (middle, high)
    return high


def _check(df: Any, null: Any, alternative: Any, alpha: Any) -> None:
    check_count("df", df)
    for name, value in (("null", null), ("alternative", alternative)):
        if not is_number(value) or not 0 <= value < math.inf:
            raise argument_error(name, "an RMSEA of at least 0", value)
    if null == alternative:
        raise argument_error("alternative", "another RMSEA than that of the null", alternative)
    if not is_number(alpha) or not 0 < alpha < 1:
        raise argument_error("alpha", "a probability above 0 and below 1", alpha)


def _power(df: int, n: int, null: float, alternative: float, alpha: float) -> float:
    """Power of the test in the direction of the alternative."""
    at_null, at_alternative = ((n - 1) * df * value**2 for value in (null, alternative))
    if alternative > null:
        return float(1 - chndtr(chndtrix(1 - alpha, df, at_null), df, at_alternative))
    return float(chndtr(chndtrix(alpha, df, at_null), df, at_alternative))
