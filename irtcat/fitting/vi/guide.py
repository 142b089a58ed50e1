"""The variational guide: independent Normals for subjects, one multivariate Normal for each item.

Items have the coordinates of the priors: discrimination (its logarithm where it must be positive),
difficulty b, then the model's other unconstrained parameters. The bank stores slope and intercept;
`to_params` and `to_coordinates` convert between the two.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float
from scipy.special import digamma, gammaln

from irtcat.models import ItemModel, field_columns, tied_parameters

HYPER_VARIANCE, HYPER_SHAPE, HYPER_RATE = 1e6, 1.0, 1.0
"""Hyperpriors: N(0, variance 1e6) of a mean, Gamma(1, 1) of a precision."""

HYPER_ROUNDS = 12
"""Fixed-point iterations for the guides of an unknown mean and precision."""

LARGEST_LOG_SD = 4.0
"""Upper bound of the items' log SDs."""

SMALLEST_SLOPE = 0.02
"""Smallest absolute slope of a starting value, as b = -intercept / slope."""


class Chart(NamedTuple):
    """The mapping between the columns of `pack` and the coordinates of the guide.

    Attributes:
        slope: column of the slope.
        intercept: column of the intercept (the coordinate is b = -intercept / slope).
        positive: whether the coordinate of the slope is its logarithm.
        tied: columns that all items share.
    """

    slope: int
    intercept: int
    positive: bool
    tied: tuple[int, ...]

    @staticmethod
    def of(template: ItemModel, positive: bool) -> "Chart":
        """The chart of a model with one slope and one intercept per item."""
        (slope,) = field_columns(template, ["slope"])
        (intercept,) = field_columns(template, ["intercept"])
        return Chart(slope, intercept, positive, field_columns(template, tied_parameters(template)))


class Guide(NamedTuple):
    """The variational parameters.

    Attributes:
        theta: mean of each subject's ability.
        log_sd: logarithm of its SD.
        mean: mean of each item's coordinates (the first row of a tied one applies to all).
        factor: Cholesky factor of each item's covariance: the diagonal holds logarithms.
    """

    theta: Float[Array, " subjects"]
    log_sd: Float[Array, " subjects"]
    mean: Float[Array, "items params"]
    factor: Float[Array, "items params params"]


class NormalPrior(NamedTuple):
    """Normal priors of the coordinates; where ``learned`` their mean and precision are unknown."""

    mean: Float[Array, " params"]
    sd: Float[Array, " params"]


def to_params(chart: Chart, u: Float[Array, "*rest params"]) -> Float[Array, "*rest params"]:
    """Coordinates to the columns of `pack`: slope a, intercept -a b, the others unchanged."""
    return jnp.stack(param_columns(chart, list(jnp.moveaxis(u, -1, 0))), -1)


def param_columns(chart: Chart, u: list[Array]) -> list[Array]:
    """`to_params` column by column."""
    a = jnp.exp(u[chart.slope]) if chart.positive else u[chart.slope]
    columns = list(u)
    columns[chart.slope], columns[chart.intercept] = a, -a * u[chart.intercept]
    return columns


def to_coordinates(chart: Chart, params: np.ndarray) -> np.ndarray:
    """Undo `to_params`; slopes are bounded away from 0, where b would be infinite."""
    a = params[:, chart.slope]
    sign = 1 if chart.positive else np.where(a < 0, -1, 1)
    a = sign * np.maximum(sign * a, SMALLEST_SLOPE)
    u = params.copy()
    u[:, chart.intercept] = -params[:, chart.intercept] / a
    u[:, chart.slope] = np.log(a) if chart.positive else a
    return u


def item_factors(guide: Guide, chart: Chart) -> tuple[Array, Array]:
    """Mean and Cholesky factor of every item's coordinates, with tied ones filled in."""
    n = guide.mean.shape[1]
    diagonal = jnp.diagonal(guide.factor, axis1=1, axis2=2)
    mean, log_sd = guide.mean, jnp.minimum(diagonal, LARGEST_LOG_SD)
    for column in chart.tied:
        mean = mean.at[:, column].set(mean[0, column])
        log_sd = log_sd.at[:, column].set(log_sd[0, column])
    untied = np.array([column not in chart.tied for column in range(n)])
    below = np.tril(np.outer(untied, untied), -1)
    factor = jnp.where(below, guide.factor, 0) + jnp.exp(log_sd)[..., None] * jnp.eye(
        n, dtype=mean.dtype
    )
    return mean, factor


def cubature(n: int) -> tuple[np.ndarray, np.ndarray]:
    """Points and weights that integrate polynomials of degree 5 under a standard Normal.

    The rule of McNamee & Stenger (1967): the origin, +-sqrt(3) on each axis and on each pair of
    axes; with one or two dimensions it is Gauss-Hermite with three nodes.

    Args:
        n: number of dimensions, 1 to 5.

    Returns:
        Points (points x n) and weights, which sum to 1.
    """
    root = np.sqrt(3.0)
    points, weights = [np.zeros(n)], [1 + (n * n - 7 * n) / 18]
    eye = np.eye(n)
    for i in range(n):
        for s in (-1, 1):
            points.append(s * root * eye[i])
            weights.append((4 - n) / 18)
            for j in range(i):
                points += [s * root * eye[i] + t * root * eye[j] for t in (-1, 1)]
                weights += [1 / 36, 1 / 36]
    used = np.array(weights) != 0
    return np.array(points)[used], np.array(weights)[used]


def item_points(
    guide: Guide, chart: Chart, points: Float[Array, "points params"]
) -> Float[Array, "points items params"]:
    """Parameters of all items at the cubature points of their own distributions."""
    mean, factor = item_factors(guide, chart)
    return to_params(chart, mean + jnp.einsum("jpr,qr->qjp", factor, points))


def normal_log_prior(mean: Array, variance: Array, centre: Array, sd: Array) -> Array:
    """Expected log-density of N(centre, sd) under N(mean, variance), summed."""
    square = ((mean - centre) ** 2 + variance) / sd**2
    return -0.5 * (square + jnp.log(2 * jnp.pi) + 2 * jnp.log(sd)).sum()


def learned_log_prior(mean: Array, variance: Array) -> tuple[Array, Array, Array]:
    """The same for N(m, 1 / u) with m and u unknown, less their Kullback-Leibler terms.

    m ~ N(0, variance 1e6) and u ~ Gamma(1, 1); their guides, N and Gamma, are at their conjugate
    optimum, so that no gradient through them is needed.

    Returns:
        The term, and the expectations of m and u.
    """
    n = mean.shape[0]
    sums = mean.sum(), (mean**2 + variance).sum()
    one, two = (jax.lax.stop_gradient(value) for value in sums)
    shape = HYPER_SHAPE + n / 2

    def update(_: Any, state: tuple[Array, Array, Array]) -> tuple[Array, Array, Array]:
        expected = shape / state[2]
        spread = 1 / (1 / HYPER_VARIANCE + n * expected)
        centre = spread * expected * one
        square = two - 2 * centre * one + n * (centre**2 + spread)
        return centre, spread, HYPER_RATE + 0.5 * square

    begin = (one / n, (two / n - (one / n) ** 2) / n, HYPER_RATE + 0.5 * (two - one**2 / n))
    centre, spread, rate = jax.lax.fori_loop(0, HYPER_ROUNDS, update, begin)
    expected, log_expected = shape / rate, float(digamma(shape)) - jnp.log(rate)
    square = sums[1] - 2 * centre * sums[0] + n * (centre**2 + spread)
    prior_mean_term = 0.5 * (
        (spread + centre**2) / HYPER_VARIANCE - 1 - jnp.log(spread) + np.log(HYPER_VARIANCE)
    )
    constant = (shape - HYPER_SHAPE) * digamma(shape) - gammaln(shape) + gammaln(HYPER_SHAPE)
    gamma = (
        float(constant)
        + HYPER_SHAPE * (jnp.log(rate) - np.log(HYPER_RATE))
        + shape * (HYPER_RATE / rate - 1)
    )
    term = (
        0.5 * n * (log_expected - np.log(2 * np.pi))
        - 0.5 * expected * square
        - prior_mean_term
        - gamma
    )
    return term, centre, expected


def guide_entropy(guide: Guide, chart: Chart) -> Array:
    """Entropy of the guide of subjects and items; tied coordinates count once."""
    n_items, n = guide.mean.shape
    log_sd = jnp.minimum(jnp.diagonal(guide.factor, axis1=1, axis2=2), LARGEST_LOG_SD)
    untied = [column for column in range(n) if column not in chart.tied]
    items = log_sd[:, untied].sum() + sum(log_sd[0, column] for column in chart.tied)
    count = len(guide.log_sd) + n_items * len(untied) + len(chart.tied)
    return guide.log_sd.sum() + items + 0.5 * count * (1 + np.log(2 * np.pi))


def moved_guide(guide: Guide, chart: Chart, shift: Array, log_scale: Array) -> Guide:
    """The same curves and abilities on the scale ``(theta - shift) / exp(log_scale)``."""
    scale = jnp.exp(log_scale)
    mean = guide.mean.at[:, chart.intercept].set((guide.mean[:, chart.intercept] - shift) / scale)
    by_row = jnp.zeros(guide.mean.shape[1], guide.mean.dtype).at[chart.intercept].set(-log_scale)
    if chart.positive:
        mean = mean.at[:, chart.slope].add(log_scale)
    else:
        mean = mean.at[:, chart.slope].multiply(scale)
        by_row = by_row.at[chart.slope].set(log_scale)
    diagonal = np.eye(guide.mean.shape[1], dtype=bool)
    factor = jnp.where(
        diagonal, guide.factor + by_row[:, None], guide.factor * jnp.exp(by_row)[:, None]
    )
    return Guide((guide.theta - shift) / scale, guide.log_sd - log_scale, mean, factor)
