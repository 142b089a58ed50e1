"""The result of an E-step, by any quadrature, of one ability or several."""

from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from irtcat._common.types import FloatArray


class EStep(NamedTuple):
    """Posterior moments of each subject and the expected counts at the nodes.

    The line integrates on the scale of its grid, other quadratures on the z scale, on which the
    subject's population is standard Normal.

    Attributes:
        mean: posterior means.
        covariance: posterior covariances.
        log_z: marginal log-likelihood of each subject's responses.
        counts: expected sums of the responses' statistics at each node (two-tier: pairs of nodes):
            for categories, of the subjects who gave category 1, 2, ...
        totals: expected number of subjects at each node; per item where responses are missing.
        mass: expected number of subjects at each node (two-tier: groups x pairs of nodes); None on
            the line, where ``totals`` is all that is needed.
        square_variance: posterior variance of theta squared (for the latent-scale check); None but
            on the line.
    """

    mean: Float[Array | np.ndarray, "subjects dims"]
    covariance: Float[Array | np.ndarray, "subjects dims dims"]
    log_z: Float[Array | np.ndarray, " subjects"]
    counts: Float[Array | np.ndarray, "contrasts nodes items"]
    totals: Array | np.ndarray
    mass: Array | np.ndarray | None = None
    square_variance: Float[Array | np.ndarray, " subjects"] | None = None

    @classmethod
    def of_line(
        cls, moments: Float[Array | np.ndarray, "four subjects"], counts: Array, totals: Array
    ) -> "EStep":
        """The E-step of one ability, from its `line_moments`."""
        mean, variance, square_variance, log_z = moments
        return cls(
            mean=mean[:, None],
            covariance=variance[:, None, None],
            log_z=log_z,
            counts=counts,
            totals=totals,
            square_variance=square_variance,
        )

    def line_moments(self) -> Float[Array, "four subjects"]:
        """Mean, variance, variance of the square and log-likelihood of each subject (traceable)."""
        assert self.square_variance is not None
        return jnp.stack(
            [self.mean[:, 0], self.covariance[:, 0, 0], self.square_variance, self.log_z]
        )

    def on_line(self) -> tuple[FloatArray, FloatArray]:
        """Posterior mean and SD of each subject, where there is one ability."""
        return line_posteriors(self.mean, self.covariance)


def line_posteriors(mean: FloatArray, covariance: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Mean and SD of the only ability of each subject."""
    variance = np.asarray(covariance, float)[:, 0, 0]
    return np.asarray(mean, float)[:, 0], np.sqrt(variance)
