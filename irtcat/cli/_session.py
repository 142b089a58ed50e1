"""What every command shares: exit codes, the compilation cache, progress."""

import functools
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

from irtcat._progress import progress

__all__ = ["KEY", "fail", "guarded", "progress", "read_key", "use_compilation_cache", "warn"]

KEY = "IRTCAT_STORE_KEY"
"""Environment variable with the key of a store; an argument would be seen by other users."""


def warn(text: str) -> None:
    """One line on stderr."""
    print(_line(f"Warning: {text}"), file=sys.stderr)


def fail(text: str, code: int) -> NoReturn:
    """One line on stderr, and the end."""
    print(_line(text), file=sys.stderr)
    sys.exit(code)


def _line(text: str) -> str:
    """The text on one line, in which no id is obeyed by the terminal."""
    from irtcat._checks import visible

    return visible(" ".join(text.split()))


def _sentence(error: Exception) -> str | None:
    """What to tell the user of an error that is not ours; None where it is."""
    from irtcat._checks import InputError

    if isinstance(error, BrokenPipeError):  # the reader of a pipe has gone: nobody to tell
        return None
    if isinstance(error, OSError):
        place = f"{error.filename}: " if error.filename else ""
        return f"{place}{error.strerror or error}."
    if isinstance(error, MemoryError):
        return "There is not enough memory for this. Use fewer subjects or items, or float32."
    return str(error) if isinstance(error, (InputError, FloatingPointError)) else None


def guarded(command: Callable[..., None]) -> Callable[..., None]:
    """The command with its failures told in one line: exit 1 for bad input, 130 for Ctrl-C."""

    @functools.wraps(command)
    def run(*args: Any, **kwargs: Any) -> None:
        try:
            _check_outputs(kwargs)
            command(*args, **kwargs)
        except KeyboardInterrupt:
            sys.exit(130)  # `main` says so
        except Exception as error:
            text = _sentence(error)
            if text is None:
                raise
            fail(f"Error: {text}", 1)

    return run


OUTPUTS = ("out", "table", "figure", "report", "beats", "calibrate_exposure", "checkpoint")
INPUTS = ("bank", "responses", "calibration", "subset", "reference", "source", "result", "results",
          "fixed")  # fmt: skip
"""Arguments of the commands that name files to write, and those of text that may name files to
read; so does every other `Path`."""


def _check_outputs(given: dict[str, Any]) -> None:
    """A usage error where a file to write is also one to read, or is to be written twice."""
    import typer

    from irtcat._checks import shorten

    names: dict[Any, str] = {}
    for name, value in given.items():
        if not (name in OUTPUTS + INPUTS or isinstance(value, Path)):
            continue
        for path in value if isinstance(value, list) else [value]:
            if not isinstance(path, (str, Path)):
                continue
            other = names.setdefault(_identity(path), name)
            if other != name and {name, other} & set(OUTPUTS):
                what = f"given as {other} and as {name}, and would be replaced"
                must = f"{shorten(str(path))} is {what}. Write to another file."
                raise typer.BadParameter(must)


def _identity(path: str | Path) -> Any:
    """What two names of one file have in common."""
    try:
        status = os.stat(path)
    except (OSError, ValueError):  # there is none yet
        return os.path.abspath(path)
    return status.st_dev, status.st_ino


def read_key(path: Path | None) -> bytes | None:
    """The key of a store: what is in a file, else in the environment; None where in neither."""
    from irtcat._checks import InputError

    key = os.fsencode(os.environ.get(KEY, "")) if path is None else path.read_bytes()
    key = key.rstrip(b"\r\n")
    if path is not None and not key:
        raise InputError(f"{path}: the file is empty, no key.")
    return key or None


def cache_folder() -> Path | None:
    """Where compiled programs are kept: ``IRTCAT_CACHE`` or the user's cache; None for nowhere."""
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
    """Keep compiled programs between runs, where there is a folder to keep them in."""
    if "JAX_COMPILATION_CACHE_DIR" in os.environ:  # the user has chosen another
        return
    try:
        folder = cache_folder()
        if folder is None:
            return
        folder.mkdir(parents=True, exist_ok=True)
    except (OSError, RuntimeError):  # RuntimeError: there is no home
        return
    if not os.access(folder, os.W_OK):
        return
    import jax

    jax.config.update("jax_compilation_cache_dir", str(folder))
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.1)
    jax.config.update("jax_persistent_cache_min_entry_size_bytes", -1)
