"""The program of the standard errors, compiled while the iterations' program is.

Without compiled programs on disk, the first fit of a process waits for the compiler, which works
outside of Python's lock: the two largest programs compile side by side on two cores.
"""

import copy
from contextlib import suppress
from threading import Thread
from typing import Any

from irtcat._precision import LARGE, precision
from irtcat.fitting._curvature import OneAbility, line_sums
from irtcat.fitting.em import EMProblem, EMState
from irtcat.latent import EStep

__all__ = ["compile_ahead"]


def compile_ahead(problem: EMProblem, state: EMState, which: str) -> Thread | None:
    """Compile the sums of the standard errors in a thread, by taking them at the first state.

    Later fits of a process have the program, or compile it for their shapes when they need it:
    taking the sums twice would cost more than it saves.

    Args:
        problem: the problem. Nothing is compiled for groups, whose grid is placed later.
        state: the first state.
        which: standard errors as in `irtcat.fit`.

    Returns:
        The thread, to be joined before the standard errors; None where nothing is gained.
    """
    program: Any = line_sums
    if program._cache_size() or which in ("none", "block"):
        return None
    if problem.engine is not None or problem.group is not None:
        return None
    nothing: Any = None
    first = EStep(state.mean, state.spread, *[nothing] * 4)  # type: ignore[arg-type]
    # The plan's blocks depend on what it has seen: the iterations keep their own.
    problem = problem._replace(plan=copy.copy(problem.plan))
    curvature = OneAbility(problem, state.point, first, 1.0)
    if problem.x.size > LARGE or not curvature.is_full(which):
        return None

    def compile_sums() -> None:
        # What goes wrong here goes wrong in the fit as well, which tells it.
        with suppress(Exception), precision(str(problem.dtype)):  # of this thread alone
            curvature.sums(full=True)

    thread = Thread(target=compile_sums, name="irtcat: standard errors")
    thread.start()
    return thread
