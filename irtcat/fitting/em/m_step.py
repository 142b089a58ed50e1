"""The M-step: Fisher scoring on all items at once over the grid, with priors and constraints.

Each item's expected log-likelihood is maximised by a few damped Newton steps with the expected
information (positive semi-definite for every model, so that a step always points uphill).
A step that does not increase the item's objective is rejected and damped further
(Levenberg-Marquardt), so the objective never goes down.

The functions compute with what they are called with: JAX's arrays in compiled functions, or those
of numpy, which saves the compilation where there are few items (see `needs_no_program`).

The terms of every item (expected log-likelihood, gradient, expected information) come by three
methods with the same numbers (tests compare them); the more special the model, the faster: a
logistic curve with two parameters; links of linear predictors; any model, by automatic
differentiation.
"""

import math
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import scipy.special
from jaxtyping import Array, Bool, Float, Int

from irtcat._common.compilation import MANY, namespace, repeat_while
from irtcat._common.types import BoolArray, FloatArray, IntArray
from irtcat.latent import (
    ItemParts,
    chained,
    has_numpy_terms,
    item_parts,
    logistic_terms,
    part_observed,
    part_terms,
    predictor_bends,
)
from irtcat.models import ItemModel, as_points, unpack

RIDGE = 1e-10
"""Smallest pivot of the small Cholesky factorisations, and the diagonal of inactive parameters."""

BELOW_ALL = 1e30
"""Stands for infinity, which times a weight of 0 would be NaN."""

MAX_STEPS = 12
"""Maximum number of evaluations, where steps are rejected and damped again."""


FEW_PARAMS = 256
"""Parameters of all items up to which an M-step in numpy takes about as long as a program, which
takes .3 to .65 s to compile (of the 1.7 s of a first fit, 2PL, 1000 x 50)."""

FEW_COUNTS, FEW_CANONICAL, FEW_OTHERS = 2**17, 2**14, 2**13
"""The same of the expected counts at the nodes: of logistic items, other canonical links (partial
credit, nominal), and other links. The programs of the last two take 1.1 to 1.8 s to compile.

Beyond, warm fits of .1 to .15 s would take .06 to .08 s more (2000 x 50: 3PL with 2**13 counts,
partial credit of five categories with 2**15); up to here it is .01 to .05 s."""


def needs_no_program(template: ItemModel, params: Any, counts: Any, n_responses: int = 0) -> bool:
    """Whether the M-step of these items is computed in numpy: few, with terms in closed form.

    With many responses a fit takes so long that its programs may as well.
    """
    if params.size > FEW_PARAMS or n_responses >= MANY:
        return False
    if template.closed_form == "logistic":
        return counts.size <= FEW_COUNTS
    most = FEW_CANONICAL if template.has_canonical_link else FEW_OTHERS
    return counts.size <= most and has_numpy_terms(template)


def _where(accepted: Any, new: tuple[Any, ...], old: tuple[Any, ...]) -> tuple[Any, ...]:
    """The new arrays of the items that are accepted, the old ones of the others."""
    xp = namespace(accepted)
    if xp is np and accepted.all():
        return new
    shape, axes = accepted.shape, range(max(array.ndim for array in new))
    masks = [accepted.reshape(shape + (1,) * i) for i in axes]
    return tuple(xp.where(masks[a.ndim - 1], a, b) for a, b in zip(new, old, strict=True))


class Shared(NamedTuple):
    """Which cells of the tied columns are the same parameter.

    Attributes:
        labels: number of each cell's parameter.
        counts: number of cells of each parameter.
    """

    labels: Int[Any, "items tied"]
    counts: Float[Any, " shared"]


def shared_cells(labels: IntArray, dtype: np.dtype) -> Shared:
    """The cells of the tied columns for the M-step.

    Args:
        labels: number of each cell's parameter, items x tied columns.
        dtype: working precision.
    """
    names, numbers = np.unique(labels, return_inverse=True)
    numbers = numbers.reshape(labels.shape)
    counts = np.bincount(numbers.ravel(), minlength=len(names))
    return Shared(jnp.asarray(numbers, jnp.int32), jnp.asarray(counts, dtype))


def _names(shape: tuple[int, ...], tied: tuple[int, ...], shared: Shared | None) -> IntArray:
    """A number for each cell, equal where cells are one parameter."""
    names = np.arange(int(np.prod(shape))).reshape(shape)
    for i, column in enumerate(tied):
        names[:, column] = -1 - (i if shared is None else np.asarray(shared.labels)[:, i])
    return names


def count_distinct(mask: BoolArray, tied: tuple[int, ...], shared: Shared | None) -> int:
    """How many parameters the cells of a mask are."""
    return len(np.unique(_names(mask.shape, tied, shared)[mask]))


def averaged(
    params: FloatArray, mask: BoolArray, tied: tuple[int, ...], shared: Shared | None
) -> FloatArray:
    """The parameters, with the mean of the masked cells where cells are one parameter."""
    names = _names(params.shape, tied, shared)
    flat, at = params.copy().ravel(), np.flatnonzero((names < 0) & mask)
    _, which, counts = np.unique(names.ravel()[at], return_inverse=True, return_counts=True)
    flat[at] = (np.bincount(which, flat[at]) / counts)[which]
    return flat.reshape(params.shape)


def spread_of(
    free: BoolArray, tied: tuple[int, ...], shared: Shared | None, further: BoolArray
) -> FloatArray:
    """All cells x free parameters, 1 where a cell is the parameter.

    Args:
        free: items x params.
        tied: columns of parameters that items share.
        shared: which of their cells are one; None where all of a column are.
        further: which of the further cells are free parameters, each its own.
    """
    names = _names(free.shape, tied, shared).ravel()
    cells = np.concatenate([names, free.size + np.arange(len(further))])
    all_free: Any = np.concatenate([free.ravel(), further])
    distinct, which = np.unique(cells[all_free], return_inverse=True)
    spread = np.zeros((len(cells), len(distinct)))
    spread[np.flatnonzero(all_free), which] = 1.0
    return spread


class Constraints(NamedTuple):
    """Priors, fixed parameters and bounds of every item's unconstrained parameters.

    Attributes:
        prior_mean: mean of the Normal prior.
        prior_precision: 1 / variance of it; 0 where there is no prior.
        free: whether the parameter is estimated.
        lower: lower bounds, one per parameter.
        upper: upper bounds, one per parameter.
        family: 0 Normal; 1 lognormal (``prior_mean`` and ``prior_precision`` are of the
            logarithm); 2 Beta on the parameter's sigmoid (alpha and beta take their place).
            None where all are Normal.
        shared: which cells of the tied columns are the same parameter; None where all of a column
            are.
    """

    prior_mean: Float[Any, "items params"]
    prior_precision: Float[Any, "items params"]
    free: Bool[Any, "items params"]
    lower: Float[Any, " params"]
    upper: Float[Any, " params"]
    family: Any = None
    shared: Shared | None = None


def at_bounds(params: Any, constraints: Constraints) -> BoolArray:
    """Which free parameters are at a bound."""
    params, c = jax.tree.map(np.asarray, (params, constraints))
    return c.free & ((params <= c.lower) | (params >= c.upper))


def beyond_bounds(params: Any, gradient: Any, constraints: Constraints) -> Any:
    """Which parameters are at a bound beyond which the objective still rises."""
    at_low = (params <= constraints.lower) & (gradient < 0)
    return at_low | ((params >= constraints.upper) & (gradient > 0))


class MStep(NamedTuple):
    """New parameters and the size of the step.

    Attributes:
        params: the new unconstrained parameters.
        step: largest first Newton step over the items, in standard errors of the complete data.
        gain: predicted increase of the expected log-posterior by the first Newton step.
        information: expected information of the complete data at the new parameters.
        gradient: gradient of the expected log-posterior there.
    """

    params: Float[Any, "items params"]
    step: Float[Any, ""]
    gain: Float[Any, ""]
    information: Float[Any, "items params params"]
    gradient: Float[Any, "items params"]


def log_prior(params: Any, constraints: Constraints) -> Float[Any, " items"]:
    """Log-density of the priors, one number per item.

    All are densities of the parameter named (the slope, or c and d themselves, no Jacobian): with
    the likelihood they are maximised over that parameter.
    """
    xp = namespace(params)
    off = params - constraints.prior_mean
    precision = constraints.prior_precision
    normaliser = 0.5 * xp.log(xp.where(precision > 0, precision / (2 * math.pi), 1.0))
    normal = -0.5 * precision * off**2 + normaliser
    if constraints.family is None:
        return normal.sum(-1)
    special: Any = jax.scipy.special if xp is jnp else scipy.special
    log_a = xp.log(xp.where(params > 0, params, 1.0))
    lognormal = normaliser - log_a - 0.5 * precision * (log_a - constraints.prior_mean) ** 2
    lognormal = xp.where(params > 0, lognormal, -BELOW_ALL)
    alpha, beta = (xp.where(constraints.family == 2, v, 1.0) for v in constraints[:2])
    ends = (-xp.logaddexp(0.0, -params), -xp.logaddexp(0.0, params))
    constant = special.betaln(alpha, beta)
    on_unit = (alpha - 1) * ends[0] + (beta - 1) * ends[1] - constant
    conditions = [constraints.family == 1, constraints.family == 2]
    return xp.select(conditions, [lognormal, on_unit], normal).sum(-1)


def prior_slopes(params: Any, constraints: Constraints) -> tuple[Any, Any]:
    """Gradient of `log_prior`, and minus its second derivative (each parameter has its own)."""
    xp, precision = namespace(params), constraints.prior_precision
    gradient = -precision * (params - constraints.prior_mean)
    if constraints.family is None:
        return gradient, precision
    safe = xp.where(params > 0, params, 1.0)
    pull = precision * (xp.log(safe) - constraints.prior_mean)
    p = xp.exp(-xp.logaddexp(0.0, -params))
    alpha, beta = constraints.prior_mean, precision
    conditions = [constraints.family == 1, constraints.family == 2]
    by_family = [-(1 + pull) / safe, (alpha - 1) - (alpha + beta - 2) * p]
    curvature = [(precision - 1 - pull) / safe**2, (alpha + beta - 2) * p * (1 - p)]
    return xp.select(conditions, by_family, gradient), xp.select(conditions, curvature, precision)


def prior_information(params: Any, constraints: Constraints) -> Any:
    """Minus the second derivative of `log_prior`, made positive for the M-step."""
    xp, curvature = namespace(params), prior_slopes(params, constraints)[1]
    if constraints.family is None:
        return curvature
    least = constraints.prior_precision / xp.where(params > 0, params, 1.0) ** 2
    bent = (constraints.family == 1) & (curvature < 0.1 * least)
    return xp.where(bent, least, curvature)


Terms = tuple[Float[Any, " items"], Float[Any, "items params"], Float[Any, "items params params"]]


def item_terms(
    template: ItemModel,
    params: Float[Any, "items params"],
    counts: Float[Any, "contrasts nodes items"],
    totals: Any,
    nodes: Float[Any, "nodes *dims"],
    near: ItemParts | None = None,
) -> Terms:
    """Expected log-likelihood of each item, its gradient and its expected information."""
    if template.closed_form == "logistic":
        return logistic_terms(params, counts, totals, as_points(nodes))
    if template.closed_form == "logistic trials":  # the same curve in numbers of trials
        trials = template.trials  # type: ignore[attr-defined]
        totals = (totals[:, None] if totals.ndim == 1 else totals) * trials
        return logistic_terms(params, counts * trials, totals, as_points(nodes))
    if template.closed_form:
        return part_sums(template, params, counts, totals, as_points(nodes), near)
    in_axes = (0, 0, -1, None if totals.ndim == 1 else -1, None)
    return jax.vmap(general_terms, in_axes)(template, params, counts, totals, as_points(nodes))


def general_terms(
    template: ItemModel, phi: Array, counts: Array, totals: Array, nodes: Array
) -> tuple[Array, Array, Array]:
    """Objective, gradient and expected information of one item of any model.

    With natural curves (base, eta) the objective is ``totals . base + counts . eta`` and the
    information ``sum_g totals_g (d eta / d phi)' V (d eta / d phi)``.
    """

    def curve(vector: Array) -> Array:
        return jax.vmap(unpack(template, vector).natural)(nodes)

    natural, slopes = curve(phi), jax.jacfwd(curve)(phi)
    table = jnp.concatenate([totals[None], counts]).T
    value = (table * natural).sum()
    gradient = (table[..., None] * slopes).sum((0, 1))
    eta = slopes[:, 1:]
    variance = jax.vmap(unpack(template, phi).variance)(nodes)
    weighted = jnp.einsum("gcd,gdp->gcp", variance, eta) * totals[:, None, None]
    return value, gradient, jnp.einsum("gcp,gcq->pq", eta, weighted)


def part_sums(
    template: ItemModel,
    params: Float[Any, "items params"],
    counts: Float[Any, "contrasts nodes items"],
    totals: Any,
    nodes: Float[Any, "nodes dims"],
    near: ItemParts | None = None,
    observed: bool = False,
) -> Terms:
    """The same terms for all items of a link of linear predictors at once, or of several links.

    Only the link is evaluated at every item and node, with the items last; sums over the nodes are
    products with 1, theta and theta^2; the derivatives of the predictors by the parameters do not
    depend on the nodes. The information is minus the second derivatives where it is ``observed``.
    """
    xp = namespace(params)
    basis = xp.concatenate([xp.ones_like(nodes[:, :1]), nodes], axis=1)
    n_basis = basis.shape[1]
    squares = (basis[:, :, None] * basis[:, None, :]).reshape(len(basis), -1)
    totals = totals[:, None] if totals.ndim == 1 else totals
    value: Any = 0.0
    gradient: Any = 0.0
    information: Any = 0.0
    scores = []
    _, parts, chains = item_parts(template, params) if near is None else near.moved(params)
    for part, chain in zip(parts, chains, strict=True):
        terms = part_terms(part, nodes, counts, totals)
        weight = part_observed(part, nodes, counts, totals) if observed else terms.weight
        score = xp.stack([basis.T @ table for table in terms.residual])
        sums = {
            pair: (squares.T @ table).reshape(n_basis, n_basis, -1)
            for pair, table in weight.items()
        }
        by_params = chained(score, sums, chain)
        value = value + terms.value.sum(0)
        gradient, information = gradient + by_params[0], information + by_params[1]
        scores.append(score)
    if observed and not template.has_linear_predictors:
        information = information - xp.asarray(predictor_bends(template, params, scores))
    return value, gradient, information


class CompleteData(NamedTuple):
    """What the complete-data log-posterior of each item depends on.

    Attributes:
        template: the items.
        params: their unconstrained parameters.
        counts: expected sums of the statistics at the nodes.
        totals: expected numbers of subjects there, (nodes,) or (nodes, items).
        constraints: priors and bounds.
        nodes: abilities.
    """

    template: ItemModel
    params: Float[Any, "items params"]
    counts: Float[Any, "contrasts nodes items"]
    totals: Any
    constraints: Constraints
    nodes: Any


def penalised_terms(data: CompleteData, near: ItemParts | None = None) -> Terms:
    """Expected log-posterior of each item, its gradient and its expected information.

    Items of linear predictors may be passed with parameters that are ``near``, from which the
    predictors follow in numpy.
    """
    template, params, counts, totals, constraints, nodes = data
    xp = namespace(params)
    value, gradient, information = item_terms(
        template, params, counts, totals, xp.asarray(nodes), near
    )
    if xp is np and not constraints.prior_precision.any():
        return value, gradient, information  # no priors: a sixth of the time in numpy
    value = value + log_prior(params, constraints)
    gradient = gradient + prior_slopes(params, constraints)[0]
    return value, gradient, plus_diagonal(information, prior_information(params, constraints))


def plus_diagonal(
    matrices: Float[Any, "items params params"], diagonal: Float[Any, "items params"]
) -> Float[Any, "items params params"]:
    """Matrices with more on their diagonals."""
    return matrices + diagonal[..., None] * np.eye(diagonal.shape[-1], dtype=diagonal.dtype)


def _solve(matrix: Any, vector: Any) -> Any:
    """Solve many small positive-definite systems by an unrolled Cholesky factorisation.

    ``matrix`` is (..., n, n) and ``vector`` (..., n), n at most a handful: elementwise over the
    leading axes, which is much faster than one library call per item.
    """
    n, xp = matrix.shape[-1], namespace(matrix)
    low: list[list[Any]] = [[None] * n for _ in range(n)]
    for i in range(n):
        for j in range(i + 1):
            rest = _less(matrix[..., i, j], [(low[i][k], low[j][k]) for k in range(j)])
            low[i][j] = xp.sqrt(xp.maximum(rest, RIDGE)) if i == j else rest / low[j][j]
    y: list[Any] = []
    for i in range(n):
        y.append(_less(vector[..., i], [(low[i][k], y[k]) for k in range(i)]) / low[i][i])
    x: list[Any] = [None] * n
    for i in reversed(range(n)):
        x[i] = _less(y[i], [(low[k][i], x[k]) for k in range(i + 1, n)]) / low[i][i]
    return xp.stack(x, axis=-1)


def _less(array: Any, products: list[tuple[Any, Any]]) -> Any:
    """An array less some products."""
    for one, other in products:
        array = array - one * other
    return array


def direction(
    gradient: Any,
    information: Any,
    damping: Any,
    active: Any,
    tied: tuple[int, ...],
    item_weights: Any,
    shared: "Shared | None" = None,
) -> Any:
    """The damped Newton step; tied parameters move together, inactive ones do not move.

    The step of the tied parameters solves the sum over the items of the Schur complements of their
    other parameters.
    """
    n, xp = gradient.shape[-1], namespace(gradient)
    eye = np.eye(n, dtype=gradient.dtype)
    both = active[..., None] & active[..., None, :]
    scaled = information * (1 + damping[:, None, None] * eye)
    matrix = xp.where(both, scaled, 0) + xp.where(active, RIDGE, 1.0)[..., None] * eye
    vector = xp.where(active, gradient, 0)
    if not tied:
        return _solve(matrix, vector)
    untied = [i for i in range(n) if i not in tied]
    t, o = np.array(tied), np.array(untied, int)
    schur, right = matrix[:, t][:, :, t], vector[:, t]
    if untied:
        cross = matrix[:, o][:, :, t]
        block = matrix[:, o][:, :, o]
        solved = xp.stack([_solve(block, cross[..., i]) for i in range(len(tied))], -1)
        solved_gradient = _solve(block, vector[:, o])
        schur = schur - xp.einsum("jot,jos->jts", cross, solved)
        right = right - xp.einsum("jot,jo->jt", cross, solved_gradient)
    is_active = active[:, t]
    schur = xp.where(is_active[:, :, None] & is_active[:, None, :], schur, 0)
    step = _shared_step(schur, xp.where(is_active, right, 0), item_weights, shared)
    step = xp.where(is_active, step, 0)
    steps = step
    if untied:
        rest = solved_gradient - xp.einsum("jot,jt->jo", solved, step)
        steps = xp.concatenate([step, rest], axis=1)
    return steps[:, np.argsort([*tied, *untied])]


def _shared_step(
    schur: Float[Any, "items tied tied"],
    right: Float[Any, "items tied"],
    item_weights: Float[Any, " items"],
    shared: "Shared | None",
) -> Float[Any, "items tied"]:
    """The step of the tied parameters of every item."""
    xp, weight = namespace(right), item_weights[:, None]
    if shared is None:  # one number a column for all items
        total = (weight[..., None] * schur).sum(0)
        total = total + xp.diag(xp.where(xp.diagonal(total) > 0, 0.0, 1.0))
        return xp.broadcast_to(_solve(total, (weight * right).sum(0)), right.shape)
    size, labels = len(shared.counts), shared.labels
    total, values = xp.zeros((size, size), schur.dtype), xp.zeros(size, right.dtype)
    pairs = labels[:, :, None], labels[:, None, :]
    if xp is np:
        np.add.at(total, pairs, weight[..., None] * schur)
        np.add.at(values, labels, weight * right)
    else:
        total = total.at[pairs].add(weight[..., None] * schur)
        values = values.at[labels].add(weight * right)
    total = total + xp.diag(xp.where(xp.diagonal(total) > 0, RIDGE, 1.0))
    return xp.linalg.solve(total, values)[labels]


def step_within_bounds(
    params: Float[Any, "items params"],
    gradient: Float[Any, "items params"],
    information: Float[Any, "items params params"],
    damping: Float[Any, " items"],
    constraints: Constraints,
    tied: tuple[int, ...],
    item_weights: Float[Any, " items"],
) -> Float[Any, "items params"]:
    """The point after a damped Newton step.

    Where a parameter is stopped by a bound, the others take the step that is best at that bound.
    """
    xp = namespace(params)
    active = constraints.free & ~beyond_bounds(params, gradient, constraints)

    def rounds(carry: tuple[Any, Any, Any]) -> tuple[Any, Any, Any]:
        """One solution: the first without stopped parameters, the second at their bounds."""
        number, moved, stopped = carry
        to_bound = xp.where(stopped, moved - params, 0)
        rest = gradient - xp.einsum("jik,jk->ji", information, to_bound)
        step = direction(
            rest, information, damping, active & ~stopped, tied, item_weights, constraints.shared
        )
        wanted = params + (to_bound + step)
        moved = xp.clip(wanted, constraints.lower, constraints.upper)
        return number + 1, moved, active & (moved != wanted)

    # A loop, so that the solution is compiled once.
    moved = repeat_while(
        xp,
        lambda carry: (carry[0] == 0) | ((carry[0] == 1) & carry[2].any()),
        rounds,
        (np.int32(0), params, xp.zeros_like(active)),
    )[1]
    return xp.where(constraints.free, moved, params)


class _State(NamedTuple):
    """The best point so far, its terms, the next candidate, the squared length of the first step.

    ``stuck`` marks items without an accepted step so far.
    """

    best: Any
    value: Any
    gradient: Any
    information: Any
    damping: Any
    candidate: Any
    squared: Any
    stuck: Any


def m_step(
    data: CompleteData, item_weights: Float[Any, " items"], tied: tuple[int, ...], n_steps: Any
) -> MStep:
    """Maximise the expected log-posterior of all items by ``n_steps`` damped Newton steps.

    Args:
        data: the items (parameters: where to start) and their expected counts.
        item_weights: 1 for items that tied parameters are estimated from, 0 for the others.
        tied: columns of the parameters that all items share.
        n_steps: number of steps.

    Returns:
        The new parameters; no item's objective is below that of the start (for tied parameters:
        the sum over the items of weight 1).
    """
    template, params, constraints = data.template, data.params, data.constraints
    xp = namespace(params)

    def better(new: Any, old: Any) -> Any:
        if tied:
            new, old = (xp.full_like(v, (item_weights * v).sum()) for v in (new, old))
        return new >= old - 64 * np.finfo(old.dtype).eps * xp.abs(old)

    def body(carry: tuple[Any, Any, _State]) -> tuple[Any, Any, _State]:
        number, _, state = carry
        terms = penalised_terms(data._replace(params=state.candidate), near)
        up, is_first = better(terms[0], state.value), number == 0
        accepted: Any = _where(up, (state.candidate, *terms), state[:4])
        damping = xp.where(up, 0.3 * state.damping, xp.maximum(10 * state.damping, 0.1))
        stuck, number = is_first | (state.stuck & ~up), number + 1
        goes_on = (number <= n_steps) | (stuck.any() & (number < MAX_STEPS))
        candidate, squared = state.candidate, state.squared
        if xp is jnp or goes_on:  # a program takes one step more than it needs
            best, _, gradient, information = accepted
            candidate = step_within_bounds(
                best, gradient, information, damping, constraints, tied, item_weights
            ).astype(params.dtype)
            move = candidate - best
            length = xp.einsum("ji,jik,jk->j", move, information, move)
            squared = xp.where(is_first, length, squared)
        rest = damping, candidate, squared, stuck
        return number, goes_on, _State._make((*accepted, *rest))

    near = None
    if xp is np and template.closed_form == "predictors" and template.has_linear_predictors:
        near = item_parts(template, params)
    # The first evaluation is that of the starting point, which is always accepted.
    nothing = xp.zeros_like(params[:, 0])
    state = _State(
        best=params,
        value=nothing - BELOW_ALL,
        gradient=xp.zeros_like(params),
        information=xp.zeros((*params.shape, params.shape[1]), params.dtype),
        damping=nothing,
        candidate=params,
        squared=nothing,
        stuck=nothing == 0,
    )
    state = repeat_while(xp, lambda carry: carry[1], body, (np.int32(0), np.bool_(True), state))[2]
    step, gain = xp.sqrt(state.squared.max()), 0.5 * state.squared.sum()
    return MStep(state.best, step, gain, state.information, state.gradient)
