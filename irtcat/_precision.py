"""Which floating-point width a computation uses, chosen locally and never by a global flag."""

import contextlib
from collections.abc import Iterator

import jax
import numpy as np

from irtcat._checks import check_choice

__all__ = ["LARGE", "choose_precision", "precision"]

LARGE = 2**20
"""Matrices with more cells than this are computed in float32 unless told otherwise."""


def choose_precision(name: str, n_cells: int) -> str:
    """Resolve ``"auto"``: float64 for small data, float32 for large data or an accelerator.

    Args:
        name: "auto", "float32" or "float64".
        n_cells: subjects x items.

    Returns:
        "float32" or "float64".
    """
    check_choice("precision", name, ("auto", "float32", "float64"))
    if name != "auto":
        return name
    small = n_cells <= LARGE and jax.default_backend() == "cpu"
    return "float64" if small else "float32"


@contextlib.contextmanager
def precision(name: str) -> Iterator[np.dtype]:
    """Run the body with 64-bit types on or off, and put the setting back afterwards."""
    with jax.enable_x64(name == "float64"):
        yield np.dtype(name)
