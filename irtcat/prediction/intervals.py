"""What is behind the intervals: quantiles, proportions, and variances of weighted means.

The items of a mean may form clusters: CR2 and its degrees of freedom.
"""

from typing import NamedTuple

import numpy as np
from scipy.special import ndtr, ndtri

from irtcat._common.types import FloatArray, IntArray

NEAREST, FEWEST_NEAREST = 0.25, 20
"""Share of the calibrated subjects, and their least number, that stand for a subject with items of
its own, and whose errors give its interval: they suit its ability, and say little about others."""

BISECTIONS = 40
"""Halvings of [-1, 2]: precision 3e-12."""


def conformal_quantile(errors: FloatArray, probability: float) -> float:
    """Quantile of cross-validated errors that holds for one more subject: of n + 1, not n."""
    n = len(errors)
    return float(np.quantile(errors, min(1.0, np.ceil((n + 1) * probability) / n)))


def nearest_subjects(scores: FloatArray, score: float) -> IntArray:
    """Positions of the calibrated subjects with the nearest scores."""
    n = max(FEWEST_NEAREST, int(len(scores) * NEAREST))
    return np.argsort(np.abs(scores - score), kind="stable")[:n]


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


class Variance(NamedTuple):
    """An estimated variance and its degrees of freedom (Satterthwaite)."""

    value: float
    df: float

    def times(self, factor: float) -> "Variance":
        """The variance of a quantity that is larger by the root of a factor."""
        return Variance(self.value * factor, self.df)


def total_of(*terms: Variance) -> Variance:
    """The sum of independent variances.

    ``df = V^2 / sum_c V_c^2 / df_c`` (Satterthwaite 1946); infinite where nothing is estimated.

    Example:
        >>> total_of(Variance(1.0, 10.0), Variance(1.0, 10.0))
        Variance(value=2.0, df=20.0)
    """
    value = sum(term.value for term in terms)
    square = sum(term.value**2 / term.df for term in terms)
    return Variance(value, value**2 / square if square > 0 else np.inf)


def sum_variance(terms: FloatArray) -> Variance:
    """A variance that is the sum of n independent estimates, with df from their own spread.

    ``df = 2 V^2 / (n var(terms))``: for Normal data and equal terms the usual number.
    """
    n, value = len(terms), float(terms.sum())
    spread = n * float(terms.var(ddof=1)) if n > 1 else value**2
    return Variance(value, 2 * value**2 / spread if spread > 0 else np.inf)


def mean_variance(
    weights: FloatArray, residuals: FloatArray, clusters: IntArray | None = None
) -> Variance:
    """Variance of the weighted mean of values, robust to correlation within clusters (CR2).

    With weights w that sum to 1, M = I - 1 w' and the residuals e = M y

        V = sum_g (w_g' A_g e_g)^2,  A_g = ((M M')_gg)^(-1/2),

    which is unbiased where the values are independent with equal variances; each item is a cluster
    by default, and V is then s^2 / k for equal weights. The degrees of freedom are Satterthwaite's
    for such values: ``(tr Q)^2 / tr(Q Q)`` with V = y' Q y.

    Args:
        weights: one for each item; they sum to 1.
        residuals: the values less their weighted mean.
        clusters: number of the cluster of each item, from 0.

    References:
        Bell & McCaffrey (2002), Survey Methodology 28, 169-181; Pustejovsky & Tipton (2018),
        Journal of Business & Economic Statistics 36, 672-683.
    """
    w, q = weights, float(weights @ weights)
    if clusters is None:
        u = w / np.sqrt(np.maximum(1 - 2 * w + q, 1e-12))
        return Variance(*_satterthwaite(u * residuals, u, u * w, u * u, q))
    order = np.argsort(clusters, kind="stable")
    bounds = np.flatnonzero(np.diff(clusters[order])) + 1
    rows = []
    for at in np.split(order, bounds):
        u = _adjusted(w[at], q)
        rows.append((u @ residuals[at], u.sum(), u @ w[at], u @ u))
    parts, s, t, n = np.array(rows).T
    return Variance(*_satterthwaite(parts, s, t, n, q))


def _adjusted(w: FloatArray, q: float) -> FloatArray:
    """``A_g w_g``: (M M')_gg is I off the plane of 1 and w, so that a 2 x 2 root is enough."""
    ones = np.ones(len(w))
    plane = np.linalg.qr(np.column_stack([ones, w]))[0]
    a, b = plane.T @ ones, plane.T @ w
    inner = np.eye(plane.shape[1]) - np.outer(a, b) - np.outer(b, a) + q * np.outer(a, a)
    values, vectors = np.linalg.eigh(inner)
    root = (vectors / np.sqrt(np.maximum(values, 1e-12))) @ vectors.T
    return np.asarray(w + plane @ ((root - np.eye(len(root))) @ b))


def _satterthwaite(
    parts: FloatArray, s: FloatArray, t: FloatArray, n: FloatArray, q: float
) -> tuple[float, float]:
    """V and its df; the Gram matrix of Q's factors is ``diag(n) - s t' - t s' + q s s'``."""
    ss, st, tt = s @ s, s @ t, t @ t
    diagonal = -2 * s * t + q * s * s
    trace = float(n.sum() + diagonal.sum())
    square = n @ n + 2 * (n @ diagonal) + 2 * (ss * tt + st**2) - 4 * q * ss * st + q**2 * ss**2
    return float(parts @ parts), trace**2 / float(square) if square > 0 else 1.0
