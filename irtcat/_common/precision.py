"""The floating-point precision of a computation, set locally and never by a global flag."""

import contextlib
from collections.abc import Iterator

import jax
import numpy as np

from irtcat._common.checks import check_choice

PRECISIONS = ("auto", "float64", "float32")

LARGE = 2**20
"""Matrices with more cells than this use float32 unless ``precision`` says otherwise."""


def choose_precision(name: str, n_cells: int) -> str:
    """Resolve ``"auto"``: float64 for small data on a CPU, else float32.

    Args:
        name: "auto", "float32" or "float64".
        n_cells: subjects x items.

    Returns:
        "float32" or "float64".
    """
    check_choice("precision", name, PRECISIONS)
    if name != "auto":
        return name
    small = n_cells <= LARGE and jax.default_backend() == "cpu"
    return "float64" if small else "float32"


@contextlib.contextmanager
def precision(name: str) -> Iterator[np.dtype]:
    """Switch 64-bit types on or off within the context.

    Products of float32 matrices are computed in float32: by default JAX rounds their factors to 10
    bits on recent GPUs (TF32) and to 7 on TPUs, and sums of log-likelihoods over thousands of items
    are then off by more than the differences that matter. On the CPU that is so in any case.
    """
    matmul = None if jax.default_backend() == "cpu" else "highest"
    with jax.enable_x64(name == "float64"), jax.default_matmul_precision(matmul):
        yield np.dtype(name)
