"""Multidimensional abilities: information matrices, item values, posteriors, priors and grids.

Only functions of arrays, below the engine: the pool and the rules use them.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from irtcat._checks import argument_error
from irtcat._types import FloatArray
from irtcat.models import ItemModel, take

__all__ = [
    "COARSEST",
    "Belief",
    "a_value",
    "check_width",
    "d_value",
    "information_matrices",
    "laplace",
    "plain_prior",
    "prior_rows",
    "t_value",
]

COARSEST = 2.0
"""Maximum step of the grid, in posterior SDs: the trapezoid rule is then accurate to 1 percent."""

SCORING_STEPS = 25
HALVINGS = 6
"""Step sizes tried in each scoring step: 1, 1/2, ..., 1/32."""


Values = Float[Array, " items"]
Matrices = Float[Array, "items dims dims"]


class Belief(NamedTuple):
    """A Normal approximation of the distribution of several abilities.

    Attributes:
        theta: mode of the posterior (its mean in sessions with "eap").
        precision: inverse of its covariance.
    """

    theta: Float[Array, " dims"]
    precision: Float[Array, "dims dims"]


def d_value(belief: Belief, information: Matrices) -> Values:
    """Gain in the log-determinant of the precision: ``ln det(L + I_i) - ln det L``.

    References:
        Segall (1996), Psychometrika 61, 331-354, eq. 18.
    """
    after = jnp.linalg.slogdet(belief.precision + information)[1]
    return after - jnp.linalg.slogdet(belief.precision)[1]


def t_value(belief: Belief, information: Matrices) -> Values:
    """Trace of the item's information: ``tr I_i``.

    References:
        Mulder & van der Linden (2009), Psychometrika 74, 273-296, section 3.
    """
    return jnp.trace(information, axis1=1, axis2=2)


def a_value(belief: Belief, information: Matrices) -> Values:
    """Reduction of the sum of the variances: ``tr L^-1 - tr (L + I_i)^-1``.

    References:
        Mulder & van der Linden (2009), Psychometrika 74, 273-296, section 3.
    """
    after = jnp.linalg.inv(belief.precision + information)
    return jnp.trace(jnp.linalg.inv(belief.precision)) - jnp.trace(after, axis1=1, axis2=2)


def information_matrices(model: ItemModel, theta: Float[Array, " dims"]) -> Matrices:
    """Information matrices of items at one ability vector."""

    def one(item: ItemModel) -> Array:
        slope = jax.jacfwd(lambda at: item.natural(at)[1:])(theta)
        return slope.T @ item.variance(theta) @ slope

    return jax.vmap(one)(model)


def laplace(model: ItemModel, items: Array, answers: Array, prior: Belief, start: Array) -> Belief:
    """Mode and precision of the posterior, by Fisher scoring with step halving.

    Args:
        model: the items.
        items: positions of the items answered; negative entries are ignored.
        answers: their category codes; negative entries are ignored.
        prior: mean and precision of the prior.
        start: initial abilities.
    """
    answered_items = take(model, jnp.maximum(items, 0))
    observed = (items >= 0) & (answers >= 0)
    code = jnp.maximum(answers, 0)[:, None]

    def objective(theta: Array) -> Array:
        log_p = jax.vmap(lambda item: item.log_probs(theta))(answered_items)
        log_p_answer = jnp.take_along_axis(log_p, code, axis=1)[:, 0]
        deviation = theta - prior.theta
        return (
            jnp.where(observed, log_p_answer, 0).sum()
            - 0.5 * deviation @ prior.precision @ deviation
        )

    def curvature(theta: Array) -> Array:
        information = jnp.where(
            observed[:, None, None], information_matrices(answered_items, theta), 0
        )
        return prior.precision + information.sum(axis=0)

    sizes = 0.5 ** jnp.arange(HALVINGS, dtype=start.dtype)

    def update(_: Any, theta: Array) -> Array:
        step = jnp.linalg.solve(curvature(theta), jax.grad(objective)(theta))
        candidates = theta + sizes[:, None] * step
        values = jax.vmap(objective)(candidates)
        best = jnp.argmax(values)
        return jnp.where(values[best] >= objective(theta), candidates[best], theta)

    theta = jax.lax.fori_loop(0, SCORING_STEPS, update, start)
    return Belief(theta, curvature(theta))


def plain_prior(prior: Any, dims: int) -> tuple[FloatArray, FloatArray]:
    """Mean and covariance of a prior of several abilities.

    Args:
        prior: mean (a number for all abilities, or one each), and their SD (likewise) or the
            covariance matrix.
        dims: number of abilities.

    Raises:
        InputError: for shapes that do not match, or an invalid covariance.

    Example:
        >>> mean, covariance = plain_prior((0.0, [1.0, 2.0]), 2)
        >>> mean.tolist(), covariance.tolist()
        ([0.0, 0.0], [[1.0, 0.0], [0.0, 4.0]])
    """
    must = f"(mean, SD or covariance matrix) of {dims} abilities, the covariance positive definite"
    try:
        center, spread = prior
        mean = np.broadcast_to(np.asarray(center, float), (dims,)).copy()
        spread = np.asarray(spread, float)
        if spread.ndim < 2:
            sd = np.broadcast_to(spread, (dims,))
            covariance = np.diag(np.where(sd > 0, sd**2, np.nan))
        else:
            covariance = np.broadcast_to(spread, (dims, dims)).copy()
    except (TypeError, ValueError):
        raise argument_error("prior", must, prior) from None
    valid = np.isfinite(mean).all() and np.isfinite(covariance).all()
    valid = valid and spread.shape in ((), (1,), (dims,), (dims, dims))
    if not valid or not np.allclose(covariance, covariance.T) or not _is_positive(covariance):
        raise argument_error("prior", must, prior)
    return mean, covariance


def _is_positive(matrix: FloatArray) -> bool:
    """Whether a symmetric matrix is positive definite beyond rounding errors."""
    values = np.linalg.eigvalsh(matrix)
    return bool(values[0] > 1e-12 * values[-1])


def check_width(nodes: Any, rows: FloatArray) -> None:
    """Raise where a prior of several abilities is too narrow for the grid.

    Args:
        nodes: the grid, nodes x dims.
        rows: priors as `prior_rows` gives them, one or (first axis) many.
    """
    step = float(nodes[1, -1] - nodes[0, -1])
    precisions = np.diagonal(rows[..., 1:, :], axis1=-2, axis2=-1)
    narrowest = float(1 / np.sqrt(precisions.max()))
    if step > COARSEST * narrowest:
        must = f"a prior of conditional SD at least half of {step:.2g}, the step of the grid"
        raise argument_error("prior", must, f"an SD of {narrowest:.2g}", "Set more nodes.")


def prior_rows(prior: Any, dims: int) -> FloatArray:
    """A prior as the engine stores it: mean and SD; with several abilities mean and precision.

    Args:
        prior: as for `plain_prior`; with one ability mean and SD.
        dims: number of abilities.

    Returns:
        Two numbers; with several abilities (1 + dims) x dims, the mean in the first row.
    """
    if dims == 1:
        return np.asarray(prior, float)
    mean, covariance = plain_prior(prior, dims)
    return np.vstack([mean, np.linalg.inv(covariance)])
