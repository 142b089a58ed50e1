"""Posterior modes in several dimensions, for all subjects at once."""

import functools
from typing import Any, NamedTuple

import jax
import numpy as np
from jaxtyping import Float, Int

from irtcat._common.compilation import FEW, jit, namespace, repeat_while
from irtcat.latent.e_step import FEW_CELLS, all_placed, fold_rows
from irtcat.latent.linear_predictors import (
    Part,
    has_numpy_terms,
    information_of,
    part_terms,
    parts_of,
)
from irtcat.models import ItemModel

STEPS = 40
"""Maximum number of scoring steps."""

SETTLED = 1e-9
"""The steps end when the largest slope of all log-posteriors is below this (float32: 1e-4)."""


class Modes(NamedTuple):
    """Posterior modes on the z scale, and the inverse curvature there.

    Attributes:
        mode: where the posterior is highest.
        covariance: inverse of the expected information there, the prior's included.
        gradient: largest remaining slope of the log-posterior.
    """

    mode: Float[Any, "subjects dims"]
    covariance: Float[Any, "subjects dims dims"]
    gradient: Float[Any, " subjects"]


def _terms(
    parts: list[Part], z: Float[Any, "rows dims"], statistics: Any, answered: Any
) -> tuple[Any, Any, Any]:
    """Log-posterior up to a constant, its gradient, and the expected information."""
    value, gradient, xp = -0.5 * (z**2).sum(1), -z, namespace(z)
    information = xp.broadcast_to(xp.eye(z.shape[1], dtype=z.dtype), (*z.shape, z.shape[1]))
    for part in parts:
        terms = part_terms(part, z, statistics, answered)
        value = value + terms.value.sum(1)
        for m, residual in enumerate(terms.residual):
            gradient = gradient + residual @ part.slopes[:, m]
        information = information + information_of(part, terms.weight)
    return value, gradient, information


def _solved(matrix: Any, right: Any) -> Any:
    """The solutions of positive-definite systems; LU factors would take longer to compile."""
    if namespace(matrix) is np:
        return np.linalg.solve(matrix, right)
    factor = jax.scipy.linalg.cho_factor(matrix, lower=True)
    return jax.scipy.linalg.cho_solve(factor, right)


def _fits_numpy(model: ItemModel, n_responses: int, dtype: np.dtype) -> bool:
    """Whether the modes are computed in numpy, where they take up to .03 s more than a program."""
    is_small = n_responses * model.n_categories <= FEW_CELLS // 2
    return is_small and dtype == np.float64 and has_numpy_terms(model)


@functools.partial(
    jit,
    static_argnames=("has_missing",),
    small_below=FEW,
    numpy_where=lambda model, x, _, unit, **__: _fits_numpy(model, x.size, unit.dtype),
)
def posterior_modes(
    model: ItemModel, x: Any, chunks: Int[Any, "blocks rows"], unit: Any, *, has_missing: bool
) -> Modes:
    """Posterior modes under a standard Normal prior, by damped Fisher scoring.

    Args:
        model: stacked items on the z scale.
        x: responses.
        chunks: row numbers in blocks.
        unit: an array of the working precision (only its dtype is used).
        has_missing: whether any response is missing.

    Returns:
        The modes.
    """
    n, xp = x.shape[0], namespace(unit)
    dtype, dims = unit.dtype, model.dims
    parts, n_contrasts = parts_of(model), model.n_categories - 1
    least = SETTLED if dtype == np.float64 else 1e-4

    def block(carry: tuple[Any, ...], rows: Any) -> tuple[tuple[Any, ...], None]:
        statistics, mask = model.sufficient_statistics(
            x[xp.minimum(rows, n - 1)], n_contrasts, has_missing, dtype
        )
        answered = xp.ones_like(statistics[0]) if mask is None else mask

        def update(state: Any) -> Any:
            # The terms at the start are computed by the first update, so that they are compiled
            # once: it moves nowhere, and is always an improvement.
            k, z, value, gradient, information, damping = state
            diagonal = xp.diagonal(information, axis1=1, axis2=2) * damping[:, None]
            lifted = information + diagonal[..., None] * xp.eye(dims, dtype=dtype)
            new = z + _solved(lifted, gradient[..., None])[..., 0]
            there = _terms(parts, new, statistics, answered)
            up = there[0] >= value - 1e-12
            wide = up[:, None]
            return (
                k + 1,
                xp.where(wide, new, z),
                xp.where(up, there[0], value),
                xp.where(wide, there[1], gradient),
                xp.where(wide[..., None], there[2], information),
                xp.where(up, 0.2 * damping, 5 * damping + 0.5),
            )

        zero = xp.zeros((len(rows), dims), dtype)
        eye = xp.broadcast_to(xp.eye(dims, dtype=dtype), (len(rows), dims, dims))
        nothing = zero[:, 0]
        start = (np.int32(0), zero, nothing - np.inf, zero, eye, nothing)
        _count, z, _value, gradient, information, _damping = repeat_while(
            xp,
            lambda state: (state[0] == 0) | (state[0] <= STEPS) & (abs(state[3]).max() > least),
            update,
            start,
        )
        found = z, _solved(information, eye), abs(gradient).max(1)
        return all_placed(carry, rows, found), None

    empty = xp.zeros((n, dims), dtype), xp.zeros((n, dims, dims), dtype), xp.zeros(n, dtype)
    return Modes(*fold_rows(block, empty, chunks, n, x.shape[1]))
