"""Lengthened EM steps: Aitken's acceleration with the missing information.

Near the maximum an EM step d covers only a share of the distance, as the responses hold less
information than complete data. The full step y solves

    (I_complete - I_missing) y = I_complete d                                (Louis 1982, section 5)

where I_missing is the posterior covariance of the complete-data score, summed over the subjects.
It follows without further integrals from the posterior means m and covariances S, with posteriors
treated as Normal: a score s(theta) with average slope D and curvature H has the variance

    D' S D + tr(H S H S) / 2 + ...                   (Hermite series; all terms are nonnegative).

As the score of item j is ``g(eta_j) theta`` with ``eta_j = slope_j . theta + intercept_j``, the
product of I_missing and a vector takes a few matrix products of subjects x items; the system is
solved by conjugate gradients without forming the matrix. Only the length of the step is
approximate: it is 0 if and only if that of EM is.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from irtcat.fitting.em.m_step import RIDGE, _solve

LINE = 5
"""Gauss-Hermite nodes over each eta."""

MAX_STEPS = 30
"""Maximum number of conjugate gradient steps."""

SMALL = 1e-3
"""Tolerance of the system, relative to EM's step."""

MOST_MISSING = 0.97
"""Conjugate gradients stop at a direction with a larger share of missing information."""


class Displacement(NamedTuple):
    """A change of all estimates: item parameters, and the free numbers of the correlations."""

    params: Float[Array, "items params"]
    free: Float[Array, " pairs"]


class Scores(NamedTuple):
    """Posterior expectations of the scores of each item and subject, and their derivatives.

    The score by slopes and intercept is ``g(eta) * (theta, 1)``, that by logit c is ``h(eta)``.
    The fields are the expectations of g and its first three derivatives, and of the first two of h
    (empty without c), each rows x items; all 0 where a response is missing, or the item does not
    inform on ability. ``across`` is the covariance of eta with the abilities.
    """

    g: tuple[Array, ...]
    h: tuple[Array, ...]
    across: Float[Array, "rows items dims"]


def _score_derivatives(
    eta: Float[Array, "rows items"],
    right: Float[Array, "rows items"],
    logit_lower: Float[Array, " items"] | None,
) -> tuple[Array, ...]:
    """Return g and three derivatives by eta; with c also two of h."""
    s = jax.nn.sigmoid(eta)
    v = s * (1 - s)
    v1 = v * (1 - 2 * s)
    v2 = v1 * (1 - 2 * s) - 2 * v**2
    if logit_lower is None:
        return right - s, -v, -v1, -v2
    # A wrong answer has log(1 - c) + log(1 - s): -s by eta, and nothing of eta by logit c. A right
    # one has log P = log(c + (1 - c) s): k by eta, l = c (1 - c) (1 - s) / P by logit c. The
    # derivatives follow from those of the logarithms, log k' = 1 - 2 s - k and log l' = -s - k.
    c = jax.nn.sigmoid(logit_lower)
    p = c + (1 - c) * s
    k = (1 - c) * v / p
    k1 = k * (1 - 2 * s - k)
    k2 = k1 * (1 - 2 * s - k) - k * (2 * v + k1)
    k3 = k2 * (1 - 2 * s - k) - 2 * k1 * (2 * v + k1) - k * (2 * v1 + k2)
    low = c * (1 - c) * (1 - s) / p
    low1 = low * (-s - k)
    low2 = low1 * (-s - k) - low * (v + k1)
    wrong = 1 - right
    by_eta = (right * a - wrong * b for a, b in ((k, s), (k1, v), (k2, v1), (k3, v2)))
    return (*by_eta, right * low1, right * low2)


def item_scores(
    slopes: Float[Array, "items dims"],
    intercept: Float[Array, " items"],
    logit_lower: Float[Array, " items"] | None,
    mean: Float[Array, "rows dims"],
    covariance: Float[Array, "rows dims dims"],
    right: Float[Array, "rows items"],
    answered: Array,
) -> Scores:
    """The expectations of `Scores`, by Gauss-Hermite over eta."""
    across = jnp.einsum("rde,je->rjd", covariance, slopes)
    sd = jnp.sqrt(jnp.maximum(jnp.einsum("rjd,jd->rj", across, slopes), 0.0))
    at = mean @ slopes.T + intercept
    nodes, weights = np.polynomial.hermite_e.hermegauss(LINE)

    def add(total: list[Array], at_node: Any) -> tuple[list[Array], None]:
        node, weight = at_node
        here = _score_derivatives(at + node * sd, right, logit_lower)
        return [a + weight * value for a, value in zip(total, here, strict=True)], None

    nothing = [jnp.zeros_like(at)] * (4 if logit_lower is None else 6)
    rule = jnp.asarray(nodes, at.dtype), jnp.asarray(weights / weights.sum(), at.dtype)
    total = [value * answered for value in jax.lax.scan(add, nothing, rule)[0]]
    return Scores(tuple(total[:4]), tuple(total[4:]), across)


def _missing(
    move: Displacement,
    scores: Scores,
    slopes: Float[Array, "items dims"],
    mean: Float[Array, "rows dims"],
    covariance: Float[Array, "rows dims dims"],
    weights: Float[Array, " rows"],
    by_free: Float[Array, "pairs dims dims"],
) -> Float[Array, ""]:
    """Half of ``move' I_missing move``.

    ``by_free`` is the derivative of the abilities' precision matrix by the free numbers.
    """
    n, dims = mean.shape
    by_slope = move.params[:, :dims]
    along = mean @ by_slope.T + move.params[:, dims]
    aside = (scores.across * by_slope).sum(2)
    g, g1, g2, g3 = scores.g
    first, second = g1 * along + g2 * aside, g2 * along + g3 * aside
    if scores.h:
        first = first + scores.h[0] * move.params[:, -1]
        second = second + scores.h[1] * move.params[:, -1]
    by_correlations = jnp.tensordot(move.free, by_free, 1)
    slope = first @ slopes + g @ by_slope - mean @ by_correlations
    squares = (slopes[:, :, None] * slopes[:, None, :]).reshape(-1, dims**2)
    cross = slopes[:, :, None] * by_slope[:, None, :]
    cross = (cross + jnp.swapaxes(cross, 1, 2)).reshape(-1, dims**2)
    curvature = (second @ squares + g1 @ cross).reshape(n, dims, dims) - by_correlations
    bent = curvature @ covariance
    linear = jnp.einsum("rd,rde,re->r", slope, covariance, slope)
    return 0.5 * weights @ (linear + 0.5 * (bent * jnp.swapaxes(bent, 1, 2)).sum((1, 2)))


def full_step(
    step: Displacement,
    information: Float[Array, "items params params"],
    information_free: tuple[Float[Array, "pairs pairs"], Float[Array, "pairs pairs"]],
    active: Array,
    scores: Scores,
    slopes: Float[Array, "items dims"],
    mean: Float[Array, "rows dims"],
    covariance: Float[Array, "rows dims dims"],
    weights: Float[Array, " rows"],
    by_free: Float[Array, "pairs dims dims"],
) -> Displacement:
    """Lengthen a step of EM (see the module docstring).

    Conjugate gradients start at the step itself, with I_complete as preconditioner; they end early
    where the responses hold almost no information on a direction.

    Args:
        step: the EM step; 0 where a parameter is held.
        information: of the complete data by the items' parameters, priors included.
        information_free: the same by the free numbers of the correlations, and its inverse.
        active: items x params, the parameters that may change.
        scores: at the posterior means.
        slopes: of the items, as parameterised.
        mean: posterior means on the scale of the slopes.
        covariance: posterior covariances.
        weights: how many subjects each row stands for.
        by_free: see `_missing`.

    Returns:
        The step to take.
    """
    eye = jnp.eye(information.shape[1], dtype=information.dtype)
    both = active[..., None] & active[..., None, :]
    blocks = jnp.where(both, information, 0) + jnp.where(active, RIDGE, 1.0)[..., None] * eye
    of_free, inverse = information_free

    def complete(x: Displacement) -> Displacement:
        return Displacement(jnp.einsum("jpq,jq->jp", blocks, x.params), of_free @ x.free)

    def missing(x: Displacement) -> Displacement:
        by = jax.grad(_missing)(x, scores, slopes, mean, covariance, weights, by_free)
        return Displacement(jnp.where(active, by.params, 0), by.free)

    def inner(x: Displacement, y: Displacement) -> Array:
        return (x.params * y.params).sum() + (x.free * y.free).sum()

    def plus(x: Displacement, factor: Array, y: Displacement) -> Displacement:
        return jax.tree.map(lambda a, b: a + factor * b, x, y)

    class State(NamedTuple):
        y: Displacement
        residual: Displacement
        direction: Displacement
        size: Array
        go: Array

    step = Displacement(jnp.where(active, step.params, 0), step.free)
    first = inner(step, complete(step))

    def iterate(number: Array, state: State) -> State:
        """A step along the direction; at number 0 that is the EM step, and nothing is added.

        The first residual, I_complete d - (I_complete - I_missing) d, is then computed by the same
        code as the later ones, which is compiled once.
        """
        begins = number == 0
        lost, preconditioned = missing(state.direction), complete(state.direction)
        image = plus(preconditioned, -jnp.ones((), first.dtype), lost)
        curvature, largest = inner(state.direction, image), inner(state.direction, preconditioned)
        good = curvature > (1 - MOST_MISSING) * largest
        length = jnp.where(good & ~begins, state.size / jnp.where(good, curvature, 1.0), 0.0)
        rest = plus(state.residual, -length, image)
        rest = jax.tree.map(lambda a, b: jnp.where(begins, a, b), lost, rest)
        smooth = Displacement(_solve(blocks, rest.params), inverse @ rest.free)
        size = inner(rest, smooth)
        share = jnp.where(begins, 0.0, size / jnp.maximum(state.size, 1e-300))
        return State(
            plus(state.y, length, state.direction),
            rest,
            plus(smooth, share, state.direction),
            size,
            (good | begins) & (size > SMALL**2 * first),
        )

    begin = State(step, step, step, first, first > 0)
    return jax.lax.while_loop(
        lambda carry: carry[1].go & (carry[0] <= MAX_STEPS),
        lambda carry: (carry[0] + 1, iterate(*carry)),
        (jnp.int32(0), begin),
    )[1].y
