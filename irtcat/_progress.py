"""Progress of long computations."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

__all__ = ["Progress", "progress"]

Progress = Callable[[int, int | None, str], None]
"""Called with the steps done, the total number (None: unknown) and the current step."""


@contextmanager
def progress(text: str) -> Iterator[Progress | None]:
    """Show a progress line on stderr if that is a terminal; else yield None."""
    if not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console
    from rich.progress import BarColumn, SpinnerColumn, TextColumn, TimeElapsedColumn
    from rich.progress import Progress as ProgressBar

    from irtcat._checks import visible

    bar = ProgressBar(
        SpinnerColumn(),
        BarColumn(),
        TimeElapsedColumn(),
        TextColumn("{task.description}", markup=False),
        console=Console(stderr=True),
        transient=True,
        redirect_stdout=False,
    )
    with bar:
        task = bar.add_task(text, total=None)

        def report(done: int, total: int | None, description: str) -> None:
            bar.update(task, completed=done, total=total, description=visible(description))

        yield report
