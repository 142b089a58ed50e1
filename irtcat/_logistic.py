"""The published parameters of logistic items of one ability, for numpy and for JAX."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from irtcat._common.types import FloatArray

FIELDS = {
    "rasch": ["intercept"],
    "1pl": ["slope", "intercept"],
    "2pl": ["slope", "intercept"],
    "3pl": ["slope", "intercept", "logit_lower"],
    "4pl": ["slope", "intercept", "logit_lower", "logit_upper"],
    "feasibility": ["slope", "intercept", "logit_feasibility"],
}
"""The parameters of the models of the logistic family, by key."""


def irt_parameters_of(
    slope: Any, intercept: Any, lower: Any = 0.0, upper: Any = 1.0, numpy: Any = np
) -> dict[str, Any]:
    """(a, b, c, d); b is NaN where the slope is 0, where it is not defined.

    Args:
        slope: slopes.
        intercept: intercepts.
        lower: lower asymptotes.
        upper: upper asymptotes.
        numpy: the module that computes: ``numpy`` or ``jax.numpy``.
    """
    safe = numpy.where(slope == 0, 1.0, slope)
    b = numpy.where(slope == 0, numpy.nan, -intercept / safe)
    zero = numpy.zeros_like(intercept)
    return {"a": slope + zero, "b": b, "c": lower + zero, "d": upper + zero}


def published_logistic(
    names: Sequence[str], matrix: FloatArray
) -> tuple[dict[str, FloatArray], dict[str, FloatArray]]:
    """(a, b, c, d) of all items, and their derivatives by the columns of the matrix.

    Args:
        names: the columns, as in `FIELDS`.
        matrix: the unconstrained parameters, items x params.

    Example:
        >>> values, slopes = published_logistic(["slope", "intercept"], np.array([[2.0, 1.0]]))
        >>> values["b"].tolist(), slopes["b"].tolist()
        ([-0.5], [[0.25, -0.5]])
    """
    columns = dict(zip(names, matrix.T, strict=True))
    ones = np.ones(len(matrix))
    slope, intercept = columns.get("slope", ones), columns["intercept"]
    upper = columns.get("logit_upper", columns.get("logit_feasibility", np.inf * ones))
    c, d = (_sigmoid(logit) for logit in (columns.get("logit_lower", -np.inf * ones), upper))
    values = irt_parameters_of(slope, intercept, c, d)
    safe = np.where(slope == 0, np.inf, slope)
    by_name = {
        "a": {"slope": ones},
        "b": {"slope": intercept / safe**2, "intercept": -1 / safe},
        "c": {"logit_lower": c * (1 - c)},
        "d": {"logit_upper": d * (1 - d), "logit_feasibility": d * (1 - d)},
    }
    zeros = np.zeros(len(matrix))
    return values, {
        key: np.stack([by_name[key].get(name, zeros) for name in names], axis=1) for key in values
    }


def _sigmoid(x: FloatArray) -> FloatArray:
    """``1 / (1 + exp(-x))``; scipy.special has it too, but takes long to import."""
    return np.exp(-np.logaddexp(0.0, -x))
