"""Stochastic ascent of the evidence lower bound: batches, steps, and when to stop."""

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
from irtcat.fitting.vi.elbo import Cells, expected_cells, expected_rows, prior_and_entropy
from irtcat.fitting.vi.guide import Chart, Guide, NormalPrior, moved_guide
from irtcat.models import ItemModel

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


class Ascent(NamedTuple):
    """Result of the ascent.

    Attributes:
        guide: the average of the last round's iterates.
        elbo: its bound over all data.
        ending: how it ended (see `climb`); its trace has the average bound of each round.
    """

    guide: Guide
    elbo: float
    ending: Ending


def _expected(problem: Problem, guide: Guide, at: Array) -> Array:
    """Expected log-likelihood of one batch."""
    template, chart, batches = problem.template, problem.chart, problem.batches
    if isinstance(batches, Rows):
        rows, weight = batches.rows[at], batches.weight[at]
        return expected_rows(template, guide, chart, batches.x, rows, weight, problem.has_missing)
    return expected_cells(template, guide, chart, jax.tree.map(lambda leaf: leaf[at], batches))


def _prior_and_entropy(problem: Problem, guide: Guide) -> Array:
    """The part of the bound that does not depend on the responses."""
    return prior_and_entropy(
        guide, problem.chart, problem.prior, problem.learned, problem.theta_learned
    )


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
        return _prior_and_entropy(problem, moved_guide(guide, problem.chart, move[0], move[1]))

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
        return -n_batches * _expected(problem, here, at) - _prior_and_entropy(problem, here)

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

    numbers = jnp.arange(problem.n_batches)
    fit = jax.lax.scan(add, jnp.zeros((), guide.theta.dtype), numbers)[0]
    return fit + _prior_and_entropy(problem, guide)


def climb(
    problem: Problem,
    guide: Guide,
    rate: float,
    steps: int,
    tolerance: float,
    seed: int,
    progress: Callable[[int, float, float], None] | None,
) -> Ascent:
    """Climb the bound by Adam, in rounds of whole passes over the data.

    The rate is in units of the guide's own SDs. When a round's average bound is less than 1 (or
    less than the tolerance) above the one before, the rate is divided by 4; the ascent has
    converged when that happens at a rate below 0.01 with a gain below the tolerance.

    Args:
        problem: the bound to maximise.
        guide: the starting point.
        rate: first learning rate.
        steps: maximum number of steps.
        tolerance: gain in the bound over a round that counts as zero.
        seed: seed of the order of the batches.
        progress: called after every round with the steps so far, the bound and the rate; when it
            raises StopIteration the ascent ends.

    Returns:
        The last round's average guide.

    Raises:
        FloatingPointError: when the bound is not finite even at the smallest rate.
    """
    key = jax.random.key(seed)
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

    ending = iterate(take, -(-steps // per_round), report)
    if ending.outcome is Outcome.OUT_OF_ITERATIONS:
        ending = ending._replace(outcome=Outcome.OUT_OF_STEPS)
    ending = ending._replace(n_iterations=ending.n_iterations * per_round)
    return Ascent(average, float(bound_of(problem, average)), ending)
