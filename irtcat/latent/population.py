"""The population of several abilities: Normal in each group of subjects.

The estimates are free numbers in one vector: the correlations of the first group, whose abilities
have mean 0 and SD 1, unless the scale is that of anchor items; then means, logarithms of the SDs
and correlations of every other group.
"""

import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from irtcat._common.compilation import jit


class PopulationDesign(NamedTuple):
    """What of the population is estimated (static).

    Attributes:
        dims: number of abilities.
        n_correlated: the first abilities, that may correlate; the others are independent of all.
        correlates: whether the first group's abilities may correlate.
        n_groups: number of groups.
        first_is_free: whether the first group's means and SDs are estimated too.
        full: whether the other groups' abilities may correlate.
    """

    dims: int
    n_correlated: int
    correlates: bool = False
    n_groups: int = 1
    first_is_free: bool = False
    full: bool = False

    @property
    def pairs(self) -> tuple[np.ndarray, np.ndarray]:
        """Rows and columns of the correlations."""
        return np.tril_indices(self.n_correlated, -1)

    @property
    def n_pairs(self) -> int:
        """Number of correlations."""
        return len(self.pairs[0])

    def parts(self, group: int) -> tuple[bool, bool]:
        """Whether a group's means and SDs, and whether its correlations are estimated."""
        is_free = group > 0 or self.first_is_free
        return is_free, self.correlates or (is_free and self.full)

    @property
    def size(self) -> int:
        """How many numbers are estimated."""
        parts = [self.parts(group) for group in range(self.n_groups)]
        return sum(2 * self.dims * free + self.n_pairs * pairs for free, pairs in parts)


class Populations(NamedTuple):
    """Mean of each group and lower root of its covariance."""

    mean: Float[Array | np.ndarray, "groups dims"]
    root: Float[Array | np.ndarray, "groups dims dims"]

    @property
    def covariance(self) -> Float[Array | np.ndarray, "groups dims dims"]:
        """The covariances."""
        return self.root @ self.root.swapaxes(1, 2)


def line_populations(moments: Float[Array | np.ndarray, "two groups"]) -> Populations:
    """The populations of one ability, from the means and log SDs of the groups (traceable)."""
    mean, log_sd = moments
    return Populations(mean[:, None], jnp.exp(log_sd)[:, None, None])


class Moments(NamedTuple):
    """Of each group: number of subjects, mean of E[theta], and mean of E[theta theta']."""

    n: Float[Array, " groups"]
    mean: Float[Array, "groups dims"]
    second: Float[Array, "groups dims dims"]

    @property
    def covariance(self) -> Float[Array, "groups dims dims"]:
        """Covariance of the abilities."""
        return self.second - self.mean[:, :, None] * self.mean[:, None, :]


def correlation_root(free: Float[Array, " pairs"], dims: int) -> Float[Array, "dims dims"]:
    """Lower root of a correlation matrix: rows of (free numbers, 1), scaled to length 1."""
    rows, columns = np.tril_indices(dims, -1)
    lower = jnp.eye(dims, dtype=free.dtype)
    if free.shape[0]:
        lower = lower.at[rows, columns].set(free)
    return lower / jnp.sqrt((lower**2).sum(1, keepdims=True))


@jit
def free_correlations(correlations: Float[Array, "dims dims"]) -> Float[Array, " pairs"]:
    """Undo `correlation_root`: any free numbers give a correlation matrix."""
    root = jnp.linalg.cholesky(correlations)
    rows, columns = np.tril_indices(correlations.shape[0], -1)
    return (root / jnp.diagonal(root)[:, None])[rows, columns]


def _root_of(free: Array, design: PopulationDesign) -> Float[Array, "dims dims"]:
    """Root of the correlations of all abilities."""
    first = design.n_correlated
    root = jnp.eye(design.dims, dtype=free.dtype)
    return root.at[:first, :first].set(correlation_root(free, first))


@functools.partial(jit, static_argnames=("design",))
def populations_of(vector: Float[Array, " free"], design: PopulationDesign) -> Populations:
    """The populations of the free numbers (traceable)."""
    means, roots, at, dims = [], [], 0, design.dims
    for group in range(design.n_groups):
        is_free, has_pairs = design.parts(group)
        mean, sd = jnp.zeros(dims, vector.dtype), jnp.ones(dims, vector.dtype)
        if is_free:
            mean, sd = vector[at : at + dims], jnp.exp(vector[at + dims : at + 2 * dims])
            at += 2 * dims
        pairs = vector[at : at + design.n_pairs] if has_pairs else vector[:0]
        at += len(pairs)
        means.append(mean)
        roots.append(sd[:, None] * _root_of(pairs, design))
    return Populations(jnp.stack(means), jnp.stack(roots))


@functools.partial(jit, static_argnames=("design",))
def population_vector(
    mean: Float[Array, "groups dims"],
    covariance: Float[Array, "groups dims dims"],
    design: PopulationDesign,
) -> Float[Array, " free"]:
    """Undo `populations_of`."""
    parts = [jnp.zeros(0, mean.dtype)]
    for group in range(design.n_groups):
        is_free, has_pairs = design.parts(group)
        sd = jnp.sqrt(jnp.diagonal(covariance[group]))
        if is_free:
            parts += [mean[group], jnp.log(sd)]
        if has_pairs and design.n_pairs:
            first = slice(design.n_correlated)
            correlations = covariance[group] / jnp.outer(sd, sd)
            parts.append(free_correlations(correlations[first, first]))
    return jnp.concatenate(parts)


def _agreement(free: Float[Array, " pairs"], second: Float[Array, "dims dims"]) -> Array:
    """Mean log-density of abilities with these second moments (mean 0, SD 1), up to a constant."""
    root = correlation_root(free, second.shape[0])
    half = jax.scipy.linalg.solve_triangular(root, second, lower=True)
    standardised = jax.scipy.linalg.solve_triangular(root, half.T, lower=True)
    return -jnp.log(jnp.diagonal(root)).sum() - 0.5 * jnp.trace(standardised)


def _positive(matrix: Float[Array, "n n"]) -> tuple[Array, Array]:
    """Eigenvalues, made positive, and eigenvectors."""
    values, vectors = jnp.linalg.eigh(matrix)
    return jnp.maximum(jnp.abs(values), 0.05), vectors


def correlation_curvature(free: Array, second: Array) -> tuple[Array, Array]:
    """Eigenvalues and eigenvectors of the information of a subject on the free correlations."""
    return _positive(-jax.hessian(_agreement)(free, second))


def _best_correlations(
    free: Float[Array, " pairs"], second: Float[Array, "dims dims"]
) -> Float[Array, " pairs"]:
    """A step towards the correlations that fit the second moments best, with mean 0 and SD 1."""
    for _ in range(3):
        values, vectors = correlation_curvature(free, second)
        move = vectors @ ((vectors.T @ jax.grad(_agreement)(free, second)) / values)
        lengths = jnp.array([1.0, 0.5, 0.2, 0.05, 0.0], free.dtype)
        tries = free + lengths[:, None] * move
        scores = jax.vmap(_agreement, (0, None))(tries, second)
        free = tries[jnp.argmax(scores)]
    return free


def population_step(
    vector: Float[Array, " free"], moments: Moments, design: PopulationDesign
) -> Float[Array, " free"]:
    """The M-step of the populations: those that fit the moments of the abilities."""
    new = population_vector(moments.mean, moments.covariance, design)
    if design.correlates and not design.first_is_free and design.n_pairs:
        first = slice(design.n_correlated)
        free = _best_correlations(vector[: design.n_pairs], moments.second[0][first, first])
        new = new.at[: design.n_pairs].set(free)
    return new


def rescaled_populations(
    moments: Moments, design: PopulationDesign, mean: Array, spread: Array
) -> Float[Array, " free"]:
    """Populations of these moments on the scale z, theta = mean + spread z."""
    inverse = jnp.linalg.inv(spread)
    covariance = inverse @ moments.covariance @ inverse.T
    return population_vector((moments.mean - mean) @ inverse.T, covariance, design)


def population_log_density(
    vector: Float[Array, " free"], moments: Moments, design: PopulationDesign
) -> Array:
    """Expected log-density of all subjects' abilities, up to a constant; 0 without subjects."""
    populations = populations_of(vector, design)
    inverse = jnp.linalg.inv(populations.covariance)
    off = moments.mean - populations.mean
    second = moments.covariance + off[:, :, None] * off[:, None, :]
    log_det = 2 * jnp.log(jnp.diagonal(populations.root, axis1=1, axis2=2)).sum(1)
    return -0.5 * (moments.n * (log_det + (inverse * second).sum((1, 2)))).sum()
