"""What is behind the intervals: quantiles of errors and of mixtures of Normals, and proportions."""

import numpy as np
from scipy.special import ndtr, ndtri

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


def wilson_interval(
    share: FloatArray, n: FloatArray, level: float
) -> tuple[FloatArray, FloatArray]:
    """Wilson's score interval of a proportion.

    ``(p + z^2/2n +- z sqrt(p (1 - p)/n + z^2/4n^2)) / (1 + z^2/n)``. For fractional responses it
    is too wide, if anything: no variable on [0, 1] has a greater variance than p (1 - p).

    Args:
        share: observed shares, 0 to 1; NaN gives NaN.
        n: sample sizes, above 0; may be infinite, or fractional after corrections.
        level: probability of the interval, in (0, 1).

    Returns:
        Lower and upper ends, in [0, 1].

    Example:
        >>> lower, upper = wilson_interval(np.array([0.5]), np.array([30.0]), 0.95)
        >>> lower.round(3).tolist(), upper.round(3).tolist()
        ([0.332], [0.668])

    References:
        Wilson (1927), JASA 22, 209-212; Cochran (1977), Sampling Techniques, section 2.6 (finite
        population correction); Kish (1965), Survey Sampling, section 11.7 (effective size).
    """
    z = ndtri(0.5 + level / 2)
    with np.errstate(divide="ignore", invalid="ignore"):
        extra = z**2 / n
        centre = (share + extra / 2) / (1 + extra)
        half = np.sqrt(extra * share * (1 - share) + extra**2 / 4) / (1 + extra)
    return np.clip(centre - half, 0, 1), np.clip(centre + half, 0, 1)
