"""The command line: parse, call, print. One module per command, listed in ``_app``.

Heavy modules are imported inside the commands, so that ``irtcat --help`` is quick.
"""

import os
import signal
import sys
from types import FrameType

__all__ = ["main"]

INTERRUPTED = 130


def main() -> None:
    """Run the command line and exit: 0 done, 1 bad input, 2 wrong usage, 130 interrupted."""
    try:
        _run()
    except KeyboardInterrupt:
        _leave()
    except SystemExit as end:
        if end.code == INTERRUPTED:
            _leave()
        raise


def _run() -> None:
    """Parse and call."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, _interrupt)
    from irtcat.cli._app import app

    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):  # a terminal without Greek shows "?", not a traceback
            stream.reconfigure(errors="replace")
    app(prog_name="irtcat")


def _interrupt(number: int, frame: FrameType | None) -> None:
    """Raise KeyboardInterrupt where that is safe.

    In the import of an extension it can abort the process, and in JAX's hook of the garbage
    collector it is lost. Nothing is being written while modules are imported: end at once.
    """
    collecting = False
    while frame is not None:
        if frame.f_code.co_filename.startswith("<frozen importlib"):
            _leave()
        collecting = collecting or frame.f_code.co_name == "_xla_gc_callback"
        frame = frame.f_back
    if not collecting:
        raise KeyboardInterrupt
    import _thread
    import threading

    again = threading.Timer(0.02, _thread.interrupt_main)
    again.daemon = True
    again.start()


def _leave() -> None:
    """Say so and end at once: JAX's threads crash when Python is taken down under them."""
    show_cursor = b"\x1b[?25h" if os.isatty(2) else b""  # a progress line may have hidden it
    os.write(2, show_cursor + b"Interrupted.\n")
    os._exit(INTERRUPTED)
