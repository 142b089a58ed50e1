"""Whether a calibrated model fits: items, pairs of items, the whole, subjects, reliability."""

from irtcat.diagnose._corrections import benjamini_hochberg, holm
from irtcat.diagnose.dependence import Pairs, ld_statistics, q3
from irtcat.diagnose.empirical import SMOOTHERS, empirical_curves
from irtcat.diagnose.groups import grouped_fit, grouped_fit_table
from irtcat.diagnose.item_fit import infit_outfit, item_fit, s_x2, s_x2_table
from irtcat.diagnose.model_fit import ModelFit, model_fit
from irtcat.diagnose.person_fit import person_fit
from irtcat.diagnose.reliability import (
    coefficient_alpha,
    empirical_reliability,
    item_analysis,
    marginal_reliability,
    omega,
)

__all__ = [
    "SMOOTHERS",
    "ModelFit",
    "Pairs",
    "benjamini_hochberg",
    "coefficient_alpha",
    "empirical_curves",
    "empirical_reliability",
    "grouped_fit",
    "grouped_fit_table",
    "holm",
    "infit_outfit",
    "item_analysis",
    "item_fit",
    "ld_statistics",
    "marginal_reliability",
    "model_fit",
    "omega",
    "person_fit",
    "q3",
    "s_x2",
    "s_x2_table",
]
