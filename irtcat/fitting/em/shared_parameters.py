"""Parameters that several items share: columns of `pack`, and which of their cells are one."""

from typing import Any

import jax.numpy as jnp
import numpy as np

from irtcat._common.types import BoolArray, FloatArray, IntArray
from irtcat.fitting.em.m_step import Shared


def shared_cells(labels: IntArray, dtype: np.dtype) -> Shared:
    """The cells of the tied columns for the M-step.

    Args:
        labels: number of each cell's parameter, items x tied columns.
        dtype: working precision.
    """
    names, numbers = np.unique(labels, return_inverse=True)
    numbers = numbers.reshape(labels.shape)
    counts = np.bincount(numbers.ravel(), minlength=len(names))
    return Shared(jnp.asarray(numbers, jnp.int32), jnp.asarray(counts, dtype))


def _names(shape: tuple[int, ...], tied: tuple[int, ...], shared: Shared | None) -> IntArray:
    """A number for each cell, equal where cells are one parameter."""
    names = np.arange(int(np.prod(shape))).reshape(shape)
    for i, column in enumerate(tied):
        names[:, column] = -1 - (i if shared is None else np.asarray(shared.labels)[:, i])
    return names


def count_distinct(mask: BoolArray, tied: tuple[int, ...], shared: Shared | None) -> int:
    """How many parameters the cells of a mask are."""
    return len(np.unique(_names(mask.shape, tied, shared)[mask]))


def averaged(
    params: FloatArray, mask: BoolArray, tied: tuple[int, ...], shared: Shared | None
) -> FloatArray:
    """The parameters, with the mean of the masked cells where cells are one parameter."""
    names = _names(params.shape, tied, shared)
    flat, at = params.copy().ravel(), np.flatnonzero((names < 0) & mask)
    _, which, counts = np.unique(names.ravel()[at], return_inverse=True, return_counts=True)
    flat[at] = (np.bincount(which, flat[at]) / counts)[which]
    return flat.reshape(params.shape)


def spread_of(
    free: BoolArray, tied: tuple[int, ...], shared: Shared | None, further: BoolArray
) -> FloatArray:
    """All cells x free parameters, 1 where a cell is the parameter.

    Args:
        free: items x params.
        tied: columns of parameters that items share.
        shared: which of their cells are one; None where all of a column are.
        further: which of the further cells are free parameters, each its own.
    """
    names = _names(free.shape, tied, shared).ravel()
    cells = np.concatenate([names, free.size + np.arange(len(further))])
    all_free: Any = np.concatenate([free.ravel(), further])
    distinct, which = np.unique(cells[all_free], return_inverse=True)
    spread = np.zeros((len(cells), len(distinct)))
    spread[np.flatnonzero(all_free), which] = 1.0
    return spread
