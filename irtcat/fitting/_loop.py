"""The driver of EM: owns the loop, the guard of the objective and the reasons to stop."""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from jaxtyping import Array

from irtcat._types import FloatArray
from irtcat.fitting.em import EMProblem, EMState, EMUpdate, Extrapolation, run_e_step
from irtcat.scoring import EStep

__all__ = ["Ended", "Progress", "Settings", "run_em"]

Progress = Callable[[int, float, float], None]
"""Called with the iteration, the log-posterior and the step in standard errors."""

FIRST_SLACK, LATER_SLACK = 0.3, 0.05
FIRST_NEWTON_STEPS, NEWTON_STEPS = 4, 2
FLAT_FOR, LOOSE = 12, 20


class Settings(NamedTuple):
    """When to stop, and how to step.

    Attributes:
        tolerance: converged when the largest change of an item's parameters is below this many
            standard errors (of the complete data) and the step promises less than twice this
            in log-posterior.
        max_iterations: number of E-steps at most.
        accelerate: first iteration that may extrapolate; None never does.
        expand: whether the latent mean and SD are estimated and removed.
        noise: relative fall of the objective that is rounding.
    """

    tolerance: float
    max_iterations: int
    accelerate: int | None
    expand: bool
    noise: float


class Ended(NamedTuple):
    """Where the loop stopped: parameters, their E-step, and why."""

    params: Array
    belief: EStep
    update: EMUpdate
    converged: bool
    n_iterations: int
    message: str
    trace: FloatArray


def _log_posterior(weights: FloatArray, belief: EStep, update: EMUpdate) -> float:
    """Marginal log-likelihood plus log-prior, summed in float64."""
    return float(weights @ np.asarray(belief.log_z, float)) + float(update.log_prior)


def _is_flat(trace: list[float], noise: float) -> bool:
    """Whether the objective has only moved by rounding for a good while."""
    recent = trace[-FLAT_FOR:]
    return len(recent) == FLAT_FOR and max(recent) - min(recent) <= noise * abs(recent[-1])


def run_em(
    problem: EMProblem, state: EMState, settings: Settings, progress: Progress | None
) -> Ended:
    """Iterate the EM map to convergence.

    An extrapolated point whose objective is below the last one's is given up and the plain
    image taken instead, so the objective never falls but by rounding.

    Args:
        problem: what is fitted.
        state: where to begin.
        settings: when to stop.
        progress: told of every iteration.

    Returns:
        The last point evaluated, with its E-step.

    Raises:
        FloatingPointError: when the objective is not finite.
    """
    weights = np.asarray(problem.weights, float)
    jump = Extrapolation(problem.constraints.lower, problem.constraints.upper)
    jump.restart(state.params)
    best, fallback, jumped = -np.inf, state.params, False
    trace: list[float] = []
    expand = settings.expand
    for iteration in range(settings.max_iterations):
        first = iteration == 0
        update, belief = run_e_step(
            problem,
            state,
            FIRST_SLACK if first else LATER_SLACK,
            FIRST_NEWTON_STEPS if first else NEWTON_STEPS,
            expand,
        )
        value, step = _log_posterior(weights, belief, update), float(update.step)
        if not np.isfinite([value, step]).all():
            raise FloatingPointError(f"The log-posterior became {value} in iteration {iteration}.")
        if jumped and value < best - settings.noise * abs(best):
            jump.rejected()
            jump.restart(fallback)
            state, jumped = state._replace(params=fallback), False
            continue
        # Abilities at the grid's end break the invariance that the expansion rests on; plain EM
        # is an ascent there too.
        expand = expand and value >= best - settings.noise * abs(value)
        trace.append(value)
        if progress is not None:
            progress(iteration + 1, value, step)
        if step <= settings.tolerance and float(update.gain) <= 2 * settings.tolerance:
            return Ended(
                state.params,
                belief,
                update,
                True,
                iteration + 1,
                f"Converged: the last step was {step:.1e} standard errors.",
                np.array(trace),
            )
        if _is_flat(trace, settings.noise) and step <= LOOSE * settings.tolerance:
            message = f"Converged: the log-posterior no longer changes (step {step:.1e})."
            return Ended(
                state.params, belief, update, True, iteration + 1, message, np.array(trace)
            )
        best, fallback = value, update.params
        if jumped:
            jump.restart(state.params)
        if settings.accelerate is not None and iteration + 1 >= settings.accelerate:
            point, jumped = jump.propose(update.params, update.metric)
        else:
            point, jumped = update.params, False
            jump.restart(point)
        moments = np.asarray(belief.mean, float), np.asarray(belief.sd, float)
        state = EMState(point, *moments)
    return Ended(
        state.params if jumped else fallback,
        belief,
        update,
        False,
        settings.max_iterations,
        f"Not converged: the step was still {step:.1e} standard errors after "
        f"{settings.max_iterations} iterations. Raise max_iterations.",
        np.array(trace),
    )
