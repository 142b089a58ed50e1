"""Point estimates of ability: ML, MAP and Warm's WLE, by a grid search and Newton steps.

Likelihoods of items with asymptotes can have several maxima, and a root finder may converge to any
of them. So the objective is first evaluated on a grid over the whole range; the neighbours of its
best node bracket the global optimum, which safeguarded Newton steps then find to machine precision.

Far from all items the objective is flat to rounding, and many nodes tie for the maximum. The
bracket then spans all of them, and the sign of the slope decides, which is exact where the
objective is not: every slope is a sum of the answers' slopes (`ItemModel.log_outcomes`).
"""

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from irtcat._common.argmax import first_best
from irtcat._common.compilation import jit
from irtcat._common.types import FloatArray
from irtcat.latent import mixture_log_density
from irtcat.models import ItemModel, in_precision, steepest_slope
from irtcat.scoring.posteriors import padded, row_blocks

CELLS, MOST_CELLS = 240, 7680
"""Cells of the grid: default, and maximum where items are steep."""

STEEPEST_CELL = 2.0
"""Maximum change of an item's log-odds within a cell."""

CELLS_PER_SD = 8.0
"""Minimum number of cells in an SD of the narrowest part of a prior that is a mixture, so that the
heights of its peaks on the grid are exact to .002."""

NEWTON_STEPS, MOST_STEPS = 14, 40
"""Newton steps: within two cells, and where many nodes tie."""

SETTLED = 4.0
"""Newton steps end when no row of a block moves by more than this many rounding errors: after 4 to
6 of them, WLE after 2 (of 14)."""

CROSSING_NODES = 7
"""Nodes of the inverse interpolation that begins Newton's steps of Warm's WLE."""

ROUNDING = 8.0
"""Differences of the objective below this many times its rounding error count as zero."""

FARTHER = (10.0, 1e2, 1e3, 1e4)
"""Distances beyond the bounds that are searched where the likelihood is flat within them."""


class PointEstimate(NamedTuple):
    """Point estimates of all rows.

    Attributes:
        theta: the estimate, within the bounds.
        information: curvature of the maximised objective at it (prior or weight included).
        expected: expected information of the answered items at it.
        lower: least node of the grid whose objective is within the given drop of the maximum.
        upper: greatest such node.
        tied: whether many nodes tie for the maximum, and the estimate lies between them.
        flat: whether all nodes tie, and no slope says on which side the maximum is.
    """

    theta: Float[Any, " rows"]
    information: Float[Any, " rows"]
    expected: Float[Any, " rows"]
    lower: Float[Any, " rows"]
    upper: Float[Any, " rows"]
    tied: Bool[Any, " rows"]
    flat: Bool[Any, " rows"]


def _item_terms(
    item: ItemModel, theta: Array, with_warm: bool
) -> tuple[Array, Array, Array, Array | None]:
    """Outcome curves of one item, their derivative, Fisher information and Warm's J.

    With contrasts eta and their statistics' covariance V, I = eta' V eta'. Warm's
    J = sum P' P'' / P is I' - eta' V eta'': for an exponential family the derivative of I holds
    the third moment that J is made of. J takes one derivative more than the others, and is computed
    only on request.
    """

    def outcomes(t: Array) -> Array:
        return item.log_outcomes(t[None])

    def contrasts(t: Array) -> Array:
        return item.natural(t[None])[1:]

    def information(t: Array) -> Array:
        slope = _slope(contrasts, t)[1]
        return slope @ item.variance(t[None]) @ slope

    if item.has_categories:  # P'' / P = (log P)'' + (log P)'^2 spares a derivative
        if not with_warm:
            log_p, d1 = _slope(outcomes, theta)
            return log_p, d1, (jnp.exp(log_p) * d1**2).sum(), None
        # `jacfwd` inside `jvp`: the fastest compiled program of these nestings.
        log_p, (d1, d2) = outcomes(theta), _slope(jax.jacfwd(outcomes), theta)
        p = jnp.exp(log_p)
        return log_p, d1, (p * d1**2).sum(), (p * d1 * (d2 + d1**2)).sum()
    log_p, d1 = _slope(outcomes, theta)
    if not with_warm:
        return log_p, d1, information(theta), None
    info, rate = _slope(information, theta)
    (_, slope), (_, bend) = _slope(functools.partial(_slope, contrasts), theta)
    return log_p, d1, info, rate - slope @ item.variance(theta[None]) @ bend


def _slope(curve: Callable[[Array], Any], theta: Array) -> tuple[Any, Any]:
    """A function of ability and its derivative, by one pass."""
    return jax.jvp(curve, (theta,), (jnp.ones_like(theta),))


def bias_slope(warm: Array, information: Array) -> Array:
    """Warm's J / (2 I); 0 where no item informs."""
    informs = information > 0
    return jnp.where(informs, warm / (2 * jnp.where(informs, information, 1.0)), 0.0)


def _outcomes(
    model: ItemModel, x: Array, n_contrasts: int, dtype: np.dtype
) -> tuple[Float[Array, "rows items outcomes"], Float[Array, "rows items"]]:
    """Weight of each response in the outcome curves, and in the information; 0 where missing."""
    statistics, mask = model.sufficient_statistics(x, n_contrasts, True, dtype)
    assert mask is not None  # requested above
    return jnp.moveaxis(model.outcomes(statistics, mask), 0, -1), mask


@functools.partial(jit, static_argnames=("kind", "n_cells"))
def _estimate(
    model: ItemModel,
    x: Array,
    rows: Array,
    bounds: Float[Array, " two"],
    prior: Float[Array, "..."],
    drop: Float[Array, ""],
    kind: str,
    n_cells: int,
) -> PointEstimate:
    """Estimates of all rows, block by block."""
    dtype, weighted = bounds.dtype, kind == "wle"
    settled = SETTLED * jnp.finfo(dtype).eps
    grid = jnp.linspace(bounds[0], bounds[1], n_cells + 1)
    step = grid[1] - grid[0]

    def log_prior(theta: Array) -> Array:
        if prior.ndim == 1:
            return -0.5 * ((theta - prior[0]) / prior[1]) ** 2
        return mixture_log_density(theta, prior)

    def prior_slope(theta: Array) -> Array:
        if prior.ndim == 1:
            return (prior[0] - theta) / prior[1] ** 2
        return _slope(log_prior, theta)[1]

    def item_terms(theta: Array, with_warm: bool) -> tuple[Array, Array, Array, Array | None]:
        return jax.vmap(lambda item: _item_terms(item, theta, with_warm))(model)

    def gradient(theta: Array, terms: Any, shares: Array, answered: Array) -> Array:
        """Derivative of the objective of one row, by the items' terms at the ability."""
        _, slope, info, warm = terms
        score = (shares * slope).sum()
        if weighted:
            return score + bias_slope((answered * warm).sum(), (answered * info).sum())
        return score + prior_slope(theta) if kind == "map" else score

    @jax.vmap
    def derivatives(theta: Array, shares: Array, answered: Array) -> tuple[Array, Array]:
        def at(t: Array) -> Array:
            return gradient(t, item_terms(t, weighted), shares, answered)

        return jax.jvp(at, (theta,), (jnp.ones_like(theta),))

    def expected(theta: Array, answered: Array) -> Array:
        return (answered * item_terms(theta, False)[2]).sum()

    on_grid = jax.vmap(lambda t: item_terms(t, weighted))
    curves, d1, info, warm = tables = on_grid(grid)
    ends = grid[::n_cells]
    at_ends = jax.tree.map(lambda array: array[::n_cells], tables) if weighted else on_grid(ends)
    gradients = jax.vmap(jax.vmap(gradient, (0, 0, None, None)), (None, None, 0, 0))
    n_contrasts = curves.shape[-1] - 1

    def block(rows: Array) -> PointEstimate:
        safe = jnp.minimum(rows, x.shape[0] - 1)
        shares, answered = _outcomes(model, x[safe], n_contrasts, dtype)
        if warm is None:
            objective = jnp.einsum("rjk,gjk->rg", shares, curves)
            if kind == "map":
                objective = objective + log_prior(grid)
        else:
            slope = jnp.einsum("rjk,gjk->rg", shares, d1)
            slope = slope + bias_slope(answered @ warm.T, answered @ info.T)
            cells = 0.5 * step * (slope[:, 1:] + slope[:, :-1])
            objective = jnp.concatenate([jnp.zeros_like(cells[:, :1]), jnp.cumsum(cells, 1)], 1)
        first, last = tied_nodes(objective)
        at_least, at_most = _ends(objective >= objective.max(axis=1, keepdims=True) - drop)
        g_low, g_high = gradients(ends, at_ends, shares, answered).T
        down, up = (first == 0) & (g_low <= 0), (last == n_cells) & (g_high >= 0)
        both, higher = down & up, objective[:, -1] > objective[:, 0]
        flat = both & (g_low == 0) & (g_high == 0) & (answered > 0).any(axis=1)
        upper = up & ~(both & (g_low < 0) & ((g_high == 0) | ~higher))
        lower = down & ~upper
        tied = (last - first > 2) & ~lower & ~upper
        middle = (first + last) // 2
        known = jnp.select([flat, upper, lower], [middle, n_cells, 0], -1)
        low = grid[jnp.where(known < 0, jnp.maximum(first - 1, 0), known)]
        high = grid[jnp.where(known < 0, jnp.minimum(last + 1, n_cells), known)]
        start = grid[jnp.where(known < 0, middle, known)]
        if warm is not None:
            start = jnp.where(known < 0, _crossing(slope, grid, middle), start)
        n_steps = jnp.where(tied.any(), MOST_STEPS, NEWTON_STEPS)

        def polish(state: tuple[Array, ...]) -> tuple[Array, ...]:
            """A Newton step kept inside a bracket that shrinks with every evaluation."""
            number, theta, low, high = state[:4]
            g, slope = derivatives(theta, shares, answered)
            low, high = jnp.where(g >= 0, theta, low), jnp.where(g <= 0, theta, high)
            new = theta - g / jnp.where(slope < 0, slope, -1e-30)
            # Across nodes that tie, Newton steps are far too short or too long.
            near = high - low <= 2.5 * step
            inside = (new >= low) & (new <= high) & (slope < 0) & near
            return number + 1, jnp.where(inside, new, 0.5 * (low + high)), low, high, theta, -slope

        def goes_on(state: tuple[Array, ...]) -> Array:
            number, new, _, _, theta, _ = state
            moves = jnp.abs(new - theta) > settled * (1 + jnp.abs(theta))
            return (number == 0) | ((number <= n_steps) & moves.any())

        # The last step evaluates the estimate.
        begin: Any = (jnp.int32(0), start, low, high, start, start)
        theta, information = jax.lax.while_loop(goes_on, polish, begin)[4:]
        # As near a bound as estimates settle is at it.
        near = jnp.abs(theta[:, None] - ends) <= settled * (1 + jnp.abs(ends))
        theta = jnp.where(near[:, 0], ends[0], jnp.where(near[:, 1], ends[1], theta))
        fisher, lower, upper = jax.vmap(expected)(theta, answered), grid[at_least], grid[at_most]
        return PointEstimate(theta, information, fisher, lower, upper, tied=tied, flat=flat)

    return jax.tree.map(jnp.concatenate, jax.lax.map(block, rows))


def _ends(inside: Array) -> tuple[Array, Array]:
    """First and last marked node of each row."""
    marks = inside.astype(jnp.float32)
    return first_best(marks), inside.shape[1] - 1 - first_best(marks[:, ::-1])


def tied_nodes(objective: Float[Array, "rows nodes"]) -> tuple[Array, Array]:
    """First and last node of those next to each other that tie for the maximum, to rounding."""
    rounding = ROUNDING * float(jnp.finfo(objective.dtype).eps)
    exact = rounding * jnp.abs(objective).max(axis=1, keepdims=True)
    ties = objective >= objective.max(axis=1, keepdims=True) - exact
    first, last = _ends(ties)
    # Separate maxima do not tie.
    best, together = first_best(objective), ties.sum(axis=1) == last - first + 1
    return jnp.where(together, first, best), jnp.where(together, last, best)


def _crossing(slope: Float[Array, "rows nodes"], grid: Array, node: Array) -> Float[Array, " rows"]:
    """Where the slope is 0 within a cell of a node, by inverse interpolation; else that node.

    Neville's scheme of the abilities as a polynomial in the slopes, which has its value at 0.
    """
    rows, n = jnp.arange(len(node))[:, None], CROSSING_NODES
    index = jnp.clip(node - n // 2, 0, len(grid) - n)[:, None] + np.arange(n)
    at, root = slope[rows, index], grid[index]
    for k in range(1, n):
        left, right = at[:, :-k], at[:, k:]
        root = (right * root[:, :-1] - left * root[:, 1:]) / (right - left)
    found, cell = root[:, 0], grid[1] - grid[0]
    return jnp.where(jnp.abs(found - grid[node]) <= cell, found, grid[node])


def _n_cells(model: ItemModel, bounds: tuple[float, float], narrowest: float) -> int:
    """Cells of the grid: more where items or a prior are so steep that they change within one."""
    step = (bounds[1] - bounds[0]) / CELLS
    change = max(steepest_slope(model) * step / STEEPEST_CELL, CELLS_PER_SD * step / narrowest)
    finer = 2 ** int(np.ceil(np.log2(max(change, 1.0))))
    return int(min(CELLS * finer, MOST_CELLS))


def point_estimates(
    model: ItemModel,
    x: np.ndarray,
    kind: str,
    bounds: tuple[float, float],
    prior: FloatArray,
    drop: float,
    dtype: np.dtype,
) -> PointEstimate:
    """ML, MAP or WLE of every row.

    Args:
        model: stacked items on the bank's scale.
        x: responses.
        kind: "ml", "map" or "wle".
        bounds: range of the estimates.
        prior: population mean and SD (used by "map"), or three rows: the means, SDs and shares of
            the Normal distributions that make up a density or mixture.
        drop: fall of the objective from its maximum that ``lower`` and ``upper`` allow.
        dtype: working precision (must match the precision context).

    Returns:
        The estimates, in float64. Where the objective is flat within the bounds, its maximum is
        searched beyond them, and the estimate is the bound on its side.
    """
    n_rows = len(x)
    model, x = padded(model, x)
    items, answers = in_precision(model, dtype), jnp.asarray(x)
    narrowest = float(prior[1].min()) if prior.ndim > 1 else np.inf

    def within(low: float, high: float) -> PointEstimate:
        n_cells = _n_cells(model, (low, high), narrowest)
        rows = jnp.asarray(row_blocks(len(x), max(8 * x.shape[1], n_cells), dtype.itemsize))
        numbers = (jnp.asarray(value, dtype) for value in ((low, high), prior, drop))
        out = _estimate(items, answers, rows, *numbers, kind=kind, n_cells=n_cells)
        return PointEstimate(*(np.asarray(array)[:n_rows] for array in out))

    out = within(*bounds)
    theta, flat = out.theta.astype(float), out.flat
    for farther in FARTHER:
        if not flat.any():
            break
        beyond = within(bounds[0] - farther, bounds[1] + farther)
        theta = np.where(flat & ~beyond.flat, np.clip(beyond.theta, *bounds), theta)
        flat = flat & beyond.flat
    arrays = (np.asarray(array, float) for array in out[1:5])
    return PointEstimate(*(theta, *arrays, out.tied, flat))
