"""The marginal likelihood of horizons: answers, lengths of tasks, residual difficulties.

Subject m solves task i, of slope a_i and log2 length L_i, with probability

    sigmoid(a_i (theta_m - beta (L_i - M) - w_i)),    w_i = v_f(i) + u_i,

where M is the mean length, v_f ~ N(0, rho s^2) is shared by the tasks of a family, and u_i ~ N(0,
(1 - rho) s^2) is the task's own: the typical task that it solves with probability 1/2 has the log2
length M + theta_m / beta. Where
a length is known with an error, L_i is its mean given what was observed, and ``beta^2 V_i`` is
added to the variance of u_i. Repeated trials of a cell are beta-binomial: they may agree more than
the cell's probability says. Both integrals are sums over one grid of w (the trapezoidal rule, whose
error falls exponentially with the number of nodes for such smooth functions).
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array
from scipy.optimize import brentq, minimize
from scipy.special import logit

from irtcat._common.compilation import jit
from irtcat._common.precision import precision
from irtcat._common.types import BoolArray, FloatArray, IntArray

REACH = 5.0
"""The grid of residual difficulties reaches so many SDs to each side."""

MIN_NODES, MAX_NODES = 41, 201
"""Bounds of the number of nodes of that grid."""

STEP = 1.3
"""Distance of the nodes in SDs of a task's posterior: the error of the sums is then about 1e-5."""

USUAL_SD, USUAL_SLOPE = 1.5, 0.5
"""SD of residual difficulties and fall per doubling, in logits, where the search begins."""

SHARED = ("slope", "log_sd", "logit_share", "log_agreement")
"""Parameters after those of the subjects: beta, s, rho, and the excess agreement of trials."""

BOUNDS = {
    "slope": (-5.0, 5.0),
    "log_sd": (np.log(0.1), np.log(8.0)),
    "logit_share": (-3.0, 3.0),
    "log_agreement": (np.log(1e-3), np.log(5.0)),
}
"""Bounds; beyond those of the share one of the two distributions is narrower than the grid."""

CERTAIN = 40.0
"""Ability, in logits, of subjects that solved all tasks (less it, of those that solved none)."""

DIFFERENCE = 1e-4
"""Step of the differences of the gradient."""

SMALLEST = 1e-300
"""Added to sums of probabilities, whose logarithm would be infinite where they underflow."""

BLOCK = 32
"""Tasks that are computed together: memory is this times subjects times nodes."""


class Tasks(NamedTuple):
    """Answers and what is known of the tasks.

    Attributes:
        right: subjects x tasks, number of successes.
        trials: subjects x tasks, number of trials; 0 where missing.
        slopes: of the tasks, in logits per unit of ability.
        lengths: log2 lengths, or their means given what was observed.
        variances: variance of the log2 length given what was observed.
        families: number of the family of each task; None if tasks are independent.
    """

    right: FloatArray
    trials: FloatArray
    slopes: FloatArray
    lengths: FloatArray
    variances: FloatArray
    families: IntArray | None


@dataclass(frozen=True, eq=False)
class HorizonFit:
    """The maximum of the likelihood.

    Attributes:
        abilities: theta; infinite where a subject solved all tasks, minus infinite where none.
        limits: of these subjects, the ability with which their answers have the probability of the
            tail (the finite end of their interval); NaN for the others.
        centre: the mean length M.
        shared: the parameters in `SHARED` by name; -inf for those that the data do not have.
        covariance: of the abilities and then of these parameters; 0 where one is at a bound.
        mean: posterior mean of each task's residual difficulty w.
        variance: its posterior variance.
        converged: whether the search ended at a maximum.
    """

    abilities: FloatArray
    limits: FloatArray
    centre: float
    shared: dict[str, float]
    covariance: FloatArray
    mean: FloatArray
    variance: FloatArray
    converged: bool


def fit_horizons(tasks: Tasks, tail: float = 0.025) -> HorizonFit:
    """Maximise the likelihood.

    Args:
        tasks: the data; every subject has tried a task.
        tail: probability of the answers of subjects that solved all tasks, or none, at the limit of
            their abilities.
    """
    n = len(tasks.right)
    n_tasks = tasks.right.shape[1]
    tasks, centre = _padded(tasks), float(tasks.lengths.mean())
    variances, which = np.unique(tasks.variances, return_inverse=True)
    has_families, most = tasks.families is not None, int(tasks.trials.max())
    families = np.arange(len(which)) if tasks.families is None else tasks.families
    static = (int(families.max()) + 1, has_families, most, _n_nodes(tasks))
    present = ["slope", "log_sd"]
    present += ["logit_share"] * has_families + ["log_agreement"] * (most > 1)
    with precision("float64"):
        answers, lengths = (tasks.right.T, tasks.trials.T), tasks.lengths - centre
        columns = (*answers, tasks.slopes, lengths, variances, which, families)
        data = tuple(map(jnp.asarray, columns))
        solved, tried = tasks.right.sum(axis=1), tasks.trials.sum(axis=1)
        extreme = np.where(solved == tried, 1, np.where(solved == 0, -1, 0))
        start, bounds = _start(tasks, extreme, present)

        def evaluate(x: FloatArray) -> tuple[float, FloatArray]:
            value, (gradient, _, _) = _value_and_gradient(x, data, *static)
            return float(value), np.asarray(gradient)

        found = minimize(
            evaluate,
            start,
            jac=True,
            method="L-BFGS-B",
            bounds=bounds,
            options={"maxiter": 500, "ftol": 1e-11, "gtol": 1e-5, "maxcor": 20},
        )
        x = found.x
        low, high = np.array(bounds).T
        inside = (x > low + 1e-6) & (x < high - 1e-6)
        hessian = _hessian(lambda x: evaluate(x)[1], x, inside)
        covariance = np.zeros((len(x), len(x)))
        covariance[np.ix_(inside, inside)] = np.linalg.pinv(hessian, hermitian=True)
        definite = bool(np.linalg.eigvalsh(hessian)[0] > 0)
        _, first, second = _value_and_gradient(x, data, *static)[1]
        mean, square = -np.asarray(first), -np.asarray(second)
        limits = np.full(n, np.nan)
        for row in np.flatnonzero(extreme):
            limits[row] = _limit(x, int(row), tail, data, static)
    return HorizonFit(
        abilities=np.where(extreme == 0, x[:n], np.copysign(np.inf, extreme)),
        limits=limits,
        centre=centre,
        shared=dict.fromkeys(SHARED, -np.inf) | dict(zip(present, x[n:].tolist(), strict=True)),
        covariance=covariance,
        mean=mean[:n_tasks],
        variance=np.maximum(square - mean**2, 0.0)[:n_tasks],
        converged=bool(found.success) and definite,
    )


def _hessian(
    gradient: Callable[[FloatArray], FloatArray], x: FloatArray, inside: BoolArray
) -> FloatArray:
    """Second derivatives in these parameters, by differences of the gradient.

    An exact program takes seconds to compile; with this step the error is about 1e-7.
    """
    rows = []
    for at in np.flatnonzero(inside):
        step = np.zeros(len(x))
        step[at] = DIFFERENCE
        rows.append((gradient(x + step) - gradient(x - step))[inside] / (2 * DIFFERENCE))
    matrix = np.array(rows)
    return (matrix + matrix.T) / 2


def _padded(tasks: Tasks) -> Tasks:
    """With tasks that nobody tried, up to a multiple of `BLOCK`: their likelihood is 1."""
    extra = -len(tasks.slopes) % BLOCK
    return Tasks(
        right=np.pad(tasks.right, ((0, 0), (0, extra))),
        trials=np.pad(tasks.trials, ((0, 0), (0, extra))),
        slopes=np.pad(tasks.slopes, (0, extra), constant_values=1.0),
        lengths=np.pad(tasks.lengths, (0, extra), mode="mean"),
        variances=np.pad(tasks.variances, (0, extra), mode="minimum"),
        families=None if tasks.families is None else np.pad(tasks.families, (0, extra)),
    )


def _n_nodes(tasks: Tasks) -> int:
    """Nodes that resolve the posterior of the task with the most answers, half of them certain."""
    information = float((tasks.trials.sum(axis=0) * tasks.slopes**2).max()) / 8
    width = 2 * REACH * USUAL_SD
    return int(np.clip(1 + width * np.sqrt(information) / STEP, MIN_NODES, MAX_NODES))


def _start(
    tasks: Tasks, extreme: IntArray, present: list[str]
) -> tuple[FloatArray, list[tuple[float, float]]]:
    """Where the search begins, and the bounds; subjects without a finite horizon stay at one."""
    scale = float(np.exp(np.log(tasks.slopes).mean()))
    share = (tasks.right.sum(axis=1) + 0.5) / (tasks.trials.sum(axis=1) + 1)
    # The curve of the mean success is flatter than that of a task: by about this factor.
    spread = np.sqrt(1 + 0.3 * (USUAL_SD**2 + USUAL_SLOPE**2 * tasks.lengths.var()))
    abilities = np.where(extreme == 0, spread * logit(share), extreme * CERTAIN) / scale
    reach = CERTAIN / scale
    bounds = [
        (-reach, reach) if sign == 0 else (value, value)
        for sign, value in zip(extreme, abilities.tolist(), strict=True)
    ]
    usual = {
        "slope": USUAL_SLOPE / scale,
        "log_sd": np.log(USUAL_SD / scale),
        "logit_share": -0.5,
        "log_agreement": np.log(0.1),
    }
    of_scale = {
        "slope": tuple(end / scale for end in BOUNDS["slope"]),
        "log_sd": tuple(end - np.log(scale) for end in BOUNDS["log_sd"]),
    }
    bounds += [{**BOUNDS, **of_scale}[name] for name in present]
    return np.concatenate([abilities, [usual[name] for name in present]]), bounds


def _limit(
    x: FloatArray,
    row: int,
    tail: float,
    data: tuple[Array, ...],
    static: tuple[int, bool, int, int],
) -> float:
    """The ability of a subject with which its answers have this probability, given all others'."""

    def excess(ability: float) -> float:
        moved = x.copy()
        moved[row] = ability
        lost = float(_value_and_gradient(moved, data, *static)[0]) - certain
        return -lost - float(np.log(tail))

    certain = float(_value_and_gradient(x, data, *static)[0])
    return float(brentq(excess, x[row], -x[row], xtol=1e-3))


def _negative_log_likelihood(
    x: Array,
    first: Array,
    second: Array,
    data: tuple[Array, ...],
    n_families: int,
    has_families: bool,
    most: int,
    n_nodes: int,
) -> Array:
    """Minus the log-likelihood.

    ``first`` and ``second`` (tasks) are 0: the derivatives in them are minus the posterior means of
    w and of w squared.
    """
    right, trials, slopes, lengths, variances, which, family = data
    n = right.shape[1]
    abilities, slope, sd = x[:n], x[n], jnp.exp(x[n + 1])
    share = jax.nn.sigmoid(x[n + 2]) if has_families else 0.0
    agreement = jnp.exp(x[n + 2 + has_families]) if most > 1 else 0.0
    widest = jnp.sqrt(sd**2 + slope**2 * variances.max())
    w = widest * jnp.linspace(-REACH, REACH, n_nodes)
    v = w if has_families else jnp.zeros(1)
    own = (1 - share) * sd**2 + slope**2 * variances
    distance = (w[None, None, :] - v[None, :, None]) ** 2 / own[:, None, None]
    kernels = jax.nn.softmax(-distance / 2, axis=-1)

    def of_task(task: tuple[Array, ...]) -> Array:
        """Log-likelihood of a task's answers at each v."""
        k, n_trials, a, length, kind, one, two = task
        eta = a * ((abilities - slope * length)[:, None] - w)
        log_likelihood = _log_likelihood(eta, k, n_trials, agreement, most)
        log_likelihood = log_likelihood + one * w + two * w**2
        top = log_likelihood.max()
        return jnp.log(kernels[kind] @ jnp.exp(log_likelihood - top) + SMALLEST) + top

    columns = (right, trials, slopes, lengths, which, first, second)
    blocks = tuple(column.reshape(-1, BLOCK, *column.shape[1:]) for column in columns)
    by_task = jax.lax.map(jax.checkpoint(jax.vmap(of_task)), blocks).reshape(-1, len(v))
    if not has_families:
        return -by_task.sum()
    by_family = jax.ops.segment_sum(by_task, family, n_families)
    log_weights = jax.nn.log_softmax(-(v**2) / (2 * share * sd**2))
    return -jax.nn.logsumexp(by_family + log_weights, axis=1).sum()


def _log_likelihood(eta: Array, k: Array, n: Array, agreement: Array | float, most: int) -> Array:
    """Log-probability of a task's answers by all subjects at each node, without constants.

    The beta-binomial probability of a sequence with k successes in n trials is the product of ``p +
    j c`` over j < k, of ``1 - p + j c`` over j < n - k, over that of ``1 + j c`` over j < n.
    """
    first = (k >= 1)[:, None] * jax.nn.log_sigmoid(eta)
    first = first + (n - k >= 1)[:, None] * jax.nn.log_sigmoid(-eta)
    total = first.sum(axis=0)
    if most == 1:
        return total
    p = jax.nn.sigmoid(eta)

    def add(sum_so_far: Array, j: Array) -> tuple[Array, None]:
        more = (k > j)[:, None] * jnp.log(p + j * agreement)
        more = more + (n - k > j)[:, None] * jnp.log(1 - p + j * agreement)
        more = more - (n > j)[:, None] * jnp.log(1 + j * agreement)
        return sum_so_far + more.sum(axis=0), None

    return jax.lax.scan(add, total, jnp.arange(1.0, most))[0]


STATIC = ("n_families", "has_families", "most", "n_nodes")


@partial(jit, static_argnames=STATIC)
def _value_and_gradient(
    x: Array, data: tuple[Array, ...], n_families: int, has_families: bool, most: int, n_nodes: int
) -> tuple[Array, tuple[Array, Array, Array]]:
    """Minus the log-likelihood, its gradient, and minus the posterior means of w and its square."""
    zeros = jnp.zeros(len(data[0]))
    static = (n_families, has_families, most, n_nodes)
    derivatives = jax.value_and_grad(_negative_log_likelihood, (0, 1, 2))
    return derivatives(x, zeros, zeros, data, *static)
