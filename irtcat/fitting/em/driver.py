"""The driver of EM: the loop, Anderson acceleration, the guard of the objective, stopping rules."""

import math
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any, NamedTuple

import numpy as np

from irtcat._common.checks import InputError
from irtcat._common.types import BoolArray, FloatArray
from irtcat.fitting.em.checkpoint import Checkpoint, Identity, Snapshot, digest
from irtcat.fitting.em.iteration import EMUpdate, em_step
from irtcat.fitting.em.m_step import Constraints, at_bounds
from irtcat.fitting.em.problem import EMPoint, EMState, Problem
from irtcat.fitting.em.rows import Rows
from irtcat.fitting.outcome import Ending, Outcome, Step, check_finite, iterate
from irtcat.fitting.solvers import EM
from irtcat.fitting.specification import Progress
from irtcat.latent import EStep, LayoutPlan

MEMORY = 6
"""Number of earlier steps that the extrapolation uses."""

CONTRACTING = 0.98
"""Where the squared step shrinks by less than this factor, it is stretched instead of mixed."""

LONGEST = 8.0
"""Maximum length of a stretched step beyond the image of EM, in steps."""

FARTHEST = 5.0
"""Maximum distance of a mixed step from the image of EM, in lengths of the newest step."""

STRONGEST = 100.0
"""Maximum damping: with it almost nothing of the mixing is left, and more takes long to undo."""

RIDGE = {"float64": 1e-10, "float32": 1e-5}
"""Ridge relative to the steps' lengths, for steps that are nearly collinear."""


class History(NamedTuple):
    """The last point's residual and image, and the changes of both in earlier iterations.

    ``steps`` (residuals) and ``moves`` (images) have one row per stored iteration.
    """

    residual: FloatArray
    image: FloatArray
    steps: FloatArray
    moves: FloatArray


def _flat(point: EMPoint) -> FloatArray:
    return np.concatenate([np.asarray(array, float).ravel() for array in point])


class Extrapolation:
    """Anderson acceleration of the EM map; the caller monitors the objective.

    With residuals f = image - point, the coefficients g minimise
    ``|f_last - sum_k g_k (f_k+1 - f_k)|`` in the metric of the complete-data information; the next
    point is ``image_last - sum_k g_k (image_k+1 - image_k)``, within the bounds.

    Where EM's steps do not get shorter (near a saddle, to which mixing would return), they are
    stretched instead: the length doubles each time that this raises the objective.

    References:
        Walker & Ni (2011), SIAM Journal on Numerical Analysis 49, 1715-1735; Henderson & Varadhan
        (2019), Journal of Computational and Graphical Statistics 28, 834-846 (for EM).
    """

    def __init__(self, constraints: Constraints):
        self.bounds = np.asarray(constraints.lower, float), np.asarray(constraints.upper, float)
        self.free = np.asarray(constraints.free)
        self.history: History | None = None
        self.damping, self.length, self.reach = 0.0, 1.0, FARTHEST

    def propose(self, point: EMPoint, image: EMPoint, metric: EMPoint) -> tuple[EMPoint, bool]:
        """Return the next point after one with this image, and whether it is extrapolated."""
        here, there, weight = _flat(point), _flat(image), _flat(metric)
        residual = there - here
        if self.history is None:
            none = np.zeros((0, len(here)))
            self.history = History(residual, there, none, none)
            return image, False
        before = float(weight @ self.history.residual**2)
        steps = np.vstack([self.history.steps, residual - self.history.residual])[-MEMORY:]
        moves = np.vstack([self.history.moves, there - self.history.image])[-MEMORY:]
        self.history = History(residual, there, steps, moves)
        if float(weight @ residual**2) >= CONTRACTING * before:
            new = there + self.length * residual
            self.length = min(2 * self.length, LONGEST)
        else:
            jump = -self._coefficients(weight, image.params.dtype.name) @ moves
            length = float(np.sqrt(weight @ jump**2))
            farthest = self.reach * float(np.sqrt(weight @ residual**2))
            if length > farthest:
                jump, self.reach = jump * (farthest / length), 2 * self.reach
            new = there + jump
        return self._point(new, image), True

    def _coefficients(self, weight: FloatArray, dtype: str) -> FloatArray:
        """Coefficients of the earlier moves that are subtracted."""
        assert self.history is not None
        steps = self.history.steps
        weighted = steps * weight
        gram = weighted @ steps.T
        scale = np.sqrt(np.maximum(np.diagonal(gram), 1e-30))
        ridge = max(self.damping, RIDGE[dtype]) * np.eye(len(scale))
        unit = gram / np.outer(scale, scale) + ridge
        return np.linalg.solve(unit, weighted @ self.history.residual / scale) / scale

    def _point(self, vector: FloatArray, like: EMPoint) -> EMPoint:
        """Undo `_flat`, free parameters within the bounds."""
        size = like.params.size
        params: Any = vector[:size].reshape(like.params.shape)
        params = np.where(self.free, np.clip(params, *self.bounds), params)
        population: Any = vector[size:].reshape(like.population.shape)
        dtype = like.params.dtype
        return EMPoint(params.astype(dtype), population.astype(dtype))

    def accepted(self) -> None:
        """The last proposal raised the objective: damp less."""
        self.damping *= 0.1

    def rejected(self) -> None:
        """The last proposal lowered the objective: damp more."""
        self.damping, self.length = min(max(10 * self.damping, 0.1), STRONGEST), 1.0
        self.reach = FARTHEST

    def restart(self) -> None:
        """Clear the history, because the map has changed."""
        self.history = None


TOLERANCE = {"float64": 1e-4, "float32": 5e-2}
"""Default tolerance, in standard errors."""

NOISE = {"float64": 1e-12, "float32": 1e-7}
"""Relative fall of the objective that counts as rounding."""

FIRST_JUMP = {"float64": 2, "float32": 6}
"""First iteration that may extrapolate."""

FIRST_SLACK, LATER_SLACK = 0.3, 0.05
"""Extra half-width of the nodes around each subject's last ability; the first ones are guesses."""

FIRST_NEWTON_STEPS, NEWTON_STEPS = 4, 2
"""Newton steps of the M-step; the first starts far from its maximum."""

FLAT_ITERATIONS, LOOSE = 6, 20
"""Number of flat iterations, and steps in tolerances, that also count as convergence."""

ROUNDING_MARGIN = 1e3
"""Gains below this many times the rounding error do not distinguish a better point."""


class Settings(NamedTuple):
    """Stopping rule and step options of EM.

    Attributes:
        tolerance: converged when the largest change of an item's parameters is below this many
            standard errors (of the complete data) and the step promises less than twice this
            in log-posterior.
        max_iterations: maximum number of E-steps, one accepted step at least.
        accelerate: first iteration that may extrapolate; None never does.
        expand: whether the latent mean and SD are estimated and removed.
        noise: relative fall of the objective that counts as rounding.
    """

    tolerance: float
    max_iterations: int
    accelerate: int | None
    expand: bool
    noise: float


def loop_settings(solver: EM, precision: str, expand: bool, noise: float = 0.0) -> Settings:
    """Settings of the loop in this precision; ``noise`` is a further error of the objective."""
    return Settings(
        tolerance=TOLERANCE[precision] if solver.tolerance is None else solver.tolerance,
        max_iterations=solver.max_iterations,
        accelerate=FIRST_JUMP[precision] if solver.accelerate else None,
        expand=expand,
        noise=max(NOISE[precision], noise),
    )


def named_settings(problem: Problem, settings: Settings, **named: Any) -> dict[str, Any]:
    """The settings of a fit that its checkpoint names where they differ."""
    named |= settings._asdict() | {"precision": str(problem.dtype)}
    del named["max_iterations"]
    return named


def checkpoint_of(
    problem: Problem, rows: Rows, solver: EM, settings: dict[str, Any], further: Any
) -> Checkpoint | None:
    """The checkpoint of a fit, if one is written.

    Args:
        problem: the problem.
        rows: its rows.
        solver: names the file.
        settings: those that are named where they differ.
        further: other arrays that the fit depends on.
    """
    if solver.checkpoint is None:
        return None
    data = problem.engine.data if problem.engine else digest(rows.x, rows.weights)
    # The rows of an engine differ between its processes, whose digests must not.
    group = None if problem.engine else rows.group
    arrays = problem.template, problem.item_weights, problem.constraints, problem.held, problem.tied
    identity = Identity(data, digest(arrays, group, further, problem.squares), settings)
    return Checkpoint(solver.checkpoint, solver.resume, identity)


class Ended(NamedTuple):
    """Result of the loop: the point, its E-step, and how it ended.

    ``at_bound`` marks the parameters that were at a bound there, on the scale of the iterations;
    ``note`` is a remark on the log-likelihood.
    """

    point: EMPoint
    belief: Any
    update: EMUpdate
    ending: Ending
    at_bound: BoolArray
    note: str = ""

    def log_likelihood(self, weights: FloatArray) -> float:
        """Marginal log-likelihood of rows with these weights, summed in float64."""
        return float(weights @ np.asarray(self.belief.log_z, float))


class _Images(NamedTuple):
    """The images of an update that the loop may return to."""

    point: EMPoint
    plain: EMPoint
    step: float


OF_GUARD, OF_JUMP = ("expand", "best", "kind", "measured_error"), ("damping", "length", "reach")
"""Numbers of a `_Guard`, and of its extrapolation, that a snapshot has."""


class _Guard:
    """Chooses the next point, so that the objective falls only by rounding.

    The candidates, from the most to the least aggressive, are the extrapolated point, the image of
    EM with expansion, and the plain image. Where the objective falls, the next candidate is taken
    instead; a fall after expansion disables it, since its assumptions do not hold (steep items at a
    grid's end, a parameter at its bound).

    A plain step of EM cannot lower the exact objective. Where it does, the fall is the error of the
    objective (of the integration, where items are steeper than the grid resolves), and smaller
    changes say nothing from then on.
    """

    def __init__(self, problem: Problem, start: EMPoint, settings: Settings):
        self.settings = settings
        self.plan: LayoutPlan | None = getattr(problem.rule, "plan", None)
        self.expand = settings.expand
        self.jump = Extrapolation(problem.constraints)
        self.best, self.kind = -np.inf, "plain"
        self.measured_error = 0.0
        self.update: EMUpdate | _Images | None = None
        self.trace: list[float] = []

    def retreat(self, value: float, step: float) -> EMPoint | None:
        """The point to return to if ``value`` is a fall, else None.

        Where the objective is level, an extrapolated point must also be nearer to a fixed point.
        """
        if self.update is None:
            return None
        rounding = self.settings.noise * abs(self.best)
        level = self.kind == "jump" and value < self.best + ROUNDING_MARGIN * rounding
        falls = value < self.best - rounding
        if not falls and not (level and step > float(self.update.step)):
            return None
        if self.kind == "jump":
            self.jump.rejected()
            self.kind = "expanded" if self.expand else "plain"
            return self.update.point
        if self.kind == "expanded":
            self.kind, self.expand = "plain", False
            self.jump.restart()
            return self.update.plain
        most = self.settings.tolerance
        self.measured_error = max(self.measured_error, min(self.best - value, most))
        return None

    def advance(self, here: EMPoint, value: float, update: EMUpdate, iteration: int) -> EMPoint:
        """The next point after an accepted one."""
        self.trace.append(value)
        self.best, self.update = value, update
        if self.kind == "jump":
            self.jump.accepted()
        if self.is_flat and self.expand:
            self.expand, self.kind = False, "plain"
            self.jump.restart()
            return update.plain
        self.kind = "expanded" if self.expand else "plain"
        if self.settings.accelerate is None or iteration + 1 < self.settings.accelerate:
            return update.point
        point, jumped = self.jump.propose(here, update.point, update.metric)
        self.kind = "jump" if jumped else self.kind
        return point

    def snapshot(self, iteration: int, state: EMState) -> Snapshot:
        """The state of the guard and of EM before the next iteration."""
        update = self.update
        images = [None, None] if update is None else [update.point, update.plain]
        numbers = {name: getattr(self, name) for name in OF_GUARD}
        numbers |= {name: getattr(self.jump, name) for name in OF_JUMP}
        numbers["step"] = None if update is None else float(update.step)
        numbers["nodes"] = None if self.plan is None else self.plan.n_nodes
        points = [state.point, *images]
        others = [state.mean, state.covariance, np.array(self.trace), *(self.jump.history or ())]
        return Snapshot(iteration, (points, others), numbers)

    def resume(self, snapshot: Snapshot) -> EMState:
        """Undo `snapshot`: restore the guard, and return the state of EM."""
        (point, image, plain), (mean, covariance, trace, *history) = snapshot.arrays
        numbers = snapshot.numbers
        for owner, names in ((self, OF_GUARD), (self.jump, OF_JUMP)):
            for name in names:
                setattr(owner, name, numbers[name])
        if self.plan is not None:
            self.plan.least_nodes = numbers["nodes"]
        self.jump.history = History(*history) if history else None
        self.update = None if image is None else _Images(image, plain, numbers["step"])
        self.trace = trace.tolist()
        return EMState(point, mean, covariance)

    @property
    def error(self) -> float:
        """Differences of the objective that are within its error."""
        return max(self.settings.noise * abs(self.best), self.measured_error)

    @property
    def is_flat(self) -> bool:
        """Whether the objective changed only by its error in the last iterations."""
        recent = self.trace[-FLAT_ITERATIONS:]
        return len(recent) == FLAT_ITERATIONS and max(recent) - min(recent) <= self.error

    def verdict(self, step: float, gain: float) -> Outcome | None:
        """The reason to stop at the point just accepted; None to continue."""
        tolerance = self.settings.tolerance
        if step <= tolerance and gain <= 2 * tolerance:
            return Outcome.CONVERGED
        if self.is_flat and step <= LOOSE * tolerance:
            return Outcome.LEVEL
        return None


def run_em(
    problem: Problem,
    state: EMState,
    settings: Settings,
    progress: Progress | None,
    checkpoint: Checkpoint | None = None,
    step_map: Callable[..., tuple[EMUpdate, EStep]] = em_step,
) -> Ended:
    """Iterate the EM map to convergence.

    Args:
        problem: the problem to fit.
        state: the first state.
        settings: stopping rule and step options.
        progress: called after every iteration.
        checkpoint: the file to which the state is written, and from which it may be restored.
        step_map: applies the EM map.

    Returns:
        The last point evaluated, with its E-step.

    Raises:
        FloatingPointError: when the objective is not finite.
        InputError: when the checkpoint belongs to another fit.
    """
    guard, first = _Guard(problem, state.point, settings), 0
    saved = None if checkpoint is None else checkpoint.restore(state.point)
    if checkpoint is not None and saved is not None:
        first, state = saved.iteration, guard.resume(saved)
        if first >= settings.max_iterations:
            raise InputError(
                f"{checkpoint.path}: this fit has already taken {first} iterations. "
                "Raise max_iterations to continue."
            )
    weights = np.asarray(problem.weights, float)
    reached: Any = None

    def take(iteration: int) -> Step | None:
        nonlocal state, reached
        slack, n_steps = (
            (FIRST_SLACK, FIRST_NEWTON_STEPS) if iteration == 0 else (LATER_SLACK, NEWTON_STEPS)
        )
        update, belief = step_map(problem, state, slack, n_steps, guard.expand)
        value = float(weights @ np.asarray(belief.log_z, float)) + float(update.log_prior)
        step = float(update.step)
        if guard.kind == "plain":
            check_finite(value, step, iteration)
        elif not math.isfinite(value + step):
            value = -math.inf  # a fall: the next candidate is taken
        back, here = guard.retreat(value, step), state.point
        if back is not None:
            state = state._replace(point=back)
        else:
            state = EMState.of(guard.advance(here, value, update, iteration), belief)
            reached = here, belief, update
        if checkpoint is not None:
            checkpoint.offer(guard.snapshot(iteration + 1, state))
        if back is not None:
            return None
        verdict = guard.verdict(step, float(update.gain))
        if problem.is_too_coarse is not None and problem.is_too_coarse(here.population):
            verdict = Outcome.TOO_COARSE
        return Step(value, step, verdict)

    with nullcontext() if checkpoint is None else checkpoint:
        if checkpoint is not None:
            checkpoint.offer(guard.snapshot(first, state))
        ending = iterate(take, settings.max_iterations, progress, first, guard.trace)
        if checkpoint is not None:
            (checkpoint.finish if ending.converged else checkpoint.keep)()
    point, belief, update = reached
    return Ended(point, belief, update, ending, at_bounds(point.params, problem.constraints))
