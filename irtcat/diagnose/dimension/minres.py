"""Common factors of a correlation matrix by least squares (minres)."""

from typing import NamedTuple

import numpy as np

from irtcat._common.types import FloatArray

MIN_UNIQUE = 0.005
"""Lower bound of unique variances; items at it are Heywood cases."""


class Minres(NamedTuple):
    """Common factors of a correlation matrix.

    Attributes:
        loadings: items x factors, on uncorrelated factors, the strongest first.
        unique: variance of each item that the factors do not explain.
        residual: root mean square of the residual correlations.
        converged: whether the gradient is 0 to tolerance.
        heywood: items whose unique variance is at its lower bound (.005).
    """

    loadings: FloatArray
    unique: FloatArray
    residual: float
    converged: bool
    heywood: FloatArray


def _loadings(matrix: FloatArray, unique: FloatArray, n_factors: int) -> FloatArray:
    """The best loadings given the unique variances: leading eigenvectors of the common part."""
    values, vectors = np.linalg.eigh(matrix - np.diag(unique))
    values, vectors = values[::-1][:n_factors], vectors[:, ::-1][:, :n_factors]
    return vectors * np.sqrt(np.maximum(values, 0.0))


def minres(matrix: FloatArray, n_factors: int) -> Minres:
    """Factors with the smallest squared residual correlations.

    Minimises ``|R - L L' - diag(u)|^2`` over the loadings L and unique variances u in [.005, 1]:
    L by eigenvectors given u, u by L-BFGS. R need not be positive definite.

    Args:
        matrix: correlations R, items x items, finite.
        n_factors: number of factors, below the number of items.

    Example:
        >>> l = np.array([0.8, 0.7, 0.6, 0.5])
        >>> R = np.outer(l, l) + np.diag(1 - l**2)
        >>> minres(R, 1).loadings.round(3).ravel().tolist()
        [0.8, 0.7, 0.6, 0.5]

    References:
        Harman & Jones (1966), Psychometrika 31, 351-368; Joreskog (1977) (the gradient).
    """
    from scipy.optimize import minimize  # slow to import

    size = len(matrix)

    def loss(unique: FloatArray) -> tuple[float, FloatArray]:
        loadings = _loadings(matrix, unique, n_factors)
        error = matrix - loadings @ loadings.T - np.diag(unique)
        return float((error**2).sum()) / 2, -np.diagonal(error)

    # Unique variances start from the largest correlation, a simple estimate of the communality.
    largest = np.abs(matrix - np.diag(np.diagonal(matrix))).max(axis=1)
    start = np.clip(1 - largest, 0.05, 0.95)
    result = minimize(
        loss,
        start,
        jac=True,
        method="L-BFGS-B",
        bounds=[(MIN_UNIQUE, 1.0)] * size,
        options={"maxiter": 2000, "maxfun": 4000, "ftol": 1e-14, "gtol": 1e-8},
    )
    unique = result.x
    loadings = _loadings(matrix, unique, n_factors)
    loadings = loadings * np.where(loadings.sum(axis=0) < 0, -1.0, 1.0)
    error = matrix - loadings @ loadings.T
    off_diagonal = ~np.eye(size, dtype=bool)
    residual = float(np.sqrt((error[off_diagonal] ** 2).mean()))
    gradient = loss(unique)[1]
    at_bound = ((unique <= MIN_UNIQUE) & (gradient > 0)) | ((unique >= 1) & (gradient < 0))
    converged = bool(np.abs(np.where(at_bound, 0.0, gradient)).max() < 1e-4)
    return Minres(loadings, unique, residual, converged, unique <= MIN_UNIQUE + 1e-9)
