"""`jax.jit` for programs that take longer to compile than to run.

Two things make a first call quick:

- Compiler settings. On the CPU, XLA's fusion emitters about double the compile time of this
  package's programs and do not make them faster (5000 x 200 2PL: 1.0 s against .57 s for one EM
  iteration, which runs in 20 ms either way; measured with jaxlib 0.10.2). LLVM's first level of
  optimisation takes a sixth off the compile time of most programs (the same iteration: .52 s
  against .43 s), which run as fast as at its third.
  Four parts of a program that are compiled in parallel take a tenth less processor time than the
  default of 32, each of which brings overhead of its own (2PL, 1000 x 50: 1.34 s against 1.52 s),
  and a quarter less at level 0.
- Compiled programs are kept on disk, so that a later process neither traces nor compiles them.
  JAX's own cache keeps what XLA makes, but not what precedes it: with it a fit of a second process
  takes .6 s (2PL, 1000 x 50) and 2.0 s (two correlated abilities, 2000 x 20) more than a warm one,
  with this one .15 and .4 s (processor time, two busy cores).

A program on disk is found by everything that it depends on: its function and the sources of this
package, the shapes, types and structure of its arguments, the values of its static ones, JAX's
settings and versions, and the processor. What cannot be written down exactly (a function made at
run time, an item model of another package, several devices) is compiled as usual and not kept.

- Files are read only where the folder and the file are the user's, and nobody else can write to
  them: they are pickled, and a program is machine code.
- A program that cannot be loaded, or whose first call fails or twice in a row ends the process, is
  never loaded again: it is compiled in every process. A file in the folder `loading` says that a
  program is being tried; where its process is gone, the program ended it, or something killed the
  process meanwhile, which is why one such end decides nothing.
- `IRTCAT_CACHE=` (empty) turns all of this off.

numpy's matrix products run in one thread of BLAS where they are small.
"""

import dataclasses
import enum
import functools
import hashlib
import inspect
import math
import os
import pickle
import platform
import sys
import tempfile
import threading
import time
import warnings
import weakref
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from importlib.metadata import PackageNotFoundError, version
from importlib.resources import files
from pathlib import Path
from types import FunctionType
from typing import Any, NamedTuple, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import serialize_executable

from irtcat._common.cache import is_private, writable_folder

_blas_lock = threading.Lock()
_inside: list[Any] = []
"""The limit that holds, once for everyone inside of it."""


@functools.cache
def _libraries() -> Any:
    from threadpoolctl import ThreadpoolController  # 20 ms, which only fits need

    return ThreadpoolController().select(user_api="blas")


@contextmanager
def one_blas_thread() -> Iterator[None]:
    """Compute matrix products in one thread, where they alternate with JAX's programs.

    OpenBLAS's threads wait busily for some 50 ms after a product, and take the cores from the
    program that runs next: on two cores a fit of four abilities, 1000 x 40, took 5.6 s in place of
    4.4 s, and of one ability, 2000 x 50, .15 s in place of .13 s.

    The limit holds for the whole process. Where several threads are inside, the first one sets it
    and the last one takes it back.
    """
    with _blas_lock:
        _inside.append(_inside[0] if _inside else _libraries().limit(limits=1))
    try:
        yield
    finally:
        with _blas_lock:
            limit = _inside.pop()
            if not _inside:
                limit.restore_original_limits()


T = TypeVar("T")

BEST: dict[str, Any] = {"xla_cpu_use_fusion_emitters": False}
if "xla_cpu_parallel_codegen_split_count" not in os.environ.get("XLA_FLAGS", ""):
    BEST["xla_cpu_parallel_codegen_split_count"] = 4
QUICK: dict[str, Any] = {**BEST, "xla_backend_optimization_level": 1}
if jax.config.values["jax_disable_most_optimizations"]:  # JAX's own setting wins
    QUICK = BEST

SMALL: dict[str, Any] = {**QUICK, "xla_backend_optimization_level": 0}
"""For programs of a few numbers, which run for less time than LLVM needs to optimise them."""

FEW = 2**17
"""Numbers in the arguments of a program that runs for a few milliseconds as `SMALL` code.

Two correlated abilities, 2000 x 20: the M-step, the posterior modes and the score compile in .34 s
instead of 1.05 s, and a second fit takes .21 s instead of .20 s (processor time).
"""

MANY = 2**18
"""The same of a program that runs once and mostly calls matrix products: standard errors of 2000 x
30, three abilities, compile in .26 instead of 1.2 s and take .16 instead of .06 s."""

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


def namespace(array: Any) -> Any:
    """The module that computes with an array: numpy, or `jax.numpy` (in compiled functions too)."""
    # numpy's are asked for first: whether something is one of JAX's takes ten times as long.
    return jnp if not isinstance(array, np.ndarray) and isinstance(array, jax.Array) else np


def scan_of(xp: Any) -> Callable[..., Any]:
    """`jax.lax.scan`, or the same loop over arrays of numpy."""
    if xp is jnp:
        return jax.lax.scan

    def scan(body: Callable[..., Any], carry: Any, xs: Any) -> tuple[Any, Any]:
        outputs = []
        for i in range(len(jax.tree.leaves(xs)[0])):
            carry, output = body(carry, jax.tree.map(lambda array: array[i], xs))  # noqa: B023
            outputs.append(output)
        return carry, jax.tree.map(lambda *arrays: np.stack(arrays), *outputs)

    return scan


def vmap_of(xp: Any) -> Callable[..., Any]:
    """`jax.vmap` over the first axes, or the same loop over arrays of numpy."""
    if xp is jnp:
        return jax.vmap

    def vmap(function: Callable[..., Any]) -> Callable[..., Any]:
        return lambda *args: scan_of(np)(lambda _, at: (None, function(*at)), None, args)[1]

    return vmap


def repeat_while(xp: Any, condition: Any, body: Any, state: Any) -> Any:
    """`jax.lax.while_loop`, or the same loop over arrays of numpy."""
    if xp is jnp:
        return jax.lax.while_loop(condition, body, state)
    while condition(state):
        state = body(state)
    return state


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


class _Signature(NamedTuple):
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


def jit(
    function: Callable[..., T],
    *,
    static_argnames: tuple[str, ...] | str = (),
    options: dict[str, Any] = QUICK,
    small_below: int = 0,
    small_where: str = "",
    numpy_where: Callable[..., bool] | None = None,
) -> Callable[..., T]:
    """`jax.jit` with these settings; inside another compiled function, plain `jax.jit`.

    Args:
        function: what to compile.
        static_argnames: as for `jax.jit`.
        options: of the compiler; `BEST` for programs that run faster with it, `SMALL` for those
            of a few numbers.
        small_below: the program of arguments with fewer numbers than this is compiled as `SMALL`.
        small_where: a static argument that must be true for this, if there is one.
        numpy_where: says of the arguments of a call, none of them traced, whether the function is
            called with arrays of numpy instead of compiled, which it must be able to take
            (see `namespace`).

    Returns:
        The compiled function.
    """
    names = (static_argnames,) if isinstance(static_argnames, str) else static_argnames
    plain = jax.jit(function, static_argnames=names)
    quick = jax.jit(function, static_argnames=names, compiler_options=options)
    small = jax.jit(function, static_argnames=names, compiler_options=SMALL)
    parameters = list(inspect.signature(function).parameters)
    # From the last, as they are taken out of a list.
    positions = [i for i, name in reversed(list(enumerate(parameters))) if name in names]
    programs = _Programs()
    _programs.add(programs)

    def program_for(shapes: list[Any], kwargs: Any) -> Any:
        is_small = sum(math.prod(shape) for shape, *_ in shapes) < small_below
        return small if is_small and kwargs.get(small_where, True) else quick

    def call_without_folder(shapes: list[Any], args: Any, kwargs: Any) -> T:
        try:
            return program_for(shapes, kwargs)(*args, **kwargs)
        except jax.errors.JaxRuntimeError as error:
            if "No such compile option" not in str(error):
                raise
        _unsupported.append(jax.__version__)
        return plain(*args, **kwargs)

    def takes_numpy(*args: Any, **kwargs: Any) -> bool:
        if numpy_where is None or jax.device_count() > 1:
            return False
        return numpy_where(*args, **kwargs)

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> T:
        # One loop without calls of Python functions: small programs are called thousands of times.
        positional, named = list(args), dict(kwargs)
        static: list[tuple[str | int, type, Any]] = []
        for i in positions:
            if i < len(positional):
                value = positional.pop(i)
                static.append((i, type(value), value))
        for name in names:
            if name in named:
                value = named.pop(name)
                static.append((name, type(value), value))
        leaves, tree = jax.tree.flatten((tuple(positional), named))
        shapes: list[Any] = []
        is_kept = True
        for x in leaves:
            if isinstance(x, jax.Array):
                if isinstance(x, jax.core.Tracer):
                    # XLA accepts options for a whole program only, not for a traced part of one.
                    return plain(*args, **kwargs)
                # Keys of random numbers have no weakness.
                shapes.append((x.shape, x.dtype, getattr(x, "weak_type", False)))
            elif isinstance(x, np.ndarray | np.generic) and x.dtype.kind in "biuf":
                shapes.append((x.shape, x.dtype, False))
            elif isinstance(x, bool | int | float):
                shapes.append(((), type(x), True))
            else:
                is_kept = False
        if takes_numpy(*args, **kwargs):
            with one_blas_thread():
                return function(*jax.tree.map(np.asarray, args), **kwargs)
        if _unsupported or jax.default_backend() != "cpu":
            return plain(*args, **kwargs)
        config = jax.config.values
        folder = programs_folder() if is_kept and jax.device_count() == 1 else None
        if folder is None or any(map(config.__getitem__, CHECKS)):
            return call_without_folder(shapes, args, kwargs)
        settings = tuple(map(config.__getitem__, SETTINGS))
        signature = _Signature(tree, tuple(shapes), tuple(static), settings)
        program = programs.get(signature)
        if program is None:
            try:
                program = _load_or_compile(
                    function,
                    signature,
                    (tuple(positional), named),
                    lambda: program_for(shapes, kwargs).lower(*args, **kwargs).compile(),
                    folder,
                )
            except jax.errors.JaxRuntimeError:
                return call_without_folder(shapes, args, kwargs)
            programs[signature] = program
        return program(*positional, **named)

    counted: list[Any] = [plain, quick, small]
    call._cache_size = lambda: (  # type: ignore[attr-defined]
        len(programs) + sum(f._cache_size() for f in counted)
    )
    return call


class _Programs(dict):
    """The programs of one function, by signature."""

    __hash__ = object.__hash__  # type: ignore[assignment]


_programs: weakref.WeakSet[_Programs] = weakref.WeakSet()


def forget_programs() -> None:
    """Drop all compiled programs of this process, as `jax.clear_caches` does JAX's."""
    for programs in _programs:
        programs.clear()
    jax.clear_caches()


_unsupported: list[str] = []
"""The version of JAX, once it has rejected the options."""


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
    """Versions, the processor, and this package's sources."""
    parts = [sys.version, platform.machine(), os.environ.get("XLA_FLAGS", ""), *_processor()]
    for name in LIBRARIES:
        try:
            parts.append(f"{name} {version(name)}")
        except PackageNotFoundError:
            parts.append(f"{name} ?")
    return hashlib.sha256("\n".join(parts).encode() + _sources(Path(str(files("irtcat"))))).digest()


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


def _sources(root: Path) -> bytes:
    """Digest of what the source files of this package hold, equal in every copy of them.

    Their sizes and times would be no quicker: all 680 files are read in 14 ms.
    """
    digest = hashlib.sha256()
    for folder, folders, names in os.walk(root):
        folders.sort()
        for name in sorted(names):
            path = os.path.join(folder, name)
            # The version changes with every commit; it is part of no program.
            if name.endswith(".py") and name != "_version.py":
                content = Path(path).read_bytes()
                digest.update(f"{os.path.relpath(path, root)} {len(content)}\n".encode())
                digest.update(content)
    return digest.digest()


def _key(function: Callable[..., Any], signature: _Signature) -> str | None:
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


def _load_or_compile(
    function: Callable[..., Any],
    signature: _Signature,
    arguments: Any,
    compiled: Callable[[], Any],
    folder: Path,
) -> Callable[..., Any]:
    """The program of a call, from the disk if it is there; a new one is kept there.

    Args:
        function: what is compiled.
        signature: that of the call.
        arguments: the arguments that are not static, positional and by name.
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
        with suppress(OSError):
            _suspected(self.path).unlink(missing_ok=True)
        self.call = self.program
        return out


def _failed(path: Path) -> Path:
    """The file that says that a program has failed."""
    return path.with_suffix(".failed")


def _suspected(path: Path) -> Path:
    """The file that says that a process ended while it tried a program."""
    return path.with_suffix(".suspected")


def _give_up(path: Path) -> None:
    """Never load this program again."""
    with suppress(OSError):
        _failed(path).touch(mode=0o600)
        path.unlink(missing_ok=True)
        _suspected(path).unlink(missing_ok=True)


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
    """Look once in a process for others that ended while they tried a program.

    The program of two in a row is given up. One may have been killed (or several at once), which
    is no fault of the program.
    """
    with suppress(OSError):
        ended = set()
        for mark in (folder / "loading").iterdir():
            node, process, _, key = mark.name.split(",")
            if node == platform.node() and not _is_running(int(process), mark):
                ended.add(folder / key)
                mark.unlink(missing_ok=True)
        for path in ended:
            if _suspected(path).exists():
                _give_up(path)
            else:
                _suspected(path).touch(mode=0o600)


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
        files = [(e.stat(), e.path) for e in entries if "." not in e.name]
        size = sum(status.st_size for status, _ in files)
        for status, path in sorted(files, key=lambda file: file[0].st_mtime):
            if size <= MOST_BYTES:
                return
            os.unlink(path)
            size -= status.st_size
