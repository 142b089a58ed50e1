"""Abilities of subjects: the posterior, and the estimates drawn from it."""

from irtcat.scoring._kernel import (
    LIMIT,
    Blocks,
    EStep,
    e_step,
    grid_nodes,
    posterior_on_grid,
    response_channels,
)
from irtcat.scoring._layout import Layout, LayoutPlan
from irtcat.scoring._posterior import Posterior, posterior, row_blocks
from irtcat.scoring._score import METHODS, match, plausible_values, score, standardised
from irtcat.scoring.ability import Ability
from irtcat.scoring.sum_score import sum_score_table

__all__ = [
    "LIMIT",
    "METHODS",
    "Ability",
    "Blocks",
    "EStep",
    "Layout",
    "LayoutPlan",
    "Posterior",
    "e_step",
    "grid_nodes",
    "match",
    "plausible_values",
    "posterior",
    "posterior_on_grid",
    "response_channels",
    "row_blocks",
    "score",
    "standardised",
    "sum_score_table",
]
