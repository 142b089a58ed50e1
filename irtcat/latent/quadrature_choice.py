"""Choice of the multidimensional quadrature."""

from typing import TypeAlias

import jax
import jax.numpy as jnp
import numpy as np

from irtcat._common.types import FloatArray
from irtcat.latent.adaptive import AdaptiveQuadrature, adaptive_quadrature
from irtcat.latent.grid import (
    FINEST,
    GridQuadrature,
    TwoTierQuadrature,
    grid_rule,
    group_items,
    line_rule,
    spacing_for,
)
from irtcat.latent.product import COARSEST_PRODUCT, FINEST_PRODUCT, ProductQuadrature, product_rule

Quadrature: TypeAlias = GridQuadrature | ProductQuadrature | TwoTierQuadrature | AdaptiveQuadrature

SPACINGS = (0.5, 0.4, 0.3, 0.25, 0.2, 0.15, 0.1)
"""Spacings of grids: few, so that compiled programs are reused."""


KINDS: dict[type, str] = {
    GridQuadrature: "one grid",
    ProductQuadrature: "a line for each ability",
    TwoTierQuadrature: "pairs of general and specific",
    AdaptiveQuadrature: "each subject's own",
}
"""What the nodes of each quadrature are."""


def narrowest_sd(covariance: FloatArray) -> float:
    """SD of the narrowest posteriors (0.5 % quantile) in their narrowest direction."""
    smallest = np.linalg.eigvalsh(np.asarray(covariance, float))[:, 0]
    return float(np.sqrt(max(np.quantile(smallest, 0.005), 1e-12)))


def choose_nodes(
    n_gridded: int,
    dims: int,
    narrowest: float,
    steepest: float,
    nodes: int | None,
    is_product: bool = False,
) -> float | AdaptiveQuadrature:
    """The spacing of a grid (two-tier: of its lines), or an adaptive quadrature.

    Args:
        n_gridded: number of abilities on one grid: all, or the general ones and a specific one.
        dims: number of abilities.
        narrowest: see `narrowest_sd`.
        steepest: slope of the steeper items.
        nodes: nodes per dimension, where the user sets them.
        is_product: whether every item measures one ability (see `ProductQuadrature`).
    """
    if nodes is not None:
        return 12.0 / (nodes - 1) if n_gridded <= 3 else adaptive_quadrature(dims, nodes)
    finest = (FINEST_PRODUCT if is_product else FINEST).get(n_gridded, np.inf)
    wanted = spacing_for(finest, narrowest, steepest)
    is_pair_of_many = n_gridded == 2 < dims  # adaptive nodes of all abilities would cost more
    if wanted is None and not is_pair_of_many:
        return adaptive_quadrature(dims)
    fine = SPACINGS[-1] if wanted is None else wanted
    if is_product:
        fine = min(fine, COARSEST_PRODUCT[n_gridded])
    return next((s for s in SPACINGS if s <= fine + 1e-9), SPACINGS[-1])


def as_rule(
    chosen: float | AdaptiveQuadrature,
    pattern: np.ndarray,
    n_general: int,
    dtype: np.dtype,
    is_product: bool = False,
) -> Quadrature:
    """The quadrature in working precision.

    Args:
        chosen: what `choose_nodes` chose.
        pattern: items x abilities, 1 where an item measures an ability.
        n_general: number of general abilities; all where there are no specific ones.
        dtype: working precision.
        is_product: whether every item measures one ability, and is evaluated on its line.
    """
    rule: Quadrature
    if isinstance(chosen, AdaptiveQuadrature):
        rule = chosen.with_lines(pattern) if is_product else chosen
    elif n_general < pattern.shape[1]:
        _, members, valid = group_items(pattern, n_general)
        line = line_rule(chosen)
        general = line if n_general == 1 else grid_rule(n_general, chosen)
        rule = TwoTierQuadrature(members, valid, general, line)
    elif is_product:
        rule = product_rule(line_rule(chosen), pattern)
    else:
        rule = grid_rule(pattern.shape[1], chosen)
    return jax.tree.map(lambda a: jnp.asarray(a, dtype if a.dtype.kind == "f" else a.dtype), rule)


def is_adaptive(rule: Quadrature) -> bool:
    """Whether the nodes are placed by the posteriors."""
    return isinstance(rule, AdaptiveQuadrature)


def has_lines(rule: Quadrature) -> bool:
    """Whether each ability has a line of nodes of its own."""
    return isinstance(rule, ProductQuadrature)


def n_nodes(rule: Quadrature) -> int:
    """Number of nodes (two-tier: pairs)."""
    if isinstance(rule, ProductQuadrature):
        return len(rule.line.nodes) ** len(rule.members)
    if isinstance(rule, TwoTierQuadrature):
        return len(rule.general.nodes) * len(rule.specific.nodes)
    return len(rule.nodes) if isinstance(rule, GridQuadrature) else len(rule.points)
