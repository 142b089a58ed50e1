"""Log-linear presmoothing of the frequencies of scores."""

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import pandas as pd
from scipy.special import xlogy

from irtcat._common.checks import InputError, argument_error, check_count
from irtcat._common.types import FloatArray
from irtcat.equating.scores import score_counts

MAX_STEPS, TOLERANCE = 200, 1e-10
"""Steps of Newton's method, and the largest difference of moments, in SDs, at which it ends."""
MAX_HALVINGS = 30


@dataclass(frozen=True, eq=False)
class Loglinear:
    """The result of `loglinear`.

    Attributes:
        table: indexed by score: observed and smoothed frequency.
        moments: number of moments that are kept.
        deviance: likelihood-ratio chi-square against the observed frequencies.
        df: its degrees of freedom.
        aic: deviance plus twice the number of parameters; the smallest is best.
    """

    table: pd.DataFrame
    moments: int
    deviance: float
    df: int
    aic: float

    def to_frame(self) -> pd.DataFrame:
        """The table of frequencies."""
        return self.table.copy()


def loglinear(scores: Any, moments: int = 4, *, max_score: int | None = None) -> Loglinear:
    """Smooth the frequencies of scores by a polynomial of their logarithms.

    ``log m_x = b_0 + b_1 x + ... + b_C x^C``. The smoothed distribution has the first C moments of
    the observed one. Compare the ``aic`` of several C.

    Args:
        scores: whole scores, or responses, whose sums are used.
        moments: C.
        max_score: the highest possible score; by default the highest that occurs, or that of the
            responses.

    Returns:
        Observed and smoothed frequencies.

    Raises:
        InputError: for other than whole scores, or as many moments as scores.

    Example:
        >>> scores = np.random.default_rng(0).binomial(20, 0.6, 500)
        >>> fits = [loglinear(scores, moments, max_score=20) for moments in (1, 2, 3)]
        >>> fits[0].aic > fits[1].aic
        True

    References:
        Holland & Thayer (2000), Journal of Educational and Behavioral Statistics 25, 133-183;
        Kolen & Brennan (2014), Test Equating, Scaling, and Linking, 3rd ed., chapter 3.
    """
    check_count("moments", moments)
    counts = score_counts("scores", scores, "max_score", max_score)
    smoothed = smooth(counts, (moments,))
    used = counts > 0
    deviance = float(2 * xlogy(counts[used], counts[used] / smoothed[used]).sum())
    table = pd.DataFrame({"observed": counts, "smoothed": smoothed})
    return Loglinear(
        table=table.rename_axis("score"),
        moments=moments,
        deviance=deviance,
        df=len(counts) - moments - 1,
        aic=deviance + 2 * (moments + 1),
    )


def smooth(counts: FloatArray, moments: tuple[int, ...]) -> FloatArray:
    """Smoothed frequencies of one score (C,), or of two (C_x, C_v, number of cross moments).

    Raises:
        InputError: there are too many moments for the scores, or no finite solution.
    """
    basis = _basis(counts.shape, moments)
    n = counts.ravel().astype(float)
    beta = basis.T @ np.log(n + 0.5) / len(n)  # least squares, as the columns are orthonormal

    def fitted(b: FloatArray) -> tuple[FloatArray, float]:
        log_mean = np.clip(basis @ b, -700, 700)
        mean = np.exp(log_mean)
        return mean, float(n @ log_mean - mean.sum())

    mean, value = fitted(beta)
    for _ in range(MAX_STEPS):
        gradient = basis.T @ (n - mean)
        if np.abs(gradient).max() < TOLERANCE * n.sum():
            return mean.reshape(counts.shape)
        hessian = (basis * mean[:, None]).T @ basis
        step = np.linalg.lstsq(hessian, gradient, rcond=None)[0]
        for halving in range(MAX_HALVINGS):
            new_mean, new_value = fitted(beta + step / 2**halving)
            if new_value >= value - 1e-12 * abs(value):
                break
        beta, mean, value = beta + step / 2**halving, new_mean, new_value
    raise InputError(
        f"The log-linear model with {moments} moments does not converge: the scores vary too "
        "little. Use fewer moments."
    )


@lru_cache(maxsize=8)  # bootstrap samples have one shape
def _basis(shape: tuple[int, ...], moments: tuple[int, ...]) -> FloatArray:
    """Orthogonal polynomials of the scores of all cells, of mean square 1."""
    axes = [np.linspace(-1, 1, k) if k > 1 else np.zeros(1) for k in shape]
    cells = [axis.ravel() for axis in np.meshgrid(*axes, indexing="ij")]
    columns = [np.ones(len(cells[0]))]
    for cell, degree, size in zip(cells, moments, shape, strict=False):
        if degree >= size:
            must = f"fewer moments than scores ({size})"
            raise argument_error("smoothing", must, degree)
        columns += [cell**k for k in range(1, degree + 1)]
    if len(shape) == 2:
        columns += [cells[0] ** k * cells[1] ** k for k in range(1, moments[2] + 1)]
    orthonormal, _ = np.linalg.qr(np.stack(columns, axis=1))
    return orthonormal * np.sqrt(len(orthonormal))
