"""Criteria based on information matrices: D-, T- and A-optimality, for any number of abilities.

The precision ``L`` is that of the prior plus the Fisher information, at the estimate, of the items
answered and, within a batch, of those chosen before.
"""

import jax.numpy as jnp
from jaxtyping import Array, Float

from irtcat.cat._state import Context
from irtcat.cat._vectors import (
    Belief,
    a_value,
    d_value,
    information_matrices,
)

__all__ = ["a_optimal", "d_optimal", "t_optimal"]

Values = Float[Array, " items"]


def _precision_and_information(context: Context) -> tuple[Belief, Array]:
    """Estimate, precision, and the information matrices of all items at the estimate."""
    state, pool = context.state, context.pool
    theta = jnp.atleast_1d(context.theta)
    matrices = (
        information_matrices(pool.model, theta)
        if pool.dims > 1
        else context.information[:, None, None]
    )
    skipped = (state.items >= 0) & (state.answers < 0)
    skipped_item = jnp.where(skipped, state.items, pool.n_items)
    counts = (state.administered & ~pool.pretest).at[skipped_item].set(False, mode="drop")
    prior_precision = _prior_precision(context)
    total = prior_precision + jnp.where(counts[:, None, None], matrices, 0).sum(axis=0)
    return Belief(theta, total), matrices


def _prior_precision(context: Context) -> Array:
    """Precision of the prior; nearly 0 for a flat one, so that L is never 0."""
    if context.pool.dims > 1:
        return context.state.prior[1:]
    normal = context.config.prior == "normal"
    return (1 / context.state.prior[1] ** 2 if normal else jnp.full_like(context.theta, 1e-6))[
        None, None
    ]


def d_optimal(context: Context) -> Values:
    """Gain in the log-determinant of the precision: ``ln det(L + I_i(theta)) - ln det L``.

    With one ability it orders the items as "mfi" does.

    References:
        Segall (1996), Psychometrika 61, 331-354, eq. 18.
    """
    return d_value(*_precision_and_information(context))


def t_optimal(context: Context) -> Values:
    """Trace of the item's information at the estimate: ``tr I_i(theta)``.

    References:
        Mulder & van der Linden (2009), Psychometrika 74, 273-296, section 3.
    """
    return context.information


def a_optimal(context: Context) -> Values:
    """Reduction of the sum of the variances: ``tr L^-1 - tr (L + I_i(theta))^-1``.

    References:
        Mulder & van der Linden (2009), Psychometrika 74, 273-296, section 3.
    """
    return a_value(*_precision_and_information(context))
