"""Points for the standard Normal in three and more dimensions: directions times radii.

A Normal vector is a direction, uniform on the sphere, times a length whose half square is Gamma
distributed. A rule that is exact for polynomials up to degree 7 in the direction (2 d + 2^d + 2 d
(d - 1) points, all weights positive up to d = 8), times a Gauss-Laguerre rule for the length, takes
144 points in four dimensions and 246 in five, where a product rule of the same accuracy takes
thousands. With a random rotation the rule is also unbiased for all other functions, so that the
errors of many subjects with different rotations average out.

References:
    Genz & Monahan (1998), SIAM Journal on Scientific Computing 19, 426-439; Stroud (1971),
    Approximate Calculation of Multiple Integrals, rule U_n 7-1.
"""

import itertools

import numpy as np
from scipy.special import ndtri, roots_genlaguerre

from irtcat._common.types import FloatArray

MOST_DIMS = 8
"""Beyond, the rule of degree 7 has negative weights, and quasi-random directions are used."""

DIRECTIONS = 256
"""Number of quasi-random directions; each is used with its negative."""


def _axes(dims: int) -> FloatArray:
    return np.concatenate([np.eye(dims), -np.eye(dims)])


def _corners(dims: int) -> FloatArray:
    return np.array(list(itertools.product([1.0, -1.0], repeat=dims))) / np.sqrt(dims)


def _edges(dims: int) -> FloatArray:
    """All (+-1, +-1, 0, ...) / sqrt 2."""
    out = []
    for i, j in itertools.combinations(range(dims), 2):
        for first, second in itertools.product([1.0, -1.0], repeat=2):
            point = np.zeros(dims)
            point[i], point[j] = first, second
            out.append(point / np.sqrt(2))
    return np.array(out)


def _directions(dims: int, seed: int) -> tuple[FloatArray, FloatArray]:
    """Points on the unit sphere and their weights."""
    if dims > MOST_DIMS:
        from scipy.stats import qmc  # slow to import

        draw = ndtri(qmc.Sobol(dims, seed=seed).random(DIRECTIONS) * (1 - 2e-9) + 1e-9)
        draw /= np.linalg.norm(draw, axis=1, keepdims=True)
        return np.concatenate([draw, -draw]), np.full(2 * DIRECTIONS, 0.5 / DIRECTIONS)
    total = dims * (dims + 2) * (dims + 4)
    weights = (8 - dims) / total, dims**3 / 2**dims / total, 4 / total
    sets = _axes(dims), _corners(dims), _edges(dims)
    points = np.concatenate(sets)
    weight = np.concatenate([np.full(len(s), w) for s, w in zip(sets, weights, strict=True)])
    return points[weight > 0], weight[weight > 0]


def spherical_rule(dims: int, radii: int, seed: int = 0) -> tuple[FloatArray, FloatArray]:
    """Points and log-probabilities for the standard Normal.

    Args:
        dims: number of dimensions, 3 or more.
        radii: number of lengths.
        seed: for quasi-random directions (more than eight dimensions).

    Returns:
        Points (directions inner), and the logarithm of their weights.
    """
    directions, weight = _directions(dims, seed)
    half_square, by_length = roots_genlaguerre(radii, dims / 2 - 1)
    lengths = np.sqrt(2 * half_square)
    points = (lengths[:, None, None] * directions).reshape(-1, dims)
    share = np.outer(by_length / by_length.sum(), weight).ravel()
    return points, np.log(share)


def rotations(dims: int, n: int, seed: int) -> FloatArray:
    """Random orthogonal matrices, uniformly distributed."""
    draws = np.random.default_rng(seed).standard_normal((n, dims, dims))
    orthogonal, upper = np.linalg.qr(draws)
    return orthogonal * np.sign(np.einsum("ndd->nd", upper))[:, None, :]
