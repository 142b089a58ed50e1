"""Compiled programs on disk: a later process loads them instead of tracing and compiling.

A program is found by everything that it depends on: its function and the sources of this package,
the shapes, types and structure of its arguments, the values of its static ones, JAX's settings and
versions, and the processor. What cannot be written down exactly (a function made at run time, an
item model of another package, several devices) is compiled as usual and not kept.

JAX's own cache keeps what XLA makes, but not what precedes it: with it a fit of a second process
takes .6 s (2PL, 1000 x 50) and 2.0 s (two correlated abilities, 2000 x 20) more than a warm one,
with this one .15 and .4 s (processor time, two busy cores).

- Files are read only where the folder and the file are the user's, and nobody else can write to
  them: they are pickled, and a program is machine code.
- A program that cannot be loaded, or whose first call fails or ends the process, is never loaded
  again: it is compiled in every process. A file in the folder `loading` says that a program is
  being tried; where its process is gone, the program ended it.
- `IRTCAT_CACHE=` (empty) turns all of this off.
"""

import dataclasses
import enum
import functools
import hashlib
import os
import pickle
import platform
import sys
import tempfile
import threading
import time
import warnings
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from importlib.metadata import PackageNotFoundError, version
from importlib.resources import files
from pathlib import Path
from types import FunctionType
from typing import Any, NamedTuple

import jax
import numpy as np
from jax.experimental import serialize_executable

from irtcat._common.cache import is_private, writable_folder

MOST_BYTES = 2**29
"""Size of the folder above which the programs that were not used for longest are deleted.

A program takes .01-.5 MB, and a fit four to eight of them.
"""

LIBRARIES = ("jax", "jaxlib", "numpy", "equinox", "optax")
"""Other packages whose versions are part of a program's key."""

OURS = ("irtcat", "jax", "numpy", "builtins", "equinox", "optax")
"""Packages whose functions and classes a key may name, as their versions are part of it."""

SETTINGS = (
    "jax_enable_x64",
    "jax_default_matmul_precision",
    "jax_numpy_dtype_promotion",
    "jax_disable_most_optimizations",
    "jax_default_prng_impl",
)
"""Settings of JAX that change a program."""

CHECKS = ("jax_disable_jit", "jax_debug_nans", "jax_debug_infs")
"""Settings with which every call is left to JAX."""


def programs_folder() -> Path | None:
    """Where programs are kept; None for nowhere. Asked at every call, so looked up once."""
    return _programs_folder(os.environ.get("IRTCAT_CACHE"), os.environ.get("XDG_CACHE_HOME"))


@functools.cache
def _programs_folder(*of_environment: str | None) -> Path | None:
    folder = writable_folder("programs")
    if folder is None or is_private(os.lstat(folder)):
        return folder
    warnings.warn(
        f"{folder}: compiled programs are not kept, as this folder belongs to someone else or "
        "others can write to it. Take these rights away (chmod go-w), or set IRTCAT_CACHE to a "
        "folder of your own.",
        stacklevel=2,
    )
    return None


class Signature(NamedTuple):
    """What a call's program depends on, besides its function.

    Attributes:
        tree: structure of the arguments.
        leaves: shape, type and weakness of the type of every array.
        static: name or position, type and value of the static arguments.
        settings: JAX's settings.
    """

    tree: Any
    leaves: tuple[Any, ...]
    static: tuple[tuple[str | int, type, Any], ...]
    settings: tuple[Any, ...]


class _UnknownError(Exception):
    """A value that cannot be written down exactly."""


def _write(value: Any) -> str:
    """A value as text; equal texts only for equal values.

    Raises:
        _UnknownError: for a value of any other kind.
    """
    if value is None or type(value) in (bool, int, float, str, bytes):
        return f"{type(value).__name__}:{value!r}"
    if type(value) in (tuple, list):
        return f"{type(value).__name__}({','.join(map(_write, value))})"
    if type(value) is dict:
        return "dict(" + ",".join(f"{_write(k)}={_write(v)}" for k, v in value.items()) + ")"
    if isinstance(value, np.dtype):
        return f"dtype:{value.str}"
    if isinstance(value, np.generic):
        return f"{value.dtype.str}:{value!r}"
    if isinstance(value, type | FunctionType):
        return _name(value)
    if isinstance(value, enum.Enum):
        return f"{_name(type(value))}.{value.name}"
    if isinstance(value, tuple):  # named
        return f"{_name(type(value))}({','.join(map(_write, value))})"
    if dataclasses.is_dataclass(value):
        fields = [f.name for f in dataclasses.fields(value)]
        written = ",".join(f"{name}={_write(getattr(value, name))}" for name in fields)
        return f"{_name(type(value))}({written})"
    if not hasattr(type(value), "__slots__") and not vars(value):
        return f"{_name(type(value))}()"  # without a state, as equinox's mark of a missing field
    raise _UnknownError(type(value))


def _name(value: Any) -> str:
    """Where a function or class is defined.

    Raises:
        _UnknownError: where it is of another package, or cannot be found by its name.
    """
    module, name = value.__module__, value.__qualname__
    if module.partition(".")[0] not in OURS or not name.replace(".", "_").isidentifier():
        raise _UnknownError(name)
    return f"{module}:{name}"


def _write_tree(tree: Any) -> str:
    """The structure of arguments as text."""
    data = tree.node_data()
    if data is None:
        return "*" if tree.num_leaves else "None"
    kind, constant = data
    children = ",".join(map(_write_tree, tree.children()))
    return f"{_name(kind)}[{_write(constant)}]({children})"


@functools.cache
def _environment() -> bytes:
    """Versions, the processor, and the state of this package's sources."""
    versions = [sys.version, platform.machine(), os.environ.get("XLA_FLAGS", "")]
    for name in ("irtcat", *LIBRARIES):
        try:
            versions.append(f"{name} {version(name)}")
        except PackageNotFoundError:
            versions.append(f"{name} ?")
    return hashlib.sha256("\n".join([*versions, *_processor(), *_sources()]).encode()).digest()


def _processor() -> Iterable[str]:
    """Name and instruction sets of the processor: programs are machine code."""
    yield platform.processor()
    try:
        with open("/proc/cpuinfo", encoding="utf-8", errors="replace") as file:
            for line in file:
                if line.startswith(("model name", "flags", "Features", "CPU part")):
                    yield line
                elif not line.strip():  # one core stands for all
                    return
    except OSError:
        return


def _sources() -> Iterable[str]:
    """Size and time of every source file of this package, which is also used from a checkout."""
    root = Path(str(files("irtcat")))
    for path in sorted(root.rglob("*.py")):
        status = path.stat()
        yield f"{path.relative_to(root).as_posix()} {status.st_size} {status.st_mtime_ns}"


def _key(function: Callable[..., Any], signature: Signature) -> str | None:
    """Name of the program's file; None where it is not to be kept."""
    try:
        parts = [
            _name(function),
            _write_tree(signature.tree),
            repr([(shape, str(dtype), weak) for shape, dtype, weak in signature.leaves]),
            _write([(name, value) for name, _, value in signature.static]),
            repr(signature.settings),
        ]
    except _UnknownError:
        return None
    return hashlib.sha256(_environment() + "\n".join(parts).encode()).hexdigest()


def load_or_compile(
    function: Callable[..., Any],
    signature: Signature,
    arguments: Any,
    compiled: Callable[[], Any],
    folder: Path,
) -> Callable[..., Any]:
    """The program of a call, from the disk if it is there; a new one is kept there.

    Args:
        function: what is compiled.
        signature: that of the call.
        arguments: the arguments, positional and by name.
        compiled: compiles the program.
        folder: where programs are kept.

    Returns:
        The program, which takes the arguments that are not static.
    """
    key = _key(function, signature)
    if key is None:
        return compiled()
    with _lock:
        _note_crashes(folder)
    path = folder / key
    if not _failed(path).exists():
        program = _load(path, arguments)
        if program is not None:
            return _Tried(path, program, compiled)
    hits = len(_hits)
    program = compiled()
    if len(_hits) == hits and not _failed(path).exists():
        _store(path, program)
    return program


_lock = threading.Lock()
"""Held until the traces of earlier processes are read, which this process's own would look like."""


class _Tried:
    """A loaded program, whose first call may fail: then it is compiled, and not loaded again."""

    def __init__(self, path: Path, program: Any, compiled: Callable[[], Any]):
        self.path, self.program, self.compiled = path, program, compiled
        self.call: Callable[..., Any] = self._first

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.call(*args, **kwargs)

    def _first(self, *args: Any, **kwargs: Any) -> Any:
        try:
            with _trying(self.path):
                out = jax.block_until_ready(self.program(*args, **kwargs))
        except Exception:
            _give_up(self.path)
            self.program = self.compiled()
            out = self.program(*args, **kwargs)
        self.call = self.program
        return out


def _failed(path: Path) -> Path:
    """The file that says that a program has failed."""
    return path.with_suffix(".failed")


def _give_up(path: Path) -> None:
    """Never load this program again."""
    with suppress(OSError):
        _failed(path).touch(mode=0o600)
        path.unlink(missing_ok=True)


@contextmanager
def _trying(path: Path) -> Iterator[None]:
    """Leave a file as long as a program is loaded or called for the first time."""
    name = f"{platform.node()},{os.getpid()},{threading.get_ident()},{path.name}"
    mark = path.parent / "loading" / name
    try:
        mark.parent.mkdir(mode=0o700, exist_ok=True)
        mark.touch(mode=0o600)
    except OSError:
        pass
    try:
        yield
    finally:
        with suppress(OSError):
            mark.unlink(missing_ok=True)


@functools.cache
def _note_crashes(folder: Path) -> None:
    """Give up the programs during whose first call a process ended, once in a process."""
    with suppress(OSError):
        for mark in (folder / "loading").iterdir():
            node, process, _, key = mark.name.split(",")
            if node == platform.node() and not _is_running(int(process), mark):
                _give_up(folder / key)
                mark.unlink(missing_ok=True)


def _is_running(process: int, mark: Path) -> bool:
    """Whether a process other than this one is running."""
    if process == os.getpid():
        return False
    if sys.platform == "win32":  # no signal 0: no program takes this many seconds to load
        return time.time() - mark.stat().st_mtime < 60
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except OSError:
        return True
    return True


_hits: list[str] = []
"""Programs that JAX took from its own cache, if one is set: written out a second time they lack
functions, and fail when they are called (jaxlib 0.10.2)."""


@jax.monitoring.register_event_listener
def _note_hit(event: str, **_: Any) -> None:
    if event == "/jax/compilation_cache/cache_hits":
        _hits.append(event)


def _load(path: Path, arguments: Any) -> Any:
    """The program in this file; None if there is none that is whole and this user's own."""
    try:
        with path.open("rb") as file:
            if not is_private(os.fstat(file.fileno())):
                return None
            content = file.read()
    except OSError:
        return None
    digest, body = content[:32], content[32:]
    if hashlib.sha256(body).digest() != digest:
        return None
    try:
        with _trying(path):
            payload, skeleton, calls_lapack = pickle.loads(body)
            if calls_lapack:
                _prepare_lapack()
            program = serialize_executable.deserialize_and_load(
                payload, jax.tree.structure(arguments), jax.tree.structure(skeleton)
            )
    except Exception:  # a whole file whose program cannot be loaded
        _give_up(path)
        return None
    with suppress(OSError):
        os.utime(path)  # the last use, by which old programs are deleted
    return program


def _store(path: Path, program: Any) -> None:
    """Write the program; where that cannot be done, the next process compiles again."""
    try:
        payload, _, tree = serialize_executable.serialize(program)
        skeleton = jax.tree.unflatten(tree, range(tree.num_leaves))
        calls_lapack = '"lapack_' in program.as_text()
        body = pickle.dumps((payload, skeleton, calls_lapack))
        _make_room(path.parent)
        with tempfile.TemporaryDirectory(dir=path.parent) as folder:
            whole = Path(folder, path.name)
            whole.touch(mode=0o600)
            whole.write_bytes(hashlib.sha256(body).digest() + body)
            whole.replace(path)  # processes that look for it meanwhile find all of it or nothing
    except Exception:  # a full disk, or a program that cannot be serialised
        return


@functools.cache
def _prepare_lapack() -> None:
    """Let programs call LAPACK, whose functions JAX looks up when it lowers a first call of one.

    A loaded program that factorises a matrix crashes otherwise.
    """
    one = jax.ShapeDtypeStruct((1, 1), np.float32)
    jax.jit(jax.lax.linalg.cholesky).lower(one)


@functools.cache
def _make_room(folder: Path) -> None:
    """Delete the programs that were not used for longest, once in a process."""
    with suppress(OSError):  # another process may be doing the same
        entries = [entry for entry in os.scandir(folder) if entry.is_file()]
        files = [(e.stat(), e.path) for e in entries if not e.name.endswith(".failed")]
        size = sum(status.st_size for status, _ in files)
        for status, path in sorted(files, key=lambda file: file[0].st_mtime):
            if size <= MOST_BYTES:
                return
            os.unlink(path)
            size -= status.st_size
