"""Lists of numbers from users: checked vectors, pairs of vectors, weights."""

from typing import Any

import numpy as np

from irtcat._checks import argument_error
from irtcat._types import FloatArray

__all__ = ["is_constant", "number_pairs", "number_vector", "weight_vector"]


def number_pairs(x: Any, y: Any) -> tuple[FloatArray, FloatArray]:
    """Both lists as vectors of float64, checked."""
    first, second = number_vector("x", x), number_vector("y", y)
    if len(first) != len(second):
        raise argument_error("y", f"as long as x ({len(first)} values)", f"{len(second)} values")
    if len(first) < 2:
        raise argument_error("x", "at least 2 values to compare", f"{len(first)}")
    return first, second


def number_vector(name: str, values: Any) -> FloatArray:
    """A vector of finite numbers, or an error that names the first bad position."""
    try:
        vector = np.asarray(values, dtype=np.float64)
    except (TypeError, ValueError):
        raise argument_error(name, "a list of numbers", values) from None
    if vector.ndim != 1:
        raise argument_error(name, "one list of numbers", f"an array of shape {vector.shape}")
    invalid = ~np.isfinite(vector)
    if invalid.any():
        index = int(invalid.argmax())
        advice = "Leave out the pairs without a value first."
        got = f"{vector[index]} at position {index + 1}"
        raise argument_error(name, "finite numbers", got, advice)
    return vector


def weight_vector(weights: Any, n: int) -> FloatArray:
    """Weights of n observations that sum to 1; equal weights for None."""
    if weights is None:
        return np.full(n, 1.0 / n)
    vector = number_vector("weights", weights)
    if len(vector) != n:
        raise argument_error("weights", f"{n} numbers, one per observation", f"{len(vector)}")
    if (vector < 0).any():
        index = int((vector < 0).argmax())
        raise argument_error("weights", "at least 0", f"{vector[index]} at position {index + 1}")
    if not vector.any():
        raise argument_error("weights", "above 0 for some observation", "only zeros")
    vector = vector / vector.max()  # so that the sum of huge weights does not overflow
    return vector / vector.sum()


def is_constant(values: FloatArray) -> bool:
    """Whether all values are the same number."""
    return bool((values == values[0]).all())
