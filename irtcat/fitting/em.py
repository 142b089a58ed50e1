"""Marginal maximum likelihood by EM (Bock & Aitkin 1981), with parameter expansion.

In each iteration the latent mean and SD are estimated along with the items and at once removed
by rescaling the items (parameter expansion: Liu, Rubin & Wu 1998), which takes the number of
iterations from 50-100 to about five on long tests. That holds where model and priors do not mind
the rescaling; with priors on slopes or intercepts it is plain EM. In both cases the parameters are
extrapolated (SQUAREM: Varadhan & Roland 2008) as long as the objective does not fall.
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
        item_weights: 1 for the items that abilities are estimated from, 0 for the others.
        gaps: whether any response is missing.
        constraints: priors, fixed parameters, bounds.
        tied: columns of the parameters that all items share.
        plan: makes the blocks of subjects.
        dtype: working precision.
    """

    cls: type[ItemModel]
    x: Array
    weights: Float[Array, " rows"]
    item_weights: Float[Array, " items"]
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
        plain: the image without parameter expansion (the same where there is none).
        step: how far the map moved, in standard errors of the complete data (items, and the
            latent mean and SD that were removed).
        gain: what the Newton step is predicted to add to the log-posterior.
        metric: weight of each parameter in the extrapolation's norm.
        log_prior: log-density of the priors at the parameters the map was applied to (items of
            weight 1).
        latent: mean and SD of the abilities under the posterior (1 and 0 at the maximum).
    """

    params: Array
    plain: Array
    step: Array
    gain: Array
    metric: Array
    log_prior: Array
    latent: Array


@functools.partial(jax.jit, static_argnames=("cls", "tied", "window", "gaps"))
def em_map(
    params: Array,
    x: Array,
    weights: Array,
    item_weights: Array,
    wide: Blocks | None,
    narrow: Blocks | None,
    constraints: Constraints,
    n_steps: Array,
    expand: Array,
    *,
    cls: type[ItemModel],
    tied: tuple[int, ...],
    window: int,
    gaps: bool,
) -> tuple[EMUpdate, EStep]:
    """One EM iteration: E-step, M-step, and the latent scale removed.

    Args:
        params: unconstrained parameters, items x params.
        x: responses.
        weights: how many subjects each row stands for.
        item_weights: see `irtcat.scoring.e_step`.
        wide: see `irtcat.scoring.e_step`.
        narrow: likewise.
        constraints: priors, fixed parameters, bounds.
        n_steps: Newton steps of the M-step.
        expand: whether to estimate and remove the latent mean and SD (parameter expansion).
        cls: the item model's class.
        tied: columns all items share.
        window: see `irtcat.scoring.e_step`.
        gaps: whether any response is missing.

    Returns:
        The update, and the E-step at ``params``.
    """
    model = unpack(cls, params)
    belief = e_step(model, x, weights, item_weights, wide, narrow, window=window, gaps=gaps)
    new = m_step(
        cls, params, belief.counts, belief.totals, constraints, item_weights, tied, n_steps
    )
    n = weights.sum()
    centre = (weights * belief.mean).sum() / n
    variance = (weights * (belief.sd**2 + (belief.mean - centre) ** 2)).sum() / n
    latent = jnp.stack([centre, jnp.sqrt(variance)])
    mu = jnp.where(expand, centre, 0.0)
    log_sd = jnp.where(expand, 0.5 * jnp.log(variance), 0.0)
    image = pack(unpack(cls, new.params).rescale(mu, jnp.exp(log_sd)))
    image = jnp.clip(image, constraints.lower, constraints.upper)
    moved = jnp.maximum(jnp.abs(mu), jnp.sqrt(2) * jnp.abs(log_sd))
    step = jnp.maximum(new.step, jnp.sqrt(n) * moved)
    metric = jnp.diagonal(new.information, axis1=1, axis2=2)
    prior = (item_weights * log_prior(params, constraints)).sum()
    return EMUpdate(image, new.params, step, new.gain, metric, prior, latent), belief


def run_e_step(problem: EMProblem, state: EMState, slack: float, n_steps: int, expand: bool):
    """Lay the subjects out by what is known of them and apply `em_map`."""
    layout = problem.plan.layout(state.mean, state.sd, slack)
    return em_map(
        state.params,
        problem.x,
        problem.weights,
        problem.item_weights,
        layout.wide,
        layout.narrow,
        problem.constraints,
        jnp.int32(n_steps),
        jnp.asarray(expand),
        cls=problem.cls,
        tied=problem.tied,
        window=layout.window,
        gaps=problem.gaps,
    )


@jax.jit
def _jump_length(x0: Array, x1: Array, x2: Array, metric: Array) -> Array:
    """Ratio of the first difference to the second."""
    first, second = x1 - x0, (x2 - x1) - (x1 - x0)
    return jnp.sqrt((metric * first**2).sum() / jnp.maximum((metric * second**2).sum(), 1e-30))


@jax.jit
def _jump(
    x0: Array, x1: Array, x2: Array, length: Array | float, lower: Array, upper: Array
) -> Array:
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
