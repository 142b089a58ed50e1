"""The populations of the abilities: Normal in each group of subjects.

A group's population is a row of numbers: the means, the logarithms of the SDs and the free numbers
of the correlations (see `correlation_root`). One ability has a mean and a log SD. Numbers that are
not estimated are 0: the first group's abilities have mean 0 and SD 1, unless the scale is that of
anchor items.
"""

import functools
import math
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from irtcat._common.compilation import SMALL, jit


class PopulationDesign(NamedTuple):
    """What of the population is estimated (static).

    Attributes:
        dims: number of abilities.
        n_correlated: the first abilities, that may correlate; the others are independent of all.
        correlates: whether the first group's abilities may correlate.
        n_groups: number of groups.
        first_is_free: whether the first group's means and SDs are estimated too.
        full: whether the other groups' abilities may correlate.
        is_known: whether nothing is estimated.
    """

    dims: int
    n_correlated: int
    correlates: bool = False
    n_groups: int = 1
    first_is_free: bool = False
    full: bool = False
    is_known: bool = False

    @property
    def estimated(self) -> np.ndarray:
        """Which numbers are estimated, groups x numbers."""
        n_pairs = self.n_correlated * (self.n_correlated - 1) // 2
        is_free = (np.arange(self.n_groups) > 0) | self.first_is_free
        has_pairs = self.correlates | (is_free & self.full)
        counts = [2 * self.dims, n_pairs]
        marks = np.stack([is_free, has_pairs], axis=1) & ~np.array(self.is_known)
        return np.repeat(marks, counts, axis=1)

    @property
    def size(self) -> int:
        """How many numbers are estimated."""
        return int(self.estimated.sum())


class Populations(NamedTuple):
    """Mean of each group and lower root of its covariance."""

    mean: Float[Array | np.ndarray, "groups dims"]
    root: Float[Array | np.ndarray, "groups dims dims"]

    @property
    def covariance(self) -> Float[Array | np.ndarray, "groups dims dims"]:
        """The covariances."""
        return self.root @ self.root.swapaxes(1, 2)


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


@functools.partial(jit, options=SMALL)
def free_correlations(correlations: Float[Array, "dims dims"]) -> Float[Array, " pairs"]:
    """Undo `correlation_root`: any free numbers give a correlation matrix."""
    root = jnp.linalg.cholesky(correlations)
    rows, columns = np.tril_indices(correlations.shape[0], -1)
    return (root / jnp.diagonal(root)[:, None])[rows, columns]


@functools.partial(jit, static_argnames=("dims",), options=SMALL)
def populations_of(numbers: Float[Array, "groups numbers"], dims: int) -> Populations:
    """The populations of these numbers (traceable)."""
    mean, sd = numbers[:, :dims], jnp.exp(numbers[:, dims : 2 * dims])
    pairs = numbers[:, 2 * dims :]
    n_correlated = (1 + math.isqrt(1 + 8 * pairs.shape[1])) // 2
    root = jnp.broadcast_to(jnp.eye(dims, dtype=sd.dtype), (len(sd), dims, dims))
    if pairs.shape[1]:
        roots = jax.vmap(correlation_root, (0, None))(pairs, n_correlated)
        root = root.at[:, :n_correlated, :n_correlated].set(roots)
    return Populations(mean, sd[:, :, None] * root)


@functools.partial(jit, static_argnames=("design",), options=SMALL)
def population_numbers(
    mean: Float[Array, "groups dims"],
    covariance: Float[Array, "groups dims dims"],
    design: PopulationDesign,
) -> Float[Array, "groups numbers"]:
    """Undo `populations_of`; 0 for numbers that are not estimated."""
    sd = jnp.sqrt(jnp.diagonal(covariance, axis1=1, axis2=2))
    parts = [mean, jnp.log(sd)]
    if design.n_correlated > 1:
        first = slice(design.n_correlated)
        correlations = covariance / (sd[:, :, None] * sd[:, None, :])
        parts.append(jax.vmap(free_correlations)(correlations[:, first, first]))
    return jnp.where(design.estimated, jnp.concatenate(parts, axis=1), 0.0)


def _agreement(free: Float[Array, " pairs"], second: Float[Array, "dims dims"]) -> Array:
    """Mean log-density of abilities with these second moments (mean 0, SD 1), up to a constant."""
    root = correlation_root(free, second.shape[0])
    inverse = _inverse_root(root)
    return -jnp.log(jnp.diagonal(root)).sum() - 0.5 * jnp.trace(inverse @ second @ inverse.T)


def _inverse_root(root: Array | np.ndarray) -> Float[Array, "dims dims"]:
    eye = jnp.eye(len(root), dtype=root.dtype)
    return jax.scipy.linalg.solve_triangular(root, eye, lower=True)


class CorrelationTerms(NamedTuple):
    """Derivatives by the free numbers of the correlations.

    Attributes:
        gradient: of `_agreement`.
        values: eigenvalues of the information of a subject (minus the second derivative), made
            positive.
        vectors: its eigenvectors.
        precision: derivative of the abilities' precision matrix.
    """

    gradient: Float[Array, " pairs"]
    values: Float[Array, " pairs"]
    vectors: Float[Array, "pairs pairs"]
    precision: Float[Array, "pairs dims dims"]


def correlation_terms(
    free: Float[Array, " pairs"], second: Float[Array, "dims dims"]
) -> CorrelationTerms:
    """The derivatives in closed form: differentiated twice, `_agreement` takes long to compile.

    With root L, M its inverse, A_k = M dL/dk and W = M S M', the derivative of W is
    ``-(A_k W + W A_k')`` and that of A_k by l is ``M d2L/dkdl - A_l A_k``.
    """

    def root_of(numbers: Array) -> Array:
        return correlation_root(numbers, second.shape[0])

    root = root_of(free)
    inverse = _inverse_root(root)
    a = inverse @ jnp.moveaxis(jax.jacfwd(root_of)(free), -1, 0)
    bent = jnp.tensordot(inverse, jax.jacfwd(jax.jacfwd(root_of))(free), 1)
    w = inverse @ second @ inverse.T
    less = w - jnp.eye(len(w), dtype=w.dtype)
    gradient = jnp.einsum("kij,ji->k", a, less)
    product = jnp.einsum("lij,kjm->lkim", a, a)
    curvature = jnp.einsum("ijkl,ji->kl", bent, less) - jnp.einsum("lkij,ji->kl", product, less)
    curvature = curvature - jnp.einsum("klij,ji->kl", product, w)
    curvature = curvature - jnp.einsum("kij,jm,lim->kl", a, w, a)
    values, vectors = jnp.linalg.eigh(-curvature)
    both = a + jnp.swapaxes(a, 1, 2)
    precision = -inverse.T @ both @ inverse
    return CorrelationTerms(gradient, jnp.maximum(jnp.abs(values), 0.05), vectors, precision)


def _best_correlations(
    free: Float[Array, " pairs"], second: Float[Array, "dims dims"]
) -> tuple[Float[Array, " pairs"], CorrelationTerms]:
    """Steps towards the correlations that fit the second moments best, with mean 0 and SD 1.

    Also the terms at the first numbers.
    """

    def step(free: Array, _: None) -> tuple[Array, CorrelationTerms]:
        terms = correlation_terms(free, second)
        move = terms.vectors @ ((terms.vectors.T @ terms.gradient) / terms.values)
        lengths = jnp.array([1.0, 0.5, 0.2, 0.05, 0.0], free.dtype)
        tries = free + lengths[:, None] * move
        scores = jax.vmap(_agreement, (0, None))(tries, second)
        return tries[jnp.argmax(scores)], terms

    best, terms = jax.lax.scan(step, free, length=3)
    return best, jax.tree.map(lambda a: a[0], terms)


def population_step(
    numbers: Float[Array, "groups numbers"], moments: Moments, design: PopulationDesign
) -> tuple[Float[Array, "groups numbers"], CorrelationTerms | None]:
    """The M-step of the populations: those that fit the moments of the abilities.

    Also the terms of the first group's correlations at ``numbers``, where they are estimated.
    """
    new = population_numbers(moments.mean, moments.covariance, design)
    if not (design.correlates and not design.first_is_free and design.n_correlated > 1):
        return new, None
    first = slice(design.n_correlated)
    pairs = slice(2 * design.dims, None)
    free, terms = _best_correlations(numbers[0, pairs], moments.second[0][first, first])
    return new.at[0, pairs].set(free), terms


def rescaled_populations(
    moments: Moments, design: PopulationDesign, mean: Array, spread: Array
) -> Float[Array, "groups numbers"]:
    """Populations of these moments on the scale z, theta = mean + spread z."""
    inverse = jnp.linalg.inv(spread)
    covariance = inverse @ moments.covariance @ inverse.T
    return population_numbers((moments.mean - mean) @ inverse.T, covariance, design)


def population_log_density(numbers: Float[Array, "groups numbers"], moments: Moments) -> Array:
    """Expected log-density of all subjects' abilities, up to a constant; 0 without subjects."""
    populations = populations_of(numbers, moments.mean.shape[1])
    inverse = jax.vmap(_inverse_root)(populations.root)
    off = moments.mean - populations.mean
    second = moments.covariance + off[:, :, None] * off[:, None, :]
    squares = jnp.einsum("gij,gjk,gik->g", inverse, second, inverse)
    log_det = 2 * jnp.log(jnp.diagonal(populations.root, axis1=1, axis2=2)).sum(1)
    return -0.5 * (moments.n * (log_det + squares)).sum()


def density_scores(
    numbers: Float[Array, "groups numbers"], theta: Float[Array, "nodes dims"], group: int
) -> Float[Array, "nodes all"]:
    """Derivative of a group's log-density at each node by the numbers of all groups."""

    def log_density(numbers: Array, at: Array) -> Array:
        populations = populations_of(numbers, theta.shape[1])
        root = populations.root[group]
        z = jax.scipy.linalg.solve_triangular(root, at - populations.mean[group], lower=True)
        return -0.5 * (z**2).sum() - jnp.log(jnp.diagonal(root)).sum()

    return jax.vmap(jax.grad(log_density), (None, 0))(numbers, theta).reshape(len(theta), -1)
