"""A progress line for long work."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

__all__ = ["Tick", "progress"]

Tick = Callable[[int, int | None, str], None]
"""Called with steps done, steps in all (None: unknown) and what is going on."""


@contextmanager
def progress(text: str) -> Iterator[Tick | None]:
    """A progress line on stderr, where that is a terminal; else None."""
    if not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    from irtcat._checks import visible

    bar = Progress(
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

        def tick(done: int, total: int | None, what: str) -> None:
            bar.update(task, completed=done, total=total, description=visible(what))

        yield tick
