"""Threads of BLAS, which compute numpy's matrix products."""

import functools
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

_lock = threading.Lock()
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
    with _lock:
        _inside.append(_inside[0] if _inside else _libraries().limit(limits=1))
    try:
        yield
    finally:
        with _lock:
            limit = _inside.pop()
            if not _inside:
                limit.restore_original_limits()
