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


class _Guard:
    """Decides where to go next, so that the objective never falls but by rounding.

    The next point is, in this order of daring, extrapolated, the image of EM with expansion, or
    the plain image. Where the objective falls, the next less daring one is taken instead;
    expansion is then given up, since what it rests on does not hold (steep items at a grid's end,
    a parameter at its bound).
    """

    def __init__(self, problem: EMProblem, start: Array, settings: Settings):
        self.settings = settings
        self.expand = settings.expand
        self.jump = Extrapolation(problem.constraints.lower, problem.constraints.upper)
        self.jump.restart(start)
        self.best, self.kind = -np.inf, "plain"
        self.update: EMUpdate | None = None
        self.trace: list[float] = []

    def retreat(self, value: float) -> Array | None:
        """The point to go back to if ``value`` is a fall, else None."""
        if self.update is None or value >= self.best - self.settings.noise * abs(self.best):
            return None
        if self.kind == "jump":
            self.jump.rejected()
            self.kind, point = "expanded" if self.expand else "plain", self.update.params
        elif self.kind == "expanded":
            self.kind, self.expand, point = "plain", False, self.update.plain
        else:
            return None
        self.jump.restart(point)
        return point

    def advance(self, here: Array, value: float, update: EMUpdate, iteration: int) -> Array:
        """The next point after an accepted one."""
        self.trace.append(value)
        if self.kind == "jump":
            self.jump.restart(here)
        self.best, self.update = value, update
        if self.is_flat and self.expand:
            self.expand, self.kind = False, "plain"
            self.jump.restart(update.plain)
            return update.plain
        self.kind = "expanded" if self.expand else "plain"
        if self.settings.accelerate is None or iteration + 1 < self.settings.accelerate:
            self.jump.restart(update.params)
            return update.params
        point, jumped = self.jump.propose(update.params, update.metric)
        self.kind = "jump" if jumped else self.kind
        return point

    @property
    def is_flat(self) -> bool:
        """Whether the objective has only moved by rounding for a good while."""
        recent = self.trace[-FLAT_FOR:]
        spread = max(recent) - min(recent) if recent else np.inf
        return len(recent) == FLAT_FOR and spread <= self.settings.noise * abs(recent[-1])

    def verdict(self, step: float, gain: float) -> str:
        """Why the point just accepted is the last one; empty if it is not."""
        tolerance = self.settings.tolerance
        if step <= tolerance and gain <= 2 * tolerance:
            return f"Converged: the last step was {step:.1e} standard errors."
        if self.is_flat and step <= LOOSE * tolerance:
            return f"Converged: the log-posterior no longer changes (step {step:.1e})."
        return ""


def run_em(
    problem: EMProblem, state: EMState, settings: Settings, progress: Progress | None
) -> Ended:
    """Iterate the EM map to convergence.

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
    guard = _Guard(problem, state.params, settings)
    for iteration in range(settings.max_iterations):
        slack, n_steps = (
            (FIRST_SLACK, FIRST_NEWTON_STEPS) if iteration == 0 else (LATER_SLACK, NEWTON_STEPS)
        )
        update, belief = run_e_step(problem, state, slack, n_steps, guard.expand)
        value, step = _log_posterior(weights, belief, update), float(update.step)
        if not np.isfinite([value, step]).all():
            raise FloatingPointError(f"The log-posterior became {value} in iteration {iteration}.")
        back = guard.retreat(value)
        if back is not None:
            state = state._replace(params=back)
            continue
        point = guard.advance(state.params, value, update, iteration)
        if progress is not None:
            progress(iteration + 1, value, step)
        ended = Ended(state.params, belief, update, True, iteration + 1, "", np.array(guard.trace))
        if message := guard.verdict(step, float(update.gain)):
            return ended._replace(message=message)
        moments = np.asarray(belief.mean, float), np.asarray(belief.sd, float)
        state = EMState(point, *moments)
    return ended._replace(
        converged=False,
        n_iterations=settings.max_iterations,
        message=f"Not converged: the step was still {step:.1e} standard errors after "
        f"{settings.max_iterations} iterations. Raise max_iterations.",
    )
