"""Shared by all commands: exit codes, the compilation cache, progress."""

import functools
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

from irtcat._progress import progress

__all__ = ["KEY", "fail", "guarded", "progress", "read_key", "use_compilation_cache", "warn"]

KEY = "IRTCAT_STORE_KEY"
"""Environment variable with the key of a store; other users could see an argument."""


def warn(text: str) -> None:
    """Print a warning as one line on stderr."""
    print(_line(f"Warning: {text}"), file=sys.stderr)


def fail(text: str, code: int) -> NoReturn:
    """Print one line on stderr and exit."""
    print(_line(text), file=sys.stderr)
    sys.exit(code)


def _line(text: str) -> str:
    """The text on one line, with control characters escaped."""
    from irtcat._checks import visible

    return visible(" ".join(text.split()))


def _sentence(error: Exception) -> str | None:
    """The message for the user; None for unexpected errors, which show a traceback."""
    from irtcat._checks import InputError

    if isinstance(error, BrokenPipeError):  # the reader of the pipe has closed it
        return None
    if isinstance(error, OSError):
        prefix = f"{error.filename}: " if error.filename else ""
        return f"{prefix}{error.strerror or error}."
    if isinstance(error, MemoryError):
        return "There is not enough memory for this. Use fewer subjects or items, or float32."
    return str(error) if isinstance(error, (InputError, FloatingPointError)) else None


def guarded(command: Callable[..., None]) -> Callable[..., None]:
    """Wrap a command to report failures in one line: exit 1 for bad input, 130 for Ctrl-C."""

    @functools.wraps(command)
    def run(*args: Any, **kwargs: Any) -> None:
        try:
            _check_outputs(kwargs)
            command(*args, **kwargs)
        except KeyboardInterrupt:
            sys.exit(130)  # `main` prints the message
        except Exception as error:
            text = _sentence(error)
            if text is None:
                raise
            fail(f"Error: {text}", 1)

    return run


OUTPUTS = ("out", "table", "figure", "report", "beats", "calibrate_exposure", "checkpoint")
INPUTS = ("bank", "responses", "calibration", "subset", "reference", "source", "result", "results",
          "fixed")  # fmt: skip
"""Arguments that name files to write, and text arguments that may name files to read; every other
`Path` is a file to read, too."""


def _check_outputs(arguments: dict[str, Any]) -> None:
    """Raise a usage error if a file to write is also read, or is written twice."""
    import typer

    from irtcat._checks import shorten

    names: dict[Any, str] = {}
    for name, value in arguments.items():
        if not (name in OUTPUTS + INPUTS or isinstance(value, Path)):
            continue
        for path in value if isinstance(value, list) else [value]:
            if not isinstance(path, (str, Path)):
                continue
            other = names.setdefault(_identity(path), name)
            if other != name and {name, other} & set(OUTPUTS):
                conflict = f"given as {other} and as {name}, and would be replaced"
                raise typer.BadParameter(
                    f"{shorten(str(path))} is {conflict}. Write to another file."
                )


def _identity(path: str | Path) -> Any:
    """A key that is equal for all names of one file."""
    try:
        status = os.stat(path)
    except (OSError, ValueError):  # it does not exist yet
        return os.path.abspath(path)
    return status.st_dev, status.st_ino


def read_key(path: Path | None) -> bytes | None:
    """Read the key of a store from a file, or else from the environment; None without either."""
    from irtcat._checks import InputError

    key = os.fsencode(os.environ.get(KEY, "")) if path is None else path.read_bytes()
    key = key.rstrip(b"\r\n")
    if path is not None and not key:
        raise InputError(f"{path}: expected a key. Got an empty file.")
    return key or None


def cache_folder() -> Path | None:
    """The folder of compiled programs: ``IRTCAT_CACHE`` or the user's cache; None for none."""
    if "IRTCAT_CACHE" in os.environ:
        text = os.environ["IRTCAT_CACHE"].strip()
        return Path(text).expanduser() / "jax" if text else None
    if os.environ.get("XDG_CACHE_HOME"):
        return Path(os.environ["XDG_CACHE_HOME"]) / "irtcat" / "jax"
    if sys.platform == "win32" and os.environ.get("LOCALAPPDATA"):
        return Path(os.environ["LOCALAPPDATA"]) / "irtcat" / "jax"
    home = Path.home()
    base = home / "Library" / "Caches" if sys.platform == "darwin" else home / ".cache"
    return base / "irtcat" / "jax"


def use_compilation_cache() -> None:
    """Store compiled programs between runs, if there is a folder for them."""
    if "JAX_COMPILATION_CACHE_DIR" in os.environ:  # set by the user
        return
    try:
        folder = cache_folder()
        if folder is None:
            return
        folder.mkdir(parents=True, exist_ok=True)
    except (OSError, RuntimeError):  # RuntimeError: no home folder
        return
    if not os.access(folder, os.W_OK):
        return
    import jax

    jax.config.update("jax_compilation_cache_dir", str(folder))
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.1)
    jax.config.update("jax_persistent_cache_min_entry_size_bytes", -1)
