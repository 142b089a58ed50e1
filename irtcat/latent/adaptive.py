"""Adaptive quadrature: nodes for each subject, where one grid for all would be too large.

The nodes are ``mean + root Q x``, with the mean and a root of the covariance of the subject's last
posterior, x from a rule for the standard Normal, and a random rotation Q that depends on the
subject's responses. The weights correct for the difference between the posterior and that Normal
(importance sampling), so that the placement of the nodes affects only the accuracy.
"""

import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import logsumexp
from jaxtyping import Array, Float, Int

from irtcat._common.compilation import jit
from irtcat.latent.linear_predictors import Part, PartTerms, part_terms, parts_of
from irtcat.latent.spherical import rotations, spherical_rule
from irtcat.models import Asymptotes, ItemModel

POINTS_2D, RADII = 15, 3
"""Nodes per dimension in two dimensions; lengths of the rule by direction and length beyond."""

N_ROTATIONS = 256
"""Number of rotations; subjects share them."""

LOG_2PI = float(np.log(2 * np.pi))


class AdaptiveQuadrature(NamedTuple):
    """A rule for the standard Normal.

    Attributes:
        points: the points x.
        log_weight: log of (probability of the point / standard Normal density there).
        rotation_matrices: rotations of the points; a subject's responses choose one of them.
    """

    points: Float[Any, "points dims"]
    log_weight: Float[Any, " points"]
    rotation_matrices: Float[Any, "turns dims dims"]

    @property
    def is_adaptive(self) -> bool:
        """Whether the nodes are placed by the posteriors."""
        return True

    @property
    def spacing(self) -> float:
        """Infinite: the nodes of each subject have a distance of their own."""
        return np.inf

    @property
    def has_lines(self) -> bool:
        """Whether each ability has a line of nodes of its own."""
        return False

    @property
    def n_general(self) -> int:
        """Number of general abilities; 0 without tiers."""
        return 0

    @property
    def kind(self) -> str:
        """What the nodes are."""
        return "each subject's own"


def _product_rule(dims: int, n_nodes: int) -> tuple[np.ndarray, np.ndarray]:
    """Gauss-Hermite in every dimension, without corners of negligible weight."""
    x, w = np.polynomial.hermite_e.hermegauss(n_nodes)
    points = np.stack(np.meshgrid(*[x] * dims, indexing="ij"), -1).reshape(-1, dims)
    logs = np.log(w / w.sum())
    log_p = np.stack(np.meshgrid(*[logs] * dims, indexing="ij")).sum(0).ravel()
    keep = log_p > log_p.max() - 30
    return points[keep], log_p[keep]


def adaptive_quadrature(dims: int, n: int | None = None, finer: bool = False) -> AdaptiveQuadrature:
    """The quadrature rule for a number of dimensions.

    Args:
        dims: number of abilities.
        n: points per dimension of a product of Gauss-Hermite rules; by default 15 in two
            dimensions, and beyond a rule by direction and length (`irtcat.latent.spherical`).
        finer: whether to return a finer rule for checking the first: more points, other directions.

    Returns:
        The rule.
    """
    if n is not None or dims == 2:
        points, log_p = _product_rule(dims, (n or POINTS_2D) + 2 * finer)
    else:
        points, log_p = spherical_rule(dims, RADII + finer, seed=int(finer))
        if finer:
            rotated = points @ rotations(dims, 1, seed=2)[0]
            points = np.concatenate([points, rotated])
            log_p = np.concatenate([log_p, log_p]) - np.log(2)
    density = -0.5 * ((points**2).sum(1) + dims * LOG_2PI)
    return AdaptiveQuadrature(
        points, log_p - density, rotations(dims, N_ROTATIONS, seed=int(finer))
    )


def root_of(covariance: Float[Array, "*rows dims dims"]) -> Float[Array, "*rows dims dims"]:
    """Lower root of posterior covariances, with a ridge against singular ones."""
    dims = covariance.shape[-1]
    return jnp.linalg.cholesky(covariance + 1e-6 * jnp.eye(dims, dtype=covariance.dtype))


class AdaptiveBlock(NamedTuple):
    """Adaptive quadrature of a block of subjects.

    Attributes:
        z: the nodes.
        weight: their posterior probabilities.
        log_z: log of the normaliser.
        terms: of each part's items at the nodes, rows x points x items.
    """

    z: Float[Array, "rows points dims"]
    weight: Float[Array, "rows points"]
    log_z: Float[Array, " rows"]
    terms: list[PartTerms]


def _subject_rotations(statistics: Array, mask: Array | None, rotation_matrices: Array) -> Array:
    """The rotation of each row: equal for equal responses, in any order of the rows."""
    n = len(rotation_matrices)
    number = np.arange(statistics.shape[2], dtype=np.int64)
    # Integers small enough for exact sums in either precision.
    factors = jnp.asarray((31 * number**2 + 151 * number + 17) % n, statistics.dtype)
    code = sum((1 + 2 * k) * (h @ factors) for k, h in enumerate(statistics))
    if mask is not None:
        code = code + mask @ jnp.asarray((57 * number**2 + 101 * number + 5) % n, statistics.dtype)
    return rotation_matrices[jnp.mod(jnp.round(code), n).astype(jnp.int32)]


def _log_product(factors: Float[Array, "rows points items"]) -> Float[Array, "rows points"]:
    """Sum over items of the logarithms of numbers from 1 to 2: few logarithms, and no overflow."""
    most = 1000 if factors.dtype == np.float64 else 120
    n = factors.shape[2]
    logs = [jnp.log(factors[:, :, i : i + most].prod(2)) for i in range(0, n, most)]
    return functools.reduce(jnp.add, logs)


def _logistic_terms(
    part: Part,
    z: Float[Array, "rows points dims"],
    right: Float[Array, "rows items"],
    mask: Float[Array, "rows items"] | None,
    item_weights: Float[Array, " items"],
) -> tuple[Float[Array, "rows points"], PartTerms]:
    """Log-likelihood and terms of items without asymptotes.

    One exponential per response and node: with e = exp(-|eta|) the rest is arithmetic, as

        log-likelihood = sum_j x_j eta_j - max(eta_j, 0) - log(1 + e_j),

    of which the first term needs no pass over the items and the last is the logarithm of a product.
    """
    slope, intercept = part.rows[:, 0, 1:], part.rows[:, 0, 0]
    (eta,) = part.predictors(z)
    e = jnp.exp(-jnp.abs(eta))
    d = 1 / (1 + e)
    s, t = jnp.where(eta >= 0, d, e * d), jnp.where(eta >= 0, e * d, d)
    scores = right * item_weights
    counted = item_weights if mask is None else (mask * item_weights)[:, None]
    linear_sum = jnp.einsum("rqd,rd->rq", z, scores @ slope) + (scores @ intercept)[:, None]
    high = (jnp.maximum(eta, 0) * counted).sum(2)
    log_lik = linear_sum - high - _log_product(1 + e * counted)
    expected = s if mask is None else s * mask[:, None]
    return log_lik, PartTerms(log_lik, [-expected], {(0, 0): expected * t}, offset=right)


def adaptive_block(
    parts: list[Part],
    statistics: Float[Array, "contrasts rows items"],
    mask: Float[Array, "rows items"] | None,
    mean: Float[Array, "rows dims"],
    root: Float[Array, "rows dims dims"],
    rule: AdaptiveQuadrature,
    item_weights: Float[Array, " items"],
) -> AdaptiveBlock:
    """Nodes (z scale), posterior weights and the log of the normaliser of each row."""
    dims = mean.shape[1]
    rotated = jnp.einsum(
        "rde,ref->rdf", root, _subject_rotations(statistics, mask, rule.rotation_matrices)
    )
    z = mean[:, None] + jnp.einsum("rde,qe->rqd", rotated, rule.points)
    log_lik, terms = jnp.zeros(z.shape[:2], z.dtype), []
    if len(parts) == 1 and parts[0].link == Asymptotes(lower=False, upper=False):
        log_lik, logistic = _logistic_terms(parts[0], z, statistics[0], mask, item_weights)
        terms = [logistic]
    else:
        answered = jnp.ones_like(statistics[0]) if mask is None else mask
        for part in parts:
            here = part_terms(part, z, statistics[:, :, None], answered[:, None])
            log_lik = log_lik + here.value @ item_weights
            terms.append(here)
    log_det = jnp.log(jnp.diagonal(root, axis1=1, axis2=2)).sum(1)
    log_density = -0.5 * ((z**2).sum(2) + dims * LOG_2PI)
    log_post = log_lik + log_density + rule.log_weight + log_det[:, None]
    log_z = logsumexp(log_post, axis=1)
    return AdaptiveBlock(z, jnp.exp(log_post - log_z[:, None]), log_z, terms)


def moments_of(
    weight: Float[Array, "rows points"], z: Float[Array, "rows points dims"]
) -> tuple[Float[Array, "rows dims"], Float[Array, "rows dims dims"]]:
    """Posterior means and covariances."""
    mean = jnp.einsum("rq,rqd->rd", weight, z)
    centred = z - mean[:, None]
    return mean, jnp.einsum("rqd,rqe->rde", centred * weight[:, :, None], centred)


@functools.partial(jit, static_argnames=("has_missing",))
def adaptive_posterior(
    model: ItemModel,
    x: Array,
    mean: Float[Array, "subjects dims"],
    covariance: Float[Array, "subjects dims dims"],
    rule: AdaptiveQuadrature,
    chunks: Int[Array, "blocks rows"],
    *,
    has_missing: bool,
) -> tuple[
    Float[Array, "subjects dims"], Float[Array, "subjects dims dims"], Float[Array, " subjects"]
]:
    """Posterior mean and covariance and marginal log-likelihood of each subject (z scale)."""
    n, n_items = x.shape
    ones = jnp.ones(n_items, mean.dtype)
    parts, n_contrasts = parts_of(model), model.n_categories - 1

    def body(carry: Any, rows: Array) -> tuple[Any, None]:
        safe = jnp.minimum(rows, n - 1)
        statistics, mask = model.sufficient_statistics(
            x[safe], n_contrasts, has_missing, mean.dtype
        )
        root = root_of(covariance[safe])
        block = adaptive_block(parts, statistics, mask, mean[safe], root, rule, ones)
        new = (*moments_of(block.weight, block.z), block.log_z)
        return tuple(
            table.at[rows].set(value, mode="drop") for table, value in zip(carry, new, strict=True)
        ), None

    empty = jnp.zeros_like(mean), jnp.zeros_like(covariance), jnp.zeros_like(mean[:, 0])
    return jax.lax.scan(body, empty, chunks)[0]
