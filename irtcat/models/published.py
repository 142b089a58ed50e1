"""Items from published parameters."""

from typing import Any

import numpy as np

from irtcat._common.checks import argument_error, check_choice, float_array
from irtcat._common.types import FloatArray
from irtcat.models.base import ItemModel
from irtcat.models.graded import Graded
from irtcat.models.logistic import FourPL, ThreePL, TwoPL
from irtcat.models.nominal import Nominal
from irtcat.models.partial_credit import GPCM, PartialCredit


def logistic_items(a: Any, b: Any, c: Any, d: Any) -> ItemModel:
    """2PL, 3PL or 4PL items (see `irtcat.ItemBank.from_parameters`)."""
    try:
        columns = np.broadcast_arrays(*(np.atleast_1d(np.asarray(v, float)) for v in (a, b, c, d)))
    except (ValueError, TypeError):
        raise argument_error("a, b, c, d", "numbers of equal length", (a, b, c, d)) from None
    a_, b_, c_, d_ = columns
    for name, value in zip("abcd", columns, strict=True):
        if value.ndim != 1 or not np.isfinite(value).all():
            raise argument_error(name, "a vector of finite numbers", value)
    if (c_ < 0).any() or (c_ >= 1).any():
        raise argument_error("c", "in [0, 1)", c_)
    if (d_ > 1).any() or (d_ <= c_).any():
        raise argument_error("d", "above c and at most 1", d_)
    return binary_items(a_.copy(), -a_ * b_, c_, d_)


def binary_items(
    slope: FloatArray, intercept: FloatArray, lower: FloatArray, upper: FloatArray
) -> ItemModel:
    """2PL items where no asymptote is needed, 3PL items without upper ones, else 4PL items.

    Args:
        slope: one number an item, or one an item and ability.
        intercept: of each item.
        lower: asymptotes, in [0, 1).
        upper: asymptotes, above the lower ones and at most 1.
    """
    if (upper < 1).any():
        return FourPL(slope, intercept, _logit(lower), _logit(upper))
    if (lower > 0).any():
        return ThreePL(slope, intercept, _logit(lower))
    return TwoPL(slope, intercept)


def multidimensional_items(slopes: Any, intercepts: Any, c: Any) -> ItemModel:
    """Multidimensional items (see `irtcat.ItemBank.from_slopes`)."""
    try:
        slope = np.asarray(slopes, float)
        intercept = np.array(np.broadcast_to(np.asarray(intercepts, float), slope.shape[:1]))
        lower = np.array(np.broadcast_to(np.asarray(c, float), slope.shape[:1]))
    except (ValueError, TypeError):
        raise argument_error("slopes, intercepts, c", "numbers, one row an item", slopes) from None
    if slope.ndim != 2 or slope.shape[1] < 2 or not np.isfinite(slope).all():
        raise argument_error("slopes", "items x abilities (2 or more) of finite numbers", slope)
    if not np.isfinite(intercept).all():
        raise argument_error("intercepts", "finite numbers", intercept)
    if (lower < 0).any() or (lower >= 1).any():
        raise argument_error("c", "in [0, 1)", lower)
    return binary_items(slope, intercept, lower, np.ones_like(lower))


def categorical_items(model: str, a: Any, b: Any) -> ItemModel:
    """Items with several categories (see `irtcat.ItemBank.from_thresholds`)."""
    check_choice("model", model, KINDS)
    steps = _matrix("b", b)
    if model == "nominal":
        slopes = _matrix("a", a)
        if slopes.shape != steps.shape:
            raise argument_error("a", f"of shape {steps.shape}, as b is", slopes.shape)
        return _nominal(slopes, steps)
    slope = np.asarray(a, float)
    if slope.ndim > 1 or (slope.ndim == 1 and len(slope) != len(steps)):
        raise argument_error("a", f"one number or {len(steps)}, as b has rows", slope.shape)
    slope = np.broadcast_to(slope, len(steps)).copy()
    if not np.isfinite(slope).all():
        raise argument_error("a", "finite numbers", a)
    return KINDS[model](slope, steps)


def _matrix(name: str, value: Any) -> FloatArray:
    """Rows of numbers, NaN only at their ends, none all NaN."""
    matrix = float_array(name, "rows of numbers of equal length (pad with NaN)", value)
    if matrix.ndim != 2 or 0 in matrix.shape:
        raise argument_error(name, "a matrix with a row for each item", f"shape {matrix.shape}")
    absent = np.isnan(matrix)
    wrong = absent[:, 0] | (absent[:, :-1] & ~absent[:, 1:]).any(1) | np.isinf(matrix).any(1)
    if wrong.any():
        row = int(np.argmax(wrong))
        must = "finite numbers in each row, with NaN only after them"
        raise argument_error(name, must, f"{matrix[row].tolist()} in row {row + 1}")
    return matrix


def graded_items(slope: FloatArray, intercepts: FloatArray) -> Graded:
    """Graded items.

    Args:
        slope: one number an item, or one an item and ability.
        intercepts: of ``P(x >= k)``, items x steps, falling; rows end in NaN for fewer categories.
    """
    gap = np.diff(intercepts, axis=1)
    log_gap = np.log(-np.where(np.isnan(gap), -1.0, gap))
    return Graded(slope, intercepts[:, 0].copy(), log_gap, 1 + (~np.isnan(intercepts)).sum(1))


def credit_items(slope: FloatArray, intercepts: FloatArray) -> GPCM:
    """Generalised partial credit items.

    Args:
        slope: one number an item, or one an item and ability.
        intercepts: of the categories but 0, items x steps; rows end in NaN for fewer categories.
    """
    return GPCM(slope, np.nan_to_num(intercepts), 1 + (~np.isnan(intercepts)).sum(1))


def nominal_items(slopes: FloatArray, intercepts: FloatArray) -> Nominal:
    """Nominal items.

    Args:
        slopes: of the categories but 0, items x steps, or items x abilities x steps.
        intercepts: likewise, items x steps; rows end in NaN for fewer categories.
    """
    categories = 1 + (~np.isnan(intercepts)).sum(1)
    return Nominal(np.nan_to_num(slopes), np.nan_to_num(intercepts), categories)


def _graded(slope: FloatArray, b: FloatArray) -> Graded:
    intercepts = -slope[:, None] * b
    wrong = (np.diff(intercepts, axis=1) >= 0).any(axis=1)
    if wrong.any():
        row = int(np.argmax(wrong))
        got = f"{b[row].tolist()} with a = {slope[row]:g} in row {row + 1}"
        raise argument_error("b", "rising thresholds (falling ones where a is negative)", got)
    return graded_items(slope, intercepts)


def _gpcm(slope: FloatArray, b: FloatArray) -> GPCM:
    return credit_items(slope, np.cumsum(-slope[:, None] * b, axis=1))


def _pcm(slope: FloatArray, b: FloatArray) -> PartialCredit:
    if (slope != 1).any():
        raise argument_error("a", "1 for all partial credit items", slope)
    items = _gpcm(slope, b)
    return PartialCredit(items.intercept, items.categories)


def _nominal(slopes: FloatArray, intercepts: FloatArray) -> Nominal:
    if slopes.shape[1] < 2 or (np.isnan(slopes) != np.isnan(intercepts)).any():
        raise argument_error("a", "for the same two or more categories as b", slopes)
    a, d = (values[:, 1:] - values[:, :1] for values in (slopes, intercepts))
    return nominal_items(a, d)


KINDS = {"graded": _graded, "gpcm": _gpcm, "pcm": _pcm, "nominal": _nominal}


def _logit(p: FloatArray) -> FloatArray:
    with np.errstate(divide="ignore"):
        return np.log(p) - np.log1p(-p)
