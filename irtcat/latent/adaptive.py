"""Adaptive quadrature: nodes for each subject, where one grid for all would be too large.

The nodes are ``mean + root Q x``, with the mean and a root of the covariance of the subject's last
posterior, x from a rule for the standard Normal, and a random rotation Q that depends on the
subject's responses. The weights correct for the difference between the posterior and that Normal
(importance sampling), so that the placement of the nodes affects only the accuracy.

Where every item measures one ability, a row's log-likelihood is a sum of one function an ability.
The items are evaluated on a line of nodes of each ability, and these functions are interpolated at
the subject's nodes, sum_k c_k L(u_k): rows x nodes x abilities instead of rows x nodes x items. The
M-step takes counts on the lines, the posteriors of nodes handed to the line by the same c_k.

In three and more dimensions the points x are directions times radii: a Normal vector is a
direction, uniform on the sphere, times a length whose half square is Gamma distributed. A rule that
is exact for polynomials up to degree 7 in the direction (2 d + 2^d + 2 d (d - 1) points, all
weights positive up to d = 8), times a Gauss-Laguerre rule for the length, takes 144 points in four
dimensions and 246 in five, where a product rule of the same accuracy takes thousands. With a random
rotation the rule is also unbiased for all other functions, so that the errors of many subjects with
different rotations average out.

References:
    Genz & Monahan (1998), SIAM Journal on Scientific Computing 19, 426-439; Stroud (1971),
    Approximate Calculation of Multiple Integrals, rule U_n 7-1.
"""

import functools
import itertools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import logsumexp
from jaxtyping import Array, Float, Int
from scipy.special import ndtri, roots_genlaguerre

from irtcat._common.compilation import jit
from irtcat._common.types import FloatArray
from irtcat.latent.e_step import Answers, EStep, ResponseRows, all_placed
from irtcat.latent.grid import GridQuadrature
from irtcat.latent.likelihood import log_likelihood
from irtcat.latent.linear_predictors import Part, part_terms, parts_of
from irtcat.latent.product import (
    LinePosterior,
    ProductQuadrature,
    item_factors,
    product_rule,
    sums_on_lines,
)
from irtcat.models import Asymptotes, ItemModel
from irtcat.models.base import Mask, Statistics
from irtcat.models.links import LinkTerms

MOST_DIMS = 8
"""Beyond, the rule of degree 7 has negative weights, and quasi-random directions are used."""

DIRECTIONS = 256
"""Number of quasi-random directions; each is used with its negative."""


def _edges(dims: int) -> FloatArray:
    """All (+-1, +-1, 0, ...) / sqrt 2."""
    pairs = itertools.combinations(np.eye(dims) / np.sqrt(2), 2)
    signs = [*itertools.product([1.0, -1.0], repeat=2)]
    return np.array([s * one + t * other for one, other in pairs for s, t in signs])


def _directions(dims: int, seed: int) -> tuple[FloatArray, FloatArray]:
    """Points on the unit sphere and their weights."""
    if dims > MOST_DIMS:
        from scipy.stats import qmc  # slow to import

        draw = ndtri(qmc.Sobol(dims, seed=seed).random(DIRECTIONS) * (1 - 2e-9) + 1e-9)
        draw /= np.linalg.norm(draw, axis=1, keepdims=True)
        return np.concatenate([draw, -draw]), np.full(2 * DIRECTIONS, 0.5 / DIRECTIONS)
    total = dims * (dims + 2) * (dims + 4)
    weights = (8 - dims) / total, dims**3 / 2**dims / total, 4 / total
    axes = np.concatenate([np.eye(dims), -np.eye(dims)])
    corners = np.array(list(itertools.product([1.0, -1.0], repeat=dims))) / np.sqrt(dims)
    sets = axes, corners, _edges(dims)
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


POINTS_2D, RADII = 15, 3
"""Nodes per dimension in two dimensions; lengths of the rule by direction and length beyond."""

N_ROTATIONS = 256
"""Number of rotations; subjects share them."""

LINE_REACH, LINE_SPACING = 8.0, 1 / 16
"""The lines of interpolation, in SDs of the population. The error is .003 (slope x spacing)^4 of an
item's log-likelihood at most, of either sign: 1e-5 at a slope of 4."""

LOG_2PI = float(np.log(2 * np.pi))


class AdaptiveQuadrature(NamedTuple):
    """A rule for the standard Normal.

    Attributes:
        points: the points x.
        log_weight: log of (probability of the point / standard Normal density there).
        rotation_matrices: rotations of the points; a subject's responses choose one of them.
        lines: where every item measures one ability, the lines that items are evaluated on.
    """

    points: Float[Any, "points dims"]
    log_weight: Float[Any, " points"]
    rotation_matrices: Float[Any, "turns dims dims"]
    lines: ProductQuadrature | None = None

    def with_lines(self, pattern: np.ndarray) -> "AdaptiveQuadrature":
        """The same rule for items of this pattern, each of one ability."""
        half = round(LINE_REACH / LINE_SPACING)
        nodes = LINE_SPACING * np.arange(-half, half + 1.0)
        return self._replace(lines=product_rule(GridQuadrature.standard(nodes[:, None]), pattern))

    @property
    def spacing(self) -> float:
        """Infinite: the nodes of each subject have a distance of their own."""
        return np.inf


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
            dimensions, and beyond a rule by direction and length (`irtcat.latent.adaptive`).
        finer: whether to return a finer rule for checking the first: more points, other directions.

    Returns:
        The rule.
    """
    if n is not None or dims == 2:
        points, log_p = _product_rule(dims, (n or POINTS_2D) + 2 * finer)
    else:
        points, log_p = spherical_rule(dims, RADII + finer, seed=int(finer))
        if finer:
            points = np.concatenate([points, points @ rotations(dims, 1, seed=2)[0]])
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
    terms: list[LinkTerms]


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
    mask: Mask,
    item_weights: Float[Array, " items"],
) -> tuple[Float[Array, "rows points"], LinkTerms]:
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
    return log_lik, LinkTerms(log_lik, [-expected], {(0, 0): expected * t}, offset=right)


def _axes(
    statistics: Array, mask: Array | None, root: Array, rule: AdaptiveQuadrature
) -> Float[Array, "rows dims axes"]:
    """The rule's axes for each row: its rotation, times the root of its covariance."""
    turns = _subject_rotations(statistics, mask, rule.rotation_matrices)
    return jnp.einsum("rde,ref->rdf", root, turns)


def _posterior_at(
    squares: Float[Array, "rows points"], log_lik: Array, root: Array, rule: AdaptiveQuadrature
) -> tuple[Float[Array, "rows points"], Float[Array, " rows"]]:
    """Posterior probabilities of nodes with these sums of squares, and log of the normaliser."""
    log_det = jnp.log(jnp.diagonal(root, axis1=1, axis2=2)).sum(1)
    log_density = -0.5 * (squares + root.shape[1] * LOG_2PI)
    log_post = log_lik + log_density + rule.log_weight + log_det[:, None]
    log_z = logsumexp(log_post, axis=1)
    return jnp.exp(log_post - log_z[:, None]), log_z


def adaptive_block(
    parts: list[Part],
    statistics: Statistics,
    mask: Mask,
    mean: Float[Array, "rows dims"],
    root: Float[Array, "rows dims dims"],
    rule: AdaptiveQuadrature,
    item_weights: Float[Array, " items"],
) -> AdaptiveBlock:
    """Nodes (z scale), posterior weights and the log of the normaliser of each row."""
    axes = _axes(statistics, mask, root, rule)
    z = mean[:, None] + jnp.einsum("rde,qe->rqd", axes, rule.points)
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
    weight, log_z = _posterior_at((z**2).sum(2), log_lik, root, rule)
    return AdaptiveBlock(z, weight, log_z, terms)


class _Stencil(NamedTuple):
    """Neighbours of points on the lines: the first of four, and the weights of all (cubic)."""

    first: Int[Array, "rows dims points"]
    weights: list[Float[Array, "rows dims points"]]

    @classmethod
    def at(cls, u: Float[Array, "rows dims points"], line: Float[Array, " line"]) -> "_Stencil":
        """The neighbours of points, those beyond the line at its end."""
        position = jnp.clip((u - line[0]) / (line[1] - line[0]), 1, len(line) - 3)
        node = position.astype(jnp.int32)
        t = position - node
        weights = [
            -t * (t - 1) * (t - 2) / 6,
            (t + 1) * (t - 1) * (t - 2) / 2,
            -(t + 1) * t * (t - 2) / 2,
            (t + 1) * t * (t - 1) / 6,
        ]
        return cls(node - 1, weights)

    def interpolated(self, table: Float[Array, "rows dims line"]) -> Array:
        """The functions on the lines at the points."""
        parts = (
            by * jnp.take_along_axis(table, self.first + k, axis=2, mode="promise_in_bounds")
            for k, by in enumerate(self.weights)
        )
        return functools.reduce(jnp.add, parts)

    def on_lines(self, weight: Float[Array, "rows points"], size: int) -> Array:
        """The weights of the points handed to the lines: the transpose of `interpolated`."""
        n, dims, _ = self.first.shape
        start = jnp.arange(n * dims, dtype=jnp.int32).reshape(n, dims, 1) * size
        shares = jnp.stack(self.weights, axis=-1) * weight[:, None, :, None]
        first = (start + self.first).ravel()
        # One sum for all four neighbours, at the first of them; then each is moved to its node.
        sums = jax.ops.segment_sum(
            shares.reshape(-1, 4), first, n * dims * size, mode="promise_in_bounds"
        ).reshape(n, dims, size, 4)
        moved = (jnp.pad(sums[:, :, : size - k, k], ((0, 0), (0, 0), (k, 0))) for k in range(4))
        return functools.reduce(jnp.add, moved)


def cells_with_lines(rule: AdaptiveQuadrature) -> int:
    """Numbers that an E-step with lines holds for each row, roughly."""
    assert rule.lines is not None
    return rule.points.shape[1] * (12 * len(rule.points) + 4 * len(rule.lines.line.nodes))


def adaptive_line_step(
    model: ItemModel,
    rows: ResponseRows,
    item_weights: Float[Array, " items"],
    rule: AdaptiveQuadrature,
    root: Float[Array, "dims dims"],
) -> tuple[EStep, Float[Array, "one_more one_more"]]:
    """`sums_on_lines` on nodes placed by the rows' last means and covariances (traceable)."""
    assert rule.lines is not None
    lines, points, dims = rule.lines, jnp.asarray(rule.points), len(root)
    line = jnp.asarray(lines.line.nodes)[:, 0]
    curves = item_factors(model, lines, item_weights)
    products = (points[:, :, None] * points[:, None, :]).reshape(len(points), -1)

    def posterior_of(answers: Answers) -> LinePosterior:
        at, statistics, mask, _ = answers
        centre, own = rows.nodes[0][at], root_of(rows.nodes[1][at])
        axes = _axes(statistics, mask, own, rule)
        z = centre[:, :, None] + jnp.einsum("rde,qe->rdq", axes, points)
        stencil = _Stencil.at(jnp.einsum("de,req->rdq", root, z), line)
        by_line = log_likelihood(statistics, mask, curves).reshape(len(at), dims, -1)
        log_lik = stencil.interpolated(by_line).sum(1)
        post, log_z = _posterior_at((z**2).sum(1), log_lik, own, rule)
        # Moments of the rule's points, which are the same for all rows, give those of the nodes.
        axes, moved = root @ axes, post @ points
        mean = centre @ root.T + jnp.einsum("rde,re->rd", axes, moved)
        second = (post @ products).reshape(-1, dims, dims) - moved[:, :, None] * moved[:, None, :]
        square = axes @ second @ axes.swapaxes(1, 2) + mean[:, :, None] * mean[:, None, :]
        return LinePosterior(stencil.on_lines(post, len(line)), mean, square, log_z)

    return sums_on_lines(posterior_of, model, rows, lines, root)


def moments_of(
    weight: Float[Array, "rows points"], z: Float[Array, "rows points dims"]
) -> tuple[Float[Array, "rows dims"], Float[Array, "rows dims dims"]]:
    """Posterior means and covariances."""
    mean = jnp.einsum("rq,rqd->rd", weight, z)
    centred = z - mean[:, None]
    return mean, jnp.einsum("rqd,rqe->rde", centred * weight[:, :, None], centred)


@jit
def adaptive_posterior(
    model: ItemModel,
    rows: ResponseRows,
    mean: Float[Array, "subjects dims"],
    covariance: Float[Array, "subjects dims dims"],
    rule: AdaptiveQuadrature,
) -> tuple[
    Float[Array, "subjects dims"], Float[Array, "subjects dims dims"], Float[Array, " subjects"]
]:
    """Posterior mean and covariance and marginal log-likelihood of each subject (z scale)."""
    parts, ones = parts_of(model), jnp.ones(rows.x.shape[1], mean.dtype)

    def body(carry: Any, numbers: Array) -> tuple[Any, None]:
        at, statistics, mask, _ = rows.answers(model, numbers)
        root = root_of(covariance[at])
        block = adaptive_block(parts, statistics, mask, mean[at], root, rule, ones)
        new = (*moments_of(block.weight, block.z), block.log_z)
        return all_placed(carry, numbers, new), None

    empty = jnp.zeros_like(mean), jnp.zeros_like(covariance), jnp.zeros_like(mean[:, 0])
    return jax.lax.scan(body, empty, rows.layout)[0]
