"""Abilities of subjects: the posterior, and the estimates drawn from it."""

# ruff: noqa: F401
# Names besides those of `__all__` are for irtcat's other packages: they may change in any release.

from irtcat._common.lazy import public_names
from irtcat.scoring.ability import Ability
from irtcat.scoring.estimators import METHODS
from irtcat.scoring.groups import (
    group_labels,
    mixture_note,
    refuse_versions,
    subject_labels,
    subject_priors,
    warn_of_mixture,
    with_versions,
)
from irtcat.scoring.plausible import plausible_values
from irtcat.scoring.points import bias_slope, tied_nodes
from irtcat.scoring.posteriors import changes_too_fast, posterior, row_blocks, standardised
from irtcat.scoring.scorer import match, score
from irtcat.scoring.sum_scores import log_score_probabilities, sum_score_table

__all__ = ["METHODS", "Ability", "plausible_values", "score", "sum_score_table"]

__dir__ = public_names(__name__)
