"""The command line: parse, call, print. One module per command, registered in ``_app``.

The packages of irtcat that load their names on first use are imported at the top, all else that is
heavy inside the commands, so that ``irtcat --help`` is fast.
"""

import gc
import os
import signal
import sys
from types import FrameType

__all__ = ["main"]

INTERRUPTED = 130

NEW_OBJECTS = 50_000
"""New objects between two garbage collections. Imports and JAX's traces make many that stay: with
Python's 700 a small fit spends a seventh of its time on collections (2.7 s against 2.3)."""


def main() -> None:
    """Run the command line and exit: 0 success, 1 bad input, 2 usage error, 130 interrupted."""
    try:
        _run()
    except KeyboardInterrupt:
        _exit_interrupted()
    except SystemExit as end:
        if end.code == INTERRUPTED:
            _exit_interrupted(is_explained=type(end) is not SystemExit)
        raise


def _run() -> None:
    """Parse the arguments and call the command."""
    gc.set_threshold(NEW_OBJECTS)
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, _interrupt)
    from irtcat.cli._app import app

    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):  # "?" instead of a traceback on a terminal without Greek
            stream.reconfigure(errors="replace")
    app(prog_name="irtcat")


def _interrupt(number: int, frame: FrameType | None) -> None:
    """Raise KeyboardInterrupt if that is safe.

    During the import of an extension it can abort the process, so exit at once: nothing is written
    while modules are imported. In JAX's garbage collection callback it would be lost, so interrupt
    again shortly after.
    """
    collecting = False
    while frame is not None:
        if frame.f_code.co_filename.startswith("<frozen importlib"):
            _exit_interrupted()
        collecting = collecting or frame.f_code.co_name == "_xla_gc_callback"
        frame = frame.f_back
    if not collecting:
        raise KeyboardInterrupt
    import _thread
    import threading

    timer = threading.Timer(0.02, _thread.interrupt_main)
    timer.daemon = True
    timer.start()


def _exit_interrupted(is_explained: bool = False) -> None:
    """Report and exit at once: JAX's threads crash when the interpreter shuts down first."""
    show_cursor = "\x1b[?25h" if os.isatty(2) else ""  # a progress line may have hidden it
    os.write(2, (show_cursor + ("" if is_explained else "Interrupted.\n")).encode())
    os._exit(INTERRUPTED)
