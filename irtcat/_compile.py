"""`jax.jit` for programs that take longer to compile than to run.

Two things make a first call quick:

- Compiler settings. On the CPU, XLA's fusion emitters about double the compile time of this
  package's programs and do not make them faster (5000 x 200 2PL: 1.0 s against .57 s for one EM
  iteration, which runs in 20 ms either way; measured with jaxlib 0.10.2).
- Compiled programs are kept on disk (see `irtcat._programs`), so that a later process neither
  traces nor compiles them.
"""

import functools
import inspect
import weakref
from collections.abc import Callable
from typing import Any, TypeVar

import jax

from irtcat._programs import load_or_compile, programs_folder, signature_of

__all__ = ["forget_programs", "jit"]

T = TypeVar("T")

QUICK = {"xla_cpu_use_fusion_emitters": False}


def jit(
    function: Callable[..., T], *, static_argnames: tuple[str, ...] | str = ()
) -> Callable[..., T]:
    """`jax.jit` with these settings; inside another compiled function, plain `jax.jit`.

    Args:
        function: what to compile.
        static_argnames: as for `jax.jit`.

    Returns:
        The compiled function.
    """
    names = (static_argnames,) if isinstance(static_argnames, str) else static_argnames
    plain = jax.jit(function, static_argnames=names)
    quick = jax.jit(function, static_argnames=names, compiler_options=QUICK)
    parameters = list(inspect.signature(function).parameters)
    programs = _Programs()
    _programs.add(programs)

    def call_program(args: tuple[Any, ...], kwargs: dict[str, Any]) -> T:
        """Call the program for these arguments, from the disk or newly compiled."""
        folder = programs_folder()
        named = list(zip(parameters, args, strict=False))
        arguments = (
            tuple(x for name, x in named if name not in names),
            {name: x for name, x in kwargs.items() if name not in names},
        )
        static = (
            tuple(x for name, x in named if name in names),
            {name: x for name, x in kwargs.items() if name in names},
        )
        signature = None if folder is None else signature_of(arguments, static)
        if folder is None or signature is None or len(named) < len(args):
            return quick(*args, **kwargs)
        if signature not in programs:
            programs[signature] = load_or_compile(
                function,
                signature,
                arguments,
                lambda: quick.lower(*args, **kwargs).compile(),
                folder,
            )
        return programs[signature](*arguments[0], **arguments[1])

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> T:
        # XLA accepts options for a whole program only, not for a traced part of one.
        traced = any(isinstance(x, jax.core.Tracer) for x in jax.tree.leaves((args, kwargs)))
        if traced or not _accepts_options():
            return plain(*args, **kwargs)
        try:
            return call_program(args, kwargs)
        except jax.errors.JaxRuntimeError as error:
            if "No such compile option" not in str(error):
                raise
        _unsupported.append(jax.__version__)
        return plain(*args, **kwargs)

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


def _accepts_options() -> bool:
    return not _unsupported and jax.default_backend() == "cpu"
