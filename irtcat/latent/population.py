"""The populations of the abilities: Normal in each group of subjects.

A group's population is a row of numbers: the means, the logarithms of the SDs and the free numbers
of the correlations (see `correlation_root`). One ability has a mean and a log SD. Numbers that are
not estimated are 0: the first group's abilities have mean 0 and SD 1, unless the scale is that of
anchor items.
"""

import functools
import math
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from irtcat._common.compilation import namespace
from irtcat._common.types import BoolArray, FloatArray

LEAST_VARIANCE = 1e-12
"""Smallest variance of a population, where rounding may make that of equal abilities negative."""


Numbers = Float[np.ndarray, "groups numbers"]
"""The numbers of the populations of groups (see `populations_of`)."""


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
        """Which numbers are estimated, groups x numbers (not to be written to)."""
        return _estimated(self)

    @property
    def size(self) -> int:
        """How many numbers are estimated."""
        return int(self.estimated.sum())


@functools.cache
def _estimated(design: PopulationDesign) -> BoolArray:
    """`PopulationDesign.estimated`, asked for in every iteration."""
    n_pairs = design.n_correlated * (design.n_correlated - 1) // 2
    is_free = (np.arange(design.n_groups) > 0) | design.first_is_free
    has_pairs = design.correlates | (is_free & design.full)
    counts = [2 * design.dims, n_pairs]
    marks = np.stack([is_free, has_pairs], axis=1) & ~np.array(design.is_known)
    estimated = np.repeat(marks, counts, axis=1)
    estimated.flags.writeable = False
    return estimated


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

    n: Float[Any, " groups"]
    mean: Float[Any, "groups dims"]
    second: Float[Any, "groups dims dims"]

    @property
    def covariance(self) -> Float[Any, "groups dims dims"]:
        """Covariance of the abilities."""
        return self.second - self.mean[:, :, None] * self.mean[:, None, :]


def _places(n_pairs: int) -> tuple[np.ndarray, np.ndarray]:
    """Row and column of each free number of a lower triangle."""
    return np.tril_indices((1 + math.isqrt(1 + 8 * n_pairs)) // 2, -1)


def correlation_root(
    free: Float[Array | np.ndarray, "*groups pairs"], dims: int
) -> Float[Array | np.ndarray, "*groups dims dims"]:
    """Lower root of a correlation matrix: rows of (free numbers, 1), scaled to length 1.

    The numbers are of the first abilities; the others are independent of all.
    """
    xp = namespace(free)
    n_pairs = free.shape[-1]
    marks = np.zeros((n_pairs, dims, dims), free.dtype)
    marks[np.arange(n_pairs), *_places(n_pairs)] = 1
    lower = (free[..., None, None] * marks).sum(-3) + np.eye(dims, dtype=free.dtype)
    return lower / xp.sqrt((lower**2).sum(-1, keepdims=True))


def populations_of(numbers: Float[Array | np.ndarray, "groups numbers"], dims: int) -> Populations:
    """The populations of these numbers, in numpy outside of compiled functions (traceable)."""
    xp: Any = jnp if isinstance(numbers, jax.core.Tracer) else np
    numbers = xp.asarray(numbers)
    mean, sd = numbers[:, :dims], xp.exp(numbers[:, dims : 2 * dims])
    return Populations(mean, sd[:, :, None] * correlation_root(numbers[:, 2 * dims :], dims))


def population_numbers(
    mean: Float[np.ndarray, "groups dims"],
    covariance: Float[np.ndarray, "groups dims dims"],
    design: PopulationDesign,
) -> Numbers:
    """Undo `populations_of`; 0 for numbers that are not estimated."""
    sd = np.sqrt(np.maximum(np.diagonal(covariance, axis1=1, axis2=2), LEAST_VARIANCE))
    numbers = [mean, np.log(sd)]
    if design.n_correlated > 1:
        first = slice(design.n_correlated)
        correlations = covariance / (sd[:, :, None] * sd[:, None, :])
        numbers.append(free_correlations(correlations[:, first, first]))
    return np.where(design.estimated, np.concatenate(numbers, axis=1), 0.0)


def _next_numbers(
    numbers: Numbers,
    moments: Moments,
    mean: Float[np.ndarray, "groups dims"],
    covariance: Float[np.ndarray, "groups dims dims"],
    design: PopulationDesign,
) -> Numbers:
    """`population_numbers`; those not estimated, and those of groups without subjects, stay."""
    present = moments.n > 0
    covariance = np.where(present[:, None, None], covariance, np.eye(design.dims))
    new = population_numbers(mean, covariance, design)
    return np.where(design.estimated & present[:, None], new, numbers)


def free_correlations(
    correlations: Float[np.ndarray, "groups dims dims"],
) -> Float[np.ndarray, "groups pairs"]:
    """Undo `correlation_root`: any free numbers give a correlation matrix.

    NaN for a matrix that is not positive-definite.
    """
    rows, columns = np.tril_indices(correlations.shape[1], -1)
    free = np.full((len(correlations), len(rows)), np.nan)
    for group, matrix in enumerate(correlations):
        try:
            root = np.linalg.cholesky(matrix)
        except np.linalg.LinAlgError:
            continue
        free[group] = (root / np.diagonal(root)[:, None])[rows, columns]
    return free


def solve_lower(root: Any, right: Any) -> Any:
    """The solution x of ``root x = right`` for a lower triangular root, by forward substitution.

    Row by row, as there are few abilities: a program without LAPACK is loaded in .05 s less.
    """
    rows: list[Any] = []
    for i in range(len(root)):
        rest = right[i]
        for k, row in enumerate(rows):
            rest = rest - root[i, k] * row
        rows.append(rest / root[i, i])
    return namespace(root).stack(rows)


class CorrelationTerms(NamedTuple):
    """Derivatives by the free numbers of the correlations.

    Attributes:
        gradient: of the mean log-density.
        values: eigenvalues of the information of a subject (minus the second derivative), made
            positive.
        vectors: its eigenvectors.
        precision: derivative of the abilities' precision matrix.
    """

    gradient: Float[np.ndarray, " pairs"]
    values: Float[np.ndarray, " pairs"]
    vectors: Float[np.ndarray, "pairs pairs"]
    precision: Float[np.ndarray, "pairs dims dims"]


def root_slopes(
    free: Float[np.ndarray, " pairs"], dims: int
) -> Float[np.ndarray, "pairs dims dims"]:
    """Derivatives of `correlation_root` by the free numbers.

    A row of the root is ``u = v / |v|`` with a free number in place c of v and 1 in the last place:
    its derivative is ``(e_c - u u_c) / |v|``.
    """
    root, (rows, columns) = correlation_root(free, dims), _places(len(free))
    change = np.eye(dims)[columns] - root[rows] * root[rows, columns][:, None]
    slopes = np.zeros((len(free), dims, dims))
    slopes[np.arange(len(free)), rows] = change * root[rows, rows][:, None]
    return slopes


def correlation_terms(
    free: Float[np.ndarray, " pairs"], second: Float[np.ndarray, "dims dims"]
) -> CorrelationTerms:
    """Derivatives of the mean log-density of abilities with these second moments.

    With root L, M its inverse, A_k = M dL/dk and W = M S M', the derivative of W is
    ``-(A_k W + W A_k')`` and that of A_k by l is ``M d2L/dkdl - A_l A_k``. The derivative of
    `root_slopes`, in its notation, by another number in place d of the same row is
    ``(3 u u_c u_d - e_c u_d - e_d u_c - [c = d] u) / |v|^2``.
    """
    dims = len(second)
    root, eye = correlation_root(free, dims), np.eye(dims)
    inverse = np.linalg.inv(root)
    rows, columns = _places(len(free))
    u, unit, at = root[rows], eye[columns], root[rows, columns]
    bends = np.zeros((len(free), len(free), dims, dims))
    for k, m in np.argwhere(rows[:, None] == rows):
        bent = 3 * u[k] * at[k] * at[m] - unit[k] * at[m] - unit[m] * at[k]
        bends[k, m, rows[k]] = (bent - (columns[k] == columns[m]) * u[k]) * root[
            rows[k], rows[k]
        ] ** 2
    a, bent = inverse @ root_slopes(free, dims), inverse @ bends
    w = inverse @ second @ inverse.T
    less = w - eye
    gradient = np.einsum("kij,ji->k", a, less)
    product = np.einsum("lij,kjm->lkim", a, a)
    curvature = np.einsum("klij,ji->kl", bent, less) - np.einsum("lkij,ji->kl", product, less)
    curvature -= np.einsum("klij,ji->kl", product, w) + np.einsum("kij,jm,lim->kl", a, w, a)
    values, vectors = np.linalg.eigh(-curvature)
    precision = -inverse.T @ (a + a.swapaxes(1, 2)) @ inverse
    return CorrelationTerms(gradient, np.maximum(np.abs(values), 0.05), vectors, precision)


def _best_correlations(
    free: Float[np.ndarray, " pairs"], second: Float[np.ndarray, "dims dims"]
) -> tuple[Float[np.ndarray, " pairs"], CorrelationTerms]:
    """Steps towards the correlations that fit the second moments best, with mean 0 and SD 1.

    Also the terms at the first numbers.
    """
    first = None
    for _ in range(3):
        terms = correlation_terms(free, second)
        first = first or terms
        move = terms.vectors @ ((terms.vectors.T @ terms.gradient) / terms.values)
        tries = free + np.array([1.0, 0.5, 0.2, 0.05, 0.0])[:, None] * move
        roots = correlation_root(tries, len(second))
        inverse = np.linalg.inv(roots)
        log_det = np.log(np.diagonal(roots, axis1=1, axis2=2)).sum(1)
        squares = np.einsum("tij,jk,tik->t", inverse, second, inverse)
        free = tries[np.argmax(-log_det - 0.5 * squares)]
    assert first is not None
    return free, first


def population_step(
    numbers: Numbers, moments: Moments, design: PopulationDesign
) -> tuple[Numbers, CorrelationTerms | None]:
    """The M-step of the populations: those that fit the moments of the abilities.

    Also the terms of the first group's correlations at ``numbers``, where they are estimated.
    """
    new = _next_numbers(numbers, moments, moments.mean, moments.covariance, design)
    if not (design.correlates and not design.first_is_free and design.n_correlated > 1):
        return new, None
    first = slice(design.n_correlated)
    pairs = slice(2 * design.dims, None)
    new[0, pairs], terms = _best_correlations(numbers[0, pairs], moments.second[0][first, first])
    return new, terms


def rescaled_populations(
    numbers: Numbers,
    moments: Moments,
    design: PopulationDesign,
    mean: FloatArray,
    spread: FloatArray,
) -> Numbers:
    """Populations of these moments on the scale z, theta = mean + spread z."""
    inverse = np.linalg.inv(spread)
    covariance = inverse @ moments.covariance @ inverse.T
    return _next_numbers(numbers, moments, (moments.mean - mean) @ inverse.T, covariance, design)


def population_distance(
    old: Numbers, new: Numbers, n: Float[np.ndarray, " groups"], dims: int
) -> float:
    """The largest change of a population, in standard errors of the complete data."""
    change, sds = new - old, np.exp(old[:, dims : 2 * dims])
    by_number = np.abs([change[:, :dims] / sds, math.sqrt(2) * change[:, dims : 2 * dims]])
    roots: Any = [correlation_root(numbers[:, 2 * dims :], dims) for numbers in (old, new)]
    by_root = np.abs(roots[1] - roots[0]).max(axis=(1, 2))
    return float((np.sqrt(n) * np.maximum(by_number.max(axis=(0, 2)), by_root)).max())


def population_metric(numbers: Numbers, n: Float[np.ndarray, " groups"], dims: int) -> Numbers:
    """Information of the complete data on each number, roughly."""
    metric = np.ones_like(numbers)
    metric[:, :dims] = np.exp(-2 * numbers[:, dims : 2 * dims])
    metric[:, dims : 2 * dims] = 2
    return n[:, None] * metric


def population_log_density(numbers: Float[Array, "groups numbers"], moments: Moments) -> Array:
    """Expected log-density of all subjects' abilities, up to a constant; 0 without subjects."""
    populations = populations_of(numbers, moments.mean.shape[1])
    eye = jnp.eye(moments.mean.shape[1], dtype=populations.root.dtype)
    inverse = jax.vmap(lambda root: solve_lower(root, eye))(populations.root)
    off = moments.mean - populations.mean
    second = moments.covariance + off[:, :, None] * off[:, None, :]
    squares = jnp.einsum("gij,gjk,gik->g", inverse, second, inverse)
    log_det = 2 * jnp.log(jnp.diagonal(populations.root, axis1=1, axis2=2)).sum(1)
    return -0.5 * (moments.n * (log_det + squares)).sum()


def population_gradient(numbers: Numbers, moments: Moments) -> Numbers:
    """Gradient of `population_log_density` by the numbers.

    With S the second moments around the mean, C the covariance: that of a mean is ``C^-1 (m - mu)``
    and that of the logarithm of an SD ``(C^-1 S)_ii - 1``.
    """
    dims = moments.mean.shape[1]
    populations, sds = populations_of(numbers, dims), np.exp(numbers[:, dims : 2 * dims])
    off = moments.mean - populations.mean
    second = moments.covariance + off[:, :, None] * off[:, None, :]
    precision = np.linalg.inv(populations.covariance)
    by_mean = (precision @ off[:, :, None])[:, :, 0]
    by_sd = np.einsum("gij,gji->gi", precision, second) - 1
    free, unit = numbers[:, 2 * dims :], second / (sds[:, :, None] * sds[:, None, :])
    by_free = [
        correlation_terms(*both).gradient if free.size else both[0]
        for both in zip(free, unit, strict=True)
    ]
    return moments.n[:, None] * np.concatenate([by_mean, by_sd, np.stack(by_free)], axis=1)


def density_scores(
    numbers: Float[Any, "groups numbers"], theta: Float[Any, "nodes dims"], group: int
) -> Float[Any, "nodes all"]:
    """Derivative of a group's log-density at each node by the numbers of all groups."""
    if theta.shape[1] == 1:
        xp, own = namespace(theta), np.arange(len(numbers)) == group
        (mean, log_sd), at = numbers[group], theta[:, 0]
        unit = xp.exp(-log_sd)
        z = (at - mean) * unit
        return (xp.stack([z * unit, z**2 - 1], 1)[:, None] * own[:, None]).reshape(len(at), -1)

    def log_density(numbers: Array, at: Array) -> Array:
        populations = populations_of(numbers, theta.shape[1])
        root = populations.root[group]
        z = solve_lower(root, at - populations.mean[group])
        return -0.5 * (z**2).sum() - jnp.log(jnp.diagonal(root)).sum()

    return jax.vmap(jax.grad(log_density), (None, 0))(numbers, theta).reshape(len(theta), -1)


def group_moments(populations: Populations) -> dict[str, FloatArray]:
    """Means, SDs and correlations of each group."""
    mean, covariance = (np.asarray(a, float) for a in (populations.mean, populations.covariance))
    sd = np.sqrt(np.diagonal(covariance, axis1=1, axis2=2))
    correlation = covariance / (sd[:, :, None] * sd[:, None, :])
    return {"mean": mean, "sd": sd, "correlation": correlation}


def moment_slopes(numbers: FloatArray, dims: int) -> dict[str, FloatArray]:
    """Derivatives of means, SDs and correlations of each group by the populations' numbers."""
    n_groups, size = numbers.shape
    out = {
        name: np.zeros((n_groups, *shape, n_groups, size))
        for name, shape in (("mean", [dims]), ("sd", [dims]), ("correlation", [dims, dims]))
    }
    for group, (logs, free) in enumerate(zip(*np.split(numbers[:, dims:], [dims], 1), strict=True)):
        out["mean"][group, :, group, :dims] = np.eye(dims)
        out["sd"][group, :, group, dims : 2 * dims] = np.diag(np.exp(logs))
        change: Any = correlation_root(free, dims) @ root_slopes(free, dims).swapaxes(1, 2)
        both = np.moveaxis(change + change.swapaxes(1, 2), 0, -1)
        out["correlation"][group, :, :, group, 2 * dims :] = both
    return out
