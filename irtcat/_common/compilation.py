"""`jax.jit` for programs that take longer to compile than to run.

Two things make a first call quick:

- Compiler settings. On the CPU, XLA's fusion emitters about double the compile time of this
  package's programs and do not make them faster (5000 x 200 2PL: 1.0 s against .57 s for one EM
  iteration, which runs in 20 ms either way; measured with jaxlib 0.10.2). LLVM's first level of
  optimisation takes a sixth off the compile time of most programs (the same iteration: .52 s
  against .43 s), which run as fast as at its third.
- Compiled programs are kept on disk (see `irtcat._common.programs`), so that a later process
neither
  traces nor compiles them.
"""

import functools
import inspect
import weakref
from collections.abc import Callable
from typing import Any, TypeVar

import jax
import numpy as np

from irtcat._common.programs import CHECKS, SETTINGS, Signature, load_or_compile, programs_folder

T = TypeVar("T")

BEST = {"xla_cpu_use_fusion_emitters": False}
QUICK: dict[str, Any] = {**BEST, "xla_backend_optimization_level": 1}
if jax.config.values["jax_disable_most_optimizations"]:  # JAX's own setting wins
    QUICK = BEST


SMALL: dict[str, Any] = {**QUICK, "xla_backend_optimization_level": 0}
"""For programs of a few numbers, which run for less time than LLVM needs to optimise them."""


def jit(
    function: Callable[..., T],
    *,
    static_argnames: tuple[str, ...] | str = (),
    options: dict[str, Any] = QUICK,
) -> Callable[..., T]:
    """`jax.jit` with these settings; inside another compiled function, plain `jax.jit`.

    Args:
        function: what to compile.
        static_argnames: as for `jax.jit`.
        options: of the compiler; `BEST` for programs that run faster with it, `SMALL` for those
            of a few numbers.

    Returns:
        The compiled function.
    """
    names = (static_argnames,) if isinstance(static_argnames, str) else static_argnames
    plain = jax.jit(function, static_argnames=names)
    quick = jax.jit(function, static_argnames=names, compiler_options=options)
    parameters = list(inspect.signature(function).parameters)
    # From the last, as they are taken out of a list.
    positions = [i for i, name in reversed(list(enumerate(parameters))) if name in names]
    programs = _Programs()
    _programs.add(programs)

    def compiled(signature: Signature, arguments: Any, args: Any, kwargs: Any) -> Callable[..., T]:
        folder = programs_folder()
        assert folder is not None
        return load_or_compile(
            function, signature, arguments, lambda: quick.lower(*args, **kwargs).compile(), folder
        )

    def call_without_folder(args: Any, kwargs: Any) -> T:
        try:
            return quick(*args, **kwargs)
        except jax.errors.JaxRuntimeError as error:
            if "No such compile option" not in str(error):
                raise
        _unsupported.append(jax.__version__)
        return plain(*args, **kwargs)

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
        if _unsupported or jax.default_backend() != "cpu":
            return plain(*args, **kwargs)
        config = jax.config.values
        is_kept = is_kept and programs_folder() is not None and jax.device_count() == 1
        if not is_kept or any(map(config.__getitem__, CHECKS)):
            return call_without_folder(args, kwargs)
        settings = tuple(map(config.__getitem__, SETTINGS))
        signature = Signature(tree, tuple(shapes), tuple(static), settings)
        program = programs.get(signature)
        if program is None:
            try:
                program = compiled(signature, (tuple(positional), named), args, kwargs)
            except jax.errors.JaxRuntimeError:
                return call_without_folder(args, kwargs)
            programs[signature] = program
        return program(*positional, **named)

    counted: list[Any] = [plain, quick]
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
