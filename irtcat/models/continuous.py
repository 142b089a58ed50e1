"""Continuous scores between 0 and 1, such as a judge's: the Beta response model."""

import dataclasses
import functools
import math
from collections.abc import Mapping
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from irtcat.models.base import Design, ItemModel, Mask, Param, Parameter, Statistics
from irtcat.models.logistic import irt_parameters_of, start_intercept
from irtcat.models.slopes import INTERCEPT, SLOPE

EDGES = (1e-6, 0.005)
"""Smallest and largest edge."""

MOST_LOGIT = {"float64": 150.0, "float32": 15.0}
"""Beyond it the derivatives of the trigamma of the smaller shape would overflow."""

SHIFT = 8
"""Steps of the recurrence before the asymptotic series."""

HALF_LOG_2PI = 0.5 * math.log(2 * math.pi)
STIRLING = (-691 / 360360, 1 / 1188, -1 / 1680, 1 / 1260, -1 / 360, 1 / 12)
BERNOULLI = (7 / 6, -691 / 2730, 5 / 66, -1 / 30, 1 / 42, -1 / 30, 1 / 6)
"""Coefficients of the asymptotic series of log Gamma and of its second derivative."""

START_PRECISION = (1.0, 500.0)
"""Range of starting values of the precision."""


class Beta(ItemModel):
    """Beta model: scores in (0, 1) of mean ``m = sigmoid(slope * theta + intercept)``.

    ``f(y | theta) = y^(m phi - 1) (1 - y)^((1 - m) phi - 1) / B(m phi, (1 - m) phi)``, so that the
    variance of a score is m (1 - m) / (1 + phi): each item has a precision phi > 0 of its own
    (estimated as ``log_precision``). Log-likelihoods are those of the density, so they may be
    positive, and are not comparable with those of models for right/wrong answers.

    The density is not defined for scores of exactly 0 or 1. A score below ``edge`` is taken as
    ``edge`` and one above 1 - ``edge`` as 1 - ``edge``. When a bank is calibrated edge is half the
    smallest distance from 0 or 1 of any score strictly between, so that no score changes; where
    some are 0 or 1, half a subject's share, 1 / (2 n), if that is more (the value of Smithson &
    Verkuilen); always within 1e-6 and .005. New scores are treated the same way. Items with many
    such scores are flagged: their precision and information are not reliable.

    References:
        Noel & Dauvier (2007), A Beta item response model for continuous bounded responses, Applied
        Psychological Measurement 31, 47-73. Ferrari & Cribari-Neto (2004), Journal of Applied
        Statistics 31, 799-815 (mean and precision). Smithson & Verkuilen (2006), Psychological
        Methods 11, 54-71 (0 and 1).
    """

    slope: Param
    intercept: Param
    log_precision: Param
    edge: Param

    key: ClassVar[str] = "beta"
    takes: ClassVar[str] = "fractions"
    is_density: ClassVar[bool] = True
    n_categories: ClassVar[int] = 2
    dims: ClassVar[int] = 1
    fixed: ClassVar[tuple[str, ...]] = ("edge",)
    parameters: ClassVar[Mapping[str, Parameter]] = {
        "slope": SLOPE,
        "intercept": INTERCEPT,
        "log_precision": Parameter(-4.0, 10.0, weak_prior=(2.5, 1.5)),
    }

    def _log_shapes(self, theta: Float[Array, " dims"]) -> Float[Array, " two"]:
        """Logarithms of the two shape parameters, m phi and (1 - m) phi."""
        z = self.slope * theta[0] + self.intercept
        most = MOST_LOGIT[z.dtype.name]
        z = jnp.clip(z, -most, most)
        return jnp.stack([jax.nn.log_sigmoid(z), jax.nn.log_sigmoid(-z)]) + self.log_precision

    def natural(self, theta: Float[Array, " dims"]) -> Float[Array, " one_and_contrasts"]:
        """``-log B(alpha, beta)``, alpha - 1 and beta - 1; statistics log y and log(1 - y)."""
        log_shapes = self._log_shapes(theta)
        shapes = jnp.exp(log_shapes)
        # log Gamma(s) = log Gamma(1 + s) - log s stays exact and smooth as s goes to 0.
        log_gammas = _log_gamma(shapes) - log_shapes
        log_gamma_sum = _log_gamma(shapes.sum()) - self.log_precision
        return jnp.concatenate([(log_gamma_sum - log_gammas.sum())[None], shapes - 1])

    def variance(self, theta: Float[Array, " dims"]) -> Float[Array, "contrasts contrasts"]:
        """Trigammas of the shapes on the diagonal, less that of the precision everywhere."""
        shapes = jnp.exp(self._log_shapes(theta))
        return jnp.diag(_trigamma(shapes)) - _trigamma(shapes.sum())

    def mean(self, theta: Float[Array, " dims"]) -> Float[Array, ""]:
        """Expected score."""
        return jax.nn.sigmoid(self.slope * theta[0] + self.intercept)

    def response_variance(self, theta: Float[Array, " dims"]) -> Float[Array, ""]:
        """``m (1 - m) / (1 + phi)``."""
        z = self.slope * theta[0] + self.intercept
        return jax.nn.sigmoid(z) * jax.nn.sigmoid(-z) * jax.nn.sigmoid(-self.log_precision)

    def draw(self, theta: Float[Array, " dims"], key: Array) -> Array:
        """One score; extreme ones may round to 0 or 1."""
        alpha, beta = jnp.exp(self._log_shapes(theta))
        return jnp.clip(jax.random.beta(key, alpha, beta), 0.0, 1.0)

    def sufficient_statistics(
        self, x: Array, n_contrasts: int, has_missing: bool, dtype: np.dtype
    ) -> tuple[Statistics, Mask]:
        """``log y`` and ``log(1 - y)`` of scores kept within the edges."""
        mask = ~jnp.isnan(x)
        y = jnp.clip(x.astype(dtype), self.edge, 1 - self.edge)
        logs = jnp.stack([jnp.log(y), jnp.log1p(-y)])
        return jnp.where(mask, logs, 0), mask.astype(dtype) if has_missing else None

    def irt_parameters(self) -> dict[str, Param]:
        """A = slope, b = -intercept / slope (where the mean is .5), c = 0, d = 1, phi."""
        curve = irt_parameters_of(self.slope, self.intercept)
        return {**curve, "phi": jnp.exp(self.log_precision)}

    def rescale(self, mean: Any, sd: Any) -> "Beta":
        """Slope times ``sd``; the intercept takes up the mean; the precision stays."""
        intercept = self.intercept + self.slope * mean
        return dataclasses.replace(self, slope=self.slope * sd, intercept=intercept)

    @classmethod
    def blank(cls, design: Design) -> "Beta":
        """Items without parameters yet."""
        edge = design.settings.get("edge", np.full(design.n_items, EDGES[0]))
        slope, intercept, log_precision = np.zeros((3, design.n_items))
        return cls(slope, intercept, log_precision, np.asarray(edge, float))

    def start(self, shares: Float[np.ndarray, "items three"], slope: Param) -> "Beta":
        """The slopes given, intercepts by the mean score, precisions by moments.

        Of the variance of an item's scores, ability explains about (slope m (1 - m))^2; the rest is
        m (1 - m) / (1 + phi).
        """
        mean, square = shares[:, 1], shares[:, 2]
        spread = mean * (1 - mean)
        explained = np.minimum((slope * spread) ** 2, 0.9 * (square - mean**2))
        rest = np.maximum(square - mean**2 - explained, 1e-6)
        precision = np.clip((spread - explained) / rest - 1, *START_PRECISION)
        return Beta(slope, start_intercept(mean, slope), np.log(precision), self.edge)


def _powers(coefficients: tuple[float, ...], z: Array) -> Array:
    """Sum of coefficients times 1 / z, 1 / z^3, 1 / z^5, ..., the highest power first."""
    total = jnp.zeros_like(z)
    for coefficient in coefficients:
        total = total / z**2 + coefficient
    return total / z


def _log_gamma(x: Array) -> Array:
    """``log Gamma(1 + x)`` for x >= 0 to 1e-14, by Stirling's series eight steps on.

    Unlike JAX's `gammaln` it has cheap derivatives of every order, which compile fast.
    """
    z = x + (SHIFT + 1)
    steps = functools.reduce(jnp.multiply, [x + k for k in range(1, SHIFT + 1)])
    return (z - 0.5) * jnp.log(z) - z + HALF_LOG_2PI + _powers(STIRLING, z) - jnp.log(steps)


def _trigamma(x: Array) -> Array:
    """Second derivative of log Gamma at x > 0, exact also for tiny ``x``."""
    z = x + (SHIFT + 1)
    series = _powers(BERNOULLI, z)
    steps = jnp.stack([(x + k) ** -2.0 for k in range(SHIFT + 1)]).sum(0)
    return steps + (1 + (0.5 + series) / z) / z
