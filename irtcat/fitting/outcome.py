"""The loop of all solvers, and how it ends: an outcome and its numbers."""

import enum
import itertools
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from irtcat._common.types import FloatArray
from irtcat.fitting.specification import Progress


class Outcome(enum.Enum):
    """How the iterations of a fit ended; the value is its sentence, with fields of `Ending`."""

    CONVERGED = "Converged: the last step was {size:.1e} standard errors."
    LEVEL = "Converged: the log-posterior no longer changes (step {size:.1e})."
    LEVEL_BOUND = "Converged: the last round gained {size:.1e} in the ELBO."
    OUT_OF_ITERATIONS = (
        "Not converged: the step was still {size:.1e} standard errors after {n_iterations} "
        "iterations. Raise max_iterations."
    )
    OUT_OF_STEPS = (
        "Not converged: the ELBO still gained {size:.1e} in the last round after {n_iterations} "
        "steps. Raise the solver's steps."
    )
    OUT_OF_ROUNDS = "Not converged: the regression on features still changed in the last round."
    INTERRUPTED = "Not converged: stopped by the caller after {n_iterations} steps."
    OFF_THE_GRID = (
        "Not converged: the log-likelihood is above 0, which is impossible for categories: "
        "a population or an item has moved beyond the quadrature grid. Keep the weak "
        "priors, or leave out items that a group answered alike."
    )
    TOO_NARROW = (
        "Not converged: the population of group {group!r} is narrower than the spacing of the "
        "quadrature nodes, so that the log-likelihood is not right. Keep the weak priors, "
        "or leave out items that a group answered alike."
    )
    TOO_COARSE = (
        "Not converged: the abilities correlate too strongly for the quadrature nodes after "
        "{n_iterations} iterations. Leave out nodes=, or let abilities that are one be one."
    )


class Ending(NamedTuple):
    """The end of a loop.

    Attributes:
        outcome: why it ended.
        n_iterations: number of iterations (`irtcat.VI`: of steps).
        size: of the last step, in standard errors (`irtcat.VI`: gain of the last round).
        trace: the objective after each iteration.
        group: label of the group that the outcome is about.
    """

    outcome: Outcome
    n_iterations: int
    size: float
    trace: FloatArray
    group: object = None

    @property
    def converged(self) -> bool:
        """Whether the estimates are those of the objective's maximum."""
        return self.outcome in (Outcome.CONVERGED, Outcome.LEVEL, Outcome.LEVEL_BOUND)

    @property
    def message(self) -> str:
        """The outcome in one sentence."""
        return self.outcome.value.format(**self._asdict())


class Step(NamedTuple):
    """What an iteration returns to the loop.

    Attributes:
        value: the objective.
        size: of the step; see `Ending`.
        outcome: the reason to end here; None to go on.
    """

    value: float
    size: float
    outcome: Outcome | None = None


def iterate(
    take: Callable[[int], Step | None],
    max_iterations: int,
    progress: Progress | None,
    first: int = 0,
    trace: Sequence[float] = (),
) -> Ending:
    """Take steps until one returns an outcome, or the caller or the number of iterations ends them.

    Args:
        take: takes the step of this number, counted from 0; None where it was taken back.
        max_iterations: maximum number of steps; one at least is kept.
        progress: called after every step that is kept; when it raises StopIteration the loop ends.
        first: number of the first step.
        trace: the objective after the steps before it.
    """
    values, step = list(trace), None
    for number in itertools.count(first):
        if number >= max_iterations and step is not None:
            return Ending(Outcome.OUT_OF_ITERATIONS, number, step.size, np.array(values))
        new = take(number)
        if new is None:
            continue
        step, outcome = new, new.outcome
        values.append(step.value)
        try:
            if progress is not None:
                progress(number + 1, step.value, step.size)
        except StopIteration:
            outcome = outcome or Outcome.INTERRUPTED
        if outcome is not None:
            return Ending(outcome, number + 1, step.size, np.array(values))
    raise AssertionError  # the count does not end


def check_finite(value: float, size: float, number: int) -> None:
    """Raise for an objective, or a step, that is not a number."""
    if not np.isfinite([value, size]).all():
        raise FloatingPointError(f"The objective became {value} in iteration {number}.")


def until_small(
    take: Callable[[], tuple[float, float]],
    tolerance: float,
    max_iterations: int,
    progress: Progress | None,
) -> Ending:
    """Take steps, each with its objective and its size, until one is within the tolerance."""

    def step(number: int) -> Step:
        value, size = take()
        check_finite(value, size, number)
        return Step(value, size, Outcome.CONVERGED if size <= tolerance else None)

    return iterate(step, max_iterations, progress)
