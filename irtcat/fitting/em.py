"""Marginal maximum likelihood by EM (Bock & Aitkin 1981), with parameter expansion.

In each iteration the latent mean and SD are estimated along with the items and at once removed
by rescaling the items (parameter expansion: Liu, Rubin & Wu 1998), which takes the number of
iterations from 50-100 to about five on long tests. Where a slope or an intercept has a prior,
the mean and SD are chosen to maximise what the posterior is worth *including* the prior of the
rescaled items, so that the step stays an ascent and its fixed point stays the maximum (an ECM
step). On top of that the parameters are extrapolated (SQUAREM: Varadhan & Roland 2008) whenever
the objective does not fall.
"""

import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from irtcat._types import FloatArray
from irtcat.fitting._mstep import Constraints, log_prior, m_step
from irtcat.models import ItemModel, pack, unpack
from irtcat.scoring import Blocks, EStep, LayoutPlan, e_step

__all__ = ["EMProblem", "EMState", "Extrapolation", "em_map", "run_e_step"]


class EMProblem(NamedTuple):
    """All that stays the same from one iteration to the next.

    Attributes:
        cls: the item model that is iterated (a Rasch model is fitted as its 1PL).
        x: responses, rows x items.
        weights: how many subjects each row stands for.
        gaps: whether any response is missing.
        constraints: priors, fixed parameters, bounds.
        tied: columns of the parameters that all items share.
        plan: makes the blocks of subjects.
        dtype: working precision.
    """

    cls: type[ItemModel]
    x: Array
    weights: Float[Array, " rows"]
    gaps: bool
    constraints: Constraints
    tied: tuple[int, ...]
    plan: LayoutPlan
    dtype: np.dtype


class EMState(NamedTuple):
    """What the next iteration needs.

    Attributes:
        params: unconstrained parameters, items x params.
        mean: each row's posterior mean as last seen (places the local nodes).
        sd: each row's posterior SD as last seen.
    """

    params: Array
    mean: FloatArray
    sd: FloatArray


class EMUpdate(NamedTuple):
    """One application of the EM map.

    Attributes:
        params: the image of the parameters.
        step: how far the map moved, in standard errors of the complete data (items, and the
            latent mean and SD that were removed).
        gain: what the Newton step is predicted to add to the log-posterior.
        metric: weight of each parameter in the extrapolation's norm.
        log_prior: log-density of the priors at the parameters the map was applied to.
        latent: mean and SD of the abilities under the posterior (1 and 0 at the maximum).
    """

    params: Array
    step: Array
    gain: Array
    metric: Array
    log_prior: Array
    latent: Array


def _latent_step(
    cls: type[ItemModel],
    params: Array,
    mean: Array,
    variance: Array,
    n: Array,
    constraints: Constraints,
) -> tuple[Array, Array]:
    """The latent mean and log SD that are worth most, priors of the rescaled items included."""
    free = jnp.stack([mean, 0.5 * jnp.log(variance)])

    def worth(point: Array) -> Array:
        mu, log_sd = point
        spread = variance + (mean - mu) ** 2
        rescaled = pack(unpack(cls, params).rescale(mu, jnp.exp(log_sd)))
        off = rescaled - constraints.prior_mean
        penalty = 0.5 * (constraints.prior_precision * off**2).sum()
        return -n * log_sd - 0.5 * n * spread * jnp.exp(-2 * log_sd) - penalty

    def body(_: Array, state: tuple[Array, Array, Array]) -> tuple[Array, Array, Array]:
        best, value, damping = state
        gradient, hessian = jax.grad(worth)(best), jax.hessian(worth)(best)
        scale = jnp.abs(jnp.diagonal(hessian))
        matrix = -hessian + damping * jnp.diag(scale)
        det = matrix[0, 0] * matrix[1, 1] - matrix[0, 1] ** 2
        swap = jnp.stack(
            [
                matrix[1, 1] * gradient[0] - matrix[0, 1] * gradient[1],
                matrix[0, 0] * gradient[1] - matrix[0, 1] * gradient[0],
            ]
        )
        candidate = best + jnp.where(det > 0, swap / det, gradient / (scale + 1e-6))
        new = worth(candidate)
        up = new >= value
        return (
            jnp.where(up, candidate, best),
            jnp.where(up, new, value),
            jnp.where(up, 0.1 * damping, 10 * damping + 1.0),
        )

    still = jnp.zeros_like(free)
    start = jnp.where(worth(free) >= worth(still), free, still)
    best, _, _ = jax.lax.fori_loop(0, 6, body, (start, worth(start), jnp.zeros_like(n)))
    return best[0], best[1]


@functools.partial(
    jax.jit, static_argnames=("cls", "tied", "window", "gaps", "expand", "scale_priors")
)
def em_map(
    params: Array,
    x: Array,
    weights: Array,
    wide: Blocks | None,
    narrow: Blocks | None,
    constraints: Constraints,
    n_steps: Array,
    *,
    cls: type[ItemModel],
    tied: tuple[int, ...],
    window: int,
    gaps: bool,
    expand: bool = True,
    scale_priors: bool = True,
) -> tuple[EMUpdate, EStep]:
    """One EM iteration: E-step, M-step, and the latent scale removed.

    Args:
        params: unconstrained parameters, items x params.
        x: responses.
        weights: how many subjects each row stands for.
        wide: see `irtcat.scoring.e_step`.
        narrow: likewise.
        constraints: priors, fixed parameters, bounds.
        n_steps: Newton steps of the M-step.
        cls: the item model's class.
        tied: columns all items share.
        window: see `irtcat.scoring.e_step`.
        gaps: whether any response is missing.
        expand: whether to estimate and remove the latent mean and SD (parameter expansion).
        scale_priors: whether any slope or intercept has a prior.

    Returns:
        The update, and the E-step at ``params``.
    """
    model = unpack(cls, params)
    belief = e_step(model, x, weights, wide, narrow, window=window, gaps=gaps)
    new = m_step(cls, params, belief.counts, belief.totals, constraints, tied, n_steps)
    n = weights.sum()
    centre = (weights * belief.mean).sum() / n
    variance = (weights * (belief.sd**2 + (belief.mean - centre) ** 2)).sum() / n
    latent = jnp.stack([centre, jnp.sqrt(variance)])
    image, step = new.params, new.step
    if expand:
        if scale_priors:
            mu, log_sd = _latent_step(cls, image, centre, variance, n, constraints)
        else:
            mu, log_sd = centre, 0.5 * jnp.log(variance)
        image = pack(unpack(cls, image).rescale(mu, jnp.exp(log_sd)))
        image = jnp.clip(image, constraints.lower, constraints.upper)
        step = jnp.maximum(
            step, jnp.sqrt(n) * jnp.maximum(jnp.abs(mu), jnp.sqrt(2) * jnp.abs(log_sd))
        )
    metric = jnp.diagonal(new.information, axis1=1, axis2=2)
    prior = log_prior(params, constraints).sum()
    return EMUpdate(image, step, new.gain, metric, prior, latent), belief


def run_e_step(problem: EMProblem, state: EMState, slack: float, n_steps: int, expand: bool):
    """Lay the subjects out by what is known of them and apply `em_map`."""
    layout = problem.plan.layout(state.mean, state.sd, slack)
    return em_map(
        state.params,
        problem.x,
        problem.weights,
        layout.wide,
        layout.narrow,
        problem.constraints,
        jnp.int32(n_steps),
        cls=problem.cls,
        tied=problem.tied,
        window=layout.window,
        gaps=problem.gaps,
        expand=expand,
        scale_priors=_has_scale_priors(problem),
    )


def _has_scale_priors(problem: EMProblem) -> bool:
    """Whether a prior sits on a parameter that rescaling the ability would change."""
    n_params = problem.constraints.prior_mean.shape[1]
    probe = problem.cls(*np.ones((n_params, 1)))
    rescaled = probe.rescale(np.array(0.5), np.array(2.0))  # type: ignore[arg-type]
    moved = [bool((leaf != 1).any()) for leaf in jax.tree.leaves(rescaled)]
    return bool((np.asarray(problem.constraints.prior_precision) > 0)[:, moved].any())


@jax.jit
def _jump_length(x0: Array, x1: Array, x2: Array, metric: Array) -> Array:
    """Ratio of the first difference to the second."""
    first, second = x1 - x0, (x2 - x1) - (x1 - x0)
    return jnp.sqrt((metric * first**2).sum() / jnp.maximum((metric * second**2).sum(), 1e-30))


@jax.jit
def _jump(x0: Array, x1: Array, x2: Array, length: float, lower: Array, upper: Array) -> Array:
    """The extrapolated point, within the bounds."""
    first, second = x1 - x0, (x2 - x1) - (x1 - x0)
    return jnp.clip(x0 + 2 * length * first + length**2 * second, lower, upper)


class Extrapolation:
    """SQUAREM over the EM map, with the caller guarding the objective.

    Two images ``x1 = F(x0)``, ``x2 = F(x1)`` give ``x0 + 2 s r + s^2 v`` with r = x1 - x0,
    v = (x2 - x1) - r and s = |r| / |v|, in the metric of the complete-data information.
    """

    def __init__(self, lower: Array, upper: Array):
        self.lower, self.upper = lower, upper
        self.points: list[Array] = []
        self.longest = 4.0

    def propose(self, image: Array, metric: Array) -> tuple[Array, bool]:
        """Take the newest image; give the next point and whether it is extrapolated."""
        self.points.append(image)
        if len(self.points) < 3:
            return image, False
        x0, x1, x2 = self.points
        length = float(_jump_length(x0, x1, x2, metric))
        self.points = []
        if length <= 1.0:
            self.points = [x2]
            return x2, False
        if length > self.longest:
            length, self.longest = self.longest, self.longest * 4
        return _jump(x0, x1, x2, length, self.lower, self.upper), True

    def restart(self, point: Array) -> None:
        """Begin a new cycle at ``point``."""
        self.points = [point]

    def rejected(self) -> None:
        """The last proposal lowered the objective: be more careful."""
        self.longest = max(1.5, self.longest / 2)
