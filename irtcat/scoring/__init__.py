"""Abilities of subjects: the posterior, and the estimates drawn from it."""

from irtcat.scoring._adaptive import (
    AdaptiveQuadrature,
    Plane,
    adaptive_block,
    adaptive_posterior,
    adaptive_quadrature,
    moments_of,
    root_of,
)
from irtcat.scoring._cells import Cells, cells_of
from irtcat.scoring._kernel import (
    LIMIT,
    Blocks,
    EStep,
    Population,
    ScaleTransform,
    e_step,
    grid_nodes,
    item_curves,
    on_grid_scale,
    posterior_on_grid,
    row_priors,
    transformed_nodes,
)
from irtcat.scoring._layout import Layout, LayoutPlan
from irtcat.scoring._modes import posterior_modes
from irtcat.scoring._point import bias_slope, tied_nodes
from irtcat.scoring._posterior import (
    Posterior,
    changes_too_fast,
    posterior,
    row_blocks,
    standardised,
)
from irtcat.scoring._rules import as_rule, choose_nodes, n_nodes, narrowest_sd
from irtcat.scoring._score import METHODS, match, plausible_values, score
from irtcat.scoring._several import (
    BifactorQuadrature,
    GridQuadrature,
    MultiEStep,
    bifactor_step,
    grid_posterior,
    grid_rule,
    grid_step,
    group_items,
    line_rule,
    row_chunks,
    spacing_for,
)
from irtcat.scoring.ability import Ability
from irtcat.scoring.sum_score import sum_score_table

__all__ = [
    "LIMIT",
    "METHODS",
    "Ability",
    "AdaptiveQuadrature",
    "BifactorQuadrature",
    "Blocks",
    "Cells",
    "EStep",
    "GridQuadrature",
    "Layout",
    "LayoutPlan",
    "MultiEStep",
    "Plane",
    "Population",
    "Posterior",
    "ScaleTransform",
    "adaptive_block",
    "adaptive_posterior",
    "adaptive_quadrature",
    "as_rule",
    "bias_slope",
    "bifactor_step",
    "cells_of",
    "changes_too_fast",
    "choose_nodes",
    "e_step",
    "grid_nodes",
    "grid_posterior",
    "grid_rule",
    "grid_step",
    "group_items",
    "item_curves",
    "line_rule",
    "match",
    "moments_of",
    "n_nodes",
    "narrowest_sd",
    "on_grid_scale",
    "plausible_values",
    "posterior",
    "posterior_modes",
    "posterior_on_grid",
    "root_of",
    "row_blocks",
    "row_chunks",
    "row_priors",
    "score",
    "spacing_for",
    "standardised",
    "sum_score_table",
    "tied_nodes",
    "transformed_nodes",
]
