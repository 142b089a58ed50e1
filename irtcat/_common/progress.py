"""Progress of long computations."""

import functools
import math
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from importlib.util import find_spec
from typing import Any, TypeAlias, TypeVar, cast, overload

from irtcat._common.errors import visible

Progress = Callable[[int, int | None, str], None]
"""Called with the steps done, the total number (None: unknown) and the current step."""

ProgressOption: TypeAlias = Any
"""The argument ``progress`` of a function that `with_progress` decorates: True to show progress,
False or None not to, or a `Progress`. To the function itself it is one or None, hence Any."""

F = TypeVar("F", bound=Callable[..., Any])

IS_SHOWN: ContextVar[bool] = ContextVar("is_shown", default=True)
"""Whether progress is shown at all; the command line sets it."""
DELAY = 2.0
"""Seconds before anything is shown."""
FIRST_LINE = 10.0
"""Seconds before the second plain line; each further line takes twice as long as the one before."""

SMALL_STEP = 1e-4
"""The step at which a fit in float64 has converged, in standard errors (`irtcat.fit`)."""
RECENT = 6
"""Iterations from which the rate of a fit is computed."""

_shown: ContextVar[Progress | None] = ContextVar("shown", default=None)


@contextmanager
def progress(text: str) -> Iterator[Progress]:
    """Show progress with the time left on stderr, from the third second on.

    On a terminal and in a notebook (with ipywidgets) it is a line that changes; elsewhere plain
    lines, at 2 and 10 seconds and then each time that the time has doubled. Within another progress
    the steps are those of the outer one.

    Args:
        text: what is computed, until the first step is reported.
    """
    outer = _shown.get()
    if outer is not None:
        yield outer
        return
    if not IS_SHOWN.get():
        yield lambda done, total, description: None
        return
    bar = _Bar(text) if _shows_bars() else _Lines(text)
    token, ended = _shown.set(bar.report), threading.Event()
    thread = threading.Thread(target=bar.show, args=(ended,), daemon=True)
    thread.start()
    try:
        yield bar.report
    finally:
        _shown.reset(token)
        ended.set()
        thread.join()
        bar.stop()


@overload
def part_of(progress: Progress, part: int, n_parts: int) -> Progress: ...
@overload
def part_of(progress: Progress | None, part: int, n_parts: int) -> Progress | None: ...
def part_of(progress: Progress | None, part: int, n_parts: int) -> Progress | None:
    """The progress of one of several parts of a computation, which take about equally long.

    Args:
        progress: that of all parts.
        part: the number of this part, from 0.
        n_parts: the number of parts.

    Example:
        >>> part_of(print, 1, 3)(2, 10, "Fold")
        12 30 Fold
    """
    if progress is None:
        return None

    def report(done: int, total: int | None, text: str) -> None:
        n = total or 1
        progress(part * n + min(done, n if total else 0), n_parts * n, text)

    return report


def counted(units: str) -> Callable[[Progress], Callable[[int, int], None]]:
    """Make a function of the units done and their number that shows both in words.

    Example:
        >>> counted("subjects")(print)(2, 10)
        2 10 2 of 10 subjects
    """
    return lambda report: lambda done, of: report(done, of, f"{done} of {of} {units}")


class Steps:
    """Counts the steps of a computation; called with a text when one begins.

    Example:
        >>> step = Steps(print, 2)
        >>> step("First fold")
        0 2 First fold
        >>> step("Second fold")
        1 2 Second fold
    """

    def __init__(self, progress: Progress | None, total: int) -> None:
        self.progress, self.total, self.done = progress, total, 0

    def __call__(self, text: str) -> None:
        """Report that the steps so far are done and the next begins."""
        if self.progress is not None:
            self.progress(self.done, self.total, text)
        self.done += 1


class FitProgress:
    """The progress of a fit: the iterations left follow from how fast the steps shrink.

    Args:
        report: called after every iteration.
        most: maximum number of iterations, for a method whose steps do not show how many are left.
    """

    def __init__(self, report: Progress, most: int | None = None) -> None:
        self.report, self.most = report, most
        self.steps: list[float] = []

    @classmethod
    def of(cls, report: Progress | None) -> "FitProgress | None":
        """The progress of a fit within another computation, if that has one."""
        return None if report is None else cls(report)

    def __call__(self, iteration: int, value: float, step: float) -> None:
        """Report an iteration."""
        if self.most is not None:
            text = f"Step {iteration} of at most {self.most}: the bound is {value:.2f}"
            self.report(iteration, self.most, text)
            return
        self.steps.append(step)
        text = f"Iteration {iteration}: the step was {step:.1e} standard errors"
        left = iterations_left(self.steps)
        self.report(iteration, None if left is None else iteration + left, text)


def iterations_left(steps: list[float]) -> int | None:
    """Iterations until the step is small enough, at the rate of the last ones; None if unknown.

    Example:
        >>> iterations_left([0.1 * 0.5**i for i in range(9)])
        2
        >>> iterations_left([0.1, 0.2])
    """
    recent = steps[-RECENT:]
    if len(recent) < RECENT or not 0 < recent[-1] < recent[0]:
        return None
    rate = math.log(recent[-1] / recent[0]) / (len(recent) - 1)
    return max(0, math.ceil(math.log(SMALL_STEP / recent[-1]) / rate))


def with_progress(
    text: str, callback: Callable[[Progress], Any] = lambda report: report
) -> Callable[[F], F]:
    """Decorate a function whose argument ``progress`` may also be True or False.

    The function gets what it calls after every step, or None.

    Args:
        text: what is computed, until the first step is reported.
        callback: converts what shows the steps to what the function calls; by default the same.

    Example:
        >>> @with_progress("Adding")
        ... def add(a, *, progress=None):
        ...     return a + 1 if progress is None else a + 2
        >>> add(1), add(1, progress=False), add(1, progress=True), add(1, progress=print)
        (2, 2, 3, 3)
    """

    def decorate(function: F) -> F:
        @functools.wraps(function)
        def shown(*args: Any, **options: Any) -> Any:
            choice = options.get("progress")
            if choice is True:
                with progress(text) as report:
                    return function(*args, **{**options, "progress": callback(report)})
            if choice is False:
                options["progress"] = None
            return function(*args, **options)

        return cast(F, shown)

    return decorate


class _Lines:
    """Progress as plain lines on stderr."""

    def __init__(self, text: str) -> None:
        self.text, self.done = text, 0
        self.total: int | None = None
        self.started, self.stream = time.monotonic(), sys.stderr

    def report(self, done: int, total: int | None, description: str) -> None:
        """Take note of a step."""
        self.done, self.total, self.text = done, total, description

    def show(self, ended: threading.Event) -> None:
        """Print lines until the end."""
        due = DELAY
        while not ended.wait(max(0.0, self.started + due - time.monotonic())):
            print(self.line(time.monotonic() - self.started), file=self.stream, flush=True)
            due = max(2 * due, FIRST_LINE)

    def line(self, elapsed: float) -> str:
        """The state after so many seconds."""
        text = f"{visible(self.text)} ({_duration(elapsed)}"
        if self.total and 0 < self.done <= self.total:
            left = elapsed * (self.total - self.done) / self.done
            text += f", {self.done} of {self.total}, about {_duration(left)} left"
        return f"{text})"

    def stop(self) -> None:
        """Nothing is left to end."""


def _duration(seconds: float) -> str:
    """A time in words.

    Example:
        >>> _duration(42.3), _duration(200), _duration(9000)
        ('42 s', '3 min', '2.5 h')
    """
    if seconds < 100:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 6000 else f"{seconds / 3600:.1f} h"


class _Bar(_Lines):
    """Progress as a line of rich's, which is imported when it is due."""

    bar: Any = None

    def report(self, done: int, total: int | None, description: str) -> None:
        """Take note of a step, and show it."""
        super().report(done, total, description)
        if self.bar is not None:
            self._update()

    def _update(self) -> None:
        text = visible(self.text)
        left = "left" if self.total else ""
        self.bar.update(
            self.task, completed=self.done, total=self.total, description=text, left=left
        )

    def show(self, ended: threading.Event) -> None:
        """Show the line; rich keeps it up to date."""
        if ended.wait(DELAY):
            return
        from rich import progress
        from rich.console import Console
        from rich.table import Column

        what = Column(no_wrap=True, overflow="ellipsis", ratio=1)
        bar = progress.Progress(
            progress.SpinnerColumn(),
            progress.TextColumn("{task.description}", markup=False, table_column=what),
            progress.BarColumn(bar_width=20),
            progress.TimeElapsedColumn(),
            progress.TextColumn("{task.fields[left]}"),
            progress.TimeRemainingColumn(),
            console=Console(stderr=True),
            transient=True,
            redirect_stdout=False,
            expand=True,
        )
        self.task = bar.add_task("", total=None, left="")
        bar.tasks[0].start_time = self.started
        self.bar = bar
        self._update()
        if not ended.is_set():
            bar.start()

    def stop(self) -> None:
        """Remove the line."""
        if self.bar is not None:
            self.bar.stop()


def _shows_bars() -> bool:
    """Whether stderr is a terminal, or this is a notebook that can show rich's lines."""
    if "ipykernel" in sys.modules:
        return find_spec("ipywidgets") is not None
    return sys.stderr.isatty()
