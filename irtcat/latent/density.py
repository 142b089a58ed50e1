"""Latent densities that are not Normal, as probabilities of the nodes of a grid of one ability."""

from typing import NamedTuple

import numpy as np
import scipy
from jaxtyping import Float

from irtcat._common.checks import argument_error
from irtcat._common.types import FloatArray

HISTOGRAM, DAVIDIAN = "empirical", "davidian"
N_POINTS, REACH = 121, 6.0
"""Default number of nodes, and their range in SDs of the start."""

LEAST = 1e-300
"""Smallest probability of a node: its logarithm must be finite."""

MOST_DEGREE = 10
"""Highest degree of a Davidian polynomial (Woods & Lin 2009 use up to 10)."""


class Density(NamedTuple):
    """A family of densities; an estimate is a vector of free numbers.

    - Empirical histogram: the probabilities of the nodes themselves (their logarithms).
    - Davidian curve of degree k: ``phi(theta) P(theta)^2``, P a polynomial; the free numbers are
      its coefficients for orthonormal (Hermite) polynomials, whose length is 1.

    Attributes:
        degree: of the Davidian curve; 0 for the empirical histogram.
        nodes: the nodes.

    References:
        Bock & Aitkin (1981), Psychometrika 46, 443-459 (histogram). Woods & Lin (2009), Applied
        Psychological Measurement 33, 102-117 (Davidian curves).
    """

    degree: int
    nodes: Float[np.ndarray, " nodes"]

    @property
    def n_free(self) -> int:
        """How many numbers are free: location and scale are those of the items."""
        return self.degree if self.degree else len(self.nodes) - 3

    def _basis(self, at: FloatArray) -> FloatArray:
        """Orthonormal polynomials, points x (degree + 1)."""
        columns = []
        for k in range(self.degree + 1):
            unit = np.zeros(k + 1)
            unit[k] = 1.0
            factorial = float(np.prod(np.arange(1, k + 1)))
            columns.append(np.polynomial.hermite_e.hermeval(at, unit) / np.sqrt(factorial))
        return np.stack(columns, axis=1)

    def start(self) -> FloatArray:
        """The free numbers of a standard Normal density."""
        if self.degree:
            # A little off the Normal, whose odd coefficients are a saddle of symmetric data.
            first = np.zeros(self.degree + 1)
            first[0], first[1:] = 1.0, 0.01
            return first / np.linalg.norm(first)
        log_p = -0.5 * self.nodes**2
        return np.asarray(log_p - np.log(np.exp(log_p).sum()))

    def log_probabilities(self, free: FloatArray) -> FloatArray:
        """Logarithms of the probabilities of the nodes."""
        if not self.degree:
            log_p = np.asarray(free, float)
        else:
            value = self._basis(self.nodes) @ np.asarray(free, float)
            log_p = -0.5 * self.nodes**2 + np.log(np.maximum(value**2, LEAST))
        top = log_p.max()
        return log_p - (top + np.log(np.exp(log_p - top).sum()))

    def fitted(
        self, free: FloatArray, mass: FloatArray, expand: bool
    ) -> tuple[FloatArray, float, float]:
        """The M-step: the density that fits the expected numbers of subjects at the nodes.

        Args:
            free: the free numbers at present.
            mass: expected number of subjects at each node.
            expand: whether a Davidian curve may have another location and scale.

        Returns:
            The free numbers, and mean and SD of the scale on which they apply.
        """
        share = np.maximum(mass / mass.sum(), 0.0)
        if not self.degree:
            return np.log(np.maximum(share, LEAST)), 0.0, 1.0

        def loss(vector: FloatArray) -> float:
            z = (self.nodes - vector[-2]) * np.exp(-vector[-1])
            log_p = -0.5 * z**2 + np.log(np.maximum((self._basis(z) @ vector[:-2]) ** 2, LEAST))
            top = log_p.max()
            return float(top + np.log(np.exp(log_p - top).sum()) - share @ log_p)

        def at(shorter: FloatArray) -> float:
            return loss(np.concatenate([shorter, [0.0, 0.0]]))

        start = np.concatenate([np.asarray(free, float), [0.0, 0.0]])
        best = scipy.optimize.minimize(at, start[:-2], method="BFGS").x
        best = np.concatenate([best, [0.0, 0.0]])
        if expand:
            best = scipy.optimize.minimize(loss, best, method="BFGS").x
        best = best if loss(best) <= loss(start) else start
        return best[:-2] / np.linalg.norm(best[:-2]), float(best[-2]), float(np.exp(best[-1]))

    def standardised(self, free: FloatArray) -> tuple[float, float]:
        """Mean and SD of a density."""
        p = np.exp(self.log_probabilities(free))
        mean = float(p @ self.nodes)
        return mean, float(np.sqrt(p @ (self.nodes - mean) ** 2))


def density_of(name: str, n_nodes: int | None) -> Density:
    """The density family for the ``density`` argument of `irtcat.fit`.

    Raises:
        InputError: for an unknown name.

    Example:
        >>> density_of("davidian-4", None).degree, len(density_of("empirical", 61).nodes)
        (4, 61)
    """
    nodes = np.linspace(-REACH, REACH, n_nodes or N_POINTS)
    if name == HISTOGRAM:
        return Density(0, nodes)
    stem, _, number = str(name).partition("-")
    if stem == DAVIDIAN and number.isdigit() and 1 <= int(number) <= MOST_DEGREE:
        return Density(int(number), nodes)
    must = f"normal, {HISTOGRAM} or {DAVIDIAN}-K, K the degree from 1 to {MOST_DEGREE}"
    raise argument_error("density", must, name)
