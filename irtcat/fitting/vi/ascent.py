"""The evidence lower bound of batches, and its stochastic ascent: steps, and when to stop.

Nothing is sampled: expectations over an item's parameters are cubatures of degree 5. There are two
methods for the expected log-likelihood:

* rows: the expected curves of all items on a grid of abilities, one matrix product with the
  responses (as in the E-step of EM), and Gauss-Hermite on nodes of each subject, interpolated;
* cells: single (subject, item, response) triples, so that missing responses cost nothing, with
ability as a further dimension of the cubature.
"""

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from irtcat._common.compilation import jit
from irtcat.fitting.outcome import Ending, Outcome, Step, iterate
from irtcat.fitting.solvers import VI
from irtcat.fitting.vi.guide import (
    Chart,
    Guide,
    NormalPrior,
    cubature,
    guide_entropy,
    item_factors,
    item_points,
    learned_log_prior,
    moved_guide,
    normal_log_prior,
    param_columns,
)
from irtcat.latent import rows_on_device
from irtcat.latent.likelihood import Curves, grid_nodes, item_curves, log_likelihood
from irtcat.latent.line import LIMIT, N_NODES, SPACING, STENCIL
from irtcat.models import ItemModel, unpack

ROW_NODES = 9
"""Gauss-Hermite nodes over each subject's guide."""


class Cells(NamedTuple):
    """Observed responses one by one.

    Attributes:
        subject: row number.
        item: column number.
        value: the response, 0 to 1.
        weight: 1, or 0 for a filler.
    """

    subject: Int[Array, "*cells"]
    item: Int[Array, "*cells"]
    value: Float[Array, "*cells"]
    weight: Float[Array, "*cells"]


def _expected_curves(template: ItemModel, guide: Guide, chart: Chart, nodes: Array) -> Curves:
    """`natural` of all items at the nodes, expected over the items' guides."""
    points, weights = cubature(guide.mean.shape[1])
    dtype = guide.mean.dtype
    params = item_points(guide, chart, jnp.asarray(points, dtype))

    def add(total: Curves, point: tuple[Array, Array]) -> tuple[Curves, None]:
        curves = item_curves(unpack(template, point[0]), nodes)
        return jax.tree.map(lambda t, c: t + point[1] * c, total, curves), None

    shape = jax.eval_shape(lambda p: item_curves(unpack(template, p), nodes), params[0])
    empty = jax.tree.map(lambda s: jnp.zeros(s.shape, s.dtype), shape)
    step = jax.checkpoint(add)  # keeps memory at one point's curves
    return jax.lax.scan(step, empty, (params, jnp.asarray(weights, dtype)))[0]


def expected_rows(
    template: ItemModel,
    guide: Guide,
    chart: Chart,
    x: Array,
    rows: Int[Array, " rows"],
    weight: Float[Array, " rows"],
    has_missing: bool,
) -> Float[Array, ""]:
    """Expected log-likelihood of the responses of some subjects."""
    dtype = guide.mean.dtype
    centre, scale = _population(guide)
    curves = _expected_curves(template, guide, chart, centre + scale * grid_nodes(dtype))
    statistics, mask = template.sufficient_statistics(
        x[rows], curves.contrast.shape[0], has_missing, dtype
    )
    table = log_likelihood(statistics, mask, curves)
    nodes, weights = np.polynomial.hermite_e.hermegauss(ROW_NODES)
    z, w = jnp.asarray(nodes, dtype), jnp.asarray(weights / weights.sum(), dtype)
    theta = guide.theta[rows][:, None] + jnp.exp(guide.log_sd[rows])[:, None] * z
    u = ((theta - centre) / scale + LIMIT) / SPACING
    u = jnp.clip(u, 0, N_NODES - 1)
    first = jnp.clip(jnp.floor(u).astype(jnp.int32) - 3, 0, N_NODES - STENCIL)
    stencil = _stencil(u - first)
    index = first[..., None] + jnp.arange(STENCIL, dtype=jnp.int32)
    at = jnp.take_along_axis(table, index.reshape(len(rows), -1), axis=1).reshape(index.shape)
    return weight @ ((at * stencil).sum(-1) @ w)


def _stencil(v: Float[Array, "*points"]) -> Float[Array, "*points stencil"]:
    """Lagrange weights of the nodes 0..7 that interpolate at ``v``, as polynomials in v - 3.5.

    Written as one product, so that its derivative compiles quickly.
    """
    middle = (STENCIL - 1) / 2
    nodes = np.arange(STENCIL) - middle
    coefficients = np.linalg.inv(np.vander(nodes, increasing=True))
    power, powers = jnp.ones_like(v), []
    for _ in range(STENCIL):
        powers.append(power)
        power = power * (v - middle)
    return jnp.stack(powers, -1) @ jnp.asarray(coefficients, v.dtype)


def _population(guide: Guide) -> tuple[Array, Array]:
    """Mean and SD of ability over the subjects, posterior variance included; no gradient."""
    theta, log_sd = jax.lax.stop_gradient((guide.theta, guide.log_sd))
    centre = theta.mean()
    return centre, jnp.sqrt(((theta - centre) ** 2 + jnp.exp(2 * log_sd)).mean())


def expected_cells(
    template: ItemModel, guide: Guide, chart: Chart, cells: Cells
) -> Float[Array, ""]:
    """Expected log-likelihood of some responses, ability and item integrated together."""
    dtype = guide.mean.dtype
    n = guide.mean.shape[1]
    mean, factor = item_factors(guide, chart)
    # Parameters first: arrays with the few parameters on the last axis are slow.
    at, below = mean.T[:, cells.item], jnp.moveaxis(factor, 0, -1)[..., cells.item]
    theta, sd = guide.theta[cells.subject], jnp.exp(guide.log_sd[cells.subject])

    def add(total: Array, point: tuple[Array, Array]) -> tuple[Array, None]:
        z, weight = point
        u = [at[p] + sum(below[p, r] * z[r + 1] for r in range(p + 1)) for p in range(n)]
        value = _cell_values(template, chart, param_columns(chart, u), theta + sd * z[0], cells)
        return total + weight * (value @ cells.weight), None

    points = tuple(jnp.asarray(array, dtype) for array in cubature(n + 1))
    # One point at a time, with the gradient's intermediates recomputed, so that all stays in cache.
    return jax.lax.scan(jax.checkpoint(add), jnp.zeros((), dtype), points)[0]


def _cell_values(
    template: ItemModel, chart: Chart, columns: list[Array], theta: Array, cells: Cells
) -> Float[Array, " cells"]:
    """Log-probability of every response."""
    if template.closed_form == "logistic":  # several times faster than the general case
        eta = columns[chart.slope] * theta + columns[chart.intercept]
        return cells.value * eta - jnp.maximum(eta, 0) - jnp.log1p(jnp.exp(-jnp.abs(eta)))
    if template.has_logistic_link:  # likewise
        eta = columns[chart.slope] * theta + columns[chart.intercept]
        logits = [z for p, z in enumerate(columns) if p not in (chart.slope, chart.intercept)]
        up = jax.nn.log_sigmoid(eta)
        wrong, right = template.link.between(up - eta, up, logits)  # type: ignore[attr-defined]
        return wrong + cells.value * (right - wrong)

    def one(item: ItemModel, phi: Array, theta: Array, value: Array) -> Array:
        natural = unpack(item, phi).natural(theta[None])
        return natural[0] + value * natural[1]

    items = jax.tree.map(lambda leaf: leaf[cells.item], template)
    return jax.vmap(one)(items, jnp.stack(columns, -1), theta, cells.value)


SHRINK, SMALLEST_RATE = 0.25, 0.01
"""Factor of the learning rate when a round gains too little, and the rate at which rounds end."""

STEPS_A_ROUND = 25
"""Minimum number of steps in a round; a round is a whole number of passes."""

MOMENTS = (0.9, 0.99)
"""Decay rates of Adam's two moments."""

LONGEST_SHIFT, PROBE, SMALLEST_CURVATURE = 0.5, 0.1, 0.5
"""Newton steps on the latent scale: maximum length, difference step, minimum curvature."""


class Rows(NamedTuple):
    """Batches of whole subjects.

    Attributes:
        x: responses of all subjects.
        rows: row numbers, batches x rows.
        weight: 1, or 0 for a filler.
    """

    x: Array
    rows: Int[Array, "batches rows"]
    weight: Float[Array, "batches rows"]


@functools.partial(
    jax.tree_util.register_dataclass,
    data_fields=("template", "batches", "prior"),
    meta_fields=("chart", "learned", "theta_learned", "has_missing"),
)
@dataclass(frozen=True)
class Problem:
    """Everything that is constant during the ascent; all but the first three is static.

    Attributes:
        template: the items (their own parameters do not matter).
        batches: responses of whole subjects, or cells (batches x cells).
        prior: of the items' coordinates.
        chart: the mapping of the coordinates.
        learned: coordinates whose prior's mean and precision are estimated.
        theta_learned: likewise for ability.
        has_missing: whether any response is missing.
    """

    template: ItemModel
    batches: Rows | Cells
    prior: NormalPrior
    chart: Chart
    learned: tuple[int, ...]
    theta_learned: bool
    has_missing: bool

    @property
    def n_batches(self) -> int:
        """Number of batches in a pass over the data."""
        return int(self.batches.weight.shape[0])


def _expected(problem: Problem, guide: Guide, at: Array) -> Array:
    """Expected log-likelihood of one batch."""
    template, chart, batches = problem.template, problem.chart, problem.batches
    if isinstance(batches, Rows):
        rows, weight = batches.rows[at], batches.weight[at]
        return expected_rows(template, guide, chart, batches.x, rows, weight, problem.has_missing)
    return expected_cells(template, guide, chart, jax.tree.map(lambda leaf: leaf[at], batches))


def prior_and_entropy(problem: Problem, guide: Guide) -> Float[Array, ""]:
    """Minus the Kullback-Leibler terms of the bound: expected log-priors, and the entropy."""
    chart, prior = problem.chart, problem.prior
    mean, factor = item_factors(guide, chart)
    variance = (factor**2).sum(-1)
    theta_variance = jnp.exp(2 * guide.log_sd)
    if problem.theta_learned:
        total = learned_log_prior(guide.theta, theta_variance)[0]
    else:
        zero, one = jnp.zeros((), mean.dtype), jnp.ones((), mean.dtype)
        total = normal_log_prior(guide.theta, theta_variance, zero, one)
    for column in range(mean.shape[1]):
        rows = slice(1) if column in chart.tied else slice(None)
        moments = mean[rows, column], variance[rows, column]
        if column in problem.learned:
            total += learned_log_prior(*moments)[0]
        else:
            total += normal_log_prior(*moments, prior.mean[column], prior.sd[column])
    return total + guide_entropy(guide, chart)


def _unwhiten(centre: Guide, scale: Guide, v: Guide) -> Guide:
    return jax.tree.map(lambda c, s, d: c + s * d, centre, scale, v)


def _scales(guide: Guide) -> Guide:
    """Unit of each variational parameter: the guide's own SD for means, 1 for logarithms."""
    n = guide.mean.shape[1]
    sd = jnp.exp(jnp.minimum(jnp.diagonal(guide.factor, axis1=1, axis2=2), 1.0))
    off = jnp.where(jnp.eye(n, dtype=bool), 1.0, sd[..., None])
    return Guide(jnp.exp(guide.log_sd), jnp.ones_like(guide.log_sd), sd, off.astype(sd.dtype))


def _optimise_scale(problem: Problem, guide: Guide) -> Guide:
    """Move the latent scale to the optimum of the priors (parameter expansion).

    The likelihood does not change, so a few Newton steps on shift and log-scale, by differences,
    are cheap and follow the one direction in which gradient steps would be slow.
    """

    def bound(move: Array) -> Array:
        return prior_and_entropy(problem, moved_guide(guide, problem.chart, move[0], move[1]))

    dtype = guide.theta.dtype
    around = jnp.asarray([[0, 0], [1, 0], [0, 1], [-1, 0], [0, -1]], dtype) * PROBE

    def newton(_: Any, move: Array) -> Array:
        value = jax.lax.map(bound, move + around)
        up, here, down = value[1:3], value[0], value[3:5]
        curvature = jnp.maximum((2 * here - up - down) / PROBE**2, SMALLEST_CURVATURE)
        step = jnp.clip((up - down) / (2 * PROBE * curvature), -LONGEST_SHIFT, LONGEST_SHIFT)
        noise = 8 * jnp.finfo(dtype).eps * jnp.abs(here)
        return move + jnp.where(bound(move + step) > here + noise, step, 0.0)

    move = jax.lax.fori_loop(0, 4, newton, jnp.zeros(2, dtype))
    return moved_guide(guide, problem.chart, move[0], move[1])


def _optimiser(rate: Array | float) -> Any:
    import optax  # slow to import

    return optax.adam(rate, b1=MOMENTS[0], b2=MOMENTS[1])


@functools.partial(jit, static_argnames=("n_steps",))
def _round(
    problem: Problem, guide: Guide, state: Any, key: Array, rate: Array, *, n_steps: int
) -> tuple[Guide, Guide, Any, Array, Array]:
    """A round of steps in units of the guide's SDs; returns last and average iterate."""
    centre = _optimise_scale(problem, guide)
    scale = _scales(centre)
    n_batches = problem.n_batches
    passes = -(-n_steps // n_batches)
    orders = jax.vmap(lambda k: jax.random.permutation(k, n_batches))(jax.random.split(key, passes))

    def loss(v: Guide, at: Array) -> Array:
        here = _unwhiten(centre, scale, v)
        return -n_batches * _expected(problem, here, at) - prior_and_entropy(problem, here)

    def step(carry: tuple[Guide, Guide, Any], at: Array):
        v, average, state = carry
        value, gradient = jax.value_and_grad(loss)(v, at)
        update, state = _optimiser(rate).update(gradient, state)
        v = jax.tree.map(jnp.add, v, update)
        average = jax.tree.map(lambda a, b: a + b / n_steps, average, v)
        return (v, average, state), -value

    zero = jax.tree.map(jnp.zeros_like, centre)
    order = orders.reshape(-1)[:n_steps]
    (v, average, state), values = jax.lax.scan(step, (zero, zero, state), order)
    last, mean = (_unwhiten(centre, scale, value) for value in (v, average))
    moved = jnp.stack([jnp.isfinite(leaf).all() for leaf in jax.tree.leaves(v)])
    finite = jnp.isfinite(values).all() & moved.all()
    return last, mean, state, values.mean(), finite


@jit
def bound_of(problem: Problem, guide: Guide) -> Array:
    """The evidence lower bound of a guide over all data, batch by batch."""

    def add(total: Array, at: Array) -> tuple[Array, None]:
        return total + _expected(problem, guide, at), None

    fit = jax.lax.scan(add, jnp.zeros((), guide.theta.dtype), jnp.arange(problem.n_batches))[0]
    return fit + prior_and_entropy(problem, guide)


def climb(
    problem: Problem,
    guide: Guide,
    solver: VI,
    tolerance: float,
    progress: Callable[[int, float, float], None] | None,
) -> tuple[Guide, float, Ending]:
    """Climb the bound by Adam, in rounds of whole passes over the data.

    The rate is in units of the guide's own SDs. When a round's average bound is less than 1 (or
    less than the tolerance) above the one before, the rate is divided by 4; the ascent has
    converged when that happens at a rate below 0.01 with a gain below the tolerance.

    Args:
        problem: the bound to maximise.
        guide: the starting point.
        solver: first learning rate, maximum number of steps, seed of the order of the batches.
        tolerance: gain in the bound over a round that counts as zero.
        progress: called after every round with the steps so far, the bound and the rate; when it
            raises StopIteration the ascent ends.

    Returns:
        The last round's average guide.

    Raises:
        FloatingPointError: when the bound is not finite even at the smallest rate.
    """
    key, rate = jax.random.key(solver.seed), solver.learning_rate
    per_round = problem.n_batches * max(1, -(-STEPS_A_ROUND // problem.n_batches))
    state, average, before = _optimiser(rate).init(guide), guide, -np.inf

    def take(number: int) -> Step | None:
        nonlocal guide, average, state, rate, before
        seed, dtype = jax.random.fold_in(key, number * per_round), guide.theta.dtype
        last, mean, new_state, bound, finite = _round(
            problem, guide, state, seed, jnp.asarray(rate, dtype), n_steps=per_round
        )
        if not bool(finite):
            if rate < SMALLEST_RATE:
                raise FloatingPointError("The evidence lower bound is not finite.")
            rate, state = rate * SHRINK, _optimiser(rate).init(guide)
            return None
        value = float(bound)
        gain, before = value - before, value
        guide, average, state = last, mean, new_state
        is_small = gain < max(1.0, tolerance)
        is_level = is_small and rate < SMALLEST_RATE and abs(gain) < tolerance
        rate = rate * SHRINK if is_small and rate >= SMALLEST_RATE else rate
        return Step(value, gain, Outcome.LEVEL_BOUND if is_level else None)

    def report(number: int, value: float, _: float) -> None:
        if progress is not None:
            progress(number * per_round, value, rate)

    ending = iterate(take, -(-solver.steps // per_round), report)
    if ending.outcome is Outcome.OUT_OF_ITERATIONS:
        ending = ending._replace(outcome=Outcome.OUT_OF_STEPS)
    ending = ending._replace(n_iterations=ending.n_iterations * per_round)
    return average, float(bound_of(problem, average)), ending


FULL_BATCH, BATCH = 2**22, 2**20
"""Responses are one batch up to the first number; beyond, a batch has the second number."""

SPARSE_SHARE, LONG_TEST = 0.03, 100
"""Batches are of responses below this share of observed cells, or for few subjects with this many
items; otherwise of subjects."""


def _in_batches(order: np.ndarray, size: int) -> tuple[np.ndarray, np.ndarray]:
    """Numbers in batches of this size, filled up with 0, and weights of 0 for what was added."""
    shape = -(-len(order) // size), size
    numbers, weight = np.zeros(shape, np.int32), np.zeros(shape)
    numbers.flat[: len(order)], weight.flat[: len(order)] = order, 1.0
    return numbers, weight


def _row_batches(x: np.ndarray, size: int | None, seed: int, dtype: np.dtype) -> Rows:
    """Batches of subjects; one batch where the responses are few."""
    n, n_items = x.shape
    if size is None:
        size = x.size if x.size <= FULL_BATCH else BATCH
    per_batch = int(np.clip(size // n_items, 1, n))
    order = np.arange(n) if per_batch == n else np.random.default_rng(seed).permutation(n)
    rows, weight = _in_batches(order, per_batch)
    return Rows(rows_on_device(x), jnp.asarray(rows), jnp.asarray(weight, dtype))


def _cell_batches(x: np.ndarray, size: int | None, seed: int, dtype: np.dtype) -> Cells:
    """Observed responses in random order."""
    observed = ~np.isnan(x) if x.dtype.kind == "f" else x >= 0
    subject, item = (indices.astype(np.int32) for indices in np.nonzero(observed))
    n = len(subject)
    if size is None:
        size = n if n <= FULL_BATCH else BATCH
    at, weight = _in_batches(np.random.default_rng(seed).permutation(n), min(size, n))
    subject, item = subject[at], item[at]
    value = jnp.asarray(x[subject, item], dtype)
    return Cells(jnp.asarray(subject), jnp.asarray(item), value, jnp.asarray(weight, dtype))


def _cells_are_cheaper(shape: tuple[int, ...], share: float, n_params: int) -> bool:
    """Whether curves on a grid cost more than single responses: few subjects, many items.

    The curves of batches of subjects cost the same for one subject as for many; on long tests the
    coarser cubature over ability is as exact, since posteriors are narrow.
    """
    cells = shape[0] * share * len(cubature(n_params + 1)[1])
    return shape[1] >= LONG_TEST and 2 * cells < N_NODES * len(cubature(n_params)[1])


def batches_of(
    x: np.ndarray, share: float, solver: VI, dtype: np.dtype, n_params: int
) -> Rows | Cells:
    """Batches of subjects or of responses, as set."""
    kind = solver.batches
    if kind == "auto":
        by_cells = share < SPARSE_SHARE or _cells_are_cheaper(x.shape, share, n_params)
        kind = "responses" if by_cells else "subjects"
    make = _cell_batches if kind == "responses" else _row_batches
    return make(x, solver.batch_size, solver.seed, dtype)
