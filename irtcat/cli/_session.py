"""Shared by all commands: exit codes, the compilation cache, progress."""

import os
import sys
from pathlib import Path
from typing import NoReturn

from irtcat._progress import progress

__all__ = ["KEY", "fail", "progress", "read_key", "sentence", "use_compilation_cache", "warn"]

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


def sentence(error: Exception) -> str | None:
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
    settings = {
        "jax_compilation_cache_dir": str(folder),
        "jax_persistent_cache_min_compile_time_secs": 0.1,
        "jax_persistent_cache_min_entry_size_bytes": -1,
    }
    jax = sys.modules.get("jax")
    for name, value in settings.items():
        if jax is None:  # it reads the environment when it is imported, if ever
            os.environ.setdefault(name.upper(), str(value))
        else:
            jax.config.update(name, value)
