"""Shared by all commands: exit codes, the compilation cache, the environment."""

import os
import platform
import re
import sys
from collections.abc import Mapping
from contextvars import ContextVar
from importlib.metadata import PackageNotFoundError, requires, version
from pathlib import Path
from typing import NoReturn

from irtcat._common.cache import writable_folder
from irtcat._version import __version__
from irtcat.cli._output import styled

INTERRUPTED = 130
"""Exit code after Ctrl-C."""
KEY = "IRTCAT_STORE_KEY"
"""Environment variable with the key of a store; other users could see an argument."""


class Interrupted(SystemExit):
    """The exit of a command that has said what it leaves behind."""


LABELS: ContextVar[Mapping[str, str]] = ContextVar("labels", default={})  # noqa: B039
"""The options of the command that runs, by the library's names of the arguments."""


def with_options(text: str) -> str:
    """A message of the library with the command's options instead of the library's arguments.

    An argument is recognised in backticks, as name=value, or, if it has an underscore, by its name
    alone: a name such as "level" is also a word. Of a mapping, the option with the file of a table.

    Example:
        >>> token = LABELS.set({"max_iterations": "--max-iterations", "resume": "--resume"})
        >>> with_options("Raise max_iterations, or pass resume=True.")
        'Raise --max-iterations, or pass --resume.'
        >>> with_options('Or resume={"a": [1], "b": [2]}.')
        'Or in Python resume={"a": [1], "b": [2]}.'
        >>> LABELS.reset(token)
    """
    labels = LABELS.get()

    def label(found: "re.Match[str]") -> str:
        """The option in place of a match, with its value if there is one."""
        groups = found.groupdict()
        name = next(groups[form] for form in ("stated", "quoted", "set", "bare") if groups[form])
        if name not in labels:
            return found[0]
        if groups["stated"]:
            return f"{labels[name]} {'option' if labels[name][:1] == '-' else 'argument'}"
        if groups["mapping"]:  # an option takes the file of a table instead: model, --models
            return labels.get(f"{name}s", f"in Python {found[0]}")
        value = (groups["value"] or "").strip("\"'")
        return labels[name] if value in ("", "True") else f"{labels[name]} {value}"

    return ARGUMENT.sub(label, text)


ARGUMENT = re.compile(
    r"`(?P<stated>\w+)` argument|`(?P<quoted>\w+)`"
    r"|(?<![\w./`=-])(?:"
    r"(?P<set>[a-z]\w*)=(?!=)(?:(?P<value>\"[^\"]*\"|'[^']*'|\w+(?:\.\w+)?)"
    r"|(?P<mapping>[{\[(][^{}()]*[}\])]))?"
    r"|(?P<bare>[a-z]+_\w+)(?![\w/`(-]|\.\w))"
)
"""How messages name arguments."""


def is_interactive() -> bool:
    """Whether a question can be asked."""
    return sys.stdin.isatty() and sys.stderr.isatty()


def warn(text: str) -> None:
    """Print a warning as one line on stderr."""
    print(styled("Warning:", sys.stderr, fg="yellow"), _line(text), file=sys.stderr)


def fail(text: str, code: int) -> NoReturn:
    """Print an error as one line on stderr and exit."""
    print(styled("Error:", sys.stderr, fg="red", bold=True), _line(text), file=sys.stderr)
    sys.exit(code)


def fail_interrupted(kept: str) -> NoReturn:
    """Say on stderr what an interrupted command leaves behind and how to go on, and exit."""
    print(_line(f"Interrupted. {kept}"), file=sys.stderr, flush=True)
    raise Interrupted(INTERRUPTED)


def _line(text: str) -> str:
    """The text on one line, with control characters escaped."""
    from irtcat._common.checks import visible

    return visible(" ".join(with_options(text).split()))


def sentence(error: Exception) -> str | None:
    """The message for the user; None for unexpected errors, which show a traceback."""
    from irtcat._common.checks import InputError

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
    from irtcat._common.checks import InputError

    key = os.fsencode(os.environ.get(KEY, "")) if path is None else path.read_bytes()
    key = key.rstrip(b"\r\n")
    if path is not None and not key:
        raise InputError(f"{path}: expected a key. Got an empty file.")
    return key or None


def use_compilation_cache() -> None:
    """Store what JAX compiles apart from irtcat's programs, if there is a folder for it."""
    if "JAX_COMPILATION_CACHE_DIR" in os.environ:  # set by the user
        return
    folder = writable_folder("jax")
    if folder is None:
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


def environment() -> str:
    """Versions of irtcat, Python and the packages that irtcat requires, and the devices of JAX.

    Packages of extras are listed where they are installed. No folder or name of a user or machine
    is in it.
    """
    import jax  # slow to import

    rows = {
        "irtcat": __version__,
        "Python": f"{platform.python_version()} ({platform.python_implementation()})",
        "platform": f"{platform.system()} {platform.release()}, {platform.machine()}",
        "processors": str(os.cpu_count()),
        "devices of JAX": ", ".join(f"{d.platform} {d.device_kind}" for d in jax.devices()),
        **_packages(),
    }
    settings = [name for name in sorted(os.environ) if name.startswith(("IRTCAT_", "JAX_", "XLA_"))]
    rows["settings"] = ", ".join(settings) or "none"
    width = max(map(len, rows))
    return "\n".join(f"{name:<{width}}  {value}" for name, value in rows.items())


def _packages() -> dict[str, str]:
    """Versions of the required packages that are installed."""
    names = {re.split(r"[^\w.-]", row, maxsplit=1)[0] for row in requires("irtcat") or []}
    names -= {"irtcat"}  # an extra may include another one
    versions: dict[str, str] = {}
    for name in sorted(names | {"jaxlib"}, key=str.lower):
        try:
            versions[name] = version(name)
        except PackageNotFoundError:
            continue
    return versions
