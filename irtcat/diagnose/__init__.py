"""Model checks: items and their pairs, fit, subjects, dimensions, groups, labels, reruns."""

from irtcat._common.lazy import public_names
from irtcat.diagnose import labels
from irtcat.diagnose.calibration_plan import CalibrationPlan, plan_calibration
from irtcat.diagnose.choice_options import distractors
from irtcat.diagnose.cohort_information import spent_items
from irtcat.diagnose.contamination import Contamination, find_contamination
from irtcat.diagnose.dependence import Pairs, ld_statistics, q3
from irtcat.diagnose.dif import DIF, find_dif
from irtcat.diagnose.dimension.correlations import nearest_correlation
from irtcat.diagnose.dimension.factors import (
    Correlations,
    Factors,
    ParallelAnalysis,
    compare_factors,
    correlations,
    factors,
    parallel_analysis,
)
from irtcat.diagnose.drift import Drift, find_drift
from irtcat.diagnose.empirical import SMOOTHERS, empirical_curves, grouped_fit, grouped_fit_table
from irtcat.diagnose.item_statistics import infit_outfit, item_fit
from irtcat.diagnose.judge_noise import Judges, judges
from irtcat.diagnose.labels import LabelRanking
from irtcat.diagnose.limited_information import ModelFit, model_fit, rmsea_power, rmsea_sample_size
from irtcat.diagnose.matched_dif import MatchedDIF, mantel_haenszel
from irtcat.diagnose.person_statistics import person_fit
from irtcat.diagnose.populations import Populations, compare_populations
from irtcat.diagnose.reliability import (
    binomial_errors,
    coefficient_alpha,
    empirical_reliability,
    item_analysis,
    marginal_reliability,
    omega,
    reliable_change,
    sum_score_errors,
    sum_score_reliability,
)
from irtcat.diagnose.rerun_noise import Reruns, reruns
from irtcat.diagnose.total_score_fit import s_x2, s_x2_table

__all__ = [
    "DIF",
    "SMOOTHERS",
    "CalibrationPlan",
    "Contamination",
    "Correlations",
    "Drift",
    "Factors",
    "Judges",
    "LabelRanking",
    "MatchedDIF",
    "ModelFit",
    "Pairs",
    "ParallelAnalysis",
    "Populations",
    "Reruns",
    "binomial_errors",
    "coefficient_alpha",
    "compare_factors",
    "compare_populations",
    "correlations",
    "distractors",
    "empirical_curves",
    "empirical_reliability",
    "factors",
    "find_contamination",
    "find_dif",
    "find_drift",
    "grouped_fit",
    "grouped_fit_table",
    "infit_outfit",
    "item_analysis",
    "item_fit",
    "judges",
    "labels",
    "ld_statistics",
    "mantel_haenszel",
    "marginal_reliability",
    "model_fit",
    "nearest_correlation",
    "omega",
    "parallel_analysis",
    "person_fit",
    "plan_calibration",
    "q3",
    "reliable_change",
    "reruns",
    "rmsea_power",
    "rmsea_sample_size",
    "s_x2",
    "s_x2_table",
    "spent_items",
    "sum_score_errors",
    "sum_score_reliability",
]

__dir__ = public_names(__name__)
