"""Penalised joint maximum likelihood of abilities and items.

    sum_ij log P(x_ij | theta_i, item_j) - sum_i theta_i^2 / 2 - sum_j penalty(item_j)

is maximised in cycles: a Newton step on all subjects at once, a Newton step on all items at once,
then the latent scale moves to the optimum of the penalties. For logistic items the objective is
concave in the abilities given the items, and the reverse; a Newton step that would lower a term is
replaced by the step under the bound 1/4 on the curvature, which cannot (Böhning & Lindsay 1988).
"""

import functools
from collections.abc import Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from irtcat._common.checks import InputError, argument_error
from irtcat._common.compilation import jit
from irtcat._common.precision import precision
from irtcat._common.types import FloatArray
from irtcat.fitting.em.covariance import inverse_blocks
from irtcat.fitting.em.priors import SMALLEST_POSITIVE_SLOPE, canonical, check_priors
from irtcat.fitting.evaluation import Calibrated, Prepared, finish, prepare
from irtcat.fitting.outcome import until_small
from irtcat.fitting.result import Fit
from irtcat.fitting.solvers import Joint
from irtcat.fitting.specification import Specification
from irtcat.models import ItemModel, OnePL, Rasch, TwoPL
from irtcat.responses import Responses

MODELS_OF_JOINT = (Rasch, OnePL, TwoPL)
TOLERANCE = {"float64": 1e-3, "float32": 5e-2}
LONGEST_SHIFT = 0.5
"""Maximum Newton step of the latent mean and log SD."""


class JointPoint(NamedTuple):
    """The parameters: abilities, and slope and intercept of every item."""

    theta: Float[Array, " subjects"]
    params: Float[Array, "items two"]


class Penalty(NamedTuple):
    """Normal penalties on slope and intercept: mean and precision, and the bounds.

    The precision has one row per item (that of a tied slope is in the first row only).
    """

    mean: Float[Array, " two"]
    precision: Float[Array, "items two"]
    lower: Float[Array, " two"]
    upper: Float[Array, " two"]

    def of(self, params: Float[Array, "items two"]) -> Float[Array, " items"]:
        """The penalty of each item."""
        return 0.5 * (self.precision * (params - self.mean) ** 2).sum(1)


class _Terms(NamedTuple):
    """Log-likelihood, its gradient in (slope, intercept) and the curvatures 11, 10, 00."""

    value: Float[Array, " items"]
    gradient: Float[Array, "items two"]
    curvature: Float[Array, "three items"]


def _cells(
    x: Array, theta: Array, params: Array, has_missing: bool
) -> tuple[Array, Array, Array, Array | None]:
    """Log-likelihood, residual and weight of every cell of a block, and the mask."""
    statistics, mask = TwoPL.sufficient_statistics(x, 1, has_missing, theta.dtype)
    z = theta[:, None] * params[:, 0] + params[:, 1]
    p = jax.nn.sigmoid(z)
    value, residual, weight = statistics[0] * z - jax.nn.softplus(z), statistics[0] - p, p * (1 - p)
    if mask is None:
        return value, residual, weight, None
    return (
        jnp.where(mask > 0, statistics[0] * z, 0) - mask * jax.nn.softplus(z),
        statistics[0] - mask * p,
        mask * weight,
        mask,
    )


def _subjects(x: Array, theta: Array, params: Array, has_missing: bool) -> tuple[Array, Array]:
    """A safeguarded Newton step on the abilities of a block, and its length in standard errors."""
    slope = params[:, 0]
    value, residual, weight, mask = _cells(x, theta, params, has_missing)
    gradient = residual @ slope - theta
    newton = theta + gradient / (weight @ slope**2 + 1)
    most = (slope**2).sum() if mask is None else mask @ slope**2
    bounded = theta + gradient / (0.25 * most + 1)
    after = _cells(x, newton, params, has_missing)[0].sum(1) - 0.5 * newton**2
    better = after >= value.sum(1) - 0.5 * theta**2
    step = jnp.abs(gradient) / jnp.sqrt(weight @ slope**2 + 1)
    return jnp.where(better, newton, bounded), step


def _item_terms(x: Array, theta: Array, params: Array, row: Array, has_missing: bool) -> _Terms:
    """Sums over the rows of a block."""
    value, residual, weight, _ = _cells(x, theta, params, has_missing)
    powers = jnp.stack([theta**2, theta, jnp.ones_like(theta)]) * row
    return _Terms(row @ value, (powers[1:] @ residual).T, powers @ weight)


def _move(terms: _Terms, params: Array, penalty: Penalty, tied: bool) -> tuple[Array, Array]:
    """The Newton step of all items, and its length in standard errors."""
    gradient = terms.gradient - penalty.precision * (params - penalty.mean)
    g1, g0 = gradient.T
    ridge = 1e-10
    h11, h10, h00 = terms.curvature
    h11, h00 = h11 + penalty.precision[:, 0] + ridge, h00 + penalty.precision[:, 1] + ridge
    schur, right = h11 - h10**2 / h00, g1 - h10 / h00 * g0
    if tied:
        schur, right = (jnp.full_like(v, v.sum()) for v in (schur, right))
    slope = right / jnp.maximum(schur, ridge)
    intercept = (g0 - h10 * slope) / h00
    squared = h11 * slope**2 + 2 * h10 * slope * intercept + h00 * intercept**2
    return jnp.stack([slope, intercept], -1), jnp.sqrt(jnp.maximum(squared, 0))


def _rescaled(point: JointPoint, penalty: Penalty) -> JointPoint:
    """Move the latent scale to the optimum of the penalties; the likelihood does not change."""

    def moved(move: Array) -> JointPoint:
        shift, scale = move[0], jnp.exp(move[1])
        slope, intercept = point.params.T
        params = jnp.stack([slope * scale, intercept + slope * shift], -1)
        return JointPoint((point.theta - shift) / scale, params)

    def cost(move: Array) -> Array:
        new = moved(move)
        return 0.5 * (new.theta**2).sum() + penalty.of(new.params).sum()

    def newton(_: Any, move: Array) -> Array:
        curvature = jnp.maximum(jnp.diagonal(jax.hessian(cost)(move)), 1e-3)
        step = jnp.clip(jax.grad(cost)(move) / curvature, -LONGEST_SHIFT, LONGEST_SHIFT)
        return move - jnp.where(cost(move - step) <= cost(move), step, 0.0)

    best = moved(jax.lax.fori_loop(0, 4, newton, jnp.zeros(2, point.theta.dtype)))
    inside = ((best.params >= penalty.lower) & (best.params <= penalty.upper)).all()
    return jax.tree.map(lambda new, old: jnp.where(inside, new, old), best, point)


@functools.partial(jit, static_argnames=("has_missing", "tied"))
def joint_step(
    point: JointPoint, x: Array, blocks: Array, penalty: Penalty, *, has_missing: bool, tied: bool
) -> tuple[JointPoint, Float[Array, ""], Float[Array, ""]]:
    """One cycle over subjects, items and scale.

    Args:
        point: the current point.
        x: responses, subjects x items.
        blocks: row numbers in blocks; the number of subjects stands for "no row".
        penalty: of the items.
        has_missing: whether any response is missing.
        tied: whether all items share the slope.

    Returns:
        The next point, whose objective is not lower; the objective before the scale is moved; and
        the longest step in standard errors (abilities given items, items given abilities).
    """
    n = x.shape[0]

    def safe(rows: Array) -> tuple[Array, Array]:
        return jnp.minimum(rows, n - 1), (rows < n).astype(point.theta.dtype)

    def update(carry: tuple[Array, Array], rows: Array):
        theta, longest = carry
        at, row = safe(rows)
        new, step = _subjects(x[at], theta[at], point.params, has_missing)
        longest = jnp.maximum(longest, (row * step).max())
        return (theta.at[rows].set(new, mode="drop"), longest), None

    zero = jnp.zeros((), point.theta.dtype)
    (theta, longest), _ = jax.lax.scan(update, (point.theta, zero), blocks)

    def sums(params: Array) -> _Terms:
        def add(total: _Terms, rows: Array) -> tuple[_Terms, None]:
            at, row = safe(rows)
            terms = _item_terms(x[at], theta[at], params, row, has_missing)
            return jax.tree.map(jnp.add, total, terms), None

        per_item = jnp.zeros(len(params), theta.dtype)
        empty = _Terms(per_item, jnp.zeros_like(params), jnp.stack([per_item] * 3))
        return jax.lax.scan(add, empty, blocks)[0]

    terms = sums(point.params)
    move, step = _move(terms, point.params, penalty, tied)
    bound = _bound_curvature(terms, x, blocks, theta, has_missing)
    bounded, _ = _move(terms._replace(curvature=bound), point.params, penalty, tied)
    low, high = penalty.lower, penalty.upper
    newton = jnp.clip(point.params + move, low, high)
    before = terms.value - penalty.of(point.params)
    after = sums(newton).value - penalty.of(newton)
    up = after >= before
    if tied:
        up = jnp.full_like(up, after.sum() >= before.sum())
    params = jnp.where(up[:, None], newton, jnp.clip(point.params + bounded, low, high))
    value = jnp.where(up, after, before).sum() - 0.5 * (theta**2).sum()
    return _rescaled(JointPoint(theta, params), penalty), value, jnp.maximum(longest, step.max())


def _bound_curvature(
    terms: _Terms, x: Array, blocks: Array, theta: Array, has_missing: bool
) -> Array:
    """The three curvatures with every cell's weight at its maximum, 1/4."""
    powers = jnp.stack([theta**2, theta, jnp.ones_like(theta)])
    if not has_missing:
        return jnp.broadcast_to(0.25 * powers.sum(1)[:, None], terms.curvature.shape)
    n = x.shape[0]

    def add(total: Array, rows: Array) -> tuple[Array, None]:
        at = jnp.minimum(rows, n - 1)
        _, mask = TwoPL.sufficient_statistics(x[at], 1, True, theta.dtype)
        assert mask is not None
        return total + (powers[:, at] * (rows < n)) @ mask, None

    return 0.25 * jax.lax.scan(add, jnp.zeros_like(terms.curvature), blocks)[0]


def _penalty(
    specification: Specification[Joint], n_items: int, tied: bool, dtype: np.dtype
) -> tuple[Penalty, dict]:
    """The penalties stated, and their description."""
    names = ("slope", "intercept")
    stated: dict[str, Any] = {
        name: parameter.weak_prior for name, parameter in TwoPL.parameters.items()
    }
    for name, value in dict(specification.priors or {}).items():
        parameter = canonical("priors", name, names)
        if value is not None and (isinstance(value, Mapping) or np.shape(value) != (2,)):
            must = "(mean, SD) of all items with the solver joint, or None"
            raise argument_error(f"priors[{name!r}]", must, value)
        check_priors({name: value}, names)
        stated[parameter] = value
    mean, precisions = np.zeros(2), np.zeros((n_items, 2))
    for column, name in enumerate(names):
        if stated[name] is not None:
            mean[column], precisions[:, column] = stated[name][0], stated[name][1] ** -2.0
    if tied:
        precisions[1:, 0] = 0.0
    bounds = np.array([(row.lower, row.upper) for row in TwoPL.parameters.values()])
    if specification.positive or tied:
        bounds[0, 0] = SMALLEST_POSITIVE_SLOPE
    arrays = (jnp.asarray(array, dtype) for array in (mean, precisions, bounds[:, 0], bounds[:, 1]))
    return Penalty(*arrays), {k: pair for k, pair in stated.items() if pair is not None}


@functools.partial(jit, static_argnames=("has_missing",))
def _information(
    point: JointPoint, x: Array, blocks: Array, penalty: Penalty, *, has_missing: bool
) -> tuple[Array, Array]:
    """Information of every ability and of every item, each with the other treated as known."""
    n = x.shape[0]

    def add(carry: tuple[Array, Array], rows: Array):
        ability, total = carry
        at = jnp.minimum(rows, n - 1)
        row = (rows < n).astype(point.theta.dtype)
        weight = _cells(x[at], point.theta[at], point.params, has_missing)[2]
        powers = jnp.stack([point.theta[at] ** 2, point.theta[at], jnp.ones_like(row)]) * row
        block_information = weight @ point.params[:, 0] ** 2 + 1
        return (ability.at[rows].set(block_information, mode="drop"), total + powers @ weight), None

    empty = jnp.zeros_like(point.theta), jnp.zeros((3, len(point.params)), point.theta.dtype)
    (ability, (h11, h10, h00)), _ = jax.lax.scan(add, empty, blocks)
    h11, h00 = h11 + penalty.precision[:, 0], h00 + penalty.precision[:, 1]
    return ability, jnp.stack([jnp.stack([h11, h10], -1), jnp.stack([h10, h00], -1)], -2)


def _check(cls: type[ItemModel]) -> None:
    if cls not in MODELS_OF_JOINT:
        names = ", ".join(model.key for model in MODELS_OF_JOINT)
        raise InputError(
            f'The `solver` argument "joint" is for the models {names}. '
            f'Got the model "{cls.key}". Use solver="em".'
        )


def fit_joint(
    responses: Responses, cls: type[ItemModel], specification: Specification[Joint]
) -> Fit:
    """Penalised joint maximum likelihood (see `irtcat.fit`)."""
    _check(cls)
    prepared = prepare(responses, cls, specification)
    x, blocks, tied = prepared.x, prepared.blocks, bool(prepared.tied)
    has_missing, solver = prepared.has_missing, specification.solver
    tolerance = TOLERANCE[prepared.precision] if solver.tolerance is None else solver.tolerance
    with precision(prepared.precision) as dtype:
        penalty, stated = _penalty(specification, x.shape[1], tied, dtype)
        start = jnp.asarray(prepared.start.mean, dtype), jnp.asarray(prepared.start.params, dtype)
        point = JointPoint(*start)

        def take() -> tuple[float, float]:
            nonlocal point
            point, value, step = joint_step(
                point, x, blocks, penalty, has_missing=has_missing, tied=tied
            )
            return float(value), float(step)

        ending = until_small(take, tolerance, solver.max_iterations, specification.progress)
        of_theta, of_items = _information(point, x, blocks, penalty, has_missing=has_missing)
    return finish(
        prepared,
        _standardised(point, np.asarray(of_theta, float), np.asarray(of_items, float), prepared),
        priors=stated,
        at_bound=np.asarray((point.params <= penalty.lower) | (point.params >= penalty.upper)),
        method="joint",
        standard_errors="given abilities",
        log_posterior=float(ending.trace[-1]),
        ending=ending,
    )


def _standardised(
    point: JointPoint, theta_information: FloatArray, information: FloatArray, prepared: Prepared
) -> Calibrated:
    """Items and abilities on the scale where the estimated abilities have mean 0 and SD 1."""
    theta, params = np.asarray(point.theta, float), np.asarray(point.params, float)
    centre, spread = theta.mean(), theta.std()
    spread = spread if spread > 0 else 1.0
    moved = np.stack([params[:, 0] * spread, params[:, 1] + params[:, 0] * centre], -1)
    jacobian = np.array([[spread, 0.0], [centre, 1.0]])
    covariance = inverse_blocks(information, np.ones_like(moved, bool), prepared.tied)
    covariance = jacobian @ covariance @ jacobian.T
    sd = theta_information**-0.5 / spread
    return Calibrated(moved, covariance, (theta - centre) / spread, sd)
