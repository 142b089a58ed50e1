"""Quantiles behind the intervals: of cross-validated errors, and of mixtures of Normals."""

import numpy as np
from scipy.special import ndtr

from irtcat._common.types import FloatArray

BISECTIONS = 40
"""Halvings of [-1, 2]: precision 3e-12."""


def conformal_quantile(errors: FloatArray, probability: float) -> float:
    """Quantile of cross-validated errors that holds for one more subject: of n + 1, not n."""
    n = len(errors)
    return float(np.quantile(errors, min(1.0, np.ceil((n + 1) * probability) / n)))


def mixture_quantile(
    weights: FloatArray, mean: FloatArray, sd: FloatArray, probability: float
) -> FloatArray:
    """Quantile of a mixture of Normals, for every row, by bisection on [-1, 2].

    Args:
        weights: probabilities of the components, subjects x nodes; rows sum to 1.
        mean: their means, within [0, 1].
        sd: their SDs, at least 0 (0 is a point mass).
        probability: between 0 and 1.

    Returns:
        One number per row, within [-1, 2], to 3e-12.

    Example:
        >>> half = np.array([[0.5, 0.5]])
        >>> mixture_quantile(half, np.array([[0.2, 0.8]]), np.array([[0.1, 0.1]]), 0.5).round(6)
        array([0.5])
    """
    low, high = np.full(len(weights), -1.0), np.full(len(weights), 2.0)
    inverse = 1 / np.maximum(sd, 1e-9)  # a point mass is a very narrow Normal
    for _ in range(BISECTIONS):
        middle = (low + high) / 2
        below = (weights * ndtr((middle[:, None] - mean) * inverse)).sum(axis=1) < probability
        low, high = np.where(below, middle, low), np.where(below, high, middle)
    return (low + high) / 2


def mixture_interval(
    mean: FloatArray,
    sd: FloatArray | float,
    other: FloatArray,
    other_sd: FloatArray,
    share: FloatArray,
    level: float,
) -> tuple[FloatArray, FloatArray]:
    """Equal-tailed interval of ``(1 - share) N(mean, sd) + share N(other, other_sd)``."""
    weights, means = np.stack([1 - share, share], axis=1), np.stack([mean, other], axis=1)
    sds = np.stack([np.broadcast_to(sd, mean.shape), other_sd], axis=1)
    return (
        mixture_quantile(weights, means, sds, (1 - level) / 2),
        mixture_quantile(weights, means, sds, (1 + level) / 2),
    )
