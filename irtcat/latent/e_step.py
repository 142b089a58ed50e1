"""The result of an E-step, by any quadrature, of one ability or several."""

from typing import Any, NamedTuple, cast

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

    mean: Float[Array, "subjects dims"]
    covariance: Float[Array, "subjects dims dims"]
    log_z: Float[Array, " subjects"]
    counts: Float[Array, "contrasts nodes items"]
    totals: Array
    mass: Any = None
    square_variance: Any = None

    @classmethod
    def of_line(
        cls, moments: Float[Array | np.ndarray, "four subjects"], counts: Any, totals: Any
    ) -> "EStep":
        """The E-step of one ability, from its `line_moments`."""
        mean, variance, square_variance, log_z = cast(Array, moments)
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
        return line_posteriors(np.asarray(self.mean), np.asarray(self.covariance))


def line_posteriors(mean: FloatArray, covariance: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Mean and SD of the only ability of each subject."""
    variance = np.asarray(covariance, float)[:, 0, 0]
    return np.asarray(mean, float)[:, 0], np.sqrt(variance)
