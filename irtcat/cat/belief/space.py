"""Beliefs about several abilities: a product grid, or a Normal distribution around the mode."""

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from irtcat._common.checks import argument_error
from irtcat._common.types import FloatArray
from irtcat.bank import ItemBank, fisher_information
from irtcat.cat.belief.curves import Curves, Matrices, curves_at, information_matrices, trapezoid
from irtcat.cat.belief.state import NONE, Belief, Context, Estimate
from irtcat.latent import adaptive_quadrature
from irtcat.models import ItemModel, take

MOST_DIMS = 3
"""Most abilities of a grid."""

MOST_NODES = 27_000
LEAST_NODES = 15
"""The maximum is for the whole grid, the minimum for each ability."""

REACH = 4.0
"""Default theta bounds, in SDs of the population."""

COARSEST = 2.0
"""Maximum step of the grid, in posterior SDs: the trapezoid rule is then accurate to 1 percent."""

SCORING_STEPS = 25
HALVINGS = 6
"""Step sizes tried in each scoring step: 1, 1/2, ..., 1/32."""

SETTLED = 1e-12
"""A smaller step ends the search for the mode."""


def _precision(model: ItemModel, observed: Array, prior: Array, theta: Array) -> Array:
    """Precision of the prior plus the Fisher information of the items answered."""
    matrices = information_matrices(model, theta)
    return prior[1:] + jnp.where(observed[:, None, None], matrices, 0).sum(axis=0)


def posterior_mode(
    model: ItemModel, items: Array, answers: Array, prior: Array, start: Array
) -> tuple[Float[Array, " dims"], Float[Array, "dims dims"]]:
    """Mode and precision of the posterior, by Fisher scoring with step halving.

    Args:
        model: the items.
        items: positions of the items answered; negative entries are ignored.
        answers: their category codes; negative entries are ignored.
        prior: mean and precision of the prior, as in `CatState`.
        start: initial abilities.
    """
    answered_items = take(model, jnp.maximum(items, 0))
    observed = (items >= 0) & (answers >= 0)
    code = jnp.maximum(answers, 0)[:, None]
    eps = float(jnp.finfo(start.dtype).eps)
    settled = max(SETTLED, 4 * eps)

    def objective(theta: Array) -> Array:
        log_p = jax.vmap(lambda item: item.log_probs(theta))(answered_items)
        log_p_answer = jnp.take_along_axis(log_p, code, axis=1)[:, 0]
        deviation = theta - prior[0]
        return jnp.where(observed, log_p_answer, 0).sum() - 0.5 * deviation @ prior[1:] @ deviation

    sizes = 0.5 ** jnp.arange(HALVINGS, dtype=start.dtype)

    def going(carry: tuple[Array, Array, Array]) -> Array:
        return (carry[0] < SCORING_STEPS) & (carry[2] > settled)

    def update(carry: tuple[Array, Array, Array]) -> tuple[Array, Array, Array]:
        n, theta, _ = carry
        precision = _precision(answered_items, observed, prior, theta)
        step = jnp.linalg.solve(precision, jax.grad(objective)(theta))
        candidates = theta + sizes[:, None] * step
        values = jax.vmap(objective)(candidates)
        # Near the mode all candidates are equal up to rounding: then the full step is the best.
        least = jnp.maximum(values.max(), objective(theta))
        near = values >= least - 4 * eps * jnp.abs(least)
        new = jnp.where(near.any(), candidates[jnp.argmax(near)], theta)
        return n + 1, new, jnp.abs(new - theta).max()

    far = jnp.asarray(jnp.inf, start.dtype)
    _, theta, _ = jax.lax.while_loop(going, update, (jnp.asarray(0), start, far))
    return theta, _precision(answered_items, observed, prior, theta)


class _Vector(Belief):
    """What both beliefs about several abilities share: a Normal prior, matrices and the mode."""

    def prior_sd(self, prior: Array) -> Array:
        """Roots of the diagonal of the covariance."""
        return jnp.sqrt(jnp.diagonal(jnp.linalg.inv(prior[1:])))

    def prior_precision(self, context: Context) -> Float[Array, "dims dims"]:
        """The precision as it is stored."""
        return context.state.prior[1:]

    def information(self, context: Context) -> Float[Array, " items"]:
        """The trace."""
        return jnp.trace(context.matrices, axis1=1, axis2=2)

    def matrices(self, context: Context) -> Matrices:
        """By automatic differentiation."""
        return information_matrices(context.pool.model, context.theta)

    def mode(self, context: Context) -> Estimate:
        """By Fisher scoring; SE from the inverse of information plus precision of the prior."""
        state = context.state
        answers = jnp.where(context.is_scored, state.answers, NONE)
        mode, precision = posterior_mode(
            context.pool.model, state.items, answers, state.prior, context.theta
        )
        return Estimate(mode, jnp.sqrt(jnp.diagonal(jnp.linalg.inv(precision))))


class Grid(_Vector):
    """A product grid of two or three abilities."""

    def check_priors(self, rows: FloatArray) -> None:
        """Raise where the step of the grid is too large for a prior."""
        step = float(self.nodes[1, -1] - self.nodes[0, -1])
        precisions = np.diagonal(rows[..., 1:, :], axis1=-2, axis2=-1)
        narrowest = float(1 / np.sqrt(precisions.max()))
        if step > COARSEST * narrowest:
            must = f"a prior of conditional SD at least half of {step:.2g}, the step of the grid"
            raise argument_error("prior", must, f"an SD of {narrowest:.2g}", "Set more nodes.")

    def log_prior(self, context: Context) -> Array:
        """The quadratic form of the precision."""
        prior = context.state.prior
        deviation = self.nodes - prior[0]
        return -0.5 * ((deviation @ prior[1:]) * deviation).sum(axis=-1)


class Normal(_Vector):
    """A Normal distribution: the mode and the precision (Laplace's method, expected information).

    The nodes are those of a rule for the standard Normal; each subject's are moved to its mode and
    scaled by its covariance.
    """

    @property
    def nodes_per_subject(self) -> int:
        """Every subject has its own nodes."""
        return self.nodes.shape[0]

    def clip(self, theta: Array) -> Array:
        """There are no bounds."""
        return theta

    def points(self, context: Context) -> Array:
        """``mode + root x`` with ``root root'`` the covariance."""
        state, model = context.state, context.pool.model
        observed = context.is_scored & (state.answers >= 0)
        answered_items = take(model, jnp.maximum(state.items, 0))
        precision = _precision(answered_items, observed, state.prior, state.theta)
        # Not a triangular solve of all nodes: BLAS threads it, and XLA's threads wait for ever.
        return state.theta + self.nodes @ jnp.linalg.cholesky(jnp.linalg.inv(precision)).T

    def curves(self, context: Context) -> Curves:
        """Computed for this subject."""
        top = jnp.maximum(context.pool.top, 1).astype(self.nodes.dtype)
        return curves_at(context.pool.model, context.nodes, top)

    def log_prior(self, context: Context) -> Array:
        """0: the nodes are those of the posterior."""
        return jnp.zeros_like(self.log_weights)


def normal_rule(dims: int) -> tuple[FloatArray, FloatArray]:
    """Points for the standard Normal, and logarithms of their probabilities.

    Example:
        >>> points, log_weights = normal_rule(4)
        >>> (np.exp(log_weights) @ points**2).round(6).tolist()
        [1.0, 1.0, 1.0, 1.0]
    """
    rule = adaptive_quadrature(dims)
    points = np.asarray(rule.points)
    log_density = -0.5 * ((points**2).sum(axis=1) + dims * np.log(2 * np.pi))
    return points, np.asarray(rule.log_weight) + log_density


def grid_axis(
    bank: ItemBank, max_items: int, theta_bounds: tuple[float, float] | None, nodes: int | None
) -> FloatArray:
    """The nodes of each ability.

    One node for each SD of the narrowest posterior of the test (given the other abilities), within
    the limits on the size of the grid.

    Args:
        bank: the bank.
        max_items: the largest number of items of a test.
        theta_bounds: least and greatest ability; None for -4 and 4.
        nodes: number of nodes; None for as many as are needed.

    Raises:
        InputError: if even the largest grid is too coarse.
    """
    dims = bank.model.dims
    low, high = theta_bounds or (-REACH, REACH)
    most = int(MOST_NODES ** (1 / dims) + 1e-9)
    if nodes is not None:
        if nodes > most:
            must = f"at most {most}, for each of {dims} abilities"
            raise argument_error("nodes", must, nodes)
        return np.linspace(low, high, nodes)
    coarse = product_grid(np.linspace(low, high, 9), dims)[0]
    item_information = np.diagonal(fisher_information(bank, coarse), axis1=2, axis2=3)
    test_information = np.sort(item_information, axis=0)[-max_items:].sum(axis=0)
    prior = np.diagonal(np.linalg.inv(bank.population.covariance))
    narrowest = 1 / np.sqrt((test_information + prior).max())
    wanted = int(np.ceil((high - low) / narrowest)) + 1
    n = int(np.clip(wanted, LEAST_NODES, most))
    if (high - low) / (n - 1) > COARSEST * narrowest:
        must = f"such that {n} nodes can resolve posteriors of SD {narrowest:.2g}"
        advice = "Set narrower theta_bounds, a smaller max_items, or the number of nodes."
        raise argument_error("config", must, f"bounds {low:g} and {high:g}", advice)
    return np.linspace(low, high, n)


def product_grid(axis: FloatArray, dims: int) -> tuple[FloatArray, FloatArray]:
    """All vectors of nodes, and the logarithms of their trapezoid weights.

    Example:
        >>> nodes, log_weights = product_grid(np.array([0.0, 1.0]), 2)
        >>> nodes.tolist(), np.exp(log_weights).round(2).tolist()
        ([[0.0, 0.0], [0.0, 1.0], [1.0, 0.0], [1.0, 1.0]], [0.25, 0.25, 0.25, 0.25])
    """
    nodes = np.stack(np.meshgrid(*[axis] * dims, indexing="ij"), axis=-1).reshape(-1, dims)
    weights = np.stack(np.meshgrid(*[np.log(trapezoid(axis))] * dims, indexing="ij"))
    return nodes, weights.sum(axis=0).ravel()
