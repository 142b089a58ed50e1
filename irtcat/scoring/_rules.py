"""Choice of the multidimensional quadrature."""

import jax
import jax.numpy as jnp
import numpy as np

from irtcat._types import FloatArray
from irtcat.scoring._adaptive import AdaptiveQuadrature, adaptive_quadrature
from irtcat.scoring._several import (
    BifactorQuadrature,
    GridQuadrature,
    grid_rule,
    group_items,
    line_rule,
    spacing_for,
)

__all__ = ["as_rule", "choose_nodes", "n_nodes", "narrowest_sd"]

SPACINGS = (0.5, 0.4, 0.3, 0.25, 0.2, 0.15, 0.1)
"""Spacings of grids: few, so that compiled programs are reused."""


def narrowest_sd(covariance: FloatArray) -> float:
    """SD of the narrowest posteriors (0.5 % quantile) in their narrowest direction."""
    smallest = np.linalg.eigvalsh(np.asarray(covariance, float))[:, 0]
    return float(np.sqrt(max(np.quantile(smallest, 0.005), 1e-12)))


def choose_nodes(
    dims: int, bifactor: bool, narrowest: float, steepest: float, nodes: int | None
) -> float | AdaptiveQuadrature:
    """The spacing of a grid (bifactor: of its lines), or an adaptive quadrature.

    Args:
        dims: number of abilities.
        bifactor: whether there is a general dimension and specific ones.
        narrowest: see `narrowest_sd`.
        steepest: slope of the steeper items.
        nodes: nodes per dimension, where the user sets them.
    """
    flat = 2 if bifactor else dims
    if nodes is not None:
        return 12.0 / (nodes - 1) if flat <= 3 else adaptive_quadrature(dims, nodes)
    wanted = spacing_for(flat, narrowest, steepest)
    if wanted is None and not bifactor:
        return adaptive_quadrature(dims)
    fine = SPACINGS[-1] if wanted is None else wanted
    return next((s for s in SPACINGS if s <= fine + 1e-9), SPACINGS[-1])


def as_rule(
    chosen: float | AdaptiveQuadrature, pattern: FloatArray, bifactor: bool, dtype: np.dtype
):
    """The quadrature in working precision."""
    rule: GridQuadrature | BifactorQuadrature | AdaptiveQuadrature
    if isinstance(chosen, AdaptiveQuadrature):
        rule = chosen
    elif bifactor:
        _, members, valid = group_items(pattern)
        rule = BifactorQuadrature(members, valid, line_rule(chosen), line_rule(chosen))
    else:
        rule = grid_rule(pattern.shape[1], chosen)
    return jax.tree.map(lambda a: jnp.asarray(a, dtype if a.dtype.kind == "f" else a.dtype), rule)


def n_nodes(rule: GridQuadrature | BifactorQuadrature | AdaptiveQuadrature) -> int:
    """Number of nodes (bifactor: pairs)."""
    if isinstance(rule, BifactorQuadrature):
        return len(rule.general.nodes) * len(rule.specific.nodes)
    return len(rule.nodes) if isinstance(rule, GridQuadrature) else len(rule.points)
